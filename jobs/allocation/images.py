"""Whether the image files that sides run in are the ones that were frozen: hashed once in a job, then looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..common.endings import EndedError, Ending
from ..common.plan import Container
from ..common.verified import VerifiedFile, find_difference, identify, verify


@dataclass(frozen=True, slots=True)
class Images:
    """The images that this job has seen."""

    _seen: dict[Container, VerifiedFile] = field(default_factory=dict)
    """By where they really lie."""

    def check(self, container: Container | None, between: Callable[[], None]) -> str:
        """Return the digest of an image that is as it was frozen; empty where a side has none.

        Args:
            container: The image.
            between: Called between pieces of the file.

        Raises:
            EndedError: It is not the frozen one, or was touched since it was hashed.
        """
        if container is None:
            return ""
        try:
            if container not in self._seen:
                self._seen[container] = _hashed(container, between)
            else:
                _look_again(container, self._seen[container])
        except OSError as error:
            raise _changed(container, str(error)) from error
        return container.sha256


def _changed(container: Container, what: str) -> EndedError:
    return EndedError(Ending.SNAPSHOT_CHANGED, f"the container {container.path}: {what}")


def _hashed(container: Container, between: Callable[[], None]) -> VerifiedFile:
    path = container.path.resolve(strict=True)
    if (num_bytes := path.stat().st_size) != container.num_bytes:
        raise _changed(container, f"has {num_bytes} bytes, frozen were {container.num_bytes}")
    found = verify(path, between)
    if found.sha256 != container.sha256:
        raise _changed(container, f"its SHA-256 is {found.sha256}, frozen is {container.sha256}")
    return found


def _look_again(container: Container, seen: VerifiedFile) -> None:
    path = container.path.resolve(strict=True)
    if path != seen.path:
        raise _changed(container, f"leads to {path}, before it led to {seen.path}")
    if touched := find_difference(seen.identity, identify(path.stat())):
        raise _changed(container, f"its {touched} changed since it was hashed")
