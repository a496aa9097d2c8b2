"""Slurm's answers: parsing, batching, failures, and what of the environment reaches its commands."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from campaign.errors import InfrastructureError
from campaign.watching.scheduler import (
    CLOCK_SLACK_S,
    DEFAULT_ARRAY_LIMIT,
    NAMES_PER_QUESTION,
    JobRecord,
    Slurm,
    Stage,
    clean_environment,
    local_slurm,
    newest,
    parse_controller,
    parse_sacct,
    parse_shown,
    parse_squeue,
    run_command,
    stage_of,
)


def record(job: str, submitted_at: float, state: str = "RUNNING") -> JobRecord:
    return JobRecord(
        job=job, name="k", state=state, reason="", node="", submitted_at=submitted_at, ended_at=0.0, source="sacct"
    )


class Commands:
    """Answers by the first word; strict about anything else."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    def __call__(self, command: Sequence[str]) -> str:
        self.asked.append(list(command))
        if command[0] not in self.answers:
            raise AssertionError(f"unexpected command {command}")
        return self.answers[command[0]]


def install(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_an_unknown_state_is_neither_running_nor_ended() -> None:
    assert stage_of("SOMETHING_NEW") is Stage.UNKNOWN
    assert stage_of("") is Stage.UNKNOWN


@pytest.mark.parametrize("state", ["REQUEUED", "REQUEUE_HOLD", "CONFIGURING", "SPECIAL_EXIT"])
def test_states_before_the_start_are_pending(state: str) -> None:
    assert stage_of(state) is Stage.PENDING


@pytest.mark.parametrize("state", ["SUSPENDED", "COMPLETING", "STAGE_OUT", "RESIZING"])
def test_states_that_submitit_takes_for_ended_are_running(state: str) -> None:
    assert stage_of(state) is Stage.RUNNING


@pytest.mark.parametrize("state", ["PREEMPTED", "DEADLINE", "BOOT_FAIL", "REVOKED", "OUT_OF_MEMORY"])
def test_final_states_are_ended(state: str) -> None:
    assert stage_of(state) is Stage.ENDED


def test_squeue_lines_become_records() -> None:
    text = "7_0|k|PENDING||1795971398|N/A|Resources\n7_1|k|RUNNING|n1|1795971398|1827507398|None\n"
    pending, running = parse_squeue(text)
    assert (pending.job, pending.reason, pending.ended_at) == ("7_0", "Resources", 0.0)
    # The time limit of a running job is shown where the end of an ended one is.
    assert (running.node, running.reason, running.ended_at) == ("n1", "", 0.0)


def test_the_end_of_a_job_that_the_controller_remembers_is_kept() -> None:
    (ended,) = parse_squeue("7|k|NODE_FAIL|n1|1795971398|1795971400|NodeFail\n")
    assert ended.ended_at == 1795971400.0


@pytest.mark.parametrize("shown", ["7_[0-2,5%4]", "7_[0-2,5]"])
def test_a_range_of_tasks_is_expanded(shown: str) -> None:
    records = parse_squeue(f"{shown}|k|PENDING||1|N/A|Priority\n")
    assert [one.job for one in records] == ["7_0", "7_1", "7_2", "7_5"]


def test_what_is_left_of_an_array_of_which_every_other_task_ended_is_expanded() -> None:
    records = parse_squeue("7_[0-4:2,9%20]|k|PENDING||1|N/A|Priority\n")
    assert [one.job for one in records] == ["7_0", "7_2", "7_4", "7_9"]


@pytest.mark.parametrize("text", ["7|k|PENDING\n", "slurm_load_jobs error: timed out\n", "a|b|c|d|e|f|g|h\n"])
def test_an_answer_of_another_shape_is_an_error_and_not_an_empty_queue(text: str) -> None:
    with pytest.raises(InfrastructureError):
        parse_squeue(text)
    with pytest.raises(InfrastructureError):
        parse_sacct(text)


def test_sacct_additions_to_the_state_become_the_reason_and_steps_are_left_out() -> None:
    text = "7|k|CANCELLED by 1000|None assigned|1|2\n7.batch|batch|CANCELLED|n1|1|2\n"
    (cancelled,) = parse_sacct(text)
    assert (cancelled.state, cancelled.reason, cancelled.node) == ("CANCELLED", "CANCELLED by 1000", "")


def test_the_newest_record_of_a_job_counts() -> None:
    found = newest([record("7", 20.0, "COMPLETED"), record("7", 10.0, "PREEMPTED")], since=0.0)
    assert found["7"].state == "COMPLETED"


def test_a_record_from_before_the_submission_is_that_of_another_job() -> None:
    assert newest([record("7", 10.0, "COMPLETED")], since=11.0) == {}


def test_questions_are_batched_by_name() -> None:
    commands = Commands(squeue="", sacct="")
    slurm = Slurm(commands)
    names = [f"k{number}" for number in range(2 * NAMES_PER_QUESTION + 1)]
    slurm.queue(names)
    slurm.accounting(names, 5.0)
    assert [command[0] for command in commands.asked] == ["squeue"] * 3 + ["sacct"] * 3
    asked = [part for command in commands.asked for part in command if part.startswith("--name=")]
    assert sorted(name for part in asked for name in part.removeprefix("--name=").split(",")) == sorted(2 * names)
    assert "--duplicates" in commands.asked[-1]
    # A controller whose clock is ahead has jobs that began after this host's now.
    assert f"--starttime=now-{5 + int(CLOCK_SLACK_S)}seconds" in commands.asked[-1]
    assert f"--endtime=now+{int(CLOCK_SLACK_S)}seconds" in commands.asked[-1]
    assert "--states=all" in commands.asked[0]


@pytest.mark.parametrize("now", [1796083199.0, 1796083201.0, 1792888200.0])
def test_a_period_across_midnight_or_a_change_of_the_clock_names_no_day_and_no_hour(now: float) -> None:
    """What sacct takes for today begins at midnight: a job of yesterday would not be in it."""
    commands = Commands(sacct="")
    submitted_at = now - 600
    Slurm(commands).accounting(["k"], now - submitted_at)
    (command,) = commands.asked
    (start,) = [part.removeprefix("--starttime=now-").removesuffix("seconds") for part in command if "start" in part]
    assert start.isdecimal()
    assert now - int(start) <= submitted_at - CLOCK_SLACK_S


def test_the_array_limit_is_the_controllers() -> None:
    assert Slurm(Commands(scontrol="MaxArraySize            = 1001\nMaxJobCount = 5\n")).array_limit() == 1001
    assert Slurm(Commands(scontrol="nothing of the kind\n")).array_limit() == DEFAULT_ARRAY_LIMIT
    assert Slurm(Commands(scontrol="MaxArraySize = 0\n")).array_limit() == 1


@pytest.mark.parametrize(
    ("plugin", "keeps"),
    [
        ("accounting_storage/slurmdbd", True),
        ("accounting_storage/other", True),
        ("accounting_storage/none", False),
        ("(null)", False),
        ("", False),
    ],
)
def test_whether_a_cluster_keeps_accounts_is_the_controllers_word(plugin: str, keeps: bool) -> None:
    text = f"AccountingStorageHost   = n1\nAccountingStorageType   = {plugin}\nMaxJobCount = 5\n"
    assert Slurm(Commands(scontrol=text)).keeps_accounts() is keeps


def test_a_controller_that_does_not_say_whether_it_keeps_accounts_is_an_error() -> None:
    with pytest.raises(InfrastructureError):
        Slurm(Commands(scontrol="MaxJobCount = 5\n")).keeps_accounts()


def test_only_listed_variables_reach_a_command() -> None:
    environment = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
        "SLURM_JOB_ID": "1",
        "SBATCH_PARTITION": "debug",
        "PYTHONPATH": "/home/me",
        "CUDA_VISIBLE_DEVICES": "3",
        "LD_LIBRARY_PATH": "/opt",
    }
    assert clean_environment(environment) == {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}
    assert clean_environment(environment, ["LD_LIBRARY_PATH"])["LD_LIBRARY_PATH"] == "/opt"


def test_a_command_is_asked_for_epoch_seconds_and_gets_no_foreign_variables(tmp_path: Path) -> None:
    install(tmp_path, "squeue", 'echo "$SLURM_TIME_FORMAT|$SLURM_CPU_BIND|$SBATCH_PARTITION"')
    environment = {"PATH": f"{tmp_path}:/bin:/usr/bin", "SLURM_CPU_BIND": "x", "SBATCH_PARTITION": "y"}
    assert run_command(["squeue"], environment).strip() == "%s||"
    install(tmp_path, "squeue", 'echo "$SLURM_BITSTR_LEN"')
    assert run_command(["squeue"], environment).strip() == "0"


def test_a_missing_program_a_failure_and_silence_are_errors(tmp_path: Path) -> None:
    environment = {"PATH": f"{tmp_path}:/bin:/usr/bin"}
    with pytest.raises(InfrastructureError, match="not installed"):
        run_command([str(tmp_path / "squeue")], environment)
    install(tmp_path, "squeue", "echo first >&2; echo 'Socket timed out' >&2; exit 1")
    with pytest.raises(InfrastructureError) as failure:
        run_command([str(tmp_path / "squeue")], environment)
    assert failure.value.why == "Socket timed out"
    assert failure.value.exit_code == 6
    install(tmp_path, "squeue", "exec sleep 30")
    with pytest.raises(InfrastructureError, match="did not answer"):
        run_command([str(tmp_path / "squeue")], environment, timeout_s=0.1)


def test_a_failing_squeue_is_an_error_and_not_an_empty_queue(tmp_path: Path) -> None:
    install(tmp_path, "squeue", "exit 1")
    slurm = local_slurm({**os.environ, "PATH": f"{tmp_path}:/bin:/usr/bin"})
    with pytest.raises(InfrastructureError):
        slurm.queue(["k"])


def test_what_the_controller_shows_of_an_array_becomes_a_record_for_each_task() -> None:
    rest = "JobName=k UserId=me(1) JobState={0} Reason={1} Dependency=(null) SubmitTime=100 EndTime={2} NodeList={3} \n"
    text = (
        "JobId=7 ArrayJobId=7 ArrayTaskId=1-2%5 ArrayTaskThrottle=5 "
        + rest.format("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", "Unknown", "(null)")
        + "JobId=8 ArrayJobId=7 ArrayTaskId=0 "
        + rest.format("NODE_FAIL", "NodeFail", "140", "n1")
    )
    one, two, ended = parse_shown(text, "k")
    assert [one.job, two.job, ended.job] == ["7_1", "7_2", "7_0"]
    assert (one.reason, one.node, one.ended_at) == ("ReqNodeNotAvail, UnavailableNodes:n1", "", 0.0)
    assert (ended.state, ended.node, ended.ended_at, ended.source) == ("NODE_FAIL", "n1", 140.0, "scontrol")


def test_the_controllers_own_words_are_told_from_a_job_that_it_does_not_know() -> None:
    def fail(why: str) -> Slurm:
        def run(_command: Sequence[str]) -> str:
            raise InfrastructureError("scontrol failed with exit code 1", why=why)

        return Slurm(run)

    assert fail("slurm_load_jobs error: Invalid job id specified").show("7", "k") == []
    with pytest.raises(InfrastructureError):
        fail("slurm_load_jobs error: Unable to contact slurm controller").show("7", "k")
    with pytest.raises(InfrastructureError, match="not understood"):
        Slurm(Commands(scontrol="No jobs in the system\n")).show("7", "k")


def test_a_cluster_that_is_named_is_asked_by_every_command_that_can_name_it() -> None:
    commands = Commands(squeue="", sacct="", scontrol="ClusterName = there\n", scancel="", sinfo="idle\n", sacctmgr="")
    slurm = Slurm(commands, "there")
    slurm.queue(["k"])
    slurm.accounting(["k"], 5.0)
    slurm.cancel(["7"])
    slurm.node_states("n1")
    assert slurm.cluster_name() == "there"
    assert all(command[1] == "--clusters=there" for command in commands.asked)
    slurm.ask(["sacctmgr", "show", "qos"])
    assert commands.asked[-1] == ["sacctmgr", "show", "qos"]


def test_a_look_asks_nothing_more_once_its_time_is_over() -> None:
    now = [0.0]
    look = Slurm(Commands(squeue=""), clock=lambda: now[0]).within(10.0)
    assert look.queue(["k"]) == []
    now[0] = 10.0
    with pytest.raises(InfrastructureError, match="squeue was not asked"):
        look.queue(["k"])


@pytest.mark.parametrize(
    ("said", "enforces"), [("none", {"none"}), ("associations,limits,qos", {"associations", "limits", "qos"})]
)
def test_what_a_controller_enforces_is_its_word(said: str, enforces: set[str]) -> None:
    assert parse_controller(f"AccountingStorageEnforce = {said}\n").enforces == enforces
    assert parse_controller("").enforces == {""}
