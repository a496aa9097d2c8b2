"""What the ledger says of fallback trials."""

from __future__ import annotations

from collections.abc import Iterable

from campaign import documents, files


def read_acts(entries: Iterable[documents.Entry]) -> list[documents.FallbackTried]:
    """Return what the ledger says of trials, in order.

    Raises:
        EvidenceError: An act does not parse.
    """
    return [
        documents.FallbackTried.parse(files.dump_json(entry.data), where=f"ledger.jsonl:{entry.seq}")
        for entry in entries
        if entry.act == "fallback_tried"
    ]


def state_of(entries: Iterable[documents.Entry], candidate: str) -> documents.FallbackState | None:
    """Return what the last trial of a candidate said; None if there was none.

    Raises:
        EvidenceError: An act does not parse.
    """
    own = [act for act in read_acts(entries) if act.candidate == candidate]
    if not own:
        return None
    last = own[-1]
    return documents.FallbackState(
        number=last.number,
        trials=len(own),
        recipe=last.recipe,
        seed=last.seed,
        node=last.node,
        device=last.device,
        candidate_resumes=last.candidate_resumes,
        baseline_resumes=last.baseline_resumes,
        largest_difference=last.largest_difference,
        reasons=last.reasons,
    )
