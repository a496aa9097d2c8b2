from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from campaign.errors import EvidenceError
from campaign.paths import HomePaths
from campaign.planning.spreads import Spreads, read_spreads

FIRST, SECOND = "c0123456789ab", "cba9876543210"


def subject(kind: str, name: str, pairs: int, sd: float | None) -> dict[str, Any]:
    return {"kind": kind, "subject": name, "pairs": pairs, "sd_log_ratio_ddof1": sd, "median_ratio": 1.0}


def recipe(name: str, sd: float | None, seeds: int = 3, targets: int = 100) -> dict[str, Any]:
    return {"recipe": name, "targets": targets, "seeds": list(range(seeds)), "sd_difference_ddof1": sd, "look": 1}


def write(
    root: Path,
    candidate: str,
    subjects: list[dict[str, Any]] | None = None,
    recipes: list[dict[str, Any]] | None = None,
) -> None:
    path = HomePaths(root).evaluation(candidate).verdict
    path.parent.mkdir(parents=True)
    convergence = None if recipes is None else {"margin": 0.005, "recipes": recipes}
    observations = {"throughput": subjects or [], "ratios": [], "numerical": None, "convergence": convergence}
    path.write_text(json.dumps({"format": "verdict/1", "outcome": "pass", "observations": observations}))


def read(root: Path) -> Spreads:
    return read_spreads(HomePaths(root))


def test_each_recipe_and_category_has_its_own_spread(tmp_path: Path) -> None:
    write(
        tmp_path,
        FIRST,
        [
            subject("category", "sync", 9, 0.03),
            subject("category", "production", 9, 0.05),
            subject("production", "a", 3, 0.01),
            subject("production", "b", 3, 0.02),
            subject("control", "x", 3, 0.004),
        ],
        [recipe("small", 0.002), recipe("large", 0.004, seeds=5)],
    )
    found = read(tmp_path)
    small = found.of_recipe("small")
    assert small is not None
    assert (small.sd, small.degrees, small.origin) == (0.002, 2, "3 seeds")
    sync, production = found.of_category("sync"), found.of_production()
    assert sync is not None
    assert (sync.sd, sync.degrees, sync.origin) == (0.03, 8, "9 category pairs")
    assert production is not None
    assert production.sd == pytest.approx(math.sqrt((0.01**2 + 0.02**2) / 2))
    assert production.degrees == 4
    named = found.of_category("production")
    assert named is not None
    assert named.sd == 0.05
    assert found.notes == ()


def test_a_recipe_that_is_not_there_gets_the_pooled_spread_and_a_gate_that_of_the_controls(tmp_path: Path) -> None:
    sds = (0.005428, 0.007651, 0.002424, 0.000690, 0.001586)
    write(
        tmp_path,
        FIRST,
        [subject("control", "x", 3, 0.004), subject("control", "y", 3, 0.004)],
        [recipe(f"r{number}", sd) for number, sd in enumerate(sds)],
    )
    found = read(tmp_path)
    pooled, control = found.of_recipe("another"), found.of_category("another")
    assert pooled is not None
    assert pooled.sd == pytest.approx(0.0044, abs=1e-5)
    assert (pooled.degrees, pooled.origin) == (10, "all 5 recipes there, pooled")
    assert control is not None
    assert control.sd == pytest.approx(0.004)
    assert control.degrees == 4


def test_pairs_of_several_candidates_add_up_and_runs_and_controls_do_not(tmp_path: Path) -> None:
    for name, sd in ((FIRST, 0.003), (SECOND, 0.004)):
        subjects = [subject("category", "sync", 5, sd), subject("control", "x", 3, 0.01)]
        write(tmp_path, name, subjects, [recipe("small", sd)])
    found = read(tmp_path)
    small, sync, control = found.of_recipe("small"), found.of_category("sync"), found.of_category("none")
    assert small is not None
    assert small.sd == pytest.approx(math.sqrt((9 + 16) / 2) / 1000)
    assert small.degrees == 2
    assert small.origin == "3 seeds of 2 candidates each"
    assert sync is not None
    assert sync.degrees == 8
    assert control is not None
    assert (control.sd, control.degrees) == (0.01, 2)


@pytest.mark.parametrize("sd", [None, 0.0])
def test_a_recipe_without_a_usable_spread_is_named(tmp_path: Path, sd: float | None) -> None:
    write(tmp_path, FIRST, [subject("category", "sync", 5, 0.1)], [recipe("small", sd)])
    found = read(tmp_path)
    assert found.of_recipe("small") is None
    assert [note for note in found.notes if "recipe small has no SD" in note]


def test_one_pair_has_no_spread(tmp_path: Path) -> None:
    write(tmp_path, FIRST, [subject("control", "x", 1, None), subject("category", "s", 0, None)], [recipe("r", 0.1)])
    found = read(tmp_path)
    assert found.of_category("s") is None
    assert [note for note in found.notes if "no spread of ratios" in note]


def test_a_home_without_evidence_says_so(tmp_path: Path) -> None:
    assert "no candidate was evaluated there" in read(tmp_path).notes[0]
    write(tmp_path, FIRST, [subject("category", "sync", 5, 0.1)])
    assert [note for note in read(tmp_path).notes if "no verdict there has convergence observations" in note]


@pytest.mark.parametrize(
    "text",
    ["{}", "no", '{"format": "verdict/1", "observations": {"throughput": [{"kind": "x"}]}}', '{"format": "verdict/2"}'],
)
def test_what_is_no_verdict_is_refused_by_name(tmp_path: Path, text: str) -> None:
    write(tmp_path, FIRST)
    path = HomePaths(tmp_path).evaluation(FIRST).verdict
    path.write_text(text)
    with pytest.raises(EvidenceError) as caught:
        read(tmp_path)
    assert caught.value.where.startswith(str(path))
