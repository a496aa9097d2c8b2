"""Synthetic campaigns of any size in which everything is right, what was frozen included: they can be closed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from campaign import documents, files
from campaign.freezing.programs import copy_program, find_programs
from campaign.paths import SnapshotPaths
from campaign.snapshot import digest_folder
from campaign.snapshot.digest import read_entries
from campaign.snapshot.listing import dump_listing
from tests.support.home import Case, attempt_all, freeze, freeze_candidate
from tests.support.jobs import RESOURCES
from tests.support.lifelike import LifelikeHome, edit_json

Side = Literal["baseline", "candidate"]
CANDIDATE = "c7894051c9299"
"""The candidate's id, which follows from its one file."""
ATTEMPTS_PER_CASE = 8
"""Two pilots, three solo measurements, three pairs; nothing in a category, so no controls."""


@dataclasses.dataclass(slots=True, kw_only=True)
class LargeHome(LifelikeHome):
    """A home under construction whose acts of freezing say all that those of the driver do."""

    def append(self, act: documents.Act, data: dict[str, Any]) -> None:
        """Append one act to the ledger."""
        if act == "froze_candidate":
            data = {**data, "snapshot_sha256": self.snapshot_sha256}
        LifelikeHome.append(self, act, data)


def _write_side(folder: Path, text: str) -> dict[str, str]:
    """Write a frozen side; return the digests that its manifest names."""
    side = SnapshotPaths(folder)
    side.tree.mkdir(parents=True)
    (side.tree / "adapter.py").write_text(text, encoding="utf-8")
    side.listing.write_bytes(dump_listing(read_entries(side.tree)))
    side.patch.write_bytes(b"")
    return {
        "snapshot_sha256": digest_folder(side.tree),
        "files_sha256": files.sha256_file(side.listing),
        "changes_sha256": files.sha256_file(side.patch),
    }


def freeze_whole(
    root: Path, cases: Sequence[Case], *, manifest: Mapping[str, Any] | None = None, **options: Any
) -> LargeHome:
    """Freeze rules, programs and baseline, and begin the ledger.

    Args:
        root: The folder to create.
        cases: The workloads.
        manifest: Fields that the manifest shall have.
        options: As for `tests.support.home.freeze`.
    """
    made = freeze(root, cases, **options)
    paths, programs = made.paths, find_programs()
    shutil.rmtree(paths.acceptance)
    digests = {
        "acceptance_sha256": copy_program(programs.acceptance, paths.acceptance),
        "harness_sha256": copy_program(programs.harness, paths.harness),
        "verifier_sha256": copy_program(programs.verifier, paths.verifier),
    }
    baseline = {**json.loads(paths.manifest.read_bytes())["baseline"], **_write_side(paths.baseline.root, "x = 1\n")}
    frozen = edit_json(paths.manifest, baseline=baseline, **digests, **(manifest or {}))
    paths.ledger.unlink()
    home = LargeHome(paths=paths, protocol=made.protocol)
    paths.ledger.touch()
    said = {"manifest_sha256": files.sha256_file(paths.manifest), "protocol_sha256": frozen["protocol_sha256"]}
    snapshot = {"snapshot_sha256": baseline["snapshot_sha256"]}
    first = {
        "seq": 1,
        "previous": "0" * 64,
        "at": 0.0,
        "act": "froze_baseline",
        "data": {**said, **digests, **snapshot},
    }
    paths.ledger.write_bytes(json.dumps(first, sort_keys=True).encode() + b"\n")
    return home


def freeze_whole_candidate(home: LargeHome) -> None:
    """Freeze the candidate."""
    paths = home.paths
    staged = paths.unnamed_candidate.root
    digests = _write_side(staged, "x = 2\n")
    candidate = f"c{digests['snapshot_sha256'][:12]}"
    manifest = paths.candidate(candidate).manifest
    # The manifest is written with digests that nothing has, and named by the ledger once it has the right ones.
    lines = paths.ledger.read_bytes()
    known = home.num_lines, home.previous
    freeze_candidate(home, candidate, digests["snapshot_sha256"])
    for part in staged.iterdir():
        part.rename(manifest.parent / part.name)
    staged.rmdir()
    side = {**json.loads(manifest.read_bytes())["candidate"], **digests}
    edit_json(manifest, candidate=side)
    paths.ledger.write_bytes(lines)
    home.num_lines, home.previous = known
    home.append("froze_candidate", {"candidate": candidate, "manifest_sha256": files.sha256_file(manifest)})


def build_whole(
    root: Path, cases: Sequence[Case], *, last: Literal["collect", ""] = "collect", **options: Any
) -> LargeHome:
    """Create a home in which every slot has one completed, sealed attempt that the ledger names; without a report.

    Args:
        root: The folder to create.
        cases: The workloads.
        last: What is done at the end; without it the ledger names no receipt yet.
        options: As for `freeze_whole`.
    """
    home = freeze_whole(root, cases, **options)
    attempt_all(home, "baseline")
    freeze_whole_candidate(home)
    attempt_all(home, "candidate")
    if last:
        home.collect()
    return home


def build_large(
    root: Path, num_attempts: int, *, windows: int = 5, last: Literal["collect", ""] = "collect"
) -> LargeHome:
    """Create a home in which every slot has one completed, sealed attempt that the ledger names; without a report.

    Args:
        root: The folder to create.
        num_attempts: How many attempts there are at least; three eighths of them are pairs.
        windows: Windows of each side of a pair.
        last: What is done at the end; without it the ledger names no receipt yet.
    """
    cases = [Case(name=f"w{number:05}-b4", production=True) for number in range(-(-num_attempts // ATTEMPTS_PER_CASE))]
    return build_whole(root, cases, windows=windows, last=last, manifest={"resources": RESOURCES})
