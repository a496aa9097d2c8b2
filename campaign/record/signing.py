"""Signing a head line with ssh-keygen: the signature lies outside the home, or it would be one more file to rewrite."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from campaign import files
from campaign.errors import ConfigError, InfrastructureError, StateError
from campaign.paths import HomePaths

NAMESPACE = "campaign-head"
SUFFIX = ".sig"
TIMEOUT_S = 300.0
"""A person may have to type a passphrase, or touch a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Who signs, and where the signature goes."""

    key: Path
    """A private key, or the public one of a key that an agent holds."""
    signature: Path

    @property
    def line(self) -> Path:
        """The file beside the signature that holds what was signed."""
        return self.signature.with_suffix("")


def prepare(paths: HomePaths, key: Path, signature: Path) -> Signer:
    """Make sure that a signature can be made, before anything is closed.

    Args:
        paths: The home.
        key: The key.
        signature: Where the signature shall go.

    Raises:
        ConfigError: A path cannot be used.
        StateError: The signature would lie in the home, or something is there already.
        InfrastructureError: ssh-keygen is not installed.
    """
    if signature.suffix != SUFFIX:
        raise ConfigError(f"the name of a signature ends with {SUFFIX}", where=str(signature))
    if not key.is_file():
        raise ConfigError("there is no such key", where=str(key), hint="ssh-keygen -t ed25519 -f KEY")
    if not signature.parent.is_dir():
        raise ConfigError("there is no such folder", where=str(signature.parent))
    if signature.resolve().is_relative_to(paths.root.resolve()):
        raise StateError(
            "a signature in the home proves nothing",
            where=str(signature),
            why="whoever can rewrite the home could replace it too",
            hint="--signature FILE in another folder, or run the command elsewhere",
        )
    signer = Signer(key=key, signature=signature)
    for path in (signer.signature, signer.line):
        if os.path.lexists(path):
            raise StateError("it is there already", where=str(path), hint="--signature FILE with another name")
    if shutil.which("ssh-keygen") is None:
        raise InfrastructureError("ssh-keygen is not installed here", hint="install openssh-client")
    return signer


def sign(signer: Signer, line: str) -> None:
    """Sign a head line, and write line and signature.

    Args:
        signer: From `prepare`.
        line: The line, without its newline.

    Raises:
        InfrastructureError: ssh-keygen does not sign, or something cannot be written.
    """
    data = f"{line}\n".encode("ascii")
    try:
        done = subprocess.run(
            ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(signer.key)],
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unsigned(signer, str(error)) from error
    if done.returncode != 0 or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise _unsigned(signer, said[-1])
    files.write_new(signer.line, data)
    files.write_new(signer.signature, done.stdout)


def _unsigned(signer: Signer, why: str) -> InfrastructureError:
    return InfrastructureError(
        "the campaign is closed, but the head line was not signed",
        where=str(signer.key),
        why=why,
        hint="campaign seal --sign KEY signs the same line again",
    )
