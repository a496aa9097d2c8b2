from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tinylm.config import ConfigError, read_config
from tinylm.data import (
    IGNORED,
    Batch,
    Loader,
    mixed_seed,
    num_validation_targets,
    predicted_bytes,
    read_tokens,
    validation_batches,
)

CPU = torch.device("cpu")


def _loader(corpus: Path, *, seed: int = 1, **entries: Any) -> Loader:
    config = read_config({"size": "micro", "batch": 3, "context": 16, **entries})
    return Loader(config, read_tokens(corpus / "train.bin"), seed=seed, device=CPU)


def _packed(corpus: Path, *, seed: int = 1, **entries: Any) -> Loader:
    return _loader(corpus, seed=seed, mode="packed", workers=4, **entries)


def _equal(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a.tokens, b.tokens) and torch.equal(a.targets, b.targets) and a.num_targets == b.num_targets
        for a, b in zip(first, second, strict=True)
    )


def test_a_batch_depends_on_seed_and_step_and_on_nothing_that_was_asked_before(corpus: Path) -> None:
    straight, wandering = _packed(corpus), _packed(corpus)
    for step in (50, 3, 200, 7):
        wandering.microbatches(step)
    for step in (0, 7, 41, 90):
        assert _equal(straight.microbatches(step), wandering.microbatches(step))


def test_seeds_steps_and_workers_get_different_batches(corpus: Path) -> None:
    loader = _packed(corpus)
    (batch,) = loader.microbatches(5)
    assert not _equal([batch], loader.microbatches(6))
    assert not _equal([batch], _packed(corpus, seed=2).microbatches(5))
    assert len({tuple(worker.flatten().tolist()) for worker in batch.tokens}) == 4


def test_workers_never_share_a_window_within_an_epoch_and_no_window_comes_twice(corpus: Path) -> None:
    loader = _packed(corpus)
    starts = torch.cat([loader.starts(2, micro) for micro in range(loader.epoch_microbatches)], dim=1)
    assert starts.numel() == torch.unique(starts).numel()
    assert loader.epoch_microbatches * 4 * 3 * 16 > 0.9 * 4001


def test_every_epoch_has_its_own_order(corpus: Path) -> None:
    loader = _packed(corpus)
    assert not torch.equal(loader.starts(0, 0), loader.starts(1, 0))


def test_targets_are_the_next_bytes_of_the_corpus(corpus: Path) -> None:
    content = (corpus / "train.bin").read_bytes()
    loader = _packed(corpus)
    (batch,) = loader.microbatches(0)
    for worker, row in ((0, 0), (3, 2)):
        start = int(loader.starts(0, 0)[worker, row])
        assert bytes(batch.tokens[worker, row].tolist()) == content[start : start + 16]
        assert bytes(batch.targets[worker, row].tolist()) == content[start + 1 : start + 17]


def test_the_last_window_is_padded_and_its_padding_is_not_counted(corpus: Path) -> None:
    loader = _loader(corpus, batch=1, context=64)
    batches = [batch for step in range(loader.epoch_microbatches * 8) for batch in loader.microbatches(step)]
    counts = {batch.num_targets[0] for batch in batches}
    assert min(counts) < 64
    for batch in batches:
        assert int((batch.targets != IGNORED).sum()) == batch.num_targets[0]


def test_the_last_update_of_an_epoch_takes_the_remaining_microbatches(corpus: Path) -> None:
    loader = _loader(corpus, accumulation=4, epoch=6)
    assert [len(loader.microbatches(step)) for step in range(4)] == [4, 2, 4, 2]
    places = [loader.place(step) for step in range(4)]
    assert [(place.epoch, place.first) for place in places] == [(0, 0), (0, 4), (1, 0), (1, 4)]


def test_an_epoch_or_a_batch_larger_than_the_corpus_is_refused(corpus: Path) -> None:
    with pytest.raises(ConfigError, match="'epoch'"):
        _loader(corpus, epoch=84)
    with pytest.raises(ConfigError, match="'batch'"):
        _loader(corpus, batch=300)


def test_validation_covers_every_target_once(corpus: Path) -> None:
    content = (corpus / "val.bin").read_bytes()
    batches = list(validation_batches(read_tokens(corpus / "val.bin"), context=16, batch=5, which="all", device=CPU))
    targets = torch.cat([batch.targets.flatten() for batch in batches])
    assert bytes(targets[targets != IGNORED].tolist()) == content[1:]
    assert sum(batch.num_targets[0] for batch in batches) == 699


def test_speech_is_what_no_mark_begins() -> None:
    text = b"# A\n\n**B**  \nspeak, * _ #\n again\n_Exit_\n\n\nlast"
    predicted = predicted_bytes(torch.tensor(list(text), dtype=torch.uint8), "speech")
    assert predicted is not None
    kept = bytes(byte for byte, is_kept in zip(text, predicted.tolist(), strict=True) if is_kept)
    assert kept == b"speak, * _ #\n again\nlast"
    assert predicted_bytes(torch.zeros(5, dtype=torch.uint8), "all") is None
    ends = predicted_bytes(torch.tensor(list(b"#\na\n"), dtype=torch.uint8), "speech")
    assert ends is not None
    assert ends.tolist() == [False, False, True, True]


def test_only_speech_is_predicted_and_counted_and_the_tokens_stay_whole(script: Path) -> None:
    content = read_tokens(script / "train.bin")
    predicted = predicted_bytes(content, "speech")
    assert predicted is not None
    whole, masked = (_packed(script, accumulation=3, targets=which) for which in ("all", "speech"))
    counts = set()
    for step in range(5):
        for micro, (plain, batch) in enumerate(zip(whole.microbatches(step), masked.microbatches(step), strict=True)):
            place = masked.place(step)
            positions = masked.starts(place.epoch, place.first + micro).unsqueeze(-1) + torch.arange(1, 17)
            inside = positions < len(content)
            keeps = predicted[positions.clamp(max=len(content) - 1)] & inside
            assert torch.equal(batch.tokens, plain.tokens)
            assert torch.equal(batch.targets, plain.targets.masked_fill(~keeps, IGNORED))
            assert batch.num_targets == tuple(keeps.flatten(1).sum(1).tolist())
            counts |= set(batch.num_targets)
    assert len(counts) > 10


def test_validation_scores_speech_alone_where_speech_alone_is_trained(script: Path) -> None:
    corpus = read_tokens(script / "val.bin")
    predicted = predicted_bytes(corpus, "speech")
    assert predicted is not None
    batches = list(validation_batches(corpus, context=16, batch=5, which="speech", device=CPU))
    assert sum(batch.num_targets[0] for batch in batches) == int(predicted[1:].sum())


def test_a_missing_corpus_names_the_file_and_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train\.bin.*prepare_corpus"):
        read_tokens(tmp_path / "train.bin")


def test_neighbouring_seeds_share_no_stream() -> None:
    seeds = [mixed_seed(a, b) for a in range(30) for b in range(30)]
    assert Counter(seeds).most_common(1)[0][1] == 1
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("which", ["all", "speech"])
@pytest.mark.parametrize("whole", [False, True])
def test_targets_are_counted_without_batches_as_they_are_with_them(script: Path, which: str, whole: bool) -> None:
    loader = _packed(script, accumulation=3, targets=which, whole_windows=whole)
    num_updates = 2 * loader.epoch_microbatches // 3
    batches = [batch for update in range(num_updates) for batch in loader.microbatches(update)]
    assert loader.count_targets(num_updates) == sum(sum(batch.num_targets) for batch in batches)
    assert loader.count_targets(0) == 0


def test_with_whole_windows_every_batch_is_full_with_every_seed(corpus: Path) -> None:
    for seed in range(4):
        loader = _loader(corpus, batch=1, context=64, seed=seed, whole_windows=True)
        num_updates = 3 * loader.epoch_microbatches
        batches = [batch for update in range(num_updates) for batch in loader.microbatches(update)]
        assert {batch.num_targets for batch in batches} == {(64,)}
        assert loader.targets_are_fixed
        starts = torch.cat([loader.starts(1, micro) for micro in range(loader.epoch_microbatches)], dim=1)
        assert starts.numel() == torch.unique(starts).numel()
    assert not _loader(corpus).targets_are_fixed
    assert not _loader(corpus, whole_windows=True, targets="speech").targets_are_fixed


@pytest.mark.parametrize("which", ["all", "speech"])
def test_validation_targets_are_counted_as_they_are_scored(script: Path, which: str) -> None:
    corpus = read_tokens(script / "val.bin")
    batches = validation_batches(corpus, context=16, batch=5, which=which, device=CPU)
    assert num_validation_targets(corpus, which) == sum(batch.num_targets[0] for batch in batches)
