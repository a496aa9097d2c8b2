"""Amendments and decisions: is the past of amended slots void, and does each decision rest on what was reported?"""

from __future__ import annotations

from collections.abc import Iterator

from . import columns, names, tables
from .facts import Facts
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
    for amendment in history.amendments:
        with check.each():
            for what in _faults(facts, history, amendment):
                check.tampered(where_of(amendment.entry), what)
    for entry in history.decided:
        with check.each():
            for what in _faults_of_decision(facts, Node(entry.data, where_of(entry)), entry.seq):
                check.tampered(where_of(entry), what)
    for candidate in facts.candidates:
        with check.each():
            _check_evidence(facts, history, candidate, check)
    num_void = sum(history.voided(slot) for slot in {slot for one in history.amendments for slot in one.void})
    num_decisions = len(history.decided)
    check.remark(f"{len(history.amendments)} amendments, {num_void} void attempts, {num_decisions} decisions")


# --- the acts ---------------------------------------------------------------------------------------------------------


def _faults(facts: Facts, history: History, amendment: Amendment) -> Iterator[str]:
    node = Node(amendment.entry.data, where_of(amendment.entry))
    for name in _TEXTS:
        if not node[name].as_text().strip():
            yield f"{name} is empty"
    if sorted(amendment.void) != sorted(amendment.voided_attempts):
        yield "void and voided_attempts name different slots"
    tries = history.slots()
    for slot, number in amendment.voided_attempts.items():
        if slot not in facts.slots:
            yield f"makes attempts at {slot} void, which is not a slot"
            continue
        before = [one for one in tries.get(slot, []) if one.intent.seq < amendment.entry.seq]
        made = max((one.attempt for one in before), default=0)
        if number != made or number <= history.voided(slot, before=amendment.entry.seq):
            yield f"makes {number} attempt(s) at {slot} void, where {made} had been made"
        for one in before:
            if not 0 < history.known_from(one.name) < amendment.entry.seq:
                yield f"makes {one.name} void, which had not ended"
    was_shown = _was_shown(history, amendment)
    if node["after_report"].as_flag() != was_shown:
        said = "before any report" if was_shown else "after a report"
        yield f"says that it was made {said} had shown what becomes void, and the ledger says otherwise"


def _was_shown(history: History, amendment: Amendment) -> bool:
    """Return whether a report had shown how an attempt ended that became void."""
    seq = amendment.entry.seq
    for planned in history.planned.values():
        already = history.voided(planned.slot, before=seq)
        if not already < planned.attempt <= amendment.voided_attempts.get(planned.slot, 0):
            continue
        owner = planned.slot.partition("/")[0]
        known = history.known_from(planned.name) or seq
        for candidate, reports in history.reports.items():
            if owner in ("baseline", candidate) and any(known < one < seq for one in reports):
                return True
    return False


# --- decisions --------------------------------------------------------------------------------------------------------


def _faults_of_decision(facts: Facts, node: Node, seq: int) -> Iterator[str]:
    """Yield in what a decision does not agree with the last report before it; only a pass permits a retirement."""
    candidate = node["candidate"].as_text()
    if candidate and not facts.candidates.get(candidate):
        yield f"is about {candidate}, which is no candidate of this campaign"
    acts = [one for one in facts.entries if one.act == "reported" and one.seq < seq]
    own = [one.data for one in acts if one.data.get("candidate") == candidate]
    for name in ("verdict_sha256", "outcome"):
        said, reported = node[name].as_text(), own[-1].get(name) if own and candidate else ""
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
