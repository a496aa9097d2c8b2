"""Writing the evidence of one candidate: every line that was collected, sorted, nothing chosen, and who it is about."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from acceptance import formats
from campaign import documents, files
from campaign.collection import database
from campaign.collection.sealed import is_leftover
from campaign.errors import EvidenceError
from campaign.frozen import Frozen
from campaign.paths import EvaluationPaths, HomePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The files of an evidence folder, by name."""

    files: dict[str, bytes]


def build_identity(frozen: Frozen, candidate: str) -> documents.Identity:
    """Return identity.json: which snapshots and which manifest the evidence belongs to."""
    return documents.Identity(
        manifest_sha256=frozen.manifest_sha256,
        baseline_sha256=frozen.manifest.baseline.snapshot_sha256,
        candidate=candidate,
        candidate_sha256=frozen.candidates[candidate].candidate.snapshot_sha256,
    )


def build_evidence(session: Session, frozen: Frozen, candidate: str) -> Evidence:
    """Return the evidence about one candidate: the baseline's slots and its own, no other candidate's.

    Args:
        session: The cache, just collected.
        frozen: The frozen documents.
        candidate: The candidate's id.
    """
    built = {"identity.json": build_identity(frozen, candidate).to_bytes()}
    for name, table in formats.TABLES.items():
        lines = [",".join(table.header), *database.sorted_lines(session, name, ("baseline", candidate))]
        built[name] = ("\n".join(lines) + "\n").encode("utf-8")
    return Evidence(files=built)


def read_evidence(paths: HomePaths, frozen: Frozen, candidate: str) -> Evidence:
    """Return the evidence about one candidate as the cache of a home has it; see `build_evidence`."""
    digests = {"manifest_sha256": frozen.manifest_sha256, "protocol_sha256": frozen.protocol_sha256}
    with database.open_database(paths.database, **digests) as session:
        return build_evidence(session, frozen, candidate)


def write_evidence(evaluation: EvaluationPaths, evidence: Evidence) -> None:
    """Write the evidence folder. It is derived, so that a new one takes the old one's place file by file.

    Raises:
        EvidenceError: The folder holds something that is no evidence.
        StateError: Something that is no folder has its name.
        InfrastructureError: It cannot be written.
    """
    folder = evaluation.evidence
    files.require_folder_or_nothing(folder)
    with files.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.iterdir()):
            if is_leftover(path.name):
                path.unlink()
            elif path.name not in evidence.files or path.is_dir():
                raise EvidenceError("was not written here by this program", where=str(path), hint=f"remove {path}")
    for name, data in evidence.files.items():
        files.replace(folder / name, data)
