from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from reports.curves import MOST_LINES, Curve, CurvePlot, Value, draw_curves


def make_plot(*values: tuple[Value, ...], comparison: str = "candidate", threshold: float = 0.05) -> CurvePlot:
    return CurvePlot(
        name="gradients",
        description="Relative L2 <against> the gate",
        unit="relative L2",
        threshold=threshold,
        rule=f"< {threshold}",
        curves=tuple(Curve(comparison=comparison, values=own) for own in values),
    )


def parsed(plot: CurvePlot) -> ET.Element:
    return ET.fromstring(draw_curves(plot))  # noqa: S314 - made here


def texts(plot: CurvePlot) -> list[str]:
    return [element.text or "" for element in parsed(plot).iter("text")]


def test_the_plot_is_accessible_and_holds_nothing_that_a_strict_policy_refuses() -> None:
    root = parsed(make_plot((0.001, 0.002), (0.003, 0.2)))
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == "Relative L2 <against> the gate"
    assert not {name for element in root.iter() for name in element.attrib} & {"style", "onload"}
    assert not {element.tag for element in root.iter()} & {"style", "script", "metadata", "image"}


def test_every_colour_follows_the_theme() -> None:
    plot = make_plot((0.001, 0.002), (0.0, None))
    colours = {
        element.attrib[name] for element in parsed(plot).iter() for name in ("fill", "stroke") if name in element.attrib
    }
    assert {colour for colour in colours if not colour.startswith("var(--")} <= {"none"}


def test_the_gate_is_named_and_every_update_has_its_tick() -> None:
    shown = texts(make_plot((0.001, 0.002, 0.003)))
    assert "gate < 0.05" in shown
    assert {"1", "2", "3", "matched update", "relative L2", "candidate"} <= set(shown)
    assert "control" not in shown


def test_zero_and_what_is_not_finite_have_places_of_their_own() -> None:
    shown = texts(make_plot((0.0, 0.002, None)))
    assert {"0", "not finite"} <= set(shown)
    assert not {"0", "not finite"} & set(texts(make_plot((0.001, 0.002, 0.004))))


@pytest.mark.parametrize("values", [(0.0, 0.0), (None, None), (1e-300, 1e300), (5e-324, 0.05)])
def test_extreme_values_are_drawn(values: tuple[Value, ...]) -> None:
    assert "gate < 0.05" in texts(make_plot(values))


def test_few_workloads_have_a_line_each_and_many_a_band() -> None:
    def num_bands(number: int) -> int:
        lines = [(0.001 * (index + 1), 0.002 * (index + 1)) for index in range(number)]
        return len(re.findall(r'fill-opacity="0\.16"', draw_curves(make_plot(*lines))))

    assert num_bands(MOST_LINES) == 0
    assert num_bands(MOST_LINES + 1) > 0


def test_a_band_does_not_grow_with_the_number_of_workloads() -> None:
    def size(number: int) -> int:
        return len(draw_curves(make_plot(*[(0.001 * (index + 1), 0.002) for index in range(number)])))

    assert size(117) < size(MOST_LINES + 1) * 1.2


def test_a_band_is_of_what_is_finite() -> None:
    lines: list[tuple[Value, ...]] = [(0.001, 0.002)] * MOST_LINES + [(0.001, None)]
    svg = draw_curves(make_plot(*lines))
    assert "nan" not in svg.lower()
    assert "not finite" in svg


def test_cases_of_different_length_are_drawn_together() -> None:
    assert draw_curves(make_plot((0.001, 0.002), (0.001,), *[(0.002, 0.003)] * MOST_LINES))


def test_the_same_plot_gives_the_same_bytes() -> None:
    plot = make_plot((0.001, 0.002))
    assert draw_curves(plot) == draw_curves(plot)


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw_curves(make_plot()) == draw_curves(make_plot(())) == ""
