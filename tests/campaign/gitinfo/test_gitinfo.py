from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from campaign.errors import ConfigError, InfrastructureError
from campaign.freezing import gitinfo
from campaign.paths import SnapshotPaths
from campaign.snapshot import take_snapshot
from tests.support.git import IDENTITY, Repository, make_repository


def make_hostile(repository: Repository, proof: Path) -> None:
    """Have the repository's own configuration name a command wherever git would run one."""
    trap = repository.root.parent / "trap.sh"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {proof}\ncat\n')
    trap.chmod(0o755)
    hooks = repository.root.parent / "hooks"
    hooks.mkdir()
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "fsmonitor-watchman"):
        (hooks / hook).symlink_to(trap)
    settings = {
        "core.fsmonitor": str(trap),
        "core.hooksPath": str(hooks),
        "core.pager": str(trap),
        "core.editor": str(trap),
        "core.sshCommand": str(trap),
        "core.askPass": str(trap),
        "core.gitProxy": str(trap),
        "core.alternateRefsCommand": str(trap),
        "diff.external": str(trap),
        "filter.evil.clean": str(trap),
        "filter.evil.smudge": str(trap),
        "filter.evil.process": str(trap),
        "diff.evil.textconv": str(trap),
        "diff.evil.command": str(trap),
        "gpg.program": str(trap),
        "credential.helper": f"!{trap}",
        "alias.ls-files": f"!{trap}",
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
        "remote.origin.url": f"ext::{trap}",
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": str(trap),
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
    }
    for key, value in settings.items():
        subprocess.run(["git", "config", "--file", repository.root / ".git" / "config", key, value], check=True)


@pytest.fixture
def hostile(tmp_path: Path) -> tuple[Repository, Path]:
    repository = make_repository(
        tmp_path / "source", {"a.py": "1", "b.bin": b"\0", ".gitattributes": "* filter=evil diff=evil\n"}
    )
    repository.write({"a.py": "2", "new.py": "3"})
    proof = tmp_path / "proof"
    make_hostile(repository, proof)
    return repository, proof


def test_the_traps_do_fire_for_an_unguarded_git(hostile: tuple[Repository, Path]) -> None:
    """Otherwise the tests below would show nothing."""
    repository, proof = hostile
    environment = {"PATH": os.environ["PATH"], "HOME": os.devnull, **IDENTITY}
    subprocess.run(["git", "status"], cwd=repository.root, env=environment, capture_output=True, check=False)
    assert proof.exists()


def test_freezing_runs_nothing_that_the_repository_names(hostile: tuple[Repository, Path], tmp_path: Path) -> None:
    repository, proof = hostile
    (tmp_path / "home").mkdir()
    snapshot = take_snapshot(repository.root, SnapshotPaths(tmp_path / "home" / "s"), home=tmp_path / "home")
    assert snapshot.num_files == 4
    assert not proof.exists(), proof.read_text()


def test_an_object_that_a_partial_clone_lacks_is_not_fetched(hostile: tuple[Repository, Path], tmp_path: Path) -> None:
    repository, proof = hostile
    blob = gitinfo.read_state(repository.root, repository.root).head[b"a.py"].oid
    (repository.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (tmp_path / "home").mkdir()
    paths = SnapshotPaths(tmp_path / "home" / "s")
    take_snapshot(repository.root, paths, home=tmp_path / "home")
    assert not proof.exists(), proof.read_text()
    assert f"the committed version {blob} is too large, or not here".encode() in paths.patch.read_bytes()


def test_a_work_tree_that_the_configuration_moves_elsewhere_stays_where_it_is(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "source", {"a.py": "1"})
    (tmp_path / "elsewhere").mkdir()
    repository.git("config", "core.worktree", str(tmp_path / "elsewhere"))
    (tmp_path / "home").mkdir()
    snapshot = take_snapshot(repository.root, SnapshotPaths(tmp_path / "home" / "s"), home=tmp_path / "home")
    assert snapshot.left_out == ()
    assert snapshot.num_files == 1


def test_the_callers_environment_does_not_point_git_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_repository(tmp_path / "other", {"b.py": "1"})
    repository = make_repository(tmp_path / "source", {"a.py": "1"})
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git" / "index"))
    assert set(gitinfo.read_state(repository.root, repository.root).index) == {b"a.py"}


def test_a_linked_work_tree_is_read(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "source", {"a.py": "1"})
    repository.git("worktree", "add", "-q", str(tmp_path / "linked"), "-b", "topic")
    state = gitinfo.read_state(tmp_path / "linked", tmp_path / "linked")
    assert state.branch == "topic"
    assert set(state.index) == {b"a.py"}


def test_remotes_are_recorded_without_credentials(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "source")
    repository.git("remote", "add", "origin", "https://user:canary@host.example/repo.git?token=canary")
    repository.git("remote", "add", "mirror", "canary@host.example:repo.git")
    remotes = gitinfo.read_state(repository.root, repository.root).remotes
    assert remotes == {"origin": "https://host.example/repo.git", "mirror": "host.example:repo.git"}


def test_a_repository_of_another_user_is_refused_unless_the_user_trusts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "source")
    config = tmp_path / "gitconfig"
    config.write_text("")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setattr(os, "geteuid", lambda: repository.root.stat().st_uid + 4711)
    monkeypatch.setattr(gitinfo, "ROOT", 4712)
    with pytest.raises(ConfigError, match="belongs to another user"):
        gitinfo.read_state(repository.root, repository.root)
    config.write_text(f"[safe]\n\tdirectory = {repository.root}\n")
    gitinfo.read_state(repository.root, repository.root)


def test_a_repository_that_git_cannot_read_is_an_error(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "source", {"a.py": "1"})
    (repository.root / ".git" / "index").write_bytes(b"rubbish")
    with pytest.raises(InfrastructureError, match="git ls-files failed"):
        gitinfo.read_state(repository.root, repository.root)


def test_a_missing_git_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = make_repository(tmp_path / "source")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="git is not installed"):
        gitinfo.read_state(repository.root, repository.root)


def test_names_of_blobs_are_those_of_git(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "source", {"a.py": "content\n"})
    oid = repository.git("rev-parse", "HEAD:a.py").decode().strip()
    assert gitinfo.blob_oid(b"content\n", like=oid) == oid
