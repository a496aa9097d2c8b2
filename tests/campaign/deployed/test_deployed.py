"""Is what is deployed what was qualified? Everything that differs is named, and nothing is written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaign import documents, files
from campaign.cli.main import main
from campaign.deployed import Comparison, FrozenSide, compare_interpreter, compare_lockfile, read_side
from campaign.errors import EvidenceError
from campaign.freezing.machine import Interpreter
from campaign.paths import HomePaths
from tests.support.freezing import CONFIG, Setting, make_setting
from tests.support.git import Repository

WITH_LOCK = CONFIG.replace('adapter = "adapter:fast"', 'adapter = "adapter:fast"\nlockfile = "source/uv.lock"')
FROZEN = FrozenSide(
    id="c1",
    snapshot_sha256="0" * 64,
    entries=(),
    python="/usr/bin/python3",
    launch=(),
    python_version="3.11.7",
    lockfile="",
    lockfile_name="",
    distributions={"torch": "2.13", "numpy": "2.1"},
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a frozen campaign and the tree that was frozen."""
    setting: Setting = make_setting(tmp_path_factory.mktemp("frozen"))
    (setting.root / "source" / "uv.lock").write_text("torch==2.13\n")
    (setting.root / "source" / "empty").mkdir()
    (setting.root / "source" / "link").symlink_to("adapter.py")
    setting.config_path.write_text(WITH_LOCK)
    home = str(setting.root / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMPAIGN_REGISTRY", str(setting.root / "registry.jsonl"))
        assert main(["freeze", str(setting.config_path), "--home", home]) == 0
        assert main(["freeze", "--candidate", "--config", str(setting.config_path), "--home", home]) == 0
    return setting.root


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    """Return a folder with the home and a deployed copy of the tree."""
    shutil.copytree(template / "home", tmp_path / "home", symlinks=True)
    shutil.copytree(template / "source", tmp_path / "deployed", symlinks=True)
    return tmp_path


def check(place: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = main(["check-deployed", str(place / "deployed"), "--home", str(place / "home"), "--json", *arguments])
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said["exit_code"] == code
    return said


def tree_of(home: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(home)): (path.stat().st_mtime_ns, files.sha256_file(path) if path.is_file() else "")
        for path in sorted(home.rglob("*"))
        if not path.is_symlink()
    }


def differences(said: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["part"], one["kind"], one["name"]) for one in said["not_covered"]]


def test_a_tree_as_it_was_frozen_is_covered_and_waits_for_a_verdict(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree_of(place)
    said = check(place, capsys)
    assert (said["exit_code"], said["not_covered"]) == (4, [])
    assert said["verdict"]["objections"] == ["there was no report on the candidate, so that no verdict permits it"]
    assert tree_of(place) == before


def test_the_baseline_needs_no_verdict(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = check(place, capsys, "--side", "baseline")
    assert (said["exit_code"], said["id"]) == (0, "baseline")


def edit(tree: Path) -> None:
    path = tree / "adapter.py"
    path.write_text(path.read_text().replace("native", "naive "))


def relink(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").symlink_to("uv.lock")


def turn_into_folder(tree: Path) -> None:
    (tree / "adapter.py").unlink()
    (tree / "adapter.py").mkdir()


def make_pipe(tree: Path) -> None:
    (tree / "adapter.py").unlink()
    os.mkfifo(tree / "adapter.py")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (edit, ("tree", "changed", "adapter.py")),
        (lambda tree: (tree / "adapter.py").chmod(0o755), ("tree", "changed", "adapter.py")),
        (lambda tree: (tree / "adapter.py").unlink(), ("tree", "missing", "adapter.py")),
        (lambda tree: (tree / "empty").rmdir(), ("tree", "missing", "empty")),
        (lambda tree: (tree / "model" / "more.py").write_text(""), ("tree", "added", "model/more.py")),
        (lambda tree: (tree / "more").mkdir(), ("tree", "added", "more")),
        (lambda tree: (tree / "sitecustomize.py").write_text(""), ("tree", "added", "sitecustomize.py")),
        (lambda tree: (tree / "late.pth").write_text(""), ("tree", "added", "late.pth")),
        (relink, ("tree", "changed", "link")),
        (turn_into_folder, ("tree", "changed", "adapter.py")),
        (make_pipe, ("tree", "unknown", "adapter.py")),
        (lambda tree: (tree / "out").symlink_to("/etc/passwd"), ("tree", "unknown", "out")),
    ],
)
def test_every_difference_of_the_tree_is_named(
    place: Path, change: Callable[[Path], object], found: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    change(place / "deployed")
    said = check(place, capsys)
    assert said["exit_code"] == 3
    (part, kind, name) = differences(said)[0]
    assert (part, kind) == found[:2]
    assert name.endswith(found[2])


def test_an_added_folder_is_named_by_what_it_holds(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "deployed" / "more" / "deep").mkdir(parents=True)
    (place / "deployed" / "more" / "deep" / "x.py").write_text("")
    assert differences(check(place, capsys)) == [("tree", "added", "more/deep/x.py")]


def test_compiled_code_is_no_part_of_any_snapshot_and_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "deployed" / "__pycache__").mkdir()
    (place / "deployed" / "__pycache__" / "adapter.cpython-311.pyc").write_bytes(b"planted")
    said = check(place, capsys)
    assert said["not_covered"] == []
    assert any("bytecode" in note for note in said["notes"])


def test_what_git_ignores_there_is_compared_where_the_snapshot_has_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = place / "deployed"
    (tree / ".gitignore").write_text("adapter.py\n")
    Repository(tree).git("init", "-q", "-b", "main")
    edit(tree)
    assert differences(check(place, capsys)) == [("tree", "changed", "adapter.py"), ("tree", "added", ".gitignore")]


def test_the_lock_file_of_the_frozen_name_is_compared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "deployed" / "uv.lock").write_text("torch==2.14\n")
    found = differences(check(place, capsys))
    assert found == [("tree", "changed", "uv.lock"), ("lockfile", "changed", str(place / "deployed" / "uv.lock"))]
    other = place / "other.lock"
    other.write_text("torch==2.13\n")
    assert differences(check(place, capsys, "--lockfile", str(other))) == [("tree", "changed", "uv.lock")]
    missing = str(place / "none.lock")
    assert ("lockfile", "missing", missing) in differences(check(place, capsys, "--lockfile", missing))


@pytest.mark.parametrize("file", ["manifest.json", "files.json"])
def test_a_home_that_is_not_what_was_frozen_tells_nothing(
    place: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = HomePaths(place / "home")
    (candidate,) = paths.candidates.iterdir()
    path = candidate / file
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"adapter", b"adapted"))
    assert main(["check-deployed", str(place / "deployed"), "--home", str(paths.root)]) == 5
    assert path.name in capsys.readouterr().err


def test_a_list_that_is_not_of_the_snapshot_tells_nothing_although_manifest_and_ledger_name_it(place: Path) -> None:
    paths = HomePaths(place / "home")
    paths.manifest.chmod(0o644)
    manifest = json.loads(paths.manifest.read_bytes())
    manifest["baseline"]["snapshot_sha256"] = "0" * 64
    paths.manifest.write_bytes(files.dump_json(manifest))
    said = {"manifest_sha256": files.sha256_file(paths.manifest)}
    acts = [documents.Entry(seq=1, previous="", at=0.0, act="froze_baseline", data=said)]
    with pytest.raises(EvidenceError, match="not the list of the snapshot"):
        read_side(paths, acts, "baseline", "")


def test_a_candidate_that_was_never_frozen_and_a_tree_that_is_not_there_are_refused(place: Path) -> None:
    home = ("--home", str(place / "home"))
    assert main(["check-deployed", str(place / "nowhere"), *home]) == 2
    assert main(["check-deployed", str(place / "deployed"), "--candidate", "cffff", *home]) == 2


# --- interpreter and lock file alone ----------------------------------------------------------------------------------


def interpreter(distributions: dict[str, str] | None, python: str = "3.11.7") -> Comparison:
    facts = {"python": python} if distributions is not None else {"unknown": "it cannot be run"}
    return compare_interpreter(FROZEN, "python", Interpreter(facts=facts, distributions=distributions))


def named(comparison: Comparison) -> list[tuple[str, str, str]]:
    return [(one.kind, one.name, one.detail) for one in comparison.differences]


def test_versions_are_compared_one_by_one() -> None:
    assert named(interpreter({"torch": "2.13", "numpy": "2.1"})) == []
    assert named(interpreter({"torch": "2.14", "scipy": "1"}, "3.12.0")) == [
        ("changed", "python", "3.12.0 instead of 3.11.7"),
        ("missing", "numpy", "frozen with 2.1"),
        ("added", "scipy", "1"),
        ("changed", "torch", "2.14 instead of 2.13"),
    ]


def test_what_is_not_known_is_not_covered() -> None:
    assert named(interpreter(None)) == [("unknown", "python", "it cannot be run")]
    nothing = Interpreter(facts={"python": "3.11.7"}, distributions={})
    found = compare_interpreter(replace(FROZEN, distributions=None), "python", nothing)
    assert named(found) == [("unknown", "python", "what was installed was not recorded at the freeze")]


def test_a_lock_file_that_cannot_be_read_is_not_covered(tmp_path: Path) -> None:
    frozen = replace(FROZEN, lockfile="0" * 64, lockfile_name="uv.lock")
    (tmp_path / "uv.lock").mkdir()
    assert [one[0] for one in named(compare_lockfile(frozen, None, tmp_path))] == ["unknown"]


def test_a_lock_file_where_none_was_frozen_is_not_covered(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text("")
    assert compare_lockfile(FROZEN, None, tmp_path).differences == ()
    assert named(compare_lockfile(FROZEN, tmp_path / "uv.lock", tmp_path))[0][0] == "unknown"
