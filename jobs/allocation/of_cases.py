"""Attempts at numerical cases, whose sides are alive at once. Loaded where a job has one."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ..cases.inputs_again import are_there, make_again
from ..cases.inputs_recorder import InputsRecorder
from ..cases.run import Bench, begin_record, run_case
from ..common.layout import COMPARER, AttemptFolder, inputs_folder
from ..common.plan import Numerical, PlannedAttempt
from ..measurement.session import SideRecord
from ..processes.sidelog import SideLog
from .context import Context, comparer_command, private_folders, set_up, undisturbed

if TYPE_CHECKING:
    from .kinds import Made


def make_recorder(context: Context, planned: PlannedAttempt) -> InputsRecorder:
    """Return what records the canonical inputs of a workload from the baseline's pilot."""
    workload = context.protocol.workloads[planned.workload]
    return InputsRecorder(workload, inputs_folder(context.allocation.home), context.workspace.root)


def run_both(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> None:
    """Run both sides of a case, and the process that compares them.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    rules = context.protocol.numerical
    if rules is None:
        raise ValueError("the protocol declares no numerical family")
    made.case = begin_record(planned, rules)
    if context.makes_inputs and not are_there(inputs_folder(context.allocation.home), planned.inputs_sha256):
        _make_inputs_again(context, planned, rules)
        made.case.made_inputs = True
    made.records += [SideRecord(side=side, position=place) for place, side in enumerate(planned.order, start=1)]
    most_bytes = context.protocol.limits.log_bytes
    with (
        context.workspace.private_folder() as private,
        private_folders(context) as folders,
        undisturbed(context, planned, " and ".join(planned.order)),
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
            setting_of=lambda side: set_up(context, planned, side),
            referee=comparer_command(context, folders),
            logs=logs,
            signals=context.signals,
            is_confined=any(context.allocation.side(side).launch for side in planned.order),
        )
        run_case(bench, made.case, made.records)


def _make_inputs_again(context: Context, planned: PlannedAttempt, rules: Numerical) -> None:
    """Let the baseline record what the case needs and what is not here; what it prints is kept only if it fails.

    Raises:
        EndedError: It cannot, or not the same.
        InterruptedAttemptError: A signal came.
    """
    workload = context.protocol.workloads[planned.workload]
    began = time.monotonic()
    with (
        context.workspace.private_folder() as private,
        undisturbed(context, planned, "baseline"),
        contextlib.closing(SideLog(private / "inputs.log", context.protocol.limits.log_bytes)) as log,
    ):
        make_again(
            set_up(context, planned, "baseline"),
            log,
            context.signals,
            workload=workload,
            rules=rules,
            folder=inputs_folder(context.allocation.home),
            private=private,
            sha256=planned.inputs_sha256,
        )
    took_s = time.monotonic() - began
    context.log.write(f"{planned.slot}: made the canonical inputs {planned.inputs_sha256} again in {took_s:.3f} s")
