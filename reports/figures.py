"""Plots as inline SVG: drawn by matplotlib, then stripped of everything that a strict content policy refuses.

The page's policy allows no style attribute, so each style becomes presentation attributes. Colours are drawn as those
of the light theme and written as variables of the page, so that the plot follows the theme.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from reports.numbers import against
from reports.status import Mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"

_INK = "#1a1c1e"
_MUTED = "#555b61"
_LINE = "#d5d9dd"
_MISSED = "#b3261e"
_PASSED = "#0a6b3d"
_ALTERNATE = "#0072b2"

_VARIABLES = {
    _INK: "var(--text)",
    _MUTED: "var(--muted)",
    _LINE: "var(--line)",
    _MISSED: "var(--missed)",
    _PASSED: "var(--pass)",
    _ALTERNATE: "var(--baseline)",
    "#ffffff": "var(--paper)",
}

_COLOURS = {Mark.PASS: _PASSED, Mark.MISSED: _MISSED}
"""Colour of a median by how its gate stands; any other mark is grey."""

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_WIDTH_IN = 7.6
_ROW_IN = 0.19
_FIXED_IN = 0.95
_SHARE = 0.04
"""Room left and right of the outermost point, as a share of the axis."""
_LONGEST_LABEL = 40


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
    with warnings.catch_warnings():
        # A name in a script that matplotlib's own font lacks is drawn by the reader's browser, not by matplotlib.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        raw = _draw_raw(plot, values)
    return _inline(raw, prefix=f"plot-{plot.name}", description=plot.description)


def _drawable(plot: RatioPlot) -> list[float]:
    bounds = [bound for median in plot.medians for bound in (median.lower, median.ratio, median.upper)]
    points = [ratio for series in plot.series for _, ratio in series.ratios]
    return [value for value in [*bounds, *points] if value is not None and value > 0]


def _draw_raw(plot: RatioPlot, values: Sequence[float]) -> bytes:
    # matplotlib takes most of a second to import and nothing else needs it.
    import matplotlib as mpl  # noqa: PLC0415 - see above
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "campaign",
        "text.parse_math": False,
        "font.family": "DejaVu Sans",
        "font.size": 8.5,
        "axes.unicode_minus": False,
    }
    with mpl.rc_context(settings):
        num_rows = plot.first_row + len(plot.series)
        figure = Figure(figsize=(_WIDTH_IN, _FIXED_IN + _ROW_IN * num_rows))
        axes = figure.add_subplot()
        _draw_frame(axes, plot, values, num_rows)
        _draw_medians(axes, plot)
        _draw_series(axes, plot)
        height_in = figure.get_size_inches()[1]
        figure.subplots_adjust(left=_left_share(plot), right=0.975, bottom=0.52 / height_in, top=1 - 0.32 / height_in)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def _left_share(plot: RatioPlot) -> float:
    """Return the share of the width that the longest label needs; its font is the reader's, so this is generous."""
    labels = [*map(_median_label, plot.medians), *(_printable(series.label) for series in plot.series)]
    longest = max(map(len, labels))
    return (longest * 5.6 + 14) / (_WIDTH_IN * 72)


def _limits(plot: RatioPlot, values: Sequence[float]) -> tuple[float, float]:
    low, high = min([*values, plot.threshold, 1.0]), max([*values, plot.threshold, 1.0])
    room = _SHARE * (high - low)
    return max(low - room, low / 2), high + room


def _draw_frame(axes: Axes, plot: RatioPlot, values: Sequence[float], num_rows: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 - see _draw_raw

    low, high = _limits(plot, values)
    axes.set_xlim(low, high)
    axes.set_ylim(num_rows - 0.4, -0.6)
    axes.axvspan(low, plot.threshold, color=_MISSED, alpha=0.07, linewidth=0, zorder=0)
    axes.axvline(1.0, color=_MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axes.axvline(plot.threshold, color=_MISSED, linewidth=1.4, zorder=2)
    axes.annotate(
        f"gate {against(plot.threshold, None, digits=2)}",
        (plot.threshold, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="center",
        color=_MISSED,
        fontweight="bold",
    )
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}\u00d7"))
    axes.tick_params(axis="x", colors=_MUTED, length=3, width=0.8)
    axes.tick_params(axis="y", length=0, pad=6)
    axes.grid(visible=True, axis="y", color=_LINE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("candidate / baseline, target tokens per second (right is faster)", color=_MUTED)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(_LINE)
    _label_rows(axes, plot)


def _label_rows(axes: Axes, plot: RatioPlot) -> None:
    first = plot.first_row
    places = [*range(len(plot.medians)), *range(first, first + len(plot.series))]
    labels = [_median_label(median) for median in plot.medians] + [_printable(series.label) for series in plot.series]
    axes.set_yticks(places, labels)
    for place, label in zip(places, axes.get_yticklabels(), strict=True):
        label.set_color(_INK if place < first else _MUTED)
        label.set_fontweight("bold" if place < first else "normal")


def _median_label(median: Interval) -> str:
    label = f"median, repeat {median.repeat}"
    return label if median.mark in _COLOURS else f"{label} ({median.mark.word})"


def _draw_medians(axes: Axes, plot: RatioPlot) -> None:
    for row, median in enumerate(plot.medians):
        if not median.ratio > 0:
            continue
        colour = _COLOURS.get(median.mark, _MUTED)
        if median.lower is not None and median.upper is not None:
            axes.plot([median.lower, median.upper], [row, row], color=colour, linewidth=1.6, solid_capstyle="butt")
            axes.plot([median.lower, median.upper], [row, row], linestyle="", marker="|", markersize=6, color=colour)
        axes.plot(
            [median.ratio], [row], linestyle="", marker=_marker(median.repeat), markersize=6.5, color=colour, zorder=4
        )
    if plot.medians:
        axes.axhline(len(plot.medians), color=_LINE, linewidth=0.8)


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
            markerfacecolor="#ffffff",
            markeredgecolor=_ALTERNATE,
            markeredgewidth=1.1,
            zorder=3,
        )


def _marker(repeat: int) -> str:
    return _MARKERS[(repeat - 1) % len(_MARKERS)]


def _printable(label: str) -> str:
    """Return a label without characters that XML forbids, short enough for its margin."""
    clean = "".join(character if character.isprintable() else "\ufffd" for character in label)
    return clean if len(clean) <= _LONGEST_LABEL else f"{clean[: _LONGEST_LABEL - 3]}..."


# --- SVG that the page's policy accepts -------------------------------------------------------------------------------

_DROPPED = ("metadata", "style")
_FONT_FAMILY = re.compile(r"^font(-family)?$")


def _inline(raw: bytes, *, prefix: str, description: str) -> str:
    # The bytes come from matplotlib a moment ago: nothing of them was written by anybody else but text nodes.
    root = ET.fromstring(raw)  # noqa: S314 - see above
    used = {value.partition("#")[2].rstrip(")") for value in _references(root)}
    for element in root.iter():
        _drop_children(element)
        _style_to_attributes(element)
        _tidy_attributes(element, prefix, used)
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        element.tail = None
        if element.tag != "text":
            element.text = None
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib.update({"role": "img", "aria-label": description, "class": "plot"})
    _flatten(root)
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)


def _references(root: ET.Element) -> Iterable[str]:
    for element in root.iter():
        for name, value in element.attrib.items():
            if name in (f"{{{_XLINK}}}href", "clip-path"):
                yield value


def _drop_children(element: ET.Element) -> None:
    for child in list(element):
        if isinstance(child.tag, str) and child.tag.removeprefix(f"{{{_SVG}}}") in _DROPPED:
            element.remove(child)


def _style_to_attributes(element: ET.Element) -> None:
    style = element.attrib.pop("style", "")
    for declaration in filter(None, (part.strip() for part in style.split(";"))):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font":
            element.attrib.update(_font_attributes(value))
        elif not _FONT_FAMILY.match(name):
            element.set(name, _VARIABLES.get(value, value))
    if element.tag == f"{{{_SVG}}}text" and "fill" not in element.attrib:
        element.set("fill", _VARIABLES[_INK])


def _font_attributes(shorthand: str) -> dict[str, str]:
    """Return size and weight of a ``font`` shorthand; the family is the page's."""
    found: dict[str, str] = {}
    for word in shorthand.partition("'")[0].split():
        if word.endswith("px"):
            found["font-size"] = word
        elif word in ("bold", "700"):
            found["font-weight"] = "bold"
    return found


def _tidy_attributes(element: ET.Element, prefix: str, used: set[str]) -> None:
    if "id" in element.attrib:
        name = element.attrib.pop("id")
        if name in used:
            element.set("id", f"{prefix}-{name}")
    reference = element.attrib.pop(f"{{{_XLINK}}}href", None)
    if reference is not None:
        element.set("href", f"#{prefix}-{reference.removeprefix('#')}")
    if "clip-path" in element.attrib:
        element.set("clip-path", element.attrib["clip-path"].replace("#", f"#{prefix}-"))
    if element.attrib.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if "d" in element.attrib:
        element.set("d", " ".join(element.attrib["d"].split()))


def _flatten(element: ET.Element) -> None:
    """Replace groups that say nothing by their children: matplotlib nests one for every artist."""
    children: list[ET.Element[Any]] = []
    for child in list(element):
        _flatten(child)
        if child.tag == "g" and not child.attrib:
            children.extend(child)
        else:
            children.append(child)
    element[:] = children
