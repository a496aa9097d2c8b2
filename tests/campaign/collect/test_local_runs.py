"""Real trainings by the real harness, killed and stopped on the way, collected and judged."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign import documents
from campaign.paths import HomePaths
from tests.support.cli import PROGRAM, expect, expect_json, run_campaign
from tests.support.segments import UPDATES, targets, trainer

pytestmark = pytest.mark.slow
CUTTING = '''
def __init__(self, config, seed, device):
    super().__init__(config, seed, device)
    self.is_cut = seed == 46

def stop(self, what):
    """Have the harness killed, or wait until somebody tells it to stop; each once."""
    place = f"{what}-{self.update}"
    mark = Path(os.environ["MARKS"]) / place
    if not self.is_cut or place not in self.config["cuts"] or mark.exists():
        return
    mark.touch()
    if self.config["cuts"][place] == "kill":
        newest = max(Path(os.environ["HOME_FOLDER"]).glob("allocations/*/started.json"))
        os.kill(json.loads(newest.read_text())["pid"], 9)
        time.sleep(60)  # it ends with the harness, and does nothing more
    with open(mark.parent / "reached", "wb") as reached, open(mark.parent / "go", "rb") as go:
        reached.write(b"x")
        reached.flush()
        go.read(1)
'''
"""A side that brings about what nodes and schedulers do."""

CONFIG = """
name = "trainings"
baseline_first = true

[baseline]
source = "baseline"
adapter = "adapter:build"
python = "{python}"
environment = {{ MARKS = "{marks}/baseline", HOME_FOLDER = "{home}" }}

[candidate]
source = "candidate"
adapter = "adapter:build"
python = "{python}"
environment = {{ MARKS = "{marks}/candidate", HOME_FOLDER = "{home}" }}

[throughput]
clock_absolute_s = "0.25"
pilot_s = "0.02"
warmup_updates = 2
repeats = 1
windows = 1
window_s = "0.02"
solo = false
controls = false

[[workload]]
name = "plain"
production = true
config = {{ cuts = {{}} }}

[convergence]
seeds = [45, 46]
power_waiver = "a test of segments"

[[recipe]]
name = "walk"
targets = {targets}
validation_targets = 7
updates = {updates}
evaluate_every = 10
config = {{ cuts = {cuts} }}
"""


def write_campaign(folder: Path) -> Path:
    for side in ("baseline", "candidate"):
        (folder / side).mkdir()
        (folder / side / "adapter.py").write_text(trainer(CUTTING) + f"\n# {side}\n")
        (folder / "marks" / side).mkdir(parents=True)
    config = folder / "campaign.toml"
    for name in ("evaluate-20", "save-24"):  # the candidate is cut once alone
        (folder / "marks" / "candidate" / name).touch()
    for name in ("reached", "go"):
        os.mkfifo(folder / "marks" / "baseline" / name)
    cuts = '{ updates-17 = "kill", evaluate-20 = "stop", save-24 = "kill" }'
    values = {"python": sys.executable, "marks": folder / "marks", "home": folder / "home", "cuts": cuts}
    config.write_text(CONFIG.format(targets=targets(), updates=UPDATES, **values))
    return config


def stop_when_reached(home: Path, reached: int, go: int) -> None:
    """Tell the harness to stop once a side waits for that, and let the side go on."""
    assert select.select([reached], [], [], 120)[0]
    newest = max(home.glob("allocations/*/started.json"))
    os.kill(json.loads(newest.read_bytes())["pid"], signal.SIGTERM)
    os.write(go, b"x")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home in which every run was made, those with seed 46 in several segments."""
    folder = tmp_path_factory.mktemp("local runs")
    config = write_campaign(folder)
    made = folder / "home"
    expect(0, "freeze", config, "--home", made)
    submit = ["submit", "--home", str(made), "--cluster", "local", "--wait", "--yes"]
    # Both ends of each pipe are open from the beginning, so that nobody waits for the other to open one.
    reached, go = (os.open(folder / "marks" / "baseline" / name, os.O_RDWR) for name in ("reached", "go"))
    with subprocess.Popen([sys.executable, PROGRAM, *submit], stderr=subprocess.PIPE, text=True) as waiting:
        try:
            stop_when_reached(made, reached, go)
        except BaseException:
            waiting.terminate()
            raise
        _, said = waiting.communicate(timeout=120)
        assert waiting.returncode == 0, said
    os.close(reached)
    os.close(go)
    expect(0, "freeze", "--candidate", "--config", config, "--home", made)
    expect(0, *submit)
    return made


def query(home: Path, text: str, *values: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(home / "campaign.sqlite")
    try:
        return connection.execute(text, values).fetchall()
    finally:
        connection.close()


def test_what_the_harness_leaves_of_runs_that_were_cut_is_a_chain(home: Path) -> None:
    value = expect_json(0, "collect", "--home", home)
    assert (value["running"], value["attempts"], value["sealed"]) == (0, 9, 9)
    text = "SELECT ending, receipt_sha256 IS NULL, resumed_update FROM segments WHERE slot = ? ORDER BY segment"
    *cut, last = query(home, text, "baseline/run/walk/s46")
    assert [(ending, is_open) for ending, is_open, _ in cut] == [("lost", 1), ("cancelled", 0), ("lost", 1)]
    assert last[:2] == ("completed", 0)
    assert cut[0][2] is None
    assert 0 < cut[1][2] < 17
    assert cut[2][2] == 20
    assert 20 < last[2] < 24


def test_a_run_ends_alike_wherever_it_was_cut(home: Path) -> None:
    expect(0, "collect", "--home", home)
    found = query(home, "SELECT side, segments, final_loss, raw FROM convergence WHERE seed = 46 ORDER BY side")
    (_, four, loss, _), (_, two, other, _) = found
    assert (four, two) == (4, 2)
    assert loss == other
    curves = [
        query(home, """SELECT "update", tokens, validation_loss FROM curves WHERE seed = 46 AND side = ?""", side)
        for side in ("baseline", "candidate")
    ]
    assert len(curves[0]) == 3
    assert curves[0] == curves[1]


def test_a_byte_of_a_state_that_nothing_went_on_from_is_missed_no_more_than_others(home: Path) -> None:
    paths = HomePaths(home)
    for document in sorted(paths.attempts.glob("baseline/run/walk/s46/1/segments/*/checkpoints/*/checkpoint.json")):
        path = document.parent / "files" / documents.Checkpoint.read(document).files[0].name
        data = path.read_bytes()
        path.write_bytes(data[:-1] + b"?")
        done = run_campaign("collect", "--home", home)
        assert done.returncode == 5
        assert f"{path}: its SHA-256 is" in done.stderr
        path.write_bytes(data)
    expect(0, "collect", "--home", home)


def test_the_report_is_about_whole_runs(home: Path) -> None:
    expect(0, "report", "--home", home, "--exit-zero")
    (path,) = home.glob("evaluations/*/verdict.json")
    (recipe,) = json.loads(path.read_bytes())["observations"]["convergence"]["recipes"]
    segments = {one["seed"]: one["segments"] for one in recipe["differences"]}
    assert segments[46] == {"baseline": 4, "candidate": 2}
    assert [one["difference"] for one in recipe["differences"]] == [0, 0]
