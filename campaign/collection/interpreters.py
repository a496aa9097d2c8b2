"""Whether every attempt of a side ran on the interpreter, and with the packages, of the side's first sealed one. Pure.

What the host that froze has under the same path may be something else: nodes have software of their own. What counts is
that all evidence of a side comes from one interpreter, unless an amendment in between says that it changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from campaign import documents
from campaign.collection.sealed import Finding

Identity: TypeAlias = tuple[str, str, str, str]
"""Path, version and SHA-256 of the interpreter, and the digest of its environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A receipt, and where it lies."""

    where: str
    owner: str
    """``baseline``, or the candidate's id: the first part of the slot's name."""
    allocation: str
    receipt: documents.Receipt


def check_interpreters(sealed: Iterable[Sealed], entries: Iterable[documents.Entry]) -> Iterator[Finding]:
    """Yield a finding for every side of a receipt that ran on something else than the side did first.

    Args:
        sealed: All receipts.
        entries: The ledger's.
    """
    planned, changes = _acts(entries)
    first: dict[tuple[str, int], tuple[Identity, str]] = {}
    for one in sorted(sealed, key=lambda one: (planned.get(one.allocation, 0), one.receipt.at, one.where)):
        epoch = bisect_left(changes, planned.get(one.allocation, 0))
        for side in one.receipt.sides:
            found = _identity(side)
            if found is None:
                continue
            key = (one.owner if side.side == "candidate" else "baseline", epoch)
            expected, place = first.setdefault(key, (found, one.where))
            if found != expected:
                yield Finding(where=one.where, what=_difference(side.side, expected, found, place))


def _acts(entries: Iterable[documents.Entry]) -> tuple[Mapping[str, int], list[int]]:
    """Return when allocations were first planned, and when interpreters were amended, by number in the ledger."""
    planned: dict[str, int] = {}
    changes = []
    for entry in entries:
        if entry.act == "intent":
            for one in entry.data["allocations"]:
                planned.setdefault(str(one["allocation"]), entry.seq)
        elif entry.act == "amended" and entry.data.get("what") == "interpreter":
            changes.append(entry.seq)
    return planned, changes


def _identity(side: documents.SideReceipt) -> Identity | None:
    one = side.interpreter
    return None if one is None else (one.path, one.version, one.sha256, side.environment_sha256)


_NAMES = ("path", "version", "SHA-256 of the interpreter", "digest of what is installed")


def _difference(side: str, expected: Identity, found: Identity, place: str) -> str:
    parts = [
        f"{name} {now}, there {before}"
        for name, before, now in zip(_NAMES, expected, found, strict=True)
        if before != now
    ]
    return (
        f"{side} ran on another interpreter, or with other packages, than its first sealed attempt, {place}: "
        f"{'; '.join(parts)}; a change that was meant needs campaign amend --what interpreter"
    )
