"""What a collection or a report says besides: true, and no fault of anybody."""

from __future__ import annotations

from campaign.collection.collect import Collection
from campaign.collection.interpreters import Sealed, remarks_on_interpreters
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.ledger import read_entries


def read_remarks(paths: HomePaths, collection: Collection) -> tuple[str, ...]:
    """Return what a person should know of an intact collection.

    Raises:
        EvidenceError: What was frozen or recorded cannot be read.
    """
    sides = read_frozen(paths).sides()
    sealed = (
        Sealed(
            where=key.text,
            owner=key.slot.partition("/")[0],
            allocation=receipt.allocation,
            receipt=receipt,
        )
        for key, receipt in collection.receipts_read.items()
    )
    seen = {name: side.interpreter for name, side in sides.items() if side.interpreter is not None}
    return tuple(remarks_on_interpreters(sealed, read_entries(paths), seen))
