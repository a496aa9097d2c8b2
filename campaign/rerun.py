"""Running a case again from what was frozen and retained, in a folder of its own, and comparing the numbers.

The home is only read. The scratch folder is laid out like a home, as far as the harness looks: the frozen protocol, the
canonical inputs, an allocation with the one attempt.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from acceptance import formats
from acceptance.formats import Kind, Row
from campaign import documents
from campaign.collection.case_tensors import unpack
from campaign.collection.inputs import check_before_use
from campaign.collection.sealed import SealedAttempt, TamperedError, expect, read_attempt
from campaign.errors import EvidenceError, InfrastructureError, StateError
from campaign.frozen import Frozen
from campaign.keys import AttemptKey
from campaign.paths import TENSORS, HomePaths
from campaign.planning.calibration import CASE_KINDS
from campaign.scratch import make_scratch, run_harness
from campaign.submission.acts import History, IntendedAttempt
from campaign.submission.plans import build_plan

ALLOCATION = "rerun"
COMPARED = (formats.NUMERICAL, formats.VACUITY, formats.TENSORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field that came out otherwise; an empty text is an empty field, or a row that is not there."""

    table: str
    row: str
    """The row's key without what all rows share."""
    column: str
    retained: str
    again: str
    relative: float | None
    """|again - retained| / the larger of both; None where one is no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One table of the retained attempt beside the same of the new one."""

    table: str
    num_rows: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """What running a case again gave."""

    slot: str
    attempt: int
    device: str
    """What the retained attempt ran on."""
    device_again: str
    transport: str
    """How tensors reached the comparer then, and so in which pieces they were added up."""
    transport_again: str
    comparisons: tuple[Comparison, ...]

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Every difference, table by table."""
        return tuple(one for comparison in self.comparisons for one in comparison.differences)

    @property
    def is_identical(self) -> bool:
        """Whether every field of every row has the same text."""
        return not self.differences

    @property
    def same_kind(self) -> bool:
        """Whether both ran on the same kind of device in the same way: otherwise the numbers may differ."""
        return (self.device, self.transport) == (self.device_again, self.transport_again)

    @property
    def largest(self) -> Difference | None:
        """The difference between two numbers that is the largest in proportion; None if there is none."""
        numbers = [one for one in self.differences if one.relative is not None]
        return max(numbers, key=lambda one: one.relative or 0.0, default=None)


# --- the retained attempt ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """A case that can be run again."""

    plan: documents.AllocationPlan
    """Of the one attempt; its home is the campaign's own."""
    sealed: SealedAttempt

    @property
    def planned(self) -> documents.PlannedAttempt:
        """The attempt."""
        return self.plan.attempts[0]


def read_retained(paths: HomePaths, frozen: Frozen, history: History, slot: str, attempt: int) -> Retained:
    """Read a completed case, and check that it is what its receipt sealed and that its inputs are still there.

    Args:
        paths: The home.
        frozen: The frozen documents.
        history: What the ledger says.
        slot: The slot's name in this home.
        attempt: The attempt that counts.

    Raises:
        StateError: The slot is no case.
        TamperedError: The attempt is not what was sealed.
        EvidenceError: A canonical input is gone or changed.
    """
    kind = frozen.slots()[slot].kind
    if kind == "run":
        raise StateError(
            f"{slot} is a training, which is not made again here",
            why="it takes whole allocations, and its checkpoints lie in the home",
            hint=f"the command of an allocation that made it: campaign show {slot}",
        )
    if kind not in CASE_KINDS:
        raise StateError(f"{slot} is no numerical case", hint="cases are baseline/control-case/... and ID/case/...")
    known = history.attempt(AttemptKey(slot, attempt))
    intended = _intended(history, known.allocation, slot)
    plan = build_plan(frozen, paths, "rerun", ALLOCATION, [intended])
    expected = expect(frozen, plan.attempts[0], known.allocation)
    sealed, findings = read_attempt(paths.attempt(slot, attempt), expected)
    if sealed is None:
        raise TamperedError(findings, hint="campaign collect")
    check_before_use(paths, [intended.inputs_sha256], {})
    return Retained(plan=plan, sealed=sealed)


def _intended(history: History, allocation: str, slot: str) -> IntendedAttempt:
    for intended in history.allocations[allocation].attempts:
        if intended.slot == slot:
            return intended
    raise EvidenceError(f"the ledger's intent of {allocation} does not name {slot}", where="ledger.jsonl")


# --- running ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def scratch_home(paths: HomePaths, parent: Path | None) -> Iterator[HomePaths]:
    """Provide a folder that looks like a home to the harness; it stays, whoever asked removes it.

    Args:
        paths: The campaign's home.
        parent: Where to create it; the folder for temporary files if None.

    Raises:
        StateError: It would lie in the home.
    """
    refusal, why = "a case is not run again inside the home", "what a trial run leaves must never be taken for evidence"
    scratch = make_scratch(paths, ALLOCATION, parent, refusal=refusal, why=why)
    scratch.inputs.symlink_to(paths.inputs)
    yield scratch


def run_again(
    paths: HomePaths, frozen: Frozen, retained: Retained, scratch: HomePaths, environment: Mapping[str, str]
) -> SealedAttempt:
    """Run a case again in a scratch home.

    Args:
        paths: The campaign's home.
        frozen: The frozen documents.
        retained: The case.
        scratch: From `scratch_home`.
        environment: What the harness is given.

    Raises:
        InfrastructureError: It did not run to its end.
        TamperedError: What it left is not what it sealed.
    """
    said = run_harness(paths, frozen, retained.plan, scratch, environment)
    folder = scratch.attempt(retained.planned.slot, retained.planned.attempt)
    if not folder.receipt.exists():
        raise InfrastructureError("the harness left no receipt", where=str(scratch.root), why=said)
    expected = expect(frozen, retained.planned, ALLOCATION)
    sealed, findings = read_attempt(folder, expected)
    if sealed is None:
        raise TamperedError(findings)
    if sealed.receipt.ending is not formats.Ending.COMPLETED:
        why = f"{sealed.receipt.ending}: {sealed.receipt.reason}"
        hint = f"what it left is kept: {scratch.root}"
        raise InfrastructureError(
            "the case did not run to its end this time", where=str(folder.root), why=why, hint=hint
        )
    return sealed


# --- comparing --------------------------------------------------------------------------------------------------------

_SHARED = ("workload", "comparison", "attempt")
"""Columns of a key in which all rows of one attempt agree."""


def _rows(sealed: SealedAttempt, table: formats.Table) -> tuple[Row, ...]:
    if table is not formats.TENSORS:
        return tuple(sealed.tables.get(table.file, ()))
    if TENSORS not in sealed.kept:
        return ()
    rows, faults = formats.parse_table(table, unpack(sealed.kept[TENSORS]), TENSORS)
    if faults:
        raise EvidenceError(faults[0].what, where=f"{faults[0].file}:{faults[0].line}")
    return rows


def _by_key(rows: Sequence[Row], table: formats.Table) -> dict[str, dict[str, str]]:
    """Return the texts of each row's fields, by its key."""
    columns = [name for name in table.key if name not in _SHARED]
    return {
        " ".join(f"{name}={row.values[name]}" for name in columns): dict(
            zip(table.header, row.raw.split(","), strict=True)
        )
        for row in rows
    }


def _relative(retained: str, again: str) -> float | None:
    if not retained or not again:
        return None
    first, second = Decimal(retained), Decimal(again)
    largest = max(abs(first), abs(second))
    return float(abs(second - first) / largest) if largest else 0.0


def _differences(
    table: formats.Table, row: str, retained: Mapping[str, str], again: Mapping[str, str]
) -> Iterator[Difference]:
    for column in table.columns:
        texts = retained.get(column.name, ""), again.get(column.name, "")
        if texts[0] != texts[1]:
            is_number = column.kind in {Kind.DECIMAL, Kind.COUNT}
            yield Difference(
                table=table.file,
                row=row,
                column=column.name,
                retained=texts[0],
                again=texts[1],
                relative=_relative(*texts) if is_number else None,
            )


def compare_table(table: formats.Table, retained: Sequence[Row], again: Sequence[Row]) -> Comparison:
    """Compare two tables of one attempt row by row; a row that only one of them has differs in every field."""
    first, second = _by_key(retained, table), _by_key(again, table)
    differences = [
        difference
        for row in dict.fromkeys([*first, *second])
        for difference in _differences(table, row, first.get(row, {}), second.get(row, {}))
    ]
    return Comparison(table=table.file, num_rows=len(first), differences=tuple(differences))


def device_kind(start: documents.Start) -> str:
    """Return the kind of an attempt's devices: their names without what tells one from another."""
    return "+".join(f"{one.get('kind', '')}:{one.get('name', '')}" for one in start.devices) or start.device


def _transport(sealed: SealedAttempt) -> str:
    return sealed.receipt.case.transport if sealed.receipt.case is not None else ""


def compare(retained: SealedAttempt, again: SealedAttempt) -> Rerun:
    """Compare what a case left with what it left when it was run again.

    Raises:
        EvidenceError: There is nothing to compare.
    """
    if not retained.tables.get(formats.NUMERICAL.file):
        raise EvidenceError(f"{retained.receipt.slot} retained no row of {formats.NUMERICAL.file}")
    return Rerun(
        slot=retained.receipt.slot,
        attempt=retained.receipt.attempt,
        device=device_kind(retained.start),
        device_again=device_kind(again.start),
        transport=_transport(retained),
        transport_again=_transport(again),
        comparisons=tuple(compare_table(table, _rows(retained, table), _rows(again, table)) for table in COMPARED),
    )
