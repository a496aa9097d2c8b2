from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel

from campaign import documents
from campaign.config import model
from campaign.config.load import parse_config
from campaign.config.reference import keys_text, replace_keys, schema, schema_text
from campaign.planning.matrix import expand
from campaign.planning.protocol import build_protocol

DOCS = Path(__file__).parents[3] / "docs"
Golden = Callable[[Path, bytes], None]


def test_golden_schema_is_the_models(golden: Golden) -> None:
    golden(DOCS / "campaign.schema.json", schema_text().encode())


def test_golden_table_of_keys_is_the_models(golden: Golden) -> None:
    page = DOCS / "config.md"
    golden(page, replace_keys(page.read_text()).encode())


def test_every_key_of_every_table_is_documented() -> None:
    text = keys_text()
    tables = [item for item in vars(model).values() if isinstance(item, type) and issubclass(item, BaseModel)]
    keys = {key for table in tables if table.__module__ == model.__name__ for key in table.model_fields}
    keys -= {"path", "raw", "num_added_lines"} | set(model.CampaignFile.model_fields)
    assert len(keys) > 50
    assert [key for key in sorted(keys) if f"| `{key}` |" not in text] == []


def test_a_page_without_marks_is_not_written() -> None:
    with pytest.raises(ValueError, match="lacks"):
        replace_keys("# campaign.toml")


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    parts = [schema(), *schema()["$defs"].values()]
    objects = [part for part in parts if part.get("type") == "object"]
    assert len(objects) > 12
    assert all(part["additionalProperties"] is False for part in objects)
    assert not {"path", "raw", "num_added_lines"} & set(schema()["properties"])


@pytest.mark.parametrize(
    ("table", "document", "beside"),
    [
        (model.Throughput, documents.ThroughputRules, []),
        (model.Limits, documents.Limits, []),
        (model.Retries, documents.Retries, []),
        (model.Execution, documents.Execution, ["login_node"]),
    ],
)
def test_tables_of_rules_are_the_protocols_with_its_defaults(
    table: type[BaseModel], document: type[documents.Document], beside: list[str]
) -> None:
    assert list(table.model_fields) == [*document.defaults(), *beside]
    assert document.of({name: value for name, value in dict(table()).items() if name not in beside}) == document()


def snippet(words: str) -> str:
    """Return the one example of the page that has these words."""
    examples = [part.partition("```")[0] for part in (DOCS / "config.md").read_text().split("```toml\n")[1:]]
    (found,) = [example for example in examples if words in example]
    return found


REMAINDER = "accumulation-remainder"
SIDES = 'name = "x"\n[baseline]\nsource = "."\nadapter = "a:b"\npython = "./python"\n'


def test_the_matrix_in_the_page_is_a_matrix() -> None:
    expansion = expand(parse_config((SIDES + snippet("[matrix]")).encode(), path=Path("/c/campaign.toml")))
    assert len(expansion.workloads) == 2 * 2 * 2 * 2 - 4 + 1
    assert expansion.categories[0].workloads[-1] == REMAINDER


def test_the_axis_of_processes_in_the_page_is_one() -> None:
    axis = f"[matrix]\naxes.batch = [4]\nproduction = ['4-p1']\n{snippet('axes.ranks')}"
    expansion = expand(parse_config((SIDES + axis).encode(), path=Path("/c/campaign.toml")))
    found = {one.name: (one.topology, one.numerical, one.config) for one in expansion.workloads}
    assert found == {"4-p1": ((1, 1), True, {"batch": 4}), "4-p8": ((2, 8), False, {"batch": 4})}


def test_the_slice_in_the_page_is_one_of_the_matrix_in_it() -> None:
    text = 'slice = "short"\n' + SIDES + snippet("[matrix]") + snippet("[slices.short]")
    config = parse_config(text.encode(), path=Path("/c/campaign.toml"))
    assert (config.name, config.throughput.repeats) == ("demo-short", 2)
    names = [one.name for one in expand(config).workloads]
    assert names == [*(f"20m-sync-b{batch}-clip{clip}" for batch in (4, 16) for clip in ("1", "off")), REMAINDER]


def test_the_container_in_the_page_is_one_of_a_candidate() -> None:
    container = snippet("[candidate]").replace("[candidate]", '[candidate]\nsource = "."\nadapter = "a:c"')
    text = SIDES + container + snippet("[matrix]")
    side = parse_config(text.encode(), path=Path("/c/campaign.toml")).candidate
    assert side is not None
    assert side.container == Path("/c/images/trainer.sif")
    assert "${container}" in side.launch


def test_the_recipe_in_the_page_is_a_recipe_beside_the_matrix() -> None:
    text = SIDES + snippet("[matrix]") + snippet("[convergence]")
    config = parse_config(text.encode(), path=Path("/c/campaign.toml"))
    protocol = build_protocol(config)
    assert protocol.convergence is not None
    (recipe,) = protocol.convergence.recipes
    assert recipe.config["context"] == 512
    assert recipe.targets == recipe.updates * 16 * 4 * 1024
    assert len(protocol.extension_runs()) == 6
