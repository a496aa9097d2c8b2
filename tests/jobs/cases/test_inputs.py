"""Canonical inputs: their files by digest, what is refused, and files that other readers take."""

from __future__ import annotations

import json
import shutil
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from campaign import documents
from jobs.cases.inputs import (
    BatchInput,
    Inputs,
    StateInput,
    check_inputs,
    keep_document,
    keep_file,
    parse_inputs,
    read_document,
    verify_files,
    verify_kept,
)
from jobs.common.endings import EndedError, Ending
from jobs.common.layout import InputsFolder
from jobs.common.patience import MOST_WAIT_S, Patience
from jobs.common.plan import Numerical, Workload, parse_protocol
from jobs.common.storage import sha256_bytes
from jobs.common.verified import VerifiedFile, verify
from jobs.processes.steps import Step, alone
from jobs.tensors.catalog import Catalog, Tensor
from jobs.tensors.lockstep import Chunk, plan_chunks, run_pass
from jobs.tensors.reading import OtherFileError, map_tensors
from jobs.tensors.recording import RecordedSource, Recorder, Recording, header_bytes, unused_name
from jobs.tensors.staging_files import StageFile, choose_folder, half_bytes
from tests.support.harness import RULES, make_protocol
from tests.support.matched import CONFIG, NUMERICAL

TENSORS = (
    Tensor(worker=0, name="a", dtype="float32", shape=(5, 3)),
    Tensor(worker=1, name="a", dtype="float32", shape=(5, 3)),
    Tensor(worker=0, name="flag", dtype="bool", shape=(3,)),
    Tensor(worker=0, name="empty", dtype="float32", shape=(0, 4)),
    Tensor(worker=0, name="scale", dtype="float64", shape=()),
)


def bytes_of(tensor: Tensor) -> bytes:
    return bytes(
        (7 * tensor.worker + place) % 2 if tensor.dtype == "bool" else place % 64 for place in range(tensor.num_bytes)
    )


class Memory:
    """Fills halves with bytes that are made up."""

    def __init__(self, stage: StageFile) -> None:
        self.stage = stage

    def fill(self, half: int, pieces: Chunk) -> Step[None]:
        data = self.stage.half(half)
        for piece in pieces:
            tensor = TENSORS[piece.index]
            begin = piece.start * tensor.item_bytes
            data[piece.offset : piece.offset + piece.num_bytes] = bytes_of(tensor)[begin : begin + piece.num_bytes]
        yield


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    stage = StageFile.create(4096, tmp_path)
    recorder = Recorder(TENSORS, stage, lambda worker: unused_name(tmp_path, f"w{worker}"), is_kept=True)
    run_pass(list(plan_chunks(TENSORS, 24)), [Memory(stage)], None, recorder.spool)
    stage.close()
    return Recording(what="parameters", catalog=Catalog(tensors=TENSORS), files=tuple(recorder.finish()))


def test_a_file_is_what_the_documents_say(recording: Recording) -> None:
    file = recording.files[0]
    data = file.path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    assert list(header) == ["a", "flag", "empty", "scale"]
    assert header["flag"] == {"dtype": "BOOL", "shape": [3], "data_offsets": [60, 63]}
    own = [tensor for tensor in TENSORS if tensor.worker == 0]
    assert data[8 + length :] == b"".join(map(bytes_of, own))
    assert (file.num_bytes, file.sha256) == (len(data), sha256_bytes(data))


def test_the_sides_read_what_was_written(recording: Recording) -> None:
    found = map_tensors(str(recording.files[0].path), torch)
    assert {name: (str(value.dtype), tuple(value.shape)) for name, value in found.items()} == {
        "a": ("torch.float32", (5, 3)),
        "flag": ("torch.bool", (3,)),
        "empty": ("torch.float32", (0, 4)),
        "scale": ("torch.float64", ()),
    }
    assert found["a"].numpy().tobytes() == bytes_of(TENSORS[0])


def test_what_was_recorded_comes_back_byte_by_byte(tmp_path: Path, recording: Recording) -> None:
    stage = StageFile.create(4096, tmp_path)
    source = RecordedSource(recording, stage)
    found: dict[int, bytes] = {}
    for number, chunk in enumerate(plan_chunks(TENSORS, 40)):
        alone(source.fill(number % 2, chunk))
        half = stage.half(number % 2)
        for piece in chunk:
            found[piece.index] = found.get(piece.index, b"") + half[piece.offset : piece.offset + piece.num_bytes]
    source.close()
    stage.close()
    assert found == {index: bytes_of(tensor) for index, tensor in enumerate(TENSORS) if tensor.numel}


def test_a_recording_that_ends_early_leaves_nothing(tmp_path: Path) -> None:
    stage = StageFile.create(4096, tmp_path)
    recorder = Recorder(TENSORS, stage, lambda worker: unused_name(tmp_path, f"w{worker}"), is_kept=True)
    with pytest.raises(ValueError, match="bytes were written"):
        recorder.finish()
    recorder.abandon()
    stage.close()
    assert list(tmp_path.iterdir()) == []


def test_names_of_other_alphabets_stand_in_a_header_of_ascii() -> None:
    header = header_bytes([Tensor(worker=0, name="größe", dtype="int64", shape=(1,))])
    assert json.loads(header[8:].decode("ascii")) == {"größe": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}


# --- staging ----------------------------------------------------------------------------------------------------------


def test_a_half_is_as_large_as_a_pass_and_bounded() -> None:
    assert [half_bytes(size, 1 << 20) for size in (0, 1, 4096, 4097, 1 << 30)] == [4096, 4096, 4096, 8192, 1 << 20]


def test_staging_prefers_shared_memory_with_room(tmp_path: Path) -> None:
    shared, private = tmp_path / "shared", tmp_path / "private"
    shared.mkdir()
    assert choose_folder(4096, private, is_confined=False, shared=shared) == shared
    assert choose_folder(4096, private, is_confined=True, shared=shared) == private
    assert choose_folder(1 << 60, private, is_confined=False, shared=shared) == private
    assert choose_folder(4096, private, is_confined=False, shared=tmp_path / "absent") == private


def test_a_staging_file_is_for_this_user_alone_and_goes_by_name_before_it_goes(tmp_path: Path) -> None:
    stage = StageFile.create(4096, tmp_path)
    found = stage.path.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_size) == (0o600, 8192)
    stage.forget_name()
    assert list(tmp_path.iterdir()) == []
    stage.half(1)[:3] = b"abc"
    assert bytes(stage.half(1)[:3]) == b"abc"
    stage.close()
    stage.close()


# --- by digest --------------------------------------------------------------------------------------------------------


def keep(recording: Recording, folder: InputsFolder) -> None:
    for file in recording.files:
        keep_file(file, folder)


def impatient() -> Patience:
    return Patience(lambda _: None, limit_s=0)


def make_inputs(recording: Recording) -> Inputs:
    state = [StateInput(quantity="parameters", worker=f.worker, sha256=f.sha256, num_bytes=1) for f in recording.files]
    batches = [BatchInput(update=k, sha256=recording.files[0].sha256, num_bytes=1) for k in (1, 2, 3)]
    return Inputs(
        workload="tiny",
        config_sha256=workload().config_sha256,
        moments="fresh",
        step=0,
        state=tuple(state),
        batches=tuple(batches),
    )


def protocol() -> documents.Protocol:
    return make_protocol(RULES, documents.Limits(), CONFIG, NUMERICAL)


def workload() -> Workload:
    return parse_protocol(protocol().to_bytes()).workloads["tiny"]


def rules(**changes: object) -> Numerical:
    found = parse_protocol(protocol().replace(numerical=NUMERICAL.replace(**changes)).to_bytes()).numerical
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> InputsFolder:
    (tmp_path / "inputs").mkdir()
    return InputsFolder(tmp_path / "inputs")


def test_files_stand_under_their_digests_once(recording: Recording, folder: InputsFolder) -> None:
    keep(recording, folder)
    names = {f"{file.sha256}.safetensors" for file in recording.files}
    assert {path.name for path in folder.root.iterdir()} == names


def test_what_stands_there_already_is_verified(tmp_path: Path, recording: Recording, folder: InputsFolder) -> None:
    for file in recording.files:
        folder.tensors(file.sha256).write_bytes(file.path.read_bytes())
    keep(recording, folder)
    again = Recording(what="x", catalog=recording.catalog, files=recording.files[:1])
    again.files[0].path.write_bytes(b"whatever")
    folder.tensors(again.files[0].sha256).write_bytes(b"not that")
    with pytest.raises(EndedError, match="has the SHA-256") as caught:
        keep(again, folder)
    assert caught.value.ending is Ending.LOST
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_a_document_is_read_back_by_its_digest(recording: Recording, folder: InputsFolder) -> None:
    inputs = make_inputs(recording)
    data = keep_document(inputs, folder)
    assert keep_document(inputs, folder) == data
    assert read_document(folder, sha256_bytes(data), impatient()) == inputs == parse_inputs(data)
    folder.document(sha256_bytes(data)).write_bytes(data + b" ")
    for sha256, message in ((sha256_bytes(data), "has the SHA-256"), ("0" * 64, "cannot be read")):
        with pytest.raises(EndedError, match=f"{sha256}.json {message}.*restore the file") as caught:
            read_document(folder, sha256, impatient())
        assert caught.value.ending is Ending.LOST
    with pytest.raises(EndedError, match="is not what its name says"):
        keep_document(inputs, folder)


def test_files_are_verified_where_they_are_or_in_a_private_copy(
    tmp_path: Path, recording: Recording, folder: InputsFolder
) -> None:
    inputs = make_inputs(recording)
    keep(recording, folder)
    private = tmp_path / "private"
    private.mkdir()
    where = verify_files(inputs, folder, None, impatient())
    assert where.batch(3).path == folder.tensors(inputs.batches[2].sha256)
    found = verify_files(inputs, folder, private, impatient())
    assert found.batch(3).path.parent == private
    assert found.batch(3).path.read_bytes() == folder.tensors(inputs.batches[2].sha256).read_bytes()
    assert [(quantity, worker) for quantity, worker, _ in found.state_files()] == [("parameters", 0), ("parameters", 1)]
    for spoil, message in ((lambda path: path.write_bytes(b"x"), "has the SHA-256"), (Path.unlink, "cannot be read")):
        spoil(folder.tensors(inputs.state[1].sha256))
        with pytest.raises(EndedError, match=message) as caught:
            verify_files(inputs, folder, None, impatient())
        assert caught.value.ending is Ending.LOST
        assert "nothing of a side has run" in caught.value.reason


def test_a_file_that_comes_late_is_waited_for(recording: Recording, folder: InputsFolder) -> None:
    keep(recording, folder)
    inputs = make_inputs(recording)
    path = folder.tensors(inputs.state[1].sha256)
    path.rename(path.with_suffix(".late"))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            path.with_suffix(".late").rename(path)

    found = verify_files(inputs, folder, None, Patience(pause))
    assert found.files[inputs.state[1].sha256].path == path
    assert len(pauses) == 3


def test_files_are_not_waited_for_longer_than_a_few_seconds(folder: InputsFolder) -> None:
    pauses: list[float] = []
    patience = Patience(pauses.append)
    for sha256 in ("0" * 64, "1" * 64):
        with pytest.raises(EndedError, match="cannot be read"):
            read_document(folder, sha256, patience)
    assert sum(pauses) == MOST_WAIT_S


TOUCHES: dict[str, tuple[Callable[[Path], object], str]] = {
    "written": (lambda path: path.write_bytes(bytes(len(path.read_bytes()))), "time of status change"),
    "restored": (lambda path: path.write_bytes(path.read_bytes()), "time of status change"),
    "replaced": (
        lambda path: shutil.copy(path, path.with_suffix(".new")) and path.with_suffix(".new").replace(path),
        "inode",
    ),
    "removed": (Path.unlink, "No such file"),
}


@pytest.mark.parametrize("name", TOUCHES)
def test_files_that_are_touched_while_they_are_in_use_are_named(
    recording: Recording, folder: InputsFolder, name: str
) -> None:
    keep(recording, folder)
    inputs = make_inputs(recording)
    found = verify_files(inputs, folder, None, impatient())
    found.verify_again()
    path = folder.tensors(inputs.state[1].sha256)
    touch, how = TOUCHES[name]
    touch(path)
    with pytest.raises(EndedError, match=how) as caught:
        found.verify_again()
    assert caught.value.ending is Ending.INTERFERENCE
    assert str(path) in caught.value.reason
    assert how in found.state_files()[1][2].find_touch()


def test_content_that_changed_without_a_trace_is_found_by_its_digest(
    recording: Recording, folder: InputsFolder
) -> None:
    keep(recording, folder)
    path = folder.tensors(recording.files[0].sha256)
    other = verify(path)
    unlike = VerifiedFile(path=path, sha256="0" * 64, identity=other.identity)
    assert unlike.find_touch() == ""
    assert f"has the SHA-256 {other.sha256}" in unlike.find_change()


def test_a_file_that_a_side_changed_after_its_recording_is_its_interference(
    recording: Recording, folder: InputsFolder
) -> None:
    keep(recording, folder)
    digests = [file.sha256 for file in recording.files]
    verify_kept(digests, folder)
    folder.tensors(digests[1]).write_bytes(b"other")
    with pytest.raises(EndedError, match=f"{digests[1]}.safetensors was changed") as caught:
        verify_kept(digests, folder)
    assert caught.value.ending is Ending.INTERFERENCE


def test_a_recording_that_is_not_what_was_written_is_not_read(tmp_path: Path, recording: Recording) -> None:
    assert [worker for worker, _ in recording.verified()] == [0, 1]
    recording.files[1].path.write_bytes(b"other")
    stage = StageFile.create(4096, tmp_path)
    with pytest.raises(EndedError, match="not that of what was recorded") as caught:
        RecordedSource(recording, stage)
    stage.close()
    assert caught.value.ending is Ending.INTERFERENCE


def test_a_recording_that_is_touched_while_it_is_read_is_found(tmp_path: Path, recording: Recording) -> None:
    stage = StageFile.create(4096, tmp_path)
    source = RecordedSource(recording, stage)
    source.finish()
    recording.files[1].path.touch()
    with pytest.raises(EndedError, match="while a recording was compared"):
        source.finish()
    source.close()
    stage.close()


def test_the_sides_map_the_file_that_was_verified_and_no_other(recording: Recording) -> None:
    path = recording.files[0].path
    file = verify(path)
    assert list(map_tensors(str(path), torch, file.identity)) == ["a", "flag", "empty", "scale"]
    path.touch()
    with pytest.raises(OtherFileError, match="its time of modification, time of status change changed"):
        map_tensors(str(path), torch, file.identity)


def test_what_is_not_kept_is_for_this_user_alone(tmp_path: Path) -> None:
    stage = StageFile.create(4096, tmp_path)
    modes = {}
    for is_kept in (False, True):
        path = tmp_path / f"kept-{is_kept}"
        recorder = Recorder(TENSORS[:1], stage, lambda _, path=path: path, is_kept=is_kept)  # type: ignore[misc]
        modes[is_kept] = stat.S_IMODE(path.stat().st_mode) & 0o066
        recorder.abandon()
    stage.close()
    assert modes[False] == 0
    assert modes[True] != 0


@pytest.mark.parametrize(
    ("changes", "of_rules", "message"),
    [
        ({"workload": "other"}, {}, "inputs of other"),
        ({"config_sha256": "0" * 64}, {}, "another configuration"),
        ({"moments": "warm"}, {}, "with warm moments, not 0, fresh"),
        ({"step": 3}, {}, "a state of 3 updates"),
        ({}, {"moments": "warm"}, "not 3, warm"),
        ({}, {"updates": 4}, "3 batches, not one for each of 4"),
        ({"state": ()}, {}, "a state with other entries"),
        ({"moments": "warm", "step": 3}, {"moments": "warm"}, "a state with other entries than parameters, exp_avg"),
    ],
)
def test_inputs_of_something_else_are_refused(
    recording: Recording, changes: dict[str, object], of_rules: dict[str, object], message: str
) -> None:
    inputs = make_inputs(recording)
    check_inputs(inputs, workload(), rules(), RULES.warmup_updates)
    given = {name: getattr(inputs, name) for name in Inputs.__slots__} | changes
    with pytest.raises(ValueError, match=message):
        check_inputs(Inputs(**given), workload(), rules(**of_rules), RULES.warmup_updates)
