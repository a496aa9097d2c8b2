from __future__ import annotations

import csv
import io
import math
from typing import Any

import pytest

from acceptance.formats import TABLES, Table, parse_table
from jobs.common.tables import table_bytes


def test_a_table_follows_its_header_and_floats_read_back_exactly() -> None:
    third = 1 / 3
    data = table_bytes(("b", "a", "flag"), [{"a": third, "b": "x", "flag": True}, {"flag": False, "b": "", "a": 7}])
    assert data == b"b,a,flag\nx,0.3333333333333333,true\n,7,false\n"
    assert float(next(csv.DictReader(io.StringIO(data.decode())))["a"]) == third


@pytest.mark.parametrize(
    "row", [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": math.nan, "b": 1}, {"a": "x,y", "b": 1}, {"a": "x\n", "b": 1}]
)
def test_a_row_that_does_not_fit_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        table_bytes(("a", "b"), [row])


@pytest.mark.parametrize("value", [10**18, -1, 1e-320, 10**18 - 1, 0, 1.7976931348623157e308])
def test_numbers_are_written_as_the_one_definition_of_the_tables_reads_them(value: float) -> None:
    name = "seconds" if isinstance(value, float) else "tokens"
    columns = tuple(column for column in TABLES["windows.csv"].columns if column.name == name)
    table = Table(file="t.csv", meaning="", columns=columns, key=())
    if value in (10**18, -1):
        with pytest.raises(ValueError, match="cannot stand in a table"):
            table_bytes((name,), [{name: value}])
        return
    rows, faults = parse_table(table, table_bytes((name,), [{name: value}]), "t.csv")
    assert (rows[0].values[name], faults) == (value, ())
