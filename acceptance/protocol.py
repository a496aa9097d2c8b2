"""protocol.json as frozen dataclasses: every field checked, so that no rule can be disarmed by an odd value.

The bounds are wide on purpose: they refuse what cannot be meant (a threshold of zero, NaN, a window without duration),
not what is unusual. How a protocol departs from the default one is said in the manifest, not here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

from acceptance import convergence_rules, numerical_rules
from acceptance.convergence_rules import ConvergenceRules
from acceptance.formats import RESERVED_CATEGORIES, RETRIABLE, TABLES
from acceptance.numerical_rules import NumericalRules
from acceptance.strictjson import Node, load

FILE = "protocol.json"
FAMILIES = ("throughput", "numerical", "convergence", "device")
PHASES = ("pilot", "baseline", "throughput", "numerical", "convergence", "device")

MEASURED_KINDS = ("pair", "control_pair", "solo")
"""Kinds of slots whose evidence is a measurement of throughput."""

CASE_KINDS = ("control_case", "case")
"""Kinds of slots whose evidence is a numerical comparison."""

RUN_KIND = "run"
"""The kind of slots whose evidence is a whole training."""

RUN_PHASES = {"baseline": "baseline", "candidate": "convergence"}
"""The phase of each side's runs."""

ORDERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "pilot": (("baseline",), ("candidate",)),
    "solo": (("baseline",),),
    "pair": (("baseline", "candidate"), ("candidate", "baseline")),
    "control_pair": (("baseline", "baseline_again"), ("baseline_again", "baseline")),
    "control_case": (("baseline", "baseline_again"),),
    "case": (("baseline", "candidate"),),
    "run": (("baseline",), ("candidate",)),
}
"""The orders of sides that a slot of each checked kind may have."""

SIDE_OF = {
    "solo": "baseline",
    "control_pair": "baseline",
    "pair": "candidate",
    "control_case": "baseline",
    "case": "candidate",
}
"""Whose slot a checked kind is: the one whose snapshot makes the evidence necessary."""

KINDS = (*ORDERS, "trial")
_MOST_PROCESSES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputRules:
    """Numbers of the throughput family that decide something here."""

    repeats: int
    pairs_per_repeat: int
    warmup_updates: int
    windows: int
    window_s: Decimal
    category_threshold: Decimal
    production_threshold: Decimal
    solo: bool
    controls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Which endings allow another attempt, and how many attempts a slot may have."""

    max_attempts: int
    again: frozenset[str]
    again_once: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A category and its workloads."""

    name: str
    workloads: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload as far as the gates need it."""

    name: str
    category: str
    production: bool
    numerical: bool = True
    """Whether it has cases, where the family is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One planned piece of evidence."""

    slot: str
    side: str
    phase: str
    kind: str
    workload: str
    repeat: int
    pair: int
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The frozen rules."""

    campaign: str
    families: tuple[str, ...]
    baseline_first: bool
    throughput: ThroughputRules
    numerical: NumericalRules | None
    """None if and only if the family is not declared."""
    convergence: ConvergenceRules | None
    """The same."""
    retries: Retries
    categories: tuple[Category, ...]
    workloads: tuple[Workload, ...]
    slots: tuple[Slot, ...]


def parse(data: bytes) -> Protocol:
    """Parse the bytes of protocol.json.

    Raises:
        DocumentError: They are not such a document, or it contradicts itself.
    """
    root = Node(file=FILE, path="", value=load(data, FILE))
    fields = root.fields((
        "format", "campaign", "families", "baseline_first", "throughput", "numerical", "convergence", "limits",
        "retries", "execution", "categories", "workloads", "slots", "headers",
    ))  # fmt: skip
    fields["format"].text(choices=("protocol/1",))
    _check_limits(fields["limits"])
    _check_execution(fields["execution"])
    _check_headers(fields["headers"])
    protocol = Protocol(
        campaign=fields["campaign"].text(),
        families=fields["families"].items(lambda node: node.text(choices=FAMILIES)),
        baseline_first=fields["baseline_first"].flag(),
        throughput=_throughput(fields["throughput"]),
        numerical=None if fields["numerical"].value is None else numerical_rules.parse(fields["numerical"]),
        convergence=(None if fields["convergence"].value is None else convergence_rules.parse(fields["convergence"])),
        retries=_retries(fields["retries"]),
        categories=fields["categories"].items(_category),
        workloads=fields["workloads"].items(_workload),
        slots=fields["slots"].items(_slot),
    )
    fields["families"].refuse_duplicates(protocol.families)
    _check_matrix(fields["workloads"], fields["categories"], protocol)
    _check_numerical(fields["numerical"], protocol)
    _check_declared(fields["convergence"], "convergence" in protocol.families, protocol.convergence is not None)
    _check_slots(fields["slots"], protocol)
    return protocol


def _throughput(node: Node) -> ThroughputRules:
    fields = node.fields((
        "repeats", "pairs_per_repeat", "warmup_updates", "windows", "window_s", "window_margin", "pilot_s",
        "category_threshold", "production_threshold", "solo", "controls", "seed", "clock_relative", "clock_absolute_s",
    ))  # fmt: skip
    fields["window_margin"].decimal("1", "1000", low_included=True)
    fields["pilot_s"].decimal("0", "86400")
    fields["clock_relative"].decimal("0", "1", low_included=True)
    fields["clock_absolute_s"].decimal("0", "86400", low_included=True)
    fields["seed"].integer(-(2**63), 2**64)
    pairs = fields["pairs_per_repeat"].integer(1, 1000)
    if pairs > 1 and pairs % 2:
        raise fields["pairs_per_repeat"].fail("an odd count above one keeps the order effect in the ratio; use 1 or 2")
    return ThroughputRules(
        repeats=fields["repeats"].integer(1, 1000),
        pairs_per_repeat=pairs,
        warmup_updates=fields["warmup_updates"].integer(0),
        windows=fields["windows"].integer(1, 10000),
        window_s=fields["window_s"].decimal("0", "86400"),
        category_threshold=fields["category_threshold"].decimal("0", "1000"),
        production_threshold=fields["production_threshold"].decimal("0", "1000"),
        solo=fields["solo"].flag(),
        controls=fields["controls"].flag(),
    )


def _retries(node: Node) -> Retries:
    fields = node.fields(("max_attempts", "again", "again_once"))
    again = fields["again"].items(lambda item: item.text(choices=RETRIABLE))
    again_once = fields["again_once"].items(lambda item: item.text(choices=RETRIABLE))
    fields["again_once"].refuse_duplicates((*again, *again_once))
    return Retries(
        max_attempts=fields["max_attempts"].integer(1, 1000), again=frozenset(again), again_once=frozenset(again_once)
    )


def _check_limits(node: Node) -> None:
    for field in node.fields(("import_s", "startup_s", "stall_s", "log_bytes")).values():
        field.integer(1)


def _check_execution(node: Node) -> None:
    fields = node.fields(("device", "threads"))
    fields["device"].text(choices=("cpu", "cuda"))
    fields["threads"].integer(1)


def _check_headers(node: Node) -> None:
    for name, header in node.fields(sorted(TABLES)).items():
        if header.items(lambda item: item.text()) != TABLES[name].header:
            raise header.fail("not the header that this program reads")


def _category(node: Node) -> Category:
    fields = node.fields(("name", "workloads"))
    name = fields["name"].name()
    if name in RESERVED_CATEGORIES:
        raise fields["name"].fail(f"{name!r} is reserved: the ids of its gates would be ambiguous")
    workloads = fields["workloads"].items(lambda item: item.name())
    if not workloads:
        raise fields["workloads"].fail("a category without workloads")
    fields["workloads"].refuse_duplicates(workloads)
    return Category(name=name, workloads=workloads)


def _workload(node: Node) -> Workload:
    fields = node.fields(
        ("name", "category", "production", "config", "config_sha256"), ("processes", "nodes", "numerical")
    )
    fields["config"].members()
    fields["config_sha256"].digest()
    return Workload(
        name=fields["name"].name(),
        category=fields["category"].text(optional=True),
        production=fields["production"].flag(),
        numerical=_has_cases(fields),
    )


def _has_cases(fields: dict[str, Node]) -> bool:
    """Return whether a workload has numerical cases: only what runs as several processes may be without."""
    processes = fields["processes"].integer(1, _MOST_PROCESSES) if "processes" in fields else 1
    nodes = fields["nodes"].integer(1, _MOST_PROCESSES) if "nodes" in fields else 1
    if processes % nodes:
        raise fields["nodes"].fail(f"{processes} processes are not spread evenly over {nodes} nodes")
    if "numerical" not in fields or fields["numerical"].flag():
        return True
    if processes == 1:
        raise fields["numerical"].fail("a workload of one process is left out of the numerical family")
    return False


def _slot(node: Node) -> Slot:
    fields = node.fields(("slot", "side", "phase", "kind", "workload", "repeat", "pair", "order"))
    slot = Slot(
        slot=fields["slot"].text(),
        side=fields["side"].text(choices=("baseline", "candidate")),
        phase=fields["phase"].text(choices=PHASES),
        kind=fields["kind"].text(choices=KINDS),
        workload=fields["workload"].text(optional=True),
        repeat=fields["repeat"].integer(0),
        pair=fields["pair"].integer(0),
        order=fields["order"].items(lambda item: item.text(choices=("baseline", "baseline_again", "candidate"))),
    )
    if not slot.slot.startswith(f"{slot.side}/"):
        raise fields["slot"].fail(f"does not begin with its side {slot.side!r}")
    if SIDE_OF.get(slot.kind, slot.side) != slot.side:
        raise fields["side"].fail(f"a slot of kind {slot.kind!r} is one of the {SIDE_OF[slot.kind]}")
    if slot.kind in ORDERS and slot.order not in ORDERS[slot.kind]:
        raise fields["order"].fail(f"not an order of a slot of kind {slot.kind!r}")
    return slot


def _check_matrix(workloads: Node, categories: Node, protocol: Protocol) -> None:
    workloads.refuse_duplicates(workload.name for workload in protocol.workloads)
    categories.refuse_duplicates(category.name for category in protocol.categories)
    said_by_workload = {(item.category, item.name) for item in protocol.workloads if item.category}
    said_by_category = {(item.name, workload) for item in protocol.categories for workload in item.workloads}
    for category, workload in sorted(said_by_workload ^ said_by_category):
        raise categories.fail(
            f"workload {workload!r} and category {category!r} disagree on whether they belong together"
        )


def _check_declared(node: Node, declared: bool, present: bool) -> None:
    if declared != present:
        raise node.fail("rules of a family that is not declared" if present else "a declared family without rules")


def _check_numerical(node: Node, protocol: Protocol) -> None:
    _check_declared(node, "numerical" in protocol.families, protocol.numerical is not None)
    if protocol.numerical is not None:
        workloads = frozenset(workload.name for workload in protocol.workloads if workload.numerical)
        numerical_rules.check_names(node, protocol.numerical, workloads)


def _check_slots(node: Node, protocol: Protocol) -> None:
    node.refuse_duplicates(slot.slot for slot in protocol.slots)
    known = {workload.name for workload in protocol.workloads}
    places: Counter[tuple[str, str, int, int]] = Counter()
    for slot in protocol.slots:
        if slot.kind in MEASURED_KINDS or slot.kind in CASE_KINDS:
            places[slot.kind, slot.workload, slot.repeat, slot.pair] += 1
            if slot.workload not in known:
                raise node.fail(f"{slot.slot}: the workload {slot.workload!r} is not in the matrix")
            if slot.kind == "pair" and "throughput" not in protocol.families:
                raise node.fail(f"{slot.slot}: the throughput family is not declared")
            if slot.kind in CASE_KINDS and protocol.numerical is None:
                raise node.fail(f"{slot.slot}: the numerical family is not declared")
    for place, count in sorted(places.items()):
        if count > 1:
            raise node.fail(f"{count} slots stand for {place}")
    _check_complete(node, protocol, places)
    _check_runs(node, protocol)


def _check_runs(node: Node, protocol: Protocol) -> None:
    """Refuse a matrix that lacks or adds a run, those of an extension included, or that misdescribes one."""
    rules = protocol.convergence
    expected = {
        convergence_rules.slot_name(side, recipe.name, seed): (side, phase, recipe.name, 0, 0, (side,))
        for recipe in (rules.recipes if rules else ())
        for seed in (rules.all_seeds if rules else ())
        for side, phase in RUN_PHASES.items()
    }
    found = {slot.slot: slot for slot in protocol.slots if slot.kind == RUN_KIND}
    for name in sorted(set(expected) ^ set(found)):
        raise node.fail(f"the run {name!r} is {'missing' if name in expected else 'not planned by the rules'}")
    for name, slot in found.items():
        if (slot.side, slot.phase, slot.workload, slot.repeat, slot.pair, slot.order) != expected[name]:
            raise node.fail(f"{name}: side, phase, workload, repeat, pair or order is not that of such a run")


def _check_complete(node: Node, protocol: Protocol, places: Counter[tuple[str, str, int, int]]) -> None:
    """Refuse a matrix that lacks or adds evidence: a hole here would be a gate that nobody misses."""
    rules, cases = protocol.throughput, protocol.numerical
    repeats, pairs = range(1, rules.repeats + 1), range(1, rules.pairs_per_repeat + 1)
    workloads = [workload.name for workload in protocol.workloads]
    compared = [workload.name for workload in protocol.workloads if workload.numerical]
    firsts = [category.workloads[0] for category in protocol.categories]
    declared = "throughput" in protocol.families
    expected = {
        *(("pair", name, repeat, pair) for name in workloads if declared for repeat in repeats for pair in pairs),
        *(("solo", name, repeat, 0) for name in workloads if declared and rules.solo for repeat in repeats),
        *(("control_pair", name, repeat, 1) for name in firsts if declared and rules.controls for repeat in repeats),
        *(("case", name, 0, 0) for name in compared if cases),
        *(("control_case", name, 0, 0) for name in compared if cases and cases.controls),
    }
    for place in sorted(expected ^ set(places)):
        raise node.fail(f"{place} is {'missing' if place in expected else 'not planned by the rules'}")
    _check_balance(node, protocol)


def _check_balance(node: Node, protocol: Protocol) -> None:
    """With several pairs per repeat, each order must run equally often."""
    balance: Counter[tuple[str, str, int]] = Counter()
    for slot in protocol.slots:
        if slot.kind == "pair" and protocol.throughput.pairs_per_repeat > 1:
            balance[slot.kind, slot.workload, slot.repeat] += 1 if slot.order[0] == "baseline" else -1
    for place, difference in sorted(balance.items()):
        if difference:
            raise node.fail(f"{place}: the two orders do not run equally often")
