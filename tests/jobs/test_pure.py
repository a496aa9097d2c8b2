"""The harness's pure parts: tables, blocks, plans, signals, devices, environment."""

from __future__ import annotations

import csv
import errno
import io
import math
import os
import re
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from acceptance.formats import TABLES, Table, parse_table
from acceptance.formats import Ending as Everything
from jobs import attempt, gpus, machine, signals
from jobs.endings import EndedError, Ending
from jobs.environment import SideFolders, build_environment
from jobs.layout import AttemptFolder
from jobs.measure import Block, calibrate, check_block, check_loss, check_processor_time, check_window
from jobs.plan import Rules, Runnable, parse_allocation
from jobs.strict import Fields, parse_json
from jobs.tables import plain_text, table_bytes
from jobs.workspace import is_full

RULES = Rules(
    warmup_updates=3, windows=2, window_s=1.0, pilot_s=1.0, seed=1, clock_relative=0.02, clock_absolute_s=0.05
)


def answer(**changes: Any) -> Fields:
    value = {"updates": 4, "microbatches": 8, "skipped": 0, "tokens": 64, "seconds": 10.0}
    return Fields({**value, **changes}, "answer")


def block(seconds: float, updates: int = 4) -> Block:
    return Block(updates=updates, microbatches=8, skipped=0, tokens=64, seconds=seconds)


def test_every_ending_of_the_harness_is_one_that_acceptance_knows() -> None:
    assert {ending.value for ending in Ending} <= {ending.value for ending in Everything}


# --- blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("claimed_s", "agrees"), [(9.801, True), (10.199, True), (9.799, False), (10.201, False)])
def test_long_blocks_may_differ_by_the_relative_tolerance(claimed_s: float, agrees: bool) -> None:
    if agrees:
        assert check_block(answer(seconds=claimed_s), 4, 10.0, RULES, "window").seconds == 10.0
        return
    with pytest.raises(EndedError) as caught:
        check_block(answer(seconds=claimed_s), 4, 10.0, RULES, "window")
    assert caught.value.ending is Ending.CLOCK_DISAGREEMENT


def test_short_blocks_may_differ_by_the_absolute_tolerance() -> None:
    check_block(answer(seconds=0.1), 4, 0.1499, RULES, "window")
    with pytest.raises(EndedError):
        check_block(answer(seconds=0.1), 4, 0.1501, RULES, "window")


def test_a_block_that_is_not_scored_by_time_is_held_to_its_counts_alone() -> None:
    check_block(answer(seconds=0.1), 4, 10.0, RULES, "warm-up", is_timed=False)
    with pytest.raises(EndedError) as caught:
        check_block(answer(updates=3), 4, 10.0, RULES, "warm-up", is_timed=False)
    assert caught.value.ending is Ending.COUNT_DISAGREEMENT


@pytest.mark.parametrize("changes", [{"tokens": True}, {"tokens": 64.0}, {"updates": -1}, {"seconds": 10}, {"x": 1}])
def test_an_answer_of_other_types_is_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="answer"):
        check_block(answer(**changes), 4, 10.0, RULES, "window")


def test_a_window_of_exactly_the_minimum_is_long_enough() -> None:
    check_window(block(1.0), 1, RULES)
    for seconds in (math.nextafter(1.0, 0.0), math.nan):
        with pytest.raises(EndedError) as caught:
            check_window(block(seconds), 1, RULES)
        assert caught.value.ending is Ending.WINDOW_SHORT


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_a_loss_that_is_not_finite_ends_the_attempt(text: str) -> None:
    check_loss("2.5")
    with pytest.raises(EndedError) as caught:
        check_loss(text)
    assert caught.value.ending is Ending.NON_FINITE


def test_a_pilot_doubles_its_updates_until_a_block_is_long_enough() -> None:
    asked: list[int] = []

    def run(updates: int) -> Block:
        asked.append(updates)
        return block(0.3 * updates, updates)

    found = calibrate(run, RULES, startup_s=2.0)
    assert asked == [1, 2, 4]
    assert (found.updates, found.updates_per_s, found.tokens_per_update) == (4, 4 / (0.3 * 4), 16.0)


# --- tables and documents ---------------------------------------------------------------------------------------------


def test_a_table_follows_its_header_and_floats_read_back_exactly() -> None:
    third = 1 / 3
    data = table_bytes(("b", "a", "flag"), [{"a": third, "b": "x", "flag": True}, {"flag": False, "b": "", "a": 7}])
    assert data == b"b,a,flag\nx,0.3333333333333333,true\n,7,false\n"
    assert float(next(csv.DictReader(io.StringIO(data.decode())))["a"]) == third


@pytest.mark.parametrize(
    "row", [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": math.nan, "b": 1}, {"a": "x,y", "b": 1}, {"a": "x\n", "b": 1}]
)
def test_a_row_that_does_not_fit_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        table_bytes(("a", "b"), [row])


@pytest.mark.parametrize("value", [10**18, -1, 1e-320, 10**18 - 1, 0, 1.7976931348623157e308])
def test_numbers_are_written_as_the_one_definition_of_the_tables_reads_them(value: float) -> None:
    name = "seconds" if isinstance(value, float) else "tokens"
    columns = tuple(column for column in TABLES["windows.csv"].columns if column.name == name)
    table = Table(file="t.csv", meaning="", columns=columns, key=())
    if value in (10**18, -1):
        with pytest.raises(ValueError, match="cannot stand in a table"):
            table_bytes((name,), [{name: value}])
        return
    rows, faults = parse_table(table, table_bytes((name,), [{name: value}]), "t.csv")
    assert (rows[0].values[name], faults) == (value, ())


@pytest.mark.parametrize(
    "text", [b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":Infinity}', b"\xff", b'"\\udce9"', b"{", b"[" * 100_000]
)
def test_json_that_is_not_strict_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_a_whole_pair_of_surrogates_is_a_character() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def plan_text(**changes: Any) -> bytes:
    values: dict[str, Any] = {
        "slot": "baseline/solo/w/r1",
        "attempt": 1,
        "kind": "solo",
        "workload": "w",
        "repeat": 1,
        "pair": 0,
    }
    values |= {"order": ["baseline"], "updates": 7, "inputs_sha256": "", **changes}
    side: dict[str, Any] = {
        "id": "baseline",
        "tree": "/t",
        "files": "/f",
        "snapshot_sha256": "0",
        "python": "/p",
        "adapter": "a:b",
    }
    side |= {"python_path": [], "environment": {}, "pass_environment": [], "launch": []}
    plan: dict[str, Any] = {
        "format": "allocation/1",
        "allocation": "a1",
        "key": "k",
        "home": "/h",
        "manifest_sha256": "0",
    }
    plan |= {"protocol_sha256": "0", "harness_sha256": "0", "data": {}}
    text = repr({**plan, "sides": {"baseline": side}, "attempts": [values]})
    return text.replace("'", '"').encode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "run"}, "no attempt of kind 'run'"),
        ({"kind": "case"}, "a case does not run"),
        ({"inputs_sha256": "0" * 64}, "for a solo"),
        ({"kind": "control_case", "order": ["baseline", "baseline_again"]}, "7 updates per window for a control_case"),
        (
            {"kind": "control_case", "order": ["baseline", "baseline_again"], "updates": 0},
            "canonical inputs '' for a control_case",
        ),
        (
            {"kind": "control_case", "order": ["baseline", "baseline_again"], "updates": 0, "inputs_sha256": "../x"},
            "canonical inputs '../x'",
        ),
        ({"order": ["candidate"]}, "a solo does not run"),
        ({"kind": "pair", "order": ["baseline", "candidate"]}, "does not say how to run candidate"),
        ({"updates": 0}, "0 updates per window for a solo"),
        ({"more": 1}, "unknown field 'more'"),
        ({"attempt": 0}, "attempt is 0, below 1"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(changes: dict[str, Any], message: str) -> None:
    assert parse_allocation(plan_text(), "a1").id == "a1"
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_allocation(plan_text(**changes), "a1")


def test_a_plan_in_the_wrong_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="in the folder of a2"):
        parse_allocation(plan_text(), "a2")


# --- signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "job", "left_s", "ending"),
    [
        (signal.SIGTERM, {"JobState": "TIMEOUT"}, None, Ending.TIME_LIMIT),
        (signal.SIGTERM, {"JobState": "PREEMPTED"}, 3600.0, Ending.PREEMPTED),
        (signal.SIGTERM, {"JobState": "RUNNING", "PreemptTime": "2026-01-01T00:00:00"}, 3600.0, Ending.PREEMPTED),
        (signal.SIGTERM, {"JobState": "RUNNING", "PreemptTime": "None"}, 3600.0, Ending.CANCELLED),
        (signal.SIGTERM, {"JobState": "CANCELLED"}, 5.0, Ending.CANCELLED),
        (signal.SIGUSR2, {"JobState": "RUNNING"}, 90.0, Ending.TIME_LIMIT),
        (signal.SIGUSR2, {}, 3600.0, Ending.PREEMPTED),
        (signal.SIGTERM, {}, -20.0, Ending.TIME_LIMIT),
        (signal.SIGTERM, {}, None, Ending.CANCELLED),
    ],
)
def test_slurm_says_what_a_signal_means(
    number: signal.Signals, job: dict[str, str], left_s: float | None, ending: Ending
) -> None:
    assert signals.explain_slurm(number, job, left_s=left_s)[0] is ending


def test_the_fields_of_a_job_are_found_in_one_line() -> None:
    line = "JobId=7 JobName=a b c Priority=1 JobState=CANCELLED Reason=None Command=(null)\n"
    assert signals.parse_scontrol(line)["JobState"] == "CANCELLED"


def test_a_scheduler_that_does_not_answer_leaves_the_clock() -> None:
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1000"}
    explain = signals.slurm_explainer(environment, lambda: 950.0, lambda _job: {})
    assert explain(signal.SIGTERM)[0] is Ending.TIME_LIMIT


# --- machine ----------------------------------------------------------------------------------------------------------

SMI = "0, GPU-aaaa, NVIDIA H200, 143771, 580.1\n1, GPU-bbbb, NVIDIA H200, 143771, 580.1\n"


def read_smi() -> list[gpus.Gpu]:
    return gpus.parse_smi(SMI)


def no_library() -> list[gpus.Gpu]:
    raise ImportError("No module named 'pynvml'")


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [(None, ["GPU-aaaa", "GPU-bbbb"]), ("1", ["GPU-bbbb"]), ("1,0", ["GPU-bbbb", "GPU-aaaa"]), ("GPU-a", ["GPU-aaaa"])],
)
def test_the_devices_are_those_that_the_scheduler_shows(visible: str | None, uuids: list[str]) -> None:
    found, reason = gpus.read_gpus(visible, (no_library, read_smi))
    assert ([gpu["uuid"] for gpu in found], reason) == (uuids, "")
    assert {gpu["memory_bytes"] for gpu in found} == {143771 << 20}


def test_devices_that_nobody_can_name_are_unknown_with_the_reasons() -> None:
    found, reason = gpus.read_gpus("7", (no_library, read_smi))
    assert found == []
    assert "No module named 'pynvml'" in reason
    assert "names 7, which is none of the 2 devices" in reason


def test_a_part_of_a_device_is_known_by_its_own_identity() -> None:
    assert gpus.read_gpus("MIG-1234", (no_library,))[0][0]["uuid"] == "MIG-1234"


def test_the_processor_is_named_as_it_can_stand_in_a_table() -> None:
    model = machine.find_cpu_model('processor : 0\nmodel name\t: Odd, "Quoted"  CPU @ 2.00GHz\n')
    assert plain_text(f"cpu:{model}") == "cpu:Odd_Quoted_CPU_@_2.00GHz"


def test_a_task_of_an_array_is_named_by_slurm() -> None:
    environment = {"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "2"}
    assert machine.read_job(environment)["array_job_id"] == "10"
    assert machine.read_job({**environment, "SUBMITIT_EXECUTOR": "local"})["scheduler"] == "local"
    assert machine.read_job({"SUBMITIT_LOCAL_JOB_ID": "77"})["job_id"] == "77"


# --- environment ------------------------------------------------------------------------------------------------------


def environment_of(tmp_path: Path, device: str, inherited: dict[str, str], **changes: Any) -> dict[str, str]:
    values: dict[str, Any] = {"environment": {}, "pass_environment": (), **changes}
    runnable = Runnable(
        id="baseline",
        tree=tmp_path,
        files=tmp_path,
        snapshot_sha256="",
        python="",
        adapter="a:b",
        python_path=(),
        launch=(),
        **values,
    )
    folders = SideFolders(root=tmp_path)
    return build_environment(inherited, runnable, folders, device=device, threads=4)


def test_the_allocations_devices_reach_a_side_and_no_others(tmp_path: Path) -> None:
    assert environment_of(tmp_path, "cuda", {"CUDA_VISIBLE_DEVICES": "2"})["CUDA_VISIBLE_DEVICES"] == "2"
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(tmp_path, "cuda", {})
    assert environment_of(tmp_path, "cpu", {"CUDA_VISIBLE_DEVICES": "2"})["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TRITON_CACHE_DIR", "HOME"])
@pytest.mark.parametrize("how", ["environment", "pass_environment"])
def test_what_is_alike_for_both_sides_cannot_be_set_by_one(tmp_path: Path, name: str, how: str) -> None:
    given: Any = {name: "8"} if how == "environment" else (name,)
    with pytest.raises(ValueError, match=name):
        environment_of(tmp_path, "cuda", {}, **{how: given})


# --- what a side may spend, and where it may not be disturbed ---


@pytest.mark.parametrize(("cpu_s", "threads", "fits"), [(12.0, 1, True), (12.1, 1, False), (22.9, 2, True)])
def test_processor_time_is_bounded_by_threads_and_time(cpu_s: float, threads: int, fits: bool) -> None:
    if fits:
        check_processor_time(cpu_s, 10.0, threads)
        return
    with pytest.raises(EndedError, match=r"12\.100 s of processor time within 10\.000 s") as caught:
        check_processor_time(cpu_s, 10.0, threads)
    assert caught.value.ending is Ending.INTERFERENCE


def test_no_processor_time_that_cannot_be_compared_fits() -> None:
    with pytest.raises(EndedError):
        check_processor_time(math.nan, 10.0, 1)


@pytest.mark.parametrize(
    ("free_blocks", "files", "free_files", "full"),
    [(256, 100, 1, False), (255, 100, 1, True), (256, 100, 0, True), (256, 0, 0, False)],
)
def test_a_disk_is_full_without_a_mebibyte_or_a_file(free_blocks: int, files: int, free_files: int, full: bool) -> None:
    found = os.statvfs_result((4096, 4096, 1000, 999, free_blocks, files, 50, free_files, 0, 255))
    assert is_full(found) is full


# --- a full disk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_for_the_harness_ends_the_attempt_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(attempt, "_run_sides", lambda *_arguments: None)
    monkeypatch.setattr(attempt, "_write_tables", refuse)
    planned = parse_allocation(plan_text(), "a1").attempts[0]
    ending, reason = attempt._conduct(cast("attempt.Context", None), planned, AttemptFolder(tmp_path), attempt.Made())
    assert ending is Ending.NO_SPACE
    assert os.strerror(number) in reason
