"""Writing a bundle: what is missing as a folder, or an archive of it, for a machine that the driver does not reach.

The ledger has the bundle before it appears, so that none is anywhere that the record does not name; one that was
interrupted before leaves nothing but its intent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign import files
from campaign.detached import run
from campaign.documents import AllocationPlan, Bundle, Inputs, PlannedAttempt
from campaign.errors import EvidenceError, StateError
from campaign.keys import AttemptKey
from campaign.paths import BundlePaths, HomePaths
from campaign.planning import walltime
from campaign.record import ledger as ledgers
from campaign.submission import acts
from campaign.submission.desk import Desk, Order, Wish
from campaign.submission.plans import Batch, time_case, write_plans
from campaign.watching.observation import View

ARCHIVE = ".tar"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a bundle shall be."""

    out: Path
    """A new folder, or a new archive where the name ends in ``.tar``."""
    with_data: bool = False
    without_inputs: bool = False

    @property
    def is_archive(self) -> bool:
        """Whether an archive is asked for."""
        return self.out.suffix == ARCHIVE

    @property
    def folder(self) -> str:
        """Name of the bundle's folder, in an archive as well."""
        return self.out.name.removesuffix(ARCHIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A bundle that was written."""

    bundle: Bundle
    asked: Asked
    num_bytes: int
    """Of all files in it."""

    @property
    def place(self) -> Path:
        """Where it is."""
        return self.asked.out

    @property
    def folder(self) -> str:
        """What its folder is called, also once an archive is unpacked."""
        return self.asked.folder

    @property
    def left_out(self) -> list[str]:
        """What the machine must have, or makes again, one sentence each."""
        data = [f"data set {name}, {one.path}" for name, one in self.bundle.data.items() if not one.included]
        num = sum(not included for included in self.bundle.inputs.values())
        return [*data, *([f"the canonical inputs of {num} workload(s): they are made again there"] if num else [])]


def write_bundle(desk: Desk, wish: Wish, shown: Order, asked: Asked) -> Written:
    """Write the first submission of an order as a bundle.

    Args:
        desk: The submission desk; its home must not be locked by this process.
        wish: What was asked for.
        shown: What that amounts to.
        asked: How the bundle shall be.

    Raises:
        EvidenceError: Something that goes into it is not what was frozen or sealed.
        StateError: The place is taken, or the campaign has changed since.
        InfrastructureError: It cannot be written.
    """
    _check_place(desk.paths, asked.out)
    (batch, *_) = shown.all
    if not asked.without_inputs:
        desk.check_inputs([batch])
    with (
        files.writing(asked.out),
        _staging(asked) as stage,
        ledgers.Ledger.open(desk.paths, desk.clock) as ledger,
    ):
        desk.check_frozen()
        view = desk.view(wish.candidate, acts.fold(ledger.entries))
        if desk.order(wish, view, 1).all != shown.all:
            raise StateError("the campaign has changed since the plan was made", hint="campaign bundle write OUT")
        ledger.append("intent", desk.intent(batch).to_json())
        with _giving_up(ledger, batch):
            write_plans(desk.frozen, desk.paths, batch)
            _fill(stage, desk, batch, asked)
            bundle = _describe(stage, desk, view, batch, asked)
            files.write_new(BundlePaths(stage.root).document, bundle.to_bytes())
            ready = _packed(stage, bundle, asked) if asked.is_archive else stage.root
            files.sync_file_system(stage.root)
        ledger.append("submitted", _submitted(desk, batch, bundle, asked).to_json())
        _publish(ready, asked.out)
    return Written(bundle=bundle, asked=asked, num_bytes=stage.num_bytes)


def _check_place(paths: HomePaths, out: Path) -> None:
    if not run.is_utf8(str(out)):
        raise StateError("the name is not UTF-8", where=ascii(str(out)), hint="name another place for the bundle")
    if os.path.lexists(out):
        raise StateError("there is something already", where=str(out), hint="name another place for the bundle")
    if out.resolve().is_relative_to(paths.root.resolve()):
        raise StateError("a bundle cannot lie in the home that it is of", where=str(out), hint="name a place elsewhere")


def _submitted(desk: Desk, batch: Batch, bundle: Bundle, asked: Asked) -> acts.Submitted:
    return acts.Submitted(
        submission=batch.key,
        cluster="detached",
        job=bundle.id,
        array=False,
        host=desk.machine.host,
        boot_id=desk.machine.boot_id,
        process_start=0,
        source="bundle",
        place=str(asked.out),
    )


@contextlib.contextmanager
def _giving_up(ledger: ledgers.Ledger, batch: Batch) -> Iterator[None]:
    """Record that a bundle was not written, where an error keeps it from being."""
    try:
        yield
    except Exception as error:
        reason = f"the bundle could not be written: {error}"
        ledger.append("not_submitted", acts.NotSubmitted(submission=batch.key, reason=reason).to_json())
        raise


def _publish(ready: Path, out: Path) -> None:
    if os.path.lexists(out):
        raise StateError(
            "there is something already",
            where=str(out),
            why="it appeared while the bundle was written; the ledger has the bundle, and nobody else has it",
            hint="campaign bundle abandon ID, then campaign bundle write OUT",
        )
    ready.rename(out)
    files.sync_folder(out.parent)


# --- what goes in -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Stage:
    """A bundle under construction; paths are relative to it."""

    root: Path
    digests: dict[str, str] = field(default_factory=dict)
    executables: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    num_bytes: int = 0

    def add(self, source: Path, target: Path) -> None:
        """Copy a file, a link, or a folder with everything in it.

        Raises:
            EvidenceError: There is something else, or nothing.
        """
        path = os.path.relpath(target, self.root)
        try:
            status = source.lstat()
            if stat.S_ISDIR(status.st_mode):
                self._add_folder(source, target, path)
            elif stat.S_ISLNK(status.st_mode):
                target.parent.mkdir(parents=True, exist_ok=True)
                goal = os.readlink(source)  # noqa: PTH115 - the very bytes: Path would tidy them
                os.symlink(goal, target)  # noqa: PTH211 - as above
                self.links[path] = run.name_of(goal)
            elif stat.S_ISREG(status.st_mode):
                self._add_file(source, target, path, is_executable=bool(status.st_mode & stat.S_IXUSR))
            else:
                raise EvidenceError("neither a file nor a folder nor a link", where=str(source))
        except FileNotFoundError as error:
            raise EvidenceError(
                "is not there", where=str(source), hint="restore it from a copy of the home, or see --without-inputs"
            ) from error

    def _add_folder(self, source: Path, target: Path, path: str) -> None:
        target.mkdir(parents=True, exist_ok=True)
        entries = sorted(os.scandir(source), key=lambda entry: os.fsencode(entry.name))
        for entry in entries:
            self.add(Path(entry.path), target / entry.name)
        if not entries:
            self.folders.append(path)

    def _add_file(self, source: Path, target: Path, path: str, *, is_executable: bool) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with source.open("rb") as reading, target.open("xb") as writing:
            while data := reading.read(_CHUNK_BYTES):
                digest.update(data)
                self.num_bytes += writing.write(data)
        target.chmod(0o755 if is_executable else 0o644)
        self.digests[path] = digest.hexdigest()
        if is_executable:
            self.executables.append(path)


@contextlib.contextmanager
def _staging(asked: Asked) -> Iterator[_Stage]:
    """Make the folder in which a bundle is put together, beside its place; what is left of it goes."""
    aside = asked.out.with_name(f".{asked.out.name}.{os.getpid()}.tmp")
    root = aside / asked.folder
    root.mkdir(parents=True)
    try:
        yield _Stage(root=root)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _fill(stage: _Stage, desk: Desk, batch: Batch, asked: Asked) -> None:
    """Copy everything that the attempts need."""
    home, into = desk.paths, BundlePaths(stage.root)
    stage.add(Path(run.__file__), into.program)
    plans = read_plans(home, batch)
    for source in _needed(home, plans, without_inputs=asked.without_inputs):
        stage.add(source, into.home.root / source.relative_to(home.root))
    if asked.with_data:
        for name, data in desk.frozen.manifest.data.items():
            stage.add(Path(data.path).resolve(), into.data_set(name, data.path))


def read_plans(home: HomePaths, batch: Batch) -> list[AllocationPlan]:
    """Return the plans of a batch's allocations, as they are in the home."""
    return [AllocationPlan.read(home.allocation(one.allocation).plan) for one in batch.allocations]


def _needed(home: HomePaths, plans: Iterable[AllocationPlan], *, without_inputs: bool) -> Iterator[Path]:
    """Yield the files and folders of a home that some allocations need, each once."""
    found: dict[Path, None] = dict.fromkeys((home.manifest, home.protocol, home.harness))
    for plan in plans:
        found[home.allocation(plan.allocation).plan] = None
        for side in plan.sides.values():
            snapshot = home.baseline if side.id == "baseline" else home.candidate(side.id)
            own = [] if side.id == "baseline" else [snapshot.manifest]
            found |= dict.fromkeys([snapshot.tree, snapshot.listing, *own])
        for attempt in plan.attempts:
            found |= dict.fromkeys(_needed_by(home, attempt, without_inputs=without_inputs))
    yield from found


def _needed_by(home: HomePaths, attempt: PlannedAttempt, *, without_inputs: bool) -> Iterator[Path]:
    if attempt.inputs_sha256:
        listing = home.inputs_listing(attempt.inputs_sha256)
        yield listing
        if not without_inputs:
            yield from map(home.input_tensors, Inputs.read(listing).files)
    if attempt.resume is not None:
        segment = home.attempt(attempt.slot, attempt.attempt, attempt.resume.segment)
        yield segment.checkpoint(attempt.resume.update).root


# --- what it says of itself -------------------------------------------------------------------------------------------


def _describe(stage: _Stage, desk: Desk, view: View, batch: Batch, asked: Asked) -> Bundle:
    """Return bundle.json."""
    frozen, plans = desk.frozen, read_plans(desk.paths, batch)
    sides = {side: runnable.python for plan in plans for side, runnable in plan.sides.items()}
    inputs = sorted({one.inputs_sha256 for plan in plans for one in plan.attempts if one.inputs_sha256})
    expected = _expected(desk, view, batch)
    fields: dict[str, Any] = {
        "format": run.FORMAT,
        "campaign": frozen.manifest.campaign,
        "submission": batch.key,
        "manifest_sha256": frozen.manifest_sha256,
        "protocol_sha256": frozen.protocol_sha256,
        "candidate": batch.candidate,
        "allocations": [
            {
                "id": one.allocation,
                "repeat": plan.attempts[0].repeat,
                "minutes": one.minutes,
                "plan_sha256": one.plan_sha256,
                "expected_s": expected[one.allocation],
            }
            for one, plan in zip(batch.allocations, plans, strict=True)
        ],
        "python": {"harness": frozen.manifest.harness_python, **sides},
        "data": {
            name: {"path": data.path, "sha256": data.sha256, "included": asked.with_data}
            for name, data in frozen.manifest.data.items()
        },
        "inputs": dict.fromkeys(inputs, not asked.without_inputs),
        "files": {run.name_of(path): sha256 for path, sha256 in stage.digests.items()},
        "executables": [run.name_of(path) for path in stage.executables],
        "links": {run.name_of(path): target for path, target in stage.links.items()},
        "folders": [run.name_of(path) for path in stage.folders],
        "written_at": int(desk.clock()),
    }
    return Bundle.of({**fields, "id": run.bundle_id(fields)})


def _expected(desk: Desk, view: View, batch: Batch) -> Mapping[str, dict[str, float | None]]:
    """Return how long each attempt is expected to take, by allocation and name."""
    slots = desk.frozen.slots()
    intended = {one.slot: one for planned in batch.allocations for one in planned.attempts}
    case = time_case(desk.frozen, view.slots, intended)

    def seconds(attempt: acts.IntendedAttempt) -> float | None:
        found = walltime.expected_seconds(case, slots[attempt.slot])
        return None if found is None else round(float(found), 1)

    return {
        planned.allocation: {
            AttemptKey(one.slot, one.attempt, one.segment).receipt_name: seconds(one) for one in planned.attempts
        }
        for planned in batch.allocations
    }


def _packed(stage: _Stage, bundle: Bundle, asked: Asked) -> Path:
    """Return the archive of a bundle that is ready, beside it."""
    executables = {run.path_of(name) for name in bundle.executables}
    members: list[tuple[str, bytes | Path, int]] = [(run.BUNDLE, BundlePaths(stage.root).document, 0o644)]
    for path, _ in run.walk(stage.root):
        whole = stage.root / path
        if path == run.BUNDLE:
            continue
        if path in stage.links:
            members.append((path, os.fsencode(os.readlink(whole)), stat.S_IFLNK | 0o777))  # noqa: PTH115 - as above
        elif path in stage.digests:
            members.append((path, whole, 0o755 if path in executables else 0o644))
        else:
            members.append((path, b"", stat.S_IFDIR | 0o755))
    packed = stage.root.with_name(f"{asked.out.name}.packed")
    with packed.open("xb") as stream:
        run.write_tar(stream, stage.root.name, members)
    return packed
