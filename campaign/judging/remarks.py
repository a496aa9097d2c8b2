"""What a collection or a report says besides: true, and no fault of anybody."""

from __future__ import annotations

from collections.abc import Iterator

from campaign.collection.collect import Collection
from campaign.collection.interpreters import Sealed, remarks_on_interpreters
from campaign.frozen import Frozen, read_frozen
from campaign.judging.bundles import shared_boots
from campaign.paths import HomePaths
from campaign.record.ledger import read_entries
from campaign.submission import acts


def read_remarks(paths: HomePaths, collection: Collection) -> tuple[str, ...]:
    """Return what a person should know of an intact collection.

    Raises:
        EvidenceError: What was frozen or recorded cannot be read.
    """
    frozen = read_frozen(paths)
    sides = frozen.sides()
    sealed = (
        Sealed(
            where=key.text,
            owner=key.slot.partition("/")[0],
            allocation=receipt.allocation,
            receipt=receipt,
        )
        for key, receipt in collection.receipts_read.items()
    )
    entries = read_entries(paths)
    seen = {name: side.interpreter for name, side in sides.items() if side.interpreter is not None}
    return (*remarks_on_interpreters(sealed, entries, seen), *_of_boots(frozen, collection, acts.fold(entries)))


def _of_boots(frozen: Frozen, collection: Collection, history: acts.History) -> Iterator[str]:
    """Yield what detached allocations shared that were to be obtained afresh: one remark for all of them."""
    found = [
        one
        for candidate in ("", *frozen.candidates)
        for one in shared_boots(collection.starts_read, frozen, candidate, history)
    ]
    if found:
        one, num = found[0], len({each.workload for each in found})
        repeats = ", ".join(map(str, one.repeats))
        yield (
            f"{num} workload(s) were measured in several repeats on one boot of one machine, such as {one.workload} "
            f"({one.kind}) in repeats {repeats} on {one.node}: those detached allocations were not obtained afresh"
        )
