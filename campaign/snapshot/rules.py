"""What is never part of a snapshot, and which links and files are refused. Pure."""

from __future__ import annotations

import posixpath

_HOOKS = (b"sitecustomize", b"usercustomize")
_CODE = (b".py", b".so")
LFS_FIRST_LINE = b"version https://git-lfs.github.com/spec/"
LFS_MOST_BYTES = 1024
"""A pointer is smaller than this, as Git LFS itself says."""


def excluded_by_rule(name: bytes) -> str:
    """Return why a file or folder of this name is never frozen; empty when it may be.

    Bytecode can run instead of the source beside it; the others run before anything that was asked for.
    """
    if name == b"__pycache__" or name.endswith((b".pyc", b".pyo")):
        return "bytecode"
    if name.endswith(b".pth"):
        return "path configuration file of Python"
    if name in _HOOKS or (name.endswith(_CODE) and name.split(b".")[0] in _HOOKS):
        return "start-up hook of Python"
    return ""


def leaves_tree(path: bytes, target: bytes) -> bool:
    """Return whether a link's text leads out of the tree.

    Args:
        path: The link, relative to the root.
        target: What it says.
    """
    if target.startswith(b"/"):
        return True
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return joined == b".." or joined.startswith(b"../")


def link_destination(path: bytes, target: bytes) -> bytes:
    """Return the path, relative to the root, that a link inside the tree names; empty for the root."""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return b"" if joined == b"." else joined


def is_lfs_pointer(head: bytes) -> bool:
    """Return whether a file that begins like this is a pointer of Git LFS instead of the content."""
    return head.startswith(LFS_FIRST_LINE)


def pointed_sha256(pointer: bytes) -> str:
    """Return the SHA-256 that a pointer of Git LFS names; empty if it names none."""
    for line in pointer.splitlines():
        if line.startswith(b"oid sha256:"):
            return line.removeprefix(b"oid sha256:").decode("ascii", "replace")
    return ""


def shorten(lines: list[str], *, most: int) -> list[str]:
    """Return a list cut to its first items, with a last one that counts the rest."""
    rest = len(lines) - most
    return lines if rest <= 0 else [*lines[:most], f"and {rest} more"]
