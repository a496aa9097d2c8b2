"""Fallback trials end to end: real trainings, then each side from the other's checkpoint, by the command line."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign import documents, files
from campaign.paths import HomePaths
from campaign.record.ledger import read_entries
from tests.support.cli import expect, expect_json, run_campaign
from tests.support.segments import TRAINER, UPDATES, targets, trainer
from tests.support.tinylm import SOURCE

pytestmark = pytest.mark.slow
CONFIG = """
name = "falling-back"
baseline_first = false

[baseline]
source = "baseline"
adapter = "adapter:{baseline}"
python = "{python}"
environment = {{ TINYLM_DATA = "${{data.text}}" }}

[candidate]
source = "candidate"
adapter = "adapter:{candidate}"
python = "{python}"
environment = {{ TINYLM_DATA = "${{data.text}}" }}

[data.text]
path = "{corpus}"

[execution]
device = "cpu"
threads = 1

[throughput]
clock_absolute_s = "0.5"
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
config = {config}

[convergence]
seeds = [45, 46]
power_waiver = "a test of checkpoints"

[[recipe]]
name = "short"
targets = {targets}
validation_targets = {validation}
updates = {updates}
evaluate_every = {updates}
config = {config}
"""
MARKING = """
def save(self, folder):
    super().save(folder)
    (folder / "mine").write_text("x")

def load(self, folder):
    if not (folder / "mine").exists():
        raise ValueError("a checkpoint of somebody else")
    super().load(folder)
"""
"""Goes on from its own checkpoints alone; theirs are a trainer's like any other."""
TINYLM_UPDATES = 12
TINYLM = (
    '{ size = "micro", mode = "packed", workers = 4, batch = 3, context = 16, warmup = 3, '
    f"updates_total = {TINYLM_UPDATES}, whole_windows = true }}"
)


def make_home(root: Path, only: str = "*/run/*", **values: Any) -> Path:
    """Freeze both sides, whose trees lie in a folder, and train them: all runs, or some."""
    corpus = root / "corpus"
    corpus.mkdir()
    for name, size in (("train.bin", 4001), ("val.bin", 700)):
        noise = hashlib.shake_256(name.encode()).digest(size)
        (corpus / name).write_bytes(bytes(32 + value % 95 for value in noise))
    config, home = root / "campaign.toml", root / "home"
    config.write_text(CONFIG.format(python=sys.executable, corpus=corpus, **values))
    expect(0, "freeze", config, "--home", home)
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    expect(0, "submit", "--home", home, "--only", only, "--cluster", "local", "--wait", "--yes")
    expect(0, "collect", "--home", home)
    return home


def tried(home: Path) -> list[documents.FallbackTried]:
    return [
        entry.parse_data(documents.FallbackTried)
        for entry in read_entries(HomePaths(home))
        if entry.act == "fallback_tried"
    ]


def check_kept(home: Path, act: documents.FallbackTried) -> None:
    """Hold a trial's folder to the files that the ledger names."""
    root = HomePaths(home).fallback(act.candidate, act.number).root
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    assert {name: files.sha256_file(path) for name, path in found.items()} == act.files
    assert len(found) >= 4 + 4 * 3


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home whose candidate goes on from its own checkpoints alone."""
    root = tmp_path_factory.mktemp("plain")
    for side, source in (("baseline", TRAINER), ("candidate", trainer(MARKING))):
        (root / side).mkdir()
        (root / side / "adapter.py").write_text(source)
    training: dict[str, Any] = {
        "targets": targets(),
        "validation": 7,
        "updates": UPDATES,
        "config": '{ kind = "walk" }',
    }
    return make_home(root, baseline="build", candidate="build", **training)


def test_both_backends_of_tinylm_resume_each_other(tmp_path: Path) -> None:
    for side in ("baseline", "candidate"):
        shutil.copytree(SOURCE, tmp_path / side, ignore=shutil.ignore_patterns("__pycache__"))
    sizes: dict[str, Any] = {"targets": TINYLM_UPDATES * 4 * 3 * 16, "validation": 699, "updates": TINYLM_UPDATES}
    home = make_home(tmp_path, "*/run/*/s45", baseline="native", candidate="fast", config=TINYLM, **sizes)
    value = expect_json(0, "fallback", "--home", home)
    (act,) = tried(home)
    assert act.candidate_resumes
    assert act.baseline_resumes
    assert act.largest_difference is not None
    assert 0 <= act.largest_difference < 0.002
    check_kept(home, act)
    for direction in value["directions"]:
        assert direction["checkpoint"]["updates_left"] >= 5
        assert [len(direction[one]["losses"]) for one in ("own", "other")] == [5, 5]
        assert len(set(direction["own"]["losses"])) == 5
    code = run_campaign("report", "--home", home).returncode
    assert code in {0, 3, 4}
    page = next((home / "evaluations").glob("*/report/report.html")).read_text()
    assert "each side resumes the other's checkpoint" in page.replace("&#39;", "'")


def test_a_side_that_cannot_is_told_with_its_reason(plain: Path) -> None:
    value = expect_json(4, "fallback", "--home", plain, "--updates", "3", "--seed", "46")
    from_baseline, from_candidate = value["directions"]
    assert not from_baseline["resumes"]
    assert "the candidate does not: crash" in from_baseline["reason"]
    assert "a checkpoint of somebody else" in from_baseline["reason"]
    assert from_baseline["own"]["losses"]
    assert from_candidate["resumes"]
    assert from_candidate["differences"] == [0.0, 0.0, 0.0]
    assert (value["seed"], value["tolerance"]) == (46, "default")
    act = tried(plain)[-1]
    check_kept(plain, act)
    assert (act.candidate_resumes, act.baseline_resumes) == (False, True)
    assert run_campaign("report", "--home", plain).returncode in {0, 3, 4}
    page = next((plain / "evaluations").glob("*/report/report.html")).read_text()
    assert "only the baseline resumes the candidate" in page


def test_another_trial_gets_another_folder_and_takes_what_a_killed_one_left(plain: Path) -> None:
    number = len(tried(plain)) + 1
    candidate = next(iter(HomePaths(plain).candidates.iterdir())).name
    folder = HomePaths(plain).fallbacks(candidate)
    (folder / str(number)).mkdir(parents=True)
    (folder / str(number) / "fallback.json").write_text("{}")
    (folder / f".{number}.abcd.tmp").mkdir()
    expect(4, "fallback", "--home", plain)
    assert [act.number for act in tried(plain)] == list(range(1, number + 1))
    check_kept(plain, tried(plain)[-1])
    assert sorted(path.name for path in folder.iterdir()) == [str(one) for one in range(1, number + 1)]


def test_a_checkpoint_that_was_changed_is_not_tried(plain: Path) -> None:
    known = len(tried(plain))
    saved = next((plain / "attempts" / "baseline" / "run" / "short" / "s45").glob("1/segments/1/checkpoints/*"))
    path = saved / "files" / "random.json"
    before = path.read_bytes()
    path.chmod(0o644)
    for one in saved.parent.iterdir():
        (one / "files" / "random.json").chmod(0o644)
        (one / "files" / "random.json").write_bytes((one / "files" / "random.json").read_bytes()[::-1])
    try:
        done = run_campaign("fallback", "--home", plain, "--json")
    finally:
        for one in saved.parent.iterdir():
            (one / "files" / "random.json").write_bytes((one / "files" / "random.json").read_bytes()[::-1])
    assert done.returncode == 5, done.stderr
    assert "was changed" in json.dumps(done.stdout + done.stderr)
    assert path.read_bytes() == before
    assert len(tried(plain)) == known
