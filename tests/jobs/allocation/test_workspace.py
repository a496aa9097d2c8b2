from __future__ import annotations

import os

import pytest

from jobs.allocation.workspace import is_full


@pytest.mark.parametrize(
    ("free_blocks", "files", "free_files", "full"),
    [(256, 100, 1, False), (255, 100, 1, True), (256, 100, 0, True), (256, 0, 0, False)],
)
def test_a_disk_is_full_without_a_mebibyte_or_a_file(free_blocks: int, files: int, free_files: int, full: bool) -> None:
    found = os.statvfs_result((4096, 4096, 1000, 999, free_blocks, files, 50, free_files, 0, 255))
    assert is_full(found) is full
