"""Bundles: what was taken to machines that the driver does not reach, what came back of it, and what never did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.numbers import count
from reports.times import date
from reports.view import Cell, Table, code, columns, number, text

_NUMERIC = ("Attempts", "Came back")


def bundle_table(provenance: Mapping[str, Any]) -> Table | None:
    """Return every bundle; None where none was ever written."""
    bundles = provenance.get("bundles") or ()
    if not bundles:
        return None
    return Table(
        name="bundles",
        caption="Bundles: attempts that were made where the driver does not reach, and what came back of them",
        columns=columns("Bundle", "Written", *_NUMERIC, "Ingested by", "State", "Left there", numeric=_NUMERIC),
        rows=tuple(
            (
                Cell(text=one["id"], note=one["place"], code=True),
                Cell(text=date(one["at"]), note=f"ledger entry {one['seq']}"),
                number(count(one["attempts"]), one["attempts"]),
                number(count(one["returned"]), one["returned"]),
                text(", ".join(f"entry {seq}" for seq in one["ingested_seqs"]) or "none"),
                _state(one),
                text(_left(one)),
            )
            for one in bundles
        ),
        empty="",
        file="provenance.json",
    )


def _state(one: Mapping[str, Any]) -> Cell:
    never = "" if one["ingested_seqs"] else ", never ingested: nobody knows what was made of it"
    if one["abandoned_seq"]:
        return Cell(text=f"abandoned (entry {one['abandoned_seq']}){never}", note=one["abandoned"])
    if never:
        return text(f"away{never}")
    return text("complete" if one["complete"] else "in part away")


def _left(one: Mapping[str, Any]) -> str:
    if not one["left"]:
        return "nothing"
    return f"{count(one['left'])} files, {count(one['left_bytes'])} bytes: digests alone are known"


def boot_table(provenance: Mapping[str, Any]) -> Table | None:
    """Return the workloads measured in several repeats on one boot; None where none was."""
    shared = provenance.get("shared_boots") or ()
    if not shared:
        return None
    return Table(
        name="shared_boots",
        caption="Repeats in detached allocations that were not obtained afresh: one boot of one machine; gates nothing",
        columns=columns("Workload", "Kind", "Node", "Repeats"),
        rows=tuple(
            (
                code(one["workload"]),
                text(one["kind"].replace("_", " ")),
                code(one["node"]),
                text(", ".join(map(str, one["repeats"]))),
            )
            for one in shared
        ),
        empty="",
    )
