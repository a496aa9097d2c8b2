"""``campaign selftest-tamper``."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from campaign.cli.options import absolute, home_option, json_option
from campaign.cli.output import Output
from campaign.errors import CampaignError, ExitCode
from campaign.paths import HomePaths
from campaign.table import table
from campaign.tampering.selftest import SelfTest, Trial, run


class HoleError(CampaignError):
    """Something that was tampered with was not found, or something was found where nothing was: a bug."""

    exit_code = ExitCode.BUG


def _word(trial: Trial) -> str:
    if trial.fault:
        return f"IT FAILED ITSELF: {trial.fault}"
    if not trial.is_tried:
        return "nothing to try it on"
    said = f"caught by {trial.check}" if trial.is_caught else "not caught"
    return said if trial.is_as_expected and not trial.is_residual else f"{said}{_comment(trial)}"


def _comment(trial: Trial) -> str:
    if not trial.is_as_expected:
        return ": A HOLE"
    return ", as it must be" if trial.group == "none" else ": the residual"


def _text(done: SelfTest) -> str:
    rows = [[trial.group, trial.what, _word(trial)] for trial in done.trials]
    own = [trial for trial in done.tried if not trial.is_residual]
    caught = sum(trial.is_caught for trial in own)
    lines = [table(["what", "how it was tampered with", "verification"], rows), ""]
    lines.append(f"{caught} of {len(own)} ways to tamper with it were caught; {_left(done)}")
    return "\n".join(lines)


def _left(done: SelfTest) -> str:
    absent = sum(not trial.is_tried and not trial.fault for trial in done.trials)
    what = f"{absent} found nothing to be tried on" if absent else "all could be tried"
    residual = "a home written again from the start, or one whose closing was taken away"
    return f"{what}. Not caught, as expected, without a head line kept elsewhere: {residual}."


@click.command
@click.option(
    "--scratch",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where copies are made; the home's size is needed once.",
)
@home_option
@json_option
def command(*, home: HomePaths, output: Output, scratch: Path | None) -> None:
    """Tamper with copies of this campaign in many ways, and show that verify finds each of them.

    The home is only read. The copy is closed first, which needs every attempt to have ended and a candidate.
    """
    done = run(
        home,
        environment=os.environ,
        clock=time.time,
        scratch=absolute(scratch) if scratch else None,
    )
    value = {
        "trials": [
            {
                "group": trial.group,
                "what": trial.what,
                "tried": trial.is_tried,
                "caught": trial.is_caught,
                "residual": trial.is_residual,
                "as_expected": trial.is_as_expected,
                "check": trial.check,
                "finding": trial.finding,
                "findings": trial.num_findings,
                "fault": trial.fault,
            }
            for trial in done.trials
        ],
        "tried": len(done.tried),
        "surprises": len(done.surprises),
    }
    output.result(_text(done), value)
    if done.surprises:
        named = "; ".join(f"{one.group}: {one.what} ({_word(one)})" for one in done.surprises)
        raise HoleError(f"{len(done.surprises)} trial(s) did not come out as expected", why=named)
