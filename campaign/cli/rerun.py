"""``campaign rerun``."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from campaign.cli.options import absolute, home_option, json_option
from campaign.cli.output import Output
from campaign.cli.show import find_slot
from campaign.errors import ExitCode, StateError
from campaign.freezing.staging import remove_tree
from campaign.frozen import Frozen, read_frozen
from campaign.paths import HomePaths
from campaign.rerun import Rerun, compare, read_retained, run_again, scratch_home
from campaign.submission.desk import open_desk
from campaign.submission.transport import job_environment
from campaign.table import table

MOST_SHOWN = 20


@click.command()
@click.argument("slot")
@click.option(
    "--scratch",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder in which to make the scratch folder; default: that for temporary files.",
)
@home_option
@json_option
def command(home: HomePaths, output: Output, slot: str, scratch: Path | None) -> int:
    """Run a completed numerical case again and compare its numbers with the retained ones.

    It runs here, from the frozen harness, snapshots and inputs, in a scratch folder; the home is only read.

    Exits with 0 if every field of every row is the same, and with 4 if one differs, which is no surprise on another
    kind of device.
    """
    desk = open_desk(home, read_frozen(home), time.time)
    desk.check_frozen()
    view, name = find_slot(desk, slot)
    desk.refuse_two_local_jobs(view)
    completed = view.slots[name].completed
    if completed is None:
        raise StateError(f"{name} has no completed attempt", hint=f"campaign show {name}")
    retained = read_retained(home, desk.frozen, view.history, name, completed.attempt)
    parent = absolute(scratch) if scratch is not None else None
    with scratch_home(home, parent) as made:
        output.note(f"running {name} again in {made.root}")
        again = run_again(home, desk.frozen, retained, made, harness_environment(desk.frozen, os.environ))
        result = compare(retained.sealed, again)
        if result.is_identical:
            remove_tree(made.root)
        else:
            output.note(f"what it left is kept: {made.root}")
    output.result(text(result), value(result))
    return int(ExitCode.DONE if result.is_identical else ExitCode.WANTING)


def harness_environment(frozen: Frozen, outside: Mapping[str, str]) -> dict[str, str]:
    """Return what a local job would be given."""
    sides = [frozen.manifest.baseline, *(one.candidate for one in frozen.candidates.values())]
    found = job_environment(outside, sorted({name for side in sides for name in side.pass_environment}))
    if frozen.protocol.execution.device == "cuda":
        found["CUDA_VISIBLE_DEVICES"] = outside.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"
    return found


def value(result: Rerun) -> dict[str, Any]:
    """Return the result as a JSON value."""
    largest = result.largest
    return {
        "slot": result.slot,
        "attempt": result.attempt,
        "identical": result.is_identical,
        "device": result.device,
        "device_again": result.device_again,
        "transport": result.transport,
        "transport_again": result.transport_again,
        "tables": [
            {"table": one.table, "rows": one.num_rows, "differences": len(one.differences)}
            for one in result.comparisons
        ],
        "largest_relative_difference": largest.relative if largest is not None else None,
        "differences": [dataclasses.asdict(one) for one in result.differences],
    }


def text(result: Rerun) -> str:
    """Return the result for reading."""
    rows = ", ".join(f"{one.num_rows} of {one.table}" for one in result.comparisons if one.num_rows)
    head = f"{result.slot} attempt {result.attempt}: {'identical' if result.is_identical else 'differs'}; rows: {rows}"
    lines = [head, f"device: {result.device}, {result.transport}"]
    if not result.same_kind:
        again = f"{result.device_again}, {result.transport_again}"
        lines.append(f"this time: {again}: equal numbers are promised on the same kind of device and transport alone")
    if result.is_identical:
        return "\n".join(lines)
    largest = result.largest
    if largest is not None:
        lines.append(f"largest relative difference: {largest.relative:.3g} in {largest.column} of {largest.row}")
    shown = [(one.table, one.row, one.column, one.retained, one.again) for one in result.differences[:MOST_SHOWN]]
    lines += ["", table(("table", "row", "column", "retained", "this time"), shown)]
    if len(result.differences) > MOST_SHOWN:
        lines.append(f"... and {len(result.differences) - MOST_SHOWN} more (--json lists all)")
    return "\n".join(lines)
