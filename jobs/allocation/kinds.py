"""The kinds of attempts: the sides of each in their order, or both of a case at once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..common.endings import EndedError, Ending
from ..common.layout import AttemptFolder
from ..common.plan import CASES, PlannedAttempt, Recipe
from ..common.strict import first_few
from ..measurement.measuring import measure_side, run_pilot
from ..measurement.session import SideRecord, running
from ..processes.affinity import list_cpus, parse_cpus
from ..processes.sidelog import SideLog
from ..processes.signals import STOPPED
from .context import Context, set_up, undisturbed
from .surroundings import find_differences

if TYPE_CHECKING:
    # A job makes attempts of few kinds, and loading what the others need takes longer than a small measurement.
    from ..cases.inputs_recorder import InputsRecorder
    from ..cases.run import CaseRecord
    from ..runs.run import RunRecord

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
    context.signals.take_stop()  # what was before concerns nobody
    if planned.kind in CASES:
        _run_both(context, planned, folder, made)
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
        _check_processors(record)
        _check_conditions(made.records)
        if planned.kind in MEASURED and context.signals.take_stop():
            raise EndedError(Ending.PREEMPTED, STOPPED)
    if planned.kind in MEASURED:
        # Whoever came to the node meanwhile was measured as well.
        context.standing.check()


def _run_both(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> None:
    """Run both sides of a case at once."""
    from .of_cases import run_both  # noqa: PLC0415 - by need, as is said above

    run_both(context, planned, folder, made)
    for record in made.records:
        _say_how_long(context, planned, record)


def _run_recipe(context: Context, planned: PlannedAttempt, recipe: Recipe, folder: AttemptFolder, made: Made) -> None:
    """Run the one side of an attempt at a recipe."""
    from .of_recipes import run_recipe  # noqa: PLC0415 - by need, as is said above

    run_recipe(context, planned, recipe, folder, made)


def _run_several(context: Context, planned: PlannedAttempt, folder: AttemptFolder, made: Made) -> None:
    """Run the side whose record is the last one as several processes."""
    from .ranked import check_same_ranks, run_ranked  # noqa: PLC0415 - by need: most sides have one process

    run_ranked(context, planned, folder, made.records[-1])
    check_same_ranks(made.records)


def _check_processors(record: SideRecord) -> None:
    """Refuse a side that took processors which it was not given, where nothing else keeps it from them.

    Raises:
        EndedError: It did.
    """
    if record.after is None:
        return
    given = record.after["affinity"]
    own = {one["node"]: one["affinity"] for one in record.after.get("further", ())}
    used = [(f"rank {one['rank']}: ", one["affinity_after"], own.get(one["node"], given)) for one in record.ranks]
    for who, affinity, allowed in used or [("", record.affinity, given)]:
        if taken := parse_cpus(affinity) - parse_cpus(allowed):
            text = f"{who}{record.side} moved to the processors {list_cpus(taken)}, and was given {allowed}"
            raise EndedError(Ending.INTERFERENCE, text)


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
        shown = "; ".join(first_few(changes, _MOST_SHOWN))
        where = "between the sides" if len(records) > 1 else "while the side ran"
        raise EndedError(Ending.NODE_FAIL, f"conditions changed {where}: {shown}")


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
            recorder = _recorder(context, planned, record.side)
            run_pilot(setting, record, log, context.signals, recorder=recorder)
            if recorder is not None:
                recorder.verify_again()
        else:
            look = context.surroundings.read
            opened = running(setting, record, log, context.signals)
            measure_side(opened, record, context.signals, updates=planned.updates, look=look)


def _recorder(context: Context, planned: PlannedAttempt, side: str) -> InputsRecorder | None:
    """Return what records the canonical inputs; None where nobody needs them."""
    if context.protocol.numerical is None or side != "baseline":
        return None
    from .of_cases import make_recorder  # noqa: PLC0415 - by need, as is said above

    return make_recorder(context, planned)
