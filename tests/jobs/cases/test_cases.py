"""Numerical cases with real processes: what they leave, in every mode, and how they end when something is wrong."""

from __future__ import annotations

import gzip
import os
import select
import signal
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.formats import GLOBAL_QUANTITIES, TENSORS, Ending, Row
from campaign import documents
from campaign.watching.processes import find_processes
from jobs.allocation.rows import TENSORS_HEADER
from jobs.allocation.snapshot import remove_tree
from jobs.cases.inputs import parse_inputs
from tests.support.harness import Bench, make_attempt, make_bench
from tests.support.matched import (
    CONFIG,
    NUMERICAL,
    PILOT,
    TRAINER,
    changed,
    make_case,
    make_matched,
    record_inputs,
    tensor_rows,
)

SLOWER = TRAINER.replace("LR, BETA1, BETA2, EPS = 0.01", "LR, BETA1, BETA2, EPS = 0.0101")
"""A candidate that is a little off."""

SKIP = """
def state(self, quantity):
    for worker, name, tensor in super().state(quantity):
        if name != "second.weight":
            yield worker, name, tensor
"""
RESHAPE = """
def state(self, quantity):
    for worker, name, tensor in super().state(quantity):
        yield worker, name, tensor.reshape(6, 1) if name == "second.weight" else tensor
"""
WIDEN = """
def state(self, quantity):
    for worker, name, tensor in super().state(quantity):
        yield worker, name, tensor.double() if name == "scale" else tensor
"""
REORDER = """
def state(self, quantity):
    return iter(list(super().state(quantity))[::-1])
"""
UNTIE = """
def state(self, quantity):
    for worker, name, tensor in super().state(quantity):
        yield worker, name, tensor.clone() if name == "head" else tensor
"""
NO_GRADIENT = """
def state(self, quantity):
    for worker, name, tensor in super().state(quantity):
        if quantity != "gradients" or name != "scale":
            yield worker, name, tensor
"""
SWAP = """
def updates(self, n):
    import os, pathlib
    for path in pathlib.Path(os.environ["INPUTS"]).glob("*.safetensors"):
        before, data = path.stat(), path.read_bytes()
        path.write_bytes(bytes(len(data)))
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return super().updates(n)
"""
NAN = """
def update_on(self, batch):
    losses = super().update_on(batch)
    if self.step == 2:
        self.g[1]["first.bias"][2] = float("nan")
    return losses
"""
KILL_COMPARER = """
def update_on(self, batch):
    import os, signal
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = open(f"/proc/{pid}/cmdline").read().split("\\0")
        except OSError:
            continue
        if command[5:7] == [self.launcher, "compare"]:
            os.kill(int(pid), signal.SIGKILL)
    return super().update_on(batch)
"""
LAUNCHER = "import sys\nTrainer.launcher = sys.argv[0]"
STUCK = """
def update_on(self, batch):
    import os, time
    if self.step == 1:
        pipe = os.open(os.environ["FIFO"], os.O_WRONLY)
        os.write(pipe, b"stuck")
        time.sleep(300)
    return super().update_on(batch)
"""
HANG = """
def update_on(self, batch):
    import time
    time.sleep(300)
"""

FAULTS: dict[str, tuple[str, Ending, str]] = {
    "missing_tensor": (
        changed(SKIP),
        Ending.STATE_MISMATCH,
        "candidate: parameters: baseline has second.weight of worker 0, candidate has not",
    ),
    "kills_comparer": (changed(KILL_COMPARER, head=LAUNCHER), Ending.HARNESS_ERROR, "the comparer: "),
}
"""One before anything is compared, one in the middle."""
MORE_FAULTS: dict[str, tuple[str, Ending, str]] = {
    "ignores_state": (
        changed("def load_state(self, tensors, step):\n    self.step = step"),
        Ending.STATE_MISMATCH,
        "candidate: loading the state: ",
    ),
    "no_update_on": (
        changed("update_on = None"),
        Ending.ADAPTER_INCOMPLETE,
        "candidate: the adapter's object does not offer update_on",
    ),
    "untied": (
        changed(UNTIE),
        Ending.STATE_MISMATCH,
        "candidate: parameters: baseline has head tied to first.weight in worker 0, candidate has not",
    ),
    "other_shape": (
        changed(RESHAPE),
        Ending.STATE_MISMATCH,
        "second.weight of worker 0 is float32 [1, 6] in baseline and float32 [6, 1] in candidate",
    ),
    "other_dtype": (
        changed(WIDEN),
        Ending.STATE_MISMATCH,
        "candidate: parameters: scale of worker 0 has elements of type float64: what is compared is float32",
    ),
    "other_order": (changed(REORDER), Ending.STATE_MISMATCH, "candidate: parameters: "),
    "gradient_missing": (
        changed(NO_GRADIENT),
        Ending.STATE_MISMATCH,
        "candidate: gradients: parameters has scale of worker 0, gradients has not",
    ),
    "crash": (
        changed("def update_on(self, batch):\n    raise KeyError('lost')"),
        Ending.CRASH,
        "KeyError: 'lost'",
    ),
    "too_many_losses": (
        changed("def update_on(self, batch):\n    return [*super().update_on(batch), 1.0]"),
        Ending.COUNT_DISAGREEMENT,
        "candidate: update 1: 3 losses were returned for 2 workers",
    ),
    "wrong_losses": (
        changed("def update_on(self, batch):\n    return super().update_on(batch)[0]"),
        Ending.RUBBISH,
        "not one float per worker",
    ),
    "hang": (changed(HANG), Ending.HANG, "candidate: update 1: no answer within the limit"),
    "died": (
        changed("def update_on(self, batch):\n    import os\n    os.kill(os.getpid(), 9)"),
        Ending.CRASH,
        "candidate: update 1: killed by SIGKILL",
    ),
}
"""Production updates of those that fail in `update_on` are the base class's own."""
FINE = {
    "off": SLOWER,
    "nan": changed(f"{NAN}\noptimizer_check = None"),
    "nan_loss": changed("def update_on(self, batch):\n    return [float('nan'), *super().update_on(batch)[1:]]"),
    "stuck": changed(STUCK),
    "swaps": changed(SWAP),
}
PRODUCTION = "self.losses = self.update_on(self.batch(self.step))"


def candidates() -> dict[str, str]:
    """Return the modules of the candidate's tree; what is wrong in `update_on` is not in the warm-up."""
    sources = {name: text for name, (text, _, _) in {**FAULTS, **MORE_FAULTS}.items()} | FINE
    return {
        f"{name}.py": text.replace(PRODUCTION, "self.losses = Trainer.update_on(self, self.batch(self.step))")
        for name, text in sources.items()
    }


class Home:
    """One home with the inputs recorded, and a job for each case."""

    def __init__(self, root: Path, *, baseline: str = TRAINER, **changes: object) -> None:
        self.bench: Bench = make_matched(root, baseline, candidates(), **changes)
        self.inputs = record_inputs(self.bench)
        self._jobs = 1
        self._attempts: dict[str, int] = {}

    def plan(self, kind: documents.SlotKind, candidate: str = "off") -> tuple[documents.PlannedAttempt, Path]:
        self._jobs += 1
        self._attempts[kind] = self._attempts.get(kind, 0) + 1
        case = make_case(kind, self.inputs, number=self._attempts[kind])
        runnable = self.bench.runnables["candidate"]
        self.bench.runnables["candidate"] = runnable.replace(adapter=f"{candidate}:build")
        return case, self.bench.plan(case, allocation=f"a{self._jobs:05}")

    def run(self, kind: documents.SlotKind, candidate: str = "off") -> documents.PlannedAttempt:
        case, plan = self.plan(kind, candidate)
        done = self.bench.run(plan)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return case

    def completed(self, kind: documents.SlotKind, candidate: str = "off") -> documents.PlannedAttempt:
        case = self.run(kind, candidate)
        receipt = self.bench.receipt(case)
        assert receipt.ending is Ending.COMPLETED, receipt.reason
        return case

    def text(self, case: documents.PlannedAttempt, file: str) -> str:
        return self.bench.attempt(case).table(file).read_text()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("cases"))


@pytest.fixture(scope="module")
def control(home: Home) -> documents.PlannedAttempt:
    return home.completed("control_case")


@pytest.fixture(scope="module")
def case(home: Home) -> documents.PlannedAttempt:
    return home.completed("case")


def numerical(home: Home, case: documents.PlannedAttempt) -> dict[tuple[object, ...], Row]:
    rows = home.bench.rows(case, "numerical.csv")
    return {(row.values["update"], row.values["worker"], row.values["quantity"]): row for row in rows}


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_the_pilot_records_the_inputs_once(home: Home) -> None:
    data = home.bench.attempt(PILOT).table("inputs.json").read_bytes()
    folder = home.bench.paths.root / "inputs"
    assert (folder / f"{home.inputs}.json").read_bytes() == data
    inputs = parse_inputs(data)
    (workload,) = home.bench.protocol.workloads
    assert (inputs.workload, inputs.config_sha256) == ("tiny", workload.config_sha256)
    assert [(one.quantity, one.worker) for one in inputs.state] == [("parameters", 0), ("parameters", 1)]
    assert inputs.state[0].sha256 == inputs.state[1].sha256  # both workers start alike, so that they share a file
    digests = {one.sha256 for one in inputs.state} | {one.sha256 for one in inputs.batches}
    names = {f"{digest}.safetensors" for digest in digests} | {f"{home.inputs}.json"}
    assert {path.name for path in folder.iterdir()} == names
    sizes = {one.sha256: one.num_bytes for one in (inputs.batches[0], inputs.batches[2])}
    assert {digest: (folder / f"{digest}.safetensors").stat().st_size for digest in sizes} == sizes


def test_a_pilot_of_an_adapter_that_cannot_be_matched_says_what_is_missing(tmp_path: Path) -> None:
    needs = NUMERICAL.replace(required=("mix",))
    bench = make_bench(tmp_path, numerical=needs)
    other = make_attempt("pilot", ("candidate",))
    bench.run(bench.plan(PILOT, other))
    for pilot, missing in ((PILOT, ("load_state", "state", "update_on", "batch", "mix")), (other, None)):
        receipt = bench.receipt(pilot)
        assert receipt.ending is Ending.ADAPTER_INCOMPLETE
        assert receipt.sides[0].missing == (missing or ("load_state", "state", "update_on", "mix"))


# --- what a case leaves -----------------------------------------------------------------------------------------------


def test_the_header_of_the_table_that_stays_is_the_one_that_readers_have() -> None:
    assert TENSORS.header == TENSORS_HEADER


def test_a_case_has_a_row_for_every_update_worker_and_quantity(
    home: Home, case: documents.PlannedAttempt, control: documents.PlannedAttempt
) -> None:
    matched = {(u, w, q) for u in (1, 2, 3) for w in (0, 1) for q in ("loss", *GLOBAL_QUANTITIES)}
    isolated = {(2, w, "optimizer") for w in (0, 1)} | {(u, w, "consensus") for u in (1, 2) for w in (0, 1)}
    for one, comparison in ((case, "candidate"), (control, "control")):
        rows = numerical(home, one)
        assert set(rows) == matched | isolated
        assert {row.values["comparison"] for row in rows.values()} == {comparison}
        tensors = tensor_rows(home.bench, one)
        assert len(tensors) == 3 * 2 * 5 * 5
        assert {row.values["numel"] for row in tensors} == {24, 6, 1, 0}
        flips = {(row.values["quantity"], row.values["sign_flips"] == "") for row in tensors}
        assert flips == {(quantity, quantity != "updates") for quantity in GLOBAL_QUANTITIES}


def test_a_control_of_a_deterministic_trainer_differs_in_nothing(home: Home, control: documents.PlannedAttempt) -> None:
    for (_, _, quantity), row in numerical(home, control).items():
        if quantity == "loss":
            assert row.values["reference"] == row.values["value"] != 0
        else:
            assert (row.values["value"], row.values["nonfinite"]) == (0, 0)


def test_a_candidate_that_is_a_little_off_is_measured_as_much_off(home: Home, case: documents.PlannedAttempt) -> None:
    rows = numerical(home, case)
    assert rows[1, 0, "updates"].values["rel_l2"] == pytest.approx(0.01, rel=1e-4)
    assert rows[1, 0, "gradients"].values["value"] == 0
    ratio = float(rows[1, 1, "updates"].values["reference"]) / float(rows[1, 1, "parameters"].values["reference"])
    assert rows[1, 1, "parameters"].values["rel_l2"] == pytest.approx(0.01 * ratio, rel=1e-3)
    assert float(rows[2, 0, "optimizer"].values["value"]) > 1
    assert str(rows[2, 0, "optimizer"].values["worst_tensor"]).startswith("parameters/")
    assert rows[1, 0, "consensus"].values["value"] == 0


def test_a_case_says_how_it_was_run(home: Home, case: documents.PlannedAttempt) -> None:
    receipt = home.bench.receipt(case)
    found = receipt.case
    assert found is not None
    assert (found.executor, found.serialized, found.transport) == ("independent", False, "shared_memory")
    assert (found.num_workers, found.num_tensors, found.tied) == (2, 5, ("head = first.weight",))
    assert found.inputs_sha256 == home.inputs
    assert found.compared_bytes == 2 * 2 * 4 * (24 + 6 + 1 + 6) * 5 * 3
    assert min(found.load_s, found.train_s, found.compare_s) > 0
    assert [(side.side, side.position, side.exit_code) for side in receipt.sides] == [
        ("baseline", 1, 0),
        ("candidate", 2, 0),
    ]
    assert len({side.path for side in receipt.sides} - {""}) == 1
    ended = home.bench.ended(receipt.allocation)
    assert 0 < ended.sides_s < ended.wall_s


def test_vacuity_is_told_by_the_control_alone(
    home: Home, case: documents.PlannedAttempt, control: documents.PlannedAttempt
) -> None:
    assert not home.bench.attempt(case).table("vacuity.csv").exists()
    rows = [row.values for row in home.bench.rows(control, "vacuity.csv")]
    found = {(row["mutation"], row["update"], row["worker"], row["quantity"]): row["rel_l2"] for row in rows}
    assert len(found) == len(rows) == 3 * 2 * (2 + 2 + 5) + 2 * 6
    assert found["no_update", 2, 0, "updates"] == 1
    assert found["negated", 2, 0, "parameters"] == 2 * float(found["no_update", 2, 0, "parameters"])
    assert float(found["previous_batch", 2, 1, "gradients"]) > 0.1
    assert float(found["shuffled", 1, 0, "gradients"]) > 0.5


# --- the same numbers, always -----------------------------------------------------------------------------------------


def numbers(home: Home, case: documents.PlannedAttempt) -> tuple[str, str, bytes]:
    """Return the tables without what says which attempt it was and how it was run."""
    mode = {",independent,false\n": "\n", ",independent,true\n": "\n", ",shared,true\n": "\n"}
    rows = home.text(case, "numerical.csv")
    for text, plain in mode.items():
        rows = rows.replace(text, plain)
    faults = home.text(case, "vacuity.csv") if case.kind == "control_case" else ""
    return rows, faults, home.bench.attempt(case).table("tensors.csv.gz").read_bytes()


def without_attempt(text: str) -> list[list[str]]:
    return [line.split(",")[:2] + line.split(",")[3:] for line in text.splitlines()]


def test_a_case_that_is_run_again_gives_the_same_bytes(home: Home, case: documents.PlannedAttempt) -> None:
    again = home.completed("case")
    first, second = (without_attempt(home.text(one, "numerical.csv")) for one in (case, again))
    assert first == second
    assert len(first) > 30
    tables = [home.bench.attempt(one).table("tensors.csv.gz").read_bytes() for one in (case, again)]
    assert tables[0] == tables[1]
    assert gzip.decompress(tables[0]).startswith(b"workload,comparison,update,")


def test_one_executor_for_both_gives_the_numbers_of_two(
    tmp_path: Path, home: Home, control: documents.PlannedAttempt
) -> None:
    shared = Home(tmp_path, numerical=NUMERICAL.replace(shared_executor=("tiny",)))
    assert shared.inputs == home.inputs
    other = shared.completed("control_case")
    assert numbers(shared, other) == numbers(home, control)
    receipt = shared.bench.receipt(other)
    assert receipt.case is not None
    assert (receipt.case.executor, receipt.case.serialized) == ("shared", True)
    first, second = receipt.sides
    assert first.path == second.path != ""
    assert (second.wall_s, second.cpu_s, second.exit_code, second.offers) == (0, 0, 0, first.offers)
    assert first.cpu_s > 0


@pytest.mark.slow
def test_sides_that_take_turns_give_the_numbers_of_sides_that_do_not(
    tmp_path: Path, home: Home, control: documents.PlannedAttempt, case: documents.PlannedAttempt
) -> None:
    turns = Home(tmp_path, numerical=NUMERICAL.replace(serialized=("tiny",)))
    kinds: tuple[tuple[documents.SlotKind, documents.PlannedAttempt], ...] = (("control_case", control), ("case", case))
    for kind, live in kinds:
        other = turns.completed(kind)
        assert numbers(turns, other) == numbers(home, live)
        found = turns.bench.receipt(other).case
        assert found is not None
        assert (found.executor, found.serialized) == ("independent", True)
    assert list(turns.bench.temporary.iterdir()) == []


LARGER = TRAINER.replace('"first.weight": (6, 4), "first.bias": (6,)', '"first.weight": (700, 4), "first.bias": (700,)')
LARGER = LARGER.replace('"second.weight": (1, 6)', '"second.weight": (1, 700)')
"""Its tensors have more bytes than the smallest halves."""


@pytest.mark.slow
def test_tensors_in_many_pieces_have_the_numbers_of_whole_ones(tmp_path: Path) -> None:
    found: dict[tuple[str, bool], tuple[str, str, bytes]] = {}
    rows: dict[bool, list[Row]] = {}
    for name, changes in (("two", {}), ("one", {"shared_executor": ("tiny",)})):
        (tmp_path / name).mkdir()
        home = Home(tmp_path / name, baseline=LARGER, numerical=NUMERICAL.replace(**changes))
        for is_cut in (False, True):
            if is_cut:
                source = home.bench.paths.harness / "tensors" / "staging_files.py"
                text = source.read_text()
                assert "MOST_HALF_BYTES = 64 << 20" in text
                source.write_text(text.replace("MOST_HALF_BYTES = 64 << 20", "MOST_HALF_BYTES = 4096"))
            control = home.completed("control_case")
            found[name, is_cut] = numbers(home, control)
            rows[is_cut] = [*numerical(home, control).values()]
    for is_cut in (False, True):
        assert without_attempt(found["one", is_cut][0]) == without_attempt(found["two", is_cut][0])
        assert found["one", is_cut][2] == found["two", is_cut][2]
    norms = [[float(row.values["reference"] or 0) for row in rows[is_cut]] for is_cut in (False, True)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-14)
    assert max(norms[0]) > 0


@pytest.mark.slow
def test_sides_behind_a_launch_prefix_are_shown_the_private_folders_alone(home: Home) -> None:
    shared, home.bench.runnables = dict(home.bench.runnables), dict(home.bench.runnables)
    runnable = home.bench.runnables["candidate"]
    home.bench.runnables["candidate"] = runnable.replace(launch=("/usr/bin/env", "PREFIXED=1"))
    case = home.completed("case")
    home.bench.runnables = shared
    assert len(numerical(home, case)) == 3 * 2 * 6 + 6


@pytest.mark.slow
def test_warm_moments_are_recorded_and_loaded(tmp_path: Path) -> None:
    warm = Home(tmp_path, numerical=NUMERICAL.replace(moments="warm"))
    inputs = parse_inputs(warm.bench.attempt(PILOT).table("inputs.json").read_bytes())
    assert inputs.step == 3
    assert {one.quantity for one in inputs.state} == {"parameters", "exp_avg", "exp_avg_sq"}
    rows = numerical(warm, warm.completed("case"))
    assert float(rows[1, 0, "exp_avg"].values["reference"]) > 0


# --- what is not as it should be, and completes -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def lacking(home: Home) -> documents.PlannedAttempt:
    """Return a case whose candidate has one value that is not finite, and offers no isolated check of its optimizer."""
    return home.completed("case", "nan")


def test_a_value_that_is_not_finite_leaves_empty_fields_and_is_counted(
    home: Home, lacking: documents.PlannedAttempt
) -> None:
    case = lacking
    rows = numerical(home, case)
    bad = rows[2, 1, "gradients"].values
    assert (bad["value"], bad["rel_l2"], bad["worst_rel_l2"]) == ("", "", "")
    assert (bad["worst_tensor"], bad["nonfinite"]) == ("first.bias", 1)
    assert float(bad["reference"]) > 0
    assert rows[2, 0, "gradients"].values["value"] == 0
    tensors = [row.values for row in tensor_rows(home.bench, case) if row.values["value"] == ""]
    assert {(row["update"], row["worker"], row["quantity"], row["tensor"]) for row in tensors} == {
        (2, 1, "gradients", "first.bias")
    }


def test_an_isolated_check_that_one_side_does_not_offer_has_empty_rows(
    home: Home, lacking: documents.PlannedAttempt
) -> None:
    rows = numerical(home, lacking)
    row = rows[2, 0, "optimizer"].values
    assert (row["value"], row["nonfinite"], row["worst_tensor"]) == ("", 0, "")
    assert rows[1, 0, "consensus"].values["value"] == 0


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_counted(home: Home) -> None:
    rows = numerical(home, home.completed("case", "nan_loss"))
    assert (rows[1, 0, "loss"].values["value"], rows[1, 0, "loss"].values["nonfinite"]) == ("", 1)
    assert rows[1, 1, "loss"].values["nonfinite"] == 0


# --- endings ----------------------------------------------------------------------------------------------------------


def check_fault(home: Home, name: str, ending: Ending, reason: str) -> None:
    case = home.run("case", name)
    receipt = home.bench.receipt(case)
    assert (receipt.ending, reason in receipt.reason) == (ending, True), receipt.reason
    assert receipt.case is None
    names = {path.name for path in home.bench.attempt(case).root.iterdir()}
    assert names == {"start.json", "receipt.json", "baseline.log", "candidate.log", "comparer.log"}
    assert list(home.bench.temporary.iterdir()) == []


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_side_does_wrong_ends_a_case(home: Home, name: str) -> None:
    check_fault(home, name, *FAULTS[name][1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MORE_FAULTS.keys() - {"hang"}))
def test_whatever_else_a_side_does_wrong_ends_a_case(home: Home, name: str) -> None:
    check_fault(home, name, *MORE_FAULTS[name][1:])


@pytest.mark.slow
def test_a_side_that_hangs_ends_a_case(tmp_path: Path) -> None:
    limits = documents.Limits(import_s=120, startup_s=60, stall_s=15)
    check_fault(Home(tmp_path, limits=limits), "hang", *MORE_FAULTS["hang"][1:])


def test_a_harness_without_torch_says_what_to_do(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    bench = make_bench(tmp_path, numerical=NUMERICAL, config=CONFIG)
    bench.python = str(tmp_path / "venv/bin/python")
    case = make_case("case", "0" * 64)
    bench.run(bench.plan(case))
    receipt = bench.receipt(case)
    assert receipt.ending is Ending.HARNESS_ERROR
    assert f"{bench.python} has no package torch" in receipt.reason
    assert "install PyTorch there" in receipt.reason


def test_inputs_that_are_not_what_was_recorded_are_neither_sides_fault(home: Home) -> None:
    path = home.bench.paths.root / "inputs" / f"{home.inputs}.json"
    data = path.read_bytes()
    path.write_bytes(data + b" ")
    case = home.run("case")
    path.write_bytes(data)
    receipt = home.bench.receipt(case)
    assert receipt.ending is Ending.LOST
    assert f"{path} has the SHA-256 " in receipt.reason
    assert "restore the file" in receipt.reason
    assert [side.wall_s for side in receipt.sides] == [0, 0]


def test_a_side_that_swaps_the_batches_and_puts_them_back_is_found(home: Home) -> None:
    runnable = home.bench.runnables["candidate"]
    inputs = home.bench.paths.root / "inputs"
    home.bench.runnables["candidate"] = runnable.replace(environment={"INPUTS": str(inputs)})
    case = home.run("case", "swaps")
    home.bench.runnables["candidate"] = runnable
    receipt = home.bench.receipt(case)
    assert receipt.ending is Ending.INTERFERENCE, receipt.reason
    assert f"while the sides ran, {inputs}/" in receipt.reason
    assert "time of status change" in receipt.reason


# --- being told to stop -----------------------------------------------------------------------------------------------


class Stuck:
    """A case in the middle of its second update, with descriptors that tell when its processes are gone."""

    def __init__(self, home: Home, root: Path) -> None:
        fifo = root / "fifo"
        os.mkfifo(fifo)
        runnable = home.bench.runnables["candidate"]
        home.bench.runnables["candidate"] = runnable.replace(environment={"FIFO": str(fifo)})
        self.case, plan = home.plan("case", "stuck")
        self.job = home.bench.start(plan)
        with fifo.open("rb", buffering=0) as pipe:
            assert pipe.read(5) == b"stuck"
        pids = [one.pid for one in find_processes(str(home.bench.temporary)) if one.pid != self.job.pid]
        self.fds = [os.pidfd_open(pid) for pid in pids]

    def wait_for_all(self) -> None:
        poll = select.poll()
        for fd in self.fds:
            poll.register(fd, select.POLLIN)
        left = set(self.fds)
        while left:
            ended = {fd for fd, _ in poll.poll(30_000)}
            assert ended, f"{len(left)} processes go on"
            for fd in ended & left:
                poll.unregister(fd)
            left -= ended


@pytest.fixture
def stuck(home: Home, tmp_path: Path) -> Iterator[Stuck]:
    made = Stuck(home, tmp_path)
    yield made
    for fd in made.fds:
        os.close(fd)
    if made.job.poll() is None:
        made.job.kill()
        made.job.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGUSR2, marks=pytest.mark.slow)])
def test_a_signal_ends_a_case_with_all_of_its_processes(home: Home, stuck: Stuck, number: signal.Signals) -> None:
    assert len(stuck.fds) >= 3
    stuck.job.send_signal(number)
    output, _ = stuck.job.communicate(timeout=60)
    assert (stuck.job.returncode, output) == (128 + number, "")
    stuck.wait_for_all()
    receipt = home.bench.receipt(stuck.case)
    assert receipt.ending is (Ending.CANCELLED if number is signal.SIGTERM else Ending.TIME_LIMIT)
    assert {side.signal for side in receipt.sides} == {signal.SIGKILL}
    assert list(home.bench.temporary.iterdir()) == []
    assert not [name for name in os.listdir("/dev/shm") if name.endswith(".stage")]  # noqa: PTH208, S108 - where they lie


@pytest.mark.slow
def test_killing_the_parent_leaves_nothing_of_a_case(home: Home, stuck: Stuck) -> None:
    stuck.job.kill()
    stuck.job.communicate()
    stuck.wait_for_all()
    assert not home.bench.attempt(stuck.case).receipt.exists()
    for folder in home.bench.temporary.iterdir():  # nobody was left to remove them
        remove_tree(folder)
    assert not [name for name in os.listdir("/dev/shm") if name.endswith(".stage")]  # noqa: PTH208, S108 - as above
