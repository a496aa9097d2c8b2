"""What the verdict and the evidence say of the trainings: gates by recipe, losses by seed, curves, and their cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from acceptance.formats import RUN_SIDES, Row
from reports.status import Mark
from reports.verdict import Gate, Number

# --- observations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The final losses of one seed."""

    seed: int
    baseline: Decimal | int
    candidate: Decimal | int
    difference: Decimal | int
    segments: Mapping[str, int]
    train_s: Mapping[str, Decimal | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What one look at some seeds gives; every number is None where a seed is not there."""

    quantile: Number = None
    mean_difference: Number = None
    sd_difference_ddof1: Number = None
    lower: Number = None
    upper: Number = None
    largest_difference: Number = None
    finding: str = ""
    """Of a first look beside a second one; empty of the look that counts, whose gate says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a side needed to reach a quality."""

    targets: Decimal | int
    seconds: Decimal | int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOfSeed:
    """What both sides needed to reach a quality with one seed; None: never reached."""

    seed: int
    quality: Decimal | int
    baseline: Need | None
    candidate: Need | None

    def of(self, side: str) -> Need | None:
        """Return what a side needed."""
        return self.baseline if side == "baseline" else self.candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one kind of quality cost; the ratios are of the sums over the seeds in which both sides reached it."""

    at_margin: bool
    """Whether the quality is the baseline's final loss plus the margin; else it is that loss itself."""
    seeds: tuple[CostOfSeed, ...]
    targets_ratio: Number
    seconds_ratio: Number

    @property
    def reached(self) -> tuple[CostOfSeed, ...]:
        """Return the seeds in which both sides reached it."""
        return tuple(own for own in self.seeds if own.baseline is not None and own.candidate is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was observed of one recipe."""

    seeds: tuple[int, ...]
    """Of the look that counts."""
    look: int
    extension: str
    differences: tuple[Difference, ...]
    statistics: Statistics
    first_look: Statistics | None
    baseline_mean: Number
    candidate_mean: Number
    correlation: Number
    costs: tuple[Cost, ...]
    """The one to read first comes first."""


_STATISTICS = ("quantile", "mean_difference", "sd_difference_ddof1", "lower", "upper", "largest_difference")


def _statistics(value: Mapping[str, Any]) -> Statistics:
    return Statistics(**{name: value[name] for name in _STATISTICS}, finding=value.get("finding", ""))


def _need(value: Mapping[str, Any] | None) -> Need | None:
    return None if value is None else Need(targets=value["targets"], seconds=value["seconds"])


def _cost_of_seed(value: Mapping[str, Any]) -> CostOfSeed:
    sides = {side: _need(value[side]) for side in RUN_SIDES}
    return CostOfSeed(seed=value["seed"], quality=value["quality"], **sides)


def _cost(value: Mapping[str, Any], *, at_margin: bool) -> Cost:
    return Cost(
        at_margin=at_margin,
        seeds=tuple(map(_cost_of_seed, value["seeds"])),
        targets_ratio=value["reached"]["targets_ratio"],
        seconds_ratio=value["reached"]["seconds_ratio"],
    )


def _seen(value: Mapping[str, Any]) -> Seen:
    plain = ("look", "extension", "baseline_mean", "candidate_mean", "correlation")
    return Seen(
        **{name: value[name] for name in plain},
        seeds=tuple(value["seeds"]),
        differences=tuple(
            Difference(**{name: own[name] for name in Difference.__dataclass_fields__}) for own in value["differences"]
        ),
        statistics=_statistics(value),
        first_look=None if value["first_look"] is None else _statistics(value["first_look"]),
        costs=(_cost(value["cost_at_margin"], at_margin=True), _cost(value["cost"], at_margin=False)),
    )


def parse_seen(verdict: Mapping[str, Any]) -> dict[str, Seen]:
    """Return what the verdict observes of each recipe; nothing where it could not be computed."""
    found = verdict.get("observations", {}).get("convergence")
    return {} if found is None else {value["recipe"]: _seen(value) for value in found["recipes"]}


# --- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One evaluation during a run."""

    update: int
    targets: int
    loss: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The attempt at one run that counts: the lowest-numbered one with a result."""

    seed: int
    side: str
    targets: int
    validation_targets: int
    updates: int
    segments: int
    num_devices: int | None
    """Of all its segments; None where they differ or nothing says."""
    cuts: tuple[int, ...]
    """Updates behind the states from which the second and later segments went on."""
    curve: tuple[Point, ...]


def _devices(device: str) -> int | None:
    """Return how many devices a device text names; see ``device`` of start.json."""
    if not device:
        return None
    return 1 if device.startswith("cpu:") else len(device.split("+"))


def _slot_of(row: Mapping[str, Any], candidate: str) -> str:
    owner = row["side"] if row["side"] == "baseline" else candidate
    return f"{owner}/run/{row['recipe']}/s{row['seed']}"


def runs_by_recipe(tables: Mapping[str, Sequence[Row]], provenance: Mapping[str, Any]) -> dict[str, list[Run]]:
    """Return the runs that count, by recipe, in the order of seed and side.

    Args:
        tables: The evidence.
        provenance: The provenance document, which says of every attempt where it ran.
    """
    attempts = {(own["slot"], own["attempt"]): own for own in provenance["attempts"]}
    candidate = str(provenance["candidate"]["id"])
    curves = _curves(tables.get("curves.csv", ()))
    found: dict[str, list[Run]] = {}
    for values in _counted(tables.get("convergence.csv", ())):
        attempt = attempts.get((_slot_of(values, candidate), values["attempt"]))
        found.setdefault(str(values["recipe"]), []).append(_run(values, curves.get(_key(values), ()), attempt))
    return found


def _curves(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Point]]:
    """Return the points of every attempt, in the order of the table."""
    curves: dict[tuple[Any, ...], list[Point]] = {}
    for row in rows:
        update, targets, loss = (row.values[name] for name in ("update", "tokens", "validation_loss"))
        point = Point(update=int(update), targets=int(targets), loss=Decimal(str(loss)))
        curves.setdefault(_key(row.values), []).append(point)
    return curves


def _counted(rows: Sequence[Row]) -> list[Mapping[str, Any]]:
    """Return the row of the lowest-numbered attempt at each run, by seed and side."""
    lowest: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: int(row.values["attempt"])):
        lowest.setdefault(_key(row.values)[:3], row.values)
    return sorted(lowest.values(), key=lambda values: (values["seed"], values["side"]))


def _run(values: Mapping[str, Any], curve: Sequence[Point], attempt: Mapping[str, Any] | None) -> Run:
    # What was written before runs had segments names the attempt's own device alone.
    segments: Sequence[Mapping[str, Any]] = (attempt.get("segments") or [attempt]) if attempt else []
    devices = {_devices(str(own["device"])) for own in segments}
    return Run(
        seed=int(values["seed"]),
        side=str(values["side"]),
        targets=int(values["target_tokens"]),
        validation_targets=int(values["validation_tokens"]),
        updates=int(values["updates"]),
        segments=int(values["segments"]),
        num_devices=devices.pop() if len(devices) == 1 else None,
        cuts=tuple(int(own["resumed_update"]) for own in segments[1:]),
        curve=tuple(sorted(curve, key=lambda point: point.update)),
    )


def _key(value: Mapping[str, Any]) -> tuple[Any, ...]:
    return value["recipe"], value["seed"], value["side"], value["attempt"]


# --- the family -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One recipe with everything that is known of it."""

    number: int
    """From 1; names its places on the page."""
    name: str
    targets: int
    validation_targets: int
    updates: int
    evaluate_every: int
    scored: str
    config: Mapping[str, Any]
    config_sha256: str
    first_seeds: tuple[int, ...]
    gate: Gate | None
    seen: Seen | None
    runs: tuple[Run, ...]

    @property
    def mark(self) -> Mark:
        """Return how its gate stands."""
        return Mark.MISSING if self.gate is None else self.gate.mark

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds of the look that counts."""
        return self.first_seeds if self.seen is None else self.seen.seeds

    @property
    def statistics(self) -> Statistics:
        """Return what the look that counts gives."""
        return Statistics() if self.seen is None else self.seen.statistics

    @property
    def lower(self) -> Number:
        """Return the lower bound that the gate states; None where it states none."""
        return None if self.gate is None else self.gate.lower

    @property
    def upper(self) -> Number:
        """Return the upper bound that the gate states; None where it states none."""
        return None if self.gate is None else self.gate.upper

    @property
    def differences(self) -> dict[int, Difference]:
        """Return the differences by seed."""
        return {} if self.seen is None else {own.seed: own for own in self.seen.differences}

    def run(self, seed: int, side: str) -> Run | None:
        """Return the run of one seed and side; None where there is none that counts."""
        return next((run for run in self.runs if (run.seed, run.side) == (seed, side)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What the report's convergence pages are derived from."""

    rules: Mapping[str, Any]
    recipes: tuple[Recipe, ...]
    provenance: Mapping[str, Any]

    @property
    def margin(self) -> str:
        """Return what every upper bound must be below, in nats."""
        return str(self.rules["margin"])

    @property
    def extension(self) -> Mapping[str, Any] | None:
        """Return the declared extension."""
        found: Mapping[str, Any] | None = self.rules["extension"]
        return found


def family_of(
    protocol: Mapping[str, Any],
    verdict: Mapping[str, Any],
    provenance: Mapping[str, Any],
    tables: Mapping[str, Sequence[Row]],
    gates: Sequence[Gate],
) -> Family:
    """Put together what is known of every recipe.

    Args:
        protocol: The frozen rules; the family is declared.
        verdict: The verdict document.
        provenance: The provenance document.
        tables: The evidence.
        gates: The verdict's gates.
    """
    rules = protocol["convergence"]
    seen = parse_seen(verdict)
    runs = runs_by_recipe(tables, provenance)
    by_id = {gate.id: gate for gate in gates}
    plain = ("name", "targets", "validation_targets", "updates", "evaluate_every", "scored", "config", "config_sha256")
    return Family(
        rules=rules,
        provenance=provenance,
        recipes=tuple(
            Recipe(
                **{name: own[name] for name in plain},
                number=number,
                first_seeds=tuple(rules["seeds"]),
                gate=by_id.get(f"convergence/{own['name']}"),
                seen=seen.get(own["name"]),
                runs=tuple(runs.get(own["name"], ())),
            )
            for number, own in enumerate(rules["recipes"], start=1)
        ),
    )
