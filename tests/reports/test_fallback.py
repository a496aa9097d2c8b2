"""What a report says of the fallback: nothing that was not tried, and nothing that failed, reads as if it worked."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from reports.fallback import LAST_BASELINE, sentence

STATE: dict[str, Any] = {
    "seq": 41,
    "at": Decimal("1795996800.5"),
    "number": 1,
    "trials": 1,
    "recipe": "short",
    "seed": 45,
    "node": "node1",
    "device": "cpu:Test",
    "candidate_resumes": True,
    "baseline_resumes": True,
    "largest_difference": Decimal("0.000123456"),
    "reasons": (),
}


@pytest.mark.parametrize("provenance", [{}, {"fallback": None}])
def test_what_was_never_tried_is_the_last_baseline_checkpoint_only(provenance: dict[str, Any]) -> None:
    assert sentence(provenance).startswith(f"Fallback: {LAST_BASELINE};")
    assert "never tried" in sentence(provenance)


def test_a_trial_is_told_with_where_it_was_made_and_the_largest_difference() -> None:
    assert sentence({"fallback": STATE}) == (
        "Fallback: each side resumes the other's checkpoint (tried on 2026-11-30 00:00 UTC on node1, cpu:Test; "
        "recipe short, seed 45; largest difference of two losses 0.000123; ledger entry 41)."
    )


@pytest.mark.parametrize(
    ("candidate", "baseline", "words"),
    [
        (False, True, "only the baseline resumes the candidate's checkpoint"),
        (True, False, f"{LAST_BASELINE}: only the candidate resumes"),
        (False, False, f"{LAST_BASELINE}: neither side"),
    ],
)
def test_what_failed_is_told_with_its_reason(candidate: bool, baseline: bool, words: str) -> None:
    reasons = ("from the baseline's checkpoint: the candidate does not: crash: x",)
    changes = {"candidate_resumes": candidate, "baseline_resumes": baseline, "reasons": reasons, "trials": 3}
    found = sentence({"fallback": {**STATE, **changes, "largest_difference": None}})
    assert found.startswith(f"Fallback: {words}")
    assert "each side" not in found
    assert found.endswith(" From the baseline's checkpoint: the candidate does not: crash: x.")
    assert "the last of 3 trials" in found
    assert "difference" not in found
