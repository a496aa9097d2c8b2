"""What archives and unpacked exports of hostile making must not do."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from campaign.verifier.archive import EXPORT, HOME, opened
from campaign.verifier.findings import EvidenceError

Part = tuple[tarfile.TarInfo, bytes]


def listing(*names: str, num_bytes: int = 1) -> bytes:
    sha256 = hashlib.sha256(b"x").hexdigest()
    files = [{"path": name, "executable": False, "bytes": num_bytes, "sha256": sha256} for name in names]
    return json.dumps({"format": "export/1", "files": files, "folders": [], "links": [], "withheld": []}).encode()


def member(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, headers: dict[str, str] | None = None) -> Part:
    about = tarfile.TarInfo(name)
    about.size, about.mode, about.type, about.pax_headers = len(data), 0o644, kind, headers or {}
    return about, data


def write(path: Path, *parts: Part) -> Path:
    with path.open("wb") as stream:
        for about, data in parts:
            stream.write(about.tobuf() + data + bytes(-len(data) % 512))
        stream.write(bytes(1024))
    return path


def open_(path: Path) -> None:
    with opened(path):
        pass


@pytest.mark.parametrize("part", ["manifest.json", "protocol.json", "ledger.jsonl", "frozen"])
def test_a_list_that_was_put_into_a_home_does_not_lead_to_another_home_below_it(tmp_path: Path, part: str) -> None:
    (tmp_path / part).write_text("{}")
    (tmp_path / EXPORT).write_bytes(listing())
    (tmp_path / HOME).mkdir()
    with opened(tmp_path) as found:
        assert found.root == tmp_path
    (tmp_path / part).unlink()
    with opened(tmp_path) as found:
        assert found.root == tmp_path / HOME


def test_an_unpacked_export_whose_home_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / EXPORT).write_bytes(listing())
    (tmp_path / HOME).symlink_to("/")
    with pytest.raises(EvidenceError, match="symbolic link"):
        open_(tmp_path)


def test_a_file_with_holes_is_not_unpacked(tmp_path: Path) -> None:
    size = 1 << 50
    first = member(f"t/{EXPORT}", listing("home/big", num_bytes=size))
    holes = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(size)}
    data = b"1\n0\n512\n".ljust(512, b"\0") + bytes(512)
    path = write(tmp_path / "a.tar", first, member("t/home/big", data, headers=holes))
    with pytest.raises(EvidenceError, match="has holes"):
        open_(path)


@pytest.mark.parametrize("names", [("home/a", "home/a/b"), ("home/" + "n" * 300,)])
def test_names_that_cannot_be_files_are_evidence_that_is_wrong(tmp_path: Path, names: tuple[str, ...]) -> None:
    parts = [member(f"t/{EXPORT}", listing(*names)), *(member(f"t/{name}") for name in names)]
    with pytest.raises(EvidenceError, match="cannot be a file here"):
        open_(write(tmp_path / "a.tar", *parts))


def test_a_list_that_claims_more_than_the_archive_has_is_not_read(tmp_path: Path) -> None:
    about, data = member(f"t/{EXPORT}", listing())
    about.size = 1 << 40
    with pytest.raises(EvidenceError, match=f"claims to have {1 << 40} bytes"):
        open_(write(tmp_path / "a.tar", (about, data)))


def test_headers_without_end_are_evidence_that_is_wrong(tmp_path: Path) -> None:
    longer = [member("././@LongLink", kind=tarfile.GNUTYPE_LONGNAME)] * 3000
    path = write(tmp_path / "a.tar", member(f"t/{EXPORT}", listing()), *longer)
    with pytest.raises(EvidenceError, match="not an archive"):
        open_(path)


def test_a_pipe_is_no_archive_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EvidenceError, match="neither a folder nor a file"):
        open_(tmp_path / "pipe")
