"""A training that was saved and loaded in another process goes on as if nothing had happened, to the bit."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import adapter
from tinylm.checkpoint import FILE, CheckpointError
from tinylm.config import LARGEST_SCALE

from .conftest import BASE, EXAMPLE

PACKED4: dict[str, Any] = {"mode": "packed", "workers": 4}
SCALED: dict[str, Any] = {"precision": "fp16", "loss_scale": LARGEST_SCALE, "scale_growth": 2}
REMAINDER: dict[str, Any] = {"accumulation": 4, "epoch": 6}
CASES: dict[str, dict[str, Any]] = {
    "sync": {},
    "sync-untied-scaled-remainder": {**SCALED, **REMAINDER, "tied": False},
    "sync-bf16-remainder": {"precision": "bf16", **REMAINDER},
    "packed4-remainder": {**PACKED4, **REMAINDER},
    "packed4-while-combining": {**PACKED4, "consensus": "awc"},
    "packed4-bf16": {**PACKED4, "precision": "bf16", "gamma": "adaptive"},
    "packed4-scaled": {**PACKED4, **SCALED, "targets": "speech"},
}
BACKENDS = ("native", "fast")
BEFORE, AFTER = 11, 8  # two updates make an epoch of REMAINDER, so that this saves inside one, and ends in another one

RESUME = """
import json, sys
import torch
from tests.examples.tinylm.test_checkpoint import AFTER, outcome, make
torch.set_num_threads(1)
for folder, backend, entries in json.loads(sys.argv[1]):
    session = make(backend, entries)
    session.load(folder)
    loaded = session.progress()
    print(json.dumps([loaded, session.loss(), outcome(session)]))
"""


def make(backend: str, entries: dict[str, Any], *, seed: int = 3) -> adapter.Session:
    """A session at update 0."""
    session: adapter.Session = getattr(adapter, backend)({**BASE, **entries}, seed=seed, device="cpu")
    return session


def outcome(session: adapter.Session) -> dict[str, Any]:
    """What AFTER more updates lead to, to the bit."""
    counts = session.updates(AFTER)
    session.sync()
    quantities = ("parameters", "gradients", "exp_avg", "exp_avg_sq")
    return {
        "counts": list(counts),
        "evaluation": list(session.evaluate()),
        "loss": session.loss(),
        "progress": session.progress(),
        "path": {key: value for key, value in session.engaged().items() if isinstance(value, str)},
        **{quantity: digest(session, quantity) for quantity in quantities},
    }


def digest(session: adapter.Session, quantity: str) -> str:
    """sha256 over names and values."""
    found = hashlib.sha256()
    for worker, name, tensor in session.state(quantity):
        found.update(f"{worker}/{name}".encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


@pytest.fixture(autouse=True)
def _data(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYLM_DATA", str(script))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of the native backend with four workers."""
    session = make("native", PACKED4)
    session.updates(3)
    session.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_training_resumed_in_a_new_process_equals_the_uninterrupted_one_to_the_bit(tmp_path: Path) -> None:
    asked: list[tuple[str, str, dict[str, Any]]] = []
    expected: list[list[Any]] = []
    for backend in BACKENDS:
        for case, entries in CASES.items():
            folder = tmp_path / f"{backend}-{case}"
            session = make(backend, entries)
            session.updates(BEFORE)
            torch.rand(7)  # so that the generator does not stand where a process starts
            saved = session.progress()
            session.save(folder)
            assert session.progress() == saved
            asked.append((str(folder), backend, entries))
            expected.append([saved, session.loss(), outcome(session)])
    environment = {"TINYLM_DATA": os.environ["TINYLM_DATA"], "PYTHONPATH": f"{EXAMPLE}:{Path(__file__).parents[3]}"}
    command = [sys.executable, "-c", RESUME, json.dumps(asked)]
    done = subprocess.run(command, check=True, env=environment, timeout=300, capture_output=True, text=True)
    got = [json.loads(line) for line in done.stdout.splitlines()]
    assert got == json.loads(json.dumps(expected))
    scaled = [one[0] for one, (_, _, entries) in zip(expected, asked, strict=True) if "loss_scale" in entries]
    assert all(0 < one["successful_updates"] < one["attempted_updates"] for one in scaled)


@pytest.mark.parametrize("case", ["packed4-scaled", "sync-untied-scaled-remainder"])
@pytest.mark.parametrize(("first", "second"), [BACKENDS, BACKENDS[::-1]])
def test_either_backend_goes_on_from_the_others_checkpoint(tmp_path: Path, case: str, first: str, second: str) -> None:
    one, other = make(first, CASES[case]), make(second, CASES[case])
    one.updates(BEFORE)
    other.updates(2)  # so that there is something to forget
    one.save(tmp_path)
    other.load(tmp_path)
    assert one.progress() == other.progress()
    assert one.loss() == other.loss()
    for quantity in ("parameters", "exp_avg", "exp_avg_sq"):
        assert digest(one, quantity) == digest(other, quantity)
    assert one.updates(AFTER) == other.updates(AFTER)
    assert one.evaluate()[0] == pytest.approx(other.evaluate()[0], rel=1e-3)


def test_gradients_are_cleared_when_saving_and_loading(tmp_path: Path) -> None:
    for backend in BACKENDS:
        session = make(backend, PACKED4)
        session.updates(2)
        session.save(tmp_path)
        with pytest.raises(RuntimeError, match="no gradients"):
            list(session.state("gradients"))
        session.updates(1)
        session.load(tmp_path)
        with pytest.raises(RuntimeError, match="no gradients"):
            list(session.state("gradients"))


@pytest.mark.parametrize(
    "entries", [{"size": "tiny"}, {"workers": 2}, {"lr": 1e-3}, {"updates_total": 30}, {"targets": "speech"}]
)
def test_a_checkpoint_of_another_configuration_is_refused_by_the_name_of_the_key(
    saved: Path, entries: dict[str, Any]
) -> None:
    (key,) = entries
    session = make("fast", {**PACKED4, **entries})
    before = digest(session, "parameters")
    with pytest.raises(CheckpointError, match=f"config key '{key}'"):
        session.load(saved)
    assert (digest(session, "parameters"), session.progress()["attempted_updates"]) == (before, 0)


def test_a_checkpoint_of_another_seed_or_text_is_refused(
    saved: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointError, match="seed is 3 there and 4"):
        make("fast", PACKED4, seed=4).load(saved)
    monkeypatch.setenv("TINYLM_DATA", str(corpus))
    with pytest.raises(CheckpointError, match="another text"):
        make("fast", PACKED4).load(saved)


def test_what_changes_neither_state_nor_data_may_differ(saved: Path) -> None:
    session = make("native", {**PACKED4, "log_every": 7})
    session.load(saved)
    assert session.progress()["attempted_updates"] == 3


def test_a_tensor_that_is_missing_or_of_another_shape_is_named(saved: Path) -> None:
    content = torch.load(saved / FILE, weights_only=True)
    tensors = content["state"]["tensors"]
    key = ("exp_avg", 2, "norm.weight")
    for changed in ({**tensors, key: tensors[key][1:]}, {k: v for k, v in tensors.items() if k != key}):
        content["state"]["tensors"] = changed
        torch.save(content, saved / FILE)
        with pytest.raises(CheckpointError, match=r"exp_avg.*2.*norm\.weight"):
            make("fast", PACKED4).load(saved)


@pytest.mark.parametrize("damage", ["absent", "empty", "cut", "code", "foreign"])
def test_a_file_that_is_no_checkpoint_is_refused(saved: Path, damage: str) -> None:
    path = saved / FILE
    whole = path.read_bytes()
    path.unlink()
    if damage == "code":
        path.write_bytes(pickle.dumps(subprocess.run, protocol=2))
    elif damage == "foreign":
        torch.save({"state": {}}, path)
    elif damage != "absent":
        path.write_bytes(whole[: {"empty": 0, "cut": len(whole) // 2}[damage]])
    with pytest.raises(CheckpointError, match=FILE):
        make("native", PACKED4).load(saved)
