"""What was measured again, and what a report had shown before: said first, and with both results side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acceptance.formats import Ending
from reports.errors import ReportError
from reports.numbers import against, count, listed, plural, significant
from reports.source import Source
from reports.times import date
from reports.view import Amendments, Cell, Table, code, columns, number, text

_MOST_NAMED = 3
_TIMES = "\u00d7"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Void:
    """The void attempts at one slot."""

    slot: str
    amendments: tuple[int, ...]
    """Ledger numbers of the amendments that made attempts at it void."""
    was_shown: bool
    attempts: tuple[Mapping[str, Any], ...]
    """The void ones, in order."""
    later: tuple[Mapping[str, Any], ...]
    """Those after them that have an ending."""

    @property
    def counted(self) -> int | None:
        """The first completed attempt after the void ones; None if there is none."""
        return next((one["attempt"] for one in self.later if one["ending"] == Ending.COMPLETED), None)


def section(source: Source) -> Amendments | None:
    """Return what a page says of the amendments; None where nothing was amended.

    Raises:
        ReportError: Attempts are void in the evidence, and no amendment says so.
    """
    amendments: Sequence[Mapping[str, Any]] = source.provenance.get("amendments", ())
    voids = _voids_of(source.provenance)
    _check(source, voids)
    if not amendments:
        return None
    return Amendments(
        sentence=_sentence(voids),
        notes=tuple(_notes(source, amendments, voids)),
        acts=_act_table(amendments),
        slots=_slot_table(source, voids),
    )


def sentence(provenance: Mapping[str, Any]) -> str:
    """Return what the verdict's sentence begins with: what was measured again; empty where nothing was."""
    return _sentence(_voids_of(provenance))


def _check(source: Source, voids: Sequence[_Void]) -> None:
    known = {(void.slot, one["attempt"]) for void in voids for one in void.attempts}
    rows = source.tables.get("attempts.csv", ())
    found = {(row.values["slot"], row.values["attempt"]) for row in rows if row.values["ending"] == Ending.VOID}
    if found != known:
        slot, attempt = min(found ^ known, key=str)
        raise ReportError(
            f"{slot} attempt {attempt} is void in one of them alone", where="attempts.csv, provenance.json"
        )


def _voids_of(provenance: Mapping[str, Any]) -> list[_Void]:
    """Return the slots with void attempts, of the baseline and of the candidate that the report is about."""
    owners = ("baseline", provenance["candidate"]["id"])
    amendments = provenance.get("amendments", ())
    last: dict[str, int] = {}
    made: dict[str, list[int]] = {}
    shown: set[str] = set()
    for amendment in amendments:
        own = {slot: number for slot, number in amendment["voided_attempts"].items() if slot.split("/")[0] in owners}
        last |= own
        shown.update(amendment["shown"])
        for slot in own:
            made.setdefault(slot, []).append(amendment["seq"])
    by_slot: dict[str, list[Mapping[str, Any]]] = {slot: [] for slot in last}
    for attempt in sorted(provenance["attempts"], key=lambda one: one["attempt"]):
        by_slot.setdefault(attempt["slot"], []).append(attempt)
    return [
        _Void(
            slot=slot,
            amendments=tuple(made[slot]),
            was_shown=slot in shown,
            attempts=tuple(one for one in by_slot[slot] if one["attempt"] <= number),
            later=tuple(one for one in by_slot[slot] if one["attempt"] > number),
        )
        for slot, number in sorted(last.items())
    ]


# --- in words ---------------------------------------------------------------------------------------------------------


def _named(slots: Sequence[str]) -> str:
    more = len(slots) - _MOST_NAMED
    return ", ".join(slots[:_MOST_NAMED]) + f" and {more} more" if more > 0 else listed(list(slots))


def _sentence(voids: Sequence[_Void]) -> str:
    again = [void for void in voids if void.later]
    shown = [void.slot for void in again if void.was_shown]
    unseen = [void.slot for void in again if not void.was_shown]
    pending = [void.slot for void in voids if not void.later]
    parts = []
    if shown:
        verb, whose = ("was", "its result") if len(shown) == 1 else ("were", "their results")
        parts.append(
            f"{plural(len(shown), 'slot')} {verb} measured again after a report had shown {whose}: {_named(shown)}."
        )
    if unseen:
        verb = "was" if len(unseen) == 1 else "were"
        before = "before any report had shown what was measured at first"
        parts.append(f"{plural(len(unseen), 'slot')} {verb} measured again, {before}: {_named(unseen)}.")
    if pending:
        verb = "is" if len(pending) == 1 else "are"
        seen = sum(void.was_shown for void in voids if not void.later)
        known = f", {count(seen)} of them after a report had shown the result" if seen else ""
        parts.append(
            f"{plural(len(pending), 'slot')} {verb} void and not measured again yet{known}: {_named(pending)}."
        )
    return " ".join(parts)


def _notes(source: Source, amendments: Sequence[Mapping[str, Any]], voids: Sequence[_Void]) -> Iterator[str]:
    """Yield what a reader should weigh: who chooses what to measure again can choose the better result."""
    yield (
        "An amendment says that something changed, and makes all attempts so far at some slots void. It never changes "
        "the protocol; void attempts stay in the evidence, and no gate reads a row of them."
    )
    completed = sum(any(one.get("ended") == Ending.COMPLETED for one in void.attempts) for void in voids)
    if completed:
        verb = "had" if completed > 1 else "has"
        yield (
            f"{plural(completed, 'void slot')} {verb} a completed attempt, whose result lay in the home and could be "
            "read by whoever approved the amendment, report or not."
        )
    repeated = [void.slot for void in voids if len(void.amendments) > 1]
    if repeated:
        yield f"Made void more than once: {_named(repeated)}."
    frozen_seq = source.provenance["candidate"]["frozen_seq"]
    late = [void.slot for void in voids if void.slot.startswith("baseline/") and max(void.amendments) > frozen_seq]
    if late and source.protocol["baseline_first"]:
        yield (
            "The protocol has the baseline's own evidence complete before a candidate is frozen. That was so, but "
            f"these slots of the baseline were made void after the candidate was frozen: {_named(late)}."
        )
    yield from _partial(source, voids)
    strata = [amendment["seq"] for amendment in amendments if amendment["platform"]]
    if strata:
        entries = listed([count(seq) for seq in strata])
        yield f"What was measured before and after ledger entry {entries} may be of different platforms: two strata."


def _partial(source: Source, voids: Sequence[_Void]) -> Iterator[str]:
    """Yield where a part of what belongs together is void, and the rest is kept."""
    candidate = source.identity["candidate"]
    void = {one.slot for one in voids}
    tried = {attempt["slot"] for attempt in source.provenance["attempts"]}
    groups: dict[tuple[str, str], set[str]] = {}
    for slot in source.protocol["slots"]:
        name = _slot_name(slot["slot"], candidate)
        if slot["kind"] in ("solo", "pair", "control_pair", "run") and name in tried:
            kind = "run" if slot["kind"] == "run" else f"{slot['side']} {slot['kind']}"
            groups.setdefault((kind, slot["workload"]), set()).add(name)
    cut = sorted({workload for (kind, workload), own in groups.items() if kind != "run" and own & void and own - void})
    if cut:
        yield f"Of these workloads only a part of the repeats is void, and the others are kept: {_named(cut)}."
    lone = sorted(name for name in void if "/run/" in name and _counterpart(name, candidate) in tried - void)
    if lone:
        yield f"Of these runs the other side's run with the same seed is kept: {_named(lone)}."


def _counterpart(run: str, candidate: str) -> str:
    owner, _, rest = run.partition("/")
    return f"{candidate if owner == 'baseline' else 'baseline'}/{rest}"


def _slot_name(slot: str, candidate: str) -> str:
    owner, _, rest = slot.partition("/")
    return f"{candidate}/{rest}" if owner == "candidate" else slot


# --- tables -----------------------------------------------------------------------------------------------------------


def _act_table(amendments: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        name="amendments",
        caption="Amendments",
        columns=columns(
            "Ledger entry", "When", "What", "Changed", "Reason", "Approved by", "Void slots", "Shown before",
            "Why the rest stays valid", numeric=("Ledger entry", "Void slots", "Shown before"),
        ),
        rows=tuple(
            (
                number(count(one["seq"]), one["seq"]),
                text(date(one["at"])),
                text(one["what"]),
                text(one["changed"]),
                text(one["reason"]),
                text(one["by"]),
                number(count(len(one["void"])), len(one["void"])),
                number(count(len(one["shown"])), len(one["shown"])),
                text(one["keep_reason"]),
            )
            for one in amendments
        ),
        file="provenance.json",
    )  # fmt: skip


def _slot_table(source: Source, voids: Sequence[_Void]) -> Table:
    results = _results(source)
    return Table(
        name="void-slots",
        caption="Slots whose attempts so far were made void",
        columns=columns(
            "Slot", "Amendment", "Void attempts", "Had ended", "Result then", "Result that counts", "Shown"
        ),
        rows=tuple(_slot_row(void, results) for void in voids),
        empty="No slot of the baseline or of this candidate.",
        file="attempts.csv",
    )


def _slot_row(void: _Void, results: Mapping[tuple[str, int], str]) -> tuple[Cell, ...]:
    then = [results.get((void.slot, one["attempt"]), "none") for one in void.attempts]
    ended = [str(one.get("ended") or one["ending"]).replace("_", " ") for one in void.attempts]
    now = results.get((void.slot, void.counted), "none") if void.counted is not None else "none"
    return (
        code(void.slot),
        text(listed([f"entry {count(seq)}" for seq in void.amendments])),
        text(", ".join(str(one["attempt"]) for one in void.attempts)),
        text(", ".join(ended)),
        text(", ".join(then)),
        text(now),
        text("in a report" if void.was_shown else "in no report"),
    )


def _results(source: Source) -> dict[tuple[str, int], str]:
    """Return the result of every attempt that has one, in words, by slot and attempt."""
    candidate = source.identity["candidate"]
    places = {_place(slot): _slot_name(slot["slot"], candidate) for slot in source.protocol["slots"]}
    return {
        **_ratios(source, places),
        **_speeds(source, places),
        **_losses(source, candidate),
        **_errors(source, places),
    }


_COMPARISON = {
    "pair": "candidate",
    "control_pair": "control",
    "solo": "solo",
    "case": "case",
    "control_case": "control case",
}


def _place(slot: Mapping[str, Any]) -> tuple[str, str, int, int]:
    return _COMPARISON.get(slot["kind"], slot["slot"]), slot["workload"], slot["repeat"], slot["pair"]


def _ratios(source: Source, places: Mapping[tuple[str, str, int, int], str]) -> dict[tuple[str, int], str]:
    rates: dict[tuple[str, int], dict[str, Any]] = {}
    for row in source.tables.get("pairs.csv", ()):
        found = row.values
        slot = places.get((str(found["comparison"]), str(found["workload"]), int(found["repeat"]), int(found["pair"])))
        if slot is not None:
            rates.setdefault((slot, int(found["attempt"])), {})[str(found["side"])] = found["tokens_per_s"]
    return {
        key: f"{against(other / own['baseline'], 1, digits=3)}{_TIMES}"
        for key, own in rates.items()
        for side, other in own.items()
        if side != "baseline" and own.get("baseline")
    }


def _speeds(source: Source, places: Mapping[tuple[str, str, int, int], str]) -> dict[tuple[str, int], str]:
    found = {}
    for row in source.tables.get("baseline.csv", ()):
        slot = places.get(("solo", str(row.values["workload"]), int(row.values["repeat"]), 0))
        if slot is not None:
            rate = float(row.values["tokens_per_s"])
            found[slot, int(row.values["attempt"])] = f"{significant(rate, digits=4)} tokens/s"
    return found


def _losses(source: Source, candidate: str) -> dict[tuple[str, int], str]:
    found = {}
    for row in source.tables.get("convergence.csv", ()):
        values = row.values
        slot = _slot_name(f"{values['side']}/run/{values['recipe']}/s{values['seed']}", candidate)
        found[slot, int(values["attempt"])] = f"{against(float(values['final_loss']), digits=6)} nats"
    return found


def _errors(source: Source, places: Mapping[tuple[str, str, int, int], str]) -> dict[tuple[str, int], str]:
    """Return the worst relative L2 of the gradients of every case."""
    worst: dict[tuple[str, int], float] = {}
    for row in source.tables.get("numerical.csv", ()):
        values = row.values
        kind = "case" if values["comparison"] == "candidate" else "control case"
        slot = places.get((kind, str(values["workload"]), 0, 0))
        if slot is not None and values["quantity"] == "gradients" and values["rel_l2"] != "":
            key = (slot, int(values["attempt"]))
            worst[key] = max(worst.get(key, 0.0), float(values["rel_l2"]))
    return {key: f"gradients {significant(value)}" for key, value in worst.items()}
