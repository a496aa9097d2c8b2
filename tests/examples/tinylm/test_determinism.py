"""The key `deterministic`: the same bits in two processes, and a process that cannot keep the promise is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import adapter
from tinylm import determinism
from tinylm.config import ConfigError

from .conftest import BASE, EXAMPLE

PACKED: dict[str, Any] = {**BASE, "mode": "packed", "workers": 4, "precision": "bf16"}

RUN = """
import hashlib, json, os, sys
import adapter, torch
for make in (adapter.native, adapter.fast):
    session = make(json.loads(sys.argv[1]), seed=1, device="cpu")
    session.updates(4)
    session.sync()
    digest = hashlib.sha256()
    for quantity in ("parameters", "gradients", "exp_avg", "exp_avg_sq"):
        for _, _, tensor in session.state(quantity):
            digest.update(tensor.contiguous().numpy().tobytes())
    print(digest.hexdigest())
    print(session.engaged()["deterministic"])
print(torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory)
print(os.environ.get("CUBLAS_WORKSPACE_CONFIG"))
"""


def _run(corpus: Path, config: dict[str, Any]) -> list[str]:
    """Train in a process of its own; the lines that it prints."""
    environment = {"TINYLM_DATA": str(corpus), "PYTHONPATH": str(EXAMPLE)}
    command = [sys.executable, "-c", RUN, json.dumps(config)]
    done = subprocess.run(command, check=True, env=environment, timeout=120, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.fixture
def _torch_as_it_was() -> Any:
    cuda: Any = torch.backends.cuda  # torch leaves some of these functions untyped
    before = (cuda.cudnn_sdp_enabled(), cuda.mem_efficient_sdp_enabled())
    yield
    torch.use_deterministic_algorithms(mode=False)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]  # a property of the module
    cuda.enable_cudnn_sdp(before[0])
    cuda.enable_mem_efficient_sdp(before[1])
    os.environ.pop(determinism.WORKSPACE_VARIABLE, None)


def test_two_processes_give_the_same_bits_and_name_the_path(corpus: Path) -> None:
    first, second = (_run(corpus, {**PACKED, "deterministic": True}) for _ in range(2))
    assert first == second
    assert [first[1], *first[3:]] == ["yes, attention by flash or math"] * 2 + ["True False", ":4096:8"]


def test_without_the_key_torch_is_left_alone(corpus: Path) -> None:
    lines = _run(corpus, PACKED)
    assert [lines[1], *lines[3:]] == ["no", "no", "False True", "None"]


@pytest.mark.parametrize("given", [None, ":16:8"])
def test_a_process_that_has_started_cuda_otherwise_is_refused(
    monkeypatch: pytest.MonkeyPatch, corpus: Path, given: str | None
) -> None:
    monkeypatch.setenv("TINYLM_DATA", str(corpus))
    monkeypatch.delenv(determinism.WORKSPACE_VARIABLE, raising=False)
    if given:
        monkeypatch.setenv(determinism.WORKSPACE_VARIABLE, given)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ConfigError, match=rf"'deterministic'.*CUBLAS_WORKSPACE_CONFIG {given or 'unset'}"):
        adapter.fast({**PACKED, "deterministic": True}, seed=1, device="cpu")
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.usefixtures("_torch_as_it_was")
def test_a_process_that_has_started_cuda_with_the_right_workspace_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(determinism.WORKSPACE_VARIABLE, determinism.WORKSPACE)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    determinism.make_deterministic()
    assert determinism.in_words() == "yes, attention by flash or math"
