"""The registry of freezes: which campaigns and candidates this user's machines know against one baseline.

An append-only file of JSON lines outside every home. Chance helps whoever tries often, so a report lists all that was
tried; what nobody registered it cannot list. Nothing decides by it: what cannot be written or read is a remark.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from campaign import documents, files
from campaign.errors import CampaignError
from campaign.frozen import Frozen
from campaign.paths import HomePaths
from campaign.record.ledger import parse_entries, reported_outcomes
from campaign.record.lines import append_once, parse_lines

VARIABLE = "CAMPAIGN_REGISTRY"
_NO_PLACE = f"neither {VARIABLE} nor XDG_STATE_HOME nor HOME names a folder"


class Record(documents.Document):
    """One line: a baseline or a candidate was frozen."""

    format: Literal["freeze/1"] = "freeze/1"
    campaign: str
    home: str
    manifest_sha256: str
    protocol_sha256: str
    baseline_sha256: str
    candidate: str
    """The candidate's id; empty for the baseline."""
    candidate_sha256: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What the file holds."""

    records: tuple[Record, ...]
    damaged_lines: int
    """Lines that are torn, or of a form that this release does not know."""


def find_registry(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the registry; None where the environment names no place for it."""
    if named := environment.get(VARIABLE):
        return Path(named).absolute()
    state = environment.get("XDG_STATE_HOME", "")
    if not Path(state).is_absolute():  # the specification of such folders says to ignore what is relative
        home = environment.get("HOME", "")
        if not Path(home).is_absolute():
            return None
        state = str(Path(home, ".local", "state"))
    return Path(state, "campaign", "registry.jsonl")


# --- writing ----------------------------------------------------------------------------------------------------------


def register(paths: HomePaths, candidate: str, environment: Mapping[str, str], clock: Callable[[], float]) -> str:
    """Append what was frozen, unless it is there already.

    Args:
        paths: The home.
        candidate: The candidate's id; empty for the baseline.
        environment: The driver's environment.
        clock: Returns the seconds since the epoch.

    Returns:
        Why it could not be written; empty if it was.
    """
    path = find_registry(environment)
    if path is None:
        return _unregistered(_NO_PLACE)
    try:
        append_once(path, _record(paths, candidate, at=clock()))
    except OSError as error:
        return _unregistered(f"{path}: {error.strerror or error}")
    except CampaignError as error:
        return _unregistered(f"{path}: {error}")
    return ""


def _unregistered(why: str) -> str:
    return f"not noted in the registry of freezes ({why}): reports of other campaigns will not know of this one"


def _record(paths: HomePaths, candidate: str, *, at: float) -> Record:
    manifest = documents.Manifest.read(paths.manifest)
    theirs = documents.CandidateManifest.read(paths.candidate(candidate).manifest) if candidate else None
    return Record(
        campaign=manifest.campaign,
        home=_home_text(paths),
        manifest_sha256=files.sha256_file(paths.manifest),
        protocol_sha256=manifest.protocol_sha256,
        baseline_sha256=manifest.baseline.snapshot_sha256,
        candidate=candidate,
        candidate_sha256=theirs.candidate.snapshot_sha256 if theirs else "",
        at=at,
    )


def _home_text(paths: HomePaths) -> str:
    return os.fsencode(paths.root.resolve()).decode("utf-8", "replace")


# --- reading ----------------------------------------------------------------------------------------------------------


def read_registry(path: Path) -> Contents:
    """Read the registry; one that is not there is empty.

    Raises:
        CampaignError: It cannot be read.
    """
    records, damaged_lines = parse_lines(files.read_if_there(path) or b"", Record)
    return Contents(records=tuple(records), damaged_lines=damaged_lines)


def known_against(
    paths: HomePaths, frozen: Frozen, own: Iterable[str], environment: Mapping[str, str]
) -> documents.RegistryState:
    """Return every other campaign and candidate that is known against the same baseline snapshot.

    Args:
        paths: This home.
        frozen: What is frozen in it.
        own: The candidates of this home, which its ledger tells of.
        environment: The driver's environment.
    """
    path = find_registry(environment)
    if path is None:
        return documents.RegistryState(path="", problem=_NO_PLACE)
    try:
        contents = read_registry(path)
    except CampaignError as error:
        return documents.RegistryState(path=str(path), problem=f"{path}: {error}")
    baseline = frozen.manifest.baseline.snapshot_sha256
    records = [record for record in contents.records if record.baseline_sha256 == baseline]
    here = {(frozen.manifest_sha256, name) for name in ("", *own)}
    others = {
        key: other for key, other in _others(records).items() if key not in here and _says_something(key, records)
    }
    return documents.RegistryState(
        path=str(path),
        damaged_lines=contents.damaged_lines,
        others=tuple(
            sorted(
                [*others.values(), *_diverged(paths, [one for one in records if _key(one) in here])],
                key=lambda other: (other.at, other.manifest_sha256, other.candidate, other.home),
            )
        ),
    )


_Key = tuple[str, str]
"""The freeze, by its manifest, and the candidate: a home that was moved or copied is the same campaign."""


def _key(record: Record) -> _Key:
    return record.manifest_sha256, record.candidate


def _diverged(paths: HomePaths, records: Iterable[Record]) -> list[documents.RegisteredFreeze]:
    """Return the candidates of this home in copies of it that have gone their own way: each is another try.

    A copy that was only kept has nothing that this home has not, or this home nothing that it has not.
    """
    own = files.read_if_there(paths.ledger) or b""
    here = _home_text(paths)
    found: dict[tuple[str, str], documents.RegisteredFreeze] = {}
    for record in records:
        if not record.candidate or record.home == here:
            continue
        told = _told(record, _look(record.home, record.manifest_sha256, record.protocol_sha256))
        with contextlib.suppress(CampaignError):
            theirs = files.read_if_there(HomePaths(Path(record.home)).ledger) or b""
            if told.state == "read" and not (own.startswith(theirs) or theirs.startswith(own)):
                found[record.home, record.candidate] = told
    return list(found.values())


def _says_something(key: _Key, records: Sequence[Record]) -> bool:
    """Return whether a record is more than that of a baseline whose candidates are listed themselves."""
    manifest_sha256, candidate = key
    return bool(candidate) or not any(own.candidate for own in records if own.manifest_sha256 == manifest_sha256)


def _others(records: Sequence[Record]) -> dict[_Key, documents.RegisteredFreeze]:
    homes = {(record.home, record.manifest_sha256, record.protocol_sha256) for record in records}
    seen = {home: _look(*home) for home in homes}
    found: dict[_Key, documents.RegisteredFreeze] = {}
    for record in records:
        seen_home = seen[record.home, record.manifest_sha256, record.protocol_sha256]
        told = _told(record, seen_home)
        key = _key(record)
        # Of several copies of a home the one that can be read tells more, and one with an outcome most.
        if key not in found or _knowledge(told) > _knowledge(found[key]):
            found[key] = told
    return found


def _knowledge(told: documents.RegisteredFreeze) -> int:
    return (told.state == "read") + (told.outcome is not None)


def _told(record: Record, home: _Home) -> documents.RegisteredFreeze:
    return documents.RegisteredFreeze(
        campaign=record.campaign,
        home=record.home,
        manifest_sha256=record.manifest_sha256,
        protocol_sha256=record.protocol_sha256,
        candidate=record.candidate,
        candidate_sha256=record.candidate_sha256,
        at=record.at,
        state=home.state,
        outcome=home.outcomes.get(record.candidate),
        recipes=home.recipes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    """What another home says now."""

    state: Literal["read", "unreadable", "replaced"]
    outcomes: Mapping[str, str]
    """Of the last report on each candidate."""
    recipes: tuple[documents.RegisteredRecipe, ...] = ()


def _look(home: str, manifest_sha256: str, protocol_sha256: str) -> _Home:
    """Read another home as far as it can be read; it is somebody else's, and nothing is locked or changed in it."""
    paths = HomePaths(Path(home))
    try:
        if files.sha256_regular(paths.manifest) != manifest_sha256:
            return _Home(state="replaced", outcomes={})
        raw = files.read_regular(paths.protocol)
        if files.sha256_bytes(raw) != protocol_sha256:
            return _Home(state="replaced", outcomes={})
        protocol = documents.Protocol.parse(raw, where=str(paths.protocol))
        outcomes = reported_outcomes(parse_entries(files.read_regular(paths.ledger), where=str(paths.ledger)))
    except (CampaignError, OSError, ValueError, KeyError):
        return _Home(state="unreadable", outcomes={})
    rules = protocol.convergence if "convergence" in protocol.families else None
    recipes = rules.recipes if rules else ()
    return _Home(
        state="read",
        outcomes=outcomes,
        recipes=tuple(documents.RegisteredRecipe(name=own.name, config_sha256=own.config_sha256) for own in recipes),
    )
