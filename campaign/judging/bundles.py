"""What became of every bundle, and what was measured again on a machine that was not obtained afresh. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from campaign import documents
from campaign.frozen import Frozen
from campaign.keys import AttemptKey
from campaign.submission import acts


def bundle_summaries(entries: Iterable[documents.Entry], history: acts.History) -> list[documents.BundleSummary]:
    """Return every bundle that was written, oldest first: also one that never came back, or was given up.

    Args:
        entries: The ledger.
        history: What it says.
    """
    ingested: dict[str, list[int]] = {}
    cancelled: dict[str, documents.Entry] = {}
    written: dict[str, documents.Entry] = {}
    for entry in entries:
        if entry.act == "ingested":
            ingested.setdefault(str(entry.data["submission"]), []).append(entry.seq)
        elif entry.act == "submitted" and entry.data["cluster"] == "detached":
            written[str(entry.data["submission"])] = entry
        elif entry.act == "cancelled":
            for name in entry.data["allocations"]:
                cancelled.setdefault(str(name), entry)
    return [
        _summary(history, history.submissions[key], entry, ingested.get(key, []), cancelled)
        for key, entry in written.items()
    ]


def _summary(
    history: acts.History,
    submission: acts.Submission,
    written: documents.Entry,
    ingested: list[int],
    cancelled: Mapping[str, documents.Entry],
) -> documents.BundleSummary:
    back = history.ingested.get(submission.key)
    data = written.parse_data(acts.Submitted)
    planned = submission.intent.allocations
    given_up = [cancelled[one.allocation] for one in planned if one.allocation in cancelled]
    return documents.BundleSummary(
        id=data.job,
        seq=written.seq,
        at=written.at,
        place=f"{data.host}:{data.place}" if data.place else data.host,
        allocations=len(planned),
        attempts=sum(len(one.attempts) for one in planned),
        returned=len(back.receipts) + len(back.begun) if back is not None else 0,
        ingested_seqs=tuple(ingested),
        complete=back is not None and back.complete,
        abandoned_seq=given_up[0].seq if given_up else 0,
        abandoned=str(given_up[0].data["reason"]) if given_up else "",
        left=len(back.left) if back is not None else 0,
        left_bytes=sum(num_bytes for _, num_bytes in back.left.values()) if back is not None else 0,
    )


def shared_boots(
    starts: Mapping[AttemptKey, documents.Start], frozen: Frozen, candidate: str, history: acts.History
) -> list[documents.SharedBoot]:
    """Return the workloads of which several repeats were measured on one boot, in detached allocations.

    A scheduler obtains each allocation afresh; here whoever gave the commands did, or did not.

    Args:
        starts: The start records of the attempts.
        frozen: The frozen documents.
        candidate: The candidate's id; empty for the baseline alone.
        history: What the ledger says.
    """
    slots = {documents.slot_for(one.slot, candidate): one for one in frozen.protocol.slots if one.repeat}
    found: dict[tuple[str, documents.AttemptKind, str, str], set[int]] = {}
    for key, start in _detached(starts, history):
        slot = slots.get(key.slot)
        if slot is not None:
            where = (slot.workload, slot.kind, start.host.node, start.host.boot_id)
            found.setdefault(where, set()).add(slot.repeat)
    return [
        documents.SharedBoot(workload=workload, kind=kind, node=node, repeats=tuple(sorted(repeats)))
        for (workload, kind, node, _), repeats in sorted(found.items())
        if len(repeats) > 1
    ]


def _detached(
    starts: Mapping[AttemptKey, documents.Start], history: acts.History
) -> Iterator[tuple[AttemptKey, documents.Start]]:
    for key, start in starts.items():
        if history.is_detached(history.attempt(key).allocation):
            yield key, start
