"""How the processes of each side exchanged what they computed, in the words of its adapter. Gates nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from acceptance.formats import Ending
from campaign.documents import ExchangeSummary, Receipt, SideName, SideReceipt
from campaign.keys import AttemptKey

EXCHANGE, SYNCHRONISATION = "exchange", "synchronisation"
"""What an adapter's `engaged` calls what carries gradients between processes, and when that happens."""


def exchanges_of(receipts: Mapping[AttemptKey, Receipt], workloads: Mapping[str, str]) -> tuple[ExchangeSummary, ...]:
    """Return what was said of every workload and side that ran in several processes, in order.

    Args:
        receipts: Receipts by attempt.
        workloads: The workload of each slot.
    """
    found: dict[tuple[str, SideName], list[SideReceipt]] = {}
    for key, receipt in sorted(receipts.items()):
        if receipt.kind != "pair" or receipt.ending is not Ending.COMPLETED:
            continue
        for side in receipt.sides:
            if side.topology.processes > 1:
                found.setdefault((workloads[key.slot], side.side), []).append(side)
    return tuple(
        ExchangeSummary(
            workload=workload,
            side=side,
            exchange=_joined(own, EXCHANGE),
            synchronisation=_joined(own, SYNCHRONISATION),
        )
        for (workload, side), own in sorted(found.items())
    )


def _joined(sides: list[SideReceipt], name: str) -> str:
    return " | ".join(sorted({text for side in sides for text in _texts(side, name)}))


def _texts(side: SideReceipt, name: str) -> Iterator[str]:
    """Yield what a side says under a name; where its ranks disagree, each one's stands under the name with its rank."""
    for own, value in (side.engaged or {}).items():
        if own.partition("[")[0] == name and isinstance(value, str):
            yield value
