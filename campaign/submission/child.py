"""The process that talks to submitit: run as a script, in a scrubbed environment and a session of its own.

It stands alone (standard library and submitit) so that ``python -P child.py`` needs no import path. It is a process of
its own because a local job inherits what its submitter holds: terminal, process group, standard output and
environment. It goes on when the driver is killed, and leaves its answer in a file; the driver finds it there.

    child.py submit REQUEST ANSWER     hand the payloads to the scheduler
    child.py show -                    print the batch script of the request on standard input; nothing is written

On Slurm submitit writes the batch script and hands it to sbatch; the job itself runs a payload's command line from a
file that was there before, and neither submitit nor a pickle takes part in it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import submitit


def _executor(request: dict[str, Any]) -> Any:
    """Return the executor of the cluster that the request names; never one that is guessed from what is installed."""
    kinds = {"slurm": submitit.SlurmExecutor, "local": submitit.LocalExecutor}
    executor = kinds[request["cluster"]](folder=request["folder"])
    executor.update_parameters(**request["parameters"])
    return executor


def _start_of(pid: int) -> int:
    """Return a process's start time in clock ticks since boot; 0 if it is already gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text[text.rindex(")") + 1 :].split()[19])


def _commands(request: dict[str, Any]) -> Path:
    """Return the folder of the payloads' command lines, each named by its place in the array."""
    return Path(request["folder"], "commands")


def _write_commands(request: dict[str, Any]) -> None:
    folder = _commands(request)
    folder.mkdir(parents=True, exist_ok=True)
    for index, argv in enumerate(request["payloads"]):
        temporary = folder / f"{index}.sh.writing"
        # exec keeps the job's process and its environment, from which the program learns which job it is.
        temporary.write_text(f"exec {shlex.join(argv)}\n", encoding="utf-8")
        temporary.replace(folder / f"{index}.sh")


def _slurm(request: dict[str, Any]) -> tuple[Any, str]:
    """Return the executor and the command of the batch script, which finds each task's own payload."""
    executor = _executor(request)
    if len(request["payloads"]) > 1:
        executor.parameters["map_count"] = len(request["payloads"])
    return executor, f'sh {shlex.quote(str(_commands(request)))}/"${{SLURM_ARRAY_TASK_ID:-0}}.sh"'


def _submit_to_slurm(request: dict[str, Any]) -> dict[str, Any]:
    _write_commands(request)
    executor, command = _slurm(request)
    job = executor._submit_command(command)  # noqa: SLF001 - submitit's own way of handing a command to sbatch
    return {"job": job.job_id, "array": len(request["payloads"]) > 1, "process_start": 0}


def _submit_here(request: dict[str, Any]) -> dict[str, Any]:
    """Start the one job that makes all allocations; what is pickled for it are plain strings."""
    (argv,) = request["payloads"]
    job = _executor(request).submit(os.execv, argv[0], argv)
    return {"job": job.job_id, "array": False, "process_start": _start_of(int(job.job_id))}


def submit(request: dict[str, Any]) -> dict[str, Any]:
    """Submit all payloads: one job, or one array in the order of the request."""
    return _submit_to_slurm(request) if request["cluster"] == "slurm" else _submit_here(request)


def show(request: dict[str, Any]) -> str:
    """Return the batch script that sbatch would get."""
    executor, command = _slurm(request)
    return str(executor._make_submission_file_text(command, "shown"))  # noqa: SLF001 - the very text


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
