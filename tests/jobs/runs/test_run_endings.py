"""Each way in which a side can spoil its run, in a real process, and the ending that it earns."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import documents
from campaign.files import sha256_file
from tests.support.harness import RECIPE, Bench, make_recipe_pilot, make_run
from tests.support.segments import TRAINER, UPDATES, make_runs, newest, targets, trainer

RUN = make_run()
FULL = """
def save(self, folder):
    import errno
    raise OSError(errno.ENOSPC, "No space left on device")
"""
HOLES = """
def save(self, folder):
    super().save(folder)
    if self.update > 10:
        found = os.statvfs(folder)
        with open(folder / "cache.bin", "wb") as stream:
            stream.truncate(2 * found.f_bavail * found.f_frsize)
"""
"""Says that it needs more than any disk here has."""
LEASE = """
def save(self, folder):
    super().save(folder)
    if self.update > 10:
        import fcntl, signal
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        (folder / "cache.bin").touch()
        self.held = os.open(folder / "cache.bin", os.O_RDWR)
        fcntl.fcntl(self.held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
"""
"""Has the kernel say that the file cannot be opened just now."""
WARN = """
def {method}(self, *arguments):
    import signal, subprocess
    keeper = os.getppid()
    parent = int(open(f"/proc/{{keeper}}/stat").read().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGUSR2)
    return super().{method}(*arguments)
"""
ARRANGE = """
def updates(self, n):
    import fcntl, signal
    keeper = os.getppid()
    parent = int(open(f"/proc/{keeper}/stat").read().rsplit(")", 1)[1].split()[1])
    found = super().updates(n)
    if self.update >= 10:
        reader, writer = os.pipe()
        fcntl.fcntl(reader, fcntl.F_SETOWN, parent)
        fcntl.fcntl(reader, 10, int(signal.SIGUSR2))  # F_SETSIG
        fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | fcntl.FASYNC)
        os.write(writer, b"x")
        os._exit(3)
    return found
"""
"""A crash that shall look like the end of the job's time."""
WANDER = """
def engaged(self):
    return {"path": "walking" if self.update < 11 else "running"}
"""
WANDER_FAR = """
def engaged(self):
    return {"path": ("a" if self.update < 11 else "b") * 30_000, "more": "a" * 30_000}
"""
FORGET = """
def load(self, folder):
    state = self.random.getstate()
    super().load(folder)
    self.random.setstate(state)
"""
DRIFT = """
def load(self, folder):
    super().load(folder)
    self.drifted = True

def engaged(self):
    return {"path": "running" if hasattr(self, "drifted") else "walking"}
"""


def overriding(method: str, result: str, arguments: str = "self") -> str:
    return trainer(f"def {method}({arguments}):\n    return {result}")


CASES: dict[str, tuple[str, Ending, str, int]] = {
    "no_save": (TRAINER.replace("def save(", "def store("), Ending.ADAPTER_INCOMPLETE, "does not offer save$", 0),
    "more_targets": (
        trainer("def updates(self, n):\n    n, m, s, t = super().updates(n)\n    return n, m, s, 2 * t"),
        Ending.COUNT_DISAGREEMENT,
        f"[0-9]+ targets after 1[0-9] of {UPDATES} updates; {RECIPE} has {targets()}$",
        1,
    ),
    "fewer_targets": (
        trainer(
            "def updates(self, n):\n    n, m, s, t = super().updates(n)\n    return n, m, s, t - (self.update == 24)"
        ),
        Ending.COUNT_DISAGREEMENT,
        f"{targets() - 1} targets after {UPDATES} of {UPDATES} updates",
        1,
    ),
    "fewer_updates": (
        trainer("def updates(self, n):\n    super().updates(n)\n    return n - 1, n, 0, 10 * n"),
        Ending.COUNT_DISAGREEMENT,
        "updates 1 to 1: 0 updates were done, 1 were asked for",
        0,
    ),
    "half_the_split": (
        overriding("evaluate", "7.5, 6"),
        Ending.COUNT_DISAGREEMENT,
        "evaluation after update 10: evaluate.. counted 6 targets; the validation split of small has 7",
        1,
    ),
    "infinite": (overriding("evaluate", "float('inf'), 7"), Ending.NON_FINITE, "evaluation after update 10: .*inf", 1),
    "not_a_number": (
        overriding("evaluate", "float('nan'), 7"),
        Ending.NON_FINITE,
        "evaluation after update 10: .*nan",
        1,
    ),
    "below_all": (overriding("evaluate", "-float('inf'), 7"), Ending.NON_FINITE, "evaluation .*-inf", 1),
    "whole_nats": (overriding("evaluate", "8, 7"), Ending.RUBBISH, "nats 8 of type int, not a float", 1),
    "one_number": (overriding("evaluate", "8.5"), Ending.RUBBISH, "returned 8.5, not .nats, targets.", 1),
    "true_targets": (overriding("evaluate", "8.5, True"), Ending.RUBBISH, "True as targets", 1),
    "no_progress": (overriding("progress", "None"), Ending.RUBBISH, "progress.. returned a NoneType", 0),
    "nan_progress": (overriding("progress", "{'lr': float('nan')}"), Ending.RUBBISH, "nan as 'lr': not finite", 0),
    "saves_nothing": (
        overriding("save", "None", "self, folder"),
        Ending.RUBBISH,
        "cannot be kept: there is no file",
        0,
    ),
    "says_full": (trainer(FULL), Ending.CRASH, "its own is not: .*No space left", 0),
    "saves_holes": (trainer(HOLES), Ending.RUBBISH, "cache.bin: a file with holes: more than ", 1),
    "leases": (trainer(LEASE), Ending.RUBBISH, "cache.bin: Resource temporarily unavailable$", 1),
    "fails_to_save": (trainer("def save(self, folder):\n    1 / 0"), Ending.CRASH, "checkpoint of update 1: .*Zero", 0),
    "warns_in_save": (trainer(WARN.format(method="save")), Ending.INTERFERENCE, "SIGUSR2 was sent .* of the side", 0),
    "warns_in_chunk": (trainer(WARN.format(method="updates")), Ending.INTERFERENCE, "SIGUSR2 was sent", 0),
    "arranges_a_warning": (trainer(ARRANGE), Ending.INTERFERENCE, "SIGUSR2 was sent .* cannot be told", 1),
    "wanders_far": (
        trainer(WANDER_FAR),
        Ending.STATE_MISMATCH,
        r"engaged.. says .*a{100}.*a run keeps to one path$",
        1,
    ),
    "says_too_much": (overriding("engaged", "{'path': 'a' * 70_000}"), Ending.RUBBISH, "more than 65536 bytes", 0),
    "commands_the_terminal": (
        trainer("def evaluate(self):\n    raise ValueError('\\x1b[2J')"),
        Ending.CRASH,
        r"ValueError: \\x1b\[2J$",
        1,
    ),
    "wanders": (trainer(WANDER), Ending.STATE_MISMATCH, "a run keeps to one path", 1),
    "slow_clock": (
        trainer("def evaluate(self):\n    time.sleep(0.12)\n    return super().evaluate()").replace(
            "import hashlib",
            "import sys; sys.modules['campaign_harness.worker.worker']._clock = lambda: 1.0\nimport hashlib",
        ),
        Ending.CLOCK_DISAGREEMENT,
        "all .*: the side says 0.000000 s",
        2,
    ),
}
"""Adapter, ending, reason, and how many checkpoints there are when it ends."""
NEAR = {
    "below_all",
    "fewer_updates",
    "one_number",
    "true_targets",
    "no_progress",
    "says_full",
    "warns_in_chunk",
    "fewer_targets",
}
"""Cases of which another one takes the same way through the harness: they run among the long tests."""


def of_case(case: str) -> documents.PlannedAttempt:
    return RUN.replace(slot=f"baseline/run/{RECIPE}/s{list(CASES).index(case)}")


def run_job(root: Path, cases: Iterable[str]) -> Bench:
    """Run some cases, one after another, in one job."""
    bench = make_runs(root, {f"{name}.py": case[0] for name, case in CASES.items()})
    plans = []
    for name in cases:
        bench.runnables["baseline"] = bench.runnables["baseline"].replace(adapter=f"{name}:build")
        plans.append(bench.plan(of_case(name), allocation=name))
    done = bench.run(*plans)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return bench


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return run_job(tmp_path_factory.mktemp("runs"), [name for name in CASES if name not in NEAR])


@pytest.fixture(scope="module")
def long_job(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return run_job(tmp_path_factory.mktemp("more runs"), sorted(NEAR))


@pytest.mark.parametrize("case", [name for name in CASES if name not in NEAR])
def test_a_side_that_spoils_its_run_ends_it_with_that_reason(job: Bench, case: str) -> None:
    check_ending(job, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(NEAR))
def test_a_side_that_spoils_its_run_in_another_way_ends_it_likewise(long_job: Bench, case: str) -> None:
    check_ending(long_job, case)


def check_ending(job: Bench, case: str) -> None:
    _, ending, pattern, num_checkpoints = CASES[case]
    receipt = job.receipt(of_case(case))
    assert (receipt.ending, job.ended(case).reason) == (ending, "done"), receipt.reason
    assert re.search(pattern, receipt.reason, flags=re.DOTALL), receipt.reason
    assert {file.name for file in receipt.files} == {"start.json", "baseline.log"}
    assert len(job.checkpoints(of_case(case))) == num_checkpoints


# --- going on ---------------------------------------------------------------------------------------------------------

RESUMED: dict[str, tuple[str, Ending, str]] = {
    "right": (TRAINER, Ending.COMPLETED, "^$"),
    "forgets": (
        trainer(FORGET),
        Ending.STATE_MISMATCH,
        "loading the checkpoint of update 1: progress.. differs in 1 entries .*: random_state was '[0-9a-f]{64}', is '",
    ),
    "drifts": (trainer(DRIFT), Ending.STATE_MISMATCH, "after updates 2 to 2: engaged.. says .*running"),
}


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a home where each of these sides has made its first segment."""
    bench = make_runs(tmp_path_factory.mktemp("resumed"), {f"{name}.py": case[0] for name, case in RESUMED.items()})
    for seed, name in enumerate(RESUMED):
        bench.runnables["baseline"] = bench.runnables["baseline"].replace(adapter=f"{name}:build")
        bench.run(bench.plan(make_run(seed=seed), allocation=f"first-{name}"))
        name_of = bench.name_checkpoint(make_run(seed=seed), 1)
        bench.run(bench.plan(make_run(seed=seed, segment=2, resume=name_of), allocation=f"second-{name}"))
    return bench


@pytest.mark.parametrize("case", RESUMED)
def test_a_side_must_go_on_as_what_it_saved(resumed: Bench, case: str) -> None:
    _, ending, pattern = RESUMED[case]
    receipt = resumed.receipt(make_run(seed=list(RESUMED).index(case), segment=2))
    assert receipt.ending is ending, receipt.reason
    assert re.search(pattern, receipt.reason, flags=re.DOTALL), receipt.reason


def test_a_damaged_checkpoint_and_one_of_another_seed_are_refused_before_anything_runs(resumed: Bench) -> None:
    first, other = make_run(seed=0), make_run(seed=9)
    name = newest(resumed, first)
    shutil.copytree(resumed.attempt(first).root, resumed.attempt(other).root)
    foreign = make_run(seed=9, segment=2, resume=name)
    damaged = make_run(seed=0, segment=3, resume=name)
    spoilt = resumed.attempt(first).checkpoint(name.update).files / "random.json"
    spoilt.chmod(0o644)
    spoilt.write_bytes(spoilt.read_bytes().replace(b"3", b"4"))
    resumed.run(resumed.plan(foreign, damaged, allocation="refused"))
    for planned, pattern in ((foreign, "its slot is "), (damaged, "random.json: ")):
        receipt = resumed.receipt(planned)
        assert (receipt.ending, receipt.run) == (Ending.CHECKPOINT_REFUSED, None)
        assert pattern in receipt.reason
        assert [(side.exit_code, side.signal, side.wall_s) for side in receipt.sides] == [(None, None, 0.0)]


def test_a_segment_beyond_the_protocols_is_not_run(resumed: Bench) -> None:
    beyond = make_run(seed=1, segment=5, resume=newest(resumed, make_run(seed=1)))
    unknown = make_run(seed=0).replace(slot="baseline/run/other/s0", workload="other")
    for planned, allocation in ((beyond, "beyond"), (unknown, "unknown")):
        assert resumed.run(resumed.plan(planned, allocation=allocation)).returncode == 4
        assert resumed.ended(allocation).reason == Ending.HARNESS_ERROR
    log = "".join(resumed.paths.allocation(name).log.read_text() for name in ("beyond", "unknown"))
    assert "segment 5, and the protocol allows 4" in log
    assert "the protocol has no recipe other" in log


EASIER = """
def evaluate(self):
    split = Path(os.environ["SPLIT"])
    before, status = split.read_bytes(), split.stat()
    split.write_bytes(b"0.1")
    found = 7 * float(split.read_bytes()), 7
    split.write_bytes(before)
    os.utime(split, ns=(status.st_atime_ns, status.st_mtime_ns))
    return found
"""
"""Has another validation split for a moment."""


def test_a_run_whose_data_was_changed_for_a_moment_leaves_no_further_checkpoint(tmp_path: Path) -> None:
    split = tmp_path / "split"
    split.write_bytes(b"3.0")
    bench = make_runs(tmp_path, trainer(EASIER))
    bench.data = {"split": documents.DataIdentity(path=str(split), sha256=sha256_file(split), bytes=3, files=1)}
    bench.runnables["baseline"] = bench.runnables["baseline"].replace(environment={"SPLIT": str(split)})
    bench.run(bench.plan(RUN))
    receipt = bench.receipt(RUN)
    assert receipt.ending is Ending.DATA_CHANGED, receipt.reason
    assert receipt.reason == f"data split: the time of status change of {split} changed since it was hashed"
    assert list(bench.checkpoints(RUN)) == [1]


def test_a_home_without_room_for_a_checkpoint_is_no_fault_of_the_side(tmp_path: Path) -> None:
    body = "def save(self, folder):\n    (folder / 'large').write_bytes(bytes(4 << 20))"
    bench = make_runs(tmp_path, trainer(body))
    attempts, kept = bench.paths.attempts, tmp_path / "kept"
    attempts.mkdir()
    mount = f'mount -t tmpfs -o size=2m none "{attempts}" && "$@"; cp -R "{attempts}" "{kept}"'
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", *bench.argv(bench.plan(RUN))]
    if subprocess.run([*argv[:4], "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no private mounts here")
    subprocess.run(argv, env=bench.job_environment(), check=False, timeout=60)
    shutil.copytree(kept, attempts, dirs_exist_ok=True)
    receipt = bench.receipt(RUN)
    assert receipt.ending is Ending.NO_SPACE
    assert "no room for the 4194304 bytes of a checkpoint" in receipt.reason
    assert list(bench.attempt(RUN).checkpoints.iterdir()) == []


# --- pilots -----------------------------------------------------------------------------------------------------------

PILOTS: dict[str, tuple[str, Ending, str]] = {
    "right": (TRAINER, Ending.COMPLETED, "^$"),
    "no_load": (TRAINER.replace("def load(", "def take("), Ending.ADAPTER_INCOMPLETE, "does not offer load$"),
    "forgets": (trainer(FORGET), Ending.STATE_MISMATCH, "loading in another process: progress.. differs"),
    "half_the_split": (overriding("evaluate", "7.5, 6"), Ending.COUNT_DISAGREEMENT, "counted 6 targets"),
}


@pytest.fixture(scope="module")
def pilots(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = make_runs(tmp_path_factory.mktemp("pilots"), {f"{name}.py": case[0] for name, case in PILOTS.items()})
    plans = []
    for number, name in enumerate(PILOTS, start=1):
        bench.runnables["baseline"] = bench.runnables["baseline"].replace(adapter=f"{name}:build")
        plans.append(bench.plan(make_recipe_pilot("baseline").replace(attempt=number), allocation=f"pilot-{name}"))
    bench.run(*plans)
    return bench


@pytest.mark.parametrize("case", PILOTS)
def test_a_pilot_proves_that_a_recipe_can_be_cut(pilots: Bench, case: str) -> None:
    _, ending, pattern = PILOTS[case]
    receipt = pilots.receipt(make_recipe_pilot("baseline").replace(attempt=list(PILOTS).index(case) + 1))
    assert receipt.ending is ending, receipt.reason
    assert re.search(pattern, receipt.reason, flags=re.DOTALL), receipt.reason
    assert (receipt.calibration is not None) == (ending is Ending.COMPLETED)


def test_a_pilots_calibration_has_what_a_run_costs(pilots: Bench) -> None:
    pilot = make_recipe_pilot("baseline")
    receipt = pilots.receipt(pilot)
    found = receipt.calibration
    assert found is not None
    assert 0 < found.updates < UPDATES
    assert found.tokens_per_update == pytest.approx(10.7, abs=0.7)
    assert found.evaluate_s is not None
    assert found.save_s is not None
    assert 0 < found.evaluate_s < found.save_s
    assert found.checkpoint_bytes is not None
    assert found.checkpoint_bytes > 1000
    assert receipt.run is None
    assert {file.name for file in receipt.files} == {"start.json", "baseline.log"}
    assert [path.name for path in pilots.attempt(pilot).root.iterdir() if path.name.startswith(".")] == []
