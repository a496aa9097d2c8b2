"""Whether every attempt of a side ran on the interpreter, and with the packages, of the side's first sealed one. Pure.

What the host that froze has under the same path may be something else, which is a remark: nodes have software of their
own. What counts is that all evidence of a side comes from one interpreter, unless an amendment says that it changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from campaign import documents
from campaign.collection.sealed import Finding
from campaign.submission.acts import first_intents

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


def check_interpreters(sealed: Iterable[Sealed], entries: Sequence[documents.Entry]) -> Iterator[Finding]:
    """Yield a finding for every side of a receipt that ran on something else than the side did first.

    Args:
        sealed: All receipts.
        entries: The ledger's.
    """
    first: dict[tuple[str, int], tuple[Identity, str]] = {}
    for seen in _seen(sealed, entries):
        expected, place = first.setdefault((seen.owner, seen.epoch), (seen.identity, seen.where))
        if seen.identity != expected:
            yield Finding(where=seen.where, what=_difference(seen.side, expected, seen.identity, place))


def remarks_on_interpreters(
    sealed: Iterable[Sealed], entries: Sequence[documents.Entry], frozen: Mapping[str, documents.Environment]
) -> Iterator[str]:
    """Yield a remark for every side whose first sealed attempt ran on something else than the freeze saw.

    Args:
        sealed: All receipts.
        entries: The ledger's.
        frozen: What the freeze saw, by the side's owner; those of which it saw nothing are left out.
    """
    told: set[str] = set()
    for seen in _seen(sealed, entries):
        if seen.epoch or seen.owner in told or seen.owner not in frozen:
            continue
        told.add(seen.owner)
        one = frozen[seen.owner]
        there = (one.path, one.version, one.sha256, one.environment_sha256)
        if seen.identity != there:
            yield (
                f"{seen.owner}: its first sealed attempt, {seen.where}, ran on another interpreter, or with other "
                f"packages, than the host that froze has: {_parts(there, seen.identity)}; no fault where nodes have "
                "software of their own"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    where: str
    side: str
    owner: str
    """``baseline``, or the candidate's id."""
    epoch: int
    """How many amendments of interpreters had been made when it was planned."""
    identity: Identity


def _seen(sealed: Iterable[Sealed], entries: Sequence[documents.Entry]) -> Iterator[_Seen]:
    """Yield what every side of every receipt ran on, in the order in which they were planned and ended."""
    planned = {name: entry.seq for name, entry in first_intents(entries).items()}
    changes = [entry.seq for entry in entries if entry.act == "amended" and entry.data.get("what") == "interpreter"]
    for one in sorted(sealed, key=lambda one: (planned.get(one.allocation, 0), one.receipt.at, one.where)):
        epoch = bisect_left(changes, planned.get(one.allocation, 0))
        for side in one.receipt.sides:
            identity = _identity(side)
            if identity is not None:
                owner = one.owner if side.side == "candidate" else "baseline"
                yield _Seen(where=one.where, side=side.side, owner=owner, epoch=epoch, identity=identity)


def _identity(side: documents.SideReceipt) -> Identity | None:
    one = side.interpreter
    return None if one is None else (one.path, one.version, one.sha256, side.environment_sha256)


_NAMES = ("path", "version", "SHA-256 of the interpreter", "digest of what is installed")


def _difference(side: str, expected: Identity, found: Identity, place: str) -> str:
    return (
        f"{side} ran on another interpreter, or with other packages, than its first sealed attempt, {place}: "
        f"{_parts(expected, found)}; a change that was meant needs campaign amend --what interpreter"
    )


def _parts(expected: Identity, found: Identity) -> str:
    parts = zip(_NAMES, expected, found, strict=True)
    return "; ".join(f"{name} {now}, there {before}" for name, before, now in parts if before != now)
