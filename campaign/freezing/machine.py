"""What the driver can say about this host, itself and the interpreters of the sides; written into the manifests."""

from __future__ import annotations

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

from campaign import __version__, redact

_TIMEOUT_S = 120
_OUR_DISTRIBUTIONS = ("click", "msgspec", "pydantic", "sqlalchemy", "submitit", "jinja2", "scipy")
_GPU_FIELDS = ("name", "uuid", "driver_version", "memory.total", "pci.bus_id")
_ASK_INTERPRETER = """
import json, os, platform, sys
from importlib import metadata
found = {}
for item in metadata.distributions():
    name = (item.metadata["Name"] or "").lower().replace("_", "-")
    if not name:
        continue
    version = item.version or ""
    try:
        direct = json.loads(item.read_text("direct_url.json") or "{}")
    except ValueError:
        direct = {}
    if direct.get("dir_info", {}).get("editable"):
        version += " (editable, " + str(direct.get("url", "")) + ")"
    found.setdefault(name, []).append(version)
print(json.dumps({
    "python": platform.python_version(),
    "implementation": platform.python_implementation(),
    "executable": os.path.realpath(sys.executable),
    "prefix": sys.prefix,
    "distributions": {name: ", ".join(dict.fromkeys(versions)) for name, versions in found.items()},
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """What a side's interpreter says about itself.

    Attributes:
        facts: Version, implementation, executable and prefix; or the reason why it could not be asked.
        distributions: Name to version of what is installed; None if it could not be asked.
    """

    facts: dict[str, str]
    distributions: dict[str, str] | None


def read_interpreter(python: str, launch: Sequence[str] = ()) -> Interpreter:
    """Ask an interpreter what it is and what is installed for it, in isolated mode and without our environment.

    Args:
        python: Its path.
        launch: The command before it, such as a container's.
    """
    command = [*launch, python, "-I", "-c", _ASK_INTERPRETER]
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR") if name in os.environ
    }
    try:
        done = subprocess.run(
            command, env=environment, cwd="/", capture_output=True, timeout=_TIMEOUT_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Interpreter(
            facts={"unknown": redact.redact_text(f"it cannot be run on this host: {error}")}, distributions=None
        )
    try:
        answer = json.loads(done.stdout.strip().rpartition("\n")[2])
        distributions = {str(name): redact.redact_text(str(text)) for name, text in answer.pop("distributions").items()}
    except (ValueError, KeyError, AttributeError):
        said = redact.redact_text((done.stderr.strip() or done.stdout.strip())[-500:])
        reason = f"it gave no answer on this host (exit code {done.returncode}): {said}"
        return Interpreter(facts={"unknown": reason}, distributions=None)
    return Interpreter(
        facts={str(name): str(value) for name, value in answer.items()},
        distributions=dict(sorted(distributions.items())),
    )


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
