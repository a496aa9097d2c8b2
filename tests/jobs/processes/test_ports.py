"""The port at which the processes of a side meet."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from jobs.processes import ranks


def test_the_port_is_none_that_the_kernel_gives_to_others(tmp_path: Path) -> None:
    given = tmp_path / "range"
    given.write_text("15003\t60999\n")
    found = {ranks.find_free_port(ranks.LOOPBACK, given) for _ in range(50)}
    assert found <= {15_000, 15_001, 15_002}


@pytest.mark.parametrize("text", ["", "words", "1024 60999"])
def test_a_kernel_that_says_nothing_of_use_is_taken_for_a_usual_one(tmp_path: Path, text: str) -> None:
    given = tmp_path / "range"
    given.write_text(text)
    assert 15_000 <= ranks.find_free_port(ranks.LOOPBACK, given) < 32_768


def test_a_port_on_which_somebody_listens_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free = ranks.find_free_port(ranks.LOOPBACK)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as taken:
        while True:
            port = ranks.find_free_port(ranks.LOOPBACK)
            if port != free:
                break
        taken.bind((ranks.LOOPBACK, port))
        taken.listen()
        wanted = iter([port, port, free])
        monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: next(wanted))
        assert ranks.find_free_port(ranks.LOOPBACK, tmp_path / "absent") == free


def test_no_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as taken:
        port = ranks.find_free_port(ranks.LOOPBACK)
        taken.bind((ranks.LOOPBACK, port))
        taken.listen()
        monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: port)
        with pytest.raises(OSError, match="none of 100 ports"):
            ranks.find_free_port(ranks.LOOPBACK)
