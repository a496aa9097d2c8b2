"""The training loop that both backends share: loader, schedule position, counters, consensus, logging, evaluation."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, TextIO

import torch
from torch import Tensor

from tinylm import data, model, schedule
from tinylm.config import Config
from tinylm.data import Batch, Loader

PARAMETERS = "parameters"
GRADIENTS = "gradients"
MOMENTS = ("exp_avg", "exp_avg_sq")
EVALUATION_TOKENS = 16384


class Backend(Protocol):
    """What a backend does for all workers at once; nothing here waits for the device."""

    name: ClassVar[str]

    def local_update(self, batches: Sequence[Batch], update: int) -> Tensor:
        """Accumulate, clip and step every worker on its own; nats per target of each worker [workers]."""

    def combine(self, update: int) -> None:
        """One round of consensus after the update."""

    def state(self, quantity: str) -> Iterator[tuple[int, str, Tensor]]:
        """Live tensors under canonical names: parameters, gradients, exp_avg or exp_avg_sq."""

    def set_step(self, step: int) -> None:
        """Let the optimizers believe in `step` earlier updates."""

    def description(self) -> dict[str, str]:
        """The execution path in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What some updates did, over all workers."""

    updates: int
    microbatches: int
    targets: int


class Log:
    """Loss lines without waiting for the device: a line is written when its number has arrived."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pending: list[tuple[int, float, Tensor, torch.cuda.Event | None]] = []

    def record(self, update: int, lr: float, losses: Tensor) -> None:
        """Queue one line, and write those whose numbers are there."""
        event = None
        mean = losses.mean().to("cpu", non_blocking=True)
        if losses.is_cuda:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            event.record()
        self._pending.append((update, lr, mean, event))
        while self._pending and _arrived(self._pending[0][3]):
            self._write_first()

    def flush(self) -> None:
        """Write all queued lines; the device must be idle."""
        while self._pending:
            self._write_first()
        self._stream.flush()

    def _write_first(self) -> None:
        update, lr, loss, _ = self._pending.pop(0)
        self._stream.write(f"update {update + 1}  lr {lr:.3e}  loss {loss.item():.4f}\n")


def _arrived(event: torch.cuda.Event | None) -> bool:
    return event is None or event.query()  # type: ignore[no-untyped-call]  # as above


class Trainer:
    """Trains with one backend. The state is the backend's tensors and the number of updates done."""

    def __init__(
        self, config: Config, backend: Backend, *, folder: Path, seed: int, device: torch.device, stream: TextIO
    ) -> None:
        self.config = config
        self.backend = backend
        self.update = 0
        self.targets = 0
        self._device = device
        self._folder = folder
        self._loader = Loader(config, data.read_tokens(folder / data.TRAIN_FILE), seed=seed, device=device)
        self._log = Log(stream)
        self._losses: Tensor | None = None
        self._executed = {"updates": 0, "combinations": 0}

    def train(self, num_updates: int) -> Counts:
        """Run updates on the production path, asynchronously."""
        microbatches = targets = 0
        for _ in range(num_updates):
            batches = self._loader.microbatches(self.update)
            update = self.update
            self.local_update(batches)
            if self.config.workers > 1:
                self.backend.combine(update)
                self._executed["combinations"] += 1
            if (update + 1) % self.config.log_every == 0:
                self._log.record(update, schedule.learning_rate(self.config, update), self.losses())
            microbatches += len(batches) * self.config.workers
            targets += sum(sum(batch.num_targets) for batch in batches)
        return Counts(updates=num_updates, microbatches=microbatches, targets=targets)

    def local_update(self, batches: Sequence[Batch]) -> None:
        """One whole update of every worker without consensus."""
        self._losses = self.backend.local_update(batches, self.update)
        self._executed["updates"] += 1
        self.update += 1
        self.targets += sum(sum(batch.num_targets) for batch in batches)

    def losses(self) -> Tensor:
        """Nats per target of each worker in the last update [workers]."""
        if self._losses is None:
            raise RuntimeError("no update has run yet, so there is no loss")
        return self._losses

    def sync(self) -> None:
        """Wait for the device and write the log lines that were queued."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._log.flush()

    def microbatches(self, update: int) -> list[Batch]:
        """The loader's batches of any update."""
        return self._loader.microbatches(update)

    def load_state(self, tensors: Mapping[tuple[str, int, str], Tensor], step: int) -> None:
        """Copy canonical tensors into the live ones, in place; absent moments become zero.

        Args:
            tensors: {(quantity, worker, name): tensor}.
            step: the number of updates that the state has behind it.
        """
        used: set[tuple[str, int, str]] = set()
        with torch.no_grad():
            for quantity in (PARAMETERS, *MOMENTS):
                for worker, name, live in self.backend.state(quantity):
                    key = (quantity, worker, name)
                    _load_one(live, key, tensors)
                    used.add(key)
        unknown = [key for key in tensors if key not in used]
        if unknown:
            raise KeyError(f"no such tensor: {unknown[0]}")
        self.backend.set_step(step)
        self.update = step
        self.targets = 0

    def evaluate(self) -> tuple[float, int]:
        """Nats and targets of the whole validation split for the mean of the workers' models."""
        scored = model.GPT(self.config).to(self._device).requires_grad_(requires_grad=False)
        scored.load_state_dict(self._mean_parameters())
        context = self.config.context
        batches = data.validation_batches(
            data.read_tokens(self._folder / data.VALIDATION_FILE),
            context=context,
            batch=max(EVALUATION_TOKENS // context, 1),
            device=self._device,
        )
        return _score(scored, batches, self.config.precision, self._device)

    def executed(self) -> dict[str, int]:
        """How many updates and combinations this object ran."""
        return dict(self._executed)

    def _mean_parameters(self) -> dict[str, Tensor]:
        """The average model; summed in worker order, so that both backends round alike."""
        sums: dict[str, Tensor] = {}
        for _, name, tensor in self.backend.state(PARAMETERS):
            sums[name] = sums[name] + tensor if name in sums else tensor.clone()
        return {name: total / self.config.workers for name, total in sums.items()}


def _load_one(live: Tensor, key: tuple[str, int, str], tensors: Mapping[tuple[str, int, str], Tensor]) -> None:
    if key in tensors:
        if live.shape != tensors[key].shape:
            raise ValueError(f"{key}: expected shape {tuple(live.shape)}, got {tuple(tensors[key].shape)}")
        live.copy_(tensors[key])
    elif key[0] in MOMENTS:
        live.zero_()
    else:
        raise KeyError(f"the state to load has no {key}")


@torch.no_grad()
def _score(scored: model.GPT, batches: Iterable[Batch], precision: str, device: torch.device) -> tuple[float, int]:
    total = torch.zeros((), dtype=torch.float64, device=device)
    targets = 0
    for batch in batches:
        with autocast(precision, device):
            logits = scored(batch.tokens[0])
        total += model.nats(logits, batch.targets[0])
        targets += batch.num_targets[0]
    return float(total), targets


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Nothing for fp32; bf16 products over fp32 parameters otherwise."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def attention_kernel(config: Config, sequences: int, device: torch.device) -> str:
    """The kernel that scaled_dot_product_attention picks for the shapes of training."""
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    shape = (sequences, config.shape.heads, config.context, config.shape.width // config.shape.heads)
    query = torch.empty(shape, dtype=dtype, device=device, requires_grad=True)
    choice = torch._fused_sdp_choice(query, query, query, is_causal=True)  # noqa: SLF001  # torch has no public name for it
    return torch.nn.attention.SDPBackend(choice).name.lower()
