"""Whether what is deployed is what was qualified: a tree, its lock file and its interpreter against a frozen side.

Nothing is written. The frozen side is read leniently, so that homes of earlier releases can be asked as well; what is
compared are digests that its ledger names. What cannot be told is not covered.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from campaign import files
from campaign.documents import Entry as Act
from campaign.documents import RunSide
from campaign.errors import ConfigError, EvidenceError, StateError
from campaign.freezing.machine import Interpreter
from campaign.paths import HomePaths
from campaign.snapshot import rules
from campaign.snapshot.digest import folder_entry, link_entry, tree_digest
from campaign.snapshot.entries import Entry, Origin, file_mode, show
from campaign.snapshot.listing import read_listing
from campaign.snapshot.scan import Scan, scan_tree

Kind: TypeAlias = Literal["missing", "added", "changed", "unknown"]
_HOOKS = ("path configuration file of Python", "start-up hook of Python")
"""Reasons for which a snapshot leaves out what runs all the same, before anything that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSide:
    """What was frozen of a side, as far as it is compared."""

    id: str
    snapshot_sha256: str
    entries: tuple[Entry, ...]
    python: str
    launch: tuple[str, ...]
    python_version: str
    """Empty where it was not recorded."""
    lockfile: str
    """SHA-256; empty where there is none."""
    lockfile_name: str
    distributions: Mapping[str, str] | None
    """None where they were not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is no longer covered."""

    part: Literal["tree", "lockfile", "interpreter"]
    kind: Kind
    name: str
    detail: str = ""

    @property
    def text(self) -> str:
        """The same in one line."""
        return f"{self.part}: {self.kind} {self.name}" + (f": {self.detail}" if self.detail else "")

    def to_json(self) -> dict[str, str]:
        """Return it as a JSON value."""
        return {"part": self.part, "kind": self.kind, "name": self.name, "detail": self.detail}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is still covered, and what is not."""

    covered: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    remarks: tuple[str, ...] = ()
    """What was not compared, and decides nothing."""


# --- what was frozen --------------------------------------------------------------------------------------------------


def read_side(paths: HomePaths, acts: Sequence[Act], side: RunSide, candidate: str) -> FrozenSide:
    """Read a frozen side, and hold it to the digests that the ledger names.

    Args:
        paths: The home.
        acts: Its ledger.
        side: Which side.
        candidate: Id of the candidate; not looked at for the baseline.

    Raises:
        EvidenceError: It is not what was frozen.
    """
    is_baseline = side == "baseline"
    manifest = paths.manifest if is_baseline else paths.candidate(candidate).manifest
    snapshot = paths.baseline if is_baseline else paths.candidate(candidate)
    document = _read_document(manifest, _recorded(paths, acts, "" if is_baseline else candidate))
    try:
        return _side_of(document, side, snapshot.listing, "baseline" if is_baseline else candidate)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise EvidenceError(f"does not describe a side: {error!r}", where=str(manifest)) from error


def _recorded(paths: HomePaths, acts: Sequence[Act], candidate: str) -> str:
    """Return the digest of a manifest by the ledger."""
    wanted = "froze_candidate" if candidate else "froze_baseline"
    for act in acts:
        if act.act == wanted and str(act.data.get("candidate", "")) == candidate:
            return str(act.data.get("manifest_sha256"))
    raise EvidenceError(
        f"the ledger does not say that {candidate or 'the baseline'} was frozen", where=str(paths.ledger)
    )


def _read_document(path: Path, sha256: str) -> Mapping[str, Any]:
    data = files.read_regular(path)
    if (found := files.sha256_bytes(data)) != sha256:
        raise EvidenceError("not what was frozen", where=str(path), why=f"SHA-256 {found}, the ledger names {sha256}")
    document: Mapping[str, Any] = files.parse_json(data, where=str(path))
    return document


def _side_of(document: Mapping[str, Any], side: RunSide, listing: Path, name: str) -> FrozenSide:
    described = document[side]
    lockfile = described["lockfile"] or {"path": "", "sha256": ""}
    interpreters = document["driver"].get("interpreters", {})
    return FrozenSide(
        id=name,
        snapshot_sha256=str(described["snapshot_sha256"]),
        entries=_entries(listing, str(described["files_sha256"]), str(described["snapshot_sha256"])),
        python=str(described["python"]),
        launch=tuple(map(str, described["launch"])),
        python_version=str(interpreters.get(side, {}).get("python", "")),
        lockfile=str(lockfile["sha256"]),
        lockfile_name=Path(str(lockfile["path"])).name,
        distributions=_texts(described["distributions"]),
    )


def _texts(value: Mapping[str, Any] | None) -> dict[str, str] | None:
    return None if value is None else {str(name): str(text) for name, text in value.items()}


def _entries(listing: Path, files_sha256: str, snapshot_sha256: str) -> tuple[Entry, ...]:
    if (found := files.sha256_bytes(files.read_regular(listing))) != files_sha256:
        why = f"SHA-256 {found}, the manifest names {files_sha256}"
        raise EvidenceError("not the list that was frozen", where=str(listing), why=why)
    entries = tuple(read_listing(listing))
    if (digest := tree_digest(entries)) != snapshot_sha256:
        why = f"tree digest {digest}, the manifest names {snapshot_sha256}"
        raise EvidenceError("not the list of the snapshot", where=str(listing), why=why)
    return entries


# --- the tree ---------------------------------------------------------------------------------------------------------


def compare_tree(frozen: FrozenSide, root: Path, home: Path) -> Comparison:
    """Compare a deployed tree with a snapshot, by the snapshot's own rules of what belongs to a tree.

    Args:
        frozen: The side.
        root: The deployed folder.
        home: The campaign home, which is left out where it lies inside.

    Raises:
        StateError: The deployed folder is no folder.
    """
    if not root.is_dir():
        raise StateError("not a folder", where=str(root), hint="name the root of the deployed tree")
    try:
        scan = scan_tree(root.resolve(), include=(), home=home.resolve())
    except ConfigError as error:  # a link that leaves the tree, a pipe, what may not be read
        name = error.where or str(root)
        unknown = Difference(
            part="tree", kind="unknown", name=name, detail="; ".join(filter(None, [error.what, error.why]))
        )
        return Comparison(differences=(unknown,))
    expected = {entry.path: entry for entry in frozen.entries}
    differences = [*_compare_entries(expected, scan), *_hooks(scan)]
    same = len(expected) - sum(one.kind in ("missing", "changed", "unknown") for one in differences)
    covered = (f"tree: {same} of {len(expected)} entries are those of the snapshot",) if expected else ()
    return Comparison(covered=covered, differences=tuple(differences), remarks=tuple(_left_out(scan)))


def _compare_entries(expected: Mapping[bytes, Entry], scan: Scan) -> Iterator[Difference]:
    for path, entry in sorted(expected.items()):
        # Asked of the disk, not of the walk: an `include` pattern may have taken what git ignores.
        yield from _compare_entry(entry, os.fsencode(scan.root) + b"/" + path)
    parents = {parent for path in expected for parent in _parents(path)}
    added = {item.path: item for item in scan.found if item.path not in expected and item.path not in parents}
    above = {parent for path in added for parent in _parents(path)}
    for path, item in sorted(added.items()):
        if item.type != "d" or path not in above:
            yield Difference(part="tree", kind="added", name=show(path), detail=_TYPES[item.type])


_TYPES = {"f": "file", "d": "folder", "l": "link"}


def _parents(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _compare_entry(entry: Entry, place: bytes) -> Iterator[Difference]:
    name = show(entry.path)
    try:
        found = _read_entry(entry.path, place)
    except FileNotFoundError:
        yield Difference(part="tree", kind="missing", name=name)
        return
    except (OSError, EvidenceError) as error:
        detail = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else error.what
        yield Difference(part="tree", kind="unknown", name=name, detail=detail)
        return
    if found is None or found.type != entry.type:
        kind = _TYPES[found.type] if found is not None else "special file"
        yield Difference(part="tree", kind="changed", name=name, detail=f"{kind} instead of {_TYPES[entry.type]}")
    elif found.sha256 != entry.sha256:
        yield Difference(part="tree", kind="changed", name=name, detail="other content")
    elif found.mode != entry.mode:
        yield Difference(part="tree", kind="changed", name=name, detail=f"mode {found.mode} instead of {entry.mode}")


def _read_entry(path: bytes, place: bytes) -> Entry | None:
    """Return the entry of what is at a place now; None if a snapshot could not hold it."""
    status = os.lstat(place)
    if stat.S_ISDIR(status.st_mode):
        return folder_entry(path, Origin.PLAIN)
    if stat.S_ISLNK(status.st_mode):
        return link_entry(path, os.readlink(place), Origin.PLAIN)  # noqa: PTH115 - bytes, as the file system spells it
    if not stat.S_ISREG(status.st_mode):
        return None
    return Entry(
        path=path,
        type="f",
        mode=file_mode(status.st_mode),
        num_bytes=status.st_size,
        sha256=files.sha256_regular(Path(os.fsdecode(place))),
        origin=Origin.PLAIN,
    )


def _hooks(scan: Scan) -> Iterator[Difference]:
    """Yield what no snapshot holds and an interpreter would run all the same."""
    for reason in _HOOKS:
        for path in sorted(scan.left_out.get(reason, ())):
            yield Difference(part="tree", kind="added", name=path, detail=reason)


def _left_out(scan: Scan) -> Iterator[str]:
    for reason, found in sorted(scan.left_out.items()):
        if reason not in _HOOKS:
            listed = ", ".join(rules.shorten(sorted(found), most=3))
            yield f"not part of any snapshot, so not compared ({reason}): {listed}"


# --- lock file and interpreter ----------------------------------------------------------------------------------------


def compare_lockfile(frozen: FrozenSide, given: Path | None, root: Path) -> Comparison:
    """Compare the lock file.

    Args:
        frozen: The side.
        given: The deployed lock file; None for the one of the same name in the deployed folder.
        root: The deployed folder.
    """
    if not frozen.lockfile:
        if given is None:
            return Comparison(remarks=("no lock file was frozen",))
        what = Difference(part="lockfile", kind="unknown", name=str(given), detail="no lock file was frozen")
        return Comparison(differences=(what,))
    path = given or root / frozen.lockfile_name
    try:
        sha256 = files.sha256_file(path)
    except FileNotFoundError:
        what = Difference(part="lockfile", kind="missing", name=str(path), detail="name it with --lockfile FILE")
        return Comparison(differences=(what,))
    except (OSError, EvidenceError) as error:
        what = Difference(part="lockfile", kind="unknown", name=str(path), detail=str(error))
        return Comparison(differences=(what,))
    if sha256 != frozen.lockfile:
        detail = f"SHA-256 {sha256}, frozen was {frozen.lockfile}"
        what = Difference(part="lockfile", kind="changed", name=str(path), detail=detail)
        return Comparison(differences=(what,))
    return Comparison(covered=(f"lockfile: {path} is the one that was frozen",))


def compare_interpreter(frozen: FrozenSide, python: str, found: Interpreter) -> Comparison:
    """Compare what is installed for the deployed interpreter with what was recorded at the freeze.

    Args:
        frozen: The side.
        python: The deployed interpreter.
        found: What it says of itself.
    """
    if found.distributions is None:
        what = Difference(part="interpreter", kind="unknown", name=python, detail=found.facts.get("unknown", ""))
        return Comparison(differences=(what,))
    if frozen.distributions is None:
        detail = "what was installed was not recorded at the freeze"
        what = Difference(part="interpreter", kind="unknown", name=python, detail=detail)
        return Comparison(differences=(what,))
    differences = [*_compare_version(frozen, found), *_compare_distributions(frozen.distributions, found.distributions)]
    same = sum(found.distributions.get(name) == version for name, version in frozen.distributions.items())
    covered = f"interpreter: {same} of {len(frozen.distributions)} distributions have the frozen version"
    remark = "of the interpreter, versions were compared; its files and those of the distributions were not hashed"
    return Comparison(covered=(covered,), differences=tuple(differences), remarks=(remark,))


def _compare_version(frozen: FrozenSide, found: Interpreter) -> Iterator[Difference]:
    now = found.facts.get("python", "")
    if now != frozen.python_version:
        detail = f"{now or 'not known'} instead of {frozen.python_version or 'one that was not recorded'}"
        yield Difference(part="interpreter", kind="changed", name="python", detail=detail)


def _compare_distributions(frozen: Mapping[str, str], found: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted(frozen.keys() | found.keys()):
        before, now = frozen.get(name), found.get(name)
        if before == now:
            continue
        kind: Kind = "added" if before is None else "missing" if now is None else "changed"
        details = {"added": f"{now}", "missing": f"frozen with {before}", "changed": f"{now} instead of {before}"}
        yield Difference(part="interpreter", kind=kind, name=name, detail=details[kind])


def together(parts: Iterable[Comparison]) -> Comparison:
    """Return several comparisons as one."""
    known = list(parts)
    return Comparison(
        covered=tuple(line for part in known for line in part.covered),
        differences=tuple(one for part in known for one in part.differences),
        remarks=tuple(line for part in known for line in part.remarks),
    )
