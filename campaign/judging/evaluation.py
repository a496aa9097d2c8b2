"""Running the frozen acceptance: read it, hash it, and let a clean child process run the very bytes that were hashed.

The driver decides nothing here. It hands over, checks that the answer is about what was handed over, and stores the
answer as it was printed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from campaign import documents, files, verifier
from campaign.collection.sealed import Finding, TamperedError
from campaign.errors import CampaignError, EvidenceError, ExitCode, InfrastructureError, StateError
from campaign.frozen import Frozen
from campaign.paths import EvaluationPaths, HomePaths
from campaign.snapshot.digest import folder_entry, tree_digest
from campaign.snapshot.entries import Entry, Origin, file_mode

PACKAGE = "acceptance"
CHILD = Path(verifier.__file__).with_name("child.py")
TIMEOUT_S = 900.0
VERDICT_EXITS = (0, 3, 4)
_PASSED_ON = ("LD_LIBRARY_PATH",)  # an interpreter of a module system may not start without it


class AcceptanceError(CampaignError):
    """The acceptance program ended without a verdict and without naming evidence as the reason: a bug."""

    exit_code = ExitCode.BUG


class Gate(documents.Document):
    """One gate of a verdict."""

    id: str
    family: str
    subject: str
    statistic: str
    value: float | int | None
    threshold: float | int | None
    comparison: Literal[">=", "<", "<="]
    margin: float | int | None
    lower: float | int | None
    upper: float | int | None
    n: int
    outcome: Literal["pass", "not_qualified"]
    finding: Literal["met", "missed", "inconclusive", "missing", "invalid", "not_evaluated"]
    reason: str


class FamilyOutcome(documents.Document):
    """The roll-up of some gates."""

    outcome: Literal["pass", "not_qualified"]
    passed: int
    total: int


class Verdict(documents.Document):
    """verdict.json, as far as the driver reads it."""

    format: Literal["verdict/1"]
    protocol_sha256: str
    manifest_sha256: str
    acceptance_sha256: str
    baseline_sha256: str
    candidate_sha256: str
    evidence_sha256: str
    outcome: Literal["pass", "not_qualified"]
    families: dict[str, FamilyOutcome]
    gates: tuple[Gate, ...]
    observations: dict[str, Any]

    @property
    def exit_code(self) -> ExitCode:
        """0 if everything passes, 3 if a gate is shown to be missed, 4 if evidence is wanting."""
        if self.outcome == "pass":
            return ExitCode.DONE
        return ExitCode.MISSED if any(gate.finding == "missed" for gate in self.gates) else ExitCode.WANTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A verdict and its bytes."""

    verdict: Verdict
    printed: bytes

    @property
    def sha256(self) -> str:
        """Digest of the verdict's bytes."""
        return files.sha256_bytes(self.printed)


# --- the program ------------------------------------------------------------------------------------------------------


def _read_program(folder: Path, prefix: str = "") -> tuple[dict[str, bytes], list[Entry]]:
    """Read every file below a folder once; what is hashed and what is run are these bytes."""
    sources: dict[str, bytes] = {}
    entries: list[Entry] = []
    for child in sorted(folder.iterdir()):
        path = prefix + child.name
        mode = child.lstat().st_mode
        if stat.S_ISDIR(mode):
            entries.append(folder_entry(os.fsencode(path), Origin.PLAIN))
            inner_sources, inner_entries = _read_program(child, path + "/")
            sources.update(inner_sources)
            entries.extend(inner_entries)
            continue
        data = files.read_regular(child)
        sources[path] = data
        entries.append(
            Entry(
                path=os.fsencode(path),
                type="f",
                mode=file_mode(mode),
                num_bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                origin=Origin.PLAIN,
            )
        )
    return sources, entries


def read_program(folder: Path, acceptance_sha256: str) -> dict[str, bytes]:
    """Read the frozen acceptance program.

    Args:
        folder: Where it is.
        acceptance_sha256: What the manifest says of it.

    Returns:
        Content by path below its folder.

    Raises:
        EvidenceError: It is not the program that was frozen: something was changed, added or removed.
    """
    try:
        sources, entries = _read_program(folder)
    except OSError as error:
        raise EvidenceError(f"cannot be read: {error.strerror}", where=str(error.filename)) from error
    found = tree_digest(entries)
    if found != acceptance_sha256:
        why = f"its tree digest is {found}, manifest.json says {acceptance_sha256}"
        raise EvidenceError("not the acceptance program that was frozen", where=str(folder), why=why)
    return sources


# --- the child --------------------------------------------------------------------------------------------------------


def _child_environment(outside: Mapping[str, str]) -> dict[str, str]:
    """Return all that the child gets of the environment: fixed values, and what its interpreter needs to start."""
    return {
        "LC_ALL": "C",
        "TZ": "UTC",
        "PATH": "/usr/bin:/bin",
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **{name: outside[name] for name in _PASSED_ON if name in outside},
    }


def run_program(
    program: Mapping[str, bytes],
    arguments: tuple[str, ...],
    *,
    root: Path,
    environment: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[bytes]:
    """Run the acceptance package from bytes in a child process that inherits nothing else.

    Args:
        program: Content by path below the package's folder.
        arguments: What follows ``python -m acceptance``.
        root: The folder that tracebacks shall name.
        environment: The driver's own environment, from which a closed list of names is passed on.
        timeout_s: How long it may take.

    Raises:
        InfrastructureError: It could not be started, or took too long.
    """
    request = _request(program, root) | {"arguments": list(arguments)}
    return _run_child(request, environment=environment, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one of several runs of the acceptance package ended, and what it wrote."""

    exit_status: int
    stdout: bytes
    stderr: bytes


def run_program_often(
    program: Mapping[str, bytes],
    runs: Sequence[tuple[str, ...]],
    *,
    root: Path,
    environment: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
) -> tuple[Run, ...]:
    """Run the acceptance package several times in one child, each time from new modules; see `run_program`.

    Args:
        program: Content by path below the package's folder.
        runs: What follows ``python -m acceptance``, for each run.
        root: The folder that tracebacks shall name.
        environment: The driver's own environment, from which a closed list of names is passed on.
        timeout_s: How long all of it may take.

    Raises:
        AcceptanceError: The child ended before it could answer.
        InfrastructureError: It could not be started, or took too long.
    """
    request = _request(program, root) | {"runs": [list(arguments) for arguments in runs]}
    done = _run_child(request, environment=environment, timeout_s=timeout_s)
    if done.returncode != 0:
        raise _failed(done)
    try:
        answers = json.loads(done.stdout)
    except ValueError as error:  # something was written past the streams that each run was given
        raise _failed(done) from error
    return tuple(
        Run(exit_status=item["exit"], **{name: base64.b64decode(item[name]) for name in ("stdout", "stderr")})
        for item in answers
    )


def _request(program: Mapping[str, bytes], root: Path) -> dict[str, Any]:
    encoded = {path: base64.b64encode(data).decode("ascii") for path, data in program.items()}
    return {"package": PACKAGE, "root": str(root), "files": encoded}


def _run_child(
    request: Mapping[str, Any], *, environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    with tempfile.TemporaryDirectory(prefix="campaign-acceptance-") as private:
        # -P: neither the working directory nor the script's folder is importable. -s: no user site-packages. Not -I:
        # it would ignore PYTHONHASHSEED, and there is no other PYTHON* variable to be protected from. Bytecode of
        # libraries goes to a private folder and is never taken from beside their sources.
        options = ["-P", "-s", "-B", "-X", f"pycache_prefix={private}/pycache", "-X", "utf8"]
        try:
            return subprocess.run(
                [sys.executable, *options, str(CHILD)],
                input=json.dumps(request).encode("ascii"),
                capture_output=True,
                cwd=private,
                env=_child_environment(environment),
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise InfrastructureError(f"the acceptance program took more than {timeout_s:g} s: no verdict") from error
        except OSError as error:
            raise InfrastructureError(f"the acceptance program cannot be started: {error.strerror}") from error


def _faults(stderr: bytes, evidence: Path) -> tuple[Finding, ...]:
    """Return what the program named, one ``file:line: reason`` a line."""
    lines = [line for line in stderr.decode("utf-8", "backslashreplace").splitlines() if line.strip()]
    return tuple(Finding(where=str(evidence), what=line) for line in lines or ["refused without a reason"])


def _expected(frozen: Frozen, candidate: str) -> dict[str, str]:
    return {
        "protocol_sha256": frozen.protocol_sha256,
        "manifest_sha256": frozen.manifest_sha256,
        "acceptance_sha256": frozen.manifest.acceptance_sha256,
        "baseline_sha256": frozen.manifest.baseline.snapshot_sha256,
        "candidate_sha256": frozen.candidates[candidate].candidate.snapshot_sha256,
    }


def read_verdict(printed: bytes, exit_status: int, expected: Mapping[str, str]) -> Verdict:
    """Parse what the program printed, and check that it is about what it was given.

    Args:
        printed: Its standard output.
        exit_status: Its exit status; one of 0, 3 and 4.
        expected: Digests that the verdict must repeat, by field.

    Raises:
        AcceptanceError: It is no verdict, or contradicts itself.
        EvidenceError: It is about something else.
    """
    try:
        verdict = Verdict.parse(printed, where="verdict")
    except EvidenceError as error:
        raise AcceptanceError(
            "the acceptance program printed no verdict", why=f"{error.where}: {error.what}"
        ) from error
    for name, value in expected.items():
        if getattr(verdict, name) != value:
            why = f"the verdict says {getattr(verdict, name)}, frozen is {value}"
            raise EvidenceError(f"the verdict is about another {name.removesuffix('_sha256')}", why=why)
    if int(verdict.exit_code) != exit_status:
        why = f"it exited with {exit_status} and printed the outcome {verdict.outcome}"
        raise AcceptanceError("the acceptance program contradicts itself", why=why)
    return verdict


def evaluate(
    paths: HomePaths, frozen: Frozen, candidate: str, *, environment: Mapping[str, str], timeout_s: float = TIMEOUT_S
) -> Evaluation:
    """Let the frozen acceptance judge the evidence of one candidate.

    Args:
        paths: The home; its evidence folder for the candidate has just been written.
        frozen: The frozen documents.
        candidate: The candidate's id.
        environment: The driver's environment; see `run_program`.
        timeout_s: How long the program may take.

    Raises:
        EvidenceError: The program is not the frozen one, or evidence does not parse: no verdict.
        AcceptanceError: The program failed: no verdict.
        InfrastructureError: It could not run: no verdict.
    """
    program = read_program(paths.acceptance, frozen.manifest.acceptance_sha256)
    evidence = paths.evaluation(candidate).evidence
    arguments = (str(paths.protocol), str(evidence))
    done = run_program(program, arguments, root=paths.acceptance, environment=environment, timeout_s=timeout_s)
    if done.returncode == int(ExitCode.TAMPERED):
        raise TamperedError(_faults(done.stderr, evidence))
    if done.returncode not in VERDICT_EXITS:
        raise _failed(done)
    verdict = read_verdict(done.stdout, done.returncode, _expected(frozen, candidate))
    return Evaluation(verdict=verdict, printed=done.stdout)


def _failed(done: subprocess.CompletedProcess[bytes]) -> AcceptanceError:
    why = done.stderr.decode("utf-8", "backslashreplace").strip()[-4000:] or "it said nothing"
    return AcceptanceError(f"the acceptance program ended with {done.returncode}: no verdict", why=why)


def forget_verdict(evaluation: EvaluationPaths) -> None:
    """Remove what was derived before, so that no old verdict stands beside evidence that gives none.

    Raises:
        StateError: Something of another kind has the name of what is derived.
        InfrastructureError: It cannot be removed.
    """
    for path in (evaluation.verdict, evaluation.provenance, evaluation.page):
        for folder in (evaluation.root.parent, path.parent):
            files.require_folder_or_nothing(folder)
        with files.writing(path):
            if path.is_dir():
                hint = f"move it aside: mv {path} {path}.aside"
                raise StateError("a folder is in the way", where=str(path), hint=hint)
            path.unlink(missing_ok=True)
