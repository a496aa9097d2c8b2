"""What the demo promises of itself, planned from its own file."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from campaign.config.load import load_config
from campaign.documents import ConvergenceRules, NumericalRules, Protocol
from campaign.planning.protocol import build_protocol

ROOT = Path(__file__).parents[3]


DEMO = ROOT / "examples" / "demo" / "campaign.toml"


@pytest.fixture(scope="module")
def protocol() -> Protocol:
    return build_protocol(load_config(DEMO))


def test_the_demo_has_four_workloads_in_two_categories_and_three_repeats(protocol: Protocol) -> None:
    assert len(protocol.workloads) >= 4
    assert len([category for category in protocol.categories if category.workloads]) >= 2
    assert protocol.throughput.repeats == 3
    assert protocol.families == ("throughput", "numerical", "convergence")


def test_the_demo_measures_controls_and_uses_one_thread(protocol: Protocol) -> None:
    controls = [slot for slot in protocol.slots if slot.kind == "control_pair"]
    assert protocol.throughput.controls
    assert len(controls) == 3 * len(protocol.categories)
    assert (protocol.execution.device, protocol.execution.threads) == ("cpu", 1)


@pytest.mark.parametrize("kind", ["pair", "control_pair"])
def test_whoever_runs_first_alternates_from_repeat_to_repeat(protocol: Protocol, kind: str) -> None:
    firsts: dict[str, list[bool]] = defaultdict(list)
    for slot in sorted(protocol.slots, key=lambda slot: slot.repeat):
        if slot.kind == kind:
            firsts[slot.workload].append(slot.order[0] == "baseline")
    assert firsts
    for turns in firsts.values():
        assert turns in ([True, False, True], [False, True, False])
    assert len({turns[0] for turns in firsts.values()}) == 2


def test_the_claimed_clock_is_held_to_much_less_than_a_window(protocol: Protocol) -> None:
    rules = protocol.throughput
    assert float(rules.clock_absolute_s) <= float(rules.window_s) / 5


def test_every_workload_is_matched_with_the_default_rules_and_has_a_control(protocol: Protocol) -> None:
    names = [workload.name for workload in protocol.workloads]
    for kind in ("case", "control_case"):
        assert [slot.workload for slot in protocol.slots if slot.kind == kind] == names
    assert protocol.numerical == NumericalRules(required=("optimizer_check", "mix"))


def test_two_recipes_are_trained_by_the_default_rules_with_curves_and_without_a_waiver(protocol: Protocol) -> None:
    rules = protocol.convergence
    assert rules is not None
    assert rules.replace(recipes=()) == ConvergenceRules()
    assert sum(slot.kind == "run" for slot in protocol.slots) == len(rules.recipes) * 3 * 2 == 12
    declared = load_config(DEMO).convergence
    assert declared is not None
    assert declared.assumed_sd
    assert not declared.power_waiver
    for recipe in rules.recipes:
        assert 2 * recipe.evaluate_every == recipe.updates


def test_every_update_of_a_recipe_predicts_its_whole_batch(protocol: Protocol) -> None:
    assert protocol.convergence is not None
    for recipe in protocol.convergence.recipes:
        config = recipe.config
        assert config["whole_windows"]
        assert config["updates_total"] == recipe.updates
        assert recipe.targets == recipe.updates * config["workers"] * config["batch"] * config["context"]
