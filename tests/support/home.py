"""A synthetic campaign home, built from ratios: everything but the measuring is real.

The home has the layout, documents, digests, ledger and receipts that freeze, submit and the harness leave behind, and
the acceptance package of this checkout as its frozen copy. Tests then damage it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import shutil
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import acceptance
from acceptance.formats import (
    BASELINE,
    GLOBAL_QUANTITIES,
    NUMERICAL,
    PAIRS,
    TABLES,
    TENSORS,
    VACUITY,
    WINDOWS,
    Ending,
    Table,
)
from campaign import documents, files
from campaign.paths import AttemptPaths, HomePaths
from campaign.submission import acts
from tests.support import training

NODE = "node1"
DEVICE = "cpu:Synthetic_Processor"
BASELINE_WINDOW_S = 2.5
UPDATES = 10
TOKENS_PER_UPDATE = 64
ENGAGED: dict[str, int | str] = {"path": "eager", "threads": 1}
AT = 1_800_000_000.0
SNAPSHOTS = {"baseline": "b" * 64, "candidate": "c" * 64}
CANDIDATE = "c" + "c" * 12


LOCAL_JOB = documents.JobIdentity(
    scheduler="local", cluster="", job_id="1", array_job_id="", array_task_id="", restart_count=0
)


Order: TypeAlias = tuple[documents.SideName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One workload of the synthetic matrix."""

    name: str
    category: str = ""
    production: bool = False


SMALL = (
    Case(name="sync-b4", category="sync"),
    Case(name="packed-b4", category="packed"),
    Case(name="prod-b16", production=True),
)
"""Three workloads: two categories of one, and one production case."""


def path_of(engaged: Mapping[str, int | str]) -> str:
    """Return the 12 digits that stand for engaged()'s text entries."""
    texts = {key: value for key, value in engaged.items() if isinstance(value, str)}
    return files.sha256_bytes(json.dumps(texts, sort_keys=True, separators=(",", ":")).encode())[:12]


def tree_digest(root: Path) -> str:
    """Return the tree digest of docs/formats.md: a second, independent implementation."""
    digest = hashlib.sha256(b"campaign-tree/1\n")
    entries = sorted(root.rglob("*"), key=lambda path: path.relative_to(root).as_posix().encode())
    for path in entries:
        data = b"" if path.is_dir() else path.read_bytes()
        kind, mode = (b"d", b"755") if path.is_dir() else (b"f", b"755" if path.stat().st_mode & 0o100 else b"644")
        content = b"" if path.is_dir() else hashlib.sha256(data).hexdigest().encode()
        for part in (kind, mode, path.relative_to(root).as_posix().encode(), str(len(data)).encode(), content):
            digest.update(str(len(part)).encode() + b":" + part + b",")
    return digest.hexdigest()


def copy_package(source: Path, target: Path) -> None:
    """Copy a package's files without compiled ones."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


MEASURED = ("solo", "control_pair", "pair")
CASES = ("control_case", "case")


def tensor_file(name: str) -> bytes:
    """Return a file in the safetensors layout with one tensor of two elements."""
    header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + struct.pack("<ff", 1.0, 2.0)


def _case_row(quantity: str, update: int) -> dict[str, Any]:
    """Return what numerical.csv says of one quantity that agrees well."""
    if quantity == "loss":
        return {"reference": 3.0, "value": 3.0001, "rel_l2": "", "worst_tensor": "", "worst_rel_l2": ""}
    if quantity in GLOBAL_QUANTITIES:
        value = 0.01 * update
        worst = {"worst_tensor": "embedding", "worst_rel_l2": value / 8}
        return {"reference": 8.0, "value": value, "rel_l2": value / 8, **worst}
    return {"reference": "", "value": 0.5, "rel_l2": "", "worst_tensor": "exp_avg/embedding", "worst_rel_l2": ""}


def case_tables(protocol: documents.Protocol, slot: documents.Slot, number: int) -> dict[str, bytes]:
    """Return what a completed case of one worker leaves: both sides agree, consensus does not exist."""
    rules = protocol.numerical
    assert rules is not None
    comparison = "control" if slot.kind == "control_case" else "candidate"
    common = {"workload": slot.workload, "comparison": comparison, "attempt": number, "worker": 0}
    how = {"nonfinite": 0, "executor": "independent", "serialized": False}
    updates = range(1, rules.updates + 1)
    rows = [
        {**common, **how, "update": update, "quantity": quantity, **_case_row(quantity, update)}
        for update in updates
        for quantity in ("loss", *GLOBAL_QUANTITIES)
    ]
    rows.append({**common, **how, "update": rules.isolated_steps, "quantity": "optimizer", **_case_row("optimizer", 1)})
    tensors = [
        {
            **common,
            "update": update,
            "quantity": quantity,
            "tensor": "embedding",
            "numel": 2,
            "reference": 8.0,
            "value": 0.01 * update,
            "rel_l2": 0.01 * update / 8,
            "floored": False,
            "largest_error": 0.001,
            "sign_flips": 0 if quantity == "updates" else "",
        }
        for update in updates
        for quantity in GLOBAL_QUANTITIES
    ]
    packed = gzip.compress(csv_bytes(TENSORS, tensors), mtime=0)
    tables = {NUMERICAL.file: csv_bytes(NUMERICAL, rows), "tensors.csv.gz": packed}
    if slot.kind == "control_case":
        tables[VACUITY.file] = csv_bytes(VACUITY, vacuity_rows(slot.workload, number, rules.updates))
    return tables


def vacuity_rows(workload: str, number: int, updates: int) -> list[dict[str, Any]]:
    """Return what the gates would have read for faulty candidates: everything but the parameters is seen."""

    def row(mutation: str, update: int, quantity: str, rel_l2: float) -> dict[str, Any]:
        key = {"workload": workload, "attempt": number, "mutation": mutation, "update": update, "worker": 0}
        return {**key, "quantity": quantity, "rel_l2": rel_l2}

    rows = []
    for update in range(1, updates + 1):
        for mutation, factor in (("no_update", 1.0), ("negated", 2.0)):
            rows += [row(mutation, update, "parameters", 0.001 * factor), row(mutation, update, "updates", factor)]
        rows += [row("shuffled", update, quantity, 1.4) for quantity in GLOBAL_QUANTITIES]
    rows += [row("previous_batch", 2, quantity, 0.7) for quantity in ("loss", *GLOBAL_QUANTITIES)]
    return rows


def csv_bytes(table: Table, rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the bytes of a table; floats are written with repr, flags as true and false."""

    def cell(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    lines = [",".join(table.header), *[",".join(cell(row[name]) for name in table.header) for row in rows]]
    return ("\n".join(lines) + "\n").encode()


def _run_slots(rules: documents.ConvergenceRules | None) -> Iterable[documents.Slot]:
    """Yield the pilots of the recipes, and the runs."""
    for recipe, seed in training.runs(rules):
        for side, phase in training.PHASES.items():
            is_run = seed is not None
            yield documents.Slot(
                slot=documents.run_slot(side, recipe, seed) if seed is not None else f"{side}/pilot/{recipe}",
                side=side,
                phase=phase if is_run else "pilot",
                kind="run" if is_run else "pilot",
                workload=recipe,
                repeat=0,
                pair=0,
                order=(side,),
            )


def _slots(
    cases: Sequence[Case],
    repeats: int,
    *,
    solo: bool,
    controls: bool,
    numerical: documents.NumericalRules | None,
) -> list[documents.Slot]:
    found: list[documents.Slot] = []

    def add(name: str, phase: documents.Phase, kind: documents.SlotKind, order: Order) -> None:
        _, _, workload, *rest = name.split("/")
        found.append(
            documents.Slot(
                slot=name,
                side="candidate" if name.startswith("candidate/") else "baseline",
                phase=phase,
                kind=kind,
                workload=workload,
                repeat=int(rest[0].removeprefix("r")) if rest else 0,
                pair=1 if kind in ("pair", "control_pair") else 0,
                order=order,
            )
        )

    firsts = {case.category: case.name for case in reversed(cases) if case.category}
    for index, case in enumerate(cases):
        name = case.name
        add(f"baseline/pilot/{name}", "pilot", "pilot", ("baseline",))
        add(f"candidate/pilot/{name}", "pilot", "pilot", ("candidate",))
        for repeat in range(1, repeats + 1):
            turn = 1 if (index + repeat) % 2 == 0 else -1
            if solo:
                add(f"baseline/solo/{name}/r{repeat}", "baseline", "solo", ("baseline",))
            if controls and firsts.get(case.category) == name:
                control: Order = ("baseline", "baseline_again")
                add(f"baseline/control/{name}/r{repeat}", "baseline", "control_pair", control[::turn])
            pair: Order = ("baseline", "candidate")
            add(f"candidate/pair/{name}/r{repeat}", "throughput", "pair", pair[::turn])
        if numerical is not None:
            if numerical.controls:
                add(f"baseline/control-case/{name}", "baseline", "control_case", ("baseline", "baseline_again"))
            add(f"candidate/case/{name}", "numerical", "case", ("baseline", "candidate"))
    return found


def make_protocol(
    cases: Sequence[Case] = SMALL,
    *,
    repeats: int = 3,
    solo: bool = True,
    controls: bool = True,
    numerical: documents.NumericalRules | None = None,
    convergence: documents.ConvergenceRules | None = None,
    windows: int = 5,
) -> documents.Protocol:
    """Return a protocol for some workloads; of the throughput family alone unless there are rules of another."""
    names = sorted({case.category for case in cases if case.category})
    workloads = []
    for case in cases:
        config = {"name": case.name}
        digest = files.sha256_bytes(json.dumps(config, sort_keys=True, separators=(",", ":")).encode())
        workloads.append(
            documents.Workload(
                name=case.name,
                category=case.category,
                production=case.production,
                config=config,
                config_sha256=digest,
            )
        )
    return documents.Protocol(
        campaign="synthetic",
        families=(
            "throughput",
            *(("numerical",) if numerical is not None else ()),
            *(("convergence",) if convergence is not None else ()),
        ),
        baseline_first=False,
        throughput=documents.ThroughputRules(repeats=repeats, solo=solo, controls=controls, windows=windows),
        numerical=numerical,
        convergence=convergence,
        limits=documents.Limits(),
        retries=documents.Retries(),
        execution=documents.Execution(),
        categories=tuple(
            documents.Category(name=name, workloads=tuple(case.name for case in cases if case.category == name))
            for name in names
        ),
        workloads=tuple(workloads),
        slots=(
            *_slots(cases, repeats, solo=solo, controls=controls, numerical=numerical),
            *_run_slots(convergence),
        ),
        headers={name: table.header for name, table in TABLES.items()},
    )


INTERPRETER = documents.InterpreterIdentity(path="/usr/bin/python3.11", version="3.11.7", sha256="6" * 64)
"""What every attempt of a synthetic home runs on."""


def make_side(snapshot_sha256: str) -> documents.Side:
    """Return a side that names a snapshot which no test of collection needs."""
    return documents.Side(
        snapshot_sha256=snapshot_sha256,
        files_sha256="f" * 64,
        changes_sha256="f" * 64,
        adapter="adapter:native",
        python="/usr/bin/python3",
        python_path=(".",),
        environment={},
        pass_environment=(),
        launch=(),
        lockfile=None,
        git=None,
        distributions=None,
    )


_DIGESTS: dict[tuple[Path, int, int, int], str] = {}


def _sha256_once(path: Path) -> str:
    """Return a file's digest; a large protocol is named by every attempt, and hashed once."""
    found = path.stat()
    state = (path, found.st_ino, found.st_size, found.st_mtime_ns)
    if state not in _DIGESTS:
        _DIGESTS[state] = files.sha256_file(path)
    return _DIGESTS[state]


@dataclass(slots=True, kw_only=True)
class Home:
    """A home under construction."""

    paths: HomePaths
    protocol: documents.Protocol
    candidate: str = CANDIDATE
    snapshot_sha256: str = SNAPSHOTS["candidate"]
    """The candidate's."""
    ratio: Callable[[str, int], float] = field(default=lambda _workload, _repeat: 1.1)
    loss: training.Loss = training.close
    """Final loss of a run."""
    allocations: int = 0
    job_identity: documents.JobIdentity = LOCAL_JOB
    """What every attempt runs in."""
    boot: str = "0000"

    @property
    def manifest(self) -> documents.Manifest:
        """The baseline's manifest."""
        return documents.Manifest.read(self.paths.manifest)

    # --- the ledger

    def append(self, act: documents.Act, data: dict[str, Any]) -> None:
        """Append one act to the ledger."""
        lines = self.paths.ledger.read_bytes().splitlines() if self.paths.ledger.exists() else []
        previous = files.sha256_bytes(lines[-1]) if lines else "0" * 64
        entry = {"seq": len(lines) + 1, "previous": previous, "at": AT + len(lines), "act": act, "data": data}
        with self.paths.ledger.open("ab") as stream:
            stream.write(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode() + b"\n")

    # --- attempts

    def real_slot(self, slot: str) -> str:
        """Return a protocol slot's name in this home."""
        return documents.slot_for(slot, self.candidate)

    def folder(self, slot: str, number: int = 1, segment: int = 0) -> AttemptPaths:
        """Return the paths of an attempt, or of a run's segment, by the slot's protocol name."""
        return self.paths.attempt(self.real_slot(slot), number, segment or int("/run/" in slot))

    def plan(
        self,
        slot: documents.Slot,
        number: int = 1,
        *,
        also: documents.Slot | None = None,
        segment: int = 0,
        resume: documents.CheckpointName | None = None,
    ) -> str:
        """Write an allocation for an attempt at one or two slots and the intent that names it; return its id.

        Args:
            slot: The slot.
            number: Number of the attempt.
            also: A second slot of the allocation.
            segment: Which segment of a run; 1 if it is not given.
            resume: What the segment starts from.
        """
        self.allocations += 1
        allocation = f"a{self.allocations:04d}"
        planned = tuple(
            documents.PlannedAttempt(
                slot=self.real_slot(one.slot),
                attempt=number,
                kind=one.kind,
                workload=one.workload,
                repeat=one.repeat,
                pair=one.pair,
                order=one.order,
                updates=UPDATES if one.kind in MEASURED else 0,
                inputs_sha256=self.inputs_sha256(one.workload) if one.kind in CASES else "",
                segment=(segment or 1) if one.kind == "run" else 0,
                resume=resume,
            )
            for one in (slot, also)
            if one is not None
        )
        sides: dict[Literal["baseline", "candidate"], documents.Runnable] = {"baseline": self._runnable("baseline")}
        if "candidate" in slot.order:
            sides["candidate"] = self._runnable("candidate")
        plan = documents.AllocationPlan(
            allocation=allocation,
            key=f"synthetic/{allocation}",
            home=str(self.paths.root),
            manifest_sha256=_sha256_once(self.paths.manifest),
            protocol_sha256=_sha256_once(self.paths.protocol),
            harness_sha256=self.manifest.harness_sha256,
            sides=sides,
            data={},
            attempts=planned,
        )
        self.paths.allocation(allocation).root.mkdir(parents=True)
        self.paths.allocation(allocation).plan.write_bytes(plan.to_bytes())
        intended = acts.IntendedAllocation(
            allocation=allocation,
            minutes=10,
            plan_sha256=files.sha256_bytes(plan.to_bytes()),
            attempts=tuple(
                acts.IntendedAttempt(
                    slot=one.slot,
                    attempt=one.attempt,
                    updates=one.updates,
                    inputs_sha256=one.inputs_sha256,
                    segment=one.segment,
                    resume=one.resume,
                )
                for one in planned
            ),
        )
        intent = acts.Intent(
            submission=f"s{allocation}",
            cluster="local",
            host=NODE,
            boot_id="0000",
            candidate=self.candidate if slot.side == "candidate" else "",
            allocations=(intended,),
        )
        self.append("intent", intent.to_json())
        return allocation

    def _snapshot(self, side: str) -> str:
        return self.snapshot_sha256 if side == "candidate" else self.manifest.baseline.snapshot_sha256

    def _runnable(self, side: Literal["baseline", "candidate"]) -> documents.Runnable:
        described = make_side(self._snapshot(side))
        return documents.Runnable(
            id="baseline" if side == "baseline" else self.candidate,
            tree="/nowhere/tree",
            files="/nowhere/files.json",
            snapshot_sha256=described.snapshot_sha256,
            python=described.python,
            adapter=described.adapter,
            python_path=described.python_path,
            environment={},
            pass_environment=(),
            launch=(),
        )

    def end(self, slot: documents.Slot, number: int, allocation: str, ending: Ending, segment: int = 0) -> None:
        """Record in the ledger how an attempt without a receipt ended."""
        ended = acts.EndedAttempt(
            slot=self.real_slot(slot.slot),
            attempt=number,
            segment=segment or int(slot.kind == "run"),
            allocation=allocation,
            ending=ending,
            reason="the scheduler said so",
            source="sacct",
        )
        self.append("ended", ended.to_json())

    def tables(self, slot: documents.Slot, number: int, allocation: str) -> dict[str, bytes]:
        """Return the evidence tables of a completed attempt."""
        if slot.kind == "pilot":
            is_workload = slot.workload in {workload.name for workload in self.protocol.workloads}
            records = is_workload and slot.side == "baseline" and self.protocol.numerical is not None
            return {"inputs.json": self.write_inputs(slot.workload).to_bytes()} if records else {}
        if slot.kind in CASES:
            return case_tables(self.protocol, slot, number)
        measured = {side: self._measured(slot, side) for side in slot.order}
        common = {
            "workload": slot.workload,
            "category": self.protocol.workload(slot.workload).category,
            "production": self.protocol.workload(slot.workload).production,
            "comparison": "candidate" if slot.kind == "pair" else "control",
            "repeat": slot.repeat,
            "pair": slot.pair,
            "attempt": number,
            "allocation": allocation,
            "node": NODE,
            "device": DEVICE,
        }
        if slot.kind == "solo":
            return {BASELINE.file: csv_bytes(BASELINE, [{**common, **measured["baseline"]}])}
        rows = [
            {**common, "side": side, "position": position, **measured[side]}
            for position, side in enumerate(slot.order, start=1)
        ]
        windows = [
            {
                **common,
                "side": side,
                "window": window,
                "updates": UPDATES,
                "microbatches": UPDATES,
                "skipped_updates": 0,
                "tokens": UPDATES * TOKENS_PER_UPDATE,
                "seconds": self._window_s(slot, side),
            }
            for side in slot.order
            for window in range(1, self.protocol.throughput.windows + 1)
        ]
        return {PAIRS.file: csv_bytes(PAIRS, rows), WINDOWS.file: csv_bytes(WINDOWS, windows)}

    def write_inputs(self, workload: str) -> documents.Inputs:
        """Write the canonical inputs of a workload below inputs/ and return their list."""
        inputs = self.inputs(workload)
        self.paths.inputs.mkdir(exist_ok=True)
        for data in (tensor_file("parameters0"), tensor_file("batch")):
            self.paths.input_tensors(files.sha256_bytes(data)).write_bytes(data)
        self.paths.inputs_listing(self.inputs_sha256(workload)).write_bytes(inputs.to_bytes())
        return inputs

    def inputs(self, workload: str) -> documents.Inputs:
        """Return the list of a workload's canonical inputs: one worker, and the same batch for every update."""
        rules = self.protocol.numerical
        assert rules is not None
        state, batch = tensor_file("parameters0"), tensor_file("batch")
        return documents.Inputs(
            workload=workload,
            config_sha256=self.protocol.workload(workload).config_sha256,
            moments="fresh",
            step=0,
            state=(
                documents.StateInput(
                    quantity="parameters", worker=0, sha256=files.sha256_bytes(state), bytes=len(state)
                ),
            ),
            batches=tuple(
                documents.BatchInput(update=update, sha256=files.sha256_bytes(batch), bytes=len(batch))
                for update in range(1, rules.updates + 1)
            ),
        )

    def inputs_sha256(self, workload: str) -> str:
        """Return the digest of a workload's canonical inputs."""
        return files.sha256_bytes(self.inputs(workload).to_bytes())

    def case(self, workload: str) -> documents.CaseReceipt:
        """Return how a completed case says it was run."""
        return documents.CaseReceipt(
            inputs_sha256=self.inputs_sha256(workload),
            executor="independent",
            serialized=False,
            transport="shared_memory",
            transport_reason="",
            num_workers=1,
            num_tensors=2,
            tied=("head = embedding",),
            load_s=0.25,
            train_s=1.5,
            compare_s=0.5,
            compared_bytes=4096,
        )

    def _window_s(self, slot: documents.Slot, side: str) -> float:
        return BASELINE_WINDOW_S / (self.ratio(slot.workload, slot.repeat) if side == "candidate" else 1.0)

    def _measured(self, slot: documents.Slot, side: str) -> dict[str, Any]:
        windows = self.protocol.throughput.windows
        train_s = math.fsum([self._window_s(slot, side)] * windows)
        tokens = windows * UPDATES * TOKENS_PER_UPDATE
        return {
            "warmup_updates": self.protocol.throughput.warmup_updates,
            "updates": UPDATES,
            "tokens": tokens,
            "startup_s": 0.5,
            "train_s": train_s,
            "elapsed_s": train_s + 0.75,
            "peak_allocated_bytes": 1 << 20,
            "peak_reserved_bytes": 1 << 20,
            "tokens_per_s": tokens / train_s,
        }

    def start(self, slot: documents.Slot, number: int, allocation: str, segment: int = 0) -> None:
        """Write start.json, as the harness does before anything of a side runs."""
        folder = self.folder(slot.slot, number, segment)
        folder.root.mkdir(parents=True)
        start = documents.Start(
            slot=self.real_slot(slot.slot),
            attempt=number,
            allocation=allocation,
            kind=slot.kind,
            segment=(segment or 1) if slot.kind == "run" else 0,
            manifest_sha256=_sha256_once(self.paths.manifest),
            protocol_sha256=_sha256_once(self.paths.protocol),
            harness_sha256=self.manifest.harness_sha256,
            snapshots={side: self._snapshot(side) for side in slot.order},
            job=self.job_identity,
            host=documents.Host(
                node=NODE,
                boot_id=self.boot,
                kernel="6.1",
                machine="x86_64",
                cpu="Synthetic Processor",
                memory_bytes=1 << 30,
                affinity=(0,),
            ),
            device=DEVICE,
            devices=(
                {"kind": "cpu", "name": "Synthetic Processor", "uuid": "", "memory_bytes": 1 << 30, "driver": ""},
            ),
            threads=1,
            at=AT,
        )
        folder.start.write_bytes(start.to_bytes())
        started = documents.Started(
            allocation=allocation,
            job=start.job,
            host=NODE,
            boot_id=start.host.boot_id,
            pid=1,
            process_start=1,
            at=AT,
        )
        self.paths.allocation(allocation).started.write_bytes(started.to_bytes())

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
        """Write receipt.json over whatever files the folder holds now."""
        folder = self.folder(slot.slot, number, segment)
        sides = tuple(
            documents.SideReceipt(
                side=side,
                position=position,
                exit_code=0,
                signal=None,
                wall_s=1.0,
                cpu_s=1.0,
                max_rss_bytes=1 << 20,
                output_bytes=0,
                output_truncated=False,
                engaged=ENGAGED,
                path=path_of(ENGAGED),
                versions={"python": "3.11.7"},
                caches=documents.Caches(compile="private, cold", bytecode="installed"),
                offers=("updates", "sync"),
                missing=(),
                foreign=(),
                undeclared=(),
                interpreter=INTERPRETER,
                environment_sha256="7" * 64,
            )
            for position, side in enumerate(slot.order, start=1)
        )
        receipt = documents.Receipt(
            start_sha256=files.sha256_file(folder.start),
            slot=self.real_slot(slot.slot),
            attempt=number,
            allocation=allocation,
            kind=slot.kind,
            ending=ending,
            reason=reason,
            elapsed_s=3.0,
            at=AT + 3,
            sides=sides,
            isolation="same user",
            calibration=self._calibration(slot) if slot.kind == "pilot" else None,
            case=self.case(slot.workload) if slot.kind in CASES and ending is Ending.COMPLETED else None,
            segment=(segment or 1) if slot.kind == "run" else 0,
            run=run,
            files=tuple(_sealed(path) for path in sorted(folder.root.iterdir()) if _is_sealed(path, folder)),
        )
        folder.receipt.write_bytes(receipt.to_bytes())

    def _calibration(self, slot: documents.Slot) -> documents.Calibration:
        found = documents.Calibration(updates_per_s=4.0, tokens_per_update=64.0, startup_s=0.5, updates=4)
        if self.protocol.recipe(slot.workload) is None:
            return found
        return found.replace(evaluate_s=0.5, checkpoint_bytes=8192, save_s=0.25)

    def reseal(self, slot: str, file: str, edit: Callable[[bytes], bytes], number: int = 1) -> None:
        """Change a table and seal it again: what a side or a harness that errs would leave."""
        folder = self.folder(slot, number)
        folder.table(file).write_bytes(edit(folder.table(file).read_bytes()))
        receipt = documents.Receipt.read(folder.receipt)
        self.seal(self.slot(slot), number, receipt.allocation, ending=receipt.ending)

    def slot(self, name: str) -> documents.Slot:
        """Return a slot of the protocol."""
        return next(slot for slot in self.protocol.slots if slot.slot == name)

    def attempt(
        self, slot: documents.Slot, number: int = 1, *, ending: Ending = Ending.COMPLETED, reason: str = ""
    ) -> str:
        """Plan, start, run and seal one attempt, of a run in one segment; return its allocation."""
        if slot.kind == "run":
            return self.segment(slot, number, ending=ending, reason=reason)
        allocation = self.plan(slot, number)
        self.run(slot, number, allocation, ending=ending, reason=reason)
        return allocation

    def run(
        self, slot: documents.Slot, number: int, allocation: str, *, ending: Ending = Ending.COMPLETED, reason: str = ""
    ) -> None:
        """Start, run and seal an attempt that was planned."""
        self.start(slot, number, allocation)
        if ending is Ending.COMPLETED:
            for name, data in self.tables(slot, number, allocation).items():
                self.folder(slot.slot, number).table(name).write_bytes(data)
        (self.folder(slot.slot, number).root / "harness.log").write_bytes(b"done\n")
        self.seal(slot, number, allocation, ending=ending, reason=reason)

    # --- runs

    def segment(
        self,
        slot: documents.Slot,
        number: int = 1,
        segment: int = 1,
        *,
        ending: Ending = Ending.COMPLETED,
        reason: str = "",
        checkpoints: Sequence[int] | None = None,
        resume: documents.CheckpointName | Literal["newest"] | None = "newest",
        is_sealed: bool = True,
        is_ended: bool = True,
    ) -> str:
        """Plan, start and make one segment of an attempt at a run; return its allocation.

        Args:
            slot: The slot.
            number: Number of the attempt.
            segment: Which segment.
            ending: How it ended.
            reason: Why.
            checkpoints: Updates after which it saves; default soon after its start, and at the end if it completes.
            resume: What it starts from; default the newest checkpoint that there is.
            is_sealed: Whether it leaves a receipt.
            is_ended: Whether one that leaves none is known to have ended.
        """
        start_from = self.newest(slot, number, before=segment) if resume == "newest" else resume
        allocation = self.plan(slot, number, segment=segment, resume=start_from)
        self.start(slot, number, allocation, segment)
        recipe = self.protocol.recipe(slot.workload)
        assert recipe is not None
        first = start_from.update if start_from else 0
        last = recipe.updates if ending is Ending.COMPLETED else min(first + 12, recipe.updates)
        wanted = sorted({min(first + 5, last), last}) if checkpoints is None else sorted(checkpoints)
        for update in wanted:
            if update > first or first == last:
                self.checkpoint(slot, number, update, segment=segment, allocation=allocation, resume=start_from)
        folder = self.folder(slot.slot, number, segment)
        (folder.root / f"{slot.side}.log").write_bytes(b"trained\n")
        if ending is Ending.COMPLETED:
            final = self.read_checkpoint(slot, number, segment, recipe.updates)
            for name, data in training.tables(
                recipe, final, segments=segment, seed=documents.seed_of_run(slot.slot)
            ).items():
                folder.table(name).write_bytes(data)
        if is_sealed:
            run = self.run_receipt(slot, number, segment, start_from, last)
            self.seal(slot, number, allocation, ending=ending, reason=reason, segment=segment, run=run)
        elif is_ended:
            self.end(slot, number, allocation, ending, segment)
        return allocation

    def newest(self, slot: documents.Slot, number: int = 1, *, before: int) -> documents.CheckpointName | None:
        """Return the newest checkpoint of the last segment before a number that has any."""
        for segment in range(before - 1, 0, -1):
            folder = self.folder(slot.slot, number, segment)
            if updates := [int(path.name) for path in folder.checkpoints.glob("[0-9]*")]:
                sha256 = files.sha256_file(folder.checkpoint(max(updates)).document)
                return documents.CheckpointName(segment=segment, update=max(updates), sha256=sha256)
        return None

    def read_checkpoint(self, slot: documents.Slot, number: int, segment: int, update: int) -> documents.Checkpoint:
        """Return a checkpoint.json that a segment wrote."""
        return documents.Checkpoint.read(self.folder(slot.slot, number, segment).checkpoint(update).document)

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
        """Write a checkpoint of a segment."""
        recipe = self.protocol.recipe(slot.workload)
        assert recipe is not None
        before = None if resume is None else self.read_checkpoint(slot, number, resume.segment, resume.update)
        seed = documents.seed_of_run(slot.slot)
        data = training.saved(slot.slot, number, update)
        made = training.checkpoint(
            recipe,
            update=update,
            loss=self.loss(recipe.name, seed, slot.side),
            before=before,
            manifest_sha256=_sha256_once(self.paths.manifest),
            slot=self.real_slot(slot.slot),
            attempt=number,
            segment=segment,
            allocation=allocation,
            side=slot.side,
            snapshot_sha256=self._snapshot(slot.side),
            seed=seed,
            previous=resume,
            path=path_of(ENGAGED),
            files=tuple(
                documents.CheckpointFile(name=name, bytes=len(content), sha256=files.sha256_bytes(content))
                for name, content in sorted(data.items())
            ),
        )
        folder = self.folder(slot.slot, number, segment).checkpoint(update)
        for name, content in data.items():
            path = folder.files / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        folder.document.write_bytes(made.to_bytes())
        return made

    def run_receipt(
        self,
        slot: documents.Slot,
        number: int,
        segment: int,
        resume: documents.CheckpointName | None,
        update: int,
    ) -> documents.RunReceipt:
        """Return what a receipt says of a segment, over the checkpoints that it has now."""
        folder = self.folder(slot.slot, number, segment)
        checkpoints = []
        for saved in sorted(int(path.name) for path in folder.checkpoints.glob("[0-9]*")):
            document = folder.checkpoint(saved).document
            checkpoints.append(
                documents.SealedCheckpoint(
                    update=saved,
                    sha256=files.sha256_file(document),
                    bytes=sum(one.bytes for one in documents.Checkpoint.read(document).files),
                )
            )
        return documents.RunReceipt(
            recipe=slot.workload,
            seed=documents.seed_of_run(slot.slot),
            resumed=resume,
            first_update=resume.update if resume else 0,
            update=update,
            checkpoints=tuple(checkpoints),
            train_s=1.0,
            evaluate_s=0.5,
            save_s=0.25,
            load_s=0.25 if resume else 0.0,
        )


def _is_sealed(path: Path, folder: AttemptPaths) -> bool:
    return path not in (folder.receipt, folder.checkpoints)


def _sealed(path: Path) -> documents.SealedFile:
    rows = path.read_bytes().count(b"\n") - 1 if path.suffix == ".csv" else None
    return documents.SealedFile(name=path.name, bytes=path.stat().st_size, sha256=files.sha256_file(path), rows=rows)


def freeze(
    root: Path,
    cases: Sequence[Case] = SMALL,
    *,
    repeats: int = 3,
    solo: bool = True,
    controls: bool = True,
    numerical: documents.NumericalRules | None = None,
    convergence: documents.ConvergenceRules | None = None,
    windows: int = 5,
) -> Home:
    """Create a home with a frozen baseline and nothing else."""
    paths = HomePaths(root)
    paths.frozen.mkdir(parents=True)
    copy_package(Path(acceptance.__file__).parent, paths.acceptance)
    protocol = make_protocol(
        cases,
        repeats=repeats,
        solo=solo,
        controls=controls,
        numerical=numerical,
        convergence=convergence,
        windows=windows,
    )
    paths.protocol.write_bytes(protocol.to_bytes())
    paths.config.write_bytes(b'name = "synthetic"\n')
    manifest = documents.Manifest(
        campaign=protocol.campaign,
        protocol_sha256=files.sha256_file(paths.protocol),
        acceptance_sha256=tree_digest(paths.acceptance),
        harness_sha256="d" * 64,
        verifier_sha256="e" * 64,
        config_sha256=files.sha256_file(paths.config),
        harness_python="/usr/bin/python3",
        baseline=make_side(SNAPSHOTS["baseline"]),
        data={},
        resources={},
        departures=("throughput.pilot_s is 1 here",),
        left_out=("build/ (ignored)",),
        driver={"campaign": "0.1.0", "python": "3.11.7"},
        machine={"node": "login1", "kernel": "Linux 6.1"},
    )
    paths.manifest.write_bytes(manifest.to_bytes())
    home = Home(paths=paths, protocol=protocol)
    home.append("froze_baseline", {"manifest_sha256": files.sha256_file(paths.manifest)})
    return home


def freeze_candidate(home: Home, candidate: str = CANDIDATE, snapshot_sha256: str = SNAPSHOTS["candidate"]) -> None:
    """Add a frozen candidate; what the home does from now on is about this one."""
    home.candidate, home.snapshot_sha256 = candidate, snapshot_sha256
    manifest = documents.CandidateManifest(
        id=candidate,
        manifest_sha256=files.sha256_file(home.paths.manifest),
        config_sha256=files.sha256_file(home.paths.config),
        candidate=make_side(snapshot_sha256),
        left_out=(),
        driver={"campaign": "0.1.0", "python": "3.11.7"},
        machine={"node": "login1", "kernel": "Linux 6.1"},
    )
    folder = home.paths.candidate(candidate)
    folder.root.mkdir(parents=True)
    folder.manifest.write_bytes(manifest.to_bytes())
    home.append("froze_candidate", {"candidate": candidate, "manifest_sha256": files.sha256_file(folder.manifest)})


def attempt_all(home: Home, side: Literal["baseline", "candidate"]) -> None:
    """Give every slot of a side, but an extension's runs, one completed, sealed attempt."""
    for slot in home.protocol.slots:
        if slot.side == side and not training.is_extending(home.protocol, slot):
            home.attempt(slot)


def build_home(
    root: Path,
    cases: Sequence[Case] = SMALL,
    ratio: Callable[[str, int], float] = lambda _workload, _repeat: 1.1,
    *,
    repeats: int = 3,
    solo: bool = True,
    controls: bool = True,
    numerical: documents.NumericalRules | None = None,
    convergence: documents.ConvergenceRules | None = None,
) -> Home:
    """Create a home in which every slot has one completed, sealed attempt, those of an extension's runs left out.

    Args:
        root: The folder to create.
        cases: The workloads.
        ratio: candidate / baseline for a workload in a repeat; at most 2.5, so that windows stay long enough.
        repeats: Measurement rounds.
        solo: Whether the baseline is also measured alone.
        controls: Whether there are control pairs.
        numerical: Rules of the numerical family; None where it is not declared.
        convergence: Rules of the convergence family; None where it is not declared.
    """
    home = freeze(
        root, cases, repeats=repeats, solo=solo, controls=controls, numerical=numerical, convergence=convergence
    )
    home.ratio = ratio
    attempt_all(home, "baseline")
    freeze_candidate(home)
    attempt_all(home, "candidate")
    return home
