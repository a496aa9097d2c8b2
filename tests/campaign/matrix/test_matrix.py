from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from campaign.config.load import parse_config
from campaign.errors import ConfigError
from campaign.planning.matrix import Expansion, config_digest, expand, suggest

SIDES = """\
name = "demo"
[baseline]
source = "src"
adapter = "adapter:native"
python = "./python"
"""
MATRIX = """\
[matrix]
name = "{size}-{mode}-b{batch}-clip{clip}"
axes.size = ["20m", "50m"]
axes.mode = [{ label = "sync", mode = "sync", workers = 1 }, { label = "packed4", mode = "packed", workers = 4 }]
axes.batch = [4, 16]
axes.clip = [1.0, { label = "off", clip = 0 }]
fixed = { vocab = 256 }
"""
CATEGORY = """\
[[category]]
name = "sync"
mode = "sync"
small_batch = { batch = [4] }
"""
WORKLOAD = """\
[[workload]]
name = "single"
production = true
config = { size = "20m", rate = 0.1 }
"""
LAST = (SIDES + MATRIX).count("\n") + 1


def expanded(*parts: str) -> Expansion:
    return expand(parse_config((SIDES + "".join(parts)).encode(), path=Path("/c/campaign.toml")))


def refused(*parts: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        expanded(*parts)
    assert caught.value.where.startswith("/c/campaign.toml:")
    return caught.value


def test_workloads_are_the_product_of_the_axes_then_the_single_ones() -> None:
    names = [workload.name for workload in expanded(MATRIX, CATEGORY, WORKLOAD).workloads]
    assert len(names) == 17
    assert names[:3] == ["20m-sync-b4-clip1.0", "20m-sync-b4-clipoff", "20m-sync-b16-clip1.0"]
    assert names[-2:] == ["50m-packed4-b16-clipoff", "single"]


def test_a_configuration_joins_fixed_and_axis_entries_without_labels() -> None:
    workloads = {workload.name: workload for workload in expanded(MATRIX, CATEGORY, WORKLOAD).workloads}
    expected = {"vocab": 256, "size": "50m", "mode": "packed", "workers": 4, "batch": 16, "clip": 0}
    assert workloads["50m-packed4-b16-clipoff"].config == expected
    assert workloads["single"].config == {"vocab": 256, "size": "20m", "rate": 0.1}
    assert type(workloads["single"].config["rate"]) is float


def test_a_single_workload_may_override_a_fixed_entry() -> None:
    text = WORKLOAD.replace("rate = 0.1", "vocab = 8")
    assert expanded(MATRIX, CATEGORY, text).workloads[-1].config == {"vocab": 8, "size": "20m"}


def test_the_digest_is_over_compact_json_with_sorted_keys() -> None:
    text = '{"a":[1,0.5,true],"b":"\\u00fc"}'
    assert config_digest({"b": "ü", "a": [1, 0.5, True]}) == hashlib.sha256(text.encode()).hexdigest()
    workload = expanded(MATRIX, CATEGORY).workloads[0]
    assert workload.config_sha256 == config_digest(dict(reversed(workload.config.items())))


def test_categories_are_a_mode_with_a_filter_and_the_single_workloads_that_join() -> None:
    joined = WORKLOAD + 'category = "sync"\n'
    (category,) = expanded(MATRIX, CATEGORY, joined).categories
    assert category.workloads == (
        "20m-sync-b4-clip1.0",
        "20m-sync-b4-clipoff",
        "50m-sync-b4-clip1.0",
        "50m-sync-b4-clipoff",
        "single",
    )
    by_name = {workload.name: workload.category for workload in expanded(MATRIX, CATEGORY, joined).workloads}
    assert by_name["20m-sync-b4-clipoff"] == "sync"
    assert by_name["20m-sync-b16-clipoff"] == ""
    assert by_name["single"] == "sync"


def test_a_category_without_filter_holds_single_workloads_alone() -> None:
    own = '[[category]]\nname = "own"\n'
    assert expanded(MATRIX, own, WORKLOAD + 'category = "own"\n').categories[0].workloads == ("single",)
    assert "no workloads" in refused(MATRIX, own, WORKLOAD).what


def test_exclusions_match_all_their_axes() -> None:
    text = MATRIX + 'exclude = [{ size = "50m", batch = [16] }, { clip = "off" }]\n'
    names = [workload.name for workload in expanded(text, CATEGORY).workloads]
    assert names == [f"{rest}-clip1.0" for rest in ("20m-sync-b4", "20m-sync-b16", "20m-packed4-b4", "20m-packed4-b16",
                                                    "50m-sync-b4", "50m-packed4-b4")]  # fmt: skip


def test_matrix_workloads_become_production_cases_by_name() -> None:
    text = MATRIX + 'production = ["20m-sync-b16-clip1.0"]\n'
    assert [w.name for w in expanded(text).workloads if w.production] == ["20m-sync-b16-clip1.0"]
    error = refused(MATRIX + 'production = ["20m-sync-b16-clip1"]\n')
    assert error.hint == "did you mean '20m-sync-b16-clip1.0'?"


def test_names_default_to_all_labels() -> None:
    text = MATRIX.replace('name = "{size}-{mode}-b{batch}-clip{clip}"\n', "")
    assert expanded(text, CATEGORY).workloads[0].name == "20m-sync-4-1.0"


def test_single_workloads_need_no_matrix() -> None:
    assert [workload.name for workload in expanded(WORKLOAD).workloads] == ["single"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[4, 16]", "[]", "expands to nothing"),
        ("[4, 16]", "[4, 4]", "label '4' stands twice"),
        ("[4, 16]", "[4, [16]]", "not a list"),
        ("[4, 16]", "[4, {}]", "needs a label"),
        ("[4, 16]", '[4, { label = "x" }]', "sets no entry"),
        ("[4, 16]", "[4, nan]", "NaN"),
        ("[4, 16]", "[4, 07:32:00]", "dates and times"),
        ("[4, 16]", '[4, { label = "big", batch = 16, vocab = 2 }]', "'vocab' is set by both fixed and axis 'batch'"),
        ("[4, 16]", '[4, { label = "big", size = 1 }]', "'size' is set by both axis 'size' and axis 'batch'"),
        ("[4, 16]", '[4, { label = "B", batch = 16 }]', "not a safe name"),
        ("[4, 16]", '[4, { label = "a/b", batch = 16 }]', "not a safe name"),
        ("[4, 16]", '[4, { label = "4.0", batch = 4.0 }]', "one resolved configuration"),
        ("-b{batch}", "", "two workloads are named"),
        ("-b{batch}", "-b{bach}", "'bach', which is no axis"),
        ("-b{batch}", "-b{batch:03}", "without format"),
        ("-b{batch}", "-b{batch!r}", "without format"),
        ("-b{batch}", "-b{batch", "not a name pattern"),
        ("-b{batch}", "-b{}", "no axis"),
        ("-b{batch}", "-b{batch.__class__}", "no axis"),
        ("axes.batch", 'axes."a-b"', "cannot be the name of an axis"),
        ("fixed =", "exclude = [{ bach = 4 }]\nfixed =", "no axis 'bach'"),
        ("fixed =", "exclude = [{ batch = 5 }]\nfixed =", "no label '5'"),
        ("fixed =", "exclude = [{ batch = [] }]\nfixed =", "matches nothing"),
        ("fixed =", "exclude = [{}]\nfixed =", "would leave nothing"),
        ("fixed =", "exclude = [{ batch = [4, 16] }]\nfixed =", "no workload"),
    ],
)
def test_impossible_matrices_are_refused(old: str, new: str, words: str) -> None:
    assert old in MATRIX
    assert words in refused(MATRIX.replace(old, new, 1), CATEGORY).what


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ('mode = "sync"', 'mode = "snc"', (2, 1), "no label 'snc'"),
        ("batch = [4]", "batch = [8]", (3, 17), "no label '8'"),
        ("batch = [4]", 'mode = "sync"', (3, 17), "given twice"),
        ('name = "sync"', 'name = "20m-sync-b4-clipoff"', (1, 1), "a category and a workload"),
        (
            "[[category]]",
            '[[category]]\nname = "all"\nsmall_batch = { batch = 4 }\n[[category]]',
            (3, 1),
            "belongs to both",
        ),
        ("[[category]]", '[[category]]\nname = "sync"\nmode = "packed4"\n[[category]]', (4, 1), "two categories"),
    ],
)
def test_impossible_categories_are_refused_at_their_place(
    old: str, new: str, place: tuple[int, int], words: str
) -> None:
    error = refused(MATRIX, CATEGORY.replace(old, new, 1))
    assert words in error.what
    assert error.where == f"/c/campaign.toml:{LAST + place[0]}:{place[1]}"


def test_a_category_needs_the_mode_axis_that_it_names() -> None:
    text = '[matrix]\naxes.size = [1, 2]\n[[category]]\nname = "sync"\nmode = "sync"\n'
    assert "needs an axis 'mode'" in refused(text).what


def test_a_category_emptied_by_exclusion_is_refused() -> None:
    assert "has no workloads" in refused(MATRIX + 'exclude = [{ mode = "sync", batch = 4 }]\n', CATEGORY).what


def test_a_workload_names_a_declared_category() -> None:
    assert refused(MATRIX, CATEGORY, WORKLOAD + 'category = "snyc"\n').hint == "did you mean 'sync'?"


def test_a_single_workload_may_not_repeat_name_or_configuration_of_another() -> None:
    same_name = WORKLOAD.replace('"single"', '"20m-sync-b4-clipoff"')
    assert "two workloads are named" in refused(MATRIX, CATEGORY, same_name).what
    same = '[[workload]]\nname = "x"\nconfig = { size="20m", mode="sync", workers=1, batch=4.0, clip=1 }\n'
    error = refused(MATRIX, CATEGORY, same)
    assert "'20m-sync-b4-clip1.0' and 'x' have one resolved configuration" in error.what
    assert error.where == f"/c/campaign.toml:{(SIDES + MATRIX + CATEGORY).count(chr(10)) + 1}:1"


def test_true_and_one_are_two_configurations() -> None:
    pair = '[[workload]]\nname = "a"\nproduction = true\nconfig = { x = 1 }\n'
    pair += '[[workload]]\nname = "b"\nconfig = { x = true }\n'
    assert len(expanded(pair).workloads) == 2


def test_a_matrix_of_millions_is_refused_before_it_is_built() -> None:
    axes = "".join(f"axes.a{number} = {list(range(50))}\n" for number in range(5))
    assert "more than 100000" in refused(f"[matrix]\n{axes}").what


def test_nothing_at_all_is_refused() -> None:
    assert "no workload" in refused("").what
    assert "needs axes" in refused('[matrix]\nproduction = ["x"]\n', WORKLOAD).what


def test_suggestions_name_the_closest_word_or_list_all() -> None:
    assert suggest("bach", ["batch", "size"]) == "did you mean 'batch'?"
    assert suggest("zzz", ["batch", "size"]) == "one of: batch, size"
    assert suggest("zzz", []) == "none is declared"
