from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

import campaign
from campaign import diagnosis, documents
from campaign.cli.main import main
from campaign.diagnosis import Check, Mark
from campaign.documents import NumericalRules
from tests.support.home import Home, freeze

ROOT = Path(campaign.__file__).parent.parent


def marks(checks: list[Check]) -> dict[str, Mark]:
    return {check.name: check.mark for check in checks}


def name_python(home: Home, python: str) -> None:
    """Make a home's manifest name an interpreter."""
    manifest = documents.Manifest.read(home.paths.manifest)
    side = manifest.baseline.replace(python=python)
    changed = manifest.replace(baseline=side, harness_python=python)
    home.paths.manifest.write_bytes(changed.to_bytes())


def test_a_python_that_is_too_old_fails() -> None:
    assert diagnosis.check_python((3, 10, 9), "/usr/bin/python3").mark is Mark.FAIL
    assert diagnosis.check_python((3, 11, 0), "/usr/bin/python3").mark is Mark.OK


def test_our_packages_are_ours() -> None:
    assert set(marks(list(diagnosis.check_packages(ROOT, importlib.util.find_spec))).values()) == {Mark.OK}


def test_a_package_that_another_distribution_owns_is_named() -> None:
    def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
        if name == "reports":
            return importlib.machinery.ModuleSpec(name, None, origin="/elsewhere/reports/__init__.py")
        return None if name == "jobs" else importlib.util.find_spec(name)

    checks = list(diagnosis.check_packages(ROOT, find_spec))
    found = marks(checks)
    assert (found["package reports"], found["package jobs"], found["package campaign"]) == (
        Mark.FAIL,
        Mark.FAIL,
        Mark.OK,
    )
    assert all(check.remedy for check in checks if check.mark is Mark.FAIL)


@pytest.mark.parametrize(
    ("present", "mark"),
    [(diagnosis.SCHEDULER_COMMANDS, Mark.OK), ((), Mark.WARN), (("sbatch", "squeue"), Mark.FAIL)],
)
def test_the_scheduler_is_there_completely_or_not_at_all(present: tuple[str, ...], mark: Mark) -> None:
    check = diagnosis.check_scheduler(lambda name: f"/usr/bin/{name}" if name in present else None)
    assert check.mark is mark
    assert ("sacct" in check.found) == (mark is Mark.FAIL)


def test_a_local_folder_has_every_ability_and_is_left_as_it_was(tmp_path: Path) -> None:
    checks = list(diagnosis.check_folder(tmp_path))
    assert len(checks) == 5
    assert set(marks(checks).values()) == {Mark.OK}
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_hard_links_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    found = {check.name: check for check in diagnosis.check_folder(tmp_path)}
    assert found["hard links"].mark is Mark.FAIL
    assert "Operation not supported" in found["hard links"].found
    assert found["rename"].mark is Mark.OK


def test_a_file_system_whose_links_replace_files_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: Path, target: Path) -> None:
        Path(target).write_bytes(Path(source).read_bytes())

    monkeypatch.setattr(os, "link", replace)
    found = {check.name: check for check in diagnosis.check_folder(tmp_path)}
    assert "replaced a file" in found["hard links"].found


def test_a_folder_that_is_not_there_fails(tmp_path: Path) -> None:
    (check,) = diagnosis.check_folder(tmp_path / "missing")
    assert check.mark is Mark.FAIL


@pytest.mark.parametrize(
    ("folder", "mark", "kind"),
    [("/home/me/campaign", Mark.WARN, "nfs4"), ("/scratch x/c", Mark.WARN, "lustre"), ("/homely", Mark.OK, "ext4")],
)
def test_a_shared_file_system_is_a_warning(folder: str, mark: Mark, kind: str) -> None:
    mounts = "/dev/a / ext4 rw 0 0\nserver:/h /home nfs4 rw 0 0\nmds:/s /scratch\\040x lustre rw 0 0\n"
    check = diagnosis.check_mount(Path(folder), mounts)
    assert check.mark is mark
    assert check.found.startswith(kind)


def test_an_interpreter_that_runs_is_named_with_its_version(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home")
    name_python(home, sys.executable)
    found = {check.name: check for check in diagnosis.check_sides(home.paths, os.environ)}
    assert found["interpreter of baseline"].mark is Mark.OK
    version = ".".join(str(part) for part in sys.version_info[:3])
    assert f"Python {version}" in found["interpreter of harness"].found


def torch_check(root: Path, script: str) -> Check | None:
    """Return what is found of torch for a harness whose interpreter is a script."""
    python = root / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    home = freeze(root / "home", numerical=NumericalRules())
    name_python(home, str(python))
    return next((one for one in diagnosis.check_sides(home.paths, os.environ) if one.name == "torch of harness"), None)


def test_the_numerical_family_needs_torch_for_the_harness(tmp_path: Path) -> None:
    check = torch_check(tmp_path, 'case "$*" in *torch*) echo 2.13.0;; *) echo 3.11.7;; esac')
    assert check is not None
    assert (check.mark, check.found) == (Mark.OK, f"{tmp_path / 'python'}: torch 2.13.0")


def test_a_harness_without_torch_fails_with_a_remedy(tmp_path: Path) -> None:
    lacking = "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1"
    check = torch_check(tmp_path, f'case "$*" in *torch*) {lacking};; *) echo 3.11.7;; esac')
    assert check is not None
    assert check.mark is Mark.FAIL
    assert "No module named 'torch'" in check.found
    assert "[harness] python" in check.remedy


def test_torch_is_not_asked_for_where_no_tensors_are_compared(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home")
    name_python(home, sys.executable)
    assert "torch of harness" not in {check.name for check in diagnosis.check_sides(home.paths, os.environ)}


@pytest.mark.parametrize("script", [None, "#!/bin/sh\necho 'libpython is missing' >&2\nexit 127\n"])
def test_an_interpreter_that_does_not_run_fails(tmp_path: Path, script: str | None) -> None:
    home = freeze(tmp_path / "home")
    python = tmp_path / "python"
    if script:
        python.write_text(script)
        python.chmod(0o755)
    name_python(home, str(python))
    check = next(iter(diagnosis.check_sides(home.paths, os.environ)))
    assert check.mark is Mark.FAIL
    assert ("libpython is missing" if script else "No such file") in check.found


def test_the_command_lists_every_check_and_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = freeze(tmp_path / "home")
    name_python(home, sys.executable)
    code = main(["doctor", "--home", str(home.paths.root)])
    out = capsys.readouterr().out
    assert (code == 6) == ("FAIL" in out)
    assert "OK    interpreter of baseline" in out


def test_the_command_exits_with_6_if_a_check_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = freeze(tmp_path / "home")
    name_python(home, str(tmp_path / "gone"))
    assert main(["doctor", "--json", "--home", str(home.paths.root)]) == 6
    value = json.loads(capsys.readouterr().out)
    assert value["failed"] is True
    assert {check["name"]: check["mark"] for check in value["checks"]}["interpreter of baseline"] == "fail"


def test_a_home_that_is_not_there_yet_is_checked_where_it_would_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", "--home", str(tmp_path / "new" / "home")])
    assert f"hard links: {tmp_path}: works" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
