"""``campaign plan``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import click

from campaign.calibration import Calibrations
from campaign.cli.options import find_home, json_option
from campaign.cli.output import Output
from campaign.config.load import load_config
from campaign.config.model import Config
from campaign.paths import HomePaths
from campaign.pilots import read_calibrations
from campaign.plan import AllocationRow, Plan, make_plan
from campaign.protocol import departures
from campaign.table import table

DEFAULT_SDS = (0.01, 0.03)
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
    calibrations = _read_pilots(find_home(home)) if home is not None else {}
    plan = make_plan(loaded, sds=sds, true_ratios=ratios, calibrations=calibrations)
    output.result(render(plan, loaded), {**dataclasses.asdict(plan), "departures": departures(loaded)})


def _read_pilots(home: HomePaths) -> Calibrations:
    """Read the pilots of the baseline and, if there is just one, of the candidate."""
    folder = home.candidates
    candidates = [path.name for path in folder.glob("c*")] if folder.is_dir() else []
    sides = {"baseline": "baseline", **({"candidate": candidates[0]} if len(candidates) == 1 else {})}
    return {
        (side, workload): calibration
        for side, folder_name in sides.items()
        for workload, calibration in read_calibrations(home, folder_name).items()
    }


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


def _bytes(value: int | None) -> str:
    if value is None:
        return "depends on the model"
    number = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} TiB"


def _slots(plan: Plan) -> str:
    rows = [
        (row.side, row.phase, row.kind, str(row.num_slots), _bytes(row.about_bytes), _bytes(row.most_bytes))
        for row in plan.slots
    ]
    return table(("side", "phase", "kind", "slots", "disk, about", "disk, at most"), rows)


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
