"""Checks of pairs.csv and baseline.csv."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

from acceptance import arithmetic
from acceptance.formats import Table
from acceptance.gates import Finding, Problem
from acceptance.plan import Plan
from acceptance.protocol import Slot
from acceptance.rows import AttemptRow, Measurement
from acceptance.selection import Selection

RELATIVE = Decimal("1e-9")
"""How much two spellings of one quantity may differ."""

Counted = dict[str, tuple[Measurement, ...]]
_Say = Callable[[Finding, str, Iterable[str]], None]


def check(
    plan: Plan,
    table: Table,
    *,
    comparisons: tuple[str, ...],
    selections: dict[str, Selection],
    attempts: Sequence[AttemptRow],
    rows: Sequence[Measurement],
) -> tuple[Counted, list[Problem]]:
    """Check the measurements of one file.

    Args:
        plan: What is expected.
        table: Which file it is.
        comparisons: The comparisons whose evidence stands in this file.
        selections: The attempt that counts, by slot.
        attempts: All rows of attempts.csv.
        rows: All rows of the file.

    Returns:
        The measurements of every slot's counted attempt by position, and the problems.
    """
    problems: list[Problem] = []

    def say(finding: Finding, reason: str, slots: Iterable[str] = ()) -> None:
        problems.append(Problem(file=table.file, finding=finding, reason=reason, slots=tuple(slots)))

    known = {(row.slot, row.attempt): row for row in attempts}
    by_attempt: dict[tuple[str, int], list[Measurement]] = defaultdict(list)
    for row in rows:
        slot = plan.measured.get((row.comparison, row.workload, row.repeat, row.pair))
        if slot is None:
            say(Finding.INVALID, f"{describe(row)}: no such measurement in the protocol")
            continue
        by_attempt[slot.slot, row.attempt].append(row)
        for reason in _row_faults(plan, slot, known.get((slot.slot, row.attempt)), row):
            say(Finding.INVALID, f"{describe(row)}: {reason}", [slot.slot])
    for (name, attempt), group in by_attempt.items():
        for side, count in Counter(row.side for row in group).items():
            if count > 1:
                say(Finding.INVALID, f"{name} attempt {attempt} {side}: {count} rows", [name])
    slots = [slot for comparison in comparisons for slot in plan.of_comparison(comparison)]
    counted = _counted(plan, slots, selections, by_attempt, say)
    _check_repeats(slots, selections, counted, say)
    return counted, problems


def describe(row: Measurement) -> str:
    """Name a row by its key."""
    if row.comparison == "solo":
        return f"{row.workload} repeat {row.repeat} attempt {row.attempt}"
    return f"{row.workload} {row.comparison} repeat {row.repeat} pair {row.pair} {row.side} attempt {row.attempt}"


def _row_faults(plan: Plan, slot: Slot, attempt: AttemptRow | None, row: Measurement) -> list[str]:
    """Return what is wrong with one row by itself, whichever attempt it belongs to."""
    workload = plan.workloads[slot.workload]
    faults = _attempt_faults(attempt, row)
    if (row.category, row.production) != (workload.category, workload.production):
        faults.append("category or production is not as in the protocol")
    if row.position > len(slot.order) or slot.order[row.position - 1] != row.side:
        faults.append(f"position {row.position} is not the planned one: the order is {', then '.join(slot.order)}")
    if min(row.updates, row.tokens) < 1 or not (row.train_s > 0):
        return [*faults, "updates, tokens and train_s must be above zero"]
    if not (row.startup_s >= 0):
        faults.append("startup_s is negative")
    if arithmetic.differs(row.tokens_per_s, arithmetic.rate(row.tokens, row.train_s), RELATIVE):
        faults.append("tokens_per_s is not tokens / train_s")
    if not (row.elapsed_s >= arithmetic.add([row.startup_s, row.train_s])):
        faults.append("elapsed_s is less than startup_s + train_s")
    return faults


def _attempt_faults(attempt: AttemptRow | None, row: Measurement) -> list[str]:
    if attempt is None:
        return ["the attempt is not in attempts.csv"]
    faults: list[str] = []
    if not attempt.sealed:
        faults.append("no receipt seals the attempt")
    if (row.allocation, row.node, row.device) != (attempt.allocation, attempt.node, attempt.device):
        faults.append("allocation, node or device is not as in attempts.csv")
    return faults


def _counted(
    plan: Plan,
    slots: Sequence[Slot],
    selections: dict[str, Selection],
    by_attempt: dict[tuple[str, int], list[Measurement]],
    say: _Say,
) -> Counted:
    counted: Counted = {}
    for slot in slots:
        chosen = selections[slot.slot].attempt
        if chosen is None:
            say(Finding.MISSING, f"{slot.slot}: no attempt counts, so there is no measurement", [slot.slot])
            continue
        rows = {row.side: row for row in by_attempt.get((slot.slot, chosen.attempt), [])}
        for side in slot.order:
            if side not in rows:
                say(Finding.MISSING, f"{slot.slot} attempt {chosen.attempt}: no row of {side}", [slot.slot])
        if set(rows) == set(slot.order):
            measured = tuple(rows[side] for side in slot.order)
            counted[slot.slot] = measured
            for reason in _pair_faults(plan, measured):
                say(Finding.INVALID, f"{slot.slot} attempt {chosen.attempt}: {reason}", [slot.slot])
    return counted


def _pair_faults(plan: Plan, rows: tuple[Measurement, ...]) -> list[str]:
    """Return what is wrong with the counted measurements of one slot taken together."""
    faults = [
        f"the sides differ in {name}"
        for name in ("allocation", "node", "device", "updates", "tokens")
        if len({getattr(row, name) for row in rows}) > 1
    ]
    needed = plan.protocol.throughput.warmup_updates
    faults.extend(
        f"{row.side}: {row.warmup_updates} warm-up updates, and the protocol asks for {needed}"
        for row in rows
        if row.warmup_updates < needed
    )
    return faults


def _check_repeats(slots: Sequence[Slot], selections: dict[str, Selection], counted: Counted, say: _Say) -> None:
    """Check each workload over its repeats: own allocations, and one number of updates."""
    groups: dict[tuple[str, str], list[Slot]] = defaultdict(list)
    for slot in slots:
        if slot.slot in counted:
            groups[slot.kind, slot.workload].append(slot)
    for group in groups.values():
        _check_allocations(group, counted, say)
        _check_updates(group, selections, counted, say)


def _check_allocations(group: Sequence[Slot], counted: Counted, say: _Say) -> None:
    users: dict[str, list[Slot]] = defaultdict(list)
    for slot in group:
        for allocation in sorted({row.allocation for row in counted[slot.slot]}):
            users[allocation].append(slot)
    for allocation, shared in sorted(users.items()):
        repeats = sorted({slot.repeat for slot in shared})
        if len(repeats) > 1:
            names = ", ".join(str(repeat) for repeat in repeats)
            reason = f"{shared[0].workload}: repeats {names} share the allocation {allocation}"
            say(Finding.INVALID, reason, [slot.slot for slot in shared])


def _check_updates(group: Sequence[Slot], selections: dict[str, Selection], counted: Counted, say: _Say) -> None:
    """After a short window a pair measures twice the updates; otherwise the count is the same in all repeats."""
    twice_planned: set[int] = set()
    for slot in group:
        updates = {row.updates for row in counted[slot.slot]}
        if len(updates) == 1 and min(updates) > 0:  # else the slot has been named already, and says nothing of others
            twice_planned.add(updates.pop() * (1 if selections[slot.slot].doubled else 2))
    if len(twice_planned) > 1:
        reason = f"{group[0].workload}: the {group[0].kind}s differ in updates per window over the repeats"
        say(Finding.INVALID, reason, [slot.slot for slot in group])
