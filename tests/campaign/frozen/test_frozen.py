"""The frozen documents are held to each other and, through the manifests' digests, to the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign import files
from campaign.cli.main import main
from campaign.errors import EvidenceError
from campaign.frozen import read_frozen
from tests.support.home import CANDIDATE, SMALL, Home, attempt_all, freeze, freeze_candidate
from tests.support.jobs import make_job_home

OTHER = "c" + "d" * 12


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a home with a baseline, a candidate and no attempt yet."""
    made = freeze(tmp_path / "home", SMALL[:1], repeats=1, solo=False, controls=False)
    freeze_candidate(made)
    return made


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a document as a person with an editor would."""
    value = json.loads(path.read_bytes())
    change(value)
    path.write_bytes(files.dump_json(value))


def lower_threshold(home: Home) -> Path:
    """Lower a threshold and correct every digest in the manifests; return the file that the ledger no longer names."""
    paths = home.paths
    edit(paths.protocol, lambda protocol: protocol["throughput"].update(category_threshold="0.5"))
    edit(paths.manifest, lambda manifest: manifest.update(protocol_sha256=files.sha256_file(paths.protocol)))
    digest = files.sha256_file(paths.manifest)
    edit(paths.candidate(CANDIDATE).manifest, lambda candidate: candidate.update(manifest_sha256=digest))
    assert read_frozen(paths).protocol.throughput.category_threshold == "0.5"
    return paths.manifest


def change_adapter(home: Home) -> Path:
    """Let the candidate be built by another adapter than the frozen one."""
    path = home.paths.candidate(CANDIDATE).manifest
    edit(path, lambda candidate: candidate["candidate"].update(adapter="adapter:other"))
    return path


def change_environment(home: Home) -> Path:
    """Give the candidate another environment."""
    path = home.paths.candidate(CANDIDATE).manifest
    edit(path, lambda candidate: candidate["candidate"].update(environment={"FAST": "1"}))
    return path


EDITS = (lower_threshold, change_adapter, change_environment)
COMMANDS = (
    ("submit", "--cluster", "local", "--yes"),
    ("submit", "--cluster", "local", "--dry-run"),
    ("collect",),
    ("report", "--exit-zero"),
)


@pytest.mark.parametrize("change", EDITS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_edit_after_the_freeze_with_all_digests_corrected_is_exit_5(
    home: Home, capsys: pytest.CaptureFixture[str], change: Callable[[Home], Path], command: tuple[str, ...]
) -> None:
    entries = home.paths.ledger.read_bytes()
    frozen = {path: files.sha256_file(path) for path in home.paths.root.rglob("manifest.json")}
    path = change(home)
    assert main([*command, "--home", str(home.paths.root)]) == 5
    said = capsys.readouterr().err
    assert f"{path}: not the manifest that the ledger names" in said
    assert frozen[path] in said
    assert files.sha256_file(path) in said
    assert home.paths.ledger.read_bytes() == entries
    assert not home.paths.evaluation(CANDIDATE).verdict.exists()


@pytest.mark.parametrize("change", EDITS)
def test_no_candidate_can_be_frozen_beside_an_edit(
    home: Home, capsys: pytest.CaptureFixture[str], change: Callable[[Home], Path]
) -> None:
    config = home.paths.root.parent / "campaign.toml"
    assert main(["init", str(config.parent)]) == 0
    path = change(home)
    assert main(["freeze", "--candidate", "--config", str(config), "--home", str(home.paths.root)]) == 5
    assert f"{path}: not the manifest that the ledger names" in capsys.readouterr().err


def test_status_shows_an_edit_as_a_trouble(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_job_home(home.paths.root.parent / "with resources")
    path = change_adapter(Home(paths=made.paths, protocol=made.protocol))
    assert main(["status", "--json", "--home", str(made.paths.root)]) == 0
    captured = capsys.readouterr()
    (trouble,) = json.loads(captured.out)["troubles"]
    assert trouble.startswith(f"{path}: not the manifest that the ledger names")
    assert trouble in captured.err


def test_what_was_not_edited_is_taken(home: Home) -> None:
    assert main(["collect", "--home", str(home.paths.root)]) == 0


def test_a_second_baseline_in_the_ledger_is_exit_5(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.append("froze_baseline", {"manifest_sha256": files.sha256_file(home.paths.manifest)})
    assert main(["collect", "--home", str(home.paths.root)]) == 5
    assert "twice that the baseline was frozen" in capsys.readouterr().err


def test_an_edit_cannot_be_covered_by_freezing_it_in_the_ledger_again(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    path = change_adapter(home)
    home.append("froze_candidate", {"candidate": CANDIDATE, "manifest_sha256": files.sha256_file(path)})
    assert main(["collect", "--home", str(home.paths.root)]) == 5
    said = capsys.readouterr().err
    assert f"twice that {CANDIDATE} was frozen" in said
    assert files.sha256_file(path) in said


def test_a_candidate_whose_manifest_is_gone_is_missed(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    path = home.paths.candidate(CANDIDATE).manifest
    path.unlink()
    assert main(["report", "--home", str(home.paths.root)]) != 0
    assert main(["collect", "--home", str(home.paths.root)]) == 5
    assert f"{path}: not the manifest that the ledger names" in capsys.readouterr().err


def test_a_ledger_without_the_freeze_is_exit_5(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.paths.ledger.unlink()
    assert main(["collect", "--home", str(home.paths.root)]) == 5
    assert "does not say when this was frozen" in capsys.readouterr().err


def test_a_candidate_that_the_ledger_does_not_name_stops_nothing_and_is_nobodys(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.paths.candidate(CANDIDATE).root.rename(home.paths.root / "aside")
    ledger = home.paths.ledger.read_bytes()
    freeze_candidate(home, OTHER, "d" * 64)
    home.paths.ledger.write_bytes(ledger)  # as a freeze that was killed just before its act leaves it
    (home.paths.root / "aside").rename(home.paths.candidate(CANDIDATE).root)
    attempt_all(home, "baseline")
    assert main(["collect", "--home", str(home.paths.root)]) == 0
    assert main(["report", "--candidate", OTHER, "--home", str(home.paths.root)]) == 2
    assert f"no candidate {OTHER}" in capsys.readouterr().err


# --- the manifests among themselves


def test_a_candidate_of_another_name_than_its_folder_is_refused(home: Home) -> None:
    home.paths.candidate(CANDIDATE).root.rename(home.paths.candidate(OTHER).root)
    with pytest.raises(EvidenceError, match="names another candidate"):
        read_frozen(home.paths)


def test_a_candidate_of_another_campaign_is_refused(home: Home) -> None:
    edit(home.paths.candidate(CANDIDATE).manifest, lambda candidate: candidate.update(manifest_sha256="0" * 64))
    with pytest.raises(EvidenceError, match="another campaign"):
        read_frozen(home.paths)


def test_a_protocol_that_the_manifest_does_not_name_is_refused(home: Home) -> None:
    edit(home.paths.protocol, lambda protocol: protocol["throughput"].update(category_threshold="0.5"))
    with pytest.raises(EvidenceError, match="not the protocol that was frozen"):
        read_frozen(home.paths)
