"""Results on stdout, everything else on stderr; ``--json`` puts exactly one JSON value on stdout."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from typing import Any, TextIO

import click

from campaign import files
from campaign.terminal import plain


def put(text: str) -> None:
    """Print on stdout. A reader that has gone has read what it wanted: the command's exit code stays its own.

    Raises:
        InfrastructureError: It cannot be written for another reason, such as a full disk.
    """
    try:
        click.echo(plain(text))
    except OSError as error:
        _abandon(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise files.refusal(error, "standard output") from error


def tell(text: str) -> None:
    """Print on stderr; where nobody can be told, nobody is."""
    try:
        click.echo(plain(text), err=True)
    except OSError:
        _abandon(sys.stderr)


def _abandon(stream: TextIO) -> None:
    """Let what is still buffered go nowhere: at its end the interpreter would write it again, and fail again."""
    with contextlib.suppress(OSError):  # a stream without a descriptor has nothing to lose
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command puts what it has to say."""

    as_json: bool

    def result(self, text: str, value: Any) -> None:
        """Print the command's result: `text` for a person, or `value` as JSON."""
        put(json.dumps(value, sort_keys=True, allow_nan=False) if self.as_json else text)

    def note(self, text: str) -> None:
        """Say something that is not the result, on stderr."""
        tell(text)
