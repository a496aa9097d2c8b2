"""What the driver can say about this host, itself and the interpreters of the sides; written into the manifests."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from campaign import __version__, documents, redact
from campaign.errors import EvidenceError, InfrastructureError

_TIMEOUT_S = 120
_OUR_DISTRIBUTIONS = ("click", "msgspec", "pydantic", "sqlalchemy", "submitit", "jinja2", "scipy")
_GPU_FIELDS = ("name", "uuid", "driver_version", "memory.total", "pci.bus_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """What a side's interpreter says about itself.

    Attributes:
        facts: Version, implementation, executable and prefix; or the reason why it could not be asked.
        distributions: Name to version of what is installed; None if it could not be asked.
        environment: Its identity and that of what is installed, by digests; None as before.
    """

    facts: dict[str, str]
    distributions: dict[str, str] | None
    environment: documents.Environment | None = None


def find_identifier() -> Path:
    """Return the installed harness's program that an interpreter is asked with, without importing any of it.

    Raises:
        InfrastructureError: The harness is not installed.
    """
    spec = importlib.util.find_spec("jobs")
    if spec is None or spec.origin is None:
        raise InfrastructureError("the package jobs is not installed", hint="install campaign again")
    return Path(spec.origin).parent / "processes" / "installed.py"


def read_interpreter(python: str, launch: Sequence[str] = (), identifier: Path | None = None) -> Interpreter:
    """Ask an interpreter what it is and what is installed for it, in isolated mode and without our environment.

    Args:
        python: Its path.
        launch: The command before it, such as a container's.
        identifier: The harness's program to ask with, which a worker asks with as well; the installed one if None.
    """
    program = (find_identifier() if identifier is None else identifier).read_text(encoding="utf-8")
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR") if name in os.environ
    }
    try:
        done = subprocess.run(
            # The program is handed over as text: behind a launch prefix its file may not be there.
            [*launch, python, "-I", "-c", program],
            env=environment,
            cwd="/",
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        said = error.strerror if isinstance(error, OSError) else f"no answer within {_TIMEOUT_S} s"
        return unknown_interpreter(f"it cannot be run on this host: {said}")
    try:
        answer = json.loads(done.stdout.strip().rpartition("\n")[2])
        distributions = {str(name): redact.redact_text(str(text)) for name, text in answer.pop("distributions").items()}
        identity, installed = answer.pop("identity"), answer.pop("installed")
        found = documents.Environment.of({**identity, "installed": installed})
    except (ValueError, KeyError, AttributeError, TypeError, EvidenceError):
        said = (done.stderr.strip() or done.stdout.strip())[-500:]
        return unknown_interpreter(f"it gave no answer on this host (exit code {done.returncode}): {said}")
    return Interpreter(
        facts={str(name): str(value) for name, value in answer.items()},
        distributions=dict(sorted(distributions.items())),
        environment=found,
    )


def unknown_interpreter(reason: str) -> Interpreter:
    """Return what is known of an interpreter that could not be asked.

    Args:
        reason: Why it could not.
    """
    return Interpreter(facts={"unknown": redact.redact_text(reason)}, distributions=None)


def read_machine_facts() -> dict[str, Any]:
    """Return what is known of this host: the one that freezes."""
    system = os.uname()
    return {
        "node": system.nodename,
        "kernel": f"{system.sysname} {system.release}",
        "machine": system.machine,
        "os": _read_os_name(),
        "cpu": _read_cpu_name(),
        "num_cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": _read_gpus(),
    }


def read_driver_facts(config: Path) -> dict[str, Any]:
    """Return what is known of the driver that freezes.

    Args:
        config: The configuration file that it read.
    """
    return {
        "campaign": __version__,
        "config": str(config),
        "python": platform.python_version(),
        "executable": sys.executable,
        "distributions": {name: _version(name) for name in _OUR_DISTRIBUTIONS},
        "git": _first_line(["git", "--version"]),
        "slurm": _first_line(["sinfo", "--version"]),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _first_line(command: Sequence[str]) -> str | None:
    """Return the first line that a program prints; None where there is no such program."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.partition("\n")[0] or None


def _read_field(path: str, name: str, separator: str) -> str | None:
    """Return the first value of a name in a file of names and values."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(separator)
        if key.strip() == name:
            return value.strip().strip('"')
    return None


def _read_os_name() -> str | None:
    return _read_field("/etc/os-release", "PRETTY_NAME", "=")


def _read_cpu_name() -> str:
    return _read_field("/proc/cpuinfo", "model name", ":") or platform.processor() or os.uname().machine


def _read_gpus() -> list[dict[str, str]] | dict[str, str]:
    """Return one record a GPU; or why it is not known whether there are any."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {"unknown": "nvidia-smi is not installed on this host"}
    command = [program, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"unknown": f"nvidia-smi did not answer: {error}"}
    if done.returncode != 0:
        return {"unknown": f"nvidia-smi failed: {(done.stderr or done.stdout).strip()[-300:]}"}
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(_GPU_FIELDS, row, strict=False)) for row in rows]
