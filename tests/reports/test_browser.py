from __future__ import annotations

import base64
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from campaign.documents import ConvergenceRules
from tests.reports.evaluations import HOSTILE, crash_one_pair, report_of, write_evaluation
from tests.support.chromium import PROGRAM, require_chromium
from tests.support.evidence import make_campaign, tensor_fields
from tests.support.runs import CLOSE, EXTENSION, WIDE, add_run, make_recipe, paired, seeds_of, slot_of

pytestmark = pytest.mark.browser

require_chromium(PROGRAM, os.environ)

LOSSES = {
    "sync-production": paired("3.5", CLOSE),
    "packed4": paired("3.5", [*WIDE, "0.001", "0.0008", "0.001"]),
    "packed8": paired("3.5", ["0.0201", "0.0202", "0.0199"]),
    "far-better": paired("3.5", ["-0.3", "-0.31", "-0.29"]),
    "absent": paired("3.5", ["0.001"]),
}

TOOL = Path(__file__).parents[2] / "tools" / "report_picture.py"


def open_browser(**options: Any) -> AbstractContextManager[Any]:
    spec = importlib.util.spec_from_file_location("report_picture", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    browser: AbstractContextManager[Any] = module.open_browser(**options)
    return browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    families = ("throughput", "numerical", "convergence")
    rules = ConvergenceRules(recipes=tuple(make_recipe(name, scored=HOSTILE) for name in LOSSES), extension=EXTENSION)
    campaign = crash_one_pair(make_campaign(folder, workloads_per_category=6, families=families, convergence=rules))
    for recipe, losses in LOSSES.items():
        for seed, (baseline, candidate) in zip(seeds_of(rules), losses, strict=False):
            add_run(campaign, slot_of(campaign, recipe, seed, "baseline"), baseline)
            add_run(campaign, slot_of(campaign, recipe, seed, "candidate"), candidate)
    (missed,) = campaign.rows(
        "numerical.csv", workload="20m-sync-b2", comparison="candidate", quantity="updates", update=5, worker=1
    )
    missed.update(tensor_fields("0.1000004"), worst_tensor=HOSTILE)
    for row in [*campaign.tables["pairs.csv"], *campaign.tables["attempts.csv"], *campaign.tables["baseline.csv"]]:
        row["node"] = HOSTILE
    return report_of(write_evaluation(campaign, reasons={"crash": HOSTILE})) / "report.html"


@pytest.fixture(scope="module")
def browser(report: Path) -> Iterator[Any]:
    with open_browser(width=1180, height=900) as driver:
        driver.get(report.as_uri())
        yield driver


def emulate(browser: Any, *, media: str = "", theme: str = "light") -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def test_the_policy_blocks_nothing_of_the_page_and_no_hostile_text_runs(browser: Any) -> None:
    assert browser.get_log("browser") == []
    assert browser.find_elements("css selector", "img") == []
    assert HOSTILE in browser.find_element("css selector", "#attempts").get_attribute("textContent")


def test_nothing_is_loaded_beside_the_page(browser: Any) -> None:
    names = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert names == []


def test_a_column_sorts_both_ways_by_its_numbers_from_the_keyboard(browser: Any) -> None:
    table = browser.find_element("css selector", "#category-1-workloads")
    (button,) = [item for item in table.find_elements("css selector", "thead button") if "Repeat 2" in item.text]
    values = "return [...arguments[0].tBodies[0].rows].map((row) => row.cells[2].querySelector('data')?.value ?? null)"
    header = button.find_element("xpath", "..")
    assert header.get_attribute("aria-sort") is None

    button.send_keys("\ue007")
    ascending = browser.execute_script(values, table)
    assert header.get_attribute("aria-sort") == "ascending"
    button.send_keys("\ue007")
    descending = browser.execute_script(values, table)
    assert header.get_attribute("aria-sort") == "descending"

    # The crashed pair has no number: it stays last either way.
    assert ascending[-1] is descending[-1] is None
    assert ascending[:-1] == sorted(ascending[:-1], key=float)
    assert descending[:-1] == ascending[:-1][::-1]


def test_every_table_and_control_is_reached_with_the_keyboard(browser: Any) -> None:
    unreachable = """return [...document.querySelectorAll('.scroll, thead button, summary, a[href]')]
        .filter((element) => element.tabIndex < 0).length"""
    assert browser.execute_script(unreachable) == 0


def test_a_chip_of_many_gates_leads_to_them_though_they_are_folded(browser: Any) -> None:
    (link,) = browser.find_elements("css selector", '.strip a[href="#gates-parameters-pass-below-0.02"]')
    assert link.text == "numerical, parameters: 19 workloads"
    table = browser.find_element("css selector", '[id="gates-parameters-pass-below-0.02"]')
    assert not table.is_displayed()
    link.send_keys("\ue007")
    assert table.is_displayed()
    assert len(table.find_elements("css selector", "tbody tr")) == 19
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = false; })")


def test_what_misses_a_gate_is_in_sight_without_opening_anything(browser: Any) -> None:
    for selector in (".strip", "#gates", "#numerical-failed"):
        element = browser.find_element("css selector", selector)
        assert element.is_displayed()
        assert "0.1000004" in element.text
    assert browser.find_element("css selector", "#numerical-places").text.count(HOSTILE) == 1


def test_workloads_sort_by_how_far_they_are_off(browser: Any) -> None:
    table = browser.find_element("css selector", "#numerical-worst")
    (button,) = [item for item in table.find_elements("css selector", "thead button") if "Candidate /" in item.text]
    values = (
        """return [...arguments[0].tBodies[0].rows].map((row) => row.cells[1].querySelector('data')?.value ?? null)"""
    )
    button.send_keys("\ue007")
    shown = [float(value) for value in browser.execute_script(values, table) if value is not None]
    assert len(shown) > 4
    assert shown == sorted(shown)


def test_text_in_plots_is_large_enough_to_read(browser: Any) -> None:
    script = """return [...document.querySelectorAll('.plot text')].map((each) => {
        const scale = each.ownerSVGElement.getBoundingClientRect().width / each.ownerSVGElement.viewBox.baseVal.width;
        return parseFloat(getComputedStyle(each).fontSize) * scale; })"""
    sizes = browser.execute_script(script)
    assert len(sizes) > 50
    assert min(sizes) >= 10


def test_no_text_of_the_plots_of_a_recipe_lies_on_another_or_is_cut_off(browser: Any) -> None:
    script = """return [...document.querySelectorAll('.trainings .plot')].map((plot) => {
        const whole = plot.getBoundingClientRect();
        return { box: [whole.left, whole.top, whole.right, whole.bottom],
            texts: [...plot.querySelectorAll('text')].map((each) => { const own = each.getBoundingClientRect();
                return [each.textContent, own.left, own.top, own.right, own.bottom]; }) }; })"""
    plots = browser.execute_script(script)
    assert len(plots) == 2 * len(LOSSES)
    for plot in plots:
        left, top, right, bottom = plot["box"]
        for index, (text, x0, y0, x1, y1) in enumerate(plot["texts"]):
            assert min(x0 - left, y0 - top, right - x1, bottom - y1) >= -0.5, text
            for other, a0, b0, a1, b1 in plot["texts"][index + 1 :]:
                # The box of a line of text is higher than its letters.
                overlap = (min(x1, a1) - max(x0, a0), min(y1, b1) - max(y0, b0) - 0.25 * (y1 - y0))
                assert min(overlap) <= 0, (text, other)


def test_how_a_recipe_stands_is_in_sight_without_opening_anything(browser: Any) -> None:
    table = browser.find_element("css selector", "#convergence-recipes")
    assert table.is_displayed()
    for said in ("pass", "not qualified: inconclusive", "not qualified: missed", "not qualified: missing"):
        assert said in table.text
    assert browser.find_element("css selector", "#convergence-looks").is_displayed()
    assert browser.find_element("css selector", "#recipe-2-differences").text.count("(extension)") == 3


def test_the_table_of_the_recipes_fits_the_page(browser: Any) -> None:
    script = """const box = document.getElementById('convergence-recipes').closest('.scroll');
        return box.scrollWidth - box.clientWidth"""
    assert browser.execute_script(script) <= 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_plot_keeps_a_colour_of_the_other_theme(browser: Any, theme: str) -> None:
    emulate(browser, theme=theme)
    script = """const style = getComputedStyle(document.documentElement);
        const colour = (name) => { const probe = document.createElement('i'); probe.style.color = `var(${name})`;
            document.body.append(probe); const found = getComputedStyle(probe).color; probe.remove(); return found; };
        const allowed = ['--text', '--muted', '--line', '--missed', '--pass', '--baseline', '--candidate', '--paper']
            .map(colour);
        return [...document.querySelectorAll('.plot *')]
            .flatMap((each) => [getComputedStyle(each).fill, getComputedStyle(each).stroke])
            .filter((found) => found !== 'none' && found !== 'rgb(0, 0, 0)' && !allowed.includes(found))"""
    assert browser.execute_script(script) == []
    emulate(browser)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_plot_follows_the_theme(browser: Any, theme: str) -> None:
    emulate(browser, theme=theme)
    script = """const plot = document.querySelector('.plot text'); const body = getComputedStyle(document.body);
        return [getComputedStyle(plot).fill, body.backgroundColor]"""
    fill, paper = browser.execute_script(script)
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[theme]
    assert (
        fill
        in {"light": ("rgb(85, 91, 97)", "rgb(26, 28, 30)"), "dark": ("rgb(164, 171, 178)", "rgb(230, 232, 234)")}[
            theme
        ]
    )


def test_print_is_light_though_the_screen_is_dark(browser: Any) -> None:
    emulate(browser, media="print", theme="dark")
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    emulate(browser)
    assert paper == "rgb(255, 255, 255)"


def test_the_page_prints(browser: Any) -> None:
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert 2 <= pdf.count(b"/Type /Page\n") <= 20


def test_on_paper_no_table_or_plot_of_a_recipe_is_cut_off(report: Path) -> None:
    a4_inside_px = 703
    with open_browser(width=a4_inside_px, height=1000) as driver:
        emulate(driver, media="print")
        driver.get(report.as_uri())
        script = """return [...document.querySelectorAll('#convergence-section table, #convergence-section .plot')]
            .filter((each) => each.closest('details:not([open])') === null)
            .map((each) => [each.id, each.getBoundingClientRect().right])"""
        edges = driver.execute_script(script)
    assert len(edges) > 4 * len(LOSSES)
    assert [name for name, right in edges if right > a4_inside_px + 1] == []


def test_a_narrow_screen_scrolls_tables_not_the_page(report: Path) -> None:
    with open_browser(width=390, height=800) as driver:
        driver.get(report.as_uri())
        assert driver.execute_script("return document.documentElement.scrollWidth") == 390


def test_the_page_is_complete_without_scripts(report: Path) -> None:
    with open_browser(width=1180, height=900, flags=["--blink-settings=scriptEnabled=false"]) as driver:
        driver.get(report.as_uri())
        assert driver.find_elements("css selector", "thead button") == []
        assert len(driver.find_elements("css selector", "#gates tbody tr")) > 10
        summary = driver.find_element("css selector", "#pairs-section summary")
        summary.click()
        assert driver.find_element("css selector", "#pairs tbody tr").is_displayed()
        table = driver.find_element("css selector", '[id="gates-parameters-pass-below-0.02"]')
        table.find_element("xpath", "ancestor::details/summary").click()
        assert table.is_displayed()
