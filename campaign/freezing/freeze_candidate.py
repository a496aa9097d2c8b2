"""Freezes candidates into a home that has a baseline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from acceptance.formats import Ending
from campaign import documents, files
from campaign.collection.collect import collect, require_intact
from campaign.config.load import differing_tables, parse_config
from campaign.config.model import Config
from campaign.errors import EvidenceError, StateError
from campaign.freezing import machine
from campaign.freezing.freeze import Freezing, Result, driver_facts, lost_ledger, make_read_only, with_note
from campaign.freezing.sides import FrozenSide, Progress, freeze_side, no_progress
from campaign.freezing.staging import publish_candidate, staging
from campaign.frozen import Frozen, check_recorded, read_frozen
from campaign.paths import HomePaths
from campaign.record.ledger import Ledger, read_entries, require_open

_TELLING_FIELDS = (
    "snapshot_sha256",
    "adapter",
    "python",
    "python_path",
    "environment",
    "pass_environment",
    "launch",
    "container",
    "reads",
    "lockfile",
    "distributions",
)
"""Fields of a side that make it another candidate; the repository's state does not when the bytes are the same."""


def read_frozen_config(paths: HomePaths, manifest: documents.Manifest) -> Config:
    """Read the configuration that was frozen; its relative paths mean what they meant then.

    Raises:
        EvidenceError: It is not the one that was frozen.
    """
    raw = paths.config.read_bytes()
    if files.sha256_bytes(raw) != manifest.config_sha256:
        raise EvidenceError("not the configuration that was frozen", where=str(paths.config))
    return parse_config(raw, path=Path(str(manifest.driver["config"])))


def read_configuration(paths: HomePaths) -> Config:
    """Read the frozen configuration of a home, for a candidate that it already describes.

    Raises:
        EvidenceError: What was frozen is not what the ledger names.
    """
    frozen = read_frozen(paths)
    check_recorded(paths, frozen, read_entries(paths))
    return read_frozen_config(paths, frozen.manifest)


def freeze_candidate(
    config: Config,
    paths: HomePaths,
    *,
    source: Path | None = None,
    clock: Callable[[], float],
    progress: Progress = no_progress,
) -> Result:
    """Freeze a candidate into a home that has a baseline.

    Args:
        config: The configuration that is read now; only its ``[candidate]`` may differ from the frozen one.
        paths: The home.
        source: The candidate's source tree, if not the one that the configuration names.
        clock: Returns the seconds since the epoch.
        progress: Called with the bytes copied so far and in all.

    Raises:
        ConfigError: Another table differs, or something cannot be frozen.
        StateError: The baseline comes first, there is another candidate of the same tree, or the campaign is closed.
        EvidenceError: What was frozen or collected is not what it was.
    """
    if not paths.manifest.exists():
        raise StateError(
            "no baseline is frozen here", where=str(paths.root), hint="campaign freeze CONFIG --home DIR comes first"
        )
    with Ledger.open(paths, clock) as ledger:
        frozen = read_frozen(paths)
        check_recorded(paths, frozen, ledger.entries)
        require_open(paths, ledger.entries, "no candidate can be frozen into it")
        _require_same_tables(read_frozen_config(paths, frozen.manifest), config)
        _require_baseline_evidence(paths, frozen.protocol, ledger)
        work = Freezing(config=config, paths=paths, ledger=ledger, progress=progress)
        return _freeze_candidate(work, frozen, source)


def _freeze_candidate(work: Freezing, frozen: Frozen, source: Path | None) -> Result:
    was_interrupted = work.paths.staging.is_dir()
    with staging(work.paths) as staged:
        side = _stage_candidate(work, staged.home, source)
        manifest = documents.CandidateManifest(
            id=f"c{side.snapshot.sha256[:12]}",
            manifest_sha256=frozen.manifest_sha256,
            config_sha256=files.sha256_bytes(work.config.raw),
            candidate=side.side,
            left_out=side.snapshot.left_out,
            driver=driver_facts(work.config, {"candidate": side}),
            machine=machine.read_machine_facts(),
        )
        known = frozen.candidates.get(manifest.id)
        if known is not None:
            _require_same_candidate(work.paths, known, side.side)
            return _freeze_again(work, known, side, was_interrupted=was_interrupted)
        unnamed = staged.home.unnamed_candidate
        unnamed.manifest.write_bytes(manifest.to_bytes())
        make_read_only(unnamed.manifest, unnamed.listing, unnamed.patch)
        publish_candidate(staged, work.paths, manifest.id)
        _record_candidate(work, manifest)
    return _result(work.paths, manifest, side, is_new=True)


def _freeze_again(
    work: Freezing, known: documents.CandidateManifest, side: FrozenSide, *, was_interrupted: bool
) -> Result:
    """Do nothing for a candidate that is frozen already, but record a freeze that was killed before its act."""
    if _is_recorded(work.ledger, known.id):
        return _result(work.paths, known, side, is_new=False)
    if not was_interrupted:
        raise lost_ledger(work.paths)
    _record_candidate(work, known)
    return with_note(_result(work.paths, known, side, is_new=True), "completed an interrupted freeze")


def _stage_candidate(work: Freezing, staged: HomePaths, source: Path | None) -> FrozenSide:
    table = work.config.candidate
    if table is None:
        raise work.config.error((), "there is no [candidate]", hint="add it, as [baseline] but for what differs")
    if source is not None:
        table = table.model_copy(update={"source": source.resolve()})
    staged.candidates.mkdir(parents=True)
    return freeze_side(
        work.config,
        "candidate",
        table,
        staged.unnamed_candidate,
        home=work.paths,
        identifier=work.paths.identifier,
        progress=work.progress,
    )


def _is_recorded(ledger: Ledger, name: str) -> bool:
    return any(entry.act == "froze_candidate" and entry.data.get("candidate") == name for entry in ledger.entries)


def _require_same_tables(frozen: Config, config: Config) -> None:
    differing = differing_tables(frozen, config)
    if not differing:
        return
    rest = f"; so do {', '.join(f'[{name}]' for name in differing[1:])}" if differing[1:] else ""
    raise config.error(
        (differing[0],),
        f"{differing[0]} differs from the frozen configuration{rest}",
        why="only [candidate] may change after the baseline was frozen",
        hint="undo the change, or freeze a new campaign with it",
    )


def _require_baseline_evidence(paths: HomePaths, protocol: documents.Protocol, ledger: Ledger) -> None:
    """With baseline_first, have a completed attempt of every slot of the baseline's phase in the ledger.

    It is collected here, so that the ledger tells from the order of its entries which came first. Runs of an extension
    are not waited for: whether they are needed is known only from a candidate's.
    """
    if not protocol.baseline_first:
        return
    collection = collect(paths, ledger)
    require_intact(collection)
    # Each attempt's own ending: a segment of a run that was cut has a receipt, too.
    completed = {record.key[0] for record in collection.records if record.ending == Ending.COMPLETED}
    later = protocol.extension_runs()
    slots = [slot.slot for slot in protocol.slots if slot.phase == "baseline" and slot.slot not in later]
    missing = [slot for slot in slots if slot not in completed]
    if missing:
        raise StateError(
            f"{len(missing)} of {len(slots)} baseline slots are not completed, {missing[0]} first",
            where=str(paths.root),
            why="baseline_first is true: a candidate comes only after the baseline's evidence",
            hint=f"campaign submit --phase baseline --home {paths.root}",
        )


def _require_same_candidate(paths: HomePaths, known: documents.CandidateManifest, side: documents.Side) -> None:
    """Refuse a second candidate with the tree, and so the id, of a first one that otherwise differs."""
    differing = [name for name in _TELLING_FIELDS if getattr(known.candidate, name) != getattr(side, name)]
    if differing:
        raise StateError(
            f"the candidate {known.id} has the same tree but another {' and '.join(differing)}",
            where=str(paths.candidate(known.id).manifest),
            why="a candidate's id is its tree's digest, so this home cannot tell the two apart",
            hint="let the trees differ (say, in the adapter's file), or freeze a new campaign for this one",
        )


def _record_candidate(work: Freezing, manifest: documents.CandidateManifest) -> None:
    work.ledger.append(
        "froze_candidate",
        {
            "candidate": manifest.id,
            "manifest_sha256": files.sha256_file(work.paths.candidate(manifest.id).manifest),
            "snapshot_sha256": manifest.candidate.snapshot_sha256,
        },
    )


def _result(paths: HomePaths, manifest: documents.CandidateManifest, side: FrozenSide, *, is_new: bool) -> Result:
    return Result(
        home=paths.root,
        id=manifest.id,
        snapshot_sha256=manifest.candidate.snapshot_sha256,
        manifest_sha256=files.sha256_file(paths.candidate(manifest.id).manifest),
        num_files=side.snapshot.num_files,
        num_bytes=side.snapshot.num_bytes,
        left_out=manifest.left_out,
        departures=(),
        notes=side.notes,
        is_new=is_new,
    )
