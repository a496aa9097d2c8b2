"""Plots of the matched updates: how far candidate and control drift from the baseline, against the gate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from reports.numbers import near
from reports.svg import BASELINE, CANDIDATE, INK, LINE, MISSED, MUTED, PAPER, draw_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 6
"""Up to so many workloads have a line each; more are drawn as their envelope."""

_SIZE_IN = (4.7, 3.0)
_DECADES = 7
"""Most decades below the gate; smaller values stand on the lowest line."""
_COLOURS = {"candidate": CANDIDATE, "control": BASELINE}
_DASHES: dict[str, Any] = {"candidate": "solid", "control": (0, (4, 2))}
_MARKERS = {"candidate": "o", "control": "s"}

Value = float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One case's worst over the workers, by matched update."""

    comparison: str
    values: tuple[Value, ...]
    """None: not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePlot:
    """One quantity of all cases against its gate."""

    name: str
    """Unique on the page; prefixes every id."""
    description: str
    """What a reader who does not see the plot is told."""
    unit: str
    """What the vertical axis shows."""
    threshold: float
    rule: str
    curves: tuple[Curve, ...]

    def of(self, comparison: str) -> list[Curve]:
        """Return the curves of one comparison that have points."""
        return [curve for curve in self.curves if curve.comparison == comparison and curve.values]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Heights on a logarithmic axis that also has a place for zero, and one for what is not finite."""

    low: int
    high: int
    has_zero: bool
    has_not_finite: bool

    @property
    def bottom(self) -> float:
        return self.low - (0.8 if self.has_zero else 0.12)

    @property
    def top(self) -> float:
        return self.high + (0.8 if self.has_not_finite else 0.12)

    def height(self, value: Value) -> float:
        if value is None:
            return self.high + 0.5
        return self.low - 0.5 if value <= 0 else max(math.log10(value), self.low - 0.5)

    def ticks(self) -> tuple[list[float], list[str]]:
        step = max(1, math.ceil((self.high - self.low) / 6))
        powers = list(range(self.low, self.high + 1, step))
        places, labels = [float(power) for power in powers], [near(10.0**power, digits=1) for power in powers]
        if self.has_zero:
            places, labels = [self.height(0), *places], ["0", *labels]
        if self.has_not_finite:
            places, labels = [*places, self.height(None)], [*labels, "not finite"]
        return places, labels


def _scale(plot: CurvePlot) -> _Scale:
    values = [value for curve in plot.curves for value in curve.values]
    gate = math.log10(plot.threshold)
    powers = [gate, *(math.log10(value) for value in values if value is not None and value > 0)]
    lowest = math.floor(gate) - _DECADES
    return _Scale(
        low=max(math.floor(min(powers)), lowest),
        high=math.ceil(max(powers) + 0.15),
        has_zero=any(value is not None and (value <= 0 or math.log10(value) < lowest) for value in values),
        has_not_finite=any(value is None for value in values),
    )


def draw_curves(plot: CurvePlot) -> str:
    """Return the plot as an inline SVG element; empty if there is nothing to draw."""
    if not any(curve.values for curve in plot.curves):
        return ""
    scale = _scale(plot)

    def fill(figure: Figure) -> None:
        axes = figure.add_subplot()
        _draw_frame(axes, plot, scale)
        for comparison in ("control", "candidate"):
            _draw_comparison(axes, plot, comparison, scale)
        _draw_key(axes, plot)
        figure.subplots_adjust(left=0.155, right=0.965, bottom=0.145, top=0.885)

    return draw_figure(fill, size_in=_SIZE_IN, name=plot.name, description=plot.description)


def _draw_frame(axes: Axes, plot: CurvePlot, scale: _Scale) -> None:
    num_updates = max(len(curve.values) for curve in plot.curves)
    gate = scale.height(plot.threshold)
    axes.set_xlim(0.75, num_updates + 0.25)
    axes.set_ylim(scale.bottom, scale.top)
    axes.axhspan(gate, scale.top, color=MISSED, alpha=0.07, linewidth=0, zorder=0)
    axes.axhline(gate, color=MISSED, linewidth=1.4, zorder=5)
    axes.annotate(
        f"gate {plot.rule}",
        (0, gate),
        xycoords=("axes fraction", "data"),
        xytext=(5, 3.5),
        textcoords="offset points",
        color=MISSED,
        fontweight="bold",
    )
    axes.set_xticks(range(1, num_updates + 1))
    axes.set_yticks(*scale.ticks())
    axes.tick_params(axis="x", colors=MUTED, length=3, width=0.8)
    axes.tick_params(axis="y", colors=MUTED, length=0, pad=5)
    axes.grid(visible=True, axis="y", color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("matched update", color=MUTED)
    axes.annotate(plot.unit, (0, 1), xycoords="axes fraction", xytext=(0, 7), textcoords="offset points", color=MUTED)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(LINE)


def _draw_comparison(axes: Axes, plot: CurvePlot, comparison: str, scale: _Scale) -> None:
    curves = plot.of(comparison)
    if not curves:
        return
    if len(curves) > MOST_LINES:
        _draw_envelope(axes, curves, comparison, scale)
    else:
        for curve in curves:
            _draw_line(axes, [scale.height(value) for value in curve.values], comparison, width=1.0)
    _draw_not_finite(axes, curves, scale)


def _draw_line(axes: Axes, heights: Sequence[float], comparison: str, *, width: float, marked: bool = True) -> None:
    colour = _COLOURS[comparison]
    axes.plot(
        range(1, len(heights) + 1),
        heights,
        color=colour,
        linewidth=width,
        linestyle=_DASHES[comparison],
        marker=_MARKERS[comparison] if marked else "",
        markersize=3.6,
        markerfacecolor=PAPER if comparison == "control" else colour,
        markeredgecolor=colour,
        markeredgewidth=0.9,
        zorder=4 if comparison == "candidate" else 3,
    )


def _draw_envelope(axes: Axes, curves: Sequence[Curve], comparison: str, scale: _Scale) -> None:
    """Draw the range of what is finite of all workloads, its upper edge (what the gate sees) and its middle."""
    columns = [
        [scale.height(value) for curve in curves for value in curve.values[place : place + 1] if value is not None]
        for place in range(max(len(curve.values) for curve in curves))
    ]
    updates = range(1, len(columns) + 1)
    lows, highs = ([pick(column, default=math.nan) for column in columns] for pick in (min, max))
    axes.fill_between(updates, lows, highs, color=_COLOURS[comparison], alpha=0.16, linewidth=0, zorder=2)
    _draw_line(axes, highs, comparison, width=1.6)
    middles = [median(column) if column else math.nan for column in columns]
    _draw_line(axes, middles, comparison, width=0.7, marked=False)


def _draw_not_finite(axes: Axes, curves: Sequence[Curve], scale: _Scale) -> None:
    updates = [place + 1 for curve in curves for place, value in enumerate(curve.values) if value is None]
    heights = [scale.height(None)] * len(updates)
    axes.plot(updates, heights, linestyle="", marker="X", markersize=6, color=MISSED, zorder=6)


def _draw_key(axes: Axes, plot: CurvePlot) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - see reports.svg

    shown = [comparison for comparison in ("candidate", "control") if plot.of(comparison)]
    handles = [
        Line2D(
            [],
            [],
            color=_COLOURS[comparison],
            linestyle=_DASHES[comparison],
            linewidth=1.4,
            marker=_MARKERS[comparison],
            markersize=3.6,
            markerfacecolor=PAPER if comparison == "control" else _COLOURS[comparison],
        )
        for comparison in shown
    ]
    axes.legend(
        handles,
        shown,
        loc="lower right",
        bbox_to_anchor=(1.01, 1.0),
        ncols=2,
        frameon=False,
        labelcolor=INK,
        handlelength=2.6,
        columnspacing=1.2,
        borderpad=0.2,
        borderaxespad=0.2,
    )
