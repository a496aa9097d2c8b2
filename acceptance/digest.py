"""Digests of the program's own source and of the evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from acceptance.formats import TABLES, Row, Table, texts

SOURCES = (
    "__init__.py",
    "__main__.py",
    "arithmetic.py",
    "check_extension.py",
    "check_numerical.py",
    "check_paths.py",
    "check_rows.py",
    "check_runs.py",
    "check_windows.py",
    "checks.py",
    "convergence.py",
    "convergence_observations.py",
    "convergence_rules.py",
    "digest.py",
    "formats.py",
    "gates.py",
    "identity.py",
    "looks.py",
    "numerical.py",
    "numerical_observations.py",
    "numerical_rules.py",
    "observations.py",
    "plan.py",
    "protocol.py",
    "readings.py",
    "rollup.py",
    "rows.py",
    "selection.py",
    "strictjson.py",
    "throughput.py",
    "vacuity.py",
    "verdict.py",
)
"""Every file of this package. A loader without a folder to list can serve each of them by name."""


def _netstring(*parts: bytes) -> bytes:
    """Return each part preceded by its length and a colon, followed by a comma: no two lists give the same bytes."""
    return b"".join(b"%d:%s," % (len(part), part) for part in parts)


def _netstrings(lines: Sequence[str]) -> bytes:
    """Return `_netstring` of lines of text, of which there may be millions."""
    text = "".join([f"{len(line)}:{line}," for line in lines])
    return text.encode("ascii") if text.isascii() else _netstring(*map(str.encode, lines))


def tree_sha256(files: Mapping[str, bytes]) -> str:
    """Return the tree digest of a folder that holds just these plain files, mode 644.

    Args:
        files: Content by name.
    """
    digest = hashlib.sha256(b"campaign-tree/1\n")
    for name in sorted(files, key=str.encode):
        content = files[name]
        sha256 = hashlib.sha256(content).hexdigest().encode()
        digest.update(_netstring(b"f", b"644", name.encode(), b"%d" % len(content), sha256))
    return digest.hexdigest()


def evidence_sha256(identity: bytes, tables: Mapping[str, Sequence[Row]]) -> str:
    r"""Return the digest of the evidence, whatever the order of its rows.

    SHA-256 over ``campaign-evidence/1\n``, then for identity.json and each table that is there, in the order of their
    names: the name, the number of lines, and the lines (for a table its header and its rows sorted by key, all in their
    raw text; for identity.json its bytes as one line), each preceded by its length in decimal and ``:`` and followed by
    ``,``.

    Args:
        identity: The bytes of identity.json.
        tables: The rows of each table by file name.
    """
    parts = {"identity.json": _netstring(b"identity.json", b"1", identity)}
    for file, rows in tables.items():
        table = TABLES[file]
        lines = _sorted(table, texts(rows))
        head = _netstring(file.encode(), b"%d" % (1 + len(lines)), ",".join(table.header).encode())
        parts[file] = head + _netstrings(lines)
    digest = hashlib.sha256(b"campaign-evidence/1\n")
    for name in sorted(parts):
        digest.update(parts[name])
    return digest.hexdigest()


def _sorted(table: Table, lines: Sequence[str]) -> list[str]:
    """Return lines sorted by the texts of their key and then by all of their text."""
    places = [table.header.index(name) for name in table.key]
    if places == list(range(len(places))):
        # No field holds a NUL: what ends with one sorts as the list of the texts does, and is made in one step.
        return sorted(lines, key=lambda raw: raw.replace(",", "\0", len(places)))

    def key(raw: str) -> tuple[list[str], str]:
        fields = raw.split(",")
        return [fields[place] for place in places], raw

    return sorted(lines, key=key)
