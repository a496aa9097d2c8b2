"""What a campaign will cost and what it can find out, from its configuration alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from campaign import documents
from campaign.bounds import most_seconds
from campaign.calibration import BOUNDED_KINDS, CASE_KINDS, Experience, about_seconds
from campaign.config.model import Config
from campaign.documents import Slot
from campaign.matrix import Expansion, expand
from campaign.packing import Group, pack
from campaign.pilots import CaseSize
from campaign.protocol import expand_slots, numerical_rules
from campaign.ratio_power import RatioGate

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
class PowerRow:
    """What one ratio gate can find out."""

    gate: str
    num_workloads: int
    threshold: str
    sd_log_ratio: float
    chances: tuple[float, ...]
    """Chance to pass, one for each true ratio asked for."""
    ratio_for_90: float
    """True ratio that passes with a chance of 90%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that ``campaign plan`` shows."""

    campaign: str
    num_workloads: int
    num_production: int
    num_devices: int
    slots: tuple[SlotRow, ...]
    inputs: InputsRow | None
    """None where the numerical family is not declared."""
    private: PrivateRow | None
    """None where no sides take turns."""
    allocations: tuple[AllocationRow, ...]
    balance: tuple[BalanceRow, ...]
    true_ratios: tuple[float, ...]
    power: tuple[PowerRow, ...]


def make_plan(
    config: Config,
    *,
    sds: Sequence[float],
    true_ratios: Sequence[float],
    known: Experience | None = None,
    sizes: Mapping[str, CaseSize] | None = None,
) -> Plan:
    """Plan a campaign.

    Args:
        config: The configuration.
        sds: Standard deviations of the logarithm of a pair's ratio for which to show the power.
        true_ratios: True ratios for which to show the power.
        known: What pilots and cases found so far.
        sizes: How much there is to keep and compare of each workload whose baseline's pilot is complete.
    """
    expansion = expand(config)
    slots = expand_slots(config, expansion)
    names = [workload.name for workload in expansion.workloads]
    return Plan(
        campaign=config.name,
        num_workloads=len(expansion.workloads),
        num_production=sum(workload.production for workload in expansion.workloads),
        num_devices=config.num_devices,
        slots=_slot_rows(config, slots, sizes or {}),
        inputs=_inputs_row(names, sizes or {}) if config.numerical is not None else None,
        private=_private_row(config, expansion, sizes or {}),
        allocations=_allocation_rows(config, expansion, slots, known or Experience()),
        balance=_balance_rows(expansion, slots),
        true_ratios=tuple(true_ratios),
        power=tuple(_power_row(gate, text, sd, true_ratios) for sd in sds for gate, text in _gates(config, expansion)),
    )


# --- slots and disk ---------------------------------------------------------------------------------------------------


def _slot_rows(config: Config, slots: Iterable[Slot], sizes: Mapping[str, CaseSize]) -> tuple[SlotRow, ...]:
    groups: dict[tuple[str, str, str], list[Slot]] = {}
    for slot in slots:
        groups.setdefault((slot.side, slot.phase, slot.kind), []).append(slot)
    return tuple(
        SlotRow(
            side=side,
            phase=phase,
            kind=kind,
            num_slots=len(members),
            about_bytes=_total([_about_bytes(config, slot, sizes) for slot in members]),
            most_bytes=_total([_most_bytes(config, slot) for slot in members]),
        )
        for (side, phase, kind), members in groups.items()
    )


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _about_bytes(config: Config, slot: Slot, sizes: Mapping[str, CaseSize]) -> int | None:
    if slot.kind in BOUNDED_KINDS:
        return TEXT_BYTES
    if slot.kind not in CASE_KINDS or config.numerical is None or slot.workload not in sizes:
        return None
    return TEXT_BYTES + sizes[slot.workload].table_bytes(config.numerical.updates)


def _most_bytes(config: Config, slot: Slot) -> int | None:
    return TEXT_BYTES + len(slot.order) * config.limits.log_bytes if slot.kind in BOUNDED_KINDS else None


def _inputs_row(names: Sequence[str], sizes: Mapping[str, CaseSize]) -> InputsRow:
    if not set(names) <= set(sizes):
        return InputsRow(num_workloads=len(names), about_bytes=None)
    files = {sha256: num_bytes for name in names for sha256, num_bytes in sizes[name].files.items()}
    return InputsRow(num_workloads=len(names), about_bytes=sum(files.values()))


def _private_row(config: Config, expansion: Expansion, sizes: Mapping[str, CaseSize]) -> PrivateRow | None:
    rules = numerical_rules(config, expansion)
    names = sorted({*rules.serialized, *rules.shared_executor}) if rules is not None else []
    if not names:
        return None
    if not set(names) <= set(sizes):
        return PrivateRow(num_workloads=len(names), most_bytes=None, workload="")
    copies = any(side is not None and bool(side.launch) for side in (config.baseline, config.candidate))
    most, workload = max((sizes[name].private_bytes(copies_inputs=copies), name) for name in names)
    return PrivateRow(num_workloads=len(names), most_bytes=most, workload=workload)


# --- allocations and time ---------------------------------------------------------------------------------------------


def _allocation_rows(
    config: Config, expansion: Expansion, slots: Sequence[Slot], known: Experience
) -> tuple[AllocationRow, ...]:
    rules, numerical = config.throughput.rules, numerical_rules(config, expansion)
    # Without a [slurm] table nothing but the limits bounds the time: jobs may all run here, one after another.
    minutes = config.slurm.minutes if "slurm" in config.model_fields_set else math.inf
    groups: dict[tuple[str, str], list[Group]] = {}
    for group in pack(slots, config.submission.workloads_per_allocation):
        groups.setdefault((group[0].side, group[0].phase), []).append(group)
    return tuple(
        AllocationRow(
            side=side,
            phase=phase,
            num_allocations=len(members),
            most_device_hours=_device_hours(
                config, [most_seconds(group, config.limits, rules.windows, minutes) for group in members]
            ),
            about_device_hours=_device_hours(
                config, [about_seconds(rules, numerical, slot, known) for group in members for slot in group]
            ),
        )
        for (side, phase), members in groups.items()
    )


def _device_hours(config: Config, seconds: Sequence[float | None]) -> float | None:
    known = [value for value in seconds if value is not None and value < math.inf]
    return sum(known) * config.num_devices / 3600 if len(known) == len(seconds) else None


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


# --- power ------------------------------------------------------------------------------------------------------------


def _gates(config: Config, expansion: Expansion) -> list[tuple[RatioGate, str]]:
    """Return the ratio gates with their thresholds as written."""
    rules = config.throughput.rules
    production = sum(workload.production for workload in expansion.workloads)
    gates = [
        (_gate(rules, category.name, len(category.workloads), rules.category_threshold, median=True))
        for category in expansion.categories
    ]
    if production:
        gates.append(_gate(rules, "production", production, rules.production_threshold, median=False))
    return gates


def _gate(
    rules: documents.ThroughputRules, subject: str, num: int, threshold: str, *, median: bool
) -> tuple[RatioGate, str]:
    gate = RatioGate(
        subject=subject,
        num_workloads=num,
        num_repeats=rules.repeats,
        num_pairs=rules.pairs_per_repeat,
        threshold=float(threshold),
        median=median,
    )
    return gate, threshold


def _power_row(gate: RatioGate, threshold: str, sd: float, true_ratios: Sequence[float]) -> PowerRow:
    return PowerRow(
        gate=gate.subject,
        num_workloads=gate.num_workloads,
        threshold=threshold,
        sd_log_ratio=sd,
        chances=tuple(gate.chance(ratio, sd) for ratio in true_ratios),
        ratio_for_90=gate.ratio_for(sd),
    )
