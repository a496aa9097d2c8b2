"""The three programs that are frozen with a campaign: acceptance, the harness and the verifier, as sources."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from campaign import verifier
from campaign.errors import InfrastructureError
from campaign.snapshot import digest_folder
from campaign.snapshot.rules import excluded_by_rule

_REINSTALL = "install campaign again, into an environment of its own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Where the installed programs are."""

    acceptance: Path
    harness: Path
    verifier: Path


def find_programs() -> Programs:
    """Find the installed packages without importing them.

    Raises:
        InfrastructureError: One is missing, or somebody else's package has its name.
    """
    return Programs(
        acceptance=_find("acceptance", needs="__main__.py"),
        harness=_find("jobs", needs="launch.py"),
        verifier=Path(verifier.__file__).parent,
    )


def copy_program(source: Path, target: Path) -> str:
    """Copy the Python sources of a package, read-only, and return the tree digest of the copy.

    Args:
        source: The installed package.
        target: The folder to create.
    """
    target.mkdir(parents=True)
    for file in sorted(source.rglob("*.py")):
        relative = file.relative_to(source)
        if not any(excluded_by_rule(part.encode()) for part in relative.parts):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            (target / relative).write_bytes(file.read_bytes())
            (target / relative).chmod(0o444)
    for folder in sorted((item for item in target.rglob("*") if item.is_dir()), reverse=True):
        folder.chmod(0o555)
    target.chmod(0o555)
    return digest_folder(target)


def _find(name: str, *, needs: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise InfrastructureError(f"the package {name} is not installed", hint=_REINSTALL)
    folder = Path(spec.origin).parent
    if not (folder / needs).is_file():
        raise InfrastructureError(
            f"the package {name} is not ours, or is not complete",
            where=str(folder),
            why=f"it has no {needs}",
            hint=_REINSTALL,
        )
    return folder
