"""Lets the program that is about to be frozen judge made-up evidence; refuses rules under which it shows nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.config.locate import KeyPath
from campaign.config.model import Config
from campaign.documents import Protocol
from campaign.errors import CampaignError, ConfigError, ExitCode
from campaign.files import sha256_file
from campaign.freezing.reachability.variants import (
    CATEGORY,
    PRODUCTION,
    RULED,
    Expected,
    Variant,
    all_variants,
    part_of,
)
from campaign.judging.evaluation import (
    VERDICT_EXITS,
    AcceptanceError,
    Gate,
    Run,
    Verdict,
    read_program,
    read_verdict,
    run_program_often,
)

FINDINGS = ("met", "missed", "inconclusive", "missing", "invalid", "not_evaluated")
"""All findings, in the order in which they are listed."""

Reachable = dict[str, tuple[str, ...]]
"""The findings that some evidence came to, by family, and by part of throughput."""

_SHOWN = 4
_RULES: Mapping[str, KeyPath] = {
    CATEGORY: ("throughput", "category_threshold"),
    PRODUCTION: ("throughput", "production_threshold"),
    "convergence": ("convergence", "margin"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """A finding that a gate does not give where it must.

    Attributes:
        gate: The gate's id, or the part that has no such gate.
        finding: What it had to find.
        what: The evidence, in words.
        found: What it found instead, and why.
        rule: The key of campaign.toml that decides; None where none does.
    """

    gate: str
    finding: str
    what: str
    found: str
    rule: KeyPath | None

    def __str__(self) -> str:
        """Return it as one sentence."""
        return f"{self.gate} cannot be {self.finding}: where {self.what}, {self.found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """Evidence, and what the program said of it."""

    variant: Variant
    run: Run


def require_reachable(
    config: Config,
    protocol: Protocol,
    written: Path,
    acceptance: Path,
    acceptance_sha256: str,
    *,
    environment: Mapping[str, str],
) -> Reachable:
    """Refuse rules under which a gate cannot find what it is there to find.

    Args:
        config: Where the rules are from.
        protocol: The protocol that is about to be frozen.
        written: Its file.
        acceptance: The copy of the program.
        acceptance_sha256: Its tree digest.
        environment: The driver's environment; see `campaign.judging.evaluation.run_program`.

    Returns:
        The findings that were come to.

    Raises:
        ConfigError: The program refuses the protocol, or the rules leave a finding out of reach.
        AcceptanceError: The program fails, or contradicts the rules.
        InfrastructureError: It could not run.
    """
    trials = _run_all(
        all_variants(protocol), written, read_program(acceptance, acceptance_sha256), acceptance, environment
    )
    _require_accepted(config, trials[0].run)
    digests = {"protocol_sha256": sha256_file(written), "acceptance_sha256": acceptance_sha256}
    verdicts = [(trial.variant, _verdict(config, trial, digests)) for trial in trials if not trial.variant.unreadable]
    _require_sound(trials)
    unreachable = [item for variant, verdict in verdicts for item in find_unreachable(variant, verdict)]
    if unreachable:
        raise _refusal(config, unreachable)
    return _reachable(verdict for _, verdict in verdicts)


def _run_all(
    variants: Sequence[Variant],
    protocol: Path,
    program: Mapping[str, bytes],
    root: Path,
    environment: Mapping[str, str],
) -> list[_Trial]:
    """Write all evidence into a folder that is private and gone afterwards, and let one child judge it."""
    with tempfile.TemporaryDirectory(prefix="campaign-reachable-") as folder:
        places = [Path(folder) / str(number) for number in range(len(variants))]
        for variant, place in zip(variants, places, strict=True):
            variant.fixture.write(place)
        arguments = [(str(protocol.resolve()), str(place)) for place in places]
        runs = run_program_often(program, arguments, root=root, environment=environment)
    return [_Trial(variant=variant, run=run) for variant, run in zip(variants, runs, strict=True)]


def _require_accepted(config: Config, nothing: Run) -> None:
    """Refuse a protocol that the program would refuse once everything has been measured."""
    if nothing.exit_status == int(ExitCode.TAMPERED):
        raise ConfigError(
            "the acceptance program refuses the protocol that this configuration gives",
            where=str(config.path),
            why="; ".join(_said(nothing).splitlines()) or "it gives no reason",
            hint="change what is named; nothing was frozen",
        )
    if nothing.exit_status != int(ExitCode.WANTING):
        raise _failed(nothing)


def _verdict(config: Config, trial: _Trial, digests: Mapping[str, str]) -> Verdict:
    run, identity = trial.run, trial.variant.fixture.identity
    if run.exit_status == int(ExitCode.TAMPERED):
        raise ConfigError(
            "evidence under the protocol that this configuration gives cannot be read",
            where=str(config.path),
            why="; ".join(_said(run).splitlines()[:_SHOWN]),
            hint="give the rules numbers of a usual size; nothing was frozen",
        )
    if run.exit_status not in VERDICT_EXITS:
        raise _failed(run)
    names = ("manifest_sha256", "baseline_sha256", "candidate_sha256")
    return read_verdict(run.stdout, run.exit_status, {**digests, **{name: getattr(identity, name) for name in names}})


def _require_sound(trials: Sequence[_Trial]) -> None:
    """Refuse a program that reads what is no number, or whose verdict depends on the order of rows."""
    printed = {trial.variant.what: trial.run.stdout for trial in trials}
    for trial in trials:
        if trial.variant.unreadable and (trial.run.exit_status != int(ExitCode.TAMPERED) or trial.run.stdout):
            why = f"it ended with {trial.run.exit_status} instead of {int(ExitCode.TAMPERED)}"
            raise AcceptanceError("the acceptance program reads numbers that are none", why=why)
        if trial.variant.like and trial.run.stdout != printed[trial.variant.like]:
            raise AcceptanceError("the verdict of the acceptance program depends on the order of the rows")


def find_unreachable(variant: Variant, verdict: Verdict) -> Iterator[Unreachable]:
    """Yield what a verdict lacks of what must come of its evidence.

    Args:
        variant: The evidence.
        verdict: What was made of it.
    """
    for expected in variant.expected:
        yield from _unmet(variant, expected, verdict.gates)
    for gate in verdict.gates:
        if gate.finding == "inconclusive" and gate.family != "convergence":
            yield _other(variant, gate, "met or missed", None)
        elif variant.passes and gate.finding not in {"met", "not_evaluated"}:
            yield _other(variant, gate, "met", _rule_of(gate))
    if variant.passes and verdict.outcome != "pass":
        failed = ", ".join(name for name, family in sorted(verdict.families.items()) if family.outcome != "pass")
        found = f"not all pass: {failed}"
        yield Unreachable(gate="the outcome", finding="a pass", what=variant.what, found=found, rule=None)


def _unmet(variant: Variant, expected: Expected, gates: Sequence[Gate]) -> Iterator[Unreachable]:
    own = [gate for gate in gates if expected.covers(gate)]
    if not own:
        found = "there is no gate that could be"
        yield Unreachable(gate=expected.part, finding=expected.finding, what=variant.what, found=found, rule=None)
    for gate in own:
        if gate.finding != expected.finding:
            ruled = expected.part in RULED and expected.finding in {"met", "missed", "inconclusive"}
            yield _other(variant, gate, expected.finding, (expected.rule or _rule_of(gate)) if ruled else None)


def _other(variant: Variant, gate: Gate, finding: str, rule: KeyPath | None) -> Unreachable:
    found = f"it is {gate.finding}" + (f" ({gate.reason})" if gate.reason else "")
    return Unreachable(gate=gate.id, finding=finding, what=variant.what, found=found, rule=rule)


def _rule_of(gate: Gate) -> KeyPath | None:
    """Return the key of campaign.toml that a gate compares with; None where the fault is another gate's."""
    if gate.finding == "invalid" and gate.id.removeprefix(f"{gate.family}/") not in gate.reason:
        return None  # where a control breaks one rule, every gate of its workload says which one it is
    if gate.family != "numerical":
        return _RULES.get(part_of(gate))
    quantity = gate.id.removeprefix(f"{gate.family}/{gate.subject}/")
    if quantity.endswith("/tensors"):
        return "numerical", f"tensor_{quantity.removesuffix('/tensors')}"
    own = {"loss": "loss_rtol", "optimizer": "isolated_rtol", "consensus": "isolated_rtol"}
    return "numerical", own.get(quantity, f"{quantity}_threshold")


def _refusal(config: Config, unreachable: Sequence[Unreachable]) -> CampaignError:
    """Return the error: about the rules where one of them is the reason, else about the program."""
    by_rule = sorted(unreachable, key=lambda item: item.rule is None)
    first, distinct = by_rule[0], list(dict.fromkeys(str(item) for item in by_rule))
    rest = len(distinct) - _SHOWN
    why = "; ".join(distinct[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
    if first.rule is None:
        return AcceptanceError("the acceptance program does not find what made-up evidence holds", why=why)
    table, *keys = first.rule
    return config.error(
        first.rule,
        f"under this rule {first.gate} cannot be {first.finding}, whatever is measured",
        why=why,
        hint=f"change {'.'.join(map(str, keys))} in [{table}]; nothing was frozen",
    )


def _reachable(verdicts: Iterable[Verdict]) -> Reachable:
    found: dict[str, set[str]] = {}
    for verdict in verdicts:
        for gate in verdict.gates:
            for name in {gate.family, part_of(gate)}:
                found.setdefault(name, set()).add(gate.finding)
    return {name: tuple(item for item in FINDINGS if item in found[name]) for name in sorted(found)}


def _said(run: Run) -> str:
    return run.stderr.decode("utf-8", "backslashreplace").strip()


def _failed(run: Run) -> AcceptanceError:
    why = _said(run)[-4000:] or "it said nothing"
    return AcceptanceError(f"the acceptance program ended with {run.exit_status}: no verdict", why=why)
