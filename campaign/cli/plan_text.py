"""The plan as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from campaign.config.model import Config
from campaign.planning.budget import MachineRow
from campaign.planning.calibration import CASE_KINDS, RUN_KIND
from campaign.planning.convergence_power import MOST_SEEDS
from campaign.planning.plan import AllocationRow, Plan, PrivateRow, RunRow, SlotRow
from campaign.planning.power import Basis, ConvergenceRow, ConvergenceTotal, percent
from campaign.table import table

BEFORE_PILOTS = "not known before the pilots"


def render(plan: Plan, config: Config, departures: Sequence[str]) -> str:
    """Return the plan as plain text.

    Args:
        plan: The plan.
        config: What it was made of.
        departures: Which rules differ from the default protocol, one sentence each.
    """
    sections = [
        (
            f"{plan.campaign}{_slice(config)}: {plan.num_workloads} workloads, "
            f"{plan.num_production} of them required production cases"
        ),
        _slots(plan),
        _allocations(plan, config),
        _budget(plan),
        _runs(plan),
        _order(plan),
        _power(plan, config),
        _convergence(plan),
        "\n".join(plan.notes),
        _departures(departures),
    ]
    return "\n\n".join(section for section in sections if section)


def _slice(config: Config) -> str:
    return "" if config.slice is None else f", slice {config.slice} of {config.path.name}"


def _bytes(value: int | None, absent: str = "depends on the model") -> str:
    if value is None:
        return absent
    number = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} TiB"


def _slots(plan: Plan) -> str:
    def cells(row: SlotRow) -> tuple[str, ...]:
        about = (
            _bytes(row.about_bytes, BEFORE_PILOTS) if row.kind in (*CASE_KINDS, RUN_KIND) else _bytes(row.about_bytes)
        )
        return row.side, row.phase, row.kind, str(row.num_slots), about, _bytes(row.most_bytes)

    rows = [cells(row) for row in plan.slots]
    if plan.inputs is not None:
        size = _bytes(plan.inputs.about_bytes, BEFORE_PILOTS)
        rows.append(("baseline", "pilot", "inputs/", f"of {plan.inputs.num_workloads}", size, size))
    text = table(("side", "phase", "kind", "slots", "disk, about", "disk, at most"), rows)
    return text if plan.private is None else f"{text}\n{_private(plan.private)}"


def _private(row: PrivateRow) -> str:
    """Return the sentence on what a node needs beside the home's disk."""
    known = f"at most {_bytes(row.most_bytes)} ({row.workload})" if row.workload else BEFORE_PILOTS
    return (
        f"In the private folders of the node (TMPDIR), for a case whose sides take turns on the device "
        f"({row.num_workloads} workloads): {known}."
    )


def _hours(value: float | None, absent: str) -> str:
    return absent if value is None else f"{value:.1f}"


def _allocations(plan: Plan, config: Config) -> str:
    rows = [
        (
            row.side,
            row.phase,
            str(row.num_allocations),
            _hours(row.most_device_hours, "no limit"),
            _hours(row.about_device_hours, "-"),
        )
        for row in plan.allocations
    ]
    total = _total(plan.allocations)
    about = "from the pilots" if plan.budget is None else "as assumed"
    text = table(("side", "phase", "allocations", "device-hours, at most", about), [*rows, total])
    return (
        f"{text}\n"
        f"One attempt at each slot ({config.retries.max_attempts} are allowed), {_devices(plan)} and "
        f"{config.submission.workloads_per_allocation} workload(s) an allocation."
    )


def _devices(plan: Plan) -> str:
    """Say how many devices an allocation has; one of a workload of several processes has more than others."""
    if plan.most_processes == 1:
        return f"{plan.num_devices} device(s)"
    on = f" on up to {plan.most_nodes} nodes" if plan.most_nodes > 1 else ""
    return f"{plan.num_devices} device(s) for each of up to {plan.most_processes} processes{on}"


def _total(rows: Sequence[AllocationRow]) -> tuple[str, ...]:
    most = [row.most_device_hours for row in rows]
    about = [row.about_device_hours for row in rows]
    return (
        "total",
        "",
        str(sum(row.num_allocations for row in rows)),
        _hours(sum(value for value in most if value is not None) if None not in most else None, "no limit"),
        _hours(sum(value for value in about if value is not None) if None not in about else None, "-"),
    )


def _budget(plan: Plan) -> str:
    budget = plan.budget
    if budget is None:
        return ""
    rows = [
        (row.machine or "-", row.side, row.kind, str(row.repeat or "-"), str(row.num_slots), f"{row.minutes:.1f}")
        for row in budget.rows
    ]
    total = sum(row.minutes for row in budget.rows)
    all_slots = sum(row.num_slots for row in budget.rows)
    header = ("machine", "side", "kind", "repeat", "slots", "minutes")
    lines = [
        f"Minutes, as assumed: {budget.source}",
        table(header, [*rows, ("total", "", "", "", str(all_slots), f"{total:.1f}")]),
    ]
    if budget.machines:
        lines += ["", table(("machine", "slots", "minutes", "of", ""), [_machine(row) for row in budget.machines])]
    if budget.num_elsewhere:
        lines.append(f"{budget.num_elsewhere} slots are on no machine.")
    return "\n".join(lines)


def _machine(row: MachineRow) -> tuple[str, ...]:
    verdict = "fits" if row.fits else "does not fit"
    return row.name, str(row.num_slots), f"{row.minutes:.1f}", f"{row.most_minutes:g}", verdict


def _order(plan: Plan) -> str:
    rows = [(row.subject, str(row.num_baseline_first), str(row.num_other_first)) for row in plan.balance]
    return table(("pairs of", "baseline first", "baseline second"), rows)


# --- runs -------------------------------------------------------------------------------------------------------------


def _runs(plan: Plan) -> str:
    if plan.convergence is None:
        return ""
    if not plan.runs:
        text = f"How long a run takes, its segments and its disk: {BEFORE_PILOTS} of the recipes (--home HOME)."
    else:
        header = ("one run of", "recipe", "hours", "segments", "checkpoints", "of", "disk")
        text = table(header, [_run(row) for row in plan.runs])
    if plan.num_extension_runs:
        text += f"\n{plan.num_extension_runs} of the runs above are an extension's, made only where it is due."
    return text


def _run(row: RunRow) -> tuple[str, ...]:
    size = _bytes(row.checkpoint_bytes)
    if row.about_hours is None or row.num_checkpoints is None:
        return row.side, row.recipe, "no end", "too short to get on", "-", size, "-"
    disk = _bytes(row.num_checkpoints * row.checkpoint_bytes)
    segments = str(row.num_segments)
    if not row.is_within_segments:
        segments += f", and at most {row.max_segments} are allowed"
    return row.side, row.recipe, f"{row.about_hours:.3g}", segments, str(row.num_checkpoints), size, disk


# --- power ------------------------------------------------------------------------------------------------------------


def _power(plan: Plan, config: Config) -> str:
    if not plan.power:
        return "no ratio gate"
    header = ("gate", "workloads", "threshold", "SD", "SD is", *(f"at {ratio:g}" for ratio in plan.true_ratios))
    rows = [
        (
            row.gate,
            str(row.num_workloads),
            row.threshold,
            f"{row.sd_log_ratio:.4g}",
            _basis(row.basis, row.origin),
            *(percent(chance) for chance in row.chances),
            f"{row.ratio_for_90:.4f}",
            f"{row.missed_from:.4f}",
        )
        for row in plan.power
    ]
    return (
        f"Chance that a gate passes in all {config.throughput.repeats} repeats, at a true ratio of all its workloads\n"
        f"{table((*header, '90% at', '80% missed at'), rows)}\n\n"
        f"Pairs of a workload in one repeat ({config.throughput.pairs_per_repeat} now) with which 80% / 90% pass; "
        "1 or an even number, - above 1000\n"
        f"{_pairs(plan)}\n"
        "SD is that of the logarithm of one pair's ratio; pairs count as independent, so the true chance is smaller."
    )


def _pairs(plan: Plan) -> str:
    rows = [
        (
            row.gate,
            row.threshold,
            f"{row.sd_log_ratio:.4g}",
            _basis(row.basis, row.origin),
            *(f"{least or '-'} / {most or '-'}" for least, most in zip(row.pairs_80, row.pairs_90, strict=True)),
        )
        for row in plan.power
    ]
    return table(("gate", "threshold", "SD", "SD is", *(f"at {ratio:g}" for ratio in plan.true_ratios)), rows)


def _basis(basis: Basis, origin: str) -> str:
    if basis == "assumed":
        return f"assumed ({origin})" if origin else "assumed"
    return f"found ({origin})" if basis == "found" else f"80% upper bound ({origin})"


def _convergence(plan: Plan) -> str:
    power = plan.convergence
    if power is None:
        return ""
    seeds = " and, where that is inconclusive, ".join(
        f"{num} (quantile {quantile:g})" for num, quantile in zip(power.num_seeds, power.quantiles, strict=True)
    )
    lines = [
        f"Chance that a recipe passes if the true difference is 0; margin {power.margin} nats, seeds: {seeds}",
        *([_convergence_table(power.rows)] if power.rows else []),
        *(_total_line(total, plan) for total in power.totals),
        f"A recipe passes with 80% up to an SD of {power.largest_sd_80:.4g}, with 90% up to {power.largest_sd_90:.4g}.",
    ]
    if power.rows:
        lines.append("SD is that of candidate - baseline over the seeds; what the columns mean: docs/protocol.md.")
    else:
        lines.append("No SD is known: --convergence-sd X, --spread-from HOME, or [convergence] assumed_sd.")
    lines.append("campaign freeze asks for 80% of every recipe by [convergence] assumed_sd, or for a waiver.")
    return "\n".join(lines)


def _convergence_table(rows: Sequence[ConvergenceRow]) -> str:
    header = ("recipe", "SD", "SD is", "passes", "seeds for 80%", "for 90%", "80% pass up to", "80% missed from")
    return table(
        header,
        [
            (
                row.recipe,
                f"{row.sd:.4g}",
                _basis(row.basis, row.origin),
                percent(row.chance),
                _seeds(row.seeds_80),
                _seeds(row.seeds_90),
                f"{row.largest_passing:+.4g}",
                f"{row.smallest_missed:+.4g}",
            )
            for row in rows
        ],
    )


def _seeds(number: int | None) -> str:
    return f">{MOST_SEEDS}" if number is None else str(number)


def _total_line(total: ConvergenceTotal, plan: Plan) -> str:
    recipes = len({row.recipe for row in plan.convergence.rows}) if plan.convergence is not None else 0
    which = {"found": "by the SDs found", "upper_80": "by their upper bounds"}.get(
        total.basis, f"at SD {total.sd:g}" if total.sd else ""
    )
    return f"All {recipes} recipes pass with {percent(total.chance)} {which}, if independent of one another."


def _departures(sentences: Sequence[str]) -> str:
    return "\n".join(["Departures from the default protocol:", *(f"- {text}" for text in sentences or ("none",))])
