"""What a page does with more than anybody reads: it is cut, says so, and leaves nothing out of the downloads."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from acceptance.formats import TABLES, texts
from reports import templating, throughput
from reports.downloads import _evidence_csv
from reports.source import _parse_rows
from reports.view import MOST_ROWS, Table, columns, text


def table(num_rows: int) -> Table:
    return Table(
        name="long",
        caption="All of it",
        columns=columns("Name", "Value"),
        rows=tuple((text(f"row {number}"), text("x")) for number in range(num_rows)),
        long=True,
        file="all.csv",
    )


def show(shown: Table) -> str:
    macros = templating.html_environment().get_template("macros.html.j2")
    return str(getattr(macros.module, "show")(shown))  # noqa: B009 - made by the template


def test_an_auditors_table_is_cut_and_says_where_the_rest_is() -> None:
    page = show(table(MOST_ROWS + 3))
    assert f"row {MOST_ROWS - 1}<" in page
    assert f"row {MOST_ROWS}<" not in page
    assert f'the first {MOST_ROWS} rows; 3 more are in <a href="all.csv">' in page
    assert f"All of it ({MOST_ROWS + 3})" in page


def test_a_table_is_whole_where_it_is_short_open_or_in_no_download() -> None:
    long = table(MOST_ROWS + 3)
    assert "more are in" not in show(table(MOST_ROWS))
    for whole in (replace(long, long=False), replace(long, file="")):
        assert len(whole.shown) == MOST_ROWS + 3
        assert "more are in" not in show(whole)


def test_a_plot_of_many_workloads_shows_the_lowest_and_says_so() -> None:
    most = throughput.MOST_PLOTTED
    ratios = {f"w{number}": {1: Decimal(2), 2: Decimal(most + 5 - number)} for number in range(most + 5)}
    ratios["missing"] = {}
    plotted = throughput._plotted(ratios)
    assert len(plotted) == most
    assert {"missing", f"w{most + 4}"} <= plotted.keys()
    assert f"{most} of {len(ratios)} workloads" in throughput._with_plotted("First.", ratios)
    assert throughput._plotted(plotted) is plotted
    assert throughput._with_plotted("First.", plotted) == "First."


def test_rows_come_sorted_by_the_values_of_their_key_whatever_their_order() -> None:
    curves = TABLES["curves.csv"]
    lines = [f"r,{seed},baseline,1,{update},64,2.5" for seed in (7, 45) for update in (5, 9, 10, 100)]
    for given in (lines, lines[::-1]):
        data = "\n".join([",".join(curves.header), *given, ""]).encode()
        assert list(texts(_parse_rows(curves, data, where=Path("x")))) == lines


def test_a_download_guards_the_one_cell_that_may_be_taken_for_a_formula() -> None:
    curves = TABLES["curves.csv"]
    lines = ["=r,7,baseline,1,5,64,-2.5", "r,7,baseline,1,5,64,-2.5", "s =b,7,baseline,1,5,64,1"]
    data = "\n".join([",".join(curves.header), *lines, ""]).encode()
    rows = _parse_rows(curves, data, where=Path("x"))
    assert _evidence_csv(curves, rows) == data.replace(b"=r", b"'=r")
    plain = data.replace(b"=r", b"s").replace(b"a =b", b"t").replace(b"-", b"")
    assert _evidence_csv(curves, _parse_rows(curves, plain, where=Path("x"))).count(b"'") == 0
