"""One attempt: what its kind asks for, then tables and receipt, however it ends."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass

from ..common.endings import EndedError, Ending, InterruptedAttemptError, is_no_space
from ..common.layout import INPUTS, TENSORS, AttemptFolder, attempt_folder
from ..common.plan import RESUMPTION, PlannedAttempt
from ..common.storage import sha256_bytes, write_new, write_table
from ..common.strict import readable
from ..common.tables import compressed, table_bytes
from .context import Context
from .kinds import Made, run_sides
from .receipts import receipt_bytes, reserve_space, start_bytes
from .rows import TENSORS_HEADER, Tables, build_tables, case_tables, run_tables
from .workspace import is_full

HOME_IS_FULL = "the disk of the home is full"


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
    folder = attempt_folder(context.allocation.home, planned.slot, planned.attempt, planned.segment)
    folder.root.mkdir(parents=True, exist_ok=True)
    write_new(folder.start, start_bytes(context.allocation, planned, context.place, time.time()))
    reserve_space(folder)
    made = Made()
    ending, words = _conduct(context, planned, folder, made)
    reason = readable(words)
    folder.reserve.unlink(missing_ok=True)

    def seal(ending: Ending, reason: str, made: Made) -> bytes:
        return receipt_bytes(
            folder,
            context.allocation,
            planned,
            ending=ending,
            reason=reason,
            records=made.records,
            case=made.case.as_json() if made.case is not None else None,
            run=made.run.as_json() if made.run is not None else None,
            elapsed_s=time.monotonic() - began,
            at=time.time(),
        )

    try:
        receipt = seal(ending, reason, made)
    except ValueError as error:
        ending, reason = Ending.HARNESS_ERROR, readable(f"what was observed cannot be written down: {error}")
        receipt = seal(ending, reason, Made())
    write_new(folder.receipt, receipt)
    return Outcome(ending=ending, reason=reason, receipt_sha256=sha256_bytes(receipt), sides_s=made.sides_s)


def _conduct(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> tuple[Ending, str]:
    """Run the sides and write the tables; return the ending and its reason."""
    try:
        run_sides(context, planned, folder, made)
        _write_tables(context, planned, folder, made)
    except InterruptedAttemptError as error:
        ending, reason = context.signals.meaning()
        return ending, f"{reason}; then {error.then}" if error.then else reason
    except EndedError as error:
        return error.ending, error.reason
    except Exception as error:  # noqa: BLE001 - an error of the harness's own ends the attempt, and says so
        if is_no_space(error):
            return Ending.NO_SPACE, f"{error}{_which_is_full(context)}"
        context.log.trace(error)
        return Ending.HARNESS_ERROR, f"{type(error).__name__}: {error}"
    return Ending.COMPLETED, ""


def _which_is_full(context: Context) -> str:
    """Return which disk is full, as an addition to a reason; empty where neither shows it, as under a quota.

    That of the home is no node's fault, and the driver blames none for it.
    """
    with contextlib.suppress(OSError):
        if is_full(os.statvfs(context.allocation.home)):
            return f": {HOME_IS_FULL}"
    return ": the disk of the node's private folders is full" if context.workspace.is_full() else ""


def _tables(context: Context, planned: PlannedAttempt, made: Made) -> Tables:
    """Return the rows of a completed attempt by file name."""
    if planned.kind in ("pilot", RESUMPTION):
        return {}
    if made.case is not None:
        return case_tables(made.case.findings, is_control=planned.kind == "control_case")
    if made.run is not None:
        return run_tables(planned, made.run)
    workload = context.protocol.workloads[planned.workload]
    return build_tables(context.allocation, planned, workload, context.place, made.records)


def _write_tables(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> None:
    headers = {**context.protocol.headers, TENSORS: TENSORS_HEADER}
    for file, rows in _tables(context, planned, made).items():
        data = table_bytes(headers[file], rows)
        write_table(folder.table(file), compressed(data) if file == TENSORS else data)
    for record in made.records:
        if record.inputs is not None:
            write_table(folder.table(INPUTS), record.inputs)
