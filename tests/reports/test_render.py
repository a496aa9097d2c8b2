from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reports import templating
from reports.templating import markdown_escaped, policy
from tests.conftest import Golden
from tests.reports.evaluations import (
    HOSTILE,
    TEMPLATE,
    crash_one_pair,
    make_evaluation,
    report_of,
    seed_size,
    write_evaluation,
)
from tests.support.evidence import Campaign, make_campaign

IMAGE = "<img src=x onerror=alert(1)>"
GOLDEN = Path(__file__).parent / "golden"
FILES = {
    "report.html",
    "report.md",
    "performance-pairs.csv",
    "windows.csv",
    "baseline.csv",
    "attempts.csv",
    "gates.csv",
    "verdict.json",
    "provenance.json",
    "junit.xml",
}
VOID = {"meta", "br", "wbr", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """What a browser would make of a page, as far as these tests need it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.bodies: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            self.bodies[self.open[-1]] = data
        else:
            self.text.append(data)

    def attributes(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_of(make_evaluation(tmp_path_factory.mktemp("published")))


@pytest.fixture(scope="module")
def page(published: Path) -> Page:
    return Page((published / "report.html").read_text(encoding="utf-8"))


def spoil(campaign: Campaign, text: str) -> Campaign:
    """Put a text into every name that comes from a machine."""
    for row in [*campaign.tables["pairs.csv"], *campaign.tables["attempts.csv"], *campaign.tables["baseline.csv"]]:
        row["node"] = text
        row["device"] = text
    return campaign


def test_a_report_is_a_page_and_its_downloads(published: Path) -> None:
    assert {path.name for path in published.iterdir()} == FILES


def test_every_download_is_linked_with_its_digest(published: Path, page: Page) -> None:
    links = {attributes["href"] for attributes in page.attributes("a") if "download" in attributes}
    assert links == FILES - {"report.html"}
    for name in links:
        digest = hashlib.sha256((published / name).read_bytes()).hexdigest()
        assert digest in "".join(page.text)


def test_the_page_is_well_formed_and_its_ids_are_unique_and_found(page: Page) -> None:
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = [attributes["href"][1:] for _, attributes in page.tags if attributes.get("href", "").startswith("#")]
    wanted += [attributes["aria-labelledby"] for _, attributes in page.tags if "aria-labelledby" in attributes]
    assert wanted
    assert set(wanted) <= set(ids)


def test_the_page_allows_its_own_style_and_script_and_nothing_else(page: Page) -> None:
    (allowed,) = [meta["content"] for meta in page.attributes("meta") if "http-equiv" in meta]
    assert allowed == policy(style=page.bodies["style"], script=page.bodies["script"])
    assert allowed.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in allowed
    for _, attributes in page.tags:
        assert "style" not in attributes
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]


def test_the_page_refers_to_nothing_on_a_network(page: Page) -> None:
    text = page.bodies["style"] + page.bodies["script"]
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text.replace("// Sorting", "").replace("// What", ""))
    for _, attributes in page.tags:
        assert not any(value.startswith(("http", "//", "data:", "javascript:")) for value in attributes.values())


def test_tables_have_captions_scopes_and_a_language(page: Page) -> None:
    assert page.attributes("html") == [{"lang": "en"}]
    assert len(page.attributes("caption")) == len(page.attributes("table")) > 8
    assert {attributes.get("scope") for attributes in page.attributes("th")} == {"col", "row"}


def test_the_published_table_is_shown_as_published(page: Page) -> None:
    words = " ".join(" ".join(page.text).split())
    assert "sync 1.837\u00d7 1.946\u00d7 1.726\u00d7 pass" in words
    assert "packed4 1.063\u00d7 1.087\u00d7 1.085\u00d7 pass" in words
    assert "packed8 1.057\u00d7 1.047\u00d7 1.055\u00d7 not qualified" in words


def test_the_verdict_comes_first_then_the_failed_gates(page: Page) -> None:
    words = " ".join(" ".join(page.text).split())
    places = [
        words.index(part)
        for part in (
            "Retiring the baseline is blocked, because 1 of",
            "numerical, convergence and device were not declared",
            "Gates at a glance",
            "missed 1.047 \u2265 1.05",
            "pass 1.837 \u2265 1.05",
            "Every gate, failed first",
            "Median candidate / baseline ratio",
            "Every measured pair",
            "Every attempt",
            "Frozen protocol",
            "Digests (SHA-256)",
            "Downloads Beside",
        )
    ]
    assert places == sorted(places)


def test_a_pass_names_what_it_permits(tmp_path: Path) -> None:
    report = report_of(make_evaluation(tmp_path, ratios={"sync": ("1.06", "1.06", "1.06")}))
    text = (report / "report.html").read_text()
    assert "<title>Qualified: demo" in text
    assert "The baseline may be retired, because all" in text


def test_numbers_behind_the_text_are_unrounded(tmp_path: Path) -> None:
    below = ("1.0499999", "1.06", "1.06")
    report = report_of(make_evaluation(tmp_path, ratios={"sync": below}, workloads_per_category=1))
    for name in ("report.html", "report.md"):
        text = (report / name).read_text()
        assert "1.0499999\u00d7" in text
        assert "1.050\u00d7" not in text
    assert '<data value="1.0499999">1.0499999</data>' in (report / "report.html").read_text()


def test_a_failed_attempt_is_shown_with_its_reason(tmp_path: Path) -> None:
    report = report_of(write_evaluation(crash_one_pair(make_campaign(tmp_path))))
    for name in ("report.html", "report.md"):
        text = html.unescape((report / name).read_text())
        assert "exit code 1" in text
        assert "attempt 1 ended crash, which allows no other" in text
    assert "median, repeat 2 (invalid)" in (report / "report.html").read_text()


def test_the_same_evidence_gives_the_same_bytes_whatever_the_folder(published: Path, tmp_path: Path) -> None:
    shutil.copytree(published.parent, tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved" / "report")
    again = report_of(tmp_path / "moved")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in published.iterdir()
    }


def test_a_report_replaces_an_earlier_one(tmp_path: Path) -> None:
    report = report_of(make_evaluation(tmp_path))
    (report / "report.html").write_text("old")
    assert (report_of(tmp_path) / "report.html").read_text() != "old"
    assert {path.name for path in report.iterdir()} == FILES


@pytest.mark.parametrize(
    "text", [HOSTILE, TEMPLATE, "{% for x in y %}", "[a](javascript:alert(1))", "|`*_#", "&lt;b&gt;"]
)
def test_hostile_text_is_inert(tmp_path: Path, text: str) -> None:
    campaign = spoil(crash_one_pair(make_campaign(tmp_path)), text)
    report = report_of(write_evaluation(campaign, reasons={"crash": text}, departures=[text]))
    shown = Page((report / "report.html").read_text())
    assert shown.open == []
    assert len(shown.attributes("script")) == 1
    assert shown.attributes("img") == []
    assert text in "".join(shown.text)
    markdown = (report / "report.md").read_text()
    assert markdown_escaped(text) in markdown
    assert text not in markdown or markdown_escaped(text) == text


@pytest.mark.parametrize("text", [HOSTILE, TEMPLATE, "[a](b)", "|", "`x`", "*a*", "_a_", "# a", "a\nb", "- a", "$x$"])
def test_markdown_is_escaped(text: str) -> None:
    escaped = markdown_escaped(text)
    assert "\n" not in escaped
    assert not re.search(r"(?<!\\)[<>{}\[\]|`*_#$]", escaped)
    assert not escaped.startswith("-")


def table_text(report: Path, caption: str) -> str:
    """Return a table of the Markdown report by its caption."""
    return (report / "report.md").read_text().partition(f"\n{caption}:\n\n")[2].partition("\n\n")[0]


def test_the_machines_that_measured_and_froze_are_shown_with_their_drivers(published: Path) -> None:
    assert "| `node1` | Test CPU | x86\\_64 | 8.0 GiB | `6.1.0-test` | Test CPU, driver none |" in table_text(
        published, "Machines that measured"
    )
    froze = table_text(published, "Machine and driver that froze each side")
    assert "| machine: kernel | Linux 6.1 | Linux 6.1 |" in froze
    assert "| driver: distributions | click 8.2.0, scipy - | click 8.2.0, scipy - |" in froze


def test_caches_stand_beside_the_versions(published: Path) -> None:
    shown = table_text(published, "Versions that the sides reported, and their caches")
    assert "| bytecode cache | `installed` | installed \\| private |" in shown
    assert "| compile cache | `private, cold` | `private, cold` |" in shown


def test_microbatches_of_both_sides_are_shown(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    for row in campaign.rows("windows.csv", side="candidate", workload="production", repeat=2):
        row["microbatches"] = "77"
    report = report_of(write_evaluation(campaign))
    values = {cell["value"] for cell in Page((report / "report.html").read_text()).attributes("data")}
    assert {"200", "385"} <= values
    assert json.loads((report / "verdict.json").read_bytes())["families"]["evidence"]["outcome"] == "pass"


def test_hostile_names_of_workloads_are_inert(tmp_path: Path) -> None:
    report = report_of(make_evaluation(tmp_path, production={IMAGE: ("1", "1", "1"), TEMPLATE: ("1", "1", "1")}))
    shown = Page((report / "report.html").read_text())
    assert shown.attributes("img") == []
    assert len(shown.attributes("script")) == 1
    assert {IMAGE, TEMPLATE} <= set(shown.text)


def test_a_seed_sized_campaign_stays_under_two_megabytes(tmp_path: Path) -> None:
    evaluation = seed_size(tmp_path)
    protocol = json.loads((evaluation / "protocol.json").read_bytes())
    assert len(protocol["workloads"]) == 117
    text = (report_of(evaluation) / "report.html").read_bytes()
    assert len(text) < 2_000_000
    assert text.count(b"90m-production-recipe-8") >= 4


def test_a_verdict_without_usable_pairs_is_still_reported(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    for rows in campaign.tables.values():
        rows.clear()
    report = report_of(write_evaluation(campaign))
    text = (report / "report.html").read_text()
    assert "There is no usable pair to plot." in text
    assert "No pair was measured." in text
    assert "candidate/pair" not in text


def test_templates_are_found_beside_the_package_or_inside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "reports"
    shutil.copytree(templating.templates_folder(), inside / "templates")
    monkeypatch.setattr(templating, "__file__", str(inside / "templating.py"))
    assert templating.templates_folder() == inside / "templates"
    shutil.move(inside / "templates", tmp_path / "templates")
    assert templating.templates_folder() == tmp_path / "templates"
    shutil.rmtree(tmp_path / "templates")
    with pytest.raises(FileNotFoundError, match="install the package again"):
        templating.templates_folder()


def golden_bytes(evaluation: Path, file: Path) -> bytes:
    """Return a report's file without the digests that change with each comment of the acceptance program."""
    verdict = (evaluation / "verdict.json").read_bytes()
    own = json.loads(verdict)["acceptance_sha256"].encode()
    changing = hashlib.sha256(verdict).hexdigest().encode()
    return file.read_bytes().replace(own, b"<acceptance>").replace(changing, b"<verdict>")


@pytest.mark.parametrize("name", ["report.md", "junit.xml", "gates.csv"])
def test_golden_report(tmp_path: Path, golden: Golden, name: str) -> None:
    campaign = make_campaign(
        tmp_path, ratios={"sync": ("1.837", "1.946", "1.726"), "packed8": ("1.057", "1.047", "1.055")}
    )
    evaluation = write_evaluation(crash_one_pair(campaign))
    golden(GOLDEN / name, golden_bytes(evaluation, report_of(evaluation) / name))


def test_a_side_says_what_was_changed_besides_its_commit(page: Page) -> None:
    assert "2 modified and 1 untracked besides: the snapshot holds what was on disk" in "".join(page.text)
