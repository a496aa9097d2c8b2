"""Stages that are captured and replayed do what they do when they are called, whatever changes between updates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tinylm import fast as fast_module
from tinylm import graphs, regions
from tinylm.config import read_config
from tinylm.data import IGNORED, Batch
from tinylm.fast import Fast
from tinylm.graphs import EAGER_UPDATES, CaptureError
from tinylm.stacked import divide
from tinylm.trainer import GRADIENTS, MOMENTS, PARAMETERS, Trainer

from .conftest import BASE, MakeTrainer
from .taping import Stream, Tape, capture, pretend

PACKED4: dict[str, Any] = {"mode": "packed", "workers": 4}
REMAINDER: dict[str, Any] = {"accumulation": 4, "epoch": 6}
SCALED: dict[str, Any] = {"precision": "fp16", "loss_scale": 2.0**24, "scale_growth": 2}
CASES: dict[str, dict[str, Any]] = {
    "sync-remainder": {**REMAINDER, "clip": 0.05},
    "sync-untied-scaled": {**SCALED, "tied": False},
    "packed4-adaptive": {**PACKED4, "gamma": "adaptive", "precision": "bf16"},
    "packed4-while-combining-scaled": {**PACKED4, **SCALED, **REMAINDER, "consensus": "awc"},
}
ALL = (PARAMETERS, GRADIENTS, *MOMENTS)


def _tensors(trainer: Trainer, *quantities: str) -> dict[tuple[str, int, str], Tensor]:
    return {(q, worker, name): tensor.clone() for q in quantities for worker, name, tensor in trainer.backend.state(q)}


def _assert_equal(one: Trainer, other: Trainer) -> None:
    assert torch.equal(one.losses(), other.losses())
    expected, got = _tensors(one, *ALL), _tensors(other, *ALL)
    # Gradients of a skipped update may be no numbers.
    differ = [key for key, tensor in expected.items() if not torch.equal(tensor.nan_to_num(7), got[key].nan_to_num(7))]
    assert differ == []
    assert one.backend.scaling() == other.backend.scaling()
    assert one.backend.optimizer_step() == other.backend.optimizer_step()


def _pair(make: MakeTrainer, monkeypatch: pytest.MonkeyPatch, **entries: Any) -> tuple[Trainer, Trainer]:
    """A trainer whose stages are called, and one whose stages are captured."""
    called = make("fast", **entries)
    with monkeypatch.context() as patches:
        pretend(patches)
        captured = make("fast", **entries)
    pretend(monkeypatch)
    return called, captured


@pytest.mark.parametrize("case", CASES)
def test_replays_do_what_calls_do_to_the_bit(make: MakeTrainer, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    called, captured = _pair(make, monkeypatch, **CASES[case])
    assert called.train(9) == captured.train(9)
    _assert_equal(called, captured)
    assert captured.backend.num_skipped() == called.backend.num_skipped()
    state = _tensors(called, PARAMETERS, *MOMENTS)
    batches = called.microbatches(2)
    for trainer in (called, captured):
        trainer.load_state(state, 4)
        trainer.train(2)
        trainer.local_update(batches)
    _assert_equal(called, captured)
    parameters = {key[1:]: tensor for key, tensor in state.items() if key[0] == PARAMETERS}
    for trainer in (called, captured):
        list(trainer.optimizer_check(parameters, [parameters, parameters]))
    assert all(map(torch.equal, *(_tensors(trainer, PARAMETERS, *MOMENTS).values() for trainer in (called, captured))))


def test_the_first_updates_are_called_and_all_others_replayed(
    make: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, captured = _pair(make, monkeypatch, **PACKED4, **REMAINDER)
    path = captured.backend.description()
    captured.train(EAGER_UPDATES)  # 4 + 2 + 4 microbatches
    counts = {"graphs": 0, "graph_replays": 0, "stages_called": 13, "recompiles": 0, "regions_compiled": 0}
    assert captured.backend.counts() == counts
    captured.train(3)  # 2 + 4 + 2
    captured.local_update(captured.microbatches(0))  # 4
    counts |= {"graphs": 3, "graph_replays": 8 + 4 + 4}
    assert captured.backend.counts() == counts
    assert captured.backend.description() == path
    assert path["graphs"] == "captured after 3 updates"


def test_what_the_compiler_makes_after_the_capture_is_counted(
    make: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, captured = _pair(make, monkeypatch)
    for updates, compiled, recompiles in ((EAGER_UPDATES, 3, 0), (1, 3, 0), (1, 5, 2)):
        monkeypatch.setattr(graphs, "_num_compiled", lambda compiled=compiled: compiled)
        captured.train(updates)
        counts = captured.backend.counts()
        assert (counts["regions_compiled"], counts["recompiles"]) == (compiled, recompiles)


def test_a_mixed_round_after_capture_is_that_of_its_number(make: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    called, captured = _pair(make, monkeypatch, **PACKED4, gamma="adaptive")
    for trainer in (called, captured):
        trainer.train(5)
    parameters = {key[1:]: tensor for key, tensor in _tensors(called, PARAMETERS).items()}
    for number in (0, 11):
        mixed = [[tensor.clone() for *_, tensor in trainer.mix(parameters, number)] for trainer in (called, captured)]
        assert all(map(torch.equal, *mixed))


def test_a_stage_that_cannot_be_captured_ends_the_training_with_a_reason(
    make: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, captured = _pair(make, monkeypatch)
    captured.train(EAGER_UPDATES)

    def fail(_stage: Fast) -> None:
        raise torch.cuda.OutOfMemoryError("no room")

    monkeypatch.setattr(Fast, "_first", fail)
    for _ in range(2):
        with pytest.raises(
            CaptureError, match=r"'first' could not be captured .* at update 4 .*OutOfMemoryError: no room"
        ):
            captured.train(1)


def test_a_state_that_has_moved_is_refused(make: MakeTrainer) -> None:
    trainer = make("fast")
    matrices = trainer.backend._arenas.matrices  # type: ignore[attr-defined]  # the backend is Fast
    matrices.firsts = matrices.firsts.clone()
    with pytest.raises(RuntimeError, match="has moved"):
        trainer.load_state(_tensors(make("fast"), PARAMETERS), 0)


def test_a_tape_does_nothing_while_it_records_and_keeps_numbers_as_they_were() -> None:
    tape, value, factor = Tape(), torch.ones(3), 2.0
    with capture(tape, pool="pool", stream=Stream(), capture_error_mode="thread_local"):
        value[1:].mul_(factor).add_(value[0] * factor)
    assert value.tolist() == [1, 1, 1]
    factor = 5.0
    for expected in ([1, 4, 4], [1, 10, 10]):
        tape.replay()
        assert value.tolist() == expected


@pytest.mark.parametrize("entries", [{}, {"precision": "bf16"}, {"tied": False, "accumulation": 2}])
def test_workers_one_by_one_are_workers_side_by_side(
    make: MakeTrainer, monkeypatch: pytest.MonkeyPatch, entries: dict[str, Any]
) -> None:
    together = make("fast", **PACKED4, **entries)
    monkeypatch.setattr(fast_module, "MOST_ROWS", 3 * 16 - 1)
    apart = make("fast", **PACKED4, **entries)
    assert together.backend.description()["workers at a time"] == "4 of 4"
    assert apart.backend.description()["workers at a time"] == "1 of 4"
    assert together.train(3) == apart.train(3)
    bound = 0.01 if "precision" in entries else 1e-5
    expected, got = (_tensors(trainer, PARAMETERS) for trainer in (together, apart))
    for key, tensor in expected.items():
        assert (tensor - got[key]).norm() <= bound * tensor.norm(), key


def test_workers_are_stacked_up_to_so_many_rows() -> None:
    assert divide(8, 4096, 4096) == [slice(0, 8)]
    assert divide(8, 4097, 4096) == list(range(8))
    assert divide(1, 10, 4096) == [0]


def test_a_smaller_batch_fits_and_a_larger_one_does_not(make: MakeTrainer) -> None:
    trainer = make("fast")
    (batch,) = trainer.microbatches(0)
    trainer.backend._inputs.load(batch)  # type: ignore[attr-defined]  # the backend is Fast
    with pytest.raises(RuntimeError):
        make("fast", batch=2).local_update([batch])


@pytest.mark.parametrize("shape", [(1, 16), (3, 5), (2, 7)])
def test_what_a_larger_batch_left_is_not_trained_on(make: MakeTrainer, shape: tuple[int, int]) -> None:
    sequences, positions = shape
    fresh, used, native = make("fast"), make("fast"), make("native")
    (batch,) = fresh.microbatches(0)
    tokens, targets = (tensor[:, :sequences, :positions] for tensor in (batch.tokens, batch.targets))
    counts = (int((targets != IGNORED).sum()),)
    small = Batch(tokens=tokens, targets=targets, num_targets=counts, all_targets=counts)
    used.backend._inputs.load(used.microbatches(1)[0])  # type: ignore[attr-defined]  # the backend is Fast
    for trainer in (fresh, used, native):
        trainer.local_update([small])
    _assert_equal(fresh, used)
    torch.testing.assert_close(used.losses(), native.losses(), rtol=1e-5, atol=0)


def test_regions_are_compiled_on_cuda_unless_the_training_is_deterministic() -> None:
    for device, deterministic, expected in (
        ("cpu", False, "eager"),
        ("cuda", True, "eager"),
        ("cuda", False, "compiled"),
    ):
        config = read_config({**BASE, "deterministic": deterministic})
        _, path = regions.make_regions(config, torch.device(device))
        assert path.split(":")[0] == expected


# The compiler looks at whatever a tensor has.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor:UserWarning")
def test_compiled_regions_give_the_same_bits_and_are_compiled_once(
    make: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced in one piece, forward and backward, by all of torch.compile but the code it would write for a GPU."""
    entries = {**PACKED4, "precision": "bf16"}
    eager = make("fast", **entries)
    monkeypatch.setattr(regions, "BACKEND", "aot_eager")
    monkeypatch.setattr(regions, "make_regions", lambda *_: (regions.Regions(regions.compiled), "compiled"))
    compiled = make("fast", **entries)
    torch._dynamo.reset()
    before = graphs._num_compiled()
    for trainer in (eager, compiled):
        trainer.train(1)
    made = graphs._num_compiled() - before
    for trainer in (eager, compiled):
        trainer.train(2)
    _assert_equal(eager, compiled)
    assert made == 3
    assert graphs._num_compiled() - before == made
