"""Short ways to a campaign of numerical cases alone, and to the parts of its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign.documents import NumericalRules, Slot
from tests.support.evidence import Campaign, Rows, make_campaign

WORKLOAD = "w"


def make_cases(folder: Path, *names: str, workers: int = 2, **rules: Any) -> Campaign:
    """Make a campaign that declares the numerical family alone.

    Args:
        folder: Where to write it.
        names: The workloads; default `WORKLOAD` alone.
        workers: How many workers each case has.
        rules: Fields of `NumericalRules` that differ from the default.
    """
    production = dict.fromkeys(names or (WORKLOAD,), ("1",) * 3)
    numerical = NumericalRules(**rules)
    return make_campaign(
        folder, ratios={}, production=production, families=("numerical",), numerical=numerical, workers=workers
    )


def rows_of(campaign: Campaign, quantity: str, comparison: str = "candidate", **wanted: object) -> Rows:
    """Return the rows of one quantity of the first workload's case."""
    name = campaign.protocol.workloads[0].name
    found = campaign.rows("numerical.csv", workload=name, comparison=comparison, quantity=quantity, **wanted)
    assert found
    return found


def put(campaign: Campaign, quantity: str, fields: Mapping[str, str], comparison: str = "candidate") -> None:
    """Put fields into one row of a quantity, neither the first nor the last one."""
    rows = rows_of(campaign, quantity, comparison)
    rows[len(rows) // 2].update(fields)


def gates_of(campaign: Campaign) -> dict[str, dict[str, Any]]:
    """Return the gates of what the campaign holds, by id without the family's name."""
    gates = campaign.write().verdict()["gates"]
    return {gate["id"].removeprefix("numerical/"): gate for gate in gates}


def findings_of(campaign: Campaign) -> dict[str, str]:
    """Return the findings of the first workload's gates, by quantity."""
    prefix = f"{campaign.protocol.workloads[0].name}/"
    return {name.removeprefix(prefix): gate["finding"] for name, gate in gates_of(campaign).items() if prefix in name}


def observed(campaign: Campaign) -> dict[str, Any]:
    """Return what is observed of the family."""
    verdict = campaign.write().verdict()
    assert "error" not in verdict["observations"]
    found: dict[str, Any] = verdict["observations"]["numerical"]
    return found


def slot_of(campaign: Campaign, kind: str) -> Slot:
    """Return the first workload's slot of a kind."""
    return next(slot for slot in campaign.protocol.slots if slot.kind == kind)
