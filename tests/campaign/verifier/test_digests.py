from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from threading import Event

import pytest

from campaign.verifier import digests
from campaign.verifier.digests import Digests, Kind
from campaign.verifier.findings import EvidenceError


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_each_file_has_the_digest_of_its_bytes_small_or_large(tmp_path: Path) -> None:
    large = os.urandom(3_000_001)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "large").write_bytes(large)
    (tmp_path / "small").write_bytes(b"x\n")
    (tmp_path / "empty").write_bytes(b"")
    with Digests(str(tmp_path)) as store:
        store.hash_ahead()
        assert store.sha256("a/large") == sha256(large)
        assert store.sha256("small") == sha256(b"x\n")
        assert store.sha256("empty") == sha256(b"")
        assert store.read("a/large") == large
        assert [found.path for found in store.below("")] == ["a", "empty", "small", "a/large"]
        assert store.names("a") == ("large",)


def test_nothing_is_read_twice_for_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"x")
    with Digests(str(tmp_path)) as store:
        store.read("x")
        monkeypatch.setattr(digests, "_open", None)
        assert store.sha256("x") == sha256(b"x")


def test_a_file_that_changes_between_two_looks_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    with Digests(str(tmp_path)) as store:
        store.sha256("x")
        (tmp_path / "x").write_bytes(b"y")
        with pytest.raises(EvidenceError, match="changed while it was looked at"):
            store.read("x")


def test_links_pipes_and_sockets_are_listed_and_never_followed_or_waited_for(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    home = tmp_path / "home"
    home.mkdir()
    (home / "file").symlink_to(outside / "secret")
    (home / "folder").symlink_to(outside)
    os.mkfifo(home / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(home / "socket"))
    with Digests(str(home)) as store:
        kinds = {found.path: found.kind for found in store.below("")}
        assert kinds == {"file": Kind.LINK, "folder": Kind.LINK, "pipe": Kind.OTHER, "socket": Kind.OTHER}
        assert store.names("folder") == ()
        for path, word in [("file", "symbolic link"), ("pipe", "no file"), ("socket", "no file")]:
            with pytest.raises(EvidenceError, match=word):
                store.sha256(path)
        with pytest.raises(EvidenceError, match="is not there"):
            store.read("folder/secret")
        with pytest.raises(EvidenceError, match="is not there"):
            store.read("../outside/secret")


def test_a_file_that_becomes_a_link_or_a_pipe_after_the_listing_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    (tmp_path / "y").write_bytes(b"y")
    with Digests(str(tmp_path)) as store:
        (tmp_path / "x").unlink()
        (tmp_path / "x").symlink_to(tmp_path / "y")
        (tmp_path / "y").unlink()
        os.mkfifo(tmp_path / "y")
        with pytest.raises(EvidenceError, match="cannot be read"):
            store.sha256("x")
        with pytest.raises(EvidenceError, match="no longer a file"):
            store.sha256("y")


def test_odd_names_are_kept_and_can_be_read(tmp_path: Path) -> None:
    name = b"odd\xff\nname"
    Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_bytes(b"x")
    with Digests(str(tmp_path)) as store:
        (found,) = store.below("")
        assert os.fsencode(found.path) == name
        assert store.sha256(found.path) == sha256(b"x")


def test_a_contradiction_names_both_values(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    with Digests(str(tmp_path)) as store:
        assert store.contradiction("x", 1, sha256(b"x")) == ""
        assert store.contradiction("x", None, sha256(b"x")) == ""
        assert store.contradiction("x", 2, sha256(b"x")) == "it has 1 bytes, sealed were 2"
        assert store.contradiction("x", 1, "0" * 64) == f"its SHA-256 is {sha256(b'x')}, sealed was {'0' * 64}"
        assert store.contradiction("y", 1, "0" * 64) == "is not there"


def test_what_was_withheld_is_known_by_its_digest_alone(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"other")
    withheld = {"a/b/gone": (7, "1" * 64), "here": (1, "2" * 64)}
    with Digests(str(tmp_path), withheld) as store:
        store.hash_ahead()
        assert store.sha256("a/b/gone") == "1" * 64
        assert store.names("a/b") == ("gone",)
        assert store.names("") == ("a", "here")
        assert store.contradiction("a/b/gone", 7, "1" * 64) == ""
        assert "sealed was" in store.contradiction("a/b/gone", 7, "3" * 64)
        with pytest.raises(EvidenceError, match="withheld"):
            store.read("a/b/gone")
        # What is here speaks for itself, whatever the export says of it.
        assert store.sha256("here") == sha256(b"other")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads what nobody may")
def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    with Digests(str(tmp_path)) as store:
        assert "closed" in store.unreadable


def test_a_file_of_another_size_than_was_sealed_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "holes").open("wb") as stream:
        stream.truncate(1 << 40)
    monkeypatch.setattr(digests, "_open", None)
    with Digests(str(tmp_path)) as store:
        assert store.contradiction("holes", 5, "0" * 64) == f"it has {1 << 40} bytes, sealed were 5"


def test_a_document_that_is_larger_than_any_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "holes").open("wb") as stream:
        stream.truncate((1 << 30) + 1)
    monkeypatch.setattr(digests, "_open", None)
    with Digests(str(tmp_path)) as store, pytest.raises(EvidenceError, match="too many for a document"):
        store.read("holes")


def test_a_file_of_any_size_that_nobody_asks_for_does_not_keep_another_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "asked").write_bytes(bytes(1 << 19))
    (tmp_path / "holes").write_bytes(bytes(1 << 20))
    hash_whole, is_asked, waited = digests._hash, Event(), list[bool]()

    def slow(whole: str, path: str, num_bytes: int, is_over: Event | None = None) -> str:
        if path == "holes":
            waited.append(is_asked.wait(timeout=10))
        return hash_whole(whole, path, num_bytes, is_over)

    monkeypatch.setattr(digests, "_hash", slow)
    with Digests(str(tmp_path), num_threads=1) as store:
        store._found = {path: store._found[path] for path in ("holes", "asked")}
        store.hash_ahead()
        assert store.sha256("asked") == sha256(bytes(1 << 19))
        is_asked.set()
    assert waited == [True]


def test_what_nobody_asked_for_does_not_keep_a_verification_from_its_end(tmp_path: Path) -> None:
    with (tmp_path / "holes").open("wb") as stream:
        stream.truncate(1 << 40)  # hours
    with Digests(str(tmp_path)) as store:
        store.hash_ahead()
    with pytest.raises(EvidenceError, match="not looked at to its end"):
        store.sha256("holes")
