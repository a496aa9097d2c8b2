"""``campaign report``."""

from __future__ import annotations

import os
import time

import click

from campaign.cli.collect import describe
from campaign.cli.options import home_option, json_option
from campaign.cli.output import Output
from campaign.errors import EvidenceError, ExitCode
from campaign.judging.remarks import read_remarks
from campaign.judging.report import (
    Report,
    candidates_sentence,
    forget_verdicts,
    gate_rows,
    numerical_remarks,
    observation_rows,
    report,
    verdict_sentence,
)
from campaign.paths import HomePaths
from campaign.record.accounting import account_home
from campaign.record.ledger import Ledger
from campaign.submission.desk import settle_home
from campaign.table import table

HEADER = ("gate", "value", "threshold", "margin", "outcome", "finding")
OBSERVED = ("category", "pairs", "median", "lowest", "highest", "SD of ln", "order effect", "95% from", "95% to")


def _text(made: Report, home: HomePaths) -> str:
    printed, protocol = made.evaluation.printed, home.protocol.read_bytes()
    parts = [table(HEADER, gate_rows(printed)), ""]
    if observed := observation_rows(printed):
        parts += [table(OBSERVED, observed), ""]
    if remarks := numerical_remarks(printed, protocol):
        parts += [*(f"numerical: {line}" for line in remarks.lines), ""]
    tried = candidates_sentence(made.provenance)
    return "\n".join([*parts, verdict_sentence(printed, protocol, made.provenance), tried, str(made.page)])


def _value(made: Report, home: HomePaths, exit_code: int) -> dict[str, object]:
    verdict = made.evaluation.verdict
    remarks = numerical_remarks(made.evaluation.printed, home.protocol.read_bytes())
    return {
        "candidate": made.candidate,
        "outcome": verdict.outcome,
        "exit_code": exit_code,
        "verdict": str(made.verdict),
        "verdict_sha256": made.evaluation.sha256,
        "report": str(made.page),
        "candidates": candidates_sentence(made.provenance),
        "families": {name: family.to_json() for name, family in verdict.families.items()},
        "observations": verdict.observations,
        "numerical_remarks": None if remarks is None else dict(remarks.counts),
        "gates": [gate.to_json() for gate in verdict.gates],
    }


@click.command
@click.option("--candidate", metavar="ID", help="Which candidate; default: the one that was frozen last.")
@click.option(
    "--exit-zero",
    is_flag=True,
    allow_from_autoenv=False,
    help="Exit with 0 whatever the verdict; 5 and 6 are never hidden.",
)
@home_option
@json_option
def command(*, candidate: str | None, exit_zero: bool, home: HomePaths, output: Output) -> int:
    """Collect, let the frozen acceptance judge, render the report and print the gate table.

    Exits with 0 if every gate passes, 3 if at least one is shown to be missed, 4 if only evidence is wanting, and 5,
    without a verdict, if evidence does not parse or is not what was sealed.
    """
    try:
        settle_home(home, time.time, output.note)
        account_home(home, time.time, output.note)
        opened = Ledger.open(home, time.time)
    except EvidenceError:
        forget_verdicts(home, candidate)
        raise
    with opened as ledger:
        made = report(home, ledger, candidate=candidate, environment=os.environ)
    output.note(describe(made.collection))
    for note in made.notes:
        output.note(f"note: {note}")
    remarks = read_remarks(home, made.collection)
    for remark in remarks:
        output.note(f"remark: {remark}")
    exit_code = made.evaluation.verdict.exit_code
    # Of thousands of gates either takes a while, and one of them is not asked for.
    text = "" if output.as_json else _text(made, home)
    value = _value(made, home, exit_code) | {"remarks": list(remarks)} if output.as_json else {}
    output.result(text, value)
    return int(ExitCode.DONE if exit_zero else exit_code)
