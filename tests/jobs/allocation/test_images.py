from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from jobs.allocation.images import Images
from jobs.common.endings import EndedError, Ending
from jobs.common.plan import Container
from jobs.common.storage import nothing

DATA = b"an image" * (1 << 18)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.sif"
    path.write_bytes(DATA)
    return path


def frozen(path: Path) -> Container:
    return Container(path=path, num_bytes=len(DATA), sha256=hashlib.sha256(DATA).hexdigest())


def refusal(images: Images, container: Container) -> str:
    with pytest.raises(EndedError) as caught:
        images.check(container, nothing)
    assert caught.value.ending is Ending.SNAPSHOT_CHANGED
    assert str(container.path) in caught.value.reason
    return caught.value.reason


def test_an_image_is_read_once_in_a_job_and_a_side_without_one_has_none(image: Path) -> None:
    pieces: list[None] = []
    images = Images()
    for _ in range(3):
        assert images.check(frozen(image), lambda: pieces.append(None)) == frozen(image).sha256
    assert len(pieces) == len(DATA) >> 20
    assert images.check(None, nothing) == ""


def test_an_image_that_is_not_the_frozen_one_is_refused(image: Path) -> None:
    image.write_bytes(b"A" + DATA[1:])
    assert "its SHA-256 is" in refusal(Images(), frozen(image))
    image.write_bytes(DATA[1:])
    assert f"has {len(DATA) - 1} bytes" in refusal(Images(), frozen(image))
    image.unlink()
    assert "No such file" in refusal(Images(), frozen(image))


def test_an_image_that_was_touched_since_it_was_hashed_is_refused(image: Path) -> None:
    images = Images()
    images.check(frozen(image), nothing)
    before = image.stat()
    image.write_bytes(DATA)
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "time of status change changed since it was hashed" in refusal(images, frozen(image))


def test_an_image_that_changes_while_it_is_hashed_is_refused(image: Path) -> None:
    images = Images()
    with pytest.raises(EndedError, match="it changed while it was read") as caught:
        images.check(frozen(image), lambda: os.utime(image))
    assert caught.value.ending is Ending.SNAPSHOT_CHANGED
    assert images.check(frozen(image), nothing)


def test_a_link_may_lead_to_the_image_but_not_to_another_one_later(image: Path) -> None:
    link, copy = image.with_name("link"), image.with_name("copy")
    copy.write_bytes(DATA)
    link.symlink_to(image)
    images = Images()
    assert images.check(frozen(link), nothing)
    link.unlink()
    link.symlink_to(copy)
    assert f"leads to {copy}" in refusal(images, frozen(link))


def test_hashing_ends_when_the_job_is_told_to_stop(image: Path) -> None:
    def stop() -> None:
        raise EndedError(Ending.CANCELLED, "told to stop")

    images = Images()
    with pytest.raises(EndedError, match="told to stop"):
        images.check(frozen(image), stop)
    assert images.check(frozen(image), nothing)
