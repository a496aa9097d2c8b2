from __future__ import annotations

import signal

import pytest

from jobs.common.endings import Ending
from jobs.processes import signals


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
