"""What is known of falling back to the baseline: does each side resume the other's checkpoint?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.numbers import plural
from reports.times import date

LAST_BASELINE = "from the last baseline checkpoint only"
"""What holds unless a trial showed more."""


def sentence(provenance: Mapping[str, Any]) -> str:
    """Return what a page says of the fallback, in one sentence or two."""
    state = provenance.get("fallback")  # evidence of before there were trials has none
    if state is None:
        return f"Fallback: {LAST_BASELINE}; whether a side resumes the other's checkpoint was never tried."
    reasons = " ".join(_sentence(reason) for reason in state["reasons"])
    return " ".join(filter(None, [f"Fallback: {_finding(state)} ({_circumstances(state)}).", reasons]))


def _finding(state: Mapping[str, Any]) -> str:
    baseline, candidate = state["baseline_resumes"], state["candidate_resumes"]
    if baseline and candidate:
        return "each side resumes the other's checkpoint"
    if baseline:
        return "only the baseline resumes the candidate's checkpoint, not the candidate the baseline's"
    if candidate:
        return f"{LAST_BASELINE}: only the candidate resumes the baseline's checkpoint"
    return f"{LAST_BASELINE}: neither side resumes the other's checkpoint"


def _circumstances(state: Mapping[str, Any]) -> str:
    difference = state["largest_difference"]
    return "; ".join(
        filter(
            None,
            [
                f"tried on {date(state['at'])} on {state['node']}, {state['device']}",
                f"recipe {state['recipe']}, seed {state['seed']}",
                "" if difference is None else f"largest difference of two losses {difference:.3g}",
                "" if state["trials"] == 1 else f"the last of {plural(state['trials'], 'trial')}",
                f"ledger entry {state['seq']}",
            ],
        )
    )


def _sentence(reason: str) -> str:
    text = reason.strip()
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")
