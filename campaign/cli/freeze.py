"""``campaign freeze``."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from campaign.cli.options import absolute, find_home, json_option, slice_option
from campaign.cli.output import Output
from campaign.config.load import load_config
from campaign.freezing.freeze import Result, freeze_baseline, with_note
from campaign.freezing.freeze_candidate import freeze_candidate, read_configuration
from campaign.freezing.programs import find_programs
from campaign.freezing.sides import Progress, no_progress
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.amendments import require_text
from campaign.record.registry import register
from campaign.submission.desk import settle_home

_MOST_LINES = 20
"""Most left-out lines that are shown; the manifest has them all."""


@click.command
@click.argument("config", required=False, type=click.Path(path_type=Path))
@click.option(
    "--candidate",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[PATH]",
    help="Freeze a candidate into a home that has a baseline; PATH is its source tree instead of [candidate] source.",
)
@click.option(
    "--config",
    "candidate_config",
    type=click.Path(path_type=Path),
    help="With --candidate: the file whose [candidate] is read; default: the frozen configuration.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    envvar="CAMPAIGN_HOME",
    show_envvar=True,
    help="Campaign home; default: NAME.campaign beside CONFIG, and with --candidate the one found upward.",
)
@click.option(
    "--waive-power",
    "waiver",
    metavar="REASON",
    help="Freeze although some recipe may pass with less than 80% at a true difference of 0, or no SD is assumed; "
    "the reason is recorded and reported.",
)
@slice_option
@json_option
def command(
    *,
    config: Path | None,
    candidate: str | None,
    candidate_config: Path | None,
    home: Path | None,
    waiver: str | None,
    chosen: str | None,
    output: Output,
) -> None:
    """Freeze the rules, the programs and the baseline of CONFIG; or, later, a candidate.

    The true bytes on disk are copied: tracked, modified and untracked files, and what an include pattern names. What
    is left out is listed. Nothing that is frozen ever changes; a candidate can be frozen only after the baseline.
    """
    with _progress() as progress:
        if candidate is not None:
            if config is not None:
                raise click.UsageError("with --candidate the configuration is named by --config FILE")
            if waiver is not None:
                raise click.UsageError("--waive-power belongs to a baseline: a candidate changes no rule")
            if chosen is not None:
                raise click.UsageError("--slice belongs to a baseline: a candidate has the slice of its home")
            result = _freeze_candidate(candidate, candidate_config, home, progress, output)
        else:
            result = _freeze_baseline(config, candidate_config, home, (waiver, chosen), progress)
    own = "" if result.id == "baseline" else result.id
    note = register(HomePaths(result.home), own, os.environ, time.time)
    _say(with_note(result, note) if note else result, output)


def _freeze_baseline(
    config: Path | None,
    option: Path | None,
    home: Path | None,
    said: tuple[str | None, str | None],
    progress: Progress,
) -> Result:
    waiver, chosen = said
    if config is None:
        raise click.UsageError("name the CONFIG to freeze, or use --candidate")
    if option is not None:
        raise click.UsageError("--config belongs to --candidate; CONFIG alone names the configuration of a baseline")
    if waiver is not None and not waiver.strip():
        raise click.UsageError("--waive-power needs a reason: it is recorded, and the report prints it")
    why = require_text(waiver, "--waive-power") if waiver else ""
    loaded = load_config(config, chosen)
    paths = HomePaths(absolute(home)) if home is not None else HomePaths.default(loaded.path, loaded.name)
    return freeze_baseline(
        loaded,
        paths,
        programs=find_programs(),
        environment=os.environ,
        clock=time.time,
        progress=progress,
        waiver=why,
    )


def _freeze_candidate(
    source: str, option: Path | None, home: Path | None, progress: Progress, output: Output
) -> Result:
    paths = find_home(home)
    if read_frozen(paths).protocol.baseline_first:
        settle_home(paths, time.time, output.note)
    frozen = read_configuration(paths)
    loaded = load_config(option, frozen.slice) if option is not None else frozen
    tree = absolute(Path(source)) if source else None
    return freeze_candidate(loaded, paths, source=tree, clock=time.time, progress=progress)


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """Show a bar on stderr while files are copied, where a person looks at it."""
    if not sys.stderr.isatty():
        yield no_progress
        return
    with contextlib.ExitStack() as stack:
        bar: Any = None
        shown = 0

        def show(done: int, total: int) -> None:
            nonlocal bar, shown
            if bar is None:
                made = click.progressbar(length=total, label="copying", file=sys.stderr, update_min_steps=1 << 23)
                bar = stack.enter_context(made)
            bar.update(done - shown)
            shown = done

        yield show


def _say(result: Result, output: Output) -> None:
    for line in result.left_out[:_MOST_LINES]:
        output.note(f"left out: {line}")
    if len(result.left_out) > _MOST_LINES:
        output.note(f"left out: {len(result.left_out) - _MOST_LINES} more; the manifest lists them")
    for line in result.departures:
        output.note(f"departs from the default protocol: {line}")
    for line in result.notes:
        output.note(f"note: {line}")
    output.result(_text(result), _value(result))


def _text(result: Result) -> str:
    verb = "frozen" if result.is_new else "frozen before, nothing done"
    size = f"{result.num_files} files, {result.num_bytes} bytes"
    following = f"campaign submit --home {result.home}"
    if result.id != "baseline":
        following += f" --candidate {result.id}"
    return "\n".join(
        [
            f"{verb}: {result.id}, snapshot {result.snapshot_sha256[:12]} ({size})",
            f"home: {result.home}",
            f"next: {following}",
        ]
    )


def _value(result: Result) -> dict[str, Any]:
    return {
        "home": str(result.home),
        "id": result.id,
        "snapshot_sha256": result.snapshot_sha256,
        "manifest_sha256": result.manifest_sha256,
        "files": result.num_files,
        "bytes": result.num_bytes,
        "left_out": list(result.left_out),
        "departures": list(result.departures),
        "notes": list(result.notes),
        "power": result.power.to_json() if result.power is not None else None,
        "new": result.is_new,
    }
