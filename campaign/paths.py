"""The names of the files in a campaign home. No other module builds such a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

INPUTS = "inputs.json"
"""The canonical inputs of a workload's cases, beside the receipt of the baseline's pilot."""
TENSORS = "tensors.csv.gz"
"""The comparison of a case, tensor by tensor."""
RESUMPTION = "resumption.json"
"""What a side did from a checkpoint of either side."""


@dataclass(frozen=True, slots=True)
class SnapshotPaths:
    """One frozen side."""

    root: Path

    @property
    def tree(self) -> Path:
        """The read-only copy of the source tree."""
        return self.root / "tree"

    @property
    def listing(self) -> Path:
        """``files.json``: every entry of the tree with type, mode, size and SHA-256."""
        return self.root / "files.json"

    @property
    def patch(self) -> Path:
        """``changes.patch``: binary-safe difference from the last commit, for reading only."""
        return self.root / "changes.patch"

    @property
    def manifest(self) -> Path:
        """``manifest.json`` of a candidate; the baseline's is the home's own manifest."""
        return self.root / "manifest.json"


@dataclass(frozen=True, slots=True)
class EvaluationPaths:
    """What was derived for one candidate."""

    root: Path

    @property
    def evidence(self) -> Path:
        """Folder of the concatenated evidence tables and identity.json."""
        return self.root / "evidence"

    @property
    def identity(self) -> Path:
        """``evidence/identity.json``."""
        return self.evidence / "identity.json"

    @property
    def verdict(self) -> Path:
        """``verdict.json``."""
        return self.root / "verdict.json"

    @property
    def provenance(self) -> Path:
        """``provenance.json``: what the report says beside the verdict."""
        return self.root / "provenance.json"

    @property
    def report(self) -> Path:
        """Folder of report.html and its downloads."""
        return self.root / "report"

    @property
    def staging(self) -> Path:
        """``.report.tmp``: a report under construction, laid out like an evaluation; what is left of one is nothing."""
        return self.root / ".report.tmp"

    @property
    def page(self) -> Path:
        """``report/report.html``."""
        return self.report / "report.html"


_PLAN, _STARTED, _ENDED = "allocation.json", "started.json", "ended.json"


@dataclass(frozen=True)
class AllocationPaths:
    """One allocation's own files."""

    root: Path

    @cached_property
    def plan(self) -> Path:
        """``allocation.json``, written by the driver before it submits."""
        return self.root / _PLAN

    @cached_property
    def started(self) -> Path:
        """``started.json``, created once by the job that runs the allocation."""
        return self.root / _STARTED

    @cached_property
    def ended(self) -> Path:
        """``ended.json``, written by the harness when it leaves the allocation in order."""
        return self.root / _ENDED

    @cached_property
    def documents(self) -> tuple[str, ...]:
        """These three, as text: each collection looks at those of every allocation."""
        root = str(self.root)
        return f"{root}/{_PLAN}", f"{root}/{_STARTED}", f"{root}/{_ENDED}"

    @property
    def log(self) -> Path:
        """``harness.log``."""
        return self.root / "harness.log"

    @property
    def calls(self) -> Path:
        """Folder of what each command that went on with a detached allocation left."""
        return self.root / "calls"

    def call(self, number: int) -> Path:
        """Return ``calls/<n>.json``, written as a command begins."""
        return self.calls / f"{number}.json"

    def call_ended(self, number: int) -> Path:
        """Return ``calls/<n>.ended.json``, written as it leaves in order."""
        return self.calls / f"{number}.ended.json"


_CHECKPOINT = re.compile(r"[1-9][0-9]{0,17}")
"""Name of a checkpoint's folder: it appears whole, by rename. What is being written has another one."""


def is_checkpoint(name: str) -> bool:
    """Return whether a folder of this name is a complete checkpoint, named by the updates behind it."""
    return _CHECKPOINT.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class CheckpointPaths:
    """One checkpoint of a segment of a run."""

    root: Path

    @property
    def document(self) -> Path:
        """``checkpoint.json``."""
        return self.root / "checkpoint.json"

    @property
    def files(self) -> Path:
        """Folder of what the side saved."""
        return self.root / "files"


_START, _RECEIPT = "start.json", "receipt.json"


@dataclass(frozen=True)
class AttemptPaths:
    """One attempt at a slot, or one segment of an attempt at a run."""

    root: Path

    @cached_property
    def start(self) -> Path:
        """``start.json``, written by the harness before anything of a side runs."""
        return self.root / _START

    @cached_property
    def receipt(self) -> Path:
        """``receipt.json``, written last: it seals the other files."""
        return self.root / _RECEIPT

    @cached_property
    def documents(self) -> tuple[str, str]:
        """These two, as text: each collection reads those of every attempt."""
        return f"{self.root}/{_START}", f"{self.root}/{_RECEIPT}"

    @property
    def inputs(self) -> Path:
        """``inputs.json``: the canonical inputs that the baseline's pilot recorded."""
        return self.root / INPUTS

    @property
    def tensors(self) -> Path:
        """``tensors.csv.gz``: a case's comparison tensor by tensor; sealed, never merged."""
        return self.root / TENSORS

    @property
    def resumption(self) -> Path:
        """``resumption.json``: what a side did from a checkpoint of either side; only in a fallback trial."""
        return self.root / RESUMPTION

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints that a segment of a run wrote."""
        return self.root / "checkpoints"

    def checkpoint(self, update: int) -> CheckpointPaths:
        """Return one of them, by the updates behind it."""
        return CheckpointPaths(self.checkpoints / str(update))

    def side_log(self, side: str) -> Path:
        """Return ``<side>.log``: what a side printed, opened when it starts."""
        return self.root / f"{side}.log"

    def table(self, file: str) -> Path:
        """Return the path of an evidence table of this attempt."""
        return self.root / file


@dataclass(frozen=True, slots=True)
class FallbackPaths:
    """One fallback trial."""

    root: Path

    @property
    def document(self) -> Path:
        """``fallback.json``."""
        return self.root / "fallback.json"

    @property
    def allocation(self) -> AllocationPaths:
        """``allocation/``: what the harness was asked, and its own files."""
        return AllocationPaths(self.root / "allocation")

    def stretch(self, side: str, owner: str) -> AttemptPaths:
        """Return what one side left that went on from a checkpoint: ``<side>-from-<owner>/``."""
        return AttemptPaths(self.root / f"{side}-from-{owner}")


@dataclass(frozen=True, slots=True)
class TransportPaths:
    """submitit's folder of one submission, with what the driver keeps beside it; never evidence."""

    root: Path

    @property
    def request(self) -> Path:
        """``request.json``: what the transport's child process was asked to submit."""
        return self.root / "request.json"

    @property
    def answer(self) -> Path:
        """``answer.json``: the job that it got, or why there is none."""
        return self.root / "answer.json"

    @property
    def log(self) -> Path:
        """``transport.log``: what submitit and sbatch said."""
        return self.root / "transport.log"

    @property
    def bytecode(self) -> Path:
        """``pycache/``: bytecode of the harness process, compiled by its own jobs from the frozen sources."""
        return self.root / "pycache"

    def job_log(self, job: str) -> Path:
        """Return the file that holds what the job printed before and beside the harness's own log."""
        return self.root / f"{job}_0_log.out"


def _attempt_place(slot: str, number: int, segment: int) -> str:
    """Return the folder of an attempt, or of one segment of an attempt at a run, as text relative to the home."""
    return f"attempts/{slot}/{number}/segments/{segment}" if segment else f"attempts/{slot}/{number}"


@dataclass(frozen=True, slots=True)
class HomePaths:
    """One campaign home."""

    root: Path

    @property
    def manifest(self) -> Path:
        """``manifest.json``."""
        return self.root / "manifest.json"

    @property
    def protocol(self) -> Path:
        """``protocol.json``."""
        return self.root / "protocol.json"

    @property
    def config(self) -> Path:
        """``frozen/campaign.toml``: the very bytes of the configuration that was frozen."""
        return self.frozen / "campaign.toml"

    @property
    def frozen(self) -> Path:
        """Folder of everything frozen."""
        return self.root / "frozen"

    @property
    def staging(self) -> Path:
        """``.freezing``: where a freeze puts everything together before it counts; laid out like a home."""
        return self.root / ".freezing"

    @property
    def acceptance(self) -> Path:
        """The frozen acceptance program."""
        return self.frozen / "acceptance"

    @property
    def harness(self) -> Path:
        """The frozen harness."""
        return self.frozen / "harness"

    @property
    def verifier(self) -> Path:
        """The verifier that travels with the campaign."""
        return self.frozen / "verifier"

    @property
    def launcher(self) -> Path:
        """``frozen/harness/launch.py``: the program that a job runs."""
        return self.harness / "launch.py"

    @property
    def identifier(self) -> Path:
        """``frozen/harness/processes/installed.py``: what an interpreter is asked with what it is."""
        return self.harness / "processes" / "installed.py"

    @property
    def resumptions(self) -> Path:
        """``frozen/harness/runs/resumption.py``: the part of the harness that a fallback trial needs."""
        return self.harness / "runs" / "resumption.py"

    @property
    def baseline(self) -> SnapshotPaths:
        """The frozen baseline."""
        return SnapshotPaths(self.frozen / "baseline")

    @property
    def candidates(self) -> Path:
        """Folder of the frozen candidates."""
        return self.frozen / "candidates"

    @property
    def unnamed_candidate(self) -> SnapshotPaths:
        """Where a candidate is staged before its id, which is its digest, is known."""
        return SnapshotPaths(self.candidates / "unnamed")

    def candidate(self, candidate: str) -> SnapshotPaths:
        """Return the paths of one frozen candidate by id."""
        return SnapshotPaths(self.candidates / candidate)

    @property
    def attempts(self) -> Path:
        """Folder of all attempts."""
        return self.root / "attempts"

    def runs(self, owner: str) -> Path:
        """Return the folder of all runs of a side: of the baseline, or of a candidate by id."""
        return self.attempts / owner / "run"

    def attempt(self, slot: str, number: int, segment: int = 0) -> AttemptPaths:
        """Return the paths of one attempt, or of one segment of an attempt at a run."""
        return AttemptPaths(self.root / _attempt_place(slot, number, segment))

    def attempt_documents(self, slot: str, number: int, segment: int = 0) -> tuple[str, str]:
        """Return start.json and receipt.json of an attempt as text: each look reads those of every attempt."""
        folder = f"{self.root}/{_attempt_place(slot, number, segment)}"
        return f"{folder}/{_START}", f"{folder}/{_RECEIPT}"

    @property
    def incoming(self) -> Path:
        """``attempts/.ingest.tmp``: what comes back of a bundle before it counts; laid out like a home."""
        return self.attempts / ".ingest.tmp"

    @property
    def inputs(self) -> Path:
        """Folder of the canonical initial states and exact input batches of the cases, by digest."""
        return self.root / "inputs"

    def inputs_listing(self, sha256: str) -> Path:
        """Return the list of one workload's canonical inputs: ``inputs/<sha256>.json``."""
        return self.inputs / f"{sha256}.json"

    def input_tensors(self, sha256: str) -> Path:
        """Return one file of canonical inputs: ``inputs/<sha256>.safetensors``."""
        return self.inputs / f"{sha256}.safetensors"

    @property
    def allocations(self) -> Path:
        """Folder of all allocations."""
        return self.root / "allocations"

    def allocation(self, allocation: str) -> AllocationPaths:
        """Return the paths of one allocation by id."""
        return AllocationPaths(self.allocations / allocation)

    def fallbacks(self, candidate: str) -> Path:
        """Return the folder of a candidate's fallback trials."""
        return self.root / "fallbacks" / candidate

    def fallback(self, candidate: str, number: int) -> FallbackPaths:
        """Return the paths of one of them."""
        return FallbackPaths(self.fallbacks(candidate) / str(number))

    @property
    def transport(self) -> Path:
        """Folder of what submitit keeps; never evidence."""
        return self.root / "transport"

    def submission(self, key: str) -> TransportPaths:
        """Return the paths of one submission by key."""
        return TransportPaths(self.transport / key)

    @property
    def ledger(self) -> Path:
        """``ledger.jsonl``."""
        return self.root / "ledger.jsonl"

    @property
    def lock(self) -> Path:
        """``ledger.lock``."""
        return self.root / "ledger.lock"

    def torn(self, number: int) -> Path:
        """Return where the n-th torn last line of the ledger is set aside: ``ledger.torn.<n>``."""
        return self.root / f"ledger.torn.{number}"

    @property
    def database(self) -> Path:
        """``campaign.sqlite``."""
        return self.root / "campaign.sqlite"

    @property
    def rebuilt_database(self) -> Path:
        """``.campaign.sqlite.rebuild``: a cache under construction, renamed over the old one when it is complete."""
        return self.root / ".campaign.sqlite.rebuild"

    @property
    def accounting(self) -> Path:
        """Folder of what the scheduler's accounting said."""
        return self.root / "accounting"

    def accounts(self, number: int) -> Path:
        """Return the n-th answer that was kept: ``accounting/<n>.txt``."""
        return self.accounting / f"{number}.txt"

    @property
    def seal(self) -> Path:
        """``seal.json``: every file of a closed campaign with its digest."""
        return self.root / "seal.json"

    @property
    def evaluations(self) -> Path:
        """Folder of all evaluations."""
        return self.root / "evaluations"

    def evaluation(self, candidate: str) -> EvaluationPaths:
        """Return the paths of one candidate's evaluation."""
        return EvaluationPaths(self.evaluations / candidate)

    @classmethod
    def default(cls, config: Path, name: str) -> HomePaths:
        """Return the home of a campaign for which none was named: ``<name>.campaign`` beside its configuration."""
        return cls(config.parent / f"{name}.campaign")

    def looks_like_home(self) -> bool:
        """Return whether this folder is a campaign home, or one whose first freeze has not ended."""
        if self.staging.is_dir():
            return True
        return self.manifest.is_file() and self.protocol.is_file() and self.frozen.is_dir()


@dataclass(frozen=True, slots=True)
class BundlePaths:
    """One bundle: allocations for a machine that the driver does not reach."""

    root: Path

    @property
    def document(self) -> Path:
        """``bundle.json``."""
        return self.root / "bundle.json"

    @property
    def program(self) -> Path:
        """``run.py``: what is started on the machine."""
        return self.root / "run.py"

    @property
    def home(self) -> HomePaths:
        """``home/``: laid out as the home that it is from."""
        return HomePaths(self.root / "home")

    @property
    def data(self) -> Path:
        """Folder of the data sets that lie in the bundle."""
        return self.root / "data"

    def data_set(self, name: str, path: str) -> Path:
        """Return where a data set lies in the bundle: ``data/<name>/`` and its own name."""
        return self.data / name / Path(path).name

    @property
    def results(self) -> Path:
        """``results.json`` of packed results."""
        return self.root / "results.json"
