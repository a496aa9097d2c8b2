from __future__ import annotations

from pathlib import Path

import pytest

from jobs.allocation.nodes import find_address, find_nodes, step_command, step_environment
from jobs.common.endings import EndedError, Ending

JOB = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURMD_NODENAME": "n2"}
SCONTROL = """#!/bin/sh
case "$*" in
"show hostnames n[1-3]") printf 'n1\\nn2\\nn3\\n' ;;
"show node -o n1") echo "NodeName=n1 NodeAddr=10.0.0.1 NodeHostName=h1" ;;
"show node -o n2") echo "NodeName=n2 NodeAddr=(null)" ;;
"show node -o n3") echo "NodeName=n3" ;;
*) exit 1 ;;
esac
"""


@pytest.fixture(autouse=True)
def _scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_the_own_node_is_the_first_and_no_more_are_taken_than_needed() -> None:
    assert find_nodes(JOB, 3) == ("n2", "n1", "n3")
    assert find_nodes(JOB, 2) == ("n2", "n1")


@pytest.mark.parametrize(
    ("environment", "number", "ending"),
    [
        ({}, 2, Ending.HARNESS_ERROR),
        ({"SLURM_JOB_NODELIST": "n[1-3]"}, 2, Ending.HARNESS_ERROR),
        ({"SLURMD_NODENAME": "n2"}, 2, Ending.HARNESS_ERROR),
        (JOB, 4, Ending.HARNESS_ERROR),
        ({**JOB, "SLURMD_NODENAME": "n9"}, 2, Ending.HARNESS_ERROR),
        ({**JOB, "SLURM_JOB_NODELIST": "unknown"}, 2, Ending.NODE_FAIL),
    ],
)
def test_too_few_nodes_and_a_job_that_is_not_on_them_are_refused(
    environment: dict[str, str], number: int, ending: Ending
) -> None:
    with pytest.raises(EndedError) as caught:
        find_nodes(environment, number)
    assert caught.value.ending is ending


def test_a_node_is_reached_at_the_address_that_slurm_has_or_by_its_name() -> None:
    assert [find_address(node) for node in ("n1", "n2", "n3")] == ["10.0.0.1", "n2", "n3"]
    with pytest.raises(EndedError, match="show node -o n4") as caught:
        find_address("n4")
    assert caught.value.ending is Ending.NODE_FAIL


def test_a_step_takes_the_jobs_processors_and_nothing_of_the_step_that_starts_it() -> None:
    assert "--cpus-per-task=4" in step_command("n1", {"SLURM_CPUS_PER_TASK": "4"}, ["program"])
    command = step_command("n1", {"SLURM_CPUS_PER_TASK": "4,x"}, ["program", "argument"])
    assert not [option for option in command if option.startswith("--cpus")]
    assert "--nodelist=n1" in command
    assert command[-2:] == ["program", "argument"]
    kept = {"SLURM_JOB_ID": "7", "PATH": "/bin"}
    of_step = {
        "SLURM_STEP_ID": "0",
        "SLURM_CPU_BIND": "x",
        "SLURM_CPU_BIND_TYPE": "x",
        "SRUN_DEBUG": "1",
        "PMIX_ID": "1",
    }
    assert step_environment({**kept, **of_step}) == kept
