"""Putting a report in its place: everything is made aside, the ledger names it, and only then does it appear.

Whoever kills this at any point leaves files that are missing, never files that the ledger's last report does not name.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from campaign import documents, files
from campaign.collection.sealed import is_leftover
from campaign.errors import CampaignError, EvidenceError, ExitCode
from campaign.judging.evaluation import Evaluation
from campaign.paths import EvaluationPaths
from campaign.record.ledger import Ledger


class ReportError(CampaignError):
    """There is a verdict, but its report could not be rendered: a bug."""

    exit_code = ExitCode.BUG


def _reports_on(entries: Sequence[documents.Entry], candidate: str) -> list[dict[str, Any]]:
    return [entry.data for entry in entries if entry.act == "reported" and entry.data["candidate"] == candidate]


@contextmanager
def _staging(evaluation: EvaluationPaths) -> Iterator[EvaluationPaths]:
    """Make a folder that is laid out like an evaluation and reads the real one's evidence; it is gone at the end."""
    staged = EvaluationPaths(evaluation.staging)
    with files.writing(staged.root):
        shutil.rmtree(staged.root, ignore_errors=True)  # what a killed report left
        staged.root.mkdir()
        try:
            staged.evidence.symlink_to(evaluation.evidence.resolve(), target_is_directory=True)
            yield staged
        finally:
            shutil.rmtree(staged.root, ignore_errors=True)


def _render(protocol: Path, staged: EvaluationPaths, evaluation: EvaluationPaths) -> None:
    # Imported here: plots and templates are slow to load, and only this command needs them.
    from reports.errors import ReportError as RenderError  # noqa: PLC0415 - as above
    from reports.render import write_report  # noqa: PLC0415 - as above

    try:
        write_report(protocol_path=protocol, evaluation=staged.root, out=staged.report)
    except RenderError as error:
        where = error.where.replace(str(staged.root), str(evaluation.root))
        raise ReportError("the verdict could not be rendered", where=where, why=error.what) from error


def _made(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _remove_old(evaluation: EvaluationPaths, written: set[str]) -> None:
    """Remove an earlier report.

    Args:
        evaluation: The evaluation.
        written: Names of the files that this program wrote, or is about to write, into its folder.

    Raises:
        EvidenceError: The folder holds something else.
    """
    files.require_folder_or_nothing(evaluation.report)
    old = _made(evaluation.report)
    for path in old:
        if path.is_dir() or not (path.name in written or is_leftover(path.name)):
            raise EvidenceError("was not written here by this program", where=str(path), hint=f"remove {path}")
    for path in (evaluation.verdict, evaluation.provenance, *old):
        with files.writing(path):
            path.unlink(missing_ok=True)


def publish(
    ledger: Ledger,
    protocol: Path,
    evaluation: EvaluationPaths,
    *,
    candidate: str,
    judged: Evaluation,
    provenance: documents.Provenance,
) -> None:
    """Render a report, record it in the ledger, and put verdict, provenance and report in their places.

    There is no second act where the last one about this candidate says the same.

    Args:
        ledger: The ledger, open for writing.
        protocol: protocol.json.
        evaluation: Where everything goes; its evidence is there already.
        candidate: The candidate's id.
        judged: The verdict.
        provenance: What the report says beside it.

    Raises:
        ReportError: The report could not be rendered.
        EvidenceError: The report's folder holds something that no report left.
    """
    said = provenance.to_bytes()
    earlier = _reports_on(ledger.entries, candidate)
    with _staging(evaluation) as staged:
        files.replace(staged.verdict, judged.printed)
        files.replace(staged.provenance, said)
        _render(protocol, staged, evaluation)
        made = _made(staged.report)
        act = {
            "candidate": candidate,
            "verdict_sha256": judged.sha256,
            "evidence_sha256": judged.verdict.evidence_sha256,
            "outcome": judged.verdict.outcome,
            "provenance_sha256": files.sha256_bytes(said),
            "files": {path.name: files.sha256_regular(path) for path in made},
        }
        _remove_old(evaluation, {path.name for path in made}.union(*(one.get("files", {}) for one in earlier)))
        if not earlier or earlier[-1] != act:
            ledger.append("reported", act)
        files.replace(evaluation.verdict, judged.printed)
        files.replace(evaluation.provenance, said)
        with files.writing(evaluation.report):
            evaluation.report.mkdir(exist_ok=True)
            for path in made:
                path.replace(evaluation.report / path.name)
            files.sync_folder(evaluation.report)
