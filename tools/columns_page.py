"""Write the tables of columns in docs/formats.md from acceptance/formats.py, the one definition of them.

python -m tools.columns_page
"""

from __future__ import annotations

from pathlib import Path

from acceptance.formats import TABLES, TENSORS, Column, Table
from tools.marked import rewritten

PAGE = Path(__file__).resolve().parent.parent / "docs" / "formats.md"
PROGRAM = "tools/columns_page.py"


def _syntax(column: Column) -> str:
    words = [column.kind.value]
    if column.minimum:
        words.append(f"from {column.minimum}")
    if column.optional:
        words.append("or empty")
    if column.choices:
        words.append(f"one of {', '.join(f'`{choice}`' for choice in column.choices)}")
    return ", ".join(words)


def _table(table: Table) -> str:
    rows = [
        f"| {f'*`{column.name}`*' if column.name in table.key else f'`{column.name}`'} | {_syntax(column)} "
        f"| {column.meaning.replace('|', '&#124;')} |"
        for column in table.columns
    ]
    return "\n".join(
        (f"#### {table.file}", "", table.meaning, "", "| column | syntax | meaning |", "|---|---|---|", *rows)
    )


def columns() -> str:
    """Return what stands between the marks."""
    return "\n\n".join(map(_table, (*TABLES.values(), TENSORS))) + "\n"


def page(text: str) -> str:
    """Return the page with the tables written anew."""
    return rewritten(text, PROGRAM, columns())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
