"""A detached allocation: planned for the driver's home, and made where its bundle lies.

allocation.json is what the ledger knows by its digest, so it stays as it is. What differs on the machine is given with
each command and kept with it: where the home lies, which interpreters there are, and where the data sets are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..common.layout import candidate_manifest_path, manifest_path
from ..common.plan import Allocation, DataIdentity, Runnable
from ..common.storage import read_regular, sha256_bytes
from ..common.strict import Fields, parse_json

BASELINE, CANDIDATE, HARNESS = "baseline", "candidate", "harness"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the parts of a bundle are on this machine."""

    home: Path
    python: Mapping[str, str]
    """Interpreters of the harness and of the sides."""
    data: Mapping[str, str]
    """Data sets by name."""

    def relocate(self, allocation: Allocation) -> Allocation:
        """Return an allocation as it is made here.

        Raises:
            ValueError: The place does not say where something of it is, or what was frozen does not fit it.
            OSError: What was frozen cannot be read.
        """
        data = {name: self._data(name, one) for name, one in allocation.data.items()}
        manifest = _read(manifest_path(self.home), allocation.manifest_sha256)
        sides = {}
        for side, runnable in allocation.sides.items():
            frozen = manifest if side == BASELINE else _read(candidate_manifest_path(self.home, runnable.id))
            raw = Fields(frozen.get(side), side).text_table("environment")
            sides[side] = self._side(allocation, side, runnable, _environments(raw, allocation.data, data, runnable))
        return replace(allocation, home=self.home, sides=sides, data=data)

    def _data(self, name: str, one: DataIdentity) -> DataIdentity:
        if name not in self.data:
            raise ValueError(f"where the data set {name} is was not said")
        return replace(one, path=Path(self.data[name]))

    def _side(self, allocation: Allocation, side: str, runnable: Runnable, environment: Mapping[str, str]) -> Runnable:
        if side not in self.python:
            raise ValueError(f"which interpreter {side} has was not said")
        return replace(
            runnable,
            tree=self._moved(allocation, runnable.tree),
            files=self._moved(allocation, runnable.files),
            python=self.python[side],
            environment=environment,
        )

    def _moved(self, allocation: Allocation, path: Path) -> Path:
        """Return a path in the home as it is here.

        Raises:
            ValueError: It does not lie in the home.
        """
        return self.home / path.relative_to(allocation.home)


def _read(path: Path, sha256: str = "") -> dict[str, Any]:
    data = read_regular(path)
    if sha256 and sha256_bytes(data) != sha256:
        raise ValueError(f"{path}: its SHA-256 is {sha256_bytes(data)}, the allocation names {sha256}")
    value = parse_json(data)
    if type(value) is not dict:
        raise ValueError(f"{path}: not an object")
    return value


def _environments(
    raw: Mapping[str, str], then: Mapping[str, DataIdentity], now: Mapping[str, DataIdentity], runnable: Runnable
) -> dict[str, str]:
    """Return a side's variables with the data sets' places here.

    Args:
        raw: As they were frozen, with references to data sets.
        then: The data sets where the driver has them.
        now: The same here.
        runnable: The side as it was planned: with the former places its variables must be the planned ones.

    Raises:
        ValueError: They are not.
    """
    if _expand(raw, then) != dict(runnable.environment):
        raise ValueError(f"the variables of {runnable.id} are not those that were frozen")
    return _expand(raw, now)


def _expand(raw: Mapping[str, str], data: Mapping[str, DataIdentity]) -> dict[str, str]:
    expanded = dict(raw)
    for name, one in data.items():
        expanded = {key: value.replace(f"${{data.{name}}}", str(one.path)) for key, value in expanded.items()}
    return expanded
