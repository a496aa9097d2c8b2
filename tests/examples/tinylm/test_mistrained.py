"""What the numerical family sees of a fault that trainings rightly let pass: a learning rate 3% too high."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import adapter
from tests.support.tinylm_faults import CALM, COMMON, FOLDER
from tinylm import build

from .comparing import RULES, caught_by, compare_case, compare_isolated, worst

CONFIGURATIONS = {"of_the_faults": COMMON, "of_the_recipe": CALM.config}


@pytest.fixture
def mistrained(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The variants, for the time of a test."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(build, "BACKENDS", dict(build.BACKENDS))
    monkeypatch.delitem(sys.modules, "mistrained", raising=False)
    module = importlib.import_module("mistrained")
    yield module
    del sys.modules["mistrained"]


@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_rate_3_percent_too_high_passes_every_matched_update_and_misses_the_optimizer_alone(
    config: dict[str, Any], mistrained: Any, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYLM_DATA", str(script))
    sides = [make(config, seed=1, device="cpu") for make in (adapter.native, mistrained.higher_rate)]
    matched = compare_case(*sides)
    assert caught_by(matched) == set()
    assert 0.029 < worst(matched)["updates"] < float(RULES.updates_threshold) / 3
    isolated = compare_isolated(*sides)
    assert caught_by(isolated) == {"optimizer"}
    assert worst(isolated)["optimizer"] > 100
