"""From a home to a verdict and its report: collect, write evidence, let the frozen acceptance judge, render, record."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign import documents, files
from campaign.collection.collect import Collection, collect, require_intact
from campaign.collection.reuse import Care
from campaign.errors import CampaignError, StateError
from campaign.frozen import Frozen, check_recorded, read_frozen
from campaign.judging.evaluation import Evaluation, evaluate, forget_verdict
from campaign.judging.evidence import read_evidence, write_evidence
from campaign.judging.provenance import Chain, build_provenance, frozen_candidates
from campaign.judging.publication import publish
from campaign.paths import EvaluationPaths, HomePaths
from campaign.record import registry
from campaign.record.ledger import Ledger
from campaign.watching.extension import parse_extension

if TYPE_CHECKING:
    from reports.verdict import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a report left."""

    candidate: str
    collection: Collection
    evaluation: Evaluation
    provenance: documents.Provenance
    verdict: Path
    page: Path
    notes: tuple[str, ...]
    """What a person should know."""


def choose_candidate(frozen: Frozen, entries: Sequence[documents.Entry], wanted: str | None) -> str:
    """Return the candidate to report on: the wanted one, else the one that was frozen last.

    Raises:
        StateError: There is none, or none of that id.
    """
    known = [name for name in frozen_candidates(entries) if name in frozen.candidates]
    if not known:
        why = "a verdict is about a candidate, and none has been frozen into this home"
        raise StateError("nothing to report on", why=why, hint="campaign freeze --candidate PATH")
    if wanted is None:
        return known[-1]
    if wanted not in known:
        raise StateError(f"no candidate {wanted}", why=f"frozen are: {', '.join(known)}", hint="give one of these ids")
    return wanted


def _forget(paths: HomePaths, entries: Sequence[documents.Entry], wanted: str | None) -> None:
    """Remove the old verdict of the candidate that is asked for, before anything can end the command."""
    recorded = list(frozen_candidates(entries))
    if not recorded:
        forget_verdicts(paths, wanted)
    for name in recorded[-1:] if wanted is None else recorded:
        if wanted in (None, name):
            forget_verdict(paths.evaluation(name))


def forget_verdicts(paths: HomePaths, wanted: str | None) -> None:
    """Remove the old verdicts of a home whose ledger or frozen documents cannot be trusted.

    Args:
        paths: The home.
        wanted: The candidate that was asked for; None for whichever has one.
    """
    if not paths.evaluations.is_dir():
        return
    for folder in sorted(paths.evaluations.iterdir()):
        if wanted in (None, folder.name):
            forget_verdict(paths.evaluation(folder.name))


def report(paths: HomePaths, ledger: Ledger, *, candidate: str | None, environment: Mapping[str, str]) -> Report:
    """Collect, evaluate with the frozen acceptance, and render.

    Args:
        paths: The home.
        ledger: Its ledger, open for writing.
        candidate: The candidate's id; None for the one that was frozen last.
        environment: The driver's environment.

    Raises:
        StateError: There is no such candidate.
        EvidenceError: Something is not what was frozen or sealed: there is no verdict, and an old one is removed.
    """
    _forget(paths, ledger.entries, candidate)
    frozen = read_frozen(paths)
    check_recorded(paths, frozen, ledger.entries)
    name = choose_candidate(frozen, ledger.entries, candidate)
    evaluation = paths.evaluation(name)
    collection = collect(paths, ledger, care=Care.BYTES)
    require_intact(collection)
    write_evidence(evaluation, read_evidence(paths, frozen, name))
    chain = Chain(entries=ledger.entries, head=ledger.head)
    with ThreadPoolExecutor(max_workers=1) as pool:
        judging = pool.submit(evaluate, paths, frozen, name, environment=environment)
        _prepare(evaluation)
        ahead = _provenance_ahead(frozen, collection, name, chain)
        judged = judging.result()
    due = parse_extension(files.parse_json(judged.printed, where=str(evaluation.verdict))).due
    # Here once more: this may be a copy of the home in which the candidate was frozen.
    registry.register(paths, name, environment, time.time)
    known = registry.known_against(paths, frozen, frozen_candidates(ledger.entries), environment)
    if ahead is None or due:
        ahead = build_provenance(frozen, collection, name, chain, due=due)
    provenance = ahead.replace(registry=known)
    publish(ledger, paths.protocol, evaluation, candidate=name, judged=judged, provenance=provenance)
    return Report(
        candidate=name,
        collection=collection,
        evaluation=judged,
        provenance=provenance,
        verdict=evaluation.verdict,
        page=evaluation.page,
        notes=(f"the registry of freezes was not read: {known.problem}",) if known.problem else (),
    )


def _provenance_ahead(
    frozen: Frozen, collection: Collection, candidate: str, chain: Chain
) -> documents.Provenance | None:
    """Return the provenance where no extension is due; None where there is none: whoever builds it anew says why."""
    try:
        return build_provenance(frozen, collection, candidate, chain)
    except CampaignError:
        return None


def _prepare(evaluation: EvaluationPaths) -> None:
    """Make what of the report needs no verdict while the acceptance program is at work."""
    from reports.ahead import prepare  # noqa: PLC0415 - keeps the start of other commands fast

    prepare(evaluation.evidence)


@functools.lru_cache(maxsize=1)
def _exact(printed: bytes) -> Mapping[str, Any]:
    """Return a verdict whose numbers with a point are exact decimals; what prints it asks several times."""
    value: Mapping[str, Any] = json.loads(printed, parse_float=Decimal)
    return value


def gate_rows(printed: bytes) -> list[list[str]]:
    """Return the gate table's cells, what blocks first: gate, value, threshold, margin, outcome, finding.

    Gates of the numerical family that pass, or were not evaluated, stand together, one row a quantity with the value
    that comes closest to its threshold: there are several for every workload.

    Args:
        printed: The bytes of the verdict.
    """
    from reports.verdict import failed_first, parse_gates  # noqa: PLC0415 - keeps the start of other commands fast

    verdict = _exact(printed)
    ordered = failed_first(parse_gates(verdict))
    groups: dict[str, list[Gate]] = {}
    for gate in ordered:
        together = gate.family == "numerical" and (gate.outcome == "pass" or not gate.counts)
        groups.setdefault(_together(gate) if together else gate.id, []).append(gate)
    blocking = [name for name, group in groups.items() if name == group[0].id and group[0].outcome != "pass"]
    shown, hidden = _cut(blocking)
    rows = [_cells(name, group) for name, group in groups.items() if name not in hidden]
    if hidden:
        note = [f"... and {len(hidden)} more numerical gates (--json lists all)", "", "", "", "not_qualified", ""]
        rows.insert(len(shown), note)
    return rows


MOST_BLOCKING = 24
"""Most gates of the numerical family that are listed one by one."""


def _cut(blocking: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return the gates to list, and those of the numerical family beyond the most."""
    numerical = [name for name in blocking if name.startswith("numerical/")]
    hidden = set(numerical[MOST_BLOCKING:])
    return [name for name in blocking if name not in hidden], hidden


def _together(gate: Gate) -> str:
    """Return the name of the row in which a gate of the numerical family stands."""
    quantity = gate.id.removeprefix(f"{gate.family}/").removeprefix(f"{gate.subject}/")
    return f"numerical/*/{quantity} {gate.finding}"


def _closeness(gate: Gate) -> Decimal:
    """Return how near a gate's value is to its threshold, of all gates the greater the nearer."""
    if gate.value is None or not gate.threshold:
        return Decimal(0)
    return Decimal(gate.value) / Decimal(gate.threshold)


def _cells(name: str, group: Sequence[Gate]) -> list[str]:
    from reports.numbers import plural, signed  # noqa: PLC0415 - as above

    gate = max(group, key=_closeness)
    if isinstance(gate.value, int):  # a count of faults, not a measurement
        value, margin = str(gate.value), str(gate.margin)
    else:
        value, margin = gate.shown(gate.value), signed(gate.margin)
    rule = "-" if gate.threshold is None else f"{gate.comparison} {gate.threshold}"  # ASCII, whatever the terminal
    shown = name if name == gate.id else f"{name.partition(' ')[0]} ({plural(len(group), 'workload')})"
    return [shown, value, rule, margin, gate.outcome, gate.finding]


def observation_rows(printed: bytes) -> list[list[str]]:
    """Return what was observed of each category, beside its gates; nothing of it decides.

    Args:
        printed: The bytes of the verdict.

    Returns:
        Category, pairs, median ratio, lowest, highest, standard deviation of the ratios' logarithms, order effect and
        the ends of its 95% interval.
    """
    from reports.numbers import against  # noqa: PLC0415 - as above
    from reports.verdict import parse_observations  # noqa: PLC0415 - as above

    verdict = _exact(printed)
    thresholds = {gate["threshold"] for gate in verdict["gates"] if gate["family"] == "throughput"}

    return [
        [
            seen.subject,
            str(seen.pairs),
            *(
                against(ratio, 1, *thresholds, digits=3)
                for ratio in (seen.median_ratio, seen.minimum_ratio, seen.maximum_ratio)
            ),
            seen.spread,
            *(
                against(effect, 1, digits=4)
                for effect in (seen.order_effect, seen.order_effect_lower, seen.order_effect_upper)
            ),
        ]
        for seen in parse_observations(verdict).of("category")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remarks:
    """What the verdict observes of the numerical family beside its gates; nothing of it decides."""

    lines: tuple[str, ...]
    """In words, for a terminal."""
    counts: Mapping[str, int]


def numerical_remarks(printed: bytes, protocol: bytes) -> Remarks | None:
    """Return what deserves a look in the numerical family; None where it is not declared or nothing was observed.

    Args:
        printed: The bytes of the verdict.
        protocol: The bytes of the protocol.
    """
    from reports import numerical, vacuity  # noqa: PLC0415 - as above
    from reports.matched import Family, parse_observed  # noqa: PLC0415 - as above
    from reports.numbers import plural  # noqa: PLC0415 - as above
    from reports.verdict import parse_gates  # noqa: PLC0415 - as above

    verdict = _exact(printed)
    if verdict.get("observations", {}).get("numerical") is None:
        return None
    observed = parse_observed(verdict)
    family = Family(protocol=json.loads(protocol), gates=parse_gates(verdict), observed=observed)
    exact = sum(flag.is_exact for flag in observed.flags)
    tensors = sum(flag.kind == "tensor" for flag in observed.flags)
    blind = vacuity.without_sight(family)
    said = (
        numerical.flag_sentence(family),
        f"Flagged for a single tensor: {plural(tensors, 'case and quantity', 'cases and quantities')}."
        if tensors
        else "",
        vacuity.blind_sentence(family),
        numerical.single_worker_sentence(family),
    )
    return Remarks(
        lines=tuple(line.replace(numerical.TIMES, "x") for line in said if line),
        counts={
            "flagged_quantities": sum(seen.flagged and not seen.is_exact for seen in observed.quantities),
            "flags_above_control": len(observed.flags) - exact - tensors,
            "flags_of_exact_controls": exact,
            "flags_of_single_tensors": tensors,
            "gates_without_sight": len(blind),
            "workloads_of_one_worker": sum(number == 1 for number in family.workers.values()),
        },
    )


def candidates_sentence(provenance: documents.Provenance) -> str:
    """Return which candidate this is of all that are known against its baseline, the same as in the report."""
    from reports import candidates  # noqa: PLC0415 - as above

    return candidates.candidates_sentence(provenance.to_json())


def verdict_sentence(printed: bytes, protocol: bytes, provenance: documents.Provenance) -> str:
    """Return the verdict in one sentence, the same as in the report: what was measured again comes first.

    Args:
        printed: The bytes of the verdict.
        protocol: The bytes of the protocol.
        provenance: What the report says beside it.
    """
    from reports import amendments  # noqa: PLC0415 - as above
    from reports.verdict import parse_gates, summarise  # noqa: PLC0415 - as above

    verdict = _exact(printed)
    said = summarise(verdict, parse_gates(verdict), json.loads(protocol)).sentence
    return " ".join(filter(None, [amendments.sentence(provenance.to_json()), said]))
