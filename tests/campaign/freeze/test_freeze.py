from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from acceptance.digest import SOURCES
from campaign import __version__, documents, files
from campaign.errors import ConfigError, EvidenceError, InfrastructureError, StateError
from campaign.freezing.freeze import freeze_baseline
from campaign.freezing.programs import find_programs
from campaign.freezing.reachability.check import require_reachable
from campaign.frozen import read_frozen
from campaign.judging.evaluation import AcceptanceError
from campaign.record.ledger import Ledger, read_entries
from campaign.snapshot import digest_folder, read_listing, tree_digest
from tests.support.freezing import AT, CONFIG, INTERPRETER, Setting, clock, make_setting
from tests.support.git import Repository, write_files
from tests.support.refusing import refuse

ROOT = Path(__file__).parents[3]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return make_setting(tmp_path)


def everything(root: Path) -> dict[str, bytes]:
    """Return every file below a folder but the ledger, by name."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.startswith("ledger")
    }


# --- the baseline -----------------------------------------------------------------------------------------------------


def test_the_manifest_names_everything_by_digest(setting: Setting) -> None:
    result = setting.freeze()
    home = setting.home
    frozen = read_frozen(home)
    manifest = frozen.manifest
    assert manifest.protocol_sha256 == files.sha256_file(home.protocol)
    assert manifest.acceptance_sha256 == digest_folder(home.acceptance)
    assert manifest.harness_sha256 == digest_folder(home.harness)
    assert manifest.config_sha256 == files.sha256_bytes(CONFIG.encode())
    assert home.config.read_text() == CONFIG
    assert manifest.baseline.snapshot_sha256 == digest_folder(home.baseline.tree) == result.snapshot_sha256
    assert manifest.baseline.snapshot_sha256 == tree_digest(read_listing(home.baseline.listing))
    assert manifest.baseline.files_sha256 == files.sha256_file(home.baseline.listing)
    assert manifest.baseline.changes_sha256 == files.sha256_file(home.baseline.patch)
    assert manifest.baseline.environment == {"PLAYS": "${data.plays}"}
    assert manifest.data["plays"].sha256 == digest_folder(setting.root / "plays")
    assert (manifest.data["plays"].files, manifest.data["plays"].bytes) == (1, 6)
    assert manifest.departures == (
        "baseline_first is false instead of true: a candidate may be frozen before the baseline ran.",
    )
    assert set(manifest.resources) == {"submission", "slurm", "local", "login_node"}


def test_the_manifest_describes_the_machine_and_the_driver_that_froze(setting: Setting) -> None:
    setting.freeze()
    manifest = documents.Manifest.read(setting.home.manifest)
    system, machine, driver = os.uname(), manifest.machine, manifest.driver
    assert set(machine) == {"node", "kernel", "machine", "os", "cpu", "num_cpus", "memory_bytes", "gpus"}
    assert (machine["node"], machine["machine"]) == (system.nodename, system.machine)
    assert machine["kernel"] == f"{system.sysname} {system.release}"
    assert machine["num_cpus"] == os.cpu_count()
    assert machine["memory_bytes"] > 1 << 28
    assert machine["cpu"]
    assert machine["gpus"] is not None
    assert set(driver) == {
        "campaign",
        "config",
        "python",
        "executable",
        "distributions",
        "git",
        "slurm",
        "interpreters",
    }
    assert driver["config"] == str(setting.config_path)
    assert (driver["campaign"], driver["executable"]) == (__version__, sys.executable)
    assert driver["python"] == platform.python_version()
    wanted = ("click", "msgspec", "pydantic", "sqlalchemy", "submitit", "jinja2", "scipy")
    assert driver["distributions"] == {name: metadata.version(name) for name in wanted}
    assert driver["git"].startswith("git version ")


def test_the_ledger_begins_with_the_freeze(setting: Setting) -> None:
    result = setting.freeze()
    (entry,) = read_entries(setting.home)
    assert (entry.act, entry.at) == ("froze_baseline", AT)
    assert entry.data["manifest_sha256"] == result.manifest_sha256 == files.sha256_file(setting.home.manifest)
    assert set(entry.data) == {
        "manifest_sha256",
        "protocol_sha256",
        "acceptance_sha256",
        "harness_sha256",
        "verifier_sha256",
        "snapshot_sha256",
    }
    assert not setting.home.staging.exists()


def test_programs_are_frozen_as_sources_alone(setting: Setting) -> None:
    setting.freeze()
    assert set(everything(setting.home.acceptance)) == set(SOURCES)
    assert set(everything(setting.home.harness)) == {
        "__init__.py",
        "launch.py",
        "processes/installed.py",
        "sub/part.py",
    }


def test_a_protocol_that_acceptance_would_refuse_later_is_not_frozen(setting: Setting) -> None:
    refusing = "import sys; sys.stderr.write('protocol.json: workloads: too many\\n'); raise SystemExit(5)\n"
    write_files(setting.root, {"programs/acceptance/__main__.py": refusing})
    with pytest.raises(ConfigError, match="the acceptance program refuses the protocol") as caught:
        setting.freeze()
    assert caught.value.why == "protocol.json: workloads: too many"
    assert caught.value.where == str(setting.config_path)
    assert not setting.home.root.exists()


@pytest.mark.parametrize("status", [0, 1, 3])
def test_acceptance_that_finds_anything_but_wanting_evidence_in_no_evidence_is_a_bug(
    setting: Setting, status: int
) -> None:
    write_files(setting.root, {"programs/acceptance/__main__.py": f"raise SystemExit({status})\n"})
    with pytest.raises(AcceptanceError, match=f"ended with {status}"):
        setting.freeze()
    assert not setting.home.root.exists()


def test_the_real_programs_take_a_real_protocol_and_refuse_a_damaged_one(setting: Setting, tmp_path: Path) -> None:
    frozen = freeze_baseline(setting.config(), setting.home, programs=find_programs(), environment={}, clock=clock)
    assert frozen.is_new
    manifest = read_frozen(setting.home).manifest
    damaged = tmp_path / "damaged.json"
    damaged.write_bytes(setting.home.protocol.read_bytes().replace(b'"repeats": 3', b'"repeats": 4'))
    rules, program = read_frozen(setting.home).protocol, setting.home.acceptance
    with pytest.raises(ConfigError, match="the acceptance program refuses the protocol") as caught:
        require_reachable(setting.config(), rules, damaged, program, manifest.acceptance_sha256, environment={})
    assert "is missing" in caught.value.why


def test_the_real_programs_take_a_campaign_with_recipes(setting: Setting) -> None:
    rules = '[convergence]\nseeds = [1, 2]\nextension = { seeds = [3] }\npower_waiver = "a test"\n'
    recipe = '[[recipe]]\nname = "r"\nconfig = { x = 1 }\ntargets = 40\nvalidation_targets = 8\nupdates = 40\n'
    config = setting.config(lambda text: text + rules + recipe)
    frozen = freeze_baseline(config, setting.home, programs=find_programs(), environment={}, clock=clock)
    protocol = read_frozen(setting.home).protocol
    assert protocol.families == ("throughput", "convergence")
    assert protocol.convergence is not None
    assert protocol.convergence.quantile == "6.31375"
    assert [line.partition(" ")[0] for line in frozen.departures[1:]] == [
        "convergence.seeds",
        "convergence.extension",
    ]


def test_the_installed_programs_are_found() -> None:
    programs = find_programs()
    assert (programs.acceptance / "formats.py").is_file()
    assert (programs.harness / "launch.py").is_file()


def test_a_foreign_package_of_the_same_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {"acceptance/__init__.py": ""})
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "acceptance", raising=False)
    with pytest.raises(InfrastructureError, match="not ours"):
        find_programs()


def test_installed_distributions_are_recorded(setting: Setting) -> None:
    setting.freeze(lambda text: text.replace("bin/python", sys.executable))
    manifest = documents.Manifest.read(setting.home.manifest)
    assert manifest.baseline.distributions is not None
    assert "pytest" in manifest.baseline.distributions
    found = manifest.baseline.interpreter
    assert found is not None
    assert found.path == os.path.realpath(sys.executable)
    assert found.sha256 == files.sha256_file(Path(found.path))
    (pytest_record,) = Path(pytest.__file__).parents[1].glob("pytest-*.dist-info/RECORD")
    recorded = found.installed[pytest_record.parent.stem]
    assert recorded.record_sha256 == files.sha256_file(pytest_record)
    assert recorded.files > 1
    assert manifest.harness_interpreter == found
    assert manifest.driver["interpreters"]["baseline"]["python"] == sys.version.split()[0]


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false"])
def test_an_interpreter_that_cannot_run_here_is_recorded_as_unknown_with_the_reason(
    setting: Setting, python: str
) -> None:
    result = setting.freeze(lambda text: text.replace("bin/python", python))
    manifest = documents.Manifest.read(setting.home.manifest)
    assert manifest.baseline.distributions is None
    assert "on this host" in manifest.driver["interpreters"]["baseline"]["unknown"]
    assert any("what is installed is not recorded" in note for note in result.notes)


def test_a_lock_file_is_frozen_by_digest(setting: Setting) -> None:
    write_files(setting.root, {"requirements.lock": "torch==2.13\n"})
    setting.freeze(lambda text: text.replace("[baseline]", '[baseline]\nlockfile = "requirements.lock"'))
    lockfile = documents.Manifest.read(setting.home.manifest).baseline.lockfile
    assert lockfile is not None
    assert lockfile.sha256 == files.sha256_bytes(b"torch==2.13\n")


def _unknown_include(text: str) -> str:
    return text.replace("[baseline]", '[baseline]\ninclude = ["adapter.py", "build/*.so"]')


REFUSED: dict[str, tuple[Callable[[str], str], str, int]] = {
    "lock file missing": (lambda text: text.replace("[baseline]", '[baseline]\nlockfile = "no.lock"'), "no.lock", 5),
    "include without a match": (_unknown_include, "matches nothing", 5),
    "adapter not in the tree": (lambda text: text.replace("adapter:native", "absent.adapter:native"), "no module", 6),
    "python_path not in the tree": (
        lambda text: text.replace("[baseline]", '[baseline]\npython_path = [".", "src"]'),
        "no folder 'src'",
        5,
    ),
    "data missing": (lambda text: text.replace('"plays"', '"absent"'), "no such data set", 16),
    "a token": (lambda text: text.replace("${data.plays}", "hf_" + "a1" * 16), "looks like a Hugging Face token", 8),
    "family without a recipe": (lambda text: text + "[convergence]\n", "without a recipe", 26),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_frozen_is_refused_with_its_line_and_leaves_nothing(setting: Setting, case: str) -> None:
    edit, message, line = REFUSED[case]
    with pytest.raises(ConfigError, match=message) as caught:
        setting.freeze(edit)
    assert caught.value.where.startswith(f"{setting.config_path}:{line}")
    assert not setting.home.root.exists()


def test_a_token_is_not_repeated(setting: Setting) -> None:
    token = "hf_" + "a1" * 16
    with pytest.raises(ConfigError) as caught:
        setting.freeze(lambda text: text.replace("${data.plays}", token))
    assert token not in "\n".join(caught.value.lines())


def test_a_variable_that_announces_a_secret_is_noted(setting: Setting) -> None:
    result = setting.freeze(lambda text: text.replace("PLAYS =", "DB_PASSWORD ="))
    assert any("DB_PASSWORD" in note for note in result.notes)


def test_a_home_inside_the_source_is_left_out(setting: Setting) -> None:
    inside = Setting(
        root=setting.root, home=type(setting.home)(setting.source / "build" / "demo"), programs=setting.programs
    )
    result = inside.freeze()
    assert result.left_out == ("build/demo/ (campaign home)",)
    candidate = inside.freeze_candidate()
    assert candidate.snapshot_sha256 == result.snapshot_sha256


def test_credentials_of_a_remote_are_nowhere_in_the_home(setting: Setting) -> None:
    repository = Repository(setting.source)
    repository.git("init", "-q")
    repository.commit()
    repository.git("remote", "add", "origin", "https://me:canary-4711@host.example/r.git")
    setting.freeze()
    assert not [name for name, data in everything(setting.home.root).items() if b"canary-4711" in data]


# --- again ------------------------------------------------------------------------------------------------------------


def test_a_second_baseline_is_refused_and_changes_nothing(setting: Setting) -> None:
    setting.freeze()
    before = everything(setting.home.root)
    with pytest.raises(StateError, match="frozen here already"):
        setting.freeze()
    assert everything(setting.home.root) == before


def test_the_same_freeze_elsewhere_has_the_same_digests(setting: Setting) -> None:
    setting.freeze()
    other = Setting(root=setting.root, home=type(setting.home)(setting.root / "other"), programs=setting.programs)
    other.freeze()
    first, second = (documents.Manifest.read(home.manifest) for home in (setting.home, other.home))
    assert first.freeze_id != second.freeze_id
    assert first.replace(freeze_id="") == second.replace(freeze_id="")


@pytest.mark.parametrize("name", ["frozen", "protocol.json"])
def test_a_folder_with_something_of_that_name_is_not_touched(setting: Setting, name: str) -> None:
    write_files(setting.home.root, {f"{name}/mine": "1"})
    with pytest.raises(StateError, match="cannot become a campaign home"):
        setting.freeze()
    assert (setting.home.root / name / "mine").read_text() == "1"


def test_a_home_whose_ledger_was_removed_is_not_frozen_again(setting: Setting) -> None:
    setting.freeze()
    setting.home.ledger.unlink()
    with pytest.raises(EvidenceError, match="does not say when this was frozen"):
        setting.freeze()
    assert not setting.home.ledger.exists()


def test_a_freeze_waits_for_nobody(setting: Setting) -> None:
    setting.home.root.mkdir()
    with Ledger.open(setting.home, clock), pytest.raises(StateError, match="locked"):
        setting.freeze()


# --- killed on the way ------------------------------------------------------------------------------------------------

KILLED = """
import os, sys
from pathlib import Path
from campaign import files
from campaign.freezing import freeze, freeze_candidate, staging
from campaign.record import ledger
from tests.support.freezing import make_setting
from tests.support.remembering import remember
remember()
target, name, after, action = sys.argv[2:]
owner = {"files": files, "staging": staging, "os": os, "Path": Path, "Ledger": ledger.Ledger,
         "freeze": freeze, "freeze_candidate": freeze_candidate}[target]
real = getattr(owner, name)
def deadly(*arguments, **options):
    if after == "after":
        real(*arguments, **options)
    os.kill(os.getpid(), 9)
setting = make_setting(Path(sys.argv[1]))
if action == "candidate":
    setting.freeze()
setattr(owner, name, deadly)
getattr(setting, "freeze" if action == "baseline" else "freeze_candidate")()
"""

POINTS = [
    ("freeze", "copy_program", "before"),
    ("freeze", "freeze_side", "after"),
    ("files", "sync_file_system", "before"),
    ("Path", "rename", "after"),
    ("os", "link", "after"),
    ("files", "write_new", "after"),
    ("Ledger", "append", "before"),
    ("Ledger", "append", "after"),
]


def kill(root: Path, point: tuple[str, str, str], action: str) -> None:
    """Run a freeze that is killed at a point."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), *point, action],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr.decode()


@pytest.mark.parametrize("point", POINTS, ids=" ".join)
def test_a_killed_freeze_is_cleaned_up_or_completed_by_the_next(tmp_path: Path, point: tuple[str, str, str]) -> None:
    kill(tmp_path, point, "baseline")
    setting = make_setting(tmp_path)
    was_done = any(entry.act == "froze_baseline" for entry in read_entries(setting.home))
    if was_done:
        with pytest.raises(StateError, match="frozen here already"):
            setting.freeze()
    else:
        setting.freeze()
    assert not setting.home.lock.exists()
    acts = [entry.act for entry in read_entries(setting.home)]
    assert acts.count("froze_baseline") == 1
    manifest = read_frozen(setting.home).manifest
    assert manifest.baseline.snapshot_sha256 == digest_folder(setting.home.baseline.tree)
    assert setting.freeze_candidate().is_new


@pytest.mark.parametrize(
    "point",
    [
        ("freeze_candidate", "freeze_side", "after"),
        ("files", "sync_file_system", "before"),
        ("Path", "rename", "after"),
        ("Ledger", "append", "before"),
        ("Ledger", "append", "after"),
    ],
    ids=" ".join,
)
def test_a_killed_candidate_freeze_is_done_again_or_completed(tmp_path: Path, point: tuple[str, str, str]) -> None:
    kill(tmp_path, point, "candidate")
    setting = make_setting(tmp_path)
    result = setting.freeze_candidate()
    acts = [entry.act for entry in read_entries(setting.home)]
    assert acts.count("froze_candidate") == 1
    assert list(read_frozen(setting.home).candidates) == [result.id]
    assert not setting.home.staging.exists()


def test_a_failure_while_publishing_leaves_the_mark_and_the_next_freeze_completes_it(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "append", lambda *_: (_ for _ in ()).throw(InfrastructureError("disk full")))
        with pytest.raises(InfrastructureError):
            setting.freeze()
    with pytest.raises(StateError, match="another configuration was interrupted"):
        setting.freeze(lambda text: text.replace('"small"', '"other"'))
    result = setting.freeze()
    assert result.notes == ("completed an interrupted freeze",)
    assert [entry.act for entry in read_entries(setting.home)] == ["froze_baseline"]


def test_everything_is_synced_once_before_the_manifest_appears(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    sync = files.sync_file_system

    def spy(folder: Path) -> None:
        seen.append(setting.home.manifest.exists())
        sync(folder)

    monkeypatch.setattr(files, "sync_file_system", spy)
    setting.freeze()
    assert seen == [False]


# --- what a machine refuses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["mkdir", "rename"])
def test_a_full_disk_ends_a_freeze_with_the_place_and_leaves_nothing_that_counts(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    setting.home.root.mkdir()
    with monkeypatch.context() as patched:
        refuse(patched, function, errno.ENOSPC)
        with pytest.raises(InfrastructureError, match="No space left on device") as caught:
            setting.freeze()
    assert str(setting.home.root) in caught.value.where
    assert "free some space" in caught.value.hint
    assert not setting.home.manifest.exists()
    assert not setting.home.lock.exists()
    assert setting.freeze().is_new


def test_a_home_on_a_read_only_file_system_is_no_fault_of_the_configuration(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "mkdir", errno.EROFS)
    with pytest.raises(InfrastructureError, match="the home cannot be created: Read-only") as caught:
        setting.freeze()
    assert caught.value.where == str(setting.home.root)


def numerical(text: str) -> str:
    return text + "[numerical]\n"


def test_a_harness_that_has_torch_needs_no_note(setting: Setting) -> None:
    assert not [note for note in setting.freeze(numerical).notes if "torch" in note]


def test_another_harness_is_asked_for_torch_itself(setting: Setting) -> None:
    bare = setting.root / "bin" / "bare"
    bare.write_text(INTERPRETER.replace('"torch": "2.13"', '"pip": "24"'))
    bare.chmod(0o755)
    (note,) = setting.freeze(lambda text: numerical(text) + '[harness]\npython = "bin/bare"\n').notes
    assert f"harness: torch is not installed for {bare}" in note
    assert "campaign doctor" in note


def test_torch_is_not_missed_where_no_tensors_are_compared(setting: Setting) -> None:
    bare = setting.root / "bin" / "python"
    bare.write_text(INTERPRETER.replace('"torch": "2.13"', '"pip": "24"'))
    assert not [note for note in setting.freeze().notes if "torch" in note]
