"""``campaign plan``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import click

from campaign.calibration import CASE_KINDS
from campaign.cli.options import find_home, json_option
from campaign.cli.output import Output
from campaign.config.load import load_config
from campaign.config.model import Config
from campaign.paths import HomePaths
from campaign.pilots import read_case_sizes, read_experience
from campaign.plan import AllocationRow, Plan, PrivateRow, SlotRow, make_plan
from campaign.protocol import departures
from campaign.table import table

DEFAULT_SDS = (0.01, 0.03)
BEFORE_PILOTS = "not known before the pilots"
DEFAULT_RATIOS = (0.98, 1.0, 1.03, 1.05, 1.07, 1.1)


class Positive(click.ParamType[float]):
    """A finite number above zero."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; a usage error if it is none."""
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if not (number > 0 and math.isfinite(number)):
            self.fail(f"{value!r} is not a finite number above zero", param, ctx)
        return number


@click.command
@click.argument("config", type=click.Path(path_type=Path), default=Path("campaign.toml"))
@click.option(
    "--sd",
    "sds",
    type=Positive(),
    multiple=True,
    default=DEFAULT_SDS,
    help="Standard deviation of the logarithm of one pair's ratio; may be given several times.",
)
@click.option(
    "--ratio",
    "ratios",
    type=Positive(),
    multiple=True,
    default=DEFAULT_RATIOS,
    help="True ratio for which to show the chance to pass; may be given several times.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Campaign home whose pilots say how long everything takes; default: none.",
)
@json_option
def command(config: Path, sds: tuple[float, ...], ratios: tuple[float, ...], home: Path | None, output: Output) -> None:
    """Show slots, allocations, device-hours, disk and power of CONFIG. Writes nothing and runs nothing."""
    loaded = load_config(config)
    paths = find_home(home) if home is not None else None
    known = read_experience(paths, _owners(paths)) if paths is not None else None
    sizes = read_case_sizes(paths) if paths is not None else None
    plan = make_plan(loaded, sds=sds, true_ratios=ratios, known=known, sizes=sizes)
    output.result(render(plan, loaded), {**dataclasses.asdict(plan), "departures": departures(loaded)})


def _owners(home: HomePaths) -> dict[str, str]:
    """Return the first part of the names of each side's slots: of a candidate only if there is just one."""
    folder = home.candidates
    candidates = [path.name for path in folder.glob("c*")] if folder.is_dir() else []
    return {"baseline": "baseline", **({"candidate": candidates[0]} if len(candidates) == 1 else {})}


# --- text -------------------------------------------------------------------------------------------------------------


def render(plan: Plan, config: Config) -> str:
    """Return the plan as plain text."""
    sections = [
        f"{plan.campaign}: {plan.num_workloads} workloads, {plan.num_production} of them required production cases",
        _slots(plan),
        _allocations(plan, config),
        _order(plan),
        _power(plan, config),
        _departures(config),
    ]
    return "\n\n".join(sections)


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
        about = _bytes(row.about_bytes, BEFORE_PILOTS) if row.kind in CASE_KINDS else _bytes(row.about_bytes)
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
    text = table(("side", "phase", "allocations", "device-hours, at most", "from the pilots"), [*rows, total])
    return (
        f"{text}\n"
        f"One attempt at each slot ({config.retries.max_attempts} are allowed), {plan.num_devices} device(s) and "
        f"{config.submission.workloads_per_allocation} workload(s) an allocation."
    )


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


def _order(plan: Plan) -> str:
    rows = [(row.subject, str(row.num_baseline_first), str(row.num_other_first)) for row in plan.balance]
    return table(("pairs of", "baseline first", "baseline second"), rows)


def _power(plan: Plan, config: Config) -> str:
    if not plan.power:
        return "no ratio gate"
    header = ("gate", "workloads", "threshold", "SD", *(f"at {ratio:g}" for ratio in plan.true_ratios), "90% at")
    rows = [
        (
            row.gate,
            str(row.num_workloads),
            row.threshold,
            f"{row.sd_log_ratio:g}",
            *(_percent(chance) for chance in row.chances),
            f"{row.ratio_for_90:.4f}",
        )
        for row in plan.power
    ]
    return (
        f"Chance that a gate passes in all {config.throughput.repeats} repeats, at a true ratio of all its workloads\n"
        f"{table(header, rows)}\n"
        "SD is that of the logarithm of one pair's ratio; pairs count as independent, so the true chance is smaller."
    )


def _percent(chance: float) -> str:
    """Return a chance that never reads as certain or impossible when it is neither."""
    if 0.9995 <= chance < 1:
        return ">99.9%"
    return "<0.1%" if 0 < chance < 0.0005 else f"{100 * chance:.1f}%"


def _departures(config: Config) -> str:
    sentences = departures(config)
    return "\n".join(["Departures from the default protocol:", *(f"- {text}" for text in sentences or ("none",))])
