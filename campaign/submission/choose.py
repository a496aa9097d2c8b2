"""Which slots may be submitted now. Pure: the answer follows from the protocol and the states of the slots."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from acceptance.formats import Ending
from campaign.documents import Phase
from campaign.errors import StateError
from campaign.submission.plans import pilots_of
from campaign.watching.state import MISSING, OPEN, OUT_OF_REACH, SlotState, SlotStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to submit now, and what has to wait or will never be."""

    slots: tuple[str, ...]
    """Names of the slots to submit, in the order of the protocol."""
    waiting: tuple[str, ...]
    """Missing slots that wait for a pilot to complete."""
    active: tuple[str, ...]
    """Wanted slots, or pilots of such, that were submitted and have not ended."""
    out_of_reach: tuple[str, ...]
    """Wanted slots that can no longer be completed, or whose pilot cannot."""
    held: tuple[str, ...] = ()
    """Missing slots, or pilots of such, that are left to a person."""

    @property
    def phases(self) -> tuple[str, ...]:
        """The kinds of slots to submit: the second part of their names."""
        return tuple(dict.fromkeys(name.split("/")[1] for name in self.slots))


def _wanted(states: Mapping[str, SlotStatus], phase: Phase | None, only: str, repeat: int) -> list[str]:
    return [
        name
        for name, status in states.items()
        if (phase is None or status.slot.phase == phase)
        and (not only or fnmatchcase(name, only))
        and repeat in {0, status.slot.repeat}
    ]


def _pilots_for(states: Mapping[str, SlotStatus], missing: Sequence[str], candidate: str) -> list[str]:
    """Return the pilots, in order, of every side that a missing slot measures: a side's pilot is one."""
    needed = {pilot for name in missing for pilot in pilots_of(states[name].slot, candidate) if pilot in states}
    owners = {pilot.partition("/")[0] for pilot in needed}
    wanted = {states[name].slot.workload for name in missing}
    return [
        name
        for name, status in states.items()
        if status.slot.kind == "pilot" and name.partition("/")[0] in owners and status.slot.workload in wanted
    ]


def _refuse_incomplete(states: Mapping[str, SlotStatus], owners: set[str]) -> None:
    """Refuse everything of a side whose adapter lacks what the protocol requires."""
    for name, status in states.items():
        owner = name.partition("/")[0]
        if status.slot.kind == "pilot" and owner in owners and Ending.ADAPTER_INCOMPLETE in status.endings:
            raise StateError(
                f"the adapter of {owner} is incomplete: nothing further of it is submitted",
                where=name,
                why=status.reason or "the protocol requires a method that the adapter does not offer",
                hint=f"campaign show {name}; a side with a complete adapter has to be frozen anew",
            )


def choose(
    states: Mapping[str, SlotStatus],
    *,
    candidate: str,
    phase: Phase | None = None,
    only: str = "",
    repeat: int = 0,
    held: Collection[str] = (),
    after: Mapping[str, str] | None = None,
) -> Choice:
    """Choose the slots to submit now.

    Args:
        states: The state of every slot of the baseline and of the candidate, by name.
        candidate: Id of the candidate; empty for none.
        phase: The one phase that is wanted; default all, in order.
        only: Glob pattern that the slots' names must match; pilots that they need come along.
        repeat: The one repeat that is wanted, in the same way; 0 for all.
        held: Slots to leave alone.
        after: Pilots that follow another one, and that one.

    Raises:
        StateError: A wanted side's adapter is incomplete.
    """
    wanted = _wanted(states, phase, only, repeat)
    missing = [name for name in wanted if states[name].state in MISSING]
    pilots = _pilots_for(states, missing, candidate)
    owners = {pilot.partition("/")[0] for name in missing for pilot in (*pilots_of(states[name].slot, candidate), name)}
    _refuse_incomplete(states, owners)
    follows = {name: first for name, first in (after or {}).items() if name in states and first in states}
    barred = {
        name for name, first in follows.items() if states[name].state in MISSING and states[first].state in OUT_OF_REACH
    }
    open_pilots = {name for name in pilots if states[name].state in MISSING | OPEN} - barred
    open_owners = {name.partition("/")[0] for name in open_pilots}
    chosen = {name for name in pilots if states[name].state in MISSING and name not in held}
    waiting, lost = [], [name for name in wanted if states[name].state in OUT_OF_REACH]
    for name in missing:
        if name in held:
            continue
        needed = [pilot for pilot in pilots_of(states[name].slot, candidate) if pilot in states]
        if states[name].slot.kind == "pilot":
            chosen.add(name)
        elif any(pilot.partition("/")[0] in open_owners for pilot in needed):
            waiting.append(name)
        elif all(states[pilot].state is SlotState.COMPLETED for pilot in needed):
            chosen.add(name)
        else:
            lost.append(name)
    firsts = {first for name, first in follows.items() if name in chosen}
    for name, first in follows.items():
        if name in chosen and states[first].state is not SlotState.COMPLETED:
            chosen.discard(name)
            (lost if name in barred else waiting).append(name)
    chosen |= {name for name in firsts if states[name].state in MISSING and name not in held}
    open_pilots |= firsts
    concerned = open_pilots.union(wanted)
    active = [name for name in states if states[name].state in OPEN and name in concerned]
    return Choice(
        slots=tuple(name for name in states if name in chosen),
        waiting=tuple(waiting),
        active=tuple(active),
        out_of_reach=tuple(lost),
        held=tuple(name for name in states if name in held and (name in missing or name in open_pilots)),
    )


def find_candidate(given: str, frozen: Sequence[str], in_order: Sequence[str]) -> str:
    """Return the id of the candidate that is meant, by its first digits or as the last one; empty if there is none.

    Args:
        given: What the user named; empty for the default.
        frozen: Ids of the candidates in the home.
        in_order: The same as the ledger has them, oldest first.

    Raises:
        StateError: No candidate, or more than one, is meant.
    """
    known = [name for name in in_order if name in frozen]
    if not given:
        return known[-1] if known else ""
    matching = [name for name in known if name.startswith(given)]
    if len(matching) != 1:
        raise StateError(
            f"{given!r} names several candidates" if matching else f"no candidate {given!r}",
            why=f"frozen: {', '.join(known)}" if known else "no candidate has been frozen",
            hint="campaign freeze --candidate PATH",
        )
    return matching[0]
