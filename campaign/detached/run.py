"""Makes the attempts of a bundle, on the machine where the bundle lies.

It stands alone: Python 3.11 or newer, and nothing else of campaign. What measures is the frozen harness beside it; this
program checks every file first, starts the harness, stops in time at the boundary of a slot, and packs what came of it.

    python BUNDLE/run.py --list
    python BUNDLE/run.py --max-minutes N [--python SIDE=PATH]... [--data NAME=PATH]... [--allocation ID]...
    python BUNDLE/run.py --pack OUT.tar [--leave GLOB]...

Exit codes: 0 nothing is left to make; 2 usage; 4 something is left; 5 a file is not what bundle.json says; 6 the
machine does not do its part; 130 interrupted.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        # A file beside this one that is called like a module of the standard library is not to run instead of it.
        sys.path[:1] = []
    sys.dont_write_bytecode = True

import argparse
import base64
import contextlib
import ctypes
import errno
import fcntl
import fnmatch
import hashlib
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import IO, Any, Self, TextIO

DONE, USAGE, LEFT, TAMPERED, MACHINE, INTERRUPTED = 0, 2, 4, 5, 6, 130
BUNDLE, HOME, DATA, LOCK, RESULTS = "bundle.json", "home", "data", "run.lock", "results.json"
FORMAT, RESULTS_FORMAT, REQUEST_FORMAT = "bundle/1", "results/1", "request/1"
SIDES = ("harness", "baseline", "candidate")
OF_RESULTS = ("attempts", "allocations", "inputs")
"""Folders of the bundle's home in which the harness leaves what it makes."""
END_S = 90.0
"""How long before the time is over the harness is told to stop, at most a quarter of the time."""
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""What of the caller's environment reaches the harness, beside devices, Slurm's variables and what sides declare."""
KEPT_PREFIXES = ("SLURM_", "SLURMD_", "CUDA_VISIBLE_DEVICES")
_BASE64 = "base64:"
_CHUNK_BYTES = 1 << 20
_ID_DIGITS = 24
_LEAVABLE = (
    r"inputs/[0-9a-f]{64}\.safetensors",
    r"attempts/.+/checkpoints/[1-9][0-9]*/files/.+",
    r"attempts/.+\.log",
    r"attempts/.+/tensors\.csv\.gz",
)
"""What may stay on the machine: what no table, receipt or other document is made of."""
_PR_SET_PDEATHSIG = 1
_SI_USER, _SI_TKILL, _SI_KERNEL = 0, -6, 0x80
UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)
"""Errors that say nothing of what a file holds: nobody is accused of having changed it."""
_LOOK_S = 1.0
"""How often the harness is looked at while nothing is heard."""
_IN_ORDER = (0, 3)
"""How the harness ends that made everything, or left something for want of time."""


class BundleError(Exception):
    """Something that ends the program, with what to say of it.

    Args:
        code: The exit code.
        lines: What is wrong, and what to try.
    """

    def __init__(self, code: int, *lines: str) -> None:
        super().__init__(*lines)
        self.code, self.lines = code, lines


def say(text: str) -> None:
    """Print a line for whoever runs this."""
    _print(text, sys.stdout)


def complain(text: str) -> None:
    """Print what is wrong."""
    _print(text, sys.stderr)


def _print(text: str, stream: TextIO) -> None:
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # Nobody reads any more, or the disk behind it is full: what is made does not depend on that.
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - no path of ours
            os.dup2(nowhere.fileno(), stream.fileno())


# --- the bundle -------------------------------------------------------------------------------------------------------


def is_utf8(path: str) -> bool:
    """Return whether a path that the operating system gave is UTF-8."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def name_of(path: str) -> str:
    """Return how documents spell a path that the operating system gave: bytes that are no UTF-8 in base64."""
    if not is_utf8(path):
        return _BASE64 + base64.b64encode(os.fsencode(path)).decode("ascii")
    return _BASE64 + base64.b64encode(path.encode()).decode("ascii") if path.startswith(_BASE64) else path


def path_of(name: str) -> str:
    """Return the path that a document spells so."""
    return os.fsdecode(base64.b64decode(name.removeprefix(_BASE64))) if name.startswith(_BASE64) else name


def bundle_id(bundle: Mapping[str, Any]) -> str:
    """Return the id of a bundle: digits of the SHA-256 of all of bundle.json but the id itself."""
    rest = {key: value for key, value in bundle.items() if key != "id"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:_ID_DIGITS]


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def read_json(path: Path) -> Any:
    """Read a JSON document: no key twice, no link.

    Raises:
        BundleError: It is none.
    """
    try:
        with _open(path) as stream:
            return json.loads(stream.read().decode("utf-8"), object_pairs_hook=_refuse_duplicates)
    except OSError as error:
        code = MACHINE if error.errno in UNREADABLE else TAMPERED
        raise BundleError(code, f"{path}: cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise BundleError(TAMPERED, f"{path}: cannot be read: {error}") from error


def read_bundle(folder: Path) -> dict[str, Any]:
    """Return bundle.json.

    Args:
        folder: The bundle.

    Raises:
        BundleError: It is no such document, or not the one that its own id is of.
    """
    bundle = read_json(folder / BUNDLE)
    if not isinstance(bundle, dict) or bundle.get("format") != FORMAT:
        raise BundleError(TAMPERED, f"{folder / BUNDLE}: not of format {FORMAT}")
    if (found := bundle_id(bundle)) != bundle.get("id"):
        raise BundleError(TAMPERED, f"{folder / BUNDLE}: changed since it was written: its content has the id {found}")
    return bundle


def _open(path: Path) -> IO[bytes]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")


def hash_file(path: Path) -> tuple[str, int]:
    """Return SHA-256 and size of a regular file; a link is not followed."""
    digest, size = hashlib.sha256(), 0
    with _open(path) as stream:
        while data := stream.read(_CHUNK_BYTES):
            digest.update(data)
            size += len(data)
    return digest.hexdigest(), size


def is_leftover(name: str) -> bool:
    """Return whether a name is that of a temporary file which a killed writer left."""
    return name.startswith(".") and name.endswith(".tmp")


def walk(folder: Path, below: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all that is in a folder and below it but folders that hold something, in the order of names."""
    with os.scandir(folder / below) as listed:
        entries = sorted(listed, key=lambda entry: os.fsencode(entry.name))
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.is_dir(follow_symlinks=False):
            inner = list(walk(folder, path))
            yield from inner or [(path, entry)]
        else:
            yield path, entry


def is_result(path: str) -> bool:
    """Return whether a path relative to the bundle is where the harness leaves what it makes."""
    top, *below = path.split("/")[:3]
    return top == HOME and len(below) == 2 and below[0] in OF_RESULTS


def may_be_added(path: str, entry: os.DirEntry[str]) -> bool:
    """Return whether something that was not written may be there: folders, what the harness made, leftovers."""
    is_made = is_result(path) and entry.is_file(follow_symlinks=False)
    return is_made or entry.is_dir(follow_symlinks=False) or is_leftover(entry.name)


def find_differences(folder: Path, bundle: Mapping[str, Any]) -> list[str]:
    """Return in what a bundle is not what was written, one sentence each; what the harness left is not looked at."""
    listed = {path_of(name): sha256 for name, sha256 in bundle["files"].items()}
    links = {path_of(name): target for name, target in bundle["links"].items()}
    executables = {path_of(name) for name in bundle["executables"]}
    found, seen = [], set()
    for top in (HOME, DATA, "run.py"):
        for path, entry in _walk_top(folder, top):
            seen.add(path)
            if path in links:
                found += _check_link(path, entry, links[path])
            elif path in listed:
                found += _check_file(path, entry, listed[path], is_executable=path in executables)
            elif not may_be_added(path, entry):
                found.append(f"{path}: is not part of the bundle")
    gone = sorted({*listed, *links} - seen)
    for planned in bundle["allocations"]:
        path = f"{HOME}/allocations/{planned['id']}/allocation.json"
        if listed.get(path) != planned["plan_sha256"]:
            found.append(f"{path}: not the plan that the allocation names")
    return found + [f"{path}: is missing" for path in gone]


def _walk_top(folder: Path, top: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as listed:
        entries = [entry for entry in listed if entry.name == top]
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from walk(folder, top)
        else:
            yield top, entry


def _check_link(path: str, entry: os.DirEntry[str], target: str) -> list[str]:
    if entry.is_symlink() and name_of(os.readlink(entry.path)) == target:  # noqa: PTH115 - the very bytes
        return []
    return [f"{path}: is not the link to {target} that was written"]


def _check_file(path: str, entry: os.DirEntry[str], sha256: str, *, is_executable: bool) -> list[str]:
    try:
        found, _ = hash_file(Path(entry.path))
    except OSError as error:
        if error.errno in UNREADABLE:
            raise
        return [f"{path}: cannot be read: {error}"]
    if found != sha256:
        return [f"{path}: its SHA-256 is {found}, and {sha256} was written"]
    if bool(entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR) != is_executable:
        return [f"{path}: is {'not ' if is_executable else ''}executable, and was written otherwise"]
    return []


def check_files(folder: Path, bundle: Mapping[str, Any]) -> None:
    """Refuse a bundle that is not what was written.

    Raises:
        BundleError: It is not; nothing has run.
    """
    if found := find_differences(folder, bundle):
        more = [f"and {len(found) - 10} more"] if len(found) > 10 else []
        raise BundleError(
            TAMPERED, *found[:10], *more, "nothing was run or packed: bring the bundle again as it was written"
        )


# --- what was made ----------------------------------------------------------------------------------------------------


class Attempt:
    """One attempt of a bundle, or one segment of an attempt at a run, and how it stands.

    Args:
        home: The bundle's home.
        planned: Its entry in allocation.json.
    """

    def __init__(self, home: Path, planned: Mapping[str, Any]) -> None:
        self.slot, number, segment = planned["slot"], planned["attempt"], planned.get("segment", 0)
        self.name = f"{self.slot}/{number}/{segment}" if segment else f"{self.slot}/{number}"
        below = ("segments", str(segment)) if segment else ()
        self.folder = home.joinpath("attempts", *self.slot.split("/"), str(number), *below)

    @property
    def is_sealed(self) -> bool:
        """Whether it has a receipt."""
        return (self.folder / "receipt.json").exists()

    @property
    def is_begun(self) -> bool:
        """Whether anything of it was begun."""
        return (self.folder / "start.json").exists()

    @property
    def state(self) -> str:
        """How it stands, in words."""
        if self.is_sealed:
            receipt = read_json(self.folder / "receipt.json")
            return " ".join(filter(None, [str(receipt.get("ending")), str(receipt.get("reason"))]))
        return "was begun and left no receipt: it is not made again" if self.is_begun else "not made yet"


class Allocation:
    """One allocation of a bundle, and how it stands.

    Args:
        home: The bundle's home.
        listed: Its entry in bundle.json.
    """

    def __init__(self, home: Path, listed: Mapping[str, Any]) -> None:
        self.id: str = str(listed["id"])
        self.listed = listed
        self.folder = home / "allocations" / self.id
        plan = read_json(self.folder / "allocation.json")
        self.attempts = [Attempt(home, planned) for planned in plan["attempts"]]
        self.passed = {name for side in plan["sides"].values() for name in side["pass_environment"]}

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is made in it."""
        return (self.folder / "ended.json").exists()

    @property
    def left(self) -> list[Attempt]:
        """The attempts that are still to be made."""
        return [] if self.has_ended else [one for one in self.attempts if not (one.is_begun or one.is_sealed)]

    def find_elsewhere(self) -> str:
        """Return why it cannot be gone on with on this machine; empty if it can."""
        path = self.folder / "started.json"
        if not path.exists():
            return ""
        started = read_json(path)
        there, here = (started["host"], started["boot_id"]), (os.uname().nodename, read_boot_id())
        if there == here:
            return ""
        return (
            f"allocation {self.id} was begun on {there[0]} in boot {there[1]}, and this is {here[0]} in boot {here[1]}:"
            " an allocation is one machine, and nothing more of it is made"
        )


def read_boot_id() -> str:
    """Return the id of this machine's present boot."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def find_results(folder: Path, bundle: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Return SHA-256 and size of everything that was made so far, by path relative to the bundle's home.

    Raises:
        BundleError: Something is neither a file nor a folder.
    """
    own = {path_of(name) for name in (*bundle["files"], *bundle["links"])}
    found = {}
    for top in OF_RESULTS:
        if not (folder / HOME / top).is_dir():
            continue
        for path, entry in walk(folder, f"{HOME}/{top}"):
            if path in own or is_leftover(entry.name) or entry.is_dir(follow_symlinks=False) or _is_being_made(path):
                continue
            if not entry.is_file(follow_symlinks=False):
                raise BundleError(TAMPERED, f"{path}: neither a file nor a folder")
            found[path.removeprefix(f"{HOME}/")] = hash_file(Path(entry.path))
    return found


def _is_being_made(path: str) -> bool:
    """Return whether a path lies in a folder that a killed writer left."""
    return any(is_leftover(part) for part in path.split("/"))


# --- packing ----------------------------------------------------------------------------------------------------------


def write_tar(stream: IO[bytes], top: str, members: Sequence[tuple[str, bytes | Path, int]]) -> None:
    """Write an archive of which the same members give the same bytes.

    Args:
        stream: Where to.
        top: Name of the one folder in it.
        members: Name below that folder, content and mode of each; a mode with the bit of a link or a folder says so.
    """
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, mode in members:
            info = tarfile.TarInfo(f"{top}/{name}")
            info.mode, info.mtime = stat.S_IMODE(mode), 0
            if stat.S_ISDIR(mode):
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif stat.S_ISLNK(mode) and isinstance(content, bytes):
                info.type, info.linkname = tarfile.SYMTYPE, os.fsdecode(content)
                tar.addfile(info)
            elif isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                with _open(content) as source:
                    info.size = os.fstat(source.fileno()).st_size
                    tar.addfile(info, source)


def may_be_left(path: str) -> bool:
    """Return whether a result may stay on the machine, by its path relative to the home."""
    return any(re.fullmatch(pattern, path) for pattern in _LEAVABLE)


def _publish(aside: Path, out: Path) -> None:
    """Give a file its name, which nothing has."""
    try:
        os.link(aside, out)
    except OSError:  # no hard links, as on a memory stick
        if os.path.lexists(out):
            raise
        aside.replace(out)


def pack(folder: Path, bundle: Mapping[str, Any], out: Path, leave: Sequence[str]) -> int:
    """Write what was made so far, with the digests of what is left behind; return the exit code."""
    if os.path.lexists(out):
        raise BundleError(USAGE, f"{out}: there is something already; name another archive")
    if out.resolve().is_relative_to((folder / HOME).resolve()):
        raise BundleError(USAGE, f"{out}: lies among what is to be packed; name another place")
    made = find_results(folder, bundle)
    left = {path for path in made if any(fnmatch.fnmatchcase(path, pattern) for pattern in leave)}
    if refused := sorted(path for path in left if not may_be_left(path)):
        raise BundleError(
            USAGE,
            f"{refused[0]} must come back" + (f", and {len(refused) - 1} others" if len(refused) > 1 else ""),
            "only inputs/*.safetensors, files of checkpoints, logs of attempts and tensors.csv.gz may be left",
        )
    results = {
        "format": RESULTS_FORMAT,
        "bundle": bundle["id"],
        "files": {name_of(path): list(what) for path, what in made.items() if path not in left},
        "left": {name_of(path): list(made[path]) for path in left},
    }
    text = json.dumps(results, sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
    members: list[tuple[str, bytes | Path, int]] = [
        (RESULTS, text.encode("ascii"), 0o644),
        (BUNDLE, (folder / BUNDLE).read_bytes(), 0o644),
        *((f"{HOME}/{path}", folder / HOME / path, 0o644) for path in made if path not in left),
    ]
    aside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with aside.open("xb") as stream:
            write_tar(stream, f"results-{bundle['id']}", members)
            stream.flush()
            os.fsync(stream.fileno())
        _publish(aside, out)
    finally:
        aside.unlink(missing_ok=True)
    sizes = sum(size for path, (_, size) in made.items() if path not in left)
    say(f"{hash_file(out)[0]}  {out}")
    say(f"{len(made) - len(left)} files, {sizes} bytes; {len(left)} left here, {sum(made[p][1] for p in left)} bytes")
    say(f"at the home: campaign bundle ingest {out.name}")
    return DONE


# --- running ----------------------------------------------------------------------------------------------------------


class Asked:
    """What the command line asks for.

    Args:
        options: As they were parsed.
        began: When the program began, on the monotonic clock.
    """

    def __init__(self, options: argparse.Namespace, began: float) -> None:
        seconds: float = options.max_minutes * 60
        self.stop_at = began + seconds - notice_seconds(seconds)
        self.python: dict[str, str] = _pairs(options.python, "--python SIDE=PATH")
        self.data: dict[str, str] = _pairs(options.data, "--data NAME=PATH")
        self.allocations: list[str] = options.allocation


def _pairs(given: Sequence[str], form: str) -> dict[str, str]:
    pairs = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not (name and equals and path):
            raise BundleError(USAGE, f"{one!r} is not {form}")
        if name in pairs:
            raise BundleError(USAGE, f"{form}: {name} is given twice")
        pairs[name] = os.path.abspath(path)  # noqa: PTH100 - an interpreter's own link says which environment it is of
    return pairs


def _refuse_unknown(given: Mapping[str, str], known: Mapping[str, Any], option: str) -> None:
    for name in given:
        if name not in known:
            raise BundleError(
                USAGE, f"{option}: the bundle has no {name!r}; it has {', '.join(sorted(known)) or 'none'}"
            )


def find_pythons(bundle: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """Return the interpreter of the harness and of each side.

    Raises:
        BundleError: One is not there.
    """
    frozen: dict[str, str] = bundle["python"]
    _refuse_unknown(given, frozen, "--python")
    used = {**frozen, **given}
    for side, path in used.items():
        if why := find_fault(path):
            origin = "" if side in given else ", where it was frozen"
            raise BundleError(
                USAGE,
                f"the interpreter of {side} at {path}{origin}: {why}",
                f"say where it is here: --python {side}=PATH",
            )
    return used


def find_fault(python: str) -> str:
    """Return why something is no interpreter that can be used; empty if it is one."""
    asked = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-I", "-c", asked], capture_output=True, text=True, timeout=60, check=False)
        version = tuple(map(int, done.stdout.split()))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"cannot be used: {error}"
    if done.returncode != 0 or len(version) != 2:
        return f"cannot be used: it ended with {done.returncode}"
    return "" if version >= (3, 11) else f"is Python {version[0]}.{version[1]}, and 3.11 or newer is needed"


def find_data(folder: Path, bundle: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """Return where each data set is; the harness compares their digests with the frozen ones.

    Raises:
        BundleError: One is not there.
    """
    _refuse_unknown(given, bundle["data"], "--data")
    used = {}
    for name, one in bundle["data"].items():
        inside = str(folder / DATA / name / os.path.basename(one["path"]))  # noqa: PTH119 - paths are texts here
        used[name] = given.get(name, inside if one["included"] else one["path"])
        if not os.path.exists(used[name]):  # noqa: PTH110 - as above
            raise BundleError(USAGE, f"no data set {name} at {used[name]}: say where it is here: --data {name}=PATH")
    return used


def choose(allocations: Sequence[Allocation], asked: Sequence[str]) -> list[Allocation]:
    """Return the allocations to go on with, in order.

    Raises:
        BundleError: One that was asked for is not there.
    """
    known = {one.id for one in allocations}
    for name in asked:
        if name not in known:
            raise BundleError(USAGE, f"--allocation: the bundle has no {name!r}; it has {', '.join(sorted(known))}")
    chosen = []
    for one in allocations:
        if one.has_ended or (asked and one.id not in asked):
            continue
        if why := one.find_elsewhere():
            complain(why)
        else:
            chosen.append(one)
    return chosen


def harness_environment(environment: Mapping[str, str], passed: set[str]) -> dict[str, str]:
    """Return what of the caller's environment reaches the harness, which gives the sides less."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in KEPT or name in passed or name.startswith(KEPT_PREFIXES)
    }
    return {**kept, "PYTHONSAFEPATH": "1"}


def notice_seconds(seconds: float) -> float:
    """Return how long before the time is over the harness is told to stop."""
    return min(END_S, seconds / 4)


def become_harness(parent: int, blocked: set[signal.Signals | int]) -> None:
    """Let the kernel kill this process when its parent dies; in a new process, before it becomes another program.

    Args:
        parent: The parent.
        blocked: The signals that are kept from it.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def is_below(pid: int, ancestor: int) -> bool | None:
    """Return whether a process descends from another one; None if it is gone, or its parents are."""
    while pid > 1:
        try:
            parent = int(Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None
        if parent == ancestor:
            return True
        pid = parent
    return False


def is_of_side(info: signal.struct_siginfo, harness: int) -> bool | None:
    """Return whether a signal came from a side, every process of which is below the harness; None if nobody can tell.

    Args:
        info: What the kernel says of it.
        harness: The harness's process.
    """
    if info.si_code == _SI_KERNEL or (info.si_code == _SI_USER and info.si_pid == 0):
        return False  # a terminal's, or from outside this process namespace
    if info.si_code not in (_SI_USER, _SI_TKILL):
        return None
    found = is_below(info.si_pid, harness)
    # No side of another user becomes root.
    return False if found is None and info.si_uid == 0 != os.getuid() else found


class Heard:
    """The signals that ask this program to end; each is handed to the harness, which ends its attempt in order.

    They are kept from this process and fetched, since only so the kernel says who sent them: a side must not be able to
    end a measurement that it does not like as if somebody had stopped the command.
    """

    def __init__(self) -> None:
        self._first: int | None = None
        self._asking = {signal.SIGINT, signal.SIGTERM}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
            self._asking.add(signal.SIGHUP)
        self._fetched = {*self._asking, signal.SIGCHLD}
        self.before: set[signal.Signals | int] = set()
        """What was blocked before."""

    def __enter__(self) -> Self:
        """Keep the signals."""
        self.before = {*signal.pthread_sigmask(signal.SIG_BLOCK, self._fetched)}
        return self

    def __exit__(self, *_: object) -> None:
        """Let them pass again."""
        self.wait(None, 0.0)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)

    @property
    def number(self) -> int | None:
        """The first signal that asked this program to end."""
        self.wait(None, 0.0)
        return self._first

    def wait(self, child: subprocess.Popen[bytes] | None, seconds: float) -> None:
        """Wait until something is heard, a child's end included, but not longer; then fetch all that is there."""
        info = signal.sigtimedwait(self._fetched, seconds)
        while info is not None:
            if info.si_signo in self._asking:
                self._hear(info, child)
            info = signal.sigtimedwait(self._fetched, 0)

    def _hear(self, info: signal.struct_siginfo, child: subprocess.Popen[bytes] | None) -> None:
        number = info.si_signo
        guilty = False if child is None else is_of_side(info, child.pid)
        if guilty is None:
            complain(
                f"{signal.Signals(number).name} is not heeded: process {info.si_pid} was gone at once, as one of a side"
                " would be; press Ctrl-C, or use kill in a shell that stays"
            )
        elif child is None or not guilty:
            self._first = self._first or number
            if child is not None:
                child.send_signal(number)
        else:
            complain(f"{signal.Signals(number).name} was sent by process {info.si_pid} of a side: the harness is told")
            # Such a signal names no sender: the harness takes it for a side's, and ends the attempt so.
            ctypes.CDLL(None).sigqueue(child.pid, number, ctypes.c_void_p(None))


def _await(child: subprocess.Popen[bytes], stop_at: float, heard: Heard, clock: Callable[[], float]) -> None:
    """Wait for the harness, hand on what is heard, and tell it when the time is nearly over."""
    is_told = False
    while child.poll() is None:
        left = stop_at - clock()
        if left <= 0 and not is_told:
            child.send_signal(signal.SIGUSR2)
            is_told = True
        heard.wait(child, _LOOK_S if is_told else min(left, _LOOK_S))


def run(folder: Path, bundle: Mapping[str, Any], asked: Asked, lock: int, heard: Heard) -> int:
    """Make what is left, as far as the time reaches; return the exit code.

    Args:
        folder: The bundle.
        bundle: bundle.json, whose files have been checked.
        asked: What the command line asks for.
        lock: The open lock, which the harness holds as well.
        heard: What asks the program to end.
    """
    home = folder / HOME
    allocations = [Allocation(home, listed) for listed in bundle["allocations"]]
    pythons = find_pythons(bundle, asked.python)
    data = find_data(folder, bundle, asked.data)
    _refuse_unspeakable([str(folder), *pythons.values(), *data.values()])
    chosen = choose(allocations, asked.allocations)
    trouble = ""
    if chosen and heard.number is None:
        request = {
            "format": REQUEST_FORMAT,
            "bundle": bundle["id"],
            "home": str(home),
            "allocations": [{"id": one.id, "expected_s": one.listed["expected_s"]} for one in chosen],
            "python": pythons,
            "data": data,
            "stop_at": asked.stop_at,
            "argv": [name_of(one) for one in sys.argv],
        }
        environment = harness_environment(os.environ, {name for one in chosen for name in one.passed})
        trouble = _start(request, environment, lock, heard)
    return conclude(allocations, heard, trouble)


def _refuse_unspeakable(paths: Sequence[str]) -> None:
    """Refuse places that no document can name.

    Raises:
        BundleError: One is not UTF-8.
    """
    for path in paths:
        if not is_utf8(path):
            raise BundleError(USAGE, f"{path}: the name is not UTF-8; give it another one")


def _start(request: Mapping[str, Any], environment: Mapping[str, str], lock: int, heard: Heard) -> str:
    """Start the harness and wait until it has left; return what went wrong with it, if anything did."""
    private = Path(tempfile.mkdtemp(prefix="campaign-bundle-"))
    try:
        path = private / "request.json"
        path.write_text(json.dumps(request, sort_keys=True), encoding="ascii")
        options = ["-P", "-s", "-X", f"pycache_prefix={private / 'pycache'}"]
        launcher = Path(request["home"], "frozen", "harness", "launch.py")
        parent = os.getpid()
        child = subprocess.Popen(
            [request["python"]["harness"], *options, str(launcher), "detached", str(path)],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=(lock,),
            start_new_session=True,  # what asks it to end comes from here alone
            preexec_fn=lambda: become_harness(parent, heard.before),  # noqa: PLW1509 - there is one thread
        )
        _await(child, request["stop_at"], heard, time.monotonic)
        return describe_end(child.returncode)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def describe_end(code: int) -> str:
    """Return what is wrong with how the harness ended; empty if it ended in order, or was told to."""
    # A warning that comes before the harness listens ends it, and nothing was begun.
    if code in (*_IN_ORDER, -signal.SIGUSR2, *(128 + number for number in (1, 2, 12, 15))):
        return ""
    return f"the harness was killed by signal {-code}" if code < 0 else f"the harness ended with exit code {code}"


def conclude(allocations: Sequence[Allocation], heard: Heard, trouble: str) -> int:
    """Say what is left; return the exit code.

    Args:
        allocations: All of the bundle's.
        heard: What asked the program to end.
        trouble: What went wrong with the harness; empty if nothing did.
    """
    left = [(one, attempt) for one in allocations for attempt in one.left]
    begun = [attempt for one in allocations for attempt in one.attempts if attempt.is_begun and not attempt.is_sealed]
    num = sum(len(one.attempts) for one in allocations)
    say(f"{num - len(left) - len(begun)} of {num} attempts are made, {len(begun)} lost, {len(left)} left")
    for allocation, attempt in left[:3]:
        expected = allocation.listed["expected_s"].get(attempt.name)
        about = "" if expected is None else f", expected to take {expected:.0f} s"
        say(f"left: {attempt.name} in {allocation.id}{about}")
    if len(left) > 3:
        say(f"left: {len(left) - 3} more")
    if heard.number is not None:
        return INTERRUPTED
    # What has not left an allocation in order has to be called once more, if only to say so.
    is_left = bool(left) or not all(one.has_ended for one in allocations)
    if is_left and trouble:
        complain(f"{trouble}; what it says stands above, and in harness.log of its allocation")
        return MACHINE
    return LEFT if is_left else DONE


def show(folder: Path, bundle: Mapping[str, Any]) -> int:
    """Print what is in a bundle and how it stands; return the exit code."""
    say(f"bundle {bundle['id']} of campaign {bundle['campaign']}, submission {bundle['submission']}")
    for side, path in sorted(bundle["python"].items()):
        say(f"python {side}: {path}")
    for name, one in sorted(bundle["data"].items()):
        say(f"data {name}: {'in the bundle' if one['included'] else one['path']}")
    for sha256, included in sorted(bundle["inputs"].items()):
        say(f"inputs {sha256}: {'in the bundle' if included else 'made again by the cases that need them'}")
    for listed in bundle["allocations"]:
        one = Allocation(folder / HOME, listed)
        ended = ", ended" if one.has_ended else ""
        say(f"{one.id}, repeat {listed['repeat']}, at most about {listed['minutes']} minutes{ended}")
        for attempt in one.attempts:
            say(f"  {attempt.name}: {attempt.state}")
    return DONE


# --- the command line -------------------------------------------------------------------------------------------------


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="run.py", description="Make the attempts of this bundle, or pack what came of it.", allow_abbrev=False
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--max-minutes", type=_minutes, metavar="N", help="make what is left, and stop after N minutes")
    what.add_argument("--list", action="store_true", help="show what is in it and how it stands")
    what.add_argument("--pack", type=Path, metavar="OUT.tar", help="write what was made into one archive")
    parser.add_argument("--python", action="append", default=[], metavar="SIDE=PATH", help="another interpreter")
    parser.add_argument("--data", action="append", default=[], metavar="NAME=PATH", help="another place of a data set")
    parser.add_argument("--allocation", action="append", default=[], metavar="ID", help="only this allocation")
    parser.add_argument("--leave", action="append", default=[], metavar="GLOB", help="pack only the digests of these")
    return parser.parse_args(arguments)


def _minutes(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def _open_lock(path: Path) -> int:
    """Open the lock; one of somebody else's, or on a medium that is read-only, can be held without being written."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not path.exists():
            raise
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the bundle's lock.

    Raises:
        BundleError: Another one has it.
    """
    descriptor = _open_lock(folder / LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise BundleError(
            MACHINE, f"{folder}: somebody else works with this bundle; wait until that has ended"
        ) from error
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
        raise BundleError(
            MACHINE,
            f"{folder}: its file system has no locks (flock): {error.strerror}",
            "two commands could work with the bundle at once: copy it to another file system, such as a local disk",
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def main(arguments: Sequence[str], folder: Path, began: float) -> int:
    """Do what the command line asks for; return the exit code."""
    if sys.version_info < (3, 11):  # noqa: UP036 - the machine has what it has
        raise BundleError(USAGE, f"this is Python {sys.version.split()[0]}, and 3.11 or newer is needed")
    options = parse(arguments)
    bundle = read_bundle(folder)
    if options.list:
        return show(folder, bundle)
    with locked(folder) as lock:
        check_files(folder, bundle)
        if options.pack is not None:
            return pack(folder, bundle, options.pack, options.leave)
        with Heard() as heard:
            return run(folder, bundle, Asked(options, began), lock, heard)


def start() -> int:
    """Run the program; return the exit code."""
    began = time.monotonic()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return main(sys.argv[1:], Path(__file__).resolve().parent, began)
    except BundleError as trouble:
        for line in trouble.lines:
            complain(line)
        return trouble.code
    except OSError as error:
        complain(f"the operating system refused: {error}")
        return MACHINE
    except KeyboardInterrupt:
        return INTERRUPTED  # nothing runs, then


if __name__ == "__main__":
    sys.exit(start())
