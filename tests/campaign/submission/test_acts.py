"""The history of submissions, folded from the ledger."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.documents import Act, Entry
from campaign.errors import EvidenceError
from campaign.keys import AttemptKey
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
        (
            "ended",
            {"slot": "s", "attempt": 1, "segment": 2, "allocation": "a", "ending": "lost", "reason": "", "source": ""},
        ),
        ("froze_candidate", {"id": "c0123456789ab"}),
        ("reported", {"candidate": "c0123456789ab"}),
    ],
)
def test_an_act_about_something_never_intended_or_of_another_shape_is_refused(act: Act, data: dict[str, Any]) -> None:
    with pytest.raises(EvidenceError, match=r"unknown|more|allocations|submission|no candidate"):
        fold(entries((act, data)))


RUN = "baseline/run/r/s45"
CHECKPOINT = {"segment": 1, "update": 10, "sha256": "c" * 64}


def segment(number: int, **more: Any) -> tuple[Act, dict[str, Any]]:
    attempt = {"slot": RUN, "attempt": 1, "updates": 0, "segment": number, **more}
    allocation = {
        "allocation": f"a0000{number}", "minutes": 5, "plan_sha256": "0" * 64, "attempts": [attempt],
    }  # fmt: skip
    return "intent", {**INTENT, "submission": f"k{number}", "allocations": [allocation]}


def ended(number: int) -> tuple[Act, dict[str, Any]]:
    said = {"allocation": f"a0000{number}", "ending": "lost", "reason": "gone", "source": "sacct"}
    return "ended", {"slot": RUN, "attempt": 1, "segment": number, **said}


def test_the_segments_of_a_run_are_kept_apart_and_in_order() -> None:
    acts = [segment(number) for number in (1, 2, 3)]
    history = fold(entries(*acts, segment(11, resume=CHECKPOINT), ended(2)))
    found = history.attempts(RUN)
    assert [one.key for one in found] == [AttemptKey(RUN, 1, number) for number in (1, 2, 3, 11)]
    assert [one.ended is not None for one in found] == [False, True, False, False]
    assert [one.allocation for one in found] == ["a00001", "a00002", "a00003", "a000011"]
    resume = history.attempt(AttemptKey(RUN, 1, 11)).resume
    assert resume is not None
    assert resume.to_json() == CHECKPOINT


def test_an_ending_of_an_attempt_is_none_of_its_segments() -> None:
    act, data = ended(1)
    with pytest.raises(EvidenceError, match=r"unknown attempt: baseline/run/r/s45 attempt 1$"):
        fold(entries(segment(1), (act, {**data, "segment": 0})))


def test_the_last_report_on_a_candidate_counts() -> None:
    def report(candidate: str, digest: str) -> tuple[Act, dict[str, Any]]:
        return "reported", {"candidate": candidate, "verdict_sha256": digest, "outcome": "pass"}

    history = fold(entries(report("c1", "a"), report("c2", "b"), report("c1", "c")))
    assert history.reported == {"c1": "c", "c2": "b"}


# --- amendments -------------------------------------------------------------------------------------------------------

SLOTS = ("baseline/pilot/a", "baseline/pilot/b")


def attempted(number: int, slot: str, attempt: int) -> tuple[Act, dict[str, Any]]:
    planned = {"slot": slot, "attempt": attempt, "updates": 0}
    allocation = {**INTENT["allocations"][0], "allocation": f"a{number:05}", "attempts": [planned]}  # type: ignore[dict-item]
    return "intent", {**INTENT, "submission": f"k{number}", "allocations": [allocation]}


def amended(voided: dict[str, int]) -> tuple[Act, dict[str, Any]]:
    words = dict.fromkeys(("changed", "by", "reason", "keep_reason", "valid"), "x")
    rest = {"what": "node", "void": [*voided], "after_report": False, "shown": [], "platform": False}
    return "amended", {**words, **rest, "voided_attempts": voided}


@given(drawn=st.lists(st.one_of(st.sampled_from(SLOTS), st.sets(st.sampled_from(SLOTS), min_size=1)), max_size=12))
def test_what_made_an_attempt_void_is_the_first_amendment_after_it(drawn: list[str | set[str]]) -> None:
    made, void, acts = dict.fromkeys(SLOTS, 0), dict.fromkeys(SLOTS, 0), list[tuple[Act, dict[str, Any]]]()
    for number, one in enumerate(drawn, start=1):
        if isinstance(one, str):
            made[one] += 1
            acts.append(attempted(number, one, made[one]))
            continue
        own = {slot: made[slot] for slot in sorted(one) if made[slot] > void[slot]}
        if own:
            void |= own
            acts.append(amended(own))
    history = fold(entries(*acts))
    for slot in SLOTS:
        assert history.last_attempt(slot) == made[slot]
        for attempt in range(1, made[slot] + 2):
            plain = [seq for seq, one in history.amendments.items() if attempt <= one.voided_attempts.get(slot, 0)]
            assert history.voided_by(slot, attempt) == next(iter(plain), None)
            assert history.is_void(slot, attempt) == bool(plain)
