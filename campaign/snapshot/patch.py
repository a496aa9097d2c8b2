"""changes.patch: the difference from the last commit, for reading; nothing is rebuilt from it. Pure.

Text is shown as a unified diff, anything else as git's binary literal. Each file and the whole patch are bounded; what
does not fit is named with its size.
"""

from __future__ import annotations

import base64
import difflib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MOST_FILE_BYTES = 1 << 20
"""Largest content that is shown."""
MOST_DIFF_LINES = 20_000
"""Most lines of both sides for a line-by-line diff; comparing more takes too long."""
MOST_PATCH_BYTES = 32 << 20
_LINE_BYTES = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A path before or after.

    Attributes:
        mode: git's mode, such as ``100644``.
        oid: git's name for the content; empty when it is not known.
        content: The bytes; None when they are too large to show or not at hand.
        note: Why there is no content.
    """

    mode: str
    oid: str
    content: bytes | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs from the last commit."""

    path: bytes
    old: Version | None
    new: Version | None


def render(changes: Iterable[Change]) -> bytes:
    """Return the patch as bytes, bounded."""
    parts: list[bytes] = []
    size = 0
    left_out = 0
    for change in changes:
        part = render_change(change)
        if size + len(part) > MOST_PATCH_BYTES:
            left_out += 1
            continue
        parts.append(part)
        size += len(part)
    if left_out:
        parts.append(b"# %d more changed files are not shown: the patch is bounded; files.json lists them\n" % left_out)
    return b"".join(parts)


def render_change(change: Change) -> bytes:
    """Return one file's part of the patch."""
    if change.old is not None and change.new is not None and change.old.mode[:3] != change.new.mode[:3]:
        # git shows a change of type, such as a file that became a link, as a removal and a creation
        removed = Change(path=change.path, old=change.old, new=None)
        return render_change(removed) + render_change(Change(path=change.path, old=None, new=change.new))
    name_a, name_b = quote(b"a/" + change.path), quote(b"b/" + change.path)
    lines = [b"diff --git " + name_a + b" " + name_b, *_mode_lines(change), *_index_line(change)]
    return b"\n".join(lines) + b"\n" + _body(change, name_a, name_b)


def quote(path: bytes) -> bytes:
    """Return a path as git writes it in a patch: in C quotes when it holds anything unusual."""
    special = {0x22: b'\\"', 0x5C: b"\\\\", 0x0A: b"\\n", 0x09: b"\\t", 0x0D: b"\\r"}
    quoted = b"".join(
        special.get(byte) or (bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte) for byte in path
    )
    return path if quoted == path else b'"' + quoted + b'"'


def _mode_lines(change: Change) -> list[bytes]:
    if change.old is None and change.new is not None:
        return [b"new file mode " + change.new.mode.encode("ascii")]
    if change.new is None and change.old is not None:
        return [b"deleted file mode " + change.old.mode.encode("ascii")]
    if change.old is None or change.new is None or change.old.mode == change.new.mode:
        return []
    return [b"old mode " + change.old.mode.encode("ascii"), b"new mode " + change.new.mode.encode("ascii")]


def _index_line(change: Change) -> list[bytes]:
    """Return the line without which git applies no binary part."""
    oids = [version.oid if version is not None else "" for version in (change.old, change.new)]
    length = max(len(oid) for oid in oids)
    return [f"index {oids[0].rjust(length, '0')}..{oids[1].rjust(length, '0')}".encode("ascii")]


def _body(change: Change, name_a: bytes, name_b: bytes) -> bytes:
    old = b"" if change.old is None else change.old.content
    new = b"" if change.new is None else change.new.content
    if old is None or new is None:
        notes = [version.note for version in (change.old, change.new) if version is not None and version.note]
        return b"# content not shown: " + "; ".join(notes).encode("ascii", "replace") + b"\n"
    if old == new:
        return b""
    if _is_binary(old) or _is_binary(new):
        return b"GIT binary patch\n" + _literal(new) + _literal(old)
    before = b"/dev/null" if change.old is None else name_a
    after = b"/dev/null" if change.new is None else name_b
    # git writes a tab after a name with a space, so that tools know where it ends
    heads = [b"--- " + before, b"+++ " + after]
    tabbed = [head + b"\t" if b" " in head[4:] and not head.endswith(b'"') else head for head in heads]
    return b"\n".join(tabbed) + b"\n" + b"".join(_hunks(old, new))


def _is_binary(content: bytes) -> bool:
    """Decide as git does: a NUL among the first 8000 bytes."""
    return b"\0" in content[:8000]


def _literal(content: bytes) -> bytes:
    """Return content in git's binary form: deflated, in lines of base 85 that begin with their length."""
    packed = zlib.compress(content, 9)
    lines = [b"literal %d" % len(content)]
    for start in range(0, len(packed), _LINE_BYTES):
        piece = packed[start : start + _LINE_BYTES]
        length = len(piece)
        mark = bytes([length + 0x40 if length <= 26 else length - 26 + 0x60])
        lines.append(mark + base64.b85encode(piece + b"\0" * (-length % 4)))
    return b"\n".join(lines) + b"\n\n"


def _lines(content: bytes) -> list[str]:
    """Split at newlines alone, one character a byte, so that any bytes pass unchanged."""
    lines = content.decode("latin-1").split("\n")
    ended = [line + "\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def _hunks(old: bytes, new: bytes) -> Iterator[bytes]:
    before, after = _lines(old), _lines(new)
    if len(before) + len(after) > MOST_DIFF_LINES and before and after:
        diff = [
            _whole_header(len(before), len(after)),
            *("-" + line for line in before),
            *("+" + line for line in after),
        ]
    else:
        diff = list(difflib.unified_diff(before, after))[2:]
    for line in diff:
        yield (
            line.encode("latin-1")
            if line.endswith("\n")
            else line.encode("latin-1") + b"\n\\ No newline at end of file\n"
        )


def _whole_header(num_before: int, num_after: int) -> str:
    return f"@@ -1,{num_before} +1,{num_after} @@\n"
