"""What ``--deep`` looks at outside the home."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from campaign.verifier import digests, environments
from campaign.verifier.facts import Options
from campaign.verifier.findings import Check, State
from campaign.verifier.verify import verifying
from jobs.processes.installed import environment_sha256 as digest_of_environment
from jobs.processes.installed import read_distributions, read_hooks
from tests.support.sealed import SealedHome, sha256


@pytest.fixture
def home(tmp_path: Path) -> SealedHome:
    home = SealedHome(tmp_path / "home")
    home.freeze()
    home.write_ledger()
    return home


def deep(home: SealedHome, name: str) -> Check:
    with verifying(home.root, Options(execute=False, deep=True)) as verification:
        return next(check for check in verification.checks.made if check.name == name)


def said(check: Check) -> str:
    return "\n".join(f"{one.where}: {one.what}" for one in check.findings)


def refreeze(home: SealedHome, **manifest: Any) -> None:
    """Change the manifest, and the act that names it."""
    home.edit("manifest.json", lambda value: value.update(manifest))
    home.acts[0][1]["manifest_sha256"] = sha256((home.root / "manifest.json").read_bytes())
    home.write_ledger()


# --- declared data ----------------------------------------------------------------------------------------------------


@pytest.fixture
def data(home: SealedHome, tmp_path: Path) -> Path:
    """A file and a folder, declared."""
    folder = tmp_path / "data"
    (folder / "shards" / "inner").mkdir(parents=True)
    (folder / "one.bin").write_bytes(b"one")
    (folder / "shards" / "inner" / "a.bin").write_bytes(b"a" * 700_000)
    declared = {
        "one": {"path": str(folder / "one.bin"), "sha256": sha256(b"one"), "bytes": 3, "files": 1},
        "shards": {
            "path": str(folder / "shards"),
            "sha256": SealedHome(folder).digest("shards"),
            "bytes": 700_000,
            "files": 1,
        },
    }
    refreeze(home, data=declared)
    return folder


def test_data_that_is_what_was_declared_is_intact(home: SealedHome, data: Path) -> None:
    assert data.exists()
    assert deep(home, "data").state is State.INTACT


def test_changed_data_is_named_by_its_path(home: SealedHome, data: Path) -> None:
    (data / "one.bin").write_bytes(b"two")
    (data / "shards" / "new").mkdir()
    text = said(deep(home, "data"))
    assert f"{data / 'one.bin'}: data set one is not what was frozen" in text
    assert f"{data / 'shards'}: data set shards is not what was frozen" in text


def test_data_of_another_size_is_not_read(home: SealedHome, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (data / "one.bin", data / "shards" / "inner" / "a.bin"):
        with path.open("ab") as stream:
            stream.truncate(1 << 40)
    hash_whole = digests._hash

    def refuse(whole: str, path: str, num_bytes: int, is_over: Event | None = None) -> str:
        assert num_bytes < 1 << 40
        return hash_whole(whole, path, num_bytes, is_over)

    monkeypatch.setattr(digests, "_hash", refuse)
    text = said(deep(home, "data"))
    assert f"data set one is not what was frozen: it has {1 << 40} bytes, manifest.json says 3" in text
    assert f"data set shards is not what was frozen: it has {1 << 40} bytes, manifest.json says 700000" in text


def test_what_cannot_be_data_is_named_by_its_path(home: SealedHome, data: Path) -> None:
    os.mkfifo(data / "shards" / "pipe")
    assert f"{data / 'shards' / 'pipe'}: is no file or folder" in said(deep(home, "data"))


def test_data_that_an_amendment_tells_of_is_no_finding(home: SealedHome, data: Path) -> None:
    (data / "one.bin").write_bytes(b"two")
    home.acts.append(("amended", {"what": "data"}))
    home.write_ledger()
    check = deep(home, "data")
    assert said(check) == ""
    assert any("an amendment says that data changed" in remark for remark in check.remarks)


def test_data_that_is_not_here_is_not_checked(home: SealedHome, data: Path) -> None:
    (data / "one.bin").unlink()
    assert deep(home, "data").state is State.NOT_CHECKED


# --- environments -----------------------------------------------------------------------------------------------------


def coded(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture
def packages(home: SealedHome, tmp_path: Path) -> Path:
    """A made-up environment with one distribution; return its folder of packages."""
    prefix = tmp_path / "venv"
    folder = prefix / "lib" / "python3.11" / "site-packages"
    metadata = folder / "thing-1.0.dist-info"
    metadata.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").write_bytes(b"an interpreter")
    (folder / "thing.py").write_bytes(b"x = 1\n")
    (folder / "a,b.py").write_bytes(b"")
    lines = [
        f"thing.py,sha256={coded(b'x = 1' + bytes([10]))},6",
        f'"a,b.py",sha256={coded(b"")},0',
        "thing-1.0.dist-info/RECORD,,",
        "__pycache__/thing.pyc,,",
    ]
    record = "\n".join(lines).encode() + b"\n"
    (metadata / "RECORD").write_bytes(record)
    freeze(home, prefix, {"thing-1.0": {"record_sha256": sha256(record), "files": 2, "bytes": 6}})
    return folder


def freeze(home: SealedHome, prefix: Path, installed: dict[str, Any], environment_sha256: str = "") -> None:
    """Freeze a side with what is installed now, as an interpreter would say it of these folders."""
    folders = [str(prefix / "lib" / "python3.11" / "site-packages")]
    distributions, hooks = read_distributions(folders), read_hooks(folders)
    now = digest_of_environment("3.11.7", sha256(b"an interpreter"), distributions, hooks)
    side = home.read("manifest.json")["baseline"]
    side["python"] = str(prefix / "bin" / "python")
    side["interpreter"] = {
        "path": str(prefix / "bin" / "python"),
        "version": "3.11.7",
        "sha256": sha256(b"an interpreter"),
        "environment_sha256": environment_sha256 or now,
        "installed": installed,
    }
    refreeze(home, baseline=side)


def test_an_environment_as_it_was_installed_is_intact(home: SealedHome, packages: Path) -> None:
    assert packages.exists()
    check = deep(home, "environment")
    assert said(check) == ""
    assert check.remarks == [
        "baseline: 2 installed files hashed",
        "baseline: environment_sha256 computed again, and the same",
    ]


def test_an_installed_file_that_was_edited_is_named_although_the_list_agrees_with_the_freeze(
    home: SealedHome, packages: Path
) -> None:
    (packages / "thing.py").write_bytes(b"x = 2\n")
    (packages / "a,b.py").unlink()
    text = said(deep(home, "environment"))
    assert f"{packages}/thing.py: changed: its SHA-256 is" in text
    assert f"{packages}/a,b.py: cannot be read" in text


def test_a_file_that_two_distributions_brought_is_that_of_one_of_them(home: SealedHome, packages: Path) -> None:
    records = {"thing-1.0": (packages / "thing-1.0.dist-info" / "RECORD").read_bytes()}
    records["other-2"] = f"thing.py,sha256={coded(b'other.')},6\n".encode()
    (packages / "other-2.dist-info").mkdir()
    (packages / "other-2.dist-info" / "RECORD").write_bytes(records["other-2"])
    freeze(home, packages.parents[2], {stem: {"record_sha256": sha256(data)} for stem, data in records.items()})
    assert said(deep(home, "environment")) == ""
    (packages / "thing.py").write_bytes(b"other.")
    assert said(deep(home, "environment")) == ""
    (packages / "thing.py").write_bytes(b"neither")
    assert f"{packages}/thing.py: changed" in said(deep(home, "environment"))


# --- the digest of the whole environment ------------------------------------------------------------------------------


def test_a_hook_that_was_added_is_found_by_the_digest_alone(home: SealedHome, packages: Path) -> None:
    (packages / "planted.pth").write_text("import os\n")
    text = said(deep(home, "environment"))
    assert "bin/python: not what was installed when the side was frozen: the environment's digest is" in text
    assert "a *.pth was changed, added or removed" in text


def test_a_distribution_that_was_added_is_named(home: SealedHome, packages: Path) -> None:
    (packages / "extra-3.dist-info").mkdir()
    assert "1 distributions are installed besides, such as extra-3" in said(deep(home, "environment"))


def test_an_interpreter_that_an_amendment_tells_of_is_no_finding(home: SealedHome, packages: Path) -> None:
    (packages / "planted.pth").write_text("import os\n")
    home.acts.append(("amended", {"what": "interpreter"}))
    home.write_ledger()
    check = deep(home, "environment")
    assert said(check) == ""
    assert any("an amendment says that interpreters changed" in remark for remark in check.remarks)


def test_folders_that_were_not_on_the_import_path_are_left_out_and_any_order_is_found(tmp_path: Path) -> None:
    for folder, stem in (("a", "one-1"), ("b", "two-2"), ("c", "three-3")):
        (tmp_path / folder / f"{stem}.dist-info").mkdir(parents=True)
        (tmp_path / folder / f"{stem}.dist-info" / "RECORD").write_bytes(f"{stem}.py,sha256=x,1\n".encode())
        (tmp_path / folder / "x.pth").write_text(stem)
    used = [str(tmp_path / name) for name in ("b", "a")]
    frozen = digest_of_environment("3", "e", read_distributions(used), read_hooks(used))
    found = [environments.read_folder(str(tmp_path / name)) for name in ("a", "b", "c")]
    paths = list(environments.paths_with(found, ["one-1", "two-2"]))
    assert [[Path(one.path).name for one in path] for path in paths] == [["a", "b"], ["b", "a"]]
    assert [environments.digest("3", "e", path) == frozen for path in paths] == [False, True]


def test_what_is_listed_and_not_there_and_names_that_are_quoted_count_as_where_a_side_runs(packages: Path) -> None:
    record = packages / "thing-1.0.dist-info" / "RECORD"
    record.write_bytes(record.read_bytes() + b'"say ""x"".py",sha256=x,3\r\ngone.py,sha256=y,9\n')
    (packages / 'say "x".py').write_bytes(b"xyz")
    (packages / "old-1.egg-info").mkdir()
    folders = [str(packages)]
    expected = digest_of_environment("3", "e", read_distributions(folders), read_hooks(folders))
    assert environments.digest("3", "e", [environments.read_folder(str(packages))]) == expected


def test_a_list_that_was_edited_with_its_file_is_held_to_the_freeze(home: SealedHome, packages: Path) -> None:
    (packages / "thing.py").write_bytes(b"x = 2\n")
    record = packages / "thing-1.0.dist-info" / "RECORD"
    record.write_text(f"thing.py,sha256={coded(b'x = 2' + bytes([10]))},6\n")
    assert f"{record}: is not the list that was frozen" in said(deep(home, "environment"))


def test_a_list_with_what_is_no_digest_is_named(home: SealedHome, packages: Path) -> None:
    record = packages / "thing-1.0.dist-info" / "RECORD"
    record.write_text("thing.py,sha256=x,6\n")
    freeze(home, packages.parents[2], {"thing-1.0": {"record_sha256": sha256(record.read_bytes())}})
    assert "what is no digest" in said(deep(home, "environment"))


def test_a_distribution_that_is_gone_is_named(home: SealedHome, packages: Path) -> None:
    (packages / "thing-1.0.dist-info").rename(packages / "thing-1.1.dist-info")
    assert "thing-1.0: was installed when the side was frozen, and is not any more" in said(deep(home, "environment"))


def test_an_interpreter_that_is_not_here_or_is_another_says_nothing(home: SealedHome, packages: Path) -> None:
    python = packages.parents[2] / "bin" / "python"
    python.write_bytes(b"another one")
    assert deep(home, "environment").state is State.NOT_CHECKED
    python.unlink()
    assert deep(home, "environment").state is State.NOT_CHECKED


def test_a_side_that_could_not_say_what_was_installed_is_not_checked(home: SealedHome) -> None:
    assert deep(home, "environment").state is State.NOT_CHECKED
