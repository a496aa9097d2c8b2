"""``campaign bundle``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

import click

from campaign.cli.options import absolute, home_option, json_option
from campaign.cli.output import Output
from campaign.detached.write import Asked, write_bundle
from campaign.documents import Phase
from campaign.errors import ExitCode
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.submission import text
from campaign.submission.choose import find_candidate
from campaign.submission.desk import Wish, open_desk


@click.group()
def command() -> None:
    """Take allocations to a machine that the driver does not reach, and bring back what came of them.

    `write` makes a folder, `python FOLDER/run.py` on the machine makes its attempts, and its results are taken in here.
    """


@command.command("write")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--phase", type=click.Choice(get_args(Phase)), help="Only this phase; default: every phase that can be submitted."
)
@click.option("--candidate", metavar="ID", default="", show_default="the one frozen last", help="Candidate to measure.")
@click.option(
    "--only", metavar="GLOB", default="", help="Only slots whose names match, with the pilots that they need."
)
@click.option(
    "--repeat",
    metavar="K",
    type=click.IntRange(min=1),
    help="Only slots of this repeat, with the pilots that they need.",
)
@click.option("--with-data", is_flag=True, allow_from_autoenv=False, help="Put the data sets in, too.")
@click.option(
    "--without-inputs",
    is_flag=True,
    allow_from_autoenv=False,
    help="Leave the canonical inputs of cases out: they are made again there, and must have the same digests.",
)
@home_option
@json_option
def write(
    *,
    home: HomePaths,
    output: Output,
    out: Path,
    phase: Phase | None,
    candidate: str,
    only: str,
    repeat: int | None,
    with_data: bool,
    without_inputs: bool,
) -> int:
    """Write what is missing as a bundle into OUT, a new folder, or a new archive where the name ends in .tar.

    What a bundle holds counts as away until its results come back (`campaign bundle ingest`) or it is given up
    (`campaign bundle abandon`). A side's pilot goes first, as in `campaign submit`.
    """
    desk = open_desk(home, read_frozen(home), time.time)
    desk.require_open("nothing more is submitted")
    desk.check_frozen()
    chosen = find_candidate(candidate, list(desk.frozen.candidates), desk.history().candidates)
    wish = Wish(candidate=chosen, cluster="detached", phase=phase, only=only, repeat=repeat or 0)
    asked = Asked(out=absolute(out), with_data=with_data, without_inputs=without_inputs)
    desk.settle(output.note)
    view = desk.view(chosen)
    order = desk.order(wish, view, 1)
    for line in [*text.reasons(order, view.slots), *view.troubles]:
        output.note(line)
    if not order.all:
        output.result("nothing to write", {"bundle": None, "allocations": [], "attempts": 0})
        return ExitCode.TAMPERED if order.refused else ExitCode.DONE
    done = write_bundle(desk, wish, order, asked)
    value = {
        "bundle": done.bundle.id,
        "submission": done.bundle.submission,
        "place": str(done.place),
        "allocations": [one.id for one in done.bundle.allocations],
        "attempts": sum(len(one.expected_s) for one in done.bundle.allocations),
        "bytes": done.num_bytes,
        "left_out": done.left_out,
    }
    unpacked = f"tar -xf {done.place.name}; " if asked.is_archive else ""
    what = f"{value['attempts']} attempts in {len(done.bundle.allocations)} allocation(s), {done.num_bytes} bytes"
    lines = [
        f"bundle {done.bundle.id}: {what}, in {done.place}",
        *(f"not in it: {line}" for line in done.left_out),
        f"on the machine: {unpacked}python {done.folder}/run.py --max-minutes N",
    ]
    if len(order.all) > 1:
        output.note(
            f"{len(order.all) - 1} further submission(s) are left for another bundle: campaign bundle write OUT"
        )
    output.result("\n".join(lines), value)
    return ExitCode.TAMPERED if order.refused else ExitCode.DONE
