"""Whether the extension of a recipe is due: what the verdict of the last report on a candidate says, and nothing else.

Acceptance decides it. Its answer counts as long as verdict.json is the one that the ledger names; without that nothing
is due, since a candidate whose further runs nobody asked for is not qualified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from campaign.documents import Protocol
from campaign.errors import EvidenceError, InfrastructureError
from campaign.files import parse_json, read_if_there, sha256_bytes
from campaign.paths import HomePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The extensions that are due for one candidate."""

    due: frozenset[str] = frozenset()
    """Recipes whose further seeds have to be trained, by both sides."""
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
        return Extension(due=due_recipes(parse_json(data, where=str(path))))
    except (EvidenceError, InfrastructureError) as error:
        return _untold(": ".join(filter(None, [str(path), error.what, error.why])))


def _untold(why: str) -> Extension:
    return Extension(trouble=f"whether an extension is due cannot be told: {why}; next: campaign report")


def due_recipes(verdict: Any) -> frozenset[str]:
    """Return the recipes whose extension a verdict says is due.

    Raises:
        EvidenceError: It is no verdict that acceptance writes.
    """
    try:
        seen = verdict["observations"].get("convergence")
        recipes = [] if seen is None else seen["recipes"]
        return frozenset(str(one["recipe"]) for one in recipes if one["extension"] == "due")
    except (KeyError, TypeError, AttributeError) as error:
        raise EvidenceError("its observations are not those of a verdict", where="verdict.json") from error
