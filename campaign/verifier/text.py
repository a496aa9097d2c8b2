"""What a verification says, for a person and as JSON."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from .findings import Check, Finding, State
from .verify import Verification

FORMAT = "verification/1"
_WORDS = {
    State.INTACT: "intact",
    State.NOT_CHECKED: "not checked",
    State.INCOMPLETE: "incomplete",
    State.UNREADABLE: "UNREADABLE",
    State.TAMPERED: "TAMPERED",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Return a text with what a terminal obeys, or cannot show, written out."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def lines(verification: Verification) -> Iterator[str]:
    """Yield what a person reads: checks, findings, remarks, tier and, if nothing was tampered with, the verdicts."""
    for check in verification.checks.made:
        yield plain(f"{_WORDS[check.state]:<12}{check.name:<12}{check.title}{_counted(check)}")
    findings = verification.checks.findings
    yield from _section("findings", (plain(_finding(one)) for one in findings))
    remarks = [f"{check.name}: {remark}" for check in verification.checks.made for remark in check.remarks]
    yield from _section("remarks", (plain(remark) for remark in remarks))
    yield ""
    yield from map(plain, _conclusion(verification))


def _counted(check: Check) -> str:
    return f": {len(check.findings)} finding(s)" if check.findings else ""


def _finding(finding: Finding) -> str:
    return f"{_WORDS[finding.state]} [{finding.check}] {finding.where}: {finding.what}"


def _section(title: str, items: Iterator[str]) -> Iterator[str]:
    for index, item in enumerate(items):
        if not index:
            yield ""
            yield f"{title}:"
        yield f"  {item}"


def _conclusion(verification: Verification) -> Iterator[str]:
    facts = verification.facts
    frozen = facts.manifest.get("verifier_sha256")
    same = "the one that was frozen" if frozen == verification.verifier_sha256 else "not the one that was frozen"
    yield f"verifier: {verification.verifier_sha256} ({same})"
    if verification.head_line:
        yield f"head: {verification.head_line}"
    yield f"state: {_WORDS[verification.state]}"
    if verification.state is State.TAMPERED:
        yield "tier: none, since something is not what was frozen, sealed or recorded; no verdict is printed"
        return
    if verification.state is State.UNREADABLE:
        yield "tier: none, since something is there and cannot be read; no verdict is printed"
        return
    yield f"tier: {verification.tier or 'none, since not everything that it needs was looked at'}"
    for verdict in verification.verdicts:
        yield f"verdict on {verdict.candidate}: {verdict.outcome}, derived again by the frozen acceptance"
    for candidate in facts.underived:
        yield f"verdict on {candidate}: NOT DERIVED AGAIN, although one was reported: see the findings"
    if not verification.verdicts and not facts.underived:
        yield "verdict: none was derived"


def as_json(verification: Verification) -> dict[str, Any]:
    """Return the same as one JSON value: docs/formats.md describes it."""
    facts, made = verification.facts, verification.checks.made
    return {
        "format": FORMAT,
        "verifier": {
            "sha256": verification.verifier_sha256,
            "is_frozen_one": facts.manifest.get("verifier_sha256") == verification.verifier_sha256,
        },
        "subject": {
            "campaign": facts.manifest.get("campaign"),
            "manifest_sha256": facts.manifest_sha256,
            "ledger_head": facts.entries[-1].sha256 if facts.entries else "",
            "entries": len(facts.entries),
        },
        "policy": {
            "acceptance_sha256": facts.manifest.get("acceptance_sha256"),
            "protocol_sha256": facts.manifest.get("protocol_sha256"),
        },
        "options": {
            "deep": facts.options.deep,
            "execute": facts.options.execute,
            "head": facts.options.head,
            "signed_by": facts.options.signature.identity if facts.options.signature is not None else "",
        },
        "state": str(verification.state),
        "tier": str(verification.tier),
        "head": verification.head_line,
        "checks": [
            {"name": one.name, "title": one.title, "state": str(one.state), "remarks": list(map(plain, one.remarks))}
            for one in made
        ],
        "findings": [
            {"check": one.check, "state": str(one.state), "where": plain(one.where), "what": plain(one.what)}
            for one in verification.checks.findings
        ],
        "verdicts": {
            one.candidate: {"outcome": one.outcome, "sha256": hashlib.sha256(one.printed).hexdigest()}
            for one in verification.verdicts
        },
        "underived": list(facts.underived),
    }
