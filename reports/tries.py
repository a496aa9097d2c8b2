"""What else was tried against the same baseline, and how often chance alone could have passed something by now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from reports.numbers import ABSENT, count, plural
from reports.times import date
from reports.training_tables import percent
from reports.trainings import Family, Recipe
from reports.view import Cell, Table, code, columns, number, text

LEVEL = Decimal("0.05")
"""Nominal chance that a gate passes a candidate whose true difference is exactly the margin."""
_CHANCE = (
    "A candidate whose true difference is exactly the margin passes a recipe by chance with a nominal probability of "
    "5%. If k such candidates are judged independently, at least one of them passes with 1 - (1 - 0.05)^k. Counted in "
    "k are this candidate, every other one with a verdict on the same recipe (by name or configuration) against the "
    "same baseline snapshot, and those whose homes cannot be read, as if judged."
)
_MOST_OPEN = 20
_DIGITS = 12
_STATES = {
    "read": "",
    "unreadable": "the home cannot be read",
    "replaced": "the folder holds another campaign now",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How many candidates a recipe has judged, this one included."""

    here: int
    """Of this home, with a verdict."""
    elsewhere: int
    """Of other homes that can be read, with a verdict on the recipe."""
    unknown: int
    """Of homes that cannot be read, taken as judged."""

    @property
    def total(self) -> int:
        """Return k."""
        return self.here + self.elsewhere + self.unknown

    @property
    def chance(self) -> Decimal:
        """Return 1 - (1 - 0.05)^k."""
        return 1 - (1 - LEVEL) ** self.total


def registry_of(provenance: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what the registry knew; None in provenance that was written before there was one."""
    found: Mapping[str, Any] | None = provenance.get("registry")
    return found


def _others(provenance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    registry = registry_of(provenance)
    return list(registry["others"]) if registry else []


def tries_of(recipe: Recipe, provenance: Mapping[str, Any]) -> Tries:
    """Count the candidates that a recipe has judged.

    Args:
        recipe: The recipe; that of another campaign is the same if its name or its configuration is.
        provenance: The provenance document.
    """
    judged = [other for other in provenance["other_candidates"] if other["outcome"] is not None]
    others = [other for other in _others(provenance) if other["candidate"]]
    elsewhere = [
        other
        for other in others
        if other["outcome"] is not None
        and any(own["name"] == recipe.name or own["config_sha256"] == recipe.config_sha256 for own in other["recipes"])
    ]
    unknown = [other for other in others if other["state"] != "read"]
    return Tries(here=1 + len(judged), elsewhere=len(elsewhere), unknown=len(unknown))


def chance_table(family: Family) -> Table:
    """Return the cumulative nominal chance of a false pass, by recipe."""
    numeric = ("Judged in this home", "Judged elsewhere", "Not known", "k", "Nominal chance")
    rows = []
    for recipe in family.recipes:
        found = tries_of(recipe, family.provenance)
        counts = (found.here, found.elsewhere, found.unknown, found.total)
        rows.append(
            (
                code(recipe.name),
                *(number(count(value), value) for value in counts),
                number(percent(found.chance), found.chance),
            )
        )
    return Table(
        name="convergence-chance",
        caption="Cumulative nominal chance of a false pass, 1 - (1 - 0.05)^k, over the k candidates judged",
        columns=columns("Recipe", *numeric, numeric=numeric),
        rows=tuple(rows),
        file="provenance.json",
    )


def chance_sentences(family: Family) -> tuple[str, ...]:
    """Return what the chance is, and what it leaves out."""
    limits = (
        "It is nominal, and to be read as an upper bound for what is listed: candidates share the baseline's runs and "
        "most are not at the margin, and a pass needs every recipe. It knows of no try beyond this home's ledger and "
        "the registry, and decides nothing."
    )
    return _CHANCE, f"{limits} {registry_sentence(family.provenance)}"


def registry_sentence(provenance: Mapping[str, Any]) -> str:
    """Return what the registry of freezes said."""
    registry = registry_of(provenance)
    if registry is None:
        return "There was no registry of freezes when this was written: only this home's candidates are known."
    if registry["problem"]:
        return f"The registry of freezes was not read; only this home's candidates are known: {registry['problem']}."
    num_others = sum(bool(other["candidate"]) for other in registry["others"])
    said = f"The registry of freezes knows {plural(num_others, 'other candidate')} of other campaigns."
    if damaged := registry["damaged_lines"]:
        said += f" {plural(damaged, 'line')} of it cannot be read and may hide more."
    return said


def registry_table(provenance: Mapping[str, Any]) -> Table:
    """Return every other campaign and candidate that the registry knows against the same baseline snapshot."""
    others = _others(provenance)
    return Table(
        name="registry",
        caption="Other campaigns against the same baseline snapshot, from the registry of freezes",
        columns=columns("Candidate", "Campaign", "Frozen", "Outcome", "Protocol", "Home"),
        rows=tuple(_row(other) for other in others),
        empty=registry_sentence(provenance),
        long=len(others) > _MOST_OPEN,
        file="provenance.json",
    )


def _row(other: Mapping[str, Any]) -> tuple[Cell, ...]:
    state = _STATES[other["state"]]
    outcome = "not known" if state else (other["outcome"] or "not evaluated").replace("_", " ")
    return (
        code(other["candidate"]) if other["candidate"] else text("none frozen yet"),
        text(other["campaign"]),
        text(date(other["at"])),
        Cell(text=outcome if other["candidate"] else ABSENT, note=state),
        code(other["protocol_sha256"][:_DIGITS]),
        code(other["home"]),
    )
