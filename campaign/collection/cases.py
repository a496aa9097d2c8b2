"""What a sealed attempt of the numerical family must have left beside its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from acceptance.formats import NUMERICAL, Ending
from campaign import documents, files
from campaign.collection.case_tensors import check_tensors
from campaign.collection.inputs import PilotInputs, check_listing
from campaign.collection.sealed import Finding, SealedAttempt
from campaign.keys import AttemptKey
from campaign.paths import INPUTS, TENSORS, AttemptPaths
from campaign.planning.calibration import CASE_KINDS


def comparison_of(kind: str) -> str:
    """Return what a kind of case is called in the column ``comparison``."""
    return "control" if kind == "control_case" else "candidate"


def records_inputs(planned: documents.PlannedAttempt | documents.Slot, protocol: documents.Protocol) -> bool:
    """Return whether an attempt records canonical inputs where the numerical family is declared.

    Args:
        planned: The attempt, or its slot.
        protocol: The frozen protocol.
    """
    if planned.kind != "pilot" or planned.order != ("baseline",):
        return False
    return planned.workload in _numerical_workloads(protocol)


_NUMERICAL: list[tuple[documents.Protocol, frozenset[str]]] = []
"""Of the last protocol that was asked about: there may be thousands of workloads, and each of their pilots asks."""


def _numerical_workloads(protocol: documents.Protocol) -> frozenset[str]:
    """Return the names of the workloads of which numerical cases are run."""
    if not (_NUMERICAL and _NUMERICAL[0][0] is protocol):
        _NUMERICAL[:] = [(protocol, frozenset(one.name for one in protocol.workloads if one.numerical))]
    return _NUMERICAL[0][1]


def _check_case(
    sealed: SealedAttempt, planned: documents.PlannedAttempt, folder: AttemptPaths, *, is_known: bool
) -> Iterator[Finding]:
    where = str(folder.receipt)
    case = sealed.receipt.case
    if case is None:
        yield Finding(where=where, what="completed, but it does not say how the case was run")
    elif case.inputs_sha256 != planned.inputs_sha256:
        what = f"it ran on the inputs {case.inputs_sha256}, planned were {planned.inputs_sha256 or 'none'}"
        yield Finding(where=where, what=what)
    else:
        workers = {row.values["worker"] for row in sealed.tables.get(NUMERICAL.file, ())}
        if workers != set(range(case.num_workers)):
            said = ", ".join(map(str, sorted(map(str, workers)))) or "none"
            what = f"it compared {case.num_workers} workers, and {NUMERICAL.file} has rows of the workers {said}"
            yield Finding(where=where, what=what)
    if TENSORS in sealed.left:
        return
    if TENSORS not in sealed.kept:
        yield Finding(where=where, what=f"completed without {TENSORS}")
    elif not is_known:
        yield from check_tensors(
            sealed.kept[TENSORS],
            sealed.tables.get(NUMERICAL.file, ()),
            workload=planned.workload,
            comparison=comparison_of(planned.kind),
            where=str(folder.tensors),
        )


def check_attempt(
    sealed: SealedAttempt,
    planned: documents.PlannedAttempt,
    protocol: documents.Protocol,
    folder: AttemptPaths,
    *,
    is_known: bool,
) -> Iterator[Finding]:
    """Yield a finding for everything of the numerical family that an attempt should not have left, or left out.

    Args:
        sealed: The attempt; its bytes are those that its receipt sealed.
        planned: What was planned.
        protocol: The frozen protocol.
        folder: The attempt's folder.
        is_known: Whether this very receipt was collected before: then its tensors have been read already.
    """
    is_case, completed = planned.kind in CASE_KINDS, sealed.receipt.ending is Ending.COMPLETED
    if is_case and completed:
        yield from _check_case(sealed, planned, folder, is_known=is_known)
    if not is_case:
        if sealed.receipt.case is not None:
            yield Finding(where=str(folder.receipt), what=f"a {planned.kind} that says how a case was run")
        if TENSORS in sealed.kept or TENSORS in sealed.left:
            yield Finding(where=str(folder.tensors), what=f"a {planned.kind} compares no tensors")
    records = records_inputs(planned, protocol)
    if INPUTS in sealed.kept and not records:
        yield Finding(where=str(folder.inputs), what="only a pilot of the baseline records inputs, at a workload")
    elif INPUTS in sealed.kept:
        inputs = documents.Inputs.parse(sealed.kept[INPUTS], where=str(folder.inputs))
        yield from check_listing(inputs, planned.workload, protocol, str(folder.inputs))
    elif records and completed and protocol.numerical is not None:
        yield Finding(where=str(folder.receipt), what=f"completed without {INPUTS}")


# --- what the attempts agree on ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class CaseBook:
    """What the attempts of the numerical family say of their inputs."""

    pilots: list[PilotInputs] = field(default_factory=list)
    canonical: dict[str, str] = field(default_factory=dict)
    """Digest of the inputs of each workload: those of the first completed pilot that is not void."""
    workers: dict[str, int] = field(default_factory=dict)
    """Number of workers whose state these inputs hold."""
    used: list[tuple[str, str, documents.CaseReceipt]] = field(default_factory=list)
    """Place and workload of every case that is not void, and how it was run."""
    used_void: list[tuple[str, str, documents.CaseReceipt]] = field(default_factory=list)
    """The same of void ones."""
    recorded: dict[str, set[str]] = field(default_factory=dict)
    """Digests of the inputs of each workload that any completed pilot recorded, void ones included."""
    is_open: bool = False
    """Whether a baseline's pilot is under way, or left no list of what it had written."""

    def note(
        self,
        sealed: SealedAttempt,
        planned: documents.PlannedAttempt | documents.Slot,
        protocol: documents.Protocol,
        folder: AttemptPaths,
        *,
        is_void: bool,
    ) -> None:
        """Note a sealed attempt that was found right."""
        completed = sealed.receipt.ending is Ending.COMPLETED
        if sealed.receipt.case is not None:
            used = self.used_void if is_void else self.used
            used.append((str(folder.receipt), planned.workload, sealed.receipt.case))
        if not records_inputs(planned, protocol):
            return
        data = sealed.kept.get(INPUTS)
        if data is None:
            self.is_open = True
            return
        sha256 = files.sha256_bytes(data)
        inputs = documents.Inputs.parse(data, where=str(folder.inputs))
        self.pilots.append(PilotInputs(where=str(folder.inputs), sha256=sha256, inputs=inputs, completed=completed))
        if completed:
            self.recorded.setdefault(planned.workload, set()).add(sha256)
        if completed and not is_void and planned.workload not in self.canonical:
            self.canonical[planned.workload] = sha256
            self.workers[planned.workload] = len({one.worker for one in inputs.state})

    def disagreements(self) -> Iterator[Finding]:
        """Yield a finding for every case that did not run on its workload's canonical inputs, all workers of them."""
        for where, workload, case in self.used:
            canonical = self.canonical.get(workload, "none")
            if case.inputs_sha256 != canonical:
                what = f"it ran on the inputs {case.inputs_sha256}, the pilot recorded {canonical}"
                yield Finding(where=where, what=what)
            elif case.num_workers != self.workers[workload]:
                what = f"it compared {case.num_workers} workers, the pilot recorded {self.workers[workload]}"
                yield Finding(where=where, what=what)
        for where, workload, case in self.used_void:
            if case.inputs_sha256 not in self.recorded.get(workload, ()):
                yield Finding(where=where, what=f"it ran on the inputs {case.inputs_sha256}, which no pilot recorded")


def summaries(
    receipts: Mapping[AttemptKey, documents.Receipt], workloads: Mapping[str, str]
) -> tuple[documents.CaseSummary, ...]:
    """Return how each completed case was run, by workload, comparison and attempt.

    Args:
        receipts: The receipts, by what names their attempts.
        workloads: The workload of each slot.
    """
    found = [
        documents.CaseSummary.of_receipt(
            receipt.case, workload=workloads[key.slot], comparison=comparison_of(receipt.kind), attempt=key.attempt
        )
        for key, receipt in receipts.items()
        if receipt.case is not None and receipt.ending is Ending.COMPLETED
    ]
    return tuple(sorted(found, key=lambda one: (one.workload, one.comparison, one.attempt)))
