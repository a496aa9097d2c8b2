"""What a profiler's rows say of a device's time: kernels by family, and what was not found a family for. Pure.

A profiler lists the time of a kernel at the kernel, again at the operator that launched it, and again at every labelled
range around it. Device rows alone are added up here, so that nothing counts twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Capability: TypeAlias = tuple[int, int]

UNATTRIBUTED = "unattributed"
MOST_DIFFERENCE = 0.001
"""Families and what is unattributed must be the captured device time, but for so large a share of it."""

_NAMED = {
    "maxwell": (5, 0),
    "pascal": (6, 0),
    "volta": (7, 0),
    "turing": (7, 5),
    "ampere": (8, 0),
    "hopper": (9, 0),
    "blackwell": (10, 0),
}
_NUMBERED = re.compile(r"sm_?(\d{2,3})(?!\d)", re.IGNORECASE)
_CUTLASS = re.compile(r"(?<![a-z0-9])cutlass_(\d{2,3})_")
_WORDS = re.compile(r"[a-z]+")
_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
_FALLBACKS = (
    (re.compile(r"_scaled_dot_product_attention_math"), "attention as plain products (math)"),
    (re.compile(r"fmha_\w*_gmem(?![a-z0-9])"), "attention that keeps its sums in global memory (gmem)"),
)


class KernelsError(ValueError):
    """The rows of a profile cannot be a whole account of the device's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a profiler's table."""

    name: str
    device_s: float
    """The device's own time of it: of an operator or range that of its kernels once more."""
    calls: int
    is_device: bool
    """Whether it is something that the device did: a kernel, a copy, a fill."""
    is_annotation: bool = False
    """Whether it is a labelled range, shown on the device's line of time as well."""
    modules: tuple[str, ...] = ()
    """Names of the modules in which it was launched, from the outermost to the innermost."""

    @property
    def counts(self) -> bool:
        """Whether its time is the device's, and stands nowhere else."""
        return self.is_device and not self.is_annotation


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One line of the table."""

    name: str
    device_s: float
    share: float
    """Of the captured device time."""
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The captured device time, divided."""

    captured_s: float
    families: tuple[Share, ...]
    """The longest first; what belongs to none is last, under the name `unattributed`."""
    kernels: tuple[Share, ...]
    """Each kernel, the longest first."""
    older: tuple[Share, ...]
    """Those of them that were built for an older architecture than the device's."""
    fallbacks: tuple[Share, ...]
    """Slower ways of attention that ran: of operators without a time of their own."""
    attribution: str
    """"complete", or "degraded" where graphs were replayed: then kernels may be missing, or under a wrong operator."""

    def as_json(self) -> dict[str, Any]:
        """As a profile states it."""
        lines = {"families": self.families, "kernels": self.kernels, "older": self.older, "fallbacks": self.fallbacks}
        found: dict[str, Any] = {name: [_line(share) for share in shares] for name, shares in lines.items()}
        return found | {"captured_s": self.captured_s, "attribution": self.attribution}


def make_table(
    rows: Sequence[Row], *, families: Mapping[str, str], captured_s: float, capability: Capability | None
) -> Table:
    """Divide the captured device time.

    Args:
        rows: All rows of the profiler, those of operators and ranges included.
        families: The family of each named module, as the adapter's `families()` says. A kernel belongs to the innermost
            module that has one.
        captured_s: The device time that the profiler captured, by its own account.
        capability: The device's; None where it is not known, so that no kernel is called old.

    Raises:
        KernelsError: The rows are not all of the captured time, or more than that.
    """
    counted = [row for row in rows if row.counts]
    for row in counted:
        if not (math.isfinite(row.device_s) and row.device_s >= 0):
            raise KernelsError(f"{row.name}: {row.device_s} is no time")
    if UNATTRIBUTED in families.values():
        raise KernelsError(f"families: {UNATTRIBUTED} is what belongs to none, and cannot be the name of one")
    kernels = _shares(((row.name, row) for row in counted), captured_s)
    by_family = _shares(((family_of(row, families), row) for row in counted), captured_s)
    table = Table(
        captured_s=captured_s,
        families=tuple(sorted(by_family, key=lambda share: share.name == UNATTRIBUTED)),
        kernels=kernels,
        older=tuple(share for share in kernels if is_older(share.name, capability)),
        fallbacks=_fallbacks(rows, captured_s),
        attribution=attribution(rows),
    )
    check_total({share.name: share.device_s for share in table.families}, captured_s)
    return table


def check_total(families_s: Mapping[str, float], captured_s: float) -> None:
    """Refuse families that are not all of the captured device time.

    Args:
        families_s: The time of each, and of what is unattributed.
        captured_s: The captured device time.

    Raises:
        KernelsError: They differ by more than 0.1% of it.
    """
    if not (math.isfinite(captured_s) and captured_s > 0):
        raise KernelsError(f"no device time was captured ({captured_s} s)")
    total_s = math.fsum(families_s.values())
    if abs(total_s - captured_s) <= MOST_DIFFERENCE * captured_s:
        return
    text = f"the families make {total_s * 1000:,.1f} ms of {captured_s * 1000:,.1f} ms of captured device time"
    if total_s < captured_s:
        missing = f"{(captured_s - total_s) * 1000:,.1f} ms ({(captured_s - total_s) / captured_s:.1%}) stand nowhere"
        raise KernelsError(f"{text}: {missing}, and belong under {UNATTRIBUTED}")
    raise KernelsError(f"{text}: some time counts twice; take device rows alone")


def family_of(row: Row, families: Mapping[str, str]) -> str:
    """The family of the innermost module that has one."""
    return next((families[name] for name in reversed(row.modules) if name in families), UNATTRIBUTED)


def built_for(name: str) -> Capability | None:
    """The architecture that a kernel's name says it was built for: the newest that it names; None if it names none."""
    numbers = [*_NUMBERED.findall(name), *_CUTLASS.findall(name)]
    found = [(int(number[:-1]), int(number[-1])) for number in numbers]
    found += [_NAMED[word] for word in _WORDS.findall(name.lower()) if word in _NAMED]
    # Nothing older or newer is an architecture: a number such as the 64 of a tile is none.
    return max((version for version in found if (5, 0) <= version < (20, 0)), default=None)


def is_older(name: str, capability: Capability | None) -> bool:
    """Whether a kernel was built for an older architecture than the device's, as far as its name tells."""
    version = built_for(name)
    return version is not None and capability is not None and version < capability


def attribution(rows: Iterable[Row]) -> str:
    """Whether kernels can be believed to stand under the operators that launched them."""
    has_graphs = any(row.name.startswith(_GRAPH_LAUNCHES) for row in rows)
    return "degraded" if has_graphs else "complete"


def capture_status(*, has_begun: bool, has_ended: bool) -> str:
    """What there is of a capture.

    Args:
        has_begun: Whether the first update of the active window was made.
        has_ended: Whether the last one was, and what was captured was handed over.

    Returns:
        "complete", "partial" or "no_capture".
    """
    if not has_begun:
        return "no_capture"
    return "complete" if has_ended else "partial"


def busy_s(intervals: Iterable[tuple[float, float]]) -> float:
    """How long at least one kernel ran: the union of intervals of seconds, however they overlap."""
    spans: list[float] = []
    end_s = -math.inf
    for began_s, ended_s in sorted(intervals):
        if not began_s <= ended_s:
            raise KernelsError(f"a kernel ran from {began_s} s to {ended_s} s")
        spans.append(max(ended_s - max(began_s, end_s), 0.0))
        end_s = max(end_s, ended_s)
    return math.fsum(spans)


def _shares(named: Iterable[tuple[str, Row]], captured_s: float) -> tuple[Share, ...]:
    """Rows added up by name, the longest first."""
    times: dict[str, list[float]] = {}
    calls: dict[str, int] = {}
    for name, row in named:
        times.setdefault(name, []).append(row.device_s)
        calls[name] = calls.get(name, 0) + row.calls
    found = [_share(name, math.fsum(times[name]), calls[name], captured_s) for name in times]
    return tuple(sorted(found, key=lambda share: (-share.device_s, share.name)))


def _share(name: str, device_s: float, calls: int, captured_s: float) -> Share:
    return Share(name=name, device_s=device_s, share=device_s / captured_s if captured_s else 0.0, calls=calls)


def _fallbacks(rows: Iterable[Row], captured_s: float) -> tuple[Share, ...]:
    """What matched a fallback, by what it is: the time of kernels alone, the calls of operators too."""
    found: dict[str, tuple[float, int]] = {}
    for row in rows:
        for pattern, what in _FALLBACKS:
            if pattern.search(row.name) and not row.is_annotation:
                device_s, calls = found.get(what, (0.0, 0))
                found[what] = (device_s + (row.device_s if row.counts else 0.0), calls + row.calls)
    return tuple(_share(what, *found[what], captured_s) for what in sorted(found))


def _line(share: Share) -> dict[str, Any]:
    return {"name": share.name, "device_s": share.device_s, "share": share.share, "calls": share.calls}
