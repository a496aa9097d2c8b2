"""How long slots are assumed to take where nothing has been measured yet, from a file that says so in one place.

The file states what a person expects of the machine: starting, setting up, and targets per second. What the plan needs
follows by the rules that it also has for pilots, so that the budget made before the first run and the outlook after the
pilots count alike.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from campaign.config.slices import is_named
from campaign.config.values import Patterns, Text
from campaign.documents import Calibration, ThroughputRules
from campaign.errors import ConfigError
from campaign.planning.calibration import Experience
from campaign.planning.matrix import Expansion, suggest

SideKey = Literal["baseline", "candidate"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class AssumedSide(_Table):
    """What is assumed of one side of some workloads and recipes. A later entry goes before an earlier one."""

    side: SideKey
    trained: Patterns
    """Workloads and recipes, by name or pattern."""
    start_s: NotNegative
    """Until a process of the side has imported what it needs, the looking at its snapshot included."""
    setup_s: NotNegative
    """Building, compiling and capturing; warm-up updates come on top."""
    targets_per_s: Positive
    evaluate_s: NotNegative = 0.0
    """Of a recipe: one evaluation."""
    save_s: NotNegative = 0.0
    """Of a recipe: saving a state, into the home."""


class AssumedCase(_Table):
    """What is assumed of a numerical case, from its beginning to its end. A later entry goes before an earlier one."""

    kind: Literal["control_case", "case"]
    workloads: Patterns
    seconds: Positive


class Machine(_Table):
    """An allocation as the budget divides slots among them: one machine, on which several commands may run."""

    name: Text
    minutes: Positive
    """What it may take."""
    slots: Patterns
    """Names of slots, by pattern; each slot goes to the first machine that names it."""
    allocation_s: NotNegative = 0.0
    """For each allocation that it runs, beside its slots: private copies, digests of data sets."""


class AssumedFile(_Table):
    """The whole file."""

    source: Text
    """Where the figures are from, in words."""
    targets: Annotated[tuple[str, ...], Strict(strict=False)]
    """Entries of a configuration whose product is the targets of an update; one that is absent counts as 1."""
    side: Annotated[tuple[AssumedSide, ...], Strict(strict=False)]
    case: Annotated[tuple[AssumedCase, ...], Strict(strict=False)] = ()
    machine: Annotated[tuple[Machine, ...], Strict(strict=False)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What a file assumes of one campaign."""

    source: str
    known: Experience
    machines: tuple[Machine, ...]


def read_assumed(path: Path, expansion: Expansion, rules: ThroughputRules) -> Assumed:
    """Read what is assumed of the workloads and recipes of a campaign.

    Args:
        path: The TOML file.
        expansion: The workloads and recipes.
        rules: The rules of the throughput family.

    Raises:
        ConfigError: The file cannot be read, says something impossible, or says nothing of a workload or recipe.
    """
    file = _read(path)
    _check_machines(path, file.machine)
    configs: dict[str, Mapping[str, Any]] = {one.name: one.config for one in expansion.workloads}
    configs |= {one.name: one.config for one in expansion.recipes}
    recipes = {one.name for one in expansion.recipes}
    chosen = {
        (side, name): _last(path, file.side, side, name) for side in ("baseline", "candidate") for name in configs
    }
    return Assumed(
        source=file.source,
        known=Experience(
            calibrations={
                key: _calibration(one, _targets(path, file, key[1], configs[key[1]]), rules, is_run=key[1] in recipes)
                for key, one in chosen.items()
            },
            case_s=dict(_cases(file.case, [one.name for one in expansion.workloads])),
            besides_s={key: one.start_s for key, one in chosen.items()},
        ),
        machines=file.machine,
    )


def _read(path: Path) -> AssumedFile:
    try:
        return AssumedFile.model_validate(tomllib.loads(path.read_bytes().decode("utf-8")))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{place}: {first['msg']}", where=str(path), hint=_HINT) from error
    except ValueError as error:
        raise ConfigError(f"not valid TOML: {error}", where=str(path)) from error


_HINT = "docs/config.md lists the keys of a file of assumptions"


def _check_machines(path: Path, machines: Sequence[Machine]) -> None:
    twice = [name for name, number in Counter(one.name for one in machines).items() if number > 1]
    if twice:
        raise ConfigError(
            f"several machines are named {twice[0]!r}, and each would count the slots of all", where=str(path)
        )


def _last(path: Path, sides: Sequence[AssumedSide], side: str, name: str) -> AssumedSide:
    found = [one for one in sides if one.side == side and is_named(name, one.trained)]
    if not found:
        raise ConfigError(
            f"nothing is assumed of {name}, {side}", where=str(path), hint=f'[[side]] side = "{side}", trained = ["*"]'
        )
    return found[-1]


def _targets(path: Path, file: AssumedFile, name: str, config: Mapping[str, Any]) -> int:
    factors = [config.get(entry, 1) for entry in file.targets]
    wrong = [entry for entry, factor in zip(file.targets, factors, strict=True) if not _is_count(factor)]
    if wrong:
        raise ConfigError(
            f"{wrong[0]} of {name} is no count, so that its targets are not known",
            where=str(path),
            hint=f"targets = [...]: {suggest(wrong[0], config)}",
        )
    return math.prod(factors)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _calibration(one: AssumedSide, targets: int, rules: ThroughputRules, *, is_run: bool) -> Calibration:
    """Return what the pilot of a side would find."""
    updates_per_s = one.targets_per_s / targets
    return Calibration(
        updates_per_s=updates_per_s,
        tokens_per_update=float(targets),
        startup_s=one.setup_s + rules.warmup_updates / updates_per_s,
        updates=math.ceil(updates_per_s * float(rules.pilot_s)),
        evaluate_s=one.evaluate_s if is_run else None,
        save_s=one.save_s if is_run else None,
        checkpoint_bytes=0 if is_run else None,
    )


def _cases(cases: Sequence[AssumedCase], names: Sequence[str]) -> Iterator[tuple[tuple[str, str], float]]:
    for one in cases:
        for name in names:
            if is_named(name, one.workloads):
                yield (one.kind, name), one.seconds
