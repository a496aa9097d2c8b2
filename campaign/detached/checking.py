"""Whether what came back of a bundle is what its own harness sealed: every file claimed, every receipt right.

It is looked at where it was staged, with the rules of collection, so that nothing enters a home that a collection would
refuse. What is wrong is said all at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from campaign import documents, files
from campaign.collection import chains, runs
from campaign.collection.checkpoints import check_files, read_checkpoints
from campaign.collection.interpreters import Sealed, check_interpreters
from campaign.collection.left import LeftBehind
from campaign.collection.sealed import Finding, check_job
from campaign.collection.tries import Plans, Try, read_try
from campaign.detached.results import Listing
from campaign.errors import EvidenceError
from campaign.frozen import Frozen
from campaign.keys import AttemptKey
from campaign.paths import INPUTS, AllocationPaths, AttemptPaths, HomePaths
from campaign.submission import acts

_INPUT = re.compile(r"([0-9a-f]{64})\.(json|safetensors)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What came back, staged in a folder that is laid out as the home is."""

    paths: HomePaths
    """Where it is staged."""
    files: Listing
    left: Listing
    submission: acts.Submission
    bundle: str
    """Its id."""

    def name(self, path: Path) -> str:
        """Return the path in the home of a path of the staging folder."""
        return path.relative_to(self.paths.root).as_posix()

    def holds(self, path: Path) -> bool:
        """Return whether a path of the staging folder came back."""
        return self.name(path) in self.files

    def below(self, folder: Path) -> dict[str, str]:
        """Return what came back, or was left, below a folder: paths in the home by paths in the folder."""
        prefix = f"{self.name(folder)}/"
        return {path.removeprefix(prefix): path for path in (*self.files, *self.left) if path.startswith(prefix)}


@dataclass(slots=True, kw_only=True)
class Checked:
    """What was found; `findings` is empty where all of it may be taken."""

    receipts: dict[str, str] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    records: dict[str, str] = field(default_factory=dict)
    left: dict[str, tuple[str, int]] = field(default_factory=dict)
    """What stayed on the machine of that which receipts and lists name."""
    findings: list[Finding] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)
    """Paths in the home that belong to something."""
    tries: list[Try] = field(default_factory=list)

    def wrong(self, where: str, what: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(where=where, what=what))


def check_staged(
    staged: Staged, frozen: Frozen, history: acts.History, entries: tuple[documents.Entry, ...], home: HomePaths
) -> Checked:
    """Check everything that came back.

    Args:
        staged: What came back. Beside it every allocation.json of the bundle is there.
        frozen: The frozen documents.
        history: What the ledger says.
        entries: The ledger's.
        home: The home, whose receipts say on what interpreters its sides ran.
    """
    checked = Checked()
    for planned in staged.submission.intent.allocations:
        _check_allocation(staged, planned, checked)
    plans = _plans(staged, frozen, history, entries, checked)
    for planned in staged.submission.intent.allocations:
        for one in planned.attempts:
            _check_attempt(staged, plans, history.attempt(AttemptKey(one.slot, one.attempt, one.segment)), checked)
    _check_inputs(staged, checked, home)
    _check_claims(staged, checked)
    if not checked.findings:
        checked.findings += check_interpreters(_sealed(staged, checked, history, home), entries)
    return checked


# --- allocations ------------------------------------------------------------------------------------------------------


def _check_allocation(staged: Staged, planned: acts.IntendedAllocation, checked: Checked) -> None:
    """Check what the harness says of one allocation, and find out which of its attempts were begun."""
    folder = staged.paths.allocation(planned.allocation)
    there = staged.below(folder.root)
    begun = [one for one in planned.attempts if staged.holds(_attempt(staged, one).start)]
    sealed = [one for one in planned.attempts if staged.holds(_attempt(staged, one).receipt)]
    if not there and not begun and not sealed:
        return
    try:
        calls = _check_calls(staged, folder, planned.allocation, checked)
        receipts = {_name(one): staged.files[staged.name(_attempt(staged, one).receipt)][0] for one in sealed}
        if staged.holds(folder.ended):
            _check_ended(folder, planned, receipts, checked)
        _check_called(folder, calls, receipts, checked)
    except EvidenceError as error:
        checked.wrong(error.where, error.what)
        return
    checked.receipts |= receipts
    checked.begun += [_name(one) for one in begun if _name(one) not in receipts]
    own = (folder.started, folder.ended, *_call_paths(folder, len(calls)))
    for name in map(staged.name, filter(staged.holds, own)):
        checked.records[name] = staged.files[name][0]
    checked.claimed |= {staged.name(path) for path in (*own, folder.log)}


def _attempt(staged: Staged, one: acts.IntendedAttempt) -> AttemptPaths:
    return staged.paths.attempt(one.slot, one.attempt, one.segment)


def _name(one: acts.IntendedAttempt) -> str:
    return AttemptKey(one.slot, one.attempt, one.segment).receipt_name


def _call_paths(folder: AllocationPaths, number: int) -> Iterator[Path]:
    for each in range(1, number + 1):
        yield folder.call(each)
        yield folder.call_ended(each)


def _check_calls(
    staged: Staged, folder: AllocationPaths, allocation: str, checked: Checked
) -> list[documents.CallEnded | None]:
    """Return how each command left the allocation, in order; None for one that was killed.

    Raises:
        EvidenceError: Nobody began it, or somebody else, elsewhere.
    """
    started = documents.Started.read(folder.started)
    job = documents.JobIdentity(
        scheduler="detached", cluster="", job_id=staged.bundle, array_job_id="", array_task_id="", restart_count=0
    )
    if (started.allocation, started.job) != (allocation, job):
        raise EvidenceError(f"is not of {allocation} in bundle {staged.bundle}", where=str(folder.started))
    found: list[documents.CallEnded | None] = []
    while staged.holds(folder.call(len(found) + 1)):
        number = len(found) + 1
        call = documents.Call.read(folder.call(number))
        if (call.allocation, call.bundle, call.number) != (allocation, staged.bundle, number):
            checked.wrong(str(folder.call(number)), f"is not the {number}. call of {allocation} in this bundle")
        if (call.host, call.boot_id) != (started.host, started.boot_id):
            what = f"was made on {call.host} in boot {call.boot_id}, the allocation began on {started.host} in boot "
            checked.wrong(str(folder.call(number)), f"{what}{started.boot_id}: an allocation is one machine")
        ended = documents.CallEnded.read(folder.call_ended(number)) if staged.holds(folder.call_ended(number)) else None
        if ended is not None and (ended.allocation, ended.number) != (allocation, number):
            checked.wrong(str(folder.call_ended(number)), f"is not of the {number}. call of {allocation}")
        found.append(ended)
    if not found:
        raise EvidenceError("no call of the allocation is there", where=str(folder.call(1)))
    return found


def _check_ended(
    folder: AllocationPaths, planned: acts.IntendedAllocation, receipts: Mapping[str, str], checked: Checked
) -> None:
    ended = documents.Ended.read(folder.ended)
    if ended.allocation != planned.allocation:
        raise EvidenceError(f"is that of allocation {ended.allocation}", where=str(folder.ended))
    for name in sorted({*ended.receipts, *receipts}):
        if contradiction := ended.contradiction(name, receipts.get(name, "")):
            checked.wrong(str(folder.ended), f"{name}: {contradiction}")


def _check_called(
    folder: AllocationPaths, calls: list[documents.CallEnded | None], receipts: Mapping[str, str], checked: Checked
) -> None:
    """Hold the receipts to what the calls say that they wrote; only one that was killed says nothing."""
    written: dict[str, str] = {}
    for number, call in enumerate(calls, start=1):
        for name, sha256 in ({} if call is None else call.receipts).items():
            written[name] = sha256
            if receipts.get(name) != sha256:
                now = f"there is one with SHA-256 {receipts[name]}" if name in receipts else "there is none"
                what = f"it wrote a receipt of {name} with SHA-256 {sha256}; {now}"
                checked.wrong(str(folder.call_ended(number)), what)
    if None not in calls:
        for name in sorted(set(receipts) - set(written)):
            checked.wrong(str(folder.calls), f"no call wrote the receipt of {name}: somebody else put it there")


# --- attempts ---------------------------------------------------------------------------------------------------------


def _plans(
    staged: Staged, frozen: Frozen, history: acts.History, entries: tuple[documents.Entry, ...], checked: Checked
) -> Plans:
    """Return what was asked for, as if what was staged were in the home and the ledger said so."""
    as_if = acts.Ingested(
        submission=staged.submission.key,
        bundle=staged.bundle,
        receipts=checked.receipts,
        begun=tuple(checked.begun),
        records={},
        left={},
        complete=False,
        source_sha256="",
    )
    return Plans(
        paths=staged.paths,
        frozen=frozen,
        # What came back before may be missing in a copy that is older: it is in the home.
        history=replace(history, sealed={}, ingested={staged.submission.key: as_if}),
        slots=frozen.slots(),
        planned_at={name: entry.at for name, entry in acts.first_intents(entries).items()},
        known={},
        left=LeftBehind(root=staged.paths.root, files=staged.left),
    )


def _check_attempt(staged: Staged, plans: Plans, attempt: acts.Attempt, checked: Checked) -> None:
    folder = staged.paths.attempt(attempt.slot, attempt.attempt, attempt.segment)
    there = staged.below(folder.root)
    name = attempt.key.receipt_name
    if not there or (name not in checked.receipts and name not in checked.begun):
        return  # what is there nobody claims
    try:
        # Without the ledger's word on how it ended: here its files speak alone.
        one = read_try(plans, replace(attempt, ended=None))
        checked.findings += one.findings
        if one.sealed is None and not one.findings:
            _check_begun(plans, attempt, checked)
        listed = _check_run(plans, one, checked)
    except EvidenceError as error:
        checked.wrong(error.where, "; ".join(filter(None, [error.what, error.why])))
        return
    except OSError as error:
        checked.wrong(str(error.filename or folder.root), f"cannot be looked at: {error.strerror}")
        return
    checked.tries.append(one)
    is_sealed = one.sealed is not None
    own = {path: inner for inner, path in there.items() if is_sealed or _is_of_begun(inner, attempt)}
    checked.claimed |= set(own)
    listed |= {each.name for each in one.sealed.receipt.files} if one.sealed is not None else set()
    for path, inner in own.items():
        if path in staged.left and inner in listed:
            checked.left[path] = staged.left[path]
        elif path in staged.left and is_sealed:
            checked.wrong(path, "said to have been left behind, and nothing of its attempt lists it")


def _check_begun(plans: Plans, attempt: acts.Attempt, checked: Checked) -> None:
    """Check the start record of an attempt without a receipt."""
    folder, place = plans.paths.attempt(attempt.slot, attempt.attempt, attempt.segment), plans.place(attempt.allocation)
    start = documents.Start.read(folder.start)
    said = (AttemptKey(start.slot, start.attempt, start.segment), start.allocation, start.manifest_sha256)
    if said != (attempt.key, attempt.allocation, plans.frozen.manifest_sha256):
        checked.wrong(str(folder.start), f"is not that of {attempt.key.text} in {attempt.allocation}")
    checked.findings += check_job(start, place)


def _is_of_begun(inner: str, attempt: acts.Attempt) -> bool:
    """Return whether a path in the folder of an attempt without a receipt is one that a harness may have left."""
    first, _, rest = inner.partition("/")
    return not rest or (attempt.segment > 0 and first == "checkpoints")


def _check_run(plans: Plans, one: Try, checked: Checked) -> set[str]:
    """Check the checkpoints of a segment of a run; return what they list, by path in the segment's folder."""
    rules = plans.frozen.protocol.convergence
    if not one.key.segment or one.findings or rules is None:
        return set()
    slot = plans.slot(one.attempt)
    recipe = plans.frozen.protocol.recipe(slot.workload)
    if recipe is None:
        return set()  # said already: the plan is not the protocol's
    saved, faults = read_checkpoints(one.folder, chains.owner_of(plans.frozen, recipe, slot, one.attempt), plans.left)
    checked.findings += faults
    found, _ = check_files([file for each in saved.values() for file in each.files], {})
    checked.findings += found
    if one.sealed is not None and not faults:
        checked.findings += runs.check_listed(one.sealed.receipt.run, saved, one.folder)
    folders = ((one.folder.checkpoint(update).files, each.document) for update, each in saved.items())
    return {
        (folder / file.name).relative_to(one.folder.root).as_posix()
        for folder, document in folders
        for file in document.files
    }


# --- inputs, and what nobody claims -----------------------------------------------------------------------------------


def _made_again(staged: Staged, home: HomePaths) -> Iterator[tuple[bytes, str]]:
    """Yield the lists of canonical inputs that cases of the bundle need: what was not in it was made again there.

    Raises:
        EvidenceError: A list is not there.
    """
    attempts = [one for planned in staged.submission.intent.allocations for one in planned.attempts]
    for sha256 in dict.fromkeys(one.inputs_sha256 for one in attempts if one.inputs_sha256):
        path = home.inputs_listing(sha256)
        yield files.read_regular(path), str(path)


def _check_inputs(staged: Staged, checked: Checked, home: HomePaths) -> None:
    """Claim the canonical inputs that pilots recorded or cases needed; a pilot that was killed may leave no list."""
    folder = staged.paths.inputs
    there, wanted = staged.below(folder), dict[str, int | None]()
    lists = list(_made_again(staged, home)) if there else []
    for one in checked.tries:
        if one.sealed is not None and INPUTS in one.sealed.kept:
            lists.append((one.sealed.kept[INPUTS], str(one.folder.inputs)))
    for data, where in lists:
        wanted[f"{files.sha256_bytes(data)}.json"] = None
        listed = documents.Inputs.parse(data, where=where).files
        wanted |= {f"{sha256}.safetensors": num_bytes for sha256, num_bytes in listed.items()}
    is_open = any(one.sealed is None and "/pilot/" in one.key.slot for one in checked.tries)
    for name, path in there.items():
        sha256, num_bytes = staged.left.get(path) or staged.files[path]
        if name not in wanted and not (is_open and path in staged.files and _INPUT.fullmatch(name)):
            continue
        checked.claimed.add(path)
        if name.partition(".")[0] != sha256:
            checked.wrong(path, f"its SHA-256 is {sha256}: it was changed")
        elif wanted.get(name) not in (None, num_bytes):
            checked.wrong(path, f"{num_bytes} bytes, the pilot listed {wanted[name]}")
        elif path in staged.left:
            checked.left[path] = staged.left[path]


def _check_claims(staged: Staged, checked: Checked) -> None:
    for path in sorted({*staged.files, *staged.left} - checked.claimed):
        checked.wrong(path, "nothing that the bundle was written for leaves this: added")


def _sealed(staged: Staged, checked: Checked, history: acts.History, home: HomePaths) -> Iterator[Sealed]:
    """Yield every receipt that there will be: those in the home, and those that came back."""
    fresh = {one.key for one in checked.tries}
    for name in history.sealed:
        key = AttemptKey.parse(name)
        path = home.attempt(key.slot, key.attempt, key.segment).receipt
        data = files.read_if_there(path)
        if key in fresh or data is None:
            continue
        receipt = documents.Receipt.parse_again(data)
        yield Sealed(where=str(path), owner=key.slot.partition("/")[0], allocation=receipt.allocation, receipt=receipt)
    for one in checked.tries:
        if one.sealed is not None:
            yield Sealed(
                where=staged.name(one.folder.receipt),
                owner=one.key.slot.partition("/")[0],
                allocation=one.attempt.allocation,
                receipt=one.sealed.receipt,
            )
