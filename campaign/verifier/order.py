"""What came first: the rules before every candidate, and the baseline's evidence where the protocol asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from . import names
from .facts import Candidate, Facts
from .findings import Check
from .strict import Node


def check(facts: Facts, check: Check) -> None:
    """Check by the numbers of the ledger that the rules, and with baseline_first the baseline's receipts, came first.

    Args:
        facts: Protocol, candidates and ledger are known.
        check: Where findings go.
    """
    frozen = next((entry.seq for entry in facts.entries if entry.act == "froze_baseline"), None)
    for candidate in facts.candidates.values():
        if frozen is None or not frozen < candidate.seq:
            check.tampered(f"{names.LEDGER}:{candidate.seq}", f"{candidate.id} was frozen before the rules were")
    protocol = Node(facts.protocol, names.PROTOCOL)
    if not protocol["baseline_first"].as_flag():
        check.remark("the protocol lets a candidate be frozen before the baseline ran")
        return
    needed = set(_baseline_slots(protocol))
    for candidate in facts.candidates.values():
        missing = sorted(needed - _sealed_before(facts, candidate))
        for slot in missing:
            what = f"{candidate.id} was frozen before a receipt of {slot} was named, and baseline_first is true"
            check.tampered(f"{names.LEDGER}:{candidate.seq}", what)


def _baseline_slots(protocol: Node) -> Iterator[str]:
    """Yield every slot of the baseline's phase; runs of an extension are not waited for."""
    later = set(_extension_runs(protocol))
    for slot in protocol["slots"].items():
        name = slot["slot"].as_text()
        if slot["phase"].as_text() == "baseline" and name not in later:
            yield name


def _extension_runs(protocol: Node) -> Iterator[str]:
    rules = protocol.get("convergence")
    extension = rules.get("extension") if rules is not None else None
    if rules is None or extension is None:
        return
    for recipe in rules["recipes"].items():
        for seed in extension["seeds"].items():
            yield f"baseline/run/{recipe['name'].as_text()}/s{seed.as_whole()}"


def _sealed_before(facts: Facts, candidate: Candidate) -> set[str]:
    """Return the slots of which an act before the candidate's freeze names a receipt."""
    found = set()
    for entry in facts.entries:
        if entry.seq < candidate.seq and entry.act in ("sealed", "collected"):
            receipts = Node(entry.data, f"{names.LEDGER}:{entry.seq}")["receipts"]
            found |= {_slot_of(name) for name, _ in receipts.fields()}
    return found


def _slot_of(receipt: str) -> str:
    """Return the slot of a receipt's name: ``SLOT/ATTEMPT``, of a run's segment ``SLOT/ATTEMPT/SEGMENT``."""
    parts = receipt.split("/")
    return "/".join(parts[:4] if parts[1:2] == ["run"] else parts[:-1])
