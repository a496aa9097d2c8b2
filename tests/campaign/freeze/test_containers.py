"""Sides in containers, and hosts that freeze but cannot run the sides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign import documents, files
from campaign.diagnosis import check_sides
from campaign.errors import ConfigError, StateError
from campaign.freezing.containers import read_container
from campaign.frozen import read_frozen
from tests.support.freezing import INTERPRETER, Setting, make_setting

IMAGE = b"an image that holds an interpreter"
RUNTIME = f"""\
#!/bin/sh
# A container's runtime: what runs is what the image says.
grep -q "holds an interpreter" "$1" || exit 3
touch "$0.ran"
{INTERPRETER.partition(chr(10))[2]}"""
LAUNCH = 'launch = ["{root}/bin/runtime", "${container}"]\ncontainer = "image.sif"\n'


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    made = make_setting(tmp_path)
    (tmp_path / "image.sif").write_bytes(IMAGE)
    (tmp_path / "bin" / "runtime").write_text(RUNTIME)
    (tmp_path / "bin" / "runtime").chmod(0o755)
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\nexit 9\n")
    return made


def contained(setting: Setting, launch: str = LAUNCH) -> Callable[[str], str]:
    """Return the edit that puts both sides into the container."""
    added = launch.replace("{root}", str(setting.root))
    return lambda text: text.replace('python = "bin/python"\n', f'python = "bin/python"\n{added}')


def test_the_image_of_a_side_is_frozen_by_its_digest_and_named_in_its_launch_prefix(setting: Setting) -> None:
    setting.freeze(contained(setting))
    side = read_frozen(setting.home).manifest.baseline
    path = str(setting.root / "image.sif")
    assert side.container == documents.Container(path=path, bytes=len(IMAGE), sha256=hashlib.sha256(IMAGE).hexdigest())
    assert side.launch == (str(setting.root / "bin" / "runtime"), path)
    assert side.distributions == {"torch": "2.13"}, "the interpreter was not asked within the container"
    assert (setting.root / "bin" / "runtime.ran").exists()


def test_a_side_without_an_image_says_so(setting: Setting) -> None:
    setting.freeze()
    assert json.loads(setting.home.manifest.read_bytes())["baseline"]["container"] is None


def test_the_same_tree_in_another_image_is_another_candidate(setting: Setting) -> None:
    edit = contained(setting)
    setting.freeze(edit)
    setting.freeze_candidate(edit)
    assert not setting.freeze_candidate(edit).is_new
    (setting.root / "image.sif").write_bytes(IMAGE + b" and another package")
    with pytest.raises(StateError, match="the same tree but another container"):
        setting.freeze_candidate(edit)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda text: text.replace('container = "image.sif"\n', "", 1), "an image that is not declared"),
        (lambda text: text.replace('"${container}"', '"other.sif"', 1), "does not name the image"),
        (lambda text: text.replace('container = "image.sif"', 'container = "none.sif"', 1), "is not there"),
        (lambda text: text.replace('container = "image.sif"', 'container = "bin"', 1), "is a folder"),
    ],
)
def test_what_cannot_be_run_or_hashed_is_refused_by_its_line(
    setting: Setting, edit: Callable[[str], str], words: str
) -> None:
    made = contained(setting)
    with pytest.raises(ConfigError, match=words) as caught:
        setting.freeze(lambda text: edit(made(text)))
    assert str(setting.config_path) in caught.value.where
    assert not setting.home.manifest.exists()


def test_a_prefix_may_spell_the_path_of_the_image(setting: Setting) -> None:
    image = setting.root / "image.sif"
    setting.freeze(contained(setting, f'launch = ["{{root}}/bin/runtime", "{image}"]\ncontainer = "image.sif"\n'))
    assert read_frozen(setting.home).manifest.baseline.container is not None


def test_an_empty_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"")
    with pytest.raises(ConfigError, match="an empty file"):
        read_container(tmp_path / "image")


# --- login nodes that differ ------------------------------------------------------------------------------------------


def differs(edit: Callable[[str], str] = lambda text: text) -> Callable[[str], str]:
    """Return an edit that also says that the nodes are other machines than the one that freezes."""
    return lambda text: f'{edit(text)}\n[execution]\nlogin_node = "differs"\n'


def test_an_image_that_changes_while_it_is_hashed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "image.sif"
    image.write_bytes(IMAGE)
    hash_file = files.sha256_file

    def grow(path: Path) -> str:
        found = hash_file(path)
        path.write_bytes(IMAGE * 2)
        return found

    monkeypatch.setattr("campaign.files.sha256_file", grow)
    with pytest.raises(ConfigError, match="changed while it was hashed"):
        read_container(image)


def test_nothing_of_a_side_runs_where_the_login_node_differs(setting: Setting) -> None:
    edit = differs(contained(setting))
    result = setting.freeze(edit)
    setting.freeze_candidate(edit)
    assert not (setting.root / "bin" / "runtime.ran").exists(), "something of a side was run"
    frozen = read_frozen(setting.home)
    sides = [frozen.manifest.baseline, *(one.candidate for one in frozen.candidates.values())]
    assert [(side.interpreter, side.distributions) for side in sides] == [(None, None)] * 2
    assert frozen.manifest.harness_interpreter is None
    assert 'login_node = "differs"' in frozen.manifest.driver["interpreters"]["baseline"]["unknown"]
    assert any("not asked here" in note for note in result.notes)
    assert frozen.manifest.resources["login_node"] == "differs"
    assert {check.mark.value for check in check_sides(setting.home, {})} == {"ok"}
    assert not (setting.root / "bin" / "runtime.ran").exists(), "the doctor ran something of a side"


def test_what_the_login_node_is_does_not_change_the_protocol(setting: Setting) -> None:
    setting.freeze(differs(contained(setting)))
    there = setting.home.protocol.read_bytes()
    other = make_setting(setting.root / "other")
    other.freeze()
    assert there == other.home.protocol.read_bytes()
    assert b"login_node" not in there
