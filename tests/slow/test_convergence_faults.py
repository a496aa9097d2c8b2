"""Candidates of tinylm whose trainings end elsewhere, through whole campaigns of real runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import expect, expect_json, run_campaign
from tests.support.tinylm import copy_source, copy_variants, head, inline, prepare_corpus
from tests.support.tinylm_faults import (
    CALM,
    HARMLESS,
    LIVELY,
    MISTRAININGS,
    SLOW,
    VALIDATION_TARGETS,
    Mistraining,
    Training,
)

pytestmark = pytest.mark.slow
RECIPES = {"calm": CALM, "slow": SLOW, "lively": LIVELY}
TABLES = """
[convergence]
assumed_sd = "0.0018"
assumed_sd_source = "native against fast backend, three seeds of each recipe: 0.0016 at most"

[[workload]]
name = "short"
production = true
config = { size = "micro", batch = 2, context = 32 }
"""
RECIPE = """
[[recipe]]
name = "{name}"
config = {config}
targets = {targets}
validation_targets = {validation_targets}
updates = {updates}
evaluate_every = {updates}
"""


def write_config(folder: Path, name: str, source: Path, adapter: str) -> Path:
    """Write the campaign with one candidate; the baseline's tables are the same in all."""
    baseline = (folder / "source", "adapter:native")
    parts = [head("mistrained", baseline=baseline, candidate=(source, adapter)), TABLES]
    for recipe, training in RECIPES.items():
        parts.append(
            RECIPE.format(
                name=recipe,
                config=inline(training.config),
                targets=training.targets,
                updates=training.updates,
                validation_targets=VALIDATION_TARGETS,
            )
        )
    path = folder / f"{name}.toml"
    path.write_text("".join(parts))
    return path


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a home whose baseline has been trained."""
    prepare_corpus()
    folder = tmp_path_factory.mktemp("mistrained")
    copy_source(folder / "source")
    config = write_config(folder, "right", folder / "source", "adapter:fast")
    expect(0, "freeze", config, "--home", folder / "home")
    submit(folder, "baseline/run/*")
    return folder


def submit(folder: Path, only: str) -> None:
    done = run_campaign("submit", "--home", folder / "home", "--cluster", "local", "--wait", "--yes", "--only", only)
    assert done.returncode == 0, done.stderr


def freeze(folder: Path, name: str, source: Path, adapter: str) -> str:
    """Freeze a candidate; return its id."""
    config = write_config(folder, name, source, adapter)
    return str(expect_json(0, "freeze", "--candidate", "--config", config, "--home", folder / "home")["id"])


def freeze_variant(folder: Path, name: str) -> str:
    """Freeze a variant of mistrained.py; return its id."""
    adapter = f"mistrained:{name}"
    copy_variants(folder / name, adapter)
    return freeze(folder, name, folder / name, adapter)


def judge(folder: Path, candidate: str, *trainings: Training) -> list[dict[str, Any]]:
    """Train a candidate by some of the recipes; return the gates of these."""
    recipes = [recipe for recipe, one in RECIPES.items() if one in trainings]
    for recipe in recipes:
        submit(folder, f"{candidate}/run/{recipe}/*")
    expect(0, "report", "--home", folder / "home", "--candidate", candidate, "--exit-zero")
    verdict = json.loads((folder / "home" / "evaluations" / candidate / "verdict.json").read_bytes())
    gates = {gate["id"]: dict(gate) for gate in verdict["gates"]}
    return [gates[f"convergence/{recipe}"] for recipe in recipes]


def test_the_right_candidate_is_shown_to_be_no_worse(campaign: Path) -> None:
    (gate,) = judge(campaign, freeze(campaign, "right", campaign / "source", "adapter:fast"), CALM)
    assert (gate["outcome"], gate["finding"]) == ("pass", "met")
    assert gate["upper"] < float(gate["threshold"]) / 5


@pytest.mark.parametrize("fault", MISTRAININGS, ids=lambda fault: fault.name)
def test_a_fault_that_costs_enough_is_found(fault: Mistraining, campaign: Path) -> None:
    (gate,) = judge(campaign, freeze_variant(campaign, fault.name), fault.training)
    margin = float(gate["threshold"])
    assert (gate["outcome"], gate["finding"]) == ("not_qualified", "missed")
    assert gate["lower"] >= margin
    assert (gate["lower"] + gate["upper"]) / 2 > max(fault.least_nats, 3 * margin)


def test_a_rate_3_percent_too_high_passes_rightly_and_is_missed_nowhere(campaign: Path) -> None:
    calm, slow = judge(campaign, freeze_variant(campaign, HARMLESS), CALM, SLOW)
    assert (slow["outcome"], slow["finding"]) == ("pass", "met")
    assert slow["upper"] < 0
    for gate in (calm, slow):
        assert gate["finding"] in {"met", "inconclusive"}
        assert gate["lower"] < float(gate["threshold"])
        assert (gate["lower"] + gate["upper"]) / 2 < float(gate["threshold"])
