"""Copying by itself: the walk that a freeze makes afterwards is no part of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from campaign.errors import StateError
from campaign.snapshot import copy as copying
from campaign.snapshot.scan import Belonging, Found, Stamp
from tests.support.git import write_files


def found(path: Path) -> Found:
    return Found(
        path=os.fsencode(path.name),
        type="f",
        stamp=Stamp.of(path.lstat()),
        target=b"",
        belonging=Belonging.PLAIN,
        tracked=False,
        committed=None,
        is_lfs=False,
    )


def copy(source: Path, target: Path, name: str) -> list[copying.Copied]:
    target.mkdir()
    items = [found(source / name)]
    return list(copying.copy_files(items, os.fsencode(source), os.fsencode(target), progress=lambda _num_bytes: None))


def test_a_file_that_stands_still_is_copied(tmp_path: Path) -> None:
    write_files(tmp_path / "source", {"a.bin": "x" * 3000})
    (copied,) = copy(tmp_path / "source", tmp_path / "target", "a.bin")
    assert (tmp_path / "target" / "a.bin").read_bytes() == b"x" * 3000
    assert copied.head == b"x" * 1024


def test_a_file_rewritten_at_its_size_behind_the_copy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    write_files(source, {"a.bin": "x" * 3000})
    monkeypatch.setattr(copying, "CHUNK_BYTES", 1000)
    write_all = copying._write_all

    def rewrite_the_start(descriptor: int, data: memoryview) -> None:
        write_all(descriptor, data)
        with (source / "a.bin").open("r+b") as stream:
            stream.write(b"y" * 500)

    monkeypatch.setattr(copying, "_write_all", rewrite_the_start)
    with pytest.raises(StateError, match="while it was being frozen") as refused:
        copy(source, tmp_path / "target", "a.bin")
    assert refused.value.where == "a.bin"
