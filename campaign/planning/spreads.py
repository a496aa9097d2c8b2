"""The spreads that an earlier home found, from the verdicts of its candidates: what a plan can assume."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from campaign import files
from campaign.errors import EvidenceError
from campaign.paths import HomePaths

_LARGEST = 1e300
"""Above it a spread is no number to plan with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A standard deviation that was found."""

    sd: float
    degrees: int
    """Degrees of freedom behind it."""
    origin: str
    """What it was found of, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """What the evaluations of one home show."""

    home: str
    recipes: Mapping[str, Spread]
    """SD of the paired differences of final losses, by recipe."""
    pooled: Spread | None
    """The same of all recipes together, for a recipe that is not among them."""
    targets: Mapping[str, int]
    """Targets of one training, by recipe."""
    categories: Mapping[str, Spread]
    """SD of the logarithm of a pair's ratio, by category."""
    production: Spread | None
    """The same of the production workloads, each about its own mean."""
    controls: Spread | None
    """The same of the baseline against itself."""
    notes: tuple[str, ...]
    """What is not there, or cannot be planned with."""

    def of_recipe(self, recipe: str) -> Spread | None:
        """Return the recipe's own spread, else the pooled one, if there is any."""
        return self.recipes.get(recipe, self.pooled)

    def of_category(self, name: str) -> Spread | None:
        """Return the spread of a category's gate; else that of the controls."""
        return self.categories.get(name, self.controls)

    def of_production(self) -> Spread | None:
        """Return the spread of the gates of the production workloads; else that of the controls."""
        return self.production if self.production is not None else self.controls


# --- what is read of a verdict ----------------------------------------------------------------------------------------


class _Subject(msgspec.Struct, frozen=True):
    kind: Literal["category", "production", "control"]
    subject: str
    pairs: int
    sd_log_ratio_ddof1: float | None


class _Recipe(msgspec.Struct, frozen=True):
    recipe: str
    targets: int
    seeds: tuple[int, ...]
    sd_difference_ddof1: float | None


class _Convergence(msgspec.Struct, frozen=True):
    recipes: tuple[_Recipe, ...]


class _Observations(msgspec.Struct, frozen=True):
    throughput: tuple[_Subject, ...] = ()
    convergence: _Convergence | None = None


class _Verdict(msgspec.Struct, frozen=True):
    format: Literal["verdict/1"]
    observations: _Observations


def read_spreads(home: HomePaths) -> Spreads:
    """Read the spreads that the verdicts of a home show.

    Raises:
        EvidenceError: A verdict is not one.
    """
    return collect_spreads(str(home.root), {name: _read_verdict(home, name) for name in _evaluated(home)})


def _evaluated(home: HomePaths) -> list[str]:
    folder = home.evaluations
    found = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(name for name in found if home.evaluation(name).verdict.is_file())


def _read_verdict(home: HomePaths, name: str) -> _Observations:
    path = home.evaluation(name).verdict
    value = files.parse_json(files.read_regular(path), where=str(path))
    try:
        return msgspec.convert(value, _Verdict, strict=True).observations
    except msgspec.ValidationError as error:
        raise EvidenceError(f"not a verdict: {error}", where=str(path)) from error


# --- putting them together --------------------------------------------------------------------------------------------


def collect_spreads(home: str, verdicts: Mapping[str, _Observations]) -> Spreads:
    """Put the spreads of several candidates together.

    Pairs of different candidates are independent, so that their degrees of freedom add up. Runs are not: every
    candidate is compared with the same runs of the baseline, so that of a recipe the most degrees of any one candidate
    count. The controls are the same in every verdict.

    Args:
        home: The home, in words.
        verdicts: The observations by candidate.
    """
    subjects = [one for seen in verdicts.values() for one in seen.throughput]
    looks = [one for seen in verdicts.values() if seen.convergence is not None for one in seen.convergence.recipes]
    recipes = {name: _of_recipe([one for one in looks if one.recipe == name]) for name in _names(looks)}
    found = {name: spread for name, spread in recipes.items() if spread is not None}
    categories = {
        one.subject: _of_pairs(subjects, "category", one.subject) for one in subjects if one.kind == "category"
    }
    return Spreads(
        home=home,
        recipes=found,
        pooled=_pool(list(found.values()), f"all {len(found)} recipes there, pooled"),
        targets={one.recipe: one.targets for one in looks},
        categories={name: spread for name, spread in categories.items() if spread is not None},
        production=_of_pairs(subjects, "production"),
        controls=_of_controls(subjects),
        notes=tuple(_notes(home, verdicts, sorted(set(recipes) - set(found)))),
    )


def _names(looks: Iterable[_Recipe]) -> list[str]:
    return list(dict.fromkeys(one.recipe for one in looks))


def _of_recipe(looks: Sequence[_Recipe]) -> Spread | None:
    """Return the spread of one recipe, from the looks that count at it; None if none has one."""
    usable = [(one.sd_difference_ddof1, len(one.seeds) - 1) for one in looks]
    known = [(sd, degrees) for sd, degrees in usable if sd is not None and _is_usable(sd, degrees)]
    if not known:
        return None
    degrees = max(degrees for _, degrees in known)
    text = f"{degrees + 1} seeds" + (f" of {len(known)} candidates each" if len(known) > 1 else "")
    return Spread(sd=_pooled_sd(known), degrees=degrees, origin=text)


def _of_pairs(subjects: Iterable[_Subject], kind: str, name: str = "") -> Spread | None:
    """Return the spread of the pairs of a kind of subject: of the one with a name, or each about its own mean."""
    chosen = [one for one in subjects if one.kind == kind and name in ("", one.subject)]
    known = [
        (one.sd_log_ratio_ddof1, one.pairs - 1)
        for one in chosen
        if one.sd_log_ratio_ddof1 is not None and _is_usable(one.sd_log_ratio_ddof1, one.pairs - 1)
    ]
    if not known:
        return None
    degrees = sum(degrees for _, degrees in known)
    return Spread(sd=_pooled_sd(known), degrees=degrees, origin=f"{degrees + len(known)} {kind} pairs")


def _of_controls(subjects: Iterable[_Subject]) -> Spread | None:
    """Return the spread of the controls; of each workload's, which every verdict repeats, the one with most pairs."""
    best: dict[str, _Subject] = {}
    for one in subjects:
        if one.kind == "control" and (one.subject not in best or one.pairs > best[one.subject].pairs):
            best[one.subject] = one
    return _of_pairs(best.values(), "control")


def _is_usable(sd: float, degrees: int) -> bool:
    return degrees >= 1 and 0 < sd < _LARGEST


def _pooled_sd(known: Sequence[tuple[float, int]]) -> float:
    """Return sqrt(sum degrees sd^2 / sum degrees)."""
    return math.sqrt(math.fsum(degrees * sd**2 for sd, degrees in known) / sum(degrees for _, degrees in known))


def _pool(spreads: Sequence[Spread], origin: str) -> Spread | None:
    if not spreads:
        return None
    known = [(one.sd, one.degrees) for one in spreads]
    return Spread(sd=_pooled_sd(known), degrees=sum(degrees for _, degrees in known), origin=origin)


def _notes(home: str, verdicts: Mapping[str, _Observations], unusable: Iterable[str]) -> Iterable[str]:
    """Say what a home does not show."""
    if not verdicts:
        yield f"{home}: no candidate was evaluated there, so that it has no spread of anything; next: campaign report"
        return
    if not any(seen.convergence is not None and seen.convergence.recipes for seen in verdicts.values()):
        yield f"{home}: no verdict there has convergence observations, so that no SD of a recipe is known from it"
    for name in unusable:
        yield (
            f"{home}: recipe {name} has no SD to plan with: a seed is missing, or all differences are equal, which "
            "says nothing about others"
        )
    if not any(one.sd_log_ratio_ddof1 for seen in verdicts.values() for one in seen.throughput):
        yield f"{home}: no verdict there has two pairs of anything, so that no spread of ratios is known from it"
