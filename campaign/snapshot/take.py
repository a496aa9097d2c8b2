"""Takes a snapshot: scan, copy while hashing, scan again, list, and write a patch for people."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import files
from campaign.errors import ConfigError, InfrastructureError
from campaign.freezing import gitinfo
from campaign.paths import SnapshotPaths
from campaign.snapshot import patch, rules
from campaign.snapshot.copy import Copied, changed, copy_files
from campaign.snapshot.digest import folder_entry, link_entry, tree_digest
from campaign.snapshot.entries import Entry, Origin, file_mode, show
from campaign.snapshot.listing import dump_listing
from campaign.snapshot.scan import IGNORED, Belonging, Found, Repository, Scan, Stamp, scan_tree
from campaign.snapshot.untracked import MostUntracked, check_secrets, check_sizes

_NAME_IT = "name the folder of the source tree"
_SPARE_BYTES = 64 << 20
_MOST_DELETED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was frozen of one source tree.

    Attributes:
        sha256: The tree digest: the snapshot's identity.
        files_sha256: Digest of files.json.
        changes_sha256: Digest of changes.patch, which is no part of the identity.
        num_files: Files in it, links included.
        num_bytes: Their size.
        left_out: What the rules left out, one line each.
        git: The repository it is from; None without one.
    """

    sha256: str
    files_sha256: str
    changes_sha256: str
    num_files: int
    num_bytes: int
    left_out: tuple[str, ...]
    git: dict[str, Any] | None
    ignored: tuple[str, ...] = ()
    """What git ignores and no include pattern names: files, and folders with a final slash."""


def take_snapshot(
    source: Path,
    target: SnapshotPaths,
    *,
    home: Path,
    include: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    most: MostUntracked | None = None,
) -> Snapshot:
    """Copy a source tree into a new folder, read-only, with its list and patch.

    Nothing is synced to disk here: the caller does that once for everything it freezes.

    Args:
        source: The folder to freeze.
        target: Where to; its root must not exist.
        home: The campaign home, which is left out where it lies inside the source.
        include: Glob patterns of files to take although git ignores them.
        progress: Called with the bytes copied so far and in all.
        most: How much may be taken that git neither tracks nor ignores; as by default if None.

    Raises:
        ConfigError: Something in the tree cannot be frozen.
        StateError: The tree changed while it was being frozen.
        InfrastructureError: The copy cannot be written, or git cannot read the repository.
    """
    root = _resolve(source, home)
    scan = scan_tree(root, include=include, home=home.resolve())
    check_sizes(root, scan.found, most or MostUntracked())
    _check_space(scan, target.root.parent)
    _make_folders(scan, target)
    copied = list(_copy(scan, target, progress))
    _make_links(scan, target)
    _check_unchanged(scan, include, home)
    _check_lfs(copied)
    entries = _entries(scan, copied)
    check_secrets(root, target.tree, entries)
    listing = dump_listing(entries)
    target.listing.write_bytes(listing)
    changes = patch.render(_changes(scan, entries, target))
    target.patch.write_bytes(changes)
    _make_read_only(scan, target)
    return Snapshot(
        sha256=tree_digest(entries),
        files_sha256=files.sha256_bytes(listing),
        changes_sha256=files.sha256_bytes(changes),
        num_files=sum(entry.type != "d" for entry in entries),
        num_bytes=scan.num_bytes,
        left_out=(*scan.left_out_lines(), *_deleted_lines(scan), *_dangling_lines(scan)),
        git=_describe_git(scan, entries),
        ignored=tuple(scan.left_out.get(IGNORED, ())),
    )


def _resolve(source: Path, home: Path) -> Path:
    try:
        root = source.resolve()
        is_folder = root.is_dir()
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise ConfigError(f"the source cannot be read: {error}", where=str(source), hint=_NAME_IT) from error
    if not is_folder:
        raise ConfigError("the source is not a folder", where=str(source), hint=_NAME_IT)
    if root == Path(root.anchor) or _is_of_the_kernel(root):
        raise ConfigError(
            "not a source tree",
            where=str(root),
            why="it belongs to the operating system, and does not stand still",
            hint=_NAME_IT,
        )
    if root == home.resolve():
        raise ConfigError(
            "the campaign home is the source folder itself", where=str(source), hint="give --home another folder"
        )
    return root


def _is_of_the_kernel(folder: Path) -> bool:
    """Return whether a folder shows the kernel's own state; /dev/shm holds ordinary files."""
    if folder.is_relative_to("/dev/shm"):  # noqa: S108 - nothing is written there
        return False
    return any(folder.is_relative_to(place) for place in ("/proc", "/sys", "/dev"))


def _check_space(scan: Scan, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if scan.num_bytes + _SPARE_BYTES > free:
        raise InfrastructureError(
            f"not enough space: the source has {scan.num_bytes} bytes, {free} are free",
            where=str(folder),
            hint="free some space, or give --home a folder on a larger file system",
        )


# --- copying ----------------------------------------------------------------------------------------------------------


def _below(target: SnapshotPaths, path: bytes) -> bytes:
    return os.path.join(os.fsencode(target.tree), path)


def _make_folders(scan: Scan, target: SnapshotPaths) -> None:
    target.tree.mkdir(parents=True)
    for item in scan.found:
        if item.type == "d":
            os.mkdir(_below(target, item.path))


def _copy(scan: Scan, target: SnapshotPaths, progress: Callable[[int, int], None]) -> Iterator[Copied]:
    total = scan.num_bytes
    done = 0

    def advance(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        progress(done, total)

    items = [item for item in scan.found if item.type == "f"]
    return copy_files(items, os.fsencode(scan.root), os.fsencode(target.tree), progress=advance)


def _make_links(scan: Scan, target: SnapshotPaths) -> None:
    for item in scan.found:
        if item.type == "l":
            os.symlink(item.target, _below(target, item.path))


def _make_read_only(scan: Scan, target: SnapshotPaths) -> None:
    """Take write permission off the folders; the files were created without it."""
    folders = [_below(target, item.path) for item in scan.found if item.type == "d"]
    for folder in (*reversed(folders), os.fsencode(target.tree)):
        os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) & ~0o222)


# --- checks -----------------------------------------------------------------------------------------------------------


def _check_unchanged(scan: Scan, include: Sequence[str], home: Path) -> None:
    """Walk again: every file must still be the one that was copied, and every repository at its commit.

    Raises:
        StateError: Something changed.
    """
    again = scan_tree(scan.root, include=include, home=home.resolve())
    before, after = _marks(scan), _marks(again)
    differing = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if differing:
        raise changed(differing[0])
    if [known.state.commit for known in scan.repositories] != [known.state.commit for known in again.repositories]:
        raise changed(os.fsencode(scan.root), "the repository moved to another commit while it was being frozen")


def _marks(scan: Scan) -> dict[bytes, tuple[str, Stamp | None, bytes]]:
    """Return what must not change; a folder's own stamp also changes with what is left out of it."""
    return {item.path: (item.type, item.stamp if item.type != "d" else None, item.target) for item in scan.found}


def _check_lfs(copied: Iterable[Copied]) -> None:
    for file in copied:
        if file.item.is_lfs and rules.is_lfs_pointer(file.head):
            raise ConfigError(
                "a pointer of Git LFS stands in the place of the file",
                where=show(file.item.path),
                why="its content was never fetched",
                hint="git lfs pull",
            )


# --- the list ---------------------------------------------------------------------------------------------------------


def _entries(scan: Scan, copied: Sequence[Copied]) -> list[Entry]:
    pointed = _read_pointers(scan, copied)
    seen = {file.item.path: file for file in copied}
    entries = [
        _file_entry(seen[item.path], pointed)
        if item.type == "f"
        else link_entry(item.path, item.target, _link_origin(item))
        for item in scan.found
        if item.type != "d"
    ]
    tracked = {
        parent
        for entry in entries
        if entry.origin in (Origin.TRACKED, Origin.MODIFIED)
        for parent in _parents(entry.path)
    }
    folders = [folder_entry(item.path, _folder_origin(item, tracked)) for item in scan.found if item.type == "d"]
    return sorted([*entries, *folders], key=lambda entry: entry.path)


def _read_pointers(scan: Scan, copied: Sequence[Copied]) -> dict[bytes, str]:
    """Return, for files kept in Git LFS, the SHA-256 that the last commit's pointer names."""
    pointed: dict[bytes, str] = {}
    for repository in scan.repositories:
        oids = {
            file.item.path: file.item.committed.oid
            for file in copied
            if file.item.is_lfs and file.item.committed is not None and _owner(scan, file.item.path) is repository
        }
        blobs = repository.state.git.read_blobs(oids.values(), most_bytes=rules.LFS_MOST_BYTES)
        pointed |= {path: rules.pointed_sha256(blobs[oid]) for path, oid in oids.items() if oid in blobs}
    return pointed


def _file_entry(file: Copied, pointed: dict[bytes, str]) -> Entry:
    stamp = file.item.stamp
    return Entry(
        path=file.item.path,
        type="f",
        mode=file_mode(stamp.mode),
        num_bytes=stamp.num_bytes,
        sha256=file.sha256,
        origin=_file_origin(file, pointed.get(file.item.path, "")),
    )


def _file_origin(file: Copied, pointed: str) -> Origin:
    item = file.item
    if item.belonging is not Belonging.GIT:
        return _without_git(item)
    if item.committed is None:
        return Origin.MODIFIED if item.tracked else Origin.UNTRACKED
    mode = f"100{file_mode(item.stamp.mode)}".encode("ascii")
    same = item.committed.mode == mode and (file.blob == item.committed.oid or file.sha256 == pointed)
    return Origin.TRACKED if same else Origin.MODIFIED


def _link_origin(item: Found) -> Origin:
    if item.belonging is not Belonging.GIT:
        return _without_git(item)
    if item.committed is None:
        return Origin.MODIFIED if item.tracked else Origin.UNTRACKED
    same = (
        item.committed.mode == b"120000"
        and gitinfo.blob_oid(item.target, like=item.committed.oid) == item.committed.oid
    )
    return Origin.TRACKED if same else Origin.MODIFIED


def _folder_origin(item: Found, tracked: set[bytes]) -> Origin:
    if item.belonging is not Belonging.GIT:
        return _without_git(item)
    return Origin.TRACKED if item.path in tracked else Origin.UNTRACKED


def _without_git(item: Found) -> Origin:
    return Origin.INCLUDED if item.belonging is Belonging.INCLUDED else Origin.PLAIN


def _parents(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


# --- what git says ----------------------------------------------------------------------------------------------------


def _owner(scan: Scan, path: bytes) -> Repository | None:
    """Return the innermost repository that holds a path."""
    holding = [known for known in scan.repositories if path.startswith(known.base)]
    return max(holding, key=lambda known: len(known.base), default=None)


def _describe_git(scan: Scan, entries: Sequence[Entry]) -> dict[str, Any] | None:
    if not scan.repositories:
        return None
    outer = next((known.state for known in scan.repositories if known.base == b""), None)
    nested = [known for known in scan.repositories if known.base]
    origins = [entry.origin for entry in entries if entry.type != "d"]
    return {
        "commit": outer.commit if outer is not None else None,
        "branch": outer.branch if outer is not None else "",
        "remotes": dict(outer.remotes) if outer is not None else {},
        "modified": origins.count(Origin.MODIFIED),
        "untracked": origins.count(Origin.UNTRACKED),
        "included": origins.count(Origin.INCLUDED),
        "deleted": len(scan.deleted),
        "skip_worktree": sum(known.state.num_skip_worktree for known in scan.repositories),
        "assume_unchanged": sum(known.state.num_assume_unchanged for known in scan.repositories),
        "unmerged": sum(known.state.num_unmerged for known in scan.repositories),
        "nested": {
            show(known.base.rstrip(b"/")): {"commit": known.state.commit, "recorded": known.recorded or None}
            for known in nested
        },
    }


def _deleted_lines(scan: Scan) -> list[str]:
    lines = [f"{show(known.base + path)} (in the last commit, not on disk)" for known, path in scan.deleted]
    return rules.shorten(sorted(lines), most=_MOST_DELETED)


def _dangling_lines(scan: Scan) -> list[str]:
    """Name the links whose destination is not in the snapshot."""
    known = {item.path for item in scan.found} | {b""}
    links = [item for item in scan.found if item.type == "l"]
    names = {item.path for item in links}
    lines = []
    for item in links:
        destination = rules.link_destination(item.path, item.target)
        if destination not in known and not names.intersection(_parents(destination)):
            lines.append(f"{show(destination)} (named by the link {show(item.path)}, but not in the snapshot)")
    return lines


# --- the patch --------------------------------------------------------------------------------------------------------


def _changes(scan: Scan, entries: Sequence[Entry], target: SnapshotPaths) -> Iterator[patch.Change]:
    """Yield what differs from the last commits, read from the copy: the source is not read again."""
    if not scan.repositories:
        return
    found = {item.path: item for item in scan.found}
    changed_entries = [entry for entry in entries if entry.origin in (Origin.MODIFIED, Origin.UNTRACKED)]
    old = _read_old(scan, [found[entry.path] for entry in changed_entries])
    like = next((known.state.commit for known in scan.repositories if known.state.commit is not None), "")
    new = {
        entry.path: _new_version(entry, found[entry.path], target, like)
        for entry in changed_entries
        if entry.type != "d"
    }
    for path in sorted(old.keys() | new.keys()):
        yield patch.Change(path=path, old=old.get(path), new=new.get(path))


def _read_old(scan: Scan, items: Sequence[Found]) -> dict[bytes, patch.Version]:
    versions: dict[bytes, patch.Version] = {}
    for repository in scan.repositories:
        wanted = {
            item.path: item.committed
            for item in items
            if item.committed is not None and _owner(scan, item.path) is repository
        }
        wanted |= {
            repository.base + path: repository.state.head[path]
            for owner, path in scan.deleted
            if owner is repository and repository.state.head[path].mode != gitinfo.GITLINK
        }
        oids = [item.oid for item in wanted.values()]
        blobs = repository.state.git.read_blobs(oids, most_bytes=patch.MOST_FILE_BYTES)
        for path, item in wanted.items():
            content = blobs.get(item.oid)
            note = "" if content is not None else f"the committed version {item.oid} is too large, or not here"
            versions[path] = patch.Version(mode=item.mode.decode("ascii"), oid=item.oid, content=content, note=note)
    return versions


def _new_version(entry: Entry, item: Found, target: SnapshotPaths, like: str) -> patch.Version:
    if entry.type == "l":
        oid = gitinfo.blob_oid(item.target, like=like)
        return patch.Version(mode="120000", oid=oid, content=item.target)
    if entry.num_bytes > patch.MOST_FILE_BYTES:
        note = f"the frozen version has {entry.num_bytes} bytes, SHA-256 {entry.sha256}"
        return patch.Version(mode=f"100{entry.mode}", oid="", content=None, note=note)
    with open(_below(target, entry.path), "rb") as stream:
        content = stream.read()
    return patch.Version(mode=f"100{entry.mode}", oid=gitinfo.blob_oid(content, like=like), content=content)
