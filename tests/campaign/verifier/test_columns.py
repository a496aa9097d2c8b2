from __future__ import annotations

import pytest

from acceptance import formats
from campaign.verifier import columns
from campaign.verifier.findings import EvidenceError

KINDS = {
    formats.Kind.TEXT: columns.Kind.TEXT,
    formats.Kind.COUNT: columns.Kind.COUNT,
    formats.Kind.DECIMAL: columns.Kind.DECIMAL,
    formats.Kind.FLAG: columns.Kind.FLAG,
}


def test_the_tables_are_those_of_the_formats() -> None:
    theirs = {
        file: ({column.name: KINDS[column.kind] for column in table.columns}, table.key)
        for file, table in formats.TABLES.items()
    }
    assert {file: (dict(table.columns), table.key) for file, table in columns.TABLES.items()} == theirs
    for file, table in formats.TABLES.items():
        assert columns.TABLES[file].header == ",".join(table.header)


def test_counts_are_sorted_by_value_and_texts_by_their_letters() -> None:
    lines = [f"{recipe},{seed},baseline,1,10,100,2.5" for recipe, seed in (("b", 9), ("a", 10), ("a", 9), ("B", 1))]
    found = columns.sort_lines("curves.csv", lines)
    assert [line.split(",")[:2] for line in found] == [["B", "1"], ["a", "9"], ["a", "10"], ["b", "9"]]
    digest = columns.sort_for_digest("curves.csv", lines)
    assert [line.split(",")[:2] for line in digest] == [["B", "1"], ["a", "10"], ["a", "9"], ["b", "9"]]


HEADER = ",".join(formats.CURVES.header)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (f"{HEADER}\na,1,baseline,1,1,1,2.0".encode(), "without a newline"),
        (HEADER.encode(), "without a newline"),
        (b"", "has the header ''"),
        (f"{HEADER},more\n".encode(), "the protocol says"),
        (f"{HEADER}\na,1,baseline,1,1,1\n".encode(), "curves.csv:2: has 6 fields"),
        (f"{HEADER}\n\n".encode(), "curves.csv:2: has 1 fields"),
        (f"{HEADER}\n\xff\n".encode("latin-1"), "not UTF-8"),
    ],
)
def test_bytes_that_are_no_table_are_named_with_their_line(data: bytes, why: str) -> None:
    with pytest.raises(EvidenceError, match=why):
        columns.lines_of("curves.csv", data, "curves.csv")


def test_a_count_that_is_none_and_a_table_that_is_not_known_are_refused() -> None:
    with pytest.raises(EvidenceError, match="'01' where a count"):
        columns.sort_lines("curves.csv", ["a,01,baseline,1,1,1,2.0"])
    with pytest.raises(EvidenceError, match=r"device\.csv"):
        columns.known("device.csv")
