"""From chosen slots to allocations: their ids, keys, attempt numbers, update counts and allocation.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from campaign import files
from campaign.collection.checkpoints import Hashed
from campaign.documents import (
    AllocationPlan,
    CheckpointName,
    PlannedAttempt,
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
from campaign.planning.calibration import CASE_KINDS, pilot_rate, updates_per_window
from campaign.planning.packing import pack
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
    allocations: tuple[IntendedAllocation, ...]


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
    frozen: Frozen, paths: HomePaths, key: str, allocation: str, attempts: Sequence[IntendedAttempt]
) -> AllocationPlan:
    """Return allocation.json of one allocation: a function of what is frozen and of the intent alone.

    Args:
        frozen: The frozen documents.
        paths: The home.
        key: The submission's key.
        allocation: Id of the allocation.
        attempts: Its attempts, in the order in which they run.
    """
    owner = attempts[0].slot.partition("/")[0]  # an allocation holds slots of one side
    candidate = owner if owner != "baseline" else ""
    by_name = {
        slot_for(slot.slot, candidate): slot for slot in frozen.protocol.slots if slot.side != "candidate" or candidate
    }
    slots = [by_name[attempt.slot] for attempt in attempts]
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
    intended: dict[str, IntendedAttempt] = {}
    refused: list[EvidenceError] = []
    for name in chosen:
        try:
            intended[name] = _intended(states[name], states, paths, frozen, candidate, right=right)
        except EvidenceError as error:
            if states[name].slot.kind != "run":
                raise
            refused.append(error)  # its checkpoint: what the other slots need is not touched by that
    return intended, tuple(refused)


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
    """
    resources = frozen.manifest.resources
    packed = pack([states[name].slot for name in intended], int(resources["submission"]["workloads_per_allocation"]))
    first = 1 + len(history.allocations)
    names = [f"a{number:05d}" for number in range(first, first + len(packed))]
    minutes = int(resources[cluster]["minutes"])
    # One local job holds everything, since measurements at the same time disturb one another.
    size = len(packed) if cluster == "local" else array_limit
    batches = []
    for start in range(0, len(packed), size or 1):
        chunk = names[start : start + size]
        key = make_key(frozen, paths, chunk)
        allocations = []
        for name, slots in zip(chunk, packed[start : start + size], strict=True):
            attempts = tuple(intended[slot_for(slot.slot, candidate)] for slot in slots)
            plan = build_plan(frozen, paths, key, name, attempts)
            digest = files.sha256_bytes(plan.to_bytes())
            allocations.append(
                IntendedAllocation(allocation=name, minutes=minutes, plan_sha256=digest, attempts=attempts)
            )
        batches.append(
            Batch(key=key, cluster=cluster, candidate=candidate, minutes=minutes, allocations=tuple(allocations))
        )
    return batches


def write_plans(frozen: Frozen, paths: HomePaths, batch: Batch) -> None:
    """Write allocation.json of every allocation of a batch, where it is not there yet.

    Raises:
        StateError: This release would write another plan than the one that was intended.
    """
    for allocation in batch.allocations:
        plan = build_plan(frozen, paths, batch.key, allocation.allocation, allocation.attempts).to_bytes()
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
        elif files.sha256_file(folder.plan) != allocation.plan_sha256:
            raise StateError("not the allocation that was intended", where=str(folder.plan))
