"""What the protocol may say of trainings: a quantile belongs to its level, and the matrix has every run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from scipy import stats

from acceptance import arithmetic, protocol
from acceptance.convergence_rules import least_quantile
from acceptance.strictjson import DocumentError
from campaign.documents import ConvergenceExtension, ConvergenceRules
from tests.support.evidence import make_protocol
from tests.support.runs import EXTENSION, make_recipe


def document(**rules: Any) -> dict[str, Any]:
    recipes = (make_recipe("sync"), make_recipe("packed"))
    convergence = ConvergenceRules(**({"recipes": recipes} | rules))
    written = make_protocol([], families=("convergence",), convergence=convergence)
    value: dict[str, Any] = json.loads(written.to_bytes())
    return value


def parse(value: Any) -> protocol.Protocol:
    return protocol.parse(json.dumps(value).encode())


def refusal(value: Any) -> str:
    with pytest.raises(DocumentError) as caught:
        parse(value)
    return str(caught.value)


def test_what_the_driver_writes_is_understood() -> None:
    parsed = parse(document(extension=EXTENSION))
    rules = parsed.convergence
    assert rules is not None
    assert (rules.seeds, str(rules.margin), str(rules.quantile), rules.max_segments) == (
        (45, 46, 47), "0.005", "2.920", 20,
    )  # fmt: skip
    assert [recipe.name for recipe in rules.recipes] == ["sync", "packed"]
    assert rules.recipes[0].points == (15, 30, 40)
    assert (rules.recipes[0].targets, rules.recipes[0].validation_targets) == (40960, 8192)
    assert (rules.seeds_of(1), rules.seeds_of(2)) == ((45, 46, 47), (45, 46, 47, 48, 49, 50))
    assert (str(rules.quantile_of(1)), str(rules.quantile_of(2))) == ("4.08607", "2.49239")
    assert sum(slot.kind == "run" for slot in parsed.slots) == 2 * 2 * 6


def test_without_an_extension_there_is_one_look() -> None:
    rules = parse(document()).convergence
    assert rules is not None
    assert (rules.seeds_of(2), str(rules.quantile_of(2))) == ((45, 46, 47), "2.920")


@pytest.mark.parametrize(
    ("updates", "every", "points"), [(6, 3, (3, 6)), (7, 3, (3, 6, 7)), (5, 5, (5,)), (1, 1, (1,))]
)
def test_a_curve_has_a_point_at_every_multiple_and_at_the_end(updates: int, every: int, points: Any) -> None:
    value = document(recipes=(make_recipe("r", updates=updates, evaluate_every=every),))
    rules = parse(value).convergence
    assert rules is not None
    assert rules.recipes[0].points == points


# --- quantiles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [*range(2, 31), 100, 1000])
def test_the_quantile_of_the_only_look_is_that_of_scipy(count: int) -> None:
    exact = float(stats.t.ppf(0.95, count - 1))
    assert float(arithmetic.student_quantile(count - 1, central=0.90)) == pytest.approx(exact, rel=5.1e-6)
    seeds = tuple(range(count))
    for factor in (1, 0.9991, 1.0009):
        assert parse(document(seeds=seeds, quantile=repr(exact * factor)))
    for factor in (0.9989, 1.0011, 0.5, 2):
        assert "is not t(0.95," in refusal(document(seeds=seeds, quantile=repr(exact * factor)))


def test_the_published_quantile_stands_for_three_seeds_alone() -> None:
    assert parse(document(quantile="2.920"))
    assert parse(document(quantile="2.9199855803537242"))
    for seeds in ((45, 46), (45, 46, 47, 48)):
        assert "is not t(0.95," in refusal(document(seeds=seeds))


@pytest.mark.parametrize("text", ["-2.920", "0", "nan", "inf", "2,920", "", " 2.920"])
def test_what_is_no_quantile_is_refused(text: str) -> None:
    assert "convergence.quantile" in refusal(document(quantile=text))


@pytest.mark.parametrize(("first", "added"), [(3, 1), (3, 3), (4, 4), (5, 2), (10, 10)])
def test_two_looks_of_at_most_twice_the_seeds_have_275_parts_in_ten_thousand_each(first: int, added: int) -> None:
    sizes = (first, first + added)
    for look, size in enumerate(sizes, start=1):
        exact = float(stats.t.ppf(1 - 0.0275, size - 1))
        assert float(least_quantile(sizes, look)) == pytest.approx(exact, rel=5.1e-6)


@pytest.mark.parametrize(("first", "added"), [(2, 1), (2, 2), (3, 4), (5, 20)])
def test_any_other_two_looks_share_the_five_percent(first: int, added: int) -> None:
    sizes = (first, first + added)
    for look, size in enumerate(sizes, start=1):
        exact = float(stats.t.ppf(1 - 0.025, size - 1))
        assert float(least_quantile(sizes, look)) == pytest.approx(exact, rel=5.1e-6)


@pytest.mark.parametrize("field", ["quantile_first", "quantile"])
def test_a_quantile_of_two_looks_is_at_least_that_of_its_level(field: str) -> None:
    least = {"quantile_first": 4.086068648383055, "quantile": 2.492388619354326}[field]
    for text in (repr(least), f"{least:.5f}", repr(least * 1.01), "20"):
        assert parse(document(extension=EXTENSION.replace(**{field: text})))
    for text in (repr(least * 0.9999), "2.015", "0.1"):
        message = refusal(document(extension=EXTENSION.replace(**{field: text})))
        assert f"convergence.extension.{field}" in message
        assert "more than 5% could pass wrongly" in message


@pytest.mark.parametrize("seeds", [(), (47,), (48, 48), (45, 46, 47)])
def test_an_extension_adds_seeds_that_are_not_there_yet(seeds: tuple[int, ...]) -> None:
    extension = ConvergenceExtension(seeds=seeds, quantile_first="5", quantile="5")
    assert "convergence.extension.seeds" in refusal(document(extension=extension))


# --- the rest ---------------------------------------------------------------------------------------------------------


def in_recipe(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda value: value["convergence"]["recipes"][0].update(fields)


def in_rules(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda value: value["convergence"].update(fields)


def first_run(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda value: next(slot for slot in value["slots"] if slot["kind"] == "run").update(fields)


BAD: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "margin of zero": ("convergence.margin", in_rules(margin="0")),
    "margin as a number": ("convergence.margin", in_rules(margin=0.005)),
    "no seed": ("convergence.seeds", in_rules(seeds=[])),
    "one seed": ("convergence.seeds", in_rules(seeds=[45])),
    "seed twice": ("convergence.seeds", in_rules(seeds=[45, 45, 46])),
    "seed below zero": ("convergence.seeds", in_rules(seeds=[-1, 45, 46])),
    "seed beyond a count": ("convergence.seeds", in_rules(seeds=[10**18, 45, 46])),
    "no segment": ("convergence.max_segments", in_rules(max_segments=0)),
    "unknown field": ("unknown field", in_rules(extra=1)),
    "recipe twice": ("'sync' is listed 2 times", lambda value: value["convergence"]["recipes"].append(
        value["convergence"]["recipes"][0])),
    "no target": ("targets", in_recipe(targets=0)),
    "fewer targets than points": ("fewer than the 3 points", in_recipe(targets=2)),
    "no validation": ("validation_targets", in_recipe(validation_targets=0)),
    "no update": ("updates", in_recipe(updates=0)),
    "no evaluation": ("evaluate_every", in_recipe(evaluate_every=0)),
    "evaluation after the end": ("evaluate_every", in_recipe(evaluate_every=41)),
    "endless curve": ("at most 100000", in_recipe(updates=10**6, evaluate_every=1, targets=10**9)),
    "control character": ("scored: a control character", in_recipe(scored="a\nb")),
    "digest": ("config_sha256", in_recipe(config_sha256="abc")),
    "name with a slash": ("cannot be a name", in_recipe(name="a/b")),
    "run missing": ("is missing", lambda value: value["slots"].pop()),
    "run added": ("not planned by the rules", first_run(slot="baseline/run/sync/s44")),
    "run of another recipe": ("is not that of such a run", first_run(workload="packed")),
    "run of another phase": ("is not that of such a run", first_run(phase="convergence")),
    "run with a repeat": ("is not that of such a run", first_run(repeat=1)),
    "run of another side": ("is not that of such a run", first_run(order=["candidate"])),
    "run of two sides": ("not an order", first_run(order=["baseline", "candidate"])),
    "rules without the family": ("rules of a family that is not declared", lambda value: value.update(families=[])),
    "family without rules": ("a declared family without rules", lambda value: value.update(convergence=None)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_contradicts_itself_is_refused(name: str) -> None:
    reason, spoil = BAD[name]
    value = document()
    spoil(value)
    assert reason in refusal(value)


def test_a_run_of_a_family_that_is_not_declared_is_refused() -> None:
    value = document()
    plain = json.loads(make_protocol([]).to_bytes())
    plain["slots"] = value["slots"][:1]
    assert "not planned by the rules" in refusal(plain)


def test_what_is_scored_may_be_said_in_any_words() -> None:
    words = 'worker 0\'s model, "as is", after the last consensus: 1/4'
    rules = parse(document(recipes=(make_recipe("r", scored=words),))).convergence
    assert rules is not None
    assert rules.recipes[0].scored == words
