"""The JSON documents of a campaign home, as typed models. docs/formats.md says what each field means.

Every model refuses unknown fields, and a format name that it does not know. The bytes on disk are what is hashed;
a model is never written back over the file it came from. The models are msgspec's, since every command reads some of
them when it starts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar, dataclass_transform

import msgspec

from acceptance.formats import Ending
from campaign import files
from campaign.errors import EvidenceError

Phase: TypeAlias = Literal["pilot", "baseline", "throughput", "numerical", "convergence", "device"]
SlotKind: TypeAlias = Literal["pilot", "solo", "control_pair", "pair", "control_case", "case", "run", "trial"]
AttemptKind: TypeAlias = SlotKind | Literal["resumption"]
"""The kinds of slots, and the one that no slot has: a side goes on from a checkpoint of either side."""
SideName: TypeAlias = Literal["baseline", "baseline_again", "candidate"]
Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""A number that starts at 0."""
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
"""A number that starts at 1."""


class _DocumentMeta(msgspec.StructMeta):
    """Makes the fields of every model keyword-only, which a msgspec class does not inherit from its base."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _DocumentMeta:
        """Create a model."""
        return super().__new__(mcs, name, bases, namespace, **{"kw_only": True, **options})


def _is_as_written(data: bytes, document: Document | None = None) -> bool:
    """Return whether bytes are JSON just as this project writes it, for a document or for a line of the ledger.

    They are what comes out where they are read and written again, so that they name nothing twice and hold no number
    that is none: `campaign.files.parse_json` would find nothing wrong. It takes several times as long.

    Args:
        data: The bytes.
        document: What was read from them; None to read them without a model, which leaves no field to a default.
    """
    try:
        value = msgspec.json.decode(data) if document is None else document
        written = msgspec.json.encode(value, order="sorted")
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return False
    return data == written or data == msgspec.json.format(written, indent=2) + b"\n"


def _refusal(error: msgspec.MsgspecError, where: str) -> EvidenceError:
    """Return what to say of values that are not those of a document."""
    reason, _, place = str(error).partition(" - at `$")
    return EvidenceError(": ".join(filter(None, [place.removeprefix(".").removesuffix("`"), reason])), where=where)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Document(msgspec.Struct, metaclass=_DocumentMeta, frozen=True, forbid_unknown_fields=True):
    """Base of all models: frozen, no unknown fields, no silent conversion.

    Building one in Python checks nothing but the names; `of` and `parse` check everything, and so does `to_bytes`.
    """

    def to_bytes(self) -> bytes:
        """Return the bytes to store.

        Raises:
            ValueError: They could not be read again: a bug, since a document is wrong that was built in Python.
        """
        data = files.dump_json(msgspec.to_builtins(self))
        msgspec.json.decode(data, type=type(self))
        return data

    def to_json(self) -> dict[str, Any]:
        """Return the value that a reader of the bytes sees, and check it as `to_bytes` does."""
        value: dict[str, Any] = json.loads(self.to_bytes())
        return value

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values for some fields."""
        return msgspec.structs.replace(self, **changes)

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Build a document from values, checking them.

        Raises:
            ValueError: They are not those of such a document.
        """
        return msgspec.convert(fields, cls, strict=True)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the default of every field that has one."""
        fields = msgspec.structs.fields(cls)
        return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}

    @classmethod
    def parse(cls, data: bytes, *, where: str) -> Self:
        """Parse bytes strictly.

        Raises:
            EvidenceError: They are not such a document.
        """
        try:
            document = msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            files.parse_json(data, where=where)
            raise _refusal(error, where) from error
        if not (_is_as_written(data, document) or _is_as_written(data)):
            files.parse_json(data, where=where)
        return document

    @classmethod
    def parse_again(cls, data: bytes) -> Self:
        """Parse bytes that are known, by their digest, to be such a document: `parse` found them right before."""
        return msgspec.json.decode(data, type=cls)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a document from a file; see `parse`.

        Raises:
            EvidenceError: The file is missing, a link or a pipe, or not such a document.
        """
        return cls.parse(files.read_regular(path), where=str(path))


# --- protocol ---------------------------------------------------------------------------------------------------------


class ThroughputRules(Document):
    """Rules of the throughput family. Decimal strings decide; see docs/protocol.md."""

    repeats: Positive = 3
    pairs_per_repeat: Positive = 1
    warmup_updates: Natural = 20
    windows: Positive = 5
    window_s: str = "1"
    window_margin: str = "1.25"
    pilot_s: str = "1"
    category_threshold: str = "1.05"
    production_threshold: str = "0.98"
    solo: bool = True
    controls: bool = True
    seed: int = 1
    clock_relative: str = "0.02"
    clock_absolute_s: str = "0.05"


Quantity: TypeAlias = Literal["gradients", "parameters", "updates", "exp_avg", "exp_avg_sq"]
"""What is compared tensor by tensor."""


class NumericalRules(Document):
    """Rules of the numerical family. Decimal strings decide; see docs/protocol.md."""

    updates: Positive = 5
    """Matched local updates of a case."""
    moments: Literal["fresh", "warm"] = "fresh"
    """Whether Adam's moments start at zero, or as the baseline's warm-up left them."""
    loss_atol: str = "0.002"
    loss_rtol: str = "0.002"
    gradients_threshold: str = "0.05"
    parameters_threshold: str = "0.02"
    updates_threshold: str = "0.10"
    tensor_floor: str = "0.1"
    """kappa of the floor below a single tensor's reference."""
    tensor_gradients: str = "0.10"
    tensor_parameters: str = "0.04"
    tensor_updates: str = "0.20"
    tensor_exp_avg: str = "0.10"
    tensor_exp_avg_sq: str = "0.20"
    """tau of each quantity: a tensor above it is flagged."""
    gated_tensors: tuple[Quantity, ...] = ()
    """Quantities whose per-tensor rule gates."""
    control_factor: str = "3"
    """A candidate above so many times its control's worst is flagged."""
    isolated_steps: Positive = 5
    isolated_sd: str = "0.02"
    isolated_rtol: str = "1e-6"
    isolated_atol: str = "1e-8"
    isolated_scalars: Literal["fp64", "fp32"] = "fp64"
    """Precision in which both sides' optimizers form their scalars (1 - beta, bias corrections)."""
    controls: bool = True
    required: tuple[Literal["optimizer_check", "mix"], ...] = ()
    """Optional methods of an adapter that the protocol asks for."""
    serialized: tuple[str, ...] = ()
    """Workloads whose sides take turns on the device."""
    shared_executor: tuple[str, ...] = ()
    """Workloads whose control runs both trajectories in one process."""


class Recipe(Document):
    """One resolved training recipe of the convergence family."""

    name: str
    config: dict[str, Any]
    config_sha256: str
    targets: Positive
    """Targets of one training, exactly."""
    validation_targets: Positive
    """Targets of the whole validation split, exactly."""
    updates: Positive
    evaluate_every: Positive
    """Updates between two points of the validation curve; the last update has one too."""
    scored: str = ""
    """Which model is scored, in words, where there are several."""

    @property
    def points(self) -> tuple[int, ...]:
        """The updates after which the validation loss is taken: every multiple, and the last one."""
        return (*range(self.evaluate_every, self.updates, self.evaluate_every), self.updates)


class ConvergenceExtension(Document):
    """The seeds that are added where the first look is inconclusive, and the quantile of each look."""

    seeds: tuple[Natural, ...]
    quantile_first: str
    quantile: str


class ConvergenceRules(Document):
    """Rules of the convergence family. Decimal strings decide; see docs/protocol.md."""

    seeds: tuple[Natural, ...] = (45, 46, 47)
    margin: str = "0.005"
    """What the upper bound of candidate - baseline must be strictly below, in nats."""
    quantile: str = "2.920"
    """t(0.95, seeds - 1)."""
    max_segments: Positive = 20
    """Most segments of one attempt at a run."""
    checkpoint_s: Positive = 1800
    """Seconds of a segment between two checkpoints; the first one comes earlier. Gates nothing."""
    extension: ConvergenceExtension | None = None
    recipes: tuple[Recipe, ...] = ()


class Limits(Document):
    """How long a side may take for one answer, and how much it may print."""

    import_s: Positive = 300
    startup_s: Positive = 1800
    stall_s: Positive = 600
    log_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 4 << 20


class Retries(Document):
    """Which endings allow another attempt."""

    max_attempts: Positive = 3
    again: tuple[Ending, ...] = (
        Ending.NODE_FAIL,
        Ending.PREEMPTED,
        Ending.CANCELLED,
        Ending.LOST,
        Ending.NO_SPACE,
        Ending.TIME_LIMIT,
    )
    again_once: tuple[Ending, ...] = (Ending.WINDOW_SHORT,)


class Execution(Document):
    """What a side may use."""

    device: Literal["cpu", "cuda"] = "cpu"
    threads: Positive = 1


class Category(Document):
    """A category and its workloads, in the order of the matrix."""

    name: str
    workloads: tuple[str, ...]


class Workload(Document, omit_defaults=True):
    """One resolved training configuration. What has a default is written where it differs from that."""

    name: str
    category: str
    production: bool
    config: dict[str, Any]
    config_sha256: str
    processes: Positive = 1
    """Processes of each side, the ranks."""
    nodes: Positive = 1
    """Nodes that they run on, equally many on each."""
    numerical: bool = True
    """False where several processes are left out of the numerical family, which compares single ones."""

    @property
    def topology(self) -> tuple[int, int]:
        """Nodes and processes: allocations hold workloads of one."""
        return self.nodes, self.processes


class Slot(Document):
    """One planned piece of evidence."""

    slot: str
    side: Literal["baseline", "candidate"]
    phase: Phase
    kind: SlotKind
    workload: str
    repeat: Natural
    pair: Natural
    order: tuple[SideName, ...]


class Protocol(Document):
    """protocol.json."""

    format: Literal["protocol/1"] = "protocol/1"
    campaign: str
    families: tuple[Literal["throughput", "numerical", "convergence", "device"], ...]
    baseline_first: bool
    throughput: ThroughputRules
    numerical: NumericalRules | None = None
    """None where the family is not declared."""
    convergence: ConvergenceRules | None = None
    """None where the family is not declared."""
    limits: Limits
    retries: Retries
    execution: Execution
    categories: tuple[Category, ...]
    workloads: tuple[Workload, ...]
    slots: tuple[Slot, ...]
    headers: dict[str, tuple[str, ...]]

    def workload(self, name: str) -> Workload:
        """Return a workload by name; KeyError if there is none."""
        for workload in self.workloads:
            if workload.name == name:
                return workload
        raise KeyError(name)

    def recipe(self, name: str) -> Recipe | None:
        """Return a recipe by name; None if there is none."""
        recipes = self.convergence.recipes if self.convergence is not None else ()
        return next((recipe for recipe in recipes if recipe.name == name), None)

    def extension_runs(self) -> frozenset[str]:
        """Return the slots of the runs that only a declared extension asks for, of both sides."""
        rules = self.convergence
        if rules is None or rules.extension is None:
            return frozenset()
        return frozenset(
            run_slot(side, recipe.name, seed)
            for side in ("baseline", "candidate")
            for recipe in rules.recipes
            for seed in rules.extension.seeds
        )


def run_slot(side: str, recipe: str, seed: int) -> str:
    """Return the name of a run's slot in the protocol."""
    return f"{side}/run/{recipe}/s{seed}"


def seed_of_run(slot: str) -> int:
    """Return the seed in the name of a run's slot; the opposite of `run_slot`."""
    return int(slot.rpartition("/s")[2])


def slot_for(slot: str, candidate: str) -> str:
    """Return a protocol slot's name for one candidate: ``candidate/`` becomes its id."""
    head, _, rest = slot.partition("/")
    return f"{candidate}/{rest}" if head == "candidate" else slot


# --- manifests --------------------------------------------------------------------------------------------------------


class DataIdentity(Document):
    """A data set by path and content."""

    path: str
    sha256: str
    bytes: int
    files: int


class Lockfile(Document):
    """A side's lock file."""

    path: str
    sha256: str


class Container(Document):
    """The image file in which a side runs."""

    path: str
    bytes: Natural
    sha256: str


class Distribution(Document):
    """One installed distribution."""

    record_sha256: str
    """Of its RECORD; empty where there is none."""
    files: Natural
    """Files that RECORD lists with a digest, and that are there."""
    bytes: Natural
    """Their size."""


class InterpreterIdentity(Document):
    """What an interpreter is."""

    path: str
    """Its real path."""
    version: str
    sha256: str
    """Of the executable."""


class Environment(InterpreterIdentity):
    """An interpreter, and what is installed for it."""

    environment_sha256: str
    """Over interpreter and distributions: docs/formats.md has the definition."""
    installed: dict[str, Distribution]
    """By name and version, as their folders of metadata are called."""


class Side(Document):
    """One frozen side."""

    snapshot_sha256: str
    files_sha256: str
    changes_sha256: str
    """Of changes.patch, which is for reading; nothing is rebuilt from it."""
    adapter: str
    python: str
    python_path: tuple[str, ...]
    environment: dict[str, str]
    pass_environment: tuple[str, ...]
    launch: tuple[str, ...]
    container: Container | None = None
    """The image that the launch prefix names; None where no image was declared."""
    reads: tuple[str, ...] = ()
    """Files and folders outside everything frozen that it may read; their content is not frozen."""
    lockfile: Lockfile | None
    git: dict[str, Any] | None
    distributions: dict[str, str] | None
    interpreter: Environment | None = None
    """Its interpreter, as the host that froze has it; None where it could not be asked."""


class RecipePower(Document):
    """What the gate of one recipe can find out, by the SD that was assumed."""

    recipe: str
    chance: float
    """To pass if the true difference is 0, over both looks where an extension is declared."""
    seeds_80: Positive | None
    """Seeds of a single look with which that chance is at least 80%; None above 1000."""
    seeds_90: Positive | None
    """The same of 90%."""
    smallest_missed: float
    """Smallest true difference, in nats, at which the gate ends `missed` with a chance of at least 80%."""


class Power(Document):
    """What the convergence gates can find out, computed at the freeze. It gates nothing later."""

    assumed_sd: str | None
    """SD of the paired differences of final losses, in nats; None where none was assumed."""
    source: str
    """Where that number is from, in words."""
    recipes: tuple[RecipePower, ...]
    """Every recipe, or none where no SD was assumed."""
    chance_all: float | None
    """That all recipes pass, as if their differences were independent; None where no SD was assumed."""
    sufficient: bool
    """Whether every recipe's chance is at least 80%. Where it is not, there is a waiver."""
    waiver: str
    """Why the campaign was frozen all the same; empty where nobody had to say so."""


class Manifest(Document):
    """manifest.json: everything frozen before a candidate."""

    format: Literal["manifest/1"] = "manifest/1"
    freeze_id: str = ""
    """Drawn at random, so that the same campaign frozen twice is two; empty in homes of earlier builds."""
    campaign: str
    protocol_sha256: str
    acceptance_sha256: str
    harness_sha256: str
    verifier_sha256: str
    config_sha256: str
    harness_python: str
    harness_interpreter: Environment | None = None
    """The interpreter of the harness, as the host that froze has it; None where it could not be asked."""
    baseline: Side
    data: dict[str, DataIdentity]
    resources: dict[str, Any]
    """The resolved [submission], [slurm] and [local] tables, and under `login_node` what `[execution]` says of it."""
    departures: tuple[str, ...]
    """Protocol numbers that differ from the default protocol, one sentence each."""
    left_out: tuple[str, ...]
    """What the snapshot rules left out of the source tree, one line each."""
    power: Power | None = None
    """None where the convergence family is not declared."""
    reachable: dict[str, tuple[str, ...]] = {}
    """Findings that the freeze saw made-up evidence come to, by family; empty in homes of earlier builds."""
    driver: dict[str, Any]
    machine: dict[str, Any]


class CandidateManifest(Document):
    """A candidate's manifest.json."""

    format: Literal["candidate/1"] = "candidate/1"
    id: str
    manifest_sha256: str
    config_sha256: str
    candidate: Side
    left_out: tuple[str, ...]
    driver: dict[str, Any]
    machine: dict[str, Any]


# --- allocations ------------------------------------------------------------------------------------------------------


class Runnable(Document):
    """What the harness needs to run one side."""

    id: str
    tree: str
    files: str
    snapshot_sha256: str
    python: str
    adapter: str
    python_path: tuple[str, ...]
    environment: dict[str, str]
    pass_environment: tuple[str, ...]
    launch: tuple[str, ...]
    container: Container | None = None
    reads: tuple[str, ...] = ()


class CheckpointName(Document):
    """Which checkpoint of an attempt at a run a segment starts from."""

    segment: Positive
    """The segment that wrote it."""
    update: Positive
    """Updates behind it: the name of its folder."""
    sha256: str
    """Of its checkpoint.json."""


class PlannedAttempt(Document):
    """One attempt that an allocation shall make."""

    slot: str
    attempt: Positive
    kind: AttemptKind
    workload: str
    repeat: int
    pair: int
    order: tuple[SideName, ...]
    updates: Natural
    inputs_sha256: str = ""
    """Digest of the canonical inputs (inputs/<digest>.json) of a case; empty for everything else."""
    examples_sha256: str = ""
    """Of the examples that the baseline's pilot took, for the candidate's of several processes; else empty."""
    segment: Natural = 0
    """Which segment of a run; 0 for everything else."""
    resume: CheckpointName | None = None
    """What a segment or a resumption starts from; None for the beginning."""


class AllocationPlan(Document):
    """allocation.json."""

    format: Literal["allocation/1"] = "allocation/1"
    allocation: str
    key: str
    home: str
    manifest_sha256: str
    protocol_sha256: str
    harness_sha256: str
    sides: dict[Literal["baseline", "candidate"], Runnable]
    data: dict[str, DataIdentity]
    attempts: tuple[PlannedAttempt, ...]


class JobIdentity(Document):
    """The scheduler's names for the job that ran an allocation."""

    scheduler: Literal["slurm", "local", "detached"]
    cluster: str
    job_id: str
    """Of a detached allocation the bundle's id."""
    array_job_id: str
    array_task_id: str
    restart_count: int


class Started(Document):
    """started.json."""

    format: Literal["started/1"] = "started/1"
    allocation: str
    job: JobIdentity
    host: str
    boot_id: str
    pid: int
    process_start: int
    at: float


class Ended(Document):
    """ended.json."""

    format: Literal["ended/1"] = "ended/1"
    allocation: str
    reason: str
    detail: str = ""
    """Why attempts were not made, in words."""
    at: float
    wall_s: float
    sides_s: float
    overhead_s: float
    receipts: dict[str, str]
    """``slot/attempt`` to the SHA-256 of the receipt that the harness wrote."""

    def contradiction(self, attempt: str, receipt_sha256: str) -> str:
        """Return why an attempt cannot be as the harness left it; empty if it is.

        Args:
            attempt: ``slot/attempt``.
            receipt_sha256: SHA-256 of the receipt that is there; empty if there is none.
        """
        written = self.receipts.get(attempt, "")
        if receipt_sha256 == written:
            return ""
        if not written:
            return "its allocation ended without writing this receipt: somebody else put it there"
        found = f"there is one with SHA-256 {receipt_sha256}" if receipt_sha256 else "there is none"
        return f"its allocation wrote a receipt with SHA-256 {written}; {found}"


# --- bundles ----------------------------------------------------------------------------------------------------------


class BundleAllocation(Document):
    """One allocation of a bundle."""

    id: str
    repeat: Natural
    minutes: Positive
    """What it would ask a scheduler for."""
    plan_sha256: str
    """Of its allocation.json."""
    expected_s: dict[str, float | None]
    """How long each attempt is expected to take, by name; None where nothing tells."""


class BundleData(Document):
    """One data set that the attempts of a bundle read."""

    path: str
    """Where it was frozen."""
    sha256: str
    included: bool
    """Whether it lies in the bundle."""


class Bundle(Document):
    """bundle.json: allocations for a machine that the driver does not reach, and the digests of all files beside it."""

    format: Literal["bundle/1"] = "bundle/1"
    campaign: str
    submission: str
    """The key under which the ledger has it."""
    id: str
    """First 24 hex digits of the SHA-256 of everything else."""
    manifest_sha256: str
    protocol_sha256: str
    candidate: str
    """Id of the candidate whose slots are among the attempts; empty for the baseline alone."""
    allocations: tuple[BundleAllocation, ...]
    """In the order in which they are made."""
    python: dict[str, str]
    """Interpreters as they were frozen: of ``harness``, ``baseline`` and ``candidate``."""
    data: dict[str, BundleData]
    inputs: dict[str, bool]
    """Canonical inputs of the cases, by the digest of their list: whether they lie in the bundle."""
    files: dict[str, str]
    """SHA-256 of every other file, by path relative to the bundle."""
    executables: tuple[str, ...]
    """Those that may be executed."""
    links: dict[str, str]
    """Path and target of every symbolic link."""
    folders: tuple[str, ...]
    """Folders with nothing in them."""
    written_at: Natural


class Results(Document):
    """results.json: what came of a bundle so far, as `run.py --pack` packed it."""

    format: Literal["results/1"] = "results/1"
    bundle: str
    """Its id."""
    files: dict[str, tuple[str, int]]
    """SHA-256 and size of what is packed, by path relative to the home."""
    left: dict[str, tuple[str, int]]
    """The same of what stayed on the machine."""


class Call(Document):
    """calls/<n>.json: one command that went on with a detached allocation."""

    format: Literal["call/1"] = "call/1"
    allocation: str
    bundle: str
    number: Positive
    host: str
    boot_id: str
    pid: int
    process_start: int
    argv: tuple[str, ...]
    home: str
    """Where the bundle's home lay."""
    python: dict[str, str]
    """Interpreters that were used: of ``harness``, ``baseline`` and ``candidate``."""
    data: dict[str, str]
    """Where the data sets lay, by name."""
    at: float


class CallEnded(Document):
    """calls/<n>.ended.json: how it left the allocation; a call that was killed has none."""

    format: Literal["call_ended/1"] = "call_ended/1"
    allocation: str
    number: Positive
    reason: str
    """``done``, ``deadline``, or the ending that stopped it."""
    detail: str
    at: float
    wall_s: float
    sides_s: float
    receipts: dict[str, str]
    """SHA-256 of the receipts that it wrote, by the attempt's name."""


class Host(Document):
    """The machine that ran an attempt."""

    node: str
    boot_id: str
    kernel: str
    machine: str
    cpu: str
    memory_bytes: int
    affinity: tuple[int, ...]


class Start(Document):
    """start.json."""

    format: Literal["start/1"] = "start/1"
    slot: str
    attempt: int
    allocation: str
    kind: AttemptKind
    segment: Natural = 0
    """Which segment of a run; 0 for everything else."""
    manifest_sha256: str
    protocol_sha256: str
    harness_sha256: str
    snapshots: dict[str, str]
    job: JobIdentity
    host: Host
    device: str
    devices: tuple[dict[str, Any], ...]
    threads: int
    at: float


class Caches(Document):
    """What a side's process could find compiled when it started."""

    compile: Literal["private, cold"]
    """Caches of compiled code, such as kernels: every run of a side has empty ones of its own."""
    bytecode: Literal["installed", "private"]
    """Of installed packages: read from beside their sources, or compiled into a private folder."""


class CgroupLimits(Document):
    """What the control groups let a job use; None where there is no limit, or where it is unknown."""

    cpus: str | None
    mems: str | None
    cpu_quota: float | None
    """Processors' worth of time."""
    cpu_weight: int | None
    memory_bytes: int | None
    swap_bytes: int | None


class ProcessorState(Document):
    """How the processors ran; None where it is unknown."""

    governor: str | None
    frequency_khz: tuple[int, int] | None
    """The lowest and the highest of those that were asked."""
    throttled: int | None
    """How often since boot."""


class GpuState(Document):
    """How one GPU ran; None where it is unknown."""

    uuid: str
    driver: str | None
    power_limit_mw: int | None
    power_mw: int | None
    sm_mhz: int | None
    memory_mhz: int | None
    temperature_c: int | None
    reasons: tuple[str, ...] | None
    """What held its clocks back at that moment."""
    power_held_ns: int | None
    """How long power held them back since the driver was loaded."""
    thermal_held_ns: int | None
    ecc: bool | None
    ecc_corrected: int | None
    ecc_uncorrected: int | None


class Conditions(Document):
    """Conditions on one node at one moment."""

    affinity: str
    """Processors of the harness, which a side starts with."""
    cgroup: CgroupLimits
    processors: ProcessorState
    gpus: tuple[GpuState, ...]
    unknown: dict[str, str]
    """Name of what is unknown to the reason."""


class FurtherConditions(Conditions):
    """The same on a further node."""

    node: str


class Surroundings(Conditions):
    """Conditions at one moment, on the first node and on further ones."""

    further: tuple[FurtherConditions, ...] = ()
    """Of a side on several nodes the other ones, in their order."""


class SideConditions(Document):
    """Under what conditions a side was measured."""

    before: Surroundings
    after: Surroundings | None
    """None if it ended before its windows were done."""
    affinity: str
    """Processors of the side's own process at the end of its windows; empty if unknown."""


class RankReceipt(Document):
    """What the parent observed of one process of a side that has several."""

    rank: Natural
    local_rank: Natural
    node: str
    device: str
    pid: Natural
    """As it says itself; 0 before it has."""
    affinity: str
    """Its processors when it had imported the adapter; empty if unknown."""
    exit_code: int | None
    signal: int | None
    wall_s: float
    cpu_s: float
    max_rss_bytes: int
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    affinity_after: str = ""
    """Its processors at the end of its windows; empty if unknown, and where nothing is compared by time."""


class Topology(Document):
    """How many processes a side has, on how many nodes."""

    processes: Positive = 1
    nodes: Positive = 1


class PartialWindow(Document):
    """A window of a measurement that did not complete; it counts for nothing."""

    updates: Natural
    tokens: Natural
    seconds: float


class SideReceipt(Document):
    """What the parent observed of one side's process, and what the side said of itself."""

    side: SideName
    position: int
    exit_code: int | None
    signal: int | None
    wall_s: float
    cpu_s: float
    max_rss_bytes: int
    output_bytes: int
    output_truncated: bool
    engaged: dict[str, int | str] | None
    path: str
    versions: dict[str, str]
    caches: Caches | None
    """None if the process ended before it could say."""
    offers: tuple[str, ...]
    missing: tuple[str, ...]
    foreign: tuple[str, ...]
    undeclared: tuple[str, ...] = ()
    """Real paths of files that it read and nobody declared."""
    interpreter: InterpreterIdentity | None = None
    """None if the process ended before it could say."""
    environment_sha256: str = ""
    """Of the interpreter and what is installed for it, where it ran; empty as before."""
    container_sha256: str = ""
    """Of the image that it ran in, where it ran; empty where none was declared."""
    conditions: SideConditions | None = None
    """None where nothing is compared by time."""
    windows: tuple[PartialWindow, ...] = ()
    """What had been measured when the attempt ended; none of a completed one, whose tables have them."""
    topology: Topology = Topology()
    ranks: tuple[RankReceipt, ...] = ()
    """Its processes in the order of their ranks; none where it has one, which the entry itself describes."""
    examples: tuple[str, ...] = ()
    """Of a pilot of several processes: the digest of the examples that they take together, for each step asked for."""


class Calibration(Document):
    """What a pilot found."""

    updates_per_s: float
    tokens_per_update: float
    startup_s: float
    updates: int
    evaluate_s: float | None = None
    """One evaluation of the whole validation split; None unless it is the pilot of a recipe."""
    checkpoint_bytes: Natural | None = None
    """One checkpoint; None as before."""
    save_s: float | None = None
    """Saving it, the copy into the home included; None as before."""


class CaseManner(Document):
    """How a case was run."""

    inputs_sha256: str
    """Of the canonical inputs."""
    executor: Literal["independent", "shared"]
    serialized: bool
    transport: Literal["shared_memory", "device_memory"]
    transport_reason: str
    """Why it is not device memory where the sides are on a device; empty otherwise."""
    tied: tuple[str, ...]
    """Names that share another one's storage, as ``alias = name``."""
    load_s: float
    train_s: float
    """In update_on of both sides."""
    compare_s: float
    """From the first tensor offered to the last sum, all quantities and updates."""
    compared_bytes: int
    """Of both sides together."""


class CaseReceipt(CaseManner):
    """What a receipt says of a case, beside its tables."""

    num_workers: int
    num_tensors: int
    """Tensors of one quantity of one worker, tied ones counted once."""
    staging_bytes: int = 0
    """Memory through which both sides offer; 0 where they take turns, which waits in files."""
    comparer_bytes: int = 0
    """Device memory that the comparer took at most, beside that."""
    made_inputs: bool = False
    """Whether its canonical inputs were made again on the machine, to the same digests; only in a bundle."""


class SealedCheckpoint(Document):
    """A checkpoint that a segment wrote."""

    update: Positive
    sha256: str
    """Of its checkpoint.json, which lists the digest of every file of it."""
    bytes: Natural
    """All files of it together, checkpoint.json left out."""


class RunReceipt(Document):
    """What a receipt says of one segment of a run, however it ended."""

    recipe: str
    seed: Natural
    resumed: CheckpointName | None
    """What it started from; None for the beginning."""
    first_update: Natural
    """Updates that were behind it when it started."""
    update: Natural
    """Updates that were behind it when it ended; those after its last checkpoint are lost."""
    checkpoints: tuple[SealedCheckpoint, ...]
    """In order."""
    train_s: float
    """Of this segment, without evaluation."""
    evaluate_s: float
    save_s: float
    load_s: float


class SealedFile(Document):
    """One file sealed by a receipt."""

    name: str
    bytes: int
    sha256: str
    rows: int | None


class Receipt(Document):
    """receipt.json."""

    format: Literal["receipt/1"] = "receipt/1"
    start_sha256: str
    slot: str
    attempt: int
    allocation: str
    kind: AttemptKind
    ending: Ending
    reason: str
    elapsed_s: float
    at: float
    sides: tuple[SideReceipt, ...]
    isolation: Literal["same user", "separate user"] = "same user"
    """What separates the sides from the harness and its files."""
    calibration: Calibration | None
    case: CaseReceipt | None = None
    segment: Natural = 0
    """Which segment of a run; 0 for everything else."""
    run: RunReceipt | None = None
    """None unless it is a segment of a run whose side was built."""
    files: tuple[SealedFile, ...]


class CurvePoint(Document):
    """One evaluation during a run."""

    update: Positive
    tokens: Positive
    """Targets so far."""
    validation_loss: float


class CheckpointFile(Document):
    """One file that a side saved."""

    name: str
    """Relative to the checkpoint's folder files/, with slashes."""
    bytes: Natural
    sha256: str


class Checkpoint(Document):
    """checkpoint.json: a saved training state, and the account of the run so far."""

    format: Literal["checkpoint/1"] = "checkpoint/1"
    manifest_sha256: str
    slot: str
    attempt: Positive
    segment: Positive
    allocation: str
    side: Literal["baseline", "candidate"]
    snapshot_sha256: str
    recipe: str
    config_sha256: str
    seed: Natural
    previous: CheckpointName | None
    """What the segment started from; None for the beginning."""
    update: Positive
    tokens: Positive
    """Targets so far."""
    train_s: float
    """Over all segments, as far as this state rests on them."""
    elapsed_s: float
    """As train_s."""
    curve: tuple[CurvePoint, ...]
    """Of the whole run so far."""
    progress: dict[str, int | float | str]
    """What progress() said just before."""
    path: str
    """The engaged path, as in a receipt; empty where the adapter does not offer it."""
    files: tuple[CheckpointFile, ...]
    """By name."""
    at: float


class Resumption(Document):
    """resumption.json: what a side did from a checkpoint of either side."""

    format: Literal["resumption/1"] = "resumption/1"
    side: Literal["baseline", "candidate"]
    recipe: str
    seed: Natural
    slot: str
    """Of the run whose checkpoint it is."""
    attempt: Positive
    segment: Positive
    update: Positive
    """Updates behind the checkpoint."""
    sha256: str
    """Of its checkpoint.json."""
    is_loaded: bool
    """Whether it was loaded, and progress() then said what it had said before it was saved."""
    losses: tuple[float, ...]
    """Of every update after that, in order."""


class FallbackCheckpoint(Document):
    """A checkpoint that a fallback trial goes on from."""

    slot: str
    attempt: Positive
    segment: Positive
    update: Positive
    """Updates behind it."""
    sha256: str
    """Of its checkpoint.json."""
    updates_left: Natural
    """Of the recipe, after it; where there are none, the trial goes beyond the recipe's end."""


class FallbackStretch(Document):
    """What one side did from a checkpoint, in a process of its own."""

    side: Literal["baseline", "candidate"]
    receipt_sha256: str
    ending: Ending
    reason: str
    is_loaded: bool
    losses: tuple[float, ...]
    """Of every update, in order."""


class FallbackDirection(Document):
    """Both sides from one checkpoint: the side that saved it, and the other one."""

    owner: Literal["baseline", "candidate"]
    """Which side saved it."""
    checkpoint: FallbackCheckpoint
    own: FallbackStretch
    other: FallbackStretch
    differences: tuple[float, ...]
    """|loss of the other side - loss of the owner|, update by update, as far as both have one."""
    resumes: bool
    """Whether the other side resumes this checkpoint."""
    reason: str
    """Why not; empty where it does."""


class FallbackTrial(Document):
    """fallback.json: each side from a checkpoint of the other."""

    format: Literal["fallback/1"] = "fallback/1"
    campaign: str
    manifest_sha256: str
    protocol_sha256: str
    harness_sha256: str
    baseline_sha256: str
    candidate: str
    candidate_sha256: str
    number: Positive
    """Counts the candidate's trials."""
    recipe: str
    seed: Natural
    updates: Positive
    """Of each stretch."""
    loss_atol: str
    loss_rtol: str
    """Allowed is |other - own| <= loss_atol + loss_rtol * |own|."""
    tolerance: Literal["protocol", "default"]
    """Where these numbers are from: the numerical family's rules, or the default where it is not declared."""
    by: str
    """The account that ran it."""
    node: str
    device: str
    at: float
    directions: tuple[FallbackDirection, FallbackDirection]
    """From the baseline's checkpoint, then from the candidate's."""


class FallbackTried(Document):
    """Data of ``fallback_tried``."""

    candidate: str
    number: Positive
    recipe: str
    seed: Natural
    node: str
    device: str
    candidate_resumes: bool
    """Whether the candidate resumes the baseline's checkpoint."""
    baseline_resumes: bool
    """Whether the baseline resumes the candidate's checkpoint."""
    largest_difference: float | None
    """Of both directions; None where no two losses could be compared."""
    reasons: tuple[str, ...]
    """Why a side does not."""
    files: dict[str, str]
    """SHA-256 of every file of the trial, by its name below the trial's folder."""


class StateInput(Document):
    """One quantity of one worker of a canonical initial state: a file below inputs/."""

    quantity: Literal["parameters", "exp_avg", "exp_avg_sq"]
    worker: Natural
    sha256: str
    bytes: Natural


class BatchInput(Document):
    """The exact inputs of one matched update: a file below inputs/."""

    update: Positive
    sha256: str
    bytes: Natural


class Inputs(Document):
    """inputs.json: the canonical inputs of one workload's cases."""

    format: Literal["inputs/1"] = "inputs/1"
    workload: str
    config_sha256: str
    moments: Literal["fresh", "warm"]
    step: Natural
    """Updates that the state has behind it."""
    state: tuple[StateInput, ...]
    batches: tuple[BatchInput, ...]

    @property
    def files(self) -> dict[str, int]:
        """Size by SHA-256 of every file that it names."""
        state = {one.sha256: one.bytes for one in self.state}
        return {**state, **{one.sha256: one.bytes for one in self.batches}}


class Identity(Document):
    """evidence/identity.json."""

    format: Literal["identity/1"] = "identity/1"
    manifest_sha256: str
    baseline_sha256: str
    candidate: str
    candidate_sha256: str


# --- what people did --------------------------------------------------------------------------------------------------

Change: TypeAlias = Literal["platform", "node", "interpreter", "data", "procedure"]
"""What an amendment says has changed."""


class Amended(Document):
    """Data of ``amended``: some slots' attempts so far are void, and why. The protocol stays as it is."""

    what: Change
    changed: str
    """What changed, in a person's words."""
    void: tuple[str, ...]
    """Slots whose whole past is void, by name."""
    voided_attempts: dict[str, Positive]
    """Of each of them the attempts so far: these are void."""
    valid: str
    """Which slots stay valid."""
    keep_reason: str
    """Why they do, in a person's words."""
    by: str
    reason: str
    after_report: bool
    """Whether a report had shown how attempts that are now void had ended."""
    shown: tuple[str, ...]
    """The slots of which that is so."""
    platform: bool
    """Whether attempts from here on may be on another platform than those before."""


DecisionKind: TypeAlias = Literal["default", "retire"]
RunSide: TypeAlias = Literal["baseline", "candidate"]


class Decided(Document):
    """Data of ``decided``."""

    kind: DecisionKind
    side: RunSide
    """The side that is the default; of a retirement the one that is retired."""
    candidate: str
    """Whose verdict it is about; empty where no candidate was frozen."""
    by: str
    reason: str
    verdict_sha256: str
    """Of the last report on the candidate; empty where there was none."""
    outcome: str
    """What that report said; empty where there was none."""
    refused: bool
    why: str
    """Why it was refused; empty otherwise."""


# --- provenance -------------------------------------------------------------------------------------------------------


class FrozenSide(Side):
    """A side with its id and the ledger's number of its freeze."""

    id: str
    frozen_seq: int
    frozen_at: float | None = None
    """When, by the ledger; None in what was written before that stood here."""


class SegmentSummary(Document):
    """One segment of an attempt at a run."""

    segment: Positive
    allocation: str
    node: str
    device: str
    ending: Ending
    reason: str
    sealed: bool
    resumed_update: Natural
    """Updates behind the state that it started from; 0 for the beginning."""
    update: Natural | None
    """Updates behind it when it ended; None where no receipt says so."""


class MeasuredSide(Document):
    """What an attempt had measured of one side when it ended without being complete."""

    side: SideName
    windows: Positive
    tokens: Natural
    seconds: float


class AttemptSummary(Document):
    """One attempt that has an ending; of a run the fields are those of the segment whose ending is the attempt's."""

    slot: str
    attempt: int
    allocation: str
    node: str
    device: str
    ending: Ending
    reason: str
    sealed: bool
    segments: tuple[SegmentSummary, ...] = ()
    """Of a run, in order."""
    ended: Ending | None = None
    """How it ended, of one whose ending is ``void``; None for all others."""
    amendment: Natural = 0
    """The ledger's number of the amendment that made it void; 0 where there is none."""
    measured: tuple[MeasuredSide, ...] = ()
    """Of one that did not complete, by side; only those of which there was a window."""


class MachineDevice(Document):
    """A device that a machine gave to attempts."""

    name: str
    driver: str


class Machine(Document):
    """A machine that ran attempts, as their start.json describe it."""

    node: str
    cpu: str
    kernel: str
    machine: str
    memory_bytes: int
    devices: tuple[MachineDevice, ...]


class PlatformDevice(Document):
    """A device of a platform."""

    kind: str
    name: str
    driver: str


class Platform(Document):
    """What completed attempts that are not void have in common: one stratum, by the verifier's rule."""

    cpu: str
    machine: str
    kernel: str
    memory_bytes: int
    """Of the first of the attempts; those of the others are near to it."""
    processors: int
    """How many of them an attempt may use."""
    threads: int
    devices: tuple[PlatformDevice, ...]
    attempts: Positive
    """How many attempts ran on it, segments of runs each by itself."""
    first: str
    """The one that was planned first."""
    is_declared: bool
    """Whether so many platforms were declared, by amendments, before that one was planned."""


class NodeSummary(Document):
    """What became of the attempts on one node, segments of runs each by itself."""

    node: str
    allocations: Natural
    completed: Natural
    endings: dict[str, Positive]
    """How many ended otherwise, by ending; void ones as they had ended before."""
    excluded: str
    """Why it got no more jobs; empty where it was never kept out."""
    excluded_seq: Natural
    """The ledger's number of the first intent that avoided it; 0 as before."""


class FrozenOn(Document):
    """The host and the driver that froze a side, as its manifest describes them."""

    machine: dict[str, Any]
    driver: dict[str, Any]


class LedgerState(Document):
    """Where the ledger stood when the evidence was complete; the acts of reporting do not count."""

    entries: int
    head: str
    """SHA-256 of the last of these lines."""
    baseline_sealed_seq: int | None
    """The first collection that held a receipt for every slot of the baseline phase."""


class OtherCandidate(Document):
    """Another candidate of the same campaign."""

    id: str
    frozen_seq: int
    frozen_at: float | None = None
    """As that of a side."""
    outcome: str | None
    """What the last report said of it; None if there was none."""


class RegisteredRecipe(Document):
    """A recipe that another campaign judges."""

    name: str
    config_sha256: str


class RegisteredFreeze(Document):
    """A freeze of another campaign, or of a copy of this one, against the same baseline snapshot."""

    campaign: str
    home: str
    manifest_sha256: str
    protocol_sha256: str
    candidate: str
    """The candidate's id; empty where only the baseline was frozen."""
    candidate_sha256: str
    at: float
    state: Literal["read", "unreadable", "replaced"]
    """Whether the home says how it ended; `replaced`: the folder holds another campaign now."""
    outcome: str | None
    """What the last report there said of the candidate; None if there was none, or nothing can be read."""
    recipes: tuple[RegisteredRecipe, ...]
    """Those of its convergence family; none where it has none, or nothing can be read."""


class RegistryState(Document):
    """What the registry of freezes knew when the report was made."""

    path: str
    """Empty where the environment names no place for it."""
    damaged_lines: Natural = 0
    """Lines that are torn or of an unknown form, and so tell nothing."""
    problem: str = ""
    """Why it could not be read."""
    others: tuple[RegisteredFreeze, ...] = ()
    """By the time of their freeze."""


class AmendmentSummary(Amended):
    """One amendment, as the ledger has it."""

    seq: Positive
    at: float


class DecisionSummary(Decided):
    """One decision, as the ledger has it."""

    seq: Positive
    at: float


class CaseSummary(CaseManner):
    """One completed numerical case, from its receipt."""

    workload: str
    comparison: Literal["candidate", "control"]
    attempt: int

    @classmethod
    def of_receipt(cls, case: CaseReceipt, **about: Any) -> Self:
        """Return the summary of a receipt's case.

        Args:
            case: How it was run.
            about: The other fields.
        """
        manner = {field.name: getattr(case, field.name) for field in msgspec.structs.fields(CaseManner)}
        return cls.of({**manner, **about})


class FallbackState(Document):
    """What is known of falling back to the baseline, and of going on to the candidate."""

    seq: Positive
    """The ledger's number of the last trial."""
    at: float
    number: Positive
    """Of the last trial."""
    trials: Positive
    recipe: str
    seed: Natural
    node: str
    device: str
    candidate_resumes: bool
    baseline_resumes: bool
    largest_difference: float | None
    reasons: tuple[str, ...]


class ConditionRemark(Document):
    """In what the sides of one measurement did not run alike."""

    slot: str
    attempt: Positive
    what: tuple[str, ...]


class ExchangeSummary(Document):
    """How the processes of one side of a workload exchanged what they computed, in its adapter's words."""

    workload: str
    side: SideName
    exchange: str
    """What carried it; empty where the adapter does not say."""
    synchronisation: str
    """When that happened; empty as before."""


class BundleSummary(Document):
    """One bundle: allocations for a machine that the driver does not reach, and what came back of them."""

    id: str
    seq: Positive
    """The ledger's number of the act by which it was written."""
    at: float
    place: str
    """Host and folder where it was written."""
    allocations: Natural
    attempts: Natural
    """Written into it, segments of runs each by itself."""
    returned: Natural
    """How many of them came back, those that left no receipt included."""
    ingested_seqs: tuple[Positive, ...]
    """The ledger's numbers of the acts by which results came back; none of a bundle that never did."""
    complete: bool
    """Whether nothing more of it can come."""
    abandoned_seq: Natural
    """The ledger's number of the act that gave it up; 0 where none did."""
    abandoned: str
    """Why."""
    left: Natural
    """Files that stayed on the machine: their digests alone are known."""
    left_bytes: Natural


class SharedBoot(Document):
    """A workload of which several repeats were measured on one boot of one machine, in detached allocations."""

    workload: str
    kind: AttemptKind
    node: str
    repeats: tuple[Positive, ...]


class Provenance(Document):
    """provenance.json: what a report says beside the verdict. Acceptance never reads it."""

    format: Literal["provenance/1"] = "provenance/1"
    campaign: str
    manifest_sha256: str
    protocol_sha256: str
    acceptance_sha256: str
    harness_sha256: str
    baseline: FrozenSide
    candidate: FrozenSide
    data: dict[str, DataIdentity]
    departures: tuple[str, ...]
    left_out: dict[Literal["baseline", "candidate"], tuple[str, ...]]
    undeclared_families: tuple[str, ...]
    attempts: tuple[AttemptSummary, ...]
    missing_slots: tuple[str, ...]
    """Slots of the protocol without an attempt that has an ending; runs of an extension only where it is due."""
    power: Power | None = None
    """From the manifest; None where the convergence family is not declared."""
    cases: tuple[CaseSummary, ...] = ()
    """Completed numerical cases, by workload, comparison and attempt."""
    nodes: tuple[str, ...]
    devices: tuple[str, ...]
    node_records: tuple[NodeSummary, ...] | None = None
    """By name; None in what was written before nodes were told."""
    machines: tuple[Machine, ...]
    """The distinct machines of the attempts, by node."""
    conditions: tuple[ConditionRemark, ...] = ()
    """Measurements whose sides ran differently, although they were given the same; in order."""
    exchanges: tuple[ExchangeSummary, ...] = ()
    """Of the pairs of workloads of several processes, by workload and side."""
    platforms: tuple[Platform, ...] | None = None
    """Of all sides of the campaign, in the order in which they were used; None in what was written before."""
    frozen_on: dict[Literal["baseline", "candidate"], FrozenOn]
    caches: dict[Literal["baseline", "candidate"], dict[str, str]]
    """As `versions`, of the caches that each side's processes had."""
    versions: dict[Literal["baseline", "candidate"], dict[str, str]]
    """Versions that each side's processes named; several values of one name are joined by `` | ``."""
    ledger: LedgerState
    other_candidates: tuple[OtherCandidate, ...]
    amendments: tuple[AmendmentSummary, ...] = ()
    """All of the campaign, oldest first."""
    decisions: tuple[DecisionSummary, ...] = ()
    """All of the campaign, those about other candidates included, oldest first."""
    registry: RegistryState | None = None
    """What is known beside this home; None in what was written before there was a registry."""
    bundles: tuple[BundleSummary, ...] = ()
    """All of the campaign, oldest first."""
    shared_boots: tuple[SharedBoot, ...] = ()
    """Of this candidate and the baseline, by workload and kind."""
    fallback: FallbackState | None = None
    """Whether each side resumes the other's checkpoint; None where it was never tried."""


# --- ledger -----------------------------------------------------------------------------------------------------------

Act: TypeAlias = Literal[
    "froze_baseline",
    "froze_candidate",
    "intent",
    "submitted",
    "not_submitted",
    "cancelled",
    "ended",
    "sealed",
    "ingested",
    "collected",
    "reported",
    "lock_taken_over",
    "torn_line",
    "unlocked",
    "accounted",
    "decided",
    "amended",
    "fallback_tried",
    "pruned",
    "closed",
]


_Data = TypeVar("_Data", bound=Document)


class Entry(Document):
    """One line of the ledger."""

    seq: Positive
    previous: str
    at: float
    act: Act
    data: dict[str, Any]

    @property
    def where(self) -> str:
        """Its place, for messages."""
        return f"ledger.jsonl:{self.seq}"

    def parse_data(self, kind: type[_Data]) -> _Data:
        """Return its data as a document of a kind.

        Raises:
            EvidenceError: They are none.
        """
        try:
            return msgspec.convert(self.data, kind, strict=True)
        except msgspec.MsgspecError as error:
            raise _refusal(error, self.where) from error
