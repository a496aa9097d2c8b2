"""What the harness writes of a case is what this program reads: the two share no code."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import GLOBAL_QUANTITIES, NUMERICAL, VACUITY
from jobs.cases import numerics
from jobs.common import tables
from tests.support.cases import make_cases
from tests.support.evidence import Campaign

WORKERS = (0, 1)
SHAPES = (("embedding", 64, 1.0), ("gain", 1, 1e-9), ("empty", 0, 1.0), ("head", 30, 1e-3))


def total(worker: int, name: str, numel: int, scale: float, chooser: random.Random) -> numerics.Totals:
    reference = [chooser.gauss(0, scale) for _ in range(numel)]
    error = [value * chooser.gauss(0, 0.001) for value in reference]
    rolled = [*reference[1:], *reference[:1]]
    return numerics.Totals(
        worker=worker,
        tensor=name,
        numel=numel,
        reference_sq=math.fsum(value * value for value in reference),
        difference_sq=math.fsum(value * value for value in error),
        largest_error=max(map(abs, error), default=0.0),
        nonfinite=0,
        sign_flips=None,
        roll_sq=math.fsum((one - other) ** 2 for one, other in zip(reference, rolled, strict=True)),
    )


def errors(chooser: random.Random) -> dict[str, list[numerics.WorkerError]]:
    return {
        quantity: [
            numerics.measure_worker(worker, [total(worker, *shape, chooser) for shape in SHAPES], kappa=0.1)
            for worker in WORKERS
        ]
        for quantity in ("parameters", "gradients", "updates", "exp_avg", "exp_avg_sq")
    }


def not_finite(errors: dict[str, list[numerics.WorkerError]], *, reference: bool) -> None:
    """Put a tensor that is not finite on the second side, or on both, into the updates of the first worker."""
    (old, *rest) = [error.totals for error in errors["updates"][0].tensors]
    spoilt = numerics.Totals(
        worker=0, tensor=old.tensor, numel=old.numel, reference_sq=None if reference else old.reference_sq,
        difference_sq=None, largest_error=None, nonfinite=3, sign_flips=None, roll_sq=old.roll_sq,
    )  # fmt: skip
    errors["updates"][0] = numerics.measure_worker(0, [spoilt, *rest], kappa=0.1)


def zero(errors: dict[str, list[numerics.WorkerError]]) -> None:
    """Let the first worker's gradients be zero on the baseline alone."""
    spoilt = [
        numerics.Totals(
            worker=0, tensor=name, numel=numel, reference_sq=0.0, difference_sq=float(numel), largest_error=1.0,
            nonfinite=0, sign_flips=None, roll_sq=0.0,
        )
        for name, numel, _ in SHAPES
    ]  # fmt: skip
    errors["gradients"][0] = numerics.measure_worker(0, spoilt, kappa=0.1)


def ratios(worker: int, worst: float | None) -> list[numerics.Ratios]:
    spoilt = numerics.Ratios(worker=worker, tensor="exp_avg/b", worst=worst, nonfinite=int(worst is None))
    return [numerics.Ratios(worker=worker, tensor="exp_avg/a", worst=0.5, nonfinite=0), spoilt]


def write(campaign: Campaign, comparison: str, spoil: Sequence[Any] = (), *, isolated: Any = 0.25) -> list[Any]:
    """Return the rows of one comparison, and write the readings of a control."""
    chooser = random.Random(comparison)  # noqa: S311 - the same values in every run
    about = numerics.About(workload="w", comparison=comparison, attempt=1, executor="independent", serialized=False)
    rows, readings = [], []
    for update in range(1, 6):
        found = errors(chooser)
        for change in spoil if update == 3 else ():
            change(found)
        rows += [numerics.loss_row(about, update, worker, 3.1, 3.1001) for worker in WORKERS]
        rows += [numerics.error_row(about, update, name, error) for name, own in found.items() for error in own]
        readings += numerics.vacuity_rows(about, update, found)
        if update == 2:
            readings += numerics.previous_batch_rows(about, update, [(3.1, 3.2)] * 2, found)
    offered = isolated != "not offered"
    for worker in WORKERS:
        for update, quantity in [(5, "optimizer"), *((number, "consensus") for number in range(1, 6))]:
            own = ratios(worker, isolated) if offered else []
            rows.append(numerics.isolated_row(about, update, worker, quantity, own))
    if comparison == "control":
        (campaign.evidence_path / VACUITY.file).write_bytes(tables.table_bytes(VACUITY.header, readings))
    return rows


def findings(campaign: Campaign, *rows: Any) -> dict[str, str]:
    data = tables.table_bytes(NUMERICAL.header, list(itertools.chain(*rows)))
    (campaign.evidence_path / NUMERICAL.file).write_bytes(data)
    return {gate["id"].removeprefix("numerical/w/"): gate["finding"] for gate in campaign.verdict()["gates"]}


@pytest.mark.parametrize(
    ("spoil", "isolated", "expected"),
    [
        ((), 0.25, {}),
        ((), "not offered", {"optimizer": "not_evaluated", "consensus": "not_evaluated"}),
        ((), None, {"optimizer": "missed", "consensus": "missed"}),
        ((lambda found: not_finite(found, reference=False),), 0.25, {"updates": "missed"}),
        ((lambda found: not_finite(found, reference=True),), 0.25, {"updates": "invalid"}),
        ((zero,), 0.25, {"gradients": "missed"}),
    ],
)
def test_the_harness_s_rows_are_complete_and_consistent(
    tmp_path: Path, spoil: tuple[Any, ...], isolated: Any, expected: dict[str, str]
) -> None:
    campaign = make_cases(tmp_path)
    assert set(errors(random.Random(1))) == set(GLOBAL_QUANTITIES)  # noqa: S311 - names alone
    candidate, control = write(campaign, "candidate", spoil, isolated=isolated), write(campaign, "control")
    found = findings(campaign, candidate, control)
    assert {name: finding for name, finding in found.items() if finding != "met"} == expected
