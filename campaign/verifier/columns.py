"""The evidence tables: their columns, what each holds, and their order. A copy of its own, held to formats by a test.

The protocol says which tables a campaign has, and their headers; a table that is not known here cannot be checked.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import names
from .findings import EvidenceError


class Kind(enum.StrEnum):
    """What a column holds."""

    TEXT = "t"
    COUNT = "n"
    DECIMAL = "d"
    FLAG = "f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One evidence table."""

    columns: Mapping[str, Kind]
    """In the order of the file."""
    key: tuple[str, ...]
    """By which its rows are sorted."""

    @property
    def header(self) -> str:
        """The first line of its file."""
        return ",".join(self.columns)


def _table(columns: str, key: str) -> Table:
    pairs = [column.split(":") for column in columns.split()]
    return Table(columns={name: Kind(kind) for name, kind in pairs}, key=tuple(key.split()))


ATTEMPTS = "attempts.csv"
_MEASURED = (
    " allocation:t node:t device:t warmup_updates:n updates:n tokens:n startup_s:d train_s:d elapsed_s:d"
    " peak_allocated_bytes:n peak_reserved_bytes:n tokens_per_s:d"
)
_PAIR = "workload comparison repeat pair side attempt"
_RUN = "recipe:t seed:n side:t attempt:n"

TABLES: Mapping[str, Table] = {
    ATTEMPTS: _table(
        "slot:t attempt:n allocation:t node:t device:t baseline_path:t candidate_path:t ending:t sealed:f",
        "slot attempt",
    ),
    "pairs.csv": _table(
        "workload:t comparison:t category:t production:f repeat:n pair:n position:n side:t attempt:n" + _MEASURED,
        _PAIR,
    ),
    "windows.csv": _table(
        "workload:t comparison:t repeat:n pair:n side:t attempt:n window:n updates:n microbatches:n skipped_updates:n"
        " tokens:n seconds:d",
        _PAIR + " window",
    ),
    "baseline.csv": _table(
        "workload:t category:t production:f repeat:n attempt:n" + _MEASURED, "workload repeat attempt"
    ),
    "numerical.csv": _table(
        "workload:t comparison:t attempt:n update:n worker:n quantity:t reference:d value:d rel_l2:d worst_tensor:t"
        " worst_rel_l2:d nonfinite:n executor:t serialized:f",
        "workload comparison attempt update worker quantity",
    ),
    "vacuity.csv": _table(
        "workload:t attempt:n mutation:t update:n worker:n quantity:t rel_l2:d",
        "workload attempt mutation update worker quantity",
    ),
    "convergence.csv": _table(
        _RUN + " final_loss:d target_tokens:n validation_tokens:n updates:n segments:n train_s:d elapsed_s:d"
        " checkpoint_sha256:t",
        "recipe seed side attempt",
    ),
    "curves.csv": _table(_RUN + " update:n tokens:n validation_loss:d", "recipe seed side attempt update"),
}
"""By file name."""

_COUNT = re.compile(r"0|[1-9][0-9]{0,17}")


def known(file: str) -> Table:
    """Return a table by its file's name.

    Raises:
        EvidenceError: This verifier knows none.
    """
    table = TABLES.get(file)
    if table is None:
        raise EvidenceError(names.PROTOCOL, f"has a table {file!r}, which this verifier does not know")
    return table


def lines_of(file: str, data: bytes, where: str) -> list[str]:
    """Return the rows of a table as text.

    Args:
        file: Its name among the evidence.
        data: The bytes of the file.
        where: The file, relative to the home.

    Raises:
        EvidenceError: They are not a table of this name; whether each field is right is for acceptance to say.
    """
    table = known(file)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EvidenceError(where, f"is not UTF-8: {error}") from error
    header, *lines = text.split("\n")
    if header != table.header:
        raise EvidenceError(f"{where}:1", f"has the header {header[:200]!r}, the protocol says {table.header!r}")
    if not lines or lines.pop():
        raise EvidenceError(f"{where}:{text.count(chr(10)) + 1}", "ends without a newline: something is cut off")
    width = len(table.columns)
    for number, line in enumerate(lines, start=2):
        if line.count(",") != width - 1:
            raise EvidenceError(f"{where}:{number}", f"has {line.count(',') + 1} fields, the header has {width}")
    return lines


def sort_lines(file: str, lines: Iterable[str]) -> list[str]:
    """Return rows in the order of an evidence file: by key, counts by their value, and then by their text.

    Raises:
        EvidenceError: A count of a key is none.
    """
    table = known(file)
    places = [(list(table.columns).index(name), table.columns[name] is Kind.COUNT) for name in table.key]

    def key(line: str) -> tuple[list[str | int], str]:
        fields = line.split(",")
        return [_count(fields[place], file, line) if counts else fields[place] for place, counts in places], line

    return sorted(lines, key=key)


def sort_for_digest(file: str, lines: Iterable[str]) -> list[str]:
    """Return rows in the order of the digest of the evidence: by the texts of their key, and then by their text."""
    table = known(file)
    places = [list(table.columns).index(name) for name in table.key]

    def key(line: str) -> tuple[list[str], str]:
        fields = line.split(",")
        return [fields[place] for place in places], line

    return sorted(lines, key=key)


def to_bytes(file: str, lines: Iterable[str]) -> bytes:
    """Return a table's file."""
    return "".join(f"{line}\n" for line in (known(file).header, *lines)).encode("utf-8")


def _count(text: str, file: str, line: str) -> int:
    if _COUNT.fullmatch(text) is None:
        raise EvidenceError(file, f"has a row with {text!r} where a count should be: {line[:200]}")
    return int(text)
