"""Reading all tries of a home, in the order in which they are named: a second process reads ahead where there are many.

It is a copy of this one and reads with the very same functions. It tells the plain case, a sealed attempt in which it
found nothing wrong; whatever else there is, it leaves to this process, which then reads that by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from acceptance import formats
from campaign import aside, documents
from campaign.collection.reuse import Look
from campaign.collection.sealed import Finding, SealedAttempt
from campaign.collection.tries import Plans, Try, read_try
from campaign.errors import EvidenceError
from campaign.submission import acts

Whole: TypeAlias = tuple[str, int]
"""Slot and number of an attempt, whatever its segments."""
Read: TypeAlias = tuple[Whole, list[Try | Finding]]
"""An attempt, and what its tries left or why they cannot be looked at."""
FROM_ATTEMPTS = 256
"""Of fewer, a second process is not worth its start."""
_AT_ONCE = 8
"""Attempts of one message: some messages fit into the pipe at a time."""
_OWN = 3
"""Of so many messages' attempts this process reads those of one by itself, unless it has other things to do."""


class _Told(msgspec.Struct, array_like=True, frozen=True):
    """A sealed attempt, found right, from the process that read it to the one that goes on with it."""

    start: documents.Start
    start_sha256: str
    receipt: documents.Receipt
    receipt_sha256: str
    tables: dict[str, str]
    """The lines of each, joined by newlines."""
    num_lines: dict[str, int]
    kept: dict[str, bytes]
    left: list[str]
    is_stored: bool
    stamp: str
    changed_ns: int


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[_Told | None])


def unreadable(error: OSError, path: Path) -> Finding:
    """Return the finding about something that may hold evidence and cannot be looked at."""
    return Finding(where=str(error.filename or path), what=f"cannot be looked at: {error.strerror}")


def fault(error: EvidenceError) -> Finding:
    """Return the finding about something that is not what was asked for."""
    return Finding(where=error.where, what="; ".join(filter(None, [error.what, error.why])))


def _read_one(plans: Plans, attempt: acts.Attempt) -> Try | Finding:
    try:
        return read_try(plans, attempt)
    except EvidenceError as error:
        return fault(error)
    except OSError as error:
        return unreadable(error, plans.paths.attempt(attempt.slot, attempt.attempt, attempt.segment).root)


def read_tries(
    plans: Plans,
    wholes: Sequence[tuple[Whole, Sequence[acts.Attempt]]],
    *,
    is_busy: bool = False,
    from_attempts: int = FROM_ATTEMPTS,
) -> Iterator[Read]:
    """Read and check what every try left; see `campaign.collection.tries.read_try`.

    Args:
        plans: What was asked for.
        wholes: The attempts, each with its tries.
        is_busy: Whether this process has other things to do meanwhile, such as to store rows.
        from_attempts: How many there must be for a second process to read them.
    """
    blocks = [wholes[begin : begin + _AT_ONCE] for begin in range(0, len(wholes), _AT_ONCE)]
    own = range(_OWN - 1, len(blocks), _OWN) if not is_busy else range(0)
    others = [block for number, block in enumerate(blocks) if number not in own]
    with aside.told(lambda: _tell(plans, others), is_wanted=len(wholes) >= from_attempts) as messages:
        for number, block in enumerate(blocks):
            message = None if number in own else next(messages, None)
            answers = [None] * len(block) if message is None else _DECODER.decode(message)
            for (whole, attempts), answer in zip(block, answers, strict=True):
                if answer is None:
                    yield whole, [_read_one(plans, attempt) for attempt in attempts]
                else:
                    yield whole, [_try_of(plans, attempts[0], answer)]


# --- from one process to the other ------------------------------------------------------------------------------------


def _tell(plans: Plans, blocks: Iterable[Sequence[tuple[Whole, Sequence[acts.Attempt]]]]) -> Iterator[bytes]:
    for block in blocks:
        yield _ENCODER.encode([_told_of(plans, attempts) for _, attempts in block])


def _told_of(plans: Plans, attempts: Sequence[acts.Attempt]) -> _Told | None:
    """Return what is told of an attempt; None where its parent shall read it."""
    if len(attempts) != 1 or attempts[0].segment:
        return None
    one = _read_one(plans, attempts[0])
    if isinstance(one, Finding) or one.findings or one.sealed is None or one.look is None:
        return None
    lines = {name: formats.texts(rows) for name, rows in one.sealed.tables.items()}
    return _Told(
        start=one.sealed.start,
        start_sha256=one.sealed.start_sha256,
        receipt=one.sealed.receipt,
        receipt_sha256=one.sealed.receipt_sha256,
        tables={name: "\n".join(own) for name, own in lines.items()},
        num_lines={name: len(own) for name, own in lines.items()},
        kept=dict(one.sealed.kept),
        left=sorted(one.sealed.left),
        is_stored=one.sealed.is_stored,
        stamp=one.look.stamp,
        changed_ns=one.look.changed_ns,
    )


def _try_of(plans: Plans, attempt: acts.Attempt, told: _Told) -> Try:
    """Return what `_told_of` told."""
    return Try(
        attempt=attempt,
        allocation=plans.history.allocations[attempt.allocation],
        folder=plans.paths.attempt(attempt.slot, attempt.attempt, attempt.segment),
        slot=plans.slot(attempt),
        sealed=SealedAttempt(
            start=told.start,
            start_sha256=told.start_sha256,
            receipt=told.receipt,
            receipt_sha256=told.receipt_sha256,
            tables=_rows_of(told),
            kept=told.kept,
            left=frozenset(told.left),
            is_stored=told.is_stored,
        ),
        look=Look(stamp=told.stamp, changed_ns=told.changed_ns),
    )


def _rows_of(told: _Told) -> Mapping[str, Sequence[formats.Row]]:
    return {
        # A table without rows has no lines, one with an empty one would have been refused.
        name: formats.Rows(table=formats.TABLES[name], lines=tuple(text.split("\n")) if told.num_lines[name] else ())
        for name, text in told.tables.items()
    }
