"""What was frozen, read together and checked against its own digests: the manifest, the protocol and the candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    candidates_sha256: Mapping[str, str]
    """Digest of each one's manifest."""

    def sides(self) -> dict[str, documents.Side]:
        """Return the frozen sides, ``baseline`` and the candidates by their ids."""
        return {"baseline": self.manifest.baseline, **{name: one.candidate for name, one in self.candidates.items()}}

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
    candidates = _read_candidates(paths, manifest_sha256)
    return Frozen(
        manifest=manifest,
        manifest_sha256=manifest_sha256,
        protocol=protocol,
        protocol_sha256=protocol_sha256,
        candidates={name: candidate for name, (candidate, _) in candidates.items()},
        candidates_sha256={name: digest for name, (_, digest) in candidates.items()},
    )


def _read_candidates(paths: HomePaths, manifest_sha256: str) -> dict[str, tuple[documents.CandidateManifest, str]]:
    """Return each candidate's manifest and its digest."""
    if not paths.candidates.is_dir():
        return {}
    found: dict[str, tuple[documents.CandidateManifest, str]] = {}
    for folder in sorted(paths.candidates.iterdir()):
        where = paths.candidate(folder.name).manifest
        if folder.name.startswith(".") or not where.exists():
            continue  # a candidate under construction, or one that a killed freeze left: it was never frozen
        data = files.read_regular(where)
        candidate = documents.CandidateManifest.parse(data, where=str(where))
        if candidate.id != folder.name or candidate.manifest_sha256 != manifest_sha256:
            raise EvidenceError("names another candidate or another campaign", where=str(where))
        found[candidate.id] = (candidate, files.sha256_bytes(data))
    return found


# --- the ledger's word ------------------------------------------------------------------------------------------------


def check_recorded(paths: HomePaths, frozen: Frozen, entries: Iterable[documents.Entry]) -> None:
    """Hold the frozen documents to what the ledger recorded when they were frozen.

    The manifest names the protocol, the programs and the baseline by digest, and a candidate's manifest its side; so
    the manifests' digests alone tie all of them to the chain. A candidate that the ledger does not name was never
    frozen: nothing can be submitted for it or reported on it.

    Raises:
        EvidenceError: A manifest is not the one that the ledger names, or the ledger names more than one.
    """
    acts = list(entries)
    _check_baseline(paths, frozen, [entry for entry in acts if entry.act == "froze_baseline"])
    first: dict[str, documents.Entry] = {}
    for entry in acts:
        if entry.act == "froze_candidate":
            name = str(entry.data.get("candidate"))
            known = first.setdefault(name, entry)
            if _named_digest(known) != _named_digest(entry):
                raise _named_twice(paths, name, known, entry)
    for name, entry in first.items():
        found = frozen.candidates_sha256.get(name)
        _check_digest(str(paths.candidate(name).manifest), found, entry)


def _check_baseline(paths: HomePaths, frozen: Frozen, acts: list[documents.Entry]) -> None:
    if not acts:
        raise EvidenceError(
            "the ledger does not say when this was frozen",
            where=str(paths.ledger),
            why="it was removed, cut or replaced, or the freeze was killed just before its end",
            hint="restore it; or repeat campaign freeze, which completes a freeze that was killed",
        )
    if len(acts) > 1:
        raise _named_twice(paths, "the baseline", *acts[:2])
    _check_digest(str(paths.manifest), frozen.manifest_sha256, acts[0])


def _named_digest(entry: documents.Entry) -> str:
    return str(entry.data.get("manifest_sha256", "none"))


def _named_twice(paths: HomePaths, what: str, first: documents.Entry, second: documents.Entry) -> EvidenceError:
    return EvidenceError(
        f"the ledger says twice that {what} was frozen",
        where=f"{paths.ledger}:{second.seq}",
        why=f"entry {first.seq} names {_named_digest(first)}, entry {second.seq} names {_named_digest(second)}",
        hint="restore the ledger from a copy of the home",
    )


def _check_digest(where: str, found: str | None, entry: documents.Entry) -> None:
    if found == _named_digest(entry):
        return
    state = f"its SHA-256 is {found}" if found is not None else "it is gone"
    raise EvidenceError(
        "not the manifest that the ledger names",
        where=where,
        why=f"{state}, entry {entry.seq} of the ledger says {_named_digest(entry)}",
        hint="restore it from a copy of the home; to change a rule, freeze a new campaign",
    )
