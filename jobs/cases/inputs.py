"""Canonical inputs: the state that both sides of a case start from, and the batches of its updates.

The pilot of the baseline records them, once; they are named by their digests and kept, so that any case can be run
again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..common.endings import EndedError, Ending, is_no_space
from ..common.layout import InputsFolder
from ..common.patience import Patience
from ..common.plan import STATE, Numerical, Workload
from ..common.storage import read_regular, sha256_bytes, sync_folder, write_new
from ..common.strict import Fields, dump_json, parse_json
from ..common.verified import VerifiedFile, verify
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

    @property
    def digests(self) -> list[str]:
        """Digests of all files, each once."""
        found = [*(one.sha256 for one in self.state), *(one.sha256 for one in self.batches)]
        return list(dict.fromkeys(found))

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
    files: Mapping[str, VerifiedFile]
    """By digest."""

    @property
    def step(self) -> int:
        """Updates that the state has behind it."""
        return self.inputs.step

    def state_files(self) -> list[tuple[str, int, VerifiedFile]]:
        """Return quantity, worker and file of the state."""
        return [(one.quantity, one.worker, self.files[one.sha256]) for one in self.inputs.state]

    def batch(self, update: int) -> VerifiedFile:
        """Return the file of an update's batch."""
        return self.files[self.inputs.batches[update - 1].sha256]

    def verify_again(self) -> None:
        """Hash every file once more, when the sides are gone.

        Raises:
            EndedError: One is not what it was.
        """
        for file in self.files.values():
            if change := file.find_change():
                raise EndedError(Ending.INTERFERENCE, f"while the sides ran, {change}")


def _unusable(path: Path, found: str) -> EndedError:
    text = f"the canonical input {path} {found}; nothing of a side has run, and the fault is neither side's"
    return EndedError(Ending.LOST, f"{text}: restore the file from a copy of the home, then submit again")


def read_document(folder: InputsFolder, sha256: str, patience: Patience) -> Inputs:
    """Read the document of a digest.

    Raises:
        EndedError: It is not there, or not what the digest says.
        ValueError: It is no such document.
    """
    path = folder.document(sha256)
    try:
        data = patience.read(path, read_regular)
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error})") from error
    if sha256_bytes(data) != sha256:
        raise _unusable(path, f"has the SHA-256 {sha256_bytes(data)}")
    return parse_inputs(data)


def verify_files(inputs: Inputs, folder: InputsFolder, private: Path | None, patience: Patience) -> CanonicalInputs:
    """Hash every file of some inputs.

    Args:
        inputs: The inputs.
        folder: Where they are kept.
        private: A folder to copy them to, where the sides may not see the home; None to read them where they are.
        patience: Waits for what is not there yet.

    Raises:
        EndedError: A file is not there, or not what its digest says.
    """
    target = folder if private is None else InputsFolder(private)
    files: dict[str, VerifiedFile] = {}
    for sha256 in inputs.digests:
        path = folder.tensors(sha256)
        try:
            if private is not None:
                patience.read(path, partial(shutil.copyfile, dst=target.tensors(sha256), follow_symlinks=False))
            files[sha256] = patience.read(target.tensors(sha256), verify)
        except OSError as error:
            if is_no_space(error):
                raise
            raise _unusable(path, f"cannot be read ({error})") from error
        if files[sha256].sha256 != sha256:
            raise _unusable(path, f"has the SHA-256 {files[sha256].sha256}")
    return CanonicalInputs(inputs=inputs, files=files)


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
        found = verify(path).sha256
        if found != file.sha256:
            raise _spoilt(path, f"has the SHA-256 {found}") from None
    finally:
        file.path.unlink()
    sync_folder(folder.root)


def keep_again(source: Path, path: Path, sha256: str) -> None:
    """Give a file that was made again its place; one that is there already is verified.

    Raises:
        EndedError: What is there is not what its name says.
    """
    try:
        os.link(source, path)
    except FileExistsError:
        if (found := verify(path).sha256) != sha256:
            raise _spoilt(path, f"has the SHA-256 {found}") from None


def verify_kept(digests: Iterable[str], folder: InputsFolder) -> None:
    """Hash the files that a side's pilot has recorded once more, when the side is gone.

    Raises:
        EndedError: One is not what its name says.
    """
    for sha256 in digests:
        path = folder.tensors(sha256)
        try:
            found = verify(path).sha256
        except OSError as error:
            raise EndedError(Ending.INTERFERENCE, f"the canonical input {path}, just recorded: {error}") from error
        if found != sha256:
            text = f"the canonical input {path} was changed after it was recorded: its SHA-256 is {found}"
            raise EndedError(Ending.INTERFERENCE, text)


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
            raise _spoilt(path, "is not what its name says") from None
    return data


def _spoilt(path: Path, found: str) -> EndedError:
    text = f"the canonical input {path}, which stood there already, {found}: restore it from a copy of the home"
    return EndedError(Ending.LOST, f"{text}, or remove it if there is none, so that it is recorded again; then submit")


def describe_state(quantity: str, files: Sequence[TensorFile]) -> list[StateInput]:
    """Return the entries of one quantity."""
    return [
        StateInput(quantity=quantity, worker=file.worker, sha256=file.sha256, num_bytes=file.num_bytes)
        for file in files
    ]
