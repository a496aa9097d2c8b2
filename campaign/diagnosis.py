"""What ``campaign doctor`` looks at: each check says what it found and, where that is not good, what to do."""

from __future__ import annotations

import enum
import errno
import fcntl
import importlib.machinery
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign import documents, files
from campaign.errors import CampaignError, InfrastructureError
from campaign.paths import HomePaths

OLDEST_PYTHON = (3, 11)
PACKAGES = ("campaign", "acceptance", "jobs", "reports")
SCHEDULER_COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol")
SHARED_FILE_SYSTEMS = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "fuse.sshfs", "ceph", "9p")
LITTLE_SPACE_BYTES = 1 << 30
INTERPRETER_TIMEOUT_S = 120.0

FindSpec = Callable[[str], importlib.machinery.ModuleSpec | None]
Which = Callable[[str], str | None]


class Mark(enum.StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    mark: Mark
    found: str
    remedy: str = ""


def check_python(version: Sequence[int], executable: str) -> Check:
    """Check the interpreter that runs the driver."""
    shown = ".".join(str(part) for part in version[:3])
    if tuple(version[:2]) < OLDEST_PYTHON:
        wanted = ".".join(str(part) for part in OLDEST_PYTHON)
        return Check(
            name="python",
            mark=Mark.FAIL,
            found=f"{shown} at {executable}",
            remedy=f"install the tool into an environment of Python {wanted} or newer",
        )
    return Check(name="python", mark=Mark.OK, found=f"{shown} at {executable}")


def check_packages(root: Path, find_spec: FindSpec) -> Iterator[Check]:
    """Check that each of our packages is ours: their names are common, and a later installation may overwrite one.

    Args:
        root: The folder that holds the running driver's package.
        find_spec: How a module is found.
    """
    for name in PACKAGES:
        spec = find_spec(name)
        origin = spec.origin if spec is not None else None
        if origin is not None and Path(origin).resolve().parent == (root / name).resolve():
            yield Check(name=f"package {name}", mark=Mark.OK, found=origin)
        else:
            yield Check(
                name=f"package {name}",
                mark=Mark.FAIL,
                found=f"{origin or 'not found'}; expected below {root}",
                remedy="another distribution owns this name here: install the tool into an environment of its own",
            )


def check_scheduler(which: Which) -> Check:
    """Check that the scheduler's commands are there, all or none of them."""
    missing = [name for name in SCHEDULER_COMMANDS if which(name) is None]
    if not missing:
        return Check(name="scheduler", mark=Mark.OK, found=f"Slurm: {which('sbatch')}")
    if len(missing) == len(SCHEDULER_COMMANDS):
        return Check(
            name="scheduler",
            mark=Mark.WARN,
            found="no Slurm command on PATH",
            remedy="campaigns run here with --cluster local only; load the site's Slurm module for the rest",
        )
    return Check(
        name="scheduler",
        mark=Mark.FAIL,
        found=f"missing on PATH: {', '.join(missing)}",
        remedy="load the site's Slurm module completely: endings are taken from squeue and sacct",
    )


# --- the file system --------------------------------------------------------------------------------------------------


def _link_is_exclusive(folder: Path) -> str:
    source, taken = folder / "source", folder / "taken"
    source.write_bytes(b"1")
    taken.write_bytes(b"2")
    try:
        os.link(source, taken)
    except FileExistsError:
        os.link(source, folder / "linked")
        return "" if (folder / "linked").read_bytes() == b"1" else "a hard link holds other bytes than its file"
    return "a hard link replaced a file that was there"


def _rename_replaces(folder: Path) -> str:
    (folder / "old").write_bytes(b"old")
    (folder / "new").write_bytes(b"new")
    (folder / "new").replace(folder / "old")
    return "" if (folder / "old").read_bytes() == b"new" else "a renamed file holds other bytes than before"


def _sync_works(folder: Path) -> str:
    files.write_new(folder / "durable", b"1")
    return ""


def _creation_is_exclusive(folder: Path) -> str:
    path = folder / "claim"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return ""
    return "a lock file could be created twice"


def _record_locks_work(folder: Path) -> str:
    with (folder / "locked").open("w+b") as stream:
        fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(stream, fcntl.LOCK_UN)
    return ""


_ABILITIES: tuple[tuple[str, Callable[[Path], str], str], ...] = (
    ("exclusive creation", _creation_is_exclusive, "the ledger's lock needs it"),
    ("hard links", _link_is_exclusive, "files are created once by linking them into place"),
    ("rename", _rename_replaces, "derived files are replaced by renaming"),
    ("fsync", _sync_works, "sealed files must survive a power failure"),
    ("record locks", _record_locks_work, "SQLite needs them (on Lustre: mount with flock)"),
)


def check_folder(folder: Path) -> Iterator[Check]:
    """Check that a home can live in a folder; leaves nothing behind.

    Args:
        folder: The home, or where one shall be.
    """
    remedy = "put the campaign home on another file system: --home DIR"
    try:
        private = tempfile.TemporaryDirectory(dir=folder, prefix=".campaign-doctor-")
    except OSError as error:
        yield Check(name="home", mark=Mark.FAIL, found=f"{folder}: cannot be written: {error.strerror}", remedy=remedy)
        return
    with private as name:
        for ability, attempt, why in _ABILITIES:
            try:
                fault = attempt(Path(name))
            except OSError as error:
                fault = f"{errno.errorcode.get(error.errno or 0, '?')}: {error.strerror}"
            except InfrastructureError as error:
                fault = error.what
            mark = Mark.FAIL if fault else Mark.OK
            found = f"{folder}: {fault or 'works'}"
            yield Check(name=ability, mark=mark, found=found, remedy=f"{remedy}; {why}" if fault else "")


def check_space(folder: Path) -> Check:
    """Check the free space at a folder."""
    free = shutil.disk_usage(folder).free
    if free < LITTLE_SPACE_BYTES:
        remedy = "campaign plan says how much a campaign needs; make room or choose another --home"
        return Check(name="space", mark=Mark.WARN, found=f"{free >> 20} MiB free at {folder}", remedy=remedy)
    return Check(name="space", mark=Mark.OK, found=f"{free >> 30} GiB free at {folder}")


def check_mount(folder: Path, mounts: str) -> Check:
    """Say which kind of file system a folder is on, and what that means.

    Args:
        folder: The folder.
        mounts: The text of /proc/self/mounts; empty where there is none.
    """
    fields = [line.split() for line in mounts.splitlines()]
    points = [(row[1].encode().decode("unicode_escape"), row[2]) for row in fields if len(row) >= 3]
    above = [(point, kind) for point, kind in points if folder == Path(point) or Path(point) in folder.parents]
    kind = max(above, key=lambda item: len(item[0]), default=("", "unknown"))[1]
    if kind in SHARED_FILE_SYSTEMS:
        remedy = "files of a finished job may be seen late there: if collect misses some, collect again"
        return Check(name="file system", mark=Mark.WARN, found=f"{kind} (shared) at {folder}", remedy=remedy)
    return Check(name="file system", mark=Mark.OK, found=f"{kind} at {folder}")


# --- the sides --------------------------------------------------------------------------------------------------------


def _interpreters(paths: HomePaths) -> dict[str, tuple[str, ...]]:
    """Return the commands of the interpreters that may run here: none where the nodes differ from the login node."""
    manifest = documents.Manifest.read(paths.manifest)
    if manifest.resources.get("login_node") == "differs":
        return {}
    found: dict[str, tuple[str, ...]] = {
        "harness": (manifest.harness_python,),
        "baseline": (*manifest.baseline.launch, manifest.baseline.python),
    }
    for folder in sorted(paths.candidates.glob("*/manifest.json")):
        candidate = documents.CandidateManifest.read(folder)
        found[candidate.id] = (*candidate.candidate.launch, candidate.candidate.python)
    return found


def _ask(command: Sequence[str], script: str, environment: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether an interpreter ran a script, and what it said, or why it did not."""
    try:
        done = subprocess.run(
            [*command, "-P", "-s", "-c", script],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=INTERPRETER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return False, f"exit {done.returncode}: {said}"
    return True, done.stdout.strip()


def _check_interpreter(name: str, command: Sequence[str], environment: Mapping[str, str]) -> Check:
    script = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
    ran, said = _ask(command, script, environment)
    shown = " ".join(command)
    if ran:
        return Check(name=f"interpreter of {name}", mark=Mark.OK, found=f"{shown}: Python {said}")
    remedy = "reinstall that interpreter where it was when it was frozen, or freeze again with another one"
    return Check(name=f"interpreter of {name}", mark=Mark.FAIL, found=f"{shown}: {said}", remedy=remedy)


def check_torch(command: Sequence[str], environment: Mapping[str, str]) -> Check:
    """Check that the harness's interpreter has what compares the tensors of numerical cases."""
    ran, said = _ask(command, "import torch; print(torch.__version__)", environment)
    shown = " ".join(command)
    if ran:
        return Check(name="torch of harness", mark=Mark.OK, found=f"{shown}: torch {said}")
    remedy = "install torch there, or freeze again with an interpreter under [harness] python that has it"
    return Check(name="torch of harness", mark=Mark.FAIL, found=f"{shown}: {said}", remedy=remedy)


def check_sides(paths: HomePaths, environment: Mapping[str, str]) -> Iterator[Check]:
    """Check that the interpreters of the harness and of each frozen side run on this machine, with what they need.

    Args:
        paths: The home.
        environment: What they are given.
    """
    try:
        interpreters = _interpreters(paths)
        is_numerical = documents.Protocol.read(paths.protocol).numerical is not None
    except CampaignError as error:
        yield Check(
            name="manifests",
            mark=Mark.FAIL,
            found="; ".join(error.lines()),
            remedy="restore the home from a copy: nothing frozen may change",
        )
        return
    if not interpreters:
        found = 'not asked: the campaign was frozen with [execution] login_node = "differs"'
        yield Check(name="interpreters", mark=Mark.OK, found=found)
    for name, command in interpreters.items():
        yield _check_interpreter(name, command, environment)
    if is_numerical and interpreters:
        yield check_torch(interpreters["harness"], environment)
