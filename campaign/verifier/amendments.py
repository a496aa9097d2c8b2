"""Amendments and decisions: is the past of amended slots void, and does each decision rest on what was reported?"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from . import columns, names, tables
from .facts import Entry, Facts, Planned
from .findings import Check
from .history import Amendment, History, history_of, where_of
from .rows import VOID
from .strict import Node

_TEXTS = ("what", "changed", "by", "reason", "keep_reason")


def check(facts: Facts, check: Check) -> None:
    """Check every amendment against what had been tried when it was made, and ``void`` in the evidence against them.

    Args:
        facts: Slots, attempts and the ledger are known.
        check: Where findings go.
    """
    history = history_of(facts)
    past = Past(history.slots())
    for amendment in history.amendments:
        with check.each():
            for what in _faults(facts, history, past, amendment):
                check.tampered(where_of(amendment.entry), what)
    reports = {entry.seq: entry for entry in facts.entries if entry.act == "reported"}
    for entry in history.decided:
        with check.each():
            last = _last_report(history, reports, entry)
            for what in _faults_of_decision(facts, Node(entry.data, where_of(entry)), last):
                check.tampered(where_of(entry), what)
    for candidate in facts.candidates:
        with check.each():
            _check_evidence(facts, history, candidate, check)
    num_void = sum(history.voided(slot) for slot in {slot for one in history.amendments for slot in one.void})
    num_decisions = len(history.decided)
    check.remark(f"{len(history.amendments)} amendments, {num_void} void attempts, {num_decisions} decisions")


# --- the acts ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Past:
    """What had been tried at each slot when an amendment was made. Amendments are asked for in the ledger's order.

    Attributes:
        slots: What was planned at each slot, in the ledger's order.
    """

    slots: Mapping[str, list[Planned]]
    _by_number: dict[str, list[Planned]] = field(default_factory=dict)
    _num_seen: dict[str, int] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _going: dict[str, list[Planned]] = field(default_factory=dict)

    def numbered(self, slot: str, after: int) -> Iterator[Planned]:
        """Yield what was planned at a slot in the order of its numbers, from beyond one."""
        if slot not in self._by_number:
            self._by_number[slot] = sorted(self.slots.get(slot, []), key=_number_of)
        tries = self._by_number[slot]
        yield from islice(tries, bisect_right(tries, after, key=_number_of), None)

    def advance(self, history: History, slot: str, seq: int) -> tuple[int, list[Planned]]:
        """Return the number of the last attempt at a slot, and what had not ended, just before an act.

        Args:
            history: What the ledger says.
            slot: The slot.
            seq: The ledger's number of the act, no smaller than in any call before.
        """
        tries, number = self.slots.get(slot, []), self._num_seen.get(slot, 0)
        going = self._going.get(slot, [])
        while number < len(tries) and tries[number].intent.seq < seq:
            going.append(tries[number])
            self._last[slot] = max(self._last.get(slot, 0), tries[number].attempt)
            number += 1
        self._num_seen[slot] = number
        # What had ended once is not looked at again, so that many amendments of one slot take no longer than few.
        self._going[slot] = [one for one in going if not 0 < history.known_from(one.name) < seq]
        return self._last.get(slot, 0), self._going[slot]


def _number_of(planned: Planned) -> int:
    return planned.attempt


def _faults(facts: Facts, history: History, past: Past, amendment: Amendment) -> Iterator[str]:
    node, seq = Node(amendment.entry.data, where_of(amendment.entry)), amendment.entry.seq
    for name in _TEXTS:
        if not node[name].as_text().strip():
            yield f"{name} is empty"
    if sorted(amendment.void) != sorted(amendment.voided_attempts):
        yield "void and voided_attempts name different slots"
    for slot, number in amendment.voided_attempts.items():
        if slot not in facts.slots:
            yield f"makes attempts at {slot} void, which is not a slot"
            continue
        made, going = past.advance(history, slot, seq)
        if number != made or number <= history.voided(slot, before=seq):
            yield f"makes {number} attempt(s) at {slot} void, where {made} had been made"
        for one in going:
            yield f"makes {one.name} void, which had not ended"
    was_shown = _was_shown(history, past, amendment)
    if node["after_report"].as_flag() != was_shown:
        said = "before any report" if was_shown else "after a report"
        yield f"says that it was made {said} had shown what becomes void, and the ledger says otherwise"


def _was_shown(history: History, past: Past, amendment: Amendment) -> bool:
    """Return whether a report had shown how an attempt ended that became void."""
    seq = amendment.entry.seq
    for slot, number in amendment.voided_attempts.items():
        owner = slot.partition("/")[0]
        for planned in past.numbered(slot, after=history.voided(slot, before=seq)):
            if planned.attempt > number:
                break
            if _shows(history, owner, history.known_from(planned.name) or seq, seq):
                return True
    return False


def _shows(history: History, owner: str, after: int, before: int) -> bool:
    """Return whether a report on a side lies between two acts."""
    for candidate, reports in history.reports.items():
        if owner in ("baseline", candidate):
            place = bisect_right(reports, after)
            if place < len(reports) and reports[place] < before:
                return True
    return False


# --- decisions --------------------------------------------------------------------------------------------------------


def _last_report(history: History, reports: Mapping[int, Entry], decision: Entry) -> Entry | None:
    """Return the last report on a decision's candidate before it; None if there was none, or it is about none."""
    candidate = decision.data.get("candidate")
    made = history.reports.get(candidate, []) if isinstance(candidate, str) and candidate else []
    number = bisect_left(made, decision.seq)
    return reports[made[number - 1]] if number else None


def _faults_of_decision(facts: Facts, node: Node, last: Entry | None) -> Iterator[str]:
    """Yield in what a decision does not agree with the last report before it; only a pass permits a retirement."""
    candidate = node["candidate"].as_text()
    if candidate and not facts.candidates.get(candidate):
        yield f"is about {candidate}, which is no candidate of this campaign"
    for name in ("verdict_sha256", "outcome"):
        said, reported = node[name].as_text(), last.data.get(name) if last is not None else ""
        if said != reported:
            yield f"{name} is {said or 'none'}, the last report before it says {reported or 'none'}"
    for name in ("by", "reason"):
        if not node[name].as_text().strip():
            yield f"{name} is empty"
    is_retirement, is_refused = node["kind"].as_word(("default", "retire")) == "retire", node["refused"].as_flag()
    if is_retirement and not is_refused and node["outcome"].as_text() != "pass":
        yield "retires the baseline, and no verdict passes"


# --- the evidence -----------------------------------------------------------------------------------------------------


def _check_evidence(facts: Facts, history: History, candidate: str, check: Check) -> None:
    """Check that attempts.csv calls void what amendments made void, and nothing else."""
    path = f"{names.evidence(candidate)}/{columns.ATTEMPTS}"
    if not facts.digests.is_file(path):
        return
    header = tables.headers(facts)[columns.ATTEMPTS]
    reported = max(history.reports.get(candidate, [0]))
    for line, row in enumerate(tables.parse(facts.digests.read(path), header, path), start=2):
        said = row["ending"] == VOID
        number = int(row["attempt"]) if row["attempt"].isdecimal() else 0
        if said == (0 < number <= history.voided(row["slot"])):
            continue
        name = f"{row['slot']}/{row['attempt']}"
        if not said and number > history.voided(row["slot"], before=reported):
            check.incomplete(f"{path}:{line}", f"{name} became void after this was written: campaign report")
        else:
            what = "ended void, and no amendment says so" if said else f"ended {row['ending']}, and it is void"
            check.tampered(f"{path}:{line}", f"{name} {what}")
