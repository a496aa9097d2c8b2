"""Plots of throughput ratios against their gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.numbers import against
from reports.status import Mark
from reports.svg import BASELINE, INK, LINE, MISSED, MUTED, PAPER, PASSED, draw_figure, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {Mark.PASS: PASSED, Mark.MISSED: MISSED}
"""Colour of a median by how its gate stands; any other mark is grey."""

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_WIDTH_IN = 7.6
_ROW_IN = 0.19
_FIXED_IN = 0.95
_SHARE = 0.04
"""Room left and right of the outermost point, as a share of the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The statistic of one repeat, with the interval shown beside it."""

    repeat: int
    mark: Mark
    """How its gate stands."""
    ratio: float
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One workload's ratios."""

    label: str
    ratios: tuple[tuple[int, float], ...]
    """(repeat, ratio)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioPlot:
    """Ratios of a category's workloads against its gate."""

    name: str
    """Unique on the page; prefixes every id."""
    description: str
    """What a reader who does not see the plot is told."""
    threshold: float
    medians: tuple[Interval, ...]
    series: tuple[Series, ...]

    @property
    def first_row(self) -> int:
        """Return the row of the first series: under the medians, if there are any, and a line."""
        return len(self.medians) + 1 if self.medians else 0


def draw(plot: RatioPlot) -> str:
    """Return the plot as an inline SVG element; empty if there is nothing finite and positive to draw."""
    values = _drawable(plot)
    if not values:
        return ""
    num_rows = plot.first_row + len(plot.series)
    size_in = (_WIDTH_IN, _FIXED_IN + _ROW_IN * num_rows)

    def fill(figure: Figure) -> None:
        axes = figure.add_subplot()
        _draw_frame(axes, plot, values, num_rows)
        _draw_medians(axes, plot)
        _draw_series(axes, plot)
        top_in, bottom_in = 0.32, 0.52
        figure.subplots_adjust(
            left=_left_share(plot), right=0.975, bottom=bottom_in / size_in[1], top=1 - top_in / size_in[1]
        )

    return draw_figure(fill, size_in=size_in, name=plot.name, description=plot.description)


def _drawable(plot: RatioPlot) -> list[float]:
    bounds = [bound for median in plot.medians for bound in (median.lower, median.ratio, median.upper)]
    points = [ratio for series in plot.series for _, ratio in series.ratios]
    return [value for value in [*bounds, *points] if value is not None and value > 0]


def _left_share(plot: RatioPlot) -> float:
    """Return the share of the width that the longest label needs; its font is the reader's, so this is generous."""
    labels = [*map(_median_label, plot.medians), *(printable(series.label) for series in plot.series)]
    longest = max(map(len, labels))
    return (longest * 5.6 + 14) / (_WIDTH_IN * 72)


def _limits(plot: RatioPlot, values: Sequence[float]) -> tuple[float, float]:
    low, high = min([*values, plot.threshold, 1.0]), max([*values, plot.threshold, 1.0])
    room = _SHARE * (high - low)
    return max(low - room, low / 2), high + room


def _draw_frame(axes: Axes, plot: RatioPlot, values: Sequence[float], num_rows: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 - see draw_figure

    low, high = _limits(plot, values)
    axes.set_xlim(low, high)
    axes.set_ylim(num_rows - 0.4, -0.6)
    axes.axvspan(low, plot.threshold, color=MISSED, alpha=0.07, linewidth=0, zorder=0)
    axes.axvline(1.0, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axes.axvline(plot.threshold, color=MISSED, linewidth=1.4, zorder=2)
    axes.annotate(
        f"gate {against(plot.threshold, None, digits=2)}",
        (plot.threshold, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="center",
        color=MISSED,
        fontweight="bold",
    )
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}\u00d7"))
    axes.tick_params(axis="x", colors=MUTED, length=3, width=0.8)
    axes.tick_params(axis="y", length=0, pad=6)
    axes.grid(visible=True, axis="y", color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("candidate / baseline, target tokens per second (right is faster)", color=MUTED)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(LINE)
    _label_rows(axes, plot)


def _label_rows(axes: Axes, plot: RatioPlot) -> None:
    first = plot.first_row
    places = [*range(len(plot.medians)), *range(first, first + len(plot.series))]
    labels = [_median_label(median) for median in plot.medians] + [printable(series.label) for series in plot.series]
    axes.set_yticks(places, labels)
    for place, label in zip(places, axes.get_yticklabels(), strict=True):
        label.set_color(INK if place < first else MUTED)
        label.set_fontweight("bold" if place < first else "normal")


def _median_label(median: Interval) -> str:
    label = f"median, repeat {median.repeat}"
    return label if median.mark in _COLOURS else f"{label} ({median.mark.word})"


def _draw_medians(axes: Axes, plot: RatioPlot) -> None:
    for row, median in enumerate(plot.medians):
        if not median.ratio > 0:
            continue
        colour = _COLOURS.get(median.mark, MUTED)
        if median.lower is not None and median.upper is not None:
            axes.plot([median.lower, median.upper], [row, row], color=colour, linewidth=1.6, solid_capstyle="butt")
            axes.plot([median.lower, median.upper], [row, row], linestyle="", marker="|", markersize=6, color=colour)
        axes.plot(
            [median.ratio], [row], linestyle="", marker=_marker(median.repeat), markersize=6.5, color=colour, zorder=4
        )
    if plot.medians:
        axes.axhline(len(plot.medians), color=LINE, linewidth=0.8)


def _draw_series(axes: Axes, plot: RatioPlot) -> None:
    first = plot.first_row
    repeats = sorted({repeat for series in plot.series for repeat, _ in series.ratios})
    for repeat in repeats:
        points = [
            (ratio, first + row)
            for row, series in enumerate(plot.series)
            for which, ratio in series.ratios
            if which == repeat and ratio > 0
        ]
        axes.plot(
            [ratio for ratio, _ in points],
            [row for _, row in points],
            linestyle="",
            marker=_marker(repeat),
            markersize=4.6,
            markerfacecolor=PAPER,
            markeredgecolor=BASELINE,
            markeredgewidth=1.1,
            zorder=3,
        )


def _marker(repeat: int) -> str:
    return _MARKERS[(repeat - 1) % len(_MARKERS)]
