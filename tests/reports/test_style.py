from __future__ import annotations

import re
from itertools import product

import pytest

from reports.templating import read_template

INKS = ("text", "muted", "link", "pass", "missed", "inconclusive", "baseline", "candidate")
PAPERS = ("paper", "panel")


def themes() -> dict[str, dict[str, str]]:
    """Return the colours of the light theme, and those of the dark one laid over them."""
    style = read_template("report.css")
    light, dark = (
        dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    )
    return {"light": light, "dark": light | dark}


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour (WCAG 2.2)."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2)."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_computed_as_defined() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize(("theme", "ink", "paper"), list(product(("light", "dark"), INKS, PAPERS)))
def test_every_ink_is_readable_on_every_paper(theme: str, ink: str, paper: str) -> None:
    colours = themes()[theme]
    assert contrast(colours[ink], colours[paper]) >= 4.5


def test_the_dark_theme_names_every_colour_anew() -> None:
    style = read_template("report.css")
    light, dark = (
        set(re.findall(r"--([a-z]+): #", block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    )
    assert light == dark == {*INKS, *PAPERS, "line"}


def test_no_colour_is_written_but_as_a_variable() -> None:
    style = re.sub(r":root \{.*?\}", "", read_template("report.css"), flags=re.DOTALL)
    assert not re.search(r"#[0-9a-f]{3,8}\b|rgb|hsl", style)
    assert set(re.findall(r"var\(--([a-z]+)\)", style)) <= set(themes()["light"])


def test_print_is_always_light() -> None:
    assert "@media screen and (prefers-color-scheme: dark)" in read_template("report.css")
