"""Walks a source tree without following links, and says what of it belongs to the snapshot.

The walk reads the disk; git is asked only what it ignores and what the last commit holds. Nested repositories and
submodules are entered, each judged by its own git state.
"""

from __future__ import annotations

import enum
import glob
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from campaign.errors import ConfigError
from campaign.freezing import gitinfo
from campaign.freezing.gitinfo import GitState, TreeItem
from campaign.paths import HomePaths
from campaign.snapshot import rules
from campaign.snapshot.entries import EntryType, show

_READABLE = "make it readable, or have git ignore it"
IGNORED = "ignored by git"
"""Why something is left out that git ignores."""
MOST_LEFT_OUT = 200
"""Most left-out paths that are listed one by one for each reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What changes when a file is written, replaced, renamed or has its mode changed."""

    device: int
    inode: int
    mode: int
    num_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp of a file."""
        return cls(
            device=status.st_dev,
            inode=status.st_ino,
            mode=status.st_mode,
            num_bytes=status.st_size,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
        )


class Belonging(enum.Enum):
    """Why a found entry belongs to the snapshot."""

    GIT = "git"
    """git tracks it, or does not ignore it."""
    INCLUDED = "included"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One entry found on disk."""

    path: bytes
    type: EntryType
    stamp: Stamp
    target: bytes
    """What a link says."""
    belonging: Belonging
    tracked: bool
    committed: TreeItem | None
    """What the last commit has at this path."""
    is_lfs: bool
    """Whether it is a tracked file with the attribute ``filter=lfs``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """One git repository met on the way."""

    base: bytes
    """Its place below the root, with a final ``/``; empty at the root."""
    state: GitState
    recorded: str
    """The commit that the repository around it records for a submodule; empty for any other."""


@dataclass(slots=True, kw_only=True)
class Scan:
    """Everything that a walk found."""

    root: Path
    found: list[Found] = field(default_factory=list)
    repositories: list[Repository] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """Reason to paths."""
    deleted: list[tuple[Repository, bytes]] = field(default_factory=list)
    """Paths of the last commits that are not on disk, relative to their repositories."""
    problems: list[ConfigError] = field(default_factory=list)

    def left_out_lines(self) -> list[str]:
        """Return what was left out, one line each, with the reason."""
        lines = []
        for reason, paths in sorted(self.left_out.items()):
            lines += [f"{path} ({reason})" for path in rules.shorten(sorted(paths), most=MOST_LEFT_OUT)]
        return lines

    @property
    def num_bytes(self) -> int:
        """Size of all files together."""
        return sum(item.stamp.num_bytes for item in self.found if item.type == "f")


class UnmatchedIncludeError(ConfigError):
    """An ``include`` pattern that matches nothing."""

    def __init__(self, index: int, pattern: str, root: Path) -> None:
        super().__init__(
            f"include pattern {pattern!r} matches nothing",
            where=str(root),
            why="the build product it stands for would be missing from the snapshot",
            hint="build it first, or remove the pattern",
        )
        self.index = index


def scan_tree(root: Path, *, include: Sequence[str], home: Path) -> Scan:
    """Walk a source tree.

    Args:
        root: The resolved folder of the source.
        include: Glob patterns of files to take although git ignores them.
        home: The resolved campaign home, which is left out where it lies inside.

    Raises:
        ConfigError: Something in the tree cannot be frozen.
    """
    scan = Scan(root=root)
    try:
        walker = _Walker(scan=scan, home=os.fsencode(home), forced=frozenset(_expand(root, include)))
        walker.walk_root()
    except OSError as error:
        raise unreadable(error, root) from error
    if scan.problems:
        first, rest = scan.problems[0], len(scan.problems) - 1
        why = "; ".join(part for part in (first.why, f"{rest} more like it follow" if rest else "") if part)
        raise ConfigError(first.what, where=first.where, why=why, hint=first.hint)
    return scan


def unreadable(error: OSError, path: Path) -> ConfigError:
    """Return the error about a part of a source that the operating system does not let us read.

    Args:
        error: What it said.
        path: The part, in case that the error does not name it.
    """
    gone = isinstance(error, FileNotFoundError)
    return ConfigError(
        f"cannot be read: {error.strerror or error}",
        where=os.fsdecode(error.filename or path),
        why="it went away while it was being looked at" if gone else "a snapshot must hold all of the source",
        hint="let whatever writes there end, then freeze again" if gone else _READABLE,
    )


def _expand(root: Path, include: Sequence[str]) -> Iterator[bytes]:
    """Yield the paths that the include patterns match."""
    for index, pattern in enumerate(include):
        matched = False
        found = glob.iglob(os.fsencode(pattern), root_dir=os.fsencode(root), recursive=True, include_hidden=True)
        for path in found:
            if path and not _passes_link(root, path):
                matched = True
                yield path.rstrip(b"/")
        if not matched:
            raise UnmatchedIncludeError(index, pattern, root)


def _passes_link(root: Path, path: bytes) -> bool:
    """Return whether a path goes through a link to a folder: what lies behind it has another path of its own."""
    parents = Path(os.fsdecode(path)).parents
    return any((root / parent).is_symlink() for parent in parents if parent.parts)


# --- the walk ---------------------------------------------------------------------------------------------------------


class _Mode(enum.Enum):
    NORMAL = "normal"
    FORCED = "forced"
    """Below something that an include pattern names: everything is taken."""
    IGNORED = "ignored"
    """Below an ignored folder: only what an include pattern names is taken."""


@dataclass(slots=True, kw_only=True)
class _Walker:
    scan: Scan
    home: bytes
    forced: frozenset[bytes]
    ancestors: frozenset[bytes] = frozenset()
    seen: set[bytes] = field(default_factory=set)

    def walk_root(self) -> None:
        root = self.scan.root
        self.ancestors = frozenset(parent for path in self.forced for parent in _ancestors(path))
        repository = None
        work_tree = gitinfo.find_work_tree(root)
        if work_tree is not None:
            state = gitinfo.read_state(root, work_tree)
            if state.ignores_all:
                self._leave_out(
                    ".git", "the repository around the source ignores all of it, so no git rule was applied"
                )
            else:
                repository = self._enter(b"", state, "")
        self._walk(os.fsencode(root), b"", repository, _Mode.NORMAL)
        for known in self.scan.repositories:
            self._note_deleted(known)

    def _enter(self, base: bytes, state: GitState, recorded: str) -> Repository:
        repository = Repository(base=base, state=state, recorded=recorded)
        self.scan.repositories.append(repository)
        return repository

    def _walk(self, folder: bytes, prefix: bytes, repository: Repository | None, mode: _Mode) -> None:
        try:
            with os.scandir(folder) as entries:
                children = sorted(entries, key=lambda child: child.name)
        except OSError as error:
            self._refuse(prefix, f"cannot be read: {error.strerror}", hint=_READABLE)
            return
        for child in children:
            if child.name != b".git":
                self._visit(child, prefix + child.name, repository, mode)

    def _visit(self, child: os.DirEntry[bytes], path: bytes, repository: Repository | None, mode: _Mode) -> None:
        status = child.stat(follow_symlinks=False)
        is_folder = stat.S_ISDIR(status.st_mode)
        name = show(path) + ("/" if is_folder else "")
        self.seen.add(path)
        excluded = rules.excluded_by_rule(child.name)
        if excluded:
            self._leave_out(name, excluded)
            return
        if is_folder and (child.path == self.home or _is_home(child.path)):
            self._leave_out(name, "campaign home")
            return
        mode = self._mode_of(path, repository, mode)
        if mode is _Mode.IGNORED and (not is_folder or path not in self.ancestors):
            self._leave_out(name, IGNORED)
            return
        if is_folder:
            inner = self._nested(child.path, path, repository) if mode is _Mode.NORMAL else repository
            self._add(path, status, inner, mode)
            self._walk(child.path, path + b"/", inner, mode)
        elif self._may_be_frozen(child.path, path, status):
            self._add(path, status, repository, mode)

    def _mode_of(self, path: bytes, repository: Repository | None, mode: _Mode) -> _Mode:
        if mode is _Mode.FORCED:
            return mode
        ignored = mode is _Mode.IGNORED or (
            repository is not None and path.removeprefix(repository.base) in repository.state.ignored
        )
        if not ignored:
            return _Mode.NORMAL
        return _Mode.FORCED if path in self.forced else _Mode.IGNORED

    def _nested(self, folder: bytes, path: bytes, outer: Repository | None) -> Repository | None:
        """Return the repository that a folder belongs to: its own, if it is the root of one."""
        gitlink = outer.state.index.get(path.removeprefix(outer.base)) if outer is not None else None
        is_submodule = gitlink is not None and gitlink.mode == gitinfo.GITLINK
        if not os.path.lexists(os.path.join(folder, b".git")):
            if is_submodule:
                self._refuse(path, "the submodule is not checked out", hint="git submodule update --init --recursive")
            return outer
        place = Path(os.fsdecode(folder))
        return self._enter(
            path + b"/",
            gitinfo.read_state(place, place),
            gitlink.oid if gitlink is not None and is_submodule else "",
        )

    def _may_be_frozen(self, file: bytes, path: bytes, status: os.stat_result) -> bool:
        if stat.S_ISLNK(status.st_mode):
            return self._is_inside(file, path, os.readlink(file))
        if not stat.S_ISREG(status.st_mode):
            self._refuse(
                path,
                f"a {_kind(status.st_mode)} cannot be frozen",
                why="a snapshot holds files, folders and links alone",
                hint="remove it, or have git ignore it",
            )
            return False
        if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            self._refuse(
                path,
                "a file that runs as another user or group cannot be frozen",
                why="its setuid or setgid bit would be lost in the copy",
                hint=f"chmod ug-s {show(path)}",
            )
            return False
        return True

    def _is_inside(self, file: bytes, path: bytes, target: bytes) -> bool:
        root = os.fsencode(self.scan.root)
        real = os.path.realpath(file)
        if not rules.leaves_tree(path, target) and (real == root or real.startswith(root.rstrip(b"/") + b"/")):
            return True
        self._refuse(
            path,
            f"the link leads out of the source, to {show(target)}",
            why="what lies there is not part of the snapshot and can change",
            hint="make it a relative link inside the source, copy what it names, or declare it under [data]",
        )
        return False

    def _add(self, path: bytes, status: os.stat_result, repository: Repository | None, mode: _Mode) -> None:
        kind: EntryType = "d" if stat.S_ISDIR(status.st_mode) else "l" if stat.S_ISLNK(status.st_mode) else "f"
        by_git = repository if mode is _Mode.NORMAL else None
        relative = path.removeprefix(by_git.base) if by_git is not None else path
        staged = by_git.state.index.get(relative) if by_git is not None else None
        is_lfs = by_git is not None and kind == "f" and relative in by_git.state.lfs
        self.scan.found.append(
            Found(
                path=path,
                type=kind,
                stamp=Stamp.of(status),
                target=os.readlink(os.fsencode(self.scan.root) + b"/" + path) if kind == "l" else b"",
                belonging=_belonging(by_git, mode),
                tracked=staged is not None,
                committed=by_git.state.head.get(relative) if by_git is not None else None,
                is_lfs=is_lfs,
            )
        )

    def _note_deleted(self, repository: Repository) -> None:
        for path, item in repository.state.head.items():
            full = repository.base + path
            if full not in self.seen and not os.path.lexists(os.path.join(os.fsencode(self.scan.root), full)):
                if item.mode == gitinfo.GITLINK and path in repository.state.index:
                    self._refuse(
                        full,
                        "the submodule is not checked out",
                        hint="git submodule update --init --recursive",
                    )
                self.scan.deleted.append((repository, path))

    def _leave_out(self, path: str, reason: str) -> None:
        self.scan.left_out.setdefault(reason, []).append(path)

    def _refuse(self, path: bytes, what: str, *, why: str = "", hint: str = "") -> None:
        where = str(self.scan.root / show(path)) if path else str(self.scan.root)
        self.scan.problems.append(ConfigError(what, where=where, why=why, hint=hint))


def _is_home(folder: bytes) -> bool:
    try:
        return HomePaths(Path(os.fsdecode(folder))).looks_like_home()
    except OSError:  # it cannot be looked into: if it belongs to the source, the walk says so
        return False


def _belonging(repository: Repository | None, mode: _Mode) -> Belonging:
    if mode is not _Mode.NORMAL:
        return Belonging.INCLUDED
    return Belonging.PLAIN if repository is None else Belonging.GIT


def _ancestors(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _kind(mode: int) -> str:
    kinds: Mapping[int, str] = {
        stat.S_IFIFO: "named pipe",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "character device",
        stat.S_IFBLK: "block device",
    }
    return kinds.get(stat.S_IFMT(mode), "special file")
