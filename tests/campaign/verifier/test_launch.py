"""The verifier that travels with a campaign, started as a program, and what it prints."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.cli.main import main
from campaign.verifier import command, text, verify
from campaign.verifier.facts import Options
from campaign.verifier.verify import verifying
from tests.support.sealed import SealedHome, closed_home

SOURCES = Path(verify.__file__).parent
PLANTED = "raise SystemExit('planted')\n"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> tuple[SealedHome, str]:
    """A closed home; never written to."""
    return closed_home(tmp_path_factory.mktemp("sealed") / "home")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A copy of the verifier, as a freeze makes it; return its launcher."""
    folder = tmp_path / "verifier"
    folder.mkdir()
    for source in SOURCES.glob("*.py"):
        shutil.copyfile(source, folder / source.name)
    return folder / "launch.py"


def launch(program: Path, *arguments: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    command = [sys.executable, *flags, str(program), *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, encoding="utf-8", env=environment, cwd=program.parent
    )


@pytest.mark.parametrize("flags", [(), ("-P", "-s"), ("-I",)], ids=["plain", "careful", "isolated"])
def test_it_needs_no_flag_and_bears_any(program: Path, sealed: tuple[SealedHome, str], flags: tuple[str, ...]) -> None:
    home, line = sealed
    done = launch(program, "verify", str(home.root), "--head", line, "--json", flags=flags)
    assert done.stderr == ""
    value = json.loads(done.stdout)
    assert (done.returncode, value["format"], value["tier"]) == (0, "verification/1", "externally anchored")
    assert sorted(program.parent.rglob("*.pyc")) == []


def plant_compiled(folder: Path) -> None:
    """Put compiled files beside the sources, which an interpreter that finds them never compares with those."""
    planted = folder.parent / "planted.py"
    planted.write_text(PLANTED)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for source in list(folder.glob("*.py")):
        cached = folder / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(str(planted), cfile=str(cached), invalidation_mode=mode)
        py_compile.compile(str(planted), cfile=str(folder / f"{source.stem}.pyc"), invalidation_mode=mode)


def plant_packages(folder: Path) -> None:
    """Put a folder, which an import prefers, and a library beside each module."""
    for source in list(folder.glob("[a-z]*.py")):
        if source.name != "launch.py":
            (folder / source.stem).mkdir()
            (folder / source.stem / "__init__.py").write_text(PLANTED)
            (folder / f"{source.stem}.so").write_bytes(b"")


def plant_standard_library(folder: Path) -> None:
    """Give modules of the standard library namesakes."""
    for name in ("json", "argparse", "hashlib", "threading", "importlib", "re"):
        (folder / f"{name}.py").write_text(PLANTED)


@pytest.mark.parametrize(
    "plant",
    [plant_compiled, plant_packages, plant_standard_library],
    ids=["compiled", "packages", "standard library"],
)
def test_nothing_planted_beside_it_runs(program: Path, sealed: tuple[SealedHome, str], plant: object) -> None:
    assert callable(plant)
    plant(program.parent)
    for flags in ((), ("-P", "-s")):
        done = launch(program, str(sealed[0].root), flags=flags)
        assert (done.returncode, "planted" in done.stdout + done.stderr) == (0, False), done.stderr


def test_where_there_is_no_home_it_is_a_usage_error(program: Path, tmp_path: Path) -> None:
    done = launch(program, str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "not a campaign home" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("--head", "x"), ("--signature", "x"), ("--identity", "a@b"), ("--unknown",)],
    ids=["head", "signature", "identity", "unknown"],
)
def test_a_wrong_option_is_a_usage_error(sealed: tuple[SealedHome, str], arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main([str(sealed[0].root), *arguments])
    assert caught.value.code == 2


def test_a_reader_that_has_gone_leaves_the_exit_code(program: Path, tmp_path: Path) -> None:
    home, _ = closed_home(tmp_path / "home")
    home.write("frozen/campaign.toml", b"")
    read, write = os.pipe()
    os.close(read)
    arguments = [sys.executable, str(program), str(home.root)]
    done = subprocess.run(arguments, check=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (5, b"")


# --- what is printed --------------------------------------------------------------------------------------------------


def test_a_person_reads_every_check_every_finding_the_tier_and_no_verdict_where_something_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, line = closed_home(tmp_path / "home")
    home.write("frozen/campaign.toml", b"")
    home.write("frozen/x\x1b[31m", b"")
    assert command.main([str(home.root), "--head", line]) == 5
    said = capsys.readouterr().out
    for step in verify.STEPS:
        assert f"{step.name:<12}{step.title}" in said
    assert "TAMPERED [frozen] frozen/campaign.toml: not the configuration that was frozen" in said
    assert "TAMPERED [closing] frozen/campaign.toml: changed after it was listed" in said
    assert "\x1b" not in said
    assert "tier: none, since something is not what was frozen" in said
    assert "verdict on" not in said


def test_the_summary_names_what_was_verified_by_what_and_by_which_policy(sealed: tuple[SealedHome, str]) -> None:
    home, line = sealed
    with verifying(home.root, Options(head=line, execute=False)) as verification:
        value = text.as_json(verification)
    manifest = home.read("manifest.json")
    assert value["policy"] == {name: manifest[name] for name in ("acceptance_sha256", "protocol_sha256")}
    assert value["subject"]["campaign"] == "small"
    assert value["subject"]["ledger_head"] == line.split()[2]
    assert value["verifier"] == {"sha256": verify.own_digest(), "is_frozen_one": False}
    assert [check["name"] for check in value["checks"]] == [*(step.name for step in verify.STEPS), "head", "verdict"]
    assert value["head"] == line
    json.dumps(value, allow_nan=False)


def test_its_own_digest_is_that_of_the_program_that_a_freeze_copies(program: Path) -> None:
    from campaign.snapshot import digest_folder  # noqa: PLC0415 - the driver's, for this comparison alone

    assert verify.own_digest() == digest_folder(program.parent)


def test_the_command_says_where_there_is_no_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        assert main(["verify", "--home", str(place), "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["exit_code"] == 2


@pytest.mark.parametrize("arguments", [["--head", "x"], ["--identity", "a@b"]], ids=["head", "identity"])
def test_the_command_refuses_what_it_cannot_compare_with(
    sealed: tuple[SealedHome, str], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "--home", str(sealed[0].root), *arguments]) == 2
    assert capsys.readouterr().out == ""


def test_the_command_verifies_a_home_whose_manifest_was_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, _ = closed_home(tmp_path / "home")
    (home.root / "manifest.json").unlink()
    assert main(["verify", "--home", str(home.root), "--json"]) == 5
    value = json.loads(capsys.readouterr().out)
    assert {"check": "frozen", "state": "tampered", "where": "manifest.json", "what": "is not there"} in value[
        "findings"
    ]
    assert value["verdicts"] == {}


def test_the_command_takes_the_home_by_its_place_as_the_launcher_does(
    sealed: tuple[SealedHome, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, line = sealed[0].root, sealed[1]
    monkeypatch.chdir(root.parent)
    (tmp_path / "way").symlink_to(root)
    monkeypatch.setenv("CAMPAIGN_HOME", str(tmp_path))  # no home: it would be refused
    for given in ([root.name], [str(root), "--home", str(tmp_path / "way")]):
        assert main(["verify", *given, "--json"]) == 5  # its acceptance is none, and no collection is possible
        assert json.loads(capsys.readouterr().out)["head"] == line
    assert main(["verify", "--json"]) == 2


def test_the_command_refuses_two_different_homes(
    sealed: tuple[SealedHome, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(sealed[0].root), "--home", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"HOME is {sealed[0].root}, --home is {tmp_path}" in told.err
