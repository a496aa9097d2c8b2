"""What one attempt left, or one segment of an attempt at a run: is every byte what its receipt sealed, and asked for?

Everything that is wrong becomes a finding with its place; the first wrong field of a document hides no other document.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from . import columns, names, tables
from .digests import Kind
from .facts import Facts, Planned, Sealed, Slot
from .findings import EvidenceError
from .matrix import folder_of
from .strict import Node

COMPLETED = "completed"
ENDINGS = (
    COMPLETED,
    "node_fail",
    "preempted",
    "cancelled",
    "lost",
    "no_space",
    "time_limit",
    "window_short",
    "crash",
    "hang",
    "no_result",
    "non_finite",
    "rubbish",
    "output_flood",
    "clock_disagreement",
    "count_disagreement",
    "foreign_import",
    "undeclared_input",
    "snapshot_changed",
    "data_changed",
    "adapter_incomplete",
    "interference",
    "state_mismatch",
    "checkpoint_refused",
    "harness_error",
)
"""How an attempt can end by its own receipt; a test compares them with those of the evidence tables."""
CASES = ("control_case", "case")
_PATH_DIGITS = 12
Say = Callable[[str, str], None]
"""Takes the place and the reason of a finding."""


@dataclass(slots=True, kw_only=True)
class Reading:
    """One attempt while it is read."""

    facts: Facts
    planned: Planned
    slot: Slot
    folder: str
    say: Say
    is_whole: bool = True
    tables: dict[str, bytes] = field(default_factory=dict)

    def wrong(self, where: str, what: str) -> None:
        """Note a finding."""
        self.is_whole = False
        self.say(where, what)

    def attempt(self, step: Callable[[], None]) -> None:
        """Make one step; what it cannot go on from is a finding and ends that step alone."""
        try:
            step()
        except EvidenceError as error:
            self.wrong(error.where, error.what)


def read(facts: Facts, planned: Planned, slot: Slot, say: Say) -> Sealed | None:
    """Read what has a receipt; return it if every byte is right.

    Args:
        facts: Manifest, protocol and candidates are known.
        planned: What was planned.
        slot: Its slot.
        say: Called with every finding.
    """
    folder = folder_of(planned)
    reading = Reading(facts=facts, planned=planned, slot=slot, folder=folder, say=say)
    try:
        start, receipt = facts.document(names.start(folder)), facts.document(names.receipt(folder))
        listed = _read_listed(receipt)
    except EvidenceError as error:
        say(error.where, error.what)
        return None
    reading.attempt(partial(check_start, facts, planned, slot, start))
    reading.attempt(partial(_check_receipt, reading, start, receipt))
    reading.attempt(partial(_check_sides, reading, receipt))
    _check_folder(reading, listed)
    for one in listed.values():
        reading.attempt(partial(_check_file, reading, start, one))
    reading.attempt(partial(_check_written, reading, receipt, listed))
    if not reading.is_whole:
        return None
    return Sealed(
        planned=planned,
        folder=folder,
        start=start.as_fields(),
        receipt=receipt.as_fields(),
        receipt_sha256=facts.digests.sha256(names.receipt(folder)),
        tables=reading.tables,
    )


# --- start.json -------------------------------------------------------------------------------------------------------


def check_start(facts: Facts, planned: Planned, slot: Slot, start: Node) -> None:
    """Check start.json against what was planned and frozen.

    Raises:
        EvidenceError: It is not this attempt's.
    """
    start.format("start/1")
    for name in ("slot", "attempt", "segment", "allocation"):
        start[name].must_be(getattr(planned, name), names.LEDGER)
    start["kind"].must_be(slot.kind, names.PROTOCOL)
    start["manifest_sha256"].must_be(facts.manifest_sha256, names.MANIFEST)
    start["protocol_sha256"].must_be(facts.protocol_sha256, names.PROTOCOL)
    start["harness_sha256"].must_be(facts.manifest.get("harness_sha256"), names.MANIFEST)
    execution = facts.protocol.get("execution", {})
    start["at"].as_number()
    start["host"]["node"].as_text()
    start["host"]["boot_id"].as_text()
    start["threads"].must_be(execution.get("threads") if isinstance(execution, dict) else None, names.PROTOCOL)
    frozen = snapshots(facts, slot)
    said = dict(start["snapshots"].fields())
    for side, node in said.items():
        if side not in slot.order and side != "baseline":
            raise node.wrong("this attempt does not run that side")
        node.must_be(frozen.get(side), names.MANIFEST)
    # baseline_again runs from the baseline's own snapshot, which may stand for both.
    for side in slot.order:
        if side not in said and not (side == "baseline_again" and "baseline" in said):
            raise start["snapshots"].wrong(f"does not name {side}")


def snapshots(facts: Facts, slot: Slot) -> dict[str, str]:
    """Return the frozen snapshot of every side that a slot may run."""
    baseline = Node(facts.manifest, names.MANIFEST)["baseline"]["snapshot_sha256"].as_text()
    found = {"baseline": baseline, "baseline_again": baseline}
    if slot.candidate:
        where = names.candidate_manifest(slot.candidate)
        manifest = Node(facts.candidates[slot.candidate].manifest, where)
        found["candidate"] = manifest["candidate"]["snapshot_sha256"].as_text()
    return found


# --- receipt.json -----------------------------------------------------------------------------------------------------


def _check_receipt(reading: Reading, start: Node, receipt: Node) -> None:
    planned = reading.planned
    receipt.format("receipt/1")
    receipt["start_sha256"].must_be(reading.facts.digests.sha256(start.where), "start.json's own SHA-256")
    for name in ("slot", "attempt", "segment", "allocation"):
        receipt[name].must_be(getattr(planned, name), names.LEDGER)
    receipt["kind"].must_be(reading.slot.kind, names.PROTOCOL)
    receipt["ending"].as_word(ENDINGS)
    receipt["reason"].as_text()
    receipt["at"].as_number()
    if not receipt["elapsed_s"].as_number() >= 0:
        raise receipt["elapsed_s"].wrong("is a negative duration")


def _check_sides(reading: Reading, receipt: Node) -> None:
    order = {side: position for position, side in enumerate(reading.slot.order, start=1)}
    seen: list[str] = []
    for node in receipt["sides"].items():
        side = node["side"].as_word(("baseline", "baseline_again", "candidate"))
        if side not in order:
            raise node.wrong(f"{side} ran, which was not planned")
        node["position"].must_be(order[side], names.PROTOCOL)
        seen.append(side)
        node["wall_s"].as_number()
        _check_path(node)
    if len(set(seen)) != len(seen):
        raise receipt["sides"].wrong("names a side twice")
    if receipt["ending"].as_text() == COMPLETED and set(seen) != set(order):
        raise receipt["sides"].wrong(f"completed with {', '.join(seen) or 'no side'}, planned were {', '.join(order)}")


def _check_path(side: Node) -> None:
    """Check that the engaged path is the digest of what the side said it engaged."""
    engaged = side.get("engaged")
    side["path"].must_be(path_of(engaged.as_fields()) if engaged is not None else "", "engaged")


def path_of(engaged: Mapping[str, Any]) -> str:
    """Return the digits that stand for the text entries of engaged()."""
    texts = {key: value for key, value in engaged.items() if isinstance(value, str)}
    text = json.dumps(texts, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_PATH_DIGITS]


class Listed(NamedTuple):
    """A file that a receipt seals."""

    name: str
    num_bytes: int
    sha256: str
    rows: int | None


def _read_listed(receipt: Node) -> dict[str, Listed]:
    """Return every file that a receipt seals, by name.

    Raises:
        EvidenceError: It cannot be a list of the folder's files.
    """
    found: dict[str, Listed] = {}
    for node in receipt["files"].items():
        name, rows = node["name"].as_text(), node.get("rows")
        if not name or "/" in name or "\0" in name or name in {".", "..", names.RECEIPT}:
            raise node.wrong(f"{name!r} cannot be a sealed file of this folder")
        if name in found:
            raise node.wrong(f"seals {name!r} twice")
        count = rows.as_whole() if rows is not None else None
        found[name] = Listed(name, node["bytes"].as_whole(), node["sha256"].as_digest(), count)
    if names.START not in found:
        raise receipt["files"].wrong(f"does not seal {names.START}")
    return found


# --- the folder -------------------------------------------------------------------------------------------------------


def _check_folder(reading: Reading, listed: Iterable[str]) -> None:
    beside = {names.RECEIPT, *([names.CHECKPOINTS] if reading.planned.segment else []), *listed}
    for name in reading.facts.digests.names(reading.folder):
        if name not in beside and not names.is_leftover(name):
            reading.wrong(f"{reading.folder}/{name}", "not sealed by the receipt: added later")


def _check_file(reading: Reading, start: Node, listed: Listed) -> None:
    path, headers = f"{reading.folder}/{listed.name}", tables.headers(reading.facts)
    data = _read_table(reading.facts, path) if listed.name in headers else None
    if contradiction := reading.facts.digests.contradiction(path, listed.num_bytes, listed.sha256):
        raise EvidenceError(path, f"changed after it was sealed: {contradiction}")
    if listed.name == columns.ATTEMPTS:
        raise EvidenceError(path, "no attempt writes this table")
    if data is None:
        return
    reading.tables[listed.name] = data
    rows = tables.parse(data, headers[listed.name], path)
    if listed.rows != len(rows):
        raise EvidenceError(path, f"{len(rows)} rows, the receipt says {listed.rows}")
    own = tables.owner(reading.facts, reading.slot, reading.planned, start)
    for line, what in tables.faults(own, rows):
        reading.wrong(f"{path}:{line}", what)


def _read_table(facts: Facts, path: str) -> bytes | None:
    """Return a table's bytes; None where it is no file, which its digest tells."""
    found = facts.digests.get(path)
    return facts.digests.read(path) if found is not None and found.kind is Kind.FILE else None


# --- what each kind leaves --------------------------------------------------------------------------------------------


def _check_written(reading: Reading, receipt: Node, listed: Mapping[str, Any]) -> None:
    """Check that an attempt left the tables and the documents of its kind, and those of no other."""
    kind, is_completed = reading.slot.kind, receipt["ending"].as_text() == COMPLETED
    own = {*tables.WRITES[kind], *([names.TENSORS] if kind in CASES else [])}
    others = {name for kinds in tables.WRITES.values() for name in kinds} | {names.TENSORS}
    for name in sorted((others - own) & set(listed)):
        reading.wrong(f"{reading.folder}/{name}", f"a {kind} does not write this")
    if is_completed:
        for name in sorted(own - set(listed)):
            reading.wrong(receipt.where, f"completed without {name}")
    for name, kinds in (("case", CASES), ("run", ("run",)), ("calibration", ("pilot",))):
        is_there = receipt.get(name) is not None
        if is_there and kind not in kinds:
            reading.wrong(receipt.where, f"a {kind} that has the field {name!r}")
        elif is_completed and kind in kinds and not is_there:
            reading.wrong(receipt.where, f"completed, but it does not say {name!r}")
