"""The plain backend: one model and one optimizer per worker, one after the other, eagerly."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from tinylm import consensus, model, optim, schedule
from tinylm.config import Config
from tinylm.data import Batch
from tinylm.parallel import ALONE, Group
from tinylm.scaling import HostScale
from tinylm.trainer import GRADIENTS, PARAMETERS, attention_kernel, autocast


class Native:
    """Separate eager models with torch's own AdamW and clipping."""

    name: ClassVar[str] = "native"

    def __init__(self, config: Config, *, seed: int, device: torch.device) -> None:
        self._config = config
        self._device = device
        # As is usual: the fused kernel where it is the known good choice, torch's default elsewhere.
        self._fused = device.type == "cuda"
        initial = model.initial_state(config, seed)
        self.models = [self._model(initial) for _ in range(config.workers)]
        # Modules take their time to list their parameters.
        self._parameters: list[list[Tensor]] = [list(worker.parameters()) for worker in self.models]
        self._optimizers = [self._optimizer(worker) for worker in self.models]
        self._scale = HostScale(config) if config.loss_scale else None
        self._group: Group = ALONE

    def join(self, group: Group) -> None:
        """Add up gradients with other processes."""
        self._group = group

    def local_update(self, batches: Sequence[Batch], update: int, *, combines: bool = False) -> Tensor:
        """Train each worker on its part of the microbatches."""
        losses = torch.stack([self._backward(worker, batches) for worker in range(self._config.workers)])
        if self._group.world > 1:
            self._group.add([*self._gradients(), losses])
        is_usable = self._unscale()
        if is_usable and self._config.clip:
            for parameters in self._parameters:
                torch.nn.utils.clip_grad_norm_(parameters, self._config.clip)
        consensus.in_order(
            self._config,
            step=lambda: self.step(update) if is_usable else None,
            combine=lambda: self.combine(update) if combines else None,
        )
        return losses

    def make_gradients(self) -> None:
        """One tensor per parameter."""
        for parameters in self._parameters:
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)

    def clear_gradients(self) -> None:
        """As every update begins."""
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def step(self, update: int) -> None:
        """Step one optimizer after the other."""
        lr = schedule.learning_rate(self._config, update)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()

    def combine(self, update: int) -> None:
        """Average over the ring, worker by worker."""
        consensus.combine_one_by_one(self._parameters, schedule.mixing_share(self._config, update))

    def state(self, quantity: str) -> Iterator[tuple[int, str, Tensor]]:
        """The modules' and optimizers' own tensors."""
        for index, (worker, optimizer) in enumerate(zip(self.models, self._optimizers, strict=True)):
            for name, parameter in worker.named_parameters(remove_duplicate=False):
                yield index, name, _quantity(optimizer, parameter, quantity)

    def set_step(self, step: int) -> None:
        """Set the step of every optimizer."""
        for optimizer in self._optimizers:
            optim.set_step(optimizer, step)
        if self._scale:
            self._scale.reset()

    def optimizer_step(self) -> int:
        """Of any optimizer, since all skip the same updates."""
        return optim.step_of(self._optimizers[0])

    def scaling(self) -> tuple[float, int]:
        """Numbers that are at hand."""
        return self._scale.position() if self._scale else (1.0, 0)

    def set_scaling(self, value: float, streak: int) -> None:
        """Go on with a loss scale."""
        if self._scale:
            self._scale.set_position(value, streak)

    def loss_scale(self) -> float:
        """A number that is at hand."""
        return self._scale.value if self._scale else 1.0

    def num_skipped(self) -> int:
        """A number that is at hand."""
        return self._scale.num_skipped if self._scale else 0

    def description(self) -> dict[str, str]:
        """The execution path in words."""
        return {
            "backend": self.name,
            "stacked": "no",
            "attention": attention_kernel(self._config, self._config.batch // self._group.world, self._device),
            "optimizer": "AdamW fused" if self._fused else "AdamW default",
            "loss scaling": "on the host" if self._scale else "off",
            "clipping": "clip_grad_norm_ per worker" if self._config.clip else "off",
            "consensus": f"worker by worker, {consensus.order_in_words(self._config)}"
            if self._config.workers > 1
            else "none",
        }

    def counts(self) -> dict[str, int]:
        """Nothing but whole updates."""
        return {}

    def _model(self, initial: dict[str, Tensor]) -> model.GPT:
        worker = model.GPT(self._config)
        worker.load_state_dict({model.HEAD: initial[model.EMBEDDING], **initial})
        return worker.to(self._device)

    def _optimizer(self, worker: model.GPT) -> torch.optim.AdamW:
        named = list(worker.named_parameters())
        return optim.make_adamw(
            [parameter for name, parameter in named if model.decays(name)],
            [parameter for name, parameter in named if not model.decays(name)],
            lr=self._config.lr,
            weight_decay=self._config.weight_decay,
            fused=self._fused,
        )

    def _backward(self, index: int, batches: Sequence[Batch]) -> Tensor:
        """Accumulate the gradients of one worker; the nats of these microbatches per target of the update."""
        worker = self.models[index]
        self._optimizers[index].zero_grad(set_to_none=True)
        # All targets of the update weigh the same, whatever microbatch they stand in, and whichever process takes them.
        num_targets = max(sum(batch.all_targets[index] for batch in batches), 1)
        parts = []
        for batch in batches:
            with autocast(self._config.precision, self._device):
                logits = worker(batch.tokens[index])
            loss = model.nats(logits, batch.targets[index]) / num_targets
            (loss * self._scale.value if self._scale else loss).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            parts.append(loss.detach())
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum()

    def _unscale(self) -> bool:
        """Whether the gradients may be used."""
        if not self._scale:
            return True
        overflowed = self._scale.unscale(self._gradients())
        self._scale.settle(overflowed=overflowed)
        return not overflowed

    def _gradients(self) -> Iterator[Tensor]:
        return (_gradient(parameter) for parameters in self._parameters for parameter in parameters)


def _quantity(optimizer: torch.optim.AdamW, parameter: Tensor, quantity: str) -> Tensor:
    if quantity == PARAMETERS:
        return parameter.detach()
    if quantity == GRADIENTS:
        return _gradient(parameter)
    moment: Tensor = optimizer.state[parameter][quantity]
    return moment


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        raise RuntimeError("no update has run yet, so there are no gradients")
    return parameter.grad
