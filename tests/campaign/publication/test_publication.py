from __future__ import annotations

import html.parser
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

import pytest

from campaign import files
from campaign.cli.main import main
from campaign.frozen import Frozen
from campaign.judging import publication
from campaign.judging.evaluation import Evaluation, evaluate
from campaign.paths import HomePaths
from tests.support.home import CANDIDATE, Case, Home, build_home

ONE = (Case(name="sync-b4", category="sync"),)


@pytest.fixture(autouse=True)
def quick_page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in in the place of the rendered page, which most tests here do not look at: plots take seconds."""
    if "rendered" not in request.fixturenames:

        def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
            assert protocol_path.is_file()
            assert (evaluation / "evidence" / "pairs.csv").is_file()
            out.mkdir()
            (out / "report.html").write_bytes(b"a page about " + (evaluation / "verdict.json").read_bytes())
            (out / "gates.csv").write_text("gates")

        monkeypatch.setattr("reports.render.write_report", write_report)
        monkeypatch.setattr("campaign.judging.report.evaluate", evaluate_once)


_JUDGED: dict[tuple[bytes, ...], Evaluation] = {}


def evaluate_once(paths: HomePaths, frozen: Frozen, candidate: str, **options: Any) -> Evaluation:
    """Judge the same evidence once for all tests: a child process takes its time."""
    folder = paths.evaluation(candidate).evidence
    key = tuple(path.read_bytes() for path in sorted(folder.iterdir()))
    if key not in _JUDGED:
        _JUDGED[key] = evaluate(paths, frozen, candidate, **options)
    return _JUDGED[key]


@pytest.fixture
def rendered() -> None:
    """Ask for the real page."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return build_home(tmp_path / "home", ONE, repeats=1, solo=False, controls=False)


def campaign(home: Home, *arguments: str) -> int:
    return main([*arguments, "--home", str(home.paths.root)])


def reported(home: Home) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in home.paths.ledger.read_bytes().splitlines()]
    return [entry["data"] for entry in entries if entry["act"] == "reported"]


def derived(home: Home) -> dict[str, bytes]:
    root = home.paths.evaluation(CANDIDATE).root
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


class Stamps(html.parser.HTMLParser):
    """Collects the digests that a page carries for programs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        if tag == "meta" and (own.get("name") or "").startswith("campaign:"):
            self.found[str(own["name"]).removeprefix("campaign:")] = str(own["content"])


@pytest.mark.usefixtures("rendered")
def test_the_act_names_the_provenance_and_every_file_of_the_report(home: Home) -> None:
    assert campaign(home, "report") == 0
    (act,) = reported(home)
    paths = home.paths.evaluation(CANDIDATE)
    assert act["provenance_sha256"] == files.sha256_file(paths.provenance)
    assert act["files"] == {path.name: files.sha256_file(path) for path in paths.report.iterdir()}
    assert {"report.html", "report.md", "verdict.json", "provenance.json", "attempts.csv"} <= set(act["files"])
    assert not paths.staging.exists()
    stamps = Stamps()
    stamps.feed(paths.page.read_text())
    verdict = json.loads(paths.verdict.read_bytes())
    assert stamps.found == {
        **{name: value for name, value in verdict.items() if name.endswith("_sha256")},
        "verdict_sha256": act["verdict_sha256"],
        "provenance_sha256": act["provenance_sha256"],
    }


def test_reporting_again_gives_the_same_bytes_and_no_second_act(home: Home) -> None:
    assert campaign(home, "report") == 0
    first = derived(home)
    assert campaign(home, "report") == 0
    assert derived(home) == first
    assert len(reported(home)) == 1


def test_a_report_that_changes_in_its_words_alone_is_another_act(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert campaign(home, "report") == 0

    def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
        del protocol_path, evaluation
        out.mkdir()
        (out / "report.html").write_bytes(b"other words")

    monkeypatch.setattr("reports.render.write_report", write_report)
    assert campaign(home, "report") == 0
    first, second = reported(home)
    assert {**first, "files": {}} == {**second, "files": {}}
    assert second["files"] == {"report.html": files.sha256_bytes(b"other words")}
    # What the earlier report left and this one does not make is gone.
    assert [path.name for path in home.paths.evaluation(CANDIDATE).report.iterdir()] == ["report.html"]


def test_a_report_that_says_again_what_an_earlier_one_said_is_another_act(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
        del protocol_path, evaluation
        out.mkdir()
        (out / "report.html").write_bytes(b"other words")

    assert campaign(home, "report") == 0
    with monkeypatch.context() as patch:
        patch.setattr("reports.render.write_report", write_report)
        assert campaign(home, "report") == 0
    assert campaign(home, "report") == 0
    first, second, third = reported(home)
    assert first == third != second


def test_a_folder_in_the_place_of_a_reports_file_is_refused(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign(home, "report") == 0
    table = home.paths.evaluation(CANDIDATE).report / "gates.csv"
    table.unlink()
    table.mkdir()
    assert campaign(home, "report") == 5
    assert "gates.csv: was not written here by this program" in capsys.readouterr().err
    assert len(reported(home)) == 1


def test_a_file_that_no_report_left_is_refused_before_anything_is_recorded(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert campaign(home, "report") == 0
    planted = home.paths.evaluation(CANDIDATE).report / "summary.html"
    planted.write_text("all is well")
    ledger = home.paths.ledger.read_bytes()
    assert campaign(home, "report") == 5
    assert "summary.html: was not written here by this program" in capsys.readouterr().err
    assert home.paths.ledger.read_bytes() == ledger
    assert not home.paths.evaluation(CANDIDATE).verdict.exists()
    planted.unlink()
    assert campaign(home, "report") == 0
    assert home.paths.ledger.read_bytes() == ledger


class Killed(BaseException):
    """Ends a command as a signal would: nothing catches it."""


@pytest.mark.parametrize("step", [3, 4, 5, 6], ids=["before the act", "after it", "verdict", "provenance"])
def test_a_report_that_is_killed_leaves_nothing_that_the_ledger_does_not_name(
    home: Home, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    assert campaign(home, "report") == 0

    def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
        del protocol_path, evaluation
        out.mkdir()
        (out / "report.html").write_bytes(b"other words")

    monkeypatch.setattr("reports.render.write_report", write_report)
    left = [step]

    def counted(real: Any) -> Any:
        def count(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] <= 0:
                raise Killed
            return real(*arguments, **options)

        return count

    mortal = {name: counted(getattr(files, name)) for name in ("replace", "sync_folder")}
    with monkeypatch.context() as patch:
        patch.setattr(publication, "files", SimpleNamespace(**{**vars(files), **mortal}))
        patch.setattr(publication, "_remove_old", counted(publication._remove_old))
        patch.setattr(publication, "shutil", SimpleNamespace(rmtree=lambda *_, **__: None))  # a kill cleans nothing up
        with pytest.raises(Killed):
            campaign(home, "report")
    act, paths = reported(home)[-1], home.paths.evaluation(CANDIDATE)
    named = {paths.verdict: act["verdict_sha256"], paths.provenance: act["provenance_sha256"]}
    named |= {paths.report / name: digest for name, digest in act["files"].items()}
    assert {path: files.sha256_file(path) for path in named if path.exists()}.items() <= named.items()
    assert not paths.verdict.exists() or step > 4
    assert campaign(home, "report") == 0
    assert len(reported(home)) == 2
    assert files.sha256_file(paths.page) == files.sha256_bytes(b"other words")


def test_a_page_that_cannot_be_made_is_no_report(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from reports.errors import ReportError  # noqa: PLC0415 - loaded as the command does it

    def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> Never:
        del protocol_path, out
        raise ReportError("is odd", where=str(evaluation / "verdict.json"))

    monkeypatch.setattr("reports.render.write_report", write_report)
    assert campaign(home, "report") == 1
    assert reported(home) == []
    assert not home.paths.evaluation(CANDIDATE).staging.exists()
