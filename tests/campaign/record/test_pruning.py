"""Pruning: what goes, what stays whatever it is called, and what the ledger says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign.cli.main import main
from campaign.errors import StateError
from campaign.paths import HomePaths
from campaign.record.ledger import Ledger, read_entries
from campaign.record.pruning import Prunable, prune
from tests.support import training
from tests.support.home import SMALL, Home, freeze
from tests.support.jobs import JobHome, make_job_home
from tests.support.large import CANDIDATE

Run = Callable[..., int]
RUN = "baseline/run/sync/s45"


def put(path: Path, data: bytes = b"12345") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def pruned(paths: HomePaths) -> list[dict[str, object]]:
    return [entry.data for entry in read_entries(paths) if entry.act == "pruned"]


@pytest.fixture
def trained(tmp_path: Path) -> Home:
    """Return a home with a run of two segments: the first was killed while it saved, the second is under way."""
    rules = training.make_rules("sync", seeds=(45,))
    home = freeze(tmp_path / "home", SMALL[:1], repeats=1, solo=False, controls=False, convergence=rules)
    slot = home.slot(RUN)
    home.segment(slot, ending=Ending.LOST, is_sealed=False)
    home.segment(slot, segment=2, ending=Ending.LOST, is_sealed=False, is_ended=False)
    return home


def test_what_a_killed_segment_left_goes_and_what_it_saved_stays(
    trained: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, going = trained.folder(RUN, 1, 1), trained.folder(RUN, 1, 2)
    saved = sorted(path for path in trained.paths.root.rglob("*") if path.is_file())
    half = put(ended.checkpoints / ".9.abcd.tmp" / "files" / "model.bin", b"x" * 1000)
    gone = [half.parents[1], put(ended.root / ".reserve.tmp")]
    stays = [
        put(going.root / ".reserve.tmp"),
        put(going.checkpoints / ".11.abcd.tmp" / "model.bin"),
        put(ended.checkpoint(5).files / ".of-the-side.tmp"),
        put(trained.paths.inputs / ".a.tmp"),
        put(trained.paths.frozen / ".b.tmp"),
        put(trained.paths.root / ".c.tmp"),
    ]
    assert main(["prune", "--yes", "--json", "--home", str(trained.paths.root)]) == 0
    told = capsys.readouterr()
    value = json.loads(told.out)
    folder = f"attempts/{RUN}/1/segments/1"
    assert value["what"] == [f"{folder}/.reserve.tmp", f"{folder}/checkpoints/.9.abcd.tmp"]
    assert (value["files"], value["bytes"], value["reason"]) == (2, 1005, "to free space")
    assert "checkpoints/.9.abcd.tmp  1      1000" in told.err
    assert pruned(trained.paths) == [value]
    assert not any(path.exists() for path in gone)
    there = {path for path in trained.paths.root.rglob("*") if path.is_file()}
    assert there == {*saved, *stays}


def test_compiled_code_goes_once_its_jobs_have_ended(copied: HomePaths, run: Run) -> None:
    code = put(copied.submission("synthetic/a0001").bytecode / "a" / "x.pyc")
    log = put(copied.submission("synthetic/a0001").log)
    unknown = put(copied.submission("nobody's").bytecode / "x.pyc")
    assert run("prune", "--yes", "--reason", "a new disk is\nlate") == 0
    assert not code.parents[1].exists()
    assert log.exists()
    assert unknown.exists()
    (act,) = pruned(copied)
    assert (act["what"], act["reason"]) == (["transport/synthetic/a0001/pycache"], "a new disk is late")
    assert run("collect") == 0
    assert run("seal") == 0


def test_compiled_code_of_a_job_that_may_still_run_stays(trained: Home) -> None:
    submission = [entry.data["submission"] for entry in read_entries(trained.paths) if entry.act == "intent"][-1]
    code = put(trained.paths.submission(submission).bytecode / "x.pyc")
    assert main(["prune", "--yes", "--home", str(trained.paths.root)]) == 0
    assert code.exists()


def test_reports_go_only_if_they_are_asked_for_and_come_again(
    copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("report", "--exit-zero") == 0  # here, with the registry of this test
    report = copied.evaluation(CANDIDATE).report
    before = {path.name: path.read_bytes() for path in report.iterdir()}
    assert run("prune", "--yes") == 0
    assert "nothing can go" in capsys.readouterr().out
    assert pruned(copied) == []
    assert run("prune", "--reports", "--yes") == 0
    assert f"campaign report --candidate {CANDIDATE} makes it again" in capsys.readouterr().err
    assert not report.exists()
    assert pruned(copied)[0]["what"] == [f"evaluations/{CANDIDATE}/report"]
    assert run("seal") == 2  # it is not the report that the ledger names
    assert run("report", "--exit-zero") == 0
    assert {path.name: path.read_bytes() for path in report.iterdir()} == before


def test_a_report_that_cannot_be_made_again_stays(copied: HomePaths, run: Run) -> None:
    evaluation = copied.evaluation(CANDIDATE)
    put(evaluation.report / "notes.txt")
    assert run("prune", "--reports", "--yes") == 0
    (evaluation.report / "notes.txt").unlink()
    evaluation.verdict.write_bytes(b"{}")
    assert run("prune", "--reports", "--yes") == 0
    assert evaluation.page.exists()
    assert pruned(copied) == []


def test_a_report_whose_evidence_is_gone_stays(copied: HomePaths, run: Run) -> None:
    copied.evaluation(CANDIDATE).identity.unlink()
    assert run("prune", "--reports", "--yes") == 0
    assert copied.evaluation(CANDIDATE).page.exists()
    assert pruned(copied) == []


def test_a_folder_behind_a_link_is_not_looked_into(copied: HomePaths, run: Run, tmp_path: Path) -> None:
    kept = put(tmp_path / "elsewhere" / ".report.tmp" / "report.html")
    (copied.evaluations / "linked").symlink_to(tmp_path / "elsewhere")
    assert run("prune", "--yes") == 0
    assert kept.exists()
    assert pruned(copied) == []


def test_nothing_goes_without_a_yes(copied: HomePaths, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    left = put(copied.evaluation(CANDIDATE).root / ".report.tmp" / "report.html")
    assert run("prune") == 2
    told = capsys.readouterr().err
    assert ".report.tmp" in told
    assert "pruning needs a yes" in told
    assert left.exists()
    assert pruned(copied) == []


def test_what_changed_since_it_was_shown_is_not_removed(tmp_path: Path) -> None:
    home: JobHome = make_job_home(tmp_path / "home")
    path = put(home.paths.root / "x")
    shown = [Prunable(path=path, why="", num_files=1, num_bytes=5)]
    with Ledger.open(home.paths, lambda: 0.0) as ledger, pytest.raises(StateError, match="has changed since"):
        prune(home.paths, ledger, shown, [], "why")
    assert path.exists()


def test_the_record_comes_before_the_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_job_home(tmp_path / "home")
    path = put(home.paths.root / "x")
    shown = [Prunable(path=path, why="", num_files=1, num_bytes=5)]

    def die(_path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("campaign.record.pruning.remove_tree", die)
    with Ledger.open(home.paths, lambda: 0.0) as ledger, pytest.raises(KeyboardInterrupt):
        prune(home.paths, ledger, shown, shown, "why")
    assert pruned(home.paths) == [{"what": ["x"], "files": 1, "bytes": 5, "reason": "why"}]


def test_a_link_in_the_place_of_a_leftover_is_removed_and_not_followed(trained: Home, tmp_path: Path) -> None:
    kept = put(tmp_path / "elsewhere" / "kept")
    (trained.folder(RUN, 1, 1).root / ".x.tmp").symlink_to(kept.parent)
    assert main(["prune", "--yes", "--home", str(trained.paths.root)]) == 0
    assert kept.exists()
    assert not (trained.folder(RUN, 1, 1).root / ".x.tmp").is_symlink()
