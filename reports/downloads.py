"""The files beside the page, under the names that readers of such reports know."""

from __future__ import annotations

import re
from collections.abc import Sequence

from acceptance.formats import TABLES, Kind, Row, Table, texts
from reports.ahead import ByRows
from reports.gate_tables import GATE_FIELDS, gate_rows
from reports.source import Source
from reports.verdict import Gate

_NAMES = {
    "pairs.csv": ("performance-pairs.csv", "Performance pairs CSV"),
    "numerical.csv": ("numerical-cases.csv", "Numerical cases CSV"),
    "vacuity.csv": ("vacuity.csv", "Readings for faults CSV"),
    "convergence.csv": ("convergence.csv", "Convergence CSV"),
    "curves.csv": ("validation-curves.csv", "Validation curves CSV"),
    "windows.csv": ("windows.csv", "Windows CSV"),
    "baseline.csv": ("baseline.csv", "Baseline measurements CSV"),
    "attempts.csv": ("attempts.csv", "Attempts CSV"),
}
"""Evidence table to file and label, in the order in which they are offered."""

_OF_A_FAMILY = ("numerical.csv", "vacuity.csv", "convergence.csv", "curves.csv")
"""Tables that are there without rows where their family was not declared: not offered then."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_QUOTED = ('"', ",", "\n", "\r")


def guarded(cell: str) -> str:
    """Return a text cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.lstrip(" ").startswith(_FORMULA) else cell


def _field(cell: str) -> str:
    if any(character in cell for character in _QUOTED):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    lines = [",".join(_field(cell) for cell in row) for row in (header, *rows)]
    return ("\n".join(lines) + "\n").encode()


_SUSPECT = re.compile(r"(?:^|,) *[=+\-@]")
"""A field of evidence, which holds neither quotes nor control characters, that may be taken for a formula."""
_FIRSTS = {first: ("," + first, "\n" + first) for first in " =+-@"}
"""What is in every file with such a field, by what that field begins with."""


_FORESEEN = ByRows[bytes]()


def foresee(table: Table, rows: Sequence[Row]) -> None:
    """Make the file of a table before it is asked for."""
    if table.file in _NAMES:
        _FORESEEN.put(rows, _made_csv(table, rows))


def _evidence_csv(table: Table, rows: Sequence[Row]) -> bytes:
    return _FORESEEN.take(rows, lambda: _made_csv(table, rows))


def _made_csv(table: Table, rows: Sequence[Row]) -> bytes:
    kinds = [column.kind for column in table.columns]
    whole = "\n".join([",".join(table.header), *texts(rows), ""])
    if _may_hold_suspects(whole):  # else none of a million lines needs a look of its own
        lines = whole.split("\n")
        whole = "\n".join(_guarded_line(kinds, line) if _SUSPECT.search(line) else line for line in lines)
    return whole.encode()


def _may_hold_suspects(whole: str) -> bool:
    # To look for one character is much faster than to look for two.
    return any(first in whole and any(both in whole for both in found) for first, found in _FIRSTS.items())


def _guarded_line(kinds: Sequence[Kind], line: str) -> str:
    fields = zip(kinds, line.split(","), strict=True)
    return ",".join(guarded(cell) if kind is Kind.TEXT else cell for kind, cell in fields)


_NUMERIC_GATE_FIELDS = ("value", "threshold", "margin", "lower", "upper", "n")


def gates_csv(gates: Sequence[Gate]) -> bytes:
    """Return gates.csv: every gate, unrounded."""
    rows = [
        [cell if name in _NUMERIC_GATE_FIELDS else guarded(cell) for name, cell in zip(GATE_FIELDS, row, strict=True)]
        for row in gate_rows(gates)
    ]
    return _csv(GATE_FIELDS, rows)


def build_downloads(source: Source, gates: Sequence[Gate]) -> dict[str, tuple[str, bytes]]:
    """Return label and bytes of the files derived from evidence, verdict and provenance, by file name."""
    found = {
        file: (label, _evidence_csv(TABLES[table], source.tables[table]))
        for table, (file, label) in _NAMES.items()
        if table in source.tables and (source.tables[table] or table not in _OF_A_FAMILY)
    }
    found["gates.csv"] = ("Gate results CSV", gates_csv(gates))
    found["verdict.json"] = ("Verdict JSON", source.verdict_bytes)
    found["provenance.json"] = ("Provenance JSON", source.provenance_bytes)
    return found
