from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.config.locate import KeyPath, Position, locate

ROOT = Path(__file__).parents[3]

DOCUMENTS = [
    "",
    "# only a comment",
    "a = 1",
    "a = 1 # = b\n# c = 2\nb = 2",
    'a.b."c.d" = 1\na.b.e = 2',
    '\'lit eral\' = 1\n"q\\"uo\\u0074e" = 2',
    "[a]\nb = 1\n[a.c]\nd = 2\n[ e . f ]\ng = 3",
    "[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\nd = 3\n[[a.e]]\nf = 4\n[[a.e]]\nf = 5",
    'a = [1, [2, 3], { b = 4, c = [5] }, "]", \'}\',\n  # comment, with ] and "\n  6,\n]\nz = 1',
    "a = { b = 1, c.d = 2, e = { f = [ { g = 3 } ] } }",
    'a = """\n[no]\nb = "2"\n\\"""still""""\nb = 1',
    "a = '''\nb = 1\n''\n'''\nc = 1",
    'a = "# no [comment] \\" = x"\nb = 2',
    "a = 1979-05-27 07:32:00\nb = 07:32:00\nc = -1_000.5e+3\nd = inf\ne = true",
    "a = 1\r\n[b]\r\nc = [\r\n  1,\r\n]\r\n",
    "a=[]\nb={}\nc=[[],{}]",
]


def paths_of(value: Any, path: KeyPath = ()) -> set[KeyPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return set().union(*({(*path, key)} | paths_of(item, (*path, key)) for key, item in items))


@pytest.mark.parametrize("text", DOCUMENTS)
def test_every_key_of_the_document_is_found_and_nothing_else(text: str) -> None:
    assert set(locate(text).offsets) == paths_of(tomllib.loads(text))


@pytest.mark.parametrize(
    "file", ["examples/gh200-backend/campaign.toml", "templates/init/campaign.toml", "pyproject.toml"]
)
def test_every_key_of_a_real_file_is_found(file: str) -> None:
    text = (ROOT / file).read_text()
    assert set(locate(text).offsets) == paths_of(tomllib.loads(text))


def test_positions_are_line_and_column_of_the_key() -> None:
    places = locate('name = "x"\n\n[[workload]]\nname = "a"\n[[workload]]\n  config = { x = 1, yy = [1, { z = 2 }] }\n')
    assert places.find(("name",)) == Position(1, 1)
    assert places.find(("workload", 0)) == Position(3, 1)
    assert places.find(("workload", 1)) == Position(5, 1)
    assert places.find(("workload", 1, "config")) == Position(6, 3)
    assert places.find(("workload", 1, "config", "yy")) == Position(6, 21)
    assert places.find(("workload", 1, "config", "yy", 1, "z")) == Position(6, 32)


def test_an_absent_key_is_placed_at_the_table_around_it() -> None:
    places = locate("\n[a]\nb = 1\n")
    assert places.find(("a", "missing", "deeper")) == Position(2, 1)
    assert places.find(("nowhere",)) == Position(1, 1)


SCALARS = st.sampled_from(["1", "true", '"x"', "'[a]'", '"# {"', '"""\n[b]\nc = 1"""', "1.5", "1979-05-27T07:32:00Z"])
KEYS = st.sampled_from(["a", "b", "c-d", '"e f"', "'g.h'"])


def _table(pairs: dict[str, str]) -> str:
    return "{ " + ", ".join(f"{key} = {value}" for key, value in pairs.items()) + " }"


VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ",\n ".join(items) + "]")
        | st.dictionaries(KEYS, inner, max_size=3).map(_table)
    ),
    max_leaves=6,
)
BODIES = st.dictionaries(KEYS, VALUES, max_size=3).map(
    lambda pairs: "".join(f"{key} = {value} # note\n" for key, value in pairs.items())
)


@given(BODIES, st.dictionaries(KEYS, st.lists(BODIES, min_size=1, max_size=3), max_size=3))
def test_any_document_is_located_in_full(top: str, tables: dict[str, list[str]]) -> None:
    text = top + "".join(f"[[t.{key}]]\n{body}" for key, bodies in tables.items() for body in bodies)
    assert set(locate(text).offsets) == paths_of(tomllib.loads(text))
