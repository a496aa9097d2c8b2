"""One attempt: its sides in order, or both of a case at once, each in a process of its own; then tables and receipt."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..cases.inputs_recorder import InputsRecorder
from ..cases.run import Bench, CaseRecord, begin_record, run_case
from ..common.endings import EndedError, Ending, InterruptedAttemptError, is_no_space
from ..common.layout import COMPARER, INPUTS, TENSORS, AttemptFolder, attempt_folder, inputs_folder
from ..common.plan import CASES, Allocation, PlannedAttempt, Protocol
from ..common.storage import sha256_bytes, write_new, write_table
from ..common.strict import plain_unicode
from ..common.tables import compressed, table_bytes
from ..measurement.measuring import measure_side, run_pilot
from ..measurement.session import Setting, SideRecord
from ..processes.environment import SideFolders, build_environment, own_environment
from ..processes.keeper import Command, kill_descendants
from ..processes.sidelog import SideLog
from ..processes.signals import Signals
from .conditions import Conditions
from .harnesslog import HarnessLog
from .receipts import Place, receipt_bytes, reserve_space, start_bytes
from .rows import TENSORS_HEADER, build_tables, case_tables
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


@dataclass(slots=True)
class Made:
    """What an attempt has found so far."""

    records: list[SideRecord] = field(default_factory=list)
    case: CaseRecord | None = None

    @property
    def sides_s(self) -> float:
        """How long processes of the sides lived."""
        walls_s = [record.wall_s for record in self.records]
        at_once = self.case is not None and not self.case.is_serialized
        return max(walls_s, default=0.0) if at_once else sum(walls_s)


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
    made = Made()
    ending, reason = _conduct(context, planned, folder, made)
    folder.reserve.unlink(missing_ok=True)

    def seal(ending: Ending, reason: str, made: Made) -> bytes:
        return receipt_bytes(
            folder,
            context.allocation,
            planned,
            ending=ending,
            reason=plain_unicode(reason),
            records=made.records,
            case=made.case.as_json() if made.case is not None else None,
            elapsed_s=time.monotonic() - began,
            at=time.time(),
        )

    try:
        receipt = seal(ending, reason, made)
    except ValueError as error:
        ending, reason = Ending.HARNESS_ERROR, f"what was observed cannot be written down: {error}"
        receipt = seal(ending, reason, Made())
    write_new(folder.receipt, receipt)
    return Outcome(ending=ending, reason=reason, receipt_sha256=sha256_bytes(receipt), sides_s=made.sides_s)


def _conduct(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> tuple[Ending, str]:
    """Run the sides and write the tables; return the ending and its reason."""
    try:
        _run_sides(context, planned, folder, made)
        _write_tables(context, planned, folder, made)
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


def _run_sides(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> None:
    if context.data_changes:
        raise EndedError(Ending.DATA_CHANGED, "\n".join(context.data_changes))
    if planned.kind in CASES:
        _run_case(context, planned, folder, made)
        return
    for position, side in enumerate(planned.order, start=1):
        context.signals.check()
        record = SideRecord(side=side, position=position)
        made.records.append(record)
        _run_one(context, planned, folder, record)
        _say_how_long(context, planned, record)


def _say_how_long(context: Context, planned: PlannedAttempt, record: SideRecord) -> None:
    strays = record.exit.strays if record.exit is not None else 0
    text = f"{record.side} took {record.wall_s:.3f} s; processes it left behind: {strays}"
    context.log.write(f"{planned.slot}: {text}")


def _run_one(context: Context, planned: PlannedAttempt, folder: AttemptFolder, record: SideRecord) -> None:
    log = SideLog(folder.log(record.side), context.protocol.limits.log_bytes)
    with (
        _setting(context, planned, record.side) as setting,
        _undisturbed(context, planned, record.side),
        contextlib.closing(log),
    ):
        if planned.kind == "pilot":
            records_inputs = context.protocol.numerical is not None and record.side == "baseline"
            recorder = InputsRecorder(inputs_folder(context.allocation.home), context.workspace.root)
            run_pilot(setting, record, log, context.signals, recorder=recorder if records_inputs else None)
            recorder.verify_again()
        else:
            measure_side(setting, record, log, context.signals, updates=planned.updates)


def _run_case(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> None:
    """Run both sides of a case, and the process that compares them."""
    rules = context.protocol.numerical
    if rules is None:
        raise ValueError("the protocol declares no numerical family")
    made.case = begin_record(planned, rules)
    made.records += [SideRecord(side=side, position=place) for place, side in enumerate(planned.order, start=1)]
    most_bytes = context.protocol.limits.log_bytes
    with (
        context.workspace.private_folder() as private,
        _private_folders(context) as folders,
        _undisturbed(context, planned, " and ".join(planned.order)),
        contextlib.ExitStack() as stack,
    ):
        logs = {name: SideLog(folder.log(name), most_bytes) for name in (*planned.order, COMPARER)}
        for log in logs.values():
            stack.callback(log.close)
        bench = Bench(
            planned=planned,
            protocol=context.protocol,
            rules=rules,
            inputs=inputs_folder(context.allocation.home),
            private=private,
            setting_of=lambda side: _setting(context, planned, side),
            referee=_comparer_command(context, folders),
            logs=logs,
            signals=context.signals,
            is_confined=any(context.allocation.side(side).launch for side in planned.order),
        )
        run_case(bench, made.case, made.records)
    for record in made.records:
        _say_how_long(context, planned, record)


def _comparer_command(context: Context, folders: SideFolders) -> Command:
    """Return how the comparer is run: on the interpreter that runs this, from the private copy of the harness."""
    launcher = context.workspace.harness(context.harness_source, context.allocation.harness_sha256).root / LAUNCHER
    python = [sys.executable, "-P", "-s", "-X", f"pycache_prefix={folders.bytecode}"]
    environment = own_environment(context.environment, folders, device=context.protocol.device)
    return Command(argv=[*python, str(launcher), "compare"], environment=environment, working=folders.working)


@contextlib.contextmanager
def _private_folders(context: Context) -> Iterator[SideFolders]:
    folders = context.workspace.side_folders()
    try:
        yield folders
    finally:
        context.workspace.leave(folders)


@contextlib.contextmanager
def _undisturbed(context: Context, planned: PlannedAttempt, who: str) -> Iterator[None]:
    """Look what was done to the harness and to the private copies, once nothing of the sides lives any more.

    Raises:
        EndedError: Something was.
    """
    try:
        yield
    finally:
        # First of all: with a limit of its own lowered, the parent can do nothing of the rest.
        moved = _restore(context.conditions)
        changes = context.workspace.find_changes()
        if changes:
            context.log.write(f"{planned.slot}: {who} changed {changes}")
        if moved:
            # Instead of any other ending, which may well have come of it.
            raise EndedError(Ending.INTERFERENCE, f"while {who} ran, the harness's own {'; '.join(moved)}")
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


@contextlib.contextmanager
def _setting(context: Context, planned: PlannedAttempt, side: str) -> Iterator[Setting]:
    """Set up one run of a side, with folders of its own."""
    protocol, runnable = context.protocol, context.allocation.side(side)
    tree = context.workspace.snapshot(runnable)
    harness = context.workspace.harness(context.harness_source, context.allocation.harness_sha256)
    with _private_folders(context) as folders:
        yield Setting(
            runnable=runnable,
            workload=protocol.workloads[planned.workload],
            protocol=protocol,
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


def _write_tables(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> None:
    workload = context.protocol.workloads[planned.workload]
    headers = {**context.protocol.headers, TENSORS: TENSORS_HEADER}
    if made.case is None:
        tables = build_tables(context.allocation, planned, workload, context.place, made.records)
    else:
        tables = case_tables(made.case.findings, is_control=planned.kind == "control_case")
    for file, rows in tables.items():
        data = table_bytes(headers[file], rows)
        write_table(folder.table(file), compressed(data) if file == TENSORS else data)
    for record in made.records:
        if record.inputs is not None:
            write_table(folder.table(INPUTS), record.inputs)
