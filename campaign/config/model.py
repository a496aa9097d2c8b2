"""The pydantic model of campaign.toml. docs/config.md shows every key; its table is generated from here.

The model checks each key by itself; what concerns several keys is checked in campaign.config.load and
campaign.planning.matrix. Unknown keys are refused everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

from campaign import documents
from campaign.config import slices
from campaign.config.locate import KeyPath, Places, locate
from campaign.config.values import (
    Adapter,
    BelowOne,
    ClusterName,
    Entries,
    FilePath,
    FilePaths,
    Fraction,
    InsidePaths,
    Interpreter,
    JsonTable,
    Margin,
    Name,
    Names,
    Nats,
    Patterns,
    PositiveFraction,
    Quantile,
    Ratio,
    RetriableEnding,
    Seconds,
    SecondsOrZero,
    Text,
    Texts,
    Variable,
    Variables,
    Words,
)
from campaign.errors import ConfigError
from campaign.planning import bounds

Endings: TypeAlias = Annotated[tuple[RetriableEnding, ...], Strict(strict=False)]

MOST_THREADS = 65536
MOST_PROCESSES = 4096
MOST_UPDATES = 10**9
MOST_SECONDS = 10**7
MOST_LOG_BYTES = 1 << 40
MOST_MINUTES = 366 * 24 * 60
MOST_SEGMENTS = 10**6
MOST_SEEDS = 1000
MOST_TARGETS = 10**15
"""Bounds against slips of the pen, all within what the acceptance program takes."""


def _counted(least: int) -> AfterValidator:
    """Count a list of seeds once each of them is right, so that a wrong one is what the error names."""

    def count(seeds: tuple[int, ...]) -> tuple[int, ...]:
        if not (least <= len(seeds) <= MOST_SEEDS):
            raise ValueError(f"there are between {least} and {MOST_SEEDS} seeds, not {len(seeds)}")
        return seeds

    return AfterValidator(count)


Seed: TypeAlias = Annotated[int, Field(ge=0, lt=10**18)]
"""A seed of runs: the evidence has room for 18 digits."""
FirstSeeds: TypeAlias = Annotated[
    tuple[Seed, ...],
    Strict(strict=False),
    _counted(2),
    Field(json_schema_extra={"minItems": 2, "maxItems": MOST_SEEDS}),
]
AddedSeeds: TypeAlias = Annotated[
    tuple[Seed, ...],
    Strict(strict=False),
    _counted(1),
    Field(json_schema_extra={"minItems": 1, "maxItems": MOST_SEEDS}),
]


def _default(model: type[documents.Document], key: str) -> Any:
    """Return the default of a protocol number: documents.py is the one place that knows it."""
    return model.defaults()[key]


class Table(BaseModel):
    """Base of all tables: frozen, no unknown keys, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Side(Table):
    """The source, the adapter and the interpreter of one side."""

    source: FilePath = Field(description="folder of the side's source tree, relative to this file")
    adapter: Adapter = Field(description="`module:function` that builds the runner, imported inside the snapshot")
    python: Interpreter = Field(description="interpreter that has the side's dependencies, relative to this file")
    python_path: InsidePaths = Field(
        default=(".",), description="folders of the snapshot that are put first on the import path"
    )
    environment: dict[Variable, Text] = Field(
        default={}, description="variables set for the side; `${data.NAME}` becomes the path of a declared data set"
    )
    pass_environment: Variables = Field(
        default=(), description="variables taken over from the environment of the allocation; all others are dropped"
    )
    lockfile: FilePath | None = Field(default=None, description="lock file of the dependencies; its digest is frozen")
    include: InsidePaths = Field(
        default=(), description="glob patterns of files to freeze although git ignores them, such as build products"
    )
    launch: Texts = Field(
        default=(),
        description="command put before the interpreter, such as a container's; `${container}` becomes its path",
    )
    container: FilePath | None = Field(
        default=None,
        description="image file that `launch` runs the side in, relative to this file; its digest is frozen",
    )
    untracked_file_mib: int = Field(
        default=64, ge=0, le=1 << 30, description="most MiB of one file that git neither tracks nor ignores"
    )
    untracked_mib: int = Field(
        default=1024, ge=0, le=1 << 30, description="most MiB of all such files together; none is left out in silence"
    )
    reads: FilePaths = Field(
        default=(),
        description="files and folders that it may read beside what is frozen and declared, relative to this file",
    )


class Data(Table):
    """A data set that the sides read; its digest is frozen."""

    path: FilePath = Field(description="file or folder, relative to this file")


class Harness(Table):
    """What runs the harness itself."""

    python: Interpreter | None = Field(default=None, description="interpreter of the harness; the baseline's if absent")


class Execution(Table):
    """What a side may use."""

    device: Literal["cpu", "cuda"] = Field(
        default=_default(documents.Execution, "device"), description="`cpu` or `cuda`"
    )
    threads: int = Field(
        default=_default(documents.Execution, "threads"),
        ge=1,
        le=MOST_THREADS,
        description="CPU threads of each side's process",
    )
    login_node: Literal["same", "differs"] = Field(
        default="same",
        description="`differs` where the host that freezes cannot run the sides' interpreters: it runs none of them",
    )


class Throughput(Table):
    """Rules of the throughput family."""

    repeats: int = Field(
        default=_default(documents.ThroughputRules, "repeats"),
        ge=1,
        le=1000,
        description="independent rounds; each has its own allocation",
    )
    pairs_per_repeat: int = Field(
        default=_default(documents.ThroughputRules, "pairs_per_repeat"),
        ge=1,
        le=100,
        description="pairs of a workload in one repeat: one, or an even number in both orders",
    )
    warmup_updates: int = Field(
        default=_default(documents.ThroughputRules, "warmup_updates"),
        ge=0,
        le=MOST_UPDATES,
        description="updates of each side before the first window",
    )
    windows: int = Field(
        default=_default(documents.ThroughputRules, "windows"),
        ge=1,
        le=1000,
        description="scored windows of a measurement",
    )
    window_s: Seconds = Field(
        default=_default(documents.ThroughputRules, "window_s"), description="shortest window, on both sides"
    )
    window_margin: Margin = Field(
        default=_default(documents.ThroughputRules, "window_margin"),
        description="how much longer than `window_s` a window of the faster side is planned",
    )
    pilot_s: Seconds = Field(
        default=_default(documents.ThroughputRules, "pilot_s"), description="length of a pilot's calibration"
    )
    category_threshold: Ratio = Field(
        default=_default(documents.ThroughputRules, "category_threshold"),
        description="least median ratio of a category, in every repeat",
    )
    production_threshold: Ratio = Field(
        default=_default(documents.ThroughputRules, "production_threshold"),
        description="least ratio of every production workload, in every repeat",
    )
    solo: bool = Field(
        default=_default(documents.ThroughputRules, "solo"),
        description="whether the baseline is also measured alone, before a candidate exists",
    )
    controls: bool = Field(
        default=_default(documents.ThroughputRules, "controls"),
        description="whether each category's first workload is also measured baseline against baseline",
    )
    seed: int = Field(
        default=_default(documents.ThroughputRules, "seed"),
        ge=0,
        lt=2**63,
        description="seed given to both sides of measurements and pilots",
    )
    clock_relative: Fraction = Field(
        default=_default(documents.ThroughputRules, "clock_relative"),
        description="how far, relatively, a side's own seconds may be from the parent's",
    )
    clock_absolute_s: SecondsOrZero = Field(
        default=_default(documents.ThroughputRules, "clock_absolute_s"),
        description="how far, in seconds, they may be apart in any case",
    )

    @property
    def rules(self) -> documents.ThroughputRules:
        """The rules as they are frozen."""
        return documents.ThroughputRules.of(dict(self))


class Numerical(Table):
    """Rules of the numerical family: matched local updates of every workload. `[numerical]` alone declares it."""

    updates: int = Field(
        default=_default(documents.NumericalRules, "updates"),
        ge=1,
        le=1000,
        description="matched local updates of a case",
    )
    moments: Literal["fresh", "warm"] = Field(
        default=_default(documents.NumericalRules, "moments"),
        description="whether Adam's moments start at zero, or as the baseline's warm-up left them",
    )
    loss_atol: Fraction = Field(
        default=_default(documents.NumericalRules, "loss_atol"),
        description="what a worker's losses may differ by in any case, in nats",
    )
    loss_rtol: Fraction = Field(
        default=_default(documents.NumericalRules, "loss_rtol"),
        description="and in proportion to the baseline's loss",
    )
    gradients_threshold: BelowOne = Field(
        default=_default(documents.NumericalRules, "gradients_threshold"),
        description="relative L2 difference that the clipped gradients must stay below",
    )
    parameters_threshold: BelowOne = Field(
        default=_default(documents.NumericalRules, "parameters_threshold"),
        description="the same of the parameters",
    )
    updates_threshold: BelowOne = Field(
        default=_default(documents.NumericalRules, "updates_threshold"),
        description="the same of the updates (parameters after minus before)",
    )
    tensor_floor: PositiveFraction = Field(
        default=_default(documents.NumericalRules, "tensor_floor"),
        description="share of the whole quantity's size per element below which no single tensor's reference counts",
    )
    tensor_gradients: BelowOne = Field(
        default=_default(documents.NumericalRules, "tensor_gradients"),
        description="relative difference above which a single tensor of the gradients is flagged",
    )
    tensor_parameters: BelowOne = Field(
        default=_default(documents.NumericalRules, "tensor_parameters"),
        description="relative difference above which a single tensor of the parameters is flagged",
    )
    tensor_updates: BelowOne = Field(
        default=_default(documents.NumericalRules, "tensor_updates"),
        description="relative difference above which a single tensor of the updates is flagged",
    )
    tensor_exp_avg: BelowOne = Field(
        default=_default(documents.NumericalRules, "tensor_exp_avg"),
        description="the same of exp_avg",
    )
    tensor_exp_avg_sq: BelowOne = Field(
        default=_default(documents.NumericalRules, "tensor_exp_avg_sq"),
        description="the same of exp_avg_sq",
    )
    gated_tensors: Annotated[tuple[documents.Quantity, ...], Strict(strict=False)] = Field(
        default=_default(documents.NumericalRules, "gated_tensors"),
        description="quantities whose flagged tensors also fail a gate",
    )
    control_factor: Margin = Field(
        default=_default(documents.NumericalRules, "control_factor"),
        description="a candidate above so many times its control's worst is flagged",
    )
    isolated_steps: int = Field(
        default=_default(documents.NumericalRules, "isolated_steps"),
        ge=1,
        le=1000,
        description="steps of the isolated optimizer check, and rounds of the consensus check",
    )
    isolated_sd: Ratio = Field(
        default=_default(documents.NumericalRules, "isolated_sd"),
        description="standard deviation of the values that the isolated checks supply",
    )
    isolated_rtol: Fraction = Field(
        default=_default(documents.NumericalRules, "isolated_rtol"),
        description="relative part of an isolated check's allowance",
    )
    isolated_atol: PositiveFraction = Field(
        default=_default(documents.NumericalRules, "isolated_atol"),
        description="its absolute part",
    )
    isolated_scalars: Literal["fp64", "fp32"] = Field(
        default=_default(documents.NumericalRules, "isolated_scalars"),
        description="precision in which both sides' optimizers form their scalars; stated, not checked",
    )
    controls: bool = Field(
        default=_default(documents.NumericalRules, "controls"),
        description="whether every workload has a baseline-against-baseline control",
    )
    required: Annotated[tuple[Literal["optimizer_check", "mix"], ...], Strict(strict=False)] = Field(
        default=_default(documents.NumericalRules, "required"),
        description="optional adapter methods without which a side is not qualified",
    )
    serialized: Patterns = Field(
        default=_default(documents.NumericalRules, "serialized"),
        description="workloads, by name or pattern, whose sides take turns on the device because both do not fit",
    )
    shared_executor: Patterns = Field(
        default=_default(documents.NumericalRules, "shared_executor"),
        description="workloads, by name or pattern, whose control also shares one process",
    )


class Extension(Table):
    """One further look, at more seeds, where the first one is inconclusive. Declared beforehand or not at all."""

    seeds: AddedSeeds = Field(description="seeds that are added")
    quantile_first: Quantile | None = Field(
        default=None, description="quantile of the first look; absent: the least that keeps 5% over both"
    )
    quantile: Quantile | None = Field(default=None, description="quantile of the second look, at all seeds; likewise")


class Convergence(Table):
    """Declares the convergence family: full trainings of the recipes."""

    seeds: FirstSeeds = Field(
        default=_default(documents.ConvergenceRules, "seeds"),
        description="seeds; each recipe is trained with each on both sides",
    )
    margin: Nats = Field(
        default=_default(documents.ConvergenceRules, "margin"),
        description="what the upper bound of the mean difference of final losses must be strictly below, in nats",
    )
    quantile: Quantile | None = Field(
        default=None,
        description="quantile of the bound; absent: 2.920 for three seeds, else t(0.95, seeds - 1) to six digits",
    )
    max_segments: int = Field(
        default=_default(documents.ConvergenceRules, "max_segments"),
        ge=1,
        le=MOST_SEGMENTS,
        description="most segments (allocations one after another) of one attempt at a run",
    )
    checkpoint_s: int = Field(
        default=_default(documents.ConvergenceRules, "checkpoint_s"),
        ge=1,
        le=MOST_SECONDS,
        description="seconds between two checkpoints of a run; the first one comes earlier",
    )
    assumed_sd: Nats | None = Field(
        default=None,
        description="SD of the paired differences of final losses, in nats, from which the freeze computes the power",
    )
    assumed_sd_source: Words = Field(default="", description="where `assumed_sd` is from, in words; required with it")
    power_waiver: Words = Field(
        default="",
        description="why to freeze although a recipe may pass with less than 80% at a true difference of 0, or unknown",
    )
    extension: Extension | None = Field(
        default=None, description="one further look where the first is inconclusive, such as `{ seeds = [48, 49, 50] }`"
    )


class Limits(Table):
    """How long a side may take for one answer, and how much it may print."""

    import_s: int = Field(
        default=_default(documents.Limits, "import_s"),
        ge=1,
        le=MOST_SECONDS,
        description="most seconds to start and import",
    )
    startup_s: int = Field(
        default=_default(documents.Limits, "startup_s"),
        ge=1,
        le=MOST_SECONDS,
        description="most seconds for set-up, compilation and warm-up",
    )
    stall_s: int = Field(
        default=_default(documents.Limits, "stall_s"),
        ge=1,
        le=MOST_SECONDS,
        description="most seconds for one window or another answer",
    )
    log_bytes: int = Field(
        default=_default(documents.Limits, "log_bytes"),
        ge=1024,
        le=MOST_LOG_BYTES,
        description="most bytes of a side's output",
    )


class Retries(Table):
    """Which endings allow another attempt."""

    max_attempts: int = Field(
        default=_default(documents.Retries, "max_attempts"), ge=1, le=100, description="most attempts at one slot"
    )
    again: Endings = Field(
        default=_default(documents.Retries, "again"), description="endings that allow another attempt"
    )
    again_once: Endings = Field(
        default=_default(documents.Retries, "again_once"), description="endings that allow one more attempt, once"
    )


class Matrix(Table):
    """The workloads that are the product of axes."""

    name: Text = Field(default="", description="pattern of the names, such as `{size}-b{batch}`; default: all labels")
    axes: dict[str, list[Any]] = Field(
        default={}, description="values of each axis: a scalar, or a table of a `label` and the entries that it sets"
    )
    fixed: JsonTable = Field(
        default={},
        description="entries of every configuration; a workload's or recipe's own `config` goes before them; "
        "`processes`, `nodes` and `numerical` here or on an axis are those of `[[workload]]`",
    )
    exclude: Annotated[tuple[dict[str, Any], ...], Strict(strict=False)] = Field(
        default=(), description="combinations to leave out, by axis and label (or list of labels)"
    )
    production: Names = Field(default=(), description="names of matrix workloads that are required production cases")


class Category(Table):
    """A mode with a small-batch filter: what a category gate takes its median over.

    With neither, only single workloads join it.
    """

    name: Name = Field(description="name of the category")
    mode: str | None = Field(default=None, description="label on the axis `mode`; absent: every mode")
    small_batch: dict[str, Any] = Field(
        default={}, description="further filter, by axis and label (or list of labels), such as `{ batch = [4, 8] }`"
    )


class Workload(Table):
    """One workload beside the matrix."""

    name: Name = Field(description="name of the workload")
    config: Entries = Field(description="what the adapter is called with")
    production: bool = Field(default=False, description="whether it is a required production case")
    category: str = Field(default="", description="category that it joins, if any")
    processes: int = Field(default=1, ge=1, le=MOST_PROCESSES, description="processes of each side, the ranks")
    nodes: int = Field(
        default=1, ge=1, le=MOST_PROCESSES, description="nodes that they run on, equally many processes on each"
    )
    numerical: bool = Field(
        default=True,
        description="`false` leaves a workload of several processes out of the numerical family, which cannot take it",
    )


class Recipe(Table):
    """One training recipe of the convergence family."""

    name: Name = Field(description="name of the recipe; no workload has it")
    config: Entries = Field(description="what the adapter is called with, beside `fixed` of the matrix")
    targets: int = Field(
        ge=1, le=MOST_TARGETS, description="targets (non-padding tokens predicted) of one training, exactly"
    )
    validation_targets: int = Field(ge=1, le=MOST_TARGETS, description="targets of the whole validation split, exactly")
    updates: int = Field(
        ge=2,
        le=MOST_UPDATES,
        description="updates of one training, exactly; its pilot makes one before and one after loading",
    )
    evaluate_every: int | None = Field(
        default=None,
        ge=1,
        le=MOST_UPDATES,
        description="updates between two points of the validation curve; absent: a twentieth of `updates`, rounded up",
    )
    scored: Words = Field(
        default="", description="which model is scored, in words, where several are trained side by side"
    )


class Slice(Table):
    """A part of the campaign that can be run as a campaign by itself: `slice = "NAME"`, or `--slice NAME`."""

    workloads: Patterns = Field(default=("*",), description="its workloads, by name or pattern")
    recipes: Patterns = Field(
        default=("*",), description="its recipes, by name or pattern; `[]`: no trainings, and no `[convergence]`"
    )
    set: dict[str, Any] = Field(
        default={},
        description="other tables and keys as the slice has them: tables are merged, anything else is replaced",
    )


class Submission(Table):
    """How slots become allocations."""

    workloads_per_allocation: int = Field(
        default=1, ge=1, le=100000, description="workloads whose slots of one repeat share an allocation"
    )


class Slurm(Table):
    """Resources of one allocation on Slurm."""

    cluster: ClusterName | None = Field(
        default=None, description="cluster, where this host's commands reach several; absent: their own"
    )
    partition: Text | None = Field(default=None, description="partition")
    account: Text | None = Field(default=None, description="account")
    qos: Text | None = Field(default=None, description="quality of service")
    wckey: Text | None = Field(default=None, description="workload characterization key")
    constraint: Text | None = Field(default=None, description="features that the node must have")
    gres: Text | None = Field(default=None, description="generic resources, such as `gpu:1`")
    reservation: Text | None = Field(default=None, description="reservation")
    nodelist: Text | None = Field(default=None, description="nodes that may be used")
    exclude: Text | None = Field(default=None, description="nodes that may not be used")
    exclude_after: int = Field(
        default=2,
        ge=0,
        le=1000,
        description="allocations that have to fail on a node until no more are sent to it; 0: never",
    )
    exclusive: bool = Field(default=False, description="whether no other job may share the node")
    minutes: int | None = Field(
        default=None,
        ge=1,
        le=MOST_MINUTES,
        description="time limit of one allocation; absent: what its slots can take, by the limits and the pilots",
    )
    cpus: int = Field(default=1, ge=1, description="CPUs of one allocation")
    mem_gb: int | None = Field(default=None, ge=1, description="memory of one allocation; absent: the partition's")
    max_running: int = Field(default=256, ge=1, description="most allocations of one array that run at a time")
    setup: Texts = Field(
        default=(),
        description="shell lines before the harness, such as `module load cuda || exit 1`",
    )


class Local(Table):
    """The local executor: one job holds all planned allocations, one after another."""

    minutes: int = Field(default=1440, ge=1, description="time limit of the whole job")


class CampaignFile(Table):
    """campaign.toml."""

    name: Name = Field(description="name of the campaign")
    baseline_first: bool = Field(
        default=True, description="whether a candidate may be frozen only when the baseline's phase is complete"
    )
    slice: Name | None = Field(default=None, description="the one of `[slices]` that is meant; absent: the whole file")
    baseline: Side = Field(description="the side in use")
    candidate: Side | None = Field(default=None, description="the side that may replace it; read at its own freeze")
    data: dict[Name, Data] = {}
    harness: Harness = Harness()
    execution: Execution = Execution()
    throughput: Throughput = Throughput()
    numerical: Numerical | None = None
    convergence: Convergence | None = None
    limits: Limits = Limits()
    retries: Retries = Retries()
    matrix: Matrix = Matrix()
    category: Annotated[tuple[Category, ...], Strict(strict=False)] = ()
    workload: Annotated[tuple[Workload, ...], Strict(strict=False)] = ()
    recipe: Annotated[tuple[Recipe, ...], Strict(strict=False)] = ()
    submission: Submission = Submission()
    slurm: Slurm = Slurm()
    local: Local = Local()
    slices: dict[Name, Slice] = {}


class Config(CampaignFile):
    """A campaign.toml that was read: all paths absolute, with the file's own path and bytes.

    Build it with `campaign.config.load.load_config`.
    """

    path: Path
    raw: bytes = Field(repr=False)
    num_added_lines: int = 0
    """Lines of `raw` before the first one of the file, whose lines messages count."""

    @property
    def harness_python(self) -> Path:
        """The interpreter that runs the harness."""
        return self.harness.python or self.baseline.python

    @property
    def num_devices(self) -> int:
        """Devices of one allocation."""
        return bounds.num_devices(self.slurm.gres)

    @property
    def part(self) -> Slice | None:
        """The chosen slice."""
        return self.slices[self.slice] if self.slice is not None else None

    def resources(self) -> dict[str, Any]:
        """Return the resolved resource tables as JSON values, for the manifest."""
        return {
            "submission": self.submission.model_dump(mode="json"),
            "slurm": self.slurm.model_dump(mode="json"),
            "local": self.local.model_dump(mode="json"),
            "login_node": self.execution.login_node,
        }

    def places(self) -> Places:
        """Return the places of the file's keys."""
        return locate(self.raw.decode("utf-8"))

    def error(self, key: KeyPath, what: str, *, why: str = "", hint: str = "") -> ConfigError:
        """Return the error about one key, with its place in the file."""
        position = slices.find(self.places(), key, self.slice)
        line = max(position.line - self.num_added_lines, 1)
        return ConfigError(what, where=f"{self.path}:{line}:{position.column}", why=why, hint=hint)
