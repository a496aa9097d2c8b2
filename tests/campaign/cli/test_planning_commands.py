"""``campaign init``, ``plan`` and ``schema``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign.cli.main import main
from campaign.config.load import load_config
from campaign.documents import Calibration, NumericalRules, Receipt
from campaign.paths import HomePaths
from campaign.planning.matrix import expand
from campaign.planning.pilots import TENSOR_ROW_BYTES, read_experience
from campaign.planning.plan import TEXT_BYTES
from campaign.planning.protocol import departures
from tests.support.home import SMALL, build_home

EXAMPLE = Path(__file__).parents[3] / "examples" / "gh200-backend" / "campaign.toml"


ONE_WORKLOAD = """
name = "synthetic"
baseline_first = false
[baseline]
source = "src"
adapter = "adapter:native"
python = "./python"
[numerical]
[[workload]]
name = "sync-b4"
production = true
config = { x = 1 }
"""


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_init_writes_a_configuration_that_plans_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, value = as_json(capsys, "init", str(tmp_path / "new" / "folder"))
    assert code == 0
    assert [Path(path).name for path in value["written"]] == ["campaign.toml", "adapter.py"]
    code, planned = as_json(capsys, "plan", value["written"][0])
    assert code == 0
    assert planned["num_workloads"] == 9
    assert planned["departures"] == []


def test_the_template_spells_out_the_default_protocol() -> None:
    template = Path(__file__).parents[3] / "templates" / "init" / "campaign.toml"
    assert departures(load_config(template)) == ()


@pytest.mark.parametrize("family", ["numerical", "convergence"])
def test_what_the_template_has_in_comments_of_a_family_is_right_as_it_stands(tmp_path: Path, family: str) -> None:
    text = (Path(__file__).parents[3] / "templates" / "init" / "campaign.toml").read_text(encoding="utf-8")
    head, begin, rest = text.partition(f"# [{family}]\n")
    commented, _, tail = rest.partition("\n\n")
    lines = [begin, *commented.splitlines(keepends=True)]
    path = tmp_path / "campaign.toml"
    path.write_text(head + "".join(line.removeprefix("#").removeprefix(" ") for line in lines) + "\n\n" + tail)
    config = load_config(path)
    assert getattr(config, family) is not None
    assert len(config.recipe) == (family == "convergence")
    departing = {sentence.partition(" ")[0] for sentence in departures(config)}
    assert departing <= {"numerical.required", "numerical.serialized", "convergence.extension"}


def test_the_adapter_stub_is_python_and_says_what_to_write(tmp_path: Path) -> None:
    main(["init", str(tmp_path)])
    program = "import adapter; adapter.candidate({'size': 'small'}, seed=1, device='cpu')"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "NotImplementedError: build the candidate trainer" in done.stderr


@pytest.mark.parametrize("name", ["campaign.toml", "adapter.py"])
def test_init_overwrites_nothing(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert "not overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_init_does_not_write_through_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "adapter.py").symlink_to(tmp_path / "elsewhere")
    assert main(["init", str(tmp_path)]) == 2
    assert not (tmp_path / "elsewhere").exists()


def test_plan_shows_counts_time_disk_order_and_power(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(EXAMPLE)]) == 0
    text = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "gh200-backend: 117 workloads, 3 of them required production cases" in lines
    for start in (
        "baseline baseline solo 351",
        "baseline baseline control_case 117",
        "baseline baseline control_pair 9",
        "baseline baseline run 15",
        "candidate throughput pair 351",
        "candidate numerical case 117",
        "candidate convergence run 15",
        "sync 24 1.05 0.01",
        "production 3 0.98 0.03",
        "sync 36 36",
    ):
        assert any(line.startswith(start) for line in lines), start
    assert "device-hours, at most" in text


def test_plan_needs_neither_sources_nor_interpreters_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "campaign.toml").write_bytes(EXAMPLE.read_bytes())
    assert main(["plan", str(tmp_path / "campaign.toml")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["campaign.toml"]


def test_plan_takes_scatter_and_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    _, value = as_json(capsys, "plan", str(EXAMPLE), "--sd", "0.02", "--ratio", "1.05", "--ratio", "2")
    assert value["true_ratios"] == [1.05, 2.0]
    assert {row["sd_log_ratio"] for row in value["power"]} == {0.02}
    assert value["power"][0]["chances"] == [pytest.approx(0.125, abs=0.01), pytest.approx(1.0)]
    assert (value["power"][0]["pairs_80"], value["power"][0]["pairs_90"]) == ([None, 1], [None, 1])
    assert value["power"][0]["missed_from"] > 1.05


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf", "x"])
def test_scatter_that_means_nothing_is_a_usage_error(wrong: str) -> None:
    assert main(["plan", str(EXAMPLE), f"--sd={wrong}"]) == 2


def test_an_error_of_the_configuration_is_one_json_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "campaign.toml"
    path.write_text('nam = "x"\n')
    code, value = as_json(capsys, "plan", str(path))
    assert code == 2
    assert value["error"]["where"] == f"{path}:1:1"
    assert value["error"]["hint"] == "did you mean 'name'?"


def test_schema_is_the_published_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    published = Path(__file__).parents[3] / "docs" / "campaign.schema.json"
    assert capsys.readouterr().out == published.read_text()
    code, value = as_json(capsys, "schema")
    assert code == 0
    assert value == json.loads(published.read_text())


def _write_receipt(home: HomePaths, slot: str, attempt: int, *, ending: str, calibration: Calibration | None) -> None:
    receipt = Receipt.of(
        {
            "start_sha256": "0" * 64,
            "slot": slot,
            "attempt": attempt,
            "allocation": "x",
            "kind": "pilot",
            "ending": ending,
            "reason": "",
            "elapsed_s": 1.0,
            "at": 1.0,
            "sides": [],
            "calibration": calibration,
            "files": [],
        }
    )
    path = home.attempt(slot, attempt).receipt
    path.parent.mkdir(parents=True)
    path.write_bytes(receipt.to_bytes())


def test_calibrations_come_from_the_latest_completed_pilot(tmp_path: Path) -> None:
    home = HomePaths(tmp_path)
    rates = [Calibration(updates_per_s=rate, tokens_per_update=1.0, startup_s=1.0, updates=1) for rate in (1.0, 2.0)]
    _write_receipt(home, "baseline/pilot/a", 1, ending="completed", calibration=rates[0])
    _write_receipt(home, "baseline/pilot/a", 2, ending="completed", calibration=rates[1])
    _write_receipt(home, "baseline/pilot/a", 10, ending="crash", calibration=None)
    _write_receipt(home, "baseline/pilot/b", 1, ending="crash", calibration=None)
    found = read_experience(home, {"baseline": "baseline", "candidate": "c0123456789ab"})
    assert found.calibrations == {("baseline", "a"): rates[1]}


def test_plan_reads_the_pilots_of_a_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", str(tmp_path)])
    home = HomePaths(tmp_path / "home")
    for side in ("baseline", "c0123456789ab"):
        home.candidate("c0123456789ab").root.mkdir(parents=True, exist_ok=True)
        for workload in expand(load_config(tmp_path / "campaign.toml")).workloads:
            rate = Calibration(updates_per_s=100.0, tokens_per_update=1.0, startup_s=1.0, updates=100)
            _write_receipt(home, f"{side}/pilot/{workload.name}", 1, ending="completed", calibration=rate)
    home.manifest.write_text("{}")
    capsys.readouterr()
    _, value = as_json(capsys, "plan", str(tmp_path / "campaign.toml"), "--home", str(home.root))
    about = {(row["side"], row["phase"]): row["about_device_hours"] for row in value["allocations"]}
    assert about["candidate", "throughput"] == pytest.approx(27 * 2 * (1 + 5 * 1.25) / 3600)


def test_the_size_of_cases_is_not_known_before_the_pilots(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(EXAMPLE)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    unknown = "not known before the pilots"
    assert f"baseline baseline control_case 117 {unknown} depends on the model" in lines
    assert f"baseline pilot inputs/ of 117 {unknown} {unknown}" in lines
    _, value = as_json(capsys, "plan", str(EXAMPLE))
    assert value["inputs"] == {"num_workloads": 117, "about_bytes": None}
    turns = "In the private folders of the node (TMPDIR), for a case whose sides take turns on the device"
    assert any(line.startswith(turns) and line.endswith(f"{unknown}.") for line in lines)
    assert value["private"]["most_bytes"] is None


def test_pilots_say_how_large_inputs_and_cases_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = build_home(tmp_path / "home", SMALL[:1], numerical=NumericalRules())
    config = tmp_path / "campaign.toml"
    config.write_text(ONE_WORKLOAD)
    _, value = as_json(capsys, "plan", str(config), "--home", str(built.paths.root))
    # A file of the state, and one batch that all updates share.
    inputs = built.inputs(SMALL[0].name)
    assert value["inputs"] == {"num_workloads": 1, "about_bytes": inputs.state[0].bytes + inputs.batches[0].bytes}
    about = {row["kind"]: row["about_bytes"] for row in value["slots"]}
    assert about["case"] == about["control_case"] == TEXT_BYTES + 5 * 5 * TENSOR_ROW_BYTES
    hours = {row["phase"]: row["about_device_hours"] for row in value["allocations"] if row["side"] == "candidate"}
    assert hours["numerical"] == pytest.approx(3.0 / 3600)  # what the completed case took
    assert value["private"] is None  # both sides are on the device at once


@pytest.mark.parametrize("launch", ["", 'launch = ["wrap"]'])
def test_pilots_say_how_much_room_sides_that_take_turns_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], launch: str
) -> None:
    built = build_home(tmp_path / "home", SMALL[:1], numerical=NumericalRules())
    config = tmp_path / "campaign.toml"
    config.write_text(ONE_WORKLOAD.replace("[numerical]", f'{launch}\n[numerical]\nserialized = ["sync-*"]'))
    _, value = as_json(capsys, "plan", str(config), "--home", str(built.paths.root))
    inputs = built.inputs(SMALL[0].name)
    # Five quantities of one side, and parameters and moments of both; a container sees no home, so inputs are copied.
    most = 11 * inputs.state[0].bytes + (inputs.state[0].bytes + inputs.batches[0].bytes if launch else 0)
    assert value["private"] == {"num_workloads": 1, "most_bytes": most, "workload": "sync-b4"}
    assert main(["plan", str(config), "--home", str(built.paths.root)]) == 0
    assert "(1 workloads): at most" in capsys.readouterr().out


def test_init_into_a_file_is_an_error_of_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file" / "below")]) == 2
    assert "cannot be written" in capsys.readouterr().err
