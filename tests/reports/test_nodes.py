from __future__ import annotations

from typing import Any

from reports.nodes import node_table

NODE: dict[str, Any] = {
    "node": "n1", "allocations": 3, "completed": 2, "endings": {}, "excluded": "", "excluded_seq": 0,
}  # fmt: skip


def test_every_node_is_listed_with_what_ended_there_and_why_it_got_no_more_jobs() -> None:
    broken = {
        **NODE, "node": "n2", "completed": 0, "endings": {"lost": 1, "node_fail": 2}, "excluded": "it failed",
        "excluded_seq": 17,
    }  # fmt: skip
    table = node_table({"node_records": [NODE, broken]})
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["n1", "3", "2", "none", "never kept out"],
        ["n2", "3", "0", "1 lost, 2 node fail", "ledger entry 17"],
    ]
    assert table.rows[1][4].note == "it failed"


def test_provenance_of_before_has_no_such_table() -> None:
    assert node_table({}) is None
    assert node_table({"node_records": None}) is None
