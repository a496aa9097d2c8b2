from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign.snapshot.digest import digest_folder, read_entries
from campaign.snapshot.listing import dump_listing
from jobs.allocation.snapshot import (
    PrivateCopy,
    TreeError,
    materialise,
    parse_listing,
    read_tree,
    remove_tree,
    tree_digest,
)
from jobs.common.endings import InterruptedAttemptError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "frozen"
    (root / "pkg" / "empty").mkdir(parents=True)
    (root / "pkg" / "mod.py").write_text("x = 1\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("pkg/mod.py")
    (root / os.fsdecode(b"latin-\xe9.txt")).write_bytes(b"\x00\xff")
    return root


def copy(tree: Path, tmp_path: Path) -> PrivateCopy:
    entries = parse_listing(dump_listing(read_entries(tree)))
    return materialise(tree, entries, digest_folder(tree), tmp_path / "copy")


def test_harness_and_driver_agree_on_the_digest(tree: Path) -> None:
    assert tree_digest(read_tree(tree)) == digest_folder(tree)
    assert tree_digest(parse_listing(dump_listing(read_entries(tree)))) == digest_folder(tree)


def test_a_copy_is_read_only_and_has_the_digest_of_its_source(tree: Path, tmp_path: Path) -> None:
    made = copy(tree, tmp_path)
    assert tree_digest(read_tree(made.root)) == digest_folder(tree)
    assert not [path for path in made.root.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o222]
    assert made.changes() == []
    remove_tree(made.root)
    assert not made.root.exists()


def _same_bytes(root: Path) -> None:
    path = root / "pkg" / "mod.py"
    status = path.stat()
    path.chmod(0o644)
    path.write_text("x = 1\n")
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _add(root: Path) -> None:
    (root / "pkg").chmod(0o755)
    (root / "pkg" / "new.py").write_text("")


def _remove(root: Path) -> None:
    root.chmod(0o755)
    (root / "link").unlink()


@pytest.mark.parametrize(
    ("change", "named"),
    [(_same_bytes, "pkg/mod.py"), (_add, "pkg/new.py"), (_remove, "link"), (remove_tree, "pkg/mod.py")],
)
def test_every_touch_of_a_copy_is_seen(tree: Path, tmp_path: Path, change: Callable[[Path], None], named: str) -> None:
    made = copy(tree, tmp_path)
    change(made.root)
    assert named in made.changes()


def test_copying_ends_when_the_job_is_told_to_stop(tree: Path, tmp_path: Path) -> None:
    def stop() -> None:
        raise InterruptedAttemptError("SIGTERM")

    with pytest.raises(InterruptedAttemptError):
        materialise(tree, read_tree(tree), digest_folder(tree), tmp_path / "copy", stop)


@pytest.mark.parametrize("damage", ["edited", "gone", "link"])
def test_a_source_that_is_not_what_was_listed_is_refused(tree: Path, tmp_path: Path, damage: str) -> None:
    entries = parse_listing(dump_listing(read_entries(tree)))
    digest = digest_folder(tree)
    if damage == "edited":
        (tree / "pkg" / "mod.py").write_text("x = 2\n")
    elif damage == "gone":
        (tree / "pkg" / "mod.py").unlink()
    else:
        (tree / "link").unlink()
        (tree / "link").symlink_to("run.sh")
    with pytest.raises(TreeError, match=r"mod\.py|link"):
        materialise(tree, entries, digest, tmp_path / "copy")


def test_a_list_that_is_not_the_frozen_one_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="frozen is 0"):
        materialise(tree, read_tree(tree), "0" * 64, tmp_path / "copy")


@pytest.mark.parametrize("path", ["../x", "/x", "a//b", ""])
def test_a_list_that_leads_out_of_the_tree_is_refused(path: str) -> None:
    entry = f'{{"path": "{path}", "type": "f", "mode": "644", "bytes": 0, "sha256": "", "origin": "plain"}}'
    with pytest.raises(ValueError, match="leaves the tree"):
        parse_listing(f'{{"format": "files/1", "entries": [{entry}]}}'.encode())
