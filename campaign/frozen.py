"""What was frozen, read together and checked against its own digests: the manifest, the protocol and the candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from acceptance import formats
from campaign import documents, files
from campaign.errors import EvidenceError, StateError
from campaign.paths import HomePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """The frozen documents of a home."""

    manifest: documents.Manifest
    manifest_sha256: str
    protocol: documents.Protocol
    protocol_sha256: str
    candidates: Mapping[str, documents.CandidateManifest]
    """By id."""

    def snapshots(self, candidate: str) -> dict[str, str]:
        """Return the snapshot digest of each side's name; without the candidate if there is none of this id."""
        baseline = self.manifest.baseline.snapshot_sha256
        found = {"baseline": baseline, "baseline_again": baseline}
        if candidate in self.candidates:
            found["candidate"] = self.candidates[candidate].candidate.snapshot_sha256
        return found

    def slots(self) -> dict[str, documents.Slot]:
        """Return every slot of the protocol under its name in this home: a candidate's once per candidate."""
        owners = {"baseline": [""], "candidate": list(self.candidates)}
        return {
            documents.slot_for(slot.slot, candidate): slot
            for slot in self.protocol.slots
            for candidate in owners[slot.side]
        }


def _check_headers(protocol: documents.Protocol, where: str) -> None:
    for name, table in formats.TABLES.items():
        if protocol.headers.get(name) != table.header:
            raise StateError(
                f"this release reads another {name} than the one that was frozen",
                where=where,
                why=f"frozen header: {','.join(protocol.headers.get(name, ()))}",
                hint="use the release that froze this home",
            )


def read_frozen(paths: HomePaths) -> Frozen:
    """Read the frozen documents.

    Raises:
        EvidenceError: One does not parse, or is not the one that another names by digest.
        StateError: The home was frozen with other evidence tables.
    """
    manifest_bytes, protocol_bytes = files.read_regular(paths.manifest), files.read_regular(paths.protocol)
    manifest = documents.Manifest.parse(manifest_bytes, where=str(paths.manifest))
    protocol = documents.Protocol.parse(protocol_bytes, where=str(paths.protocol))
    protocol_sha256 = files.sha256_bytes(protocol_bytes)
    if protocol_sha256 != manifest.protocol_sha256:
        what = f"its SHA-256 is {protocol_sha256}, manifest.json says {manifest.protocol_sha256}"
        raise EvidenceError("not the protocol that was frozen", where=str(paths.protocol), why=what)
    _check_headers(protocol, str(paths.protocol))
    manifest_sha256 = files.sha256_bytes(manifest_bytes)
    return Frozen(
        manifest=manifest,
        manifest_sha256=manifest_sha256,
        protocol=protocol,
        protocol_sha256=protocol_sha256,
        candidates=_read_candidates(paths, manifest_sha256),
    )


def _read_candidates(paths: HomePaths, manifest_sha256: str) -> dict[str, documents.CandidateManifest]:
    if not paths.candidates.is_dir():
        return {}
    found: dict[str, documents.CandidateManifest] = {}
    for folder in sorted(paths.candidates.iterdir()):
        where = paths.candidate(folder.name).manifest
        if folder.name.startswith(".") or not where.exists():
            continue  # a candidate under construction, or one that a killed freeze left: it was never frozen
        candidate = documents.CandidateManifest.parse(files.read_regular(where), where=str(where))
        if candidate.id != folder.name or candidate.manifest_sha256 != manifest_sha256:
            raise EvidenceError("names another candidate or another campaign", where=str(where))
        found[candidate.id] = candidate
    return found
