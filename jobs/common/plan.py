"""What one allocation is asked to do: allocation.json and the frozen protocol, read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from .storage import sha256_bytes
from .strict import Fields, parse_json

SIDES = ("baseline", "baseline_again", "candidate")
KINDS: Mapping[str, frozenset[tuple[str, ...]]] = {
    "pilot": frozenset({("baseline",), ("candidate",)}),
    "solo": frozenset({("baseline",)}),
    "pair": frozenset({("baseline", "candidate"), ("candidate", "baseline")}),
    "control_pair": frozenset({("baseline", "baseline_again"), ("baseline_again", "baseline")}),
    "control_case": frozenset({("baseline", "baseline_again")}),
    "case": frozenset({("baseline", "candidate")}),
    "run": frozenset({("baseline",), ("candidate",)}),
    "resumption": frozenset({("baseline",), ("candidate",)}),
}
"""The kinds of attempts that this release runs, and the orders of sides that each may have."""
CASES = ("control_case", "case")
"""The kinds that compare matched updates; both sides are alive at the same time."""
RUN = "run"
"""The kind that is a whole training, in segments."""
RESUMPTION = "resumption"
"""The kind that goes on from a checkpoint of either side for some updates, to see whether a side can."""
OF_RECIPES = (RUN, RESUMPTION)
"""The kinds that train by a recipe, and never a workload; the name of their slot ends in the seed, or holds it."""
QUANTITIES = ("gradients", "parameters", "updates", "exp_avg", "exp_avg_sq")
"""What is compared tensor by tensor after every matched update, in this order."""
STATE = {"fresh": ("parameters",), "warm": ("parameters", "exp_avg", "exp_avg_sq")}
"""What a canonical state consists of, by the protocol's `moments`; absent moments are zero."""
_NEEDED = ("load_state", "state", "update_on")
NEEDED_BY_RUNS = ("evaluate", "save", "load", "progress")
"""What an adapter must offer where the convergence family is declared, beside the required methods of every adapter."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RUN_SLOT = re.compile(r"[^/]+/run/(?P<recipe>[^/]+)/s(?P<seed>0|[1-9][0-9]{0,17})")
_RESUMPTION_SLOT = re.compile(r"[^/]+/resumption/(?P<recipe>[^/]+)/s(?P<seed>0|[1-9][0-9]{0,17})/from-(?P<owner>[^/]+)")
MOST_SEED = 2**63 - 1
"""A seed is no count, and stands in no table: what a configuration may say is taken whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The throughput rules that a measurement follows."""

    warmup_updates: int
    windows: int
    window_s: float
    pilot_s: float
    seed: int
    clock_relative: float
    clock_absolute_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerical:
    """The numerical rules that a case follows. What needs no arithmetic here is kept as the text that it is."""

    updates: int
    moments: str
    tensor_floor: float
    isolated_steps: int
    isolated_sd: str
    isolated_rtol: str
    isolated_atol: str
    required: tuple[str, ...]
    serialized: frozenset[str]
    shared_executor: frozenset[str]

    def needed_methods(self, side: str) -> tuple[str, ...]:
        """Return what a side's adapter must offer beside the required methods of every adapter."""
        recorded = ("batch",) if side == "baseline" else ()
        return (*_NEEDED, *recorded, *self.required)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One training recipe."""

    name: str
    config: dict[str, Any]
    config_sha256: str
    targets: int
    """Targets of one training, exactly."""
    validation_targets: int
    """Targets of the whole validation split, exactly."""
    updates: int
    evaluate_every: int
    """Updates between two points of the validation curve; the last update has one too."""

    def next_point(self, update: int) -> int:
        """Return the next update after which the validation loss is taken; of those after a given one."""
        return min((update // self.evaluate_every + 1) * self.evaluate_every, self.updates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """The convergence rules that a run follows."""

    max_segments: int
    checkpoint_s: int
    recipes: Mapping[str, Recipe]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a side may take for one answer, and how much it may print."""

    import_s: float
    startup_s: float
    stall_s: float
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One training configuration."""

    name: str
    category: str
    production: bool
    config: dict[str, Any]
    config_sha256: str
    processes: int = 1
    """Processes of each side, the ranks."""
    nodes: int = 1
    """Nodes that they run on, equally many on each."""

    @property
    def per_node(self) -> int:
        """Processes on each node."""
        return self.processes // self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What the harness needs of the frozen rules."""

    rules: Rules
    numerical: Numerical | None
    """None where the family is not declared."""
    convergence: Convergence | None
    """None where the family is not declared."""
    limits: Limits
    device: str
    threads: int
    workloads: Mapping[str, Workload]
    headers: Mapping[str, tuple[str, ...]]

    def recipe(self, name: str) -> Recipe | None:
        """Return a recipe by its name; None for the name of a workload, which no recipe has."""
        return None if self.convergence is None else self.convergence.recipes.get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The image file that a side's launch prefix names, as it was frozen."""

    path: Path
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """What is needed to run one side."""

    id: str
    tree: Path
    files: Path
    snapshot_sha256: str
    python: str
    adapter: str
    python_path: tuple[str, ...]
    environment: Mapping[str, str]
    pass_environment: tuple[str, ...]
    launch: tuple[str, ...]
    reads: tuple[str, ...]
    """Files and folders outside everything frozen that it may read."""
    container: Container | None = None
    """None where no image was declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataIdentity:
    """A data set by path and content."""

    path: Path
    sha256: str
    num_bytes: int
    num_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointName:
    """Which checkpoint of an attempt at a run a segment starts from."""

    segment: int
    """The segment that wrote it."""
    update: int
    """Updates behind it: the name of its folder."""
    sha256: str
    """Of its checkpoint.json."""


def parse_seed(slot: str, recipe: str) -> int:
    """Return the seed that stands in the name of a run's slot.

    Raises:
        ValueError: It is not the name of a run of this recipe.
    """
    found = _RUN_SLOT.fullmatch(slot)
    if found is None or found["recipe"] != recipe:
        raise ValueError(f"not the name of a run of recipe {recipe!r}: {slot!r}")
    return int(found["seed"])


def parse_resumption(slot: str, recipe: str) -> tuple[int, str]:
    """Return the seed, and whose checkpoint it is, from the name of a resumption's slot.

    Raises:
        ValueError: It is not the name of a resumption of this recipe.
    """
    found = _RESUMPTION_SLOT.fullmatch(slot)
    if found is None or found["recipe"] != recipe:
        raise ValueError(f"not the name of a resumption of recipe {recipe!r}: {slot!r}")
    return int(found["seed"]), found["owner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAttempt:
    """One attempt to make."""

    slot: str
    attempt: int
    kind: str
    workload: str
    repeat: int
    pair: int
    order: tuple[str, ...]
    updates: int
    """Updates per window; of a resumption all of them; 0 for a pilot, for a case and for a run."""
    inputs_sha256: str
    """Digest of a case's canonical inputs; empty for everything else."""
    examples_sha256: str = ""
    """Of the examples that the ranks of a candidate's pilot must take; empty for everything else."""
    segment: int = 0
    """Which segment of a run; 0 for everything else."""
    resume: CheckpointName | None = None
    """What a segment or a resumption starts from; None for the beginning."""

    @property
    def name(self) -> str:
        """How ended.json calls it."""
        return f"{self.slot}/{self.attempt}/{self.segment}" if self.segment else f"{self.slot}/{self.attempt}"

    @property
    def seed(self) -> int:
        """The seed of a run or of a resumption, which stands in its slot's name.

        Raises:
            ValueError: It is neither, or not one of its recipe.
        """
        if self.kind == RESUMPTION:
            return parse_resumption(self.slot, self.workload)[0]
        return parse_seed(self.slot, self.workload)

    def saved_by(self) -> PlannedAttempt:
        """Return the attempt at a run whose checkpoint a resumption goes on from: it has the same number.

        Raises:
            ValueError: It is no resumption.
        """
        seed, owner = parse_resumption(self.slot, self.workload)
        return replace(
            self,
            slot=f"{owner}/run/{self.workload}/s{seed}",
            kind=RUN,
            order=("baseline" if owner == "baseline" else "candidate",),
            updates=0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """allocation.json."""

    id: str
    home: Path
    manifest_sha256: str
    protocol_sha256: str
    harness_sha256: str
    sides: Mapping[str, Runnable]
    data: Mapping[str, DataIdentity]
    attempts: tuple[PlannedAttempt, ...]

    def side(self, name: str) -> Runnable:
        """Return what runs as a side: the second baseline of a control is the baseline again."""
        return self.sides["candidate" if name == "candidate" else "baseline"]


# --- protocol.json ----------------------------------------------------------------------------------------------------


def _rules(fields: Fields) -> Rules:
    rules = Rules(
        warmup_updates=fields.count("warmup_updates"),
        windows=fields.count("windows", minimum=1),
        window_s=fields.decimal("window_s"),
        pilot_s=fields.decimal("pilot_s"),
        seed=fields.count("seed", maximum=MOST_SEED),
        clock_relative=fields.decimal("clock_relative"),
        clock_absolute_s=fields.decimal("clock_absolute_s"),
    )
    fields.skip(("repeats", "pairs_per_repeat", "window_margin", "category_threshold", "production_threshold"))
    fields.skip(("solo", "controls"))
    fields.done()
    return rules


def _numerical(fields: Fields) -> Numerical:
    rules = Numerical(
        updates=fields.count("updates", minimum=1),
        moments=fields.text("moments"),
        tensor_floor=fields.decimal("tensor_floor"),
        isolated_steps=fields.count("isolated_steps", minimum=1),
        isolated_sd=fields.decimal_text("isolated_sd"),
        isolated_rtol=fields.decimal_text("isolated_rtol"),
        isolated_atol=fields.decimal_text("isolated_atol"),
        required=fields.texts("required"),
        serialized=frozenset(fields.texts("serialized")),
        shared_executor=frozenset(fields.texts("shared_executor")),
    )
    # What acceptance alone decides by, and what the driver plans by.
    fields.skip(("loss_atol", "loss_rtol", "gradients_threshold", "parameters_threshold", "updates_threshold"))
    fields.skip(f"tensor_{quantity}" for quantity in QUANTITIES)
    fields.skip(("gated_tensors", "control_factor", "isolated_scalars", "controls"))
    fields.done()
    if rules.moments not in STATE:
        raise ValueError(f"protocol.numerical: moments are neither fresh nor warm: {rules.moments!r:.100}")
    return rules


def _recipe(value: Any) -> Recipe:
    fields = Fields(value, "protocol.convergence.recipes")
    updates = fields.count("updates", minimum=1)
    recipe = Recipe(
        name=fields.text("name"),
        config=fields.table("config"),
        config_sha256=fields.text("config_sha256"),
        targets=fields.count("targets", minimum=1),
        validation_targets=fields.count("validation_targets", minimum=1),
        updates=updates,
        evaluate_every=fields.count("evaluate_every", minimum=1, maximum=updates),
    )
    fields.skip(("scored",))
    fields.done()
    return recipe


def _convergence(fields: Fields) -> Convergence:
    recipes = [_recipe(value) for value in fields.items("recipes")]
    rules = Convergence(
        max_segments=fields.count("max_segments", minimum=1),
        checkpoint_s=fields.count("checkpoint_s", minimum=1),
        recipes={recipe.name: recipe for recipe in recipes},
    )
    # What acceptance alone decides by, and what the driver plans by.
    fields.skip(("seeds", "margin", "quantile", "extension"))
    fields.done()
    return rules


def _limits(fields: Fields) -> Limits:
    limits = Limits(
        import_s=fields.count("import_s", minimum=1),
        startup_s=fields.count("startup_s", minimum=1),
        stall_s=fields.count("stall_s", minimum=1),
        log_bytes=fields.count("log_bytes", minimum=1),
    )
    fields.done()
    return limits


def _workload(value: Any) -> Workload:
    fields = Fields(value, "protocol.workloads")
    workload = Workload(
        name=fields.text("name"),
        category=fields.text("category"),
        production=fields.flag("production"),
        config=fields.table("config"),
        config_sha256=fields.text("config_sha256"),
        processes=fields.count("processes", minimum=1) if fields.has("processes") else 1,
        nodes=fields.count("nodes", minimum=1) if fields.has("nodes") else 1,
    )
    fields.skip(("numerical",) if fields.has("numerical") else ())
    fields.done()
    if workload.processes % workload.nodes:
        raise ValueError(f"{workload.name}: {workload.processes} processes on {workload.nodes} nodes")
    return workload


def _header(value: Any) -> tuple[str, ...]:
    if type(value) is not list or any(type(name) is not str for name in value):
        raise ValueError("protocol.headers: not a list of column names")
    return tuple(value)


def parse_protocol(data: bytes) -> Protocol:
    """Parse protocol.json.

    Raises:
        ValueError: It is not a protocol that this release knows.
    """
    fields = Fields(parse_json(data), "protocol")
    if fields.text("format") != "protocol/1":
        raise ValueError("protocol: not of format protocol/1")
    execution = fields.fields("execution")
    workloads = [_workload(value) for value in fields.items("workloads")]
    numerical, convergence = fields.optional("numerical", dict), fields.optional("convergence", dict)
    protocol = Protocol(
        rules=_rules(fields.fields("throughput")),
        numerical=None if numerical is None else _numerical(Fields(numerical, "protocol.numerical")),
        convergence=None if convergence is None else _convergence(Fields(convergence, "protocol.convergence")),
        limits=_limits(fields.fields("limits")),
        device=execution.text("device"),
        threads=execution.count("threads", minimum=1),
        workloads={workload.name: workload for workload in workloads},
        headers={file: _header(value) for file, value in fields.table("headers").items()},
    )
    execution.done()
    fields.skip(("campaign", "families", "baseline_first", "retries", "categories", "slots"))
    fields.done()
    if protocol.convergence is not None and (both := set(protocol.workloads) & set(protocol.convergence.recipes)):
        raise ValueError(f"protocol: both a workload and a recipe are named {', '.join(sorted(both))}")
    return protocol


def read_protocol(path: Path, sha256: str) -> Protocol:
    """Read the protocol that an allocation names.

    Raises:
        ValueError: The bytes are not those that were frozen, or no protocol.
    """
    data = path.read_bytes()
    if sha256_bytes(data) != sha256:
        raise ValueError(f"{path}: its SHA-256 is {sha256_bytes(data)}, the allocation names {sha256}")
    return parse_protocol(data)


# --- allocation.json --------------------------------------------------------------------------------------------------


def _absolute(text: str, where: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise ValueError(f"{where}: not an absolute path: {text!r}")
    return path


def _is_inside(text: str) -> bool:
    path = PurePosixPath(text)
    return not path.is_absolute() and ".." not in path.parts


def _container(value: Any, where: str) -> Container | None:
    if value is None:
        return None
    fields = Fields(value, where)
    container = Container(
        path=_absolute(fields.text("path"), where), num_bytes=fields.count("bytes"), sha256=fields.text("sha256")
    )
    fields.done()
    return container


def _runnable(value: Any, name: str) -> Runnable:
    where = f"allocation.sides.{name}"
    fields = Fields(value, where)
    runnable = Runnable(
        id=fields.text("id"),
        tree=_absolute(fields.text("tree"), where),
        files=_absolute(fields.text("files"), where),
        snapshot_sha256=fields.text("snapshot_sha256"),
        python=fields.text("python"),
        adapter=fields.text("adapter"),
        python_path=fields.texts("python_path"),
        environment=fields.text_table("environment"),
        pass_environment=fields.texts("pass_environment"),
        launch=fields.texts("launch"),
        container=_container(fields.optional("container", dict), f"{where}.container"),
        reads=fields.texts("reads"),
    )
    fields.done()
    if not all(_is_inside(folder) for folder in runnable.python_path):
        raise ValueError(f"{where}: python_path leads out of the snapshot: {runnable.python_path}")
    module, _, function = runnable.adapter.partition(":")
    if not module or not function:
        raise ValueError(f"{where}: adapter is not module:function: {runnable.adapter!r}")
    return runnable


def _data(value: Any, name: str) -> DataIdentity:
    where = f"allocation.data.{name}"
    fields = Fields(value, where)
    identity = DataIdentity(
        path=_absolute(fields.text("path"), where),
        sha256=fields.text("sha256"),
        num_bytes=fields.count("bytes"),
        num_files=fields.count("files"),
    )
    fields.done()
    return identity


def parse_checkpoint_name(value: Any, where: str) -> CheckpointName:
    """Parse the name of a checkpoint.

    Raises:
        ValueError: It is none.
    """
    fields = Fields(value, where)
    name = CheckpointName(
        segment=fields.count("segment", minimum=1),
        update=fields.count("update", minimum=1),
        sha256=fields.text("sha256"),
    )
    fields.done()
    if not _SHA256.fullmatch(name.sha256):
        raise ValueError(f"{where}: not a SHA-256: {name.sha256!r:.100}")
    return name


def _attempt(value: Any) -> PlannedAttempt:
    fields = Fields(value, "allocation.attempts")
    resume = fields.optional("resume", dict)
    attempt = PlannedAttempt(
        slot=fields.text("slot"),
        attempt=fields.count("attempt", minimum=1),
        kind=fields.text("kind"),
        workload=fields.text("workload"),
        repeat=fields.count("repeat"),
        pair=fields.count("pair"),
        order=fields.texts("order"),
        updates=fields.count("updates"),
        inputs_sha256=fields.text("inputs_sha256"),
        examples_sha256=fields.text("examples_sha256") if fields.has("examples_sha256") else "",
        segment=fields.count("segment"),
        resume=None if resume is None else parse_checkpoint_name(resume, "allocation.attempts.resume"),
    )
    fields.done()
    if attempt.kind not in KINDS:
        raise ValueError(f"{attempt.slot}: this release runs no attempt of kind {attempt.kind!r}")
    if attempt.order not in KINDS[attempt.kind]:
        raise ValueError(f"{attempt.slot}: a {attempt.kind} does not run {attempt.order}")
    if (attempt.kind in ("pilot", RUN, *CASES)) != (attempt.updates == 0):
        raise ValueError(f"{attempt.slot}: {attempt.updates} updates per window for a {attempt.kind}")
    is_named = _SHA256.fullmatch(attempt.inputs_sha256) is not None
    if is_named != (attempt.kind in CASES) or (attempt.inputs_sha256 and not is_named):
        raise ValueError(f"{attempt.slot}: canonical inputs {attempt.inputs_sha256!r} for a {attempt.kind}")
    if attempt.examples_sha256 and (
        attempt.order != ("candidate",) or attempt.kind != "pilot" or not _SHA256.fullmatch(attempt.examples_sha256)
    ):
        raise ValueError(f"{attempt.slot}: examples {attempt.examples_sha256!r} for a {attempt.kind}")
    _check_segment(attempt)
    return attempt


def _check_segment(attempt: PlannedAttempt) -> None:
    """Refuse a segment of what is no run, a run of no seed, and one that starts from what no earlier segment wrote."""
    if (attempt.kind == RUN) != (attempt.segment > 0):
        raise ValueError(f"{attempt.slot}: segment {attempt.segment} of a {attempt.kind}")
    if attempt.kind == RUN:
        parse_seed(attempt.slot, attempt.workload)
    if attempt.kind == RESUMPTION:
        parse_resumption(attempt.slot, attempt.workload)
        if attempt.resume is None:
            raise ValueError(f"{attempt.slot}: a resumption of nothing")
        return
    if attempt.resume is not None and not attempt.resume.segment < attempt.segment:
        raise ValueError(f"{attempt.slot}: segment {attempt.segment} cannot start from {attempt.resume}")


def _check(allocation: Allocation, name: str) -> Allocation:
    if allocation.id != name:
        raise ValueError(f"allocation: the plan of {allocation.id}, in the folder of {name}")
    for attempt in allocation.attempts:
        # Whose snapshot saved a checkpoint is checked as well.
        owners = attempt.saved_by().order if attempt.kind == RESUMPTION else ()
        for side in (*attempt.order, *owners):
            if ("candidate" if side == "candidate" else "baseline") not in allocation.sides:
                raise ValueError(f"{attempt.slot}: the allocation does not say how to run {side}")
    keys = [(attempt.slot, attempt.attempt) for attempt in allocation.attempts]  # two segments of one do not share it
    if len(set(keys)) != len(keys):
        raise ValueError("allocation: an attempt stands twice")
    return allocation


def parse_allocation(data: bytes, name: str) -> Allocation:
    """Parse allocation.json.

    Args:
        data: Its bytes.
        name: Name of the folder that it lies in, which must be the allocation's id.

    Raises:
        ValueError: It is not an allocation that this release can run.
    """
    fields = Fields(parse_json(data), "allocation")
    if fields.text("format") != "allocation/1":
        raise ValueError("allocation: not of format allocation/1")
    allocation = Allocation(
        id=fields.text("allocation"),
        home=_absolute(fields.text("home"), "allocation.home"),
        manifest_sha256=fields.text("manifest_sha256"),
        protocol_sha256=fields.text("protocol_sha256"),
        harness_sha256=fields.text("harness_sha256"),
        sides={name: _runnable(value, name) for name, value in fields.table("sides").items()},
        data={name: _data(value, name) for name, value in fields.table("data").items()},
        attempts=tuple(_attempt(value) for value in fields.items("attempts")),
    )
    fields.skip(("key",))
    fields.done()
    return _check(allocation, name)
