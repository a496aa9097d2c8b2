"""Whether the extension of a recipe is due: what the verdict of the last report on a candidate says, and nothing else.

Acceptance decides it. Its answer counts as long as verdict.json is the one that the ledger names; without that nothing
is due, since a candidate whose further runs nobody asked for is not qualified.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from campaign.documents import Protocol
from campaign.errors import EvidenceError, InfrastructureError
from campaign.files import parse_json, read_if_there, sha256_bytes
from campaign.paths import HomePaths
from campaign.watching.state import SlotState, SlotStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The extensions that are due for one candidate."""

    due: frozenset[str] = frozenset()
    """Recipes whose further seeds have to be trained, by both sides."""
    judged: frozenset[str] = frozenset()
    """Recipes of which the verdict says whether it is due."""
    trouble: str = ""
    """Why it cannot be told; empty if it can, or if there was no report yet."""


def read_extension(paths: HomePaths, protocol: Protocol, candidate: str, reported: Mapping[str, str]) -> Extension:
    """Read which extensions are due for a candidate.

    Args:
        paths: The home.
        protocol: The frozen protocol.
        candidate: Id of the candidate; empty for none.
        reported: SHA-256 of the verdict that the ledger's last report on each candidate names.
    """
    if candidate not in reported or not protocol.extension_runs():
        return Extension()
    path = paths.evaluation(candidate).verdict
    try:
        data = read_if_there(path)
        if data is None:
            return _untold(f"{path} is not there")
        if sha256_bytes(data) != reported[candidate]:
            return _untold(f"{path} is not the verdict that the ledger's last report names")
        return parse_extension(parse_json(data, where=str(path)))
    except (EvidenceError, InfrastructureError) as error:
        return _untold(": ".join(filter(None, [str(path), error.what, error.why])))


def _untold(why: str) -> Extension:
    return Extension(trouble=f"whether an extension is due cannot be told: {why}; next: campaign report")


def parse_extension(verdict: Any) -> Extension:
    """Return which extensions a verdict says are due.

    Raises:
        EvidenceError: It is no verdict that acceptance writes.
    """
    try:
        seen = verdict["observations"].get("convergence")
        recipes = [] if seen is None else seen["recipes"]
        states = {str(one["recipe"]): one["extension"] for one in recipes}
    except (KeyError, TypeError, AttributeError) as error:
        raise EvidenceError("its observations are not those of a verdict", where="verdict.json") from error
    return Extension(
        due=frozenset(name for name, state in states.items() if state == "due"),
        judged=frozenset(name for name, state in states.items() if state in ("due", "not_due")),
    )


def _runs_of(slots: Mapping[str, SlotStatus], recipe: str) -> list[SlotStatus]:
    return [one for one in slots.values() if one.slot.kind == "run" and one.slot.workload == recipe]


def _is_complete(runs: Collection[SlotStatus], num_seeds: int) -> bool:
    """Return whether the runs of both sides are complete."""
    return len(runs) == 2 * num_seeds and all(one.state is SlotState.COMPLETED for one in runs)


def sentences(protocol: Protocol, extension: Extension, slots: Mapping[str, SlotStatus]) -> list[str]:
    """Say what a person should know of the extensions.

    Args:
        protocol: The frozen protocol.
        extension: Which are due.
        slots: The state of the slots of the baseline and of one candidate.
    """
    rules = protocol.convergence
    if rules is None or rules.extension is None:
        return []
    said = [extension.trouble] if extension.trouble else []
    added = protocol.extension_runs()
    open_recipes = []
    for recipe in rules.recipes:
        further = [one for one in _runs_of(slots, recipe.name) if one.slot.slot in added]
        first = [one for one in _runs_of(slots, recipe.name) if one.slot.slot not in added]
        left = [one for one in further if one.state is not SlotState.COMPLETED]
        if recipe.name in extension.due and left:
            seeds = ", ".join(str(seed) for seed in rules.extension.seeds)
            said.append(
                f"the first look at {recipe.name} is inconclusive, so that its extension is due: it adds "
                f"{len(further)} runs (seeds {seeds} on both sides), {len(left)} of them not complete"
            )
        elif recipe.name not in extension.judged and _is_complete(first, len(rules.seeds)):
            open_recipes.append(recipe.name)
    if open_recipes and not extension.trouble:
        said.append(f"campaign report tells whether the extension is due of: {', '.join(open_recipes)}")
    return said
