"""From the measurements of an attempt to the rows of its evidence tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

from ..common.layout import BASELINE, CONVERGENCE, CURVES, NUMERICAL, PAIRS, TENSORS, VACUITY, WINDOWS
from ..common.plan import Allocation, PlannedAttempt, Workload
from ..common.tables import Cell
from ..measurement.blocks import Measurement
from ..measurement.session import SideRecord
from .receipts import Place

if TYPE_CHECKING:
    # Loaded where a job has such attempts; see kinds.py.
    from ..cases.case import Findings
    from ..runs.run import RunRecord

Tables: TypeAlias = dict[str, list[dict[str, Cell]]]
"""Rows by file name."""
TENSORS_HEADER = (
    "workload",
    "comparison",
    "update",
    "worker",
    "quantity",
    "tensor",
    "numel",
    "reference",
    "value",
    "rel_l2",
    "floored",
    "largest_error",
    "sign_flips",
)
"""Of the one table that stays with its attempt: the protocol has the headers of those that are collected."""


def case_tables(findings: Findings, *, is_control: bool) -> Tables:
    """Return the rows of a completed case by file name.

    Args:
        findings: What it found.
        is_control: Whether it was a control, which alone says what faults would have read.
    """
    tables = {NUMERICAL: findings.numerical, TENSORS: findings.tensors}
    return {**tables, VACUITY: findings.vacuity} if is_control else tables


def run_tables(planned: PlannedAttempt, record: RunRecord) -> Tables:
    """Return the rows of a completed run by file name: of all its segments together.

    Args:
        planned: Its last segment.
        record: What came of that.
    """
    whole = record.whole
    if whole is None:
        raise ValueError(f"{planned.name} is not complete")
    (side,) = planned.order
    key: dict[str, Cell] = {
        "recipe": record.recipe,
        "seed": record.seed,
        "side": side,
        "attempt": planned.attempt,
    }
    run: dict[str, Cell] = {
        "final_loss": whole.curve[-1].validation_loss,
        "target_tokens": whole.tokens,
        "validation_tokens": record.validation_targets,
        "updates": whole.update,
        "segments": planned.segment,
        "train_s": whole.train_s,
        "elapsed_s": whole.elapsed_s,
        "checkpoint_sha256": record.checkpoints[-1].sha256,
    }
    points = [{**key, **asdict(point)} for point in whole.curve]
    return {CONVERGENCE: [{**key, **run}], CURVES: points}


def _measured(record: SideRecord, measurement: Measurement, updates: int) -> dict[str, Cell]:
    # Where the worker's own peak cannot be read, the kernel's account of the ended process stands for it.
    fallback = record.ranks_rss_bytes or (record.exit.max_rss_bytes if record.exit is not None else 0)
    return {
        "warmup_updates": measurement.warmup_updates,
        "updates": updates,
        "tokens": measurement.tokens,
        "startup_s": measurement.startup_s,
        "train_s": measurement.train_s,
        "elapsed_s": measurement.elapsed_s,
        "peak_allocated_bytes": measurement.peak_allocated_bytes or fallback,
        "peak_reserved_bytes": measurement.peak_reserved_bytes or fallback,
        "tokens_per_s": measurement.tokens_per_s,
    }


def _windows(key: dict[str, Cell], record: SideRecord, measurement: Measurement) -> list[dict[str, Cell]]:
    return [
        {
            **key,
            "side": record.side,
            "window": number,
            "updates": window.updates,
            "microbatches": window.microbatches,
            "skipped_updates": window.skipped,
            "tokens": window.tokens,
            "seconds": window.seconds,
        }
        for number, window in enumerate(measurement.windows, start=1)
    ]


def build_tables(
    allocation: Allocation, planned: PlannedAttempt, workload: Workload, place: Place, records: Sequence[SideRecord]
) -> Tables:
    """Return the rows of a completed measurement by file name.

    Args:
        allocation: The allocation.
        planned: The attempt.
        workload: Its workload.
        place: Where it ran.
        records: Its sides in the order in which they ran.
    """
    about: dict[str, Cell] = {"workload": workload.name, "repeat": planned.repeat, "attempt": planned.attempt}
    labels: dict[str, Cell] = {"category": workload.category, "production": workload.production}
    where: dict[str, Cell] = {
        "allocation": allocation.id,
        "node": str(place.host["node"]),
        "device": place.device.identity,
    }
    measured = [(record, record.measurement) for record in records if record.measurement is not None]
    if planned.kind == "solo":
        rows = [{**about, **labels, **where, **_measured(record, found, planned.updates)} for record, found in measured]
        return {BASELINE: rows}
    comparison = "control" if planned.kind == "control_pair" else "candidate"
    key: dict[str, Cell] = {**about, "comparison": comparison, "pair": planned.pair}
    pairs = [
        {
            **key,
            **labels,
            **where,
            "position": record.position,
            "side": record.side,
            **_measured(record, found, planned.updates),
        }
        for record, found in measured
    ]
    return {PAIRS: pairs, WINDOWS: [row for record, found in measured for row in _windows(key, record, found)]}
