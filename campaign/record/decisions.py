"""Decisions: who made which side the default, or asked for the baseline's retirement, and what came of it.

A decision never alters a verdict, and the default is a person's to choose whatever the verdict says. Retiring the
baseline is the one act that the verdict permits or blocks: what is refused is recorded like what is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from campaign import files
from campaign.documents import Amended, Decided, DecisionKind, Entry, RunSide
from campaign.errors import EvidenceError, ExitCode, StateError
from campaign.frozen import Frozen, check_recorded
from campaign.judging.evaluation import Verdict
from campaign.paths import HomePaths
from campaign.record.amendments import require_text
from campaign.record.ledger import Ledger, last_reports
from campaign.submission import acts


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person decides."""

    kind: DecisionKind
    side: RunSide
    candidate: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the last report on a candidate says, and whether it still says it of what there is now."""

    verdict_sha256: str
    """Empty, as the next one, where there was no report."""
    outcome: str
    objections: tuple[str, ...]
    """Why the baseline cannot be retired by it; none if it can."""
    exit_code: ExitCode
    """What a refusal exits with; 0 if there are no objections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One decision, with the ledger's number and time."""

    seq: int
    at: float
    data: Decided


def listed(entries: Sequence[Entry]) -> tuple[Recorded, ...]:
    """Return all decisions, oldest first.

    Raises:
        EvidenceError: One does not parse.
    """
    return tuple(
        Recorded(seq=entry.seq, at=entry.at, data=entry.parse_data(Decided))
        for entry in entries
        if entry.act == "decided"
    )


def standing(entries: Sequence[Entry], candidate: str, verdict: bytes | None) -> Standing:
    """Return where a candidate stands.

    Args:
        entries: The ledger.
        candidate: Its id.
        verdict: The bytes of its verdict.json as it is now; None if it is not there.
    """
    last = last_reports(entries).get(candidate)
    if last is None:
        why = "there was no report on the candidate, so that no verdict permits it"
        return Standing(verdict_sha256="", outcome="", objections=(why,), exit_code=ExitCode.WANTING)
    sha256, outcome = str(last.data["verdict_sha256"]), str(last.data["outcome"])
    objections, exit_code = _of_verdict(sha256, outcome, verdict)
    objections += list(_since(entries, last, candidate))
    if objections and exit_code is ExitCode.DONE:
        exit_code = ExitCode.WANTING
    return Standing(verdict_sha256=sha256, outcome=outcome, objections=tuple(objections), exit_code=exit_code)


def _of_verdict(sha256: str, outcome: str, verdict: bytes | None) -> tuple[list[str], ExitCode]:
    """Return what the verdict itself says against retirement."""
    if verdict is None:
        return ["verdict.json is not there: the last report was withdrawn, or the file was removed"], ExitCode.WANTING
    if files.sha256_bytes(verdict) != sha256:
        return ["verdict.json is not the one that the last report named in the ledger"], ExitCode.TAMPERED
    try:
        parsed = Verdict.parse(verdict, where="verdict.json")
    except EvidenceError as error:
        return [f"verdict.json is no verdict: {error.what}"], ExitCode.TAMPERED
    if parsed.outcome != outcome:
        return [f"verdict.json says {parsed.outcome}, the ledger {outcome}"], ExitCode.TAMPERED
    if parsed.outcome != "pass":
        failed = sum(gate.outcome != "pass" and gate.finding != "not_evaluated" for gate in parsed.gates)
        return [f"the verdict is {outcome.replace('_', ' ')}: {failed} gate(s) do not pass"], parsed.exit_code
    return [], ExitCode.DONE


def _since(entries: Sequence[Entry], report: Entry, candidate: str) -> Iterator[str]:
    """Yield what has happened since a report that may change what it says."""
    owners = ("baseline", candidate)
    later = entries[report.seq :]
    receipts = {
        name
        for entry in later
        if entry.act in ("sealed", "collected")
        for name in entry.data.get("receipts", {})
        if _owner(name) in owners
    }
    ended = [entry for entry in later if entry.act == "ended" and _owner(str(entry.data["slot"])) in owners]
    if receipts or ended:
        yield f"{len(receipts) + len(ended)} attempt(s) or segment(s) ended since the last report"
    history = acts.fold(entries)
    amended = [seq for seq, one in history.amendments.items() if seq > report.seq and _touches(one, owners)]
    if amended:
        yield f"the campaign was amended since the last report (ledger entry {amended[-1]})"
    collected = [entry for entry in later if entry.act == "collected"]
    if collected and collected[-1].data.get("findings"):
        yield "the last collection has findings: campaign collect names them"
    if going := _under_way(history, owners):
        yield f"{len(going)} attempt(s) are under way, the first at {going[0]}"


def _owner(name: str) -> str:
    return name.partition("/")[0]


def _touches(amendment: Amended, owners: Sequence[str]) -> bool:
    return amendment.platform or any(_owner(slot) in owners for slot in amendment.void)


def _under_way(history: acts.History, owners: Sequence[str]) -> list[str]:
    """Return the slots of attempts that have neither a receipt nor an ending in the ledger."""
    return [
        slot
        for slot in sorted(history.slots)
        for one in history.attempts(slot)
        if _owner(slot) in owners and one.ended is None and one.key.receipt_name not in history.sealed
    ]


def build(wish: Wish, now: Standing) -> Decided:
    """Return the act that a wish amounts to.

    Args:
        wish: What a person decides.
        now: Where the candidate stands.

    Raises:
        ConfigError: A text cannot be recorded.
    """
    refused = wish.kind == "retire" and bool(now.objections)
    return Decided(
        kind=wish.kind,
        side=wish.side,
        candidate=wish.candidate,
        by=require_text(wish.by, "--by"),
        reason=require_text(wish.reason, "--reason"),
        verdict_sha256=now.verdict_sha256,
        outcome=now.outcome,
        refused=refused,
        why="; ".join(now.objections) if refused else "",
    )


def decide(paths: HomePaths, ledger: Ledger, frozen: Frozen, wish: Wish) -> tuple[Recorded, Standing]:
    """Record a decision, refused or not.

    Args:
        paths: The home.
        ledger: Its ledger, open for writing.
        frozen: The frozen documents.
        wish: What a person decides.

    Raises:
        ConfigError: A text cannot be recorded.
        StateError: It is about a candidate, and there is none.
        EvidenceError: What was frozen is not what it was.
    """
    check_recorded(paths, frozen, ledger.entries)
    if not wish.candidate and (wish.kind, wish.side) != ("default", "baseline"):
        raise StateError(
            "no candidate is frozen: nothing can take the baseline's place", hint="campaign freeze --candidate PATH"
        )
    verdict = files.read_if_there(paths.evaluation(wish.candidate).verdict) if wish.candidate else None
    now = standing(ledger.entries, wish.candidate, verdict)
    act = build(wish, now)
    entry = ledger.append("decided", act.to_json())
    return Recorded(seq=entry.seq, at=entry.at, data=act), now
