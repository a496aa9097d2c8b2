"""What was frozen, changed in every way: the finding names the very path."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from campaign.verifier import digests, trees
from campaign.verifier.facts import Options
from campaign.verifier.findings import EvidenceError, Finding, State
from campaign.verifier.verify import verifying
from tests.support.sealed import SealedHome, dump, sha256

Damage = Callable[[SealedHome], object]
SIDE = "frozen/baseline"


@pytest.fixture
def home(tmp_path: Path) -> SealedHome:
    """An open campaign: nothing but its own digests hold what was frozen."""
    home = SealedHome(tmp_path / "home")
    home.freeze()
    home.freeze_candidate()
    home.write_ledger()
    return home


def found(home: SealedHome, check: str) -> list[Finding]:
    with verifying(home.root, Options(execute=False)) as verification:
        return [one for one in verification.checks.findings if one.check == check]


def said(home: SealedHome, check: str = "frozen") -> dict[str, str]:
    """Return what was found tampered with: the path, and why."""
    findings = [one for one in found(home, check) if one.state is State.TAMPERED]
    return {one.where: "; ".join(other.what for other in findings if other.where == one.where) for one in findings}


def test_what_was_frozen_is_intact(home: SealedHome) -> None:
    assert found(home, "frozen") == []
    assert found(home, "ledger") == []


def same_size(path: str) -> Damage:
    """Change a byte, and give the file its size and its times back."""

    def damage(home: SealedHome) -> None:
        whole = home.root / path
        about, data = whole.stat(), whole.read_bytes()
        whole.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        os.utime(whole, ns=(about.st_atime_ns, about.st_mtime_ns))

    return damage


def link(path: str) -> Damage:
    """Put a link to a copy in the place of a file."""

    def damage(home: SealedHome) -> None:
        whole = home.root / path
        outside = home.root.parent / "outside"
        whole.rename(outside)
        whole.symlink_to(outside)

    return damage


DAMAGED: dict[str, tuple[Damage, str, str]] = {
    "bit flip": (same_size(f"{SIDE}/tree/adapter.py"), f"{SIDE}/tree/adapter.py", "changed: its SHA-256 is"),
    "size": (
        lambda home: home.write(f"{SIDE}/tree/adapter.py", b"x\n"),
        f"{SIDE}/tree/adapter.py",
        "changed: its size is 2 bytes, listed are 6",
    ),
    "mode": (
        lambda home: (home.root / SIDE / "tree/adapter.py").chmod(0o755),
        f"{SIDE}/tree/adapter.py",
        "another mode: 755, listed is 644",
    ),
    "link": (link(f"{SIDE}/tree/adapter.py"), f"{SIDE}/tree/adapter.py", "a symbolic link where a file was"),
    "added": (lambda home: home.write(f"{SIDE}/tree/new.py", b""), f"{SIDE}/tree/new.py", "added"),
    "added folder": (lambda home: (home.root / SIDE / "tree/new").mkdir(), f"{SIDE}/tree/new", "added"),
    "removed": (lambda home: (home.root / SIDE / "tree/adapter.py").unlink(), f"{SIDE}/tree/adapter.py", "removed"),
    "removed folder": (lambda home: (home.root / SIDE / "tree/empty").rmdir(), f"{SIDE}/tree/empty", "removed"),
    "pipe": (lambda home: os.mkfifo(home.root / SIDE / "tree/pipe"), f"{SIDE}/tree/pipe", "no file or folder"),
    "no tree": (lambda home: (home.root / SIDE / "tree").rename(home.root / "x"), f"{SIDE}/tree", "removed"),
    "listing": (same_size(f"{SIDE}/files.json"), f"{SIDE}/files.json", "not the list that was frozen"),
    "changes": (lambda home: home.write(f"{SIDE}/changes.patch", b"x"), f"{SIDE}/changes.patch", "not the changes"),
    "beside the tree": (lambda home: home.write(f"{SIDE}/more", b""), f"{SIDE}/more", "added"),
    "beside the sides": (lambda home: home.write("frozen/more/x", b""), "frozen/more", "added"),
    "configuration": (same_size("frozen/campaign.toml"), "frozen/campaign.toml", "not the configuration"),
    "no configuration": (
        lambda home: (home.root / "frozen/campaign.toml").unlink(),
        "frozen/campaign.toml",
        "not there",
    ),
    "protocol": (
        lambda home: home.edit("protocol.json", lambda value: value.update(baseline_first=True)),
        "protocol.json",
        "not the protocol that was frozen",
    ),
    "acceptance": (
        same_size("frozen/acceptance/inner/part.py"),
        "frozen/acceptance",
        "not the program that was frozen",
    ),
    "harness": (lambda home: home.write("frozen/harness/new.py", b""), "frozen/harness", "not the program"),
    "verifier": (same_size("frozen/verifier/__init__.py"), "frozen/verifier", "not the program that was frozen"),
    "compiled": (
        lambda home: home.write("frozen/acceptance/__pycache__/x.cpython-311.pyc", b""),
        "frozen/acceptance/__pycache__/x.cpython-311.pyc",
        "no source of the program: added",
    ),
    "library": (
        lambda home: home.write("frozen/verifier/strict.so", b""),
        "frozen/verifier/strict.so",
        "no source of the program: added",
    ),
    "no program": (
        lambda home: (home.root / "frozen/acceptance").rename(home.root / "x"),
        "frozen/acceptance",
        "removed",
    ),
    "no manifest": (lambda home: (home.root / "manifest.json").unlink(), "manifest.json", "is not there"),
    "another name": (
        lambda home: home.edit("manifest.json", lambda value: value.update(campaign="other")),
        "protocol.json",
        'campaign: is "small", manifest.json says "other"',
    ),
    "future format": (
        lambda home: home.edit("manifest.json", lambda value: value.update(format="manifest/2")),
        "manifest.json",
        "'manifest/2', which this verifier does not know",
    ),
    "key twice": (
        lambda home: home.write("manifest.json", b'{"format": "manifest/1", "format": "manifest/1"}'),
        "manifest.json",
        "duplicate key 'format'",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_every_change_is_named_by_its_path(home: SealedHome, name: str) -> None:
    damage, where, what = DAMAGED[name]
    damage(home)
    findings = said(home)
    assert what in findings.get(where, ""), findings


def test_a_file_of_another_size_than_is_listed_is_not_read(home: SealedHome, monkeypatch: pytest.MonkeyPatch) -> None:
    hash_whole = digests._hash

    def refuse(whole: str, path: str, num_bytes: int, is_over: Event | None = None) -> str:
        if num_bytes == 1 << 40:
            raise EvidenceError(path, "was read, which takes hours")
        return hash_whole(whole, path, num_bytes, is_over)

    monkeypatch.setattr(digests, "_hash", refuse)
    with (home.root / SIDE / "tree/adapter.py").open("r+b") as stream:
        stream.truncate(1 << 40)
    findings = said(home)
    assert findings == {f"{SIDE}/tree/adapter.py": f"changed: its size is {1 << 40} bytes, listed are 6"}


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("frozen/acceptance/planted.py", "too many for a file of it"),
        ("frozen/harness/inner/part.py", "too many for a file of it"),
        ("frozen/campaign.toml", "too many for a document"),
        ("frozen/baseline/files.json", "too many for a document"),
        ("frozen/baseline/changes.patch", "too many for a document"),
    ],
)
def test_a_file_of_no_listed_size_that_is_larger_than_any_is_not_read(
    home: SealedHome, monkeypatch: pytest.MonkeyPatch, path: str, what: str
) -> None:
    hash_whole = digests._hash

    def refuse(whole: str, path: str, num_bytes: int, is_over: Event | None = None) -> str:
        if num_bytes >= 1 << 40:
            raise EvidenceError(path, "was read, which takes hours")
        return hash_whole(whole, path, num_bytes, is_over)

    monkeypatch.setattr(digests, "_hash", refuse)
    monkeypatch.setattr(digests.Digests, "hash_ahead", lambda _self, **_named: None)
    with (home.root / path).open("ab") as stream:
        stream.truncate(1 << 40)
    assert f"has {1 << 40} bytes: {what}" in said(home)[path]


def test_a_list_that_agrees_with_the_tree_is_held_to_the_manifest(home: SealedHome) -> None:
    home.write(f"{SIDE}/tree/adapter.py", b"x = 3\n")
    home.list_side(SIDE)
    findings = said(home)
    assert "not the list that was frozen" in findings[f"{SIDE}/files.json"]
    assert "not the tree that was frozen" in findings[f"{SIDE}/tree"]


def test_a_manifest_that_agrees_with_the_tree_is_held_to_the_ledger(home: SealedHome) -> None:
    home.write(f"{SIDE}/tree/adapter.py", b"x = 3\n")
    home.list_side(SIDE)

    def agree(manifest: dict[str, dict[str, str]]) -> None:
        manifest["baseline"]["snapshot_sha256"] = home.digest(f"{SIDE}/tree")
        manifest["baseline"]["files_sha256"] = sha256((home.root / SIDE / "files.json").read_bytes())

    home.edit("manifest.json", agree)
    # What remains of it here is the candidate's manifest, which names the baseline's.
    assert list(said(home)) == [f"frozen/candidates/{home.candidate}/manifest.json"]
    assert "not the manifest that the ledger names" in said(home, "ledger")["manifest.json"]


CANDIDATES: dict[str, tuple[Damage, str, str]] = {
    "renamed": (
        lambda home: (home.root / "frozen/candidates" / home.candidate).rename(
            home.root / "frozen/candidates/c0123456789ab"
        ),
        "frozen/candidates/c0123456789ab/manifest.json",
        "id: is ",
    ),
    "of another campaign": (
        lambda home: home.edit(
            f"frozen/candidates/{home.candidate}/manifest.json", lambda value: value.update(manifest_sha256="0" * 64)
        ),
        "frozen/candidates/ID/manifest.json",
        "manifest_sha256: is ",
    ),
    "without a manifest": (
        lambda home: (home.root / f"frozen/candidates/{home.candidate}/manifest.json").unlink(),
        "frozen/candidates/ID",
        "has no manifest",
    ),
    "another tree": (
        lambda home: home.write(f"frozen/candidates/{home.candidate}/tree/adapter.py", b""),
        "frozen/candidates/ID/tree/adapter.py",
        "changed",
    ),
    "beside it": (
        lambda home: home.write(f"frozen/candidates/{home.candidate}/more", b""),
        "frozen/candidates/ID/more",
        "added",
    ),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_every_change_of_a_candidate_is_named(home: SealedHome, name: str) -> None:
    damage, where, what = CANDIDATES[name]
    damage(home)
    findings = said(home)
    assert what in findings.get(where.replace("ID", home.candidate), ""), findings


def test_one_broken_document_does_not_hide_what_else_is_wrong(home: SealedHome) -> None:
    home.write("protocol.json", b"{")
    home.write(f"{SIDE}/files.json", b"[]")
    same_size("frozen/harness/__init__.py")(home)
    home.write(f"frozen/candidates/{home.candidate}/tree/adapter.py", b"")
    expected = {"protocol.json", f"{SIDE}/files.json", "frozen/harness"}
    assert {*expected, f"frozen/candidates/{home.candidate}/tree/adapter.py"} <= set(said(home))


def test_a_freeze_under_way_is_incomplete_and_no_tampering(home: SealedHome) -> None:
    home.acts.pop()  # the candidate's
    home.write_ledger()
    (home.root / ".freezing").mkdir()
    for check, where in (("frozen", ".freezing"), ("ledger", f"frozen/candidates/{home.candidate}")):
        (finding,) = found(home, check)
        assert (finding.where, finding.state) == (where, State.INCOMPLETE)
    (home.root / ".freezing").rmdir()
    (finding,) = found(home, "ledger")
    assert finding.state is State.TAMPERED


def test_names_that_are_not_utf_8_are_listed_and_found(home: SealedHome) -> None:
    odd = b"odd\xff\n.py"
    path = os.fsencode(home.root / SIDE / "tree") + b"/" + odd
    Path(os.fsdecode(path)).write_bytes(b"")
    assert f"{SIDE}/tree/odd\\udcff\\n.py" in said(home)


# --- lists ------------------------------------------------------------------------------------------------------------

ENTRY = {"path": "a", "type": "f", "mode": "644", "bytes": 0, "sha256": "0" * 64, "origin": "plain"}


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ([ENTRY, ENTRY], "stands twice"),
        ([{**ENTRY, "path": "b"}, ENTRY], "not in byte order"),
        ([{**ENTRY, "path": "../a"}], "leads elsewhere"),
        ([{**ENTRY, "path": "/a"}], "leads elsewhere"),
        ([{**ENTRY, "path": "a//b"}], "leads elsewhere"),
        ([{**ENTRY, "path": "a\0b"}], "leads elsewhere"),
        ([{**ENTRY, "path": ""}], "leads elsewhere"),
        ([{**ENTRY, "path": "\ud800"}], "does not decode"),
        ([{**ENTRY, "path_b64": "YQ=="}], "either path or path_b64"),
        ([{"path_b64": "?", **{key: ENTRY[key] for key in ENTRY if key != "path"}}], "does not decode"),
        ([{**ENTRY, "path": "a/b"}], "a folder that is not listed"),
        ([{**ENTRY, "mode": "777"}], "mode: is '777'"),
        ([{**ENTRY, "type": "x"}], "type: is 'x'"),
        ([{**ENTRY, "type": "d", "mode": "755"}], 'sha256: is "000'),
        ([{**ENTRY, "type": "d", "mode": "755", "sha256": "", "bytes": 5}], "bytes: is 5"),
        ([{**ENTRY, "bytes": -1}], "bytes: is -1"),
        ([{**ENTRY, "more": 1}], "unknown field 'more'"),
        ([{**ENTRY, "origin": "elsewhere"}], "origin: is 'elsewhere'"),
    ],
)
def test_a_list_that_cannot_be_one_is_a_finding(home: SealedHome, entries: list[dict[str, object]], what: str) -> None:
    home.write(f"{SIDE}/files.json", dump({"format": "files/1", "entries": entries}))
    texts = [one.what for one in found(home, "frozen") if one.where == f"{SIDE}/files.json"]
    assert any(what in text for text in texts), texts


def test_the_example_of_the_documentation_has_this_digest() -> None:
    entries = [
        trees.Entry(b"a/b.py", "f", "644", 2, sha256(b"x\n")),
        trees.Entry(b"a", "d", "755", 0, ""),
    ]
    fields = b"1:d,3:755,1:a,1:0,0:,1:f,3:644,6:a/b.py,1:2,64:" + sha256(b"x\n").encode() + b","
    assert trees.tree_digest(entries) == sha256(b"campaign-tree/1\n" + fields)
