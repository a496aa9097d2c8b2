"""The throughput family: category and production tables, plots, order effect, noise floor and pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from acceptance.formats import Row
from reports.figures import Interval, RatioPlot, Series, draw
from reports.measures import Costs, Half, Pair, by_workload, costs_by_workload, pairs_of
from reports.numbers import ABSENT, against, count, listed, plural, significant, size
from reports.status import Mark, severity
from reports.verdict import Gate, Number, Observation, Observations
from reports.view import Cell, Column, Subject, Table, code, columns, number, status, text

TIMES = "\u00d7"
_Costs: TypeAlias = Mapping[tuple[str, str], Costs]
"""By workload and side."""

HOW_TO_READ = (
    "Each row is a workload, each mark one repeat of it: circle, square and triangle for repeats 1, 2 and 3. "
    "A mark to the right of the dotted line at 1 means that the candidate processed more target tokens per second than "
    "the baseline. The bold rows on top are what the gate looks at: the median over the workloads, in grey where the "
    "gate could not be evaluated and the median is of what is left. Where a category has six workloads or more, a bar "
    "shows the 95% interval of that median (order statistics), beside the gate and without a say in it. A category "
    "passes where every bold mark stands on or to the right of the solid line; a production case, where every one of "
    "its own marks does."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What the throughput family is derived from."""

    protocol: Mapping[str, Any]
    gates: tuple[Gate, ...]
    observations: Observations
    rows: Sequence[Row]
    """Rows of pairs.csv."""
    windows: Sequence[Row] = ()
    """Rows of windows.csv."""
    _gates: dict[tuple[str, str], list[Gate]] = field(init=False, repr=False, compare=False)
    _observed: dict[tuple[str, str], Observation] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Put what is asked for by subject where it is found: there may be thousands of both."""
        gates: dict[tuple[str, str], list[Gate]] = {}
        for gate in self.gates:
            gates.setdefault((kind_of(gate), gate.subject), []).append(gate)
        object.__setattr__(self, "_gates", gates)
        observed: dict[tuple[str, str], Observation] = {}
        for seen in self.observations.throughput:
            observed.setdefault((seen.kind, seen.subject), seen)
        object.__setattr__(self, "_observed", observed)

    @property
    def num_repeats(self) -> int:
        """Return the number of repeats."""
        return int(self.protocol["throughput"]["repeats"])

    def threshold(self, kind: str) -> str:
        """Return the threshold of categories or of production cases."""
        return str(self.protocol["throughput"][f"{kind}_threshold"])

    @property
    def marks(self) -> tuple[str, ...]:
        """Return the numbers that no printed ratio may be rounded across."""
        return ("1", self.threshold("category"), self.threshold("production"))

    def gates_of(self, kind: str, subject: str) -> list[Gate]:
        """Return the gates of one category or production case, by repeat."""
        return sorted(self._gates.get((kind, subject), ()), key=lambda gate: gate.repeat)

    def observation(self, kind: str, subject: str) -> Observation | None:
        """Return what was observed of a subject."""
        return self._observed.get((kind, subject))


def kind_of(gate: Gate) -> str:
    """Return whether a gate is about a category or a production case; empty for neither."""
    if gate.family != "throughput":
        return ""
    return {"median_ratio": "category", "ratio": "production"}.get(gate.statistic, "")


def production_names(protocol: Mapping[str, Any]) -> list[str]:
    """Return the required production workloads."""
    return [workload["name"] for workload in protocol["workloads"] if workload["production"]]


def ratio_text(value: Number | float, marks: Sequence[str], *, digits: int = 3) -> str:
    """Return a ratio as text that stands on its own side of some marks."""
    return ABSENT if value is None else f"{against(value, *marks, digits=digits)}{TIMES}"


def ratio_cell(value: Number | float, marks: Sequence[str], *, digits: int = 3, mark: Mark | None = None) -> Cell:
    """Return a cell with a ratio; see `ratio_text`."""
    return Cell(text=ratio_text(value, marks, digits=digits), value=None if value is None else str(value), mark=mark)


def _worst(gates: Sequence[Gate]) -> Mark:
    marks = [gate.mark for gate in gates]
    return min(marks, key=severity, default=Mark.MISSING)


def _rolled_up(gates: Sequence[Gate]) -> Mark:
    """Return pass, or what is wrong: several findings together are ``not qualified``."""
    failed = {gate.mark for gate in gates if gate.mark is not Mark.PASS}
    if not gates:
        return Mark.MISSING
    return Mark.NOT_QUALIFIED if failed else Mark.PASS


def _repeat_columns(first: str, repeats: int) -> tuple[Column, ...]:
    numbered = [f"Repeat {repeat}" for repeat in range(1, repeats + 1)]
    return columns(first, *numbered, "Gate", "Rule", "Order effect", numeric=[*numbered, "Order effect"])


def _gate_row(family: Throughput, kind: str, subject: str) -> tuple[Cell, ...]:
    gates = family.gates_of(kind, subject)
    by_repeat = {gate.repeat: gate for gate in gates}
    cells = []
    for repeat in range(1, family.num_repeats + 1):
        gate = by_repeat.get(repeat)
        if gate is None or gate.value is None:
            mark = Mark.MISSING if gate is None else gate.mark
            cells.append(Cell(text=mark.word, mark=mark))
        else:
            mark_or_none = gate.mark if gate.mark is not Mark.PASS else None
            cells.append(ratio_cell(gate.value, family.marks, mark=mark_or_none))
    rule = f"each {gates[0].rule}" if gates else ABSENT
    seen = family.observation(kind, subject)
    effect = ratio_cell(seen.order_effect if seen else None, ("1",), digits=4)
    return (text(subject), *cells, status(_rolled_up(gates)), text(rule), effect)


def category_table(family: Throughput) -> Table | None:
    """Return the median ratio of each category in each repeat; None without categories."""
    names = [category["name"] for category in family.protocol["categories"]]
    if not names:
        return None
    return Table(
        name="categories",
        caption="Median candidate / baseline ratio of target tokens per second, by category and repeat",
        columns=_repeat_columns("Category", family.num_repeats),
        rows=tuple(_gate_row(family, "category", name) for name in names),
    )


def production_table(family: Throughput) -> Table | None:
    """Return the ratio of each production case in each repeat; None without production cases."""
    names = production_names(family.protocol)
    if not names:
        return None
    return Table(
        name="production",
        caption="Candidate / baseline ratio of each required production case, by repeat",
        columns=_repeat_columns("Production case", family.num_repeats),
        rows=tuple(_gate_row(family, "production", name) for name in names),
    )


# --- subjects: a plot, its sentence and its raw table -----------------------------------------------------------------


def _sentence(gates: Sequence[Gate], *, what: str, statistic: str, rule: str) -> str:
    """Return one of a closed set of sentences."""
    if not gates:
        return f"{what} has no gate."
    failed = [gate for gate in gates if gate.mark is not Mark.PASS]
    if not failed:
        return f"{what} passes: {statistic} is {rule}."
    parts = [
        f"{gate.id} is {gate.mark.word}" + (f" at {gate.shown(gate.value)}" if gate.value is not None else "")
        for gate in failed
    ]
    return f"{what} does not qualify: {listed(parts)}; {statistic} must be {rule}."


def order_sentence(seen: Observation | None, marks: Sequence[str]) -> str:
    """Return what is known of the running order's effect on a subject, and of its mean over the repeats."""
    return f"{_order_text(seen)} {_mean_text(seen, marks)}".strip()


def _range(lower: Number, upper: Number, marks: Sequence[str], digits: int) -> str:
    if lower is None or upper is None:
        return "no interval from so few"
    return f"95% interval {against(lower, *marks, digits=digits)} to {against(upper, *marks, digits=digits)}"


def _order_text(seen: Observation | None) -> str:
    if seen is None or seen.order_effect is None:
        return "The effect of the running order cannot be estimated from these pairs."
    effect = ratio_text(seen.order_effect, ("1",), digits=4)
    interval = _range(seen.order_effect_lower, seen.order_effect_upper, ("1",), 4)
    return f"Order effect {effect} ({interval}): the factor by which running second raises a ratio."


def _mean_text(seen: Observation | None, marks: Sequence[str]) -> str:
    if seen is None or seen.mean_ratio is None:
        return ""
    interval = _range(seen.mean_ratio_lower, seen.mean_ratio_upper, marks, 3)
    return f"Mean over repeats {ratio_text(seen.mean_ratio, marks)} ({interval})."


def _intervals(seen: Observation | None, gates: Sequence[Gate]) -> tuple[Interval, ...]:
    marks = {gate.repeat: gate.mark for gate in gates}
    return tuple(
        Interval(
            repeat=repeat.repeat,
            mark=marks.get(repeat.repeat, Mark.MISSING),
            ratio=float(repeat.ratio),
            lower=None if repeat.lower is None else float(repeat.lower),
            upper=None if repeat.upper is None else float(repeat.upper),
        )
        for repeat in (seen.repeats if seen else ())
        if repeat.ratio is not None
    )


def _workload_table(
    name: str, caption: str, ratios: Mapping[str, Mapping[int, Decimal]], family: Throughput, costs: _Costs
) -> Table:
    repeats = range(1, family.num_repeats + 1)
    numbered = [f"Repeat {repeat}" for repeat in repeats]
    beside = ["Lowest", "Start-up, baseline", "Start-up, candidate", "Peak memory, baseline", "Peak memory, candidate"]
    rows = []
    for workload, by_repeat in ratios.items():
        lowest = min(by_repeat.values(), default=None)
        rows.append(
            (
                code(workload),
                *(ratio_cell(by_repeat.get(repeat), family.marks) for repeat in repeats),
                ratio_cell(lowest, family.marks),
                *_cost_cells(costs.get((workload, "baseline")), costs.get((workload, "candidate"))),
            )
        )
    return Table(
        name=name,
        caption=caption,
        columns=columns("Workload", *numbered, *beside, numeric=(*numbered, *beside)),
        rows=tuple(rows),
        file="performance-pairs.csv",
    )


def _cost_cells(baseline: Costs | None, candidate: Costs | None) -> tuple[Cell, ...]:
    startups = [
        number(_seconds(side.startup_s), side.startup_s) if side else text(None) for side in (baseline, candidate)
    ]
    memory = [
        number(size(side.peak_allocated_bytes), side.peak_allocated_bytes) if side else text(None)
        for side in (baseline, candidate)
    ]
    return (*startups, *memory)


def _seconds(value: float) -> str:
    return f"{significant(value)} s"


MOST_PLOTTED = 200
"""Workloads in a plot: of more, no label could be read, and to draw them takes most of a report's time."""


def _plotted(table: Mapping[str, Mapping[int, Decimal]]) -> Mapping[str, Mapping[int, Decimal]]:
    """Return the workloads that a plot shows: all, or those with the lowest ratios, in the order given."""
    if len(table) <= MOST_PLOTTED:
        return table
    ordered = sorted(table, key=lambda workload: min(table[workload].values(), default=Decimal(0)))
    lowest = set(ordered[:MOST_PLOTTED])
    return {workload: by_repeat for workload, by_repeat in table.items() if workload in lowest}


def _with_plotted(sentence: str, table: Mapping[str, Mapping[int, Decimal]]) -> str:
    """Return a sentence, and where the plot does not show all workloads, which it does."""
    if len(table) <= MOST_PLOTTED:
        return sentence
    said = (
        f"The plot shows the {count(MOST_PLOTTED)} of {count(len(table))} workloads whose lowest ratio is the lowest."
    )
    return " ".join(filter(None, [sentence, said]))


def _plot(
    name: str, title: str, threshold: str, medians: tuple[Interval, ...], table: Mapping[str, Mapping[int, Decimal]]
) -> str:
    table = _plotted(table)
    series = tuple(
        Series(label=workload, ratios=tuple((repeat, float(ratio)) for repeat, ratio in sorted(by_repeat.items())))
        for workload, by_repeat in table.items()
    )
    shown = listed([f"{against(median.ratio, threshold)} in repeat {median.repeat}" for median in medians])
    description = f"{title}: ratios of {plural(len(series), 'workload')} by repeat against the gate at {threshold}." + (
        f" Medians: {shown}." if shown else ""
    )
    return draw(
        RatioPlot(name=name, description=description, threshold=float(threshold), medians=medians, series=series)
    )


def subjects(family: Throughput) -> tuple[Subject, ...]:
    """Return one section per category, and one for all production cases."""
    ratios, costs = by_workload(family.observations.ratios, "candidate"), costs_by_workload(family.rows)
    found = [
        _category_subject(f"category-{index}", category, family, ratios, costs)
        for index, category in enumerate(family.protocol["categories"], start=1)
    ]
    names = production_names(family.protocol)
    return tuple(found + ([_production_subject(names, family, ratios, costs)] if names else []))


def _category_subject(
    name: str,
    category: Mapping[str, Any],
    family: Throughput,
    ratios: Mapping[str, Mapping[int, Decimal]],
    costs: _Costs,
) -> Subject:
    threshold = family.threshold("category")
    gates = family.gates_of("category", category["name"])
    seen = family.observation("category", category["name"])
    chosen = {workload: ratios.get(workload, {}) for workload in category["workloads"]}
    title = f"Category {category['name']}"
    return Subject(
        name=name,
        title=title,
        mark=_worst(gates),
        sentence=_sentence(
            gates, what=title, statistic="its median ratio", rule=f"at least {threshold} in every repeat"
        ),
        order_sentence=_with_plotted(order_sentence(seen, family.marks), chosen),
        figure=_plot(name, title, threshold, _intervals(seen, gates), chosen),
        table=_workload_table(f"{name}-workloads", f"Workloads of category {category['name']}", chosen, family, costs),
    )


def _production_subject(
    names: Sequence[str], family: Throughput, ratios: Mapping[str, Mapping[int, Decimal]], costs: _Costs
) -> Subject:
    threshold = family.threshold("production")
    gates = [gate for name in names for gate in family.gates_of("production", name)]
    chosen = {workload: ratios.get(workload, {}) for workload in names}
    title = "Production cases"
    return Subject(
        name="production-cases",
        title=title,
        mark=_worst(gates),
        sentence=_sentence(
            gates,
            what="The set of production cases",
            statistic="every case's ratio",
            rule=f"at least {threshold} in every repeat",
        ),
        order_sentence=_with_plotted(
            "The order effect of each case stands beside its gate above; its interval is under spread.", chosen
        ),
        figure=_plot("production-cases", title, threshold, (), chosen),
        table=_workload_table("production-workloads", "Required production cases", chosen, family, costs),
    )


# --- spread, order and noise ------------------------------------------------------------------------------------------

_SPREAD = ("Pairs", "Median", "Lowest", "Highest", "Below 1", "Spread", "Order effect", "95% from", "95% to")


def _spread_row(seen: Observation, marks: Sequence[str]) -> tuple[Cell, ...]:
    return (
        text(f"{seen.kind} {seen.subject}"),
        number(count(seen.pairs), seen.pairs),
        ratio_cell(seen.median_ratio, marks),
        ratio_cell(seen.minimum_ratio, marks),
        ratio_cell(seen.maximum_ratio, marks),
        number(count(seen.below_one), seen.below_one),
        number(seen.spread, seen.sd_log_ratio_ddof1),
        ratio_cell(seen.order_effect, ("1",), digits=4),
        ratio_cell(seen.order_effect_lower, ("1",), digits=4),
        ratio_cell(seen.order_effect_upper, ("1",), digits=4),
    )


def _spread_table(family: Throughput, name: str, caption: str, seen: Sequence[Observation], empty: str) -> Table:
    return Table(
        name=name,
        caption=caption,
        columns=columns("Subject", *_SPREAD, numeric=_SPREAD),
        rows=tuple(_spread_row(observation, family.marks) for observation in seen),
        empty=empty,
    )


def spread_table(family: Throughput) -> Table:
    """Return median, spread and order effect of every category and production case."""
    seen = [*family.observations.of("category"), *family.observations.of("production")]
    caption = "Median, spread and order effect of the candidate's pairs (beside the gates; nothing here decides)"
    return _spread_table(family, "spread", caption, seen, "The verdict observes no pairs of the candidate.")


def noise_table(family: Throughput) -> Table:
    """Return the same of the control pairs, baseline against itself."""
    caption = "Control pairs: the baseline against itself, which should be 1"
    return _spread_table(family, "noise", caption, family.observations.of("control"), "There are no control pairs.")


def noise_sentence(family: Throughput) -> str:
    """Return what the control pairs say of the instrument."""
    controls = family.observations.of("control")
    lows = [seen.minimum_ratio for seen in controls if seen.minimum_ratio is not None]
    highs = [seen.maximum_ratio for seen in controls if seen.maximum_ratio is not None]
    if not lows or not highs:
        return "Without control pairs it is not known how far from 1 the baseline comes out against itself."
    lowest, highest = ratio_text(min(lows), ("1",)), ratio_text(max(highs), ("1",))
    return (
        f"Measured against itself, the baseline came out at {lowest} to {highest} of its own speed. "
        "Differences of that size are noise here. Controls gate nothing."
    )


# --- pairs ------------------------------------------------------------------------------------------------------------

_PAIR_NUMBERS = (
    "Repeat",
    "Pair",
    "Attempt",
    "Ratio",
    "Baseline tokens/s",
    "Other tokens/s",
    "Updates",
    "Microbatches, baseline",
    "Microbatches, other",
    "Start-up, baseline",
    "Start-up, other",
    "Allocated, baseline",
    "Allocated, other",
    "Reserved, baseline",
    "Reserved, other",
)
_PAIR_TITLES = ("Workload", "Comparison", *_PAIR_NUMBERS[:3], "Order", *_PAIR_NUMBERS[3:], "Allocation", "Node")


def _pair_row(pair: Pair, marks: Sequence[str]) -> tuple[Cell, ...]:
    sides = (pair.baseline, pair.other)
    return (
        code(pair.workload),
        text(pair.comparison),
        *(number(str(value), value) for value in (pair.repeat, pair.pair, pair.attempt)),
        text(", ".join(side.replace("_", " ") for side in pair.order)),
        ratio_cell(pair.ratio, marks),
        *(
            _half_cell(side, lambda half: (significant(half.tokens_per_s, digits=4), half.tokens_per_s))
            for side in sides
        ),
        number(count(pair.updates), pair.updates),
        *(text(None) if own is None else number(count(own), own) for own in pair.microbatches),
        *(_half_cell(side, lambda half: (_seconds(half.startup_s), half.startup_s)) for side in sides),
        *(
            _half_cell(side, lambda half: (size(half.peak_allocated_bytes), half.peak_allocated_bytes))
            for side in sides
        ),
        *(_half_cell(side, lambda half: (size(half.peak_reserved_bytes), half.peak_reserved_bytes)) for side in sides),
        code(pair.allocation),
        code(pair.node),
    )


def _half_cell(half: Half | None, show: Any) -> Cell:
    return text(None) if half is None else number(*show(half))


def _ordered_pairs(family: Throughput) -> list[Pair]:
    """Return all pairs in the order of the protocol's workloads, candidates before controls."""
    places = {workload["name"]: place for place, workload in enumerate(family.protocol["workloads"])}
    # A workload that the protocol does not know is a fault that the verdict names; it is shown last.
    return sorted(
        pairs_of(family.rows, family.windows),
        key=lambda pair: (pair.comparison, places.get(pair.workload, len(places))),
    )


def pair_table(family: Throughput) -> Table:
    """Return every pair that was measured, those of attempts that do not count included."""
    return Table(
        name="pairs",
        caption="Every measured pair, with its order; the ratio is other / baseline",
        columns=columns(*_PAIR_TITLES, numeric=_PAIR_NUMBERS),
        rows=tuple(_pair_row(pair, family.marks) for pair in _ordered_pairs(family)),
        empty="No pair was measured.",
        long=True,
        file="performance-pairs.csv",
    )
