"""The matrix of slots, the alternation of order, and the frozen protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from acceptance.formats import TABLES
from campaign import documents
from campaign.config.model import Config
from campaign.documents import Slot
from campaign.planning import convergence
from campaign.planning.convergence import convergence_rules
from campaign.planning.matrix import Expansion, expand, suggest

Family: TypeAlias = Literal["throughput", "numerical", "convergence", "device"]
Order: TypeAlias = tuple[documents.SideName, ...]

PAIR: tuple[documents.SideName, documents.SideName] = ("baseline", "candidate")
CONTROL: tuple[documents.SideName, documents.SideName] = ("baseline", "baseline_again")
_LEAST_SIGNAL = 1000
"""How many times the absolute allowance of an isolated check the values must be that it is given."""


def build_protocol(config: Config) -> documents.Protocol:
    """Return the protocol to freeze.

    Raises:
        ConfigError: It asks for something that cannot be.
    """
    expansion = expand(config)
    return documents.Protocol(
        campaign=config.name,
        families=_families(config),
        baseline_first=config.baseline_first,
        throughput=config.throughput.rules,
        numerical=numerical_rules(config, expansion),
        convergence=convergence_rules(config, expansion.recipes),
        limits=documents.Limits.of(dict(config.limits)),
        retries=documents.Retries.of(dict(config.retries)),
        execution=documents.Execution(device=config.execution.device, threads=config.execution.threads),
        categories=expansion.categories,
        workloads=expansion.workloads,
        slots=expand_slots(config, expansion),
        headers={file: table.header for file, table in TABLES.items()},
    )


def _families(config: Config) -> tuple[Family, ...]:
    families: list[Family] = ["throughput"]
    if config.numerical is not None:
        families.append("numerical")
    if config.convergence is not None:
        families.append("convergence")
    return tuple(families)


# --- the numerical family ---------------------------------------------------------------------------------------------


def numerical_rules(config: Config, expansion: Expansion) -> documents.NumericalRules | None:
    """Return the rules of the numerical family, patterns resolved to workloads; None where it is not declared.

    Raises:
        ConfigError: A pattern names no workload, something stands twice, or two rules contradict one another.
    """
    rules = config.numerical
    if rules is None:
        return None
    for key in ("gated_tensors", "required", "serialized", "shared_executor"):
        values = getattr(rules, key)
        for number, value in enumerate(values):
            if value in values[:number]:
                raise config.error(("numerical", key, number), f"{value!r} stands twice in {key}")
    if rules.shared_executor and not rules.controls:
        raise config.error(
            ("numerical", "shared_executor"),
            "shared_executor without controls: it is the control that runs in one process",
            hint="set controls = true, or name the workloads in serialized",
        )
    if not Decimal(rules.isolated_atol) * _LEAST_SIGNAL <= Decimal(rules.isolated_sd):
        raise config.error(
            ("numerical", "isolated_atol" if "isolated_atol" in rules.model_fields_set else "isolated_sd"),
            f"isolated_atol {rules.isolated_atol} allows any error of values that small",
            hint=f"isolated_sd, now {rules.isolated_sd}, must be at least {_LEAST_SIGNAL} times isolated_atol",
        )
    names = [workload.name for workload in expansion.workloads if workload.numerical]
    resolved = {key: _resolve(config, key, names) for key in ("serialized", "shared_executor")}
    return documents.NumericalRules.of({**dict(rules), **resolved})


def _resolve(config: Config, key: Literal["serialized", "shared_executor"], names: Sequence[str]) -> tuple[str, ...]:
    """Return the workloads that patterns name, in the order of the matrix."""
    chosen: set[str] = set()
    for number, pattern in enumerate(getattr(config.numerical, key)):
        found = {name for name in names if fnmatchcase(name, pattern)}
        if not found:
            raise config.error(
                ("numerical", key, number), f"no workload is named {pattern!r}", hint=suggest(pattern, names)
            )
        chosen |= found
    return tuple(name for name in names if name in chosen)


# --- slots ------------------------------------------------------------------------------------------------------------


def expand_slots(config: Config, expansion: Expansion) -> tuple[Slot, ...]:
    """Return every slot of a campaign.

    The order is that of a campaign's life; within a phase, repeat by repeat, so that the repeats of a workload
    lie apart in time, and seed by seed, those of an extension last.
    """
    return (
        *_pilots("baseline", expansion),
        *_baseline_throughput(config, expansion),
        *_cases(config, expansion, "baseline"),
        *_runs(config, expansion, "baseline"),
        *_pilots("candidate", expansion),
        *_pairs(config, expansion),
        *_cases(config, expansion, "candidate"),
        *_runs(config, expansion, "candidate"),
    )


def order_of(sides: Order, *, index: int, repeat: int, pair: int = 1) -> Order:
    """Return the order in which two sides run.

    Args:
        sides: Both sides, the baseline first.
        index: Position of the workload in its category, from zero.
        repeat: The repeat, from one.
        pair: The pair within the repeat, from one.
    """
    return sides if (index + repeat + pair) % 2 == 0 else sides[::-1]


def _indices(workloads: Iterable[documents.Workload]) -> dict[str, int]:
    """Return each workload's position among those of its category, or among those of none."""
    counts: dict[str, int] = {}
    indices: dict[str, int] = {}
    for workload in workloads:
        indices[workload.name] = counts.get(workload.category, 0)
        counts[workload.category] = indices[workload.name] + 1
    return indices


def _repeats(config: Config) -> range:
    return range(1, config.throughput.repeats + 1)


def _pilots(side: Literal["baseline", "candidate"], expansion: Expansion) -> Iterator[Slot]:
    for name in expansion.names:
        yield Slot(
            slot=f"{side}/pilot/{name}",
            side=side,
            phase="pilot",
            kind="pilot",
            workload=name,
            repeat=0,
            pair=0,
            order=(side,),
        )


def _baseline_throughput(config: Config, expansion: Expansion) -> Iterator[Slot]:
    for repeat in _repeats(config):
        if config.throughput.solo:
            for workload in expansion.workloads:
                yield _baseline_slot("solo", workload.name, repeat, pair=0, order=("baseline",))
        if config.throughput.controls:
            for index, category in enumerate(expansion.categories):
                order = order_of(CONTROL, index=index, repeat=repeat)
                yield _baseline_slot("control_pair", category.workloads[0], repeat, pair=1, order=order)


def _baseline_slot(kind: Literal["solo", "control_pair"], name: str, repeat: int, *, pair: int, order: Order) -> Slot:
    folder = "solo" if kind == "solo" else "control"
    return Slot(
        slot=f"baseline/{folder}/{name}/r{repeat}",
        side="baseline",
        phase="baseline",
        kind=kind,
        workload=name,
        repeat=repeat,
        pair=pair,
        order=order,
    )


def _pairs(config: Config, expansion: Expansion) -> Iterator[Slot]:
    indices = _indices(expansion.workloads)
    num_pairs = config.throughput.pairs_per_repeat
    for repeat in _repeats(config):
        for workload in expansion.workloads:
            for pair in range(1, num_pairs + 1):
                suffix = f"p{pair}" if num_pairs > 1 else ""
                yield Slot(
                    slot=f"candidate/pair/{workload.name}/r{repeat}{suffix}",
                    side="candidate",
                    phase="throughput",
                    kind="pair",
                    workload=workload.name,
                    repeat=repeat,
                    pair=pair,
                    order=order_of(PAIR, index=indices[workload.name], repeat=repeat, pair=pair),
                )


def _cases(config: Config, expansion: Expansion, side: Literal["baseline", "candidate"]) -> Iterator[Slot]:
    control = side == "baseline"
    if config.numerical is None or (control and not config.numerical.controls):
        return
    for workload in (one for one in expansion.workloads if one.numerical):
        yield Slot(
            slot=f"{side}/{'control-case' if control else 'case'}/{workload.name}",
            side=side,
            phase="baseline" if control else "numerical",
            kind="control_case" if control else "case",
            workload=workload.name,
            repeat=0,
            pair=0,
            order=CONTROL if control else PAIR,
        )


def _runs(config: Config, expansion: Expansion, side: Literal["baseline", "candidate"]) -> Iterator[Slot]:
    declared = config.convergence
    if declared is None:
        return
    added = declared.extension.seeds if declared.extension is not None else ()
    for seed in (*declared.seeds, *added):
        for recipe in expansion.recipes:
            yield Slot(
                slot=documents.run_slot(side, recipe.name, seed),
                side=side,
                phase="baseline" if side == "baseline" else "convergence",
                kind="run",
                workload=recipe.name,
                repeat=0,
                pair=0,
                order=(side,),
            )


# --- departures -------------------------------------------------------------------------------------------------------


def departures(protocol: documents.Protocol | Config) -> tuple[str, ...]:
    """Say, one sentence each, which rules differ from the default protocol."""
    sentences = []
    if not protocol.baseline_first:
        sentences.append("baseline_first is false instead of true: a candidate may be frozen before the baseline ran.")
    for table, model in _TABLES.items():
        rules = getattr(protocol, table)
        if rules is None:
            continue
        for key, default in model.defaults().items():
            value = getattr(rules, key)
            if not _same(value, default):
                sentences.append(f"{table}.{key} is {_show(value)} instead of {_show(default)}.")
    left_out = [one.name for one in _workloads(protocol) if not one.numerical]
    if left_out and protocol.numerical is not None:
        sentences.append(
            f"numerical is false instead of true for {', '.join(left_out)}: no case compares what they do."
        )
    trained = convergence_rules(protocol, ()) if isinstance(protocol, Config) else protocol.convergence
    if trained is not None:
        sentences += convergence.departures(trained)
    return tuple(sentences)


def _workloads(protocol: documents.Protocol | Config) -> tuple[documents.Workload, ...]:
    return expand(protocol).workloads if isinstance(protocol, Config) else protocol.workloads


_TABLES: dict[str, type[documents.Document]] = {
    "throughput": documents.ThroughputRules,
    "numerical": documents.NumericalRules,
    "retries": documents.Retries,
}
"""The tables whose numbers have, one by one, a default that a campaign may depart from."""


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, tuple):
        return set(value) == set(default)
    if isinstance(value, str) and isinstance(default, str):
        try:
            return Decimal(value) == Decimal(default)
        except InvalidOperation:
            return value == default
    return bool(value == default)


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
