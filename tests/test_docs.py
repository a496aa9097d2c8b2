"""The documentation against the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from acceptance.rollup import EVALUATED_FAMILIES
from campaign.cli.main import COMMANDS
from campaign.snapshot import digest_folder
from tools import columns_page, measured_page

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md")), *ROOT.glob("examples/*/*.md")]
FENCED = re.compile(r"^ *```.*?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
INNER_LINK = re.compile(r"\]\(#([^)]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
IN_BLOCK = re.compile(r"^ *(?:\$ )?campaign ([a-z][\w-]*)", re.MULTILINE)
IN_SPAN = re.compile(r"(?:^|[\s;&|(])campaign ([a-z][\w-]*)")


def commands_named(text: str) -> set[str]:
    """Return every WORD of `campaign WORD` in the code of a Markdown page."""
    found = {word for block in FENCED.findall(text) for word in IN_BLOCK.findall(block)}
    return found | {word for span in SPAN.findall(FENCED.sub("", text)) for word in IN_SPAN.findall(span)}


def test_commands_are_found_in_blocks_and_spans_but_not_in_prose() -> None:
    block = "```\n$ campaign one --x   a campaign two\n  campaign three\n```\n"
    text = f"A campaign alone.\n{block}`campaign four`, `cd x && campaign five`"
    assert commands_named(text) == {"one", "three", "four", "five"}


def test_every_command_is_documented() -> None:
    named = set().union(
        *(commands_named(page.read_text(encoding="utf-8")) for page in PAGES if page.name != "CHANGELOG.md")
    )
    assert [command for command in COMMANDS if command not in named] == []


def test_the_changelog_names_every_command() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [command for command in COMMANDS if f"`{command}`" not in text and f"`campaign {command}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_a_command_that_does_not_exist(page: Path) -> None:
    assert commands_named(page.read_text(encoding="utf-8")) <= set(COMMANDS)


def test_the_audit_pages_script_hashes_a_source_tree_as_a_freeze_does(tmp_path: Path) -> None:
    """A source tree may hold what the acceptance program never does."""
    tree = tmp_path / "tree"
    (tree / "empty").mkdir(parents=True)
    (tree / "tool.sh").write_text("true")
    (tree / "tool.sh").chmod(0o555)
    (tree / "caf\u00e9.txt").write_text("")
    (tree / "to-file").symlink_to("tool.sh")
    (tree / "to-folder").symlink_to("empty")
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    script = page.partition("\ntree() {")[2].partition("<<'END'\n")[2].partition("\nEND\n")[0]
    done = subprocess.run(
        [sys.executable, "-", "tree"], input=script, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest_folder(tree)


def promised_elsewhere(text: str) -> list[str]:
    """Return the sentences of a page by which this release does not measure a family that it measures."""
    sentences = [one for one in re.split(r"(?<=[.!?:])\s", " ".join(text.split())) if "this release" in one.lower()]
    denying = [one for one in sentences if re.search(r"\b(not|alone|refuses|only)\b", one)]
    return [one for one in denying if any(family in one for family in EVALUATED_FAMILIES)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_says_that_a_measured_family_is_not_in_this_release(page: Path) -> None:
    assert promised_elsewhere(page.read_text(encoding="utf-8")) == []


def test_what_stood_there_before_the_numerical_family_came_is_found() -> None:
    assert promised_elsewhere("Real work is proved by the\nnumerical family, which is not in this release: read on.")
    assert promised_elsewhere("This is. In this release the throughput family alone is measured.")
    assert promised_elsewhere("This release refuses the convergence family.")
    assert promised_elsewhere("This release measures convergence. The numerical family is not alone.") == []


def test_the_measured_figures_are_those_of_the_raw_output() -> None:
    text = (measured_page.MEASURED / "README.md").read_text(encoding="utf-8")
    assert "| 90M x 8, candidate |" in text
    assert measured_page.page(text) == text
    assert measured_page.page(text.replace("| 90M x 8, candidate |", "| 90M x 9, candidate |")) == text


def test_the_formats_list_every_column_as_it_is_defined() -> None:
    text = columns_page.PAGE.read_text(encoding="utf-8")
    assert "| *`mutation`* |" in text
    assert columns_page.page(text) == text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_within_a_page_leads_nowhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    anchors = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(text)}
    assert set(INNER_LINK.findall(text)) <= anchors


def test_the_architecture_names_every_module_and_folder_of_the_driver_once() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("| `campaign/` | |\n")
    table, _, _ = rest.partition("\n\n")
    folders = {f"{path.parent.name}/" for path in (ROOT / "campaign").glob("*/__init__.py")}
    modules = {path.name for path in (ROOT / "campaign").glob("*.py")} - {"__init__.py"}
    assert sorted(re.findall(r"`([^`]+)`", table)) == sorted(folders | modules)
