"""Running a case: its processes, the way in which they meet, and what the receipt says of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..common.layout import COMPARER, InputsFolder
from ..common.patience import Patience
from ..common.plan import Numerical, PlannedAttempt, Protocol
from ..measurement.session import Setting, SideRecord, running
from ..processes.keeper import Command
from ..processes.sidelog import SideLog
from ..processes.signals import Signals
from ..processes.steps import Begun, alone, finish_all, together
from ..tensors.staging_files import choose_folder
from .case import Case, Findings, Layouts, Run
from .comparison import Tally
from .inputs import CanonicalInputs, check_inputs, read_document, verify_files
from .numerics import About
from .partner import Partner
from .referee import Referee, refereeing, refuse_without_torch
from .side_by_side import SideBySide, Transport, staged
from .turns import Turn, Turns

SettingOf = Callable[[str], AbstractContextManager[Setting]]
"""Sets up one run of a side: folders of its own, which go when the context is left."""


@dataclass(slots=True, kw_only=True)
class CaseRecord:
    """What came of a case; complete only for a completed one."""

    inputs_sha256: str
    is_shared: bool
    is_serialized: bool
    made_inputs: bool = False
    """Whether its canonical inputs were made again on this machine."""
    findings: Findings = field(default_factory=Findings)
    layouts: Layouts = field(default_factory=Layouts)
    tally: Tally = field(default_factory=Tally)
    transport: Transport | None = None
    comparer_bytes: int = 0
    """Device memory that the comparer took at most, beside the staging memory."""

    @property
    def executor(self) -> str:
        """Whether the sides had executors of their own."""
        return "shared" if self.is_shared else "independent"

    def as_json(self) -> dict[str, Any] | None:
        """Return the receipt's entry; None if the case did not get so far."""
        if self.transport is None:
            return None
        parameters = self.layouts.parameters
        return {
            "inputs_sha256": self.inputs_sha256,
            "executor": self.executor,
            "serialized": self.is_serialized,
            "transport": "device_memory" if self.transport.is_device else "shared_memory",
            "transport_reason": self.transport.reason,
            "num_workers": self.layouts.num_workers,
            "num_tensors": len(parameters.of_worker(0)),
            "tied": list(dict.fromkeys(f"{alias} = {name}" for _, alias, name in parameters.tied)),
            "load_s": self.tally.load_s,
            "train_s": self.tally.train_s,
            "compare_s": self.tally.compare_s,
            "compared_bytes": self.tally.compared_bytes,
            # Two halves for each of two sides.
            "staging_bytes": 4 * self.transport.half_bytes,
            "comparer_bytes": self.comparer_bytes,
            **({"made_inputs": True} if self.made_inputs else {}),
        }


def begin_record(planned: PlannedAttempt, rules: Numerical) -> CaseRecord:
    """Return the record of a case that has not begun."""
    shares = planned.workload in rules.shared_executor
    return CaseRecord(
        inputs_sha256=planned.inputs_sha256,
        # Two sides cannot share a process: each has an interpreter of its own.
        is_shared=shares and planned.kind == "control_case",
        is_serialized=shares or planned.workload in rules.serialized,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a case is run with."""

    planned: PlannedAttempt
    protocol: Protocol
    rules: Numerical
    inputs: InputsFolder
    """The home's canonical inputs."""
    private: Path
    """A private folder of this case."""
    setting_of: SettingOf
    referee: Command
    logs: Mapping[str, SideLog]
    """Of each side, and of the comparer."""
    signals: Signals
    is_confined: bool
    """Whether a side may see the private folders alone."""


def run_case(bench: Bench, record: CaseRecord, records: Sequence[SideRecord]) -> None:
    """Run a case and fill its records.

    Args:
        bench: What it is run with.
        record: Of the case.
        records: Of its sides, in their order.

    Raises:
        EndedError: The attempt ends here.
        InterruptedAttemptError: A signal came.
    """
    refuse_without_torch()
    limits, threads = bench.protocol.limits, len(os.sched_getaffinity(0))
    with (
        bench.signals.watching(),
        refereeing(bench.referee, bench.logs[COMPARER], bench.signals, limits, threads) as referee,
    ):
        # The comparer loads PyTorch meanwhile.
        inputs = _verify(bench)
        conduct = _take_turns if record.is_serialized else _go_side_by_side
        conduct(bench, record, records, referee, inputs)
        inputs.verify_again()
        record.comparer_bytes = alone(referee.close())


def _verify(bench: Bench) -> CanonicalInputs:
    """Verify the canonical inputs, before anything of a side runs that could have spoilt them."""
    planned, rules = bench.planned, bench.rules

    def pause(seconds: float) -> None:
        bench.signals.wait(seconds)
        bench.signals.check()

    patience = Patience(pause)
    inputs = read_document(bench.inputs, planned.inputs_sha256, patience)
    workload = bench.protocol.workloads[planned.workload]
    check_inputs(inputs, workload, rules, bench.protocol.rules.warmup_updates)
    return verify_files(inputs, bench.inputs, bench.private if bench.is_confined else None, patience)


def _conduct(
    bench: Bench, record: CaseRecord, records: Sequence[SideRecord], inputs: CanonicalInputs, run: Run
) -> None:
    """Go through the whole sequence, whichever way the sides meet."""
    is_control = bench.planned.kind == "control_case"
    about = About(
        workload=bench.planned.workload,
        comparison="control" if is_control else "candidate",
        attempt=bench.planned.attempt,
        executor=record.executor,
        serialized=record.is_serialized,
    )
    seed = bench.protocol.rules.seed
    case = Case(about=about, rules=bench.rules, seed=seed, inputs=inputs, is_control=is_control)

    def offers(method: str) -> bool:
        return all(method in one.offers for one in records)

    record.findings = case.conduct(run, record.layouts, offers)


# --- both at the same time --------------------------------------------------------------------------------------------


def _go_side_by_side(
    bench: Bench, record: CaseRecord, records: Sequence[SideRecord], referee: Referee, inputs: CanonicalInputs
) -> None:
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(_partner(bench, one)) for one in records)
        prepared = [Begun(partner.prepare()) for partner in (first, second)]
        finish_all([*prepared, Begun(referee.start())])
        for partner, parameters in zip((first, second), prepared, strict=True):
            record.layouts.check("parameters", partner.side, parameters.finish())
        transport = stack.enter_context(_staged(bench, record, (first, second), referee))
        run = SideBySide(
            (first, second),
            referee,
            rules=bench.rules,
            layouts=record.layouts,
            tally=record.tally,
            transport=transport,
        ).run
        _conduct(bench, record, records, inputs, run)
        record.transport = transport
        together(first.leave(), second.leave())


@contextlib.contextmanager
def _partner(bench: Bench, record: SideRecord) -> Iterator[Partner]:
    log = bench.logs[record.side]
    with (
        bench.setting_of(record.side) as setting,
        running(setting, record, log, bench.signals, name=record.side) as session,
    ):
        yield Partner(session)


def _staged(
    bench: Bench, record: CaseRecord, partners: Sequence[Partner], referee: Referee
) -> AbstractContextManager[Transport]:
    def choose(needed_bytes: int) -> Path:
        return choose_folder(needed_bytes, bench.private, is_confined=bench.is_confined)

    num_bytes = record.layouts.parameters.num_bytes
    return staged(partners, referee, num_bytes, choose, wants_device=bench.protocol.device != "cpu")


# --- one after the other ----------------------------------------------------------------------------------------------


def _take_turns(
    bench: Bench, record: CaseRecord, records: Sequence[SideRecord], referee: Referee, inputs: CanonicalInputs
) -> None:
    alone(referee.start())
    by_side = {one.side: one for one in records}
    with _turns(bench, record, by_side) as turn:
        run = Turns(
            (records[0].side, records[1].side),
            turn,
            referee,
            rules=bench.rules,
            layouts=record.layouts,
            tally=record.tally,
            folder=bench.private,
            is_confined=bench.is_confined,
        ).run
        _conduct(bench, record, records, inputs, run)
    reason = "the sides take turns: what one of them offers waits on the host"
    record.transport = Transport(
        is_device=False,
        half_bytes=0,
        reason="" if bench.protocol.device == "cpu" else reason,
    )


@contextlib.contextmanager
def _turns(bench: Bench, record: CaseRecord, by_side: Mapping[str, SideRecord]) -> Iterator[Turn]:
    """Give what lets a side have the device: a process of its own each time, or one process for all."""

    @contextlib.contextmanager
    def own_process(side: str) -> Iterator[Partner]:
        with _partner(bench, by_side[side]) as partner:
            record.layouts.check("parameters", side, alone(partner.prepare()))
            yield partner
            alone(partner.leave())

    if not record.is_shared:
        yield own_process
        return
    first, second = by_side
    with own_process(first) as partner:
        by_side[second].share(by_side[first])

        @contextlib.contextmanager
        def same_process(_side: str) -> Iterator[Partner]:
            yield partner

        yield same_process
    by_side[second].share(by_side[first])
