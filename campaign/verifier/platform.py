"""One platform: all attempts that count ran on one kind of machine, or an amendment declared another one first.

The same holds for each side's interpreter and what is installed for it: its first sealed attempt fixes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import names
from .facts import Facts, Sealed
from .findings import Check, EvidenceError
from .history import History, history_of
from .receipts import COMPLETED
from .strict import Node

_NEAR = 1 / 16
"""Share of memory in which machines of one kind may differ: firmware and kernels keep some for themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What must be the same for all attempts. The node's name, its boot and the devices' own ids may differ."""

    fields: Mapping[str, Any]
    """Values that must be equal, by what they are called for a person."""
    memory: Mapping[str, float]
    """Sizes in bytes that must be near to one another."""

    def difference(self, other: Fingerprint) -> str:
        """Return in what another fingerprint differs; empty if it is of the same platform."""
        for name, value in self.fields.items():
            if other.fields[name] != value:
                return f"{name} is {other.fields[name]!r}, before it was {value!r}"
        for name, size in self.memory.items():
            if not abs(other.memory[name] - size) <= _NEAR * size:
                return f"{name} is {other.memory[name]:.0f}, before it was {size:.0f}"
        return ""


@dataclass(slots=True, kw_only=True)
class Stratum:
    """The attempts of one platform."""

    fingerprint: Fingerprint
    first: Sealed
    num_attempts: int = 0


def check(facts: Facts, check: Check) -> None:
    """Check that all completed attempts that are not void are of one platform, or of declared ones.

    Args:
        facts: What has a receipt is known.
        check: Where findings go.
    """
    history = history_of(facts)
    strata: list[Stratum] = []
    for sealed in sorted(facts.sealed.values(), key=lambda one: one.planned.intent.seq):
        planned = sealed.planned
        if sealed.receipt["ending"] != COMPLETED or planned.attempt <= history.voided(planned.slot):
            continue
        with check.each():
            _put(strata, sealed, read(sealed))
    for where, what in _faults_of_interpreters(facts, history):
        check.tampered(where, what)
    for index, stratum in enumerate(strata):
        _check_declared(history, strata[:index], stratum, check)
    check.remark(_summary(strata))


def read(sealed: Sealed) -> Fingerprint:
    """Return the platform that an attempt names.

    Raises:
        EvidenceError: Its start.json does not say what it must.
    """
    return fingerprint(sealed.start, names.start(sealed.folder))


def fingerprint(said: Mapping[str, Any], where: str) -> Fingerprint:
    """Return the platform that a start.json names.

    Args:
        said: The document.
        where: Its place, for messages.

    Raises:
        EvidenceError: It does not say what it must.
    """
    start = Node(said, where)
    host, devices = start["host"], list(start["devices"].items())
    kinds = sorted((one["kind"].as_text(), one["name"].as_text(), one["driver"].as_text()) for one in devices)
    sizes = sorted(_size(one["memory_bytes"]) for one in devices)
    return Fingerprint(
        fields={
            "processor": host["cpu"].as_text(),
            "machine": host["machine"].as_text(),
            "kernel": host["kernel"].as_text(),
            "number of processors": len(list(host["affinity"].items())),
            "threads": start["threads"].as_whole(1),
            "devices (kind, name, driver)": kinds,
        },
        memory={
            "memory of the host in bytes": host["memory_bytes"].as_number(),
            "memory of the smallest device in bytes": sizes[0] if sizes else 0.0,
        },
    )


def _size(node: Node) -> float:
    return node.as_number() if node.value is not None else 0.0


def _put(strata: list[Stratum], sealed: Sealed, fingerprint: Fingerprint) -> None:
    for stratum in strata:
        if not stratum.fingerprint.difference(fingerprint):
            stratum.num_attempts += 1
            return
    strata.append(Stratum(fingerprint=fingerprint, first=sealed, num_attempts=1))


def _check_declared(history: History, earlier: Sequence[Stratum], stratum: Stratum, check: Check) -> None:
    """Check that so many platforms were declared before the first attempt on this one was planned."""
    planned = stratum.first.planned
    declared = sum(one.is_platform and one.entry.seq < planned.intent.seq for one in history.amendments)
    if len(earlier) <= declared:
        return
    difference = earlier[-1].fingerprint.difference(stratum.fingerprint)
    what = f"{stratum.num_attempts} attempts, of which this is the first, ran on another platform: {difference}"
    check.tampered(names.start(stratum.first.folder), f"{what}; no amendment had declared it")


def _summary(strata: Sequence[Stratum]) -> str:
    if not strata:
        return "no completed attempt names a platform"
    parts = []
    for stratum in strata:
        fields = stratum.fingerprint.fields
        kinds = fields["devices (kind, name, driver)"]
        devices = ", ".join(sorted({" ".join(filter(None, [name, driver])) for _, name, driver in kinds}))
        parts.append(f"{stratum.num_attempts} attempts on {devices}, kernel {fields['kernel']}")
    return "; ".join(parts)


# --- interpreters -----------------------------------------------------------------------------------------------------

_PARTS = ("path", "version", "sha256")


def _faults_of_interpreters(facts: Facts, history: History) -> Iterator[tuple[str, str]]:
    """Yield every side that ran on another interpreter, or with other packages, than it did first.

    What was amended as ``interpreter`` begins anew, for both sides.
    """
    changes = [one.entry.seq for one in history.amendments if one.entry.data.get("what") == "interpreter"]
    first: dict[tuple[str, int], tuple[tuple[str, ...], str]] = {}
    # Attempts of one submission have one intent: of these the first to end is the first that was sealed.
    for sealed in sorted(facts.sealed.values(), key=lambda one: (one.planned.intent.seq, one.receipt["at"])):
        where, seq = names.receipt(sealed.folder), sealed.planned.intent.seq
        try:
            found = list(_interpreters(sealed, where))
        except EvidenceError as error:
            yield error.where, error.what
            continue
        for side, identity in found:
            owner = facts.slots[sealed.planned.slot].candidate if side == "candidate" else "baseline"
            epoch = bisect_left(changes, seq)
            expected, place = first.setdefault((owner, epoch), (identity, where))
            if identity != expected:
                difference = _difference(identity, expected)
                yield where, f"{side} ran on another interpreter, or with other packages, than in {place}: {difference}"


def _difference(found: tuple[str, ...], expected: tuple[str, ...]) -> str:
    parts = zip((*_PARTS, "environment_sha256"), found, expected, strict=True)
    return "; ".join(f"{name} is {now}, there {before}" for name, now, before in parts if now != before)


def _interpreters(sealed: Sealed, where: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what each side of an attempt ran on; a process that ended before it could say does not."""
    for node in Node(sealed.receipt, where)["sides"].items():
        one = node.get("interpreter")
        if one is not None:
            parts = [one[name].as_text() for name in _PARTS]
            yield node["side"].as_text(), (*parts, node["environment_sha256"].as_text())
