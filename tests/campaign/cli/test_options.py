"""Finding the home."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.cli.main import main
from campaign.cli.options import absolute, find_home
from campaign.errors import InfrastructureError, StateError
from tests.support.home import Home, freeze
from tests.support.refusing import forbid


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return freeze(tmp_path / "home")


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the working directory be one that was deleted."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()


def test_the_home_is_found_upward(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.paths.frozen)
    assert find_home(None) == home.paths


def test_who_has_an_archive_or_has_unpacked_one_is_told_where_the_home_is(home: Home, tmp_path: Path) -> None:
    archive = tmp_path / "home.tar"
    archive.write_bytes(b"")
    with pytest.raises(StateError) as refused:
        find_home(archive)
    assert refused.value.hint == f"an archive has to be unpacked first: campaign extract {archive} FOLDER"
    with pytest.raises(StateError) as refused:
        find_home(home.paths.root.parent)
    assert refused.value.hint == f"what was unpacked here holds one: --home {home.paths.root}"
    with pytest.raises(StateError) as refused:
        find_home(home.paths.frozen)
    assert refused.value.hint == "campaign freeze CONFIG --home DIR"


@pytest.mark.usefixtures("nowhere")
def test_a_home_that_is_named_in_full_needs_no_working_directory(home: Home) -> None:
    assert find_home(home.paths.root) == home.paths
    assert main(["collect", "--home", str(home.paths.root)]) == 0


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("status", "--home", "home"),
        ("doctor",),
        ("freeze", "--candidate"),
        ("freeze", "--candidate", "--home", "home"),
    ],
    ids=" ".join,
)
def test_a_deleted_working_directory_is_named(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert main(list(arguments)) == 2
    assert "the working directory cannot be used: No such file" in capsys.readouterr().err


@pytest.mark.usefixtures("nowhere")
def test_an_absolute_path_is_resolved_without_a_working_directory(tmp_path: Path) -> None:
    assert absolute(tmp_path / "a" / ".." / "b") == tmp_path.resolve() / "b"
    with pytest.raises(StateError, match="working directory"):
        absolute(Path("b"))


def test_a_home_that_may_not_be_looked_into_is_no_crash(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, home.paths.root)
    with pytest.raises(InfrastructureError, match="cannot be looked at: Permission denied"):
        find_home(home.paths.root)
