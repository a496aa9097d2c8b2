"""``campaign doctor``."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

import campaign
from campaign import diagnosis
from campaign.cli.options import absolute, find_home, json_option, working_folder
from campaign.cli.output import Output
from campaign.diagnosis import Check, Mark
from campaign.errors import ExitCode, StateError
from campaign.paths import HomePaths

MOUNTS = Path("/proc/self/mounts")


def _home(given: Path | None) -> HomePaths | None:
    try:
        return find_home(given)
    except StateError:
        return None  # before the first freeze there is none: the folder where one would be is checked instead


def _checks(given: Path | None) -> Iterator[Check]:
    yield diagnosis.check_python(sys.version_info[:3], sys.executable)
    yield from diagnosis.check_packages(Path(campaign.__file__).parent.parent, importlib.util.find_spec)
    yield diagnosis.check_scheduler(shutil.which)
    home = _home(given)
    folder = absolute(home.root if home else given or working_folder())
    while not folder.is_dir():
        folder = folder.parent  # where a freeze would create the home
    yield diagnosis.check_mount(folder, MOUNTS.read_text("utf-8") if MOUNTS.exists() else "")
    yield from diagnosis.check_folder(folder)
    yield diagnosis.check_space(folder)
    if home is not None:
        yield from diagnosis.check_sides(home, os.environ)


def _lines(check: Check) -> list[str]:
    head = f"{check.mark.upper():<4}  {check.name}: {check.found}"
    return [head, f"      try: {check.remedy}"] if check.remedy else [head]


@click.command
@click.option(
    "--home",
    "given",
    type=click.Path(path_type=Path),
    envvar="CAMPAIGN_HOME",
    show_envvar=True,
    help="Campaign home, or where one shall be; default: found upward from the working directory, else that.",
)
@json_option
def command(*, given: Path | None, output: Output) -> int:
    """Look at everything around a campaign that can go wrong before it starts.

    Exits with 6 if a check fails; a warning does not count.
    """
    checks = list(_checks(given))
    failed = any(check.mark is Mark.FAIL for check in checks)
    text = "\n".join(line for check in checks for line in _lines(check))
    value = [
        {"name": check.name, "mark": check.mark.value, "found": check.found, "remedy": check.remedy} for check in checks
    ]
    output.result(text, {"checks": value, "failed": failed})
    return int(ExitCode.INFRASTRUCTURE if failed else ExitCode.DONE)
