"""What a person reads before saying yes: the plan with its cost, and the very scripts of a dry run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from campaign.documents import Slot, slot_for
from campaign.frozen import Frozen
from campaign.planning.calibration import Experience
from campaign.submission.acts import IntendedAllocation
from campaign.submission.cost import Expectation, device_hours, expect, experience
from campaign.submission.desk import Desk, Order
from campaign.submission.plans import Batch
from campaign.table import table
from campaign.watching.state import SlotStatus


def _slots(frozen: Frozen, batch: Batch) -> Iterator[tuple[IntendedAllocation, list[Slot]]]:
    by_name = {slot_for(slot.slot, batch.candidate): slot for slot in frozen.protocol.slots}
    for allocation in batch.allocations:
        yield allocation, [by_name[attempt.slot] for attempt in allocation.attempts]


def _hours(frozen: Frozen, batch: Batch) -> float:
    groups = [slots for _, slots in _slots(frozen, batch)]
    minutes = [batch.minutes] * len(groups)
    return device_hours(frozen.protocol, frozen.manifest.resources, batch.cluster, groups, minutes=minutes)


def _expected(frozen: Frozen, batch: Batch, known: Experience) -> Expectation:
    planned = [
        (slot, attempt.resume)
        for allocation, own in _slots(frozen, batch)
        for slot, attempt in zip(own, allocation.attempts, strict=True)
    ]
    return expect(
        frozen.protocol,
        frozen.manifest.resources,
        batch.cluster,
        [slot for slot, _ in planned],
        known,
        behind={slot.slot: resume.update for slot, resume in planned if resume is not None},
        next_only=True,
    )


def plan_text(frozen: Frozen, order: Order, slots: Mapping[str, SlotStatus]) -> str:
    """Return the plan as a table: what, how many, the most device-hours, and what the pilots let expect."""
    rows = []
    known = experience(slots.values())
    for batch in order.all:
        kinds: dict[str, int] = {}
        again = further = 0
        for allocation, own in _slots(frozen, batch):
            for slot in own:
                kinds[slot.kind] = kinds.get(slot.kind, 0) + 1
            again += sum(attempt.attempt > 1 and attempt.segment < 2 for attempt in allocation.attempts)
            further += sum(attempt.segment > 1 for attempt in allocation.attempts)
        what = ", ".join(f"{number} {kind.replace('_', ' ')}" for kind, number in kinds.items())
        jobs = (
            "1 job" if batch.cluster == "local" or len(batch.allocations) == 1 else f"array of {len(batch.allocations)}"
        )
        noted = [f"{again} retries" if again else "", f"{further} further segments" if further else ""]
        note = "interrupted before" if batch in order.again else ", ".join(filter(None, noted))
        limit = f"{batch.minutes} min"
        hours = (f"{_hours(frozen, batch):.2f}", _expected(frozen, batch, known).text)
        rows.append((batch.cluster, jobs, str(len(batch.allocations)), what, limit, *hours, note))
    header = ("cluster", "as", "allocations", "attempts", "time limit", "most device-hours", "from the pilots", "")
    total = sum(_hours(frozen, batch) for batch in order.all)
    return f"{table(header, rows)}\nat most {total:.2f} device-hours in all"


def dry_run(desk: Desk, order: Order) -> list[dict[str, Any]]:
    """Return the script and the command lines of every submission; writes nothing."""
    shown = []
    for batch in order.all:
        request = desk.request(batch)
        script = desk.transport.show(request) if batch.cluster == "slurm" else ""
        shown.append(
            {
                "submission": batch.key,
                "cluster": batch.cluster,
                "script": script,
                "payloads": [list(argv) for argv in request.payloads],
            }
        )
    return shown


def dry_run_text(shown: list[dict[str, Any]]) -> str:
    """Return a dry run for reading."""
    parts = []
    for one in shown:
        parts.append(f"# submission {one['submission']} to {one['cluster']}")
        if one["script"]:
            parts.append(one["script"].rstrip())
        for index, argv in enumerate(one["payloads"]):
            parts.append(f"# job {index} becomes:\n{shlex.join(argv)}")
    return "\n\n".join(parts)


def _of_times(order: Order) -> Iterator[str]:
    """Yield which jobs may be too short for what they hold."""
    for batch in order.batches:
        if batch.needed_minutes > batch.minutes and batch.cluster == "slurm":
            yield (
                f"{len(batch.allocations)} allocation(s) end after {batch.minutes} minutes, and may need "
                f"{batch.needed_minutes} by the limits and the pilots: what is cut off ends as time_limit"
            )


def _of_nodes(order: Order) -> Iterator[str]:
    """Yield which nodes are avoided because they failed, and which are not although they did."""
    if order.batches:
        yield from (f"not sent to {node}: {reason}" for node, reason in order.exclusion.nodes.items())
        if order.exclusion.note:
            yield order.exclusion.note


def reasons(order: Order, slots: Mapping[str, Any]) -> list[str]:
    """Return what a person should know beside the plan, one sentence a line."""
    choice, said = order.choice, [*_of_times(order), *_of_nodes(order)]
    if choice.waiting:
        said.append(f"{len(choice.waiting)} slot(s) wait for a pilot: give the command again when it has ended")
    if choice.active:
        said.append(f"{len(choice.active)} slot(s) are under way already")
    if choice.out_of_reach:
        shown = ", ".join(choice.out_of_reach[:3]) + (", ..." if len(choice.out_of_reach) > 3 else "")
        said.append(f"{len(choice.out_of_reach)} slot(s) can no longer be completed: {shown}")
        said += [
            f"{name}: {slots[name].state.value} after {len(slots[name].chains)} attempt(s), last "
            f"{slots[name].endings[-1].value}: {slots[name].reason or 'no reason given'}"
            for name in choice.out_of_reach[:3]
            if slots[name].endings
        ]
    return said + [f"not submitted: {name}: {order.held[name]}" for name in choice.held]
