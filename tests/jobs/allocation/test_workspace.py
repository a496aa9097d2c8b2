from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from jobs.allocation.machine import read_boot_id
from jobs.allocation.workspace import Workspace, is_full


@pytest.mark.parametrize(
    ("free_blocks", "files", "free_files", "full"),
    [(256, 100, 1, False), (255, 100, 1, True), (256, 100, 0, True), (256, 0, 0, False)],
)
def test_a_disk_is_full_without_a_mebibyte_or_a_file(free_blocks: int, files: int, free_files: int, full: bool) -> None:
    found = os.statvfs_result((4096, 4096, 1000, 999, free_blocks, files, 50, free_files, 0, 255))
    assert is_full(found) is full


def test_what_a_killed_job_left_goes_and_what_a_running_one_has_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prefix = f"campaign-{read_boot_id()[:8]}-"
    left = tmp_path / f"{prefix}killed"
    (left / "tree1").mkdir(parents=True)
    (left / "tree1" / "file").write_text("a recording")
    (left / "tree1").chmod(0o500)
    others = [tmp_path / "campaign-00000000-of-another-boot", tmp_path / "campaign-rerun-x", tmp_path / "elsewhere"]
    for other in others:
        other.mkdir()
    link = tmp_path / f"{prefix}link"
    link.symlink_to(tmp_path / "elsewhere")
    running = Workspace.create()
    assert not left.exists()
    second = Workspace.create()
    assert running.root.name.startswith(prefix)
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for path in (*others, link, running.root, second.root)
    }
    for workspace in (running, second):
        workspace.remove()
    assert set(tmp_path.iterdir()) == {*others, link}
