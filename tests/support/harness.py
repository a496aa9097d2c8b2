"""A small campaign home for running the real harness, planned without the driver.

The trainers are a few lines of plain Python. Documents are built from the driver's models, so that the harness and the
driver cannot drift apart unnoticed.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import jobs
from acceptance.formats import TABLES, Row, parse_table
from campaign import documents, files
from campaign.paths import AttemptPaths, HomePaths
from campaign.snapshot.digest import digest_folder, read_entries, tree_digest
from campaign.snapshot.listing import dump_listing

CANDIDATE = "c0123456789ab"
WORKLOAD = "tiny"
RULES = documents.ThroughputRules(warmup_updates=3, windows=2, window_s="0.01", pilot_s="0.01", seed=7)
LIMITS = documents.Limits(import_s=20, startup_s=20, stall_s=20, log_bytes=4096)

ADAPTER = '''"""A trainer that counts: an update lasts 2 ms."""
import time


class Runner:
    def __init__(self, config, seed, device):
        self.config, self.seed, self.device = config, seed, device
        self.count = 0

    def updates(self, n):
        time.sleep(0.002 * n)
        self.count += n
        return n, 2 * n, 0, n * self.config["tokens"]

    def sync(self):
        pass

    def loss(self):
        return 1.0 / (1.0 + self.count)

    def engaged(self):
        return {"path": "counting", "count": self.count}

    def close(self):
        pass


def build(config, *, seed, device):
    return Runner(config, seed, device)
'''
"""A trainer that does everything right."""
RECIPE = "small"
TRAINING = """
def __init__(self, config, seed, device):
    super().__init__(config, seed, device)
    self.state = 1.0 + seed / 1000

def evaluate(self):
    targets = self.config["validation_targets"]
    return targets * (2.0 + self.state), targets

def save(self, folder):
    (Path(folder) / "state").mkdir()
    (Path(folder) / "state" / "value.txt").write_text(self.state.hex())
    (Path(folder) / "counters.json").write_text(json.dumps(self.progress()))

def load(self, folder):
    self.state = float.fromhex((Path(folder) / "state" / "value.txt").read_text())
    found = json.loads((Path(folder) / "counters.json").read_text())
    self.count, self.seed = found["count"], found["seed"]

def progress(self):
    return {"count": self.count, "seed": self.seed, "state": self.state}

def updates(self, n):
    for number in range(self.count, self.count + n):
        self.state *= 1 - 0.1 / (number + 2 + self.seed % 7)
    return super().updates(n)
"""
"""Methods of a trainer whose validation loss falls, and depends on every update since the beginning."""


def misbehaving(body: str, *, head: str = "") -> str:
    """Return an adapter whose runner overrides something.

    Args:
        body: Methods of the class, not indented.
        head: Code of the module, run at import.
    """
    indented = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
    start, end = ADAPTER.split("\n\ndef build")
    return f"{start}\n\n{head}\n\nclass Bad(Runner):\n{indented}    pass\n\n\ndef build{end}".replace(
        "return Runner(config", "return Bad(config"
    )


def trainer(body: str = "") -> str:
    """Return an adapter that can train, save and load.

    Args:
        body: Methods that replace those of the class, not indented.
    """
    return misbehaving(f"{TRAINING}\n{body}", head="import json\nfrom pathlib import Path")


@functools.cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of the parents' bytecode, which all benches share: most of it is the standard library's."""
    return tempfile.TemporaryDirectory(prefix="harness-bytecode-")


@functools.cache
def _bare() -> tuple[str, tempfile.TemporaryDirectory[str]]:
    """Return an interpreter for which nothing is installed: each run of a side looks at all that is."""
    folder = tempfile.TemporaryDirectory(prefix="bare-")
    root = Path(folder.name, "venv").resolve()
    venv.create(root, symlinks=True)
    return str(root / "bin" / "python"), folder


@dataclass(slots=True, kw_only=True)
class Bench:
    """A home with its allocations, and the means to run them."""

    paths: HomePaths
    protocol: documents.Protocol
    runnables: dict[str, documents.Runnable]
    temporary: Path
    data: dict[str, documents.DataIdentity] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """What the job's environment holds beside the usual."""
    python: str = sys.executable
    """The harness's interpreter."""

    def plan(self, *attempts: documents.PlannedAttempt, allocation: str = "a00001") -> Path:
        """Write allocation.json; return its path."""
        names = {"candidate" if side == "candidate" else "baseline" for one in attempts for side in one.order}
        plan = documents.AllocationPlan.of(
            {
                "allocation": allocation,
                "key": "key",
                "home": str(self.paths.root),
                "manifest_sha256": "a" * 64,
                "protocol_sha256": files.sha256_file(self.paths.protocol),
                "harness_sha256": digest_folder(self.paths.harness),
                "sides": {name: self.runnables[name] for name in sorted(names)},
                "data": self.data,
                "attempts": attempts,
            }
        )
        path = self.paths.allocation(allocation).plan
        path.parent.mkdir(parents=True)
        path.write_bytes(plan.to_bytes())
        return path

    def argv(self, *plans: Path) -> list[str]:
        """Return what a job executes."""
        prefix = f"pycache_prefix={_bytecode().name}"
        launcher = str(self.paths.launcher)
        return [self.python, "-P", "-s", "-X", prefix, launcher, "allocation", *map(str, plans)]

    def job_environment(self) -> dict[str, str]:
        """Return the environment of a job."""
        path = os.environ.get("PATH", "")
        return {"PATH": path, "TMPDIR": str(self.temporary), "USER": "somebody", **self.environment}

    def start(self, *plans: Path) -> subprocess.Popen[str]:
        """Start a job."""
        return subprocess.Popen(
            self.argv(*plans), env=self.job_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *plans: Path) -> subprocess.CompletedProcess[str]:
        """Run a job to its end."""
        return subprocess.run(
            self.argv(*plans), env=self.job_environment(), capture_output=True, text=True, check=False, timeout=120
        )

    def attempt(self, planned: documents.PlannedAttempt) -> AttemptPaths:
        """Return the folder of an attempt, or of a segment of one."""
        return self.paths.attempt(planned.slot, planned.attempt, planned.segment)

    def receipt(self, planned: documents.PlannedAttempt) -> documents.Receipt:
        """Read an attempt's receipt, after checking that it seals every file."""
        folder = self.attempt(planned)
        receipt = documents.Receipt.read(folder.receipt)
        documents.Start.read(folder.start)
        assert receipt.start_sha256 == files.sha256_file(folder.start)
        sealed = {one.name: (one.bytes, one.sha256) for one in receipt.files}
        found = {
            path.name: (path.stat().st_size, files.sha256_file(path))
            for path in folder.root.iterdir()
            if path not in (folder.receipt, folder.checkpoints)
        }
        assert sealed == found
        kept = receipt.run.checkpoints if receipt.run is not None else ()
        assert {one.update: one.sha256 for one in kept} == {
            update: files.sha256_file(folder.checkpoint(update).document) for update in self.checkpoints(planned)
        }
        assert {one.update: one.bytes for one in kept} == {
            update: sum(file.bytes for file in one.files) for update, one in self.checkpoints(planned).items()
        }
        return receipt

    def checkpoints(self, planned: documents.PlannedAttempt) -> dict[int, documents.Checkpoint]:
        """Read the checkpoints that a segment wrote, after checking that they list every file."""
        folder = self.attempt(planned)
        found = {}
        for path in folder.checkpoints.iterdir() if folder.checkpoints.is_dir() else ():
            if not path.name.startswith("."):
                paths = folder.checkpoint(int(path.name))
                found[int(path.name)] = documents.Checkpoint.read(paths.document)
                listed = [(one.name, one.bytes, one.sha256) for one in found[int(path.name)].files]
                assert listed == sorted(_describe(paths.files))
        return dict(sorted(found.items()))

    def name_checkpoint(self, planned: documents.PlannedAttempt, update: int) -> documents.CheckpointName:
        """Return how the plan of a later segment names a checkpoint of this one."""
        document = self.attempt(planned).checkpoint(update).document
        return documents.CheckpointName(segment=planned.segment, update=update, sha256=files.sha256_file(document))

    def rows(self, planned: documents.PlannedAttempt, file: str) -> tuple[Row, ...]:
        """Parse a table of an attempt with the one definition of its syntax."""
        rows, faults = parse_table(TABLES[file], self.attempt(planned).table(file).read_bytes(), file)
        assert not faults
        return rows

    def ended(self, allocation: str = "a00001") -> documents.Ended:
        """Read ended.json."""
        return documents.Ended.read(self.paths.allocation(allocation).ended)

    def side_log(self, planned: documents.PlannedAttempt, side: str) -> str:
        """Return what a side printed."""
        return self.attempt(planned).table(f"{side}.log").read_text()


def _describe(root: Path) -> Iterator[tuple[str, int, str]]:
    """Yield name, size and SHA-256 of every file below a folder."""
    for path in root.rglob("*"):
        if not path.is_dir():
            yield path.relative_to(root).as_posix(), path.stat().st_size, files.sha256_file(path)


def write_tree(root: Path, sources: Mapping[str, str]) -> None:
    """Write files below a folder."""
    for name, text in sources.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def freeze_side(bench_root: Path, identity: str, sources: Mapping[str, str], **changes: Any) -> documents.Runnable:
    """Freeze a tree under a home and say how to run it."""
    paths = HomePaths(bench_root)
    snapshot = paths.baseline if identity == "baseline" else paths.candidate(identity)
    snapshot.tree.mkdir(parents=True)
    write_tree(snapshot.tree, sources)
    entries = list(read_entries(snapshot.tree))
    snapshot.listing.write_bytes(dump_listing(entries))
    values: dict[str, Any] = {
        "id": identity,
        "tree": str(snapshot.tree),
        "files": str(snapshot.listing),
        "snapshot_sha256": tree_digest(entries),
        "python": sys.executable,
        "adapter": "adapter:build",
        "python_path": (".",),
        "environment": {},
        "pass_environment": (),
        "launch": (),
        "container": None,
    }
    return documents.Runnable.of({**values, **changes})


def _config_sha256(config: Mapping[str, Any]) -> str:
    return files.sha256_bytes(json.dumps(config, sort_keys=True, separators=(",", ":")).encode())


def make_convergence(*, updates: int = 40, evaluate_every: int = 15, **changes: Any) -> documents.ConvergenceRules:
    """Return the rules of one recipe for `trainer`, 5 targets an update, with other values where given.

    Args:
        updates: Of the whole training.
        evaluate_every: Updates between points of the curve.
        changes: Fields of the rules, and of the recipe.
    """
    config = {"tokens": 5, "validation_targets": 8}
    values: dict[str, Any] = {"name": RECIPE, "config": config, "config_sha256": _config_sha256(config)}
    values |= {"targets": 5 * updates, "validation_targets": 8, "updates": updates, "evaluate_every": evaluate_every}
    values |= {name: changes.pop(name) for name in documents.Recipe.__struct_fields__ if name in changes}
    return documents.ConvergenceRules(recipes=(documents.Recipe(**values),), **changes)


def make_protocol(
    rules: documents.ThroughputRules,
    limits: documents.Limits,
    config: Mapping[str, Any],
    numerical: documents.NumericalRules | None = None,
    convergence: documents.ConvergenceRules | None = None,
) -> documents.Protocol:
    """Return a protocol of one workload, and of the recipes of the convergence family if it is declared."""
    workload = documents.Workload(
        name=WORKLOAD, category="sync", production=True, config=dict(config), config_sha256=_config_sha256(config)
    )
    return documents.Protocol(
        campaign="bench",
        families=(
            "throughput",
            *(("numerical",) if numerical is not None else ()),
            *(("convergence",) if convergence is not None else ()),
        ),
        baseline_first=False,
        throughput=rules,
        numerical=numerical,
        convergence=convergence,
        limits=limits,
        retries=documents.Retries(),
        execution=documents.Execution(),
        categories=(documents.Category(name="sync", workloads=(WORKLOAD,)),),
        workloads=(workload,),
        slots=(),
        headers={name: table.header for name, table in TABLES.items()},
    )


def make_bench(
    root: Path,
    baseline: str | Mapping[str, str] = ADAPTER,
    candidate: str | Mapping[str, str] = ADAPTER,
    *,
    rules: documents.ThroughputRules = RULES,
    limits: documents.Limits = LIMITS,
    config: Mapping[str, Any] | None = None,
    numerical: documents.NumericalRules | None = None,
    convergence: documents.ConvergenceRules | None = None,
    **changes: Any,
) -> Bench:
    """Create a home with two frozen sides.

    Args:
        root: A folder to use.
        baseline: The adapter module's text, or all files of the tree.
        candidate: The same.
        rules: The rules.
        limits: The limits.
        config: The workload's configuration.
        numerical: The numerical rules, where the family is declared.
        convergence: The convergence rules, likewise.
        changes: Fields of both sides that differ from the usual.
    """
    paths = HomePaths(root / "home")
    shutil.copytree(Path(jobs.__file__).parent, paths.harness, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    protocol = make_protocol(rules, limits, {"tokens": 5} if config is None else config, numerical, convergence)
    paths.protocol.write_bytes(protocol.to_bytes())
    runnables = {}
    for name, identity, given in (("baseline", "baseline", baseline), ("candidate", CANDIDATE, candidate)):
        sources = {"adapter.py": given} if isinstance(given, str) else given
        changes.setdefault("python", _bare()[0] if numerical is None else sys.executable)
        runnables[name] = freeze_side(paths.root, identity, sources, **changes)
    temporary = root / "tmp"
    temporary.mkdir()
    return Bench(paths=paths, protocol=protocol, runnables=runnables, temporary=temporary)


def make_attempt(
    kind: documents.SlotKind,
    order: Sequence[documents.SideName],
    *,
    number: int = 1,
    updates: int = 10,
    inputs_sha256: str = "",
) -> documents.PlannedAttempt:
    """Return a planned attempt of the one workload."""
    names = {"pilot": "pilot/tiny", "solo": "solo/tiny/r1", "pair": "pair/tiny/r1", "control_pair": "control/tiny/r1"}
    names |= {"case": "case/tiny", "control_case": "control-case/tiny"}
    is_measured = kind in ("solo", "pair", "control_pair")
    owner = CANDIDATE if "candidate" in order else "baseline"
    return documents.PlannedAttempt(
        slot=f"{owner}/{names[kind]}",
        attempt=number,
        kind=kind,
        workload=WORKLOAD,
        repeat=1 if is_measured else 0,
        pair=1 if "pair" in kind else 0,
        order=tuple(order),
        updates=updates if is_measured else 0,
        inputs_sha256=inputs_sha256,
    )


def make_recipe_pilot(side: documents.SideName) -> documents.PlannedAttempt:
    """Return a planned pilot of the one recipe."""
    pilot = make_attempt("pilot", (side,))
    return msgspec.structs.replace(pilot, slot=pilot.slot.replace(WORKLOAD, RECIPE), workload=RECIPE)


def make_run(
    side: documents.SideName = "baseline",
    *,
    seed: int = 45,
    number: int = 1,
    segment: int = 1,
    resume: documents.CheckpointName | None = None,
) -> documents.PlannedAttempt:
    """Return a planned segment of a run of the one recipe."""
    owner = CANDIDATE if side == "candidate" else "baseline"
    return documents.PlannedAttempt(
        slot=f"{owner}/run/{RECIPE}/s{seed}",
        attempt=number,
        kind="run",
        workload=RECIPE,
        repeat=0,
        pair=0,
        order=(side,),
        updates=0,
        segment=segment,
        resume=resume,
    )


PAIR = make_attempt("pair", ("baseline", "candidate"))
SOLO = make_attempt("solo", ("baseline",))
