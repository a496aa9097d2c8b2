"""The identity of the image file that a side runs in: what its bytes are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from campaign import files
from campaign.config.values import CONTAINER_REFERENCE
from campaign.documents import Container
from campaign.errors import ConfigError


def read_container(path: Path) -> Container:
    """Hash an image file.

    Args:
        path: The file; a link to one is followed, and hashed again under the same path wherever the side runs.

    Raises:
        ConfigError: It is missing, unreadable, empty or no file, or it changes meanwhile.
    """
    try:
        if not path.is_file():
            raise ConfigError(
                f"the container {path} is {'a folder' if path.is_dir() else 'not there'}",
                why="what is frozen of a container is the digest of one image file",
                hint="build the image as one file first (.sif, .sqsh), or correct its path",
            )
        before = path.stat()
        sha256 = files.sha256_file(path)
        after = path.stat()
    except OSError as error:
        raise ConfigError(f"the container {path} cannot be read: {error.strerror}") from error
    if (before.st_size, before.st_mtime_ns, before.st_ino) != (after.st_size, after.st_mtime_ns, after.st_ino):
        raise ConfigError(f"the container {path} changed while it was hashed", hint="freeze again once it is complete")
    if after.st_size == 0:
        raise ConfigError(f"the container {path} is an empty file", hint="build the image first")
    return Container(path=str(path), bytes=after.st_size, sha256=sha256)


def resolve_launch(launch: Sequence[str], container: Container | None) -> tuple[str, ...]:
    """Return a launch prefix with the image's path in the place of every ``${container}``."""
    if container is None:
        return tuple(launch)
    return tuple(part.replace(CONTAINER_REFERENCE, container.path) for part in launch)
