"""The fast backend: all workers as stacked models, in compiled regions and captured graphs where there is a GPU.

An update is a few stages: `first` makes the gradients of the first microbatch, `further` adds those of another one, and
`update` clips, steps and combines. So an update of fewer microbatches than others needs nothing special, and other
processes come in between the last microbatch and `update`. What differs from update to update is data on the device:
the inputs, the numbers of targets, the position in the tables of the schedule, and whether workers step and combine.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tinylm import consensus, graphs, model, optim, regions, schedule
from tinylm.config import Config
from tinylm.data import IGNORED, Batch
from tinylm.model import EMBEDDING, HEAD
from tinylm.parallel import ALONE, Group
from tinylm.scaling import DeviceScale
from tinylm.stacked import Arena, Arenas, Stack, divide
from tinylm.trainer import DTYPES, GRADIENTS, PARAMETERS, attention_kernel

MOST_KEPT = 64
MOST_ROWS = 4096
"""Rows of a worker's microbatch up to which workers are stacked: larger products keep a GPU busy one by one, and a
stack of them would only hold more activations."""


class Inputs:
    """What `first` and `further` read, a microbatch: int64 [workers, batch, context] twice, in one place for good."""

    def __init__(self, config: Config, batch: int, device: torch.device) -> None:
        shape = (config.workers, batch, config.context)
        self.tokens = torch.zeros(shape, dtype=torch.int64, device=device)
        self.targets = torch.full(shape, IGNORED, dtype=torch.int64, device=device)

    def load(self, batch: Batch) -> None:
        """Copy a microbatch there; what a smaller one leaves over predicts nothing."""
        if batch.tokens.shape != self.tokens.shape:
            self.tokens.zero_()
            self.targets.fill_(IGNORED)
        _, sequences, positions = batch.tokens.shape
        self.tokens[:, :sequences, :positions].copy_(batch.tokens, non_blocking=True)
        self.targets[:, :sequences, :positions].copy_(batch.targets, non_blocking=True)


class Fast:
    """Stacked workers. No step waits for the device."""

    name: ClassVar[str] = "fast"

    def __init__(self, config: Config, *, seed: int, device: torch.device) -> None:
        self._config = config
        self._device = device
        initial = model.initial_state(config, seed)
        self._names = [*initial, HEAD] if config.tied else list(initial)
        self._arenas = Arenas(initial, config, device=device, dtype=DTYPES[config.precision])
        updates = range(config.updates_total + 1)
        self._betas = optim.BETAS
        self._schedule = optim.Schedule(
            rates=_table([schedule.learning_rate(config, update) for update in updates], device),
            shares=_table([schedule.mixing_share(config, update) for update in updates], device),
            corrections=_table(optim.bias_corrections(self._betas), device),
            position=torch.zeros(1, dtype=torch.int64, device=device),
            step=torch.zeros(1, device=device),
            switches=torch.zeros(2, device=device),
        )
        self._inverse, self._nats, self._losses, self._factors = (
            torch.zeros(config.workers, device=device) for _ in range(4)
        )
        self._inverses: dict[tuple[int, ...], Tensor] = {}
        self._scale = DeviceScale(config, device) if config.loss_scale else None
        self._runner = graphs.make_runner(device)
        self._regions, self._regions_path = regions.make_regions(config, device)
        self._advance_arena = _advance_for(device)
        self._has_gradients = False
        self._are_clipped = True
        self.join(ALONE)
        self._addresses = self._live_addresses()

    def join(self, group: Group) -> None:
        """Add up gradients with other processes, and take a part of each microbatch."""
        self._group = group
        batch = self._config.batch // group.world
        self._inputs = Inputs(self._config, batch, self._device)
        parts = divide(self._config.workers, batch * self._config.context, MOST_ROWS)
        self._stacks = [Stack(self._arenas, workers, self._config, batch=batch) for workers in parts]

    def local_update(self, batches: Sequence[Batch], update: int, *, combines: bool = False) -> Tensor:
        """Train all workers: the stages of one update."""
        self._runner.begin()
        self._set(update, steps=True, combines=combines)
        self._inverse.copy_(self._inverse_targets(batches))
        for number, batch in enumerate(batches):
            self._microbatch(batch, is_first=number == 0)
        self._group.add([*self._gradients(), self._nats])
        self._runner.run("update", self._update)
        self._has_gradients, self._are_clipped = True, False
        return self._losses.clone()

    def make_gradients(self) -> None:
        """They are always there."""
        self._has_gradients = self._are_clipped = True

    def clear_gradients(self) -> None:
        """They are not shown until the next update, whose first microbatch writes over them."""
        self._has_gradients = False

    def step(self, update: int) -> None:
        """The last part of an update, without consensus."""
        self._set(update, steps=True, combines=False)
        self._factors.fill_(1.0)
        self._advance()

    def combine(self, update: int) -> None:
        """The last part of an update, without the optimizer."""
        self._set(update, steps=False, combines=True)
        self._advance()

    def state(self, quantity: str) -> Iterator[tuple[int, str, Tensor]]:
        """Each worker's slice of the stacks under its canonical name."""
        if quantity == GRADIENTS and not self._has_gradients:
            raise RuntimeError("no update has run yet, so there are no gradients")
        if quantity == GRADIENTS and not self._are_clipped:
            self._clip()
        named: dict[str, Tensor] = {}
        for arena in self._arenas:
            named |= arena.views(_stack(arena, quantity))
        if self._config.tied:
            named[HEAD] = named[EMBEDDING]
        for worker in range(self._config.workers):
            for name in self._names:  # the shared head comes last, as it does in the modules
                yield worker, name, named[name][worker]

    def set_step(self, step: int) -> None:
        """Set the step of the optimizers, after the parameters: what follows from them is renewed."""
        if self._live_addresses() != self._addresses:
            raise RuntimeError("a tensor of the state has moved, and graphs would go on with what is at its old place")
        self._schedule.step.fill_(step)
        for arena in self._arenas:
            arena.refresh()
        if self._scale:
            self._scale.reset()

    def optimizer_step(self) -> int:
        """Read from the device; all workers skip the same updates."""
        return int(self._schedule.step)

    def scaling(self) -> tuple[float, int]:
        """Read from the device."""
        return self._scale.position() if self._scale else (1.0, 0)

    def set_scaling(self, value: float, streak: int) -> None:
        """Go on with a loss scale."""
        if self._scale:
            self._scale.set_position(value, streak)

    def loss_scale(self) -> float:
        """Read from the device."""
        return float(self._scale.value) if self._scale else 1.0

    def num_skipped(self) -> int:
        """Read from the device."""
        return int(self._scale.num_skipped) if self._scale else 0

    def description(self) -> dict[str, str]:
        """The execution path in words."""
        config = self._config
        at_a_time = config.workers // len(self._stacks)
        sequences = at_a_time * self._inputs.tokens.size(1)
        return {
            "backend": self.name,
            "stacked": "yes",
            "workers at a time": f"{at_a_time} of {config.workers}",
            "attention": attention_kernel(config, sequences, self._device),
            "regions": self._regions_path,
            "graphs": self._runner.path(),
            "matrices": config.precision if config.precision == "fp32" else f"fp32, {config.precision} shadows",
            "optimizer": "adamw, one kernel per arena" if self._device.type == "cuda" else "adamw over arenas",
            "loss scaling": "on the device" if self._scale else "off",
            "clipping": "per worker, with the optimizer" if config.clip else "off",
            "consensus": f"with the optimizer, {consensus.order_in_words(config)}" if config.workers > 1 else "none",
        }

    def counts(self) -> dict[str, int]:
        """How often the stages ran, and as what."""
        return self._runner.counts()

    def _first(self) -> None:
        """The stage of an update's first microbatch."""
        self._backward(is_first=True)

    def _further(self) -> None:
        """The stage of every other one."""
        self._backward(is_first=False)

    def _backward(self, *, is_first: bool) -> None:
        factors = self._inverse * self._scale.value if self._scale else self._inverse
        for stack in self._stacks:
            nats = stack.backward(self._regions, self._inputs.tokens, self._inputs.targets, factors, is_first=is_first)
            total = self._nats[stack.workers]
            total.copy_(nats if is_first else total + nats)

    def _update(self) -> None:
        """The stage after the last microbatch."""
        torch.mul(self._nats, self._inverse, out=self._losses)
        self._factors.copy_(self._clip_factors())
        if self._scale:
            overflowed = self._scale.overflowed(self._gradients())
            self._schedule.switches[0].mul_(1 - overflowed)
        self._advance()
        if self._scale:
            self._scale.settle(overflowed)

    def _clip_factors(self) -> Tensor:
        """What the optimizer multiplies each worker's gradients by: for the loss scale, and for clipping [workers]."""
        scale = self._scale.value if self._scale else None
        if self._config.clip:
            return optim.clip_factors(self._gradients(), self._config.clip, scale)
        return torch.ones_like(self._factors) if scale is None else scale.reciprocal().expand_as(self._factors)

    def _advance(self) -> None:
        """Step and combine, as far as the switches say."""
        self._schedule.step.add_(self._schedule.switches[:1])
        for arena in self._arenas:
            self._advance_arena(
                *arena.tensors(),
                factors=self._factors,
                schedule=self._schedule,
                betas=self._betas,
                weight_decay=arena.weight_decay,
                combines_first=consensus.combines_first(self._config),
            )

    def _clip(self) -> None:
        """Do to the gradients, for those who look at them, what the optimizer has done on its way."""
        for gradients in self._gradients():
            gradients.mul_(self._factors.unsqueeze(1))
        self._are_clipped = True

    def _microbatch(self, batch: Batch, *, is_first: bool) -> None:
        self._inputs.load(batch)
        if is_first:
            self._runner.run("first", self._first)
        else:
            self._runner.run("further", self._further)

    def _set(self, update: int, *, steps: bool, combines: bool) -> None:
        """Let the device know where the schedule stands, and what to do."""
        self._schedule.position.fill_(min(update, self._config.updates_total))
        self._schedule.switches[0].fill_(float(steps))
        self._schedule.switches[1].fill_(float(combines))

    def _gradients(self) -> list[Tensor]:
        return [arena.gradients for arena in self._arenas]

    def _inverse_targets(self, batches: Sequence[Batch]) -> Tensor:
        """1 / targets of the whole update, per worker [K]; the few patterns of full batches stay on the device."""
        counts = tuple(map(sum, zip(*(batch.all_targets for batch in batches), strict=True)))
        if counts not in self._inverses:
            if len(self._inverses) == MOST_KEPT:
                self._inverses.clear()
            self._inverses[counts] = _table([1 / max(count, 1) for count in counts], self._device)
        return self._inverses[counts]

    def _live_addresses(self) -> list[int]:
        return [tensor.data_ptr() for arena in self._arenas for tensor in arena.tensors()]


def _stack(arena: Arena, quantity: str) -> Tensor:
    if quantity == PARAMETERS:
        return arena.values
    if quantity == GRADIENTS:
        return arena.gradients
    return {"exp_avg": arena.firsts, "exp_avg_sq": arena.seconds}[quantity]


def _advance_for(device: torch.device) -> Callable[..., None]:
    if device.type == "cpu":
        return optim.advance
    from tinylm import kernels  # noqa: PLC0415  # Triton comes with torch for CUDA alone

    return kernels.advance


def _table(values: Sequence[float] | list[list[float]], device: torch.device) -> Tensor:
    """fp32 on the device; from pinned memory there, so that nothing waits."""
    table = torch.tensor(values, dtype=torch.float32)
    return table if device.type == "cpu" else table.pin_memory().to(device, non_blocking=True)
