"""Small git repositories for tests, untouched by the configuration of whoever runs them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

IDENTITY = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_ALLOW_PROTOCOL": "file",
}


@dataclass(frozen=True, slots=True)
class Repository:
    """A git work tree."""

    root: Path

    def git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run git in the work tree and return what it printed."""
        environment = {"PATH": os.environ["PATH"], "HOME": os.devnull, **IDENTITY}
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, env=environment, input=stdin, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def write(self, files: dict[str, bytes | str]) -> None:
        """Write files, with the folders that they need."""
        write_files(self.root, files)

    def commit(self, files: dict[str, bytes | str] | None = None) -> None:
        """Write files and commit everything."""
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change", "--allow-empty")


def write_files(root: Path, files: dict[str, bytes | str]) -> None:
    """Write files below a folder, with the folders that they need."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def make_repository(root: Path, files: dict[str, bytes | str] | None = None) -> Repository:
    """Create a repository with one commit."""
    root.mkdir(parents=True)
    repository = Repository(root)
    repository.git("init", "-q", "-b", "main")
    repository.commit(files)
    return repository
