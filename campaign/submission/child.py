"""The process that talks to submitit: run as a script, in a scrubbed environment and a session of its own.

It stands alone (standard library and submitit) so that ``python -P child.py`` needs no import path. It is a process of
its own because a local job inherits what its submitter holds: terminal, process group, standard output and
environment. It goes on when the driver is killed, and leaves its answer in a file; the driver finds it there.

    child.py submit REQUEST ANSWER     hand the payloads to the scheduler
    child.py show -                    print the batch script of the request on standard input; nothing is written
    child.py payloads REQUEST JOB      write the payloads of a job whose submitter died before it could
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import DelayedSubmission, JobPaths


def _executor(request: dict[str, Any]) -> Any:
    """Return the executor of the cluster that the request names; never one that is guessed from what is installed."""
    kinds = {"slurm": submitit.SlurmExecutor, "local": submitit.LocalExecutor}
    executor = kinds[request["cluster"]](folder=request["folder"])
    executor.update_parameters(**request["parameters"])
    return executor


def _payload(argv: list[str]) -> tuple[Any, ...]:
    """Return the call that a job makes: it replaces submitit's process by the program, and pickles plain strings only.

    execv keeps the environment of the job, from which the program learns which job it is.
    """
    return os.execv, argv[0], argv


def _start_of(pid: int) -> int:
    """Return a process's start time in clock ticks since boot; 0 if it is already gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text[text.rindex(")") + 1 :].split()[19])


def submit(request: dict[str, Any]) -> dict[str, Any]:
    """Submit all payloads: one job, or one array in the order of the request."""
    executor = _executor(request)
    with executor.batch():
        jobs = [executor.submit(*_payload(argv)) for argv in request["payloads"]]
    job, _, index = jobs[0].job_id.partition("_")
    expected = [f"{job}_{number}" for number in range(len(jobs))] if index else [job]
    found = [one.job_id for one in jobs]
    if found != expected:
        raise RuntimeError(f"the jobs {found} are not the array {expected}")
    start = _start_of(int(job)) if request["cluster"] == "local" else 0
    return {"job": job, "array": bool(index), "process_start": start}


def show(request: dict[str, Any]) -> str:
    """Return the batch script that sbatch would get."""
    executor = _executor(request)
    if len(request["payloads"]) > 1:
        executor.parameters["map_count"] = len(request["payloads"])
    return str(executor._make_submission_file_text(executor._submitit_command_str, "shown"))  # noqa: SLF001  # the very text


def write_payloads(request: dict[str, Any], job: str) -> None:
    """Write the payloads that a job waits for, where they are missing."""
    payloads = request["payloads"]
    names = [f"{job}_{index}" for index in range(len(payloads))] if len(payloads) > 1 else [job]
    for name, argv in zip(names, payloads, strict=True):
        target = JobPaths(request["folder"], name).submitted_pickle
        if not target.exists():
            delayed = DelayedSubmission(*_payload(argv))
            delayed.set_timeout(request["minutes"], 0)
            temporary = target.with_suffix(".writing")
            delayed.dump(temporary)
            temporary.replace(target)


def _answer(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_name(path.name + ".writing")
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(value, stream, sort_keys=True)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def main(arguments: list[str]) -> int:
    """Run one verb; see the module."""
    verb, request_path, *rest = arguments
    request = json.loads(sys.stdin.read() if request_path == "-" else Path(request_path).read_bytes())
    if verb == "show":
        sys.stdout.write(show(request))
        return 0
    if verb == "payloads":
        write_payloads(request, rest[0])
        return 0
    if verb != "submit":
        raise ValueError(verb)
    try:
        value = submit(request)
    except Exception as error:  # noqa: BLE001  # whatever submitit or sbatch raises is the answer
        _answer(Path(rest[0]), {"error": f"{type(error).__name__}: {error}"})
        return 1
    _answer(Path(rest[0]), value)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
