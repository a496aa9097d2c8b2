from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.errors import EvidenceError
from campaign.snapshot import Entry, Origin, digest_folder, dump_listing, parse_listing, tree_digest


def file(path: bytes, content: bytes = b"x\n", *, mode: str = "644", origin: Origin = Origin.PLAIN) -> Entry:
    sha256 = hashlib.sha256(content).hexdigest()
    return Entry(path=path, type="f", mode=mode, num_bytes=len(content), sha256=sha256, origin=origin)  # type: ignore[arg-type]  # a test may use any mode


def test_the_digest_is_the_documented_one_byte_for_byte() -> None:
    inner = hashlib.sha256(b"x\n").hexdigest()
    folder = Entry(path=b"a", type="d", mode="755", num_bytes=0, sha256="", origin=Origin.PLAIN)
    text = b"campaign-tree/1\n1:d,3:755,1:a,1:0,0:,1:f,3:644,6:a/b.py,1:2,64:" + inner.encode() + b","
    assert tree_digest([file(b"a/b.py"), folder]) == hashlib.sha256(text).hexdigest()


def test_every_field_but_the_origin_is_part_of_the_identity() -> None:
    first = tree_digest([file(b"a")])
    assert tree_digest([file(b"a", origin=Origin.MODIFIED)]) == first
    others = [file(b"b"), file(b"a", b"y\n"), file(b"a", mode="755")]
    assert len({first, *(tree_digest([other]) for other in others)}) == 4


def test_names_cannot_run_into_contents() -> None:
    """Without the lengths, one long name could stand for two entries."""
    assert tree_digest([file(b"a"), file(b"b")]) != tree_digest([file(b"a,1:f,3:644,1:b")])


def test_the_folder_on_disk_gives_the_digest_of_its_entries(tmp_path: Path) -> None:
    (tmp_path / "sub" / "empty").mkdir(parents=True)
    (tmp_path / "sub" / "b.py").write_bytes(b"x\n")
    (tmp_path / "run").write_bytes(b"x\n")
    (tmp_path / "run").chmod(0o700)
    (tmp_path / "link").symlink_to("run")
    target = hashlib.sha256(b"run").hexdigest()
    plain = Origin.PLAIN
    entries = [
        Entry(path=b"link", type="l", mode="777", num_bytes=3, sha256=target, origin=plain),
        Entry(path=b"sub", type="d", mode="755", num_bytes=0, sha256="", origin=plain),
        Entry(path=b"sub/empty", type="d", mode="755", num_bytes=0, sha256="", origin=plain),
        file(b"run", mode="755"),
        file(b"sub/b.py"),
    ]
    assert digest_folder(tmp_path) == tree_digest(entries)


def test_a_pipe_in_a_frozen_folder_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EvidenceError, match="neither a file"):
        digest_folder(tmp_path)


PARTS = st.binary(min_size=1, max_size=6).filter(lambda part: b"/" not in part and b"\0" not in part)
PATHS = st.lists(PARTS.filter(lambda part: part not in (b".", b"..")), min_size=1, max_size=3).map(b"/".join)


@given(st.lists(PATHS, unique=True, max_size=8))
def test_any_names_survive_the_listing(paths: list[bytes]) -> None:
    entries = tuple(file(path) for path in sorted(paths))
    assert parse_listing(dump_listing(entries), where="files.json") == entries


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a"])
def test_a_listed_path_that_leaves_the_tree_is_refused(path: str) -> None:
    listing = dump_listing([file(b"name")]).replace(b'"name"', f'"{path}"'.encode())
    with pytest.raises(EvidenceError, match="leaves the tree"):
        parse_listing(listing, where="files.json")


def test_a_path_listed_twice_is_refused() -> None:
    with pytest.raises(EvidenceError, match="twice"):
        parse_listing(dump_listing([file(b"a"), file(b"a", b"other")]), where="files.json")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"files/1", b"files/2"), (b'"mode"', b'"modus"'), (b'"644"', b'"600"'), (b'"bytes": 2', b'"bytes": -2')],
)
def test_a_listing_of_another_shape_is_refused(old: bytes, new: bytes) -> None:
    listing = dump_listing([file(b"a")])
    assert old in listing
    with pytest.raises(EvidenceError):
        parse_listing(listing.replace(old, new), where="files.json")
