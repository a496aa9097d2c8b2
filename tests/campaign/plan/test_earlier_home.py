"""Planning with a home that a whole campaign left: its verdict's spreads, and its recipes' pilots."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from campaign.cli.main import main
from tests.support.home import SMALL, attempt_all, freeze, freeze_candidate
from tests.support.training import make_recipe, make_rules

DIFFERENCES = {45: -0.001, 46: 0.0005, 47: 0.0011}
CONFIG = """\
name = "next"
[baseline]
source = "src"
adapter = "adapter:native"
python = "./python"
[[category]]
name = "sync"
[[workload]]
name = "sync-b4"
category = "sync"
config = {{ x = 1 }}
[[workload]]
name = "prod-b16"
production = true
config = {{ x = 2 }}
[convergence]
[[recipe]]
name = "sync"
config = {{ x = 3 }}
targets = {targets}
validation_targets = {validation_targets}
updates = {updates}
evaluate_every = {evaluate_every}
"""


def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
    """Stand in for the rendered page: plots take seconds."""
    assert protocol_path.is_file()
    assert evaluation.is_dir()
    out.mkdir(exist_ok=True)
    (out / "report.html").write_text("a page")


def ratio(workload: str, repeat: int) -> float:
    return 1.1 + 0.01 * repeat + 0.001 * len(workload)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = freeze(tmp_path_factory.mktemp("earlier") / "home", SMALL, convergence=make_rules("sync"))
    home.ratio = ratio
    home.loss = lambda _recipe, seed, side: 3.5 + (DIFFERENCES[seed] if side == "candidate" else 0.0)
    attempt_all(home, "baseline")
    freeze_candidate(home)
    attempt_all(home, "candidate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reports.render.write_report", write_report)
        assert main(["report", "--home", str(home.paths.root)]) == 0
    return home.paths.root


@pytest.fixture
def written(tmp_path: Path) -> Path:
    recipe = make_recipe("sync")
    path = tmp_path / "campaign.toml"
    path.write_text(CONFIG.format(**recipe.to_json()))
    return path


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_a_report_left_is_planned_with(earlier: Path, written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = planned(capsys, str(written), "--spread-from", str(earlier))
    found, bound = value["convergence"]["rows"]
    assert found["sd"] == pytest.approx(statistics.stdev(DIFFERENCES.values()), rel=1e-6)
    assert (found["basis"], found["origin"], bound["basis"]) == ("found", "3 seeds", "upper_80")
    assert bound["sd"] == pytest.approx(2.117 * found["sd"], rel=1e-3)
    assert bound["chance"] < 0.8 < found["chance"]
    origins = {(row["gate"], row["basis"]): row["origin"] for row in value["power"]}
    assert origins == {
        ("sync", "found"): "3 category pairs",
        ("sync", "upper_80"): "3 category pairs",
        ("production", "found"): "3 production pairs",
        ("production", "upper_80"): "3 production pairs",
    }
    assert value["notes"] == []


def test_its_pilots_say_how_long_runs_take(earlier: Path, written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = planned(capsys, str(written), "--home", str(earlier))["runs"]
    assert [(row["side"], row["recipe"]) for row in runs] == [("baseline", "sync"), ("candidate", "sync")]
    recipe = make_recipe("sync")
    points = -(-recipe.updates // recipe.evaluate_every)
    # A start, all updates at 4 a second, the points of the curve, and the first and the last checkpoint.
    seconds = 0.5 + recipe.updates / 4 + points * 0.5 + 2 * 0.25
    assert runs[0]["about_hours"] == pytest.approx(seconds / 3600)
    assert (runs[0]["num_segments"], runs[0]["num_checkpoints"], runs[0]["checkpoint_bytes"]) == (1, 2, 8192)
