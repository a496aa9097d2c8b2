"""Running a program from bytes in clean child processes, which may hang, eat memory or print without end.

What the children leave besides what they print is gone, processes that made a session of their own included; nothing
they do can change the home through this module.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from . import strays

CHILD = Path(__file__).with_name("child.py")
PACKAGE = "acceptance"
TIMEOUT_S = 900.0
MEMORY_BYTES = 8 << 30
"""Most address space of a child."""
OUTPUT_BYTES = 1 << 28
"""Most bytes that a child prints, and of any file that it writes."""
_SAID_BYTES = 4000
_PASSED_ON = ("LD_LIBRARY_PATH",)  # an interpreter of a module system may not start without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What may differ between two runs without making a difference."""

    hash_seed: str
    time_zone: str
    locale: str


SETTINGS = (
    Setting(hash_seed="0", time_zone="UTC", locale="C"),
    Setting(hash_seed="4242", time_zone="Pacific/Kiritimati", locale="C.UTF-8"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One child to start."""

    setting: Setting
    arguments: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a child ended."""

    exit_code: int
    """Negative: the signal that ended it."""
    printed: bytes
    said: str
    """The end of its standard error."""
    trouble: str
    """Why it was ended, or could not be started; empty if it ended by itself."""


def run_all(
    program: Mapping[str, bytes], runs: Sequence[Run], *, python: str, root: str, timeout_s: float = TIMEOUT_S
) -> list[Done]:
    """Run the acceptance package from bytes, once for each run and all at the same time.

    Args:
        program: Content by path below the package's folder.
        runs: The children.
        python: The interpreter; empty for this one.
        root: The folder that tracebacks shall name.
        timeout_s: How long they may take.
    """
    files = {path: base64.b64encode(data).decode("ascii") for path, data in program.items()}
    cpu_s = int(timeout_s) + 1
    limits = {"RLIMIT_CPU": cpu_s, "RLIMIT_AS": MEMORY_BYTES, "RLIMIT_FSIZE": OUTPUT_BYTES, "RLIMIT_CORE": 0}
    requests = [
        {"package": PACKAGE, "root": root, "files": files, "arguments": list(run.arguments), "limits": limits}
        for run in runs
    ]
    with contextlib.ExitStack() as folders:
        privates = [folders.enter_context(tempfile.TemporaryDirectory(prefix="campaign-verify-")) for _ in runs]
        with strays.ending() as left, contextlib.ExitStack() as stack:
            started = [
                stack.enter_context(
                    _started(run, python or sys.executable, Path(private), json.dumps(request).encode("ascii"))
                )
                for run, private, request in zip(runs, privates, requests, strict=True)
            ]
            end = time.monotonic() + timeout_s
            done = [_finish(one, end, timeout_s) for one in started]
        if left.survivors:
            trouble = f"left {left.survivors} process(es) that could not be ended"
            done = [replace(one, trouble=one.trouble or trouble) for one in done]
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    process: subprocess.Popen[bytes] | None
    """None if it could not be started."""
    why: str
    printed: BinaryIO
    said: BinaryIO


@contextlib.contextmanager
def _started(run: Run, python: str, private: Path, request: bytes) -> Iterator[_Started]:
    # -P: neither the working directory nor the script's folder is importable. -s: no user site-packages. Not -I: it
    # would ignore PYTHONHASHSEED. No bytecode is taken from beside a library's sources.
    options = ["-P", "-s", "-B", "-X", f"pycache_prefix={private}/pycache", "-X", "utf8"]
    (private / "request").write_bytes(request)
    with (
        (private / "request").open("rb") as asked,
        (private / "stdout").open("w+b") as printed,
        (private / "stderr").open("w+b") as said,
    ):
        try:
            process = subprocess.Popen(
                [python, *options, str(CHILD)],
                stdin=asked,
                stdout=printed,
                stderr=said,
                cwd=private,
                env=_environment(run.setting, os.environ),
                start_new_session=True,
            )
        except OSError as error:
            yield _Started(process=None, why=f"{python}: {error.strerror}", printed=printed, said=said)
            return
        try:
            yield _Started(process=process, why="", printed=printed, said=said)
        finally:
            _kill(process)


def _environment(setting: Setting, outside: Mapping[str, str]) -> dict[str, str]:
    return {
        "LC_ALL": setting.locale,
        "TZ": setting.time_zone,
        "PATH": "/usr/bin:/bin",
        "PYTHONHASHSEED": setting.hash_seed,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **{name: outside[name] for name in _PASSED_ON if name in outside},
    }


def _finish(started: _Started, end: float, timeout_s: float) -> Done:
    if started.process is None:
        return Done(exit_code=1, printed=b"", said="", trouble=f"cannot be started: {started.why}")
    trouble = ""
    try:
        started.process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        trouble = f"took more than {timeout_s:g} s"
    _kill(started.process)
    return Done(
        exit_code=started.process.returncode,
        printed=_content(started.printed, OUTPUT_BYTES),
        said=_tail(started.said),
        trouble=trouble,
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a child and whatever it left in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _content(stream: BinaryIO, most: int) -> bytes:
    stream.seek(0)
    return stream.read(most)


def _tail(stream: BinaryIO) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _SAID_BYTES))
    return stream.read().decode("utf-8", "backslashreplace").strip()
