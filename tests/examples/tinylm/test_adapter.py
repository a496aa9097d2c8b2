"""The adapter's shape, as a harness calls it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import adapter
from tinylm.config import ConfigError

from .conftest import BASE, EXAMPLE

PACKED: dict[str, Any] = {**BASE, "mode": "packed", "workers": 4}


@pytest.fixture(params=["native", "fast"])
def session(request: pytest.FixtureRequest, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> adapter.Session:
    monkeypatch.setenv("TINYLM_DATA", str(corpus))
    built: adapter.Session = getattr(adapter, request.param)(PACKED, seed=1, device="cpu")
    return built


def test_updates_count_targets_and_microbatches_of_all_workers(session: adapter.Session) -> None:
    updates, microbatches, skipped, targets = session.updates(3)
    session.sync()
    assert (updates, microbatches, skipped) == (3, 12, 0)
    counted = sum(int((session.batch(step)["targets"] >= 0).sum()) for step in range(3))
    assert targets == counted
    assert 4 < session.loss() < 7


def test_update_on_the_loaders_batch_is_the_local_part_of_an_update(session: adapter.Session) -> None:
    start = [(worker, name, tensor.clone()) for worker, name, tensor in session.state("parameters")]
    losses = session.update_on(session.batch(0))
    assert len(losses) == 4
    assert session.loss() == pytest.approx(sum(losses) / 4, rel=1e-6)
    session.load_state({("parameters", worker, name): tensor for worker, name, tensor in start}, 0)
    session.updates(1)
    assert session.loss() == pytest.approx(sum(losses) / 4, rel=1e-6)


def test_update_on_counts_only_targets_that_are_not_negative(session: adapter.Session) -> None:
    batch = session.batch(0)
    start = {("parameters", worker, name): tensor.clone() for worker, name, tensor in session.state("parameters")}
    shorter = {"tokens": batch["tokens"][..., :8], "targets": batch["targets"][..., :8]}
    masked = {"tokens": batch["tokens"], "targets": batch["targets"].clone()}
    masked["targets"][..., 8:] = -7
    losses = session.update_on(shorter)
    session.load_state(start, 0)
    assert session.update_on(masked) == pytest.approx(losses, rel=1e-5)


def test_engaged_names_the_path_in_text_and_counts_in_integers(session: adapter.Session) -> None:
    before = session.engaged()
    session.updates(2)
    after = session.engaged()
    assert {key: value for key, value in after.items() if isinstance(value, str)} == {
        key: value for key, value in before.items() if isinstance(value, str)
    }
    assert after["backend"] in {"native", "fast"}
    assert after["stacked"] == {"native": "no", "fast": "yes"}[str(after["backend"])]
    assert {"attention", "optimizer"} <= set(after)
    assert (after["updates"], after["combinations"]) == (2, 2)


def test_engaged_differs_between_the_backends(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYLM_DATA", str(corpus))
    native, fast = (make(PACKED, seed=1, device="cpu").engaged() for make in (adapter.native, adapter.fast))
    assert native["backend"] != fast["backend"]


def test_progress_follows_the_training_and_a_loaded_step(session: adapter.Session) -> None:
    session.updates(2)
    progress = session.progress()
    assert (progress["successful_updates"], progress["loader_position"]) == (2, 2)
    state = {("parameters", worker, name): tensor for worker, name, tensor in session.state("parameters")}
    session.load_state(state, 9)
    assert session.progress()["attempted_updates"] == 9


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_skipped_updates_are_counted_and_progress_tells_them_apart(
    backend: str, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYLM_DATA", str(corpus))
    config = {**PACKED, "precision": "fp16", "loss_scale": 2.0**24}
    session: adapter.Session = getattr(adapter, backend)(config, seed=1, device="cpu")
    assert session.progress()["loss_scale"] == 2.0**24
    updates, microbatches, skipped, _ = session.updates(10)
    assert (updates, microbatches) == (10, 40)
    assert 0 < skipped < 10
    progress = session.progress()
    assert (progress["attempted_updates"], progress["successful_updates"]) == (10, 10 - skipped)
    assert progress["loss_scale"] == 2.0 ** (24 - skipped)


def test_evaluation_scores_every_validation_target_of_the_mean_model(session: adapter.Session) -> None:
    nats, targets = session.evaluate()
    assert targets == 699
    assert 5 < nats / targets < 6


def test_an_unknown_quantity_is_refused(session: adapter.Session) -> None:
    with pytest.raises(ValueError, match="momentum"):
        session.state("momentum")


def test_a_bad_configuration_names_its_key(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYLM_DATA", str(corpus))
    with pytest.raises(ConfigError, match="'batch'"):
        adapter.native({**BASE, "batch": -1}, seed=1, device="cpu")


def test_a_missing_data_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINYLM_DATA", raising=False)
    with pytest.raises(RuntimeError, match="TINYLM_DATA"):
        adapter.fast(BASE, seed=1, device="cpu")


def test_close_lets_the_models_go(session: adapter.Session) -> None:
    session.updates(1)
    session.close()
    with pytest.raises(AttributeError):
        session.sync()


def test_the_example_imports_nothing_but_torch_and_itself() -> None:
    """What would else be imported at a process's start is paid for in every measurement."""
    own = {path.stem for path in EXAMPLE.glob("*.py")}
    allowed = {"torch", "tinylm", *own, *sys.stdlib_module_names}
    for path in [*EXAMPLE.glob("*.py"), *EXAMPLE.glob("tinylm/*.py")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words[:1] in (["import"], ["from"]):
                name = words[1].split(".")[0]
                # Triton comes with torch for CUDA, and only there is this module imported.
                assert name in allowed or (path.name == "kernels.py" and name == "triton"), f"{path.name}: {line}"


def test_the_fast_backend_starts_without_the_compiler(corpus: Path) -> None:
    """torch._dynamo and the sympy under it take as long to import as torch itself."""
    code = (
        "import sys, adapter\n"
        f"session = adapter.fast({PACKED!r}, seed=1, device='cpu')\n"
        "session.updates(1)\n"
        "session.sync()\n"
        "sys.exit(bool({'torch._dynamo', 'sympy'} & set(sys.modules)))\n"
    )
    environment = {"TINYLM_DATA": str(corpus), "PYTHONPATH": str(EXAMPLE)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)


def test_log_lines_come_out_with_the_numbers_of_their_updates(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINYLM_DATA", str(corpus))
    session = adapter.fast({**PACKED, "log_every": 2}, seed=1, device="cpu")
    session.updates(4)
    session.sync()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["update", "2"], ["update", "4"]]
    assert f"loss {session.loss():.4f}" in lines[-1]
