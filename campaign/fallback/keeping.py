"""Keeping a fallback trial in the home: the whole folder at once, then the act that names every file of it.

A folder that no act names is what a killed command left: it proves nothing, and the next trial takes its place.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from campaign import documents, files
from campaign.collection.sealed import is_leftover
from campaign.fallback.trial import ALLOCATION, Conducted, stretches
from campaign.freezing.staging import remove_tree
from campaign.paths import FallbackPaths, HomePaths
from campaign.record.fallbacks import read_acts
from campaign.record.ledger import Ledger

_MOST_LINES = 2
MOST_REASON = 600
"""Characters of a reason in the ledger and the report; fallback.json has all of it."""


def keep(
    paths: HomePaths,
    ledger: Ledger,
    trial: Callable[[int], documents.FallbackTrial],
    conducted: Conducted,
) -> tuple[documents.FallbackTrial, FallbackPaths]:
    """Put a trial into the home and name it in the ledger; return it, and where it lies.

    Args:
        paths: The home.
        ledger: Its ledger, open for writing.
        trial: Returns the document for the number that the trial gets.
        conducted: What the harness left.

    Raises:
        InfrastructureError: It cannot be written; nothing counts then.
        StateError: The campaign was closed meanwhile.
    """
    candidate = conducted.subject.candidate
    number = 1 + max((act.number for _, _, act in read_acts(ledger.entries, candidate)), default=0)
    document = trial(number)
    final = paths.fallback(candidate, number)
    folder = paths.fallbacks(candidate)
    with files.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        files.sync_folder(folder.parent)
        files.sync_folder(paths.root)
    _remove_unnamed(folder, number)
    temporary = FallbackPaths(folder / f".{number}.{secrets.token_hex(4)}.tmp")
    try:
        digests = _write(temporary, document, conducted)
        with files.writing(final.root):
            temporary.root.rename(final.root)
            files.sync_folder(folder)
    except BaseException:
        remove_tree(temporary.root)
        raise
    ledger.append("fallback_tried", _act(document, digests).to_json())
    return document, final


def _remove_unnamed(folder: Path, number: int) -> None:
    """Remove what killed commands left: what they were writing, and a folder that the ledger never named."""
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - names alone
        if is_leftover(name) or name == str(number):
            remove_tree(folder / name)


def _write(target: FallbackPaths, document: documents.FallbackTrial, conducted: Conducted) -> dict[str, str]:
    """Write all files of a trial; return their digests by name below its folder."""
    contents = {target.document: document.to_bytes()}
    there, here = conducted.scratch.allocation(ALLOCATION), target.allocation
    for source, copy in ((there.plan, here.plan), (there.started, here.started), (there.log, here.log)):
        contents[copy] = files.read_regular(source)
    if there.ended.exists():
        contents[here.ended] = files.read_regular(there.ended)
    for (source_of, side), one in zip(stretches(conducted.subject), conducted.made, strict=True):
        kept = target.stretch(side, source_of.owner)
        for name in (one.folder.receipt.name, *(sealed.name for sealed in one.sealed.receipt.files)):
            contents[kept.table(name)] = files.read_regular(one.folder.table(name))
    with files.writing(target.root):
        for folder in sorted({path.parent for path in contents}):
            folder.mkdir(parents=True, exist_ok=True)
        for path, data in contents.items():
            files.write_new(path, data)
    return {path.relative_to(target.root).as_posix(): files.sha256_bytes(data) for path, data in contents.items()}


def _act(document: documents.FallbackTrial, digests: dict[str, str]) -> documents.FallbackTried:
    from_baseline, from_candidate = document.directions
    differences = [one for direction in document.directions for one in direction.differences]
    return documents.FallbackTried(
        candidate=document.candidate,
        number=document.number,
        recipe=document.recipe,
        seed=document.seed,
        node=document.node,
        device=document.device,
        candidate_resumes=from_baseline.resumes,
        baseline_resumes=from_candidate.resumes,
        largest_difference=max(differences, default=None),
        reasons=tuple(
            f"from the {direction.owner}'s checkpoint: {shortened(direction.reason)}"
            for direction in document.directions
            if direction.reason
        ),
        files=digests,
    )


def shortened(reason: str) -> str:
    """Return a reason on one line, and no longer than the ledger shall hold: of many lines the first and the last."""
    lines = [" ".join(one.split()) for one in reason.splitlines() if one.strip()]
    line = " ... ".join([lines[0], lines[-1]] if len(lines) > _MOST_LINES else [" ".join(lines)])
    return line if len(line) <= MOST_REASON else f"{line[:MOST_REASON]} ..."
