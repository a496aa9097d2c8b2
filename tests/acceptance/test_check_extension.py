"""One extension by rule: due where the first look is inconclusive, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acceptance import check_extension
from acceptance.formats import Ending
from tests.support.evidence import CANDIDATE, Campaign
from tests.support.runs import (
    ADDED,
    CLOSE,
    EXTENSION,
    RECIPE,
    SEEDS,
    WIDE,
    add_run,
    finding_of,
    gates_of,
    make_runs,
    observed,
    paired,
    run_rows,
    slot_of,
)

SIX = [*WIDE, "0.001", "0.002", "0.003"]
WORSE = ["0.01", "0.0101", "0.0102"]


def extended(folder: Path, *differences: str, **rules: Any) -> Campaign:
    losses = {RECIPE: paired("3.5", differences), "other": paired("3.6", CLOSE)}
    return make_runs(folder, losses, **({"extension": EXTENSION} | rules))


def test_a_first_look_that_decides_needs_no_further_seed(tmp_path: Path) -> None:
    for differences, finding, code in ((CLOSE, "met", 0), (WORSE, "missed", 3)):
        campaign = extended(tmp_path, *differences)
        gate = gates_of(campaign)[RECIPE]
        assert (gate["finding"], gate["n"], campaign.evaluate().exit_code) == (finding, 3, code)
        assert gate["reason"].startswith("first look")
        assert gate["statistic"] == "upper_one_sided"
        seen = observed(campaign)
        assert (seen["look"], seen["extension"], seen["seeds"]) == (1, "not_due", list(SEEDS))
        assert seen["first_look"] is None


def test_the_first_look_uses_the_wider_quantile_of_two_looks(tmp_path: Path) -> None:
    # s / sqrt(3) is 0.001 / sqrt(3): 2.920 of it is below the margin, 4.08607 of it is not.
    differences = ["0.0022", "0.0032", "0.0042"]
    assert finding_of(extended(tmp_path, *differences, extension=None)) == "met"
    campaign = extended(tmp_path, *differences)
    assert finding_of(campaign) == "missing"
    assert observed(campaign)["extension"] == "due"


def test_an_inconclusive_first_look_asks_for_every_run_of_the_extension(tmp_path: Path) -> None:
    campaign = extended(tmp_path, *WIDE)
    gates = gates_of(campaign)
    assert (gates[RECIPE]["finding"], gates["other"]["finding"]) == ("missing", "met")
    assert "the first look is inconclusive" in gates[RECIPE]["reason"]
    for file in ("attempts.csv", "convergence.csv"):
        assert (gates[f"evidence/{file}"]["finding"], gates[f"evidence/{file}"]["value"]) == ("missing", 6)
    seen = observed(campaign)
    assert (seen["look"], seen["extension"], seen["seeds"]) == (2, "due", [*SEEDS, *ADDED])
    assert (seen["upper"], len(seen["differences"])) == (None, 3)
    assert seen["first_look"]["finding"] == "inconclusive"
    assert seen["first_look"]["upper"] > 0.005 > seen["first_look"]["lower"]


def test_the_second_look_judges_all_seeds_with_its_own_quantile(tmp_path: Path) -> None:
    campaign = extended(tmp_path, *SIX)
    gate = gates_of(campaign)[RECIPE]
    mean, std = 0.0035, (sum((value - 0.0035) ** 2 for value in map(float, SIX)) / 5) ** 0.5
    half = 2.49239 * std / 6**0.5
    assert (gate["upper"], gate["lower"]) == pytest.approx((mean + half, mean - half), abs=1e-12)
    assert (gate["n"], gate["finding"]) == (6, "inconclusive")
    assert gate["reason"].startswith("second look: the margin lies between")
    assert gate["statistic"] == "upper_one_sided"
    assert campaign.evaluate().exit_code == 4


@pytest.mark.parametrize(
    ("added", "finding", "code"),
    [(["0.0035", "0.0036", "0.0034"], "met", 0), (["0.0075", "0.0076", "0.0074"], "missed", 3)],
)
def test_the_second_look_decides(tmp_path: Path, added: list[str], finding: str, code: int) -> None:
    base = ["0.0036", "0.0041", "0.0046"] if finding == "met" else ["0.0055", "0.0065", "0.0075"]
    campaign = extended(tmp_path, *base, *added)
    seen = observed(campaign)
    assert seen["first_look"]["finding"] == "inconclusive"
    assert (finding_of(campaign), campaign.evaluate().exit_code) == (finding, code)
    assert (seen["look"], len(seen["differences"]), seen["quantile"]) == (2, 6, 2.49239)


@pytest.mark.parametrize("differences", [CLOSE, WORSE])
def test_an_extension_that_was_not_needed_is_invalid_whatever_it_shows(tmp_path: Path, differences: list[str]) -> None:
    campaign = extended(tmp_path, *differences, "0.001", "0.002", "0.003")
    gates = gates_of(campaign)
    assert (gates[RECIPE]["finding"], gates["other"]["finding"]) == ("invalid", "met")
    assert "which the first look does not ask for" in gates["evidence/attempts.csv"]["reason"]
    assert gates["evidence/attempts.csv"]["value"] == 3
    assert campaign.evaluate().exit_code == 4


@pytest.mark.parametrize("ending", [Ending.COMPLETED, Ending.CRASH, Ending.CANCELLED])
def test_a_single_try_at_an_extension_that_was_not_needed_is_invalid(tmp_path: Path, ending: Ending) -> None:
    campaign = extended(tmp_path, *CLOSE)
    add_run(campaign, slot_of(campaign, seed=49), "3.4", ending=ending)
    assert finding_of(campaign) == "invalid"


def test_a_void_try_at_an_extension_that_is_no_longer_needed_is_none(tmp_path: Path) -> None:
    campaign = extended(tmp_path, *CLOSE)
    add_run(campaign, slot_of(campaign, seed=49), "3.4", ending=Ending.VOID)
    assert finding_of(campaign) == "met"


def test_the_baselines_runs_of_an_extension_may_be_there_before_anybody_needs_them(tmp_path: Path) -> None:
    campaign = extended(tmp_path, *CLOSE)
    for seed in ADDED:
        add_run(campaign, slot_of(campaign, seed=seed, side="baseline"), "3.4")
    assert finding_of(campaign) == "met"
    assert campaign.evaluate().exit_code == 0
    run_rows(campaign, seed=48, side="baseline")[0]["target_tokens"] = "1"
    assert gates_of(campaign)["evidence/convergence.csv"]["finding"] == "invalid"


@pytest.mark.parametrize("seed", ADDED)
@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_no_run_of_a_needed_extension_can_be_left_out(tmp_path: Path, seed: int, side: str) -> None:
    campaign = extended(tmp_path, *SIX)
    owner = "baseline" if side == "baseline" else CANDIDATE
    rows = campaign.tables["attempts.csv"]
    rows[:] = [row for row in rows if row["slot"] != f"{owner}/run/{RECIPE}/s{seed}"]
    assert finding_of(campaign) == "invalid"  # its rows stand there without an attempt
    for file in ("convergence.csv", "curves.csv"):
        own = run_rows(campaign, file, seed=seed, side=side)
        campaign.tables[file] = [row for row in campaign.tables[file] if row not in own]
    assert finding_of(campaign) == "missing"


@pytest.mark.parametrize("spoil", ["curve", "result"])
def test_a_run_of_a_needed_extension_is_checked_as_any_other(tmp_path: Path, spoil: str) -> None:
    campaign = extended(tmp_path, *SIX)
    if spoil == "curve":
        run_rows(campaign, "curves.csv", seed=49)[-1]["validation_loss"] = "1"
    else:
        run_rows(campaign, seed=49)[0]["validation_tokens"] = "1"
    assert finding_of(campaign) == "invalid"


def test_a_first_look_that_cannot_be_taken_asks_for_nothing(tmp_path: Path) -> None:
    campaign = extended(tmp_path, *WIDE)
    run_rows(campaign, seed=46)[0]["target_tokens"] = "1"
    seen = observed(campaign)
    assert (seen["look"], seen["extension"]) == (1, "unknown")
    assert finding_of(campaign) == "invalid"
    assert gates_of(campaign)["evidence/attempts.csv"]["finding"] == "met"


def test_a_first_look_without_variance_is_not_extended(tmp_path: Path) -> None:
    assert finding_of(extended(tmp_path, "0", "0", "0")) == "met"
    assert finding_of(extended(tmp_path, "0.006", "0.006", "0.006")) == "invalid"
    assert observed(extended(tmp_path, "0.006", "0.006", "0.006"))["extension"] == "not_due"


def test_each_recipe_is_extended_by_itself(tmp_path: Path) -> None:
    losses = {"a": paired("3.5", CLOSE), "b": paired("3.6", SIX), "c": paired("3.7", WORSE)}
    campaign = make_runs(tmp_path, losses, extension=EXTENSION)
    gates = gates_of(campaign)
    assert [(gates[name]["finding"], gates[name]["n"]) for name in "abc"] == [
        ("met", 3), ("inconclusive", 6), ("missed", 3),
    ]  # fmt: skip


def test_an_exception_while_looking_blocks_and_extends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = extended(tmp_path, *CLOSE)

    def fail(*_arguments: object, **_named: object) -> None:
        raise ArithmeticError("unforeseen")

    monkeypatch.setattr(check_extension, "look_at", fail)
    gates = gates_of(campaign)
    assert gates[RECIPE]["finding"] == "invalid"
    assert "ArithmeticError: unforeseen" in gates["evidence/convergence.csv"]["reason"]
