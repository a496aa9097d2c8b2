"""Writing and reading single files."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign import files
from campaign.errors import EvidenceError, ExitCode, InfrastructureError, StateError
from tests.support.refusing import refuse

REFUSALS = [
    ("fsync", errno.ENOSPC, "free some space"),
    ("fsync", errno.EDQUOT, "raise the quota"),
    ("open", errno.EROFS, "mounted read-only"),
    ("open", errno.EACCES, "account"),
]


@pytest.mark.parametrize("write", [files.write_new, files.replace])
@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_what_cannot_be_written_is_named_with_a_hint_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path, bytes], None],
    refusal: tuple[str, int, str],
) -> None:
    function, number, hint = refusal
    target = tmp_path / "document.json"
    with monkeypatch.context() as patched:
        refuse(patched, function, number)
        with pytest.raises(InfrastructureError, match=os.strerror(number)) as caught:
            write(target, b"whole")
    assert caught.value.where == str(target)
    assert hint in caught.value.hint
    assert caught.value.exit_code is ExitCode.INFRASTRUCTURE
    assert list(tmp_path.iterdir()) == []


def test_a_replacement_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "document.json"
    target.write_bytes(b"old")
    refuse(monkeypatch, "fsync", errno.ENOSPC)
    with pytest.raises(InfrastructureError):
        files.replace(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_name_that_is_taken_is_still_told_apart(tmp_path: Path) -> None:
    target = tmp_path / "document.json"
    files.write_new(target, b"first")
    with pytest.raises(FileExistsError):
        files.write_new(target, b"second")
    assert target.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_that_may_be_absent_is_read_or_none(tmp_path: Path) -> None:
    assert files.read_if_there(tmp_path / "absent") is None
    (tmp_path / "there").write_bytes(b"x")
    assert files.read_if_there(tmp_path / "there") == b"x"


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "dangling"])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    make: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "link": lambda: path.symlink_to(__file__),
        "dangling": lambda: path.symlink_to("nowhere"),
    }
    make[kind]()
    with pytest.raises(EvidenceError, match="not a regular file"):
        files.read_if_there(path)
    with pytest.raises(EvidenceError):
        files.read_regular(path)


def test_what_may_not_be_read_is_no_evidence_of_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "open", errno.EACCES)
    with pytest.raises(InfrastructureError, match="cannot be read: Permission denied"):
        files.read_if_there(tmp_path / "there")


def test_a_file_or_a_dangling_link_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("file", "dangling"):
        with pytest.raises(StateError, match="not a folder") as caught:
            files.require_folder_or_nothing(tmp_path / name)
        assert caught.value.where == str(tmp_path / name)
    files.require_folder_or_nothing(tmp_path)
    files.require_folder_or_nothing(tmp_path / "absent")


TEXTS = st.text() | st.text(st.characters(categories=("Cs", "Ll")))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)


@given(VALUES)
def test_a_document_is_what_the_standard_library_would_write(value: object) -> None:
    expected = json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, indent=2) + "\n"
    assert files.dump_json(value) == expected.encode()
