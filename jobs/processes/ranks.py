"""The processes of one side where it has several: their numbers, and the environment by which they find one another."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.strict import Fields
from .environment import RANK_VARIABLES

LOOPBACK = "127.0.0.1"
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 15_000
_USUAL_EPHEMERAL = 32_768
_MOST_TRIES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One process of a side."""

    rank: int
    local_rank: int
    """Its number among those of its node."""
    processes: int
    """All of them."""
    per_node: int
    address: str
    """Where rank 0 is found."""
    port: int

    @property
    def node(self) -> int:
        """The number of its node among those of the side."""
        return self.rank // self.per_node

    @property
    def name(self) -> str:
        """What stands before a reason that concerns it alone."""
        return f"rank {self.rank}"

    def device(self, kind: str) -> str:
        """Return the adapter's ``device``, from the protocol's."""
        return kind if kind == "cpu" else f"{kind}:{self.local_rank}"

    def environment(self) -> dict[str, str]:
        """Return what torchrun sets, by which the processes of a side find one another."""
        values = (self.rank, self.local_rank, self.processes, self.per_node, self.node, self.address, self.port)
        return {name: str(value) for name, value in zip(RANK_VARIABLES, values, strict=True)}

    def as_json(self) -> dict[str, Any]:
        """Return it as `parse_rank` reads it."""
        return {name: getattr(self, name) for name in Rank.__slots__}


def parse_rank(value: Any) -> Rank:
    """Parse a rank that one part of the harness told another.

    Raises:
        ValueError: It is none.
    """
    fields = Fields(value, "rank")
    rank = Rank(
        rank=fields.count("rank"),
        local_rank=fields.count("local_rank"),
        processes=fields.count("processes", minimum=1),
        per_node=fields.count("per_node", minimum=1),
        address=fields.text("address"),
        port=fields.count("port"),
    )
    fields.done()
    return rank


def number_ranks(processes: int, nodes: int, address: str, port: int) -> tuple[Rank, ...]:
    """Return the ranks of a side, those of a node one after another.

    Args:
        processes: All of them.
        nodes: Nodes; each has equally many.
        address: Where rank 0 is found.
        port: Its port.
    """
    per_node = processes // nodes
    return tuple(
        Rank(
            rank=number,
            local_rank=number % per_node,
            processes=processes,
            per_node=per_node,
            address=address,
            port=port,
        )
        for number in range(processes)
    )


def find_free_port(address: str = "", range_file: Path = _EPHEMERAL) -> int:
    """Return a TCP port of this host that nobody listens on at present.

    It lies below those that the kernel gives to whoever asks for any: between this look and the moment at which rank 0
    listens, no connection of some other process can be given it.

    Args:
        address: Where it shall be free; all addresses by default.
        range_file: Where the kernel says which ports it gives.
    """
    chance = random.SystemRandom()
    for _ in range(_MOST_TRIES):
        port = chance.randrange(_LOWEST_PORT, _first_ephemeral(range_file))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return port
    raise OSError(errno.EADDRINUSE, f"none of {_MOST_TRIES} ports from {_LOWEST_PORT} on is free")


def _first_ephemeral(range_file: Path) -> int:
    try:
        first = int(range_file.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_EPHEMERAL
    return first if first > _LOWEST_PORT else _USUAL_EPHEMERAL
