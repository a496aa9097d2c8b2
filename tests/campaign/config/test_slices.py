from __future__ import annotations

from pathlib import Path

import pytest

from campaign.config import slices
from campaign.config.load import differing_tables, load_config, parse_config
from campaign.config.model import Config
from campaign.errors import ConfigError
from campaign.planning.matrix import expand

TEXT = """\
name = "whole"
baseline_first = false
[baseline]
source = "src"
adapter = "adapter:native"
python = "venv/bin/python"
[execution]
device = "cuda"
threads = 8
[matrix]
name = "{size}-b{batch}"
axes.size = ["20m", "50m"]
axes.batch = [4, 16]
fixed = { vocab = 16384, clip = 1 }
[convergence]
assumed_sd = "0.001"
assumed_sd_source = "a guess"
[[category]]
name = "small"
small_batch = { batch = [4] }
[[workload]]
name = "single"
production = true
config = { size = "20m", batch = 32 }
[[recipe]]
name = "first"
config = { size = "20m", batch = 2 }
targets = 1000
validation_targets = 10
updates = 10
[[recipe]]
name = "second"
config = { size = "20m", batch = 3 }
targets = 1000
validation_targets = 10
updates = 10
[slices.some]
workloads = ["20m-*", "single"]
recipes = ["sec*"]
set = { name = "some" }
[slices.cpu]
workloads = ["tiny-b4"]
recipes = []
[slices.cpu.set]
execution.device = "cpu"
matrix.axes.size = ["tiny"]
matrix.fixed.vocab = 256
"""
PATH = Path("/c/campaign.toml")


def parse(text: str, chosen: str | None = None) -> Config:
    raw = text.encode()
    return parse_config(raw if chosen is None else slices.put_before(raw, chosen), path=PATH)


def refuse(old: str, new: str, chosen: str = "cpu") -> ConfigError:
    assert old in TEXT
    with pytest.raises(ConfigError) as caught:
        parse(TEXT.replace(old, new, 1), chosen)
    return caught.value


def names(config: Config) -> tuple[str, ...]:
    return expand(config).names


def test_without_a_choice_the_file_is_whole() -> None:
    config = parse(TEXT)
    assert config.part is None
    assert names(config) == ("20m-b4", "20m-b16", "50m-b4", "50m-b16", "single", "first", "second")


def test_a_slice_holds_what_its_patterns_name_and_nothing_else() -> None:
    config = parse(TEXT, "some")
    assert config.name == "some"
    assert names(config) == ("20m-b4", "20m-b16", "single", "second")
    assert [category.workloads for category in expand(config).categories] == [("20m-b4",)]


def test_a_slice_sets_keys_one_by_one_and_leaves_those_beside_them() -> None:
    config = parse(TEXT, "cpu")
    assert names(config) == ("tiny-b4",)
    assert (config.execution.device, config.execution.threads) == ("cpu", 8)
    assert expand(config).workloads[0].config == {"size": "tiny", "batch": 4, "vocab": 256, "clip": 1}


def test_a_slice_without_recipes_declares_no_trainings() -> None:
    config = parse(TEXT, "cpu")
    assert config.convergence is None
    assert config.recipe == ()


def test_the_line_that_chooses_may_stand_in_the_file() -> None:
    assert names(parse('slice = "some"\n' + TEXT)) == names(parse(TEXT, "some"))


def test_what_is_read_with_an_option_is_the_file_with_one_more_line(tmp_path: Path) -> None:
    path = tmp_path / "campaign.toml"
    path.write_text(TEXT)
    config = load_config(path, "some")
    assert config.raw == b'slice = "some"\n' + TEXT.encode()
    assert parse_config(config.raw, path=path).slice == "some"
    path.write_bytes(config.raw)
    assert load_config(path, "some").raw == config.raw


def test_a_file_that_chooses_another_slice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "campaign.toml"
    path.write_text('slice = "cpu"\n' + TEXT)
    with pytest.raises(ConfigError, match="'some' is asked for, and the file chooses 'cpu'"):
        load_config(path, "some")


@pytest.mark.parametrize("in_file", [False, True])
def test_an_unknown_slice_is_refused_with_the_closest_name(tmp_path: Path, in_file: bool) -> None:
    path = tmp_path / "campaign.toml"
    path.write_text('slice = "sone"\n' + TEXT if in_file else TEXT)
    with pytest.raises(ConfigError, match="there is no slice 'sone'") as caught:
        load_config(path, None if in_file else "sone")
    assert "some" in caught.value.hint


def test_no_slice_is_found_where_slices_are_no_table(tmp_path: Path) -> None:
    path = tmp_path / "campaign.toml"
    path.write_text("slices = 5\n" + TEXT.partition("[slices")[0])
    with pytest.raises(ConfigError, match="there is no slice 'some'") as caught:
        load_config(path, "some")
    assert caught.value.hint == "none is declared"


def test_recipes_that_a_slice_names_must_be_there_even_if_the_file_has_none() -> None:
    start, _, end = TEXT.replace('assumed_sd = "0.001"\nassumed_sd_source = "a guess"\n', "").partition("[[recipe]]")
    without = start.replace("[convergence]\n", "") + "[slices" + end.partition("[slices")[2]
    with pytest.raises(ConfigError, match="no recipe is named 'sec"):
        parse(without, "some")
    assert names(parse(without.replace('recipes = ["sec*"]\n', ""), "some")) == ("20m-b4", "20m-b16", "single")


def test_two_slices_of_one_file_are_two_configurations() -> None:
    assert differing_tables(parse(TEXT, "some"), parse(TEXT, "some")) == ()
    differing = differing_tables(parse(TEXT, "some"), parse(TEXT, "cpu"))
    assert {"slice", "execution", "matrix", "convergence", "recipe"} <= set(differing)
    changed = TEXT.replace('recipes = ["sec*"]', 'recipes = ["*"]')
    assert differing_tables(parse(TEXT, "some"), parse(changed, "some")) == ("slices",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('workloads = ["tiny-b4"]', 'workloads = ["20m-b4"]', "no workload is named '20m-b4'"),
        ('workloads = ["tiny-b4"]', 'workloads = ["tiny-b4", "tony-*"]', "no workload is named 'tony-"),
        ('workloads = ["tiny-b4"]', "workloads = []", "the slice 'cpu' has no workloads"),
        ('workloads = ["tiny-b4"]', 'workloads = ["tiny-b16"]', "category 'small' has no workloads"),
        ("recipes = []", 'recipes = ["third"]', "no recipe is named 'third'"),
        ("matrix.fixed.vocab = 256", 'slices.x.workloads = ["*"]', "a slice cannot set 'slices'"),
        ("matrix.fixed.vocab = 256", 'slice = "some"', "a slice cannot set 'slice'"),
        ("matrix.fixed.vocab = 256", "matrix.fixt.vocab = 256", "unknown key 'fixt' in matrix"),
        ("recipes = []", "recipe = []", "unknown key 'recipe' in slices.cpu"),
    ],
)
def test_a_slice_that_cannot_be_is_refused(old: str, new: str, message: str) -> None:
    assert message in refuse(old, new).what


def test_a_slice_that_is_not_chosen_may_set_known_tables_only() -> None:
    assert "a slice cannot set 'executoin'" in refuse("execution.device", "executoin.device", "some").what


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('execution.device = "cpu"', 'execution.device = "cpo"'),
        ('matrix.axes.size = ["tiny"]', "matrix.axes.size = []"),
    ],
)
def test_an_error_about_what_a_slice_sets_points_there(tmp_path: Path, right: str, wrong: str) -> None:
    path, text = tmp_path / "campaign.toml", TEXT.replace(right, wrong)
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, "cpu")
    assert caught.value.where.startswith(f"{path}:{text.splitlines().index(wrong) + 1}:")


def test_an_error_about_what_a_slice_leaves_alone_points_at_the_files_own_line(tmp_path: Path) -> None:
    path = tmp_path / "campaign.toml"
    wrong = TEXT.replace("threads = 8", "threads = 0")
    path.write_text(wrong)
    with pytest.raises(ConfigError) as caught:
        load_config(path, "cpu")
    assert caught.value.where.startswith(f"{path}:{wrong.splitlines().index('threads = 0') + 1}:")
