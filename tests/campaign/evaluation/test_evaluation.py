from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from campaign import documents, files
from campaign.collection.collect import collect
from campaign.collection.database import open_database
from campaign.collection.sealed import TamperedError
from campaign.errors import CampaignError, EvidenceError, ExitCode, InfrastructureError
from campaign.frozen import read_frozen
from campaign.judging.evaluation import AcceptanceError, Evaluation, evaluate, read_program, read_verdict, run_program
from campaign.judging.evidence import build_evidence, write_evidence
from campaign.record.ledger import Ledger
from tests.support.home import CANDIDATE, SMALL, Home, build_home, tree_digest

FORGED = "import sys\nsys.stdout.write('forged')\nsys.exit(0)\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with written evidence, ready to be judged."""
    made = build_home(tmp_path / "home", SMALL[:1], repeats=1)
    with Ledger.open(made.paths, time.time) as ledger:
        assert collect(made.paths, ledger).findings == ()
    prepare(made)
    return made


def prepare(home: Home) -> None:
    frozen = read_frozen(home.paths)
    digests = {"manifest_sha256": frozen.manifest_sha256, "protocol_sha256": frozen.protocol_sha256}
    with open_database(home.paths.database, **digests) as session:
        write_evidence(home.paths.evaluation(CANDIDATE), build_evidence(session, frozen, CANDIDATE))


def judge(home: Home, environment: Mapping[str, str] | None = None, timeout_s: float = 60) -> Evaluation:
    return evaluate(home.paths, read_frozen(home.paths), CANDIDATE, environment=environment or {}, timeout_s=timeout_s)


def freeze_program(home: Home, main: str) -> None:
    """Replace the acceptance program by another one, frozen with its own digest."""
    (home.paths.acceptance / "__main__.py").write_text(main)
    refreeze(home)


def refreeze(home: Home) -> None:
    """Make the manifests say that the acceptance program is the one that is there."""
    manifest = documents.Manifest.read(home.paths.manifest)
    changed = manifest.replace(acceptance_sha256=tree_digest(home.paths.acceptance))
    home.paths.manifest.write_bytes(changed.to_bytes())
    path = home.paths.candidate(CANDIDATE).manifest
    candidate = documents.CandidateManifest.read(path)
    digest = files.sha256_bytes(changed.to_bytes())
    path.write_bytes(candidate.replace(manifest_sha256=digest).to_bytes())


def test_the_verdict_is_what_the_program_prints_when_it_is_run_alone(home: Home) -> None:
    judged = judge(home)
    alone = subprocess.run(
        [sys.executable, "-m", "acceptance", home.paths.protocol, home.paths.evaluation(CANDIDATE).evidence],
        cwd=home.paths.frozen,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert judged.printed == alone.stdout
    assert int(judged.verdict.exit_code) == alone.returncode
    assert judged.verdict.acceptance_sha256 == documents.Manifest.read(home.paths.manifest).acceptance_sha256
    assert judged.sha256 == files.sha256_bytes(alone.stdout)


def test_planted_bytecode_beside_an_intact_source_is_refused(home: Home, tmp_path: Path) -> None:
    forged = tmp_path / "forged.py"
    forged.write_text(FORGED)
    target = home.paths.acceptance / "__pycache__" / f"__main__.{sys.implementation.cache_tag}.pyc"
    target.parent.mkdir()
    py_compile.compile(str(forged), str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    with pytest.raises(EvidenceError, match="not the acceptance program that was frozen"):
        judge(home)


def test_bytecode_planted_after_the_hashing_never_runs(home: Home, tmp_path: Path) -> None:
    program = read_program(home.paths.acceptance, documents.Manifest.read(home.paths.manifest).acceptance_sha256)
    forged = tmp_path / "forged.py"
    forged.write_text(FORGED)
    cache = home.paths.acceptance / "__pycache__"
    cache.mkdir()
    for source in home.paths.acceptance.glob("*.py"):
        py_compile.compile(
            str(forged),
            str(cache / f"{source.stem}.{sys.implementation.cache_tag}.pyc"),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    arguments = (str(home.paths.protocol), str(home.paths.evaluation(CANDIDATE).evidence))
    # The plant works where the program is run from its folder ...
    alone = subprocess.run(
        [sys.executable, "-m", "acceptance", *arguments], cwd=home.paths.frozen, capture_output=True, check=False
    )
    assert alone.stdout == b"forged"
    # ... and not where it is run from the bytes that were hashed.
    done = run_program(program, arguments, root=home.paths.acceptance, environment={})
    assert json.loads(done.stdout)["format"] == "verdict/1"


def test_a_source_edited_after_the_hashing_never_runs(home: Home) -> None:
    program = read_program(home.paths.acceptance, documents.Manifest.read(home.paths.manifest).acceptance_sha256)
    for source in home.paths.acceptance.glob("*.py"):
        source.write_text(FORGED)
    arguments = (str(home.paths.protocol), str(home.paths.evaluation(CANDIDATE).evidence))
    done = run_program(program, arguments, root=home.paths.acceptance, environment={})
    assert json.loads(done.stdout)["format"] == "verdict/1"


def test_a_package_of_the_same_name_in_reach_of_the_interpreter_never_runs(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "acceptance").mkdir(parents=True)
    for name in ("__init__.py", "__main__.py"):
        (theirs / "acceptance" / name).write_text(FORGED)
    (theirs / "sitecustomize.py").write_text("print('forged')\n")
    expected = judge(home)
    monkeypatch.chdir(theirs)
    monkeypatch.setenv("PYTHONPATH", str(theirs))
    assert judge(home, os.environ) == expected


@pytest.mark.parametrize("name", ["gates.py", "formats.py", "__main__.py"])
def test_an_edited_program_is_tampering(home: Home, name: str) -> None:
    path = home.paths.acceptance / name
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(EvidenceError, match="not the acceptance program") as caught:
        judge(home)
    assert caught.value.exit_code is ExitCode.TAMPERED


def test_an_added_a_removed_and_an_executable_file_are_tampering(home: Home) -> None:
    extra = home.paths.acceptance / "extra.py"
    extra.write_text("")
    with pytest.raises(EvidenceError, match="not the acceptance program"):
        judge(home)
    extra.unlink()
    (home.paths.acceptance / "gates.py").chmod(0o755)
    with pytest.raises(EvidenceError, match="not the acceptance program"):
        judge(home)
    (home.paths.acceptance / "gates.py").unlink()
    with pytest.raises(EvidenceError, match="not the acceptance program"):
        judge(home)


def test_a_link_in_place_of_a_source_is_tampering(home: Home, tmp_path: Path) -> None:
    path = home.paths.acceptance / "gates.py"
    moved = tmp_path / "gates.py"
    moved.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(moved)
    with pytest.raises(EvidenceError, match="cannot be read"):
        judge(home)


def test_evidence_that_does_not_parse_is_named_by_line_and_gives_no_verdict(home: Home) -> None:
    path = home.paths.evaluation(CANDIDATE).evidence / "pairs.csv"
    path.write_bytes(path.read_bytes().replace(b",0.5,", b",nan,"))
    with pytest.raises(TamperedError) as caught:
        judge(home)
    text = "\n".join(caught.value.lines())
    assert "pairs.csv:2: startup_s: 'nan'" in text
    assert "pairs.csv:3: startup_s: 'nan'" in text


PRINT = "import sys, json\nsys.stdout.write({text!r})\nsys.exit({code})\n"


@pytest.mark.parametrize(
    ("program", "error", "code"),
    [
        ("1 / 0\n", AcceptanceError, ExitCode.BUG),
        ("import os\nos.abort()\n", AcceptanceError, ExitCode.BUG),
        ("import sys\nsys.exit(2)\n", AcceptanceError, ExitCode.BUG),
        ("", AcceptanceError, ExitCode.BUG),
        (PRINT.format(text='{"outcome": "pass"}', code=0), AcceptanceError, ExitCode.BUG),
        (PRINT.format(text='{"format": "verdict/1", "outcome": NaN}', code=0), AcceptanceError, ExitCode.BUG),
        ("import sys\nsys.exit(5)\n", TamperedError, ExitCode.TAMPERED),
        ("while True:\n    pass\n", InfrastructureError, ExitCode.INFRASTRUCTURE),
    ],
    ids=["raises", "aborts", "usage", "silence", "no verdict", "not JSON", "refuses silently", "hangs"],
)
def test_a_program_that_gives_no_verdict_is_an_error_and_never_a_pass(
    home: Home, program: str, error: type[CampaignError], code: ExitCode
) -> None:
    freeze_program(home, program)
    with pytest.raises(error) as caught:
        judge(home, timeout_s=2 if "while" in program else 60)
    assert caught.value.exit_code is code


@pytest.mark.parametrize("status", [3, 4])
def test_an_exit_status_that_contradicts_the_verdict_is_an_error(home: Home, status: int) -> None:
    judged = judge(home)
    assert judged.verdict.outcome == "pass"
    assert read_verdict(judged.printed, 0, {}) == judged.verdict
    with pytest.raises(AcceptanceError, match="contradicts itself"):
        read_verdict(judged.printed, status, {})


@pytest.mark.parametrize("field", ["protocol_sha256", "manifest_sha256", "baseline_sha256", "candidate_sha256"])
def test_a_verdict_about_something_else_is_refused(home: Home, field: str) -> None:
    evidence = home.paths.evaluation(CANDIDATE)
    if field == "protocol_sha256":
        printed = json.dumps({**json.loads(judge(home).printed), field: "0" * 64})
        freeze_program(home, PRINT.format(text=printed, code=0))
    else:
        identity = documents.Identity.read(evidence.identity)
        evidence.identity.write_bytes(identity.replace(**{field: "0" * 64}).to_bytes())
    with pytest.raises(EvidenceError, match=f"about another {field.removesuffix('_sha256')}"):
        judge(home)
