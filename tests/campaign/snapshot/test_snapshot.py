from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign.errors import ConfigError, InfrastructureError, StateError
from campaign.paths import SnapshotPaths
from campaign.snapshot import MostUntracked, Snapshot, digest_folder, read_listing, take, take_snapshot
from campaign.snapshot import copy as copying
from campaign.snapshot.importable import find_importable
from campaign.snapshot.scan import Scan
from tests.support.git import Repository, make_repository, write_files
from tests.support.refusing import forbid


class Taken:
    """A snapshot with the folder that it lies in."""

    def __init__(self, snapshot: Snapshot, paths: SnapshotPaths) -> None:
        self.snapshot = snapshot
        self.paths = paths
        self.entries = {entry.path: entry for entry in read_listing(paths.listing)}

    @property
    def origins(self) -> dict[str, str]:
        return {os.fsdecode(path): entry.origin.value for path, entry in self.entries.items() if entry.type != "d"}

    @property
    def names(self) -> set[str]:
        return {os.fsdecode(path) for path in self.entries}


Take = Callable[..., Taken]


@pytest.fixture
def shoot(tmp_path: Path) -> Take:
    """Return a function that takes a snapshot of a folder, each time into a new place."""
    home = tmp_path / "home"
    home.mkdir()
    count = iter(range(100))

    def shoot(source: Path, **options: object) -> Taken:
        paths = SnapshotPaths(home / str(next(count)))
        settings: dict[str, object] = {"home": home, **options}
        return Taken(take_snapshot(source, paths, **settings), paths)  # type: ignore[arg-type]  # options of any kind

    return shoot


# --- what is taken ----------------------------------------------------------------------------------------------------


def test_the_copy_has_the_digest_that_is_reported(tmp_path: Path, shoot: Take) -> None:
    source = tmp_path / "source"
    write_files(source, {"a.py": "x", "sub/b.bin": bytes(range(256)) * 9000, "empty": b""})
    (source / "run.sh").write_bytes(b"#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "hollow" / "deep").mkdir(parents=True)
    (source / "link").symlink_to("sub/b.bin")
    taken = shoot(source)
    assert digest_folder(taken.paths.tree) == taken.snapshot.sha256
    assert taken.snapshot.num_files == 5
    assert taken.snapshot.num_bytes == 1 + 256 * 9000 + 10
    assert (taken.paths.tree / "hollow" / "deep").is_dir()
    assert (taken.paths.tree / "link").readlink() == Path("sub/b.bin")
    assert taken.entries[b"run.sh"].mode == "755"
    assert set(taken.origins.values()) == {"plain"}
    assert taken.snapshot.git is None


def test_the_copy_is_read_only(tmp_path: Path, shoot: Take) -> None:
    write_files(tmp_path / "source", {"sub/a.py": "x"})
    taken = shoot(tmp_path / "source")
    for path in [taken.paths.tree, *taken.paths.tree.rglob("*")]:
        assert path.stat().st_mode & 0o222 == 0, path


def test_tracked_modified_and_untracked_files_are_taken_and_ignored_ones_are_named(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(
        tmp_path / "source", {"same.py": "1", "edited.py": "1", "gone.py": "1", ".gitignore": "build/\n*.log\n"}
    )
    repository.write({"edited.py": "2", "new.py": "3", "build/x.so": "4", "run.log": "5", "staged.py": "6"})
    repository.git("add", "staged.py")
    (repository.root / "gone.py").unlink()
    taken = shoot(repository.root)
    assert taken.origins == {
        ".gitignore": "tracked",
        "edited.py": "modified",
        "new.py": "untracked",
        "same.py": "tracked",
        "staged.py": "modified",
    }
    assert (taken.paths.tree / "edited.py").read_text() == "2"
    assert taken.snapshot.left_out == (
        "build/ (ignored by git)",
        "run.log (ignored by git)",
        "gone.py (in the last commit, not on disk)",
    )
    assert taken.snapshot.git is not None
    assert taken.snapshot.git["commit"] == repository.git("rev-parse", "HEAD").decode().strip()
    assert (taken.snapshot.git["modified"], taken.snapshot.git["untracked"], taken.snapshot.git["deleted"]) == (2, 1, 1)


def test_two_freezes_that_differ_only_in_an_untracked_file_differ(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "source", {"a.py": "1"})
    first = shoot(repository.root)
    repository.write({"helper.py": "2"})
    assert shoot(repository.root).snapshot.sha256 != first.snapshot.sha256


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_edits_that_git_hides_are_taken(tmp_path: Path, shoot: Take, flag: str) -> None:
    repository = make_repository(tmp_path / "source", {"a.py": "1"})
    repository.git("update-index", flag, "a.py")
    repository.write({"a.py": "hidden edit"})
    assert repository.git("status", "--porcelain") == b""
    taken = shoot(repository.root)
    assert (taken.paths.tree / "a.py").read_text() == "hidden edit"
    assert taken.origins == {"a.py": "modified"}
    assert taken.snapshot.git is not None
    assert taken.snapshot.git[flag.strip("-").replace("-", "_")] == 1


def test_a_mode_that_git_was_told_to_disregard_counts(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "source", {"a.sh": "1"})
    repository.git("config", "core.fileMode", "false")
    (repository.root / "a.sh").chmod(0o755)
    taken = shoot(repository.root)
    assert taken.entries[b"a.sh"].mode == "755"
    assert taken.origins == {"a.sh": "modified"}


def test_line_endings_and_export_rules_change_nothing(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "source")
    files: dict[str, bytes | str] = {
        ".gitattributes": "*.txt text eol=lf\nver.py export-subst\nsecret.py export-ignore\n",
        "dos.txt": b"a\r\nb\r\n",
        "ver.py": "$Format:%H$",
        "secret.py": "s",
    }
    repository.commit(files)
    repository.write(files)
    taken = shoot(repository.root)
    assert {name: (taken.paths.tree / name).read_bytes() for name in files} == {
        name: content if isinstance(content, bytes) else content.encode() for name, content in files.items()
    }


def test_names_that_are_not_utf_8_survive(tmp_path: Path, shoot: Take) -> None:
    source = tmp_path / "source"
    source.mkdir()
    names = [b"lat\xe9.py", '\u00e9 name\n\t"q".py'.encode(), b"-dash", b":(glob)x"]
    for name in names:
        Path(os.fsdecode(os.fsencode(source) + b"/" + name)).write_bytes(name)
    Repository(source).git("init", "-q")
    Repository(source).commit()
    taken = shoot(source)
    assert set(taken.entries) == set(names)
    assert set(taken.origins.values()) == {"tracked"}
    assert b"path_b64" in taken.paths.listing.read_bytes()


def test_a_source_below_the_top_of_its_repository_takes_only_its_own_files(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(
        tmp_path / "source",
        {"inner/a.py": "1", "outer.py": "2", ".gitignore": "inner/skip\n", "inner/.gitignore": "x\n"},
    )
    repository.write({"inner/skip": "s", "inner/x": "s", "inner/a.py": "changed"})
    taken = shoot(repository.root / "inner")
    assert taken.origins == {".gitignore": "tracked", "a.py": "modified"}
    assert b"-1" in taken.paths.patch.read_bytes()


def test_a_source_that_its_repository_ignores_is_taken_as_a_plain_folder(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "source", {".gitignore": "built/\n"})
    repository.write({"built/pkg/a.py": "1"})
    taken = shoot(repository.root / "built")
    assert taken.origins == {"pkg/a.py": "plain"}
    assert "no git rule was applied" in taken.snapshot.left_out[0]


def test_a_repository_without_a_commit_is_taken(tmp_path: Path, shoot: Take) -> None:
    repository = Repository(tmp_path / "source")
    repository.root.mkdir()
    repository.git("init", "-q")
    repository.write({"a.py": "1"})
    taken = shoot(repository.root)
    assert taken.origins == {"a.py": "untracked"}
    assert taken.snapshot.git is not None
    assert taken.snapshot.git["commit"] is None


# --- include ----------------------------------------------------------------------------------------------------------


def test_an_include_pattern_takes_ignored_files_and_only_those(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "source", {"a.py": "1", ".gitignore": "build/\nvendor/\n"})
    repository.write(
        {"build/lib/x.so": "2", "build/lib/x.o": "3", "vendor/p/q.py": "4", "vendor/p/__pycache__/q.pyc": "5"}
    )
    taken = shoot(repository.root, include=("build/**/*.so", "vendor"))
    assert taken.origins == {
        ".gitignore": "tracked",
        "a.py": "tracked",
        "build/lib/x.so": "included",
        "vendor/p/q.py": "included",
    }
    assert taken.snapshot.left_out == ("vendor/p/__pycache__/ (bytecode)", "build/lib/x.o (ignored by git)")


def test_an_include_pattern_that_matches_nothing_is_refused(tmp_path: Path, shoot: Take) -> None:
    write_files(tmp_path / "source", {"a.py": "1"})
    with pytest.raises(ConfigError, match=r"build/\*\.so' matches nothing"):
        shoot(tmp_path / "source", include=("a.py", "build/*.so"))


# --- what is left out by rule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["__pycache__/a.pyc", "a.pyc", "x.pth", "sitecustomize.py", "sub/usercustomize.py", "sitecustomize/__init__.py"],
)
def test_files_that_would_run_unasked_are_left_out_and_named(tmp_path: Path, shoot: Take, name: str) -> None:
    repository = make_repository(tmp_path / "source", {"a.py": "1", name: "planted"})
    taken = shoot(repository.root)
    assert taken.origins == {"a.py": "tracked"}
    assert any(
        line.startswith(name.removesuffix("/__init__.py").removesuffix("/a.pyc")) for line in taken.snapshot.left_out
    )


def test_a_home_inside_the_source_is_left_out_and_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_files(source, {"a.py": "1", "build/demo/old": "2"})
    write_files(source, {f"other/{name}": "{}" for name in ("manifest.json", "protocol.json", "frozen/x")})
    home = source / "build" / "demo"
    paths = SnapshotPaths(home / "staged")
    taken = Taken(take_snapshot(source, paths, home=home), paths)
    assert taken.names == {"a.py", "build"}
    assert taken.snapshot.left_out == ("build/demo/ (campaign home)", "other/ (campaign home)")


def test_a_home_that_is_the_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the source folder itself"):
        take_snapshot(tmp_path, SnapshotPaths(tmp_path / "x"), home=tmp_path)


def test_many_left_out_files_are_counted_not_listed(tmp_path: Path, shoot: Take) -> None:
    write_files(tmp_path / "source", {"a.py": "1", **{f"{number:03}.pyc": "" for number in range(250)}})
    left_out = shoot(tmp_path / "source").snapshot.left_out
    assert len(left_out) == 201
    assert left_out[-1] == "and 50 more (bytecode)"


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "sub/../../outside"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, shoot: Take, target: str) -> None:
    write_files(tmp_path / "source", {"sub/a.py": "1"})
    (tmp_path / "source" / "link").symlink_to(target)
    with pytest.raises(ConfigError, match="leads out of the source"):
        shoot(tmp_path / "source")


def test_a_link_that_leads_out_by_way_of_another_is_refused(tmp_path: Path, shoot: Take) -> None:
    source = tmp_path / "source"
    write_files(source, {"s/t/a.py": "1"})
    (source / "s" / "t" / "up").symlink_to("../..")
    (source / "link").symlink_to("s/t/up/../outside")
    with pytest.raises(ConfigError, match="leads out of the source"):
        shoot(source)


def test_a_link_to_something_left_out_is_taken_and_named(tmp_path: Path, shoot: Take) -> None:
    write_files(tmp_path / "source", {"a.pyc": "1"})
    (tmp_path / "source" / "link").symlink_to("a.pyc")
    taken = shoot(tmp_path / "source")
    assert taken.names == {"link"}
    assert taken.snapshot.left_out[-1] == "a.pyc (named by the link link, but not in the snapshot)"


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_pipe_is_refused(tmp_path: Path, shoot: Take) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "pipe")
    with pytest.raises(ConfigError, match="a named pipe cannot be frozen") as caught:
        shoot(tmp_path / "source")
    assert caught.value.where == str(tmp_path / "source" / "pipe")


def test_a_socket_is_refused(tmp_path: Path, shoot: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    monkeypatch.chdir(source)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(ConfigError, match="a socket cannot be frozen"):
            shoot(source)


@pytest.mark.parametrize("bit", [0o4000, 0o2000])
def test_a_file_that_runs_as_somebody_else_is_refused(tmp_path: Path, shoot: Take, bit: int) -> None:
    write_files(tmp_path / "source", {"a": "1", "b": "2"})
    for name in ("a", "b"):
        (tmp_path / "source" / name).chmod(0o755 | bit)
    with pytest.raises(ConfigError, match="runs as another user") as caught:
        shoot(tmp_path / "source")
    assert "1 more like it follow" in caught.value.why


def test_a_source_that_is_no_folder_is_refused(tmp_path: Path, shoot: Take) -> None:
    with pytest.raises(ConfigError, match="not a folder"):
        shoot(tmp_path / "missing")


def test_too_little_space_is_said_before_anything_is_copied(
    tmp_path: Path, shoot: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "source", {"a": "1"})
    monkeypatch.setattr(take, "_SPARE_BYTES", 1 << 62)
    with pytest.raises(InfrastructureError, match="not enough space"):
        shoot(tmp_path / "source")


# --- a source that does not stand still -------------------------------------------------------------------------------


def _edit_in_place(source: Path) -> None:
    status = (source / "a.py").stat()
    (source / "a.py").write_bytes(b"B")  # as long as before
    os.utime(source / "a.py", ns=(status.st_atime_ns, status.st_mtime_ns))


def _commit(source: Path) -> None:
    Repository(source).git("commit", "-q", "--allow-empty", "-m", "moved")


CHANGES: dict[str, Callable[[Path], object]] = {
    "edited, time restored": _edit_in_place,
    "grown": lambda source: (source / "a.py").write_bytes(b"AB"),
    "removed": lambda source: (source / "a.py").unlink(),
    "added": lambda source: (source / "new.py").write_bytes(b""),
    "mode": lambda source: (source / "a.py").chmod(0o755),
    "folder added": lambda source: (source / "new").mkdir(),
    "committed": _commit,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_while_freezing_is_refused(
    tmp_path: Path, shoot: Take, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    repository = make_repository(tmp_path / "source", {"a.py": "A", "z.py": "Z"})
    make_links = take._make_links

    def change_after_the_copy(scan: Scan, target: SnapshotPaths) -> None:
        make_links(scan, target)
        CHANGES[change](repository.root)

    monkeypatch.setattr(take, "_make_links", change_after_the_copy)
    with pytest.raises(StateError, match="while it was being frozen"):
        shoot(repository.root)


@pytest.mark.parametrize("change", ["edited, time restored", "grown", "removed"])
def test_a_change_between_the_scan_and_the_copy_is_refused(
    tmp_path: Path, shoot: Take, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    write_files(tmp_path / "source", {"a.py": "A"})
    make_folders = take._make_folders

    def change_before_the_copy(scan: Scan, target: SnapshotPaths) -> None:
        make_folders(scan, target)
        CHANGES[change](tmp_path / "source")

    monkeypatch.setattr(take, "_make_folders", change_before_the_copy)
    with pytest.raises(StateError, match="while it was being frozen") as caught:
        shoot(tmp_path / "source")
    assert caught.value.where == "a.py"


def test_a_change_during_the_copy_of_a_file_is_refused(
    tmp_path: Path, shoot: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    write_files(source, {"a.bin": b"x" * 3000})
    monkeypatch.setattr(copying, "CHUNK_BYTES", 1000)
    write_all = copying._write_all

    def append_meanwhile(descriptor: int, data: memoryview) -> None:
        write_all(descriptor, data)
        with (source / "a.bin").open("ab") as stream:
            stream.write(b"y")

    monkeypatch.setattr(copying, "_write_all", append_meanwhile)
    with pytest.raises(StateError, match="while it was being frozen"):
        shoot(source)


def test_a_pipe_that_takes_a_files_place_does_not_hang_the_freeze(
    tmp_path: Path, shoot: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "source", {"a.py": "A"})
    make_folders = take._make_folders

    def swap(scan: Scan, target: SnapshotPaths) -> None:
        make_folders(scan, target)
        (tmp_path / "source" / "a.py").unlink()
        os.mkfifo(tmp_path / "source" / "a.py")

    monkeypatch.setattr(take, "_make_folders", swap)
    with pytest.raises(StateError, match="while it was being frozen"):
        shoot(tmp_path / "source")


def test_each_file_is_read_once(tmp_path: Path, shoot: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = make_repository(tmp_path / "source", {f"{number}.py": str(number) for number in range(70)})
    repository.write({"1.py": "changed"})
    opened: list[bytes] = []
    real_open = os.open

    def spy(path: object, flags: int, *rest: int) -> int:
        if isinstance(path, bytes) and path.startswith(os.fsencode(repository.root)) and flags & os.O_DIRECTORY == 0:
            opened.append(path)
        return real_open(path, flags, *rest)  # type: ignore[arg-type]  # whatever os.open takes

    monkeypatch.setattr(os, "open", spy)
    shoot(repository.root)
    assert len(opened) == len(set(opened)) == 70


# --- submodules and Git LFS -------------------------------------------------------------------------------------------


@pytest.fixture
def with_submodule(tmp_path: Path) -> Repository:
    inner = make_repository(tmp_path / "library", {"lib.py": "1", ".gitignore": "*.o\n"})
    outer = make_repository(tmp_path / "source", {"a.py": "1"})
    outer.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.root), "deps/lib")
    outer.commit()
    return outer


def test_submodules_are_entered_and_judged_by_their_own_rules(with_submodule: Repository, shoot: Take) -> None:
    with_submodule.write({"deps/lib/lib.py": "edited", "deps/lib/new.py": "n", "deps/lib/x.o": "o"})
    taken = shoot(with_submodule.root)
    assert taken.origins == {
        ".gitmodules": "tracked",
        "a.py": "tracked",
        "deps/lib/.gitignore": "tracked",
        "deps/lib/lib.py": "modified",
        "deps/lib/new.py": "untracked",
    }
    assert "deps/lib/x.o (ignored by git)" in taken.snapshot.left_out
    commit = Repository(with_submodule.root / "deps" / "lib").git("rev-parse", "HEAD").decode().strip()
    assert taken.snapshot.git is not None
    assert taken.snapshot.git["nested"] == {"deps/lib": {"commit": commit, "recorded": commit}}
    assert b"a/deps/lib/lib.py" in taken.paths.patch.read_bytes()


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_submodule_that_is_not_checked_out_is_refused(
    with_submodule: Repository, shoot: Take, is_empty: bool
) -> None:
    with_submodule.git("submodule", "--quiet", "deinit", "-f", "deps/lib")
    if not is_empty:
        (with_submodule.root / "deps" / "lib").rmdir()
    with pytest.raises(ConfigError, match="not checked out") as caught:
        shoot(with_submodule.root)
    assert "git submodule update" in caught.value.hint


def test_a_repository_inside_another_is_entered(tmp_path: Path, shoot: Take) -> None:
    outer = make_repository(tmp_path / "source", {"a.py": "1"})
    make_repository(outer.root / "clone", {"b.py": "2", ".gitignore": "skip\n"}).write({"skip": "s"})
    taken = shoot(outer.root)
    assert taken.origins == {"a.py": "tracked", "clone/.gitignore": "tracked", "clone/b.py": "tracked"}


POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\nsize 1\n"
)
"""Stands for a file that holds the letter x."""


def test_a_pointer_of_git_lfs_is_refused(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "source", {".gitattributes": "*.bin filter=lfs\n", "w.bin": POINTER})
    with pytest.raises(ConfigError, match="pointer of Git LFS") as caught:
        shoot(repository.root)
    assert caught.value.hint == "git lfs pull"


def test_a_file_that_git_lfs_fetched_counts_as_committed(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(
        tmp_path / "source", {".gitattributes": "*.bin filter=lfs\n", "w.bin": POINTER, "v.bin": POINTER}
    )
    repository.write({"w.bin": "x", "v.bin": "y"})
    assert shoot(repository.root).origins == {".gitattributes": "tracked", "v.bin": "modified", "w.bin": "tracked"}


def test_pointer_text_in_a_file_that_git_lfs_does_not_manage_is_a_file(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "source", {"fixture.txt": POINTER})
    assert shoot(repository.root).origins == {"fixture.txt": "tracked"}


# --- the patch --------------------------------------------------------------------------------------------------------


def test_the_patch_turns_the_commit_into_the_snapshot(tmp_path: Path, shoot: Take) -> None:
    before: dict[str, bytes | str] = {
        "text.py": "".join(f"line {number}\n" for number in range(100)),
        "no newline": "a\nb",
        "cr.txt": b"a\rb\x0c\xe9\n",
        "binary.bin": bytes(range(256)),
        "gone.py": "1\n",
        "mode.sh": "1\n",
        "becomes link": "1\n",
    }
    repository = make_repository(tmp_path / "source", before)
    clone = tmp_path / "clone"
    Repository(tmp_path).git("clone", "-q", str(repository.root), str(clone))
    repository.write(
        {
            "text.py": "".join(f"line {number}\n" for number in range(100) if number != 50) + "end",
            "no newline": "a\nb\n",
            "cr.txt": b"a\rb\x0c\xe8\n",
            "binary.bin": bytes(reversed(range(256))) * 3,
            'new \u00e9 "quoted".py': "n\n",
            "new.bin": b"\0" * 1000,
            "empty": "",
        }
    )
    (repository.root / "gone.py").unlink()
    (repository.root / "mode.sh").chmod(0o755)
    (repository.root / "becomes link").unlink()
    (repository.root / "becomes link").symlink_to("text.py")
    taken = shoot(repository.root)
    Repository(clone).git("apply", "-", stdin=taken.paths.patch.read_bytes())
    assert shoot(clone).snapshot.sha256 == taken.snapshot.sha256


def test_the_patch_is_bounded_and_says_what_it_does_not_show(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "source", {"a.bin": "1"})
    repository.write({"a.bin": b"x" * (2 << 20)})
    patch = shoot(repository.root).paths.patch.read_bytes()
    assert len(patch) < 1000
    assert b"content not shown: the frozen version has 2097152 bytes" in patch


# --- what a machine refuses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_repository", [False, True], ids=["plain", "git"])
def test_a_folder_that_may_not_be_read_is_named_in_full(
    tmp_path: Path, shoot: Take, monkeypatch: pytest.MonkeyPatch, *, is_repository: bool
) -> None:
    source = tmp_path / "source"
    (make_repository if is_repository else write_files)(source, {"a.py": "A", "closed/b.py": "B"})
    forbid(monkeypatch, source / "closed")
    with pytest.raises(ConfigError, match="cannot be read: Permission denied") as caught:
        shoot(source)
    assert caught.value.where == str(source / "closed")
    assert "make it readable" in caught.value.hint


def test_a_file_that_may_not_be_read_is_named_in_full(
    tmp_path: Path, shoot: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    write_files(source, {"a.py": "A"})
    real = os.open

    def closed(path: bytes, *arguments: int) -> int:
        if path == os.fsencode(source / "a.py"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", closed)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied") as caught:
        shoot(source)
    assert caught.value.where == str(source / "a.py")


def test_a_source_below_a_folder_that_may_not_be_entered_is_refused(
    tmp_path: Path, shoot: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "closed" / "source", {"a.py": "A"})
    forbid(monkeypatch, tmp_path / "closed")
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        shoot(tmp_path / "closed" / "source")
    assert caught.value.where == str(tmp_path / "closed" / "source")


@pytest.mark.parametrize("place", ["/", "/proc", "/proc/self", "/sys", "/dev"])
def test_the_operating_system_is_no_source_tree(shoot: Take, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(take, "scan_tree", lambda *_arguments, **_options: pytest.fail("it was walked"))
    with pytest.raises(ConfigError, match="not a source tree") as caught:
        shoot(Path(place))
    assert caught.value.where == str(Path(place).resolve())


# --- untracked and ignored --------------------------------------------------------------------------------------------

MOST = MostUntracked(file_bytes=100, bytes=250)


def test_an_untracked_file_that_is_too_large_is_refused_with_its_name(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "r", {"a.py": "1" * 500})
    repository.write({"small": "1" * 100, "large": "1" * 101, "larger": "1" * 120})
    with pytest.raises(ConfigError, match="2 untracked files have more than 0 MiB") as caught:
        shoot(repository.root, most=MOST)
    assert caught.value.where == str(repository.root / "larger")
    assert caught.value.why == "the largest: larger (120 bytes), large (101 bytes)"
    assert "untracked_file_mib" in caught.value.hint


def test_too_many_bytes_of_untracked_files_are_refused(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "r", {"a.py": "x"})
    repository.write(dict.fromkeys(("a", "b", "c"), "1" * 84))
    with pytest.raises(ConfigError, match="the untracked files have 252 bytes"):
        shoot(repository.root, most=MOST)
    (repository.root / "c").unlink()
    assert {"a", "b"} <= shoot(repository.root, most=MOST).names


def test_tracked_included_and_plain_files_may_be_large(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "r", {"a.py": "x", ".gitignore": "build\n"})
    repository.write({"a.py": "1" * 300, "build/lib.so": "1" * 300, "added.py": "1" * 300})
    repository.git("add", "added.py")
    assert "build/lib.so" in shoot(repository.root, include=("build/lib.so",), most=MOST).names
    write_files(tmp_path / "plain", {"a.bin": "1" * 300})
    assert "a.bin" in shoot(tmp_path / "plain", most=MOST).names


def test_names_with_a_newline_survive_and_are_shown_on_one_line(tmp_path: Path, shoot: Take) -> None:
    repository = make_repository(tmp_path / "r", {"a\nb.py": "1", ".gitignore": "out\n"})
    repository.write({"c\nd.py": "2", "e\n/out": "3"})
    taken = shoot(repository.root)
    assert taken.origins["a\nb.py"] == "tracked"
    assert taken.origins["c\nd.py"] == "untracked"
    assert digest_folder(taken.paths.tree) == taken.snapshot.sha256
    assert all("\n" not in line for line in taken.snapshot.left_out)
    assert [line.partition(" ")[0] for line in taken.snapshot.left_out] == [r"e\n/"]


def test_ignored_code_that_an_import_could_find_is_named(tmp_path: Path, shoot: Take) -> None:
    ignored = "local_settings.py\n_fast.cpython-311-x86_64-linux-gnu.so\ngenerated/\n.venv/\nnode-modules/\n*.txt\n"
    repository = make_repository(tmp_path / "r", {"a.py": "x", "src/b.py": "y", ".gitignore": ignored})
    names = [
        "local_settings.py",
        "src/_fast.cpython-311-x86_64-linux-gnu.so",
        "generated/tables.py",
        "generated/deep/more.py",
        "generated/not-a-package/more.py",
        ".venv/lib/x.py",
        "node-modules/x.py",
        "notes.txt",
    ]
    repository.write(dict.fromkeys(names, ""))
    ignored_paths = shoot(repository.root).snapshot.ignored
    assert find_importable(repository.root, ignored_paths, (".",)) == [
        "generated/deep/more.py",
        "generated/tables.py",
        "local_settings.py",
        "src/_fast.cpython-311-x86_64-linux-gnu.so",
    ]
    assert find_importable(repository.root, ignored_paths, ("src",)) == ["src/_fast.cpython-311-x86_64-linux-gnu.so"]
    assert find_importable(repository.root, ignored_paths, ("other",)) == []
