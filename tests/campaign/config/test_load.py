from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.config.load import differing_tables, load_config, parse_config
from campaign.config.model import Config
from campaign.documents import NumericalRules
from campaign.errors import ConfigError

BASE = """\
name = "demo"
[baseline]
source = "src"
adapter = "adapter:native"
python = "venv/bin/python"
environment = { DATA = "${data.plays}/train" }
[data.plays]
path = "corpus"
[throughput]
window_s = 0.30
windows = 3
[matrix]
name = "{size}-{mode}-b{batch}"
axes.size = ["20m", "50m"]
axes.mode = [{ label = "sync", mode = "sync", workers = 1 }, { label = "packed4", mode = "packed", workers = 4 }]
axes.batch = [4, 16]
fixed = { vocab = 256 }
[[category]]
name = "sync"
mode = "sync"
small_batch = { batch = [4] }
[[workload]]
name = "single"
production = true
config = { size = "20m", rate = 1e-3 }
"""
PATH = Path("/campaigns/demo/campaign.toml")


def parse(text: str) -> Config:
    return parse_config(text.encode(), path=PATH)


def refuse(old: str, new: str) -> ConfigError:
    assert old in BASE
    with pytest.raises(ConfigError) as caught:
        parse(BASE.replace(old, new, 1))
    return caught.value


def test_a_valid_file_loads_with_absolute_paths_and_its_own_bytes() -> None:
    config = parse(BASE)
    assert config.baseline.source == Path("/campaigns/demo/src")
    assert config.baseline.python == Path("/campaigns/demo/venv/bin/python")
    assert config.data["plays"].path == Path("/campaigns/demo/corpus")
    assert config.path == PATH
    assert config.raw == BASE.encode()
    assert config.harness_python == config.baseline.python
    assert config.candidate is None


def test_relative_paths_do_not_follow_the_interpreters_link(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to("/usr/bin/env")
    (tmp_path / "campaign.toml").write_text(BASE.replace("venv/bin/python", "./python"))
    assert load_config(tmp_path / "campaign.toml").baseline.python == tmp_path.resolve() / "python"


def test_a_linked_file_is_read_from_the_folder_of_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "one.toml").write_text(BASE)
    (tmp_path / "campaign.toml").symlink_to("real/one.toml")
    assert load_config(tmp_path / "campaign.toml").baseline.source == tmp_path.resolve() / "src"


def test_numbers_that_decide_keep_their_exact_text() -> None:
    assert parse(BASE).throughput.window_s == "0.30"
    text = BASE.replace(
        "window_s = 0.30", 'window_s = "0.250"\ncategory_threshold = 1.0500000000000000001\nwindow_margin = 2'
    )
    rules = parse(text).throughput
    assert (rules.window_s, rules.category_threshold, rules.window_margin) == ("0.250", "1.0500000000000000001", "2")


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("windows = 3", "window = 3", "11:1", "unknown key 'window' in throughput"),
        ("production = true", "produktion = true", "24:1", "unknown key 'produktion'"),
        ("[throughput]", "[thruput]", "9:1", "unknown key 'thruput'"),
        ('name = "demo"', 'name = "demo"\nraw = "x"', "2:1", "unknown key 'raw'"),
        ('name = "demo"', 'name = "Demo"', "1:1", "not a safe name"),
        ('name = "single"', 'name = "../single"', "23:1", "not a safe name"),
        ('name = "single"', 'name = ""', "23:1", "not a safe name"),
        ('name = "single"', f'name = "{"x" * 101}"', "23:1", "more than 100 characters"),
        ("[data.plays]", '[data."a b"]', "7:1", "not a safe name"),
        ("windows = 3", "windows = 0", "11:1", "greater than or equal to 1"),
        ("windows = 3", "windows = true", "11:1", "valid integer"),
        ("windows = 3", "windows = 3.0", "11:1", "valid integer"),
        ("windows = 3", 'windows = "3"', "11:1", "valid integer"),
        ("windows = 3", "repeats = 0", "11:1", "greater than or equal to 1"),
        ("0.30", "nan", "10:1", "finite decimal"),
        ("0.30", "inf", "10:1", "finite decimal"),
        ("0.30", "1e999", "10:1", "finite decimal"),
        ("0.30", '"1_000"', "10:1", "finite decimal"),
        ("0.30", '" 1"', "10:1", "finite decimal"),
        ("0.30", "true", "10:1", "decimal number"),
        ("0.30", "0", "10:1", "above 0"),
        ("0.30", "-0.1", "10:1", "above 0"),
        ("windows = 3", "category_threshold = 0.0", "11:1", "above 0"),
        ("windows = 3", "window_margin = 0.99", "11:1", "from 1"),
        ("windows = 3", "clock_relative = 1.0", "11:1", "below 1"),
        ("windows = 3", "pairs_per_repeat = 3", "11:1", "1 or even"),
        ('adapter = "adapter:native"\n', "", "2:1", "baseline.adapter is missing"),
        ('adapter = "adapter:native"', 'adaptor = "adapter:native"', "4:1", "unknown key 'adaptor'"),
        ("adapter:native", "adapter.native", "4:1", "module:function"),
        ('"venv/bin/python"', '"python3"', "5:1", "path to an interpreter"),
        ("${data.plays}", "${data.play}", "6:17", "no data set 'play'"),
        ("${data.plays}", "${HOME}", "6:17", "no reference"),
        ("${data.plays}/train", "${data.plays", "6:17", "no reference"),
        ("{ DATA", "{ PYTHONPATH", "6:17", "python_path"),
        ("{ DATA", "{ OMP_NUM_THREADS", "6:17", "set threads in [execution]"),
        ("[data.plays]", 'pass_environment = ["A", "CUDA_VISIBLE_DEVICES"]\n[data.plays]', "7:26", "may not be set"),
        ("{ DATA", '{ "A=B"', "6:17", "environment variable"),
        ("[data.plays]", 'pass_environment = ["DATA"]\n[data.plays]', "6:17", "both set and passed"),
        ("[data.plays]", 'python_path = ["../x"]\n[data.plays]', "7:16", "below the source"),
        ("[data.plays]", 'include = ["/tmp/*.so"]\n[data.plays]', "7:12", "below the source"),
        ("windows = 3", "solo = false\ncontrols = false", "1:1", "wait for nothing"),
        ('"demo"', '"demo"\nbaseline_first = 1', "2:1", "valid boolean"),
        ("[throughput]", '[retries]\nagain = ["nodefail"]\n[throughput]', "10:10", "retries.again"),
        ("[throughput]", '[retries]\nagain = ["completed"]\n[throughput]', "10:10", "completed is never tried again"),
        ("[throughput]", '[retries]\nagain = ["lost", "crash"]\n[throughput]', "10:18", "crash is never tried again"),
        ("[throughput]", '[retries]\nagain_once = ["non_finite"]\n[throughput]', "10:15", "retries.again_once[1]"),
        ("[throughput]", '[retries]\nagain = ["lost", "lost"]\n[throughput]', "10:18", "stands twice in again"),
        ("windows = 3", "warmup_updates = 1000000001", "11:1", "less than or equal to"),
        ("windows = 3", 'pilot_s = "0.' + "1" * 65 + '"', "11:1", "finite decimal"),
        ('[[category]]\nname = "sync"', '[[category]]\nname = "evidence"', "19:1", "cannot be the name of a category"),
        ("[throughput]", '[retries]\nagain_once = ["lost"]\n[throughput]', "10:1", "both again and again_once"),
        ("[throughput]", "[convergence]\n[throughput]", "9:1", "without a recipe"),
        ('config = { size = "20m", rate = 1e-3 }', "", "22:1", "config is missing"),
        ('config = { size = "20m", rate = 1e-3 }', "config = {}", "25:1", "has no entries"),
        ("rate = 1e-3", "rate = nan", "25:1", "NaN"),
        ("rate = 1e-3", "day = 2026-01-01", "25:1", "dates and times"),
        ("production = true", "production = 1", "24:1", "valid boolean"),
        ('name = "demo"', 'name = "demo', "1:13", "not valid TOML"),
        ('name = "demo"', 'name = "demo"\nname = "demo"', "2:14", "not valid TOML"),
    ],
)
def test_what_cannot_be_is_refused_at_its_place(old: str, new: str, place: str, words: str) -> None:
    error = refuse(old, new)
    assert words in error.what
    assert error.where == f"{PATH}:{place}"
    assert error.exit_code == 2


def test_an_unknown_key_comes_with_the_closest_known_one() -> None:
    assert refuse("windows = 3", "window = 3").hint == "did you mean 'windows'?"
    assert refuse("[throughput]", "[thruput]").hint == "did you mean 'throughput'?"
    assert "one of: device, threads" in refuse("[throughput]", "[execution]\nqqq = 1\n[throughput]").hint


def test_a_file_that_gates_nothing_is_refused() -> None:
    text = BASE.replace("production = true", "production = false")
    assert parse(text).name == "demo"
    category = text[text.index("[[category]]") : text.index("[[workload]]")]
    with pytest.raises(ConfigError, match="nothing would be judged"):
        parse(text.replace(category, ""))


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as missing:
        load_config(tmp_path / "campaign.toml")
    assert missing.value.where == str(tmp_path / "campaign.toml")
    assert "campaign init" in missing.value.hint
    (tmp_path / "campaign.toml").write_bytes(b'name = "x"\nother = "\xff"')
    with pytest.raises(ConfigError, match="UTF-8") as broken:
        load_config(tmp_path / "campaign.toml")
    assert broken.value.where.endswith("campaign.toml:2:10")


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 3000, "1" + "0" * 4000])
def test_values_beyond_the_parser_are_refused(value: str) -> None:
    with pytest.raises(ConfigError):
        parse(BASE.replace("windows = 3", f"windows = {value}"))


@given(st.text(max_size=200))
def test_no_text_ends_in_anything_but_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


@given(st.integers(0, len(BASE) - 1), st.sampled_from('"[]{}=,.#\n1x'))
def test_one_wrong_character_is_read_or_refused_but_never_a_bug(at: int, character: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse(BASE[:at] + character + BASE[at + 1 :]).path == PATH


@pytest.mark.parametrize(
    ("old", "new", "tables"),
    [
        ('name = "demo"', 'name = "demo"  # a comment', ()),
        ("windows = 3", "windows = 3\nrepeats = 3", ()),
        ("windows = 3", "windows = 4", ("throughput",)),
        ("0.30", "0.3", ("throughput",)),
        ("axes.batch = [4, 16]", "axes.batch = [4, 17]", ("matrix",)),
        ("axes.batch = [4, 16]", "axes.batch = [4, 16]\naxes.clip = [1.0]", ("matrix",)),
        ("vocab = 256", "vocab = 256.0", ("matrix",)),
        ("vocab = 256", "vocab = true", ("matrix",)),
        ('axes.size = ["20m", "50m"]\n', 'axes.size = ["50m", "20m"]\n', ("matrix",)),
        ('name = "demo"', 'name = "demo"\n[candidate]\nsource="x"\nadapter="a:b"\npython="./p"', ()),
        ('"src"', '"other"', ("baseline",)),
        ("[data.plays]", "[slurm]\nminutes = 1\n[data.plays]", ("slurm",)),
        ('"demo"', '"other"', ("name",)),
        ("production = true", "production = false", ("workload",)),
    ],
)
def test_tables_that_differ_are_named_except_the_candidates(old: str, new: str, tables: tuple[str, ...]) -> None:
    changed = BASE.replace(old, new, 1)
    assert changed != BASE
    other = parse_config(changed.encode(), path=Path("/elsewhere/campaign.toml"))
    assert differing_tables(parse(BASE), other) == tables
    assert differing_tables(other, parse(BASE)) == tables


def test_the_spelling_of_a_number_is_its_label() -> None:
    one, other = (BASE.replace("axes.batch", f"axes.clip = [{clip}]\naxes.batch") for clip in ("1.0", "1.00"))
    assert differing_tables(parse(one), parse(other)) == ("matrix",)


def test_the_order_of_axes_is_part_of_the_matrix() -> None:
    size, batch = 'axes.size = ["20m", "50m"]\n', "axes.batch = [4, 16]\n"
    swapped = BASE.replace(size, "@").replace(batch, size).replace("@", batch)
    assert differing_tables(parse(BASE), parse(swapped)) == ("matrix",)


def test_devices_of_an_allocation_come_from_gres() -> None:
    def devices(line: str) -> int:
        return parse(BASE.replace("[data.plays]", f"[slurm]\n{line}\n[data.plays]")).num_devices

    assert devices("cpus = 2") == 1
    assert devices('gres = "gpu:4"') == 4
    assert devices('gres = "gpu:h100:2"') == 2
    assert devices('gres = "gpu"') == 1


NUMERICAL = BASE + "[numerical]\n"


@pytest.mark.parametrize(
    ("line", "place", "words"),
    [
        ("update = 5", "27:1", "unknown key 'update' in numerical"),
        ("updates = 0", "27:1", "greater than or equal to 1"),
        ("updates = 1001", "27:1", "less than or equal to 1000"),
        ('moments = "cold"', "27:1", "'fresh' or 'warm'"),
        ("loss_atol = -0.1", "27:1", "from 0"),
        ("loss_atol = 1", "27:1", "from 0 to below 1"),
        ("loss_rtol = 1", "27:1", "from 0 to below 1"),
        ("loss_rtol = nan", "27:1", "finite decimal"),
        ("gradients_threshold = 0", "27:1", "above 0"),
        ("updates_threshold = 1.0", "27:1", "above 0 and below 1"),
        ("tensor_exp_avg_sq = 1", "27:1", "above 0 and below 1"),
        ("tensor_floor = 0", "27:1", "above 0 and at most 1"),
        ("tensor_updates = true", "27:1", "decimal number"),
        ("control_factor = 0.5", "27:1", "from 1"),
        ("isolated_rtol = 1", "27:1", "from 0 to below 1"),
        ("isolated_atol = 0", "27:1", "above 0"),
        ("isolated_sd = 9.9e-6", "27:1", "isolated_atol 1e-8 allows any error"),
        ("isolated_atol = 1e-4", "27:1", "isolated_atol 1e-4 allows any error"),
        ('isolated_scalars = "bf16"', "27:1", "'fp64' or 'fp32'"),
        ('gated_tensors = ["loss"]', "27:18", "'gradients', 'parameters'"),
        ('gated_tensors = ["updates", "updates"]', "27:29", "'updates' stands twice in gated_tensors"),
        ('required = ["load_state"]', "27:13", "'optimizer_check' or 'mix'"),
        ('serialized = ["singel"]', "27:15", "no workload is named 'singel'"),
        ('serialized = ["50m-*", "x*"]', "27:24", "no workload is named 'x*'"),
        ('serialized = "single"', "27:1", "must be a list, not 'single'"),
        ('serialized = [""]', "27:15", "a workload's name, or a pattern"),
        ('shared_executor = ["single", "single"]', "27:30", "'single' stands twice in shared_executor"),
        ('controls = false\nshared_executor = ["single"]', "28:1", "shared_executor without controls"),
    ],
)
def test_a_numerical_rule_that_cannot_be_is_named_with_its_place(line: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{NUMERICAL}{line}\n")
    assert caught.value.where == f"{PATH}:{place}"
    assert words in caught.value.what


def test_a_misspelt_workload_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f'{NUMERICAL}serialized = ["singel"]\n')
    assert caught.value.hint == "did you mean 'single'?"


def test_an_empty_table_declares_the_numerical_family_with_the_default_rules() -> None:
    rules = parse(NUMERICAL).numerical
    assert rules is not None
    assert dict(rules) == NumericalRules.defaults()
    assert parse(BASE).numerical is None


def test_a_campaign_of_numerical_controls_alone_may_come_baseline_first() -> None:
    text = NUMERICAL.replace("windows = 3\n", "windows = 3\nsolo = false\ncontrols = false\n")
    assert parse(text).baseline_first
    with pytest.raises(ConfigError, match="would wait for nothing"):
        parse(f"{text}controls = false\n")


def test_a_slurm_cluster_is_one_by_name() -> None:
    def cluster(line: str) -> str | None:
        return parse(BASE.replace("[data.plays]", f"[slurm]\n{line}\n[data.plays]")).slurm.cluster

    assert (cluster("cpus = 1"), cluster('cluster = "here"')) == (None, "here")
    for wrong in ("all", "here,there", ""):
        with pytest.raises(ConfigError):
            cluster(f'cluster = "{wrong}"')
