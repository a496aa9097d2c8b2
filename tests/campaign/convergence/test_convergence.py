from __future__ import annotations

from pathlib import Path

import pytest

import acceptance.protocol
from campaign.config.load import parse_config
from campaign.config.model import Config
from campaign.documents import ConvergenceExtension, ConvergenceRules, Protocol
from campaign.errors import ConfigError
from campaign.planning.protocol import build_protocol, departures
from jobs.common.plan import parse_protocol

PATH = Path("/c/campaign.toml")
BASE = """\
name = "demo"
[baseline]
source = "src"
adapter = "adapter:native"
python = "./python"
[matrix]
fixed = { context = 64, lr = 0.1 }
[[workload]]
name = "single"
production = true
config = { x = 1 }
"""
RECIPE = """\
[[recipe]]
name = "small"
config = { size = "micro", lr = 0.5 }
targets = 76800
validation_targets = 1000
updates = 300
"""
SECOND = """\
[[recipe]]
name = "other"
config = { size = "nano" }
targets = 7
validation_targets = 1
updates = 7
evaluate_every = 3
scored = "the mean of both models"
"""
TABLE = BASE.count("\n") + 2
"""The line after [convergence]."""


def parse(rules: str = "", recipes: str = RECIPE) -> Config:
    lines = f"{rules}\n" if rules else ""
    return parse_config(f"{BASE}[convergence]\n{lines}{recipes}".encode(), path=PATH)


def protocol(rules: str = "", recipes: str = RECIPE) -> Protocol:
    return build_protocol(parse(rules, recipes))


def frozen(rules: str = "", recipes: str = RECIPE) -> ConvergenceRules:
    found = protocol(rules, recipes).convergence
    assert found is not None
    return found


def refused(rules: str = "", recipes: str = RECIPE) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(rules, recipes)
    return caught.value


# --- what is frozen ---------------------------------------------------------------------------------------------------


def test_an_empty_table_declares_the_family_with_the_default_rules() -> None:
    assert protocol().families == ("throughput", "convergence")
    assert frozen().replace(recipes=()) == ConvergenceRules()


def test_a_recipe_is_resolved_with_the_matrix_fixed_entries() -> None:
    small, other = frozen(recipes=RECIPE + SECOND).recipes
    assert small.config == {"context": 64, "lr": 0.5, "size": "micro"}
    assert other.config == {"context": 64, "lr": 0.1, "size": "nano"}
    assert small.config_sha256 != other.config_sha256
    assert (small.targets, small.validation_targets, small.updates, small.scored) == (76800, 1000, 300, "")
    assert (other.evaluate_every, other.scored) == (3, "the mean of both models")


@pytest.mark.parametrize(("updates", "every"), [(2, 1), (20, 1), (21, 2), (300, 15), (301, 16), (1000, 50)])
def test_a_curve_has_about_twenty_points_unless_the_recipe_says_otherwise(updates: int, every: int) -> None:
    text = RECIPE.replace("updates = 300", f"updates = {updates}")
    assert frozen(recipes=text).recipes[0].evaluate_every == every


@pytest.mark.parametrize(
    ("seeds", "quantile"),
    [
        ("[1, 2]", "6.31375"),
        ("[1, 2, 3]", "2.920"),
        (str(list(range(6))), "2.01505"),
        (str(list(range(21))), "1.72472"),
    ],
)
def test_the_quantile_is_that_of_the_number_of_seeds(seeds: str, quantile: str) -> None:
    assert frozen(f"seeds = {seeds}").quantile == quantile


def test_numbers_of_the_family_are_frozen_as_they_are_written() -> None:
    rules = frozen('margin = 0.0100\nquantile = "2.91999"\nmax_segments = 3\ncheckpoint_s = 60')
    assert (rules.margin, rules.quantile, rules.max_segments, rules.checkpoint_s) == ("0.0100", "2.91999", 3, 60)


def test_an_extension_has_the_least_quantiles_that_keep_the_level() -> None:
    assert frozen("extension = { seeds = [48, 49, 50] }").extension == ConvergenceExtension(
        seeds=(48, 49, 50), quantile_first="4.08607", quantile="2.49239"
    )
    split = frozen("extension = { seeds = [48, 49, 50, 51] }").extension
    assert split is not None
    assert split.quantile_first == "4.30265"


def test_larger_quantiles_of_an_extension_may_be_given() -> None:
    extension = frozen("extension = { seeds = [48], quantile_first = 5, quantile = 4.50 }").extension
    assert extension == ConvergenceExtension(seeds=(48,), quantile_first="5", quantile="4.50")


@pytest.mark.parametrize(
    "rules",
    [
        f"seeds = [0, {10**18 - 1}]",
        f"seeds = {list(range(1000))}\nextension = {{ seeds = {list(range(1000, 2000))} }}",
        "margin = 1\nquantile = 2.9229",
        "margin = 1e-300\nquantile = 2.9171",
        "max_segments = 1\ncheckpoint_s = 1",
        "max_segments = 1000000\ncheckpoint_s = 10000000",
        "seeds = [1, 2]\nextension = { seeds = [3] }",
        "seeds = [1, 2]\nextension = { seeds = [3], quantile_first = 12.7062, quantile = 1000 }",
        "extension = { seeds = [48, 49, 50], quantile_first = 4.08606, quantile = 2.49238 }",
        "extension = { seeds = [48, 49, 50, 51] }",
        *(f"seeds = {list(range(number))}\nextension = {{ seeds = [99] }}" for number in range(2, 9)),
    ],
)
def test_what_may_be_configured_is_taken_by_acceptance_and_by_the_harness(rules: str) -> None:
    data = protocol(rules, RECIPE + SECOND).to_bytes()
    taken = acceptance.protocol.parse(data).convergence
    assert taken is not None
    assert [recipe.points[-1] for recipe in taken.recipes] == [300, 7]
    planned = parse_protocol(data).convergence
    assert planned is not None
    assert planned.recipes.keys() == {"small", "other"}


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "column", "words"),
    [
        ("seed = [1, 2]", 1, "unknown key 'seed'"),
        ("seeds = [45]", 1, "between 2 and 1000 seeds, not 1"),
        (f"seeds = {list(range(1001))}", 1, "between 2 and 1000 seeds, not 1001"),
        ("seeds = [45, -1]", 14, "greater than or equal to 0"),
        (f"seeds = [45, {10**18}]", 14, "less than 1000000000000000000"),
        ("seeds = [45, 46, 45]", 18, "the seed 45 stands twice"),
        ("margin = 0", 1, "above 0"),
        ("margin = 1.01", 1, "at most 1 nat"),
        ("margin = nan", 1, "finite decimal"),
        ("quantile = 2.9", 1, "2.9 is not t(0.95, 2) = 2.920 within a thousandth"),
        ("quantile = 2.924", 1, "2.924 is not t(0.95, 2)"),
        ("quantile = 0", 1, "above 0"),
        ("max_segments = 0", 1, "greater than or equal to 1"),
        ("max_segments = 1000001", 1, "less than or equal to"),
        ("checkpoint_s = 0", 1, "greater than or equal to 1"),
        ("checkpoint_s = 0.5", 1, "valid integer"),
        ("extension = {}", 1, "extension.seeds is missing"),
        ("extension = { seeds = [] }", 15, "between 1 and 1000 seeds, not 0"),
        ("extension = { seed = [48] }", 15, "unknown key 'seed' in convergence.extension"),
        ("extension = { seeds = [48, 46] }", 28, "the seed 46 stands twice"),
        ("extension = { seeds = [48, 49, 50], quantile_first = 4.086 }", 37, "4.086 is below 4.08607"),
        ("extension = { seeds = [48, 49, 50], quantile = 2.4923 }", 37, "2.4923 is below 2.49239"),
        ("extension = { seeds = [48, 49, 50, 51], quantile = 2.3 }", 41, "2.3 is below 2.44691"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_at_its_place(rules: str, column: int, words: str) -> None:
    error = refused(rules)
    assert words in error.what
    assert error.where == f"{PATH}:{TABLE}:{column}"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('name = "small"', 'name = "single"', 1, "a workload is named 'single' already"),
        ('name = "small"', 'name = "Small"', 1, "not a safe name"),
        ("targets = 76800", "targets = 299", 3, "299 targets are fewer than 300 updates"),
        ("targets = 76800", "targets = 0", 3, "greater than or equal to 1"),
        ("targets = 76800", "targets = 1000000000000001", 3, "less than or equal to"),
        ("validation_targets = 1000\n", "", 0, "validation_targets is missing"),
        ("updates = 300", "update = 300", 5, "unknown key 'update'"),
        ("updates = 300", "updates = 1", 5, "greater than or equal to 2"),
        ("updates = 300", "updates = 300\nevaluate_every = 301", 6, "evaluate_every 301 is more than all 300"),
        ("updates = 300", "updates = 300\nevaluate_every = 0", 6, "greater than or equal to 1"),
        ("updates = 300", 'updates = 300\nscored = "one\\ntwo"', 6, "a text in one line"),
        ('config = { size = "micro", lr = 0.5 }', "config = {}", 2, "has no entries"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_at_its_place(old: str, new: str, line: int, words: str) -> None:
    assert old in RECIPE
    error = refused(recipes=RECIPE.replace(old, new, 1))
    assert words in error.what
    assert error.where == f"{PATH}:{TABLE + line}:1"


def test_a_curve_of_too_many_points_is_refused() -> None:
    text = RECIPE.replace("targets = 76800", "targets = 200002")
    text = text.replace("updates = 300", "updates = 200001\nevaluate_every = 2")
    assert "more than 100000 points" in refused(recipes=text).what
    assert frozen(recipes=text.replace("200001", "200000")).recipes[0].evaluate_every == 2


def test_two_recipes_with_one_name_or_one_configuration_are_refused() -> None:
    first = RECIPE.count("\n")
    error = refused(recipes=RECIPE + SECOND.replace("other", "small"))
    assert "a recipe is named 'small' already" in error.what
    assert error.where == f"{PATH}:{TABLE + first + 1}:1"
    error = refused(
        recipes=RECIPE + SECOND.replace('{ size = "nano" }', '{ context = 64.0, size = "micro", lr = 0.5 }')
    )
    assert "recipes 'small' and 'other' have one resolved configuration" in error.what
    assert error.where == f"{PATH}:{TABLE + first + 2}:1"


def test_recipes_and_their_table_come_together() -> None:
    error = refused(recipes="")
    assert "without a recipe" in error.what
    assert error.hint.startswith("add a [[recipe]]")
    with pytest.raises(ConfigError, match=r"a recipe without \[convergence\]") as caught:
        parse_config((BASE + RECIPE).encode(), path=PATH)
    assert caught.value.where == f"{PATH}:{TABLE - 1}:1"


def test_a_quantile_that_is_refused_can_be_left_out() -> None:
    assert refused("quantile = 1.645").hint == "leave quantile out"
    assert refused("extension = { seeds = [48], quantile = 2.92 }").hint == "leave quantile out"


# --- slots ------------------------------------------------------------------------------------------------------------


def test_every_recipe_has_a_pilot_and_a_run_of_every_seed_on_both_sides() -> None:
    slots = protocol("seeds = [7, 8]", RECIPE + SECOND).slots
    for side, phase in (("baseline", "baseline"), ("candidate", "convergence")):
        pilots = [slot.slot for slot in slots if slot.side == side and slot.kind == "pilot"]
        assert pilots == [f"{side}/pilot/{name}" for name in ("single", "small", "other")]
        runs = [slot for slot in slots if slot.side == side and slot.kind == "run"]
        assert [slot.slot for slot in runs] == [
            f"{side}/run/{recipe}/s{seed}" for seed in (7, 8) for recipe in ("small", "other")
        ]
        assert {(slot.phase, slot.order, slot.repeat, slot.pair) for slot in runs} == {(phase, (side,), 0, 0)}


def test_the_runs_of_an_extension_come_last_in_their_phase() -> None:
    extended = protocol("extension = { seeds = [3, 4] }")
    later = extended.extension_runs()
    assert later == {f"{side}/run/small/s{seed}" for side in ("baseline", "candidate") for seed in (3, 4)}
    for phase in ("baseline", "convergence"):
        flags = [slot.slot in later for slot in extended.slots if slot.phase == phase]
        assert sum(flags) == 2
        assert flags == sorted(flags)
    assert protocol().extension_runs() == frozenset()


def test_runs_alone_are_something_to_wait_for_baseline_first() -> None:
    text = BASE.replace("[matrix]", "[throughput]\nsolo = false\ncontrols = false\n[matrix]")
    assert parse_config(f"{text}[convergence]\n{RECIPE}".encode(), path=PATH).baseline_first


# --- departures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "sentences"),
    [
        ("", ()),
        ("seeds = [47, 45, 46]\nmargin = 0.0050\nquantile = 2.92\ncheckpoint_s = 5", ()),
        ("seeds = [1, 2]", ("convergence.seeds is 1, 2 instead of 45, 46, 47.",)),
        (
            "seeds = [1, 2]\nquantile = 6.3137",
            (
                "convergence.seeds is 1, 2 instead of 45, 46, 47.",
                "convergence.quantile is 6.3137 instead of 6.31375.",
            ),
        ),
        (
            "margin = 0.01\nmax_segments = 5\nquantile = 2.91999",
            (
                "convergence.margin is 0.01 instead of 0.005.",
                "convergence.quantile is 2.91999 instead of 2.920.",
                "convergence.max_segments is 5 instead of 20.",
            ),
        ),
        (
            "extension = { seeds = [48, 49, 50] }",
            (
                (
                    "convergence.extension adds the seeds 48, 49, 50 where the first look is inconclusive; "
                    "the quantiles of the two looks are 4.08607 and 2.49239."
                ),
            ),
        ),
    ],
)
def test_departures_are_one_sentence_each(rules: str, sentences: tuple[str, ...]) -> None:
    assert departures(protocol(rules)) == departures(parse(rules)) == sentences
