from __future__ import annotations

from pathlib import Path

import pytest

from campaign import files
from campaign.errors import ConfigError
from campaign.freezing import machine
from campaign.freezing.data import read_identity
from campaign.snapshot import digest_folder
from tests.support.git import write_files


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.bin": "abc"})
    (tmp_path / "link").symlink_to("a.bin")
    for name in ("a.bin", "link"):
        identity = read_identity(tmp_path / name)
        assert (identity.sha256, identity.bytes, identity.files) == (files.sha256_bytes(b"abc"), 3, 1)


def test_a_folder_is_known_by_its_tree(tmp_path: Path) -> None:
    write_files(tmp_path / "data", {"a.bin": "abc", "sub/b.bin": "de"})
    (tmp_path / "data" / "latest").symlink_to("sub/b.bin")
    identity = read_identity(tmp_path / "data")
    assert (identity.sha256, identity.bytes, identity.files) == (digest_folder(tmp_path / "data"), 5, 2)


@pytest.mark.parametrize("name", ["missing", "empty", "leading out"])
def test_a_data_set_without_bytes_of_its_own_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    write_files(tmp_path, {"leading out/a": "1", "outside": "2"})
    (tmp_path / "leading out" / "b").symlink_to("../outside")
    with pytest.raises(ConfigError):
        read_identity(tmp_path / name)


def test_an_editable_distribution_is_told_from_an_installed_one(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "python": '#!/bin/sh\necho noise\necho \'{"python": "3.12", "distributions": '
            '{"mine": "1.0 (editable, file:///src)", "torch": "2.13", "priv": "1 (editable, https://u:canary@h/p)"}, '
            '"installed": {"torch-2.13": {"record_sha256": "1f", "files": 2, "bytes": 3}}, '
            '"identity": {"path": "/p", "version": "3.12", "sha256": "2f", "environment_sha256": "3f"}}\'\n'
        },
    )
    (tmp_path / "python").chmod(0o755)
    interpreter = machine.read_interpreter(str(tmp_path / "python"))
    assert interpreter.distributions == {
        "mine": "1.0 (editable, file:///src)",
        "priv": "1 (editable, https://h/p)",
        "torch": "2.13",
    }
    assert interpreter.facts == {"python": "3.12"}
    assert interpreter.environment is not None
    assert interpreter.environment.installed["torch-2.13"].record_sha256 == "1f"


def test_a_launch_prefix_is_used_to_ask(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "enter": '#!/bin/sh\necho \'{"distributions": {"inside": "1"}, "installed": {}, '
            '"identity": {"path": "/p", "version": "3", "sha256": "", "environment_sha256": "3f"}}\'\n'
        },
    )
    (tmp_path / "enter").chmod(0o755)
    interpreter = machine.read_interpreter("/image/python", [str(tmp_path / "enter")])
    assert interpreter.distributions == {"inside": "1"}
