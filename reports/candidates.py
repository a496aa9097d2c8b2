"""Which of how many candidates this is: one sentence near the head of a report, so that no try is left untold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.numbers import count, listed

_WORDS = {"pass": "qualified", "not_qualified": "not qualified", None: "not evaluated"}
_NOT_KNOWN = "not known, since its home cannot be read"
_FEWEST_IN_A_ROW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """One candidate that is known against the baseline's snapshot."""

    order: tuple[float, int, int]
    """Time of its freeze; then those of other campaigns before this one's, which go by the ledger's number."""
    said: str
    """What the last report says of it; empty for the one that the page is about."""


def candidates_sentence(provenance: Mapping[str, Any]) -> str:
    """Return which candidate this is of all that are known against its baseline, and what became of the others.

    They are numbered by the time of their freeze: those of this campaign by its ledger, the others by the registry.
    """
    known = sorted((*_own(provenance), *_others(provenance)), key=lambda one: one.order)
    here = next(number for number, one in enumerate(known, start=1) if not one.said)
    head = f"Candidate {count(here)} of {count(len(known))} against this baseline{_limit(provenance)}"
    if len(known) == 1:
        return f"{head}; no other is known."
    numbers: dict[str, list[int]] = {}
    for number, one in enumerate(known, start=1):
        if one.said:
            numbers.setdefault(one.said, []).append(number)
    told = "; ".join(f"{listed(_in_rows(own))}: {said}" for said, own in numbers.items())
    return f"{head}; {told}."


def _own(provenance: Mapping[str, Any]) -> Iterable[_Candidate]:
    """Yield this campaign's candidates. Their order is the ledger's, whatever the clocks said."""
    others = provenance["other_candidates"]
    told = {int(one["frozen_seq"]): (one, _WORDS[one["outcome"]]) for one in others}
    told[int(provenance["candidate"]["frozen_seq"])] = (provenance["candidate"], "")
    at = 0.0
    for seq, (one, said) in sorted(told.items()):
        at = max(at, float(one.get("frozen_at") or 0.0))
        yield _Candidate(order=(at, 1, seq), said=said)


def _others(provenance: Mapping[str, Any]) -> Iterable[_Candidate]:
    """Yield the candidates of other campaigns, in the registry's order."""
    registry = provenance.get("registry")
    for number, one in enumerate(registry["others"] if registry else ()):
        if one["candidate"]:
            said = _WORDS[one["outcome"]] if one["state"] == "read" else _NOT_KNOWN
            yield _Candidate(order=(float(one["at"]), 0, number), said=said)


def _limit(provenance: Mapping[str, Any]) -> str:
    registry = provenance.get("registry")
    if registry is None or registry["problem"]:
        return ", as far as this campaign alone knows"
    return ", as far as the registry can be read" if registry["damaged_lines"] else ""


def _in_rows(numbers: Sequence[int]) -> list[str]:
    """Return ascending numbers as text, three and more in a row as ``1 to 3``."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    texts: list[str] = []
    for row in rows:
        is_long = len(row) >= _FEWEST_IN_A_ROW
        texts += [f"{count(row[0])} to {count(row[-1])}"] if is_long else [count(number) for number in row]
    return texts
