"""The retry rule: did the protocol allow each further attempt at a slot, by what was known when it was planned?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from . import names
from .facts import Facts, Planned
from .findings import EvidenceError
from .history import History, where_of
from .strict import Node

CUTS = frozenset({"time_limit", "preempted", "node_fail", "lost", "cancelled", "no_space"})
"""Endings of a segment after which the same attempt at a run goes on in another one."""
_NEVER_OF_RUNS = frozenset({"time_limit", "window_short", "cancelled"})
"""Endings after which a run is not begun anew: its segments are used up, or a person stopped it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The protocol's retry rule."""

    max_attempts: int
    again: frozenset[str]
    again_once: frozenset[str]
    max_segments: int

    def of_runs(self) -> Rule:
        """Return what of it holds for runs."""
        return Rule(
            max_attempts=self.max_attempts,
            again=self.again - _NEVER_OF_RUNS,
            again_once=self.again_once - _NEVER_OF_RUNS,
            max_segments=self.max_segments,
        )

    def refusal(self, endings: Sequence[str]) -> str:
        """Return why no attempt may follow on some that ended so; empty if one may."""
        for index, ending in enumerate(endings):
            if ending in self.again or (ending in self.again_once and ending not in endings[:index]):
                continue
            return f"attempt number {index + 1} of those that count ended {ending}, which allows no other"
        if len(endings) >= self.max_attempts:
            return f"{len(endings)} attempts that count had been made, and the protocol allows {self.max_attempts}"
        return ""


def read_rule(facts: Facts) -> Rule:
    """Return the protocol's retry rule.

    Raises:
        EvidenceError: It has none.
    """
    protocol = Node(facts.protocol, names.PROTOCOL)
    retries, convergence = protocol["retries"], protocol.get("convergence")
    return Rule(
        max_attempts=retries["max_attempts"].as_whole(1),
        again=frozenset(retries["again"].as_texts()),
        again_once=frozenset(retries["again_once"].as_texts()),
        max_segments=convergence["max_segments"].as_whole(1) if convergence is not None else 0,
    )


def ending_of(facts: Facts, history: History, planned: Planned) -> str:
    """Return how an attempt, or a segment, ended: the receipt's word, else the ledger's; empty while neither is known.

    A receipt that is not whole is no word: what is wrong with it was said.
    """
    sealed = facts.sealed.get(planned.name)
    if sealed is not None:
        return str(sealed.receipt["ending"])
    ended = history.ended.get(planned.name)
    return ended.ending if ended is not None else ""


def known_ending(facts: Facts, history: History, planned: Planned) -> str:
    """Return the ending that was known when something further was planned: the ledger's word where there is one."""
    ended = history.ended.get(planned.name)
    return ended.ending if ended is not None else ending_of(facts, history, planned)


def faults_of_retries(facts: Facts, history: History) -> Iterator[tuple[str, str]]:
    """Yield every attempt that was planned although the retry rule allowed none.

    Args:
        facts: What has a receipt is known.
        history: What the ledger says.
    """
    try:
        rule = read_rule(facts)
    except EvidenceError as error:
        yield error.where, error.what
        return
    for name, tries in history.slots().items():
        slot = facts.slots.get(name)
        if slot is None:
            continue  # said already
        attempts: dict[int, list[Planned]] = {}
        for planned in tries:
            attempts.setdefault(planned.attempt, []).append(planned)
        for number, chain in attempts.items():
            refusal = _refusal(facts, history, rule, attempts, number, is_run=slot.kind == "run")
            if refusal:
                yield where_of(chain[0].intent), f"plans {chain[0].name}, and {refusal}"


def _refusal(
    facts: Facts, history: History, rule: Rule, attempts: dict[int, list[Planned]], number: int, *, is_run: bool
) -> str:
    """Return why an attempt could not be planned; empty if it could, or if what was before it is damaged."""
    (first, *_) = attempts[number]
    void = history.voided(first.slot, before=first.intent.seq)
    endings: list[str] = []
    for earlier in range(void + 1, number):
        if earlier not in attempts:
            return ""  # a gap, which was said
        last = attempts[earlier][-1]
        if is_run:
            last = _deciding(facts, history, attempts[earlier])
        ending = known_ending(facts, history, last)
        if not ending:
            # A receipt that is there and is not whole was said.
            is_damaged = last.name in history.seen or facts.digests.get(names.receipt(_folder(last))) is not None
            return "" if is_damaged else f"{last.name} has no ending"
        if is_run and ending in CUTS - {"cancelled"} and last.segment < rule.max_segments:
            return f"{last.name} ended {ending}, after which the same attempt goes on"
        endings.append(ending)
    return (rule.of_runs() if is_run else rule).refusal(endings)


def _folder(planned: Planned) -> str:
    return names.attempt(planned.slot, planned.attempt, planned.segment)


def _deciding(facts: Facts, history: History, chain: Sequence[Planned]) -> Planned:
    """Return the segment whose ending is the attempt's: the first one after which none could go on, else the last."""
    return next((one for one in chain if known_ending(facts, history, one) not in {*CUTS, ""}), chain[-1])
