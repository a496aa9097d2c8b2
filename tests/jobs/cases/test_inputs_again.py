"""Canonical inputs that are not on the machine: made again to the same digests, or the case does not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import files
from jobs.cases.inputs import keep_again
from jobs.cases.inputs_again import are_there
from jobs.common.endings import EndedError
from jobs.common.layout import InputsFolder
from jobs.common.storage import sha256_bytes
from tests.support.detached import detach
from tests.support.matched import make_case, make_matched, record_inputs

STATE, BATCH = sha256_bytes(b"state"), sha256_bytes(b"batch")


def write_document(folder: InputsFolder) -> str:
    """Write the document of one state and two updates on the same batch; return its digest."""
    value = {
        "format": "inputs/1",
        "workload": "tiny",
        "config_sha256": "c" * 64,
        "moments": "fresh",
        "step": 0,
        "state": [{"quantity": "parameters", "worker": 0, "sha256": STATE, "bytes": 5}],
        "batches": [{"update": number, "sha256": BATCH, "bytes": 5} for number in (1, 2)],
    }
    data = files.dump_json(value)
    folder.document(sha256_bytes(data)).write_bytes(data)
    return sha256_bytes(data)


@pytest.mark.parametrize(
    ("names", "expected"), [((), False), ((STATE,), False), ((BATCH,), False), ((STATE, BATCH), True)]
)
def test_inputs_are_there_with_every_file_that_they_name(
    tmp_path: Path, names: tuple[str, ...], *, expected: bool
) -> None:
    folder = InputsFolder(tmp_path)
    digest = write_document(folder)
    for name in names:
        folder.tensors(name).write_bytes(b"x")
    assert are_there(folder, digest) is expected
    assert not are_there(folder, "0" * 64)


def test_what_stands_there_already_is_verified(tmp_path: Path) -> None:
    folder, made = InputsFolder(tmp_path), tmp_path / "made"
    made.write_bytes(b"state")
    keep_again(made, folder.tensors(STATE), STATE)
    keep_again(made, folder.tensors(STATE), STATE)
    assert folder.tensors(STATE).read_bytes() == b"state"
    folder.tensors(STATE).unlink()
    folder.tensors(STATE).write_bytes(b"other")
    with pytest.raises(EndedError, match="has the SHA-256"):
        keep_again(made, folder.tensors(STATE), STATE)


@pytest.mark.slow
def test_a_case_makes_its_inputs_again_or_does_not_run(tmp_path: Path) -> None:
    bench = make_matched(tmp_path)
    sha256 = record_inputs(bench)
    # As if the pilot had recorded another batch on its machine than this one makes.
    value = json.loads(bench.paths.inputs_listing(sha256).read_bytes())
    value["batches"][0]["sha256"] = "0" * 64
    other = files.dump_json(value)
    bench.paths.inputs_listing(files.sha256_bytes(other)).write_bytes(other)
    wrong, right = make_case("control_case", files.sha256_bytes(other)), make_case("control_case", sha256, number=2)
    bench.paths.allocation("a00001").root.rename(tmp_path / "pilot")
    machine = detach(bench, (wrong, right))
    recorded = {path.name: files.sha256_file(path) for path in machine.home.inputs.iterdir()}
    for path in machine.home.inputs.glob("*.safetensors"):
        path.unlink()

    done = machine.call()
    assert done.returncode == 0, done.stderr
    refused = machine.bench.receipt(wrong)
    assert (refused.ending, sha256 in refused.reason, wrong.inputs_sha256 in refused.reason) == (
        Ending.LOST,
        True,
        True,
    )
    made = machine.bench.receipt(right)
    assert (made.ending, made.reason) == (Ending.COMPLETED, "")
    assert made.case is not None
    assert made.case.made_inputs is True
    # Nothing but what the right case names, and each what its name says.
    assert {path.name: files.sha256_file(path) for path in machine.home.inputs.iterdir()} == recorded
