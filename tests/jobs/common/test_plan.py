from __future__ import annotations

import json
import re
from typing import Any

import pytest

from campaign import documents
from jobs.common.plan import CheckpointName, parse_allocation, parse_protocol
from tests.support.harness import LIMITS, RECIPE, RULES, WORKLOAD, make_convergence, make_protocol
from tests.support.plans import plan_text

SHA256 = "0" * 64
RUN = {"kind": "run", "slot": "baseline/run/small/s45", "workload": "small", "updates": 0, "repeat": 0, "segment": 1}
RESUMED = {**RUN, "segment": 3, "resume": {"segment": 2, "update": 10, "sha256": SHA256}}


def resuming(**changes: Any) -> dict[str, Any]:
    """Return a third segment that starts from what is unlike a checkpoint's name in one thing."""
    return {**RUN, "segment": 3, "resume": {"segment": 2, "update": 10, "sha256": SHA256, **changes}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "walk"}, "no attempt of kind 'walk'"),
        ({"kind": "case"}, "a case does not run"),
        ({"inputs_sha256": SHA256}, "for a solo"),
        ({"kind": "control_case", "order": ["baseline", "baseline_again"]}, "7 updates per window for a control_case"),
        (
            {"kind": "control_case", "order": ["baseline", "baseline_again"], "updates": 0},
            "canonical inputs '' for a control_case",
        ),
        (
            {"kind": "control_case", "order": ["baseline", "baseline_again"], "updates": 0, "inputs_sha256": "../x"},
            "canonical inputs '../x'",
        ),
        ({"order": ["candidate"]}, "a solo does not run"),
        ({"kind": "pair", "order": ["baseline", "candidate"]}, "does not say how to run candidate"),
        ({"updates": 0}, "0 updates per window for a solo"),
        ({"more": 1}, "unknown field 'more'"),
        ({"attempt": 0}, "attempt is 0, below 1"),
        ({**RUN, "updates": 7}, "7 updates per window for a run"),
        ({**RUN, "inputs_sha256": SHA256}, "for a run"),
        ({**RUN, "order": ["baseline", "candidate"]}, "a run does not run"),
        ({**RUN, "segment": 0}, "segment 0 of a run"),
        ({**RUN, "segment": True}, "segment is not an integer"),
        ({"segment": 1}, "segment 1 of a solo"),
        ({**RUN, "slot": "baseline/run/other/s45"}, "not the name of a run of recipe 'small'"),
        ({**RUN, "slot": "baseline/run/small/s045"}, "not the name of a run"),
        ({**RUN, "slot": "baseline/run/small/s-1"}, "not the name of a run"),
        ({**RUN, "slot": "baseline/run/small/45"}, "not the name of a run"),
        ({**RUN, "slot": "a/baseline/run/small/s45"}, "not the name of a run"),
        ({"resume": {"segment": 1, "update": 10, "sha256": SHA256}}, "segment 0 cannot start from"),
        ({**RESUMED, "segment": 2}, "segment 2 cannot start from"),
        (resuming(segment=4), "segment 3 cannot start from"),
        (resuming(segment=0), "segment is 0, below 1"),
        (resuming(update=0), "update is 0, below 1"),
        (resuming(update=1.0), "update is not an integer"),
        (resuming(sha256="../x"), "not a SHA-256: '../x'"),
        (resuming(more=1), "unknown field 'more'"),
        ({**RUN, "resume": []}, "resume is not"),
        ({"examples_sha256": SHA256}, f"examples '{SHA256}' for a solo"),
        ({"kind": "pilot", "updates": 0, "examples_sha256": SHA256}, f"examples '{SHA256}' for a pilot"),
        ({**RUN, "order": ["candidate"], "examples_sha256": SHA256}, f"examples '{SHA256}' for a run"),
        (
            {"kind": "pilot", "order": ["candidate"], "updates": 0, "examples_sha256": "../x"},
            "examples '../x' for a pilot",
        ),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(changes: dict[str, Any], message: str) -> None:
    assert parse_allocation(plan_text(), "a1").id == "a1"
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_allocation(plan_text(**changes), "a1")


def test_a_plan_in_the_wrong_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="in the folder of a2"):
        parse_allocation(plan_text(), "a2")


def test_a_segment_of_a_run_says_its_seed_its_name_and_what_it_starts_from() -> None:
    (first,) = parse_allocation(plan_text(**RUN), "a1").attempts
    (third,) = parse_allocation(plan_text(**RESUMED), "a1").attempts
    assert (first.seed, first.name, first.resume) == (45, "baseline/run/small/s45/1/1", None)
    assert (third.seed, third.name) == (45, "baseline/run/small/s45/1/3")
    assert third.resume == CheckpointName(segment=2, update=10, sha256=SHA256)


def test_what_is_no_run_has_no_seed_and_no_segment_in_its_name() -> None:
    (solo,) = parse_allocation(plan_text(), "a1").attempts
    assert solo.name == "baseline/solo/w/r1/1"
    with pytest.raises(ValueError, match="not the name of a run of recipe 'w'"):
        assert solo.seed


@pytest.mark.parametrize("seed", [0, 7, 10**18 - 1])
def test_every_seed_that_a_table_can_hold_may_be_trained(seed: int) -> None:
    (run,) = parse_allocation(plan_text(**{**RUN, "slot": f"baseline/run/small/s{seed}"}), "a1").attempts
    assert run.seed == seed


def test_two_segments_of_one_attempt_do_not_share_an_allocation() -> None:
    plan = json.loads(plan_text(**RUN))
    plan["attempts"].append({**plan["attempts"][0], "segment": 2})
    with pytest.raises(ValueError, match="an attempt stands twice"):
        parse_allocation(json.dumps(plan).encode(), "a1")


def protocol_text(**changes: Any) -> bytes:
    """Return a protocol with one recipe, with other fields of the rules or the recipe where given."""
    return make_protocol(RULES, LIMITS, {"tokens": 5}, convergence=make_convergence(**changes)).to_bytes()


def test_the_convergence_rules_are_read_as_the_driver_writes_them() -> None:
    protocol = parse_protocol(protocol_text(updates=40, evaluate_every=15, max_segments=4, checkpoint_s=9))
    rules = protocol.convergence
    assert rules is not None
    assert (rules.max_segments, rules.checkpoint_s) == (4, 9)
    recipe = rules.recipes[RECIPE]
    assert recipe == protocol.recipe(RECIPE)
    assert (recipe.targets, recipe.validation_targets, recipe.updates) == (200, 8, 40)
    assert [recipe.next_point(update) for update in (0, 14, 15, 29, 30, 39)] == [15, 15, 30, 30, 40, 40]
    assert protocol.recipe(WORKLOAD) is None


def test_a_protocol_without_the_family_has_no_recipe() -> None:
    protocol = parse_protocol(make_protocol(RULES, LIMITS, {"tokens": 5}).to_bytes())
    assert protocol.convergence is None
    assert protocol.recipe(RECIPE) is None


def test_an_extension_and_the_scored_model_are_the_drivers_alone() -> None:
    extension = documents.ConvergenceExtension(seeds=(48,), quantile_first="4.1", quantile="2.5")
    parse_protocol(protocol_text(extension=extension, scored="worker 0's"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"processes": 3, "nodes": 2}, "3 processes on 2 nodes"),
        ({"processes": 1, "nodes": 2}, "1 processes on 2 nodes"),
        ({"processes": 0}, "processes is 0, below 1"),
        ({"nodes": 0}, "nodes is 0, below 1"),
        ({"processes": True}, "processes is not an integer"),
    ],
)
def test_processes_that_cannot_be_laid_on_nodes_are_refused(changes: dict[str, Any], message: str) -> None:
    value = json.loads(protocol_text())
    value["workloads"][0] |= {"processes": 4, "nodes": 2}
    assert parse_protocol(json.dumps(value).encode()).workloads[WORKLOAD].per_node == 2
    value["workloads"][0] |= changes
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_protocol(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": WORKLOAD}, f"both a workload and a recipe are named {WORKLOAD}"),
        ({"evaluate_every": 41}, "evaluate_every is above 40"),
        ({"evaluate_every": 0}, "evaluate_every is 0, below 1"),
        ({"updates": 0, "evaluate_every": 1}, "updates is 0, below 1"),
        ({"targets": 0}, "targets is 0, below 1"),
        ({"validation_targets": 0}, "validation_targets is 0, below 1"),
        ({"max_segments": 0}, "max_segments is 0, below 1"),
        ({"checkpoint_s": 0}, "checkpoint_s is 0, below 1"),
    ],
)
def test_rules_of_runs_that_cannot_be_followed_are_refused(changes: dict[str, Any], message: str) -> None:
    value = json.loads(protocol_text())
    (recipe,) = value["convergence"]["recipes"]
    for name, changed in changes.items():
        (recipe if name in recipe else value["convergence"])[name] = changed
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_protocol(json.dumps(value).encode())


def test_a_field_of_the_rules_that_nobody_knows_is_refused() -> None:
    value = json.loads(protocol_text())
    value["convergence"]["patience"] = 3
    with pytest.raises(ValueError, match="unknown field 'patience'"):
        parse_protocol(json.dumps(value).encode())
