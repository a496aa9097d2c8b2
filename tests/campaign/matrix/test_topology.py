"""Tests of the keys that say how many processes and nodes a workload asks for."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from acceptance import protocol as accepted
from acceptance.strictjson import DocumentError
from campaign.collection.cases import records_inputs
from campaign.config.load import load_config
from campaign.documents import Workload
from campaign.errors import ConfigError
from campaign.planning.protocol import build_protocol
from campaign.verifier import inputs
from campaign.verifier.facts import Facts, Slot
from jobs.common import plan

HEAD = """
name = "ranks"
baseline_first = false

[baseline]
source = "source"
adapter = "adapter:build"
python = "/usr/bin/python3"
"""
ONE = """
[[workload]]
name = "alone"
production = true
config = { batch = 4 }
"""


def _workloads(folder: Path, text: str) -> dict[str, Workload]:
    return {one.name: one for one in build_protocol(load_config(_written(folder, text))).workloads}


def _written(folder: Path, text: str) -> Path:
    (folder / "source").mkdir()
    path = folder / "campaign.toml"
    path.write_text(HEAD + text)
    return path


def _several(keys: str) -> str:
    return f'{ONE}\n[[workload]]\nname = "several"\nconfig = {{ batch = 4 }}\n{keys}\n'


def test_a_workload_of_one_process_is_written_as_before(tmp_path: Path) -> None:
    protocol = build_protocol(load_config(_written(tmp_path, ONE)))
    (workload,) = json.loads(protocol.to_bytes())["workloads"]
    assert set(workload) == {"name", "category", "production", "config", "config_sha256"}


def test_processes_and_nodes_are_frozen_and_not_given_to_the_adapter(tmp_path: Path) -> None:
    found = _workloads(tmp_path, _several("processes = 4\nnodes = 2"))
    assert (found["several"].processes, found["several"].nodes, found["several"].topology) == (4, 2, (2, 4))
    assert found["several"].config == found["alone"].config == {"batch": 4}
    assert found["several"].config_sha256 == found["alone"].config_sha256


def test_an_axis_may_set_them(tmp_path: Path) -> None:
    text = """
[matrix]
name = "b{batch}-{ranks}"
axes.batch = [2, 4]
axes.ranks = [1, { label = "2x2", processes = 4, nodes = 2 }]
production = ["b2-1"]
"""
    found = _workloads(tmp_path, text.replace("[1, {", '[{ label = "1", processes = 1 }, {'))
    assert {name: one.topology for name, one in found.items()} == {
        "b2-1": (1, 1), "b2-2x2": (2, 4), "b4-1": (1, 1), "b4-2x2": (2, 4)
    }  # fmt: skip
    assert all(set(one.config) == {"batch"} for one in found.values())


def test_fixed_entries_hold_for_single_workloads_unless_they_say_otherwise(tmp_path: Path) -> None:
    text = (
        "[matrix]\nfixed = { processes = 2 }\n"
        + ONE
        + '\n[[workload]]\nname = "four"\nprocesses = 4\nconfig = { batch = 4 }\n'
    )
    found = _workloads(tmp_path, text)
    assert (found["alone"].processes, found["four"].processes) == (2, 4)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("processes = 3\nnodes = 2", "cannot be spread evenly"),
        ("nodes = 2", "1 processes on 2 nodes"),
        ("numerical = false", "numerical = false for a workload of one process"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path: Path, keys: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        _workloads(tmp_path, _several(keys))
    assert ":15:" in caught.value.where


def test_an_entry_of_that_name_in_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nodes is not an entry of a configuration"):
        _workloads(tmp_path, ONE.replace("batch = 4", "nodes = 4"))


def test_an_axis_of_another_type_is_refused(tmp_path: Path) -> None:
    text = '[matrix]\naxes.nodes = ["big", "small"]\nproduction = ["big"]\n'
    with pytest.raises(ConfigError, match="nodes is a whole number, not 'big'"):
        _workloads(tmp_path, text)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("processes = true", "processes is a whole number, not True"),
        ("processes = 2.0", "processes is a whole number, not 2.0"),
        ("numerical = 1", "numerical is true or false, not 1"),
    ],
)
def test_an_entry_that_only_looks_like_its_type_is_refused(tmp_path: Path, entry: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _workloads(tmp_path, f"[matrix]\nfixed = {{ {entry} }}\n{ONE}")


def test_the_numerical_family_refuses_several_processes_unless_they_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ConfigError, match="2 processes, and the numerical family compares single ones"):
        _workloads(tmp_path / "a", _several("processes = 2") + "[numerical]\n")
    (tmp_path / "b").mkdir()
    config = load_config(_written(tmp_path / "b", _several("processes = 2\nnumerical = false") + "[numerical]\n"))
    protocol = build_protocol(config)
    assert {slot.workload for slot in protocol.slots if slot.kind in ("case", "control_case")} == {"alone"}
    assert {slot.workload for slot in protocol.slots if slot.kind == "pair"} == {"alone", "several"}
    assert {one.name: one.numerical for one in accepted.parse(protocol.to_bytes()).workloads} == {
        "alone": True, "several": False
    }  # fmt: skip
    assert plan.parse_protocol(protocol.to_bytes()).workloads["several"].processes == 2


def test_a_family_that_every_workload_is_left_out_of_is_refused(tmp_path: Path) -> None:
    text = ONE.replace("production", "processes = 2\nnumerical = false\nproduction") + "[numerical]\n"
    with pytest.raises(ConfigError, match="every workload is left out of the numerical family"):
        _workloads(tmp_path, text)


def test_acceptance_leaves_no_workload_of_one_process_out(tmp_path: Path) -> None:
    config = load_config(_written(tmp_path, _several("processes = 2\nnumerical = false") + "[numerical]\n"))
    value = json.loads(build_protocol(config).to_bytes())
    several = next(one for one in value["workloads"] if one["name"] == "several")
    several["processes"] = 1
    with pytest.raises(DocumentError, match="a workload of one process is left out"):
        accepted.parse(json.dumps(value).encode())


def test_acceptance_expects_the_cases_of_all_others(tmp_path: Path) -> None:
    config = load_config(_written(tmp_path, _several("processes = 2\nnumerical = false") + "[numerical]\n"))
    value = json.loads(build_protocol(config).to_bytes())
    del next(one for one in value["workloads"] if one["name"] == "several")["numerical"]
    with pytest.raises(DocumentError, match="'several', 0, 0\\) is missing"):
        accepted.parse(json.dumps(value).encode())


def test_acceptance_takes_no_processes_that_nodes_cannot_share_evenly(tmp_path: Path) -> None:
    value = json.loads(build_protocol(load_config(_written(tmp_path, _several("processes = 4\nnodes = 2")))).to_bytes())
    several = next(one for one in value["workloads"] if one["name"] == "several")
    several["processes"] = 3
    with pytest.raises(DocumentError, match="3 processes are not spread evenly over 2 nodes"):
        accepted.parse(json.dumps(value).encode())


def test_the_pilot_of_a_workload_without_cases_records_no_inputs(tmp_path: Path) -> None:
    config = load_config(_written(tmp_path, _several("processes = 2\nnumerical = false") + "[numerical]\n"))
    protocol = build_protocol(config)
    recording = [slot.workload for slot in protocol.slots if records_inputs(slot, protocol)]
    assert recording == ["alone"]
    facts = cast("Facts", SimpleNamespace(protocol=json.loads(protocol.to_bytes()), memo={}))
    assert [slot.workload for slot in protocol.slots if inputs._records(facts, cast("Slot", slot))] == recording
