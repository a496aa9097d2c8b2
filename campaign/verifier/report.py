"""The report: every file of it, and what its page says that it rests on, against the ledger's last report."""

from __future__ import annotations

import html.parser
from collections.abc import Iterator, Mapping, Sequence

from . import evidence, names
from .facts import Candidate, Entry, Facts
from .findings import Check, EvidenceError
from .strict import Node

PREFIX = "campaign:"
"""What the names of the page's digests begin with."""


def check(facts: Facts, check: Check) -> None:
    """Compare every candidate's report and provenance with what the ledger recorded of them.

    Args:
        facts: What was frozen and the ledger are known.
        check: Where findings go.
    """
    for candidate in facts.candidates.values():
        act = evidence.last_report(facts, candidate.id)
        if act is None:
            _check_unreported(facts, check, candidate)
            continue
        with check.each():
            _check_report(facts, check, candidate, act)


def _check_unreported(facts: Facts, check: Check, candidate: Candidate) -> None:
    for path in (names.verdict(candidate.id), names.provenance(candidate.id), names.report(candidate.id)):
        if facts.digests.get(path) is not None:
            check.tampered(path, "no act of the ledger reports on this candidate: added")


def _check_report(facts: Facts, check: Check, candidate: Candidate, act: Entry) -> None:
    said = Node(act.data, f"{names.LEDGER}:{act.seq}")
    if not said.has("files"):
        check.not_checked(f"{names.report(candidate.id)}: the release that made it did not record its files")
        return
    wanted = _recorded(candidate.id, said)
    for path, digest in wanted.items():
        with check.each():
            found = facts.digests.get(path)
            if found is not None and (why := facts.digests.contradiction(path, None, digest)):
                check.tampered(path, f"not what the ledger's line {act.seq} reports: {why}")
    lost = [path for path in wanted if facts.digests.get(path) is None]
    if lost and _is_cut_short(facts, candidate, list(wanted), lost):
        evidence.missing(facts, check, lost[0], f"is not there ({len(lost)} files of the report)")
    else:
        for path in lost:
            check.tampered(path, f"is not there, and the ledger's line {act.seq} names it")
    _check_strangers(facts, check, candidate, wanted)
    _check_contents(facts, check, candidate, said)


def _recorded(candidate: str, said: Node) -> dict[str, str]:
    """Return the digest of every file of a report by its path, in the order in which they appear.

    Raises:
        EvidenceError: The act contradicts itself.
    """
    found = {names.provenance(candidate): said["provenance_sha256"].as_digest()}
    for name, node in sorted(said["files"].fields()):
        if "/" in name or "\0" in name or name in ("", ".", ".."):
            raise node.wrong("cannot be the name of a file")
        found[f"{names.report(candidate)}/{name}"] = node.as_digest()
    for name in ("verdict", "provenance"):
        copied = said["files"].get(f"{name}.json")
        if copied is not None:
            copied.must_be(said[f"{name}_sha256"].value, f"its own {name}_sha256")
    return found


def _is_cut_short(facts: Facts, candidate: Candidate, wanted: Sequence[str], lost: Sequence[str]) -> bool:
    """Return whether just these files can be missing because a report that is made again was killed."""
    is_removing = facts.digests.get(names.verdict(candidate.id)) is None
    return is_removing or list(lost) == list(wanted[-len(lost) :])


def _check_strangers(facts: Facts, check: Check, candidate: Candidate, wanted: Mapping[str, str]) -> None:
    folder = names.report(candidate.id)
    for name in facts.digests.names(folder):
        if f"{folder}/{name}" not in wanted and not names.is_leftover(name):
            check.tampered(f"{folder}/{name}", "no file of the report: added")


# --- what they say ----------------------------------------------------------------------------------------------------


def _check_contents(facts: Facts, check: Check, candidate: Candidate, said: Node) -> None:
    """Compare what page and provenance say that they rest on with what it is."""
    right = _right(facts, candidate, said)
    for path, read in ((names.page(candidate.id), _stamps), (names.provenance(candidate.id), _named)):
        found = facts.digests.get(path)
        if found is None:
            continue
        if found.withheld:
            check.not_checked(f"{path} was withheld from this copy")
            continue
        stamps = read(facts, path)
        for name, digest in stamps.items():
            if name in right and digest != right[name]:
                check.tampered(path, f"says that its {name} is {digest}, it is {right[name]}")
        if not stamps.keys() & right.keys():
            check.tampered(path, "does not say what it rests on")
    path = names.provenance(candidate.id)
    if facts.digests.get(path) is not None and not facts.withheld.get(path):
        for what in _faults_of_ledger(facts, path, int(said.where.rpartition(":")[2])):
            check.tampered(path, what)


def _right(facts: Facts, candidate: Candidate, said: Node) -> dict[str, str]:
    manifest = Node(facts.manifest, names.MANIFEST)
    own = Node(candidate.manifest, names.candidate_manifest(candidate.id))
    return {
        "manifest_sha256": facts.manifest_sha256,
        "protocol_sha256": facts.protocol_sha256,
        "acceptance_sha256": manifest["acceptance_sha256"].as_digest(),
        "harness_sha256": manifest["harness_sha256"].as_digest(),
        "baseline_sha256": manifest["baseline"]["snapshot_sha256"].as_digest(),
        "candidate_sha256": own["candidate"]["snapshot_sha256"].as_digest(),
        "evidence_sha256": said["evidence_sha256"].as_digest(),
        "verdict_sha256": said["verdict_sha256"].as_digest(),
        "provenance_sha256": said["provenance_sha256"].as_digest(),
    }


class _Stamps(html.parser.HTMLParser):
    """Collects the digests that a page carries."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take one start tag."""
        own = dict(attrs)
        name = own.get("name") or ""
        if tag == "meta" and name.startswith(PREFIX):
            self.found.append((name.removeprefix(PREFIX), own.get("content") or ""))


def _stamps(facts: Facts, path: str) -> dict[str, str]:
    """Return the digests in the head of a page.

    Raises:
        EvidenceError: One is there twice.
    """
    head, _, _ = facts.digests.read(path).partition(b"</head>")
    parser = _Stamps()
    parser.feed(head.decode("utf-8", "replace"))
    found = dict(parser.found)
    if len(found) != len(parser.found):
        raise EvidenceError(path, "carries a digest twice")
    return found


def _named(facts: Facts, path: str) -> dict[str, str]:
    """Return the digests that a provenance names."""
    document = facts.document(path)
    sides = {f"{side}_sha256": document[side]["snapshot_sha256"].as_text() for side in ("baseline", "candidate")}
    own = ("manifest_sha256", "protocol_sha256", "acceptance_sha256", "harness_sha256")
    return {**sides, **{name: document[name].as_text() for name in own}}


def _faults_of_ledger(facts: Facts, path: str, reported: int) -> Iterator[str]:
    """Yield where a provenance names another ledger than this one, as it stood before its report."""
    ledger = facts.document(path)["ledger"]
    number, head = ledger["entries"].as_whole(1), ledger["head"].as_digest()
    if number >= reported or number > len(facts.entries):
        yield f"was made after {number} entries of the ledger, and the report on it is entry {reported}"
    elif facts.entries[number - 1].sha256 != head:
        yield f"says that entry {number} of the ledger has the SHA-256 {head}, it is {facts.entries[number - 1].sha256}"
