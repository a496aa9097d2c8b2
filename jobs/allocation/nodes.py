"""The nodes of an allocation as Slurm names them, and how a program is started on one of them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from ..common.endings import EndedError, Ending
from ..processes.signals import parse_scontrol

_SCONTROL_S = 30.0
_OF_ONE_STEP = ("SLURM_STEP", "SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_DISTRIBUTION", "SLURM_SRUN_", "SRUN_", "PMI")
"""What Slurm sets for the step that the parent runs in: another step must not take it over."""


def find_nodes(environment: Mapping[str, str], number: int) -> tuple[str, ...]:
    """Return the names of an allocation's nodes, this one first.

    Args:
        environment: The job's.
        number: How many are needed.

    Raises:
        EndedError: There are fewer, or nobody can say.
    """
    listed, own = environment.get("SLURM_JOB_NODELIST", ""), environment.get("SLURMD_NODENAME", "")
    if not listed or not own:
        raise EndedError(Ending.HARNESS_ERROR, f"{number} nodes are asked for, and only a Slurm job has several")
    names = _scontrol("show", "hostnames", listed).split()
    if len(names) < number or own not in names:
        raise EndedError(Ending.HARNESS_ERROR, f"the job has the nodes {listed}, this is {own}, {number} are asked for")
    return (own, *(name for name in names if name != own))[:number]


def find_address(node: str) -> str:
    """Return by what address Slurm itself reaches a node.

    Raises:
        EndedError: Nobody can say.
    """
    address = parse_scontrol(_scontrol("show", "node", "-o", node)).get("NodeAddr", "")
    return node if address in ("", "(null)") else address


def _scontrol(*arguments: str) -> str:
    command = ["scontrol", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SCONTROL_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise EndedError(Ending.NODE_FAIL, f"{' '.join(command)}: {error}") from error
    return done.stdout


def step_command(node: str, environment: Mapping[str, str], program: Sequence[str]) -> list[str]:
    """Return what starts a program on a node of this job, with the input and output of whoever starts it.

    Args:
        node: The node.
        environment: The job's.
        program: The program with its arguments.
    """
    cpus = environment.get("SLURM_CPUS_PER_TASK", "")
    return [
        "srun",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={node}",
        # The job's nodes are all taken, by the step that this is started from.
        "--overlap",
        "--unbuffered",
        "--quiet",
        *([f"--cpus-per-task={cpus}"] if cpus.isdecimal() else []),
        *program,
    ]


def step_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program on another node: the job's, without what is of this step alone."""
    return {name: value for name, value in environment.items() if not name.startswith(_OF_ONE_STEP)}
