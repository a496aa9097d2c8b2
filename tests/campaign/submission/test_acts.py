"""The history of submissions, folded from the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from campaign.documents import Act, Entry
from campaign.errors import EvidenceError
from campaign.submission.acts import fold

INTENT = {
    "submission": "k",
    "cluster": "slurm",
    "host": "h",
    "boot_id": "b",
    "candidate": "",
    "allocations": [
        {
            "allocation": name,
            "minutes": 5,
            "plan_sha256": "0" * 64,
            "attempts": [{"slot": f"baseline/pilot/{name}", "attempt": 1, "updates": 0}],
        }
        for name in ("a00001", "a00002")
    ],
}
SUBMITTED = {
    "submission": "k",
    "cluster": "slurm",
    "job": "7",
    "array": True,
    "host": "h",
    "boot_id": "b",
    "process_start": 0,
    "source": "transport",
}

ABSENT: tuple[Act, dict[str, Any]] = ("not_submitted", {"submission": "k", "reason": "sbatch: no"})


def entries(*acts: tuple[Act, dict[str, Any]]) -> list[Entry]:
    return [
        Entry(seq=number, previous="0" * 64, at=float(number), act=act, data=data)
        for number, (act, data) in enumerate(acts, start=1)
    ]


def test_an_allocation_of_an_array_has_the_job_of_its_place() -> None:
    history = fold(entries(("intent", INTENT), ("submitted", SUBMITTED)))
    submission = history.submissions["k"]
    assert [submission.job_of(history.allocations[name].index) for name in ("a00001", "a00002")] == ["7_0", "7_1"]
    assert history.open_submissions() == []


def test_an_intent_without_outcome_is_open_and_so_is_one_that_reached_nobody() -> None:
    assert [one.key for one in fold(entries(("intent", INTENT))).open_submissions()] == ["k"]
    again = fold(entries(("intent", INTENT), ABSENT))
    assert [one.not_submitted is not None for one in again.open_submissions()] == [True]
    assert fold(entries(("intent", INTENT), ABSENT, ("intent", INTENT))).submissions["k"].not_submitted is None


def test_a_second_intent_of_the_same_allocations_makes_no_second_attempt() -> None:
    history = fold(entries(("intent", INTENT), ABSENT, ("intent", INTENT)))
    assert len(history.attempts("baseline/pilot/a00001")) == 1


@pytest.mark.parametrize(
    ("act", "data"),
    [
        ("submitted", SUBMITTED),
        ("not_submitted", {"submission": "k", "reason": ""}),
        ("intent", {**INTENT, "more": 1}),
        (
            "ended",
            {"slot": "s", "attempt": 1, "allocation": "a", "ending": "lost", "reason": "", "source": ""},
        ),
        ("cancelled", {"allocations": "a00001", "reason": ""}),
        ("froze_candidate", {"id": "c0123456789ab"}),
    ],
)
def test_an_act_about_something_never_intended_or_of_another_shape_is_refused(act: Act, data: dict[str, Any]) -> None:
    with pytest.raises(EvidenceError, match=r"unknown|more|allocations|submission|no candidate"):
        fold(entries((act, data)))
