"""What the numerical family sees of a fault that trainings rightly let pass: a learning rate 3% too high."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import adapter
from tests.support.tinylm_faults import CALM, COMMON

from .comparing import RULES, caught_by, compare_case, compare_isolated, worst
from .conftest import LoadVariants

CONFIGURATIONS = {"of_the_faults": COMMON, "of_the_recipe": CALM.config}


@pytest.fixture
def mistrained(load_variants: LoadVariants) -> Any:
    """The variants, for the time of a test."""
    return load_variants("mistrained")


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
