"""What a report says of platforms: a mix is told first, and whether anybody had declared it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.platforms import platform_table, sentence
from tests.reports.evaluations import report_of, write_evaluation
from tests.support.evidence import make_campaign

ONE: dict[str, Any] = {
    "cpu": "Test CPU",
    "machine": "x86_64",
    "kernel": "6.1",
    "memory_bytes": 8 << 30,
    "processors": 4,
    "threads": 2,
    "devices": [{"kind": "cuda", "name": "GPU", "driver": "535"}] * 2,
    "attempts": 1200,
    "first": "baseline/pilot/w/1",
    "is_declared": True,
}
SECOND = ONE | {"kernel": "6.2", "attempts": 3, "first": "c0/pair/w/r1/2"}


@pytest.mark.parametrize("provenance", [{}, {"platforms": None}, {"platforms": []}, {"platforms": [ONE]}])
def test_one_platform_is_no_news(provenance: dict[str, Any]) -> None:
    assert sentence(provenance) == ""


def test_a_declared_mix_is_told_as_strata() -> None:
    assert sentence({"platforms": [ONE, SECOND]}) == (
        "The completed attempts of this campaign ran on 2 platforms, as amendments had declared before each was used: "
        "their results are of different strata."
    )


def test_an_undeclared_mix_is_told_with_its_first_attempt_and_what_follows() -> None:
    said = sentence({"platforms": [ONE, SECOND | {"is_declared": False}]})
    assert (
        "ran on 2 platforms, and no amendment had declared 1 of them before it was used (3 attempts, the first" in said
    )
    assert "c0/pair/w/r1/2): the campaign cannot be closed like that" in said


def test_the_table_has_a_row_for_each_and_older_provenance_has_none() -> None:
    assert platform_table({}) is None
    table = platform_table({"platforms": [ONE, SECOND, SECOND | {"is_declared": False}]})
    assert table is not None
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows[0] == [
        "Test CPU", "x86_64", "6.1", "8.0 GiB", "4", "2", "2 x GPU, driver 535", "1,200", "baseline/pilot/w/1",
        "the first needs none",
    ]  # fmt: skip
    assert [row[-1] for row in rows[1:]] == ["yes", "no"]


def test_both_pages_show_a_mix_and_the_table(tmp_path: Path) -> None:
    report = report_of(write_evaluation(make_campaign(tmp_path), platforms=[ONE, SECOND | {"is_declared": False}]))
    for name in ("report.html", "report.md"):
        text = (report / name).read_text()
        assert "ran on 2 platforms, and no amendment had declared 1 of them" in text
        assert "Platforms of the completed attempts, all sides" in text
