"""A token is planted wherever one could stand; no campaign holds it, and no message repeats it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from campaign.config.load import load_config
from campaign.errors import ConfigError
from campaign.freezing.sides import check_secrets
from tests.support.freezing import CONFIG, Setting, make_setting
from tests.support.git import Repository, write_files

CANARY = "hf_" + "Can4ry" * 5
PLAIN = "canary-4711-canary"
"""Nothing about it tells what it is."""
Plant = Callable[[Setting, Repository], Callable[[str], str]]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return make_setting(tmp_path)


def nothing(text: str) -> str:
    return text


def in_config(old: str, new: str) -> Plant:
    return lambda _setting, _repository: lambda text: text.replace(old, new, 1)


def in_table(line: str) -> Plant:
    return in_config("[baseline]\n", f"[baseline]\n{line}\n")


def in_remote(url: str) -> Plant:
    def plant(_setting: Setting, repository: Repository) -> Callable[[str], str]:
        repository.git("remote", "add", "origin", url)
        return nothing

    return plant


def in_file(name: str, text: str) -> Plant:
    def plant(_setting: Setting, repository: Repository) -> Callable[[str], str]:
        repository.write({name: text})
        return nothing

    return plant


def in_included_file(setting: Setting, repository: Repository) -> Callable[[str], str]:
    in_file("secrets/token.txt", CANARY)(setting, repository)
    return in_table('include = ["secrets/token.txt"]')(setting, repository)


def in_interpreter(setting: Setting, _repository: Repository) -> Callable[[str], str]:
    write_files(setting.root, {"bin/python": f"#!/bin/sh\necho https://me:{PLAIN}@host/p?key={PLAIN} >&2\nexit 1\n"})
    return nothing


REFUSED: dict[str, Plant] = {
    "value of a variable": in_config("${data.plays}", CANARY),
    "value of a variable whose name says so": in_config("PLAYS = ", f'MY_API_KEY = "{PLAIN}", PLAYS = '),
    "argument of the launch prefix": in_table(f'launch = ["/bin/env", "HF_TOKEN={PLAIN}"]'),
    "argument after its name": in_table(f'launch = ["/bin/run", "--token", "{PLAIN}"]'),
    "entry of the matrix": in_config(
        'name = "{mode}-b{batch}"', f'name = "{{mode}}-b{{batch}}"\nfixed.api_key = "{PLAIN}"'
    ),
    "comment": in_config("[baseline]", f"# password = {PLAIN}\n[baseline]"),
    "untracked file": in_file(".env", f"HF={CANARY}\n"),
    "modified file": in_file("adapter.py", f"def native(config, *, seed, device): ...\nT = '{CANARY}'\n"),
    "binary file": in_file("state.bin", f"\0\0{CANARY}\0"),
    "included file": in_included_file,
}
REDACTED: dict[str, Plant] = {
    "password of a remote": in_remote(f"https://me:{PLAIN}@host.example/r.git"),
    "user of a remote": in_remote(f"https://{CANARY}@host.example/r.git"),
    "query of a remote": in_remote(f"https://host.example/r.git?token={PLAIN}"),
    "user of a remote without a scheme": in_remote(f"{PLAIN}@host.example:r.git"),
    "what an interpreter says": in_interpreter,
    "variable that is passed on": in_table('pass_environment = ["CAMPAIGN_CANARY", "HF_TOKEN"]'),
    "ignored file": in_file("secrets/token.txt", CANARY),
}


def bytes_of(root: Path) -> Iterator[bytes]:
    for path in root.rglob("*"):
        yield os.fsencode(path)
        if path.is_file() and not path.is_symlink():
            yield path.read_bytes()


@pytest.fixture
def repository(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> Repository:
    for name in ("CAMPAIGN_CANARY", "HF_TOKEN"):
        monkeypatch.setenv(name, CANARY)
    made = Repository(setting.source)
    made.git("init", "-q")
    made.commit({".gitignore": "secrets/\n"})
    return made


@pytest.mark.parametrize("place", REFUSED)
def test_a_secret_is_refused_by_its_place_and_not_repeated(
    setting: Setting, repository: Repository, place: str
) -> None:
    edit = REFUSED[place](setting, repository)
    with pytest.raises(ConfigError, match="looks like") as caught:
        setting.freeze(edit)
    said = "\n".join(caught.value.lines())
    assert CANARY not in said
    assert PLAIN not in said
    assert caught.value.where.rpartition(":")[2].isdecimal()
    assert not setting.home.root.exists()


def test_a_secret_in_a_slices_file_is_named_by_the_files_own_line(setting: Setting) -> None:
    text = CONFIG.replace("[baseline]", f"# password = {PLAIN}\n[baseline]") + '[slices.one]\nworkloads = ["sync-b4"]\n'
    setting.config_path.write_text(text)
    with pytest.raises(ConfigError, match="looks like") as caught:
        check_secrets(load_config(setting.config_path, "one"))
    line = text.splitlines().index(f"# password = {PLAIN}") + 1
    assert caught.value.where == f"{setting.config_path}:{line}"


@pytest.mark.parametrize("place", REDACTED)
def test_a_secret_is_left_out(setting: Setting, repository: Repository, place: str) -> None:
    result = setting.freeze(REDACTED[place](setting, repository))
    held = [*bytes_of(setting.home.root), "\n".join((*result.notes, *result.left_out)).encode()]
    assert len(held) > 10
    assert not [one for one in held if CANARY.encode() in one or PLAIN.encode() in one]


def test_a_candidate_is_held_to_the_same(setting: Setting, repository: Repository) -> None:
    setting.freeze()
    repository.write({"notes.txt": CANARY})
    with pytest.raises(ConfigError, match="looks like a Hugging Face token"):
        setting.freeze_candidate()
    assert not [one for one in bytes_of(setting.home.root) if CANARY.encode() in one]


def test_a_tree_without_a_repository_is_held_to_the_same(setting: Setting) -> None:
    write_files(setting.source, {"notes.txt": f"one\n{CANARY}\n"})
    with pytest.raises(ConfigError, match="looks like a Hugging Face token") as caught:
        setting.freeze()
    assert caught.value.where == f"{setting.source / 'notes.txt'}:2"


def test_what_is_committed_is_taken_as_it_is(setting: Setting, repository: Repository) -> None:
    """Everybody who has the repository has it; its own tests may hold what looks like a token."""
    repository.commit({"tests/test_it.py": f"T = '{CANARY}'\n"})
    assert setting.freeze().is_new
