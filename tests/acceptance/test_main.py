"""The program as it is run: alone, from the folder or from memory, on every machine with the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import acceptance
from acceptance import digest
from tests.support.cases import make_cases, put
from tests.support.evidence import Campaign, make_campaign, tensor_fields

ROOT = Path(acceptance.__file__).parent.parent
TOP = {
    "format",
    "protocol_sha256",
    "manifest_sha256",
    "acceptance_sha256",
    "baseline_sha256",
    "candidate_sha256",
    "evidence_sha256",
    "outcome",
    "families",
    "gates",
    "observations",
}
GATE = {
    "id",
    "family",
    "subject",
    "statistic",
    "value",
    "threshold",
    "comparison",
    "margin",
    "lower",
    "upper",
    "n",
    "outcome",
    "finding",
    "reason",
}


def run(campaign: Campaign, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    given = arguments or (str(campaign.protocol_path), str(campaign.evidence_path))
    return subprocess.run(
        [sys.executable, "-s", "-m", "acceptance", *given],
        capture_output=True,
        check=False,
        cwd=campaign.folder,
        env={"PYTHONPATH": str(ROOT), "PATH": os.defpath, **environment},
    )


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return make_campaign(tmp_path_factory.mktemp("published"))


def test_the_published_table_through_the_command_line(published: Campaign) -> None:
    done = run(published)
    assert (done.returncode, done.stderr) == (3, b"")
    verdict = json.loads(done.stdout)
    findings = {gate["id"]: gate["finding"] for gate in verdict["gates"]}
    by_category = {
        name: [findings[f"throughput/{name}/repeat-{repeat}"] for repeat in (1, 2, 3)]
        for name in ("sync", "packed4", "packed8")
    }
    assert by_category == {"sync": ["met"] * 3, "packed4": ["met"] * 3, "packed8": ["met", "missed", "met"]}
    assert verdict["families"]["throughput/production"]["outcome"] == "pass"
    assert verdict["families"]["throughput"]["outcome"] == "not_qualified"
    assert verdict["outcome"] == "not_qualified"


def test_a_verdict_has_exactly_the_promised_fields(published: Campaign) -> None:
    verdict = json.loads(run(published).stdout)
    assert set(verdict) == TOP
    assert verdict["format"] == "verdict/1"
    assert all(set(gate) == GATE for gate in verdict["gates"])
    assert len({gate["id"] for gate in verdict["gates"]}) == len(verdict["gates"])


def test_clean_evidence_exits_with_zero(tmp_path: Path) -> None:
    assert run(make_campaign(tmp_path, ratios={"a": ("1.2",) * 3})).returncode == 0


def test_numerical_cases_are_judged_alone(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path)
    done = run(campaign)
    assert (done.returncode, done.stderr) == (0, b"")
    put(campaign, "updates", tensor_fields("0.1"))
    done = run(campaign.write())
    assert done.returncode == 3
    assert json.loads(done.stdout)["families"]["numerical"] == {"outcome": "not_qualified", "passed": 5, "total": 6}


def test_missing_evidence_exits_with_four(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2",) * 3})
    campaign.tables["pairs.csv"].pop()
    done = run(campaign.write())
    assert done.returncode == 4
    assert json.loads(done.stdout)["outcome"] == "not_qualified"


def test_faults_are_printed_as_file_and_line_without_a_verdict(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    campaign.tables["pairs.csv"][4]["train_s"] = "1_000"
    campaign.tables["windows.csv"][0]["seconds"] = "\uff11"
    done = run(campaign.write())
    assert (done.returncode, done.stdout) == (5, b"")
    lines = done.stderr.decode("utf-8").splitlines()
    assert [line.split(": ")[0] for line in lines] == ["pairs.csv:6", "windows.csv:2"]


def test_what_cannot_be_read_exits_with_five(published: Campaign, tmp_path: Path) -> None:
    missing = run(published, str(tmp_path / "none.json"), str(published.evidence_path))
    assert (missing.returncode, missing.stdout) == (5, b"")
    assert b"none.json" in missing.stderr
    absent = run(published, str(published.protocol_path), str(tmp_path / "nowhere"))
    assert (absent.returncode, absent.stdout) == (5, b"")


@pytest.mark.parametrize("arguments", [("--help", "--bypass"), ("one",), ("--exit-zero", "a", "b"), ("a", "b", "c")])
def test_there_is_no_option(published: Campaign, arguments: tuple[str, ...]) -> None:
    done = run(published, *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"usage" in done.stderr


def test_the_same_input_gives_the_same_bytes_in_every_environment(published: Campaign) -> None:
    environments = [
        {"PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "4242", "TZ": "America/St_Johns", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"},
        {"PYTHONHASHSEED": "random", "LC_ALL": "tr_TR.UTF-8", "PYTHONOPTIMIZE": "2", "PYTHONIOENCODING": "utf-16"},
    ]
    printed = {run(published, **environment).stdout for environment in environments}
    assert printed == {published.evaluate().verdict}


def test_problems_too_are_the_same_bytes_in_every_environment(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    for row in campaign.tables["pairs.csv"][::3]:
        row["tokens_per_s"] = "1"
    del campaign.tables["attempts.csv"][::7]
    campaign.write()
    seeds = ("1", "2")
    assert {run(campaign, PYTHONHASHSEED=seed).stdout for seed in seeds} == {campaign.evaluate().verdict}


def test_the_files_lie_anywhere_and_in_any_order(published: Campaign, tmp_path: Path) -> None:
    other = tmp_path / "somewhere else" / "\u00fc"
    other.mkdir(parents=True)
    for path in sorted(published.evidence_path.iterdir(), reverse=True):
        (other / path.name).write_bytes(path.read_bytes())
    assert run(published, str(published.protocol_path), str(other)).stdout == published.evaluate().verdict


FROM_MEMORY = """
import importlib.abc, importlib.util, json, os, sys

class Memory(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, root, files):
        self.root, self.files = root, files
    def find_spec(self, name, path=None, target=None):
        head, _, tail = name.partition(".")
        if head != "acceptance":
            return None
        file = (tail or "__init__") + ".py"
        if file not in self.files:
            return None
        place = os.path.join(self.root, file)
        spec = importlib.util.spec_from_loader(name, self, origin=place, is_package=not tail)
        spec.has_location = True
        return spec
    def get_data(self, path):
        folder, name = os.path.split(path)
        if folder != self.root:
            raise OSError(path)
        return self.files[name]
    def exec_module(self, module):
        exec(compile(self.get_data(module.__spec__.origin), module.__spec__.origin, "exec"), module.__dict__)

request = json.load(sys.stdin)
files = {name: text.encode() for name, text in request["files"].items()}
sys.meta_path.insert(0, Memory("/nowhere/frozen/acceptance", files))
from acceptance.__main__ import main
sys.exit(main(request["arguments"]))
"""


def run_from_memory(campaign: Campaign, files: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    request = {"files": files, "arguments": [str(campaign.protocol_path), str(campaign.evidence_path)]}
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", FROM_MEMORY],
        input=json.dumps(request).encode(),
        capture_output=True,
        check=False,
        cwd=campaign.folder,
    )


def test_loaded_from_memory_it_hashes_the_bytes_that_run(published: Campaign) -> None:
    """Without a folder and without site-packages: it needs nothing but the standard library."""
    files = {name: (ROOT / "acceptance" / name).read_text() for name in digest.SOURCES}
    done = run_from_memory(published, files)
    assert (done.returncode, done.stderr) == (3, b"")
    assert done.stdout == published.evaluate().verdict
    files["gates.py"] += "# another program\n"
    other = run_from_memory(published, files)
    assert json.loads(other.stdout)["acceptance_sha256"] != json.loads(done.stdout)["acceptance_sha256"]


def test_a_loader_that_keeps_its_source_back_gives_no_verdict(published: Campaign) -> None:
    files = {name: (ROOT / "acceptance" / name).read_text() for name in digest.SOURCES}
    files["__main__.py"] = files["__main__.py"].replace("pkgutil.get_data(acceptance.__name__, name)", "None")
    done = run_from_memory(published, files)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"does not give the bytes" in done.stderr
