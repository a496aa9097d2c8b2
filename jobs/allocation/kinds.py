"""The kinds of attempts: the sides of each in their order, or both of a case at once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..cases.inputs_recorder import InputsRecorder
from ..cases.run import Bench, CaseRecord, begin_record, run_case
from ..common.endings import EndedError, Ending
from ..common.layout import COMPARER, AttemptFolder, inputs_folder
from ..common.plan import CASES, RESUMPTION, RUN, PlannedAttempt, Recipe
from ..measurement.measuring import measure_side, run_pilot
from ..measurement.session import SideRecord, running
from ..processes.sidelog import SideLog
from ..runs.pilot import run_recipe_pilot
from ..runs.resumption import run_resumption
from ..runs.run import RunBench, RunRecord, run_segment
from ..runs.run import begin_record as begin_run
from .context import Context, comparer_command, private_folders, set_up, undisturbed
from .surroundings import find_differences

MEASURED = ("solo", "pair", "control_pair")
"""The kinds that are compared by time."""
_MOST_SHOWN = 5


@dataclass(slots=True)
class Made:
    """What an attempt has found so far."""

    records: list[SideRecord] = field(default_factory=list)
    case: CaseRecord | None = None
    run: RunRecord | None = None

    @property
    def sides_s(self) -> float:
        """How long processes of the sides lived."""
        walls_s = [record.wall_s for record in self.records]
        at_once = self.case is not None and not self.case.is_serialized
        return max(walls_s, default=0.0) if at_once else sum(walls_s)


def run_sides(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> None:
    """Run the sides of an attempt and take down what they did.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    context.check_data()
    if planned.kind in CASES:
        _run_case(context, planned, folder, made)
        return
    for position, side in enumerate(planned.order, start=1):
        context.signals.check()
        context.standing.check_place()
        record = SideRecord(side=side, position=position)
        made.records.append(record)
        if (recipe := context.protocol.recipe(planned.workload)) is not None:
            _run_recipe(context, planned, recipe, folder, made)
        elif context.protocol.workloads[planned.workload].processes > 1:
            _run_several(context, planned, folder, made)
        else:
            _run_one(context, planned, folder, record)
        _say_how_long(context, planned, record)
        _check_conditions(made.records)
    if planned.kind in MEASURED:
        # Whoever came to the node meanwhile was measured as well.
        context.standing.check()


def _run_several(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> None:
    """Run the side whose record is the last one as several processes."""
    from .ranked import check_same_ranks, run_ranked  # noqa: PLC0415 - by need: most sides have one process

    run_ranked(context, planned, folder, made.records[-1])
    check_same_ranks(made.records)


def _check_conditions(records: Sequence[SideRecord]) -> None:
    """Refuse a measurement whose sides were not given the same, or that was given something else while it went on.

    Raises:
        EndedError: It was not.
    """
    looks = [
        (f"{when} {record.side}'s windows", state)
        for record in records
        for when, state in (("before", record.before), ("after", record.after))
        if state is not None
    ]
    if changes := find_differences(looks):
        shown = "; ".join(changes[:_MOST_SHOWN])
        more = f"; and {len(changes) - _MOST_SHOWN} more" if len(changes) > _MOST_SHOWN else ""
        where = "between the sides" if len(records) > 1 else "while the side ran"
        raise EndedError(Ending.NODE_FAIL, f"conditions changed {where}: {shown}{more}")


def _say_how_long(context: Context, planned: PlannedAttempt, record: SideRecord) -> None:
    strays = record.exit.strays if record.exit is not None else 0
    text = f"{record.side} took {record.wall_s:.3f} s; processes it left behind: {strays}"
    context.log.write(f"{planned.slot}: {text}")


def _run_one(context: Context, planned: PlannedAttempt, folder: AttemptFolder, record: SideRecord) -> None:
    log = SideLog(folder.log(record.side), context.protocol.limits.log_bytes)
    with (
        set_up(context, planned, record.side) as setting,
        undisturbed(context, planned, record.side),
        contextlib.closing(log),
    ):
        if planned.kind == "pilot":
            records_inputs = context.protocol.numerical is not None and record.side == "baseline"
            workload = context.protocol.workloads[planned.workload]
            recorder = InputsRecorder(workload, inputs_folder(context.allocation.home), context.workspace.root)
            run_pilot(setting, record, log, context.signals, recorder=recorder if records_inputs else None)
            recorder.verify_again()
        else:
            look = context.surroundings.read
            opened = running(setting, record, log, context.signals)
            measure_side(opened, record, context.signals, updates=planned.updates, look=look)


def _run_recipe(context: Context, planned: PlannedAttempt, recipe: Recipe, folder: AttemptFolder, made: Made) -> None:
    """Run one segment of a run, a resumption, or the pilot of a recipe."""
    rules, (record,) = context.protocol.convergence, made.records
    if rules is None:
        raise ValueError("the protocol declares no convergence family")
    log = SideLog(folder.log(record.side), context.protocol.limits.log_bytes)
    with (
        context.workspace.private_folder() as private,
        undisturbed(context, planned, record.side),
        contextlib.closing(log),
    ):
        bench = RunBench(
            allocation=context.allocation,
            planned=planned,
            recipe=recipe,
            checkpoint_s=rules.checkpoint_s,
            folder=folder,
            private=private,
            setting_of=lambda: set_up(context, planned, record.side),
            log=log,
            signals=context.signals,
            check_data=context.check_data,
            say=lambda text: context.log.write(f"{planned.name}: {text}"),
        )
        if planned.kind == RUN:
            made.run = begin_run(planned, recipe)
            run_segment(bench, made.run, record)
        elif planned.kind == RESUMPTION:
            run_resumption(bench, record)
        else:
            run_recipe_pilot(bench, record)


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
    for record in made.records:
        _say_how_long(context, planned, record)
