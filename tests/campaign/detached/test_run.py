"""run.py: refuses what differs, hands over what was asked, stops what it started, says what is left, and packs."""

from __future__ import annotations

import ast
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign import files
from campaign.cli.main import main
from campaign.detached import run
from campaign.documents import Bundle, Results
from campaign.paths import BundlePaths
from tests.support.standin import BARE, call, make_home, told, wish


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a bundle of two pilots, each in an allocation of its own."""
    root = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        home = make_home(root / "home", patch)
        assert main(["bundle", "write", str(root / "out"), "--home", str(home.paths.root)]) == 0
    return root / "out"


@pytest.fixture
def bundle(written: Path, tmp_path: Path) -> Path:
    """Bring that bundle to a machine."""
    return shutil.copytree(written, tmp_path / "out", symlinks=True)


def names(folder: Path) -> list[str]:
    """Return the names of a bundle's attempts."""
    document = Bundle.read(BundlePaths(folder).document)
    return [name for one in document.allocations for name in one.expected_s]


# --- alone ------------------------------------------------------------------------------------------------------------


def test_it_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(run.__file__).read_bytes())
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in found} <= set(sys.stdlib_module_names)


def test_its_names_are_those_of_the_driver() -> None:
    paths = BundlePaths(Path("/b"))
    assert paths.document == Path("/b") / run.BUNDLE
    assert paths.home.root == Path("/b") / run.HOME
    assert paths.data == Path("/b") / run.DATA
    assert paths.results == Path("/b") / run.RESULTS
    tops = (paths.home.attempts, paths.home.allocations, paths.home.inputs)
    assert tuple(path.relative_to(paths.home.root).as_posix() for path in tops) == run.OF_RESULTS
    assert (Bundle.defaults()["format"], Results.defaults()["format"]) == (run.FORMAT, run.RESULTS_FORMAT)


@given(st.binary(min_size=1).filter(lambda data: b"\0" not in data))
def test_every_name_of_a_file_can_be_spelled(data: bytes) -> None:
    path = os.fsdecode(data)
    name = run.name_of(path)
    assert run.path_of(name) == path
    name.encode("utf-8")


# --- refusing ---------------------------------------------------------------------------------------------------------

TREE = "home/frozen/baseline/tree"
Change = Callable[[Path], object]


def _relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("tool.sh")


def _extend(path: Path) -> None:
    path.write_text(path.read_text() + "# more\n")


def _replan(folder: Path) -> None:
    path = folder / run.BUNDLE
    value = json.loads(path.read_bytes())
    value["allocations"][0]["plan_sha256"] = "0" * 64
    path.write_bytes(files.dump_json({**value, "id": run.bundle_id(value)}))


def _swap(path: Path, target: Path) -> None:
    path.rename(target)
    path.symlink_to(target)


CHANGES: dict[str, tuple[Change, str]] = {
    "program": (lambda folder: _extend(folder / "run.py"), "run.py: its SHA-256 is"),
    "harness": (lambda folder: (folder / "home/frozen/harness/launch.py").write_text(""), "launch.py: its SHA-256"),
    "plan": (lambda folder: (folder / "home/allocations/a00001/allocation.json").write_text("{}"), "its SHA-256 is"),
    "missing": (lambda folder: (folder / "home/protocol.json").unlink(), "home/protocol.json: is missing"),
    "added": (lambda folder: (folder / "home/frozen/harness/json.py").write_text(""), "json.py: is not part"),
    "ledger": (lambda folder: (folder / "home/ledger.jsonl").write_text(""), "ledger.jsonl: is not part"),
    "link": (lambda folder: _relink(folder / TREE / "again.py"), "again.py: is not the link to adapter.py"),
    "mode": (lambda folder: (folder / TREE / "tool.sh").chmod(0o644), "tool.sh: is not executable"),
    "folder": (lambda folder: _swap(folder / "home/frozen", folder.parent / "frozen"), "frozen: is not part"),
    "file": (lambda folder: _swap(folder / "home/manifest.json", folder.parent / "m"), "manifest.json: cannot be read"),
    "results": (
        lambda folder: (folder / "home/attempts").symlink_to(folder.parent, target_is_directory=True),
        "home/attempts: is not part",
    ),
    "result": (
        lambda folder: (folder / "home/allocations/a00001/x").symlink_to("nowhere"),
        "a00001/x: is not part",
    ),
    "digest": (_replan, "not the plan that the allocation names"),
}


def refusal(folder: Path, *arguments: str) -> tuple[int, str]:
    """Return exit code and message of a command line that is refused before anything is started."""
    with pytest.raises(run.BundleError) as refused:
        run.main(arguments, folder, 0.0)
    return refused.value.code, "\n".join(refused.value.lines)


@pytest.mark.parametrize("name", CHANGES)
def test_a_bundle_that_is_not_as_it_was_written_is_refused(bundle: Path, name: str) -> None:
    change, said = CHANGES[name]
    change(bundle)
    with pytest.raises(run.BundleError) as refused:
        run.check_files(bundle, run.read_bundle(bundle))
    assert refused.value.code == run.TAMPERED
    assert any(said in line for line in refused.value.lines)


def test_nothing_of_such_a_bundle_is_run(bundle: Path) -> None:
    (bundle / "home/frozen/harness/json.py").write_text("planted = True\n")
    done = call(bundle, "--max-minutes", "1")
    assert (done.returncode, done.stdout) == (run.TAMPERED, "")
    assert "nothing was run" in done.stderr
    assert not (bundle / "told.json").exists()


def test_a_list_that_was_edited_is_refused(bundle: Path) -> None:
    path = bundle / run.BUNDLE
    path.write_text(path.read_text().replace('"campaign": "', '"campaign": "x'))
    for arguments in (["--max-minutes", "1"], ["--list"], ["--pack", str(bundle.parent / "packed.tar")]):
        code, said = refusal(bundle, *arguments)
        assert (code, "changed since it was written" in said) == (run.TAMPERED, True)


@pytest.mark.parametrize(
    ("given_pythons", "said"),
    [
        ({"baseline": "/nowhere/python"}, "--python baseline=PATH"),
        ({"candidate": "/usr/bin/python3"}, "the bundle has no 'candidate'; it has baseline, harness"),
        ({"baseline": "/bin/true"}, "cannot be used"),
    ],
)
def test_an_interpreter_that_is_not_there_is_refused(bundle: Path, given_pythons: dict[str, str], said: str) -> None:
    with pytest.raises(run.BundleError) as refused:
        run.find_pythons(run.read_bundle(bundle), given_pythons)
    assert (refused.value.code, said in "\n".join(refused.value.lines)) == (run.USAGE, True)


def test_data_that_are_not_there_are_refused(tmp_path: Path) -> None:
    bundle = {
        "data": {
            "plays": {"path": "/frozen/plays", "included": False},
            "more": {"path": "/frozen/text", "included": True},
        }
    }
    inside = tmp_path / "data" / "more" / "text"
    inside.mkdir(parents=True)
    assert run.find_data(tmp_path, bundle, {"plays": str(tmp_path)}) == {"plays": str(tmp_path), "more": str(inside)}
    for given_data, said in (({}, "--data plays=PATH"), ({"play": "/"}, "the bundle has no 'play'")):
        with pytest.raises(run.BundleError, match=said):
            run.find_data(tmp_path, bundle, given_data)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--python", "baseline"], "'baseline' is not --python SIDE=PATH"),
        (["--python", "baseline=/a", "--python", "baseline=/b"], "baseline is given twice"),
        (["--allocation", "a9"], "the bundle has no 'a9'; it has a00001, a00002"),
    ],
)
def test_what_is_not_there_is_said_before_anything_runs(bundle: Path, arguments: list[str], said: str) -> None:
    done = call(bundle, "--max-minutes", "1", *arguments)
    assert (done.returncode, said in done.stderr) == (run.USAGE, True), done.stderr
    assert not (bundle / "told.json").exists()


@pytest.mark.parametrize("arguments", [[], ["--max-minutes", "0"], ["--max-minutes", "nan"], ["--list", "--pack", "x"]])
def test_other_command_lines_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        run.main(arguments, tmp_path, 0.0)
    assert refused.value.code == run.USAGE


# --- running ----------------------------------------------------------------------------------------------------------


def test_the_harness_is_started_as_a_job_starts_it(bundle: Path) -> None:
    shadow = "raise SystemExit('a file beside run.py ran instead of the standard library')\n"
    (bundle / "argparse.py").write_text(shadow)
    done = call(bundle, "--max-minutes", "2", "--python", f"harness={BARE}", env={"SLURM_JOB_ID": "7"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "2 of 2 attempts are made, 0 lost, 0 left"
    asked = told(bundle)
    assert asked["safe_path"] is True
    assert (asked["executable"], asked["prefix"].endswith("/pycache")) == (BARE, True)
    assert not Path(asked["prefix"]).parent.exists()
    environment = asked["environment"]
    assert {"PYTHONPATH", "OTHER"}.isdisjoint(environment)
    assert (environment["SLURM_JOB_ID"], environment["PYTHONSAFEPATH"]) == ("7", "1")
    request = asked["request"]
    assert request["home"] == str(bundle / "home")
    assert [one["id"] for one in request["allocations"]] == ["a00001", "a00002"]
    assert request["python"] == {"harness": BARE, "baseline": "/usr/bin/python3"}
    assert not list(bundle.rglob("__pycache__"))


def test_what_is_left_is_said_and_made_by_the_next_command(bundle: Path) -> None:
    wish(bundle, most=1)
    done = call(bundle, "--max-minutes", "1")
    assert done.returncode == run.LEFT
    first, second = names(bundle)
    assert done.stdout.splitlines() == [
        "1 of 2 attempts are made, 0 lost, 1 left",
        f"left: {second} in a00002",
    ]
    shown = call(bundle, "--list").stdout
    assert (f"  {first}: completed" in shown, f"  {second}: not made yet" in shown) == (True, True)
    assert call(bundle, "--max-minutes", "1").returncode == 0
    assert [one["id"] for one in told(bundle)["request"]["allocations"]] == ["a00002"]
    assert call(bundle, "--max-minutes", "1").returncode == 0


def test_an_attempt_without_a_receipt_is_lost(bundle: Path) -> None:
    first, second = names(bundle)
    begun = BundlePaths(bundle).home.attempts / first
    begun.mkdir(parents=True)
    (begun / "start.json").write_text("{}")
    done = call(bundle, "--max-minutes", "1")
    assert done.stdout.splitlines() == ["1 of 2 attempts are made, 1 lost, 0 left"]
    assert f"  {first}: was begun and left no receipt" in call(bundle, "--list").stdout
    assert (BundlePaths(bundle).home.attempts / second / "receipt.json").exists()


@pytest.mark.parametrize("name", ["host", "boot_id"])
def test_an_allocation_of_another_machine_is_left_alone(bundle: Path, name: str) -> None:
    here = {"host": os.uname().nodename, "boot_id": run.read_boot_id()}
    started = BundlePaths(bundle).home.allocation("a00001").started
    started.write_bytes(files.dump_json({**here, name: "elsewhere"}))
    done = call(bundle, "--max-minutes", "1")
    assert (done.returncode, "an allocation is one machine" in done.stderr) == (run.LEFT, True)
    assert [one["id"] for one in told(bundle)["request"]["allocations"]] == ["a00002"]


def test_only_the_allocation_that_was_asked_for_is_gone_on_with(bundle: Path) -> None:
    assert call(bundle, "--max-minutes", "1", "--allocation", "a00002").returncode == run.LEFT
    assert [one["id"] for one in told(bundle)["request"]["allocations"]] == ["a00002"]


def test_two_commands_do_not_work_with_one_bundle(bundle: Path) -> None:
    with run.locked(bundle):
        done = call(bundle, "--max-minutes", "1")
        assert (done.returncode, "somebody else works with this bundle" in done.stderr) == (run.MACHINE, True)
        assert refusal(bundle, "--pack", str(bundle.parent / "packed.tar"))[0] == run.MACHINE
        assert run.main(["--list"], bundle, 0.0) == run.DONE


class Waiting:
    """A command whose harness waits, until it is told to stop, before its first attempt."""

    def __init__(self, bundle: Path, minutes: str) -> None:
        pipe = bundle.parent / "pipe"
        os.mkfifo(pipe)
        wish(bundle, pipe=str(pipe))
        program = str(BundlePaths(bundle).program)
        self.job = subprocess.Popen(
            [BARE, program, "--max-minutes", minutes], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.pipe = os.open(pipe, os.O_WRONLY)  # waits until the harness has opened it

    def finish(self) -> int:
        self.job.communicate(timeout=60)
        os.close(self.pipe)
        return self.job.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_handed_to_the_harness(bundle: Path, number: signal.Signals) -> None:
    waiting = Waiting(bundle, "5")
    waiting.job.send_signal(number)
    assert waiting.finish() == run.INTERRUPTED
    assert json.loads((bundle / "heard.json").read_bytes()) == [number.name]


def test_a_signal_of_a_side_is_handed_on_as_one_and_stops_nothing(bundle: Path) -> None:
    wish(bundle, side=True)
    done = call(bundle, "--max-minutes", "1")
    assert (done.returncode, "of a side: the harness is told" in done.stderr) == (0, True)
    # SI_QUEUE: a signal that does not name its sender, which ends an attempt as interference.
    assert json.loads((bundle / "sent.json").read_bytes()) == [signal.SIGTERM, -1]


@pytest.mark.parametrize(
    ("code", "pid", "uid", "found"),
    [
        (0x80, 0, 0, False),
        (0, 0, 0, False),
        (0, os.getppid(), os.getuid(), False),
        (0, 1 << 30, os.getuid(), None),
        (-1, os.getppid(), os.getuid(), None),
    ],
    ids=["terminal", "outside", "shell", "gone", "queued"],
)
def test_who_sent_a_signal_is_told_by_the_kernel(code: int, pid: int, uid: int, *, found: bool | None) -> None:
    info: Any = SimpleNamespace(si_code=code, si_pid=pid, si_uid=uid)
    assert run.is_of_side(info, os.getpid()) is found


def test_a_descendant_of_the_harness_is_of_a_side() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as side:
        info: Any = SimpleNamespace(si_code=0, si_pid=side.pid, si_uid=os.getuid())
        assert run.is_of_side(info, os.getpid()) is True


def test_a_harness_that_was_killed_is_the_machines_fault(bundle: Path) -> None:
    wish(bundle, dies=True)
    done = call(bundle, "--max-minutes", "1")
    assert (done.returncode, "killed by signal 9" in done.stderr) == (run.MACHINE, True)


@pytest.mark.parametrize(
    ("code", "is_right"),
    [(0, True), (3, True), (128 + signal.SIGUSR2, True), (-signal.SIGUSR2, True), (1, False), (4, False), (-9, False)],
)
def test_how_the_harness_ended_is_said_unless_it_was_in_order(code: int, *, is_right: bool) -> None:
    assert (run.describe_end(code) == "") is is_right


def test_nobody_needs_to_read_what_it_says(bundle: Path) -> None:
    program = [BARE, str(BundlePaths(bundle).program), "--max-minutes", "1"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(program, stdout=full, stderr=full, check=False, timeout=60)
    assert done.returncode == 0


def test_a_place_that_no_document_can_name_is_refused(bundle: Path) -> None:
    moved = bundle.rename(bundle.with_name(os.fsdecode(b"out\xff")))
    done = call(moved, "--max-minutes", "1")
    assert (done.returncode, "is not UTF-8" in done.stderr) == (run.USAGE, True)


def test_the_harness_is_told_when_the_time_is_nearly_over(bundle: Path) -> None:
    waiting = Waiting(bundle, "0.02")  # 1.2 s, a quarter of which is for ending in order
    assert waiting.finish() == run.LEFT
    assert json.loads((bundle / "heard.json").read_bytes()) == ["SIGUSR2"]


def test_the_harness_dies_with_the_command(bundle: Path) -> None:
    waiting = Waiting(bundle, "5")
    waiting.job.kill()
    waiting.finish()
    with run.locked(bundle):  # which the harness holds as long as it lives
        assert not (bundle / "heard.json").exists()
    wish(bundle)
    assert call(bundle, "--max-minutes", "1").returncode == 0


# --- packing ----------------------------------------------------------------------------------------------------------


def test_what_was_made_is_packed_with_the_digests_of_what_is_left(bundle: Path, tmp_path: Path) -> None:
    assert call(bundle, "--max-minutes", "1").returncode == 0
    home = BundlePaths(bundle).home
    (home.allocations / ".x.json.1.tmp").write_text("half")
    made = {path.relative_to(home.root).as_posix() for path in home.attempts.rglob("*") if path.is_file()}
    made |= {f"allocations/{name}/ended.json" for name in ("a00001", "a00002")}
    done = call(bundle, "--pack", str(tmp_path / "one.tar"), "--leave", "*.log")
    assert (done.returncode, done.stderr) == (0, "")
    assert files.sha256_file(tmp_path / "one.tar") == done.stdout.split()[0]
    with tarfile.open(tmp_path / "one.tar") as tar:
        tar.extractall(tmp_path / "there", filter="data")
    (top,) = (tmp_path / "there").iterdir()
    results = Results.read(BundlePaths(top).results)
    assert (top.name, results.bundle) == (f"results-{results.bundle}", run.read_bundle(top)["id"])
    assert {*results.files, *results.left} == made
    assert {path for path in made if path.endswith(".log")} == set(results.left)
    for path, (sha256, size) in results.files.items():
        there = BundlePaths(top).home.root / path
        assert (files.sha256_file(there), there.stat().st_size) == (sha256, size)
    assert not any((BundlePaths(top).home.root / path).exists() for path in results.left)
    assert call(bundle, "--pack", str(tmp_path / "two.tar"), "--leave", "*.log").returncode == 0
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


@pytest.mark.parametrize("pattern", ["*", "*/receipt.json", "allocations/*"])
def test_what_counts_must_come_back(bundle: Path, tmp_path: Path, pattern: str) -> None:
    home = BundlePaths(bundle).home
    (home.allocation("a00001").ended).write_text("{}")
    home.attempts.mkdir()
    (home.attempts / "receipt.json").write_text("{}")
    code, said = refusal(bundle, "--pack", str(tmp_path / "packed.tar"), "--leave", pattern)
    assert (code, "must come back" in said) == (run.USAGE, True)
    assert not (tmp_path / "packed.tar").exists()


@pytest.mark.parametrize(
    ("path", "may"),
    [
        (f"inputs/{'a' * 64}.safetensors", True),
        (f"inputs/{'a' * 64}.json", False),
        ("attempts/b/run/r/s1/1/segments/1/checkpoints/20/files/x/y", True),
        ("attempts/b/run/r/s1/1/segments/1/checkpoints/20/checkpoint.json", False),
        ("attempts/b/case/w/1/tensors.csv.gz", True),
        ("attempts/b/case/w/1/numerical.csv", False),
        ("attempts/b/case/w/1/baseline.log", True),
        ("allocations/a00001/harness.log", False),
    ],
)
def test_what_no_table_is_made_of_may_be_left(path: str, *, may: bool) -> None:
    assert run.may_be_left(path) is may


def test_an_archive_is_not_written_over_another(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "packed.tar").write_text("mine")
    assert refusal(bundle, "--pack", str(tmp_path / "packed.tar"))[0] == run.USAGE
    assert (tmp_path / "packed.tar").read_text() == "mine"


def test_an_archive_does_not_lie_among_what_is_packed(bundle: Path) -> None:
    code, said = refusal(bundle, "--pack", str(bundle / "home" / "attempts" / "out.tar"))
    assert (code, "lies among what is to be packed" in said) == (run.USAGE, True)


def test_a_bundle_that_differs_is_not_packed(bundle: Path, tmp_path: Path) -> None:
    (bundle / "home/protocol.json").unlink()
    assert refusal(bundle, "--pack", str(tmp_path / "out.tar"))[0] == run.TAMPERED


def test_an_archive_is_written_where_no_hard_links_are(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    out = tmp_path / "results.tar"
    assert run.main(["--pack", str(out)], bundle, 0.0) == 0
    assert tarfile.is_tarfile(out)
    with pytest.raises(run.BundleError, match="something already"):
        run.main(["--pack", str(out)], bundle, 0.0)


def test_a_link_among_the_results_is_refused(bundle: Path, tmp_path: Path) -> None:
    (BundlePaths(bundle).home.root / "attempts").mkdir()
    (BundlePaths(bundle).home.root / "attempts" / "x").symlink_to("/etc/passwd")
    code, said = refusal(bundle, "--pack", str(tmp_path / "packed.tar"))
    assert (code, "attempts/x: is not part of the bundle" in said) == (run.TAMPERED, True)
