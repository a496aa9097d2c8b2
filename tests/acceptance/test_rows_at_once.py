"""The fast way to parse a whole table takes what the slow one takes, and makes the same rows of it."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptance import formats
from acceptance.formats import TABLES, TENSORS, Column, Kind, Row, Table, parse_rows, parse_table

_NUMBERS = ("0", "1", "12", "-1", "007", "1.5", "1e5", "1e-300", "1e999", "-0.25", "nan", "")
_WORDS = ("w", "a b", "candidate", "control", "baseline", "baseline_again", "completed", "true", "False", "\u00e9", "")
FIELDS = st.sampled_from([*_NUMBERS, *_WORDS, 'q"', "\u2028", "\x7f"])


def right(column: Column) -> str:
    """Return a field of a column."""
    if column.choices:
        return column.choices[-1]
    return {Kind.TEXT: "text", Kind.COUNT: "3", Kind.DECIMAL: "-2.5e-3", Kind.FLAG: "true"}[column.kind]


def whole(table: Table, *lines: list[str]) -> bytes:
    return "".join(f"{','.join(fields)}\n" for fields in (list(table.header), *lines)).encode()


def both(table: Table, data: bytes) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Parse both ways, compare, and return the rows."""
    fast, fast_faults = parse_rows(table, data, "t")
    slow, slow_faults = formats._parse_slowly(table, data, "t")
    assert fast_faults == slow_faults
    assert list(fast) == list(slow)
    return tuple(fast), slow


@pytest.mark.parametrize("table", [*TABLES.values(), TENSORS], ids=lambda table: table.file)
def test_a_right_table_is_taken_at_once(table: Table) -> None:
    line = [right(column) for column in table.columns]
    empty = ["" if column.optional else right(column) for column in table.columns]
    rows, _ = parse_rows(table, whole(table, line, empty), "t")
    assert isinstance(rows, formats.Rows)
    assert both(table, whole(table, line, empty))[0] == parse_table(table, whole(table, line, empty), "t")[0]
    assert rows[-1] == rows[1] == rows[0:2][1]
    assert isinstance(parse_rows(table, whole(table), "t")[0], formats.Rows)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_field_is_taken_or_refused_alike(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from([*TABLES.values(), TENSORS]))
    line = [right(column) for column in table.columns]
    for place in data.draw(st.lists(st.integers(0, len(line) - 1), max_size=3)):
        line[place] = data.draw(FIELDS)
    both(table, whole(table, [right(column) for column in table.columns], line))


@settings(max_examples=300, deadline=None)
@given(cut=st.integers(0, 200), put=st.binary(max_size=3), length=st.integers(0, 3))
def test_any_bytes_are_taken_or_refused_alike(cut: int, put: bytes, length: int) -> None:
    table = TABLES["windows.csv"]
    data = whole(table, *[[right(column) for column in table.columns]] * 2)
    both(table, data[:cut] + put + data[cut + length :])


def test_columns_are_those_that_are_asked_for_and_lines_of_other_widths_are_refused() -> None:
    table = TABLES["curves.csv"]
    lines = [",".join(f"{name}{number}" for name in table.header) for number in range(3)]
    columns = [[f"{name}{number}" for number in range(3)] for name in table.header]
    assert formats.columns_of(table, lines) == columns
    assert formats.columns_of(table, lines, table.header[::-2]) == columns[::-2]
    assert formats.columns_of(table, []) == [[]] * len(table.header)
    for wrong in ("", "x", f"{lines[0]},x"):
        with pytest.raises(ValueError, match=f"fields in 4 lines of {table.file}"):
            formats.columns_of(table, [*lines, wrong])


def test_numbers_that_the_fast_way_is_not_sure_of_are_left_to_the_slow_one() -> None:
    table = TABLES["curves.csv"]
    line = ["r", "1", "baseline", "1", "1", "1", "1e-300"]
    rows, faults = parse_rows(table, whole(table, line), "t")
    assert faults == ()
    assert not isinstance(rows, formats.Rows)
    assert list(chain.from_iterable(row.values.values() for row in rows))[-1] == 1e-300
