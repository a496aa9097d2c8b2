"""Trainers that end elsewhere: what each fault costs where trainings end, in units of the default margin."""

from __future__ import annotations

import importlib
import math
import statistics
import sys
from functools import cache
from typing import Any

import pytest

import adapter
from campaign.documents import ConvergenceRules
from tests.support.tinylm import CORPUS, prepare_corpus
from tests.support.tinylm_faults import (
    CALM,
    FOLDER,
    LIVELY,
    MISTRAININGS,
    TRAINING_SEEDS,
    VALIDATION_TARGETS,
    Mistraining,
    Training,
)
from tinylm import build

MARGIN = float(ConvergenceRules().margin)
QUANTILE = 2.920
TRAININGS = {"calm": CALM, "lively": LIVELY}

pytestmark = pytest.mark.slow


@pytest.fixture
def mistrained(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The variants, for the time of a test."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(build, "BACKENDS", dict(build.BACKENDS))
    monkeypatch.delitem(sys.modules, "mistrained", raising=False)
    prepare_corpus()
    monkeypatch.setenv("TINYLM_DATA", str(CORPUS))
    yield importlib.import_module("mistrained")
    del sys.modules["mistrained"]


@cache
def _plain(name: str, seed: int) -> float:
    return _final(adapter.native, TRAININGS[name], seed)


def _final(make: Any, training: Training, seed: int) -> float:
    session = make(training.config, seed=seed, device="cpu")
    assert session.updates(training.updates)[3] == training.targets
    nats, targets = session.evaluate()
    assert targets == VALIDATION_TARGETS
    return float(nats / targets)


def _bounds(differences: list[float]) -> tuple[float, float]:
    mean, half = statistics.mean(differences), QUANTILE * statistics.stdev(differences) / math.sqrt(len(differences))
    return mean - half, mean + half


def _differences(make: Any, training: Training) -> list[float]:
    name = next(name for name, known in TRAININGS.items() if known is training)
    return [_final(make, training, seed) - _plain(name, seed) for seed in TRAINING_SEEDS]


@pytest.mark.usefixtures("mistrained")
def test_the_right_backend_ends_where_the_plain_one_does() -> None:
    assert _bounds(_differences(adapter.fast, CALM))[1] < MARGIN / 5
    assert all(_plain("calm", seed) < 2.6 for seed in TRAINING_SEEDS)


@pytest.mark.parametrize("fault", MISTRAININGS, ids=lambda fault: fault.name)
def test_a_fault_costs_what_is_said(fault: Mistraining, mistrained: Any) -> None:
    differences = _differences(getattr(mistrained, fault.name), fault.training)
    lower, upper = _bounds(differences)
    if fault.least_nats is None:
        assert upper < MARGIN
    else:
        assert lower > MARGIN
        assert statistics.mean(differences) > max(fault.least_nats, 3 * MARGIN)
