"""The way to a scheduler: submitit, in a child process, with command lines for payloads.

submitit carries; it is never evidence. What runs in the job is the frozen harness: on Slurm from the batch script, here
in place of submitit's process. No result of submitit's is read, no state of its is trusted, nothing is requeued.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from campaign import files
from campaign.errors import EvidenceError, InfrastructureError, StateError
from campaign.paths import HomePaths, TransportPaths
from campaign.planning.walltime import notice_seconds
from campaign.submission.acts import Cluster, Submission
from campaign.watching.scheduler import clean_environment

CHILD = Path(__file__).with_name("child.py")
SUBMIT_TIMEOUT_S = 600.0
"""An overloaded controller may keep sbatch waiting for minutes before it takes or refuses a job."""
TEST_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one submission asks of submitit."""

    cluster: Cluster
    folder: str
    minutes: int
    """Time limit of each job."""
    parameters: dict[str, Any]
    """What the executor is updated with."""
    payloads: tuple[tuple[str, ...], ...]
    """The command line of each job, in the order of the array."""

    def to_json(self) -> dict[str, Any]:
        """Return it as the child reads it."""
        return {**asdict(self), "payloads": [list(argv) for argv in self.payloads]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a submission."""

    job: str
    array: bool
    process_start: int
    error: str
    """Why there is no job; empty if there is one."""


class Transport(Protocol):
    """Something that hands a request to a scheduler."""

    def submit(self, request: Request, key: str) -> Answer:
        """Hand over; an answer with an error does not yet prove that no job exists."""

    def objection(self, request: Request) -> str:
        """Return what Slurm has against a request, without submitting it; empty if nothing is known against it."""

    def show(self, request: Request) -> str:
        """Return the batch script that would be submitted; write nothing."""


def payload(harness_python: str, paths: HomePaths, bytecode: Path, plans: Sequence[Path]) -> tuple[str, ...]:
    """Return the command line of a job: the frozen harness on its allocations.

    Args:
        harness_python: The interpreter.
        paths: The home.
        bytecode: Folder for compiled code, used by these jobs alone: code planted beside a source is not loaded.
        plans: The allocations that the job makes, in this order.
    """
    options = ("-P", "-s", "-X", f"pycache_prefix={bytecode}")
    return (harness_python, *options, str(paths.launcher), "allocation", *map(str, plans))


def read_command(paths: HomePaths, submission: Submission, index: int, harness_python: str) -> tuple[str, ...]:
    """Return the command line of the job of one allocation: as it was handed over, else as it would be.

    Args:
        paths: The home.
        submission: The allocation's submission.
        index: The allocation's place in it.
        harness_python: The frozen interpreter.
    """
    folder = paths.submission(submission.key)
    place = 0 if submission.intent.cluster == "local" else index  # one local job makes all allocations
    try:
        return tuple(str(part) for part in files.read_json(folder.request)["payloads"][place])
    except (OSError, EvidenceError, LookupError, TypeError):  # a scheduler was never asked, or the file is no proof
        plans = [paths.allocation(one.allocation).plan for one in submission.intent.allocations]
        own = plans if submission.intent.cluster == "local" else [plans[index]]
        return payload(harness_python, paths, folder.bytecode, own)


def scale_gpus(gres: str, number: int) -> str:
    """Return ``gres`` with so many times the GPUs: what it asks for is for one process, all else for one node.

    Args:
        gres: Such as ``gpu:h100:1,nvme:200``.
        number: Processes on each node.
    """
    parts = [part.split(":") for part in gres.split(",")]
    for part in parts:
        if part[0] == "gpu" and number > 1:
            part[1:] = [*part[1:-1], str(int(part[-1]) * number)] if part[-1].isdecimal() else [*part[1:], str(number)]
    return ",".join(":".join(part) for part in parts)


def slurm_parameters(table: Mapping[str, Any], key: str, topology: tuple[int, int] = (1, 1)) -> dict[str, Any]:
    """Return what submitit's Slurm executor is given.

    Args:
        table: The frozen ``[slurm]`` table. CPUs, memory and the GPUs of its ``gres`` are for one process.
        key: The submission's key, which becomes the job's name and comment.
        topology: Nodes and processes of the workloads.
    """
    minutes, (nodes, processes) = int(table["minutes"]), topology
    per_node = processes // nodes
    extra: dict[str, Any] = {"no-requeue": True}
    if table.get("reservation"):
        extra["reservation"] = table["reservation"]
    if table.get("cluster"):
        extra["clusters"] = table["cluster"]
    parameters: dict[str, Any] = {
        "job_name": key,
        "comment": key,
        "time": minutes,
        "nodes": nodes,
        # The harness, which starts the processes of its node itself and reaches the other nodes.
        "ntasks_per_node": 1,
        "cpus_per_task": int(table["cpus"]) * per_node,
        "signal_delay_s": notice_seconds(minutes),
        "array_parallelism": int(table["max_running"]),
        "stderr_to_stdout": True,
        # submitit's own default key is refused by sites that check them.
        "wckey": table.get("wckey"),
        # submitit's worker would otherwise import from the folder in which the command was given.
        "setup": ["export PYTHONSAFEPATH=1", *table.get("setup", ())],
        "additional_parameters": extra,
    }
    if processes > 1:
        # Where tasks are bound to processors, srun gives one task one of them unless it is told, whatever sbatch was.
        one_node = ["--nodes=1", "--ntasks=1"] if nodes > 1 else []
        parameters["srun_args"] = [*one_node, f"--cpus-per-task={parameters['cpus_per_task']}"]
    for name in ("partition", "account", "qos", "constraint", "gres", "nodelist", "exclude"):
        if table.get(name):
            parameters[name] = scale_gpus(table[name], per_node) if name == "gres" else table[name]
    if table.get("exclusive"):
        parameters["exclusive"] = True
    if table.get("mem_gb"):
        parameters["mem"] = f"{int(table['mem_gb']) * per_node}GB"
    return parameters


def local_parameters(table: Mapping[str, Any], *, device: str, visible: str, processes: int = 1) -> dict[str, Any]:
    """Return what submitit's local executor is given.

    Args:
        table: The frozen ``[local]`` table.
        device: ``cpu`` or ``cuda``.
        visible: The caller's CUDA_VISIBLE_DEVICES; the first device is used, device 0 where it is empty.
        processes: Most processes of a side, each of which gets a device of its own.

    Raises:
        StateError: The first visible devices are not given by number, or are too few.
    """
    minutes = int(table["minutes"])
    parameters: dict[str, Any] = {
        "timeout_min": minutes,
        "signal_delay_s": notice_seconds(minutes),
        "stderr_to_stdout": True,
    }
    if device == "cuda":
        # Without these submitit hides every GPU from a local job.
        listed = [one.strip() for one in visible.split(",") if one.strip()] or list(map(str, range(processes)))
        if not all(one.isdecimal() for one in listed[:processes]):
            raise StateError(
                f"CUDA_VISIBLE_DEVICES={visible} cannot be used by a local submission",
                why="submitit takes devices by number",
                hint="set CUDA_VISIBLE_DEVICES to the device's number",
            )
        if len(listed) < processes:
            raise StateError(
                f"{processes} processes need {processes} devices, CUDA_VISIBLE_DEVICES={visible} names {len(listed)}",
                hint="name more of them, or submit other workloads with --only",
            )
        parameters |= {"gpus_per_node": processes, "visible_gpus": [int(one) for one in listed[:processes]]}
    return parameters


def job_environment(environment: Mapping[str, str], pass_environment: Sequence[str]) -> dict[str, str]:
    """Return the variables that a submission and its jobs start from.

    Slurm adds its own to each job, and `[slurm] setup` may add more; all else of the caller's stays behind.
    """
    return {**clean_environment(environment, pass_environment), "PYTHONSAFEPATH": "1"}


def read_answer(paths: TransportPaths) -> Answer | None:
    """Return what the child answered; None if it has not."""
    if not paths.answer.exists():
        return None
    value = files.read_json(paths.answer)
    return Answer(
        job=str(value.get("job", "")),
        array=bool(value.get("array", False)),
        process_start=int(value.get("process_start", 0)),
        error=str(value.get("error", "")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmititTransport:
    """submitit in a child process."""

    paths: HomePaths
    environment: Mapping[str, str]
    """From `job_environment`."""

    def submit(self, request: Request, key: str) -> Answer:
        """Hand over; see `Transport`.

        Raises:
            InfrastructureError: The child gave no answer; whether there is a job is open.
        """
        folder = self.paths.submission(key)
        folder.root.mkdir(parents=True, exist_ok=True)
        folder.answer.unlink(missing_ok=True)
        files.replace(folder.request, files.dump_json(request.to_json()))
        with folder.log.open("ab") as log:
            # A session of its own: neither Ctrl-C nor the end of the terminal reaches the child, or a local job.
            child = subprocess.Popen(
                [*_child(), "submit", str(folder.request), str(folder.answer)],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            child.wait(SUBMIT_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise InfrastructureError(
                f"the submission did not end within {SUBMIT_TIMEOUT_S:.0f} s",
                where=str(folder.log),
                hint="campaign submit: it finds out whether the job exists",
            ) from error
        answer = read_answer(folder)
        if answer is None:
            raise InfrastructureError(
                f"the submission ended with exit code {child.returncode} and no answer",
                where=str(folder.log),
                hint="campaign submit: it finds out whether the job exists",
            )
        return answer

    def objection(self, request: Request) -> str:
        """Ask sbatch; see `Transport`. One that does not answer has said nothing."""
        script = self.show(request)
        try:
            done = subprocess.run(
                ["sbatch", "--test-only"],
                env=dict(self.environment),
                input=script,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TEST_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stderr.strip() if done.returncode != 0 else ""

    def show(self, request: Request) -> str:
        """Return the batch script; see `Transport`."""
        done = subprocess.run(
            [*_child(), "show", "-"],
            env=dict(self.environment),
            input=json.dumps(request.to_json()),
            capture_output=True,
            text=True,
            timeout=SUBMIT_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or "no message").splitlines()[-1]
            raise InfrastructureError("submitit could not do what was asked", why=said)
        return done.stdout


def _child() -> list[str]:
    return [sys.executable, "-P", str(CHILD)]
