"""What every attempt left, line by line, as of some place in the ledger: from receipts and sealed tables alone.

A report shows what was known when it was made. What came later, a late receipt, another segment, an amendment, does not
make it wrong; so evidence is compared with what the ledger knew by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby

from . import columns, names
from .facts import Facts, Planned, Sealed
from .findings import EvidenceError
from .history import History, history_of
from .retries import CUTS
from .strict import Node

VOID = "void"
_MEMO = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One attempt, or one segment of an attempt at a run, that had an ending."""

    planned: Planned
    ending: str
    sealed: Sealed | None
    """None where there was no receipt."""
    node: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt that had an ending."""

    tries: tuple[Try, ...]
    """Of a run its segments that had an ending, in order."""
    deciding: Try
    """The one whose ending is the attempt's."""
    is_void: bool

    @property
    def fields(self) -> Mapping[str, str]:
        """Its line of attempts.csv, column by column."""
        one = self.deciding
        return {
            "slot": one.planned.slot,
            "attempt": str(one.planned.attempt),
            "allocation": one.planned.allocation,
            "node": one.node,
            "device": one.device,
            **_paths(one.sealed),
            "ending": VOID if self.is_void else one.ending,
            "sealed": "true" if one.sealed is not None else "false",
        }

    @property
    def line(self) -> str:
        """Its line of attempts.csv."""
        return ",".join(self.fields[name] for name in columns.TABLES[columns.ATTEMPTS].columns)


@dataclass(slots=True, kw_only=True)
class Known:
    """All attempts that had an ending, and what stands in the way of comparing them."""

    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    """By slot and number."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """Places and reasons why a line cannot be rebuilt."""
    damaged: list[str] = field(default_factory=list)
    """Names of what had a receipt then and was not found whole now, which other checks say."""


def attempts_at(facts: Facts, before: int | None = None) -> Known:
    """Return every attempt that had an ending.

    Args:
        facts: Everything up to the sealed attempts is known.
        before: The ledger's number of an act: what it and later ones say does not count. None for all that there is,
            receipts that no act names yet included.
    """
    memo = facts.memo.setdefault(_MEMO, {})
    if before not in memo:
        memo[before] = _attempts_at(facts, before)
    known: Known = memo[before]
    return known


def lines_of(facts: Facts, sealed: Sealed) -> Mapping[str, tuple[str, ...]]:
    """Return the rows of every evidence table that an attempt sealed, in the order of its files.

    Raises:
        EvidenceError: One is no such table.
    """
    memo = facts.memo.setdefault(f"{_MEMO}-lines", {})
    name = sealed.planned.name
    if name not in memo:
        memo[name] = {
            file: tuple(columns.lines_of(file, data, f"{sealed.folder}/{file}"))
            for file, data in sealed.tables.items()
            if file in facts.protocol.get("headers", {})
        }
    found: Mapping[str, tuple[str, ...]] = memo[name]
    return found


def _attempts_at(facts: Facts, before: int | None) -> Known:
    history, known = history_of(facts), Known()
    planned = [one for one in facts.planned.values() if before is None or one.intent.seq < before]
    ordered = sorted(planned, key=lambda one: (one.slot, one.attempt, one.segment))
    for (slot, number), group in groupby(ordered, key=lambda one: (one.slot, one.attempt)):
        try:
            attempt = _attempt(facts, history, list(group), before, known)
        except EvidenceError as error:
            known.faults.append((error.where, error.what))
            continue
        if attempt is not None:
            known.attempts[slot, number] = attempt
    return known


def _attempt(facts: Facts, history: History, group: list[Planned], before: int | None, known: Known) -> Attempt | None:
    read = [_try(facts, history, planned, before, known) for planned in group]
    tries = tuple(one for one in read if one is not None)
    cut_short = next((one for one in tries if one.ending not in CUTS), None)
    deciding = cut_short or read[-1]
    if deciding is None:
        return None  # under way
    slot, number = group[0].slot, group[0].attempt
    return Attempt(tries=tries, deciding=deciding, is_void=number <= history.voided(slot, before))


def _try(facts: Facts, history: History, planned: Planned, before: int | None, known: Known) -> Try | None:
    """Return one try; None while it had no ending."""
    name, seen, ended = planned.name, history.seen.get(planned.name), history.ended.get(planned.name)
    sealed = facts.sealed.get(name)
    had_receipt = sealed is not None if before is None else seen is not None and seen.seq < before
    if seen is not None and sealed is None:
        known.damaged.append(name)
        return None
    if had_receipt and sealed is not None:
        start, receipt = Node(sealed.start, names.start(sealed.folder)), Node(sealed.receipt, sealed.folder)
        ending = receipt["ending"].as_text()
        return Try(planned=planned, ending=ending, sealed=sealed, **_place(start))
    if ended is None or not (before is None or ended.seq < before):
        return None
    path = names.start(names.attempt(planned.slot, planned.attempt, planned.segment))
    place = _place(facts.document(path)) if facts.digests.get(path) is not None else {"node": "", "device": ""}
    return Try(planned=planned, ending=ended.ending, sealed=None, **place)


def _place(start: Node) -> dict[str, str]:
    return {"node": start["host"]["node"].as_text(), "device": start["device"].as_text()}


def _paths(sealed: Sealed | None) -> dict[str, str]:
    found = {"baseline_path": "", "candidate_path": ""}
    if sealed is not None:
        for side in Node(sealed.receipt, names.receipt(sealed.folder))["sides"].items():
            is_baseline = side["side"].as_text() == "baseline"
            found["baseline_path" if is_baseline else "candidate_path"] = side["path"].as_text()
    return found
