"""A matched case of two adapters, compared in one process by the definitions of docs/protocol.md, in fp64."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from campaign.documents import NumericalRules

COMPARED = ("gradients", "parameters", "updates", "exp_avg", "exp_avg_sq")
WARMUP = 3
RULES = NumericalRules()

Key = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison; `value` is what the gate reads: of a loss or an isolated check its share of the allowance."""

    quantity: str
    update: int
    worker: int
    value: float
    worst_tensor: str = ""
    worst_value: float = 0.0


def compare_case(baseline: Any, candidate: Any, *, num_updates: int = RULES.updates) -> list[Row]:
    """Warm both up, load the baseline's initial state into both, and match local updates on the baseline's batches."""
    initial = {("parameters", *key): tensor for key, tensor in _snapshot(baseline, "parameters").items()}
    for side in (baseline, candidate):
        side.updates(WARMUP)
        side.sync()
        side.load_state(initial, 0)
    rows: list[Row] = []
    for update in range(num_updates):
        batch = baseline.batch(update)
        before = [_snapshot(side, "parameters") for side in (baseline, candidate)]
        losses = [side.update_on(batch) for side in (baseline, candidate)]
        for worker, (expected, got) in enumerate(zip(*losses, strict=True)):
            share = abs(got - expected) / (float(RULES.loss_atol) + float(RULES.loss_rtol) * abs(expected))
            rows.append(Row(quantity="loss", update=update + 1, worker=worker, value=share))
        for quantity in COMPARED:
            tensors = [
                _differences(side, start) if quantity == "updates" else _snapshot(side, quantity)
                for side, start in zip((baseline, candidate), before, strict=True)
            ]
            rows.extend(_tensor_rows(quantity, update + 1, *tensors))
    return rows


def compare_isolated(baseline: Any, candidate: Any) -> list[Row]:
    """The optimizer and, for several workers, consensus on the same normal inputs."""
    return [*compare_optimizer(baseline, candidate), *compare_consensus(baseline, candidate)]


def compare_optimizer(baseline: Any, candidate: Any) -> Iterator[Row]:
    """One row per worker."""
    like = _snapshot(baseline, "parameters")
    steps = RULES.isolated_steps
    gradients = [_normal(like, step) for step in range(1, steps + 1)]
    sides = []
    for side in (baseline, candidate):
        results = side.optimizer_check(_normal(like, 0), gradients, steps)
        sides.append({(worker, f"{quantity}/{name}"): tensor for quantity, worker, name, tensor in results})
    yield from _isolated_rows("optimizer", steps, *sides)


def compare_consensus(baseline: Any, candidate: Any) -> Iterator[Row]:
    """One row per round and worker."""
    like = _snapshot(baseline, "parameters")
    if len({worker for worker, _ in like}) == 1:
        return
    for number in range(RULES.isolated_steps):
        inputs = _normal(like, 100 + number)
        sides = [
            {(worker, name): tensor for worker, name, tensor in side.mix(inputs, number)}
            for side in (baseline, candidate)
        ]
        yield from _isolated_rows("consensus", number + 1, *sides)


def worst(rows: list[Row]) -> dict[str, float]:
    """The largest value of each quantity."""
    return {row.quantity: max(other.value for other in rows if other.quantity == row.quantity) for row in rows}


def caught_by(rows: list[Row]) -> set[str]:
    """The gates that the default protocol misses, and the per-tensor flags ("updates/tensor")."""
    gates = {
        "loss": 1.0,
        "gradients": float(RULES.gradients_threshold),
        "parameters": float(RULES.parameters_threshold),
        "updates": float(RULES.updates_threshold),
    }
    caught = {row.quantity for row in rows if row.quantity in gates and not row.value < gates[row.quantity]}
    caught |= {row.quantity for row in rows if row.quantity in {"optimizer", "consensus"} and not row.value <= 1}
    for quantity in COMPARED:
        limit = float(getattr(RULES, f"tensor_{quantity}"))
        if any(row.quantity == quantity and not row.worst_value <= limit for row in rows):
            caught.add(f"{quantity}/tensor")
    return caught


def _snapshot(side: Any, quantity: str) -> dict[Key, Tensor]:
    """Copies, without the names that share another one's storage."""
    aliases = _aliases(side)
    return {(w, name): tensor.clone() for w, name, tensor in side.state(quantity) if (w, name) not in aliases}


def _aliases(side: Any) -> set[Key]:
    seen: set[int] = set()
    aliases = set()
    for worker, name, tensor in side.state("parameters"):
        if tensor.data_ptr() in seen:
            aliases.add((worker, name))
        seen.add(tensor.data_ptr())
    return aliases


def _differences(side: Any, before: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
    return {key: tensor - before[key] for key, tensor in _snapshot(side, "parameters").items()}


def _tensor_rows(
    quantity: str, update: int, expected: Mapping[Key, Tensor], got: Mapping[Key, Tensor]
) -> Iterator[Row]:
    assert list(expected) == list(got)
    for worker in sorted({worker for worker, _ in expected}):
        names = [name for other, name in expected if other == worker]
        norms = {name: _norm(expected[worker, name]) for name in names}
        errors = {name: _norm(expected[worker, name].double() - got[worker, name].double()) for name in names}
        sizes = {name: expected[worker, name].numel() for name in names}
        norm = sum(value**2 for value in norms.values()) ** 0.5
        error = sum(value**2 for value in errors.values()) ** 0.5
        floor = float(RULES.tensor_floor) * norm / sum(sizes.values()) ** 0.5
        relative = {name: _ratio(errors[name], max(norms[name], floor * sizes[name] ** 0.5)) for name in names}
        name = max(names, key=lambda name: relative[name])
        yield Row(
            quantity=quantity,
            update=update,
            worker=worker,
            value=_ratio(error, norm),
            worst_tensor=name,
            worst_value=relative[name],
        )


def _isolated_rows(
    quantity: str, update: int, expected: Mapping[Key, Tensor], got: Mapping[Key, Tensor]
) -> Iterator[Row]:
    assert list(expected) == list(got)
    rtol, atol = float(RULES.isolated_rtol), float(RULES.isolated_atol)
    for worker in sorted({worker for worker, _ in expected}):
        shares = {
            name: float(
                ((tensor.double() - got[worker, name].double()).abs() / (atol + rtol * tensor.double().abs())).max()
            )
            for (other, name), tensor in expected.items()
            if other == worker
        }
        name = max(shares, key=lambda name: shares[name])
        yield Row(quantity=quantity, update=update, worker=worker, value=shares[name], worst_tensor=name)


def _normal(like: Mapping[Key, Tensor], role: int) -> dict[Key, Tensor]:
    generator = torch.Generator().manual_seed(role)
    sd = float(RULES.isolated_sd)
    return {key: torch.randn(tensor.shape, generator=generator) * sd for key, tensor in like.items()}


def _ratio(error: float, reference: float) -> float:
    """As after a skipped update: nothing against nothing is no error, and something against nothing is no number."""
    if reference == 0:
        return 0.0 if error == 0 else math.nan
    return error / reference


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.double()))
