"""What people decided, beside the verdict that it never alters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reports.numbers import count
from reports.source import Source
from reports.times import date
from reports.view import Cell, Decisions, Table, columns, number, text


def section(source: Source) -> Decisions | None:
    """Return what a page says of the decisions; None where nothing was decided."""
    decisions: Sequence[Mapping[str, Any]] = source.provenance.get("decisions", ())
    if not decisions:
        return None
    verdict_sha256 = hashlib.sha256(source.verdict_bytes).hexdigest()
    return Decisions(sentences=tuple(_sentences(source, decisions, verdict_sha256)), acts=_table(source, decisions))


def _sentences(source: Source, decisions: Sequence[Mapping[str, Any]], verdict_sha256: str) -> Iterator[str]:
    defaults = [one for one in decisions if one["kind"] == "default"]
    if defaults:
        last = defaults[-1]
        yield f"The default is the {_side(source, last)}: {_told(last)} {_verdict_then(source, last, verdict_sha256)}"
    candidate = source.identity["candidate"]
    asked = [one for one in decisions if one["kind"] == "retire" and one["candidate"] == candidate]
    if asked:
        last = asked[-1]
        if last["refused"]:
            yield f"Retiring the baseline was asked for and refused: {_told(last)} Refused because {last['why']}."
        else:
            yield f"The baseline was retired: {_told(last)} {_verdict_then(source, last, verdict_sha256)}"


def _side(source: Source, decision: Mapping[str, Any]) -> str:
    if decision["side"] == "baseline":
        return "baseline"
    is_own = decision["candidate"] == source.identity["candidate"]
    return "candidate" if is_own else f"candidate {decision['candidate']}, which this report is not about"


def _told(decision: Mapping[str, Any]) -> str:
    reason = str(decision["reason"]).rstrip(".")
    return f"{decision['by']}, {date(decision['at'])} (ledger entry {count(decision['seq'])}): {reason}."


def _verdict_then(source: Source, decision: Mapping[str, Any], verdict_sha256: str) -> str:
    if decision["candidate"] != source.identity["candidate"]:
        return ""
    if not decision["outcome"]:
        return "There was no verdict then."
    outcome = str(decision["outcome"]).replace("_", " ")
    if decision["verdict_sha256"] == verdict_sha256:
        return f"It was taken in view of this verdict ({outcome}), and alters nothing of it."
    return f"It was taken in view of another verdict than this one: {outcome}."


def _table(source: Source, decisions: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        name="decisions",
        caption="Decisions",
        columns=columns(
            "Ledger entry", "When", "Decision", "Result", "By", "Reason", "Verdict then", numeric=("Ledger entry",)
        ),
        rows=tuple(_row(source, one) for one in decisions),
        file="provenance.json",
    )


def _row(source: Source, decision: Mapping[str, Any]) -> tuple[Cell, ...]:
    about = decision["candidate"]
    asked = f"default: {decision['side']}" if decision["kind"] == "default" else "retire the baseline"
    is_own = about in ("", source.identity["candidate"])
    outcome = str(decision["outcome"] or "none").replace("_", " ")
    return (
        number(count(decision["seq"]), decision["seq"]),
        text(date(decision["at"])),
        Cell(text=asked, note="" if is_own else f"about candidate {about}"),
        Cell(text="refused" if decision["refused"] else "recorded", note=decision["why"]),
        text(decision["by"]),
        text(decision["reason"]),
        text(outcome),
    )
