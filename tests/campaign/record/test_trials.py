"""Trial runs never enter a home: what the doctor tries, and a case that is made again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign.errors import StateError
from campaign.paths import HomePaths
from campaign.rerun import scratch_home


def contents(paths: HomePaths) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(paths.root.rglob("*"))}


def test_the_doctor_leaves_a_home_as_it_was(copied: HomePaths, run: Callable[..., int]) -> None:
    before = contents(copied)
    run("doctor")
    assert contents(copied) == before


@pytest.mark.parametrize("place", ["", "attempts", "transport/deeper"])
def test_a_case_is_not_made_again_inside_the_home(copied: HomePaths, tmp_path: Path, place: str) -> None:
    (copied.root / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / "way").symlink_to(copied.root / place)
    before = contents(copied)
    for parent in (copied.root / place, tmp_path / "way"):
        with pytest.raises(StateError, match="not run again inside the home"), scratch_home(copied, parent):
            pass
    assert contents(copied) == before


def test_a_folder_for_temporary_files_inside_the_home_is_not_used(
    copied: HomePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(copied.attempts))
    with pytest.raises(StateError, match="not run again inside the home"), scratch_home(copied, None):
        pass


def test_beside_the_home_a_case_has_a_folder_of_its_own(copied: HomePaths, tmp_path: Path) -> None:
    with scratch_home(copied, tmp_path) as scratch:
        assert scratch.root.parent == tmp_path
        assert scratch.protocol.read_bytes() == copied.protocol.read_bytes()
