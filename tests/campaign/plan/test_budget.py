"""Minutes from assumptions: what `campaign plan --assume` computes before anything has been run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from campaign.cli.main import main
from campaign.config.load import parse_config
from campaign.config.model import Config
from campaign.documents import Slot
from campaign.errors import ConfigError
from campaign.planning.assumed import Machine, read_assumed
from campaign.planning.budget import machine_of
from campaign.planning.matrix import expand
from campaign.planning.plan import Assumptions, Plan, make_plan

TEXT = """
name = "planned"
baseline_first = false
[baseline]
source = "src"
adapter = "adapter:native"
python = "./python"
[throughput]
repeats = 2
solo = false
window_s = "2"
[numerical]
[convergence]
seeds = [1, 2]
[matrix]
name = "{size}"
axes.size = ["small", "large"]
fixed = { batch = 4, context = 25 }
[[category]]
name = "all"
small_batch = { size = ["small", "large"] }
[[recipe]]
name = "trained"
config = { size = "small", batch = 2 }
targets = 1000
validation_targets = 10
updates = 100
evaluate_every = 50
"""
ASSUMED = """
source = "a guess"
targets = ["batch", "context", "accumulation"]
[[side]]
side = "baseline"
trained = ["*"]
start_s = 5
setup_s = 2
targets_per_s = 1000
[[side]]
side = "candidate"
trained = ["*"]
start_s = 5
setup_s = 10
targets_per_s = 4000
[[side]]
side = "candidate"
trained = ["large"]
start_s = 5
setup_s = 10
targets_per_s = 1000
[[side]]
side = "baseline"
trained = ["trained"]
start_s = 5
setup_s = 2
targets_per_s = 1000
evaluate_s = 3
save_s = 1
[[side]]
side = "candidate"
trained = ["trained"]
start_s = 5
setup_s = 10
targets_per_s = 1000
evaluate_s = 3
save_s = 1
[[case]]
kind = "control_case"
workloads = ["*"]
seconds = 60
[[case]]
kind = "case"
workloads = ["*"]
seconds = 90
[[machine]]
name = "first"
minutes = 3.5
slots = ["*/pilot/*", "*/r1"]
allocation_s = 6
[[machine]]
name = "second"
minutes = 30
slots = ["*/r2", "*case/*", "*/run/*"]
"""


def config() -> Config:
    return parse_config(TEXT.encode(), path=Path("/c/campaign.toml"))


def plan(tmp_path: Path, text: str = ASSUMED) -> Plan:
    path = tmp_path / "assumed.toml"
    path.write_text(text)
    loaded = config()
    times = read_assumed(path, expand(loaded), loaded.throughput.rules)
    return make_plan(loaded, Assumptions(), times=times)


def minutes(found: Plan) -> dict[tuple[str, str, int], float]:
    assert found.budget is not None
    return {(row.side, row.kind, row.repeat): row.minutes for row in found.budget.rows}


def test_a_pair_takes_both_starts_both_warm_ups_and_the_windows_that_the_faster_side_needs(tmp_path: Path) -> None:
    """Windows of 2.5 s on the faster side: 100 updates of `small`, 10 s on the slower side; 25 of `large` on both."""
    small = (5 + 2 + 20 / 10 + 5 * 100 / 10) + (5 + 10 + 20 / 40 + 5 * 100 / 40)
    large = (5 + 2 + 20 / 10 + 5 * 2.5) + (5 + 10 + 20 / 10 + 5 * 2.5)
    found = minutes(plan(tmp_path))
    assert found["candidate", "pair", 1] == pytest.approx((small + large) / 60)
    assert found["candidate", "pair", 1] == found["candidate", "pair", 2]


def test_a_control_pair_takes_the_baseline_twice(tmp_path: Path) -> None:
    found = minutes(plan(tmp_path))
    assert found["baseline", "control_pair", 1] == pytest.approx(2 * (5 + 2 + 20 / 10 + 5 * 2.5) / 60)


def test_a_case_takes_what_is_assumed_of_all_of_it(tmp_path: Path) -> None:
    found = minutes(plan(tmp_path))
    assert found["baseline", "control_case", 0] == pytest.approx(2 * 60 / 60)
    assert found["candidate", "case", 0] == pytest.approx(2 * 90 / 60)


def test_the_pilot_of_a_recipe_starts_its_side_twice_and_others_once(tmp_path: Path) -> None:
    """An update of the recipe has 50 targets, 20 of them a second."""
    workloads = 2 * (5 + 2 + 20 / 10 + 1)
    recipe = 2 * (5 + 2 + 20 / 20) + 1 + 3 + 2 * 1
    assert minutes(plan(tmp_path))["baseline", "pilot", 0] == pytest.approx((workloads + recipe) / 60)


def test_a_run_trains_evaluates_and_saves(tmp_path: Path) -> None:
    """100 updates, two points, and the checkpoints after its first updates and at its end."""
    seconds = 5 + (2 + 20 / 20) + 100 / 20 + 2 * 3 + 2 * 1
    assert minutes(plan(tmp_path))["baseline", "run", 0] == pytest.approx(2 * seconds / 60)


def test_machines_hold_the_slots_that_they_name_first_and_each_allocation_takes_time_of_its_own(tmp_path: Path) -> None:
    budget = plan(tmp_path).budget
    assert budget is not None
    first, second = budget.machines
    own = sum(row.minutes for row in budget.rows if row.machine == "first")
    assert first.minutes == pytest.approx(own + 4 * 6 / 60)  # pilots of two sides, control pairs, pairs
    assert not first.fits
    assert second.fits
    assert (first.num_slots, second.num_slots) == (3 + 3 + 1 + 2, 1 + 2 + 4 + 4)
    assert budget.num_elsewhere == 0


def test_what_no_machine_names_is_counted(tmp_path: Path) -> None:
    budget = plan(tmp_path, ASSUMED.replace(', "*/run/*"', "")).budget
    assert budget is not None
    assert budget.num_elsewhere == 4
    assert {row.kind for row in budget.rows if not row.machine} == {"run"}


def test_a_slot_goes_to_the_first_machine_that_names_it() -> None:
    slot = Slot(
        slot="candidate/pair/a/r1",
        side="candidate",
        phase="throughput",
        kind="pair",
        workload="a",
        repeat=1,
        pair=1,
        order=("baseline", "candidate"),
    )
    one, two = (Machine(name=name, minutes=1.0, slots=("*/r1",)) for name in ("one", "two"))
    assert machine_of(slot, [one, two]) == "one"
    assert machine_of(slot, [two, one]) == "two"
    assert machine_of(slot, []) == ""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('trained = ["*"]', 'trained = ["small"]', "nothing is assumed of large"),
        ("targets_per_s = 4000", "targets_per_s = 0", "side.1.targets_per_s"),
        ("targets_per_s = 4000", "targets_per_s = nan", "side.1.targets_per_s"),
        ("targets_per_s = 4000", "tokens_per_s = 4000", "side.1.t"),
        ('"accumulation"', '"size"', "size of small is no count"),
        ('source = "a guess"', "", "source"),
        ("seconds = 60", "seconds = -60", "case.0.seconds"),
        ("[[case]]", "[[case", "not valid TOML"),
        ('name = "second"', 'name = "first"', "several machines are named 'first'"),
    ],
)
def test_assumptions_that_cannot_be_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in ASSUMED
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path, ASSUMED.replace(old, new, 1))
    assert message in caught.value.what
    assert caught.value.where == str(tmp_path / "assumed.toml")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_assumed(tmp_path / "none.toml", expand(config()), config().throughput.rules)


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["plan", *map(str, arguments)])
    return code, capsys.readouterr().out


def test_the_command_prints_minutes_machines_and_where_they_are_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "campaign.toml").write_text(TEXT)
    (tmp_path / "assumed.toml").write_text(ASSUMED)
    code, text = ask(capsys, tmp_path / "campaign.toml", "--assume", tmp_path / "assumed.toml")
    assert code == 0
    assert "Minutes, as assumed: a guess" in text
    assert "does not fit" in text
    assert "from the pilots" not in text
    _, printed = ask(capsys, tmp_path / "campaign.toml", "--assume", tmp_path / "assumed.toml", "--json")
    value: Any = json.loads(printed)
    assert value["budget"]["machines"][0]["name"] == "first"
    assert "Minutes" not in ask(capsys, tmp_path / "campaign.toml")[1]


def test_assumptions_and_pilots_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "campaign.toml").write_text(TEXT)
    (tmp_path / "assumed.toml").write_text(ASSUMED)
    both = ["--assume", str(tmp_path / "assumed.toml"), "--home", str(tmp_path)]
    assert main(["plan", str(tmp_path / "campaign.toml"), *both]) == 2
