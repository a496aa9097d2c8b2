"""The names of the harness's files in a campaign home, as docs/formats.md lists them; no other module builds a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAIRS = "pairs.csv"
WINDOWS = "windows.csv"
BASELINE = "baseline.csv"
NUMERICAL = "numerical.csv"
VACUITY = "vacuity.csv"
CONVERGENCE = "convergence.csv"
CURVES = "curves.csv"
TENSORS = "tensors.csv.gz"
"""Kept with its attempt, compressed; not among the tables that are collected."""
INPUTS = "inputs.json"
"""The document of the canonical inputs, beside the receipt of the pilot that recorded them."""
RESUMPTION = "resumption.json"
"""What a side did after it had loaded a checkpoint of either side, beside the receipt of its resumption."""
COMPARER = "comparer"
"""Whose log stands beside the sides'."""
COMPILED = "compiled"
"""Folder of bytecode in a job's private copy of the harness."""
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class AllocationFolder:
    """One allocation's own folder."""

    root: Path

    @property
    def plan(self) -> Path:
        """What it is asked to do."""
        return self.root / "allocation.json"

    @property
    def started(self) -> Path:
        """Created once, by the job that runs the allocation."""
        return self.root / "started.json"

    @property
    def ended(self) -> Path:
        """Written when the harness leaves the allocation in order."""
        return self.root / "ended.json"

    @property
    def log(self) -> Path:
        """What the harness did, line by line."""
        return self.root / "harness.log"

    @property
    def calls(self) -> Path:
        """Folder of what each command that went on with a detached allocation left."""
        return self.root / "calls"

    def call(self, number: int) -> Path:
        """Written as a command begins."""
        return self.calls / f"{number}.json"

    def call_ended(self, number: int) -> Path:
        """Written as it leaves in order."""
        return self.calls / f"{number}.ended.json"


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """One attempt's own folder."""

    root: Path

    @property
    def start(self) -> Path:
        """Written before anything of a side runs."""
        return self.root / "start.json"

    @property
    def receipt(self) -> Path:
        """Written last; seals the others."""
        return self.root / "receipt.json"

    @property
    def reserve(self) -> Path:
        """Space kept free for the receipt; removed before it is written."""
        return self.root / ".reserve.tmp"

    def log(self, side: str) -> Path:
        """What a side printed."""
        return self.root / f"{side}.log"

    def table(self, file: str) -> Path:
        """An evidence table."""
        return self.root / file

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints that a segment of a run writes."""
        return self.root / "checkpoints"

    def checkpoint(self, update: int) -> CheckpointFolder:
        """One of them, by the updates behind it."""
        return CheckpointFolder(self.checkpoints / str(update))


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """One checkpoint of a segment of a run."""

    root: Path

    @property
    def document(self) -> Path:
        """What it is, and the digests of its files."""
        return self.root / "checkpoint.json"

    @property
    def files(self) -> Path:
        """Folder of what the side saved."""
        return self.root / "files"


@dataclass(frozen=True, slots=True)
class InputsFolder:
    """Canonical inputs by digest."""

    root: Path

    def document(self, sha256: str) -> Path:
        """The inputs of one workload."""
        return self.root / f"{sha256}.json"

    def tensors(self, sha256: str) -> Path:
        """One quantity of one worker, or one batch."""
        return self.root / f"{sha256}.safetensors"


def inputs_folder(home: Path) -> InputsFolder:
    """Return the folder of a home's canonical inputs."""
    return InputsFolder(home / "inputs")


def allocation_folder(home: Path, allocation: str) -> AllocationFolder:
    """Return the folder of an allocation."""
    return AllocationFolder(home / "allocations" / allocation)


def manifest_path(home: Path) -> Path:
    """Return the manifest of a home: what was frozen before a candidate, the baseline among it."""
    return home / "manifest.json"


def candidate_manifest_path(home: Path, candidate: str) -> Path:
    """Return the manifest of a candidate by its id.

    Raises:
        ValueError: That is no id.
    """
    if not _PART.fullmatch(candidate):
        raise ValueError(f"not the id of a candidate: {candidate!r}")
    return home / "frozen" / "candidates" / candidate / "manifest.json"


def protocol_path(home: Path) -> Path:
    """Return the frozen protocol of a home."""
    return home / "protocol.json"


def attempt_folder(home: Path, slot: str, attempt: int, segment: int = 0) -> AttemptFolder:
    """Return the folder of an attempt, or of one segment of an attempt at a run.

    Raises:
        ValueError: The slot's name would lead elsewhere.
    """
    parts = slot.split("/")
    if not all(_PART.fullmatch(part) for part in parts):
        raise ValueError(f"not the name of a slot: {slot!r}")
    below = ("segments", str(segment)) if segment else ()
    return AttemptFolder(home.joinpath("attempts", *parts, str(attempt), *below))


def frozen_paths(home: Path) -> tuple[Path, ...]:
    """Return what every allocation rests on and none may change: programs, rules and the manifest of the baseline."""
    frozen = home / "frozen"
    programs = (frozen / "acceptance", frozen / "harness", frozen / "verifier")
    return (*programs, frozen / "campaign.toml", protocol_path(home), manifest_path(home))
