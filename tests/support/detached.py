"""A bundle on a machine of its own: the home of a harness bench, moved away from where it was planned."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import documents, files
from campaign.paths import AllocationPaths, HomePaths
from tests.support.harness import CANDIDATE, Bench

BUNDLE = "0123456789abcdef01234567"


@dataclass(slots=True, kw_only=True)
class Detached:
    """A bundle's home, and the means to go on with its allocations as run.py does."""

    bench: Bench
    """Its home is the bundle's: what was planned for is gone."""
    python: dict[str, str]
    data: dict[str, str]

    @property
    def home(self) -> HomePaths:
        """The bundle's home."""
        return self.bench.paths

    def allocation(self, name: str = "a00001") -> AllocationPaths:
        """Return an allocation's own files."""
        return self.home.allocation(name)

    def request(
        self,
        *names: str,
        left_s: float = 300.0,
        expected_s: Mapping[str, float | None] | None = None,
    ) -> Path:
        """Write what run.py asks the harness for; return the file.

        Args:
            names: Ids of the allocations; default the first one.
            left_s: Seconds that the command has.
            expected_s: What attempts are expected to take, by name.
        """
        value = {
            "format": "request/1",
            "bundle": BUNDLE,
            "home": str(self.home.root),
            "allocations": [{"id": name, "expected_s": expected_s or {}} for name in names or ("a00001",)],
            "python": self.python,
            "data": self.data,
            "stop_at": time.monotonic() + left_s,
            "argv": ["run.py"],
        }
        path = self.bench.temporary / "request.json"
        path.write_text(json.dumps(value))
        return path

    def argv(self, request: Path) -> list[str]:
        """Return what run.py executes."""
        job = self.bench.argv()
        return [*job[: job.index("allocation")], "detached", str(request)]

    def start(self, request: Path) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            self.argv(request),
            env=self.bench.job_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def call(self, *names: str, **asked: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; the arguments are those of `request`."""
        return subprocess.run(
            self.argv(self.request(*names, **asked)),
            env=self.bench.job_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def calls(self, name: str = "a00001") -> list[documents.Call]:
        """Read what each command took down as it began."""
        return list(_read_all(self.allocation(name).call, documents.Call))

    def left(self, name: str = "a00001") -> list[documents.CallEnded | None]:
        """Read what each command took down as it left; None of one that was killed."""
        numbers = range(1, len(self.calls(name)) + 1)
        paths = [self.allocation(name).call_ended(number) for number in numbers]
        return [documents.CallEnded.read(path) if path.exists() else None for path in paths]


def _read_all(path_of: Any, kind: Any) -> Sequence[Any]:
    found: list[Any] = []
    while (path := path_of(len(found) + 1)).exists():
        found.append(kind.read(path))
    return found


def _freeze(home: HomePaths, environment: Mapping[str, str]) -> str:
    """Write as much of the manifests as the harness reads; return the digest of the baseline's."""
    home.manifest.write_bytes(files.dump_json({"baseline": {"environment": dict(environment)}}))
    home.candidate(CANDIDATE).manifest.write_bytes(files.dump_json({"candidate": {"environment": dict(environment)}}))
    return files.sha256_file(home.manifest)


def detach(
    bench: Bench, *groups: Sequence[documents.PlannedAttempt], environment: Mapping[str, str] | None = None
) -> Detached:
    """Plan allocations for a bench's home, and move that to where the harness finds it as a bundle's.

    Args:
        bench: The home as the driver has it.
        groups: The attempts of each allocation.
        environment: Variables of both sides as they are frozen, with references to data sets.
    """
    manifest_sha256 = _freeze(bench.paths, environment or {})
    for number, attempts in enumerate(groups, start=1):
        path = bench.plan(*attempts, allocation=f"a{number:05d}")
        plan = json.loads(path.read_bytes())
        plan["manifest_sha256"] = manifest_sha256
        path.write_bytes(files.dump_json(plan))
    moved = bench.paths.root.with_name("bundle") / "home"
    moved.parent.mkdir()
    bench.paths.root.rename(moved)
    bench.paths = HomePaths(moved)
    python = {"harness": sys.executable, **{name: one.python for name, one in bench.runnables.items()}}
    return Detached(bench=bench, python=python, data={name: one.path for name, one in bench.data.items()})
