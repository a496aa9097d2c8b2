"""The harness's bytecode in its private copy: used by what is started from there, by nothing else, and watched."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.snapshot.digest import digest_folder
from jobs import launch
from jobs.allocation.compiled import _PARTS
from jobs.allocation.snapshot import PrivateCopy, TreeError, copy_whole, remove_tree
from jobs.allocation.workspace import Workspace
from jobs.common.layout import COMPILED

HARNESS = Path(launch.__file__).parent


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    shutil.copytree(HARNESS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder.resolve()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = (tmp_path / "workspace").resolve()
    root.mkdir()
    return Workspace(root, os.open(root, os.O_RDONLY), {}, [0])


def start(copy: Path, program: str, private: Path) -> tuple[int, str, list[str]]:
    """Start a program of the harness; return exit code, what it said, and what of the harness was compiled for it."""
    options = ["-S", "-P", "-s", "-X", f"pycache_prefix={private}"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, *options, str(copy / "launch.py"), program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    below = private / copy.relative_to("/")
    return done.returncode, done.stderr, sorted(path.name.partition(".")[0] for path in below.rglob("*.pyc"))


def test_the_launcher_looks_where_the_parent_writes() -> None:
    assert launch.COMPILED == COMPILED


@pytest.mark.parametrize("program", ["worker", "compare"])
def test_what_is_started_from_the_copy_compiles_nothing_of_the_harness(
    source: Path, workspace: Workspace, tmp_path: Path, program: str
) -> None:
    copy = workspace.harness(source, digest_folder(source))
    code, said, compiled = start(copy.root, program, tmp_path / "private")
    assert (code, said[:5], compiled) == (2, "usage", [])
    assert start(source, program, tmp_path / "private")[2] == ["__init__", "command"]


def test_every_module_of_a_worker_is_compiled_and_none_of_the_parents_own(source: Path, workspace: Workspace) -> None:
    copy = workspace.harness(source, digest_folder(source))
    compiled = {path.name.partition(".")[0] for path in (copy.root / COMPILED).rglob("*.pyc")}
    assert compiled == {path.stem for part in ("", *_PARTS) for path in (source / part).glob("*.py")}
    copied = {path.relative_to(copy.root).parts[0] for path in copy.root.rglob("*.py")}
    assert copied == {*_PARTS, *(path.name for path in source.glob("*.py"))}


def test_what_is_not_copied_of_the_harness_is_held_to_what_was_frozen(source: Path, workspace: Workspace) -> None:
    sha256 = digest_folder(source)
    (source / "cases" / "case.py").write_text("other\n")
    with pytest.raises(TreeError, match="frozen is"):
        workspace.harness(source, sha256)


def test_the_parent_runs_no_bytecode_of_the_copys(source: Path, workspace: Workspace, tmp_path: Path) -> None:
    copy = workspace.harness(source, digest_folder(source)).root
    planted = tmp_path / "planted.py"
    planted.write_text("raise SystemExit('planted')")
    (target,) = (copy / COMPILED).rglob(f"command.{sys.implementation.cache_tag}.pyc")
    remove_tree(target)
    target.unlink()
    py_compile.compile(str(planted), str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    # That it would run in a worker shows that the copy's bytecode is what a worker runs: therefore it is watched.
    assert start(copy, "worker", tmp_path / "private")[:2] == (1, "planted\n")
    assert start(copy, "allocation", tmp_path / "private")[1].startswith("usage")


def test_bytecode_that_was_touched_is_a_change_of_the_copy(
    source: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    sha256 = digest_folder(source)
    copy = workspace.harness(source, sha256)
    assert workspace.find_changes() == []
    (target,) = copy.root.rglob("command.*.pyc")
    assert not [*source.rglob("*.pyc")]
    target.chmod(0o600)
    assert len(workspace.find_changes()) == 1
    assert workspace.harness(source, sha256).root != copy.root


def test_a_harness_that_is_not_the_frozen_one_is_neither_compiled_nor_used(tmp_path: Path, source: Path) -> None:
    sha256 = digest_folder(source)
    (source / "command.py").write_text("other\n")

    def refuse() -> None:
        raise AssertionError("the copy was taken for right")

    with pytest.raises(TreeError, match="frozen is"):
        copy_whole(source, sha256, tmp_path / "copy", add=refuse)


def test_a_copy_is_what_was_frozen_and_read_only(source: Path, tmp_path: Path) -> None:
    copy: PrivateCopy = copy_whole(source, digest_folder(source), tmp_path / "copy")
    assert digest_folder(copy.root) == digest_folder(source)
    modes = {path.stat().st_mode & 0o777 for path in (copy.root, *copy.root.rglob("*"))}
    assert modes <= {0o444, 0o555}
    remove_tree(copy.root)


def test_what_is_neither_file_nor_folder_is_refused(source: Path, tmp_path: Path) -> None:
    sha256 = digest_folder(source)
    (source / "link.py").symlink_to("command.py")
    with pytest.raises(TreeError, match="neither a file nor a folder"):
        copy_whole(source, sha256, tmp_path / "copy")
