"""What ``campaign plan`` says of trainings: how long they take, and what they can find out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign.cli.main import main
from campaign.config.load import parse_config
from campaign.documents import Calibration
from campaign.paths import HomePaths
from campaign.planning.calibration import Experience, about_seconds
from campaign.planning.convergence_power import upper_sd
from campaign.planning.plan import TEXT_BYTES, Assumptions, Plan, make_plan
from campaign.planning.power import percent
from campaign.planning.protocol import build_protocol

SIDES = """\
name = "trained"
[baseline]
source = "src"
adapter = "adapter:native"
python = "./python"
[[category]]
name = "all"
[[workload]]
name = "a"
category = "all"
production = true
config = { x = 1 }
[throughput]
solo = false
"""
TRAINED = """\
[[recipe]]
name = "small"
config = { x = 9 }
targets = 8000
validation_targets = 50
updates = 1000
evaluate_every = 250
[[recipe]]
name = "large"
config = { x = 10 }
targets = 8000
validation_targets = 50
updates = 1000
[convergence]
checkpoint_s = 100
max_segments = 4
"""
PILOT = Calibration(
    updates_per_s=2.0,
    tokens_per_update=8.0,
    startup_s=10.0,
    updates=10,
    evaluate_s=5.0,
    checkpoint_bytes=1000,
    save_s=3.0,
)


def plan(extra: str = "", known: Experience | None = None, **assumed: Any) -> Plan:
    config = parse_config((SIDES + TRAINED + extra).encode(), path=Path("/c/campaign.toml"))
    return make_plan(config, Assumptions(**assumed), known=known)


def known(**changes: Any) -> Experience:
    pilot = PILOT.replace(**changes)
    return Experience(calibrations={(side, r): pilot for side in ("baseline", "candidate") for r in ("small", "large")})


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "campaign.toml"
    path.write_text(SIDES + TRAINED)
    return path


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A home whose verdict shows spreads of one recipe and of ratios."""
    home = HomePaths(tmp_path / "earlier")
    verdict = home.evaluation("c0123456789ab").verdict
    verdict.parent.mkdir(parents=True)
    home.manifest.write_text("{}")
    recipe = {"recipe": "small", "targets": 8000, "seeds": [1, 2, 3], "sd_difference_ddof1": 0.002424}
    subjects = [
        {"kind": "category", "subject": "all", "pairs": 5, "sd_log_ratio_ddof1": 0.02},
        {"kind": "control", "subject": "a", "pairs": 3, "sd_log_ratio_ddof1": 0.005},
    ]
    observations = {"throughput": subjects, "convergence": {"recipes": [recipe]}}
    verdict.write_text(json.dumps({"format": "verdict/1", "observations": observations}))
    return home.root


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# --- time and disk ----------------------------------------------------------------------------------------------------


def test_runs_are_bounded_by_all_their_segments_on_slurm_and_by_nothing_here() -> None:
    here = {(row.side, row.phase): row.most_device_hours for row in plan().allocations}
    assert here["candidate", "convergence"] is None
    slurm = {(row.side, row.phase): row.most_device_hours for row in plan("[slurm]\nminutes = 30\n").allocations}
    assert slurm["candidate", "convergence"] == pytest.approx(6 * 4 * 0.5)


def test_the_pilots_of_recipes_say_how_long_runs_take_and_what_they_keep() -> None:
    found = plan("[slurm]\nminutes = 5\n", known())
    # 210 s until the signal: see the outlook's own tests.
    rows = {(row.side, row.recipe): row for row in found.runs}
    small = rows["baseline", "small"]
    assert (small.num_segments, small.max_segments, small.num_checkpoints) == (3, 4, 11)
    seconds = [(row.about_hours or 0) * 3600 for row in found.runs if row.side == "candidate"]
    hours = {(row.side, row.phase): row.about_device_hours for row in found.allocations}
    assert hours["candidate", "convergence"] == pytest.approx(3 * sum(seconds) / 3600)
    disk = {(row.side, row.kind): row.about_bytes for row in found.slots}
    kept = sum(3 * TEXT_BYTES + 1000 * (row.num_checkpoints or 0) for row in found.runs if row.side == "baseline")
    assert disk["baseline", "run"] == 3 * kept


def test_a_pilot_of_a_recipe_evaluates_saves_and_starts_again() -> None:
    config = parse_config((SIDES + TRAINED).encode(), path=Path("/c/campaign.toml"))
    protocol = build_protocol(config)
    slot = next(one for one in protocol.slots if one.slot == "baseline/pilot/small")
    took = about_seconds(protocol.throughput, None, slot, known())
    assert took == pytest.approx(10 + 1 + 5 + 10 + 2 * 3)


def test_runs_without_pilots_are_open() -> None:
    found = plan()
    assert found.runs == ()
    assert {row.about_bytes for row in found.slots if row.kind == "run"} == {None}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"updates_per_s": 1.0}, "6, and at most 4 are allowed"),
        ({"save_s": 1000.0}, "too short to get on"),
        ({}, "11           1000 B  10.74 KiB"),
    ],
)
def test_segments_that_will_not_do_are_said(
    written: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written.write_text(written.read_text() + "[slurm]\nminutes = 5\n")
    home = HomePaths(written.parent / "home")
    home.root.mkdir()
    home.manifest.write_text("{}")
    monkeypatch.setattr("campaign.cli.plan.read_experience", lambda *_: known(**changes))
    assert main(["plan", str(written), "--home", str(home.root)]) == 0
    assert said in capsys.readouterr().out


def test_the_runs_of_an_extension_are_told_apart(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written.write_text(written.read_text() + "extension = { seeds = [48, 49] }\n")
    assert main(["plan", str(written)]) == 0
    assert "8 of the runs above are an extension's, made only where it is due." in capsys.readouterr().out


# --- power ------------------------------------------------------------------------------------------------------------


def test_an_assumed_sd_gives_every_recipe_a_row(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = as_json(capsys, str(written), "--convergence-sd", "0.002424", "--convergence-sd", "0.1")["convergence"]
    assert [(row["recipe"], row["sd"], row["basis"]) for row in value["rows"]] == [
        ("small", 0.002424, "assumed"),
        ("large", 0.002424, "assumed"),
        ("small", 0.1, "assumed"),
        ("large", 0.1, "assumed"),
    ]
    first, last = value["rows"][0], value["rows"][-1]
    assert first["chance"] == pytest.approx(0.7322, abs=2e-4)
    assert (first["seeds_80"], first["seeds_90"]) == (4, 4)
    assert first["smallest_missed"] == pytest.approx(0.01057, abs=1e-5)
    assert (last["seeds_80"], last["seeds_90"]) == (None, None)
    assert [total["chance"] for total in value["totals"]] == pytest.approx([first["chance"] ** 2, last["chance"] ** 2])
    assert value["largest_sd_80"] == pytest.approx(0.002176, abs=1e-6)
    assert main(["plan", str(written), "--convergence-sd", "0.002424"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "small 0.002424 assumed (--convergence-sd) 73.2% 4 4 -0.0005686 +0.01057" in lines
    assert "All 2 recipes pass with 53.6% at SD 0.002424, if independent of one another." in lines
    assert "A recipe passes with 80% up to an SD of 0.002176, with 90% up to 0.001801." in lines


def test_an_extension_is_part_of_the_chance(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written.write_text(written.read_text() + "extension = { seeds = [48, 49, 50] }\n")
    value = as_json(capsys, str(written), "--convergence-sd", "0.0024")["convergence"]
    assert value["num_seeds"] == [3, 6]
    assert value["quantiles"] == [4.08607, 2.49239]
    assert value["rows"][0]["chance"] == pytest.approx(0.9849, abs=1e-3)
    assert main(["plan", str(written)]) == 0
    assert (
        "seeds: 3 (quantile 4.08607) and, where that is inconclusive, 6 (quantile 2.49239)" in capsys.readouterr().out
    )


def test_the_configurations_own_assumption_is_shown(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written.write_text(written.read_text() + 'assumed_sd = "0.0010"\nassumed_sd_source = "a guess"\n')
    rows = as_json(capsys, str(written))["convergence"]["rows"]
    assert {(row["sd"], row["origin"]) for row in rows} == {(0.001, "[convergence] assumed_sd")}


def test_without_an_sd_the_plan_says_how_to_give_one(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(written)]) == 0
    text = capsys.readouterr().out
    assert "No SD is known: --convergence-sd X, --spread-from HOME, or [convergence] assumed_sd." in text
    assert "A recipe passes with 80% up to an SD of 0.002176" in text


def test_an_earlier_home_gives_each_gate_its_spread_and_the_bound_on_it(
    written: Path, earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = as_json(capsys, str(written), "--spread-from", str(earlier))
    own, bound = 0.002424, upper_sd(0.002424, 2)
    assert [(row["recipe"], row["basis"], row["sd"]) for row in value["convergence"]["rows"]] == [
        ("small", "found", own),
        ("large", "found", own),
        ("small", "upper_80", pytest.approx(bound)),
        ("large", "upper_80", pytest.approx(bound)),
    ]
    assert [row["seeds_80"] for row in value["convergence"]["rows"]] == [4, 4, 9, 9]
    assert value["convergence"]["rows"][1]["origin"] == "all 1 recipes there, pooled"
    assert any("no SD of large there; the one of all its recipes is taken" in note for note in value["notes"])
    assert [(row["gate"], row["basis"], row["origin"]) for row in value["power"]] == [
        ("all", "found", "5 category pairs"),
        ("all", "upper_80", "5 category pairs"),
        ("production", "found", "3 control pairs"),
        ("production", "upper_80", "3 control pairs"),
    ]
    assert value["power"][1]["sd_log_ratio"] == pytest.approx(upper_sd(0.02, 4))
    assert value["power"][1]["ratio_for_90"] > value["power"][0]["ratio_for_90"]
    assert main(["plan", str(written), "--spread-from", str(earlier)]) == 0
    text = capsys.readouterr().out
    assert "80% upper bound (3 seeds)" in text
    assert "All 2 recipes pass with 53.6% by the SDs found, if independent of one another." in text


def test_given_spreads_stand_beside_those_found(
    written: Path, earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--spread-from", str(earlier), "--sd", "0.02", "--convergence-sd", "0.001")
    value = as_json(capsys, str(written), *arguments)
    assert [row["basis"] for row in value["power"]] == ["assumed", "assumed", "found", "upper_80", "found", "upper_80"]
    assert [row["basis"] for row in value["convergence"]["rows"]][::2] == ["assumed", "found", "upper_80"]


def test_a_home_without_evidence_is_said_plainly_and_the_usual_spreads_are_taken(
    written: Path, earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    HomePaths(earlier).evaluation("c0123456789ab").verdict.unlink()
    value = as_json(capsys, str(written), "--spread-from", str(earlier))
    assert {row["sd_log_ratio"] for row in value["power"]} == {0.01, 0.03}
    assert value["convergence"]["rows"] == []
    assert main(["plan", str(written), "--spread-from", str(earlier)]) == 0
    assert f"{earlier}: no candidate was evaluated there" in capsys.readouterr().out


def test_another_budget_under_the_same_name_is_said(
    written: Path, earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written.write_text(written.read_text().replace("targets = 8000", "targets = 16000", 1))
    notes = as_json(capsys, str(written), "--spread-from", str(earlier))["notes"]
    assert f"{earlier}: small had 8000 targets there, and has 16000 here" in notes


def test_a_spread_of_trainings_without_trainings_is_an_error_of_the_user(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written.write_text(SIDES)
    assert main(["plan", str(written), "--convergence-sd", "0.01"]) == 2
    assert "the configuration declares none" in capsys.readouterr().err
    assert main(["plan", str(written), "--convergence-sd", "0"]) == 2


def test_a_folder_that_is_no_home_is_refused(written: Path, tmp_path: Path) -> None:
    assert main(["plan", str(written), "--spread-from", str(tmp_path / "absent")]) == 2


@pytest.mark.parametrize(
    ("chance", "text"),
    [
        (0.8, "80.0%"),
        (0.79996, "79.9%"),
        (0.125, "12.5%"),
        (0.99996, ">99.9%"),
        (1.0, "100.0%"),
        (0.0, "0.0%"),
        (1e-9, "<0.1%"),
    ],
)
def test_a_chance_is_rounded_down(chance: float, text: str) -> None:
    assert percent(chance) == text


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["plan", "CONFIG"]])
def test_without_trainings_no_plan_waits_for_scipy(written: Path, arguments: list[str]) -> None:
    written.write_text(SIDES)
    given = [str(written) if part == "CONFIG" else part for part in arguments]
    program = (
        "import sys; from campaign.cli.main import main\n"
        f"main({given!r})\n"
        "sys.exit(', '.join(name for name in ('scipy', 'numpy', 'pandas') if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
