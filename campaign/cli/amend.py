"""``campaign amend``."""

from __future__ import annotations

import time
import typing
from collections.abc import Mapping
from typing import Any

import click

from campaign.cli.options import home_option, json_option, require_yes
from campaign.cli.output import Output
from campaign.documents import Change
from campaign.errors import ConfigError
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.amendments import Wish, amend, describe, propose
from campaign.record.ledger import read_entries
from campaign.submission import acts
from campaign.submission.desk import open_desk

CHANGES: tuple[str, ...] = typing.get_args(Change)


@click.command()
@click.option("--list", "listing", is_flag=True, help="List the amendments so far, and do nothing else.")
@click.option("--what", type=click.Choice(CHANGES), help="What kind of thing changed.")
@click.option("--changed", help="What changed, in words.")
@click.option("--void", multiple=True, metavar="PATTERN", help="Slots whose attempts so far are void; may be repeated.")
@click.option("--keep-reason", help="Why all other slots stay valid.")
@click.option("--by", help="Who approved it.")
@click.option("--reason", help="Why it was done.")
@click.option("--yes", is_flag=True, allow_from_autoenv=False, help="Do not ask.")
@home_option
@json_option
def command(
    *,
    home: HomePaths,
    output: Output,
    listing: bool,
    what: Change | None,
    void: tuple[str, ...],
    yes: bool,
    **texts: str | None,
) -> None:
    """Record that something changed meanwhile, and that attempts before it do not count.

    All attempts so far at the slots that match are void: they stay in the home and in the evidence, and the slots are
    measured again by `campaign submit`. The protocol stays as it is. Every report names the amendment, its slots and
    whether a report had shown their results before.
    """
    if listing:
        _list(home, output)
        return
    wish = _wish(what, void, texts)
    desk = open_desk(home, read_frozen(home), time.time)
    shown = propose(desk, wish, output.note)
    if not yes:
        output.note(describe(shown))
        require_yes("an amendment", "Make these attempts void? It cannot be undone.")
    entry = amend(desk, wish, shown)
    said = f"ledger entry {entry.seq}\n{describe(shown)}\nnext: campaign submit, then campaign report"
    output.result(said, {"seq": entry.seq, "at": entry.at, **entry.data})


def _wish(what: Change | None, void: tuple[str, ...], texts: Mapping[str, str | None]) -> Wish:
    given = {"what": what, "void": void, **texts}
    missing = [f"--{name.replace('_', '-')}" for name, value in given.items() if not value]
    if what is None or missing:
        why = "an amendment says what changed, what is void, why the rest is not, who approved it and why"
        raise ConfigError(f"{', '.join(missing)} not given", why=why, hint="campaign amend -h")
    return Wish(what=what, patterns=void, **{name: text or "" for name, text in texts.items()})


def _list(home: HomePaths, output: Output) -> None:
    entries = read_entries(home)
    at = {entry.seq: entry.at for entry in entries}
    amendments = acts.fold(entries).amendments
    values: list[dict[str, Any]] = [{"seq": seq, "at": at[seq], **act.to_json()} for seq, act in amendments.items()]
    text = "\n\n".join(f"ledger entry {seq}\n{describe(act)}" for seq, act in amendments.items())
    output.result(text or "nothing was amended", {"amendments": values})
