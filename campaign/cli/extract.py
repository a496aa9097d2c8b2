"""``campaign extract``."""

from __future__ import annotations

from pathlib import Path

import click

from campaign.cli.options import absolute, json_option, within
from campaign.cli.output import Output
from campaign.errors import EvidenceError, StateError
from campaign.files import refusal
from campaign.verifier import findings
from campaign.verifier.archive import extract


@click.command
@click.argument("archive", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("into", type=click.Path(path_type=Path))
@json_option
def command(*, archive: Path, into: Path, output: Output) -> None:
    """Unpack an archive of `campaign export` into a new folder, refusing whatever its own listing does not name."""
    target = absolute(into)
    if target.exists():
        raise StateError("there is something already", where=str(target), hint="name a folder that is not there yet")
    try:
        folder = extract(absolute(archive), target)
    except findings.EvidenceError as error:
        raise EvidenceError(error.what, where=within(archive, error.where), hint="ask for the archive again") from error
    except OSError as error:
        raise refusal(error, target) from error
    output.result(f"{folder}\nto check it: campaign verify --home {folder}", {"folder": str(folder)})
