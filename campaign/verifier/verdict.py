"""The verdict, derived again: the frozen acceptance runs twice, in clean children, on the evidence that was rebuilt."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import columns, evidence, execution, names, trees
from .digests import Kind
from .evidence import Rebuilt
from .execution import Done, Run
from .facts import Candidate, Entry, Facts
from .findings import Check, EvidenceError
from .strict import Node, read

PASSED, MISSED, WANTING, UNREADABLE = 0, 3, 4, 5
"""Exit codes of the acceptance program."""


def check(facts: Facts, check: Check, *, is_tampered: bool, timeout_s: float = execution.TIMEOUT_S) -> None:
    """Let the frozen acceptance judge the rebuilt evidence of every candidate again, and compare all that was said.

    Fills `Facts.verdicts`, and `Facts.underived` where a verdict was reported and none came of running the acceptance.

    Args:
        facts: The evidence was rebuilt.
        check: Where findings go.
        is_tampered: Whether a check before found something: then nothing from this home is run.
        timeout_s: How long a candidate's two children may take.
    """
    _check_reports(facts, check)
    if is_tampered or check.is_tampered:
        check.not_checked("nothing is run, and no verdict derived, from a home with findings")
        return
    if not facts.options.execute:
        check.not_checked("the acceptance program was not run, as was asked")
    program = _read_program(facts)
    for candidate in facts.candidates.values():
        act, built = evidence.last_report(facts, candidate.id), evidence.rebuilt(facts).get(candidate.id)
        if act is None:
            check.incomplete(names.verdict(candidate.id), "no verdict to derive again: campaign report")
            continue
        if built is None:
            _cannot(facts, check, candidate, "its evidence could not be rebuilt")
            continue
        with check.each():
            _check_stored(facts, check, candidate, act)
            if facts.options.execute:
                _check_derived(facts, check, candidate, act, _run(facts, program, built, timeout_s))


# --- what the ledger says of earlier reports --------------------------------------------------------------------------


def _check_reports(facts: Facts, check: Check) -> None:
    """Hold the reports on a candidate to one another, and say which decisions rest on one that is not derived again."""
    judged: dict[tuple[object, object], tuple[object, object]] = {}
    last: dict[object, object] = {}
    for entry in facts.entries:
        if entry.act == "reported":
            key = (entry.data.get("candidate"), entry.data.get("evidence_sha256"))
            said = (entry.data.get("verdict_sha256"), entry.data.get("outcome"))
            if judged.setdefault(key, said) != said:
                what = (
                    f"says {said[1]} with the verdict {said[0]}, an earlier report on the same evidence {judged[key]}"
                )
                check.tampered(f"{names.LEDGER}:{entry.seq}", what)
            last[key[0]] = said[0]
    for entry in facts.entries:
        verdict = entry.data.get("verdict_sha256") if entry.act == "decided" else None
        if verdict and verdict != last.get(entry.data.get("candidate")):
            check.not_checked(f"line {entry.seq} decides by an earlier report, whose evidence is not judged again")


# --- the program ------------------------------------------------------------------------------------------------------


def _read_program(facts: Facts) -> dict[str, bytes]:
    """Read the frozen acceptance once: what is hashed here is what will run.

    Raises:
        EvidenceError: It is not what the manifest names.
    """
    sources: dict[str, bytes] = {}
    entries = []
    for found in facts.digests.below(names.ACCEPTANCE):
        path = found.path.removeprefix(f"{names.ACCEPTANCE}/")
        name = os.fsencode(path)
        if found.kind is Kind.FOLDER:
            entries.append(trees.Entry(name, "d", "755", 0, ""))
            continue
        data = sources[path] = facts.digests.read(found.path)
        entries.append(trees.Entry(name, "f", found.mode, len(data), hashlib.sha256(data).hexdigest()))
    digest = trees.tree_digest(entries)
    frozen = Node(facts.manifest, names.MANIFEST)["acceptance_sha256"].as_digest()
    if digest != frozen:
        raise EvidenceError(names.ACCEPTANCE, f"its tree digest is {digest}, {names.MANIFEST} says {frozen}")
    return sources


def _run(facts: Facts, program: Mapping[str, bytes], built: Rebuilt, timeout_s: float) -> list[Done]:
    """Run the program twice at the same time, the second time on rows in another order."""
    protocol = facts.digests.read(names.PROTOCOL)
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(_folder(protocol, files)) for files in (built.files, _turned(built.files))]
        runs = [
            Run(setting=setting, arguments=(str(folder / names.PROTOCOL), str(folder / "evidence")))
            for setting, folder in zip(execution.SETTINGS, folders, strict=True)
        ]
        root = str(facts.root / names.ACCEPTANCE)
        return execution.run_all(program, runs, python=facts.options.python, root=root, timeout_s=timeout_s)


def _turned(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the same evidence with the rows of every table in the opposite order."""
    found = dict(files)
    for name in columns.TABLES:
        if name in found:
            header, *lines = found[name].splitlines(keepends=True)
            found[name] = b"".join([header, *reversed(lines)])
    return found


@contextlib.contextmanager
def _folder(protocol: bytes, files: Mapping[str, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="campaign-evidence-") as made:
        folder = Path(made)
        (folder / names.PROTOCOL).write_bytes(protocol)
        (folder / "evidence").mkdir()
        for name, data in files.items():
            (folder / "evidence" / name).write_bytes(data)
        yield folder


# --- what it must say -------------------------------------------------------------------------------------------------


def _check_stored(facts: Facts, check: Check, candidate: Candidate, act: Entry) -> None:
    """Compare verdict.json with the ledger's last report."""
    path, said = names.verdict(candidate.id), Node(act.data, f"{names.LEDGER}:{act.seq}")
    recorded = said["verdict_sha256"].as_digest()
    if facts.digests.get(path) is None:
        evidence.missing(facts, check, path, f"is not there, line {act.seq} of the ledger reports it")
    elif (found := facts.digests.sha256(path)) != recorded:
        check.tampered(path, f"its SHA-256 is {found}, the ledger's line {act.seq} says {recorded}")


def _check_derived(facts: Facts, check: Check, candidate: Candidate, act: Entry, runs: list[Done]) -> None:
    where = names.verdict(candidate.id)
    for done in runs:
        if done.trouble or done.exit_code not in (PASSED, MISSED, WANTING, UNREADABLE):
            why = done.trouble or f"ended with {done.exit_code}"
            ends = done.said[-400:] or "it said nothing"
            _cannot(facts, check, candidate, f"the acceptance program {why}: {ends}")
            return
    first, second = runs
    if (first.exit_code, first.printed) != (second.exit_code, second.printed):
        what = "the frozen acceptance gives another verdict with another hash seed, time zone and order of rows"
        check.tampered(where, f"{what}: {_sha256(first.printed)} and {_sha256(second.printed)}")
        return
    if first.exit_code == UNREADABLE:
        check.tampered(names.evidence(candidate.id), f"the evidence does not parse: {first.said[-400:]}")
        return
    said = Node(act.data, f"{names.LEDGER}:{act.seq}")
    recorded, derived = said["verdict_sha256"].as_digest(), _sha256(first.printed)
    if derived != recorded:
        what = f"reports a verdict with the SHA-256 {recorded}, the frozen acceptance gives {derived} for this evidence"
        check.tampered(f"{names.LEDGER}:{act.seq}", what)
        return
    before = len(check.findings)
    for fault in _contradictions(facts, candidate, said, first):
        check.tampered(where, fault)
    if len(check.findings) == before:
        facts.verdicts[candidate.id] = first.printed


def _cannot(facts: Facts, check: Check, candidate: Candidate, why: str) -> None:
    """Say that a reported verdict could not be derived again, where that was asked for."""
    if facts.options.execute:
        facts.underived.append(candidate.id)
    check.incomplete(names.verdict(candidate.id), f"a verdict was reported, and could not be derived again: {why}")


def _contradictions(facts: Facts, candidate: Candidate, said: Node, done: Done) -> Iterator[str]:
    """Yield where a verdict is about something else, or contradicts its exit code or the ledger."""
    verdict = read(done.printed, names.verdict(candidate.id))
    verdict.format("verdict/1")
    manifest = Node(facts.manifest, names.MANIFEST)
    own = Node(candidate.manifest, names.candidate_manifest(candidate.id))
    right = {
        "protocol_sha256": facts.protocol_sha256,
        "manifest_sha256": facts.manifest_sha256,
        "acceptance_sha256": manifest["acceptance_sha256"].as_digest(),
        "baseline_sha256": manifest["baseline"]["snapshot_sha256"].as_digest(),
        "candidate_sha256": own["candidate"]["snapshot_sha256"].as_digest(),
        "evidence_sha256": said["evidence_sha256"].as_digest(),
    }
    for name, digest in right.items():
        found = verdict[name].as_text()
        if found != digest:
            yield f"its {name} is {found}, it is about {digest}"
    outcome = verdict["outcome"].as_word(("pass", "not_qualified"))
    if outcome != said["outcome"].value:
        yield f"the outcome is {outcome}, {said.where} says {said['outcome'].value}"
    findings = [gate["finding"].as_text() for gate in verdict["gates"].items()]
    code = PASSED if outcome == "pass" else MISSED if "missed" in findings else WANTING
    if code != done.exit_code:
        yield f"the outcome is {outcome}, and the acceptance program ended with {done.exit_code}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
