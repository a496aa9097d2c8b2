"""Detached allocations: made where the bundle lies, by several commands on one machine, none of them twice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.snapshot.digest import digest_folder
from jobs.allocation import detached
from jobs.allocation.deadline import Deadline
from jobs.allocation.machine import read_boot_id, read_host_name
from jobs.common.endings import Ending as OwnEnding
from tests.support.detached import BUNDLE, detach
from tests.support.harness import ADAPTER, SOLO, Bench, make_attempt, make_bench, misbehaving

PILOT = make_attempt("pilot", ("baseline",))
OTHER = make_attempt("pilot", ("baseline",), number=2)
NAMES = {planned: f"{planned.slot}/{planned.attempt}" for planned in (PILOT, SOLO, OTHER)}
STUCK = misbehaving(
    """
def updates(self, n):
    if n == 10:
        print("in a window", flush=True)
        with open(self.config["fifo"], "w") as fifo:
            fifo.write("!")
        time.sleep(300)
    return super().updates(n)
"""
)


def test_allocations_are_made_where_the_bundle_lies(tmp_path: Path) -> None:
    machine = detach(make_bench(tmp_path), (PILOT, OTHER), (SOLO,))
    done = machine.call("a00001", "a00002")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(" (")[0] for line in done.stdout.splitlines()] == [
        f"{NAMES[planned]}: completed" for planned in (PILOT, OTHER, SOLO)
    ]
    assert [machine.bench.receipt(one).ending for one in (PILOT, OTHER, SOLO)] == [Ending.COMPLETED] * 3
    started = documents.Started.read(machine.allocation().started)
    assert (started.job.scheduler, started.job.job_id) == ("detached", BUNDLE)
    (call,) = machine.calls()
    assert (call.bundle, call.number, call.home, call.python) == (BUNDLE, 1, str(machine.home.root), machine.python)
    same = ("host", "boot_id", "pid", "process_start")
    assert [getattr(call, name) for name in same] == [getattr(started, name) for name in same]
    (left,) = machine.left()
    ended = machine.bench.ended()
    assert left is not None
    assert (left.reason, left.receipts, ended.reason) == ("done", ended.receipts, "done")
    assert sorted(ended.receipts) == sorted([NAMES[PILOT], NAMES[OTHER]])


def test_a_command_stops_before_what_does_not_fit_and_the_next_one_goes_on(tmp_path: Path) -> None:
    machine = detach(make_bench(tmp_path), (PILOT, OTHER), (SOLO,))
    first = machine.call("a00001", "a00002", expected_s={NAMES[OTHER]: 1e6})
    assert first.returncode != 0
    assert (machine.bench.attempt(PILOT).receipt.exists(), machine.bench.attempt(OTHER).root.exists()) == (True, False)
    (left,) = machine.left()
    assert left is not None
    assert (left.reason, list(left.receipts)) == ("deadline", [NAMES[PILOT]])
    assert f"{NAMES[OTHER]} needs about 1250000 s" in left.detail
    assert not machine.allocation().ended.exists()
    assert not machine.allocation("a00002").calls.exists()  # what comes after it is not begun, either

    sealed = machine.bench.attempt(PILOT).receipt.read_bytes()
    assert machine.call("a00001", "a00002").returncode == 0
    assert machine.bench.attempt(PILOT).receipt.read_bytes() == sealed
    both = machine.left()
    ended = machine.bench.ended()
    assert ended.receipts == {name: digest for one in both if one is not None for name, digest in one.receipts.items()}
    assert sorted(ended.receipts) == sorted([NAMES[PILOT], NAMES[OTHER]])
    assert ended.wall_s == pytest.approx(sum(one.wall_s for one in both if one is not None), abs=0.5)
    assert documents.Started.read(machine.allocation().started).pid == machine.calls()[0].pid


def test_what_was_begun_and_left_no_receipt_is_not_made_again(tmp_path: Path) -> None:
    machine = detach(make_bench(tmp_path), (PILOT, SOLO))
    begun = machine.bench.attempt(PILOT)
    begun.root.mkdir(parents=True)
    begun.start.write_text("{}")
    assert machine.call().returncode == 0
    assert [path.name for path in begun.root.iterdir()] == ["start.json"]
    assert machine.bench.receipt(SOLO).ending is Ending.COMPLETED
    ended = machine.bench.ended()
    assert (ended.reason, list(ended.receipts)) == ("lost", [NAMES[SOLO]])
    assert NAMES[PILOT] in ended.detail


def test_a_receipt_of_a_command_that_was_killed_counts(tmp_path: Path) -> None:
    machine = detach(make_bench(tmp_path), (PILOT, SOLO))
    machine.call(expected_s={NAMES[SOLO]: 1e6})
    machine.allocation().call_ended(1).unlink()
    assert machine.call().returncode == 0
    ended = machine.bench.ended()
    sealed = {NAMES[one]: files.sha256_file(machine.bench.attempt(one).receipt) for one in (PILOT, SOLO)}
    assert (ended.reason, ended.receipts) == ("done", sealed)


def test_an_allocation_that_has_ended_takes_no_command(tmp_path: Path) -> None:
    machine = detach(make_bench(tmp_path), (PILOT,))
    machine.allocation().ended.write_text("{}")
    before = digest_folder(machine.home.root)
    again = machine.call()
    assert again.returncode != 0
    assert "the allocation has ended" in again.stderr
    assert digest_folder(machine.home.root) == before


@pytest.mark.parametrize("written", ["call", "started"])
@pytest.mark.parametrize("name", ["host", "boot_id"])
def test_another_machine_or_boot_does_not_go_on_with_an_allocation(tmp_path: Path, name: str, written: str) -> None:
    machine = detach(make_bench(tmp_path), (PILOT,))
    machine.allocation().calls.mkdir()
    here = {"host": read_host_name(), "boot_id": read_boot_id()}
    path = machine.allocation().call(1) if written == "call" else machine.allocation().started
    path.write_bytes(files.dump_json({**here, name: "elsewhere"}))
    refused = machine.call()
    assert refused.returncode != 0
    assert "an allocation is one machine" in refused.stderr
    assert list(machine.allocation().calls.iterdir()) == ([path] if written == "call" else [])
    assert not machine.bench.attempt(PILOT).root.exists()


def _bench_with_data(tmp_path: Path, content: str) -> tuple[Bench, Path]:
    bench = make_bench(
        tmp_path,
        misbehaving(
            """
def engaged(self):
    import os
    return {"data": open(os.environ["PLAYS"] + "/hamlet").read()}
"""
        ),
        environment={"PLAYS": "/frozen/plays"},
    )
    here = tmp_path / "here"
    here.mkdir()
    (here / "hamlet").write_text("to be")
    identity = documents.DataIdentity(path="/frozen/plays", sha256=digest_folder(here), bytes=len("to be"), files=1)
    (here / "hamlet").write_text(content)
    bench.data = {"plays": identity}
    return bench, here


@pytest.mark.slow
def test_data_sets_and_interpreters_may_lie_elsewhere(tmp_path: Path) -> None:
    bench, here = _bench_with_data(tmp_path, "to be")
    machine = detach(bench, (SOLO,), environment={"PLAYS": "${data.plays}"})
    elsewhere = tmp_path / "python"
    elsewhere.symlink_to(Path(machine.python["baseline"]))
    (tmp_path / "pyvenv.cfg").write_text((Path(machine.python["baseline"]).parent.parent / "pyvenv.cfg").read_text())
    machine.data, machine.python["baseline"] = {"plays": str(here)}, str(elsewhere)
    done = machine.call()
    assert (done.returncode, done.stderr) == (0, "")
    assert machine.bench.receipt(SOLO).sides[0].engaged == {"data": "to be"}
    (call,) = machine.calls()
    assert (call.data, call.python["baseline"]) == ({"plays": str(here)}, str(elsewhere))


def test_other_data_use_no_attempt_up(tmp_path: Path) -> None:
    bench, here = _bench_with_data(tmp_path, "or not")
    machine = detach(bench, (SOLO,), environment={"PLAYS": "${data.plays}"})
    machine.data = {"plays": str(here)}
    refused = machine.call()
    assert refused.returncode != 0
    assert "say where the data set is with --data" in refused.stderr
    assert not machine.bench.attempt(SOLO).root.exists()
    (left,) = machine.left()
    assert left is not None
    assert (left.reason, left.receipts) == ("harness_error", {})
    assert not machine.allocation().ended.exists()


def test_a_machine_without_a_gpu_uses_no_attempt_up() -> None:
    allocation = SimpleNamespace(sides={})
    place = SimpleNamespace(device=SimpleNamespace(devices=(), identity="cuda:nobody says which"))
    data, protocol = SimpleNamespace(describe_changes=str), SimpleNamespace(device="cuda")
    context = SimpleNamespace(allocation=allocation, data=data, place=place, protocol=protocol)
    with pytest.raises(ValueError, match=r"no GPU is seen here \(nobody says which\); nothing was begun"):
        detached._refuse_unfit(cast("Any", context))
    place.device.devices = ({},)
    detached._refuse_unfit(cast("Any", context))


def test_a_tree_that_was_changed_uses_no_attempt_up(tmp_path: Path) -> None:
    machine = detach(make_bench(tmp_path), (SOLO,))
    (machine.home.baseline.tree / "adapter.py").write_text(f"{ADAPTER}\n# changed\n")
    refused = machine.call()
    assert refused.returncode != 0
    assert "snapshot_changed" in refused.stderr
    assert not machine.bench.attempt(SOLO).root.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "ending"),
    [(signal.SIGUSR2, Ending.TIME_LIMIT), (signal.SIGTERM, Ending.CANCELLED)],
)
def test_what_is_told_to_stop_ends_in_order_and_the_next_command_makes_the_rest(
    tmp_path: Path, number: signal.Signals, ending: Ending
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    machine = detach(make_bench(tmp_path, STUCK, config={"tokens": 5, "fifo": str(fifo)}), (SOLO, PILOT))
    job = machine.start(machine.request())
    assert fifo.read_text() == "!"
    job.send_signal(number)
    output, _ = job.communicate(timeout=60)
    assert f"{NAMES[SOLO]}: {ending}" in output
    assert machine.bench.receipt(SOLO).ending is ending
    (left,) = machine.left()
    assert left is not None
    assert (left.reason, list(left.receipts)) == (ending, [NAMES[SOLO]])
    assert not machine.allocation().ended.exists()
    assert machine.call().returncode == 0
    assert machine.bench.receipt(PILOT).ending is Ending.COMPLETED
    assert sorted(machine.bench.ended().receipts) == sorted([NAMES[SOLO], NAMES[PILOT]])


@pytest.mark.parametrize(
    ("left_s", "number", "expected"),
    [
        (0.0, signal.SIGUSR2, (OwnEnding.TIME_LIMIT, "the time that the command was given is over")),
        (60.0, signal.SIGUSR2, (OwnEnding.TIME_LIMIT, "SIGUSR2: the job's time limit is near")),
        (0.0, signal.SIGTERM, (OwnEnding.CANCELLED, "SIGTERM: somebody stopped the job")),
    ],
)
def test_a_warning_at_the_end_of_the_commands_time_is_its_own(
    left_s: float, number: signal.Signals, expected: tuple[OwnEnding, str]
) -> None:
    deadline = Deadline(stop_at=left_s, clock=lambda: 0.0)
    assert detached.explainer({}, deadline)(number) == expected


@pytest.mark.parametrize(
    "name",
    [
        *("bundle.json", "run.py", "home/allocations/a1/started.json", "home/allocations/a1/calls/1.json"),
        *("home/allocations/a2/allocation.json", "home/allocations/a2/ended.json", "home/allocations/a1/calls/2.json"),
        *("home/frozen/baseline/tree/adapter.py", "home/frozen/candidates/c1/manifest.json"),
    ],
)
def test_what_nobody_may_touch_in_a_bundle_is_watched(tmp_path: Path, name: str) -> None:
    there = ("bundle.json", "run.py", "home/frozen/baseline/tree/adapter.py", "home/frozen/candidates/c1/manifest.json")
    of_one = ("allocation.json", "started.json", "calls/1.json")
    for path in (*there, *(f"home/allocations/{one}/{file}" for one in ("a1", "a2") for file in of_one)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("{}")
    watched = detached.watch(tmp_path / "home")
    (tmp_path / "home/allocations/a1/harness.log").write_text("its own")
    assert watched.find_changes() == []
    (tmp_path / name).write_text("[]")
    assert watched.find_changes() == [os.path.relpath(tmp_path / name, tmp_path / "home")]


def test_a_side_that_spoils_what_a_bundle_is_held_to_is_blamed(tmp_path: Path) -> None:
    spoiling = misbehaving(
        """
def updates(self, n):
    from pathlib import Path
    Path(self.config["victim"]).write_text("{}")
    return super().updates(n)
"""
    )
    victim = tmp_path / "bundle" / "bundle.json"
    bench = make_bench(tmp_path, config={"tokens": 5, "victim": str(victim)}, baseline=spoiling)
    machine = detach(bench, (PILOT,))
    victim.write_text("[]")
    machine.call()
    receipt = bench.receipt(PILOT)
    assert (receipt.ending, "bundle.json" in receipt.reason) == (Ending.INTERFERENCE, True)


def test_nobody_needs_to_read_what_a_command_says(tmp_path: Path) -> None:
    machine = detach(make_bench(tmp_path), (PILOT,))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            machine.argv(machine.request()), env=machine.bench.job_environment(), stdout=full, check=False, timeout=120
        )
    assert done.returncode == 0
    assert documents.Ended.read(machine.allocation().ended).reason == "done"


def test_within_slurm_nobody_is_asked_what_it_means() -> None:
    explain = detached.explainer({"SLURM_JOB_ID": "7"}, Deadline(stop_at=0.0))
    assert explain(signal.SIGUSR2)[0] is OwnEnding.TIME_LIMIT


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "request/2"}, "not of format request/1"),
        ({"more": 1}, "unknown field 'more'"),
        ({"stop_at": "soon"}, "stop_at is not"),
        ({"allocations": [{"id": "a00001", "expected_s": {"x/1": "1"}}]}, "not a table of seconds"),
        ({"python": {"harness": 1}}, "not a table of texts"),
    ],
)
def test_a_request_is_read_strictly(change: dict[str, Any], said: str) -> None:
    good = {
        "format": "request/1",
        "bundle": BUNDLE,
        "home": "/bundle/home",
        "allocations": [{"id": "a00001", "expected_s": {"x/1": 1.0, "y/1": None}}],
        "python": {},
        "data": {},
        "stop_at": 1.0,
        "argv": [],
    }
    assert detached.parse_request(files.dump_json(good)).allocations == {"a00001": {"x/1": 1.0, "y/1": None}}
    with pytest.raises(ValueError, match=re.escape(said)):
        detached.parse_request(files.dump_json({**good, **change}))
