"""A home whose file system is full: each command says so, loses nothing, and goes on once there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cli import expect, run_campaign
from tests.support.small import freeze_both, no_process_left, run_all, write_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SIZE_BYTES = 160 << 20
ROOMS_BYTES = (0, 4 << 10, 16 << 10, 64 << 10, 256 << 10)
"""What is left of the file system while a command runs."""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    monkeypatch.setenv("CAMPAIGN_REGISTRY", str(tmp_path / "registry.jsonl"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "campaign-test", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if os.environ.get("CI"):
            raise AssertionError(f"cannot mount a file system: {done.stderr}")
        pytest.skip(f"cannot mount a file system: {done.stderr.strip()}")
    with no_process_left(tmp_path):
        yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def nearly_full(disk: Path, room_bytes: int) -> Iterator[None]:
    """Fill a file system but for some room, to the last page."""
    ballast = disk / "ballast"
    free = shutil.disk_usage(disk).free - room_bytes
    with ballast.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, max(free, 1))
    try:
        yield
    finally:
        ballast.unlink()


def expect_no_room(*arguments: str | Path, done_is_fine: bool) -> bool:
    """Run a command on the full disk; return whether it had room enough after all."""
    done = run_campaign(*arguments)
    assert "Traceback" not in done.stderr, done.stderr
    if done_is_fine and done.returncode in (0, 4):
        return True
    assert done.returncode == 6, (arguments, done.returncode, done.stderr)
    assert "No space left" in done.stderr or "space" in done.stderr, done.stderr
    return False


def try_all(disk: Path, arguments: Sequence[str | Path]) -> None:
    """Run a command with less and more room; with none at all it must say so."""
    for room_bytes in ROOMS_BYTES:
        with nearly_full(disk, room_bytes):
            if expect_no_room(*arguments, done_is_fine=room_bytes > 0):
                return


def test_a_campaign_on_a_disk_that_fills_up_goes_on_when_there_is_room(disk: Path, tmp_path: Path) -> None:
    config = write_project(tmp_path / "project")
    home = disk / "home"
    try_all(disk, ["freeze", config, "--home", home])
    done = run_campaign("freeze", config, "--home", home)
    assert done.returncode == 0 or "is frozen here already" in done.stderr, done.stderr
    try_all(disk, ["freeze", "--candidate", "--config", config, "--home", home])
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    submit: list[str | Path] = ["submit", "--home", home, "--cluster", "local", "--wait", "--yes"]
    for room_bytes in ROOMS_BYTES[:2]:
        with nearly_full(disk, room_bytes):
            expect_no_room(*submit, done_is_fine=True)
    expect(0, *submit)
    try_all(disk, ["collect", "--home", home])
    expect(0, "collect", "--home", home)
    try_all(disk, ["report", "--home", home])
    expect(0, "report", "--home", home)
    expect(0, "verify", "--home", home)


def test_a_harness_without_room_gives_no_evidence_and_the_slot_is_tried_again(disk: Path, tmp_path: Path) -> None:
    config = write_project(tmp_path / "project")
    home = disk / "home"
    freeze_both(config, home)
    with nearly_full(disk, 300 << 10):
        done = run_campaign("submit", "--home", home, "--cluster", "local", "--wait", "--yes")
        assert "Traceback" not in done.stderr, done.stderr
    run_all(home)
    expect(0, "report", "--home", home)
    expect(0, "verify", "--home", home)
