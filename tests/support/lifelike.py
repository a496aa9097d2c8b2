"""Synthetic homes in which nothing happens twice at the same time or lasts equally long, as the verifier expects.

What `tests.support.home` writes is enough for a collection. Here jobs are submitted, allocations end in order, receipts
are named by the ledger, and every start and every duration is another one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from acceptance.formats import Ending
from campaign import documents, files
from tests.support import training
from tests.support.home import AT, SMALL, Case, Home, attempt_all, freeze, freeze_candidate

JITTER = 1e-10
"""By how much of itself a duration differs from the next one: so many times up to 2**24."""


def edit_json(path: Path, **changes: Any) -> dict[str, Any]:
    """Change fields of a document and write it as this project writes documents; nothing is sealed again. Return it."""
    value: dict[str, Any] = {**json.loads(path.read_bytes()), **changes}
    path.write_bytes(files.dump_json(value))
    return value


@dataclasses.dataclass(slots=True, kw_only=True)
class LifelikeHome(Home):
    """A home under construction."""

    number: int = 1
    """Of the attempt that is being made."""
    ticks: int = 0
    num_lines: int = 0
    """Of the ledger; 0 until it was looked at."""
    previous: str = ""
    """Digest of its last line."""

    def tick(self) -> float:
        """Return a number of seconds that no other call returns."""
        self.ticks += 1
        return self.ticks / 1024

    def _shift(self, *key: object) -> float:
        text = "/".join(map(str, key)).encode()
        return 1 + JITTER * int.from_bytes(hashlib.sha256(text).digest()[:3])

    def append(self, act: documents.Act, data: dict[str, Any]) -> None:
        """Append one act to the ledger; an intent under the key that its allocation names."""
        if act == "intent":
            data = {**data, "submission": self.key(data["allocations"][0]["allocation"])}
        if not self.num_lines:
            lines = self.paths.ledger.read_bytes().splitlines()
            self.num_lines, self.previous = len(lines), files.sha256_bytes(lines[-1])
        self.num_lines += 1
        entry = {"seq": self.num_lines, "previous": self.previous, "at": AT + self.num_lines, "act": act, "data": data}
        line = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        self.previous = files.sha256_bytes(line)
        with self.paths.ledger.open("ab") as stream:
            stream.write(line + b"\n")

    def key(self, allocation: str) -> str:
        """Return the key of an allocation's submission."""
        return f"synthetic/{allocation}"

    def plan(
        self,
        slot: documents.Slot,
        number: int = 1,
        *,
        also: documents.Slot | None = None,
        segment: int = 0,
        resume: documents.CheckpointName | None = None,
    ) -> str:
        """Plan an allocation and submit it."""
        allocation = Home.plan(self, slot, number, also=also, segment=segment, resume=resume)
        self.submit(allocation)
        return allocation

    def submit(self, allocation: str) -> None:
        """Record that an allocation was submitted."""
        data = {
            "submission": self.key(allocation),
            "cluster": "local",
            "job": self.job(allocation),
            "array": False,
            "host": "node1",
            "boot_id": "0000",
            "process_start": 1,
            "source": "transport",
        }
        self.append("submitted", data)

    def job(self, allocation: str) -> str:
        """Return the id of an allocation's job."""
        return str(1000 + int(allocation[1:]))

    def start(self, slot: documents.Slot, number: int, allocation: str, segment: int = 0) -> None:
        """Write start.json and started.json."""
        self.number = number
        Home.start(self, slot, number, allocation, segment)
        path = self.folder(slot.slot, number, segment).start
        job = {**json.loads(path.read_bytes())["job"], "job_id": self.job(allocation)}
        edit_json(path, job=job, at=AT + self.tick())
        edit_json(self.paths.allocation(allocation).started, job=job)

    def seal(
        self,
        slot: documents.Slot,
        number: int,
        allocation: str,
        *,
        ending: Ending = Ending.COMPLETED,
        reason: str = "",
        segment: int = 0,
        run: documents.RunReceipt | None = None,
    ) -> None:
        """Write receipt.json and let the allocation say so."""
        Home.seal(self, slot, number, allocation, ending=ending, reason=reason, segment=segment, run=run)
        path = self.folder(slot.slot, number, segment).receipt
        sides = [{**side, "wall_s": 1 + self.tick()} for side in json.loads(path.read_bytes())["sides"]]
        edit_json(path, sides=sides, elapsed_s=3 + self.tick())
        self.end_in_order(allocation)

    def end_in_order(self, allocation: str) -> None:
        """Write ended.json over the receipts that an allocation's attempts have now."""
        folder = self.paths.allocation(allocation)
        receipts = {}
        for one in documents.AllocationPlan.read(folder.plan).attempts:
            path = self.paths.attempt(one.slot, one.attempt, one.segment).receipt
            if path.exists():
                name = f"{one.slot}/{one.attempt}" + (f"/{one.segment}" if one.segment else "")
                receipts[name] = files.sha256_file(path)
        ended = documents.Ended(
            allocation=allocation,
            reason="done",
            at=AT + 4,
            wall_s=4.0,
            sides_s=2.0,
            overhead_s=2.0,
            receipts=receipts,
        )
        folder.ended.write_bytes(ended.to_bytes())

    def checkpoint(
        self,
        slot: documents.Slot,
        number: int,
        update: int,
        *,
        segment: int = 1,
        allocation: str,
        resume: documents.CheckpointName | None = None,
    ) -> documents.Checkpoint:
        """Write a checkpoint."""
        made = Home.checkpoint(self, slot, number, update, segment=segment, allocation=allocation, resume=resume)
        path = self.folder(slot.slot, number, segment).checkpoint(update).document
        shift = self._shift(slot.slot, number, segment, update)
        edit_json(path, train_s=made.train_s * shift, elapsed_s=made.elapsed_s * shift)
        return documents.Checkpoint.read(path)

    def receipts(self) -> Mapping[str, str]:
        """Return the digest of every receipt by its name."""
        root = self.paths.attempts
        found = {}
        for path in sorted(root.rglob("receipt.json")):
            parts = [part for part in path.parent.relative_to(root).parts if part != "segments"]
            found["/".join(parts)] = files.sha256_file(path)
        return found

    def collect(self) -> None:
        """Name every receipt in the ledger."""
        receipts = dict(self.receipts())
        counts = {"attempts": len(receipts), "sealed": len(receipts), "running": 0, "rows": 0, "findings": 0}
        self.append("collected", {**counts, "rows_sha256": "0" * 64, "receipts": receipts})

    def _window_s(self, slot: documents.Slot, side: str) -> float:
        return Home._window_s(self, slot, side) * self._shift(slot.slot, self.number, side)


def lifelike(home: Home) -> LifelikeHome:
    """Return a home that goes on where another one is."""
    fields = {field.name: getattr(home, field.name) for field in dataclasses.fields(home)}
    return LifelikeHome(**fields)


def freeze_lifelike(root: Path, cases: Sequence[Case] = SMALL, **options: Any) -> LifelikeHome:
    """Create a home with a frozen baseline and nothing else."""
    return lifelike(freeze(root, cases, **options))


def build_lifelike(
    root: Path, cases: Sequence[Case] = SMALL, *, last: Literal["collect", ""] = "collect", **options: Any
) -> LifelikeHome:
    """Create a home in which every slot has one completed, sealed attempt that the ledger names.

    Args:
        root: The folder to create.
        cases: The workloads.
        last: What is done at the end.
        options: As for `tests.support.home.freeze`.
    """
    home = freeze_lifelike(root, cases, **options)
    attempt_all(home, "baseline")
    freeze_candidate(home)
    attempt_all(home, "candidate")
    if last:
        home.collect()
    return home


def all_families(root: Path) -> LifelikeHome:
    """Create a small home with every family: one workload in a category, its cases, and runs of one recipe."""
    cases = (Case(name="sync-b4", category="sync"),)
    numerical = documents.NumericalRules(updates=2)
    return build_lifelike(root, cases, repeats=2, numerical=numerical, convergence=training.make_rules("sync"))
