"""Ingesting: what came of a bundle enters its home, whole and checked or not at all.

Under the home's lock everything is copied into a staging folder, checked there by the rules of collection, moved into
place file by file, and only then named by the ledger: before that act no other command takes any of it for evidence.
One that was killed in between is given again and goes on. The same results may be ingested any number of times, and
later ones of the same bundle beside them; a file that is there already has to be the same, byte by byte.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from campaign import files
from campaign.collection.sealed import Finding, TamperedError
from campaign.detached.checking import Checked, Staged, check_staged
from campaign.detached.results import Brought, Source, opened
from campaign.documents import Bundle
from campaign.errors import EvidenceError, StateError
from campaign.freezing.staging import remove_tree
from campaign.frozen import check_recorded, read_frozen
from campaign.keys import AttemptKey
from campaign.paths import HomePaths
from campaign.record import ledger as ledgers
from campaign.submission import acts
from campaign.submission.desk import Desk, record_endings

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingestion:
    """What one ingestion did."""

    bundle: str
    num_new: int
    """Files that were not there before."""
    receipts: tuple[str, ...]
    """Names of the receipts that came for the first time."""
    lost: tuple[str, ...]
    """Attempts that were found to have been begun, or not, and to have left no receipt."""
    away: tuple[str, ...]
    """Attempts that have not come back."""
    num_left: int
    """Files that stayed on the machine."""
    left_bytes: int

    @property
    def is_complete(self) -> bool:
        """Whether nothing more can come."""
        return not self.away


def ingest(desk: Desk, path: Path) -> Ingestion:
    """Take in what came of a bundle.

    Args:
        desk: The submission desk; its home must not be locked by this process.
        path: The bundle's folder, or an archive of results.

    Raises:
        StateError: The bundle is not one of this home's, or it was abandoned, or the campaign is closed.
        EvidenceError: Something is not what the bundle's harness sealed, or not what is there already; nothing changed.
        InfrastructureError: It cannot be written; what was not there before does not count.
    """
    paths = desk.paths
    with opened(path) as source, ledgers.Ledger.open(paths, desk.clock) as ledger:
        ledgers.require_open(paths, ledger.entries, "nothing more is ingested")
        frozen = read_frozen(paths)
        check_recorded(paths, frozen, ledger.entries)
        history = acts.fold(ledger.entries)
        submission = _find(source.brought.bundle, history, frozen.manifest_sha256, str(path))
        with _staging(paths, source, submission) as staging:
            staged = Staged(
                paths=staging,
                files=source.brought.files,
                left=source.brought.left,
                submission=submission,
                bundle=source.brought.bundle.id,
            )
            checked = check_staged(staged, frozen, history, ledger.entries, paths)
            late = _find_late(history, staged, checked)
            fresh = _compare(paths, staged, checked, late)
            _require_right(checked, path, staging)
            _move(paths, staging, fresh)
            _remove_surplus(paths, staged, late)
        act = _act(paths, history, staged, checked, source.brought)
        before = history.ingested.get(submission.key)
        if act != before:
            ledger.append("ingested", act.to_json())
        lost = _settle(desk, ledger, submission)
        return _told(acts.fold(ledger.entries), act, before, lost, len(fresh))


# --- which bundle -----------------------------------------------------------------------------------------------------


def _find(bundle: Bundle, history: acts.History, manifest_sha256: str, where: str) -> acts.Submission:
    """Return the submission that a bundle is.

    Raises:
        StateError: It is none of this home's, or one that was given up.
    """
    submission = history.submissions.get(bundle.submission)
    if bundle.manifest_sha256 != manifest_sha256 or submission is None:
        raise StateError(
            f"bundle {bundle.id} is not of this home",
            where=where,
            why=f"it is submission {bundle.submission} of campaign {bundle.campaign}, which this ledger does not have",
            hint="campaign bundle ingest PATH --home HOME, with the home that wrote it",
        )
    known = submission.submitted
    if known is None or (known.cluster, known.job) != ("detached", bundle.id):
        there = f"{known.cluster} job {known.job}" if known is not None else "never handed over"
        raise StateError(
            f"bundle {bundle.id} is not one that the ledger knows",
            where=where,
            why=f"submission {bundle.submission} is {there}",
            hint="campaign status lists the bundles that are away",
        )
    if given_up := [
        one.cancelled
        for planned in submission.intent.allocations
        if (one := history.allocations[planned.allocation]).cancelled is not None
    ]:
        raise StateError(
            f"bundle {bundle.id} was abandoned, and its results count for nothing",
            where=where,
            why=given_up[0].reason if given_up[0] is not None else "",
            hint="campaign bundle write OUT plans again what is missing",
        )
    return submission


# --- staging ----------------------------------------------------------------------------------------------------------


class _staging:  # noqa: N801 - a context manager, used like a function
    """A folder with all that came back, laid out as the home is, and removed at the end whatever happened.

    Args:
        paths: The home.
        source: What came back.
        submission: Whose it is.
    """

    def __init__(self, paths: HomePaths, source: Source, submission: acts.Submission) -> None:
        self._paths, self._source, self._submission = paths, source, submission

    def __enter__(self) -> HomePaths:
        """Fill the folder and return it."""
        folder = self._paths.incoming
        with files.writing(folder):
            remove_tree(folder)
            folder.mkdir(parents=True)
        try:
            self._fill(HomePaths(folder))
        except BaseException:
            remove_tree(folder)
            raise
        return HomePaths(folder)

    def __exit__(self, *_: object) -> None:
        """Remove what was not moved out of it."""
        remove_tree(self._paths.incoming)

    def _fill(self, staging: HomePaths) -> None:
        for path in self._source.brought.files:
            target = staging.root / path
            with files.writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                if not _link_if_same(self._paths.root / path, target, self._source.brought.files[path]):
                    self._source.copy_to(path, target)
        for planned in self._submission.intent.allocations:
            plan = staging.allocation(planned.allocation).plan
            with files.writing(plan):
                plan.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._paths.allocation(planned.allocation).plan, plan)


def _link_if_same(there: Path, target: Path, listed: tuple[str, int]) -> bool:
    """Name a file of the home that is the very one that came back: it need not be copied once more."""
    try:
        if there.lstat().st_size != listed[1] or files.sha256_regular(there) != listed[0]:
            return False
        os.link(there, target, follow_symlinks=False)
    except (OSError, EvidenceError):
        return False
    return True


# --- into the home ----------------------------------------------------------------------------------------------------


def _find_late(history: acts.History, staged: Staged, checked: Checked) -> tuple[str, ...]:
    """Return the folders, with a slash, of attempts that came back without a receipt before, and have one now.

    They were copied while they ran. Once another attempt at the slot is planned such a receipt is a fault: of two
    results nobody shall choose one.
    """
    before = history.ingested.get(staged.submission.key)
    found = []
    for name in sorted({*before.begun} & {*checked.receipts} if before is not None else ()):
        key = AttemptKey.parse(name)
        folder = staged.paths.attempt(key.slot, key.attempt, key.segment)
        found.append(f"{staged.name(folder.root)}/")
        if later := [one for one in history.slots[key.slot] if one > key]:
            what = f"came back without one before, and {min(later).receipt_name} was planned since: it is too late"
            checked.wrong(str(folder.receipt), what)
    return tuple(found)


def _compare(paths: HomePaths, staged: Staged, checked: Checked, late: tuple[str, ...]) -> list[str]:
    """Return what the home does not have yet, in the order in which it is put there; note what it has otherwise.

    Args:
        paths: The home.
        staged: What came back.
        checked: Gets what is wrong.
        late: Folders of attempts of which the home has what a copy caught while they ran.
    """
    fresh = []
    logs = {staged.name(staged.paths.allocation(one.allocation).log) for one in staged.submission.intent.allocations}
    start_name = paths.attempt("any", 1, 0).start.name
    for path, (sha256, _) in staged.files.items():
        there = paths.root / path
        if not os.path.lexists(there):
            fresh.append(path)
            continue
        try:
            if _is_one_file(there, staged.paths.root / path) or files.sha256_regular(there) == sha256:
                continue
            is_longer = path in logs and _goes_on(there, staged.paths.root / path)
            is_longer |= path.startswith(late) and there.name != start_name
        except EvidenceError as error:
            checked.wrong(error.where, f"it is in the way: {error.what}")
            continue
        if is_longer:
            fresh.append(path)
        elif not (path in logs and _goes_on(staged.paths.root / path, there)):
            checked.wrong(str(there), "it is there already, and is another one than what came back now")
    last = _endings(staged)
    return sorted(fresh, key=lambda path: (path in last, path))


def _endings(staged: Staged) -> set[str]:
    """Return where each allocation of the bundle says that nothing more is made in it, by path in the home."""
    return {staged.name(staged.paths.allocation(one.allocation).ended) for one in staged.submission.intent.allocations}


def _is_one_file(there: Path, staged: Path) -> bool:
    """Return whether two names are of one file: it was hashed before it was linked, and is not hashed again."""
    return os.path.samestat(there.lstat(), staged.lstat())


def _goes_on(short: Path, long: Path) -> bool:
    """Return whether a log begins with all of another one."""
    with short.open("rb") as one, long.open("rb") as other:
        while data := one.read(_CHUNK_BYTES):
            if other.read(len(data)) != data:
                return False
    return True


def _require_right(checked: Checked, path: Path, staging: HomePaths) -> None:
    if checked.findings:
        # By their paths in the home: where they were staged nothing stays.
        prefix = f"{staging.root}/"
        found = [Finding(where=one.where.removeprefix(prefix), what=one.what) for one in checked.findings]
        raise TamperedError(
            tuple(found),
            what=f"{path}: not what the bundle's harness sealed; nothing was ingested",
            hint="bring the results again as run.py left them; what cannot be brought: campaign bundle abandon ID",
        )


def _move(paths: HomePaths, staging: HomePaths, fresh: Sequence[str]) -> None:
    """Put files where they belong; each is durable, and so is its name before the ledger speaks of any."""
    folders: set[Path] = set()
    for path in fresh:
        target = paths.root / path
        with files.writing(target):
            for parent in _missing(target.parent):
                parent.mkdir()
                folders.add(parent.parent)
            (staging.root / path).replace(target)
        folders.add(target.parent)
    for folder in sorted(folders):
        with files.writing(folder):
            files.sync_folder(folder)


def _remove_surplus(paths: HomePaths, staged: Staged, late: tuple[str, ...]) -> None:
    """Remove what a copy had caught of attempts while they ran, and what their receipts therefore do not name."""
    for folder in late:
        root = paths.root / folder
        for path in sorted(root.rglob("*")):
            name = path.relative_to(paths.root).as_posix()
            if path.is_file() and name not in staged.files and name not in staged.left:
                with files.writing(path):
                    path.unlink()


def _missing(folder: Path) -> list[Path]:
    """Return the folders that are to be made, the outermost first."""
    found = []
    while not folder.is_dir():
        found.append(folder)
        folder = folder.parent
    return found[::-1]


# --- the record -------------------------------------------------------------------------------------------------------


def _act(paths: HomePaths, history: acts.History, staged: Staged, checked: Checked, brought: Brought) -> acts.Ingested:
    """Return what the ledger is to say: all that ever came back of this bundle."""
    key = staged.submission.key
    before = history.ingested.get(key)
    receipts = {**(before.receipts if before else {}), **checked.receipts}
    begun = {*(before.begun if before else ()), *checked.begun} - set(receipts)
    records = {**(before.records if before else {}), **checked.records}
    left = {**(before.left if before else {}), **checked.left}
    act = acts.Ingested(
        submission=key,
        bundle=staged.bundle,
        receipts=dict(sorted(receipts.items())),
        begun=tuple(sorted(begun)),
        records=dict(sorted(records.items())),
        left={path: what for path, what in sorted(left.items()) if not os.path.lexists(paths.root / path)},
        complete=_endings(staged) <= set(records),
        source_sha256=brought.source_sha256,
    )
    if before is not None and act.replace(source_sha256=before.source_sha256) == before:
        return before  # an older copy, of which nothing is new, is no news
    return act


def _settle(desk: Desk, ledger: ledgers.Ledger, submission: acts.Submission) -> tuple[str, ...]:
    """Record how attempts of the bundle ended that left no receipt; return their names."""
    history = _only(acts.fold(ledger.entries), submission)
    recorded = record_endings(ledger, desk.view("", history))
    return tuple(AttemptKey(one.slot, one.attempt, one.segment).receipt_name for one in recorded)


def _only(history: acts.History, submission: acts.Submission) -> acts.History:
    """Return the history of one submission: nobody need be asked about the others."""
    names = {one.allocation for one in submission.intent.allocations}
    slots = {
        slot: own
        for slot, found in history.slots.items()
        if (own := {key: one for key, one in found.items() if one.allocation in names})
    }
    return replace(
        history,
        slots=slots,
        allocations={name: one for name, one in history.allocations.items() if name in names},
        submissions={submission.key: history.submissions[submission.key]},
    )


def _told(
    history: acts.History, act: acts.Ingested, before: acts.Ingested | None, lost: tuple[str, ...], num_new: int
) -> Ingestion:
    submission = history.submissions[act.submission]
    return Ingestion(
        bundle=act.bundle,
        num_new=num_new,
        receipts=tuple(name for name in act.receipts if before is None or name not in before.receipts),
        lost=lost,
        away=tuple(one.receipt_name for one in away(history, submission)),
        num_left=len(act.left),
        left_bytes=sum(num_bytes for _, num_bytes in act.left.values()),
    )


def away(history: acts.History, submission: acts.Submission) -> Iterator[AttemptKey]:
    """Yield the attempts of a bundle that have neither come back nor an ending."""
    for planned in submission.intent.allocations:
        for one in planned.attempts:
            key = AttemptKey(one.slot, one.attempt, one.segment)
            if key.receipt_name not in history.sealed and history.attempt(key).ended is None:
                yield key


# --- giving up --------------------------------------------------------------------------------------------------------


def abandon(desk: Desk, bundle: str, reason: str) -> tuple[str, ...]:
    """Give up what has not come back of a bundle: its attempts end cancelled, and its results are refused from then on.

    Args:
        desk: The submission desk; its home must not be locked by this process.
        bundle: The bundle's id, or its first digits.
        reason: Why, for the ledger.

    Returns:
        The attempts that ended by this.

    Raises:
        StateError: No bundle that is away is meant, or several are, or the campaign is closed.
    """
    with ledgers.Ledger.open(desk.paths, desk.clock) as ledger:
        ledgers.require_open(desk.paths, ledger.entries, "nothing of it can be abandoned")
        history = acts.fold(ledger.entries)
        submission = find_bundle(history, bundle)
        names = [one.allocation for one in submission.intent.allocations]
        fresh = [name for name in names if history.allocations[name].cancelled is None]
        if fresh and any(away(history, submission)):
            ledger.append("cancelled", acts.Cancelled(allocations=tuple(fresh), reason=reason).to_json())
        return _settle(desk, ledger, submission)


def find_bundle(history: acts.History, bundle: str) -> acts.Submission:
    """Return the submission that is a bundle, by the first digits of its id.

    Raises:
        StateError: There is none, or there are several.
    """
    known = {
        one.submitted.job: one for one in history.submissions.values() if one.submitted is not None and one.is_detached
    }
    found = [one for name, one in known.items() if bundle and name.startswith(bundle)]
    if len(found) != 1:
        raise StateError(
            f"{bundle!r} names several bundles" if found else f"no bundle {bundle!r}",
            why=f"written: {', '.join(known)}" if known else "no bundle was ever written",
            hint="campaign status lists the bundles that are away",
        )
    return found[0]
