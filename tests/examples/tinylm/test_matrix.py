"""The file with the full matrix, and its slices, planned and held to what they promise; what runs is in tests/slow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from campaign.config.load import load_config
from campaign.documents import Protocol, Workload
from campaign.planning.assumed import read_assumed
from campaign.planning.matrix import expand
from campaign.planning.plan import Assumptions, make_plan
from campaign.planning.protocol import build_protocol, departures
from tests.support.cli import expect
from tinylm.config import read_config

FOLDER = Path(__file__).parents[3] / "examples" / "h200"
MATRIX = FOLDER / "matrix.toml"
ASSUMED = FOLDER / "assumed.toml"


@pytest.fixture(scope="module")
def whole() -> Protocol:
    return build_protocol(load_config(MATRIX))


@pytest.fixture(scope="module")
def on_gpu() -> Protocol:
    return build_protocol(load_config(MATRIX, "h200"))


def is_of_matrix(workload: Workload) -> bool:
    return "-clip" in workload.name


def entries(protocol: Protocol) -> list[dict[str, Any]]:
    return [workload.config for workload in protocol.workloads]


def test_the_matrix_has_108_workloads_and_nine_beside_it(whole: Protocol) -> None:
    assert len(whole.workloads) == 117
    assert sum(map(is_of_matrix, whole.workloads)) == 3 * 3 * 3 * 2 * 2
    beside = Counter(one.name.partition("-")[0] for one in whole.workloads if not is_of_matrix(one))
    assert beside == {"production": 3, "remainder": 2, "atc": 2, "adaptive": 2}
    assert {one.name: len(one.workloads) for one in whole.categories} == {"sync": 24, "packed4": 24, "packed8": 24}
    assert [one.name for one in whole.workloads if one.production] == [
        f"production-{mode}" for mode in ("sync", "packed4", "packed8")
    ]


def test_the_whole_matrix_has_the_default_rules_and_measures_what_the_published_one_did(whole: Protocol) -> None:
    assert departures(whole) == ("numerical.required is optimizer_check, mix instead of none.",)
    kinds = Counter(slot.kind for slot in whole.slots)
    assert kinds["solo"] == kinds["pair"] == 351
    assert kinds["case"] == kinds["control_case"] == 117
    assert kinds["run"] == 30


@pytest.mark.parametrize("chosen", [None, "h200", "cpu"])
def test_the_trainer_takes_every_configuration_of_it(chosen: str | None) -> None:
    expansion = expand(load_config(MATRIX, chosen))
    named = {one.name: one.config for one in expansion.workloads} | {one.name: one.config for one in expansion.recipes}
    for name, given in named.items():
        config = read_config(given)
        assert config.precision == "bf16", name
        assert config.vocab == (256 if chosen == "cpu" else 16384)


def test_workers_adapt_while_they_combine_but_for_workloads_of_their_own(whole: Protocol) -> None:
    for workload in whole.workloads:
        config = read_config(workload.config)
        if config.mode == "packed":
            assert config.consensus == ("atc" if workload.name.startswith("atc-") else "awc"), workload.name
        assert (config.gamma == "adaptive") == workload.name.startswith("adaptive-"), workload.name


def test_a_remainder_has_updates_of_fewer_microbatches_and_nothing_else_has(whole: Protocol) -> None:
    for workload in whole.workloads:
        config = read_config(workload.config)
        has_rest = bool(config.epoch % config.accumulation)
        assert has_rest == workload.name.startswith("remainder-"), workload.name


def test_what_runs_on_one_gpu_covers_everything_that_the_matrix_is_about(on_gpu: Protocol) -> None:
    names = [workload.name for workload in on_gpu.workloads]
    assert len(names) >= 12
    assert all(len(category.workloads) >= 2 for category in on_gpu.categories)
    assert {name.partition("-")[0] for name in names} >= {
        "20m",
        "50m",
        "90m",
        "production",
        "remainder",
        "atc",
        "adaptive",
    }
    assert sum(workload.production for workload in on_gpu.workloads) == 3
    assert {config["clip"] for config in entries(on_gpu)} == {0, 1}
    assert {config["batch"] for config in entries(on_gpu)} == {4, 8, 16, 32}
    assert {config["context"] for config in entries(on_gpu)} == {512, 1024}


def test_what_runs_on_one_gpu_has_the_rules_of_the_whole(whole: Protocol, on_gpu: Protocol) -> None:
    assert on_gpu.throughput.to_json() | {"solo": True} == whole.throughput.to_json()
    assert on_gpu.numerical == whole.numerical
    assert on_gpu.convergence is not None
    assert whole.convergence is not None
    assert (on_gpu.convergence.seeds, on_gpu.convergence.margin) == (whole.convergence.seeds, whole.convergence.margin)
    assert {slot.repeat for slot in on_gpu.slots if slot.kind == "pair"} == {1, 2, 3}
    assert {slot.workload for slot in on_gpu.slots if slot.kind == "control_case"} == {
        workload.name for workload in on_gpu.workloads
    }


def test_the_campaign_on_one_gpu_fits_its_machines_as_assumed(on_gpu: Protocol) -> None:
    config = load_config(MATRIX, "h200")
    times = read_assumed(ASSUMED, expand(config), config.throughput.rules)
    budget = make_plan(config, Assumptions(), times=times).budget
    assert budget is not None
    assert all(machine.fits and machine.most_minutes <= 25 for machine in budget.machines)
    assert budget.num_elsewhere == 0
    assert sum(machine.num_slots for machine in budget.machines) == len(on_gpu.slots)
    places = [{row.machine for row in budget.rows if row.repeat == repeat} for repeat in (1, 2, 3)]
    assert [len(place) for place in places] == [1, 1, 1]  # all of a repeat on one machine
    assert len(set.union(*places)) == on_gpu.throughput.repeats  # of its own


def test_the_three_workloads_for_a_cpu_are_one_of_each_category() -> None:
    protocol = build_protocol(load_config(MATRIX, "cpu"))
    assert [len(category.workloads) for category in protocol.categories] == [1, 1, 1]
    assert len(protocol.workloads) == 3
    assert protocol.families == ("throughput", "numerical")


def plan(*arguments: str) -> str:
    return expect(0, "plan", MATRIX.name, *arguments, cwd=FOLDER)


def test_the_whole_is_planned() -> None:
    text = plan()
    assert text.startswith("tinylm-matrix: 117 workloads, 3 of them required production cases")
    assert "inputs/       of 117" in text


def test_the_page_shows_the_minutes_as_they_are_planned() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    text = plan("--slice", "h200", "--assume", ASSUMED.name)
    minutes = text[text.index("Minutes, as assumed") : text.index("\n\none run of")]
    assert f"```\n{minutes}\n```\n" in page
