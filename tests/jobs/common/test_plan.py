from __future__ import annotations

import re
from typing import Any

import pytest

from jobs.common.plan import parse_allocation
from tests.support.plans import plan_text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "run"}, "no attempt of kind 'run'"),
        ({"kind": "case"}, "a case does not run"),
        ({"inputs_sha256": "0" * 64}, "for a solo"),
        ({"kind": "control_case", "order": ["baseline", "baseline_again"]}, "7 updates per window for a control_case"),
        (
            {"kind": "control_case", "order": ["baseline", "baseline_again"], "updates": 0},
            "canonical inputs '' for a control_case",
        ),
        (
            {"kind": "control_case", "order": ["baseline", "baseline_again"], "updates": 0, "inputs_sha256": "../x"},
            "canonical inputs '../x'",
        ),
        ({"order": ["candidate"]}, "a solo does not run"),
        ({"kind": "pair", "order": ["baseline", "candidate"]}, "does not say how to run candidate"),
        ({"updates": 0}, "0 updates per window for a solo"),
        ({"more": 1}, "unknown field 'more'"),
        ({"attempt": 0}, "attempt is 0, below 1"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(changes: dict[str, Any], message: str) -> None:
    assert parse_allocation(plan_text(), "a1").id == "a1"
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_allocation(plan_text(**changes), "a1")


def test_a_plan_in_the_wrong_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="in the folder of a2"):
        parse_allocation(plan_text(), "a2")
