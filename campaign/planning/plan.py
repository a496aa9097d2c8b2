"""What a campaign will cost and what it can find out, from its configuration alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from campaign.config.model import Config
from campaign.documents import ConvergenceRules, Slot
from campaign.planning import walltime
from campaign.planning.assumed import Assumed
from campaign.planning.bounds import most_seconds
from campaign.planning.budget import Budget, make_budget
from campaign.planning.calibration import BOUNDED_KINDS, CASE_KINDS, RUN_KIND, Experience, about_seconds
from campaign.planning.convergence import convergence_rules
from campaign.planning.matrix import Expansion, expand
from campaign.planning.outlook import RunOutlook, run_outlook
from campaign.planning.packing import Group, pack
from campaign.planning.pilots import CaseSize
from campaign.planning.power import ConvergencePower, PowerRow, assumed, convergence_table, ratio_power
from campaign.planning.protocol import expand_slots, numerical_rules
from campaign.planning.spreads import Spreads

TEXT_BYTES = 16 << 10
"""About what start.json, receipt.json, the tables and a quiet log of one slot take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """The slots of one side, phase and kind."""

    side: str
    phase: str
    kind: str
    num_slots: int
    about_bytes: int | None
    """None where the size depends on the model."""
    most_bytes: int | None
    """With every side's output at its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsRow:
    """The canonical inputs of the numerical cases, which workloads may share."""

    num_workloads: int
    about_bytes: int | None
    """None while a baseline's pilot is missing: the size depends on the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateRow:
    """What numerical cases keep in the private folders of their node while their sides take turns on the device."""

    num_workloads: int
    """Workloads whose sides take turns."""
    most_bytes: int | None
    """Of the workload that needs most: cases of one allocation follow one another. None while a pilot is missing."""
    workload: str
    """That workload; empty while a pilot is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRow:
    """The allocations of one side and phase."""

    side: str
    phase: str
    num_allocations: int
    most_device_hours: float | None
    """One attempt at every slot, each answer at its limit; None where nothing bounds the time."""
    about_device_hours: float | None
    """From the pilots; None while they are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceRow:
    """How often each side runs first."""

    subject: str
    num_baseline_first: int
    num_other_first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """What each run of a recipe on one side will take, from the recipe's pilot."""

    side: str
    recipe: str
    about_hours: float | None
    """Of one allocation's devices, all segments together. None where a segment is too short to get on."""
    num_segments: int | None
    max_segments: int
    num_checkpoints: int | None
    """All of them are kept."""
    checkpoint_bytes: int
    """One of them."""

    @property
    def is_within_segments(self) -> bool:
        """Whether the run comes to its end in as many segments as the protocol allows."""
        return self.num_segments is not None and self.num_segments <= self.max_segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that ``campaign plan`` shows."""

    campaign: str
    num_workloads: int
    num_production: int
    num_devices: int
    """Of one process."""
    most_processes: int
    """That a workload asks for, each with devices of its own."""
    most_nodes: int
    """That a workload asks for."""
    slots: tuple[SlotRow, ...]
    inputs: InputsRow | None
    """None where the numerical family is not declared."""
    private: PrivateRow | None
    """None where no sides take turns."""
    allocations: tuple[AllocationRow, ...]
    budget: Budget | None
    """None where nothing is assumed."""
    balance: tuple[BalanceRow, ...]
    runs: tuple[RunRow, ...]
    """Of the recipes whose pilots are complete."""
    num_extension_runs: int
    """Runs among the slots that are made only where an extension is due; of both sides."""
    true_ratios: tuple[float, ...]
    power: tuple[PowerRow, ...]
    convergence: ConvergencePower | None
    """None where the convergence family is not declared."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """For what the power is computed."""

    ratio_sds: tuple[float, ...] = ()
    """Standard deviations of the logarithm of a pair's ratio."""
    true_ratios: tuple[float, ...] = ()
    difference_sds: tuple[float, ...] = ()
    """Standard deviations of the paired differences of final losses, beside the configuration's own."""
    spreads: Spreads | None = None
    """What an earlier home found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """What the tables of a plan are made from."""

    config: Config
    expansion: Expansion
    slots: tuple[Slot, ...]
    times: walltime.Case
    """The rules and what has been found: from these times are computed."""
    sizes: Mapping[str, CaseSize]
    processes: Mapping[str, int]
    """Of each side of a workload; a recipe has one."""

    @property
    def minutes(self) -> float:
        """Configured time limit of an allocation; infinite where each job asks for what it may take."""
        return self.config.slurm.minutes if self.config.slurm.minutes is not None else math.inf

    @property
    def segment_s(self) -> float:
        """Seconds after which a segment of a run is told to stop."""
        return walltime.seconds_until_notice(self.minutes)

    def outlook(self, side: str, recipe: str) -> RunOutlook | None:
        """Return what a run will take; None while that is not known, or where it never gets to its end."""
        found = self.times.known.calibrations.get((side, recipe))
        if found is None or self.times.trained is None:
            return None
        resolved = next(one for one in self.times.trained.recipes if one.name == recipe)
        return run_outlook(self.times.trained, resolved, found, self.segment_s)


def make_plan(
    config: Config,
    assumptions: Assumptions,
    *,
    known: Experience | None = None,
    sizes: Mapping[str, CaseSize] | None = None,
    times: Assumed | None = None,
) -> Plan:
    """Plan a campaign.

    Args:
        config: The configuration.
        assumptions: For what to show the power.
        known: What pilots and cases found so far.
        sizes: How much there is to keep and compare of each workload whose baseline's pilot is complete.
        times: What is assumed of how long everything takes, where nothing has been found.
    """
    known = times.known if times is not None else known
    expansion = expand(config)
    setting = _Setting(
        config=config,
        expansion=expansion,
        slots=expand_slots(config, expansion),
        times=walltime.Case(
            limits=config.limits,
            throughput=config.throughput.rules,
            numerical=numerical_rules(config, expansion),
            trained=convergence_rules(config, expansion.recipes),
            known=known or Experience(),
            several=walltime.several_of(expansion.workloads),
        ),
        sizes=sizes or {},
        processes={one.name: one.processes for one in expansion.workloads},
    )
    names = [workload.name for workload in expansion.workloads if workload.numerical]
    given = assumed(assumptions.ratio_sds, "")
    return Plan(
        campaign=config.name,
        num_workloads=len(expansion.workloads),
        num_production=sum(workload.production for workload in expansion.workloads),
        num_devices=config.num_devices,
        most_processes=max((workload.processes for workload in expansion.workloads), default=1),
        most_nodes=max((workload.nodes for workload in expansion.workloads), default=1),
        slots=_slot_rows(setting),
        inputs=_inputs_row(names, setting.sizes) if config.numerical is not None else None,
        private=_private_row(setting),
        allocations=_allocation_rows(setting),
        budget=make_budget(times.source, setting.slots, setting.times, times.machines) if times is not None else None,
        balance=_balance_rows(expansion, setting.slots),
        runs=_run_rows(setting),
        num_extension_runs=_num_extension_runs(setting.times.trained),
        true_ratios=assumptions.true_ratios,
        power=ratio_power(config.throughput.rules, expansion, given, assumptions.true_ratios, assumptions.spreads),
        convergence=_convergence(setting, assumptions),
        notes=(*_notes(setting, assumptions.spreads), *_time_notes(setting)),
    )


def _convergence(setting: _Setting, assumptions: Assumptions) -> ConvergencePower | None:
    table = setting.config.convergence
    if setting.times.trained is None or table is None:
        return None
    given = assumed(assumptions.difference_sds, "--convergence-sd")
    if table.assumed_sd is not None:
        given = [*assumed([float(table.assumed_sd)], "[convergence] assumed_sd"), *given]
    return convergence_table(setting.times.trained, given, assumptions.spreads)


def _notes(setting: _Setting, spreads: Spreads | None) -> tuple[str, ...]:
    """Say what the earlier home does not show, and where its recipes are others than these."""
    if spreads is None:
        return ()
    said = list(spreads.notes)
    for recipe in setting.times.trained.recipes if setting.times.trained is not None else ():
        there = spreads.targets.get(recipe.name)
        if recipe.name not in spreads.recipes and spreads.pooled is not None:
            said.append(f"{spreads.home}: no SD of {recipe.name} there; the one of all its recipes is taken")
        elif there is not None and there != recipe.targets:
            said.append(f"{spreads.home}: {recipe.name} had {there} targets there, and has {recipe.targets} here")
    return tuple(said)


# --- runs -------------------------------------------------------------------------------------------------------------


def _num_extension_runs(rules: ConvergenceRules | None) -> int:
    extension = rules.extension if rules is not None else None
    return 2 * len(extension.seeds) * len(rules.recipes) if rules is not None and extension is not None else 0


def _run_rows(setting: _Setting) -> tuple[RunRow, ...]:
    if setting.times.trained is None:
        return ()
    return tuple(
        _run_row(setting, side, recipe.name, found.checkpoint_bytes)
        for side in ("baseline", "candidate")
        for recipe in setting.times.trained.recipes
        if (found := setting.times.known.calibrations.get((side, recipe.name))) is not None
        if found.checkpoint_bytes is not None
    )


def _run_row(setting: _Setting, side: str, recipe: str, checkpoint_bytes: int) -> RunRow:
    outlook = setting.outlook(side, recipe)
    return RunRow(
        side=side,
        recipe=recipe,
        about_hours=outlook.seconds / 3600 if outlook is not None else None,
        num_segments=outlook.num_segments if outlook is not None else None,
        max_segments=setting.times.trained.max_segments if setting.times.trained is not None else 0,
        num_checkpoints=outlook.num_checkpoints if outlook is not None else None,
        checkpoint_bytes=checkpoint_bytes,
    )


# --- slots and disk ---------------------------------------------------------------------------------------------------


def _slot_rows(setting: _Setting) -> tuple[SlotRow, ...]:
    groups: dict[tuple[str, str, str], list[Slot]] = {}
    for slot in setting.slots:
        groups.setdefault((slot.side, slot.phase, slot.kind), []).append(slot)
    return tuple(
        SlotRow(
            side=side,
            phase=phase,
            kind=kind,
            num_slots=len(members),
            about_bytes=_total([_about_bytes(setting, slot) for slot in members]),
            most_bytes=_total([_most_bytes(setting.config, slot) for slot in members]),
        )
        for (side, phase, kind), members in groups.items()
    )


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _about_bytes(setting: _Setting, slot: Slot) -> int | None:
    if slot.kind in BOUNDED_KINDS:
        return TEXT_BYTES
    if slot.kind == RUN_KIND:
        outlook = setting.outlook(slot.side, slot.workload)
        if outlook is None:
            return None
        return outlook.num_segments * TEXT_BYTES + outlook.num_checkpoints * outlook.checkpoint_bytes
    numerical = setting.config.numerical
    if slot.kind not in CASE_KINDS or numerical is None or slot.workload not in setting.sizes:
        return None
    return TEXT_BYTES + setting.sizes[slot.workload].table_bytes(numerical.updates)


def _most_bytes(config: Config, slot: Slot) -> int | None:
    return TEXT_BYTES + len(slot.order) * config.limits.log_bytes if slot.kind in BOUNDED_KINDS else None


def _inputs_row(names: Sequence[str], sizes: Mapping[str, CaseSize]) -> InputsRow:
    if not set(names) <= set(sizes):
        return InputsRow(num_workloads=len(names), about_bytes=None)
    files = {sha256: num_bytes for name in names for sha256, num_bytes in sizes[name].files.items()}
    return InputsRow(num_workloads=len(names), about_bytes=sum(files.values()))


def _private_row(setting: _Setting) -> PrivateRow | None:
    config, rules, sizes = setting.config, setting.times.numerical, setting.sizes
    names = sorted({*rules.serialized, *rules.shared_executor}) if rules is not None else []
    if not names:
        return None
    if not set(names) <= set(sizes):
        return PrivateRow(num_workloads=len(names), most_bytes=None, workload="")
    copies = any(side is not None and bool(side.launch) for side in (config.baseline, config.candidate))
    most, workload = max((sizes[name].private_bytes(copies_inputs=copies), name) for name in names)
    return PrivateRow(num_workloads=len(names), most_bytes=most, workload=workload)


# --- allocations and time ---------------------------------------------------------------------------------------------


def _groups(setting: _Setting) -> list[Group]:
    topologies = {workload.name: workload.topology for workload in setting.expansion.workloads}
    return pack(setting.slots, setting.config.submission.workloads_per_allocation, topologies)


def _allocation_rows(setting: _Setting) -> tuple[AllocationRow, ...]:
    config = setting.config
    groups: dict[tuple[str, str], list[Group]] = {}
    for group in _groups(setting):
        groups.setdefault((group[0].side, group[0].phase), []).append(group)
    return tuple(
        AllocationRow(
            side=side,
            phase=phase,
            num_allocations=len(members),
            most_device_hours=_device_hours(config, [_most_node_seconds(setting, group) for group in members]),
            about_device_hours=_device_hours(
                config, [_about_process_seconds(setting, slot) for group in members for slot in group]
            ),
        )
        for (side, phase), members in groups.items()
    )


def _most_node_seconds(setting: _Setting, group: Group) -> float:
    trained = setting.times.trained
    seconds = most_seconds(
        group,
        setting.config.limits,
        setting.config.throughput.windows,
        _limit_minutes(setting, group),
        recipes=setting.times.twice,
        segments=trained.max_segments if trained is not None else 1,
    )
    return seconds * setting.processes.get(group[0].workload, 1)


def _limit_minutes(setting: _Setting, group: Group) -> float:
    """Return the time limit of an allocation's job.

    Without a [slurm] table nothing but the limits bounds the time: jobs may all run here, one after another.
    """
    is_computed = setting.minutes == math.inf and "slurm" in setting.config.model_fields_set
    return walltime.minutes_for(setting.times, group) if is_computed else setting.minutes


def _about_process_seconds(setting: _Setting, slot: Slot) -> float | None:
    seconds = about_seconds(
        setting.times.throughput,
        setting.times.numerical,
        slot,
        setting.times.known,
        trained=setting.times.trained,
        segment_s=setting.segment_s,
    )
    return None if seconds is None else seconds * setting.processes.get(slot.workload, 1)


def _device_hours(config: Config, seconds: Sequence[float | None]) -> float | None:
    known = [value for value in seconds if value is not None and value < math.inf]
    return sum(known) * config.num_devices / 3600 if len(known) == len(seconds) else None


def _time_notes(setting: _Setting) -> tuple[str, ...]:
    """Say which allocations may be cut off by the configured time limit; a run goes on in another one."""
    if setting.minutes == math.inf:
        return ()
    longest: dict[tuple[str, str], int] = {}
    for group in _groups(setting):
        if group[0].kind != RUN_KIND:
            key = (group[0].side, group[0].phase)
            longest[key] = max(longest.get(key, 0), walltime.minutes_for(setting.times, group))
    return tuple(
        f"{side}, {phase}: an allocation may need {needed} minutes by the limits and the pilots, and [slurm] minutes = "
        f"{setting.minutes:g} ends it before"
        for (side, phase), needed in longest.items()
        if needed > setting.minutes
    )


# --- order ------------------------------------------------------------------------------------------------------------


def _balance_rows(expansion: Expansion, slots: Sequence[Slot]) -> tuple[BalanceRow, ...]:
    pairs = [slot for slot in slots if slot.kind == "pair"]
    controls = [slot for slot in slots if slot.kind == "control_pair"]
    production = {workload.name for workload in expansion.workloads if workload.production}
    rows = [
        *(
            (category.name, [s for s in pairs if s.workload in set(category.workloads)])
            for category in expansion.categories
        ),
        ("production", [slot for slot in pairs if slot.workload in production]),
        ("all pairs", pairs),
        ("controls", controls),
    ]
    return tuple(_balance_row(subject, members) for subject, members in rows if members)


def _balance_row(subject: str, slots: Sequence[Slot]) -> BalanceRow:
    first = sum(slot.order[0] == "baseline" for slot in slots)
    return BalanceRow(subject=subject, num_baseline_first=first, num_other_first=len(slots) - first)
