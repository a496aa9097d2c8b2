"""``campaign bundle``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

import click

from campaign.cli.options import absolute, home_option, json_option, require_yes
from campaign.cli.output import Output
from campaign.detached.ingest import Ingestion, abandon, away, find_bundle, ingest
from campaign.detached.write import Asked, write_bundle
from campaign.documents import Phase
from campaign.errors import ExitCode
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.amendments import require_text
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


@command.command("ingest")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="PATH...")
@home_option
@json_option
def take_in(*, home: HomePaths, output: Output, paths: tuple[Path, ...]) -> None:
    """Take in what came of bundles: each PATH is a bundle's folder, or an archive that `run.py --pack` wrote.

    Everything is checked first, and nothing of a PATH is taken if anything in it is wrong. The same results may be
    ingested again, and later ones of the same bundle, too.
    """
    desk = open_desk(home, read_frozen(home), time.time)
    done = []
    for path in paths:
        done.append((path, ingest(desk, absolute(path))))
        for name in done[-1][1].lost:
            output.note(f"left no receipt: {name}")
    value = {"results": [{"path": str(path), **_ingestion(one)} for path, one in done]}
    output.result("\n".join(_said(path, one) for path, one in done), value)


def _ingestion(one: Ingestion) -> dict[str, object]:
    return {
        "bundle": one.bundle,
        "files": one.num_new,
        "receipts": list(one.receipts),
        "lost": list(one.lost),
        "away": list(one.away),
        "left": one.num_left,
        "left_bytes": one.left_bytes,
        "complete": one.is_complete,
    }


def _said(path: Path, one: Ingestion) -> str:
    left = f", {one.num_left} files ({one.left_bytes} bytes) left behind" if one.num_left else ""
    rest = "nothing of it is away any more" if one.is_complete else f"{len(one.away)} attempt(s) are still away"
    return f"{path}: bundle {one.bundle}: {len(one.receipts)} new receipt(s), {one.num_new} new files{left}; {rest}"


@command.command("abandon")
@click.argument("bundle", metavar="ID")
@click.option("--reason", required=True, help="Why; kept in the ledger and shown in the report.")
@click.option("--yes", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
@home_option
@json_option
def give_up(*, home: HomePaths, output: Output, bundle: str, reason: str, yes: bool) -> None:
    """Give up what has not come back of bundle ID: its attempts end as `cancelled`, and its results are refused.

    What was ingested of it stays. The first digits of the id are enough.
    """
    said_why = require_text(reason, "--reason")
    desk = open_desk(home, read_frozen(home), time.time)
    history = desk.history()
    submission = find_bundle(history, bundle)
    name = submission.submitted.job if submission.submitted is not None else ""
    number = sum(1 for _ in away(history, submission))
    if number and not yes:
        output.note(f"this gives up {number} attempt(s) in bundle {name}, whose results are refused from then on")
        require_yes("abandoning", f"Abandon bundle {name}?")
    ended = abandon(desk, name, said_why)
    said = f"bundle {name}: {len(ended)} attempt(s) cancelled" if ended else f"bundle {name}: nothing of it is away"
    output.result(said, {"bundle": name, "attempts": list(ended), "reason": said_why})
