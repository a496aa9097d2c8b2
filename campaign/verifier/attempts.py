"""Every attempt and every segment: what left a receipt is whole, what left none says so, and nothing was copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import names, receipts, tables
from .digests import Kind
from .facts import Facts, Planned, Sealed
from .findings import Check, EvidenceError
from .history import Allocation, History, Submitted, history_of
from .matrix import folder_of
from .retries import faults_of_retries
from .strict import Node

_LEAST_WINDOWS = 2
"""A single duration may come out twice by chance; a row of them does not."""


class Job(NamedTuple):
    """What an allocation's started.json says of the job that ran it."""

    identity: Mapping[str, Any]
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What an allocation itself left."""

    job: Job | None
    """None where there is no started.json that can be read."""
    receipts: Mapping[str, str] | None
    """What its ended.json names; None where there is none that can be read."""


def check(facts: Facts, check: Check) -> None:
    """Check what every planned attempt left. Fills `Facts.sealed`.

    Args:
        facts: What `matrix.check` filled.
        check: Where findings go.
    """
    history = history_of(facts)
    left = {name: _read_left(facts, history, one, check) for name, one in history.allocations.items()}
    for planned in facts.planned.values():
        with check.each():
            _check_one(facts, history, planned, left[planned.allocation], check)
    for where, what in faults_of_retries(facts, history):
        check.tampered(where, what)
    for where, what in _copied(facts):
        check.tampered(where, what)
    unsealed = len(facts.planned) - len(facts.sealed)
    check.remark(f"{len(facts.sealed)} receipts whole, {unsealed} attempts and segments without one")


# --- the allocation ---------------------------------------------------------------------------------------------------


def _read_left(facts: Facts, history: History, allocation: Allocation, check: Check) -> Left:
    job: Job | None = None
    named: dict[str, str] | None = None
    with check.each():
        job = _read_job(facts, history, allocation)
    with check.each():
        named = _read_ended(facts, allocation)
    return Left(job=job, receipts=named)


def _read_job(facts: Facts, history: History, allocation: Allocation) -> Job | None:
    """Return the job that began an allocation; None if none did.

    Raises:
        EvidenceError: It is not the one that the ledger says was submitted.
    """
    path = names.started(allocation.id)
    if facts.digests.get(path) is None:
        return None
    started = facts.document(path)
    started.format("started/1")
    started["allocation"].must_be(allocation.id, names.LEDGER)
    job = started["job"]
    submitted = history.submissions[allocation.submission].submitted
    if submitted and not any(_is_job(job, one, allocation.index) for one in submitted):
        said = ", ".join(f"{one.cluster} job {one.job}" for one in submitted)
        raise job.wrong(f"is {_text_of_job(job)}, the ledger says that {allocation.submission} is {said}")
    return Job(job.as_fields(), started["boot_id"].as_text())


def _is_job(job: Node, submitted: Submitted, index: int) -> bool:
    if job["scheduler"].as_text() != submitted.cluster:
        return False
    if submitted.is_array:
        own = (job["array_job_id"].as_text(), job["array_task_id"].as_text())
        return own == (submitted.job, str(index))
    return submitted.job in {job["job_id"].as_text(), job["array_job_id"].as_text()}


def _text_of_job(job: Node) -> str:
    task = job["array_task_id"].as_text()
    number = f"{job['array_job_id'].as_text()}_{task}" if task else job["job_id"].as_text()
    return f"{job['scheduler'].as_text()} job {number}"


def _read_ended(facts: Facts, allocation: Allocation) -> dict[str, str] | None:
    """Return the receipts that an allocation says it wrote; None if it says nothing.

    Raises:
        EvidenceError: It is not this allocation's word.
    """
    path = names.ended(allocation.id)
    if facts.digests.get(path) is None:
        return None
    ended = facts.document(path)
    ended.format("ended/1")
    ended["allocation"].must_be(allocation.id, names.LEDGER)
    found = {name: node.as_digest() for name, node in ended["receipts"].fields()}
    strangers = sorted(set(found) - set(allocation.planned))
    if strangers:
        raise ended["receipts"].wrong(f"names {strangers[0]}, which this allocation did not plan")
    return found


# --- one attempt ------------------------------------------------------------------------------------------------------


def _check_one(facts: Facts, history: History, planned: Planned, left: Left, check: Check) -> None:
    folder, name = folder_of(planned), planned.name
    path = names.receipt(folder)
    is_there = facts.digests.get(path) is not None
    digest = facts.digests.sha256(path) if is_there else ""
    seen = history.seen.get(name)
    if seen is not None and seen.sha256 != digest:
        now = f"its SHA-256 is {digest}" if digest else "it is gone"
        word = "collected" if seen.act == "collected" else "seen"
        what = f"{word} with SHA-256 {seen.sha256} by the ledger's line {seen.seq}; {now}"
        raise EvidenceError(path, what)
    if left.receipts is not None and left.receipts.get(name, "") != digest:
        raise EvidenceError(path, _contradiction(left.receipts.get(name, ""), digest))
    _check_outcome(facts, history, planned, check, began=is_there)
    if not is_there:
        _check_unsealed(facts, history, planned, left, check)
        return
    if seen is None:
        _say_open(history, path, "no act of the ledger names this receipt yet", check)
    slot = facts.slots.get(planned.slot)
    if slot is None:
        return  # said already
    sealed = receipts.read(facts, planned, slot, check.tampered)
    if sealed is None:
        return
    if not _is_of_job(facts, sealed.start, f"{folder}/{names.START}", planned, left, check=check):
        return
    facts.sealed[name] = sealed


def _contradiction(written: str, digest: str) -> str:
    if not written:
        return "its allocation ended without writing this receipt: somebody else put it there"
    now = f"there is one with SHA-256 {digest}" if digest else "there is none"
    return f"its allocation wrote a receipt with SHA-256 {written}; {now}"


def _check_outcome(facts: Facts, history: History, planned: Planned, check: Check, *, began: bool) -> None:
    """Check that what ran was submitted."""
    allocation = history.allocations[planned.allocation]
    submission = history.submissions[allocation.submission]
    has_folder = began or facts.digests.get(names.start(folder_of(planned))) is not None
    if submission.submitted or not has_folder:
        return
    if submission.not_submitted:
        line = submission.not_submitted[-1]
        check.tampered(folder_of(planned), f"it ran, and the ledger's line {line} says that nobody got its job")
    else:
        what = f"it ran, and the ledger does not say that {submission.key} was submitted"
        _say_open(history, folder_of(planned), what, check)


def _say_open(history: History, where: str, what: str, check: Check) -> None:
    """Say something that is right while a campaign goes on, and cannot be in one that was closed."""
    if history.closed is None:
        check.incomplete(where, what)
    else:
        check.tampered(where, f"{what}, and the campaign was closed in line {history.closed.seq}")


def _check_unsealed(facts: Facts, history: History, planned: Planned, left: Left, check: Check) -> None:
    """Check an attempt that left no receipt: only a running one may lack the ledger's word."""
    folder = folder_of(planned)
    if planned.name not in history.ended:
        _say_open(history, folder, "it has no ending yet", check)
    for found in facts.digests.below(folder):
        parts = found.path.removeprefix(f"{folder}/").split("/")
        is_checkpoint = planned.segment > 0 and parts[0] == names.CHECKPOINTS
        if found.kind is not Kind.FILE and not is_checkpoint and not names.is_leftover(parts[0]):
            check.tampered(found.path, f"is {found.word} in the folder of an attempt")
    path, slot = names.start(folder), facts.slots.get(planned.slot)
    if facts.digests.get(path) is not None and slot is not None:
        start = facts.document(path)
        receipts.check_start(facts, planned, slot, start)
        _is_of_job(facts, start.as_fields(), path, planned, left, check=check)


def _is_of_job(
    facts: Facts, start: Mapping[str, Any], path: str, planned: Planned, left: Left, *, check: Check
) -> bool:
    """Return whether an attempt ran in the job, and the boot, that began its allocation; say so where it did not."""
    node, where = Node(start, path), names.started(planned.allocation)
    if left.job is None:
        if facts.digests.get(where) is not None:
            facts.digests.sha256(where)  # which says so if it is there and cannot be read
        check.tampered(where, f"there is none that can be read, and {planned.name} says that it ran")
        return False
    is_right = True
    here = {"job": node["job"].as_fields(), "boot_id": node["host"]["boot_id"].as_text()}
    for name, value in here.items():
        said = left.job.identity if name == "job" else left.job.boot_id
        if value != said:
            check.tampered(path, f"{name} is {value!r}, {where} says {said!r}")
            is_right = False
    return is_right


# --- copies -----------------------------------------------------------------------------------------------------------


def _copied(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield attempts that share what no two measurements share: when they began, and how long things took."""
    known: dict[tuple[Any, ...], str] = {}
    for sealed in facts.sealed.values():
        for what, where, key in _prints(facts, sealed):
            first = known.setdefault((what, *key), where)
            if first != where:
                yield where, f"{what} are those of {first}: copied"


def _prints(facts: Facts, sealed: Sealed) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Yield what was measured in an attempt, where, and the values that no other can have."""
    start, host = sealed.start, sealed.start["host"]
    yield "node, boot and time of the start", names.start(sealed.folder), (host["node"], host["boot_id"], start["at"])
    walls = [side["wall_s"] for side in sealed.receipt["sides"]]
    if walls:
        yield "durations", names.receipt(sealed.folder), (sealed.receipt["elapsed_s"], *walls)
    for name in sealed.tables:
        path, rows = f"{sealed.folder}/{name}", tables.rows_of(facts, sealed, name)
        if name == tables.WINDOWS:
            yield from _prints_of_windows(rows, path)
        elif name in (tables.PAIRS, tables.BASELINE, tables.CONVERGENCE):
            for line, row in enumerate(rows, start=2):
                yield "durations", f"{path}:{line}", tuple(row[key] for key in row if key.endswith("_s"))


def _prints_of_windows(rows: list[dict[str, str]], path: str) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    sides: dict[str, list[str]] = {}
    for row in rows:
        sides.setdefault(row["side"], []).append(row["seconds"])
    for side, seconds in sides.items():
        if len(seconds) >= _LEAST_WINDOWS:
            yield "windows", f"{path} ({side})", tuple(seconds)
