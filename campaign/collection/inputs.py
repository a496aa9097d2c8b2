"""The canonical inputs of the numerical cases: what a pilot listed, and whether the files below inputs/ are those."""

from __future__ import annotations

import json
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign import files
from campaign.collection.left import NOTHING, LeftBehind
from campaign.collection.sealed import Finding, is_leftover
from campaign.documents import Inputs, NumericalRules, Protocol
from campaign.errors import EvidenceError
from campaign.paths import HomePaths

MOMENTS = ("exp_avg", "exp_avg_sq")
_NAME = re.compile(r"[0-9a-f]{64}\.(json|safetensors)")
_MOST_HEADER_BYTES = 100 << 20
"""What the safetensors library itself accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotInputs:
    """The inputs.json that one attempt at a baseline's pilot sealed."""

    where: str
    """The file beside the receipt."""
    sha256: str
    inputs: Inputs
    completed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the file system says of a file; a file that was written to has another one."""

    num_bytes: int
    inode: str
    """Text: file systems number by 64 bits without a sign, SQLite by 64 with one."""
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        """Return the stamp of a file."""
        return cls(
            num_bytes=found.st_size,
            inode=str(found.st_ino),
            modified_ns=found.st_mtime_ns,
            changed_ns=found.st_ctime_ns,
        )


# --- one list ---------------------------------------------------------------------------------------------------------


def _wanted_state(rules: NumericalRules, workers: int) -> set[tuple[str, int]]:
    quantities = ("parameters", *(MOMENTS if rules.moments == "warm" else ()))
    return {(quantity, worker) for quantity in quantities for worker in range(workers)}


def check_listing(inputs: Inputs, workload: str, protocol: Protocol, where: str) -> Iterator[Finding]:
    """Yield a finding for everything in which a list of inputs is not what the protocol asks for.

    Args:
        inputs: The list.
        workload: The workload whose pilot wrote it.
        protocol: The frozen protocol; it declares the numerical family.
        where: The list's place.
    """
    rules = protocol.numerical
    if rules is None:
        yield Finding(where=where, what="there are inputs, but the protocol has no numerical family")
        return
    wanted = {
        "workload": workload,
        "config_sha256": protocol.workload(workload).config_sha256,
        "moments": rules.moments,
        "step": protocol.throughput.warmup_updates if rules.moments == "warm" else 0,
    }
    for name, value in wanted.items():
        if getattr(inputs, name) != value:
            yield Finding(where=where, what=f"{name} is {getattr(inputs, name)!r}, the protocol says {value!r}")
    updates = [batch.update for batch in inputs.batches]
    if sorted(updates) != list(range(1, rules.updates + 1)):
        yield Finding(where=where, what=f"it lists batches for the updates {updates}, not for 1 to {rules.updates}")
    state = [(one.quantity, one.worker) for one in inputs.state]
    workers = len({worker for _, worker in state})
    if not state or len(set(state)) != len(state) or set(state) != _wanted_state(rules, workers):
        said = ", ".join(f"{quantity} of worker {worker}" for quantity, worker in state) or "nothing"
        yield Finding(where=where, what=f"the state that it lists is not whole: {said}")
    for sha256 in inputs.files:
        if re.fullmatch(r"[0-9a-f]{64}", sha256) is None:
            yield Finding(where=where, what=f"{sha256!r} is not a SHA-256")


# --- the folder -------------------------------------------------------------------------------------------------------


def _wanted_files(pilots: Iterable[PilotInputs]) -> dict[str, int | None]:
    """Return the size of every file that some lists name, by its name; None where the list itself is the file."""
    wanted: dict[str, int | None] = {}
    for pilot in pilots:
        wanted[f"{pilot.sha256}.json"] = None
        wanted.update({f"{sha256}.safetensors": num_bytes for sha256, num_bytes in pilot.inputs.files.items()})
    return wanted


def _look(path: Path, num_bytes: int | None, known: Stamp | None) -> Stamp:
    """Return the stamp of one file.

    Raises:
        EvidenceError: It is not the file that was listed; says why.
        OSError: It cannot be looked at.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise EvidenceError("not a regular file")
    if num_bytes is not None and found.st_size != num_bytes:
        raise EvidenceError(f"{found.st_size} bytes, the pilot listed {num_bytes}")
    # Looked at before it is hashed: a file that changes meanwhile has another stamp next time.
    stamp = Stamp.of(found)
    if stamp != known:
        digest = files.sha256_regular(path)
        if digest != path.name.partition(".")[0]:
            raise EvidenceError(f"its SHA-256 is {digest}: it was changed")
    return stamp


def check_folder(
    paths: HomePaths,
    pilots: Sequence[PilotInputs],
    known: Mapping[str, Stamp],
    *,
    is_open: bool,
    left: LeftBehind = NOTHING,
) -> tuple[tuple[Finding, ...], dict[str, Stamp]]:
    """Check inputs/ against what the pilots listed.

    A file is hashed unless the file system says that it is the one that was hashed before.

    Args:
        paths: The home.
        pilots: Every sealed list.
        known: Stamps of the files whose digest was found right before, by name.
        is_open: Whether a pilot is under way, or ended before it could list what it had written: what nobody lists may
            then be its.
        left: What was left behind where pilots were made.

    Returns:
        The findings, and the stamps of the files that are right.
    """
    needed = _wanted_files(pilot for pilot in pilots if pilot.completed)
    named = {**_wanted_files(pilots), **needed}
    present = {} if not paths.inputs.is_dir() else {path.name: path for path in sorted(paths.inputs.iterdir())}
    findings = [
        Finding(where=str(paths.inputs / name), what="a completed pilot lists it, and it is gone")
        for name in sorted(set(needed) - set(present))
        if not _is_left(paths.inputs / name, needed[name], left)
    ]
    stamps: dict[str, Stamp] = {}
    for name, path in present.items():
        if name in named:
            try:
                stamps[name] = _look(path, named[name], known.get(name))
            except EvidenceError as error:
                findings.append(Finding(where=str(path), what=error.what))
            except OSError as error:
                findings.append(Finding(where=str(path), what=f"cannot be looked at: {error.strerror}"))
        elif not is_leftover(name) and not (is_open and _NAME.fullmatch(name)):
            findings.append(Finding(where=str(path), what="no pilot listed it"))
    return tuple(findings), stamps


def _is_left(path: Path, num_bytes: int | None, left: LeftBehind) -> bool:
    """Return whether a file of tensors was left behind; the list of them never is."""
    return num_bytes is not None and left.covers(path, path.name.partition(".")[0], num_bytes)


def check_before_use(paths: HomePaths, listings: Iterable[str], known: Mapping[str, Stamp]) -> dict[str, Stamp]:
    """Check the canonical inputs that cases are about to run on; a case that meets others ends for good.

    A file is hashed unless the file system says that it is the one that was hashed before.

    Args:
        paths: The home.
        listings: Digests of the lists that the cases are planned on.
        known: Stamps of the files whose digest was found right before, by name.

    Returns:
        The stamps of all files that were looked at.

    Raises:
        EvidenceError: A file is not there, or is not the one that was recorded.
    """
    stamps: dict[str, Stamp] = {}

    def look(path: Path, num_bytes: int | None) -> None:
        if path.name not in stamps:
            stamps[path.name] = _look(path, num_bytes, known.get(path.name))

    path = paths.inputs
    try:
        for sha256 in dict.fromkeys(listings):
            path = paths.inputs_listing(sha256)
            look(path, None)
            for name, num_bytes in Inputs.read(path).files.items():
                path = paths.input_tensors(name)
                look(path, num_bytes)
    except (EvidenceError, OSError) as error:
        raise EvidenceError(
            "a canonical input is not what the baseline's pilot recorded",
            where=str(path),
            why=error.what if isinstance(error, EvidenceError) else f"cannot be looked at: {error.strerror}",
            hint="restore the file from a copy of the home; a shared file system may also show it late: try again",
        ) from error
    return stamps


# --- sizes ------------------------------------------------------------------------------------------------------------


def num_tensors(path: Path) -> int:
    """Return how many tensors a safetensors file holds, from its header alone.

    Raises:
        EvidenceError: It is not such a file.
    """
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _MOST_HEADER_BYTES:
                raise EvidenceError(f"its header has {length} bytes", where=str(path))
            header = json.loads(stream.read(length))
        return len(set(header) - {"__metadata__"})
    except (OSError, ValueError, TypeError, struct.error) as error:
        raise EvidenceError(f"not a file of tensors: {error}", where=str(path)) from error
