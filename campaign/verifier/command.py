"""The command line of the verifier that travels with a campaign."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import text
from .archive import opened
from .closing import parse_head
from .facts import Options, Signature
from .findings import EvidenceError
from .verify import EXIT_TAMPERED, is_home, verifying

EXIT_USAGE = 2


def _head(given: str) -> str:
    try:
        parse_head(given)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="launch.py",
        description="Check a campaign home, read-only, and derive its verdict again. Nothing need be installed but "
        "Python (and scipy where the frozen acceptance uses it); neither network, git, torch nor a scheduler is used.",
        epilog="Exits with 0 if nothing is tampered with (what is incomplete or was not checked is printed), with 5 "
        "otherwise, with 6 if something is there and cannot be read, with 4 if a reported verdict could not be derived "
        "again, and with 2 if there is no home. --verdict adds 3 (a gate is shown to be missed) and 4 (evidence is "
        "wanting, or there is no verdict).",
    )
    parser.add_argument("home", type=Path, metavar="HOME", help="the campaign home, an unpacked export or an archive")
    parser.add_argument("--head", type=_head, help="the head line that was kept elsewhere, or its 64 digits")
    parser.add_argument("--signature", type=Path, metavar="FILE", help="a signature of the head line")
    parser.add_argument("--allowed-signers", type=Path, metavar="FILE", help="whose keys you trust (man ssh-keygen)")
    parser.add_argument("--identity", metavar="WHO", help="who must have signed")
    parser.add_argument("--deep", action="store_true", help="hash declared data and installed distributions again, too")
    parser.add_argument("--no-execute", action="store_true", help="do not run the frozen acceptance")
    parser.add_argument("--verdict", action="store_true", help="let the verdict decide the exit code, too")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    return parser


def signature_of(file: Path | None, allowed_signers: Path | None, identity: str | None) -> Signature | None:
    """Return a signature that was asked for; None if none was.

    Raises:
        ValueError: Only a part of what describes it was given, or a file is not there.
    """
    if file is None and allowed_signers is None and not identity:
        return None
    if file is None or allowed_signers is None or not identity:
        raise ValueError("--signature, --allowed-signers and --identity go together")
    for path in (file, allowed_signers):
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
    return Signature(file=file.resolve(), allowed_signers=allowed_signers.resolve(), identity=identity)


def main(arguments: Sequence[str]) -> int:
    """Verify a home and return the exit code."""
    given = list(arguments)
    parser = _parser()
    asked = parser.parse_args(given[1:] if given[:1] == ["verify"] else given)
    try:
        signature = signature_of(asked.signature, asked.allowed_signers, asked.identity)
    except ValueError as error:
        parser.error(str(error))
    options = Options(head=asked.head or "", signature=signature, deep=asked.deep, execute=not asked.no_execute)
    try:
        with opened(asked.home.resolve()) as found:
            if not is_home(found.root):
                print(f"{asked.home}: not a campaign home", file=sys.stderr)  # noqa: T201 - a program that prints
                return EXIT_USAGE
            with verifying(found.root, options, withheld=found.withheld) as verification:
                if asked.json:
                    shown = json.dumps(text.as_json(verification), sort_keys=True, allow_nan=False)
                else:
                    shown = "\n".join(text.lines(verification))
                _put(shown)
                return verification.exit_code(with_verdict=asked.verdict)
    except FileNotFoundError as error:
        print(f"{error.filename}: there is no such file", file=sys.stderr)  # noqa: T201 - as above
        return EXIT_USAGE
    except EvidenceError as error:  # of an archive: what is in a home never ends a verification
        print(f"{asked.home}: {error}", file=sys.stderr)  # noqa: T201 - as above
        return EXIT_TAMPERED


def _put(shown: str) -> None:
    """Print; a reader that has gone has read what it wanted, and the exit code stays what it is."""
    try:
        sys.stdout.buffer.write(f"{shown}\n".encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
    except BrokenPipeError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
