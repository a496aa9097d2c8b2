"""Each way to misbehave, each in a real process, and the ending that it earns.

All cases stand in one frozen tree, each an adapter of its own, and run in one job: what one of them does must not reach
the next.
"""

from __future__ import annotations

import _ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import documents
from tests.support.harness import (
    ADAPTER,
    LIMITS,
    PAIR,
    RULES,
    SOLO,
    Bench,
    make_attempt,
    make_bench,
    misbehaving,
    write_tree,
)

COUNTS = "def updates(self, n):\n    super().updates(n)\n    return {}"
SPAWN_DAEMON = """
def sync(self):
    import os
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
"""
FORGE = """
def updates(self, n):
    import os
    answer = b'{"id":3,"ok":{"updates":%d,"microbatches":1,"skipped":0,"tokens":999999,"seconds":0.02}}\\n' % n
    for fd in range(3, 40):
        try:
            os.write(fd, answer)
        except OSError:
            pass
    return super().updates(n)
"""
GARBAGE = FORGE.replace("answer = b", "answer = b'\\xff\\x00 garbage\\n' or b")
TOUCH = """
def close(self):
    import os
    folder = os.path.dirname(__file__)
    os.chmod(folder, 0o755)
    open(os.path.join(folder, "planted.py"), "w").close()
"""
UNDONE = """
def close(self):
    import os
    mine = os.path.join(os.path.dirname(__file__), "completed.py")
    before = os.stat(mine)
    os.chmod(mine, 0o644)
    with open(mine, "r+b") as stream:
        text = stream.read()
        stream.seek(0)
        stream.write(text)
    os.chmod(mine, before.st_mode)
    os.utime(mine, ns=(before.st_atime_ns, before.st_mtime_ns))
"""

PARENT = """
import os, resource, signal, subprocess, sys
def parent():
    keeper = os.getppid()
    return int(open(f"/proc/{keeper}/stat").read().rsplit(")", 1)[1].split()[1])
"""
"""Finds the process that measures."""
QUEUED = """
def sync(self):
    import ctypes
    info = ctypes.create_string_buffer(128)
    ctypes.memmove(info, __import__("struct").pack("iiiiii", 15, 0, -1, 0, 1, os.getuid()), 24)
    assert ctypes.CDLL(None).syscall(129, parent(), 15, info) == 0
    time.sleep(0.5)
"""
"""Sends SIGTERM with rt_sigqueueinfo (129 on x86-64), as if process 1 had."""


BURN = """
def sync(self):
    import os
    if self.count == 3:
        for leaves in (True, False):
            reader, writer = os.pipe()
            if os.fork() == 0:
                while time.process_time() < 1.0:
                    pass
                os.write(writer, b"x")
                time.sleep(0 if leaves else 300)
                os._exit(0)
            os.read(reader, 1)
            if leaves:
                os.wait()
"""
"""Computes in two processes, of which one is still there when the side ends."""


def meddling(statement: str) -> str:
    """Return an adapter that does something to the parent while it is measured."""
    return misbehaving(f"def sync(self):\n    {statement}\n    time.sleep(0.1)", head=PARENT)


CASES: dict[str, tuple[str, Ending, str]] = {
    "completed": (ADAPTER, Ending.COMPLETED, "^$"),
    "crash_import": ("raise RuntimeError('went wrong at import')\n", Ending.CRASH, "import: .*went wrong at import"),
    "crash_build": (misbehaving("def __init__(self, *a):\n    1 / 0"), Ending.CRASH, "build: .*ZeroDivisionError"),
    "crash_updates": (
        misbehaving("def updates(self, n):\n    raise KeyError('lost')"),
        Ending.CRASH,
        "warm-up: .*lost",
    ),
    "crash_signal": (
        misbehaving(
            "def sync(self):\n    import os\n    print('my last words', flush=True)\n    os.kill(os.getpid(), 11)"
        ),
        Ending.CRASH,
        "killed by SIGSEGV; last lines:\nmy last words",
    ),
    "crash_code": (misbehaving("def sync(self):\n    import os\n    os._exit(5)"), Ending.CRASH, "exit code 5"),
    "crash_leaving": (
        misbehaving("def close(self):\n    import os\n    os._exit(9)"),
        Ending.CRASH,
        "exit code 9",
    ),
    "exit_silently": (misbehaving("def sync(self):\n    import os\n    os._exit(0)"), Ending.NO_RESULT, "code 0"),
    "exit_politely": (misbehaving("def sync(self):\n    raise SystemExit"), Ending.NO_RESULT, "code 0"),
    "garbage": (misbehaving(GARBAGE), Ending.RUBBISH, "garbage"),
    "forged": (misbehaving(FORGE), Ending.RUBBISH, ""),
    "not_a_tuple": (misbehaving(COUNTS.format("n")), Ending.RUBBISH, "returned 3, not"),
    "three_counts": (misbehaving(COUNTS.format("n, n, 0")), Ending.RUBBISH, "not \\(updates"),
    "true_tokens": (misbehaving(COUNTS.format("n, n, 0, True")), Ending.RUBBISH, "True as tokens"),
    "float_tokens": (misbehaving(COUNTS.format("n, n, 0, 8.0")), Ending.RUBBISH, "8.0 as tokens"),
    "negative_skips": (misbehaving(COUNTS.format("n, n, -1, 8")), Ending.RUBBISH, "-1 as skipped"),
    "one_short": (misbehaving(COUNTS.format("n - 1, n, 0, 8")), Ending.COUNT_DISAGREEMENT, "2 updates .* 3 were asked"),
    "no_tokens": (misbehaving(COUNTS.format("n, n, 0, 0")), Ending.COUNT_DISAGREEMENT, "without a token"),
    "no_microbatch": (misbehaving(COUNTS.format("n, 0, 0, 8")), Ending.COUNT_DISAGREEMENT, "without a microbatch"),
    "skips_all": (misbehaving(COUNTS.format("n, n, n + 1, 8")), Ending.COUNT_DISAGREEMENT, "4 of 3 updates skipped"),
    "huge_tokens": (misbehaving(COUNTS.format("n, n, 0, 10**18")), Ending.RUBBISH, "an int of 60 bits as tokens"),
    "endless_tokens": (misbehaving(COUNTS.format("n, n, 0, 10**5000")), Ending.RUBBISH, "an int of 16610 bits"),
    "huge_microbatches": (misbehaving(COUNTS.format("n, 2**70, 0, 8")), Ending.RUBBISH, "71 bits as microbatches"),
    "huge_sums": (
        misbehaving(COUNTS.format("n, n, 0, 10**18 - 1")),
        Ending.RUBBISH,
        "the tokens of all windows are above 999999999999999999",
    ),
    "surrogate_engaged": (
        misbehaving("def engaged(self):\n    return {'path': '\\udce9'}"),
        Ending.RUBBISH,
        "result: .*surrogates not allowed",
    ),
    "surrogate_name": (
        misbehaving("def engaged(self):\n    return {'pa\\udce9th': 'x'}"),
        Ending.RUBBISH,
        "surrogates not allowed",
    ),
    "surrogate_error": (
        misbehaving("def sync(self):\n    raise RuntimeError('caf\\udce9')"),
        Ending.CRASH,
        r"RuntimeError: caf\\udce9",
    ),
    "surrogate_version": (
        misbehaving(
            "",
            head="import sys\nsys.modules['ev\\udcffil'] = type(sys)('x')\n"
            "sys.modules['ev\\udcffil'].__version__ = '1.\\udce9'",
        ),
        Ending.COMPLETED,
        "^$",
    ),
    "engaged_huge": (misbehaving("def engaged(self):\n    return {'x': -10**18}"), Ending.RUBBISH, "as 'x'"),
    "own_clock": (
        misbehaving(
            "def sync(self):\n    time.sleep(0.12)",
            head="import sys\nsys.modules['campaign_harness.worker.worker']._clock = lambda: 1.0",
        ),
        Ending.CLOCK_DISAGREEMENT,
        "says 0.000000 s, the parent's clock",
    ),
    "nan_loss": (misbehaving("def loss(self):\n    return float('nan')"), Ending.NON_FINITE, "nan"),
    "infinite_loss": (misbehaving("def loss(self):\n    return float('-inf')"), Ending.NON_FINITE, "-inf"),
    "integer_loss": (misbehaving("def loss(self):\n    return 1"), Ending.RUBBISH, "not a float"),
    "engaged_list": (misbehaving("def engaged(self):\n    return ['fast']"), Ending.RUBBISH, "not a dict"),
    "engaged_float": (misbehaving("def engaged(self):\n    return {'x': 1.5}"), Ending.RUBBISH, "not str: int or str"),
    "flood": (misbehaving("def sync(self):\n    print('x' * 10_000_000)"), Ending.OUTPUT_FLOOD, "more than 4096 bytes"),
    "flood_leaving": (
        misbehaving("def close(self):\n    print('y' * 100_000)"),
        Ending.OUTPUT_FLOOD,
        "more than 4096",
    ),
    "no_function": (ADAPTER.replace("def build(", "def construct("), Ending.ADAPTER_INCOMPLETE, "no function build"),
    "no_sync": (ADAPTER.replace("def sync(", "def wait("), Ending.ADAPTER_INCOMPLETE, "does not offer sync"),
    "no_updates": (ADAPTER.replace("def updates(", "def steps("), Ending.ADAPTER_INCOMPLETE, "does not offer updates"),
    "disk_full": (
        misbehaving("def sync(self):\n    import errno\n    raise OSError(errno.ENOSPC, 'No space left on device')"),
        Ending.CRASH,
        "its own is not: .*No space left",
    ),
    "daemon": (misbehaving(SPAWN_DAEMON), Ending.COMPLETED, "^$"),
    "touches_tree": (misbehaving(TOUCH), Ending.SNAPSHOT_CHANGED, "planted.py"),
    "undoes_touch": (misbehaving(UNDONE), Ending.SNAPSHOT_CHANGED, "completed.py"),
    "foreign_module": (
        misbehaving("", head="import sys\nsys.path.insert(0, 'LIVE')\nimport live_module"),
        Ending.FOREIGN_IMPORT,
        "live_module: .*live/live_module.py",
    ),
    "foreign_later": (
        misbehaving("def sync(self):\n    import sys\n    sys.path.insert(0, 'LIVE')\n    import live_module"),
        Ending.FOREIGN_IMPORT,
        "live_module",
    ),
    "foreign_package_path": (
        misbehaving("", head="import json\njson.__path__.append('LIVE')\nimport json.live_module"),
        Ending.FOREIGN_IMPORT,
        "json.live_module",
    ),
    "foreign_library": (
        misbehaving("def sync(self):\n    import ctypes\n    ctypes.CDLL('LIVE/libforeign.so')"),
        Ending.FOREIGN_IMPORT,
        "shared library: .*live/libforeign.so",
    ),
    "renices": (
        meddling("os.setpriority(os.PRIO_PROCESS, parent(), 7)"),
        Ending.INTERFERENCE,
        "while baseline ran, the harness's own nice was -?[0-9]+, is 7$",
    ),
    "pins": (
        meddling("os.sched_setaffinity(parent(), {min(os.sched_getaffinity(0))})"),
        Ending.INTERFERENCE,
        "own cpus was .*, is [0-9]+$",
    ),
    "limits": (
        meddling("resource.prlimit(parent(), 7, (4, resource.getrlimit(7)[1]))"),
        Ending.INTERFERENCE,
        "RLIMIT_NOFILE was [0-9]+/[0-9]+, is 4/[0-9]+",
    ),
    "terminates": (
        meddling("os.kill(parent(), signal.SIGTERM)"),
        Ending.INTERFERENCE,
        "SIGTERM was sent to the harness by process [0-9]+ of the side",
    ),
    "warns": (
        meddling("subprocess.run(['/bin/sh', '-c', f'kill -USR2 {parent()}; sleep 9'], check=False)"),
        Ending.INTERFERENCE,
        "SIGUSR2 was sent to the harness by process [0-9]+ of the side",
    ),
    "terminates_and_dies": (
        meddling("os.kill(parent(), signal.SIGTERM); os._exit(0)"),
        Ending.INTERFERENCE,
        "SIGTERM was sent",
    ),
    "queues": (misbehaving(QUEUED, head=PARENT), Ending.INTERFERENCE, "SIGTERM .* cannot be told"),
    "processes": (misbehaving(BURN), Ending.COMPLETED, "^$"),
    "once_more": (ADAPTER, Ending.COMPLETED, "^$"),
}


NEAR = [
    "crash_updates",
    "crash_code",
    "exit_politely",
    "garbage",
    "three_counts",
    "float_tokens",
    "negative_skips",
    "no_microbatch",
    "huge_tokens",
    "huge_microbatches",
    "surrogate_name",
    "surrogate_error",
    "engaged_huge",
    "infinite_loss",
    "integer_loss",
    "engaged_list",
    "no_updates",
    "foreign_later",
    "foreign_package_path",
    "limits",
    "pins",
    "warns",
]
"""Cases of which another one takes the same way through the harness: they run among the long tests."""


def attempt_of(case: str) -> documents.PlannedAttempt:
    return SOLO.replace(slot=f"baseline/solo/{case.replace('_', '-')}/r1")


def run_job(root: Path, cases: Sequence[str]) -> Bench:
    """Run some cases, one after another, in one job."""
    live = root / "live"
    write_tree(live, {"live_module.py": "x = 1\n"})
    (live / "libforeign.so").write_bytes(Path(_ctypes.__file__).read_bytes())
    sources = {f"{name}.py": text.replace("LIVE", str(live)) for name, (text, _, _) in CASES.items()}
    bench = make_bench(root, sources, limits=LIMITS)
    plans = []
    for name in cases:
        runnable = bench.runnables["baseline"]
        bench.runnables["baseline"] = runnable.replace(adapter=f"{name}:build")
        plans.append(bench.plan(attempt_of(name), allocation=name))
    done = bench.run(*plans)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return bench


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return run_job(tmp_path_factory.mktemp("endings").resolve(), [name for name in CASES if name not in NEAR])


@pytest.fixture(scope="module")
def long_job(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return run_job(tmp_path_factory.mktemp("more endings").resolve(), [*NEAR, "once_more"])


@pytest.mark.parametrize("case", [name for name in CASES if name not in NEAR])
def test_a_side_that_misbehaves_ends_its_attempt_with_that_reason(job: Bench, case: str) -> None:
    check_ending(job, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*NEAR, "once_more"])
def test_a_side_that_misbehaves_in_another_way_ends_likewise(long_job: Bench, case: str) -> None:
    check_ending(long_job, case)


def check_ending(job: Bench, case: str) -> None:
    _, ending, pattern = CASES[case]
    receipt = job.receipt(attempt_of(case))
    assert (receipt.ending, job.ended(case).reason) == (ending, "done"), receipt.reason
    assert re.search(pattern, receipt.reason, flags=re.DOTALL), receipt.reason
    names = {file.name for file in receipt.files}
    assert ("baseline.csv" in names) == (ending is Ending.COMPLETED)


def test_a_flood_is_cut_at_the_limit_and_said_so(job: Bench) -> None:
    (side,) = job.receipt(attempt_of("flood")).sides
    assert side.output_truncated
    assert side.output_bytes > LIMITS.log_bytes
    assert len(job.side_log(attempt_of("flood"), "baseline")) == LIMITS.log_bytes


def test_foreign_origins_and_missing_methods_stand_in_the_receipt(job: Bench) -> None:
    (foreign,) = job.receipt(attempt_of("foreign_module")).sides
    assert [origin.split(":")[0] for origin in foreign.foreign] == ["live_module"]
    (incomplete,) = job.receipt(attempt_of("no_sync")).sides
    assert incomplete.missing == ("sync",)


def test_a_daemon_that_made_a_session_of_its_own_is_killed(job: Bench) -> None:
    log = job.paths.allocation("daemon").log.read_text()
    assert int(re.findall(r"processes it left behind: (\d+)", log)[0]) >= 1


def test_what_utf8_cannot_hold_is_spelled_out_in_the_receipt(job: Bench) -> None:
    (side,) = job.receipt(attempt_of("surrogate_version")).sides
    assert side.versions["ev\\udcffil"] == "1.\\udce9"


def test_a_pilot_whose_updates_take_no_time_ends(tmp_path: Path) -> None:
    body = "def updates(self, n):\n    return n, n, 0, n"
    rules = RULES.replace(pilot_s="0.5")
    bench = make_bench(tmp_path, misbehaving(body), rules=rules)
    pilot = make_attempt("pilot", ("baseline",))
    bench.run(bench.plan(pilot))
    receipt = bench.receipt(pilot)
    assert receipt.ending is Ending.RUBBISH
    assert "updates() returns without working: 1073741824 updates took" in receipt.reason


def test_processor_time_is_that_of_all_processes_of_a_side(job: Bench) -> None:
    (many,) = job.receipt(attempt_of("processes")).sides
    (one,) = job.receipt(attempt_of("once_more")).sides
    # Two seconds were spent, one in each; a host that takes its processors back may count less of them.
    assert many.cpu_s > 1.3
    assert one.cpu_s < many.cpu_s


def test_a_side_that_computes_on_more_processors_than_it_was_given_interferes(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    # Whether two processes do run at once is up to the machine: without slack, a side's start alone is too much.
    blocks = bench.paths.harness / "measurement" / "blocks.py"
    text = blocks.read_text()
    assert "_THREADS_SLACK_S = 1.0" in text
    blocks.write_text(text.replace("_THREADS_SLACK_S = 1.0", "_THREADS_SLACK_S = -100.0"))
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending is Ending.INTERFERENCE
    assert re.search(r"^[0-9.]+ s of processor time within [0-9.]+ s; 1 threads may spend -[0-9.]+ s$", receipt.reason)


PLANT = """
import glob, importlib.util, os, sys
import importlib._bootstrap_external as external
own = os.environ["PYTHONPYCACHEPREFIX"]
job = os.path.dirname(os.path.dirname(own))
(source,) = glob.glob(job + "/harness*/worker/worker.py")
text = open(source).read()
evil = "print('planted', flush=True)\\n" + text.replace("from __future__ import annotations", "")
cached = os.path.splitext(source)[0] + "." + sys.implementation.cache_tag + ".pyc"
folders = [job + "/bytecode-baseline", own, *glob.glob(job + "/*/")]
for folder in (folder for folder in folders if "harness" not in folder and "tree" not in folder):
    os.makedirs(os.path.dirname(folder + cached), exist_ok=True)
    data = external._code_to_hash_pyc(compile(evil, source, "exec"), importlib.util.source_hash(text.encode()), False)
    open(folder + cached, "wb").write(data)
"""


def test_bytecode_that_a_side_plants_runs_in_no_other_process(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, candidate=misbehaving("", head=PLANT))
    first = make_attempt("pair", ("candidate", "baseline"))
    again = make_attempt("pair", ("candidate", "baseline"), number=2)
    bench.run(bench.plan(first, again))
    for planned in (first, again):
        receipt = bench.receipt(planned)
        assert (receipt.ending, receipt.reason) == (Ending.COMPLETED, "")
        assert [bench.side_log(planned, side) for side in ("baseline", "candidate")] == ["", ""]


def test_a_full_disk_of_its_own_is_no_fault_of_a_side(tmp_path: Path) -> None:
    body = "def sync(self):\n    open('fill', 'wb').write(bytes(64 << 20))"
    bench = make_bench(tmp_path, misbehaving(body))
    mount = f'mount -t tmpfs -o size=8m none "{bench.temporary}" && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", *bench.argv(bench.plan(SOLO))]
    if subprocess.run([*argv[:4], "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no private mounts here")
    subprocess.run(argv, env=bench.job_environment(), check=False, timeout=60)
    receipt = bench.receipt(SOLO)
    assert receipt.ending is Ending.NO_SPACE
    assert "No space left on device" in receipt.reason


def test_the_exit_of_the_process_stands_in_the_receipt(job: Bench) -> None:
    (killed,) = job.receipt(attempt_of("crash_signal")).sides
    assert (killed.exit_code, killed.signal) == (None, 11)
    (left,) = job.receipt(attempt_of("crash_leaving")).sides
    assert (left.exit_code, left.signal) == (9, None)


def test_a_side_that_does_not_answer_hangs(tmp_path: Path) -> None:
    adapter = misbehaving("def updates(self, n):\n    print('stuck', flush=True)\n    time.sleep(300)")
    bench = make_bench(tmp_path, adapter, limits=LIMITS.replace(startup_s=2))
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending is Ending.HANG
    assert receipt.reason == "warm-up: no answer within the limit; last lines:\nstuck"


def test_a_side_that_does_not_close_hangs(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, misbehaving("def close(self):\n    time.sleep(300)"), limits=LIMITS.replace(stall_s=2))
    bench.run(bench.plan(SOLO))
    assert bench.receipt(SOLO).ending is Ending.HANG


def test_a_side_leaves_once_closed_whatever_its_threads_and_exit_handlers_do(tmp_path: Path) -> None:
    body = """
def close(self):
    import atexit, threading
    threading.Thread(target=time.sleep, args=(300,)).start()
    atexit.register(time.sleep, 300)
"""
    bench = make_bench(tmp_path, misbehaving(body), limits=LIMITS.replace(stall_s=20))
    bench.run(bench.plan(SOLO))
    assert bench.receipt(SOLO).ending is Ending.COMPLETED


def test_an_interpreter_that_is_not_there_is_a_crash_that_says_so(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, python="/nowhere/python")
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending is Ending.CRASH
    assert "could not be started" in receipt.reason
    assert "/nowhere/python" in receipt.reason


def test_a_window_under_its_minimum_ends_the_pair_at_once(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    planned = SOLO.replace(updates=1)
    bench.run(bench.plan(planned))
    receipt = bench.receipt(planned)
    assert receipt.ending is Ending.WINDOW_SHORT
    assert receipt.reason.startswith("window 1 lasted 0.00")
    (side,) = receipt.sides
    assert [(one.updates, one.tokens) for one in side.windows] == [(1, 5)]
    assert 0 < side.windows[0].seconds < float(bench.protocol.throughput.window_s)


def test_what_had_been_measured_when_a_pair_was_cut_off_stands_in_its_receipt(tmp_path: Path) -> None:
    dies = "def updates(self, n):\n    assert self.count < 13\n    return super().updates(n)"
    bench = make_bench(tmp_path, candidate=misbehaving(dies))
    bench.run(bench.plan(PAIR, SOLO))
    cut, whole = bench.receipt(PAIR), bench.receipt(SOLO)
    assert cut.ending is Ending.CRASH
    first, second = cut.sides
    assert [one.updates for one in first.windows] == [10] * bench.protocol.throughput.windows
    assert [one.updates for one in second.windows] == [10]
    assert all(one.tokens == 50 and one.seconds > 0 for one in (*first.windows, *second.windows))
    # Of what completed windows.csv tells, and nothing else does.
    assert whole.ending is Ending.COMPLETED
    assert [side.windows for side in whole.sides] == [()]


def test_what_the_harness_decides_cannot_be_set_by_one_side(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, environment={"OMP_NUM_THREADS": "8"})
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending is Ending.HARNESS_ERROR
    assert "OMP_NUM_THREADS" in receipt.reason
