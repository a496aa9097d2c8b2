"""Asking Slurm: each source only for what is left, all within one time, and never another cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from campaign.errors import InfrastructureError
from campaign.submission.acts import Allocation, Intent, Submission, Submitted
from campaign.watching.asking import Told, ask_slurm, is_foreign
from campaign.watching.observation import slurm_job
from campaign.watching.scheduler import JOBS_SHOWN, LOOK_S, Slurm
from campaign.watching.state import Job, JobStage

INVALID = InfrastructureError("scontrol failed with exit code 1", why="slurm_load_jobs error: Invalid job id specified")
SHOWN = (
    "JobId=9 ArrayJobId={0} ArrayTaskId={1} JobName={2} UserId=me(1) JobState={3} Reason=None Dependency=(null) "
    "SubmitTime=100 StartTime=101 EndTime=105 NodeList=n3 BatchHost=n3 Comment={4} \n"
)


class Commands:
    """Answers by the first word, or by a word of `scontrol`; an error is raised."""

    def __init__(self, **answers: str | InfrastructureError) -> None:
        self.answers = {"squeue": "", "sacct": "", "job": INVALID, "config": "ClusterName = here\n", **answers}
        self.asked: list[list[str]] = []

    def __call__(self, command: Sequence[str]) -> str:
        self.asked.append(list(command))
        word = command[0]
        if word == "scontrol":
            word = "job" if "job" in command else "config"
        answer = self.answers[word]
        if isinstance(answer, InfrastructureError):
            raise answer
        return answer

    @property
    def programs(self) -> list[str]:
        return [command[0] for command in self.asked]


def submission(key: str = "k", job: str = "7", cluster_name: str = "here") -> Submission:
    intent = {
        "submission": key, "cluster": "slurm", "host": "h", "boot_id": "b", "candidate": "", "allocations": (),
        "cluster_name": cluster_name,
    }  # fmt: skip
    data = {
        "submission": key, "cluster": "slurm", "job": job, "array": True, "host": "h", "boot_id": "b",
        "process_start": 0, "source": "transport",
    }  # fmt: skip
    return Submission(
        intent=Intent.of(intent),
        intended_at=100.0,
        submitted=Submitted.of(data),
        submitted_at=100.0,
        not_submitted=None,
    )


def ask(commands: Callable[[Sequence[str]], str], *submissions: Submission, jobs: Sequence[int] = (0,)) -> Told:
    known = {one.key: one for one in submissions or (submission(),)}
    wanted = {one.job_of(index): key for key, one in known.items() for index in jobs}
    return ask_slurm(Slurm(commands), known, wanted, 200.0)


def job_of(told: Told, one: Submission | None = None) -> Job:
    allocation = Allocation(
        allocation="a1", submission="k", index=0, minutes=1, plan_sha256="", attempts=(), cancelled=None
    )
    return slurm_job(one or submission(), allocation, None, told)


def test_a_queue_that_knows_every_job_is_all_that_is_asked() -> None:
    commands = Commands(squeue="7_0|k|RUNNING|n1|100|200|None\n")
    assert job_of(ask(commands)).stage is JobStage.RUNNING
    assert commands.programs == ["scontrol", "squeue"]


def test_accounting_is_asked_only_for_what_the_queue_does_not_know() -> None:
    commands = Commands(squeue="7_0|k|RUNNING|n1|100|200|None\n", sacct="8_0|l|NODE_FAIL|n1|100|150\n")
    told = ask(commands, submission(), submission("l", "8"))
    assert told.records is not None
    assert {job: one.source for job, one in told.records.items()} == {"7_0": "squeue", "8_0": "sacct"}
    (asked,) = [command for command in commands.asked if command[0] == "sacct"]
    assert "--name=l" in asked
    assert "job" not in [word for command in commands.asked for word in command]


def test_a_job_that_nothing_else_knows_is_asked_for_by_its_number() -> None:
    commands = Commands(job=SHOWN.format("7", "0", "renamed", "CANCELLED", "k"))
    job = job_of(ask(commands))
    assert (job.stage, job.state, job.node, job.ended_at) == (JobStage.ENDED, "CANCELLED", "n3", 105.0)
    assert job.source == "scontrol"


def test_a_job_that_was_cancelled_while_it_was_held_is_known_to_accounting_by_its_state_alone() -> None:
    commands = Commands()

    def run(command: Sequence[str]) -> str:
        found = commands(command)
        # What was never eligible to begin is in no period; asked for a state, accounting looks at the end instead.
        return "7_[0-1]|k|CANCELLED by 0|None assigned|100|150\n" if "--state=CANCELLED" in command else found

    job = job_of(ask(run, jobs=(0, 1)))
    assert (job.stage, job.state, job.source, job.ended_at) == (JobStage.ENDED, "CANCELLED", "sacct", 150.0)
    assert commands.programs == ["scontrol", "squeue", "sacct", "sacct"]


def test_the_controllers_word_comes_before_accounting_that_lags() -> None:
    commands = Commands(sacct="7_0|k|REQUEUED|n1|100|Unknown\n", job=SHOWN.format("7", "0", "k", "CANCELLED", "k"))
    job = job_of(ask(commands))
    assert (job.stage, job.source) == (JobStage.ENDED, "scontrol")


def test_a_job_of_somebody_else_that_got_the_number_is_not_ours() -> None:
    job = job_of(ask(Commands(job=SHOWN.format("7", "0", "other", "COMPLETED", "(null)"))))
    assert job.stage is JobStage.ABSENT


@pytest.mark.parametrize("source", ["squeue", "sacct"])
def test_a_number_that_is_used_again_is_told_from_the_job_that_had_it_before(source: str) -> None:
    day = 86400
    old = {"squeue": "7_0|k|FAILED|n1|10|20|None\n", "sacct": "7_0|k|FAILED|n1|10|20\n"}[source]
    one = replace(submission(), intended_at=100.0 + day, submitted_at=100.0 + day)
    wanted = {"7_0": "k"}

    def look(text: str) -> Job:
        told = ask_slurm(Slurm(Commands(**{source: text})), {"k": one}, wanted, 300.0 + day)
        return job_of(told, one)

    assert look(old).stage is JobStage.ABSENT
    again = old + old.replace("FAILED", "COMPLETED").replace("|10|", f"|{110 + day}|").replace("|20", f"|{150 + day}")
    assert (look(again).stage, look(again).state) == (JobStage.ENDED, "COMPLETED")


def test_all_tasks_of_an_array_are_asked_for_at_once_and_of_a_thousand_arrays_a_bounded_number() -> None:
    commands = Commands()
    assert ask(commands, jobs=range(500)).is_whole
    assert sum("job" in command for command in commands.asked) == 1
    commands = Commands()
    ask(commands, *(submission(f"k{number}", str(number)) for number in range(1000)))
    assert sum("job" in command for command in commands.asked) == JOBS_SHOWN


@pytest.mark.parametrize("silent", ["sacct", "job"])
def test_absence_needs_every_source_to_answer(silent: str) -> None:
    told = ask(Commands(**{silent: InfrastructureError("x did not answer")}))
    assert job_of(told).stage is JobStage.UNKNOWN
    assert told.troubles == ("x did not answer",)


@pytest.mark.parametrize("cluster_name", ["here", ""])
def test_a_cluster_without_accounting_has_answered_with_its_queue_and_its_controller(cluster_name: str) -> None:
    config = "ClusterName = here\nAccountingStorageType = accounting_storage/none\n"
    one, commands = (
        submission(cluster_name=cluster_name),
        Commands(sacct=InfrastructureError("sacct failed"), config=config),
    )
    told = ask(commands, one)
    assert commands.asked.count(["scontrol", "show", "config"]) == 1
    job = job_of(told, one)
    assert job.stage is JobStage.ABSENT
    assert "sacct failed" in job.reason
    # What does not exist is not silent: a wait that counts troubles would be given up before the job counts as lost.
    assert told.troubles == ()


@pytest.mark.parametrize(
    ("states", "down"),
    [("down\ndrained*\n", {"n[1-2]"}), ("down\nidle\n", set()), ("", set())],
)
def test_nodes_are_down_only_if_something_says_so_of_each(states: str, down: set[str]) -> None:
    waiting = "7_0|k|PENDING||100|N/A|ReqNodeNotAvail, UnavailableNodes:n[1-2]\n"
    assert ask(Commands(squeue=waiting, sinfo=states)).down == frozenset(down)


def test_only_the_superuser_is_shown_the_jobs_of_others_everywhere(tmp_path: Path) -> None:
    owner = tmp_path.stat().st_uid
    assert is_foreign(tmp_path, owner + 1)
    assert not is_foreign(tmp_path, owner)
    theirs = cast("Path", SimpleNamespace(stat=lambda: SimpleNamespace(st_uid=7)))
    assert is_foreign(theirs, 8)
    assert not is_foreign(theirs, 0)


@pytest.mark.parametrize("behind_s", [-7200.0, 7200.0])
def test_a_job_is_known_although_the_controllers_clock_is_hours_off(behind_s: float) -> None:
    submitted_at = 1_000_000.0 - behind_s
    one = replace(submission(), intended_at=1_000_000.0, submitted_at=1_000_000.0)
    commands = Commands(squeue=f"7_0|k|RUNNING|n1|{submitted_at:.0f}|N/A|None\n")
    assert job_of(ask(commands, one), one).stage is JobStage.RUNNING


def test_jobs_of_another_cluster_are_unknown_and_nobody_is_asked_for_them() -> None:
    commands = Commands(config="ClusterName = there\n")
    told = ask(commands)
    job = job_of(told)
    assert job.stage is JobStage.UNKNOWN
    assert job.reason == "submitted to cluster here; this host's commands reach there"
    assert told.troubles == (job.reason,)
    assert commands.programs == ["scontrol"]


def test_jobs_here_are_told_beside_those_of_another_cluster() -> None:
    here, there = submission(), submission("l", "8", "there")
    told = ask(Commands(squeue="7_0|k|PENDING||100|N/A|Priority\n"), here, there)
    assert job_of(told, here).stage is JobStage.PENDING
    assert job_of(told, there).stage is JobStage.UNKNOWN


def test_a_submission_from_before_names_were_recorded_is_asked_for_wherever_one_is() -> None:
    commands = Commands(squeue="7_0|k|RUNNING|n1|100|200|None\n")
    one = submission(cluster_name="")
    assert job_of(ask(commands, one), one).stage is JobStage.RUNNING
    assert commands.programs == ["squeue"]


def test_a_controller_that_does_not_say_which_it_is_leaves_everything_unknown() -> None:
    told = ask(Commands(config=InfrastructureError("scontrol did not answer within 60 s")))
    assert job_of(told).stage is JobStage.UNKNOWN
    assert told.troubles == ("scontrol did not answer within 60 s",)


def test_a_look_ends_although_every_answer_comes_just_in_time() -> None:
    now = [0.0]
    inner = Commands()

    def slow(command: Sequence[str]) -> str:
        now[0] += 50.0
        return inner(command)

    many = {f"k{number}": submission(f"k{number}", str(number)) for number in range(3000)}
    wanted = {one.job_of(0): key for key, one in many.items()}
    told = ask_slurm(Slurm(slow, clock=lambda: now[0]), many, wanted, 200.0)
    assert told.records is None
    assert "took too long" in told.troubles[0]
    assert now[0] <= LOOK_S + 50.0


def test_three_thousand_tasks_cost_little_processor_time() -> None:
    lines = "".join(f"7_{index}|k|PENDING||100|N/A|Priority\n" for index in range(3000))
    before = time.process_time()
    told = ask(Commands(squeue=lines), jobs=range(3000))
    assert told.records is not None
    assert len(told.records) == 3000
    assert time.process_time() - before < 1.0


def test_nodes_that_jobs_wait_for_are_looked_at_once_and_all_must_be_down() -> None:
    reason = "ReqNodeNotAvail, UnavailableNodes:n[1-2]"
    lines = f"7_0|k|PENDING||100|N/A|{reason}\n7_1|k|PENDING||100|N/A|{reason}\n"
    commands = Commands(squeue=lines, sinfo="down*\ndrained\n")
    job = job_of(ask(commands, jobs=(0, 1)))
    assert job.hopeless == "every node that it could use is down: n[1-2]"
    assert commands.programs.count("sinfo") == 1
    assert job_of(ask(Commands(squeue=lines, sinfo="down*\nallocated\n"))).hopeless == ""
    assert job_of(ask(Commands(squeue=lines, sinfo=InfrastructureError("sinfo failed")))).hopeless == ""
