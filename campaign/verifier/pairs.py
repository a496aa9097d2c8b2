"""The symmetry of pairs and cases: both sides in one receipt, on one machine, as planned, with caches alike."""

from __future__ import annotations

from collections.abc import Iterator

from . import conditions, names, ranks, tables
from .facts import Facts, Sealed, Slot
from .findings import Check
from .receipts import COMPLETED
from .strict import Node

PAIRED = ("pair", "control_pair", "case", "control_case")
COLD = "private, cold"
"""What every run of a side finds compiled: nothing, in caches of its own."""


def check(facts: Facts, check: Check) -> None:
    """Check everything that two sides must have in common to be compared.

    One attempt has one start.json, written before either side ran: node, devices, their drivers and the affinity are
    therefore those of both, and each row has to name that very node and device. What each side found of them when it
    was measured stands in the receipt, and is compared.

    Args:
        facts: What has a receipt is known.
        check: Where findings go.
    """
    num_pairs = num_unlike = 0
    for sealed in facts.sealed.values():
        slot = facts.slots[sealed.planned.slot]
        if sealed.receipt["ending"] != COMPLETED:
            continue
        with check.each():
            for where, what in _faults(facts, sealed, slot):
                check.tampered(where, what)
            num_unlike += len(_bytecodes(sealed)) > 1
        num_pairs += slot.kind in PAIRED
    check.remark(f"{num_pairs} completed pairs and cases")
    if num_unlike:
        text = "their sides' packages were installed, one with bytecode and one without, which start-up times show"
        check.remark(f"{num_unlike} of them are unlike in one thing: {text}")


def _faults(facts: Facts, sealed: Sealed, slot: Slot) -> Iterator[tuple[str, str]]:
    yield from _faults_of_start(facts, sealed)
    yield from _faults_of_caches(sealed)
    yield from _faults_of_containers(facts, sealed, slot)
    yield from ranks.faults(facts, sealed, slot)
    if slot.kind in conditions.MEASURED:
        yield from conditions.faults(sealed)
    if slot.kind in ("pair", "control_pair"):
        yield from _faults_of_rows(facts, sealed, slot)
        yield from _faults_of_windows(facts, sealed, slot)
    if slot.kind == "solo":
        rows = tables.rows_of(facts, sealed, tables.BASELINE)
        if len(rows) != 1:
            yield f"{sealed.folder}/{tables.BASELINE}", f"{len(rows)} rows of one measurement"
        yield from _faults_of_updates(sealed, rows, tables.BASELINE)


def _faults_of_start(facts: Facts, sealed: Sealed) -> Iterator[tuple[str, str]]:
    """Yield a fault where an attempt ran on no device, or on another kind than the protocol's."""
    where = names.start(sealed.folder)
    start = Node(sealed.start, where)
    devices = list(start["devices"].items())
    wanted = Node(facts.protocol, names.PROTOCOL)["execution"]["device"].as_text()
    if not devices:
        yield where, "names no device"
    for device in devices:
        if device["kind"].as_text() != wanted:
            yield where, f"{device.key}: a {device['kind'].as_text()} device, and the protocol says {wanted}"
    if len({device["driver"].as_text() for device in devices}) > 1:
        yield where, "its devices have different drivers"


def _faults_of_caches(sealed: Sealed) -> Iterator[tuple[str, str]]:
    where = names.receipt(sealed.folder)
    for side in Node(sealed.receipt, where)["sides"].items():
        caches = side.get("caches")
        policy = caches["compile"].as_text() if caches is not None else "not said"
        if policy != COLD:
            yield where, f"{side.key}: caches of compiled code are {policy!r}, where {COLD!r} is the rule of both sides"


def _faults_of_containers(facts: Facts, sealed: Sealed, slot: Slot) -> Iterator[tuple[str, str]]:
    """Yield a fault where a side ran in another image than the frozen one, or in one where none was."""
    where = names.receipt(sealed.folder)
    for side in Node(sealed.receipt, where)["sides"].items():
        said = side.get("container_sha256")
        found = said.as_text() if said is not None else ""
        frozen = _frozen_container(facts, slot, side["side"].as_text())
        if found != frozen:
            yield where, f"{side.key}: ran in {_image(found)}, frozen is {_image(frozen)}"


def _frozen_container(facts: Facts, slot: Slot, side: str) -> str:
    """Return the digest of a side's frozen image; empty where it has none."""
    if side == "candidate":
        where = names.candidate_manifest(slot.candidate)
        own = Node(facts.candidates[slot.candidate].manifest, where)["candidate"]
    else:
        own = Node(facts.manifest, names.MANIFEST)["baseline"]
    container = own.get("container")
    return container["sha256"].as_digest() if container is not None else ""


def _image(sha256: str) -> str:
    return f"the container {sha256}" if sha256 else "no container"


def _bytecodes(sealed: Sealed) -> set[str]:
    found = set()
    for side in Node(sealed.receipt, names.receipt(sealed.folder))["sides"].items():
        caches = side.get("caches")
        found |= {caches["bytecode"].as_text()} if caches is not None else set()
    return found


def _faults_of_rows(facts: Facts, sealed: Sealed, slot: Slot) -> Iterator[tuple[str, str]]:
    where, rows = f"{sealed.folder}/{tables.PAIRS}", tables.rows_of(facts, sealed, tables.PAIRS)
    said = {(row["side"], row["position"]) for row in rows}
    planned = {(side, str(position)) for position, side in enumerate(slot.order, start=1)}
    if said != planned or len(rows) != len(planned):
        found = ", ".join(f"{row['side']} in position {row['position']}" for row in rows) or "nobody"
        yield where, f"{found} ran, planned were {', '.join(slot.order)} in this order"
    yield from _faults_of_updates(sealed, rows, tables.PAIRS)


def _faults_of_updates(sealed: Sealed, rows: list[dict[str, str]], table: str) -> Iterator[tuple[str, str]]:
    for line, row in enumerate(rows, start=2):
        if row["updates"] != str(sealed.planned.updates):
            what = f"windows of {row['updates']} updates, the ledger planned {sealed.planned.updates}"
            yield f"{sealed.folder}/{table}:{line}", what


def _faults_of_windows(facts: Facts, sealed: Sealed, slot: Slot) -> Iterator[tuple[str, str]]:
    where, rows = f"{sealed.folder}/{tables.WINDOWS}", tables.rows_of(facts, sealed, tables.WINDOWS)
    count = Node(facts.protocol, names.PROTOCOL)["throughput"]["windows"].as_whole(1)
    said = sorted((row["side"], row["window"]) for row in rows)
    # As many first: a protocol can ask for more windows than there is memory for.
    if len(said) != count * len(slot.order) or said != sorted(
        (side, str(window)) for side in slot.order for window in range(1, count + 1)
    ):
        yield where, f"{len(rows)} windows, planned were {count} of each of {', '.join(slot.order)}"
