from __future__ import annotations

import datetime as dt
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from jobs.common.endings import EndedError, Ending, InterruptedAttemptError
from jobs.processes import signals

ARRANGED = """
import fcntl, os, signal, struct
reader, writer = os.pipe()
fcntl.fcntl(reader, 15, struct.pack("ii", 0, os.getppid()))  # F_SETOWN_EX, of one thread
fcntl.fcntl(reader, 10, int(signal.{name}))  # F_SETSIG
fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | fcntl.FASYNC)
os.write(writer, b"x")
"""
"""The kernel sends the signal itself, since a file of the side's has the harness as its owner."""
SEND = """
import ctypes, os, signal
ctypes.CDLL(None).tgkill(os.getppid(), os.getppid(), int(signal.SIGUSR2))
"""
AS_ANOTHER_USER = f"""
import os
os.setresuid(65534, 0, 0)
{SEND}"""


@pytest.mark.parametrize(
    ("number", "job", "left_s", "ending"),
    [
        (signal.SIGTERM, {"JobState": "TIMEOUT"}, None, Ending.TIME_LIMIT),
        (signal.SIGTERM, {"JobState": "PREEMPTED"}, 3600.0, Ending.PREEMPTED),
        (signal.SIGTERM, {"JobState": "RUNNING", "PreemptTime": "2026-01-01T00:00:00"}, 3600.0, Ending.PREEMPTED),
        (signal.SIGTERM, {"JobState": "RUNNING", "PreemptTime": "None"}, 3600.0, Ending.CANCELLED),
        (signal.SIGTERM, {"JobState": "CANCELLED"}, 5.0, Ending.CANCELLED),
        (signal.SIGTERM, {"JobState": "COMPLETING", "Reason": "None"}, 5.0, Ending.CANCELLED),
        (signal.SIGTERM, {"JobState": "COMPLETING", "Reason": "None"}, None, Ending.CANCELLED),
        (signal.SIGTERM, {"JobState": "COMPLETING", "Reason": "None"}, 0.0, Ending.TIME_LIMIT),
        (signal.SIGTERM, {"JobState": "COMPLETING", "Reason": "TimeLimit"}, 60.0, Ending.TIME_LIMIT),
        (signal.SIGTERM, {"JobState": "COMPLETING", "PreemptTime": "2026-01-01T00:00:00"}, 60.0, Ending.PREEMPTED),
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


@pytest.mark.parametrize(
    ("end_s", "ending"), [(1000, Ending.TIME_LIMIT), (5000, Ending.PREEMPTED), (None, Ending.PREEMPTED)]
)
def test_where_the_environment_does_not_say_when_a_job_ends_slurm_does(end_s: float | None, ending: Ending) -> None:
    shown = "Unknown" if end_s is None else dt.datetime.fromtimestamp(end_s).isoformat()  # noqa: DTZ006 - as scontrol
    explain = signals.slurm_explainer({"SLURM_JOB_ID": "7"}, lambda: 950.0, lambda _job: {"EndTime": shown})
    assert explain(signal.SIGUSR2)[0] is ending


def shown_at(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds).isoformat()  # noqa: DTZ006 - as scontrol


@pytest.mark.parametrize(
    ("limit", "ending"),
    [
        ("00:01:00", Ending.TIME_LIMIT),
        ("01:00:00", Ending.CANCELLED),
        ("1-00:00:00", Ending.CANCELLED),
        ("UNLIMITED", Ending.CANCELLED),
    ],
)
def test_the_limit_of_a_job_that_is_being_ended_is_not_the_moment_of_its_end(limit: str, ending: Ending) -> None:
    job = {"JobState": "COMPLETING", "StartTime": shown_at(800), "EndTime": shown_at(940), "TimeLimit": limit}
    explain = signals.slurm_explainer({"SLURM_JOB_ID": "7"}, lambda: 950.0, lambda _job: job)
    assert explain(signal.SIGTERM)[0] is ending


def test_a_job_that_goes_back_into_the_queue_says_so() -> None:
    def told(restarts: str) -> tuple[Ending, str]:
        job = {"JobState": "COMPLETING", "Restarts": restarts}
        return signals.slurm_explainer({"SLURM_JOB_ID": "7"}, lambda: 950.0, lambda _job: job)(signal.SIGTERM)

    for restarts, is_put_back in (("1", True), ("0", False)):
        ending, reason = told(restarts)
        assert ending is Ending.CANCELLED
        assert reason.endswith("put back into the queue") is is_put_back


def test_a_job_of_which_slurm_says_nothing_is_not_said_to_go_back_into_the_queue() -> None:
    environment = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}
    reason = signals.slurm_explainer(environment, lambda: 950.0, lambda _job: {})(signal.SIGTERM)[1]
    assert reason == "SIGTERM, job state unknown"


def tell(number: signal.Signals) -> None:
    """Send the first thread a signal: libraries that other tests have loaded have threads, which may hear."""
    signal.pthread_kill(threading.main_thread().ident or 0, number)


@pytest.fixture
def heard() -> Iterator[signals.Signals]:
    """Return what hears the signals of this process, which gets them back afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    made = signals.Signals()
    made.install(signals.explain_locally)
    yield made
    while signal.sigtimedwait((*signals.HEARD, signal.SIGCONT), 0) is not None:
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(made.fd)


def test_a_deferred_signal_ends_no_wait_and_is_not_forgotten(heard: signals.Signals) -> None:
    with heard.deferring():
        tell(signal.SIGUSR2)
        heard.check()
        assert heard.received is signal.SIGUSR2
    with pytest.raises(InterruptedAttemptError, match="SIGUSR2"):
        heard.check()


def end_after_a_signal(heard: signals.Signals, ending: Ending) -> None:
    """End, with a side that is under way, after somebody has told the job to stop."""
    with heard.deferring():
        tell(signal.SIGTERM)
        raise EndedError(ending, "why")


@pytest.mark.parametrize("ending", [Ending.CRASH, Ending.NO_RESULT])
def test_a_side_that_dies_after_a_deferred_signal_was_stopped_with_the_job(
    heard: signals.Signals, ending: Ending
) -> None:
    with pytest.raises(InterruptedAttemptError, match=f"SIGTERM, then {ending}: why") as caught:
        end_after_a_signal(heard, ending)
    assert caught.value.then == f"{ending}: why"


def test_other_endings_stay_what_they_are_after_a_deferred_signal(heard: signals.Signals) -> None:
    with pytest.raises(EndedError) as caught:
        end_after_a_signal(heard, Ending.COUNT_DISAGREEMENT)
    assert caught.value.ending is Ending.COUNT_DISAGREEMENT


def test_a_crash_without_a_signal_is_a_crash(heard: signals.Signals) -> None:
    with pytest.raises(EndedError), heard.deferring():
        raise EndedError(Ending.CRASH, "why")


def test_having_been_stopped_is_told_once_and_ends_nothing_by_itself(heard: signals.Signals) -> None:
    assert not heard.take_stop()
    tell(signal.SIGCONT)
    heard.check()
    assert heard.received is None
    assert heard.take_stop()
    assert not heard.take_stop()


@pytest.mark.parametrize(
    ("was_stopped", "ending", "expected"),
    [
        (True, Ending.HANG, Ending.PREEMPTED),
        (True, Ending.CLOCK_DISAGREEMENT, Ending.PREEMPTED),
        (False, Ending.HANG, Ending.HANG),
        (True, Ending.RUBBISH, Ending.RUBBISH),
    ],
)
def test_a_time_that_ran_out_while_the_job_was_stopped_is_no_hang(
    heard: signals.Signals, was_stopped: bool, ending: Ending, expected: Ending
) -> None:
    def run_late() -> None:
        with heard.watching():
            if was_stopped:
                tell(signal.SIGCONT)
            raise EndedError(ending, "late")

    with pytest.raises(EndedError, match="late") as caught:
        run_late()
    assert caught.value.ending is expected


def test_a_side_cannot_make_it_look_as_if_the_job_had_been_stopped(heard: signals.Signals) -> None:
    def let_a_child_send_one() -> None:
        with heard.watching():
            subprocess.run([sys.executable, "-c", SEND.replace("SIGUSR2", "SIGCONT")], check=True)

    with pytest.raises(EndedError) as caught:
        let_a_child_send_one()
    assert caught.value.ending is Ending.INTERFERENCE
    assert "SIGCONT" in caught.value.reason
    assert not heard.take_stop()


def test_a_signal_of_the_side_is_interference_all_the_same(heard: signals.Signals) -> None:
    def let_a_child_send_one() -> None:
        with heard.watching(), heard.deferring():
            subprocess.run([sys.executable, "-c", SEND], check=True)
            heard.check()

    with pytest.raises(EndedError) as caught:
        let_a_child_send_one()
    assert caught.value.ending is Ending.INTERFERENCE
    assert heard.received is None


WAITING = "\ninput()"


def hear_from_a_child(heard: signals.Signals, program: str) -> str:
    """Return the reason why what a child does is interference."""

    def let_it_do_it() -> None:
        with heard.watching(), heard.deferring():
            argv = [sys.executable, "-c", program]
            with subprocess.Popen(argv, stdin=subprocess.PIPE) as child:
                heard.wait(20)
                heard.check()
            assert child.returncode == 0
            heard.check()

    with pytest.raises(EndedError) as caught:
        let_it_do_it()
    assert caught.value.ending is Ending.INTERFERENCE
    assert heard.received is None
    return caught.value.reason


@pytest.mark.parametrize("name", [number.name for number in signals.HEARD])
def test_a_signal_that_a_side_lets_the_kernel_send_is_interference(heard: signals.Signals, name: str) -> None:
    reason = hear_from_a_child(heard, ARRANGED.format(name=name))
    assert re.fullmatch(rf"{name} was sent to the harness by somebody who cannot be told: .* \(si_code [1-9]\)", reason)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, who may become another user")
@pytest.mark.parametrize(
    ("program", "who"),
    [(AS_ANOTHER_USER + WAITING, "of the side$"), (AS_ANOTHER_USER, "of the side$|was gone at once")],
)
def test_a_side_that_becomes_another_user_is_still_the_side(heard: signals.Signals, program: str, who: str) -> None:
    assert re.search(who, hear_from_a_child(heard, program))


def told(code: int, pid: int, uid: int) -> signal.struct_siginfo:
    return signal.struct_siginfo((signal.SIGUSR2, code, 0, pid, uid, 0, 0))


@pytest.mark.parametrize(
    ("uid", "sender", "is_fault"),
    [
        (1000, 0, False),
        (1000, 1000, True),
        (1000, 100_000, True),
        (0, 0, True),
        (0, 65_534, True),
    ],
)
def test_a_sender_that_is_gone_is_excused_if_only_the_administrator_can_have_been_it(
    monkeypatch: pytest.MonkeyPatch, uid: int, sender: int, *, is_fault: bool
) -> None:
    with subprocess.Popen(["/bin/true"]) as gone:
        pass
    monkeypatch.setattr(os, "getuid", lambda: uid)
    assert bool(signals._find_fault(told(0, gone.pid, sender))) is is_fault


def test_a_terminal_and_what_is_outside_the_namespace_are_no_side() -> None:
    assert signals._find_fault(told(0x80, 0, 0)) == ""
    assert signals._find_fault(told(0, 0, os.getuid())) == ""
    assert signals._find_fault(told(0, os.getppid(), os.getuid())) == ""


@pytest.mark.parametrize("code", [*range(1, 7), 0x81, -1, -2, -3, -4, -5, -60])
def test_any_other_signal_may_be_a_sides(code: int) -> None:
    assert "cannot be told" in signals._find_fault(told(code, os.getppid(), os.getuid()))


def test_long_work_of_the_harness_is_done_while_it_hears(heard: signals.Signals) -> None:
    reader, writer = os.pipe()

    def work() -> bytes:
        tell(signal.SIGTERM)
        while heard._first is None:
            pass
        return os.read(reader, 1)

    os.write(writer, b"x")
    assert heard.hear_during(work) == b"x"
    assert heard.received is signal.SIGTERM
    os.close(reader)
    os.close(writer)
    with pytest.raises(OSError, match="Bad file"):
        heard.hear_during(lambda: os.read(reader, 1))
