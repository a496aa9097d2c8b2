"""Building provenance.json: what a report says beside the verdict, from what was frozen, collected and recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campaign import documents, files
from campaign.collection.cases import summaries
from campaign.collection.collect import Collection
from campaign.collection.database import SegmentRecord
from campaign.errors import EvidenceError
from campaign.frozen import Frozen
from campaign.judging.bundles import bundle_summaries, shared_boots
from campaign.judging.conditions import remarks_of
from campaign.judging.exchanges import exchanges_of
from campaign.judging.nodes import node_summaries
from campaign.judging.platforms import platforms_of
from campaign.keys import AttemptKey
from campaign.record.fallbacks import state_of
from campaign.record.ledger import reported_outcomes
from campaign.submission import acts
from campaign.watching.state import CUTS

NO_EVIDENCE = frozenset({"reported", "accounted", "pruned", "closed"})
"""Acts that change nothing of what a report is about."""
FAMILIES = ("throughput", "numerical", "convergence", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The ledger as far as the evidence goes."""

    entries: Sequence[documents.Entry]
    head: str
    """SHA-256 of the last entry's line."""

    def without_reports(self) -> Chain:
        """Return the chain up to the evidence, so that reporting twice, or after closing, gives the same bytes."""
        chain = self
        while chain.entries and chain.entries[-1].act in NO_EVIDENCE:
            chain = Chain(entries=chain.entries[:-1], head=chain.entries[-1].previous)
        return chain


def frozen_candidates(entries: Iterable[documents.Entry]) -> dict[str, int]:
    """Return the ids of the frozen candidates with the ledger's number of their freeze, oldest first."""
    return {str(entry.data["candidate"]): entry.seq for entry in entries if entry.act == "froze_candidate"}


def _froze_baseline_seq(entries: Iterable[documents.Entry]) -> int:
    for entry in entries:
        if entry.act == "froze_baseline":
            return entry.seq
    raise EvidenceError("the ledger does not say that the baseline was frozen")


def _baseline_sealed_seq(
    frozen: Frozen, entries: Sequence[documents.Entry], receipts: Mapping[AttemptKey, documents.Receipt]
) -> int | None:
    added = frozen.protocol.extension_runs()
    missing = {slot.slot for slot in frozen.protocol.slots if slot.phase == "baseline" and slot.slot not in added}
    if not missing:
        return None
    for entry in entries:
        if entry.act == "collected":
            keys = map(AttemptKey.parse, entry.data.get("receipts", {}))
            missing -= {key.slot for key in keys if not _is_cut(key, receipts)}
            if not missing:
                return entry.seq
    return None


def _is_cut(key: AttemptKey, receipts: Mapping[AttemptKey, documents.Receipt]) -> bool:
    """Return whether a receipt is that of a segment which was cut: the run may go on, and has no result yet."""
    return key.segment > 0 and (key not in receipts or receipts[key].ending in CUTS)


def _said(
    receipts: Iterable[documents.Receipt], texts: Callable[[documents.SideReceipt], Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Return, by side, each name with every text that was seen of it."""
    seen: dict[str, dict[str, set[str]]] = {"baseline": {}, "candidate": {}}
    for receipt in receipts:
        for side in receipt.sides:
            own = seen["candidate" if side.side == "candidate" else "baseline"]
            for name, text in texts(side).items():
                own.setdefault(name, set()).add(text)
    return {
        side: {name: " | ".join(sorted(texts)) for name, texts in sorted(own.items())} for side, own in seen.items()
    }


def _machines(starts: Iterable[documents.Start]) -> list[dict[str, object]]:
    """Return the distinct machines that attempts were started on; one that changed meanwhile is named twice."""
    found: dict[bytes, dict[str, object]] = {}
    for start in starts:
        devices = {(str(one.get("name", "")), str(one.get("driver", ""))) for one in start.devices}
        machine = {
            **{name: getattr(start.host, name) for name in ("node", "cpu", "kernel", "machine", "memory_bytes")},
            "devices": [{"name": name, "driver": driver} for name, driver in sorted(devices)],
        }
        found[files.dump_json(machine)] = machine
    return sorted(found.values(), key=lambda machine: (str(machine["node"]), files.dump_json(machine)))


def _segment(one: SegmentRecord) -> dict[str, object]:
    return {
        "segment": one.segment,
        "allocation": one.allocation,
        "node": one.node,
        "device": one.device,
        "ending": one.ending.value,
        "reason": one.reason,
        "sealed": bool(one.receipt_sha256),
        "resumed_update": one.resumed.update if one.resumed is not None else 0,
        "update": one.update,
    }


def _wanted(frozen: Frozen, candidate: str, due: frozenset[str]) -> set[str]:
    """Return the slots that must have evidence: an extension's runs only of the recipes for which it is due."""
    added = frozen.protocol.extension_runs()
    return {
        documents.slot_for(slot.slot, candidate)
        for slot in frozen.protocol.slots
        if slot.slot not in added or slot.workload in due
    }


def _measured(receipt: documents.Receipt | None) -> list[documents.MeasuredSide]:
    """Return what an attempt that did not complete had measured of each side."""
    return [
        documents.MeasuredSide(
            side=side.side,
            windows=len(side.windows),
            tokens=sum(one.tokens for one in side.windows),
            seconds=math.fsum(one.seconds for one in side.windows),
        )
        for side in (receipt.sides if receipt is not None else ())
        if side.windows
    ]


def _attempts(collection: Collection, owners: Sequence[str], history: acts.History) -> list[dict[str, Any]]:
    names = ("slot", "attempt", "allocation", "node", "device", "ending", "sealed")
    return [
        {
            **{name: record.row.values[name] for name in names},
            "reason": record.reason,
            "segments": [_segment(one) for one in record.segments],
            "ended": record.ended if record.before is not None else None,
            "amendment": history.voided_by(*record.key) or 0,
            "measured": [one.to_json() for one in _measured(collection.receipts_read.get(AttemptKey(*record.key)))],
        }
        for record in sorted(collection.records, key=lambda item: item.key)
        if record.key[0].partition("/")[0] in owners
    ]


def _side(side: documents.Side, name: str, frozen: documents.Entry) -> dict[str, object]:
    return {**side.to_json(), "id": name, "frozen_seq": frozen.seq, "frozen_at": frozen.at}


def _seen(attempts: Sequence[dict[str, Any]], name: str) -> list[str]:
    """Return every text of attempts, and of segments, under a name."""
    each = [one for attempt in attempts for one in (attempt, *attempt["segments"])]
    return sorted({str(one[name]) for one in each if one[name]})


def _told(entries: Iterable[documents.Entry], act: documents.Act) -> list[dict[str, Any]]:
    return [{**entry.data, "seq": entry.seq, "at": entry.at} for entry in entries if entry.act == act]


def build_provenance(
    frozen: Frozen, collection: Collection, candidate: str, chain: Chain, *, due: frozenset[str] = frozenset()
) -> documents.Provenance:
    """Return the provenance of one candidate's evaluation.

    Args:
        frozen: The frozen documents.
        collection: The collection that the evidence was written from.
        candidate: The candidate's id.
        chain: The ledger.
        due: The recipes whose extension the verdict says is due.

    Raises:
        EvidenceError: The ledger does not say when a side was frozen.
    """
    candidates = frozen_candidates(chain.entries)
    if candidate not in candidates:
        raise EvidenceError(f"the ledger does not say that {candidate} was frozen")
    owners = ("baseline", candidate)
    history = acts.fold(chain.entries)
    attempts = _attempts(collection, owners, history)
    starts_by_key = {key: own for key, own in collection.starts_read.items() if key.slot.partition("/")[0] in owners}
    starts = list(starts_by_key.values())
    by_key = {key: own for key, own in collection.receipts_read.items() if key.slot.partition("/")[0] in owners}
    receipts = list(by_key.values())
    planned = {documents.slot_for(slot.slot, candidate): slot.workload for slot in frozen.protocol.slots}
    outcomes = reported_outcomes(chain.entries)
    cut = chain.without_reports()
    fallback = state_of(chain.entries, candidate)
    manifest, theirs = frozen.manifest, frozen.candidates[candidate]
    fields = {
        "format": "provenance/1",
        "campaign": manifest.campaign,
        "manifest_sha256": frozen.manifest_sha256,
        "protocol_sha256": frozen.protocol_sha256,
        "acceptance_sha256": manifest.acceptance_sha256,
        "harness_sha256": manifest.harness_sha256,
        "baseline": _side(manifest.baseline, "baseline", chain.entries[_froze_baseline_seq(chain.entries) - 1]),
        "candidate": _side(theirs.candidate, candidate, chain.entries[candidates[candidate] - 1]),
        "data": {name: data.to_json() for name, data in manifest.data.items()},
        "departures": manifest.departures,
        "left_out": {"baseline": manifest.left_out, "candidate": theirs.left_out},
        "undeclared_families": [family for family in FAMILIES if family not in frozen.protocol.families],
        "attempts": attempts,
        "missing_slots": sorted(
            _wanted(frozen, candidate, due) - {str(one["slot"]) for one in attempts if not one["amendment"]}
        ),
        "power": manifest.power.to_json() if manifest.power is not None else None,
        "cases": [case.to_json() for case in summaries(by_key, planned)],
        "nodes": _seen(attempts, "node"),
        "devices": _seen(attempts, "device"),
        "node_records": [one.to_json() for one in node_summaries(attempts, history, chain.entries)],
        "machines": _machines(starts),
        "conditions": [one.to_json() for one in remarks_of(by_key)],
        "exchanges": [one.to_json() for one in exchanges_of(by_key, planned)],
        "platforms": [one.to_json() for one in platforms_of(collection, chain.entries, history)],
        "frozen_on": {
            "baseline": {"machine": manifest.machine, "driver": manifest.driver},
            "candidate": {"machine": theirs.machine, "driver": theirs.driver},
        },
        "caches": _said(receipts, lambda side: side.caches.to_json() if side.caches else {}),
        "versions": _said(receipts, lambda side: side.versions),
        "ledger": {
            "entries": len(cut.entries),
            "head": cut.head,
            "baseline_sealed_seq": _baseline_sealed_seq(frozen, cut.entries, collection.receipts_read),
        },
        "bundles": [one.to_json() for one in bundle_summaries(chain.entries, history)],
        "shared_boots": [one.to_json() for one in shared_boots(starts_by_key, frozen, candidate, history)],
        "fallback": fallback.to_json() if fallback is not None else None,
        "other_candidates": [
            {"id": name, "frozen_seq": seq, "frozen_at": chain.entries[seq - 1].at, "outcome": outcomes.get(name)}
            for name, seq in candidates.items()
            if name != candidate
        ],
        "amendments": _told(chain.entries, "amended"),
        "decisions": _told(chain.entries, "decided"),
    }
    # Through the strict reader, so that what is written can be read.
    return documents.Provenance.parse(files.dump_json(fields), where="provenance.json")
