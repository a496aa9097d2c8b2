"""Evidence tables: rows by column name, columns in the order that the protocol's header gives."""

from __future__ import annotations

import gzip
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Cell: TypeAlias = str | int | float | bool | None
"""None is an empty field: there is nothing to say, or no finite number that says it."""
Row: TypeAlias = Mapping[str, Cell]

_COUNT = re.compile(r"0|[1-9][0-9]{0,17}")
_DECIMAL = re.compile(r"-?[0-9]{1,64}(\.[0-9]{1,64})?(e[+-]?[0-9]{1,3})?")
_TEXT = re.compile(r"""[^\x00-\x1f\x7f-\x9f\u2028\u2029",]*""")


def is_text(text: str) -> bool:
    """Return whether a text can stand in a table as it is."""
    return _TEXT.fullmatch(text) is not None


def _field(name: str, value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name} is not finite")
        # repr is the shortest text that reads back as the same double.
        text, grammar = repr(value), _DECIMAL
    else:
        text, grammar = str(value), _COUNT if isinstance(value, int) else _TEXT
    if not grammar.fullmatch(text):
        raise ValueError(f"{name} cannot stand in a table: {text!r}")
    return text


def table_bytes(header: Sequence[str], rows: Sequence[Row]) -> bytes:
    """Return the bytes of a table.

    Args:
        header: Column names in file order.
        rows: One mapping a row, with exactly the header's names.

    Raises:
        ValueError: A row has other columns, or a value that no field can hold.
    """
    lines = [",".join(header)]
    for row in rows:
        if set(row) != set(header):
            raise ValueError(f"the columns {sorted(set(row) ^ set(header))} are on one side only")
        lines.append(",".join(_field(name, row[name]) for name in header))
    return ("\n".join(lines) + "\n").encode("utf-8")


def compressed(data: bytes) -> bytes:
    """Return bytes in gzip's format, with neither a time nor a name: the same bytes give the same file."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=buffer, mtime=0) as stream:
        stream.write(data)
    return buffer.getvalue()


def plain_text(text: str) -> str:
    """Return a text as it can stand in a table and in a list of names: blanks and odd characters become ``_``."""
    return re.sub(r"[^A-Za-z0-9._:@()/-]+", "_", text.strip())
