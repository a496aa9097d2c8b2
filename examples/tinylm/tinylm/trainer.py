"""The training loop that both backends share: loader, schedule position, counters, consensus, logging, evaluation."""

import contextlib
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, TextIO

import torch
from torch import Tensor

from tinylm import checkpoint, data, model, schedule
from tinylm.config import Config, ConfigError
from tinylm.data import Batch, Loader
from tinylm.parallel import ALONE, Group

PARAMETERS = "parameters"
GRADIENTS = "gradients"
MOMENTS = ("exp_avg", "exp_avg_sq")
# Enough for a kernel to be worth its call, and few enough for a CPU's caches.
EVALUATION_TOKENS = {"cpu": 4096, "cuda": 16384}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Backend(Protocol):
    """What a backend does for all workers at once; nothing here waits for the device."""

    name: ClassVar[str]

    def join(self, group: Group) -> None:
        """Add up the gradients of each update with those of other processes from now on."""

    def local_update(self, batches: Sequence[Batch], update: int, *, combines: bool = False) -> Tensor:
        """Accumulate, clip and step every worker on its own; nats per target of each worker [workers].

        With `combines` a round of consensus belongs to it, before or after the step as the configuration says.
        """

    def make_gradients(self) -> None:
        """Let there be gradients to write to, with any values."""

    def clear_gradients(self) -> None:
        """Let there be no gradients, as at the beginning of every update."""

    def step(self, update: int) -> None:
        """Step the optimizers at the rate of this update, on the gradients as they are."""

    def combine(self, update: int) -> None:
        """One round of consensus, with the share of the update."""

    def state(self, quantity: str) -> Iterator[tuple[int, str, Tensor]]:
        """Live tensors under canonical names: parameters, gradients, exp_avg or exp_avg_sq; a shared head as well."""

    def set_step(self, step: int) -> None:
        """Let the optimizers believe in `step` earlier updates, and begin again with the initial loss scale."""

    def optimizer_step(self) -> int:
        """How many updates the optimizers made; waits for the device."""

    def scaling(self) -> tuple[float, int]:
        """The loss scale, and the updates in a row without overflow; waits for the device."""

    def set_scaling(self, value: float, streak: int) -> None:
        """Go on with such a loss scale, if there is loss scaling."""

    def loss_scale(self) -> float:
        """What losses are multiplied by now; waits for the device if it is not constant."""

    def num_skipped(self) -> int:
        """Updates skipped since this object was made; waits for the device if loss scaling is on."""

    def description(self) -> dict[str, str]:
        """The execution path in words."""

    def counts(self) -> dict[str, int]:
        """How often parts of it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What some updates did, over all workers. Microbatches and targets are this process's own."""

    updates: int
    microbatches: int
    skipped: int
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
    """Trains with one backend. The state is the backend's tensors, the number of updates done and the loss scale."""

    def __init__(
        self,
        config: Config,
        backend: Backend,
        *,
        folder: Path,
        seed: int,
        device: torch.device,
        stream: TextIO,
        group: Group = ALONE,
    ) -> None:
        self.config = config
        self.backend = backend
        self.group = group
        self.update = 0
        self.targets = 0
        self.device = device
        self._seed = seed
        self._skipped_before = 0
        self._folder = folder
        corpus = data.read_tokens(folder / data.TRAIN_FILE)
        self._loader = Loader(config, corpus, seed=seed, device=device, rank=group.rank, world=group.world)
        self._log = Log(stream)
        self._losses: Tensor | None = None
        self._executed = {"updates": 0, "combinations": 0}

    def train(self, num_updates: int) -> Counts:
        """Run updates on the production path, asynchronously."""
        microbatches = targets = 0
        skipped = self.backend.num_skipped()
        for _ in range(num_updates):
            batches = self._loader.microbatches(self.update)
            update = self.update
            self._update(batches, combines=self.config.workers > 1)
            if (update + 1) % self.config.log_every == 0:
                self._log.record(update, schedule.learning_rate(self.config, update), self.losses())
            microbatches += len(batches) * self.config.workers
            targets += sum(sum(batch.num_targets) for batch in batches)
        skipped = self.backend.num_skipped() - skipped
        return Counts(updates=num_updates, microbatches=microbatches, skipped=skipped, targets=targets)

    def local_update(self, batches: Sequence[Batch]) -> None:
        """One whole update of every worker without consensus."""
        self._update(batches, combines=False)

    def _update(self, batches: Sequence[Batch], *, combines: bool) -> None:
        self._losses = self.backend.local_update(batches, self.update, combines=combines)
        self._executed["updates"] += 1
        self._executed["combinations"] += combines
        self.update += 1
        self.targets += sum(sum(batch.all_targets) for batch in batches)

    def skipped(self) -> int:
        """Updates since the last load that were skipped for want of finite gradients."""
        return self.backend.num_skipped() - self._skipped_before

    def losses(self) -> Tensor:
        """Nats per target of each worker in the last update [workers]."""
        if self._losses is None:
            raise RuntimeError("no update has run yet, so there is no loss")
        return self._losses

    def sync(self) -> None:
        """Wait for the device and write the log lines that were queued."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._log.flush()

    def microbatches(self, update: int) -> list[Batch]:
        """The loader's batches of any update, as this process takes them."""
        return self._loader.microbatches(update)

    def whole_microbatches(self, update: int) -> list[Batch]:
        """Those of all processes together."""
        return self._loader.whole_microbatches(update)

    def examples(self, update: int) -> Iterator[int]:
        """Numbers of the windows that this process takes in any update."""
        return self._loader.examples(update)

    def load_state(self, tensors: Mapping[tuple[str, int, str], Tensor], step: int) -> None:
        """Copy canonical tensors into the live ones, in place; absent moments become zero.

        Args:
            tensors: {(quantity, worker, name): tensor}. A shared head may be given or not.
            step: the number of updates that the state has behind it.

        Raises:
            KeyError: for a tensor that is missing or unknown.
            ValueError: for another shape, or for a shared head unlike the embedding.
        """
        known: set[tuple[str, int, str]] = set()
        with torch.no_grad():
            for quantity in (PARAMETERS, *MOMENTS):
                loaded: set[int] = set()
                for worker, name, live in self.backend.state(quantity):
                    key = (quantity, worker, name)
                    known.add(key)
                    if live.data_ptr() not in loaded:
                        _load_one(live, key, tensors)
                    elif key in tensors and not torch.equal(live, tensors[key].to(live.device)):
                        raise ValueError(f"{key} shares its storage with another tensor, but has other values")
                    loaded.add(live.data_ptr())
        unknown = [key for key in tensors if key not in known]
        if unknown:
            raise KeyError(f"no such tensor: {unknown[0]}")
        self._begin_at(step)

    def save(self, folder: Path) -> None:
        """Write a checkpoint into a folder. Gradients are cleared, and are no part of it.

        All processes hold the same, so the first one writes; all return when it has.
        """
        self.sync()
        self.backend.clear_gradients()
        if self.group.rank == 0:
            self._write(folder)
        self.group.wait()

    def _write(self, folder: Path) -> None:
        value, streak = self.backend.scaling()
        state = checkpoint.State(
            tensors={
                (quantity, worker, name): live.to("cpu", copy=True, memory_format=torch.contiguous_format)
                for quantity in (PARAMETERS, *MOMENTS)
                for worker, name, live in self._distinct(quantity)
            },
            update=self.update,
            optimizer_step=self.backend.optimizer_step(),
            targets=self.targets,
            skipped=self.skipped(),
            loss_scale=value,
            streak=streak,
            losses=None if self._losses is None else self._losses.cpu(),
            random=_random_states(self.device),
        )
        checkpoint.write(folder, self._origin(), state, backend=self.backend.name)

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint of either backend, in place.

        Raises:
            CheckpointError: if it is damaged or of another training; nothing has been changed then.
        """
        state = checkpoint.read(folder, self._origin())
        self._check_fit(state.tensors)
        for quantity in (PARAMETERS, *MOMENTS):
            self._fill(quantity, {key[1:]: tensor for key, tensor in state.tensors.items() if key[0] == quantity})
        self.backend.clear_gradients()
        self._begin_at(state.update)
        self.backend.set_step(state.optimizer_step)
        self.backend.set_scaling(state.loss_scale, state.streak)
        self.targets = state.targets
        self._skipped_before = self.backend.num_skipped() - state.skipped
        self._losses = None if state.losses is None else state.losses.to(self.device)
        _set_random_states(state.random, self.device)

    def optimizer_check(
        self, parameters: Mapping[tuple[int, str], Tensor], gradients: Sequence[Mapping[tuple[int, str], Tensor]]
    ) -> Iterator[tuple[str, int, str, Tensor]]:
        """Step the optimizers from update 0 on, on given gradients that are not clipped; live parameters and moments.

        The training's own state is lost.
        """
        self._fill(PARAMETERS, parameters)
        for moment in MOMENTS:
            self._fill(moment, None)
        self._begin_at(0)
        for update, given in enumerate(gradients):
            self.backend.make_gradients()
            self._fill(GRADIENTS, given)
            self.backend.step(update)
        for quantity in (PARAMETERS, *MOMENTS):
            for worker, name, live in self._distinct(quantity):
                yield quantity, worker, name, live

    def mix(self, parameters: Mapping[tuple[int, str], Tensor], update: int) -> Iterator[tuple[int, str, Tensor]]:
        """The consensus of an update alone, on given parameters; live parameters, and the moments beside them.

        Before it the first moments are minus the parameters and the second their squares; afterwards they must still
        be. They are named exp_avg/NAME and exp_avg_sq/NAME. The training's own state is lost.
        """
        for quantity in (PARAMETERS, *MOMENTS):
            self._fill(quantity, parameters)
        with torch.no_grad():
            for (_, _, first), (_, _, second) in zip(*(self._distinct(moment) for moment in MOMENTS), strict=True):
                first.neg_()
                second.square_()
        self._combine(update)
        for quantity in (PARAMETERS, *MOMENTS):
            for worker, name, live in self._distinct(quantity):
                yield worker, name if quantity == PARAMETERS else f"{quantity}/{name}", live

    def evaluate(self) -> tuple[float, int]:
        """Nats and targets of the whole validation split for the mean of the workers' models."""
        scored = model.GPT(self.config).to(self.device).requires_grad_(requires_grad=False)
        scored.load_state_dict(self._mean_parameters())
        context = self.config.context
        batches = data.validation_batches(
            data.read_tokens(self._folder / data.VALIDATION_FILE),
            context=context,
            batch=max(EVALUATION_TOKENS.get(self.device.type, 16384) // context, 1),
            which=self.config.targets,
            device=self.device,
        )
        return _score(scored, batches, self.config.precision, self.device)

    def executed(self) -> dict[str, int]:
        """How many updates and combinations this object ran."""
        return dict(self._executed)

    def close(self) -> None:
        """Leave the other processes."""
        self.group.close()

    def _combine(self, update: int) -> None:
        if self.config.workers > 1:
            self.backend.combine(update)
            self._executed["combinations"] += 1

    def _begin_at(self, step: int) -> None:
        self.backend.set_step(step)
        self.update = step
        self.targets = 0
        self._skipped_before = self.backend.num_skipped()

    def _origin(self) -> checkpoint.Origin:
        with (self._folder / data.TRAIN_FILE).open("rb") as file:
            corpus = hashlib.file_digest(file, "sha256").hexdigest()
        return checkpoint.origin_of(self.config, self._seed, corpus)

    def _check_fit(self, tensors: Mapping[tuple[str, int, str], Tensor]) -> None:
        """Refuse tensors under other names or of other shapes than the live ones."""
        expected = {
            (quantity, worker, name): live.shape
            for quantity in (PARAMETERS, *MOMENTS)
            for worker, name, live in self._distinct(quantity)
        }
        for key in expected.keys() ^ tensors.keys():
            raise checkpoint.CheckpointError(
                f"{key} is only in {'the checkpoint' if key in tensors else 'this training'}"
            )
        for key, shape in expected.items():
            if tensors[key].shape != shape or tensors[key].dtype != torch.float32:
                raise checkpoint.CheckpointError(
                    f"{key}: expected float32 {tuple(shape)}, got {tensors[key].dtype} {tuple(tensors[key].shape)}"
                )

    def _distinct(self, quantity: str) -> Iterator[tuple[int, str, Tensor]]:
        """The backend's tensors without those that share another one's storage."""
        seen: set[int] = set()
        for worker, name, live in self.backend.state(quantity):
            if live.data_ptr() not in seen:
                seen.add(live.data_ptr())
                yield worker, name, live

    @torch.no_grad()
    def _fill(self, quantity: str, tensors: Mapping[tuple[int, str], Tensor] | None) -> None:
        """Copy one quantity, or zeros, into the live tensors; one tensor at a time is asked for."""
        for worker, name, live in self._distinct(quantity):
            if tensors is None:
                live.zero_()
            else:
                live.copy_(tensors[worker, name])

    def _mean_parameters(self) -> dict[str, Tensor]:
        """The average model; summed in worker order, so that both backends round alike."""
        sums: dict[str, Tensor] = {}
        for _, name, tensor in self.backend.state(PARAMETERS):
            sums[name] = sums[name] + tensor if name in sums else tensor.clone()
        return {name: total / self.config.workers for name, total in sums.items()}


def _random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


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
    """Nothing for fp32; products in half the bits over fp32 parameters otherwise."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, DTYPES[precision])


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse a precision that torch would silently replace by fp32.

    Raises:
        ConfigError: if torch's autocast does not know it on this device.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with autocast(precision, device):
            if precision != "fp32" and not torch.is_autocast_enabled(device.type):
                raise ConfigError(
                    "precision", f"torch {torch.__version__} has no {precision} autocast on {device.type}"
                )


def attention_kernel(config: Config, sequences: int, device: torch.device) -> str:
    """The kernel that scaled_dot_product_attention picks for the shapes of training."""
    dtype = DTYPES[config.precision]
    shape = (sequences, config.shape.heads, config.context, config.shape.width // config.shape.heads)
    query = torch.empty(shape, dtype=dtype, device=device, requires_grad=True)
    choice = torch._fused_sdp_choice(query, query, query, is_causal=True)  # noqa: SLF001  # torch has no public name for it
    return torch.nn.attention.SDPBackend(choice).name.lower()
