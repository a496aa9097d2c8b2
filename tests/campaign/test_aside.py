"""Work that a second process does meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign import aside

PARENT = """
import os, sys, time
from campaign import aside
def produce():
    yield str(os.getpid()).encode()
    while True:
        time.sleep(600)
with aside.told(produce) as messages:
    print(next(messages).decode(), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "is_worthwhile", lambda: True)


def test_messages_of_any_size_come_in_order_from_another_process() -> None:
    def produce() -> Iterator[bytes]:
        yield b""
        yield b"x" * 3_000_000
        yield str(os.getpid()).encode()

    with aside.told(produce) as messages:
        first, second, number = messages
    assert (first, second) == (b"", b"x" * 3_000_000)
    assert int(number) != os.getpid()


def test_a_copy_that_fails_ends_the_messages_and_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def produce() -> Iterator[bytes]:
        yield b"whole"
        raise RuntimeError("of the copy")

    with aside.told(produce) as messages:
        assert list(messages) == [b"whole"]
    assert capfd.readouterr().err == ""


def test_a_copy_that_has_more_to_say_is_gone_at_the_end() -> None:
    def produce() -> Iterator[bytes]:
        yield str(os.getpid()).encode()
        while True:
            yield b"x" * 1_000_000

    with aside.told(produce) as messages:
        copy = int(next(messages))
    with pytest.raises(ProcessLookupError):
        os.kill(copy, 0)


def test_without_a_second_processor_there_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    with aside.told(lambda: [b"told"]) as messages:
        assert list(messages) == []


def test_a_process_with_another_thread_is_not_copied() -> None:
    script = """if True:
        import os, threading
        from campaign import aside
        os.sched_getaffinity = lambda pid: {0, 1}
        alone, end = aside.is_worthwhile(), threading.Event()
        other = threading.Thread(target=end.wait)
        other.start()
        print(alone, aside.is_worthwhile())
        end.set()
    """
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"True False\n"


def is_running(number: int) -> bool:
    """Return whether a process runs; one that ended may wait for somebody to take note of it."""
    try:
        return Path(f"/proc/{number}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_copy_dies_with_its_parent() -> None:
    script = f"from campaign import aside; aside.is_worthwhile = lambda: True\n{PARENT}"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        copy = int(parent.stdout.readline())
        parent.kill()
        # The pipe of its output is closed once nobody has it open, the copy included.
        assert parent.stdout.read() == b""
    while is_running(copy):  # it has closed everything, and is about to be gone
        os.sched_yield()
