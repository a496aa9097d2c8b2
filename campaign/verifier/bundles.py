"""Bundles: allocations made on machines that the driver does not reach, by commands that somebody gave there.

Nobody but the harness saw what happened there. What can be held to something is: every document to the ledger's act,
every call to the one machine on which its allocation began, every receipt to the call that wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from . import names
from .facts import Facts
from .findings import Check, EvidenceError
from .history import Allocation, History, Ingested, Submission, history_of
from .matrix import folder_of
from .strict import Node

_CALL = (
    *("format", "allocation", "bundle", "number", "host", "boot_id", "pid", "process_start", "argv", "home"),
    *("python", "data", "at"),
)
_CALL_ENDED = ("format", "allocation", "number", "reason", "detail", "at", "wall_s", "sides_s", "receipts")
_FILE_OF_CALLS = re.compile(r"[1-9][0-9]{0,8}(\.ended)?\.json")
Faults = Iterator[tuple[str, str]]


class Machine(NamedTuple):
    """Where an allocation was begun."""

    host: str
    boot_id: str


@dataclass(slots=True, kw_only=True)
class Boots:
    """What was measured on each boot of a machine."""

    repeats: dict[tuple[str, str, str], set[int]] = field(default_factory=dict)
    """Repeats by boot, kind of slot and workload."""

    def note(self, facts: Facts, history: History, allocation: Allocation, machine: Machine) -> None:
        """Note the slots of an allocation that was begun."""
        for name in allocation.planned:
            slot = facts.slots.get(history.planned[name].slot)
            if slot is not None and slot.repeat:
                key = (machine.boot_id, slot.kind, slot.workload)
                self.repeats.setdefault(key, set()).add(slot.repeat)

    @property
    def text(self) -> str:
        """What a reader should know of them; empty if every repeat has a boot of its own."""
        shared = {key: found for key, found in self.repeats.items() if len(found) > 1}
        if not shared:
            return ""
        (_, kind, workload), repeats = min(shared.items(), key=lambda item: item[0][1:])
        listed = ", ".join(map(str, sorted(repeats)))
        num = len({key[2] for key in shared})
        return (
            f"{num} workloads were measured in several repeats on one boot of one machine, such as {workload} ({kind}) "
            f"in repeats {listed}: those allocations were not obtained afresh"
        )


def check(facts: Facts, check: Check) -> None:
    """Check what came back of every bundle, and say what never did.

    What was left behind on a machine counts from here on as a file of which the digest alone is known.

    Args:
        facts: What `matrix.check` filled.
        check: Where findings go.
    """
    history, boots = history_of(facts), Boots()
    bundles = [one for one in history.submissions.values() if one.bundle]
    for submission in bundles:
        for where, what in _faults(facts, history, submission, boots):
            check.tampered(where, what)
        _check_open(facts, history, submission, check)
    for where, what in _faults_of_late(history):
        check.tampered(where, what)
    _leave_out(facts, history, check)
    if boots.text:
        check.remark(boots.text)
    if bundles:
        check.remark(f"{len(bundles)} bundles were written, {len(history.ingested)} of them came back")


def _check_open(facts: Facts, history: History, submission: Submission, check: Check) -> None:
    """Say what of a bundle has not come back, and what lies here without having been taken in."""
    found = history.ingested.get(submission.key)
    known = {*found.receipts, *found.begun} if found is not None else set()
    for name in (name for one in submission.allocations for name in history.allocations[one].planned):
        folder = folder_of(history.planned[name])
        is_there = any(facts.digests.get(path) is not None for path in (names.receipt(folder), names.start(folder)))
        if is_there and name not in known:
            what = "no act of the ledger says that this was ingested"
            if history.closed is None:
                check.incomplete(folder, f"{what}: an ingestion was killed, or somebody put it there")
            else:
                check.tampered(folder, f"{what}, and the campaign was closed in line {history.closed.seq}")
    if found is None:
        line, given_up = submission.submitted[-1].seq, history.given_up(submission)
        end = f", and was abandoned in line {given_up}" if given_up else ""
        check.remark(f"bundle {submission.bundle} (line {line}) never came back{end}: nobody knows what was made of it")


def _faults_of_late(history: History) -> Faults:
    """Yield receipts of lost attempts that came after another one was planned: of two results one was chosen."""
    slots = history.slots()
    for name, ended in history.ended.items():
        seen = history.seen.get(name)
        if seen is None or seen.act != "ingested" or seen.seq < ended.seq:
            continue
        own = history.planned[name]
        later = [
            one
            for one in slots[own.slot]
            if (one.attempt, one.segment) > (own.attempt, own.segment)
            and history.allocations[one.allocation].seq < seen.seq
        ]
        if later:
            what = f"names a receipt of {name}, which was lost in line {ended.seq}; another attempt was planned since"
            yield f"{names.LEDGER}:{seen.seq}", what


def _leave_out(facts: Facts, history: History, check: Check) -> None:
    left = {path: what for one in history.ingested.values() for path, what in one.left.items()}
    gone = [path for path, (sha256, num_bytes) in left.items() if facts.digests.leave_out(path, num_bytes, sha256)]
    if gone:
        num_bytes = sum(left[path][1] for path in gone)
        check.not_checked(
            f"{len(gone)} files ({num_bytes} bytes) were left behind on machines of bundles, such as {gone[0]}: their "
            "digests are compared, their content is not here"
        )


# --- one bundle -------------------------------------------------------------------------------------------------------


def _faults(facts: Facts, history: History, submission: Submission, boots: Boots) -> Faults:
    found = history.ingested.get(submission.key)
    records = dict(found.records) if found is not None else {}
    for name in submission.allocations:
        allocation = history.allocations[name]
        own = {path for path in records if path.startswith(f"{names.allocation(name)}/")}
        try:
            yield from _faults_of_records(facts, {path: records.pop(path) for path in own})
            yield from _faults_of_strangers(facts, allocation, own)
            if own and found is not None:
                yield from _faults_of_calls(facts, history, allocation, found, boots)
        except EvidenceError as error:
            yield error.where, error.what
    for path in records:
        yield f"{names.LEDGER}:{found.seq if found else 0}", f"names {path}, which no allocation of the bundle leaves"
    if found is not None:
        whole = all(names.ended(name) in found.records for name in submission.allocations)
        if whole != found.complete:
            yield f"{names.LEDGER}:{found.seq}", "complete: says otherwise than the records that it names"


def _faults_of_records(facts: Facts, records: Mapping[str, str]) -> Faults:
    for path, sha256 in records.items():
        if contradiction := facts.digests.contradiction(path, None, sha256):
            yield path, f"not what came back: {contradiction}"


def _faults_of_strangers(facts: Facts, allocation: Allocation, records: set[str]) -> Faults:
    """Yield what lies among the records of an allocation and never came back."""
    folder = names.calls(allocation.id)
    there = [f"{folder}/{name}" for name in facts.digests.names(folder)]
    documents = [names.started(allocation.id), names.ended(allocation.id)]
    for path in (*there, *(one for one in documents if facts.digests.get(one) is not None)):
        name = path.rpartition("/")[2]
        if path not in records and not names.is_leftover(name):
            is_call = path not in there or _FILE_OF_CALLS.fullmatch(name) is not None
            yield path, "no act of the ledger says that this came back" if is_call else "no file of a call: added"


def _faults_of_calls(facts: Facts, history: History, allocation: Allocation, found: Ingested, boots: Boots) -> Faults:
    started = facts.document(names.started(allocation.id))
    machine = Machine(started["host"].as_text(), started["boot_id"].as_text())
    boots.note(facts, history, allocation, machine)
    written: dict[str, str] = {}
    number, is_silent = 0, False
    while names.call(allocation.id, number + 1) in found.records:
        number += 1
        _check_call(facts, history, allocation, number, machine)
        ended = names.call_ended(allocation.id, number)
        if ended not in found.records:
            is_silent = True
            continue
        for name, sha256 in _receipts_of_call(facts, allocation, number):
            written[name] = sha256
            if found.receipts.get(name) != sha256:
                yield ended, f"it wrote a receipt of {name} with SHA-256 {sha256}, which is not what came back"
    if not number:
        yield names.calls(allocation.id), "no call of the allocation came back"
    expected = {names.call(allocation.id, one) for one in range(1, number + 1)}
    expected |= {names.call_ended(allocation.id, one) for one in range(1, number + 1)}
    for path in sorted(one for one in found.records if one.startswith(f"{names.calls(allocation.id)}/")):
        if path not in expected:
            yield path, "the calls are not numbered from 1 without a gap"
    surplus = sorted((set(found.receipts) & set(allocation.planned)) - set(written))
    if surplus and not is_silent:
        yield names.calls(allocation.id), f"no call wrote the receipt of {surplus[0]}: somebody else put it there"


def _check_call(facts: Facts, history: History, allocation: Allocation, number: int, machine: Machine) -> None:
    """Check what a call wrote as it began.

    Raises:
        EvidenceError: It is not of this allocation, or was made elsewhere than the others.
    """
    call = facts.document(names.call(allocation.id, number))
    call.format("call/1")
    call.only(_CALL)
    call["allocation"].must_be(allocation.id, names.LEDGER)
    call["bundle"].must_be(history.submissions[allocation.submission].bundle, names.LEDGER)
    call["number"].must_be(number, "its name")
    call["host"].must_be(machine.host, names.started(allocation.id))
    call["boot_id"].must_be(machine.boot_id, names.started(allocation.id))
    call["argv"].as_texts()
    for name in ("pid", "process_start"):
        call[name].as_whole()
    for name in ("python", "data"):
        for _, node in call[name].fields():
            node.as_text()
    call["home"].as_text()
    call["at"].as_number()


def _receipts_of_call(facts: Facts, allocation: Allocation, number: int) -> list[tuple[str, str]]:
    """Return the receipts that a call says that it wrote.

    Raises:
        EvidenceError: It is not the word of this call.
    """
    ended: Node = facts.document(names.call_ended(allocation.id, number))
    ended.format("call_ended/1")
    ended.only(_CALL_ENDED)
    ended["allocation"].must_be(allocation.id, names.LEDGER)
    ended["number"].must_be(number, "its name")
    for name in ("reason", "detail"):
        ended[name].as_text()
    for name in ("at", "wall_s", "sides_s"):
        ended[name].as_number()
    return [(name, node.as_digest()) for name, node in ended["receipts"].fields()]
