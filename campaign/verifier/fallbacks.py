"""Fallback trials: every file of each is the one that the ledger named, and there is no trial that it does not name."""

from __future__ import annotations

from collections.abc import Iterator

from . import names
from .digests import Kind
from .facts import Facts
from .findings import Check
from .history import history_of, where_of
from .strict import Node


def check(facts: Facts, check: Check) -> None:
    """Check the files of all fallback trials against the ledger's acts. They decide nothing; the report shows them.

    Args:
        facts: Candidates and the ledger are known.
        check: Where findings go.
    """
    history, known = history_of(facts), dict[str, str]()
    for entry in history.fallbacks:
        with check.each():
            for path, digest in _named(facts, Node(entry.data, where_of(entry))):
                known[path] = digest
                with check.each():
                    if contradiction := facts.digests.contradiction(path, None, digest):
                        check.tampered(path, f"not what the ledger's line {entry.seq} names: {contradiction}")
    for found in facts.digests.below(names.FALLBACKS):
        is_leftover = any(names.is_leftover(part) for part in found.path.split("/"))
        if found.kind is Kind.FOLDER or found.path in known or is_leftover:
            continue
        if history.closed is None and _is_next(known, found.path):
            check.incomplete(found.path, "of a trial that no act of the ledger names: it goes on, or was killed")
        else:
            check.tampered(found.path, "no act of the ledger names it: added")
    check.remark(f"{len(history.fallbacks)} fallback trials")


def _is_next(known: dict[str, str], path: str) -> bool:
    """Return whether a file lies in the folder of the trial after the last one of its candidate."""
    parts = path.split("/")
    numbers = {int(one.split("/")[2]) for one in known if one.startswith("/".join(parts[:2]) + "/")}
    return len(parts) > 3 and parts[2] == str(max(numbers, default=0) + 1)


def _named(facts: Facts, act: Node) -> Iterator[tuple[str, str]]:
    """Yield path and digest of every file of a trial.

    Raises:
        EvidenceError: The act is not about a trial of this campaign.
    """
    candidate = act["candidate"].as_text()
    if candidate not in facts.candidates:
        raise act["candidate"].wrong(f"{candidate!r} is no candidate of this campaign")
    folder = names.fallback(candidate, act["number"].as_whole(1))
    files = list(act["files"].fields())
    if not files:
        raise act["files"].wrong("names no file")
    for name, digest in files:
        if any(part in {"", ".", ".."} for part in name.split("/")):
            raise digest.wrong("cannot be a file of a trial")
        yield f"{folder}/{name}", digest.as_digest()
