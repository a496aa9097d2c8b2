"""Archives: the same bytes each time, nothing of the machine, and nothing unpacked that should not be."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from campaign import documents, files
from campaign.cli.main import main
from campaign.errors import EvidenceError as WriteError
from campaign.errors import StateError
from campaign.exporting.choose import Choice, Contents, Withheld, choose
from campaign.exporting.crate import dump_crate
from campaign.exporting.write import dump_listing, write_archive
from campaign.paths import HomePaths
from campaign.record.ledger import read_entries
from campaign.verifier.archive import CRATE, EXPORT, HOME, extract, opened
from campaign.verifier.findings import EvidenceError
from tests.support.lifelike import all_families

TOP = "campaign-synthetic"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> HomePaths:
    paths = HomePaths(tmp_path_factory.mktemp("exported") / "home")
    all_families(paths.root)
    tree = paths.baseline.tree
    (tree / "inner").mkdir(parents=True)
    (tree / "empty").mkdir()
    (tree / "inner" / "run.sh").write_text("echo\n")
    (tree / "inner" / "run.sh").chmod(0o555)
    (tree / "link").symlink_to("inner/run.sh")
    (tree / ".notes.tmp").write_text("a source like any other\n")
    (tree / os.fsdecode(b"odd \xff\nname")).write_text("x")
    paths.transport.mkdir()
    (paths.transport / "job.pkl").write_text("never")
    (paths.root / ".campaign.sqlite.1.tmp").write_text("left by a killed writer")
    return paths


def export(home: HomePaths, out: Path, choice: Choice | None = None, *, crate: bytes | None = None) -> Contents:
    contents = choose(home, choice or Choice())
    listing = dump_listing("synthetic", "0" * 64, "", contents, crate)
    own = {EXPORT: listing} | ({CRATE: crate} if crate else {})
    write_archive(home, contents, own, out, top=TOP)
    return contents


def below(root: Path) -> dict[str, tuple[str, str]]:
    """Return kind and content of everything below a folder."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = os.path.relpath(path, root)
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_file():
            found[name] = (f"file {path.stat().st_mode & 0o111 != 0}", files.sha256_file(path))
        elif not list(path.iterdir()):
            found[name] = ("folder", "")
    return found


def test_an_archive_holds_the_home_and_nothing_of_the_machine(home: HomePaths, tmp_path: Path) -> None:
    export(home, tmp_path / "a.tar")
    folder = extract(tmp_path / "a.tar", tmp_path / "unpacked")
    kept = {
        name: what
        for name, what in below(home.root).items()
        if not name.startswith("transport/") and name != ".campaign.sqlite.1.tmp"
    }
    assert below(folder / HOME) == kept
    with tarfile.open(tmp_path / "a.tar") as tar:
        for member in tar:
            assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
            assert member.mode in (0o644, 0o755, 0o777)


def test_the_same_home_gives_the_same_bytes_wherever_it_lies(home: HomePaths, tmp_path: Path) -> None:
    export(home, tmp_path / "a.tar")
    folder = extract(tmp_path / "a.tar", tmp_path / "unpacked")
    export(HomePaths(folder / HOME), tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


@pytest.mark.parametrize(
    ("choice", "gone", "kept"),
    [
        (
            Choice(kinds=frozenset({Withheld.SOURCE})),
            "frozen/baseline/tree/inner/run.sh",
            "frozen/acceptance/verdict.py",
        ),
        (Choice(above_bytes=3), "frozen/baseline/tree/inner/run.sh", "protocol.json"),
    ],
)
def test_what_is_withheld_is_there_as_a_digest(
    home: HomePaths, tmp_path: Path, choice: Choice, gone: str, kept: str
) -> None:
    contents = export(home, tmp_path / "a.tar", choice)
    assert gone in {file.path for file in contents.withheld}
    with opened(tmp_path / "a.tar") as found:
        path = home.root / gone
        assert found.withheld[gone] == (path.stat().st_size, files.sha256_file(path))
        assert not (found.root / gone).exists()
        assert (found.root / kept).read_bytes() == (home.root / kept).read_bytes()


def test_what_no_verification_can_do_without_is_never_withheld(home: HomePaths, tmp_path: Path) -> None:
    everything = Choice(kinds=frozenset(Withheld), above_bytes=0)
    held = {file.path for file in export(home, tmp_path / "a.tar", everything).files}
    assert {"manifest.json", "protocol.json", "ledger.jsonl", "frozen/acceptance/verdict.py"} <= held
    assert {path for path in held if path.endswith(("/receipt.json", "/start.json", "pairs.csv", "checkpoint.json"))}


def test_an_archive_takes_nobody_s_place(home: HomePaths, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_text("mine")
    with pytest.raises(StateError):
        export(home, tmp_path / "a.tar")
    assert (tmp_path / "a.tar").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


@pytest.mark.parametrize("change", [b"longer than it was", b""])
def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path, change: bytes) -> None:
    (tmp_path / "home" / "attempts").mkdir(parents=True)
    (tmp_path / "home" / "attempts" / "table.csv").write_bytes(b"measured\n")
    home = HomePaths(tmp_path / "home")
    contents = choose(home, Choice())
    (tmp_path / "home" / "attempts" / "table.csv").write_bytes(change)
    with pytest.raises(WriteError, match="changed while it was exported"):
        write_archive(home, contents, {EXPORT: b"{}"}, tmp_path / "a.tar", top=TOP)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_the_ledger_whose_head_the_archive_names_is_the_one_that_was_checked(
    home: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read = list[Path](), files.read_if_there

    def counted(path: Path) -> bytes | None:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(files, "read_if_there", counted)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} is read as well"))
    assert main(["export", "--home", str(home.root), "--out", str(tmp_path / "a.tar")]) == 0
    assert reads.count(home.ledger) == 1


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    os.mkfifo(tmp_path / "home" / "pipe")
    with pytest.raises(WriteError, match="neither a file"):
        choose(HomePaths(tmp_path / "home"), Choice())


def test_the_crate_names_what_is_in_the_archive(home: HomePaths, tmp_path: Path) -> None:
    manifest, entries = documents.Manifest.read(home.manifest), read_entries(home)
    contents = choose(home, Choice())
    crate = dump_crate(home, manifest, entries, contents)
    assert crate == dump_crate(home, manifest, entries, contents)
    value = json.loads(crate)
    graph = {entity["@id"]: entity for entity in value["@graph"]}
    assert len(graph) == len(value["@graph"])
    assert graph[CRATE]["about"] == {"@id": "./"}
    assert all(part["@id"] in graph for part in graph["./"]["hasPart"])
    export(home, tmp_path / "a.tar", crate=crate)
    folder = extract(tmp_path / "a.tar", tmp_path / "unpacked")
    assert (folder / CRATE).read_bytes() == crate
    ledger = graph[f"{HOME}/ledger.jsonl"]
    assert ledger["sha256"] == files.sha256_file(home.ledger)


# --- archives of somebody else's making -------------------------------------------------------------------------------


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def listing(**fields: Any) -> bytes:
    file = {"path": "home/a", "bytes": 1, "sha256": files.sha256_bytes(b"x"), "executable": False}
    value = {"format": "export/1", "files": [file], "folders": [], "links": [], "withheld": []}
    return files.dump_json(value | fields)


def write(path: Path, members: Iterator[tuple[tarfile.TarInfo, bytes]] | list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


GOOD = member("t/home/a", b"x")
LINK = {"path": "home/frozen/baseline/tree/l", "target": "a"}


def _link(target: str) -> list[tuple[tarfile.TarInfo, bytes]]:
    path = "home/frozen/baseline/tree/l"
    own = listing(links=[{"path": path, "target": target}])
    return [member("t/export.json", own), GOOD, member(f"t/{path}", type=tarfile.SYMTYPE, linkname=target)]


HOSTILE: dict[str, Callable[[], list[tuple[tarfile.TarInfo, bytes]]]] = {
    "no listing": lambda: [GOOD],
    "a listing that is not first": lambda: [GOOD, member("t/export.json", listing())],
    "a file that is not listed": lambda: [member("t/export.json", listing()), GOOD, member("t/home/b", b"x")],
    "a file that is missing": lambda: [member("t/export.json", listing())],
    "a file twice": lambda: [member("t/export.json", listing()), GOOD, GOOD],
    "other bytes": lambda: [member("t/export.json", listing()), member("t/home/a", b"y")],
    "another size": lambda: [member("t/export.json", listing()), member("t/home/a", b"xx")],
    "a way out": lambda: [member("t/export.json", listing()), member("t/../a", b"x")],
    "an absolute name": lambda: [member("t/export.json", listing()), member("/t/home/a", b"x")],
    "another top": lambda: [member("t/export.json", listing()), member("u/home/a", b"x")],
    "a listed way out": lambda: [member("t/export.json", _listed("../a")), member("t/../a", b"x")],
    "a listed absolute name": lambda: [member("t/export.json", _listed("/a")), member("t//a", b"x")],
    "a set-user-id file": lambda: [member("t/export.json", listing()), member("t/home/a", b"x", mode=0o4755)],
    "a device": lambda: [member("t/export.json", listing()), member("t/home/a", type=tarfile.CHRTYPE)],
    "a pipe": lambda: [member("t/export.json", listing()), member("t/home/a", type=tarfile.FIFOTYPE)],
    "a hard link": lambda: [
        member("t/export.json", listing()),
        member("t/home/a", type=tarfile.LNKTYPE, linkname="t/export.json"),
    ],
    "a link in a file's place": lambda: [
        member("t/export.json", listing()),
        member("t/home/a", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    ],
    "a link that leads out": lambda: _link("../../../../../etc/passwd"),
    "a link out by one": lambda: _link("../x"),
    "an absolute link": lambda: _link("/etc/passwd"),
    "a link elsewhere": lambda: [
        member("t/export.json", listing(links=[{"path": "home/l", "target": "a"}])),
        GOOD,
        member("t/home/l", type=tarfile.SYMTYPE, linkname="a"),
    ],
    "withheld and there": lambda: [
        member("t/export.json", listing(withheld=[{"path": "a", "bytes": 1, "sha256": "0" * 64}])),
        GOOD,
    ],
    "a format of the future": lambda: [member("t/export.json", listing(format="export/2")), GOOD],
    "a key twice": lambda: [member("t/export.json", listing().replace(b'"files"', b'"files": [], "files"', 1)), GOOD],
    "no JSON": lambda: [member("t/export.json", b"\xff"), GOOD],
}


def _listed(path: str) -> bytes:
    file = {"path": path, "bytes": 1, "sha256": files.sha256_bytes(b"x"), "executable": False}
    return listing(files=[file])


@pytest.mark.parametrize("what", HOSTILE)
def test_an_archive_of_somebody_else_s_making_is_refused(tmp_path: Path, what: str) -> None:
    archive = write(tmp_path / "a.tar", HOSTILE[what]())
    (tmp_path / "inner").mkdir()
    with pytest.raises(EvidenceError):
        extract(archive, tmp_path / "inner" / "unpacked")
    assert {path.name for path in tmp_path.iterdir()} == {"a.tar", "inner"}
    assert list((tmp_path / "inner").iterdir()) == []
    assert not any(path.is_symlink() for path in (tmp_path / "inner").rglob("*"))


@pytest.mark.parametrize("data", [b"", b"not a tar", b"\x1f\x8b\x08" + b"\0" * 600], ids=["empty", "text", "gzip"])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(EvidenceError):
        extract(tmp_path / "a.tar", tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()


def test_an_archive_that_was_cut_is_refused(home: HomePaths, tmp_path: Path) -> None:
    export(home, tmp_path / "a.tar")
    data = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(data[: len(data) // 2])
    with pytest.raises(EvidenceError):
        extract(tmp_path / "a.tar", tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()


def test_a_good_archive_of_somebody_else_s_making_is_taken(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar", _link("a/../b"))
    folder = extract(archive, tmp_path / "unpacked")
    assert (folder / "home" / "a").read_bytes() == b"x"
    assert (folder / "home" / "frozen" / "baseline" / "tree" / "l").is_symlink()
