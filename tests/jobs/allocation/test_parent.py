"""Whole allocations, with real processes: what is measured, what is written, and that nothing is run twice."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.snapshot.digest import digest_folder
from jobs.processes.bytecode import are_packages_compiled
from jobs.processes.origins import read_roots
from tests.support.harness import ADAPTER, CANDIDATE, PAIR, RULES, SOLO, Bench, make_attempt, make_bench, misbehaving

SHOW = misbehaving(
    "def close(self):\n"
    "    import json, os, sys\n"
    "    print(json.dumps({'environment': dict(os.environ), 'cwd': os.getcwd(), 'in_cwd': os.listdir('.'),"
    " 'path': sys.path, 'argv': sys.argv, 'flags': [sys.flags.safe_path, sys.flags.no_user_site],"
    " 'sid': os.getsid(0), 'pid': os.getpid(), 'ignored': [self.config, self.seed, self.device]}))"
)


def shown(bench: Bench, planned: documents.PlannedAttempt, side: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(bench.side_log(planned, side))
    return value


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = make_bench(
        tmp_path_factory.mktemp("pair"),
        SHOW,
        {"pkg/adapter.py": SHOW, "README": ""},
        environment={"TINY_DATA": "/data/tiny"},
        pass_environment=("SITE_LICENSE", "ABSENT"),
    )
    bench.runnables["candidate"] = bench.runnables["candidate"].replace(python_path=("pkg",))
    bench.environment = {"SITE_LICENSE": "1234", "SLURM_CPU_BIND": "mask", "PMI_RANK": "0", "PYTHONPATH": "/elsewhere"}
    bench.environment |= {"LD_PRELOAD": "", "AWS_SECRET_ACCESS_KEY": "s3cret", "CUDA_VISIBLE_DEVICES": "3"}
    done = bench.run(bench.plan(PAIR))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return bench


def test_a_pair_leaves_one_row_a_side_and_one_a_window(pair: Bench) -> None:
    receipt = pair.receipt(PAIR)
    assert (receipt.ending, receipt.reason, receipt.calibration) == (Ending.COMPLETED, "", None)
    rows = [row.values for row in pair.rows(PAIR, "pairs.csv")]
    assert [(row["side"], row["position"], row["comparison"]) for row in rows] == [
        ("baseline", 1, "candidate"),
        ("candidate", 2, "candidate"),
    ]
    assert {(row["category"], row["production"], row["warmup_updates"], row["updates"]) for row in rows} == {
        ("sync", True, 3, 10)
    }
    windows = [row.values for row in pair.rows(PAIR, "windows.csv")]
    assert [(row["side"], row["window"], row["updates"], row["microbatches"], row["tokens"]) for row in windows] == [
        (side, number, 10, 20, 50) for side in ("baseline", "candidate") for number in (1, 2)
    ]


def test_the_numbers_of_a_row_are_those_of_its_windows_in_double_arithmetic(pair: Bench) -> None:
    windows = [row.values for row in pair.rows(PAIR, "windows.csv")]
    for row in (row.values for row in pair.rows(PAIR, "pairs.csv")):
        seconds = [float(window["seconds"]) for window in windows if window["side"] == row["side"]]
        assert row["train_s"] == math.fsum(seconds)
        assert row["tokens"] == 100
        assert row["tokens_per_s"] == 100 / math.fsum(seconds)
        assert float(row["elapsed_s"]) >= float(row["startup_s"]) + math.fsum(seconds)
        assert all(window >= 0.02 for window in seconds)
        assert float(row["startup_s"]) >= 0.006


def test_memory_on_the_cpu_is_the_peak_of_the_sides_own_process(pair: Bench) -> None:
    (first, _) = pair.receipt(PAIR).sides
    row = pair.rows(PAIR, "pairs.csv")[0].values
    assert row["peak_allocated_bytes"] == row["peak_reserved_bytes"]
    assert 4 << 20 < int(row["peak_allocated_bytes"]) <= first.max_rss_bytes < 1 << 30


def test_the_receipt_says_which_caches_a_side_had(pair: Bench) -> None:
    used = "installed" if are_packages_compiled(read_roots().packages) else "private"
    for side in pair.receipt(PAIR).sides:
        assert side.caches is not None
        assert side.caches.to_json() == {"compile": "private, cold", "bytecode": used}


def test_an_interpreter_without_installed_bytecode_uses_a_private_folder_and_says_so(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    (packages,) = tmp_path.glob("venv/lib/python*/site-packages")
    for number in range(200):  # beside what the interpreter below has installed
        (packages / f"package{number}").mkdir()
        (packages / f"package{number}" / "__init__.py").touch()
    bench = make_bench(tmp_path, python=str(tmp_path / "venv/bin/python"))
    assert bench.run(bench.plan(SOLO)).returncode == 0
    (side,) = bench.receipt(SOLO).sides
    assert side.caches == documents.Caches(compile="private, cold", bytecode="private")


def test_the_path_is_over_the_text_entries_of_engaged(pair: Bench) -> None:
    (first, second) = pair.receipt(PAIR).sides
    assert first.engaged == {"path": "counting", "count": 23}
    assert first.path == second.path == files.sha256_bytes(b'{"path":"counting"}')[:12]


def test_the_receipt_says_who_where_and_on_what(pair: Bench) -> None:
    start = documents.Start.read(pair.attempt(PAIR).start)
    assert (start.slot, start.job.scheduler, start.threads) == (PAIR.slot, "local", 1)
    assert start.snapshots == {name: side.snapshot_sha256 for name, side in pair.runnables.items()}
    assert start.harness_sha256 == digest_folder(pair.paths.harness)
    assert start.device.startswith("cpu:")
    assert {row.values["device"] for row in pair.rows(PAIR, "pairs.csv")} == {start.device}
    assert {row.values["node"] for row in pair.rows(PAIR, "pairs.csv")} == {start.host.node}
    started = documents.Started.read(pair.paths.allocation("a00001").started)
    assert (started.boot_id, started.job) == (start.host.boot_id, start.job)


def test_the_time_of_an_allocation_is_divided_between_its_sides_and_the_harness(pair: Bench) -> None:
    ended = pair.ended()
    assert ended.reason == "done"
    assert ended.sides_s == sum(side.wall_s for side in pair.receipt(PAIR).sides)
    assert ended.overhead_s == pytest.approx(ended.wall_s - ended.sides_s)
    assert 0 < ended.overhead_s < ended.wall_s


def test_an_allocation_names_every_receipt_that_it_wrote(pair: Bench) -> None:
    assert pair.ended().receipts == {f"{PAIR.slot}/1": files.sha256_file(pair.attempt(PAIR).receipt)}


def test_a_receipt_that_a_side_plants_is_not_among_those_of_its_allocation(tmp_path: Path) -> None:
    body = """
def close(self):
    import pathlib
    (pathlib.Path(self.config["attempt"]) / "receipt.json").write_text("{}")
"""
    place = tmp_path / "home/attempts" / SOLO.slot / "1"
    bench = make_bench(tmp_path, misbehaving(body), config={"tokens": 5, "attempt": str(place)})
    assert bench.run(bench.plan(SOLO)).returncode == 4
    assert bench.attempt(SOLO).receipt.read_text() == "{}"
    assert (bench.ended().reason, bench.ended().receipts) == (Ending.HARNESS_ERROR, {})


def test_a_side_sees_an_environment_of_its_own(pair: Bench) -> None:
    seen = shown(pair, PAIR, "baseline")["environment"]
    other = shown(pair, PAIR, "candidate")["environment"]
    assert (seen["SITE_LICENSE"], seen["TINY_DATA"], seen["OMP_NUM_THREADS"]) == ("1234", "/data/tiny", "1")
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    hidden = ("ABSENT", "PYTHONPATH", "LD_PRELOAD", "AWS_SECRET_ACCESS_KEY", "USER")
    assert not [name for name in seen if name in hidden or name.startswith(("SLURM_", "PMI"))]
    private = (
        "HOME",
        "TMPDIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "CUDA_CACHE_PATH",
        "PYTHONPYCACHEPREFIX",
    )
    for name in private:
        assert seen[name] != other[name]
        assert Path(seen[name]).is_relative_to(pair.temporary)


def test_a_side_has_a_process_session_and_folder_of_its_own(pair: Bench) -> None:
    first, second = (shown(pair, PAIR, side) for side in ("baseline", "candidate"))
    assert first["sid"] == first["pid"] != second["pid"]
    assert first["cwd"] != second["cwd"]
    assert first["in_cwd"] == second["in_cwd"] == []
    assert first["flags"] == [1, 1] or first["flags"] == [True, True]
    assert [Path(argument).name for argument in first["argv"]] == ["launch.py"]
    assert first["ignored"] == [{"tokens": 5}, RULES.seed, "cpu"]
    assert Path(first["path"][0]).parent.is_relative_to(pair.temporary)
    assert second["path"][0].endswith("/pkg")


def test_nothing_private_is_left_behind(pair: Bench) -> None:
    assert list(pair.temporary.iterdir()) == []
    assert not list(pair.paths.root.rglob("__pycache__"))


def test_the_sides_run_in_the_planned_order_one_after_the_other(tmp_path: Path) -> None:
    stamp = misbehaving("def close(self):\n    print(time.monotonic())", head="print(time.monotonic())")
    bench = make_bench(tmp_path, stamp, stamp)
    planned = make_attempt("pair", ("candidate", "baseline"))
    bench.run(bench.plan(planned))
    assert [(side.side, side.position) for side in bench.receipt(planned).sides] == [("candidate", 1), ("baseline", 2)]
    candidate, baseline = (
        [float(line) for line in bench.side_log(planned, side).split()] for side in ("candidate", "baseline")
    )
    assert candidate[0] < candidate[1] < baseline[0] < baseline[1]
    assert [row.values["side"] for row in bench.rows(planned, "pairs.csv")] == ["candidate", "baseline"]


def test_pilot_solo_and_control_run_in_one_job(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    pilot, control = make_attempt("pilot", ("candidate",)), make_attempt("control_pair", ("baseline_again", "baseline"))
    done = bench.run(bench.plan(pilot, allocation="a1"), bench.plan(control, SOLO, allocation="a2"))
    assert done.returncode == 0
    calibration = bench.receipt(pilot).calibration
    assert calibration is not None
    assert calibration.tokens_per_update == 5.0
    assert calibration.updates & (calibration.updates - 1) == 0
    assert calibration.updates / calibration.updates_per_s >= 0.01
    assert calibration.updates_per_s <= 500
    assert {file.name for file in bench.receipt(pilot).files} == {"start.json", "candidate.log"}
    rows = [row.values for row in bench.rows(control, "pairs.csv")]
    assert [(row["comparison"], row["side"]) for row in rows] == [
        ("control", "baseline_again"),
        ("control", "baseline"),
    ]
    (solo,) = bench.rows(SOLO, "baseline.csv")
    assert solo.values["workload"] == "tiny"
    assert bench.receipt(SOLO).calibration is None


def test_an_adapter_without_optional_methods_is_measured(tmp_path: Path) -> None:
    plain = (
        ADAPTER.replace("def loss", "def _loss").replace("def engaged", "def _engaged").replace("def close", "def _c")
    )
    bench = make_bench(tmp_path, plain)
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending is Ending.COMPLETED
    (side,) = receipt.sides
    assert (side.engaged, side.path, side.offers) == (None, "", ("updates", "sync"))


def test_a_second_job_leaves_a_begun_allocation_untouched(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    plan = bench.plan(SOLO)
    assert bench.run(plan).returncode == 0

    def everything() -> dict[str, tuple[int, str]]:
        found = (path for path in bench.paths.root.rglob("*") if path.is_file())
        return {str(path): (path.stat().st_mtime_ns, files.sha256_file(path)) for path in found}

    before = everything()
    again = bench.run(plan)
    assert again.returncode == 3
    assert "another job has begun it" in again.stderr
    assert everything() == before


def test_an_attempt_that_was_begun_elsewhere_is_not_touched(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.run(bench.plan(SOLO, allocation="a1"))
    before = bench.attempt(SOLO).receipt.read_bytes()
    assert bench.run(bench.plan(SOLO, allocation="a2")).returncode == 4
    assert bench.attempt(SOLO).receipt.read_bytes() == before
    assert bench.ended("a2").reason == "harness_error"


def test_code_edited_after_planning_is_not_what_runs(tmp_path: Path) -> None:
    live = tmp_path / "live.py"
    live.write_text(SHOW)
    bench = make_bench(tmp_path, live.read_text())
    plan = bench.plan(SOLO)
    live.write_text("raise SystemExit(1)")
    bench.run(plan)
    assert bench.receipt(SOLO).ending is Ending.COMPLETED


def test_a_frozen_tree_that_was_edited_does_not_run(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    plan = bench.plan(SOLO)
    (bench.paths.baseline.tree / "adapter.py").write_text(ADAPTER + "\n")
    bench.run(plan)
    receipt = bench.receipt(SOLO)
    assert (receipt.ending, receipt.sides[0].exit_code) == (Ending.SNAPSHOT_CHANGED, None)
    assert "adapter.py" in receipt.reason


@pytest.mark.parametrize("damage", ["harness", "protocol"])
def test_an_edited_harness_or_protocol_runs_nothing(tmp_path: Path, damage: str) -> None:
    bench = make_bench(tmp_path)
    plan = bench.plan(SOLO)
    path = bench.paths.protocol if damage == "protocol" else bench.paths.harness / "measurement" / "blocks.py"
    path.write_bytes(path.read_bytes() + b"\n")
    assert bench.run(plan).returncode == 4
    assert bench.ended().reason == "harness_error"
    assert not bench.attempt(SOLO).root.exists()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_data_that_changed_since_the_freeze_ends_every_attempt(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "data"
    if kind == "folder":
        place.mkdir()
    path = place / "plays.txt" if kind == "folder" else place
    path.write_bytes(b"to be")
    digest = digest_folder(place) if kind == "folder" else files.sha256_file(place)
    bench = make_bench(tmp_path)
    bench.data = {"plays": documents.DataIdentity(path=str(place), sha256=digest, bytes=5, files=1)}
    good, bad = SOLO, SOLO.replace(attempt=2)
    bench.run(bench.plan(good, allocation="a1"))
    path.write_bytes(b"not b")
    bench.run(bench.plan(bad, allocation="a2"))
    assert bench.receipt(good).ending is Ending.COMPLETED
    assert bench.receipt(bad).ending is Ending.DATA_CHANGED
    assert "data plays" in bench.receipt(bad).reason
    assert bench.receipt(bad).sides == ()


def test_a_repository_may_hold_packages_named_like_ours(tmp_path: Path) -> None:
    names = ("campaign", "acceptance", "jobs", "reports", "templates", "plan", "signals", "worker", "strict", "launch")
    head = "".join(f"import {name}\nassert {name}.OWNER == 'user'\n" for name in names)
    sources = {f"{name}/__init__.py": "OWNER = 'user'\n" for name in names}
    bench = make_bench(tmp_path, {**sources, "adapter.py": head + ADAPTER})
    moved = bench.paths.frozen / "any name, with blanks"
    shutil.move(bench.paths.harness, moved)
    bench.paths.harness.symlink_to(moved)
    for path in [moved, *moved.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    bench.run(bench.plan(SOLO))
    assert bench.receipt(SOLO).ending is Ending.COMPLETED, bench.receipt(SOLO).reason


def test_a_launch_prefix_stands_before_the_interpreter(tmp_path: Path) -> None:
    prefix = ("/usr/bin/env", "IN_CONTAINER=yes", "/bin/sh", "-c", '"$@"; exit $?', "wrapper")
    bench = make_bench(tmp_path, SHOW, launch=prefix)
    bench.run(bench.plan(SOLO))
    assert bench.receipt(SOLO).ending is Ending.COMPLETED, bench.receipt(SOLO).reason
    assert shown(bench, SOLO, "baseline")["environment"]["IN_CONTAINER"] == "yes"
    assert int(bench.rows(SOLO, "baseline.csv")[0].values["peak_allocated_bytes"]) > 4 << 20


def test_a_plan_that_is_not_understood_is_refused_by_name(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    plan = bench.plan(SOLO)
    plan.write_text(plan.read_text().replace('"key"', '"kee"', 1))
    done = bench.run(plan)
    assert done.returncode == 4
    assert "allocation: key is missing" in done.stderr
    assert not bench.paths.allocation("a00001").started.exists()


def test_the_harness_refuses_to_start_where_other_bytecode_could_run(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    argv = bench.argv(bench.plan(SOLO))
    assert argv[1:4] == ["-P", "-s", "-X"]
    for missing in (slice(1, 2), slice(2, 3), slice(3, 5)):
        shorter = [*argv]
        del shorter[missing]
        done = subprocess.run(shorter, env=bench.job_environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "start it with -P -s -X pycache_prefix=DIR" in done.stderr
    assert not bench.paths.allocation("a00001").started.exists()


def test_a_candidate_is_named_by_its_id_in_the_attempts_folder(pair: Bench) -> None:
    assert pair.attempt(PAIR).root.is_relative_to(pair.paths.attempts / CANDIDATE)
