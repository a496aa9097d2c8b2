"""What the demo's trainings show: exact budgets, and curves that fall below what letter frequencies alone give."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import adapter
from campaign.config.load import load_config
from campaign.documents import Recipe
from campaign.planning.matrix import expand
from tests.support.tinylm import CORPUS, prepare_corpus

pytestmark = pytest.mark.slow
DEMO = Path(__file__).parents[3] / "examples" / "demo" / "campaign.toml"
RECIPES = expand(load_config(DEMO)).recipes
LETTER_FREQUENCIES = 3.30
"""Nats per byte, as the README says."""


@pytest.mark.parametrize("backend", ["native", "fast"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_demo_training_keeps_to_its_budget_and_its_curve_falls(
    recipe: Recipe, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_corpus()
    monkeypatch.setenv("TINYLM_DATA", str(CORPUS))
    session = getattr(adapter, backend)(recipe.config, seed=45, device="cpu")
    losses, made, tokens = [LETTER_FREQUENCIES], 0, 0
    for point in recipe.points:
        tokens += session.updates(point - made)[3]
        made = point
        nats, targets = session.evaluate()
        assert targets == recipe.validation_targets
        losses.append(nats / targets)
    assert (made, tokens) == (recipe.updates, recipe.targets)
    assert len(losses) > 2
    assert all(before > after for before, after in itertools.pairwise(losses))
