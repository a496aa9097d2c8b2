"""The verdict: from the bytes of protocol, evidence and this program's own source to bytes and an exit code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from acceptance import (
    checks,
    convergence,
    digest,
    identity,
    numerical,
    observations,
    plan,
    protocol,
    rollup,
    rows,
    strictjson,
    throughput,
)
from acceptance.formats import TABLES
from acceptance.gates import Gate

EXIT_UNREADABLE = 5

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an evaluation gave."""

    exit_code: int
    """0 pass, 3 a gate is missed, 4 evidence is wanting, 5 bytes do not parse."""
    verdict: bytes | None
    """The verdict as JSON; None if bytes do not parse."""
    faults: tuple[str, ...]
    """Every place that does not parse, as ``file:line: reason``."""


def evaluate(
    *, protocol_json: bytes, evidence: Mapping[str, bytes], sources: Mapping[str, bytes], foreign: tuple[str, ...] = ()
) -> Result:
    """Evaluate evidence under a protocol.

    Args:
        protocol_json: The bytes of protocol.json.
        evidence: The bytes of identity.json and of the evidence tables, by file name; absent files are absent here.
        sources: The bytes of this program's own files, by name; see `digest.SOURCES`.
        foreign: Other names found in the evidence folder.
    """
    faults: list[str] = []
    rules = _read(protocol.parse, protocol_json, faults)
    names = _read(identity.parse, evidence.get(identity.FILE, b""), faults)
    tables = {name: data for name, data in evidence.items() if name in TABLES}
    parsed, found = rows.parse(tables, foreign)
    faults += [str(fault) for fault in found]
    if rules is None or names is None or faults:
        return Result(exit_code=EXIT_UNREADABLE, verdict=None, faults=tuple(faults))
    digests = {
        "protocol_sha256": hashlib.sha256(protocol_json).hexdigest(),
        "manifest_sha256": names.manifest_sha256,
        "acceptance_sha256": digest.tree_sha256(sources),
        "baseline_sha256": names.baseline_sha256,
        "candidate_sha256": names.candidate_sha256,
        "evidence_sha256": digest.evidence_sha256(evidence[identity.FILE], parsed.raw),
    }
    return _judge(rules, names, parsed, digests)


def _read(parse: Callable[[bytes], _T], data: bytes, faults: list[str]) -> _T | None:
    """Parse a document; an absent one is an empty one, which is none."""
    try:
        return parse(data)
    except strictjson.DocumentError as error:
        faults.append(str(error))
        return None


def _judge(
    rules: protocol.Protocol, names: identity.Identity, parsed: rows.Evidence, digests: dict[str, str]
) -> Result:
    expected = plan.build(rules, names.candidate)
    checked = checks.check(expected, names, parsed)
    gates: list[Gate] = [
        *(throughput.gates(expected, checked) if throughput.FAMILY in rules.families else []),
        *(numerical.gates(expected, checked) if numerical.FAMILY in rules.families else []),
        *(convergence.gates(expected, checked) if convergence.FAMILY in rules.families else []),
        *rollup.unevaluated_families(rules),
        *checked.gates,
    ]
    families = rollup.families(rules, gates)
    outcome = rollup.outcome(rules, families)
    verdict = {
        "format": "verdict/1",
        **digests,
        "outcome": outcome,
        "families": {name: family.to_json() for name, family in families.items()},
        "gates": [gate.to_json() for gate in gates],
        "observations": observations.observe_safely(expected, checked),
    }
    text = json.dumps(verdict, indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"
    return Result(exit_code=rollup.exit_code(outcome, gates), verdict=text.encode("ascii"), faults=())
