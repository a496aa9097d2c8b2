"""The production loader: every batch is a pure function of (seed, update, microbatch, worker).

An epoch cuts the corpus, from a random phase on, into windows of `context` targets and deals a random order of them
out: microbatch m of worker w takes the m-th group of `batch` windows from the w-th share. Shares do not overlap. The
last window of the corpus is shorter, unless whole windows alone are asked for; its missing targets are IGNORED, and so
is what the configuration does not want predicted. Processes of one training divide the windows of every microbatch:
each takes its own stretch of them. Nothing but caches is kept between calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from tinylm.config import Config, ConfigError

IGNORED = -1
TRAIN_FILE = "train.bin"
VALIDATION_FILE = "val.bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A microbatch of all workers, or the part of it that one of several processes takes.

    Attributes:
        tokens: int64 [workers, batch, context].
        targets: int64 [workers, batch, context]; IGNORED where nothing is predicted.
        num_targets: per worker, the targets here that are not IGNORED; known without reading a device.
        all_targets: per worker, those of the whole microbatch.
    """

    tokens: Tensor
    targets: Tensor
    num_targets: tuple[int, ...]
    all_targets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an update stands: its epoch and its microbatches within the epoch."""

    epoch: int
    first: int
    count: int


def read_tokens(path: Path) -> Tensor:
    """Map a file of bytes as uint8 [size]; nothing is copied."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; write it with prepare_corpus.py --out {path.parent}")
    size = path.stat().st_size
    if size < 2:
        raise ValueError(f"{path}: a corpus needs at least two bytes, this one has {size}")
    return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)


def mixed_seed(*parts: int) -> int:
    """One 63-bit seed from several integers (splitmix64), so that neighbouring seeds share no stream."""
    state = 0
    for part in parts:
        state = (state ^ (part & 0xFFFFFFFFFFFFFFFF)) + 0x9E3779B97F4A7C15
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1


class Loader:
    """Batches of one corpus for one configuration and seed, as one of `world` processes takes them."""

    def __init__(
        self, config: Config, corpus: Tensor, *, seed: int, device: torch.device, rank: int = 0, world: int = 1
    ) -> None:
        self._config = config
        self._rank, self._world = rank, world
        self._corpus = corpus
        self._seed = seed
        self._device = device
        self._predicted = predicted_bytes(corpus, config.targets)
        self._offsets = torch.arange(config.context + 1)
        whole = self._num_windows(config.context - 1) // (config.workers * config.batch)
        if whole < 1:
            raise ConfigError("batch", f"the corpus of {len(corpus)} bytes holds no microbatch for every worker")
        if config.epoch > whole:
            raise ConfigError("epoch", f"the corpus holds {whole} microbatches per worker, fewer than {config.epoch}")
        self.epoch_microbatches = config.epoch or whole
        self._order = lru_cache(maxsize=2)(self._make_order)
        self._before = lru_cache(maxsize=1)(_predicted_before)

    def place(self, update: int) -> Place:
        """The epoch of an update and its share of the epoch; the last update of an epoch may be smaller."""
        accumulation = self._config.accumulation
        per_epoch = -(-self.epoch_microbatches // accumulation)
        epoch, within = divmod(update, per_epoch)
        first = within * accumulation
        return Place(epoch=epoch, first=first, count=min(accumulation, self.epoch_microbatches - first))

    def microbatches(self, update: int) -> list[Batch]:
        """This process's part of all microbatches of an update, for all workers, on the device."""
        return [self._batch(starts, self._rank, self._world) for starts in self._starts_of(update)]

    def whole_microbatches(self, update: int) -> list[Batch]:
        """What all processes together take in an update."""
        return [self._batch(starts, 0, 1) for starts in self._starts_of(update)]

    def examples(self, update: int) -> Iterator[int]:
        """A number for every window that this process takes in an update; no other window has it in any epoch."""
        offset = self.place(update).epoch * len(self._corpus)
        for starts in self._starts_of(update):
            yield from (offset + part(starts, self._rank, self._world)).flatten().tolist()

    def starts(self, epoch: int, micro: int) -> Tensor:
        """Position of the first token of each window: int64 [workers, batch]."""
        phase, order = self._order(epoch)
        batch = self._config.batch
        groups = order.view(self._config.workers, -1)[:, micro * batch : (micro + 1) * batch]
        return phase + groups * self._config.context

    @property
    def targets_are_fixed(self) -> bool:
        """Whether every update has the same number of targets with every seed."""
        return self._predicted is None and self._config.whole_windows

    def count_targets(self, num_updates: int) -> int:
        """The targets of the first updates, over all workers, without making their batches."""
        starts = (torch.cat(self._starts_of(update)) for update in range(num_updates))
        return sum(int(self._count_targets(some).sum()) for some in starts)

    def _starts_of(self, update: int) -> list[Tensor]:
        place = self.place(update)
        return [self.starts(place.epoch, place.first + micro) for micro in range(place.count)]

    def _count_targets(self, starts: Tensor) -> Tensor:
        """The targets of the windows that begin at `starts`, per worker, without making them."""
        rooms = _rooms(self._corpus, starts, self._config.context)
        if self._predicted is None:
            return rooms.sum(dim=1)
        before = self._before(self._predicted)
        return (before[starts + 1 + rooms] - before[starts + 1]).sum(dim=1)

    def _batch(self, starts: Tensor, rank: int, world: int) -> Batch:
        own = part(starts, rank, world)
        batch = _make_batch(self._corpus, own, self._offsets, predicted=self._predicted, device=self._device)
        if world == 1:
            return batch
        return replace(batch, all_targets=tuple(self._count_targets(starts).tolist()))

    def _num_windows(self, phase: int) -> int:
        room = len(self._corpus) - 1 - phase
        whole, rest = divmod(room, self._config.context)
        return whole if self._config.whole_windows or not rest else whole + 1

    def _make_order(self, epoch: int) -> tuple[int, Tensor]:
        """Phase and order of an epoch; the order holds equal shares of whole microbatches for all workers."""
        generator = torch.Generator().manual_seed(mixed_seed(self._seed, epoch))
        phase = int(torch.randint(self._config.context, (), generator=generator))
        kept = self.epoch_microbatches * self._config.workers * self._config.batch
        return phase, torch.randperm(self._num_windows(phase), generator=generator)[:kept]


def predicted_bytes(corpus: Tensor, which: str) -> Tensor | None:
    """Which bytes are targets, bool [size]; None for all of them.

    "speech" leaves out blank lines and those that begin with a mark: "#" (titles, acts, scenes), "*" (speakers) and
    "_" (stage directions). A line owns the newline that ends it.
    """
    if which == "all":
        return None
    newline = corpus == ord("\n")
    line = newline.cumsum(0) - newline.long()
    first = torch.cat([torch.zeros(1, dtype=torch.int64), newline.nonzero().flatten() + 1])[: int(line[-1]) + 1]
    marked = torch.isin(corpus[first], torch.tensor(list(b"#*_\n"), dtype=torch.uint8))
    return ~marked[line]


def num_validation_targets(corpus: Tensor, which: str) -> int:
    """The targets of validation_batches: all bytes but the first, as far as they are predicted."""
    predicted = predicted_bytes(corpus, which)
    return len(corpus) - 1 if predicted is None else int(predicted[1:].sum())


def validation_batches(
    corpus: Tensor, *, context: int, batch: int, which: str, device: torch.device
) -> Iterator[Batch]:
    """Every target of a corpus once, in order, for one worker; the last window is padded with IGNORED."""
    offsets = torch.arange(context + 1)
    predicted = predicted_bytes(corpus, which)
    starts = torch.arange(0, len(corpus) - 1, context)
    for group in torch.split(starts, batch):
        yield _make_batch(corpus, group.unsqueeze(0), offsets, predicted=predicted, device=device)


def _make_batch(
    corpus: Tensor, starts: Tensor, offsets: Tensor, *, predicted: Tensor | None, device: torch.device
) -> Batch:
    """The windows that begin at `starts` [workers, batch]."""
    context = len(offsets) - 1
    room = _rooms(corpus, starts, context)
    windows = _windows(corpus, starts, offsets)
    targets = windows[..., 1:]
    num_targets = room.sum(dim=1).tolist()
    if min(num_targets) < starts.size(1) * context:
        targets = targets.masked_fill(offsets[:-1] >= room.unsqueeze(-1), IGNORED)
    if predicted is not None:
        targets = targets.where(_windows(predicted, starts, offsets)[..., 1:].bool(), IGNORED)
        num_targets = (targets != IGNORED).flatten(1).sum(dim=1).tolist()
    return Batch(
        tokens=_moved(windows[..., :-1], device),
        targets=_moved(targets, device),
        num_targets=tuple(num_targets),
        all_targets=tuple(num_targets),
    )


def _predicted_before(predicted: Tensor) -> Tensor:
    """How many bytes before each one, and before the end, are predicted."""
    return functional.pad(predicted.cumsum(0), (1, 0))


def part(of_all: Tensor, rank: int, world: int) -> Tensor:
    """The stretch of the sequences [workers, batch, ...] that one of several processes takes."""
    size = of_all.size(1) // world
    return of_all[:, rank * size : (rank + 1) * size]


def _rooms(corpus: Tensor, starts: Tensor, context: int) -> Tensor:
    """How many targets the windows that begin at `starts` have room for."""
    return (len(corpus) - 1 - starts).clamp(max=context)


def _windows(corpus: Tensor, starts: Tensor, offsets: Tensor) -> Tensor:
    """Windows of what is given for each byte, int64 [..., context + 1]; positions past the end repeat the last."""
    positions = (starts.unsqueeze(-1) + offsets).clamp_(max=len(corpus) - 1)
    return corpus[positions].long()


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device, without waiting for the copy."""
    tensor = tensor.contiguous()
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
