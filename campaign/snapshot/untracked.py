"""What of the files that no commit holds is refused: too large ones, and those with a secret in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign import redact
from campaign.errors import ConfigError
from campaign.snapshot.entries import Entry, Origin, show
from campaign.snapshot.scan import Belonging, Found

_MOST_NAMED = 5
_MOST_SCANNED_BYTES = 1 << 20
"""Largest file that is looked through: what people write by hand, and what the patch shows, is smaller."""
_UNCOMMITTED = (Origin.MODIFIED, Origin.UNTRACKED, Origin.INCLUDED, Origin.PLAIN)
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MostUntracked:
    """How much may be taken that git neither tracks nor ignores."""

    file_bytes: int = 64 << 20
    bytes: int = 1 << 30


def check_sizes(root: Path, found: Sequence[Found], most: MostUntracked) -> None:
    """Refuse untracked files that are larger than somebody is likely to have meant; an include names what is meant.

    Raises:
        ConfigError: There are such files; names the largest.
    """
    untracked = [item for item in found if _is_untracked(item)]
    untracked.sort(key=lambda item: item.stamp.num_bytes, reverse=True)
    total = sum(item.stamp.num_bytes for item in untracked)
    large = [item for item in untracked if item.stamp.num_bytes > most.file_bytes]
    if not large and total <= most.bytes:
        return
    what = (
        f"{len(large)} untracked files have more than {most.file_bytes // _MIB} MiB"
        if large
        else f"the untracked files have {total} bytes, more than {most.bytes // _MIB} MiB"
    )
    named = (large or untracked)[:_MOST_NAMED]
    raise ConfigError(
        what,
        where=str(root / show(named[0].path)),
        why="the largest: " + ", ".join(f"{show(item.path)} ({item.stamp.num_bytes} bytes)" for item in named),
        hint="have git ignore them, declare them under [data], or raise the side's untracked_file_mib or untracked_mib",
    )


def _is_untracked(item: Found) -> bool:
    return item.type == "f" and item.belonging is Belonging.GIT and not item.tracked and item.committed is None


def check_secrets(root: Path, tree: Path, entries: Sequence[Entry]) -> None:
    """Refuse files that no commit holds as they are, and in which something plainly is a secret.

    What is committed has been published to everybody who has the repository.

    Args:
        root: The source tree, for messages.
        tree: The copy, which is read.
        entries: Its entries.

    Raises:
        ConfigError: There is one; the value is not repeated.
    """
    for entry in entries:
        if entry.type == "f" and entry.origin in _UNCOMMITTED and entry.num_bytes <= _MOST_SCANNED_BYTES:
            text = _read(tree, entry)
            if redact.find_token(text):
                _refuse(root / show(entry.path), text)


def _read(tree: Path, entry: Entry) -> str:
    # One character a byte: tokens are ASCII, whatever is around them.
    with open(bytes(tree) + b"/" + entry.path, "rb") as stream:
        return stream.read().decode("latin-1")


def _refuse(path: Path, text: str) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        if found := redact.find_token(line):
            raise ConfigError(
                f"this looks like {found}",
                where=f"{path}:{number}",
                why="no commit holds the file as it is, and whoever audits the campaign reads the snapshot",
                hint="take it out, or have git ignore the file; what is no secret can be committed",
            )
