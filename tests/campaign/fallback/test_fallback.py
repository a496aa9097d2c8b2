"""Which checkpoints a trial goes on from, and when one side resumes the other's; real trials are slow tests."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign import documents
from campaign.documents import FallbackStretch
from campaign.errors import StateError
from campaign.fallback.comparing import Tolerance, differences_of, tolerance_of, why_not
from campaign.fallback.keeping import MOST_REASON, shortened
from campaign.fallback.subject import choose_update
from campaign.fallback.trial import require_able
from campaign.paths import HomePaths
from campaign.record.fallbacks import state_of

TOLERANCE = Tolerance(atol="0.002", rtol="0.002", source="default")


def stretch(side: Any, losses: tuple[float, ...] = (3.0, 2.0), **fields: Any) -> FallbackStretch:
    values: dict[str, Any] = {"receipt_sha256": "a" * 64, "ending": Ending.COMPLETED, "reason": "", "is_loaded": True}
    return FallbackStretch(side=side, losses=losses, **{**values, **fields})


@pytest.mark.parametrize(
    ("saved", "updates", "chosen"),
    [
        ((1, 12, 19, 24), 5, 2),  # 19 + 5 is just the recipe's last update
        ((1, 12, 20, 24), 5, 1),  # 20 leaves too few
        ((20, 24), 5, 0),  # too few is better than none
        ((24,), 5, 0),
        ((1, 24), 1000, 0),
        ((1, 5, 3, 24), 5, 2),  # a later segment's is the newer one
    ],
)
def test_the_newest_checkpoint_with_training_left_is_taken(saved: tuple[int, ...], updates: int, chosen: int) -> None:
    assert choose_update(saved, updates, 24) == chosen


def test_losses_may_differ_by_just_as_much_as_is_allowed() -> None:
    own = stretch("baseline", (1.0, -1.0))
    inside = stretch("candidate", (1.0, -1.0 - 0.00399))
    outside = stretch("candidate", (1.0, -1.0 - 0.00401))
    assert why_not(own, inside, 7, TOLERANCE) == ""
    told = why_not(own, outside, 7, TOLERANCE)
    assert told.startswith(
        "the loss of update 9 is -1.00401, and -1.0 of the baseline: they differ by 0.00401, allowed"
    )
    assert differences_of(own.losses, outside.losses)[0] == 0.0
    exact = Tolerance(atol="0.25", rtol="0", source="protocol")
    assert why_not(stretch("baseline", (1.0,)), stretch("candidate", (1.25,)), 0, exact) == ""
    assert why_not(stretch("baseline", (1.0,)), stretch("candidate", (math.nextafter(1.25, 2),)), 0, exact)


def test_the_scale_is_that_of_the_side_that_saved() -> None:
    tolerance = Tolerance(atol="0", rtol="0.5", source="protocol")
    small, large = (stretch(side, (loss,)) for side, loss in (("baseline", 1.0), ("candidate", 2.0)))
    assert why_not(small, large, 0, tolerance)
    assert why_not(large, small, 0, tolerance) == ""


def test_a_stretch_that_did_not_end_in_order_resumes_nothing() -> None:
    whole = stretch("baseline")
    failed = stretch("candidate", (3.0,), ending=Ending.NON_FINITE, reason="update 9: its loss is nan")
    assert why_not(whole, failed, 7, TOLERANCE) == "the candidate does not: non_finite: update 9: its loss is nan"
    owner = stretch("baseline", (), ending=Ending.CRASH, reason="x")
    assert why_not(owner, stretch("candidate"), 7, TOLERANCE) == "the baseline itself does not: crash: x"
    assert "0 losses" in why_not(stretch("baseline", ()), stretch("candidate", ()), 7, TOLERANCE)
    assert "2 losses of the baseline and 1" in why_not(whole, stretch("candidate", (3.0,)), 7, TOLERANCE)


def test_the_tolerance_is_the_protocols_or_the_default() -> None:
    values: dict[str, Any] = {
        "campaign": "x",
        "families": ("convergence",),
        "baseline_first": False,
        "throughput": documents.ThroughputRules(),
        "limits": documents.Limits(),
        "retries": documents.Retries(),
        "execution": documents.Execution(),
        "categories": (),
        "workloads": (),
        "slots": (),
        "headers": {},
    }
    without = documents.Protocol(**values)
    declared = documents.Protocol(**values, numerical=documents.NumericalRules(loss_atol="0.01", loss_rtol="0.1"))
    assert tolerance_of(without) == TOLERANCE
    assert tolerance_of(declared) == Tolerance(atol="0.01", rtol="0.1", source="protocol")


def test_a_harness_of_an_earlier_release_is_refused(tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    with pytest.raises(StateError, match="cannot try a fallback"):
        require_able(paths)
    paths.resumptions.parent.mkdir(parents=True)
    paths.resumptions.touch()
    require_able(paths)


def test_the_ledger_holds_a_reason_on_one_line_of_bounded_length() -> None:
    assert shortened("crash: last lines:\n  a\n\tb") == "crash: last lines: a b"
    assert len(shortened("x" * 20_000)) == MOST_REASON + len(" ...")


def test_the_last_trial_of_a_candidate_is_told_with_how_many_there_were() -> None:
    def entry(seq: int, candidate: str, number: int, *, resumes: bool) -> documents.Entry:
        act = documents.FallbackTried(
            candidate=candidate,
            number=number,
            recipe="short",
            seed=45,
            node="n",
            device="cpu",
            candidate_resumes=resumes,
            baseline_resumes=True,
            largest_difference=0.25,
            reasons=() if resumes else ("why",),
            files={"fallback.json": "a" * 64},
        )
        return documents.Entry(seq=seq, previous="0" * 64, at=float(seq), act="fallback_tried", data=act.to_json())

    entries = [
        entry(5, "c1", 1, resumes=False),
        entry(6, "c2", 1, resumes=False),
        entry(7, "c1", 2, resumes=True),
    ]
    found = state_of(entries, "c1")
    assert found is not None
    assert (found.seq, found.at, found.number, found.trials, found.candidate_resumes) == (7, 7.0, 2, 2, True)
    assert state_of(entries, "c3") is None
