"""One entry of a tree: what of it belongs to the tree's identity."""

from __future__ import annotations

import enum
import os
import stat
from dataclasses import dataclass
from typing import Literal, TypeAlias

EntryType: TypeAlias = Literal["f", "d", "l"]
Mode: TypeAlias = Literal["644", "755", "777"]


class Origin(enum.StrEnum):
    """Where an entry comes from."""

    TRACKED = "tracked"
    """Its bytes and mode are those of the last commit."""
    MODIFIED = "modified"
    """git tracks it, and it is not as the last commit has it."""
    UNTRACKED = "untracked"
    """git neither tracks nor ignores it."""
    INCLUDED = "included"
    """git ignores it, and an ``include`` pattern asked for it."""
    PLAIN = "plain"
    """There is no git repository, or it ignores the whole source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file, folder or link of a tree.

    Attributes:
        path: Path below the root as the file system spells it, with ``/``.
        type: ``f``, ``d`` or ``l``.
        mode: ``755`` for folders and executable files, ``644`` for other files, ``777`` for links.
        num_bytes: Size of the content; 0 for a folder.
        sha256: Digest of the content (of a link: its target); empty for a folder.
        origin: Where it comes from; no part of the identity.
    """

    path: bytes
    type: EntryType
    mode: Mode
    num_bytes: int
    sha256: str
    origin: Origin


def file_mode(st_mode: int) -> Mode:
    """Return the mode of a regular file that counts: whether its owner may execute it, as git sees it."""
    return "755" if st_mode & stat.S_IXUSR else "644"


def show(path: bytes) -> str:
    """Return a path as printable text: for messages, never for opening it."""
    return (
        os.fsdecode(path).encode("unicode_escape", "backslashreplace").decode("ascii")
        if _odd(path)
        else str(path, "utf-8")
    )


def _odd(path: bytes) -> bool:
    try:
        return not path.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return True
