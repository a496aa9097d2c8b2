"""What git knows about a source tree, asked without running anything that the repository's configuration names.

Only plumbing that applies no filter is used, and git is never asked what changed: that is decided from the bytes on
disk. A repository's own configuration can name commands (``core.fsmonitor``, filters, ``diff.external``, hooks, the
transport of a partial clone); each is switched off here, and a test plants them all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from campaign import redact
from campaign.errors import ConfigError, InfrastructureError

GITLINK = b"160000"
ROOT = 0
_TIMEOUT_S = 600
_SAFE_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "LC_ALL": "C",
}
"""No protocol is allowed, so that an object missing from a partial clone is not fetched by a command of its choice."""
_SAFE_OPTIONS = (
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.hooksPath=/dev/null",
    "core.excludesFile=/dev/null",
    "core.attributesFile=/dev/null",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeItem:
    """One path as a commit or the index has it."""

    mode: bytes
    oid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GitState:
    """One repository as seen from one folder; all paths are relative to that folder.

    Attributes:
        git: Runs git there.
        commit: The last commit; None before the first.
        branch: The branch; empty when detached.
        remotes: Remote name to URL, without credentials.
        head: The paths of the last commit.
        index: The paths that git tracks.
        ignored: What git ignores: files, and folders that are ignored as a whole.
        ignores_all: Whether the folder itself is ignored.
        lfs: Tracked paths with the attribute ``filter=lfs``.
        num_skip_worktree: Tracked paths whose changes ``git status`` does not show.
        num_assume_unchanged: As above, by the other flag.
        num_unmerged: Paths in the middle of a merge.
    """

    git: Git
    commit: str | None
    branch: str
    remotes: Mapping[str, str]
    head: Mapping[bytes, TreeItem]
    index: Mapping[bytes, TreeItem]
    ignored: frozenset[bytes]
    ignores_all: bool
    lfs: frozenset[bytes]
    num_skip_worktree: int
    num_assume_unchanged: int
    num_unmerged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """Runs hardened git plumbing in one folder of a work tree."""

    folder: Path
    work_tree: Path

    def run(self, *arguments: str, stdin: bytes = b"", may_fail: bool = False) -> bytes:
        """Run one plumbing command and return what it printed.

        Raises:
            InfrastructureError: It failed, unless it may: then the answer is empty.
        """
        program = shutil.which("git")
        if program is None:
            raise ConfigError(
                "git is not installed, but the source is a git work tree",
                where=str(self.work_tree),
                why="without it nobody can tell which files are ignored",
                hint="install git, or freeze a plain copy without the .git folder",
            )
        options = [part for option in _SAFE_OPTIONS for part in ("-c", option)]
        command = [program, *options, "-c", f"safe.directory={self.work_tree}", "--no-pager", "--literal-pathspecs"]
        done = subprocess.run(
            [*command, *arguments],
            cwd=self.folder,
            env=self._environment(),
            input=stdin,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            if may_fail:
                return b""
            message = redact.redact_text(done.stderr.decode("utf-8", "replace").strip())
            raise InfrastructureError(f"git {arguments[0]} failed: {message}", where=str(self.folder))
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": os.devnull,
            "GIT_DIR": str(self.work_tree / ".git"),
            "GIT_WORK_TREE": str(self.work_tree),
            **_SAFE_ENVIRONMENT,
        }

    def read_blobs(self, oids: Iterable[str], *, most_bytes: int) -> dict[str, bytes]:
        """Return the contents of blobs; those that are larger, or not in the repository, are absent."""
        wanted = b"".join(oid.encode("ascii") + b"\n" for oid in dict.fromkeys(oids))
        if not wanted:
            return {}
        small = []
        for line in self.run("cat-file", "--batch-check", stdin=wanted).splitlines():
            oid, kind, *size = line.split(b" ")
            if kind == b"blob" and int(size[0]) <= most_bytes:
                small.append(oid + b"\n")
        return dict(_parse_batch(self.run("cat-file", "--batch", stdin=b"".join(small)))) if small else {}


def find_work_tree(folder: Path) -> Path | None:
    """Return the nearest folder, this one or above it, that holds ``.git``; None if there is none."""
    return next((place for place in (folder, *folder.parents) if os.path.lexists(place / ".git")), None)


def read_state(folder: Path, work_tree: Path) -> GitState:
    """Read what git knows about a folder of a work tree.

    Raises:
        ConfigError: The repository belongs to somebody else, or git is missing.
        InfrastructureError: git cannot read it.
    """
    check_owner(work_tree)
    git = Git(folder=folder, work_tree=work_tree)
    commit = read_commit(git)
    index = _parse_index(git.run("ls-files", "-s", "-v", "-z"))
    ignored = _split(git.run("ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z"))
    return GitState(
        git=git,
        commit=commit,
        branch=git.run("symbolic-ref", "-q", "--short", "HEAD", may_fail=True).decode("utf-8", "replace").strip(),
        remotes=_read_remotes(git),
        head=_parse_tree(git.run("ls-tree", "-r", "-z", "HEAD")) if commit is not None else {},
        index=index.items,
        ignored=frozenset(path.rstrip(b"/") for path in ignored),
        ignores_all=b"./" in ignored and not index.items,
        lfs=_read_lfs(git, index.items),
        num_skip_worktree=index.num_skip_worktree,
        num_assume_unchanged=index.num_assume_unchanged,
        num_unmerged=len(index.unmerged),
    )


def read_commit(git: Git) -> str | None:
    """Return the last commit as it is now; None before the first."""
    return git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", may_fail=True).decode("ascii").strip() or None


def check_owner(work_tree: Path) -> None:
    """Refuse a repository of another user, as git does, unless the user's own configuration trusts it.

    Raises:
        ConfigError: It belongs to somebody else.
    """
    owners = {os.lstat(work_tree).st_uid, os.lstat(work_tree / ".git").st_uid}
    trusted = {os.geteuid(), ROOT}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        trusted.add(int(os.environ["SUDO_UID"]))
    if owners <= trusted or _trusts(work_tree):
        return
    raise ConfigError(
        "the git repository belongs to another user",
        where=str(work_tree),
        hint=f"freeze a clone of your own, or trust it: git config --global --add safe.directory {work_tree}",
    )


def _trusts(work_tree: Path) -> bool:
    program = shutil.which("git")
    if program is None:
        return False
    command = [program, "config", "--global", "--null", "--get-all", "safe.directory"]
    done = subprocess.run(command, cwd="/", capture_output=True, timeout=_TIMEOUT_S, check=False)
    return bool({os.fsencode(work_tree), b"*"}.intersection(_split(done.stdout)))


# --- parsing ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Index:
    items: dict[bytes, TreeItem] = field(default_factory=dict)
    num_skip_worktree: int = 0
    num_assume_unchanged: int = 0
    unmerged: set[bytes] = field(default_factory=set)


def _split(output: bytes) -> list[bytes]:
    return [part for part in output.split(b"\0") if part]


def _parse_index(output: bytes) -> _Index:
    """Parse ``ls-files -s -v -z``: ``TAG MODE OID STAGE<tab>PATH``."""
    index = _Index()
    for record in _split(output):
        fields, _, path = record.partition(b"\t")
        tag, mode, oid, stage = fields.split(b" ")
        index.num_skip_worktree += tag in (b"S", b"s")
        index.num_assume_unchanged += tag.islower()
        if stage != b"0":
            index.unmerged.add(path)
        index.items[path] = TreeItem(mode=mode, oid=oid.decode("ascii"))
    return index


def _parse_tree(output: bytes) -> dict[bytes, TreeItem]:
    """Parse ``ls-tree -r -z``: ``MODE TYPE OID<tab>PATH``."""
    items = {}
    for record in _split(output):
        fields, _, path = record.partition(b"\t")
        mode, _kind, oid = fields.split(b" ")
        items[path] = TreeItem(mode=mode, oid=oid.decode("ascii"))
    return items


def _parse_batch(output: bytes) -> Iterator[tuple[str, bytes]]:
    """Parse ``cat-file --batch``: ``OID blob SIZE<newline>CONTENT<newline>``."""
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        oid, _kind, size = output[position:end].split(b" ")
        start, position = end + 1, end + 1 + int(size) + 1
        yield oid.decode("ascii"), output[start : position - 1]


def _read_remotes(git: Git) -> dict[str, str]:
    remotes = {}
    for record in _split(git.run("config", "-z", "--get-regexp", r"^remote\..*\.url$", may_fail=True)):
        key, _, url = record.decode("utf-8", "replace").partition("\n")
        remotes[key.removeprefix("remote.").removesuffix(".url")] = redact.redact_url(url)
    return remotes


def _read_lfs(git: Git, index: Mapping[bytes, TreeItem]) -> frozenset[bytes]:
    paths = b"".join(path + b"\0" for path in index)
    fields = git.run("check-attr", "-z", "--stdin", "filter", stdin=paths).split(b"\0") if paths else []
    return frozenset(path for path, value in zip(fields[::3], fields[2::3], strict=False) if value == b"lfs")


def blob_oid(content: bytes, *, like: str) -> str:
    """Return the name that git gives to a content, by the hash that another name was made with."""
    data = b"blob %d\0" % len(content) + content
    return (hashlib.sha256(data) if len(like) == 64 else hashlib.sha1(data, usedforsecurity=False)).hexdigest()
