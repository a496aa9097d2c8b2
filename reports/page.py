"""From what was read to what is shown: a pure function, without clock, environment or files."""

from __future__ import annotations

from reports import (
    amendments,
    bundles,
    candidates,
    conditions,
    convergence,
    decisions,
    fallback,
    gate_tables,
    history,
    identity,
    matched,
    nodes,
    numerical,
    platforms,
    scaling,
    throughput,
    trainings,
    tries,
)
from reports.source import Source
from reports.verdict import Gate, parse_gates, parse_observations, summarise
from reports.view import Convergence, Numerical, Page


def build_page(source: Source) -> Page:
    """Return the page for a campaign, its downloads not yet listed.

    Args:
        source: What was read.
    """
    protocol, verdict, provenance = source.protocol, source.verdict, source.provenance
    gates = parse_gates(verdict)
    family = throughput.Throughput(
        protocol=protocol,
        gates=gates,
        observations=parse_observations(verdict),
        rows=source.tables.get("pairs.csv", ()),
        windows=source.tables.get("windows.csv", ()),
    )
    declared = "throughput" in protocol["families"]
    summary = summarise(verdict, gates, protocol)
    amended = amendments.section(source)
    return Page(
        campaign=protocol["campaign"],
        candidate=source.identity["candidate"],
        mark=summary.mark,
        word=summary.word,
        sentence=" ".join(filter(None, [amended.sentence if amended else "", summary.sentence])),
        consequence=summary.consequence,
        tried=candidates.candidates_sentence(provenance),
        fallback=fallback.sentence(provenance),
        mixed=platforms.sentence(provenance),
        chips=gate_tables.chips(gates),
        cards=identity.cards(provenance),
        families=gate_tables.family_table(verdict),
        gates=gate_tables.gate_table(gates),
        gate_groups=gate_tables.group_tables(gates),
        observation_error=str(verdict.get("observations", {}).get("error", "")),
        categories=throughput.category_table(family) if declared else None,
        production=throughput.production_table(family) if declared else None,
        how_to_read=throughput.HOW_TO_READ,
        subjects=throughput.subjects(family) if declared else (),
        spread=throughput.spread_table(family),
        noise_sentence=throughput.noise_sentence(family),
        noise=throughput.noise_table(family),
        scaling_sentence=scaling.SENTENCE,
        scaling=scaling.table(source),
        pairs=throughput.pair_table(family),
        numerical=_numerical(source, gates),
        convergence=_convergence(source, gates),
        missing=history.missing_table(provenance),
        failed=history.failed_table(provenance),
        attempts=history.attempt_table(provenance),
        segments=history.segment_table(provenance),
        rules=identity.rules(protocol),
        departures=tuple(provenance["departures"]),
        digests=identity.digest_table(provenance, verdict),
        stamps=identity.stamps(source),
        machines=identity.machine_table(provenance),
        hosts=identity.host_table(provenance),
        platforms=platforms.platform_table(provenance),
        conditions=conditions.condition_table(provenance),
        bundles=bundles.bundle_table(provenance),
        shared_boots=bundles.boot_table(provenance),
        nodes=nodes.node_table(provenance),
        frozen_on=identity.frozen_on_table(provenance),
        versions=identity.version_table(provenance),
        data=identity.data_table(provenance),
        reads=identity.reads_table(provenance),
        left_out=identity.left_out_table(provenance),
        others=identity.other_table(provenance),
        registry=tries.registry_table(provenance),
        amendments=amended,
        decisions=decisions.section(source),
    )


def _numerical(source: Source, gates: tuple[Gate, ...]) -> Numerical | None:
    if "numerical" not in source.protocol["families"]:
        return None
    family = matched.Family(
        protocol=source.protocol,
        gates=gates,
        observed=matched.parse_observed(source.verdict),
        # Written since provenance names how cases ran; a report of older evidence has none.
        costs=tuple(source.provenance.get("cases", ())),
    )
    return numerical.section(family, source.verdict)


def _convergence(source: Source, gates: tuple[Gate, ...]) -> Convergence | None:
    if "convergence" not in source.protocol["families"]:
        return None
    family = trainings.family_of(source.protocol, source.verdict, source.provenance, source.tables, gates)
    return convergence.section(family, source.verdict)
