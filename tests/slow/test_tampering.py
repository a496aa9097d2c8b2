"""The demo's campaign, tampered with in every way that there is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from campaign.paths import HomePaths
from tests.support.cli import expect_json

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def demo() -> HomePaths:
    """Return the campaign of ``make demo``, which is run if nobody has done so."""
    home = HomePaths(ROOT / "build" / "demo")
    if not list(home.evaluations.glob("*/verdict.json")):
        subprocess.run(["make", "demo"], cwd=ROOT, check=True)
    return home


def test_every_way_to_tamper_with_the_demo_is_caught_but_the_residual(demo: HomePaths) -> None:
    value = expect_json(0, "selftest-tamper", "--home", demo.root)
    trials = [trial for trial in value["trials"] if trial["tried"]]
    missed = [(trial["group"], trial["what"]) for trial in trials if not trial["caught"]]
    assert [group for group, _ in missed] == ["none", "residual", "residual"]
    assert value["surprises"] == 0
    assert sum(trial["caught"] for trial in trials) >= 80
    untried = {(trial["group"], trial["what"]) for trial in value["trials"] if not trial["tried"]}
    # The demo has no bundles; test_detached_results.py tries those.
    assert {what for group, what in untried if group != "bundles"} <= {"the scheduler's accounting"}
