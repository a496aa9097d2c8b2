"""Attempts whose sides have several processes: the ranks of the first node here, others through further nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from ..common.endings import EndedError, Ending
from ..common.layout import AttemptFolder
from ..common.plan import PlannedAttempt, Workload
from ..measurement.crew import Crew, RankRecord, manning
from ..measurement.examples import METHOD, STEPS, Proof, digest_steps
from ..measurement.measuring import measure_side, run_ranked_pilot
from ..measurement.session import Setting, SideRecord, running
from ..processes.ranks import LOOPBACK, Rank, find_free_port, number_ranks
from ..processes.sidelog import SideLog
from ..processes.steps import alone, together
from .context import Context, set_up, undisturbed
from .links import Link, Links
from .nodes import find_address, find_nodes
from .surroundings import State

_ALONE = "one process alone"


def run_ranked(context: Context, planned: PlannedAttempt, folder: AttemptFolder, record: SideRecord) -> None:
    """Run one side of an attempt at a workload that asks for several processes.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    workload = context.protocol.workloads[planned.workload]
    record.topology = (workload.processes, workload.nodes)
    # Before the log is there: what a node lacks is no affair of the side's.
    nodes = find_nodes(context.environment, workload.nodes) if workload.nodes > 1 else ()
    links = _links(context).reach(nodes[1:])
    ranks = _number(context, workload, nodes)
    log = SideLog(folder.log(record.side), context.protocol.limits.log_bytes)
    with contextlib.ExitStack() as stack:
        own = [rank for rank in ranks if rank.node == 0]
        settings = [stack.enter_context(set_up(context, planned, record.side, rank)) for rank in own]
        stack.enter_context(undisturbed(context, planned, record.side))
        stack.enter_context(contextlib.closing(log))
        crew = _crew(context, planned, settings, record, log, ranks=ranks, links=links)
        if planned.kind == "pilot":
            _run_pilot(context, planned, record, log, crew)
        else:

            def look() -> State:
                return {**context.surroundings.read(), "further": together(*(link.look() for link in links))}

            measure_side(crew, record, context.signals, updates=planned.updates, look=look)


def _links(context: Context) -> Links:
    if context.further.links is None:
        context.further.links = Links(
            allocation=context.allocation,
            protocol=context.protocol,
            place=context.place,
            environment=context.environment,
            signals=context.signals,
            log=context.log,
            source=context.harness_source,
        )
    return context.further.links


def _number(context: Context, workload: Workload, nodes: Sequence[str]) -> tuple[Rank, ...]:
    """Return the ranks of one run of a side, which finds rank 0 at a port of its own on the first node.

    Raises:
        EndedError: This node has fewer devices than ranks.
    """
    devices = context.place.device.devices
    if context.protocol.device != "cpu" and 0 < len(devices) < workload.per_node:
        text = f"the allocation has {len(devices)} devices on this node, for {workload.per_node} processes"
        raise EndedError(Ending.HARNESS_ERROR, text)
    address = find_address(nodes[0]) if nodes else LOOPBACK
    return number_ranks(workload.processes, workload.nodes, address, find_free_port())


@contextlib.contextmanager
def _crew(
    context: Context,
    planned: PlannedAttempt,
    settings: Sequence[Setting],
    record: SideRecord,
    log: SideLog,
    *,
    ranks: Sequence[Rank],
    links: Sequence[Link],
) -> Iterator[Crew]:
    """Start all ranks of a side; when the context is left nothing of it is alive on any node.

    Raises:
        EndedError: The attempt ends here.
    """
    told = [
        RankRecord(
            rank=rank,
            node=str(context.place.host["node"]),
            device=context.place.device.of_rank(rank.local_rank),
            record=SideRecord(side=record.side, position=record.position),
        )
        for rank in ranks
    ]
    for one in told:
        if one.rank.node:
            one.node, one.device = links[one.rank.node - 1].node, ""
    with manning(settings, record, told, log, context.signals) as (crew, stack):
        crew.members += stack.enter_context(_links(context).manned(planned, links, told, log)) if links else []
        yield crew


def _run_pilot(
    context: Context,
    planned: PlannedAttempt,
    record: SideRecord,
    log: SideLog,
    crew: contextlib.AbstractContextManager[Crew],
) -> None:
    """Run a pilot, and prove that the ranks take the examples that one process would."""
    proof = Proof()
    run_ranked_pilot(crew, record, context.signals, needed=(METHOD,), ask=proof.ask)
    rank = number_ranks(1, 1, LOOPBACK, find_free_port())[0]
    # Of this process nothing but what it takes is of interest: how the side ran is known from its ranks.
    apart = SideRecord(side=record.side, position=record.position)
    with (
        set_up(context, planned, record.side, rank) as setting,
        context.signals.watching(),
        running(setting, apart, log, context.signals, name=_ALONE) as session,
    ):
        alone(session.start())
        alone(session.build())
        record.examples = proof.compare(session)
        alone(session.leave())
    record.output_bytes, record.output_truncated = log.output_bytes, log.is_truncated
    if planned.examples_sha256 and digest_steps(record.examples) != planned.examples_sha256:
        text = f"the examples of the first {STEPS} steps are not those that the baseline's pilot took"
        raise EndedError(Ending.STATE_MISMATCH, text)


def check_same_ranks(records: Sequence[SideRecord]) -> None:
    """Refuse an attempt whose sides did not run rank by rank on the same nodes, devices and processors.

    Raises:
        EndedError: They did not.
    """
    first = records[0]
    for record in records[1:]:
        for own, other in zip(record.ranks, first.ranks, strict=True):
            for name in ("node", "device", "affinity"):
                if own[name] != other[name]:
                    was = f"{name} of rank {own['rank']} was {other[name]} of {first.side}"
                    text = f"conditions changed between the sides: {was}, {own[name]} of {record.side}"
                    raise EndedError(Ending.NODE_FAIL, text)
