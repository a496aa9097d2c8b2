"""The rules of the numerical family as the protocol states them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from acceptance.formats import GLOBAL_QUANTITIES
from acceptance.strictjson import Node

REQUIRABLE = {"optimizer": "optimizer_check", "consensus": "mix"}
"""The optional method of an adapter behind each isolated check."""

GATED_QUANTITIES = ("gradients", "parameters", "updates")
"""The quantities whose relative L2 error over all tensors has a gate."""

MOST_UPDATES = 1000
"""Bounds the number of rows that a protocol can ask for."""

_POSITIVE = ("0", "1000", False)
_NOT_NEGATIVE = ("0", "1000", True)

NUMBER_FIELDS = {
    "loss_atol": _NOT_NEGATIVE,
    "loss_rtol": _NOT_NEGATIVE,
    "gradients_threshold": _POSITIVE,
    "parameters_threshold": _POSITIVE,
    "updates_threshold": _POSITIVE,
    "tensor_floor": _POSITIVE,
    "tensor_gradients": _POSITIVE,
    "tensor_parameters": _POSITIVE,
    "tensor_updates": _POSITIVE,
    "tensor_exp_avg": _POSITIVE,
    "tensor_exp_avg_sq": _POSITIVE,
    "control_factor": ("1", "1000", True),
    "isolated_sd": _POSITIVE,
    "isolated_rtol": _NOT_NEGATIVE,
    "isolated_atol": _POSITIVE,
}
"""Lower bound, upper bound (included) and whether the lower one is included, of every decimal string."""

FIELDS = (
    *NUMBER_FIELDS, "updates", "moments", "gated_tensors", "isolated_steps", "isolated_scalars", "controls",
    "required", "serialized", "shared_executor",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericalRules:
    """Numbers and choices of the numerical family that decide or are shown here."""

    updates: int
    moments: str
    loss_atol: Decimal
    loss_rtol: Decimal
    thresholds: dict[str, Decimal]
    """Of the relative L2 error over all tensors, by quantity."""
    tensor_floor: Decimal
    tensor_thresholds: dict[str, Decimal]
    """Of a single tensor's error, by quantity."""
    gated_tensors: tuple[str, ...]
    control_factor: Decimal
    isolated_steps: int
    isolated_scalars: str
    controls: bool
    required: tuple[str, ...]
    serialized: tuple[str, ...]
    shared_executor: tuple[str, ...]

    def executor_of(self, workload: str, comparison: str) -> str:
        """Return whether a case's sides have executors of their own: only a control may share one."""
        return "shared" if comparison == "control" and workload in self.shared_executor else "independent"

    def is_serialized(self, workload: str) -> bool:
        """Return whether the sides of a workload's cases take turns on the device."""
        return workload in self.serialized or workload in self.shared_executor

    def requires(self, quantity: str) -> bool:
        """Return whether the protocol asks for the method behind an isolated check."""
        return REQUIRABLE[quantity] in self.required


def parse(node: Node) -> NumericalRules:
    """Parse the protocol's field ``numerical``.

    Raises:
        DocumentError: It is not such an object.
    """
    fields = node.fields(FIELDS)
    numbers = {
        name: fields[name].decimal(low, high, low_included=included)
        for name, (low, high, included) in NUMBER_FIELDS.items()
    }
    rules = NumericalRules(
        updates=fields["updates"].integer(1, MOST_UPDATES),
        moments=fields["moments"].text(choices=("fresh", "warm")),
        loss_atol=numbers["loss_atol"],
        loss_rtol=numbers["loss_rtol"],
        thresholds={name: numbers[f"{name}_threshold"] for name in GATED_QUANTITIES},
        tensor_floor=numbers["tensor_floor"],
        tensor_thresholds={name: numbers[f"tensor_{name}"] for name in GLOBAL_QUANTITIES},
        gated_tensors=fields["gated_tensors"].items(lambda item: item.text(choices=GLOBAL_QUANTITIES)),
        control_factor=numbers["control_factor"],
        isolated_steps=fields["isolated_steps"].integer(1, MOST_UPDATES),
        isolated_scalars=fields["isolated_scalars"].text(choices=("fp64", "fp32")),
        controls=fields["controls"].flag(),
        required=fields["required"].items(lambda item: item.text(choices=tuple(REQUIRABLE.values()))),
        serialized=fields["serialized"].items(lambda item: item.name()),
        shared_executor=fields["shared_executor"].items(lambda item: item.name()),
    )
    for name in ("gated_tensors", "required", "serialized", "shared_executor"):
        fields[name].refuse_duplicates(getattr(rules, name))
    if rules.shared_executor and not rules.controls:
        raise fields["shared_executor"].fail("only a control can share an executor, and there are no controls")
    return rules


def check_names(node: Node, rules: NumericalRules, workloads: frozenset[str]) -> None:
    """Refuse a workload that the matrix does not have.

    Args:
        node: The protocol's field ``numerical``.
        rules: What it says.
        workloads: The names of the matrix.

    Raises:
        DocumentError: There is such a name.
    """
    fields = node.fields(FIELDS)
    for name in ("serialized", "shared_executor"):
        for workload in getattr(rules, name):
            if workload not in workloads:
                raise fields[name].fail(f"the workload {workload!r} is not in the matrix")
