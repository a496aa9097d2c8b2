"""Cells of tables in the page, most of which are written without a call of the macro for any cell."""

from __future__ import annotations

from itertools import product

import pytest

from reports.status import Mark
from reports.templating import html_environment
from reports.view import Cell, Table, columns, text

CELLS = [
    Cell(text="<t>", value=value, code=is_code, mark=mark, note=note)
    for value, is_code, mark, note in product((None, "", "1<2"), (False, True), (None, Mark.PASS), ("", "n&m"))
]


@pytest.mark.parametrize("is_long", [False, True])
def test_every_cell_of_a_table_is_written_as_the_macro_for_cells_writes_it(*, is_long: bool) -> None:
    macros = html_environment().get_template("macros.html.j2").module
    titles = [str(place) for place in range(len(CELLS) + 1)]
    row = (text("first"), *CELLS)
    table = Table(name="t", caption="c", columns=columns(*titles), rows=(row,), long=is_long)
    shown = str(macros.plain(table, ""))  # type: ignore[attr-defined] # a macro of the template
    cells = [part.partition("</td>")[0] for part in shown.split("<td>")[1:]]
    assert cells == [str(macros.content(cell, is_long)) for cell in CELLS]  # type: ignore[attr-defined] # as above
