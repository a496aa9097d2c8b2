"""Gates to families to the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acceptance.gates import Finding, Gate, missing_family
from acceptance.protocol import Protocol

EVALUATED_FAMILIES = ("throughput", "numerical", "convergence")
"""The families that this program has gates for. Every other declared one is not qualified."""

PASS, NOT_QUALIFIED = "pass", "not_qualified"

EXIT_PASS, EXIT_MISSED, EXIT_WANTING = 0, 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The roll-up of some gates."""

    outcome: str
    passed: int
    total: int

    def to_json(self) -> dict[str, object]:
        """Return the roll-up as it stands in the verdict."""
        return {"outcome": self.outcome, "passed": self.passed, "total": self.total}


def unevaluated_families(protocol: Protocol) -> list[Gate]:
    """Return a gate for every declared family that this program cannot evaluate: it is missing, not absent."""
    return [
        missing_family(
            family, f"the protocol declares the family {family}, for which this acceptance program has no gates"
        )
        for family in protocol.families
        if family not in EVALUATED_FAMILIES
    ]


def roll_up(gates: Sequence[Gate]) -> Family:
    """Roll gates up: passed if there is at least one that counts and all that count passed.

    Gates that were not evaluated because an adapter does not offer what they need do not count.
    """
    counting = [gate for gate in gates if gate.finding is not Finding.NOT_EVALUATED]
    passed = sum(gate.outcome == PASS for gate in counting)
    met = bool(counting) and passed == len(counting)
    return Family(outcome=PASS if met else NOT_QUALIFIED, passed=passed, total=len(counting))


def families(protocol: Protocol, gates: Sequence[Gate]) -> dict[str, Family]:
    """Return the roll-up of every declared family, of the two parts of throughput, and of the evidence."""
    members: dict[str, list[Gate]] = {
        name: [gate for gate in gates if gate.family == name] for name in (*protocol.families, "evidence")
    }
    if "throughput" in protocol.families:
        own = members["throughput"]
        production = [gate for gate in own if gate.id.startswith("throughput/production/")]
        category = [gate for gate in own if gate.statistic == "median_ratio"]
        if protocol.categories:
            members["throughput/category"] = category
        if any(workload.production for workload in protocol.workloads):
            members["throughput/production"] = production
    return {name: roll_up(members[name]) for name in sorted(members)}


def outcome(protocol: Protocol, rolled: dict[str, Family]) -> str:
    """Return the overall outcome: every family passes, and at least one is declared."""
    met = bool(protocol.families) and all(family.outcome == PASS for family in rolled.values())
    return PASS if met else NOT_QUALIFIED


def exit_code(overall: str, gates: Sequence[Gate]) -> int:
    """Return 0 for a pass, 3 where a gate is shown to be missed, else 4."""
    if overall == PASS:
        return EXIT_PASS
    return EXIT_MISSED if any(gate.finding is Finding.MISSED for gate in gates) else EXIT_WANTING
