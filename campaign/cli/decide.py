"""``campaign decide``."""

from __future__ import annotations

import time

import click

from campaign.cli.options import home_option, json_option
from campaign.cli.output import Output
from campaign.documents import Decided, DecisionKind, RunSide
from campaign.errors import ConfigError, ExitCode
from campaign.frozen import read_frozen
from campaign.judging.provenance import frozen_candidates
from campaign.paths import HomePaths
from campaign.record.decisions import Recorded, Wish, decide, listed
from campaign.record.ledger import Ledger, read_entries
from campaign.submission.choose import find_candidate
from reports.times import date


@click.command()
@click.option("--default", "default", type=click.Choice(["baseline", "candidate"]), help="Which side is the default.")
@click.option("--retire", type=click.Choice(["baseline"]), help="Ask for the retirement of a side.")
@click.option("--candidate", default="", metavar="ID", help="Whose verdict it is about; default: the last one frozen.")
@click.option("--by", default="", help="Who decided.")
@click.option("--reason", default="", help="Why.")
@home_option
@json_option
def command(
    *,
    home: HomePaths,
    output: Output,
    default: RunSide | None,
    retire: RunSide | None,
    candidate: str,
    by: str,
    reason: str,
) -> int:
    """Record who made which side the default, or asked for the baseline's retirement, and why; or list that.

    No decision changes a verdict. Retirement is refused, and the refusal recorded, unless the last report on the
    candidate passes and nothing has changed since: then this exits as that report did (3 or 4), or with 4 if it is
    outdated. The default may be changed whatever the verdict says. Without --default and --retire it lists what was
    decided.
    """
    if default is None and retire is None:
        if by or reason or candidate:
            raise ConfigError("neither --default nor --retire given", hint="campaign decide -h")
        _list(home, output)
        return int(ExitCode.DONE)
    if default is not None and retire is not None:
        raise ConfigError("--default and --retire are two decisions", hint="give one, then the other")
    if missing := [name for name, value in (("--by", by), ("--reason", reason)) if not value]:
        raise ConfigError(f"{' and '.join(missing)} not given", why="a decision says who took it, and why")
    kind: DecisionKind = "default" if default is not None else "retire"
    frozen = read_frozen(home)
    with Ledger.open(home, time.time) as ledger:
        chosen = find_candidate(candidate, list(frozen.candidates), list(frozen_candidates(ledger.entries)))
        wish = Wish(kind=kind, side=default or retire or "baseline", candidate=chosen, by=by, reason=reason)
        made, now = decide(home, ledger, frozen, wish)
    output.result(f"{describe(made)}\n{_next(made.data)}", value_of(made))
    return int(now.exit_code if made.data.refused else ExitCode.DONE)


def _next(act: Decided) -> str:
    if not act.candidate:
        return "reports on candidates will show it"
    return f"to show it in the report: campaign report --candidate {act.candidate}"


def value_of(made: Recorded) -> dict[str, object]:
    """Return a decision as a JSON value."""
    return {"seq": made.seq, "at": made.at, **made.data.to_json()}


def describe(made: Recorded) -> str:
    """Return a decision in words."""
    act = made.data
    verdict = act.outcome.replace("_", " ") or "none"
    about = f" (verdict on {act.candidate} at that time: {verdict})" if act.candidate else ""
    what = {
        "default": f"the default is {act.side}",
        "retire": "retiring the baseline is REFUSED" if act.refused else "the baseline is retired",
    }[act.kind]
    lines = [f"ledger entry {made.seq}, {date(made.at)}: {what}{about}", f"  by {act.by}: {act.reason}"]
    if act.why:
        lines.append(f"  refused because {act.why}")
    return "\n".join(lines)


def _list(home: HomePaths, output: Output) -> None:
    found = listed(read_entries(home))
    text = "\n".join(describe(one) for one in found)
    output.result(text or "nothing was decided", {"decisions": [value_of(one) for one in found]})
