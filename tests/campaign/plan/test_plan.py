from __future__ import annotations

import math
from pathlib import Path

import pytest

from campaign.cli.plan_text import _devices
from campaign.config.load import load_config, parse_config
from campaign.config.model import Config
from campaign.documents import Calibration
from campaign.planning.calibration import Calibrations, Experience
from campaign.planning.plan import Assumptions, Plan, make_plan

EXAMPLE = Path(__file__).parents[3] / "examples" / "gh200-backend" / "campaign.toml"
TEXT = """\
name = "demo"
[baseline]
source = "src"
adapter = "adapter:native"
python = "./python"
[limits]
import_s = 10
startup_s = 20
stall_s = 30
log_bytes = 2048
[[category]]
name = "all"
[[workload]]
name = "a"
category = "all"
config = { x = 1 }
[[workload]]
name = "b"
category = "all"
production = true
config = { x = 2 }
"""


def parse(extra: str = "") -> Config:
    return parse_config((TEXT + extra).encode(), path=Path("/c/campaign.toml"))


def plan(config: Config, calibrations: Calibrations | None = None) -> Plan:
    known = Experience(calibrations=calibrations or {})
    return make_plan(config, Assumptions(ratio_sds=(0.01,), true_ratios=(1.0, 1.05)), known=known)


def test_the_full_matrix_is_counted() -> None:
    found = plan(load_config(EXAMPLE))
    assert (found.num_workloads, found.num_production, found.num_devices) == (117, 3, 1)
    counts = {(row.side, row.kind): row.num_slots for row in found.slots}
    assert counts["baseline", "solo"] == 351
    assert counts["baseline", "control_case"] == 117
    assert counts["baseline", "control_pair"] == 9
    assert counts["baseline", "run"] == counts["candidate", "run"] == 15
    assert counts["candidate", "pair"] == 351
    assert counts["candidate", "case"] == 117
    assert counts["baseline", "pilot"] == counts["candidate", "pilot"] == 117 + 5
    allocations = {(row.side, row.phase): row.num_allocations for row in found.allocations}
    assert allocations["candidate", "throughput"] == 351
    # 351 solo measurements with the 9 control pairs among them, 117 control cases, 15 runs
    assert allocations["baseline", "baseline"] == 351 + 117 + 15
    balance = {row.subject: (row.num_baseline_first, row.num_other_first) for row in found.balance}
    assert balance["sync"] == (36, 36)
    assert [row.gate for row in found.power] == ["sync", "packed4", "packed8", "production"]
    assert [row.num_workloads for row in found.power] == [24, 24, 24, 3]


def test_the_devices_of_an_allocation_are_told_for_each_process() -> None:
    several = '[[workload]]\nname = "c"\nprocesses = 4\nnodes = 2\nproduction = true\nconfig = { x = 3 }\n'
    alone, spread = parse('[slurm]\ngres = "gpu:2"\n'), parse(several + '[slurm]\ngres = "gpu:2"\n')
    assert _devices(plan(alone)) == "2 device(s)"
    assert _devices(plan(spread)) == "2 device(s) for each of up to 4 processes on up to 2 nodes"
    assert _devices(plan(parse(several.replace("nodes = 2\n", "")))) == "1 device(s) for each of up to 4 processes"


def test_limits_bound_the_time_where_there_is_no_scheduler() -> None:
    rows = {(row.side, row.phase): row.most_device_hours for row in plan(parse()).allocations}
    side_s = 10 + 20 + (5 + 1) * 30
    assert rows["candidate", "throughput"] == pytest.approx(3 * 2 * 2 * side_s / 3600)
    assert rows["baseline", "baseline"] == pytest.approx(3 * (2 * side_s + 2 * side_s) / 3600)


def test_the_time_limit_of_an_allocation_bounds_it_on_slurm() -> None:
    rows = {row.phase: row for row in plan(parse('[slurm]\nminutes = 2\ngres = "gpu:4"\n')).allocations}
    assert rows["throughput"].most_device_hours == pytest.approx(6 * 2 * 4 / 60)
    loose = {row.phase: row for row in plan(parse("[slurm]\nminutes = 10000\n")).allocations}
    assert loose["throughput"].most_device_hours == pytest.approx(3 * 2 * 2 * 210 / 3600)


def test_nothing_bounds_a_run_without_a_scheduler() -> None:
    text = '[convergence]\n[[recipe]]\nname = "r"\nconfig = { x = 9 }\n'
    text += "targets = 5\nvalidation_targets = 1\nupdates = 5\n"
    rows = {(row.side, row.phase): row for row in plan(parse(text)).allocations}
    assert rows["candidate", "convergence"].most_device_hours is None
    assert rows["baseline", "baseline"].most_device_hours is None
    assert rows["candidate", "throughput"].most_device_hours is not None
    kinds = {(row.side, row.kind): row for row in plan(parse(text)).slots}
    assert kinds["candidate", "run"].most_bytes is None


def test_disk_grows_with_the_sides_output() -> None:
    kinds = {row.kind: row for row in plan(parse()).slots if row.side == "candidate"}
    assert kinds["pair"].num_slots == 6
    assert kinds["pair"].about_bytes == 6 * 16384
    assert kinds["pair"].most_bytes == 6 * (16384 + 2 * 2048)


def calibration(updates_per_s: float) -> Calibration:
    return Calibration(updates_per_s=updates_per_s, tokens_per_update=8.0, startup_s=4.0, updates=100)


def test_pilots_say_how_long_it_will_take() -> None:
    found = {
        ("baseline", "a"): calibration(10.0),
        ("baseline", "b"): calibration(10.0),
        ("candidate", "a"): calibration(25.0),
        ("candidate", "b"): calibration(5.0),
    }
    rows = {(row.side, row.phase): row.about_device_hours for row in plan(parse(), found).allocations}
    fast, slow = 5 * math.ceil(1.25 * 25), 5 * math.ceil(1.25 * 10)
    pair_a = 8 + fast / 10 + fast / 25
    pair_b = 8 + slow / 10 + slow / 5
    assert rows["candidate", "throughput"] == pytest.approx(3 * (pair_a + pair_b) / 3600)
    solo = 4 + slow / 10
    control = 8 + 2 * slow / 10
    assert rows["baseline", "baseline"] == pytest.approx(3 * (2 * solo + control) / 3600)
    assert rows["candidate", "pilot"] == pytest.approx(2 * 5 / 3600)


def test_a_missing_pilot_leaves_the_estimate_open() -> None:
    found = {
        ("baseline", "a"): calibration(10.0),
        ("baseline", "b"): calibration(10.0),
        ("candidate", "a"): calibration(1.0),
    }
    rows = {(row.side, row.phase): row.about_device_hours for row in plan(parse(), found).allocations}
    assert rows["candidate", "throughput"] is None
    assert rows["baseline", "baseline"] is not None
    assert all(row.about_device_hours is None for row in plan(parse()).allocations)
    broken = {("baseline", "a"): calibration(0.0), ("baseline", "b"): calibration(10.0)}
    assert {row.about_device_hours for row in plan(parse(), broken).allocations} == {None}
