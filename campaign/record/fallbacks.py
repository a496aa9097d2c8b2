"""What the ledger says of fallback trials."""

from __future__ import annotations

from collections.abc import Iterable

from campaign import documents


def read_acts(entries: Iterable[documents.Entry], candidate: str) -> list[tuple[int, float, documents.FallbackTried]]:
    """Return number, time and data of every act about a candidate's trials, in order.

    Raises:
        EvidenceError: An act does not parse.
    """
    acts = [
        (entry.seq, entry.at, entry.parse_data(documents.FallbackTried))
        for entry in entries
        if entry.act == "fallback_tried"
    ]
    return [(seq, at, act) for seq, at, act in acts if act.candidate == candidate]


def state_of(entries: Iterable[documents.Entry], candidate: str) -> documents.FallbackState | None:
    """Return what the last trial of a candidate said; None if there was none.

    Raises:
        EvidenceError: An act does not parse.
    """
    acts = read_acts(entries, candidate)
    if not acts:
        return None
    seq, at, last = acts[-1]
    return documents.FallbackState(
        seq=seq,
        at=at,
        number=last.number,
        trials=len(acts),
        recipe=last.recipe,
        seed=last.seed,
        node=last.node,
        device=last.device,
        candidate_resumes=last.candidate_resumes,
        baseline_resumes=last.baseline_resumes,
        largest_difference=last.largest_difference,
        reasons=last.reasons,
    )
