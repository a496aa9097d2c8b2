"""The adapter: shows your trainer to the harness. It belongs to your repository and imports nothing of the tool.

A side names one function of this module, such as ``adapter:baseline``. The function is called once in a process of
its own, on a frozen copy of the source, and returns a runner. Replace every NotImplementedError; a method that is not
listed here is optional (docs/adapter.md lists them all).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Runner:
    """One training of one workload on the production path: its loader, schedule, clipping and logging included."""

    def __init__(self, config: Mapping[str, Any], *, backend: str, seed: int, device: str) -> None:
        """Build model, optimizer and loader.

        Args:
            config: The workload's configuration, as the matrix of campaign.toml resolves it.
            backend: Which of the two implementations.
            seed: Seed of the initial state and of the batches.
            device: ``cpu`` or ``cuda``.
        """
        raise NotImplementedError(f"build the {backend} trainer for {dict(config)}, seed {seed}, on {device}")

    def updates(self, n: int) -> tuple[int, int, int, int]:
        """Start n optimizer updates; on a GPU without waiting for them.

        Returns:
            Updates done, microbatches (forward and backward passes), updates skipped by a loss scaler, and targets
            (non-padding tokens predicted).
        """
        raise NotImplementedError(f"train for {n} updates")

    def sync(self) -> None:
        """Wait until everything that was started is finished."""
        raise NotImplementedError("wait for the device; nothing to do on the CPU")

    def loss(self) -> float:
        """Return the loss of the last update."""
        raise NotImplementedError("return the last loss")

    # What [numerical] of campaign.toml calls; without that table it can stay as it is. docs/adapter.md says what each
    # method must do. A worker is one of the models that are trained side by side, 0 if there is only one.
    #
    # def state(self, quantity: str) -> Iterator[tuple[int, str, torch.Tensor]]:
    #     """Yield (worker, name, tensor) of parameters, gradients, exp_avg or exp_avg_sq, always in the same order."""
    #
    # def load_state(self, tensors: Mapping[tuple[str, int, str], torch.Tensor], step: int) -> None:
    #     """Copy {(quantity, worker, name): tensor} into the live tensors; absent moments become zero."""
    #
    # def batch(self, step: int) -> Mapping[str, torch.Tensor]:
    #     """Return all inputs of update number `step`, without moving the loader on; of the baseline alone."""
    #
    # def update_on(self, batch: Mapping[str, torch.Tensor]) -> Sequence[float]:
    #     """Make one update on given inputs, without consensus; return the loss of each worker."""
    #
    # def optimizer_check(
    #     self,
    #     parameters: Mapping[tuple[int, str], torch.Tensor],
    #     gradients: Sequence[Mapping[tuple[int, str], torch.Tensor]],
    #     steps: int,
    # ) -> Iterator[tuple[str, int, str, torch.Tensor]]:
    #     """Run the optimizer alone; yield (quantity, worker, name, tensor) of parameters and both moments."""
    #
    # def mix(
    #     self, parameters: Mapping[tuple[int, str], torch.Tensor], round: int
    # ) -> Iterator[tuple[int, str, torch.Tensor]]:
    #     """Run consensus alone, on the parameters of all workers; yield (worker, name, tensor)."""
    #
    # def engaged(self) -> Mapping[str, int | str]:
    #     """Say which path really ran: cases and timed pairs must name the same one."""

    # What [convergence] of campaign.toml calls beside them.
    #
    # def evaluate(self) -> tuple[float, int]:
    #     """Return the sum of nats over the whole validation split, and its targets; leave the training as it is."""
    #
    # def save(self, folder: pathlib.Path) -> None:
    #     """Clear the gradients, then write all that the next update needs into an empty folder.
    #
    #     Model, optimizer, scaler, schedule, counters, the loader's position, random state; before it returns.
    #     """
    #
    # def load(self, folder: pathlib.Path) -> None:
    #     """Go on in a new process from what `save` wrote, bit for bit as if nothing had happened."""
    #
    # def progress(self) -> Mapping[str, int | float | str]:
    #     """Say where the training stands: the same before `save` and after `load`."""


def baseline(config: Mapping[str, Any], *, seed: int, device: str) -> Runner:
    """Return the implementation in use."""
    return Runner(config, backend="baseline", seed=seed, device=device)


def candidate(config: Mapping[str, Any], *, seed: int, device: str) -> Runner:
    """Return the implementation that may replace it."""
    return Runner(config, backend="candidate", seed=seed, device=device)
