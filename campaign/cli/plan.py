"""``campaign plan``."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import click

from campaign.cli.options import find_home, json_option, slice_option
from campaign.cli.output import Output
from campaign.cli.plan_text import render
from campaign.config.load import load_config
from campaign.config.model import Config
from campaign.errors import ConfigError
from campaign.paths import HomePaths
from campaign.planning.assumed import read_assumed
from campaign.planning.matrix import expand
from campaign.planning.pilots import read_case_sizes, read_experience
from campaign.planning.plan import Assumptions, make_plan
from campaign.planning.protocol import departures
from campaign.planning.spreads import Spreads, read_spreads

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
    help="Standard deviation of the logarithm of one pair's ratio; may be given several times. "
    "Default: 0.01 and 0.03, unless --spread-from finds one.",
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
    "--convergence-sd",
    "difference_sds",
    type=Positive(),
    multiple=True,
    help="Assumed standard deviation of the paired differences of final losses, in nats; may be given several times.",
)
@click.option(
    "--spread-from",
    type=click.Path(path_type=Path),
    help="Earlier campaign home: the spreads that its verdicts show are planned with, each with an upper bound on it.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Campaign home whose pilots say how long everything takes; default: none.",
)
@click.option(
    "--assume",
    "assumed",
    type=click.Path(path_type=Path),
    help="File that says how long starting, setting up and training are assumed to take: the minutes of everything are "
    "computed from it, before anything has been run.",
)
@slice_option
@json_option
def command(
    *,
    config: Path,
    chosen: str | None,
    sds: tuple[float, ...],
    ratios: tuple[float, ...],
    difference_sds: tuple[float, ...],
    spread_from: Path | None,
    home: Path | None,
    assumed: Path | None,
    output: Output,
) -> None:
    """Show slots, allocations, device-hours, disk and power of CONFIG. Writes nothing and runs nothing."""
    loaded = load_config(config, chosen)
    _check(loaded, difference_sds)
    if assumed is not None and home is not None:
        raise click.UsageError("--assume is for what no pilot has found yet: leave out --assume, or --home")
    paths = find_home(home) if home is not None else None
    known = read_experience(paths, _owners(paths)) if paths is not None else None
    sizes = read_case_sizes(paths) if paths is not None else None
    spreads = read_spreads(find_home(spread_from)) if spread_from is not None else None
    assumptions = Assumptions(
        ratio_sds=sds or (() if _has_ratios(spreads) else DEFAULT_SDS),
        true_ratios=ratios,
        difference_sds=difference_sds,
        spreads=spreads,
    )
    times = read_assumed(assumed, expand(loaded), loaded.throughput.rules) if assumed is not None else None
    plan = make_plan(loaded, assumptions, known=known, sizes=sizes, times=times)
    departing = departures(loaded)
    output.result(render(plan, loaded, departing), {**dataclasses.asdict(plan), "departures": departing})


def _check(config: Config, difference_sds: tuple[float, ...]) -> None:
    if difference_sds and config.convergence is None:
        raise ConfigError(
            "--convergence-sd is about trainings, and the configuration declares none",
            where=str(config.path),
            hint="add [convergence] and a [[recipe]]; --sd is the spread of the ratio gates",
        )


def _has_ratios(spreads: Spreads | None) -> bool:
    return spreads is not None and bool(spreads.categories or spreads.production or spreads.controls)


def _owners(home: HomePaths) -> dict[str, str]:
    """Return the first part of the names of each side's slots: of a candidate only if there is just one."""
    folder = home.candidates
    candidates = [path.name for path in folder.glob("c*")] if folder.is_dir() else []
    return {"baseline": "baseline", **({"candidate": candidates[0]} if len(candidates) == 1 else {})}
