"""Plots of trainings: the paired differences with their bound against the margin, and the validation curves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.numbers import against
from reports.status import Mark
from reports.svg import BASELINE, CANDIDATE, INK, LINE, MISSED, MUTED, PAPER, PASSED, draw_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELLED = 12
"""So many runs have their names at the ends of their curves; of more, the key alone tells the sides apart."""
MOST_POINTS = 200
"""Of one curve in a plot or a table; the download has all."""

_WIDTH_IN = 4.7
_HEIGHT_IN = 3.0
_ROW_IN = 0.24
_FIXED_IN = 0.95
_COLOURS = {"baseline": BASELINE, "candidate": CANDIDATE}
_DASHES: dict[str, Any] = {"baseline": (0, (2, 0.8)), "candidate": "solid"}
_WIDTHS = {"baseline": 2.6, "candidate": 0.9}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_MARKS = {Mark.PASS: PASSED, Mark.MISSED: MISSED}


def _tidy(axes: Axes) -> None:
    axes.tick_params(axis="x", colors=MUTED, length=3, width=0.8)
    axes.set_axisbelow(True)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(LINE)


# --- paired differences -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferencePlot:
    """The paired differences of one recipe."""

    name: str
    """Unique on the page; prefixes every id."""
    description: str
    """What a reader who does not see the plot is told."""
    margin: float
    mark: Mark
    """How the gate stands."""
    differences: tuple[tuple[int, float], ...]
    """(seed, candidate - baseline)."""
    bounds: tuple[float, float, float] | None
    """Lower bound, mean, upper bound of the look that counts; None where a seed is not there."""


def draw_differences(plot: DifferencePlot) -> str:
    """Return the plot as an inline SVG element; empty if there is no difference."""
    if not plot.differences:
        return ""
    num_rows = len(plot.differences) + (2 if plot.bounds else 0)
    size_in = (_WIDTH_IN, max(_HEIGHT_IN, _FIXED_IN + _ROW_IN * num_rows))

    def fill(figure: Figure) -> None:
        axes = figure.add_subplot()
        _frame_differences(axes, plot, num_rows)
        _draw_bounds(axes, plot)
        _draw_differences(axes, plot)
        figure.subplots_adjust(left=0.185, right=0.965, bottom=0.46 / size_in[1], top=1 - 0.34 / size_in[1])

    return draw_figure(fill, size_in=size_in, name=plot.name, description=plot.description)


def _first_row(plot: DifferencePlot) -> int:
    return 2 if plot.bounds else 0


def _frame_differences(axes: Axes, plot: DifferencePlot, num_rows: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 - see reports.svg

    values = [0.0, plot.margin, *(plot.bounds or ()), *(value for _, value in plot.differences)]
    room = 0.08 * (max(values) - min(values))
    low, high = min(values) - room, max(values) + room
    axes.set_xlim(low, high)
    axes.set_ylim(num_rows - 0.4, -0.7)
    axes.axvspan(plot.margin, high, color=MISSED, alpha=0.07, linewidth=0, zorder=0)
    axes.axvline(0, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axes.axvline(plot.margin, color=MISSED, linewidth=1.4, zorder=2)
    axes.annotate(
        f"margin {against(plot.margin, None, digits=3)}",
        (plot.margin, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right" if plot.margin > (low + 2 * high) / 3 else "center",
        color=MISSED,
        fontweight="bold",
    )
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}"))
    axes.grid(visible=True, axis="y", color=LINE, linewidth=0.5)
    axes.set_xlabel("candidate - baseline, nats (left is better)", color=MUTED)
    _tidy(axes)
    axes.tick_params(axis="y", length=0, pad=6)
    first = _first_row(plot)
    labels = [f"seed {seed}" for seed, _ in plot.differences]
    places: list[float] = [*range(first, first + len(labels))]
    axes.set_yticks([0.35, *places] if plot.bounds else places, ["mean", *labels] if plot.bounds else labels)
    for label in axes.get_yticklabels():
        label.set_color(INK if label.get_text() == "mean" else MUTED)
        label.set_fontweight("bold" if label.get_text() == "mean" else "normal")


def _draw_bounds(axes: Axes, plot: DifferencePlot) -> None:
    """Draw the mean with its bounds; the upper one, which the gate looks at, is bold and has its number."""
    if plot.bounds is None:
        return
    lower, mean, upper = plot.bounds
    colour, row = _MARKS.get(plot.mark, INK), 0.35
    axes.plot([lower, mean], [row, row], color=MUTED, linewidth=1.0, linestyle=(0, (2, 1.5)))
    axes.plot([lower], [row], linestyle="", marker="|", markersize=6, color=MUTED)
    axes.plot([mean, upper], [row, row], color=colour, linewidth=2.2, solid_capstyle="butt")
    axes.plot([upper], [row], linestyle="", marker="|", markersize=11, markeredgewidth=2.2, color=colour)
    axes.plot([mean], [row], linestyle="", marker="D", markersize=5.5, color=colour, zorder=4)
    low, high = axes.get_xlim()
    shift = "right" if upper > (low + 2 * high) / 3 else "left" if upper < (2 * low + high) / 3 else "center"
    axes.annotate(
        f"upper {against(upper, plot.margin, digits=4)}",
        (upper, row),
        xytext=(0, 7),
        textcoords="offset points",
        ha=shift,
        color=colour,
        fontweight="bold",
        bbox={"boxstyle": "square,pad=0.15", "facecolor": PAPER, "edgecolor": "none"},  # over the margin's line
        zorder=6,
    )
    axes.axhline(1.2, color=LINE, linewidth=0.8)


def _draw_differences(axes: Axes, plot: DifferencePlot) -> None:
    first = _first_row(plot)
    axes.plot(
        [value for _, value in plot.differences],
        range(first, first + len(plot.differences)),
        linestyle="",
        marker="o",
        markersize=5,
        markerfacecolor=PAPER,
        markeredgecolor=CANDIDATE,
        markeredgewidth=1.2,
        zorder=3,
    )


# --- validation curves ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCurve:
    """The validation curve of one run."""

    side: str
    seed: int
    points: tuple[tuple[int, float], ...]
    """(targets, loss)."""
    cuts: tuple[float, ...] = ()
    """Targets behind the states from which later segments went on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlot:
    """The validation curves of all runs of one recipe."""

    name: str
    """Unique on the page; prefixes every id."""
    description: str
    """What a reader who does not see the plot is told."""
    curves: tuple[TrainingCurve, ...]


def thinned(count: int, most: int = MOST_POINTS) -> list[int]:
    """Return the indices of at most so many of `count` points, evenly spread, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(index * (count - 1) / (most - 1)) for index in range(most)})


def draw_trainings(plot: TrainingPlot) -> str:
    """Return the plot as an inline SVG element; empty if there is no curve."""
    curves = [curve for curve in plot.curves if curve.points]
    if not curves:
        return ""
    labelled = len(curves) <= MOST_LABELLED

    def fill(figure: Figure) -> None:
        axes = figure.add_subplot()
        _frame_trainings(axes, curves)
        for curve in curves:
            _draw_training(axes, curve, _marker(curve, curves))
            _draw_cuts(axes, curve)
        if labelled:
            _label_ends(axes, curves)
        _draw_key(axes, curves)
        figure.subplots_adjust(left=0.125, right=0.76 if labelled else 0.965, bottom=0.155, top=0.885)

    return draw_figure(fill, size_in=(_WIDTH_IN, _HEIGHT_IN), name=plot.name, description=plot.description)


_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))


def shortened(targets: float) -> str:
    """Return a number of targets for an axis: ``250M``."""
    for unit, letter in _UNITS:
        if abs(targets) >= unit:
            return f"{targets / unit:.4g}{letter}"
    return f"{targets:.4g}"


def _frame_trainings(axes: Axes, curves: Sequence[TrainingCurve]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 - see reports.svg

    losses = [loss for curve in curves for _, loss in curve.points]
    room = 0.06 * (max(losses) - min(losses)) or 0.01
    axes.set_ylim(min(losses) - room, max(losses) + room)
    axes.set_xlim(0, max(targets for curve in curves for targets, _ in curve.points) * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shortened(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}"))
    axes.grid(visible=True, axis="y", color=LINE, linewidth=0.5)
    axes.tick_params(axis="y", colors=MUTED, length=0, pad=5)
    axes.set_xlabel("training targets", color=MUTED)
    axes.annotate(
        "validation loss, nats",
        (0, 1),
        xycoords="axes fraction",
        xytext=(-26, 7),
        textcoords="offset points",
        color=MUTED,
    )
    _tidy(axes)


def _marker(curve: TrainingCurve, curves: Sequence[TrainingCurve]) -> str:
    seeds = sorted({own.seed for own in curves})
    return _MARKERS[seeds.index(curve.seed) % len(_MARKERS)]


def _draw_training(axes: Axes, curve: TrainingCurve, marker: str) -> None:
    points = [curve.points[index] for index in thinned(len(curve.points))]
    colour, is_baseline = _COLOURS[curve.side], curve.side == "baseline"
    # Curves lie on each other for most of a training: the wide one is seen on both sides of the narrow one.
    axes.plot(
        [targets for targets, _ in points],
        [loss for _, loss in points],
        color=colour,
        linewidth=_WIDTHS[curve.side],
        linestyle=_DASHES[curve.side],
        marker=marker,
        markevery=max(1, len(points) // 12),
        markersize=5.2 if is_baseline else 2.6,
        markerfacecolor=PAPER if is_baseline else colour,
        markeredgecolor=colour,
        markeredgewidth=0.8,
        zorder=3 if is_baseline else 4,
    )


def _draw_cuts(axes: Axes, curve: TrainingCurve) -> None:
    """Mark where a run was cut, on its curve."""
    places = [cut for cut in curve.cuts if cut >= curve.points[0][0]]  # before its first point there is no curve
    losses = [_height(curve.points, cut) for cut in places]
    axes.plot(places, losses, linestyle="", marker="|", markersize=13, color=_COLOURS[curve.side], zorder=5)


def _height(points: Sequence[tuple[int, float]], targets: float) -> float:
    """Return the loss of a curve between two of its points."""
    for before, after in itertools.pairwise(points):
        if before[0] <= targets <= after[0]:
            return before[1] + (after[1] - before[1]) * (targets - before[0]) / (after[0] - before[0])
    return points[-1][1]


_LABEL_HEIGHT = 0.06
"""Of a label at the end of a curve, as a share of the axes' height."""


_LEADER: dict[str, Any] = {
    "arrowstyle": "-",
    "color": LINE,
    "linewidth": 0.6,
    "shrinkA": 1,
    "shrinkB": 2,
    "relpos": (0, 0.5),
}


def spread_labels(heights: Sequence[float], least: float = _LABEL_HEIGHT) -> list[float]:
    """Return heights from 0 to 1 in the same order, moved so that neighbours are at least `least` apart."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    placed = [0.0] * len(heights)
    floor = 0.0
    for index in order:
        placed[index] = max(heights[index], floor)
        floor = placed[index] + least
    ceiling = 1.0
    for index in reversed(order):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - least
    return placed


def _label_ends(axes: Axes, curves: Sequence[TrainingCurve]) -> None:
    low, high = axes.get_ylim()
    ends = [curve.points[-1] for curve in curves]
    placed = spread_labels([(loss - low) / (high - low) for _, loss in ends])
    for curve, end, height in zip(curves, ends, placed, strict=True):
        axes.annotate(
            f"{curve.side} {curve.seed}",
            end,
            xycoords="data",
            xytext=(1.05, height),
            textcoords="axes fraction",
            va="center",
            color=_COLOURS[curve.side],
            fontsize=8,
            arrowprops=_LEADER,
        )


def _draw_key(axes: Axes, curves: Sequence[TrainingCurve]) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - see reports.svg

    sides = [side for side in ("baseline", "candidate") if any(curve.side == side for curve in curves)]
    handles = [Line2D([], [], color=_COLOURS[side], linestyle=_DASHES[side], linewidth=_WIDTHS[side]) for side in sides]
    axes.legend(
        handles,
        sides,
        loc="upper right",
        frameon=False,
        labelcolor=INK,
        handlelength=2.6,
        borderpad=0.2,
        borderaxespad=0.2,
    )
