"""Both backends behind the small interface that a measuring harness calls.

`native` and `fast` take (config, *, seed, device) and return a Session. The corpus lies in the folder named by the
environment variable TINYLM_DATA. Where WORLD_SIZE is more than 1, the process is one of several that train together, as
torchrun starts them.
"""

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinylm import determinism, schedule
from tinylm.build import make_trainer
from tinylm.config import read_config
from tinylm.data import IGNORED, Batch, part
from tinylm.trainer import GRADIENTS, MOMENTS, PARAMETERS

DATA_VARIABLE = "TINYLM_DATA"
QUANTITIES = (PARAMETERS, GRADIENTS, *MOMENTS)


def native(config: Mapping[str, Any], *, seed: int, device: str) -> "Session":
    """One eager model per worker."""
    return Session("native", config, seed=seed, device=device)


def fast(config: Mapping[str, Any], *, seed: int, device: str) -> "Session":
    """All workers stacked into one model."""
    return Session("fast", config, seed=seed, device=device)


class Session:
    """One training, at update 0 when built. A worker is one of the models that are trained side by side."""

    def __init__(self, backend: str, config: Mapping[str, Any], *, seed: int, device: str) -> None:
        self._trainer = make_trainer(
            backend,
            read_config(config),
            folder=_data_folder(),
            seed=seed,
            device=device,
            stream=sys.stdout,
            environment=os.environ,
        )

    def updates(self, n: int) -> tuple[int, int, int, int]:
        """Run n updates on the production path, asynchronously.

        Returns:
            Updates, microbatches of all workers, updates that loss scaling skipped, and targets of all workers;
            microbatches and targets are this process's own.
        """
        counts = self._trainer.train(n)
        return counts.updates, counts.microbatches, counts.skipped, counts.targets

    def sync(self) -> None:
        """Wait until everything asked for is done."""
        self._trainer.sync()

    def loss(self) -> float:
        """Nats per target in the last update, the mean over the workers."""
        return float(self._trainer.losses().mean())

    def state(self, quantity: str) -> Iterator[tuple[int, str, Tensor]]:
        """Live fp32 tensors as (worker, name, tensor), a shared head included.

        Gradients are those of the last update as the optimizer saw them: unscaled and clipped.
        """
        if quantity not in QUANTITIES:
            raise ValueError(f"unknown quantity {quantity!r}; there are {', '.join(QUANTITIES)}")
        return self._trainer.backend.state(quantity)

    def load_state(self, tensors: Mapping[tuple[str, int, str], Tensor], step: int) -> None:
        """Load {(quantity, worker, name): tensor} in place.

        Absent moments become zero, all counters become `step`, and loss scaling begins anew.
        """
        self._trainer.load_state(tensors, step)

    def batch(self, step: int) -> dict[str, Tensor]:
        """All processes' inputs of an update: tokens and targets, int64 [microbatches, workers, batch, context]."""
        batches = self._trainer.whole_microbatches(step)
        return {
            "tokens": torch.stack([batch.tokens for batch in batches]),
            "targets": torch.stack([batch.targets for batch in batches]),
        }

    def update_on(self, batch: Mapping[str, Tensor]) -> list[float]:
        """One whole local update of every worker on such inputs, consensus off; nats per target of each worker.

        The tensors may be on the host or on the device. Of several processes each takes its part of them.
        """
        group = self._trainer.group
        tokens, targets = (batch[name].to(self._trainer.device) for name in ("tokens", "targets"))
        self._trainer.local_update(
            [_batch(*pair, group.rank, group.world) for pair in zip(tokens, targets, strict=True)]
        )
        losses: list[float] = self._trainer.losses().tolist()
        return losses

    def optimizer_check(
        self,
        parameters: Mapping[tuple[int, str], Tensor],
        gradients: Sequence[Mapping[tuple[int, str], Tensor]],
        steps: int,
    ) -> Iterator[tuple[str, int, str, Tensor]]:
        """The optimizer alone: `steps` updates from update 0 on, on gradients [step][worker, name], without clipping.

        It uses the training's own optimizers, groups and learning rates. The training's state is lost.

        Returns:
            (quantity, worker, name, live tensor) of parameters, exp_avg and exp_avg_sq.
        """
        if len(gradients) != steps:
            raise ValueError(f"{steps} steps need as many gradients, not {len(gradients)}")
        return self._trainer.optimizer_check(parameters, gradients)

    def mix(self, parameters: Mapping[tuple[int, str], Tensor], round: int) -> Iterator[tuple[int, str, Tensor]]:  # noqa: A002  # the interface's name for it
        """The consensus alone, as after update number `round`. The training's state is lost.

        Returns:
            (worker, name, live tensor); the moments, which a combination must leave alone, as exp_avg/NAME and
            exp_avg_sq/NAME.
        """
        return self._trainer.mix(parameters, round)

    def evaluate(self) -> tuple[float, int]:
        """Sum of nats and number of targets over the whole validation split, for the mean of the workers' models."""
        return self._trainer.evaluate()

    def engaged(self) -> dict[str, int | str]:
        """The execution path in words, and how often it ran."""
        return {
            **self._trainer.backend.description(),
            **self._trainer.backend.counts(),
            **self._trainer.group.description(),
            "deterministic": determinism.in_words(),
            **self._trainer.executed(),
        }

    def progress(self) -> dict[str, int | float | str]:
        """Where the training stands."""
        trainer = self._trainer
        return {
            "attempted_updates": trainer.update,
            "successful_updates": trainer.update - trainer.skipped(),
            "targets": trainer.targets,
            "loader_position": trainer.update,
            "learning_rate": schedule.learning_rate(trainer.config, trainer.update),
            "loss_scale": trainer.backend.loss_scale(),
            "random_state": hashlib.sha256(bytes(torch.get_rng_state().tolist())).hexdigest(),
        }

    def examples(self, step: int) -> Iterator[int]:
        """A number for each window of text that this process takes in an update."""
        return self._trainer.examples(step)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write everything that the next update depends on into a folder; gradients are cleared.

        The first of several processes writes, and the others wait for it.
        """
        self._trainer.save(Path(folder))

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Go on from what `save` wrote, by either backend, for the same configuration, seed and text."""
        self._trainer.load(Path(folder))

    def close(self) -> None:
        """Let go of the models, and of the other processes."""
        self._trainer.close()
        del self._trainer


def _data_folder() -> Path:
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise RuntimeError(f"{DATA_VARIABLE} is not set; it names the folder that prepare_corpus.py wrote")
    return Path(folder)


def _batch(tokens: Tensor, targets: Tensor, rank: int, world: int) -> Batch:
    targets = targets.masked_fill(targets < 0, IGNORED)
    own = part(targets, rank, world)
    num_targets, all_targets = ((some != IGNORED).flatten(1).sum(dim=1).tolist() for some in (own, targets))
    return Batch(
        tokens=part(tokens, rank, world),
        targets=own,
        num_targets=tuple(num_targets),
        all_targets=tuple(all_targets),
    )
