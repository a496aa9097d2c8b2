"""What the control groups of this process let it use, in version 1 and 2 of them: processors, time on them, memory.

A limit holds for everything below it, so that the tightest one up to the root is what counts. Where the files of a
group are not shown here, as in many containers, what they say is unknown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIPS = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60
"""cgroup version 1 writes a number near 2^63 where there is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is not limited is None, and so is what is unknown; `unknown` says which of the two."""

    cpus: str | None = None
    """The processors, as the kernel lists them."""
    mems: str | None = None
    """The memory nodes, likewise."""
    cpu_quota: float | None = None
    """Processors' worth of time."""
    cpu_weight: int | None = None
    """Share of the time where there is too little: cpu.weight, of version 1 cpu.shares."""
    memory_bytes: int | None = None
    swap_bytes: int | None = None
    """Of version 1 memory and swap together."""

    def as_json(self) -> dict[str, Any]:
        """Return it as it stands in a receipt."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Limits, and why those that are unknown are."""

    limits: Limits
    unknown: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Group:
    """One group: where its hierarchy begins, and where it lies."""

    root: Path
    folder: Path

    def upward(self) -> Iterator[Path]:
        """Yield the folders of the group and of all above it."""
        for folder in (self.folder, *self.folder.parents):
            yield folder
            if folder == self.root:
                return


@dataclass(frozen=True, slots=True)
class _Question:
    """How one limit is asked for."""

    name: str
    controller: str
    read: Callable[[_Group], Any]


def read_limits(root: Path = ROOT, memberships: Path = MEMBERSHIPS) -> Found:
    """Return what the control groups of this process let it use."""
    try:
        text = memberships.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Found(limits=Limits(), unknown={one.name: f"{memberships}: {error.strerror}" for one in fields(Limits)})
    groups = find_groups(text, root)
    values: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for version, question in _questions(groups):
        try:
            values[question.name] = _answer(groups.get(version), question)
        except (OSError, ValueError) as error:
            unknown[question.name] = str(error)
    return Found(limits=Limits(**values), unknown=unknown)


def read_cpuset(root: Path = ROOT, memberships: Path = MEMBERSHIPS) -> str | None:
    """Return the processors of this process's control group; None where they are not shown."""
    try:
        groups = find_groups(memberships.read_text(encoding="utf-8", errors="replace"), root)
        version, question = next(found for found in _questions(groups) if found[1].name == "cpus")
        found: str = _answer(groups.get(version), question)
    except (OSError, ValueError):
        return None
    return found


def _answer(group: _Group | None, question: _Question) -> Any:
    if group is None:
        raise ValueError(f"no control group of the controller {question.controller}")
    if not group.folder.is_dir():
        raise ValueError(f"{group.folder} is not shown here")
    return question.read(group)


def find_groups(memberships: str, root: Path) -> dict[str, _Group]:
    """Return the groups of a process by controller, from the text of its /proc/PID/cgroup; version 2 has the name "".

    A hierarchy may be mounted under all of its controllers' names or under each one's.
    """
    found = {}
    for line in memberships.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        below = path.lstrip("/")
        if number == "0" and not controllers:
            # Beside version 1 it is mounted elsewhere.
            base = root if (root / "cgroup.controllers").exists() else root / "unified"
            found[""] = _Group(base, base / below)
        for controller in filter(None, controllers.split(",")):
            base = root / controller if (root / controller).is_dir() else root / controllers
            found[controller] = _Group(base, base / below)
    return found


def _questions(groups: dict[str, _Group]) -> Iterator[tuple[str, _Question]]:
    """Yield for each limit the name of the group that is asked, and the question: a controller is of one version."""
    for first, second in zip(_VERSION_1, _VERSION_2, strict=True):
        is_first = first.controller in groups
        yield (first.controller, first) if is_first else ("", second)


# --- files ------------------------------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()


def _limit(path: Path) -> int | None:
    """Return the limit in one file; None where there is none, or where a group has no such file."""
    try:
        text = _text(path)
    except OSError:
        return None
    return int(text) if text.isdecimal() and int(text) < _UNLIMITED else None


def _least(file: str) -> Callable[[_Group], int | None]:
    def read(group: _Group) -> int | None:
        found = (_limit(folder / file) for folder in group.upward())
        return min((one for one in found if one is not None), default=None)

    return read


def _listed(*names: str) -> Callable[[_Group], str | None]:
    """Return what reads a list of the nearest group that has one; the first name is of what is in force."""

    def read(group: _Group) -> str | None:
        for folder in group.upward():
            for name in names:
                with contextlib.suppress(OSError):
                    if text := _text(folder / name):
                        return text
        raise ValueError(f"{group.folder} and those above it have no {' and no '.join(names)}")

    return read


def _weight(file: str) -> Callable[[_Group], int | None]:
    return lambda group: _limit(group.folder / file)


def _quota_1(group: _Group) -> float | None:
    def quota(folder: Path) -> float | None:
        amount, period = _limit(folder / "cpu.cfs_quota_us"), _limit(folder / "cpu.cfs_period_us")
        return amount / period if amount is not None and period else None

    return min((one for one in map(quota, group.upward()) if one is not None), default=None)


def _quota_2(group: _Group) -> float | None:
    def quota(folder: Path) -> float | None:
        with contextlib.suppress(OSError):
            amount, _, period = _text(folder / "cpu.max").partition(" ")
            if amount.isdecimal() and period.isdecimal() and int(period):
                return int(amount) / int(period)
        return None

    return min((one for one in map(quota, group.upward()) if one is not None), default=None)


_VERSION_1 = (
    _Question("cpus", "cpuset", _listed("cpuset.effective_cpus", "cpuset.cpus")),
    _Question("mems", "cpuset", _listed("cpuset.effective_mems", "cpuset.mems")),
    _Question("cpu_quota", "cpu", _quota_1),
    _Question("cpu_weight", "cpu", _weight("cpu.shares")),
    _Question("memory_bytes", "memory", _least("memory.limit_in_bytes")),
    _Question("swap_bytes", "memory", _least("memory.memsw.limit_in_bytes")),
)
_VERSION_2 = (
    _Question("cpus", "cpuset", _listed("cpuset.cpus.effective")),
    _Question("mems", "cpuset", _listed("cpuset.mems.effective")),
    _Question("cpu_quota", "cpu", _quota_2),
    _Question("cpu_weight", "cpu", _weight("cpu.weight")),
    _Question("memory_bytes", "memory", _least("memory.max")),
    _Question("swap_bytes", "memory", _least("memory.swap.max")),
)
