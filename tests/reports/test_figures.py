from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from reports.figures import Interval, RatioPlot, Series, draw
from reports.status import Mark


def make_plot(*labels: str, name: str = "one", ratio: float = 1.06) -> RatioPlot:
    return RatioPlot(
        name=name,
        description="Ratios <against> the gate",
        threshold=1.05,
        medians=(Interval(repeat=1, mark=Mark.PASS, ratio=ratio, lower=1.0, upper=1.2),),
        series=tuple(Series(label=label, ratios=((1, ratio), (2, 1.02))) for label in labels),
    )


def test_a_plot_is_one_accessible_svg_without_anything_that_a_strict_policy_refuses() -> None:
    svg = draw(make_plot("20m-sync-b4"))
    root = ET.fromstring(svg)  # noqa: S314 - made here
    assert root.tag == "svg"
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == "Ratios <against> the gate"
    names = {name for element in root.iter() for name in element.attrib}
    tags = {element.tag for element in root.iter()}
    assert not names & {"style", "onload"}
    assert not tags & {"style", "script", "metadata", "image"}
    assert "http" not in svg


def test_colours_are_variables_of_the_page() -> None:
    root = ET.fromstring(draw(make_plot("w")))  # noqa: S314 - made here
    colours = {element.attrib[name] for element in root.iter() for name in ("fill", "stroke") if name in element.attrib}
    assert {colour for colour in colours if not colour.startswith("var(--")} <= {"none"}


def test_the_same_plot_gives_the_same_bytes() -> None:
    assert draw(make_plot("w")) == draw(make_plot("w"))


def test_ids_of_two_plots_on_a_page_differ() -> None:
    def ids(name: str) -> set[str]:
        root = ET.fromstring(draw(make_plot("w", name=name)))  # noqa: S314 - made here
        return {element.attrib["id"] for element in root.iter() if "id" in element.attrib}

    assert ids("one")
    assert not ids("one") & ids("two")


def test_every_reference_has_its_target() -> None:
    root = ET.fromstring(draw(make_plot("w")))  # noqa: S314 - made here
    ids = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
    used = {element.attrib["href"].removeprefix("#") for element in root.iter() if "href" in element.attrib}
    clips = {element.attrib["clip-path"][5:-1] for element in root.iter() if "clip-path" in element.attrib}
    assert used | clips == ids


@pytest.mark.parametrize(
    "label", ["$\\frac{", "<img onerror=alert(1)>", "--><script>", "\u4e2d\u6587", "a\x00b", "x" * 200]
)
def test_no_label_breaks_a_plot(label: str) -> None:
    root = ET.fromstring(draw(make_plot(label)))  # noqa: S314 - made here
    texts = [element.text or "" for element in root.iter("text")]
    assert any(text[:3] in (label[:3], "a\ufffdb") for text in texts)
    assert not list(root.iter("script"))
    assert not list(root.iter("img"))


def test_a_median_whose_gate_was_not_evaluated_says_so() -> None:
    plot = RatioPlot(
        name="one",
        description="",
        threshold=1.05,
        medians=(Interval(repeat=2, mark=Mark.INVALID, ratio=2.0, lower=None, upper=None),),
        series=(),
    )
    assert "median, repeat 2 (invalid)" in draw(plot)


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw(RatioPlot(name="one", description="", threshold=1.05, medians=(), series=())) == ""
