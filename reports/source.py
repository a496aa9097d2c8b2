"""Reading what a report is made of: protocol, verdict, provenance and evidence. The only module that reads evidence."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from acceptance.formats import TABLES, Kind, Row, Table, columns_of, parse_rows, texts
from reports.errors import ReportError


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Everything that one report is derived from."""

    protocol: Mapping[str, Any]
    verdict: Mapping[str, Any]
    provenance: Mapping[str, Any]
    identity: Mapping[str, Any]
    tables: Mapping[str, Sequence[Row]]
    """Rows of the evidence tables that exist, by file name, sorted by key."""
    verdict_bytes: bytes
    provenance_bytes: bytes


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReportError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _parse_document(data: bytes, *, form: str, where: Path) -> Mapping[str, Any]:
    """Parse a JSON object of a known format; numbers with a point stay exact decimals."""
    try:
        value = json.loads(data.decode("utf-8"), parse_float=Decimal, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ReportError(f"not a valid JSON document: {error}", where=str(where)) from error
    if not isinstance(value, dict) or value.get("format") != form:
        raise ReportError(f"not a document of format {form}", where=str(where))
    return value


_LINES_AT_ONCE = 4096


def _keys(table: Table, lines: Sequence[str]) -> Iterator[tuple[int | str, ...]]:
    """Yield what rows are sorted by: the values of their key, and all of their text.

    Rows that share a key (a fault that the verdict names) still get one order.
    """
    kinds = {column.name: column.kind for column in table.columns}
    for begin in range(0, len(lines), _LINES_AT_ONCE):
        some = lines[begin : begin + _LINES_AT_ONCE]
        columns = zip(table.key, columns_of(table, some, table.key), strict=True)
        values = [map(int, own) if kinds[name] is Kind.COUNT else own for name, own in columns]
        yield from zip(*values, some, strict=True)


_FORESEEN: dict[str, tuple[bytes, Sequence[Row]]] = {}
"""Bytes and rows of tables that were read ahead, by file name."""


def foresee(table: Table, where: Path) -> Sequence[Row] | None:
    """Read a table before it is asked for; None where there is none, or something is wrong with it."""
    try:
        data = _read_bytes(where)
        rows = _parse_rows(table, data, where=where)
    except ReportError:
        return None
    _FORESEEN[table.file] = (data, rows)
    return rows


def _parse_rows(table: Table, data: bytes, *, where: Path) -> Sequence[Row]:
    foreseen = _FORESEEN.pop(table.file, None)
    if foreseen is not None and foreseen[0] == data:
        return foreseen[1]
    rows, faults = parse_rows(table, data, str(where))
    if faults:
        raise ReportError(faults[0].what, where=f"{where}:{faults[0].line}")
    lines = texts(rows)
    if all(before <= after for before, after in pairwise(_keys(table, lines))):
        return rows
    # As they were collected they are sorted already.
    return [row for _, row in sorted(zip(_keys(table, lines), rows, strict=True), key=operator.itemgetter(0))]


def _check_belongs_together(source: Source, *, protocol_bytes: bytes, where: Path) -> None:
    """Refuse files of different campaigns, and a verdict that contradicts itself.

    Raises:
        ReportError: They do not belong together.
    """
    verdict, identity, provenance = source.verdict, source.identity, source.provenance
    protocol_sha256 = hashlib.sha256(protocol_bytes).hexdigest()
    pairs = (
        ("protocol.json", "protocol_sha256", protocol_sha256),
        ("identity.json", "manifest_sha256", identity.get("manifest_sha256")),
        ("identity.json", "baseline_sha256", identity.get("baseline_sha256")),
        ("identity.json", "candidate_sha256", identity.get("candidate_sha256")),
        ("provenance.json", "protocol_sha256", provenance.get("protocol_sha256")),
        ("provenance.json", "manifest_sha256", provenance.get("manifest_sha256")),
    )
    for file, field, found in pairs:
        if found != verdict.get(field):
            raise ReportError(f"its {field} is not the one of {file}: they do not belong together", where=str(where))
    counted = [gate for gate in verdict["gates"] if gate["finding"] != "not_evaluated"]
    qualified = bool(counted) and all(gate["outcome"] == "pass" for gate in counted)
    if (verdict["outcome"] == "pass") and not qualified:
        raise ReportError("the outcome is pass, but not every gate passes", where=str(where))


def read_source(*, protocol_path: Path, evaluation: Path) -> Source:
    """Read everything that one report is derived from.

    Args:
        protocol_path: The campaign's ``protocol.json``.
        evaluation: Folder with ``verdict.json``, ``provenance.json`` and ``evidence/``.

    Raises:
        ReportError: Something is missing, does not parse, or does not belong to the rest.
    """
    evidence = evaluation / "evidence"
    protocol_bytes = _read_bytes(protocol_path)
    verdict_bytes = _read_bytes(evaluation / "verdict.json")
    provenance_bytes = _read_bytes(evaluation / "provenance.json")
    identity_path = evidence / "identity.json"
    source = Source(
        protocol=_parse_document(protocol_bytes, form="protocol/1", where=protocol_path),
        verdict=_parse_document(verdict_bytes, form="verdict/1", where=evaluation / "verdict.json"),
        provenance=_parse_document(provenance_bytes, form="provenance/1", where=evaluation / "provenance.json"),
        identity=_parse_document(_read_bytes(identity_path), form="identity/1", where=identity_path),
        tables={
            table.file: _parse_rows(table, _read_bytes(evidence / table.file), where=evidence / table.file)
            for table in TABLES.values()
            if (evidence / table.file).exists()
        },
        verdict_bytes=verdict_bytes,
        provenance_bytes=provenance_bytes,
    )
    _check_belongs_together(source, protocol_bytes=protocol_bytes, where=evaluation / "verdict.json")
    return source
