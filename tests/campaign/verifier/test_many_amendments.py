"""What many amendments amount to: the same as by the rule in its plainest form, and in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.verifier import amendments
from campaign.verifier.facts import Entry, Facts, Options, Slot
from campaign.verifier.findings import Check
from campaign.verifier.history import Amendment, History, fold

A, B = "baseline/solo/a/r1", "c000000000000/pair/a/r1"
CANDIDATE = "c000000000000"


def entries_of(acts: list[tuple[str, dict[str, Any]]]) -> list[Entry]:
    return [Entry(seq=seq, at=0.0, act=act, data=data, sha256="") for seq, (act, data) in enumerate(acts, start=1)]


def intent(slot: str, attempt: int, number: int) -> tuple[str, dict[str, Any]]:
    planned = {"slot": slot, "attempt": attempt, "updates": 0}
    allocation = {"allocation": f"a{number}", "plan_sha256": "0" * 64, "attempts": [planned]}
    return "intent", {"submission": f"s{number}", "cluster": "local", "allocations": [allocation]}


def sealed(slot: str, attempt: int) -> tuple[str, dict[str, Any]]:
    return "sealed", {"receipts": {f"{slot}/{attempt}": "0" * 64}}


def amended(voided: dict[str, int], *, after_report: bool) -> tuple[str, dict[str, Any]]:
    words = dict.fromkeys(("what", "changed", "by", "reason", "keep_reason"), "x")
    return "amended", {**words, "void": [*voided], "voided_attempts": voided, "after_report": after_report}


def slot(name: str) -> Slot:
    fields = {"phase": "", "kind": "solo", "workload": "a", "repeat": 1, "pair": 0, "order": (), "candidate": ""}
    return Slot(slot=name, side=name.partition("/")[0], **fields)  # type: ignore[arg-type]  # of several types


def facts_of(entries: list[Entry], root: Any) -> Facts:
    facts = Facts.open(root, Options())
    facts.entries = entries
    facts.slots = {name: slot(name) for name in (A, B)}
    return facts


def faults(facts: Facts) -> list[tuple[str, str]]:
    check = Check(name="", title="")
    with facts.digests:
        amendments.check(facts, check)
    return [(one.where, one.what) for one in check.findings]


# --- the plain rule ---------------------------------------------------------------------------------------------------


def voided(history: History, slot: str, before: int) -> int:
    made = [
        one.voided_attempts[slot]
        for one in history.amendments
        if slot in one.voided_attempts and one.entry.seq < before
    ]
    return max(made, default=0)


def plain(history: History) -> Iterator[tuple[str, str]]:
    for amendment in history.amendments:
        for what in plain_one(history, amendment):
            yield f"ledger.jsonl:{amendment.entry.seq}", what


def plain_one(history: History, amendment: Amendment) -> Iterator[str]:
    seq = amendment.entry.seq
    for slot, number in amendment.voided_attempts.items():
        before = [one for one in history.planned.values() if one.slot == slot and one.intent.seq < seq]
        made = max((one.attempt for one in before), default=0)
        if number != made or number <= voided(history, slot, seq):
            yield f"makes {number} attempt(s) at {slot} void, where {made} had been made"
        for one in before:
            if not 0 < history.known_from(one.name) < seq:
                yield f"makes {one.name} void, which had not ended"
    was_shown = any(
        voided(history, one.slot, seq) < one.attempt <= amendment.voided_attempts.get(one.slot, 0)
        and one.slot.partition("/")[0] in ("baseline", candidate)
        and any((history.known_from(one.name) or seq) < report < seq for report in reports)
        for one in history.planned.values()
        for candidate, reports in history.reports.items()
    )
    if amendment.entry.data["after_report"] != was_shown:
        said = "before any report" if was_shown else "after a report"
        yield f"says that it was made {said} had shown what becomes void, and the ledger says otherwise"


SLOTS = st.sampled_from((A, B))
NUMBERS = st.integers(1, 4)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("intent"), SLOTS, NUMBERS),
        st.tuples(st.just("sealed"), SLOTS, NUMBERS),
        st.tuples(st.just("reported"), st.sampled_from((CANDIDATE, "c111111111111"))),
        st.tuples(st.just("amended"), st.dictionaries(SLOTS, NUMBERS, min_size=1), st.booleans()),
    ),
    max_size=16,
)


@settings(max_examples=300, deadline=None)
@given(drawn=ACTS)
def test_amendments_are_found_wrong_by_the_plain_rule_and_by_no_other(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[Any, ...]]
) -> None:
    made: dict[str, Callable[..., tuple[str, dict[str, Any]]]] = {
        "intent": lambda number, slot, attempt: intent(slot, attempt, number),
        "sealed": lambda _number, slot, attempt: sealed(slot, attempt),
        "reported": lambda _number, candidate: ("reported", {"candidate": candidate}),
        "amended": lambda _number, voided, after: amended(voided, after_report=after),
    }
    entries = entries_of([made[act](number, *rest) for number, (act, *rest) in enumerate(drawn)])
    empty = tmp_path_factory.getbasetemp() / "home-without-files"
    empty.mkdir(exist_ok=True)
    facts = facts_of(entries, empty)
    assert faults(facts) == list(plain(fold(entries)))


@given(drawn=ACTS, before=st.integers(0, 20))
def test_what_is_void_before_an_act_is_what_the_amendments_before_it_say(
    drawn: list[tuple[Any, ...]], before: int
) -> None:
    acts = [amended(one[1], after_report=False) if one[0] == "amended" else ("reported", {}) for one in drawn]
    history = fold(entries_of(acts))
    for slot in (A, B):
        assert history.voided(slot, before=before) == voided(history, slot, before)
        assert history.voided(slot) == voided(history, slot, 1 << 20)


# --- in one pass ------------------------------------------------------------------------------------------------------


def test_a_thousand_amendments_of_one_slot_look_at_each_attempt_a_few_times(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts = []
    for number in range(1, 1001):
        acts += [intent(A, number, number), sealed(A, number), amended({A: number}, after_report=False)]
    acts.append(("reported", {"candidate": CANDIDATE}))
    facts, looks = facts_of(entries_of(acts), tmp_path), list[str]()
    known_from = History.known_from

    def counted(self: History, name: str) -> int:
        looks.append(name)
        return known_from(self, name)

    monkeypatch.setattr(History, "known_from", counted)
    assert faults(facts) == []
    assert 1000 <= len(looks) <= 3000
