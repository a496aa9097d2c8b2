"""A local campaign of a workload of several processes, from freeze to verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from campaign.documents import Manifest
from tests.support.cli import expect, expect_json, run_campaign
from tests.support.ranks import write_ranked_campaign

LEFT_OUT = "numerical is false instead of true for spread: no case compares what they do."


def _intended(home: Path) -> list[list[dict[str, Any]]]:
    """Return the attempts of every submission, in order."""
    entries = [json.loads(line) for line in (home / "ledger.jsonl").read_bytes().splitlines()]
    intents = [entry["data"]["allocations"] for entry in entries if entry["act"] == "intent"]
    return [[attempt for one in allocations for attempt in one["attempts"]] for allocations in intents]


@pytest.mark.slow
def test_a_campaign_of_several_processes_comes_to_a_verdict(tmp_path: Path) -> None:
    config, home = write_ranked_campaign(tmp_path, processes=2), tmp_path / "home"
    expect(0, "freeze", config, "--home", home)
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    expect(0, "submit", "--home", home, "--cluster", "local", "--wait", "--yes")
    first, second, third = _intended(home)
    candidate = next(one["slot"].partition("/")[0] for one in first if not one["slot"].startswith("baseline/"))
    assert sorted(one["slot"] for one in first) == [
        "baseline/pilot/alone", "baseline/pilot/spread", f"{candidate}/pilot/alone"
    ]  # fmt: skip
    (followed,) = second
    assert followed["slot"] == f"{candidate}/pilot/spread"
    assert len(followed["examples_sha256"]) == 64
    assert [one["slot"] for one in third] == [f"{candidate}/pair/{name}/r1" for name in ("spread", "alone")]
    expect(0, "report", "--home", home, "--exit-zero")
    expect_json(0, "verify", home)


@pytest.mark.slow
def test_a_candidate_that_takes_other_examples_ends_at_its_pilot(tmp_path: Path) -> None:
    config, home = write_ranked_campaign(tmp_path, processes=2), tmp_path / "home"
    expect(0, "freeze", config, "--home", home)
    source = tmp_path / "source" / "adapter.py"
    source.write_text(
        source.read_text().replace("range(step * BATCH, (step + 1) * BATCH)", "range(step, step + BATCH)")
    )
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    run_campaign("submit", "--home", home, "--cluster", "local", "--only", "*/spread*", "--wait", "--yes")
    (path,) = home.glob("attempts/c*/pilot/spread/1/receipt.json")
    receipt = json.loads(path.read_bytes())
    assert receipt["ending"] == "state_mismatch"
    assert receipt["reason"] == "the examples of the first 8 steps are not those that the baseline's pilot took"


def test_here_is_one_node(tmp_path: Path) -> None:
    config, home = write_ranked_campaign(tmp_path, processes=2, nodes=2), tmp_path / "home"
    expect(0, "freeze", config, "--home", home)
    done = run_campaign("submit", "--home", home, "--cluster", "local", "--yes")
    assert done.returncode == 2
    assert "spread asks for 2 nodes, and here is one" in done.stderr
    assert not _intended(home)


def test_what_is_left_out_of_the_numerical_family_is_a_departure(tmp_path: Path) -> None:
    config, home = write_ranked_campaign(tmp_path, processes=2), tmp_path / "home"
    text = config.read_text().replace("nodes = 1", "nodes = 1\nnumerical = false")
    config.write_text(text.replace("[slurm]", "[numerical]\n[slurm]"))
    expect(0, "freeze", config, "--home", home)
    manifest = Manifest.read(home / "manifest.json")
    assert LEFT_OUT in manifest.departures
