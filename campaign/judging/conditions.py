"""In what the two sides of a measurement ran differently, although both were given the same. Gates nothing.

Clocks that heat or power held back, errors of memory that the device corrected, processors that a side left by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from campaign.documents import ConditionRemark, Conditions, GpuState, Receipt, SideConditions, SideReceipt
from campaign.keys import AttemptKey

HELD_NS = 100_000_000
"""So much longer must clocks have been held back on one side for a remark: a tenth of a second."""
_IDLE = "gpu_idle"
_COUNTERS: tuple[tuple[str, Callable[[GpuState], int | None]], ...] = (
    ("corrected errors of memory", lambda gpu: gpu.ecc_corrected),
    ("uncorrected errors of memory", lambda gpu: gpu.ecc_uncorrected),
)
_HELD: tuple[tuple[str, Callable[[GpuState], int | None]], ...] = (
    ("power", lambda gpu: gpu.power_held_ns),
    ("heat", lambda gpu: gpu.thermal_held_ns),
)
_Look = TypeVar("_Look")


def remarks_of(receipts: Mapping[AttemptKey, Receipt]) -> tuple[ConditionRemark, ...]:
    """Return a remark for every measurement whose sides did not run alike, in order.

    Args:
        receipts: Receipts by attempt.
    """
    found = ((key, list(_differences(receipt))) for key, receipt in sorted(receipts.items()))
    return tuple(ConditionRemark(slot=key.slot, attempt=key.attempt, what=tuple(what)) for key, what in found if what)


def _differences(receipt: Receipt) -> Iterator[str]:
    told = [(side, side.conditions) for side in receipt.sides if side.conditions is not None]
    whole = [(side, said, said.after) for side, said in told if said.after is not None]
    for side, said in told:
        yield from _own_affinity(side, said)
        yield from _unknown_devices(side, said)
    if len(whole) < 2:
        return
    names = [side.side for side, _, _ in whole]
    looks = [(said.before, after) for _, said, after in whole]
    yield from _of_node("", names, looks)
    for place, node in enumerate(one.node for one in looks[0][0].further):
        if all(place < len(one.further) for look in looks for one in look):
            further = [(before.further[place], after.further[place]) for before, after in looks]
            yield from _of_node(f"{node}: ", names, further)


def _of_node(where: str, names: Sequence[str], looks: Sequence[tuple[Conditions, Conditions]]) -> Iterator[str]:
    """Yield what both sides did not have in common on one node.

    Args:
        where: What stands before it.
        names: Of the sides.
        looks: Of each, before and after its windows.
    """
    yield from _unlike(
        f"{where}times that processors were throttled",
        names,
        [_grown(look, lambda one: one.processors.throttled) for look in looks],
    )
    for place, gpu in enumerate(looks[0][0].gpus):
        if all(place < len(one.gpus) for look in looks for one in look):
            own = [(before.gpus[place], after.gpus[place]) for before, after in looks]
            yield from _of_gpu(f"{where}{gpu.uuid}", names, own)


def _own_affinity(side: SideReceipt, said: SideConditions) -> Iterator[str]:
    """Yield which of the processors that it was given a side left, and where that is not known."""
    if said.after is None:
        return
    given = {one.node: one.affinity for one in said.before.further}
    own = [(f" (rank {one.rank})", one.affinity_after, given.get(one.node, said.before.affinity)) for one in side.ranks]
    for who, affinity, allowed in own or [("", said.affinity, said.before.affinity)]:
        if not affinity:
            yield f"{side.side}{who}: on which processors it ran is not known"
        elif affinity != allowed:
            yield f"{side.side}{who} kept to the processors {affinity} of {allowed}"


def _unknown_devices(side: SideReceipt, said: SideConditions) -> Iterator[str]:
    """Yield where it is not known which devices a side had: unknown of both sides does not say that they are alike."""
    for where, look in [("", said.before), *((f" on {one.node}", one) for one in said.before.further)]:
        if "gpus" in look.unknown:
            yield f"{side.side}{where}: its devices are not known: {look.unknown['gpus']}"


def _of_gpu(uuid: str, names: Sequence[str], looks: Sequence[tuple[GpuState, GpuState]]) -> Iterator[str]:
    reasons = [", ".join(one for one in after.reasons or () if one != _IDLE) or "nothing" for _, after in looks]
    yield from _unlike(f"{uuid}: what held clocks back after the windows", names, reasons)
    for what, read in _COUNTERS:
        yield from _unlike(f"{uuid}: {what}", names, [_grown(look, read) for look in looks])
    for what, read in _HELD:
        grown = [_grown(look, read) for look in looks]
        known = [one for one in grown if one is not None]
        if len(known) == len(grown) and max(known) - min(known) >= HELD_NS:
            yield from _unlike(
                f"{uuid}: seconds that {what} held clocks back", names, [f"{one / 1e9:.1f}" for one in known]
            )


def _grown(look: tuple[_Look, _Look], read: Callable[[_Look], int | None]) -> int | None:
    """Return by how much a counter grew while a side was measured; None if it is unknown."""
    before, after = map(read, look)
    return None if before is None or after is None else after - before


def _unlike(what: str, names: Sequence[str], values: Sequence[object]) -> Iterator[str]:
    if len({str(value) for value in values}) > 1:
        each = ", ".join(
            f"{'unknown' if value is None else value} for {name}" for name, value in zip(names, values, strict=True)
        )
        yield f"{what}: {each}"
