"""What a row of numerical.csv reads under a rule, and the worst of several.

loss      |c - b| / (atol + rtol |b|), of which at most 1 is allowed
global    the relative L2 error over all tensors of a worker
tensor    the largest error of a single tensor, its reference not below the floor
isolated  the largest |error| / (atol + rtol |reference|), formed by the harness
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from acceptance import arithmetic
from acceptance.numerical_rules import NumericalRules
from acceptance.rows import NumericalRow


class View(enum.Enum):
    """Which number of a row is read."""

    LOSS = "loss"
    GLOBAL = "global"
    TENSOR = "tensor"
    ISOLATED = "isolated"


class State(enum.Enum):
    """Whether a row has that number; the later ones take precedence where rows are put together."""

    VALUE = "a number"
    NOT_OFFERED = "not offered"
    ZERO_REFERENCE = "the baseline's is zero and the other side's is not"
    NOT_FINITE = "not finite"
    BASELINE_NOT_FINITE = "the baseline's own is not finite"


_PRECEDENCE = {state: place for place, state in enumerate(State)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one row reads."""

    row: NumericalRow
    state: State
    value: Decimal
    """The number; 0 where there is none."""

    @property
    def order(self) -> tuple[int, Decimal]:
        """Return what the worst of several readings has the largest of."""
        return _PRECEDENCE[self.state], self.value

    @property
    def shown(self) -> float | None:
        """Return the number as a double; None where there is none."""
        return arithmetic.to_double(self.value) if self.state is State.VALUE else None

    @property
    def place(self) -> str:
        """Say which update, worker and tensor it is of."""
        row = self.row
        counter = {"optimizer": "step", "consensus": "round"}.get(row.quantity, "update")
        tensor = f", tensor {row.worst_tensor}" if row.worst_tensor else ""
        return f"{counter} {row.update}, worker {row.worker}{tensor}"


def view_of(quantity: str) -> View:
    """Return which number of a quantity's rows its own gate reads."""
    return {"loss": View.LOSS, "optimizer": View.ISOLATED, "consensus": View.ISOLATED}.get(quantity, View.GLOBAL)


def read(rules: NumericalRules, view: View, row: NumericalRow) -> Reading:
    """Read one row. Whether its fields belong together is checked elsewhere."""
    if view is View.ISOLATED:
        absent = State.NOT_FINITE if row.nonfinite else State.NOT_OFFERED
        return _reading(row, row.value, absent)
    if row.reference is None:
        return _reading(row, None, State.BASELINE_NOT_FINITE)
    if row.value is None:
        return _reading(row, None, State.NOT_FINITE)
    if view is View.LOSS:
        return _reading(row, loss_error(rules, row.reference, row.value), State.ZERO_REFERENCE)
    return _reading(row, row.rel_l2 if view is View.GLOBAL else row.worst_rel_l2, State.ZERO_REFERENCE)


def _reading(row: NumericalRow, value: Decimal | None, absent: State) -> Reading:
    if value is None or value > arithmetic.LARGEST:
        state = absent if value is None else State.NOT_FINITE
        return Reading(row=row, state=state, value=Decimal(0))
    return Reading(row=row, state=State.VALUE, value=value)


def loss_error(rules: NumericalRules, reference: Decimal, value: Decimal) -> Decimal | None:
    """Return |value - reference| / (atol + rtol |reference|).

    Returns:
        0 for equal losses even where nothing is allowed; None for other ones there.
    """
    error = arithmetic.distance(value, reference)
    allowed = arithmetic.add([rules.loss_atol, arithmetic.multiply(rules.loss_rtol, reference.copy_abs())])
    if allowed > 0:
        return arithmetic.divide(error, allowed)
    return None if error > 0 else Decimal(0)


def worst(rules: NumericalRules, view: View, rows: Iterable[NumericalRow]) -> Reading:
    """Return the worst reading of some rows, the first of equal ones.

    Raises:
        ValueError: There are no rows.
    """
    return max((read(rules, view, row) for row in rows), key=lambda reading: reading.order)
