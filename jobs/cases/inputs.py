"""Canonical inputs: the state that both sides of a case start from, and the batches of its updates.

The pilot of the baseline records them, once; they are named by their digests and kept, so that any case can be run
again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.endings import EndedError, Ending, is_no_space
from ..common.layout import InputsFolder
from ..common.plan import STATE, Numerical, Workload
from ..common.storage import read_regular, sha256_bytes, sha256_file, sync_folder, write_new
from ..common.strict import Fields, dump_json, parse_json
from ..tensors.recording import TensorFile

BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateInput:
    """One quantity of one worker."""

    quantity: str
    worker: int
    sha256: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """What one update is made on."""

    update: int
    sha256: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The canonical inputs of one workload."""

    workload: str
    config_sha256: str
    moments: str
    step: int
    """Updates that the state has behind it."""
    state: tuple[StateInput, ...]
    batches: tuple[BatchInput, ...]

    def to_bytes(self) -> bytes:
        """Return the document."""
        return dump_json(
            {
                "format": "inputs/1",
                "workload": self.workload,
                "config_sha256": self.config_sha256,
                "moments": self.moments,
                "step": self.step,
                "state": [
                    {"quantity": one.quantity, "worker": one.worker, "sha256": one.sha256, "bytes": one.num_bytes}
                    for one in self.state
                ],
                "batches": [
                    {"update": one.update, "sha256": one.sha256, "bytes": one.num_bytes} for one in self.batches
                ],
            }
        )


# --- reading ----------------------------------------------------------------------------------------------------------


def _state(value: Any) -> StateInput:
    fields = Fields(value, "inputs.state")
    found = StateInput(
        quantity=fields.text("quantity"),
        worker=fields.count("worker"),
        sha256=fields.text("sha256"),
        num_bytes=fields.count("bytes"),
    )
    fields.done()
    return found


def _batch(value: Any) -> BatchInput:
    fields = Fields(value, "inputs.batches")
    found = BatchInput(
        update=fields.count("update", minimum=1), sha256=fields.text("sha256"), num_bytes=fields.count("bytes")
    )
    fields.done()
    return found


def parse_inputs(data: bytes) -> Inputs:
    """Parse inputs/<digest>.json.

    Raises:
        ValueError: It is no such document.
    """
    fields = Fields(parse_json(data), "inputs")
    if fields.text("format") != "inputs/1":
        raise ValueError("inputs: not of format inputs/1")
    inputs = Inputs(
        workload=fields.text("workload"),
        config_sha256=fields.text("config_sha256"),
        moments=fields.text("moments"),
        step=fields.count("step"),
        state=tuple(_state(value) for value in fields.items("state")),
        batches=tuple(_batch(value) for value in fields.items("batches")),
    )
    fields.done()
    return inputs


def check_inputs(inputs: Inputs, workload: Workload, rules: Numerical, warmup_updates: int) -> None:
    """Refuse inputs that are not those of a workload under some rules.

    Raises:
        ValueError: They are not.
    """
    if (inputs.workload, inputs.config_sha256) != (workload.name, workload.config_sha256):
        raise ValueError(f"inputs of {inputs.workload} with another configuration than {workload.name}'s")
    step = 0 if rules.moments == "fresh" else warmup_updates
    if (inputs.moments, inputs.step) != (rules.moments, step):
        raise ValueError(f"a state of {inputs.step} updates with {inputs.moments} moments, not {step}, {rules.moments}")
    if [one.update for one in inputs.batches] != list(range(1, rules.updates + 1)):
        raise ValueError(f"{len(inputs.batches)} batches, not one for each of {rules.updates} updates")
    workers = sorted({one.worker for one in inputs.state})
    expected = [(quantity, worker) for quantity in STATE[rules.moments] for worker in workers]
    if not workers or [(one.quantity, one.worker) for one in inputs.state] != expected:
        raise ValueError(f"a state with other entries than {', '.join(STATE[rules.moments])} of every worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalInputs:
    """Inputs whose files have been verified."""

    inputs: Inputs
    sha256: str
    folder: InputsFolder
    """Where the files are read from."""

    @property
    def step(self) -> int:
        """Updates that the state has behind it."""
        return self.inputs.step

    def state_files(self) -> list[tuple[str, int, Path]]:
        """Return quantity, worker and path of the state's files."""
        return [(one.quantity, one.worker, self.folder.tensors(one.sha256)) for one in self.inputs.state]

    def batch(self, update: int) -> Path:
        """Return the file of an update's batch."""
        return self.folder.tensors(self.inputs.batches[update - 1].sha256)


def read_document(folder: InputsFolder, sha256: str) -> Inputs:
    """Read the document of a digest.

    Raises:
        EndedError: It is not there, or not what the digest says.
        ValueError: It is no such document.
    """
    path = folder.document(sha256)
    try:
        data = read_regular(path)
    except OSError as error:
        raise EndedError(Ending.DATA_CHANGED, f"the canonical inputs {path} cannot be read: {error}") from error
    if sha256_bytes(data) != sha256:
        raise EndedError(Ending.DATA_CHANGED, f"the canonical inputs {path} have the SHA-256 {sha256_bytes(data)}")
    return parse_inputs(data)


def verify_files(inputs: Inputs, folder: InputsFolder, private: Path | None) -> InputsFolder:
    """Hash every file of some inputs; return the folder to read them from.

    Args:
        inputs: The inputs.
        folder: Where they are kept.
        private: A folder to copy them to, where the sides may not see the home; None to read them where they are.

    Raises:
        EndedError: A file is not there, or not what its digest says.
    """
    target = folder if private is None else InputsFolder(private)
    digests = [*(one.sha256 for one in inputs.state), *(one.sha256 for one in inputs.batches)]
    for sha256 in dict.fromkeys(digests):
        path = folder.tensors(sha256)
        try:
            if private is not None:
                shutil.copyfile(path, target.tensors(sha256), follow_symlinks=False)
            found = sha256_file(target.tensors(sha256))
        except OSError as error:
            if is_no_space(error):
                raise
            raise EndedError(Ending.DATA_CHANGED, f"the canonical input {path} cannot be read: {error}") from error
        if found != sha256:
            raise EndedError(Ending.DATA_CHANGED, f"the canonical input {path} has the SHA-256 {found}")
    return target


# --- writing ----------------------------------------------------------------------------------------------------------


def keep_file(file: TensorFile, folder: InputsFolder) -> None:
    """Give a file that was written the name of its digest; one that is there already is verified.

    Raises:
        EndedError: What is there is not what its name says.
    """
    path = folder.tensors(file.sha256)
    try:
        os.link(file.path, path)
    except FileExistsError:
        found = sha256_file(path)
        if found != file.sha256:
            raise EndedError(Ending.DATA_CHANGED, f"the canonical input {path} has the SHA-256 {found}") from None
    finally:
        file.path.unlink()
    sync_folder(folder.root)


def keep_document(inputs: Inputs, folder: InputsFolder) -> bytes:
    """Write the document under its digest; return its bytes.

    Raises:
        EndedError: What is there already is not what its name says.
    """
    data = inputs.to_bytes()
    path = folder.document(sha256_bytes(data))
    try:
        write_new(path, data)
    except FileExistsError:
        if read_regular(path) != data:
            raise EndedError(Ending.DATA_CHANGED, f"{path} is not what its name says") from None
    return data


def describe_state(quantity: str, files: Sequence[TensorFile]) -> list[StateInput]:
    """Return the entries of one quantity."""
    return [
        StateInput(quantity=quantity, worker=file.worker, sha256=file.sha256, num_bytes=file.num_bytes)
        for file in files
    ]
