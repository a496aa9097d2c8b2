"""From sums over tensors to the rows of a case: norms, relative errors, the floor, the worst tensor, vacuity. Pure.

Whatever is not finite, or has no finite quotient, is None, which a table shows as an empty field; a gate that needs it
fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..common.tables import Cell
from ..tensors.sums import Sums, exact_sum

NO_UPDATE, NEGATED, SHUFFLED, PREVIOUS_BATCH = "no_update", "negated", "shuffled", "previous_batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums of one tensor."""

    worker: int
    tensor: str
    numel: int
    reference_sq: float | None
    difference_sq: float | None
    largest_error: float | None
    nonfinite: int
    sign_flips: int | None
    roll_sq: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """The worst error of one tensor in units of what is allowed; of an isolated check."""

    worker: int
    tensor: str
    worst: float | None
    """None if either side has a value that is not finite."""
    nonfinite: int


def _count(values: Iterable[int | None]) -> int | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def _largest(values: Iterable[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return max(known, default=0.0) if len(known) == len(found) else None


def total(worker: int, tensor: str, numel: int, pieces: Sequence[Sums], *, signs: bool, roll: bool) -> Totals:
    """Add up the pieces of a tensor, in their order; a tensor without elements has none."""
    return Totals(
        worker=worker,
        tensor=tensor,
        numel=numel,
        reference_sq=exact_sum(piece.reference_sq for piece in pieces),
        difference_sq=exact_sum(piece.difference_sq for piece in pieces),
        largest_error=_largest(piece.largest_error for piece in pieces),
        nonfinite=sum(piece.nonfinite_reference + piece.nonfinite_value for piece in pieces),
        sign_flips=_count(piece.sign_flips for piece in pieces) if signs else None,
        roll_sq=exact_sum(piece.roll_sq for piece in pieces) if roll else None,
    )


def relative(value: float | None, reference: float | None) -> float | None:
    """Return ``value / reference``: 0 where both are 0, None where only the reference is, or the quotient is none."""
    if value is None or reference is None:
        return None
    if reference == 0.0:
        return 0.0 if value == 0.0 else None
    quotient = value / reference
    return quotient if math.isfinite(quotient) else None


def _norm(square: float | None) -> float | None:
    return None if square is None else math.sqrt(square)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorError:
    """The error of one tensor."""

    totals: Totals
    reference: float | None
    """L2 norm of the baseline's."""
    value: float | None
    """L2 norm of the difference."""
    rel_l2: float | None
    """In units of the larger one of the reference and the floor."""
    floored: bool
    """Whether that is the floor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerError:
    """The error of all tensors of one worker together, and which of them is the worst."""

    worker: int
    reference: float | None
    value: float | None
    rel_l2: float | None
    worst_tensor: str
    """Empty if there is no tensor."""
    worst_rel_l2: float | None
    nonfinite: int
    tensors: tuple[TensorError, ...]


def measure_worker(worker: int, totals: Sequence[Totals], *, kappa: float) -> WorkerError:
    """Return the errors of one worker's tensors.

    The error of tensor i is ``|c_i - b_i| / max(|b_i|, kappa * |b| * sqrt(n_i / N))``, where N counts the elements of
    all of them: a tensor of which the baseline's is next to nothing is measured against its share of the whole.

    Args:
        worker: The worker.
        totals: The sums of its tensors, in canonical order.
        kappa: How large the floor is.
    """
    reference = _norm(exact_sum(one.reference_sq for one in totals))
    value = _norm(exact_sum(one.difference_sq for one in totals))
    num_elements = sum(one.numel for one in totals)
    tensors = tuple(_tensor_error(one, reference, num_elements, kappa) for one in totals)
    worst_tensor, worst_rel_l2 = _find_worst(tensors)
    return WorkerError(
        worker=worker,
        reference=reference,
        value=value,
        rel_l2=relative(value, reference),
        worst_tensor=worst_tensor,
        worst_rel_l2=worst_rel_l2,
        nonfinite=sum(one.nonfinite for one in totals),
        tensors=tensors,
    )


def _tensor_error(totals: Totals, whole: float | None, num_elements: int, kappa: float) -> TensorError:
    reference, value = _norm(totals.reference_sq), _norm(totals.difference_sq)
    share = math.sqrt(totals.numel / num_elements) if num_elements else 0.0
    floor = None if whole is None else kappa * whole * share
    floored = floor is not None and reference is not None and floor > reference
    denominator = None if floor is None or reference is None else max(reference, floor)
    return TensorError(
        totals=totals, reference=reference, value=value, rel_l2=relative(value, denominator), floored=floored
    )


def _find_worst(tensors: Sequence[TensorError]) -> tuple[str, float | None]:
    """Return the worst tensor and its error; the first one with values that are not finite, if there is any.

    An error without a finite size is worse than all others.
    """
    for one in tensors:
        if one.totals.nonfinite:
            return one.totals.tensor, None
    for one in tensors:
        if one.rel_l2 is None:
            return one.totals.tensor, None
    worst = max(tensors, key=lambda one: one.rel_l2 or 0.0, default=None)
    return ("", None) if worst is None else (worst.totals.tensor, worst.rel_l2)


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What all rows of a case say alike."""

    workload: str
    comparison: str
    attempt: int
    executor: str
    serialized: bool


def _row(about: About, update: int, worker: int, quantity: str, **values: Cell) -> dict[str, Cell]:
    empty: dict[str, Cell] = dict.fromkeys(("reference", "value", "rel_l2", "worst_rel_l2"))
    return {
        "workload": about.workload,
        "comparison": about.comparison,
        "attempt": about.attempt,
        "update": update,
        "worker": worker,
        "quantity": quantity,
        **empty,
        "worst_tensor": "",
        "nonfinite": 0,
        **values,
        "executor": about.executor,
        "serialized": about.serialized,
    }


def loss_row(about: About, update: int, worker: int, reference: float, value: float) -> dict[str, Cell]:
    """Return the row of both sides' losses."""
    shown = [loss if math.isfinite(loss) else None for loss in (reference, value)]
    return _row(about, update, worker, "loss", reference=shown[0], value=shown[1], nonfinite=shown.count(None))


def error_row(about: About, update: int, quantity: str, error: WorkerError) -> dict[str, Cell]:
    """Return the row of one quantity of one worker."""
    return _row(
        about,
        update,
        error.worker,
        quantity,
        reference=error.reference,
        value=error.value,
        rel_l2=error.rel_l2,
        worst_tensor=error.worst_tensor,
        worst_rel_l2=error.worst_rel_l2,
        nonfinite=error.nonfinite,
    )


def isolated_row(about: About, update: int, worker: int, quantity: str, ratios: Sequence[Ratios]) -> dict[str, Cell]:
    """Return the row of an isolated check; without ratios it says that the check is not offered."""
    nonfinite = sum(one.nonfinite for one in ratios)
    unknown = [one for one in ratios if one.worst is None]
    if unknown or not ratios:
        name = unknown[0].tensor if unknown else ""
        return _row(about, update, worker, quantity, worst_tensor=name, nonfinite=nonfinite)
    worst = max(ratios, key=lambda one: one.worst or 0.0)
    return _row(about, update, worker, quantity, value=worst.worst, worst_tensor=worst.tensor, nonfinite=nonfinite)


def tensor_rows(about: About, update: int, quantity: str, error: WorkerError) -> list[dict[str, Cell]]:
    """Return a row for each tensor."""
    return [
        {
            "workload": about.workload,
            "comparison": about.comparison,
            "update": update,
            "worker": error.worker,
            "quantity": quantity,
            "tensor": one.totals.tensor,
            "numel": one.totals.numel,
            "reference": one.reference,
            "value": one.value,
            "rel_l2": one.rel_l2,
            "floored": one.floored,
            "largest_error": one.totals.largest_error,
            "sign_flips": one.totals.sign_flips,
        }
        for one in error.tensors
    ]


# --- vacuity ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """What the rows of one fault in one update say alike."""

    about: About
    mutation: str
    update: int

    def row(self, worker: int, quantity: str, rel_l2: float | None) -> dict[str, Cell]:
        """Return a row."""
        return {
            "workload": self.about.workload,
            "attempt": self.about.attempt,
            "mutation": self.mutation,
            "update": self.update,
            "worker": worker,
            "quantity": quantity,
            "rel_l2": rel_l2,
        }


def _doubled(value: float | None) -> float | None:
    return None if value is None else 2.0 * value


def vacuity_rows(about: About, update: int, errors: Mapping[str, Sequence[WorkerError]]) -> list[dict[str, Cell]]:
    """Return what three faults would have read in one update, from the baseline alone.

    Args:
        about: What all rows say alike.
        update: The update.
        errors: By quantity, one entry for each worker; their totals hold what a shuffled tensor would have read.
    """
    no_update, negated, shuffled = (
        _Fault(about=about, mutation=mutation, update=update) for mutation in (NO_UPDATE, NEGATED, SHUFFLED)
    )
    rows: list[dict[str, Cell]] = []
    for parameters, updates in zip(errors["parameters"], errors["updates"], strict=True):
        worker, step = parameters.worker, relative(updates.reference, parameters.reference)
        whole = relative(updates.reference, updates.reference)
        rows.append(no_update.row(worker, "parameters", step))
        rows.append(no_update.row(worker, "updates", whole))
        rows.append(negated.row(worker, "parameters", _doubled(step)))
        rows.append(negated.row(worker, "updates", _doubled(whole)))
    for quantity, found in errors.items():
        for error in found:
            rolled = _norm(exact_sum(one.totals.roll_sq for one in error.tensors))
            rows.append(shuffled.row(error.worker, quantity, relative(rolled, error.reference)))
    return rows


def previous_batch_rows(
    about: About,
    update: int,
    losses: Sequence[tuple[float, float]],
    errors: Mapping[str, Sequence[WorkerError]],
) -> list[dict[str, Cell]]:
    """Return what a repeated batch would have read.

    Args:
        about: What all rows say alike.
        update: The update that had the batch of the one before.
        losses: The baseline's and the faulty one's, for each worker.
        errors: By quantity, one entry for each worker.
    """
    fault = _Fault(about=about, mutation=PREVIOUS_BATCH, update=update)
    rows = [fault.row(worker, "loss", _loss_change(*pair)) for worker, pair in enumerate(losses)]
    for quantity, found in errors.items():
        rows += [fault.row(one.worker, quantity, one.rel_l2) for one in found]
    return rows


def _loss_change(reference: float, value: float) -> float | None:
    finite = math.isfinite(reference) and math.isfinite(value)
    return relative(abs(value - reference), abs(reference)) if finite else None
