from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaign.cli.main import main
from campaign.record.ledger import read_entries
from tests.support.freezing import CONFIG, Setting, make_setting
from tests.support.git import write_files


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    made = make_setting(tmp_path)
    made.config_path.write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAMPAIGN_HOME", raising=False)
    return made


def test_a_baseline_and_a_candidate_are_frozen_from_the_command_line(
    setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["freeze", "campaign.toml"]) == 0
    said = capsys.readouterr()
    assert "frozen: baseline, snapshot" in said.out
    assert "departs from the default protocol: baseline_first" in said.err
    home = setting.root / "small.campaign"
    assert main(["freeze", "--candidate", "--home", str(home), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["new"] is True
    assert value["home"] == str(home)
    assert main(["freeze", "--candidate", "--home", str(home)]) == 0
    assert "frozen before, nothing done" in capsys.readouterr().out


def test_a_candidates_tree_and_configuration_can_be_named(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    home = setting.root / "home"
    write_files(setting.root, {"other/adapter.py": "2", "later.toml": CONFIG.replace("adapter:fast", "adapter:later")})
    assert main(["freeze", "campaign.toml", "--home", str(home)]) == 0
    capsys.readouterr()
    assert main(["freeze", "--candidate", "other", "--config", "later.toml", "--home", str(home), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    manifest = json.loads((home / "frozen" / "candidates" / value["id"] / "manifest.json").read_bytes())
    assert manifest["candidate"]["adapter"] == "adapter:later"
    assert value["files"] == 1


def test_the_frozen_configuration_means_the_same_folders_from_anywhere(
    setting: Setting, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = setting.root / "home"
    assert main(["freeze", "campaign.toml", "--home", str(home)]) == 0
    setting.config_path.unlink()
    monkeypatch.chdir(home / "frozen")
    assert main(["freeze", "--candidate"]) == 0
    assert "frozen: c" in capsys.readouterr().out


def test_a_candidate_has_the_slice_of_its_home_whatever_file_describes_it(
    setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    home = setting.root / "home"
    setting.config_path.write_text(CONFIG + '[slices.one]\nworkloads = ["sync-b4"]\n')
    assert main(["freeze", "campaign.toml", "--slice", "one", "--home", str(home)]) == 0
    assert main(["freeze", "--candidate", "--config", "campaign.toml", "--home", str(home)]) == 0
    assert "frozen: c" in capsys.readouterr().out
    assert main(["freeze", "--candidate", "--slice", "one", "--home", str(home)]) == 2
    assert "--slice belongs to a baseline" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["freeze"], ["freeze", "campaign.toml", "--candidate"], ["freeze", "x.toml", "--config", "x.toml"]]
)
def test_a_command_that_does_not_say_what_to_freeze_is_a_usage_error(setting: Setting, arguments: list[str]) -> None:
    assert main(arguments) == 2
    assert not (setting.root / "small.campaign").exists()


def test_an_error_is_one_json_value_on_stdout(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    (setting.source / "adapter.py").unlink()
    assert main(["freeze", "campaign.toml", "--json"]) == 2
    value = json.loads(capsys.readouterr().out)
    assert value["exit_code"] == 2
    assert value["error"]["where"] == f"{setting.config_path}:6:1"


def test_unlock_says_what_it_did(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    home = setting.root / "home"
    assert main(["freeze", "campaign.toml", "--home", str(home)]) == 0
    capsys.readouterr()
    assert main(["unlock", "--home", str(home), "--reason", "to be sure", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"unlocked": False, "owner": None}
    owner = {"host": "gone", "boot_id": "b", "pid_namespace": "n", "pid": 1, "process_start": 1, "nonce": "0"}
    (home / "ledger.lock").write_text(json.dumps(owner))
    assert main(["freeze", "--candidate", "--home", str(home)]) == 2
    assert "campaign unlock" in capsys.readouterr().err
    assert main(["unlock", "--home", str(home), "--reason", "node reinstalled"]) == 0
    assert "removed the lock of process 1 on gone" in capsys.readouterr().out
    assert read_entries(type(setting.home)(home))[-1].act == "unlocked"
