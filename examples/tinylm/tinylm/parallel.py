"""Data parallelism: processes that divide the sequences of every microbatch, and make the same update together.

Each process holds the whole model. It goes through its own sequences of all microbatches of an update; then, once, all
add up their gradients. A loss is divided by the targets of all processes before its backward pass, which every process
knows without asking, so that the sum is the gradient that one process would have had. Whatever follows, from clipping
on, is the same arithmetic on the same numbers in every process.

Processes find one another as torchrun says: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

import datetime as dt
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tinylm.config import Config, ConfigError

MOMENT_OF_EXCHANGE = "after last microbatch"
PATIENCE = dt.timedelta(minutes=10)


class Group:
    """The processes of one training; as it stands, one that is alone.

    Attributes:
        rank: this process's number.
        world: how many there are.
        exchange: what carries the gradients.
        exchanges: how often they were added up.
    """

    rank = 0
    world = 1
    exchange = "none"

    def __init__(self) -> None:
        self.exchanges = 0

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Put in place of each fp32 tensor its sum over all processes, in one exchange; waits for no device."""

    def wait(self) -> None:
        """Wait for all processes to come here."""

    def close(self) -> None:
        """Leave the others."""

    def description(self) -> dict[str, int | str]:
        """What was exchanged, and how: nothing."""
        return {}


class Joined(Group):
    """Several processes that exchange through torch.distributed."""

    def __init__(self, rank: int, world: int, device: torch.device) -> None:
        import torch.distributed  # noqa: PLC0415  # a process that is alone does not pay for it

        super().__init__()
        self.rank, self.world = rank, world
        self.exchange = "nccl" if device.type == "cuda" else "gloo"
        self._device = device
        self._owns = not torch.distributed.is_initialized()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if self._owns:
            torch.distributed.init_process_group(
                self.exchange,
                init_method="env://",
                rank=rank,
                world_size=world,
                timeout=PATIENCE,
                device_id=device if device.type == "cuda" else None,
            )

    @torch.no_grad()
    def add(self, tensors: Sequence[Tensor]) -> None:
        """As said above. The order of summation is the library's, and its result the same bits in every process."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        torch.distributed.all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))
        self.exchanges += 1

    def wait(self) -> None:
        """As said above."""
        torch.distributed.barrier(device_ids=[self._device.index] if self._device.type == "cuda" else None)

    def close(self) -> None:
        """As said above, if it was this object that met them; they must have nothing left to exchange."""
        if self._owns:
            torch.distributed.destroy_process_group()

    def description(self) -> dict[str, int | str]:
        """What carries the gradients, when, and how often it did."""
        return {
            "exchange": self.exchange,
            "synchronisation": MOMENT_OF_EXCHANGE,
            "processes": self.world,
            "exchanges": self.exchanges,
        }


ALONE = Group()


def join(environment: Mapping[str, str], config: Config, device: torch.device) -> Group:
    """Meet the other processes, if there are any.

    Args:
        environment: as torchrun sets it; without WORLD_SIZE there is one process.
        config: what to train.
        device: this process's own.

    Raises:
        ConfigError: if the configuration cannot be divided among them.
    """
    world = int(environment.get("WORLD_SIZE", "1"))
    if world == 1:
        return ALONE
    check_division(config, world)
    return Joined(int(environment["RANK"]), world, device)


def check_division(config: Config, world: int) -> None:
    """Refuse what so many processes cannot do together.

    Raises:
        ConfigError: naming the key.
    """
    if config.mode != "sync":
        raise ConfigError("mode", f"{config.mode} mode trains in one process, and WORLD_SIZE is {world}")
    if config.batch % world:
        raise ConfigError("batch", f"{config.batch} sequences cannot be divided among {world} processes")
