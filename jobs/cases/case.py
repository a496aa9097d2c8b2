"""A case: matched updates of two sides, compared tensor by tensor, then each side's isolated operators.

What is done is one list of stints. Both sides do each of them, side by side where both are alive; where they take turns
on the device, one after the other, with the first one's tensors recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..common.endings import EndedError, Ending
from ..common.plan import QUANTITIES, Numerical
from ..common.tables import Cell
from ..common.verified import VerifiedFile
from ..tensors.catalog import Catalog, find_difference, find_missing, find_unfit
from ..tensors.sums import Sums
from .inputs import CanonicalInputs
from .numerics import (
    About,
    Ratios,
    Totals,
    WorkerError,
    error_row,
    isolated_row,
    loss_row,
    measure_worker,
    previous_batch_rows,
    tensor_rows,
    total,
    vacuity_rows,
)
from .partner import StateFile
from .referee import Ratio

OPTIMIZER, CONSENSUS = "optimizer", "consensus"
OFFERED_AS = {OPTIMIZER: "optimizer_check", CONSENSUS: "mix"}
"""The method of an adapter that gives each isolated check."""
_STALE_UPDATE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load a state in place."""

    files: tuple[StateFile, ...]
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """Make an update on a batch."""

    batch: VerifiedFile
    what: str


Action: TypeAlias = Load | Make


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Something that both sides offer and that is compared."""

    what: str
    """A quantity, or an isolated check."""
    isolate: Mapping[str, Any] | None = None
    """How an isolated check is run first."""
    rolls: bool = False
    """Whether the reference is compared with itself, rolled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """What both sides do before something of theirs is compared, and what that is."""

    actions: tuple[tuple[Action, ...], tuple[Action, ...]]
    """Of the reference and of the other side."""
    passes: tuple[Pass, ...]
    step: int | None = None
    """Updates that a side has behind it afterwards, where it goes on from there; None where its state is not needed."""
    resumes: bool = False
    """Whether it begins where the stint before left off."""


Compared: TypeAlias = tuple[Catalog, Mapping[int, Sequence[Sums]], Mapping[int, Sequence[Ratio]]]
"""What was offered, and what was found of it by the index of the tensor: sums of a quantity, ratios of a check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of a stint."""

    losses: tuple[tuple[float, ...], tuple[float, ...]]
    """Of the last update on each side, by worker."""
    compared: tuple[Compared, ...]
    """One for each pass."""


Run: TypeAlias = Callable[[Stint], Done]
"""Lets both sides do a stint."""


# --- what the sides offer ---------------------------------------------------------------------------------------------


class Layouts:
    """What was offered first, by quantity: everything after it must be like it, on either side and in every update."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, Catalog]] = {}

    @property
    def parameters(self) -> Catalog:
        """The parameters."""
        return self._first["parameters"][1]

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        return len(self.parameters.workers)

    def check(self, what: str, side: str, catalog: Catalog) -> None:
        """Compare what a side offers with what was offered before.

        Raises:
            EndedError: It differs, or cannot be compared.
        """
        problem = find_unfit(catalog)
        if not problem and what in QUANTITIES and what != "parameters":
            problem = find_missing(self.parameters.tensors, catalog.tensors, ("parameters", what))
        if not problem:
            name, first = self._first.setdefault(what, (side, catalog))
            problem = find_difference(first, catalog, names=(name, side if side != name else f"{side} later"))
        if problem:
            raise EndedError(Ending.STATE_MISMATCH, f"{side}: {what}: {problem}")

    def check_losses(self, side: str, losses: Sequence[float], what: str) -> None:
        """Refuse another number of losses than there are workers.

        Raises:
            EndedError: There is one.
        """
        if len(losses) != self.num_workers:
            text = f"{side}: {what}: {len(losses)} losses were returned for {self.num_workers} workers"
            raise EndedError(Ending.COUNT_DISAGREEMENT, text)


# --- the sequence -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Findings:
    """The rows of a case."""

    numerical: list[dict[str, Cell]] = field(default_factory=list)
    tensors: list[dict[str, Cell]] = field(default_factory=list)
    vacuity: list[dict[str, Cell]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a case is made of.

    Its `conduct` is the whole sequence; who runs a stint, and how, is for its caller.
    """

    about: About
    rules: Numerical
    seed: int
    inputs: CanonicalInputs
    is_control: bool

    def conduct(self, run: Run, layouts: Layouts, offers: Callable[[str], bool]) -> Findings:
        """Go through all stints.

        Args:
            run: Lets both sides do a stint.
            layouts: What the sides have offered so far.
            offers: Whether both sides offer a method; known once the first stint is done.
        """
        findings = Findings()
        for update in range(1, self.rules.updates + 1):
            self._match(run, layouts, findings, update)
        self._isolate_optimizer(run, layouts, findings, is_offered=offers(OFFERED_AS[OPTIMIZER]))
        if layouts.num_workers > 1:
            self._isolate_consensus(run, layouts, findings, is_offered=offers(OFFERED_AS[CONSENSUS]))
        if self.is_control and self.rules.updates >= _STALE_UPDATE:
            self._repeat_batch(run, layouts, findings)
        return findings

    def _canonical(self) -> Load:
        return Load(files=tuple(self.inputs.state_files()), step=self.inputs.step)

    def _make(self, update: int, batch: int | None = None) -> Make:
        return Make(batch=self.inputs.batch(batch or update), what=f"update {update}")

    def _match(self, run: Run, layouts: Layouts, findings: Findings, update: int) -> None:
        begin: tuple[Action, ...] = (self._canonical(),) if update == 1 else ()
        actions = (*begin, self._make(update))
        done = run(
            Stint(
                actions=(actions, actions),
                passes=tuple(Pass(what=quantity, rolls=self.is_control) for quantity in QUANTITIES),
                step=self.inputs.step + update,
                resumes=update > 1,
            )
        )
        for worker, pair in enumerate(zip(*done.losses, strict=True)):
            findings.numerical.append(loss_row(self.about, update, worker, *pair))
        errors = self._errors(done, layouts, rolls=self.is_control)
        for quantity, found in errors.items():
            for error in found:
                findings.numerical.append(error_row(self.about, update, quantity, error))
                findings.tensors += tensor_rows(self.about, update, quantity, error)
        if self.is_control:
            findings.vacuity += vacuity_rows(self.about, update, errors)

    def _errors(self, done: Done, layouts: Layouts, *, rolls: bool) -> dict[str, list[WorkerError]]:
        """Return the errors of each quantity, by worker."""
        found: dict[str, list[WorkerError]] = {}
        for quantity, (catalog, sums, _) in zip(QUANTITIES, done.compared, strict=True):
            totals = _totals(catalog, sums, signs=quantity == "updates", rolls=rolls)
            found[quantity] = [
                measure_worker(worker, totals[worker], kappa=self.rules.tensor_floor)
                for worker in range(layouts.num_workers)
            ]
        return found

    def _isolate_optimizer(self, run: Run, layouts: Layouts, findings: Findings, *, is_offered: bool) -> None:
        steps = self.rules.isolated_steps
        command = {"check": OPTIMIZER, "steps": steps, "sd": self.rules.isolated_sd, "seed": self.seed}
        passes = [(steps, Pass(what=OPTIMIZER, isolate=command))]
        self._isolate(run, layouts, findings, passes, is_offered=is_offered)

    def _isolate_consensus(self, run: Run, layouts: Layouts, findings: Findings, *, is_offered: bool) -> None:
        command = {"check": CONSENSUS, "sd": self.rules.isolated_sd, "seed": self.seed}
        rounds = range(self.rules.isolated_steps)
        passes = [(number + 1, Pass(what=CONSENSUS, isolate={**command, "round": number})) for number in rounds]
        self._isolate(run, layouts, findings, passes, is_offered=is_offered)

    def _isolate(
        self, run: Run, layouts: Layouts, findings: Findings, passes: Sequence[tuple[int, Pass]], *, is_offered: bool
    ) -> None:
        """Let both sides run isolated checks, each with the number of its step or round."""
        compared: Iterator[Compared] | None = None
        if is_offered:
            compared = iter(run(Stint(actions=((), ()), passes=tuple(one for _, one in passes))).compared)
        for update, one in passes:
            ratios: list[Ratios] = []
            if compared is not None:
                catalog, _, pieces = next(compared)
                ratios = _ratios(catalog, pieces)
            for worker in range(layouts.num_workers):
                own = [ratio for ratio in ratios if ratio.worker == worker]
                findings.numerical.append(isolated_row(self.about, update, worker, one.what, own))

    def _repeat_batch(self, run: Run, layouts: Layouts, findings: Findings) -> None:
        """Let one side use the batch of the update before once more."""
        first, second = self._make(1), self._make(_STALE_UPDATE)
        stale = self._make(_STALE_UPDATE, batch=1)
        canonical = self._canonical()
        done = run(
            Stint(
                actions=((canonical, first, second), (canonical, first, stale)),
                passes=tuple(Pass(what=quantity) for quantity in QUANTITIES),
            )
        )
        losses = list(zip(*done.losses, strict=True))
        errors = self._errors(done, layouts, rolls=False)
        findings.vacuity += previous_batch_rows(self.about, _STALE_UPDATE, losses, errors)


def _totals(
    catalog: Catalog, sums: Mapping[int, Sequence[Sums]], *, signs: bool, rolls: bool
) -> dict[int, list[Totals]]:
    """Return the totals of each worker's tensors, in canonical order."""
    found: dict[int, list[Totals]] = {}
    for index, tensor in enumerate(catalog.tensors):
        pieces = sums.get(index, [])
        totals = total(tensor.worker, tensor.name, tensor.numel, pieces, signs=signs, roll=rolls)
        found.setdefault(tensor.worker, []).append(totals)
    return found


def _ratios(catalog: Catalog, pieces: Mapping[int, Sequence[Ratio]]) -> list[Ratios]:
    found: list[Ratios] = []
    for index, tensor in enumerate(catalog.tensors):
        own = pieces.get(index, [])
        known = [piece.worst for piece in own if piece.worst is not None]
        worst = max(known, default=0.0) if len(known) == len(own) else None
        nonfinite = sum(piece.nonfinite for piece in own)
        found.append(Ratios(worker=tensor.worker, tensor=tensor.name, worst=worst, nonfinite=nonfinite))
    return found
