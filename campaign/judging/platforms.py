"""The platforms on which a campaign's completed attempts ran, told apart by the rule of the verifier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from acceptance.formats import Ending
from campaign import documents
from campaign.collection.collect import Collection
from campaign.errors import EvidenceError
from campaign.keys import AttemptKey
from campaign.submission import acts
from campaign.verifier import findings
from campaign.verifier.platform import Fingerprint, fingerprint


@dataclass(slots=True, kw_only=True)
class _Stratum:
    fingerprint: Fingerprint
    first: AttemptKey
    start: documents.Start
    planned_seq: int
    num_attempts: int = 0


def platforms_of(
    collection: Collection, entries: Sequence[documents.Entry], history: acts.History
) -> tuple[documents.Platform, ...]:
    """Return the platforms of all completed attempts that are not void, in the order in which they were used.

    More than one is a fault unless amendments had declared the others before they were used: a campaign with such a
    fault cannot be closed.

    Args:
        collection: Everything that has a receipt.
        entries: The ledger.
        history: What it tells of submissions.

    Raises:
        EvidenceError: A start.json does not say what platform it is about.
    """
    first, receipts = acts.first_intents(entries), collection.receipts_read
    planned = {key: first[one.allocation].seq for key, one in receipts.items()}
    strata: list[_Stratum] = []
    for key in sorted(receipts, key=lambda one: (planned[one], one)):
        is_completed = receipts[key].ending is Ending.COMPLETED
        if is_completed and not history.is_void(key.slot, key.attempt):
            _put(strata, key, collection.starts_read[key], planned[key])
    changes = [seq for seq, one in history.amendments.items() if one.platform]
    return tuple(_platform(stratum, index, changes) for index, stratum in enumerate(strata))


def _put(strata: list[_Stratum], key: AttemptKey, start: documents.Start, planned_seq: int) -> None:
    try:
        # Read from bytes and not changed since: what a reader of these sees needs no check.
        found = fingerprint(json.loads(msgspec.json.encode(start)), f"start.json of {key.text}")
    except findings.EvidenceError as error:
        raise EvidenceError(error.what, where=error.where, hint="campaign verify") from error
    own = next((one for one in strata if not one.fingerprint.difference(found)), None)
    if own is None:
        own = _Stratum(fingerprint=found, first=key, start=start, planned_seq=planned_seq)
        strata.append(own)
    own.num_attempts += 1


def _platform(stratum: _Stratum, index: int, changes: Sequence[int]) -> documents.Platform:
    host, start = stratum.start.host, stratum.start
    kinds = sorted((str(one["kind"]), str(one["name"]), str(one["driver"])) for one in start.devices)
    return documents.Platform(
        cpu=host.cpu,
        machine=host.machine,
        kernel=host.kernel,
        memory_bytes=host.memory_bytes,
        processors=len(host.affinity),
        threads=start.threads,
        devices=tuple(documents.PlatformDevice(kind=kind, name=name, driver=driver) for kind, name, driver in kinds),
        attempts=stratum.num_attempts,
        first=stratum.first.receipt_name,
        is_declared=index <= sum(seq < stratum.planned_seq for seq in changes),
    )
