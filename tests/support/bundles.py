"""Bundles of a synthetic home, made by hand: what was written into one, and what a harness leaves in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acceptance.formats import Ending
from campaign import documents, files
from campaign.detached import run
from campaign.keys import AttemptKey
from campaign.paths import BundlePaths
from campaign.record.ledger import parse_entries
from campaign.submission import acts
from tests.support.home import AT, NODE, Home

PLACE = "/scratch/bundle"
SYNC, PACKED, PROD = (f"baseline/pilot/{name}" for name in ("sync-b4", "packed-b4", "prod-b16"))


@dataclass(slots=True, kw_only=True)
class There(Home):
    """The bundle's own home, in which the harness works: everything is planned already."""

    allocation: str = ""

    def plan(self, *_: object, **__: object) -> str:
        """Return the allocation that is made."""
        return self.allocation


@dataclass(slots=True, kw_only=True)
class Handmade:
    """A bundle beside its home."""

    home: Home
    """Where it was written."""
    paths: BundlePaths
    bundle: documents.Bundle
    key: str
    slots: Mapping[str, Sequence[documents.Slot]]
    """By allocation."""
    number: int = 1
    """Of the attempts."""
    receipts: dict[str, dict[str, str]] = field(default_factory=dict)
    """What the calls so far wrote, by allocation."""
    calls: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The bundle's id."""
        return self.bundle.id

    def there(self, boot_id: str = "away", allocation: str = "") -> Home:
        """Return the bundle's own home, in which the harness works."""
        home = self.home
        return There(
            paths=self.paths.home,
            protocol=home.protocol,
            candidate=home.candidate,
            snapshot_sha256=home.snapshot_sha256,
            ratio=home.ratio,
            loss=home.loss,
            job_identity=replace_job(self.id),
            boot=boot_id,
            allocation=allocation,
        )

    def call(
        self,
        allocation: str,
        *,
        make: Sequence[int] | None = None,
        ending: Ending = Ending.COMPLETED,
        begin: Sequence[int] = (),
        is_killed: bool = False,
        is_last: bool = True,
        boot_id: str = "away",
    ) -> None:
        """Make attempts of an allocation as one call of run.py does.

        Args:
            allocation: Which one.
            make: Which of its attempts, by their place; default all.
            ending: How they end.
            begin: Attempts that are begun and leave no receipt.
            is_killed: Whether the call leaves no word of its end.
            is_last: Whether nothing more is made afterwards.
            boot_id: Of the machine.
        """
        there, own = self.there(boot_id, allocation), self.slots[allocation]
        folder = there.paths.allocation(allocation)
        number = self.calls[allocation] = self.calls.get(allocation, 0) + 1
        started = folder.started.read_bytes() if folder.started.exists() else None
        made: dict[str, str] = {}
        for place in range(len(own)) if make is None else make:
            slot = own[place]
            there.attempt(slot, self.number, ending=ending)
            made[self.name(slot)] = files.sha256_file(there.folder(slot.slot, self.number).receipt)
        for place in begin:
            if own[place].kind == "run":
                there.segment(own[place], self.number, ending=Ending.LOST, is_sealed=False, is_ended=False)
                continue
            there.start(own[place], self.number, allocation)
            (there.folder(own[place].slot, self.number).root / "baseline.log").write_bytes(b"half a li")
        if started is not None:
            folder.started.write_bytes(started)
        self.receipts.setdefault(allocation, {}).update(made)
        with folder.log.open("ab") as log:
            log.write(f"call {number}\n".encode())
        folder.calls.mkdir(exist_ok=True)
        call = documents.Call(
            allocation=allocation,
            bundle=self.id,
            number=number,
            host=NODE,
            boot_id=boot_id,
            pid=1,
            process_start=1,
            argv=("run.py", "--max-minutes", "5"),
            home=str(self.paths.home.root),
            python={"harness": "/usr/bin/python3", "baseline": "/usr/bin/python3"},
            data={},
            at=AT,
        )
        folder.call(number).write_bytes(call.to_bytes())
        if is_killed:
            return
        ended = documents.CallEnded(
            allocation=allocation,
            number=number,
            reason="done" if is_last else "deadline",
            detail="",
            at=AT + 9,
            wall_s=9.0,
            sides_s=3.0,
            receipts=made,
        )
        folder.call_ended(number).write_bytes(ended.to_bytes())
        if is_last:
            self.end(allocation)

    def end(self, allocation: str, reason: str = "done") -> None:
        """Say that nothing more is made in an allocation."""
        ended = documents.Ended(
            allocation=allocation,
            reason=reason,
            at=AT + 9,
            wall_s=9.0,
            sides_s=3.0,
            overhead_s=6.0,
            receipts=dict(self.receipts.get(allocation, {})),
        )
        self.paths.home.allocation(allocation).ended.write_bytes(ended.to_bytes())

    def name(self, slot: documents.Slot) -> str:
        """Return the name of an attempt's receipt."""
        return AttemptKey(self.home.real_slot(slot.slot), self.number, int(slot.kind == "run")).receipt_name

    def pack(self, out: Path, *leave: str) -> Path:
        """Pack the results as `run.py --pack` does."""
        value = json.loads(self.paths.document.read_bytes())
        assert run.pack(self.paths.root, value, out, leave) == 0
        return out


def replace_job(bundle: str) -> documents.JobIdentity:
    """Return what a detached harness says of its job."""
    return documents.JobIdentity(
        scheduler="detached", cluster="", job_id=bundle, array_job_id="", array_task_id="", restart_count=0
    )


def write_bundle(home: Home, out: Path, *groups: Sequence[documents.Slot], number: int = 1) -> Handmade:
    """Write a bundle by hand, and what the ledger says of it.

    Args:
        home: The home.
        out: The bundle's folder.
        groups: The slots of each allocation: one or two.
        number: Of the attempts.
    """
    before = home.paths.ledger.read_bytes()
    planned: list[acts.IntendedAllocation] = []
    slots: dict[str, Sequence[documents.Slot]] = {}
    for group in groups:
        allocation = home.plan(group[0], number, also=group[1] if len(group) > 1 else None)
        intent = parse_entries(home.paths.ledger.read_bytes(), where="")[-1].parse_data(acts.Intent)
        planned += intent.allocations
        slots[allocation] = group
        # All of them are one submission.
        home.paths.ledger.write_bytes(before)
    key = f"bundle-{planned[0].allocation}"
    home.append("intent", intent.replace(submission=key, cluster="detached", allocations=tuple(planned)).to_json())
    paths = BundlePaths(out)
    for source in (home.paths.manifest, home.paths.protocol):
        paths.home.root.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, paths.home.root / source.name)
    for one in planned:
        target = paths.home.allocation(one.allocation)
        target.root.mkdir(parents=True)
        shutil.copyfile(home.paths.allocation(one.allocation).plan, target.plan)
    paths.program.write_bytes(b"# stands for the program\n")
    bundle = _describe(home, paths, key=key, planned=planned, slots=slots, number=number)
    paths.document.write_bytes(bundle.to_bytes())
    submitted = acts.Submitted(
        submission=key,
        cluster="detached",
        job=bundle.id,
        array=False,
        host="login1",
        boot_id="0000",
        process_start=0,
        source="bundle",
        place=PLACE,
    )
    home.append("submitted", submitted.to_json())
    return Handmade(home=home, paths=paths, bundle=bundle, key=key, slots=slots, number=number)


def write_pilots(home: Home, out: Path) -> Handmade:
    """Write a bundle by hand that has two pilots in one allocation and a third in another."""
    return write_bundle(home, out, [home.slot(SYNC), home.slot(PACKED)], [home.slot(PROD)])


def _describe(
    home: Home,
    paths: BundlePaths,
    *,
    key: str,
    planned: Sequence[acts.IntendedAllocation],
    slots: Mapping[str, Sequence[documents.Slot]],
    number: int,
) -> documents.Bundle:
    listed = {
        path.relative_to(paths.root).as_posix(): files.sha256_file(path)
        for path in sorted(paths.root.rglob("*"))
        if path.is_file()
    }
    bundle = documents.Bundle(
        campaign=home.protocol.campaign,
        submission=key,
        id="",
        manifest_sha256=files.sha256_file(home.paths.manifest),
        protocol_sha256=files.sha256_file(home.paths.protocol),
        candidate="",
        allocations=tuple(
            documents.BundleAllocation(
                id=one.allocation,
                repeat=slots[one.allocation][0].repeat,
                minutes=one.minutes,
                plan_sha256=one.plan_sha256,
                expected_s={
                    AttemptKey(home.real_slot(slot.slot), number, int(slot.kind == "run")).receipt_name: None
                    for slot in slots[one.allocation]
                },
            )
            for one in planned
        ),
        python={"harness": "/usr/bin/python3", "baseline": "/usr/bin/python3"},
        data={},
        inputs={},
        files=listed,
        executables=(),
        links={},
        folders=(),
        written_at=int(AT),
    )
    return bundle.replace(id=run.bundle_id(bundle.to_json()))


def edit(path: Path, change: Mapping[str, Any]) -> None:
    """Change fields of a document."""
    path.write_bytes(files.dump_json({**json.loads(path.read_bytes()), **change}))
