"""`train.py` records where its time and memory go, as a stranger's loop would."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import monitor
import train

ROOT = Path(__file__).resolve().parents[3]
SHORT = ["size=micro", "batch=2", "context=32", "accumulation=2", "epoch=5", "updates_total=8", "warmup=1"]
Train = Callable[..., int]


@pytest.fixture
def run_train(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    def run(*arguments: object) -> int:
        given = ["train.py", "--data", str(corpus), "--evaluate-every", "4", *map(str, arguments), *SHORT]
        monkeypatch.setattr(sys, "argv", given)
        return train.main()

    return run


def _wrong(run: monitor.Run) -> list[str]:
    """What does not fit; others may hold up so short a session between two phases, which proves nothing."""
    return [text for text in monitor.check_run(run) if "not under 1%" not in text]


def test_the_copy_is_the_one_that_the_harness_has() -> None:
    copy = (ROOT / "examples" / "tinylm" / "monitor.py").read_bytes()
    assert copy == (ROOT / "jobs" / "monitor.py").read_bytes(), "cp jobs/monitor.py examples/tinylm/monitor.py"


def test_a_training_is_recorded_with_every_phase_and_a_whole_recipe(run_train: Train, tmp_path: Path) -> None:
    assert run_train("--record", tmp_path / "run.json", "--save", tmp_path / "saved") == 0
    run = monitor.read_run(tmp_path / "run.json")
    session = run.sessions[0]
    assert _wrong(run) == []
    assert run.unknown == {}
    assert session.ending == "closed"
    counts = {name: count for name, (_, count) in session.phases.items()}
    assert counts["evaluation"] == 3
    assert counts["checkpoint"] == 2
    assert session.before["model_setup_s"] is not None
    # Two updates of two microbatches and one of one make an epoch of five: 8 updates are 14 microbatches.
    assert session.counters.as_json() == {
        "updates": 8,
        "skipped": 0,
        "microbatches": 14,
        "targets": session.counters.targets,
        "padded": 14 * 2 * 32,
    }
    assert sum(stretch.partial_updates for stretch in session.stretches) == 2
    assert [stretch.counters.updates for stretch in session.stretches if stretch.is_window] == [3, 4]


@pytest.mark.parametrize("backends", [("native", "fast"), ("fast", "native")])
def test_counters_go_on_with_either_backend(run_train: Train, tmp_path: Path, backends: tuple[str, str]) -> None:
    record = tmp_path / "run.json"
    first, second = backends
    assert run_train("--record", record, "--save", tmp_path / "saved", "--backend", first) == 0
    whole = monitor.read_run(record).sessions[0].counters
    saved = tmp_path / "saved" / "00000004"
    again = ("--save", tmp_path / "again", "--resume", saved, "--backend", second)
    assert run_train("--record", record, *again) == 0
    run = monitor.read_run(record)
    assert _wrong(run) == []
    assert [session.environment["settings"]["backend"] for session in run.sessions] == list(backends)
    assert run.sessions[1].start.updates == 4
    assert run.sessions[1].counters == whole


def test_a_record_is_not_begun_anew_over_an_earlier_one(
    run_train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "run.json"
    assert run_train("--record", record) == 0
    before = record.read_bytes()
    assert run_train("--record", record) == 2
    assert "there already" in capsys.readouterr().err
    assert record.read_bytes() == before


def test_the_recipe_changes_with_what_is_trained_on(run_train: Train, tmp_path: Path) -> None:
    records = []
    for seed in (1, 2):
        assert run_train("--record", tmp_path / f"{seed}.json", "--seed", seed) == 0
        records.append(json.loads((tmp_path / f"{seed}.json").read_text(encoding="ascii")))
    recipes: list[dict[str, Any]] = [record["recipe"] for record in records]
    assert {name for name in recipes[0] if recipes[0][name] != recipes[1][name]} == {"seed", "data_order_sha256"}
    assert records[0]["recipe_sha256"] != records[1]["recipe_sha256"]


def test_nothing_is_written_without_record(run_train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_train() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_record_cannot_go_on_from_a_checkpoint_that_has_none(
    run_train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_train("--save", tmp_path / "saved") == 0
    saved = tmp_path / "saved" / "00000004"
    assert run_train("--record", tmp_path / "run.json", "--resume", saved) == 2
    assert "was saved without --record" in capsys.readouterr().err
    assert run_train("--resume", saved) == 0


def test_loss_scaling_is_recorded_in_groups_of_updates(run_train: Train, tmp_path: Path) -> None:
    assert run_train("--record", tmp_path / "run.json", "loss_scale=1024", "log_every=2") == 0
    run = monitor.read_run(tmp_path / "run.json")
    assert _wrong(run) == []
    assert run.sessions[0].counters.updates == 8
