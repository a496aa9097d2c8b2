"""One attempt: the sides in order, one after the other, each in a process of its own; then tables and the receipt."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .conditions import Conditions
from .endings import EndedError, Ending, InterruptedAttemptError, is_no_space
from .environment import SideFolders, build_environment
from .harnesslog import HarnessLog
from .keeper import kill_descendants
from .layout import AttemptFolder, attempt_folder
from .plan import Allocation, PlannedAttempt, Protocol, Runnable
from .receipts import Place, receipt_bytes, reserve_space, start_bytes
from .rows import build_tables
from .side import Setting, SideRecord, run_side
from .sidelog import SideLog
from .signals import Signals
from .snapshot import PrivateCopy
from .storage import sha256_bytes, write_new, write_table
from .strict import plain_unicode
from .tables import table_bytes
from .workspace import LAUNCHER, Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What all attempts of an allocation share."""

    allocation: Allocation
    protocol: Protocol
    place: Place
    workspace: Workspace
    harness_source: Path
    environment: Mapping[str, str]
    """The parent's own."""
    signals: Signals
    conditions: Conditions
    log: HarnessLog
    data_changes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended, what seals it, and how long its sides' processes lived."""

    ending: Ending
    reason: str
    receipt_sha256: str
    sides_s: float


def run_attempt(context: Context, planned: PlannedAttempt) -> Outcome:
    """Make one attempt and seal it, however it ends.

    Raises:
        FileExistsError: The attempt was begun before: nothing of it is touched.
        OSError: Its folder cannot be written.
    """
    began = time.monotonic()
    folder = attempt_folder(context.allocation.home, planned.slot, planned.attempt)
    folder.root.mkdir(parents=True, exist_ok=True)
    write_new(folder.start, start_bytes(context.allocation, planned, context.place, time.time()))
    reserve_space(folder)
    records: list[SideRecord] = []
    ending, reason = _conduct(context, planned, folder, records)
    folder.reserve.unlink(missing_ok=True)

    def seal(ending: Ending, reason: str, records: list[SideRecord]) -> bytes:
        return receipt_bytes(
            folder,
            context.allocation,
            planned,
            ending=ending,
            reason=plain_unicode(reason),
            records=records,
            elapsed_s=time.monotonic() - began,
            at=time.time(),
        )

    try:
        receipt = seal(ending, reason, records)
    except ValueError as error:
        ending, reason = Ending.HARNESS_ERROR, f"what was observed cannot be written down: {error}"
        receipt = seal(ending, reason, [])
    write_new(folder.receipt, receipt)
    sides_s = sum(record.wall_s for record in records)
    return Outcome(ending=ending, reason=reason, receipt_sha256=sha256_bytes(receipt), sides_s=sides_s)


def _conduct(
    context: Context, planned: PlannedAttempt, folder: AttemptFolder, records: list[SideRecord]
) -> tuple[Ending, str]:
    """Run the sides and write the tables; return the ending and its reason."""
    try:
        _run_sides(context, planned, folder, records)
        _write_tables(context, planned, folder, records)
    except InterruptedAttemptError:
        return context.signals.meaning()
    except EndedError as error:
        return error.ending, error.reason
    except Exception as error:  # noqa: BLE001 - an error of the harness's own ends the attempt, and says so
        if is_no_space(error):
            return Ending.NO_SPACE, str(error)
        context.log.trace(error)
        return Ending.HARNESS_ERROR, f"{type(error).__name__}: {error}"
    return Ending.COMPLETED, ""


def _run_sides(context: Context, planned: PlannedAttempt, folder: AttemptFolder, records: list[SideRecord]) -> None:
    if context.data_changes:
        raise EndedError(Ending.DATA_CHANGED, "\n".join(context.data_changes))
    for position, side in enumerate(planned.order, start=1):
        context.signals.check()
        record = SideRecord(side=side, position=position)
        records.append(record)
        _run_one(context, planned, folder, record)
        strays = record.exit.strays if record.exit is not None else 0
        context.log.write(f"{planned.slot}: {side} took {record.wall_s:.3f} s; processes it left behind: {strays}")


def _run_one(context: Context, planned: PlannedAttempt, folder: AttemptFolder, record: SideRecord) -> None:
    runnable = context.allocation.side(record.side)
    tree = context.workspace.snapshot(runnable)
    harness = context.workspace.harness(context.harness_source, context.allocation.harness_sha256)
    folders = context.workspace.side_folders()
    log = SideLog(folder.log(record.side), context.protocol.limits.log_bytes)
    try:
        with contextlib.closing(log):
            setting = _setting(context, planned, runnable, folders, trees=(tree, harness))
            run_side(setting, record, log, context.signals)
    finally:
        # First of all: with a limit of its own lowered, the parent can do nothing of the rest.
        moved = _restore(context.conditions)
        changes = context.workspace.find_changes()
        context.workspace.leave(folders)
        if changes:
            context.log.write(f"{planned.slot}: {record.side} changed {changes}")
        if moved:
            # Instead of any other ending, which may well have come of it.
            raise EndedError(Ending.INTERFERENCE, f"while {record.side} ran, the harness's own {'; '.join(moved)}")
    if changes:
        shown = ", ".join(changes[:10])
        raise EndedError(Ending.SNAPSHOT_CHANGED, f"{len(changes)} entries of read-only copies were touched: {shown}")


def _restore(conditions: Conditions) -> list[str]:
    """Restore the parent's own conditions; return what had changed."""
    moved = conditions.changes()
    if moved:
        conditions.restore()
        kill_descendants()
    return moved


def _setting(
    context: Context,
    planned: PlannedAttempt,
    runnable: Runnable,
    folders: SideFolders,
    *,
    trees: tuple[PrivateCopy, PrivateCopy],
) -> Setting:
    protocol = context.protocol
    tree, harness = trees
    return Setting(
        runnable=runnable,
        workload=protocol.workloads[planned.workload],
        protocol=protocol,
        updates=planned.updates,
        tree=tree.root,
        launcher=harness.root / LAUNCHER,
        environment=build_environment(
            context.environment, runnable, folders, device=protocol.device, threads=protocol.threads
        ),
        working=folders.working,
        bytecode=folders.bytecode,
        private=(str(tree.root), str(harness.root), str(folders.root)),
        is_full=context.workspace.is_full,
    )


def _write_tables(context: Context, planned: PlannedAttempt, folder: AttemptFolder, records: list[SideRecord]) -> None:
    workload = context.protocol.workloads[planned.workload]
    tables = build_tables(context.allocation, planned, workload, context.place, records)
    for file, rows in tables.items():
        write_table(folder.table(file), table_bytes(context.protocol.headers[file], rows))
