"""What evidence is tried, and what must come of it.

Few pieces of evidence show much at once, and most of them are small: what depends on nothing but the rules is shown by
one workload of each manner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeAlias

from acceptance.formats import GLOBAL_QUANTITIES, TABLES, Column, Kind
from campaign.config.locate import KeyPath
from campaign.documents import ConvergenceRules, NumericalRules, Protocol
from campaign.freezing.reachability import values
from campaign.freezing.reachability.fixtures import (
    NO_ERRORS,
    NOT_OFFERED,
    Errors,
    Fixture,
    add_attempt,
    add_cases,
    add_measured,
    add_runs,
    empty,
)
from campaign.freezing.reachability.values import Aim
from campaign.judging.evaluation import Gate

Differences: TypeAlias = Mapping[int, Decimal]
"""Candidate - baseline of the final loss, by seed."""

Named: TypeAlias = dict[str, frozenset[str]]
"""Gates by part, by what follows the family in their ids."""
NO_NAMES: Named = {}

CATEGORY, PRODUCTION = "throughput/category", "throughput/production"
THROUGHPUT = (CATEGORY, PRODUCTION)
RULED = (*THROUGHPUT, "numerical", "convergence")
"""The parts whose findings depend on rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What every gate of a part must find.

    Attributes:
        part: A family; of throughput one of its two parts.
        finding: What its gates must find.
        names: The gates, by what follows the family in their ids; None for all.
        rule: The key of campaign.toml to change where it does not; None for the gate's own threshold.
    """

    part: str
    finding: str
    names: frozenset[str] | None = None
    rule: KeyPath | None = None

    def covers(self, gate: Gate) -> bool:
        """Return whether a gate is one of those."""
        named = self.names is None or gate.id.removeprefix(f"{gate.family}/") in self.names
        return part_of(gate) == self.part and named


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Evidence, and what must come of it.

    Attributes:
        what: The evidence, in words.
        fixture: The evidence.
        expected: What the gates must find.
        passes: Whether the outcome must be a pass.
        like: What an earlier variant is called whose verdict this one's must equal, byte by byte.
        unreadable: Whether its bytes must not parse.
    """

    what: str
    fixture: Fixture
    expected: tuple[Expected, ...] = ()
    passes: bool = False
    like: str = ""
    unreadable: bool = False


def part_of(gate: Gate) -> str:
    """Return the family of a gate; of throughput the part that its verdict rolls up."""
    if gate.family != "throughput":
        return gate.family
    return PRODUCTION if gate.id.startswith(f"{PRODUCTION}/") else CATEGORY


def all_variants(protocol: Protocol) -> tuple[Variant, ...]:
    """Return everything that is tried for a protocol; the first one has no rows."""
    swapped = _swapped(protocol)
    other_order = Variant(what="the same in another order", fixture=swapped.fixture.reversed(), like=swapped.what)
    return (
        _unmeasured(protocol),
        _met(protocol),
        _missed(protocol),
        swapped,
        other_order,
        _itself(protocol),
        _invalid(protocol),
        *_second_looks(protocol),
        _not_numbers(protocol),
    )


# --- the variants -----------------------------------------------------------------------------------------------------


def _unmeasured(protocol: Protocol) -> Variant:
    missing = _expect(protocol, "missing")
    attempts = Expected(part="evidence", finding="missing", names=frozenset({"attempts.csv"}))
    return Variant(what="nothing was measured", fixture=empty(protocol), expected=(*missing, attempts))


def _met(protocol: Protocol) -> Variant:
    fixture = empty(protocol)
    _measure(fixture, Aim.MET, repeats=protocol.throughput.repeats)
    if protocol.numerical is not None:
        _compare(fixture, _errors(protocol.numerical, Aim.MET), only=None)
    _train(fixture, Aim.MET)
    expected = (*_expect(protocol, "met", names=_looked_at(protocol)), Expected(part="evidence", finding="met"))
    return Variant(what="each rule is just met", fixture=fixture, expected=expected, passes=True)


def _missed(protocol: Protocol) -> Variant:
    fixture = empty(protocol)
    _measure(fixture, Aim.MISSED, repeats=1)
    if protocol.numerical is not None:
        _compare(fixture, _errors(protocol.numerical, Aim.MISSED), only=_manners(protocol))
    _train(fixture, Aim.MISSED)
    expected = _expect(protocol, "missed", names=_looked_at(protocol) | _first_repeat(protocol))
    return Variant(what="each rule is just missed", fixture=fixture, expected=expected)


def _swapped(protocol: Protocol) -> Variant:
    """Swap the sides of a repeat; beside that, leave trainings inconclusive and isolated checks out."""
    fixture = empty(protocol)
    _measure(fixture, Aim.MET, repeats=1, swapped=True)
    expected = list(_expect(protocol, "inconclusive", parts=("convergence",)))
    if protocol.categories and Decimal(protocol.throughput.category_threshold) > 1:
        expected.append(Expected(part=CATEGORY, finding="missed", names=_first_repeat(protocol)[CATEGORY]))
    if protocol.numerical is not None:
        _compare(fixture, NOT_OFFERED, only=_manners(protocol))
        expected += _not_offered(protocol, protocol.numerical)
    _train(fixture, Aim.INCONCLUSIVE)
    what = "the sides of a repeat are swapped, the trainings show neither, and no side offers an isolated check"
    return Variant(what=what, fixture=fixture, expected=tuple(expected))


def _not_offered(protocol: Protocol, rules: NumericalRules) -> Iterator[Expected]:
    for quantity, method in (("optimizer", "optimizer_check"), ("consensus", "mix")):
        names = frozenset(f"{workload}/{quantity}" for workload in _manners(protocol))
        yield Expected(
            part="numerical", finding="missing" if method in rules.required else "not_evaluated", names=names
        )


def _itself(protocol: Protocol) -> Variant:
    """Let the candidate be the baseline, in cases and trainings: nothing is missed, and no training shows anything."""
    fixture = replace(empty(protocol, candidate="baseline"), offers_paths=False)
    expected = list(_expect(protocol, "invalid", parts=("convergence",)))
    if protocol.numerical is not None:
        _compare(fixture, NO_ERRORS, only=_manners(protocol))
        expected += _expect(protocol, "met", parts=("numerical",), names=_looked_at(protocol))
    _train(fixture, Aim.EQUAL)
    if fixture.lines["attempts.csv"]:
        engaged = frozenset({"engaged/baseline"})
        expected.append(Expected(part="evidence", finding="not_evaluated", names=engaged))
    return Variant(what="the candidate is the baseline", fixture=fixture, expected=tuple(expected))


def _invalid(protocol: Protocol) -> Variant:
    """Let every attempt be completed without a receipt; and let each file hold what the protocol does not know."""
    fixture = replace(empty(protocol), foreign=("foreign",))
    fixture = replace(fixture, identity=fixture.identity.replace(candidate=f"c{0:012}"))
    added = protocol.extension_runs()
    for slot in protocol.slots:
        if slot.kind not in {"pilot", "trial"} and slot.slot not in added:
            add_attempt(fixture, slot, sealed=False)
    for file in protocol.headers:
        fixture.add(file, _stray_row(file))
    names = frozenset({*protocol.headers, "identity.json", "folder"})
    evidence = Expected(part="evidence", finding="invalid", names=names)
    expected = (*_expect(protocol, "invalid"), evidence)
    return Variant(
        what="no receipt seals an attempt, and each file has a foreign row", fixture=fixture, expected=expected
    )


def _second_looks(protocol: Protocol) -> Iterator[Variant]:
    """Yield evidence whose first look is inconclusive, with the second look at all that it can be, and without it."""
    rules = protocol.convergence
    if rules is None or rules.extension is None:
        return
    rule = ("convergence", "extension", "quantile")
    seeds = (*rules.seeds, *rules.extension.seeds)
    for aim in (Aim.MET, Aim.MISSED):
        numbers = values.differences_of_two_looks(len(rules.seeds), rules.extension, rules.margin, aim)
        fixture = _runs(protocol, rules, dict(zip(seeds, numbers, strict=True)))
        expected = Expected(part="convergence", finding=aim.value, rule=rule)
        yield Variant(what=f"the second look at each recipe is {aim.value}", fixture=fixture, expected=(expected,))
    numbers = values.differences_of_two_looks(len(rules.seeds), rules.extension, rules.margin, Aim.INCONCLUSIVE)
    fixture = _runs(protocol, rules, dict(zip(rules.seeds, numbers, strict=False)))
    absent = Expected(part="convergence", finding="missing")
    yield Variant(what="a second look is due, and nobody made its runs", fixture=fixture, expected=(absent,))


def _not_numbers(protocol: Protocol) -> Variant:
    fixture = empty(protocol)
    for file in protocol.headers:
        fixture.add(file, _stray_row(file, decimal="NaN"))
    return Variant(what="numbers that are none", fixture=fixture, unreadable=True)


# --- the parts of a variant -------------------------------------------------------------------------------------------


def _measure(fixture: Fixture, aim: Aim, *, repeats: int, swapped: bool = False) -> None:
    """Add the measurements of the first repeats."""
    protocol = fixture.protocol
    ratios = {workload.name: values.ratio(protocol.throughput, workload, aim) for workload in protocol.workloads}
    add_measured(fixture, ratios, repeats=repeats, swapped=swapped)


def _errors(rules: NumericalRules, aim: Aim) -> Errors:
    return Errors(
        loss=values.loss_error(rules, aim),
        tensors={quantity: values.tensor_error(rules, quantity, aim) for quantity in GLOBAL_QUANTITIES},
        isolated=values.isolated_error(rules, aim),
    )


def _compare(fixture: Fixture, errors: Errors, *, only: Sequence[str] | None) -> None:
    rules = fixture.protocol.numerical
    if rules is not None:
        add_cases(fixture, rules, errors, only=only, wide=_manners(fixture.protocol))


def _train(fixture: Fixture, aim: Aim) -> None:
    """Add runs whose first look comes to the aim; if that is inconclusive, also those of the second, which is due."""
    rules = fixture.protocol.convergence
    if rules is None:
        return
    if rules.extension is None:
        numbers = values.loss_differences(len(rules.seeds), rules.quantile, rules.margin, aim)
    elif aim is Aim.INCONCLUSIVE:
        numbers = values.differences_of_two_looks(len(rules.seeds), rules.extension, rules.margin, aim)
    else:
        numbers = values.loss_differences(len(rules.seeds), rules.extension.quantile_first, rules.margin, aim)
    seeds = (*rules.seeds, *(rules.extension.seeds if rules.extension else ()))
    for recipe in rules.recipes:
        add_runs(fixture, recipe, dict(zip(seeds, numbers, strict=False)))


def _runs(protocol: Protocol, rules: ConvergenceRules, differences: Differences) -> Fixture:
    fixture = empty(protocol)
    for recipe in rules.recipes:
        add_runs(fixture, recipe, differences)
    return fixture


def _stray_row(file: str, decimal: str = "1") -> Mapping[str, str]:
    """Return a row that parses and that belongs to nothing."""

    def field(column: Column) -> str:
        if column.kind is Kind.TEXT:
            return column.choices[0] if column.choices else "nowhere"
        return {Kind.COUNT: "1", Kind.DECIMAL: decimal, Kind.FLAG: "false"}[column.kind]

    return {column.name: field(column) for column in TABLES[file].columns}


# --- what is expected -------------------------------------------------------------------------------------------------


def _parts(protocol: Protocol) -> Iterator[str]:
    """Yield the parts whose findings depend on rules, as far as the protocol has them."""
    if "throughput" in protocol.families:
        if protocol.categories:
            yield CATEGORY
        if any(workload.production for workload in protocol.workloads):
            yield PRODUCTION
    yield from (family for family in protocol.families if family != "throughput")


def _expect(
    protocol: Protocol,
    finding: str,
    *,
    parts: Iterable[str] = RULED,
    names: Named = NO_NAMES,
) -> tuple[Expected, ...]:
    """Expect one finding of the gates of some parts: of those that are named, or of all of a part without names."""
    return tuple(
        Expected(part=part, finding=finding, names=names.get(part)) for part in _parts(protocol) if part in parts
    )


def _manners(protocol: Protocol) -> tuple[str, ...]:
    """Return the first workload of each manner in which cases are run."""
    rules = protocol.numerical
    if rules is None:
        return ()
    firsts: dict[tuple[bool, bool], str] = {}
    for workload in (one for one in protocol.workloads if one.numerical):
        manner = (workload.name in rules.serialized, workload.name in rules.shared_executor)
        firsts.setdefault(manner, workload.name)
    return tuple(firsts.values())


def _looked_at(protocol: Protocol) -> Named:
    """Return the numerical gates of those workloads."""
    rules = protocol.numerical
    if rules is None:
        return NO_NAMES
    quantities = ("loss", "gradients", "parameters", "updates", "optimizer", "consensus")
    gates = (*quantities, *(f"{quantity}/tensors" for quantity in rules.gated_tensors))
    return {"numerical": frozenset(f"{workload}/{gate}" for workload in _manners(protocol) for gate in gates)}


def _first_repeat(protocol: Protocol) -> Named:
    """Return the throughput gates of the first repeat."""
    production = (workload.name for workload in protocol.workloads if workload.production)
    return {
        CATEGORY: frozenset(f"{category.name}/repeat-1" for category in protocol.categories),
        PRODUCTION: frozenset(f"production/{name}/repeat-1" for name in production),
    }
