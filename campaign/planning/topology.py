"""How many processes and nodes a workload asks for, and whether it has numerical cases: its keys beside `config`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from campaign.config.locate import KeyPath
from campaign.config.model import MOST_PROCESSES, Config

KEYS = ("processes", "nodes", "numerical")
"""Entries of the matrix with these names are no entries of a configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What runs a side of one workload."""

    processes: int = 1
    nodes: int = 1
    numerical: bool = True
    """Whether it has numerical cases, where the family is declared."""


def lift(config: Config, entries: Mapping[str, Any], key: KeyPath) -> tuple[dict[str, Any], Topology]:
    """Take the keys of a topology out of the entries of a matrix.

    Args:
        config: The configuration.
        entries: What the matrix sets for a workload.
        key: Where it stands in the file.

    Returns:
        What the adapter is called with, and the topology.

    Raises:
        ConfigError: A key has another type, or the topology cannot be.
    """
    for name in KEYS:
        wanted = bool if name == "numerical" else int
        if name in entries and type(entries[name]) is not wanted:
            kind = "true or false" if wanted is bool else "a whole number"
            raise config.error(
                key,
                f"{name} is {kind}, not {entries[name]!r}",
                why=f"in the matrix {name} is no entry of a configuration but what [[workload]] calls so",
                hint="give the entry of the configuration another name",
            )
    topology = Topology(**{name: entries[name] for name in KEYS if name in entries})
    return {name: value for name, value in entries.items() if name not in KEYS}, _checked(config, topology, key)


def _checked(config: Config, topology: Topology, key: KeyPath) -> Topology:
    """Return a topology that can be.

    Raises:
        ConfigError: It cannot.
    """
    if not (1 <= topology.nodes <= topology.processes <= MOST_PROCESSES):
        raise config.error(
            key,
            f"{topology.processes} processes on {topology.nodes} nodes",
            why=f"every node runs at least one, and there are at most {MOST_PROCESSES}",
            hint="set processes and nodes so that there are at least as many processes",
        )
    if topology.processes % topology.nodes:
        raise config.error(
            key,
            f"{topology.processes} processes cannot be spread evenly over {topology.nodes} nodes",
            hint="make processes a multiple of nodes",
        )
    if not topology.numerical and topology.processes == 1:
        raise config.error(
            key,
            "numerical = false for a workload of one process",
            why="only what the numerical family cannot take may be left out of it",
            hint="remove numerical, or set processes",
        )
    if config.numerical is not None and topology.numerical and topology.processes > 1:
        raise config.error(
            key,
            f"{topology.processes} processes, and the numerical family compares single ones",
            why="a case runs one process of each side",
            hint="numerical = false beside processes leaves this workload out of the family; the report says so",
        )
    return topology
