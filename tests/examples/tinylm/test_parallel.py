"""Processes that divide a training train what one process alone does."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import adapter
from tinylm.config import ConfigError, read_config
from tinylm.data import IGNORED, Loader, read_tokens
from tinylm.parallel import check_division

from .conftest import BASE, EXAMPLE

WORLD = 2
UPDATES = 8
QUANTITIES = ("parameters", "gradients", "exp_avg", "exp_avg_sq")
FOUR: dict[str, Any] = {**BASE, "batch": 4}
REMAINDER: dict[str, Any] = {"accumulation": 4, "epoch": 6}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped-remainder": {**REMAINDER, "clip": 0.05},
    "unequal-targets": {"targets": "speech", "accumulation": 2},
    "loss-scaling": {"precision": "fp16", "loss_scale": 1024.0, "scale_growth": 3},
}
OVERFLOWING: dict[str, dict[str, Any]] = {
    "overflowing": {"precision": "fp16", "loss_scale": 2.0**24, "accumulation": 2},
}
"""Whether a sum overflows in fp16 may depend on who adds up what, so that these are no training of one process."""
BACKENDS = ("native", "fast")
TOLERANCES = {"loss-scaling": 5e-3}
"""Of relative L2 norms; fp16 rounds the gradients of other sums. For all others see below."""
TOLERANCE = 1e-5

RANK = """
import os, sys
from pathlib import Path
import torch, torch.distributed
from tests.examples.tinylm.test_parallel import BACKENDS, CASES, OVERFLOWING, WORLD, trained
torch.set_num_threads(1)
folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
meeting = f"file://{folder}/meeting"  # no port that another process could take meanwhile
torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD)
for backend in BACKENDS:
    for name in CASES | OVERFLOWING:
        torch.save(trained(backend, name, folder), folder / f"{backend}-{name}-{rank}.pt")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def trained(backend: str, name: str, folder: Path) -> dict[str, Any]:
    """What a process knows of a training in which it took part."""
    torch.manual_seed(0)  # nothing draws from it, and a process begins with a random one
    session: adapter.Session = getattr(adapter, backend)({**FOUR, **(CASES | OVERFLOWING)[name]}, seed=3, device="cpu")
    counts = session.updates(UPDATES)
    session.sync()
    found: dict[str, Any] = {"counts": counts, "loss": session.loss(), "progress": session.progress()}
    for quantity in QUANTITIES:
        found[quantity] = {key: value.clone() for _, key, value in session.state(quantity)}
    own = folder / f"{backend}-{name}-saved-by-{os.environ.get('RANK', '0')}"
    session.save(own)
    first = folder / f"{backend}-{name}-saved-by-0" / "checkpoint.pt"
    found["saved"] = (own.exists(), first.is_file())
    found["matched"] = session.update_on(session.batch(UPDATES))
    found["examples"] = [list(session.examples(step)) for step in range(UPDATES)]
    found["engaged"] = session.engaged()
    session.close()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, script: Path) -> Path:
    """What every process found in every case."""
    folder = tmp_path_factory.mktemp("parallel")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(EXAMPLE), str(Path(__file__).parents[3])]),
        "TINYLM_DATA": str(script),
        "WORLD_SIZE": str(WORLD),
    }
    command = [sys.executable, "-c", RANK, str(folder)]
    ranks = [subprocess.Popen(command, env={**environment, "RANK": str(rank)}) for rank in range(WORLD)]
    try:
        assert [rank.wait(timeout=60) for rank in ranks] == [0] * WORLD
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return folder


def _found(folder: Path, backend: str, name: str) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{backend}-{name}-{rank}.pt", weights_only=True) for rank in range(WORLD)]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, script: Path, tmp_path: Path) -> Any:
    monkeypatch.setenv("TINYLM_DATA", str(script))
    return lambda backend, name: trained(backend, name, tmp_path)


def _rel_l2(expected: dict[str, Tensor], got: dict[str, Tensor]) -> float:
    assert expected.keys() == got.keys()
    error = sum(float((value.double() - got[name].double()).square().sum()) for name, value in expected.items())
    norm = sum(float(value.double().square().sum()) for value in expected.values())
    assert norm > 0
    return float((error / norm) ** 0.5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_processes_train_what_one_does(folder: Path, alone: Any, backend: str, name: str) -> None:
    expected = alone(backend, name)
    first, second = _found(folder, backend, name)
    tolerance = TOLERANCES.get(name, TOLERANCE)
    for quantity in QUANTITIES:
        assert _rel_l2(expected[quantity], first[quantity]) <= tolerance, quantity
        assert _rel_l2(first[quantity], second[quantity]) == 0, quantity
    assert first["loss"] == second["loss"] == pytest.approx(expected["loss"], rel=tolerance)
    assert first["matched"] == second["matched"] == pytest.approx(expected["matched"], rel=tolerance)
    assert first["progress"] == second["progress"] == expected["progress"]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_processes_share_out_targets_and_examples(folder: Path, alone: Any, backend: str, name: str) -> None:
    expected = alone(backend, name)
    first, second = _found(folder, backend, name)
    updates, microbatches, skipped, tokens = expected["counts"]
    for own in (first, second):
        assert own["counts"][:3] == (updates, microbatches, skipped)
    assert first["counts"][3] + second["counts"][3] == tokens
    for mine, theirs, every in zip(first["examples"], second["examples"], expected["examples"], strict=True):
        assert len(mine) == len(theirs) > 0
        assert sorted(mine + theirs) == sorted(every)
        assert len(set(every)) == len(every)


def test_unequal_shares_of_targets_are_what_was_tried(folder: Path) -> None:
    """Otherwise a mean of the processes' own means would have passed."""
    first, second = _found(folder, "fast", "unequal-targets")
    assert first["counts"][3] != second["counts"][3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_processes_skip_the_same_updates(folder: Path, backend: str) -> None:
    first, second = _found(folder, backend, "overflowing")
    assert 0 < first["counts"][2] == second["counts"][2] < UPDATES
    assert first["progress"] == second["progress"]
    assert _rel_l2(first["parameters"], second["parameters"]) == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_are_exchanged_once_an_update_however_many_microbatches_it_has(folder: Path, backend: str) -> None:
    for own in _found(folder, backend, "clipped-remainder"):
        assert own["counts"][1] > UPDATES
        assert own["engaged"]["exchanges"] == own["engaged"]["updates"] == UPDATES + 1
        assert own["engaged"]["exchange"] == "gloo"
        assert own["engaged"]["synchronisation"] == "after last microbatch"
        assert own["engaged"]["processes"] == WORLD


def test_a_process_alone_exchanges_nothing_and_says_so_by_saying_nothing(alone: Any) -> None:
    assert not {"exchange", "exchanges", "synchronisation"} & set(alone("fast", "plain")["engaged"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_process_saves_for_all_and_the_others_wait(folder: Path, backend: str) -> None:
    first, second = _found(folder, backend, "plain")
    assert first["saved"] == (True, True)
    assert second["saved"] == (False, True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_process_goes_on_from_what_two_saved(
    folder: Path, script: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("TINYLM_DATA", str(script))
    session: adapter.Session = getattr(adapter, backend)(FOUR, seed=3, device="cpu")
    session.load(folder / f"{backend}-plain-saved-by-0")
    first = _found(folder, backend, "plain")[0]
    assert session.progress() == first["progress"]
    assert all(torch.equal(value, first["parameters"][name]) for _, name, value in session.state("parameters"))
    assert session.update_on(session.batch(UPDATES)) == pytest.approx(first["matched"], rel=TOLERANCE)


@pytest.mark.parametrize(("entries", "key"), [({"batch": 3}, "batch"), ({"mode": "packed", "workers": 2}, "mode")])
def test_what_cannot_be_divided_is_refused(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, entries: dict[str, Any], key: str
) -> None:
    monkeypatch.setenv("TINYLM_DATA", str(corpus))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ConfigError, match=f"'{key}'"):
        adapter.fast({**FOUR, **entries}, seed=1, device="cpu")


def test_what_can_be_divided_is_not_refused() -> None:
    check_division(read_config(FOUR), 4)


@pytest.mark.parametrize("which", ["all", "speech"])
def test_parts_of_microbatches_add_up_to_whole_ones(script: Path, which: str) -> None:
    config = read_config({**FOUR, **REMAINDER, "batch": 6, "targets": which})
    corpus = read_tokens(script / "train.bin")
    parts = [Loader(config, corpus, seed=1, device=torch.device("cpu"), rank=rank, world=3) for rank in range(3)]
    for update in range(5):
        whole = parts[1].whole_microbatches(update)
        for micro, batch in enumerate(whole):
            own = [loader.microbatches(update)[micro] for loader in parts]
            assert torch.equal(torch.cat([one.tokens for one in own], 1), batch.tokens)
            assert torch.equal(torch.cat([one.targets for one in own], 1), batch.targets)
            assert {one.all_targets for one in own} == {batch.all_targets} == {batch.num_targets}
            assert [one.num_targets[0] for one in own] == [int((one.targets != IGNORED).sum()) for one in own]


def test_examples_are_others_in_the_next_epoch(script: Path) -> None:
    config = read_config({**FOUR, "epoch": 3})
    loader = Loader(config, read_tokens(script / "train.bin"), seed=1, device=torch.device("cpu"))
    first, second = ({*loader.examples(update), *loader.examples(update + 1)} for update in (0, 3))
    assert len(first) == len(second) == 8
    assert not first & second


def test_a_batch_knows_what_all_processes_predict(script: Path) -> None:
    loader = Loader(read_config(FOUR), read_tokens(script / "train.bin"), seed=1, device=torch.device("cpu"))
    (batch,) = loader.microbatches(0)
    assert dataclasses.replace(batch).all_targets == batch.num_targets
