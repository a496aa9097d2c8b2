"""``campaign seal``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from campaign.cli.options import absolute, home_option, json_option, working_folder
from campaign.cli.output import Output
from campaign.errors import ConfigError
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.accounting import account_home
from campaign.record.amendments import require_text
from campaign.record.closing import close
from campaign.record.ledger import Ledger
from campaign.record.signing import Signer, prepare, sign
from campaign.submission.desk import settle_home


@click.command
@click.option(
    "--sign", "key", metavar="KEY", type=click.Path(path_type=Path), help="Sign the line with this key (ssh-keygen)."
)
@click.option(
    "--signature",
    metavar="FILE",
    type=click.Path(path_type=Path),
    show_default="NAME.head.sig here",
    help="Where the signature goes, outside the home.",
)
@click.option(
    "--data-changed",
    metavar="REASON",
    default="",
    help="Close although declared data is not what was frozen; the reason is kept.",
)
@home_option
@json_option
def command(*, home: HomePaths, output: Output, key: Path | None, signature: Path | None, data_changed: str) -> None:
    """Close a campaign, and print one line to keep elsewhere: whoever has it can show that nothing changed since.

    All attempts must have ended, and each candidate needs a report on all of the evidence. Afterwards only reports and
    decisions are recorded. On a closed campaign the same line is printed again.
    """
    reason = require_text(data_changed, "--data-changed") if data_changed else ""
    signer = _signer(home, key, signature)
    settle_home(home, time.time, output.note)
    account_home(home, time.time, output.note)
    with Ledger.open(home, time.time) as ledger:
        done = close(home, ledger, data_changed=reason)
    for note in done.notes:
        output.note(f"note: {note}")
    if not done.is_new:
        output.note("the campaign had been closed before")
    if signer is not None:
        sign(signer, done.head.line)
        output.note(f"signed: {signer.signature}, over {signer.line}")
    value = {
        "line": done.head.line,
        "head": done.head.sha256,
        "entries": done.head.entries,
        "counts": done.head.counts.to_json(),
        "closed_now": done.is_new,
        "data": {name: one.state for name, one in done.data.items()},
        "signature": str(signer.signature) if signer is not None else None,
    }
    output.result(done.head.line, value)


def _signer(home: HomePaths, key: Path | None, signature: Path | None) -> Signer | None:
    if key is None:
        if signature is not None:
            raise ConfigError("--signature says where a signature goes, and nothing is signed", hint="add --sign KEY")
        return None
    where = signature if signature is not None else working_folder() / f"{read_frozen(home).manifest.campaign}.head.sig"
    return prepare(home, absolute(key), absolute(where))
