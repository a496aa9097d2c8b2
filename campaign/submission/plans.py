"""From chosen slots to allocations: their ids, keys, attempt numbers, update counts and allocation.json."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from acceptance.formats import Ending
from campaign import files
from campaign.collection.checkpoints import Hashed
from campaign.documents import (
    AllocationPlan,
    CheckpointName,
    PlannedAttempt,
    Protocol,
    Receipt,
    Runnable,
    Side,
    SideName,
    Slot,
    slot_for,
)
from campaign.errors import EvidenceError, StateError
from campaign.frozen import Frozen
from campaign.keys import AttemptKey
from campaign.paths import INPUTS, HomePaths, SnapshotPaths
from campaign.planning import walltime
from campaign.planning.calibration import CASE_KINDS, pilot_rate, updates_per_window
from campaign.planning.packing import Group, pack
from campaign.submission import cost
from campaign.submission.acts import Cluster, History, IntendedAllocation, IntendedAttempt
from campaign.submission.resume import read_newest
from campaign.watching.state import SlotState, SlotStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One submission that is about to be intended: one job array, or one local job."""

    key: str
    cluster: Cluster
    candidate: str
    minutes: int
    """Time limit of each job."""
    allocations: tuple[IntendedAllocation, ...]
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Nodes that it avoids because they failed, with the reasons."""
    needed_minutes: int = 0
    """What its slots may take, runs left out; 0 where that was not computed."""


def pilot_of(slot: Slot, side: SideName, candidate: str) -> str:
    """Return the name of the pilot that a slot's side needs."""
    owner = candidate if side == "candidate" else "baseline"
    return f"{owner}/pilot/{slot.workload}"


def pilots_of(slot: Slot, candidate: str) -> tuple[str, ...]:
    """Return the names of the pilots that a slot needs."""
    if slot.kind == "pilot":
        return ()
    return tuple(dict.fromkeys(pilot_of(slot, side, candidate) for side in slot.order))


def _pilot_receipts(status: SlotStatus, states: Mapping[str, SlotStatus], candidate: str) -> dict[str, Receipt]:
    """Return the receipts of the pilots that a slot needs, by the pilots' names."""
    receipts = {}
    for name in pilots_of(status.slot, candidate):
        completed = states[name].completed
        if completed is None or completed.receipt is None:
            raise ValueError(f"{status.name} was chosen before its pilot {name} completed")
        receipts[name] = completed.receipt
    return receipts


def canonical_inputs(pilot: Receipt) -> str:
    """Return the digest of the canonical inputs that a baseline's pilot recorded.

    Raises:
        EvidenceError: It sealed none.
    """
    for sealed in pilot.files:
        if sealed.name == INPUTS:
            return sealed.sha256
    raise EvidenceError(f"the pilot completed without {INPUTS}", where=pilot.slot)


def pilots_after(protocol: Protocol, candidate: str) -> dict[str, str]:
    """Return the candidate's pilots that follow the baseline's of their workload, and those, by name.

    Of several processes both sides must take the same examples: the baseline's pilot says which.
    """
    several = [workload.name for workload in protocol.workloads if workload.processes > 1]
    return {f"{candidate}/pilot/{name}": f"baseline/pilot/{name}" for name in several} if candidate else {}


def examples_digest(examples: Sequence[str]) -> str:
    """Return one digest that stands for the digests of all steps that a pilot was asked for."""
    return files.sha256_bytes(json.dumps(list(examples), separators=(",", ":")).encode("ascii"))


def _examples(status: SlotStatus, states: Mapping[str, SlotStatus], after: Mapping[str, str]) -> str:
    """Return the digest of what the ranks of a candidate's pilot must take; empty for everything else."""
    first = after.get(status.name)
    if first is None:
        return ""
    completed = states[first].completed
    if completed is None or completed.receipt is None:
        raise ValueError(f"{status.name} was chosen before {first} completed")
    return examples_digest(completed.receipt.sides[0].examples)


def next_key(status: SlotStatus) -> AttemptKey:
    """Return the next try at a slot: another attempt or, of a run that was cut, the next segment of the last one."""
    if status.slot.kind != "run":
        return AttemptKey(status.name, 1 + status.num_numbered)
    if status.state is SlotState.CUT:
        last = status.attempts[-1].key
        return AttemptKey(last.slot, last.attempt, last.segment + 1)
    return AttemptKey(status.name, 1 + status.num_numbered, 1)


def _resume(
    paths: HomePaths, status: SlotStatus, key: AttemptKey, manifest_sha256: str, right: dict[Path, Hashed]
) -> CheckpointName | None:
    """Return the checkpoint that a segment starts from; None for the beginning."""
    earlier = [one for one in status.attempts if one.attempt == key.attempt] if key.segment else []
    return read_newest(paths, earlier, manifest_sha256, right)


def _intended(
    status: SlotStatus,
    states: Mapping[str, SlotStatus],
    paths: HomePaths,
    frozen: Frozen,
    candidate: str,
    *,
    after: Mapping[str, str],
    right: dict[Path, Hashed],
) -> IntendedAttempt:
    """Return the next attempt at a slot, or the next segment of one at a run."""
    pilots = _pilot_receipts(status, states, candidate)
    key = next_key(status)
    is_case, is_run = status.slot.kind in CASE_KINDS, status.slot.kind == "run"
    rates = [] if is_case or is_run else [pilot_rate(receipt) for receipt in pilots.values()]
    return IntendedAttempt(
        slot=key.slot,
        attempt=key.attempt,
        updates=updates_per_window(frozen.protocol.throughput, rates, status.endings) if rates else 0,
        inputs_sha256=canonical_inputs(pilots[pilot_of(status.slot, "baseline", candidate)]) if is_case else "",
        examples_sha256=_examples(status, states, after),
        segment=key.segment,
        resume=_resume(paths, status, key, frozen.manifest_sha256, right),
    )


def _side_of(name: SideName) -> Literal["baseline", "candidate"]:
    return "candidate" if name == "candidate" else "baseline"


def _runnable(identity: str, side: Side, snapshot: SnapshotPaths, frozen: Frozen) -> Runnable:
    environment = dict(side.environment)
    for name, data in frozen.manifest.data.items():
        environment = {key: value.replace(f"${{data.{name}}}", data.path) for key, value in environment.items()}
    return Runnable(
        id=identity,
        tree=str(snapshot.tree),
        files=str(snapshot.listing),
        snapshot_sha256=side.snapshot_sha256,
        python=side.python,
        adapter=side.adapter,
        python_path=side.python_path,
        environment=environment,
        pass_environment=side.pass_environment,
        launch=side.launch,
        container=side.container,
        reads=side.reads,
    )


def _runnables(
    frozen: Frozen, paths: HomePaths, candidate: str, slots: Sequence[Slot]
) -> dict[Literal["baseline", "candidate"], Runnable]:
    needed = {_side_of(name) for slot in slots for name in slot.order}
    runnables: dict[Literal["baseline", "candidate"], Runnable] = {}
    if "baseline" in needed:
        runnables["baseline"] = _runnable("baseline", frozen.manifest.baseline, paths.baseline, frozen)
    if "candidate" in needed:
        side = frozen.candidates[candidate].candidate
        runnables["candidate"] = _runnable(candidate, side, paths.candidate(candidate), frozen)
    return runnables


def build_plan(
    frozen: Frozen,
    paths: HomePaths,
    key: str,
    allocation: str,
    attempts: Sequence[IntendedAttempt],
    *,
    by_name: Mapping[str, Slot] | None = None,
) -> AllocationPlan:
    """Return allocation.json of one allocation: a function of what is frozen and of the intent alone.

    Args:
        frozen: The frozen documents.
        paths: The home.
        key: The submission's key.
        allocation: Id of the allocation.
        attempts: Its attempts, in the order in which they run.
        by_name: What `Frozen.slots` returns, where many plans are built; default: asked for.
    """
    owner = attempts[0].slot.partition("/")[0]  # an allocation holds slots of one side
    candidate = owner if owner != "baseline" else ""
    known = frozen.slots() if by_name is None else by_name
    slots = [known[attempt.slot] for attempt in attempts]
    return AllocationPlan(
        allocation=allocation,
        key=key,
        home=str(paths.root),
        manifest_sha256=frozen.manifest_sha256,
        protocol_sha256=frozen.protocol_sha256,
        harness_sha256=frozen.manifest.harness_sha256,
        sides=_runnables(frozen, paths, candidate, slots),
        data=dict(frozen.manifest.data),
        attempts=tuple(
            PlannedAttempt(
                slot=attempt.slot,
                attempt=attempt.attempt,
                kind=slot.kind,
                workload=slot.workload,
                repeat=slot.repeat,
                pair=slot.pair,
                order=slot.order,
                updates=attempt.updates,
                inputs_sha256=attempt.inputs_sha256,
                examples_sha256=attempt.examples_sha256,
                segment=attempt.segment,
                resume=attempt.resume,
            )
            for slot, attempt in zip(slots, attempts, strict=True)
        ),
    )


def key_prefix(campaign: str, manifest_sha256: str) -> str:
    """Return what the keys of a campaign's submissions begin with, and so the names of its jobs; no other's do."""
    return f"campaign-{campaign[:40]}-{manifest_sha256[:8]}-"


def make_key(frozen: Frozen, paths: HomePaths, allocations: Sequence[str]) -> str:
    """Return the key of a submission: the same for the same allocations of the same home, and of no other."""
    text = "\n".join([frozen.manifest_sha256, str(paths.root), *allocations])
    return key_prefix(frozen.manifest.campaign, frozen.manifest_sha256) + files.sha256_bytes(text.encode())[:16]


def intend(
    frozen: Frozen,
    paths: HomePaths,
    states: Mapping[str, SlotStatus],
    chosen: Sequence[str],
    *,
    candidate: str,
    right: dict[Path, Hashed],
) -> tuple[dict[str, IntendedAttempt], tuple[EvidenceError, ...]]:
    """Return the next attempt at each chosen slot, by name, and why runs among them cannot go on.

    Args:
        frozen: The frozen documents.
        paths: The home.
        states: The state of every slot, by name.
        chosen: Names of the slots.
        candidate: Id of the candidate; empty for none.
        right: Files of checkpoints that were found right before; those that are looked at now are added.

    Raises:
        EvidenceError: A pilot completed without the canonical inputs that a case needs.
    """
    after = pilots_after(frozen.protocol, candidate)
    intended: dict[str, IntendedAttempt] = {}
    refused: list[EvidenceError] = []
    for name in chosen:
        try:
            intended[name] = _intended(states[name], states, paths, frozen, candidate, after=after, right=right)
        except EvidenceError as error:
            if states[name].slot.kind != "run":
                raise
            refused.append(error)  # its checkpoint: what the other slots need is not touched by that
    return intended, tuple(refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """One allocation that is to be submitted."""

    name: str
    slots: Group
    topology: tuple[int, int]
    minutes: int
    needed_minutes: int


def make_batches(
    frozen: Frozen,
    paths: HomePaths,
    history: History,
    states: Mapping[str, SlotStatus],
    intended: Mapping[str, IntendedAttempt],
    *,
    candidate: str,
    cluster: Cluster,
    array_limit: int,
    limit_minutes: int | None = None,
    excluded: Mapping[str, str] | None = None,
) -> list[Batch]:
    """Return the submissions that would make the chosen slots' next attempts.

    Args:
        frozen: The frozen documents.
        paths: The home.
        history: What the ledger says.
        states: The state of every slot, by name.
        intended: The next attempt at each slot, by name; see `intend`.
        candidate: Id of the candidate; empty for none.
        cluster: Where they shall run.
        array_limit: Most jobs of one array.
        limit_minutes: The longest that a job may ask for; None for no limit. A configured time is asked for all the
            same: then the job waits, and the scheduler says why.
        excluded: Nodes to avoid, with the reasons.
    """
    groups = _groups(frozen, history, states, intended, cluster=cluster, limit_minutes=limit_minutes)
    batches, by_name = [], frozen.slots()
    for own in _together(groups, cluster):
        # One local job, or bundle, holds everything: measurements at the same time disturb one another.
        size = array_limit if cluster == "slurm" else len(own)
        for start in range(0, len(own), size):
            chunk = own[start : start + size]
            key = make_key(frozen, paths, [group.name for group in chunk])
            minutes = max(group.minutes for group in chunk)
            allocations = []
            for group in chunk:
                attempts = tuple(intended[slot_for(slot.slot, candidate)] for slot in group.slots)
                plan = build_plan(frozen, paths, key, group.name, attempts, by_name=by_name)
                digest = files.sha256_bytes(plan.to_bytes())
                asked = group.minutes if cluster == "detached" else minutes
                allocations.append(
                    IntendedAllocation(allocation=group.name, minutes=asked, plan_sha256=digest, attempts=attempts)
                )
            batches.append(
                Batch(
                    key=key,
                    cluster=cluster,
                    candidate=candidate,
                    minutes=minutes,
                    allocations=tuple(allocations),
                    excluded=dict(excluded or {}) if cluster == "slurm" else {},
                    needed_minutes=max(group.needed_minutes for group in chunk),
                )
            )
    return batches


def _groups(
    frozen: Frozen,
    history: History,
    states: Mapping[str, SlotStatus],
    intended: Mapping[str, IntendedAttempt],
    *,
    cluster: Cluster,
    limit_minutes: int | None,
) -> list[_Group]:
    """Return the allocations of the chosen slots, named in the order of the protocol, with what their jobs ask for."""
    resources, topologies = frozen.manifest.resources, cost.topologies(frozen.protocol)
    chosen = [states[name] for name in intended]
    most_workloads = int(resources["submission"]["workloads_per_allocation"])
    packed = pack([one.slot for one in chosen], most_workloads, topologies)
    first = 1 + len(history.allocations)
    case = time_case(frozen, states, intended)
    configured = cost.configured_minutes(resources, cluster)
    groups = []
    for number, slots in enumerate(packed, first):
        if cluster != "slurm" and topologies.get(slots[0].workload, (1, 1))[0] > 1:
            raise StateError(
                f"{slots[0].workload} asks for {topologies[slots[0].workload][0]} nodes, and here is one",
                where=slots[0].slot,
                hint="campaign submit --cluster slurm, or --only with a pattern of other slots",
            )
        asked = walltime.minutes_for(case, slots) if cluster != "local" else 0
        own = min(asked, limit_minutes or asked) if configured is None else configured
        is_run = any(slot.kind == "run" for slot in slots)  # what does not fit is another segment
        groups.append(
            _Group(
                name=f"a{number:05d}",
                slots=slots,
                topology=topologies.get(slots[0].workload, (1, 1)),
                minutes=own,
                needed_minutes=0 if is_run else asked,
            )
        )
    return groups


def time_case(
    frozen: Frozen, states: Mapping[str, SlotStatus], intended: Mapping[str, IntendedAttempt]
) -> walltime.Case:
    """Return what is known of how long the chosen slots take."""
    manifest, timeouts, behind = frozen.manifest, {}, {}
    for name, attempt in intended.items():
        timeouts[states[name].slot.slot] = states[name].endings.count(Ending.TIME_LIMIT)
        behind[states[name].slot.slot] = attempt.resume.update if attempt.resume is not None else 0
    sides = [manifest.baseline, *(one.candidate for one in frozen.candidates.values())]
    return walltime.Case.of(
        frozen.protocol,
        cost.experience(states.values()),
        num_bytes=sum(one.bytes for one in manifest.data.values())
        + sum(side.container.bytes for side in sides if side.container is not None),
        timeouts=timeouts,
        behind=behind,
    )


def _together(groups: Sequence[_Group], cluster: Cluster) -> list[list[_Group]]:
    """Return the allocations that one array, the local job or a bundle may hold, in order."""
    if cluster != "slurm":
        return [list(groups)] if groups else []
    arrays: dict[tuple[object, ...], list[_Group]] = {}
    longest = walltime.apart([group.minutes for group in groups])
    for group, most in zip(groups, longest, strict=True):
        arrays.setdefault((group.topology, most), []).append(group)
    return list(arrays.values())


def topology_of(frozen: Frozen, batch: Batch) -> tuple[int, int]:
    """Return the nodes and the processes that a batch's jobs must have room for."""
    known = cost.topologies(frozen.protocol)
    workloads = {slot_for(slot.slot, batch.candidate): slot.workload for slot in frozen.protocol.slots}
    names = [workloads[attempt.slot] for one in batch.allocations for attempt in one.attempts]
    found = [known.get(name, (1, 1)) for name in names]
    return max(nodes for nodes, _ in found), max(processes for _, processes in found)


def cut_anew(
    frozen: Frozen, paths: HomePaths, batch: Batch, allocations: Sequence[IntendedAllocation], size: int
) -> list[Batch]:
    """Return smaller submissions of what a refused one holds: the same allocations and attempts, under other keys.

    Args:
        frozen: The frozen documents.
        paths: The home.
        batch: The submission as it was refused.
        allocations: Those of its allocations that no other submission has.
        size: Most jobs of one array.
    """
    made, by_name = [], frozen.slots()
    for start in range(0, len(allocations), size):
        chunk = allocations[start : start + size]
        key = make_key(frozen, paths, [one.allocation for one in chunk])
        plans = [
            build_plan(frozen, paths, key, one.allocation, one.attempts, by_name=by_name).to_bytes() for one in chunk
        ]
        made.append(
            replace(
                batch,
                key=key,
                minutes=max(one.minutes for one in chunk),
                allocations=tuple(
                    one.replace(plan_sha256=files.sha256_bytes(plan)) for one, plan in zip(chunk, plans, strict=True)
                ),
            )
        )
    return made


def write_plans(
    frozen: Frozen, paths: HomePaths, batch: Batch, superseded: Mapping[str, Collection[str]] | None = None
) -> None:
    """Write allocation.json of every allocation of a batch, where it is not there yet.

    Args:
        frozen: The frozen documents.
        paths: The home.
        batch: The submission.
        superseded: By allocation, digests of the plans that it had in submissions that surely have no job.

    Raises:
        StateError: This release would write another plan than the one that was intended.
    """
    by_name = frozen.slots()
    for allocation in batch.allocations:
        name, attempts = allocation.allocation, allocation.attempts
        plan = build_plan(frozen, paths, batch.key, name, attempts, by_name=by_name).to_bytes()
        folder = paths.allocation(allocation.allocation)
        if files.sha256_bytes(plan) != allocation.plan_sha256:
            raise StateError(
                f"allocation {allocation.allocation} cannot be written as it was intended",
                where=str(folder.plan),
                why="another release of campaign, or another place of the home, made the intent",
                hint="use that release, in that place, or give the allocation up: campaign cancel",
            )
        folder.root.mkdir(parents=True, exist_ok=True)
        if not folder.plan.exists():
            files.write_new(folder.plan, plan)
        elif (found := files.sha256_file(folder.plan)) in (superseded or {}).get(name, ()):
            files.replace(folder.plan, plan)
        elif found != allocation.plan_sha256:
            raise StateError("not the allocation that was intended", where=str(folder.plan))
