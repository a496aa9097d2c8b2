"""The monitor of a training, on a fake device that works by itself."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from jobs import monitor
from tests.support.fake_device import ENVIRONMENT, RECIPE, FakeDevice, changed, closing, train

ROOT = Path(__file__).resolve().parents[2]
ONES = dict.fromkeys(monitor.COUNTERS, 1)


@pytest.fixture(autouse=True)
def _disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about a machine that loses power, and a busy disk takes long."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.json"


def _record(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    return found


def _checked(path: Path, record: dict[str, Any]) -> list[str]:
    path.write_text(json.dumps(record), encoding="ascii")
    return monitor.check_run(monitor.read_run(path))


def _whole_session(device: FakeDevice, path: Path) -> monitor.Session:
    """One update of compile, two windows, and every other phase."""
    with closing(device.start(path)) as mon:
        train(device, mon, 1, device_s=5.0)
        train(device, mon, 10)
        with mon.phase("evaluation"):
            device.launch(3.0)
        train(device, mon, 20)
        with mon.phase("checkpoint"):
            device.host(2.0)
            mon.state_dict()
        with mon.phase("profile"):
            train(device, mon, 3, device_s=0.5)
        with mon.phase("idle"):
            device.host(7.0)
    return monitor.read_run(path).sessions[0]


# --- the clocks -------------------------------------------------------------------------------------------------------


def test_each_phase_gets_its_own_time_and_all_of_them_are_the_session(device: FakeDevice, path: Path) -> None:
    began_s = device.now_s
    session = _whole_session(device, path)
    seconds = {name: value for name, (value, _) in session.phases.items()}
    assert seconds == {
        "compile": pytest.approx(5.01),
        "train": pytest.approx(1.01 + 2.01),
        "evaluation": pytest.approx(3.0),
        "checkpoint": pytest.approx(2.0),
        "report": 0.0,
        "profile": pytest.approx(1.51),
        "idle": pytest.approx(7.0),
    }
    assert session.session_s == pytest.approx(device.now_s - began_s)
    assert math.fsum(seconds.values()) + session.unattributed_s == pytest.approx(session.session_s)
    assert session.first_update_s == pytest.approx(5.01)
    assert monitor.check_run(monitor.read_run(path)) == []


def test_the_two_rates_have_the_same_targets_and_other_clocks(device: FakeDevice, path: Path) -> None:
    session = _whole_session(device, path)
    assert session.rates["train_tokens_per_second"] == pytest.approx(30 * 900 / 3.02)
    assert session.rates["train_padded_per_second"] == pytest.approx(30 * 1000 / 3.02)
    assert session.rates["tokens_per_second"] == pytest.approx(34 * 900 / session.session_s)
    assert session.rates["padded_per_second"] == pytest.approx(34 * 1000 / session.session_s)


def test_a_log_can_tell_the_rate_of_the_window_that_has_just_ended(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon:
        train(device, mon, 1)
        assert mon.window_tokens_per_second is None
        for device_s in (1.0, 0.5):
            train(device, mon, 10, host_s=0.0, device_s=device_s)
            with mon.phase("report"):
                assert mon.window_tokens_per_second == pytest.approx(900 / device_s)


def test_work_that_was_handed_over_before_an_evaluation_is_training(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path, compile_updates=0)) as mon:
        train(device, mon, 10, host_s=0.0, device_s=1.0)
        with mon.phase("evaluation"):
            device.launch(4.0)
    session = monitor.read_run(path).sessions[0]
    assert session.phases["train"][0] == pytest.approx(10.0)
    assert session.phases["evaluation"][0] == pytest.approx(4.0)


def test_the_device_is_waited_for_at_the_edges_of_phases_alone(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon:
        train(device, mon, 1)
        waits = device.num_waits
        train(device, mon, 1000)
        assert device.num_waits == waits
        with mon.phase("evaluation"):
            assert device.num_waits == waits + 1


def test_a_phase_within_another_takes_its_time_away_from_it(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon, mon.phase("evaluation"):
        device.host(1.0)
        with mon.phase("checkpoint"):
            device.host(10.0)
        device.host(1.0)
    phases = monitor.read_run(path).sessions[0].phases
    assert phases["evaluation"][0] == pytest.approx(2.0)
    assert phases["checkpoint"][0] == pytest.approx(10.0)


def test_what_comes_before_the_session_stands_apart(device: FakeDevice, path: Path) -> None:
    before = monitor.Preparation(clock=device.clock, synchronize=device.synchronize)
    with before.phase("data_preparation"):
        device.host(11.0)
    with before.phase("model_setup"):
        device.launch(3.0)
    with closing(device.start(path, preparation=before)) as mon:
        train(device, mon, 2)
    session = monitor.read_run(path).sessions[0]
    assert session.before["data_preparation_s"] == pytest.approx(11.0)
    assert session.before["model_setup_s"] == pytest.approx(3.0)
    assert session.session_s == pytest.approx(0.22)


def test_writing_the_file_is_charged_to_report(device: FakeDevice, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = monitor.write_record

    def slowly(path: Path, record: dict[str, Any]) -> None:
        device.host(0.5)
        write(path, record)

    with closing(device.start(path)) as mon:
        monkeypatch.setattr(monitor, "write_record", slowly)
        for _ in range(100):
            with mon.phase("evaluation"):
                device.host(1.0)
    session = monitor.read_run(path).sessions[0]
    assert session.phases["evaluation"][0] == pytest.approx(100.0)
    # The first write teaches that one takes half a second, so that there is none in the next hundred seconds.
    assert session.phases["report"][0] == pytest.approx(0.5)


def test_time_that_belongs_to_no_phase_is_told_and_found(device: FakeDevice, path: Path) -> None:
    device.reading_takes_s = 0.2
    with closing(device.start(path)) as mon:
        train(device, mon, 5)
    session = monitor.read_run(path).sessions[0]
    assert session.unattributed_s == pytest.approx(0.2)
    assert "not under 1%" in " ".join(monitor.check_run(monitor.read_run(path)))


def test_a_clock_that_goes_back_is_refused(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon:
        device.host(-1.0)
        with pytest.raises(monitor.MonitorError, match="went back"):
            train(device, mon, 1, host_s=0.0)
        device.host(1.0)


STEPS = st.one_of(
    st.tuples(st.just("host"), st.floats(min_value=0, max_value=10)),
    st.tuples(st.just("launch"), st.floats(min_value=0, max_value=10)),
    st.tuples(st.just("update"), st.integers(min_value=0, max_value=10**6)),
)
PROGRAMS = st.lists(
    st.recursive(
        STEPS, lambda inner: st.tuples(st.sampled_from(monitor.PHASES), st.lists(inner, max_size=6)), max_leaves=30
    ),
    max_size=12,
)


class Loop:
    """A loop that does as it is told, and keeps an account of its own."""

    def __init__(self, device: FakeDevice, mon: monitor.TrainingMonitor, base: str) -> None:
        self.device, self.mon, self.base = device, mon, base
        self.spent = dict.fromkeys(monitor.PHASES, 0.0)
        self.targets = dict.fromkeys(monitor.PHASES, 0)

    def run(self, program: list[tuple[str, Any]], named: str | None = None) -> None:
        for name, value in program:
            phase = named or self.base
            began_s = self.device.now_s
            if name in monitor.PHASES:
                with self.mon.phase(name):
                    self.spent[phase] += self.device.now_s - began_s
                    self.run(value, name)
                    began_s, phase = self.device.now_s, name
            elif name != "update":
                getattr(self.device, name)(value)
            elif phase in monitor.UPDATING:
                self.targets[phase] += value
                self.mon.update(targets=value, microbatches=4)
                self.base = "train" if named is None else self.base
            self.spent[phase] += self.device.now_s - began_s


@hypothesis.given(program=PROGRAMS, compile_updates=st.sampled_from([0, 1]))
@hypothesis.settings(max_examples=60)
def test_whatever_a_loop_does_each_moment_and_each_target_counts_once(
    program: list[tuple[str, Any]], compile_updates: int
) -> None:
    device = FakeDevice()
    with closing(device.start(None, compile_updates=compile_updates)) as mon:
        loop = Loop(device, mon, "compile" if compile_updates else "train")
        loop.run(program)
        began_s = device.now_s
    loop.spent[loop.base] += device.now_s - began_s
    record = json.loads(json.dumps(mon.record()))
    run = monitor.parse_run(record)
    session = run.sessions[0]
    assert monitor.check_run(run) == []
    assert {name: seconds for name, (seconds, _) in session.phases.items()} == pytest.approx(loop.spent)
    found = dict.fromkeys(monitor.PHASES, 0)
    for stretch in session.stretches:
        found[stretch.phase] += stretch.counters.targets
    assert found == loop.targets


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_step_that_is_timed_without_waiting_for_the_device_is_refused(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path, compile_updates=0, synchronize=lambda: None)) as mon:
        train(device, mon, 10)
        with pytest.raises(monitor.MonitorError, match="does not wait for the device"), mon.phase("evaluation"):
            pass


def test_a_window_shorter_than_the_devices_own_time_is_found(device: FakeDevice, path: Path) -> None:
    # As if a clock had been read around the launches: the device needed ten times as long.
    _whole_session(device, path)
    record = _record(path)
    session = record["sessions"][0]
    window = next(stretch for stretch in session["stretches"] if stretch["phase"] == "train" and stretch["updates"])
    gone_s = window["seconds"] * 0.9
    window["seconds"] -= gone_s
    session["phases"]["train"]["seconds"] -= gone_s
    assert any("the clock did not wait for it" in text for text in _checked(path, record))


def test_a_clock_that_charges_evaluation_to_training_is_found(device: FakeDevice, path: Path) -> None:
    # The training clock runs on: the window before the evaluation has the evaluation's seconds as well.
    _whole_session(device, path)
    record = _record(path)
    session = record["sessions"][0]
    places = {stretch["phase"]: stretch for stretch in session["stretches"][:3]}
    assert list(places) == ["compile", "train", "evaluation"]
    places["train"]["seconds"] += places["evaluation"]["seconds"]
    session["phases"]["train"]["seconds"] += 3.0
    session["unattributed_s"] -= 3.0
    wrong = _checked(path, record)
    assert any("stretch 3 (evaluation) begins" in text and "counted twice" in text for text in wrong)
    assert any("unattributed time is -3.0" in text for text in wrong)
    assert any("train_tokens_per_second" in text for text in wrong)


def test_an_evaluation_outside_of_its_phase_is_remarked(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon:
        train(device, mon, 20)
        device.launch(30.0)
        train(device, mon, 20)
    run = monitor.read_run(path)
    assert monitor.check_run(run) == []
    assert any("over 10 times the median" in text for text in monitor.remarks(run))


def test_an_early_partial_accumulation_window_is_found_even_when_it_is_left_out(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path, compile_updates=0)) as mon:
        train(device, mon, 1, microbatches=1, targets=225, padded=250)
        with mon.phase("report"):
            pass
        train(device, mon, 10)
    summary = monitor.summarize(monitor.read_run(path), leave_out=1)
    text = (
        "1 of its 1 updates have another number of microbatches than accumulation_count, and are not said to be partial"
    )
    assert summary["findings"] == [f"session 1: stretch 1 (window 1): {text}"]


def test_the_last_update_of_an_epoch_may_be_partial_where_that_is_said(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon:
        train(device, mon, 3)
        train(device, mon, 1, microbatches=2, partial=True)
    run = monitor.read_run(path)
    assert monitor.check_run(run) == []
    assert sum(stretch.partial_updates for stretch in run.sessions[0].stretches) == 1


@pytest.mark.parametrize("microbatches", [4, 5])
def test_partial_is_no_word_for_whole_or_larger_updates(device: FakeDevice, path: Path, microbatches: int) -> None:
    with closing(device.start(path)) as mon:
        train(device, mon, 2)
        train(device, mon, 1, microbatches=microbatches, partial=True)
    assert bool(monitor.check_run(monitor.read_run(path))) == (microbatches == 5)


@pytest.mark.parametrize("phase", ["evaluation", "checkpoint", "report", "idle"])
def test_no_update_belongs_into_other_phases(device: FakeDevice, path: Path, phase: str) -> None:
    with (
        closing(device.start(path)) as mon,
        pytest.raises(monitor.MonitorError, match=f"an update in {phase}"),
        mon.phase(phase),
    ):
        train(device, mon, 1)


@pytest.mark.parametrize(
    "wrong", [{"targets": 1.0}, {"targets": True}, {"updates": 0}, {"padded": 899}, {"skipped": -1}]
)
def test_a_count_that_is_none_is_refused(device: FakeDevice, path: Path, wrong: dict[str, Any]) -> None:
    with closing(device.start(path)) as mon, pytest.raises(monitor.MonitorError, match="expected an int"):
        train(device, mon, 1, **wrong)


def test_a_phase_that_is_none_is_refused_with_the_nearest_one(device: FakeDevice, path: Path) -> None:
    with (
        closing(device.start(path)) as mon,
        pytest.raises(monitor.MonitorError, match="did you mean evaluation"),
        mon.phase("evaluate"),
    ):
        pass


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("session_s", 99.0, "and the session has 99"),
        ("unattributed_s", 1.0, "phases and unattributed time make"),
        ("tokens_per_second", 5.0, "tokens_per_second is 5.0"),
        ("train_tokens_per_second", 5.0, "train_tokens_per_second is 5.0"),
        (
            "counters",
            {"updates": 34, "skipped": 0, "microbatches": 136, "targets": 1, "padded": 34000},
            "targets is 1, and its beginning and stretches make 30600",
        ),
        (
            "from",
            {"session": 0, "save": 0, "counters": ONES},
            "begins with something done",
        ),
        (
            "from",
            {"session": 1, "save": 1, "counters": ONES},
            "goes on from session 1, which is not earlier",
        ),
        (
            "saves",
            [{"save": 1, "at_s": 0.0, "counters": ONES | {"updates": 35}}],
            "save 1 has 35 updates, after 0 and before 34",
        ),
        (
            "counters",
            {"updates": 34, "skipped": 35, "microbatches": 136, "targets": 30600, "padded": 34000},
            "more skipped updates than updates",
        ),
        (
            "counters",
            {"updates": 34, "skipped": 0, "microbatches": 33, "targets": 30600, "padded": 34000},
            "fewer microbatches than updates",
        ),
        ("session_s", 99.0, "the last stretch ends at"),
    ],
)
def test_sums_that_do_not_fit_are_found(device: FakeDevice, path: Path, field: str, value: Any, text: str) -> None:
    _whole_session(device, path)
    assert any(text in found for found in _checked(path, changed(_record(path), **{field: value})))


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("phase", "evaluation", "updates in evaluation"),
        ("padded", 899, "fewer positions than targets"),
    ],
)
def test_a_stretch_that_cannot_be_is_found(device: FakeDevice, path: Path, field: str, value: Any, text: str) -> None:
    _whole_session(device, path)
    record = _record(path)
    record["sessions"][0]["stretches"][0][field] = value
    assert any(text in found for found in _checked(path, record))


def test_a_rate_of_nothing_is_found(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon, mon.phase("idle"):
        device.host(1.0)
    record = _record(path)
    session = record["sessions"][0]
    session["train_tokens_per_second"] = 0.0
    del session["reasons"]["train_tokens_per_second"]
    assert _checked(path, record) == ["session 1: train_tokens_per_second is 0.0, and counters and seconds make None"]


# --- times of updates -------------------------------------------------------------------------------------------------


def test_times_of_updates_are_the_devices_own(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path, compile_updates=0)) as mon:
        train(device, mon, 95, host_s=0.001, device_s=0.1)
        train(device, mon, 5, host_s=0.001, device_s=0.7)
    session = monitor.read_run(path).sessions[0]
    step, host = session.stretches[0].step, session.stretches[0].host
    assert (step.count, host.count) == (100, 100)
    assert step.quantile(0.5) == pytest.approx(0.1, rel=0.005)
    assert step.quantile(0.95) == pytest.approx(0.1, rel=0.02)
    assert step.quantile(0.96) == pytest.approx(0.7, rel=0.005)
    assert step.max_s == pytest.approx(0.7)
    assert host.quantile(0.5) == pytest.approx(0.001, rel=0.005)


def test_updates_that_cannot_be_told_apart_have_their_mean(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path, compile_updates=0)) as mon:
        train(device, mon, 3, host_s=0.0, device_s=1.0, updates=10, microbatches=40)
    step = monitor.read_run(path).sessions[0].stretches[0].step
    assert step.count == 30
    assert step.max_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("host_s", "device_s", "word"), [(0.01, 0.1, "device"), (0.1, 0.001, "host"), (0.1, 0.03, "unclear")]
)
def test_it_shows_who_waits_for_whom(device: FakeDevice, path: Path, host_s: float, device_s: float, word: str) -> None:
    with closing(device.start(path)) as mon:
        train(device, mon, 50, host_s=host_s, device_s=device_s)
    run = monitor.read_run(path)
    assert monitor.summarize(run)["sessions"][0]["bound_by"] == word
    assert (sum(stretch.num_behind for stretch in run.sessions[0].stretches) > 40) == (word == "device")


def test_a_full_queue_of_launches_does_not_look_like_a_slow_host(device: FakeDevice, path: Path) -> None:
    # The host is held up by the device's queue, so that it takes as long for an update as the device does.
    with closing(device.start(path)) as mon:
        for _ in range(50):
            device.host(0.01)
            device.now_s = max(device.now_s, device.free_s - 0.08)
            device.launch(0.1)
            mon.update(targets=900, padded=1000, microbatches=4)
    assert monitor.summarize(monitor.read_run(path))["sessions"][0]["bound_by"] == "device"


def test_on_the_cpu_the_host_is_the_device(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path, marks=monitor.HostMarks(device.clock))) as mon:
        train(device, mon, 5, host_s=0.25, device_s=0.0)
    summary = monitor.summarize(monitor.read_run(path))["sessions"][0]
    assert summary["step"]["p50_s"] == pytest.approx(0.25)
    assert (summary["host"], summary["bound_by"]) == (None, "unknown")


# --- resuming ---------------------------------------------------------------------------------------------------------


def _cut(device: FakeDevice, path: Path) -> dict[str, Any]:
    """A session that saved after 11 updates and made 4 more."""
    with closing(device.start(path)) as mon:
        train(device, mon, 11, skipped=0)
        with mon.phase("checkpoint"):
            state = mon.state_dict()
        train(device, mon, 4)
    return state


def test_counters_survive_a_resume(device: FakeDevice, path: Path) -> None:
    state = _cut(device, path)
    with closing(device.start(path, resume=json.loads(json.dumps(state)))) as mon:
        assert mon.counters["updates"] == 11
        train(device, mon, 5, skipped=1)
    run = monitor.read_run(path)
    assert monitor.check_run(run) == []
    assert run.sessions[1].counters.as_json() == {
        "updates": 16,
        "skipped": 5,
        "microbatches": 64,
        "targets": 16 * 900,
        "padded": 16000,
    }
    assert "session 2: 4 updates were made again, after the save that it goes on from" in monitor.remarks(run)
    summary = monitor.summarize(run)
    assert summary["tokens_per_second"] == pytest.approx(16 * 900 / sum(one.session_s for one in run.sessions))


def test_a_resume_that_loses_counters_is_refused(device: FakeDevice, path: Path) -> None:
    state = _cut(device, path)
    lost = copy.deepcopy(state)
    lost["counters"]["targets"] = 0
    with pytest.raises(monitor.MonitorError, match="has other counters"):
        device.start(path, resume=lost)


def test_a_resume_without_its_state_is_refused(device: FakeDevice, path: Path) -> None:
    _cut(device, path)
    with pytest.raises(monitor.MonitorError, match="there already"):
        device.start(path)


def test_a_session_that_begins_with_lost_counters_is_found(device: FakeDevice, path: Path) -> None:
    state = _cut(device, path)
    with closing(device.start(path, resume=state)) as mon:
        train(device, mon, 5)
    record = _record(path)
    session = record["sessions"][1]
    for name in monitor.COUNTERS:
        session["counters"][name] -= session["from"]["counters"][name]
        session["from"]["counters"][name] = 0
    wrong = _checked(path, record)
    assert len(wrong) == 1
    assert "session 2: begins with 0 updates" in wrong[0]
    assert "counters were lost" in wrong[0]


def test_another_recipe_is_another_run(device: FakeDevice, path: Path) -> None:
    state = _cut(device, path)
    with pytest.raises(monitor.MonitorError, match=r"another recipe \(precision\)"):
        device.start(path, resume=state, recipe=RECIPE | {"precision": "bf16"})


def test_another_run_is_refused(device: FakeDevice, path: Path) -> None:
    state = _cut(device, path)
    with pytest.raises(monitor.MonitorError, match="the checkpoint is of run"):
        device.start(path, resume=state | {"run": "0" * 32})


def test_a_save_stands_in_the_file_before_a_checkpoint_can_name_it(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon:
        train(device, mon, 3)
        with mon.phase("checkpoint"):
            state = mon.state_dict()
            saved = monitor.read_run(path).sessions[0].saves
    assert saved[state["save"]].as_json() == state["counters"]


def test_a_state_is_saved_in_its_phase_alone(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon, pytest.raises(monitor.MonitorError, match='phase\\("checkpoint"\\)'):
        mon.state_dict()


# --- how a session ends -----------------------------------------------------------------------------------------------


def test_a_session_that_was_killed_is_told_apart(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon:
        train(device, mon, 3)
        with mon.phase("evaluation"):
            device.host(1.0)
        run = monitor.read_run(path)
    assert run.sessions[0].ending is None
    assert monitor.check_run(run) == []
    assert any("was not closed" in text for text in monitor.remarks(run))


def test_running_out_of_memory_is_told_with_its_phase(device: FakeDevice, path: Path) -> None:
    def loop() -> None:
        with device.start(path) as mon:
            train(device, mon, 3)
            with mon.phase("evaluation"):
                raise MemoryError

    with pytest.raises(MemoryError):
        loop()
    run = monitor.read_run(path)
    assert run.sessions[0].ending == "raised"
    assert [(error["phase"], error["is_out_of_memory"], error["updates"]) for error in run.sessions[0].errors] == [
        ("evaluation", True, 3)
    ]
    assert "session 1: out of memory in evaluation, after 3 updates" in monitor.remarks(run)


def test_a_phase_can_be_left_by_an_exception_and_the_training_go_on(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon:
        train(device, mon, 3)
        try:
            with mon.phase("evaluation"):
                device.host(1.0)
                raise ValueError  # noqa: TRY301 - what the test is about
        except ValueError:
            pass
        train(device, mon, 3)
    run = monitor.read_run(path)
    assert monitor.check_run(run) == []
    assert run.sessions[0].phases["evaluation"][0] == pytest.approx(1.0)
    assert run.sessions[0].counters.updates == 6


def test_every_exception_is_told_once_even_one_in_the_place_of_another_that_is_gone(
    device: FakeDevice, path: Path
) -> None:
    def fail(mon: monitor.TrainingMonitor, *phases: str) -> None:
        with contextlib.ExitStack() as stack:
            for phase in phases:
                stack.enter_context(mon.phase(phase))
            raise ValueError

    with closing(device.start(path)) as mon:
        for phases in (("evaluation",), ("evaluation",), ("report", "checkpoint")):
            with contextlib.suppress(ValueError):
                fail(mon, *phases)
    (session,) = monitor.read_run(path).sessions
    assert [error["phase"] for error in session.errors] == ["evaluation", "evaluation", "checkpoint"]


def test_nothing_goes_on_after_the_end(device: FakeDevice, path: Path) -> None:
    mon = device.start(path)
    mon.close()
    mon.close()
    with pytest.raises(monitor.MonitorError, match="ended"):
        train(device, mon, 1)
    with pytest.raises(monitor.MonitorError, match="ended"), mon.phase("evaluation"):
        pass


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import monitor
mon = monitor.start("run.json", recipe={"seed": 1})
for _ in range(3):
    mon.update(targets=10)
if len(sys.argv) > 2:
    raise SystemExit(3)
"""


def test_the_file_alone_is_enough_in_a_strangers_loop(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "monitor.py").write_bytes((ROOT / "jobs" / "monitor.py").read_bytes())
    ended = subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT, str(tmp_path / "own"), "exit"], cwd=tmp_path, check=False, timeout=60
    )
    assert ended.returncode == 3
    run = monitor.read_run(tmp_path / "run.json")
    assert run.sessions[0].ending == "exited"
    assert run.sessions[0].counters.updates == 3
    assert run.sessions[0].environment["framework"] is None
    assert run.sessions[0].before["process_s"] is not None
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


# --- memory -----------------------------------------------------------------------------------------------------------


def test_peaks_are_reset_once_and_told_with_the_phase_that_made_them(device: FakeDevice, path: Path) -> None:
    device.readings |= {"cuda_peak_reserved_bytes": 100, "cuda_device_used_bytes": 500}
    with closing(device.start(path)) as mon:
        train(device, mon, 5)
        with mon.phase("evaluation"):
            device.host(1.0)
            device.readings |= {"cuda_peak_reserved_bytes": 300, "cuda_device_used_bytes": 700}
        device.readings |= {"cuda_device_used_bytes": 600}
        train(device, mon, 5)
    session = monitor.read_run(path).sessions[0]
    assert device.num_resets == 1
    assert session.memory["cuda_peak_reserved_bytes"] == 300
    assert session.memory["cuda_device_used_bytes"] == 700
    assert session.memory_of["train"]["cuda_device_used_bytes"] == 600
    assert session.peak_phase["cuda_peak_reserved_bytes"] == "evaluation"


def test_a_reading_that_nobody_has_is_null_with_a_reason(device: FakeDevice, path: Path) -> None:
    device.readings = dict.fromkeys(monitor.MEMORY)
    with closing(device.start(path)) as mon:
        train(device, mon, 3)
    reasons = _record(path)["sessions"][0]["reasons"]
    assert reasons["memory.largest.cuda_allocated_bytes"] == "the device is fake"
    assert reasons["memory.largest.host_rss_bytes"] == "this system does not tell it"


def test_the_host_is_read_from_the_kernel() -> None:
    readings = monitor.HostMemory().read()
    rss, peak = readings["host_rss_bytes"], readings["host_peak_rss_bytes"]
    assert rss is not None
    assert peak is not None
    assert 1 << 20 < rss <= peak


class FakeCuda:
    """The parts of torch.cuda that the monitor asks, on a fake device."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.num_resets = 0
        self.stats = {"num_alloc_retries": 7, "num_ooms": 2}

    def Event(self, *, enable_timing: bool) -> Any:  # noqa: N802 - torch's name
        assert enable_timing
        event = SimpleNamespace(at_s=math.inf)
        event.record = lambda stream: setattr(event, "at_s", self.device.record()) if stream == "stream" else None
        event.query = lambda: self.device.is_done(event.at_s)
        event.elapsed_time = lambda other: (other.at_s - event.at_s) * 1000
        return event

    def current_stream(self, device: str) -> str:
        assert device == "cuda:1"
        return "stream"

    def synchronize(self, device: str) -> None:
        assert device == "cuda:1"
        self.device.synchronize()

    def reset_peak_memory_stats(self, _device: str) -> None:
        self.num_resets += 1

    def mem_get_info(self, _device: str) -> tuple[int, int]:
        return 30, 100

    def memory_stats(self, _device: str) -> dict[str, int]:
        return dict(self.stats)

    def memory_allocated(self, _device: str) -> int:
        return 10

    def memory_reserved(self, _device: str) -> int:
        return 20

    def max_memory_allocated(self, _device: str) -> int:
        return 40

    def max_memory_reserved(self, _device: str) -> int:
        return 50

    def get_device_properties(self, _device: str) -> Any:
        return SimpleNamespace(name="Fake GPU", total_memory=100, major=9, minor=0)


@pytest.fixture
def cuda(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda(device)
    torch = ModuleType("torch")
    vars(torch).update(cuda=fake, __version__="2.99", version=SimpleNamespace(cuda="13.0"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return fake


def test_cuda_is_asked_without_being_waited_for(device: FakeDevice, cuda: FakeCuda, path: Path) -> None:
    with closing(monitor.start(path, device="cuda:1", clock=device.clock, settings={"backend": "fast"})) as mon:
        train(device, mon, 1, device_s=4.0)
        cuda.stats = {"num_alloc_retries": 8, "num_ooms": 2}
        waits = device.num_waits
        train(device, mon, 300)
        assert device.num_waits == waits
    run = monitor.read_run(path)
    session = run.sessions[0]
    assert monitor.check_run(run) == []
    assert session.first_update_s == pytest.approx(4.01)
    assert session.stretches[1].step.quantile(0.5) == pytest.approx(0.1, rel=0.005)
    assert session.stretches[1].step.count == 300
    assert session.memory == {
        "cuda_allocated_bytes": 10,
        "cuda_reserved_bytes": 20,
        "cuda_peak_allocated_bytes": 40,
        "cuda_peak_reserved_bytes": 50,
        "cuda_device_used_bytes": 70,
        "cuda_num_alloc_retries": 1,
        "cuda_num_ooms": 0,
        "host_rss_bytes": session.memory["host_rss_bytes"],
        "host_peak_rss_bytes": session.memory["host_peak_rss_bytes"],
    }
    assert cuda.num_resets == 1
    assert session.environment["device_name"] == "Fake GPU"
    assert session.environment["device_capability"] == "9.0"
    assert session.environment["cuda_runtime"] == "13.0"
    assert session.environment["settings"]["backend"] == "fast"


def test_another_device_needs_its_own_ways_to_wait_and_to_read(path: Path) -> None:
    with pytest.raises(monitor.MonitorError, match="give start"):
        monitor.start(path, device="mps")


def test_a_session_can_be_kept_in_memory(device: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(device.start(None)) as mon:
        train(device, mon, 5)
        with mon.phase("evaluation"):
            device.host(1.0)
    assert mon.record()["sessions"][0]["counters"]["updates"] == 5
    assert list(tmp_path.iterdir()) == []


# --- the file ---------------------------------------------------------------------------------------------------------


def test_what_is_not_known_of_a_recipe_is_null_with_its_reason(device: FakeDevice, path: Path) -> None:
    recipe = {"seed": 1, "tokenizer_revision": monitor.Unknown("bytes are tokens"), "other": {"lr": 0.1}}
    with closing(device.start(path, recipe=recipe)) as mon:
        train(device, mon, 1)
    run = monitor.read_run(path)
    assert run.recipe["seed"] == 1
    assert run.recipe["other"] == {"lr": 0.1}
    assert run.unknown["recipe.tokenizer_revision"] == "bytes are tokens"
    assert run.unknown["recipe.optimizer"] == "not given"
    assert set(run.recipe) == {*monitor.RECIPE, "other"}


def test_a_recipe_with_a_name_that_is_none_is_refused(device: FakeDevice, path: Path) -> None:
    with pytest.raises(monitor.MonitorError, match="did you mean precision"):
        device.start(path, recipe={"precison": "bf16"})


@pytest.mark.parametrize("value", [math.nan, math.inf, object()])
def test_a_recipe_that_json_cannot_say_is_refused(device: FakeDevice, path: Path, value: object) -> None:
    with pytest.raises(monitor.MonitorError, match="recipe"):
        device.start(path, recipe={"seed": value})
    assert not path.exists()


def test_the_digest_of_a_recipe_changes_with_each_of_its_values() -> None:
    recipe = dict.fromkeys(monitor.RECIPE) | {"other": {}}
    digests = {monitor.recipe_sha256(recipe | {name: 1}) for name in recipe}
    assert len(digests | {monitor.recipe_sha256(recipe)}) == len(recipe) + 1


def test_a_recipe_that_was_changed_afterwards_is_found(device: FakeDevice, path: Path) -> None:
    _whole_session(device, path)
    record = _record(path)
    record["recipe"]["precision"] = "bf16"
    assert _checked(path, record) == ["recipe_sha256 is not the digest of the recipe"]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"format": "run/1"', '"format": "run/2"', "not a run/1 file"),
        ('"seed": 1', '"seed": 1, "seed": 1', "stands twice"),
        ('"session_s"', '"session_seconds"', "no field 'session_s'"),
        ('"ending": "closed"', '"ending": null', "null without a reason"),
        ('"ending": "closed"', '"ending": "fine"', "no ending"),
        ('"uneven_updates": 0', '"uneven_updates": -1', "at least 0"),
        ('"drain_s": ', '"extra": 1, "drain_s": ', "unknown field 'extra'"),
        ('"phase": "compile"', '"phase": "compiling"', "no phase"),
        ('"unattributed_s": ', '"unattributed_s": NaN, "other_s": ', "NaN"),
        ('"p50_s": ', '"p50_s": 9', "not what the bins say"),
        ('"count": 10', '"count": 11', "do not hold 11"),
        ('"bins": [[', '"bins": [[99999, -1], [99998, 1], [', "do not hold"),
        (
            '"saves": [',
            f'"saves": [{{"save": 1, "at_s": 0.0, "counters": {json.dumps(ONES)}}}, ',
            "save 1 stands twice",
        ),
        ("{", "[", "run.json: "),
    ],
)
def test_a_file_that_is_not_one_is_refused(device: FakeDevice, path: Path, old: str, new: str, text: str) -> None:
    _whole_session(device, path)
    whole = path.read_text(encoding="ascii")
    assert old in whole
    path.write_text(whole.replace(old, new, 1), encoding="ascii")
    with pytest.raises(monitor.MonitorError, match=text):
        monitor.read_run(path)
    assert monitor.main(["summarize", str(path)]) == 5


def test_a_write_that_fails_leaves_the_file_as_it_was(
    device: FakeDevice, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _whole_session(device, path)
    before = path.read_bytes()

    def broken(_descriptor: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="no space"):
        monitor.write_record(path, {"format": "run/1"})
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["run.json"]


def test_settings_of_the_environment_are_read() -> None:
    found = monitor.read_environment("cpu", {"OMP_NUM_THREADS": "3", "CXX": "no-such-compiler", "HOME": "/"})
    assert set(found) == set(ENVIRONMENT)
    assert found["settings"]["OMP_NUM_THREADS"] == "3"
    assert "HOME" not in found["settings"]
    assert found["compiler"] == monitor.Unknown("no-such-compiler is not installed")
    assert found["driver"] == monitor.Unknown("the device is cpu")


# --- adding up --------------------------------------------------------------------------------------------------------


def _five_windows(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path)) as mon:
        train(device, mon, 1)
        for device_s in (1.0, 0.5, 0.1, 0.1, 0.1):
            train(device, mon, 10, host_s=0.0, device_s=device_s)
            with mon.phase("report"):
                device.host(0.5)


def test_early_windows_can_be_left_out_of_the_training_rate_alone(device: FakeDevice, path: Path) -> None:
    _five_windows(device, path)
    run = monitor.read_run(path)
    everything, steady = monitor.summarize(run), monitor.summarize(run, leave_out=2)
    assert everything["train_tokens_per_second"] == pytest.approx(50 * 900 / 18)
    assert steady["train_tokens_per_second"] == pytest.approx(30 * 900 / 3)
    assert everything["tokens_per_second"] == steady["tokens_per_second"]
    assert steady["sessions"][0]["included"] == [3, 5]
    assert steady["sessions"][0]["step"]["max_s"] == pytest.approx(0.1)


def test_nothing_is_left_is_not_a_rate(device: FakeDevice, path: Path) -> None:
    _five_windows(device, path)
    summary = monitor.summarize(monitor.read_run(path), leave_out=5)["sessions"][0]
    assert summary["included"] is None
    assert summary["train_tokens_per_second"] is None


def test_time_of_training_without_updates_counts(device: FakeDevice, path: Path) -> None:
    with closing(device.start(path, compile_updates=0)) as mon:
        train(device, mon, 10, host_s=0.0)
        with mon.phase("evaluation"):
            pass
        device.host(9.0)
    session = monitor.read_run(path).sessions[0]
    assert session.rates["train_tokens_per_second"] == pytest.approx(10 * 900 / 10.0)
    assert monitor.summarize(monitor.read_run(path))["train_tokens_per_second"] == pytest.approx(900.0)


def test_the_command_says_what_it_took_and_what_it_does_not_judge(
    device: FakeDevice, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _five_windows(device, path)
    assert monitor.main(["summarize", str(path), "--leave-out", "2"]) == 0
    out = capsys.readouterr().out
    assert "windows 3 to 5 of 5" in out
    assert monitor.read_run(path).recipe_sha256 in out
    assert "train_tokens_per_second 9000.0 (padded 10000.0)" in out
    assert "tokens_per_second       2227.1" in out
    assert "physically possible is not judged" in out


def test_the_command_fails_where_something_does_not_fit(
    device: FakeDevice, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _five_windows(device, path)
    _checked(path, changed(_record(path), session_s=1.0))
    assert monitor.main(["summarize", "--json", str(path)]) == 4
    assert json.loads(capsys.readouterr().out)[0]["findings"]
    assert monitor.main(["summarize", str(path)]) == 4
    assert "counters and sums do not fit together" in capsys.readouterr().out
