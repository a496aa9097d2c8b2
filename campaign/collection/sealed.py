"""Reading what one attempt left: is every byte the one that its receipt sealed, and is it what was asked for?

Nothing is repaired and nothing is guessed; every disagreement becomes a finding with its place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from acceptance import formats
from campaign import documents, files
from campaign.collection.left import NOTHING, LeftBehind
from campaign.errors import EvidenceError
from campaign.frozen import Frozen
from campaign.paths import INPUTS, TENSORS, AllocationPaths, AttemptPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason why something in the home is not what was sealed."""

    where: str
    """A path, with ``:line`` where there is one."""
    what: str

    def __str__(self) -> str:
        """Return ``where: what``."""
        return f"{self.where}: {self.what}"


class TamperedError(EvidenceError):
    """Evidence that does not parse or was changed; carries every finding, not just the first.

    Args:
        findings: All of them; at least one.
        what: What they are about.
        hint: What to try.
    """

    def __init__(
        self, findings: tuple[Finding, ...], *, what: str = "the evidence is not what was sealed", hint: str = ""
    ) -> None:
        count = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
        super().__init__(f"{what}: {count}", why="\n".join(map(str, findings)), hint=hint)
        self.findings = findings

    def lines(self) -> list[str]:
        """Return the message for a terminal: one finding a line."""
        return [self.what, *map(str, self.findings), *([f"  try: {self.hint}"] if self.hint else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the own documents of an attempt, or of a segment, must say."""

    planned: documents.PlannedAttempt
    allocation: str
    manifest_sha256: str
    protocol_sha256: str
    harness_sha256: str
    snapshots: Mapping[str, str]
    """Snapshot digest by side's name."""


def expect(frozen: Frozen, planned: documents.PlannedAttempt, allocation: str) -> Expected:
    """Return what an attempt's own documents must say in a home.

    Args:
        frozen: The frozen documents.
        planned: The attempt, under the slot's name in this home.
        allocation: Id of its allocation.
    """
    return Expected(
        planned=planned,
        allocation=allocation,
        manifest_sha256=frozen.manifest_sha256,
        protocol_sha256=frozen.protocol_sha256,
        harness_sha256=frozen.manifest.harness_sha256,
        snapshots=frozen.snapshots(planned.slot.partition("/")[0]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedAttempt:
    """A sealed attempt, or segment of one, whose every byte was checked, checkpoints left out."""

    start: documents.Start
    start_sha256: str
    receipt: documents.Receipt
    receipt_sha256: str
    tables: Mapping[str, Sequence[formats.Row]]
    """Rows by file name, for the files that are evidence tables."""
    kept: Mapping[str, bytes]
    """The very bytes that were checked of the files which stay with the attempt and are looked into: see `KEPT`."""
    left: frozenset[str] = frozenset()
    """Names of those that were left behind on the machine: their digests alone are known."""
    is_stored: bool = False
    """Whether the cache holds the rows of this very receipt: then they were not parsed again, ``tables`` is empty."""


KEPT = (INPUTS, TENSORS)
"""Files of the numerical family that are evidence, but no table that is merged."""


def is_leftover(name: str) -> bool:
    """Return whether a name is that of a temporary file which a killed writer left: never read, never evidence."""
    return name.startswith(".") and name.endswith(".tmp")


def _disagreements(said: documents.Document, wanted: Mapping[str, object], where: str) -> Iterator[Finding]:
    for name, value in wanted.items():
        if getattr(said, name) != value:
            yield Finding(where=where, what=f"{name} is {getattr(said, name)!r} where the plan says {value!r}")


def _check_start(start: documents.Start, expected: Expected, where: str) -> Iterator[Finding]:
    planned = expected.planned
    wanted: dict[str, object] = {
        "slot": planned.slot,
        "attempt": planned.attempt,
        "segment": planned.segment,
        "allocation": expected.allocation,
        "kind": planned.kind,
        "manifest_sha256": expected.manifest_sha256,
        "protocol_sha256": expected.protocol_sha256,
        "harness_sha256": expected.harness_sha256,
    }
    yield from _disagreements(start, wanted, where)
    for side, digest in start.snapshots.items():
        if side not in planned.order and side != "baseline":
            yield Finding(where=where, what=f"snapshots names {side!r}, which this attempt does not run")
        elif digest != expected.snapshots.get(side):
            yield Finding(
                where=where, what=f"the snapshot of {side} is {digest}, frozen is {expected.snapshots.get(side)}"
            )
    # baseline_again runs from the baseline's own snapshot, which stands for both.
    for side in {"baseline" if name == "baseline_again" else name for name in planned.order}:
        if side not in start.snapshots:
            yield Finding(where=where, what=f"snapshots does not name {side!r}")


def check_job(start: documents.Start, folder: AllocationPaths) -> Iterator[Finding]:
    """Yield a finding where an attempt says it ran in another job, or boot, than the one that began its allocation.

    Args:
        start: What the attempt wrote before anything of a side ran.
        folder: Its allocation's folder, whose started.json only one job can create.

    Raises:
        EvidenceError: There is no started.json, or it is not such a document.
    """
    started = documents.Started.read(folder.started)
    here_now = (start.allocation, start.job, start.host.boot_id)
    if here_now == (started.allocation, started.job, started.boot_id):
        return
    pairs = {
        "allocation": (start.allocation, started.allocation),
        "job": (start.job.to_json(), started.job.to_json()),
        "boot_id": (start.host.boot_id, started.boot_id),
    }
    for name, (here, there) in pairs.items():
        if here != there:
            what = f"{name} is {there!r}, but start.json of {start.slot} attempt {start.attempt} says {here!r}"
            yield Finding(where=str(folder.started), what=what)


def _check_receipt(receipt: documents.Receipt, start_sha256: str, expected: Expected, where: str) -> Iterator[Finding]:
    planned = expected.planned
    wanted: dict[str, object] = {
        "start_sha256": start_sha256,
        "slot": planned.slot,
        "attempt": planned.attempt,
        "segment": planned.segment,
        "allocation": expected.allocation,
        "kind": planned.kind,
    }
    yield from _disagreements(receipt, wanted, where)
    order = {side: position for position, side in enumerate(planned.order, start=1)}
    for side in receipt.sides:
        if order.get(side.side) != side.position:
            yield Finding(where=where, what=f"{side.side} ran in position {side.position}, which was not planned")
    names = [side.side for side in receipt.sides]
    if len(set(names)) != len(names):
        yield Finding(where=where, what="names a side twice")
    if receipt.ending is formats.Ending.COMPLETED and set(names) != set(order):
        yield Finding(where=where, what="completed, but not every planned side ran")


def _check_listing(
    folder: AttemptPaths, receipt: documents.Receipt, planned: documents.PlannedAttempt
) -> Iterator[Finding]:
    names = [sealed.name for sealed in receipt.files]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Finding(where=str(folder.receipt), what=f"seals {name!r} twice")
    if folder.start.name not in names:
        yield Finding(where=str(folder.receipt), what="does not seal start.json")
    present = {entry.name for entry in os.scandir(folder.root) if not is_leftover(entry.name)}
    beside = {folder.receipt.name, *([folder.checkpoints.name] if planned.segment else [])}
    for name in sorted(present - set(names) - beside):
        yield Finding(where=str(folder.root / name), what="not sealed by the receipt: added later")


def _read_sealed(place: str, sealed: documents.SealedFile, receipt: Path) -> tuple[bytes, list[Finding]]:
    if "/" in sealed.name or sealed.name in ("", ".", ".."):
        return b"", [Finding(where=str(receipt), what=f"{sealed.name!r} is not the name of a file here")]
    try:
        data = files.read_regular(place)
    except EvidenceError as error:
        return b"", [Finding(where=place, what=f"sealed by the receipt, but {error.what}")]
    digest = files.sha256_bytes(data)
    if len(data) != sealed.bytes or digest != sealed.sha256:
        what = f"{len(data)} bytes with SHA-256 {digest}, sealed were {sealed.bytes} bytes with {sealed.sha256}"
        return data, [Finding(where=place, what=f"changed after it was sealed: {what}")]
    return data, []


def _parse_table(data: bytes, sealed: documents.SealedFile, place: str) -> tuple[Sequence[formats.Row], list[Finding]]:
    rows, faults = formats.parse_rows(formats.TABLES[sealed.name], data, place)
    found = [Finding(where=f"{fault.file}:{fault.line}", what=fault.what) for fault in faults]
    if not found and sealed.rows != len(rows):
        found.append(Finding(where=place, what=f"{len(rows)} rows, the receipt says {sealed.rows}"))
    return rows, found


def can_be_left(name: str) -> bool:
    """Return whether no collection needs the content of a sealed file of an attempt: what was printed, and tensors."""
    return name == TENSORS or name.endswith(".log")


def _read_files(
    folder: AttemptPaths, receipt: documents.Receipt, *, is_stored: bool, left: frozenset[str]
) -> tuple[dict[str, Sequence[formats.Row]], dict[str, bytes], list[Finding]]:
    tables: dict[str, Sequence[formats.Row]] = {}
    kept: dict[str, bytes] = {}
    findings: list[Finding] = []
    for sealed in receipt.files:
        if sealed.name in left:
            continue
        place = f"{folder.root}/{sealed.name}"
        data, found = _read_sealed(place, sealed, folder.receipt)
        if sealed.name == formats.ATTEMPTS.file:
            found.append(Finding(where=place, what="no attempt writes this table"))
        elif not found and sealed.name in formats.TABLES and not is_stored:
            tables[sealed.name], found = _parse_table(data, sealed, place)
        elif sealed.name == INPUTS or (sealed.name in KEPT and not is_stored):
            kept[sealed.name] = data
        findings.extend(found)
    return tables, kept, findings


def read_attempt(
    folder: AttemptPaths,
    expected: Expected,
    *,
    receipt: bytes | None = None,
    stored_sha256: str = "",
    left: LeftBehind = NOTHING,
) -> tuple[SealedAttempt | None, tuple[Finding, ...]]:
    """Read and check one attempt that has a receipt, or one segment of an attempt at a run.

    The checkpoints of a segment are not looked at: see `campaign.collection.checkpoints`.

    Args:
        folder: Its folder.
        expected: What the plan says of it.
        receipt: Its receipt, if that was read; None to read it.
        stored_sha256: Digest of the receipt whose rows the cache holds; empty where it holds none.
        left: What was left behind where the attempt was made.

    Returns:
        The attempt, or None and every reason why it cannot be taken.
    """
    try:
        start_place, receipt_place = folder.documents
        start_bytes = files.read_regular(start_place)
        receipt_bytes = files.read_regular(receipt_place) if receipt is None else receipt
        start = documents.Start.parse(start_bytes, where=start_place)
        said = documents.Receipt.parse(receipt_bytes, where=receipt_place)
    except EvidenceError as error:
        return None, (Finding(where=error.where, what=error.what),)
    start_sha256, receipt_sha256 = files.sha256_bytes(start_bytes), files.sha256_bytes(receipt_bytes)
    findings = [
        *_check_start(start, expected, start_place),
        *_check_receipt(said, start_sha256, expected, receipt_place),
        *_check_listing(folder, said, expected.planned),
    ]
    is_stored = receipt_sha256 == stored_sha256
    absent = frozenset(
        one.name
        for one in said.files
        if can_be_left(one.name) and left.covers(folder.root / one.name, one.sha256, one.bytes)
    )
    tables, kept, found = _read_files(folder, said, is_stored=is_stored, left=absent)
    findings.extend(found)
    if findings:
        return None, tuple(findings)
    return SealedAttempt(
        start=start,
        start_sha256=start_sha256,
        receipt=said,
        receipt_sha256=receipt_sha256,
        tables=tables,
        kept=kept,
        left=absent,
        is_stored=is_stored,
    ), ()


def read_unchanged(folder: AttemptPaths, receipt_sha256: str) -> SealedAttempt | None:
    """Read what is asked again of an attempt whose files the file system says are as they were when all was right.

    Args:
        folder: Its folder.
        receipt_sha256: Digest of its receipt then.

    Returns:
        The attempt; None if it is not as it was after all.
    """
    try:
        start_bytes, receipt_bytes = map(files.read_regular, folder.documents)
    except EvidenceError:
        return None
    start_sha256 = files.sha256_bytes(start_bytes)
    if files.sha256_bytes(receipt_bytes) != receipt_sha256:
        return None
    receipt = documents.Receipt.parse_again(receipt_bytes)
    if start_sha256 != receipt.start_sha256:
        return None
    kept = {}
    for sealed in receipt.files:
        if sealed.name == INPUTS:
            kept[sealed.name], found = _read_sealed(f"{folder.root}/{sealed.name}", sealed, folder.receipt)
            if found:
                return None
    return SealedAttempt(
        start=documents.Start.parse_again(start_bytes),
        start_sha256=start_sha256,
        receipt=receipt,
        receipt_sha256=receipt_sha256,
        tables={},
        kept=kept,
        is_stored=True,
    )
