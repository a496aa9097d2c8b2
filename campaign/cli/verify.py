"""``campaign verify``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from campaign.cli.options import absolute, find_home, json_option, within
from campaign.cli.output import Output
from campaign.errors import CampaignError, ConfigError, EvidenceError, StateError
from campaign.paths import HomePaths
from campaign.verifier import findings, text
from campaign.verifier.archive import opened
from campaign.verifier.closing import parse_head
from campaign.verifier.command import signature_of
from campaign.verifier.facts import Facts, Options, Signature
from campaign.verifier.findings import Check
from campaign.verifier.verify import Step, is_home, make, verifying


def _find(given: Path | None) -> Path:
    """Return what is to be verified: a home, also one whose manifest was removed, an unpacked export or an archive."""
    if given is None:
        return find_home(None).root
    path = absolute(given)
    if not path.exists():
        raise StateError(
            "there is no such file or folder", where=str(given), hint="give a home, or an exported archive"
        )
    return path


def _place(positional: Path | None, option: Path | None) -> Path | None:
    """Return which home was named; one that stands in the command line is meant rather than one of the environment."""
    if positional is None or option is None:
        return option if positional is None else positional
    context = click.get_current_context()
    is_typed = context.get_parameter_source("home") is click.core.ParameterSource.COMMANDLINE
    if is_typed and absolute(positional) != absolute(option):
        raise ConfigError(
            "two homes are named", why=f"HOME is {positional}, --home is {option}", hint=f"campaign verify {positional}"
        )
    return positional


def _signature(file: Path | None, allowed_signers: Path | None, identity: str | None) -> Signature | None:
    try:
        return signature_of(file, allowed_signers, identity)
    except ValueError as error:
        hint = "campaign verify --signature FILE --allowed-signers FILE --identity WHO"
        raise ConfigError(str(error), hint=hint) from error


def _check_collection(facts: Facts, check: Check) -> None:
    """Make the checks of a collection, in memory: whatever it would find is found here, too."""
    paths = HomePaths(facts.root)
    if facts.withheld:
        check.not_checked("a collection needs every file, and some were withheld from this copy")
        return
    try:
        for where, what in _collected(paths):
            check.tampered(_relative(where, paths), what)
    except CampaignError as error:
        what = f"{error.what}: {error.why}" if error.why else error.what
        check.tampered(_relative(error.where, paths), what)


def _collected(paths: HomePaths) -> Iterator[tuple[str, str]]:
    from campaign.collection.collect import known_receipts, read_home  # noqa: PLC0415 - slow to import: SQLAlchemy
    from campaign.frozen import check_recorded, read_frozen  # noqa: PLC0415 - as above
    from campaign.record.ledger import read_entries  # noqa: PLC0415 - as above

    frozen, entries = read_frozen(paths), read_entries(paths)
    check_recorded(paths, frozen, entries)
    for finding in read_home(paths, frozen, entries, known_receipts(entries)).findings:
        yield finding.where, finding.what


def _relative(where: str, paths: HomePaths) -> str:
    return where.removeprefix(f"{paths.root}{os.sep}")


def _skip_collection(_facts: Facts, check: Check) -> None:
    """Make none where it would only say again, and as an accusation, that something cannot be read."""
    check.not_checked("a collection needs every file, and something cannot be read")


_COLLECTION = Step("collection", "all that campaign collect would find", _check_collection)
_NO_COLLECTION = Step("collection", "all that campaign collect would find", _skip_collection)


def _option(value: str) -> str:
    try:
        if value:
            parse_head(value)
    except ValueError as error:
        raise ConfigError(str(error), hint="campaign verify --head HEX") from error
    return value


@click.command
@click.argument("place", metavar="[HOME]", required=False, type=click.Path(path_type=Path))
@click.option("--head", metavar="HEAD", default="", help="The head line that was kept elsewhere, or its 64 hex digits.")
@click.option("--signature", metavar="FILE", type=click.Path(path_type=Path), help="A signature of the head line.")
@click.option(
    "--allowed-signers",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Whose keys you trust, as for ssh-keygen.",
)
@click.option("--identity", metavar="WHO", help="Who must have signed.")
@click.option("--deep", is_flag=True, help="Hash declared data and installed distributions again, too.")
@click.option("--no-execute", is_flag=True, help="Do not run the frozen acceptance.")
@click.option("--verdict", is_flag=True, help="Let the verdict on the last candidate decide the exit code, too.")
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    envvar="CAMPAIGN_HOME",
    show_envvar=True,
    help="The same as HOME.",
)
@json_option
def command(
    *,
    place: Path | None,
    head: str,
    signature: Path | None,
    allowed_signers: Path | None,
    identity: str | None,
    deep: bool,
    no_execute: bool,
    verdict: bool,
    home: Path | None,
    output: Output,
) -> int:
    """Check everything in a campaign home, read-only, and derive its verdict again.

    HOME is a campaign home, an unpacked export or an archive; by default it is found upward from the working directory.

    Nothing is repaired and nothing is written. Every finding is listed, and the tier that could be established; a
    verdict is printed only if nothing is tampered with. Exits with 0 then, else with 5, with 6 if something is there
    and cannot be read, and with 4 if a reported verdict could not be derived again; --verdict adds 3 if a gate is shown
    to be missed, and 4 if evidence is wanting.
    """
    options = Options(
        head=_option(head),
        signature=_signature(signature, allowed_signers, identity),
        deep=deep,
        execute=not no_execute,
        python=sys.executable,
    )
    subject = _find(_place(place, home))
    try:
        with opened(subject) as found:
            if not is_home(found.root):
                raise StateError("not a campaign home", where=str(subject), hint="campaign freeze CONFIG --home DIR")
            with verifying(found.root, options, withheld=found.withheld) as verification:
                is_readable = verification.state is not findings.State.UNREADABLE
                make(verification.checks, verification.facts, _COLLECTION if is_readable else _NO_COLLECTION)
                output.result("\n".join(text.lines(verification)), text.as_json(verification))
                return verification.exit_code(with_verdict=verdict)
    except findings.EvidenceError as error:  # of an archive: what is in a home never ends a verification
        raise EvidenceError(
            error.what,
            where=within(subject, error.where),
            hint="give a home, an archive as campaign export wrote it, or what was unpacked of one",
        ) from error
