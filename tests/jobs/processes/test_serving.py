"""What the reason of a side's exception shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.processes import serving
from jobs.worker.worker import Worker

SIDE = "def updates(n):\n    return 1 / n\n"


def side_function() -> Callable[[int], Any]:
    found: dict[str, Any] = {}
    exec(compile(SIDE, "/private/side.py", "exec"), found)  # noqa: S102 - stands for a side's module
    function: Callable[[int], Any] = found["updates"]
    return function


class Adapter:
    updates = staticmethod(lambda n: side_function()(n - n))


def answer(worker: Worker, command: dict[str, Any]) -> str:
    return str(serving._answer(worker, {"id": 1, **command})["error"]["text"])


def test_a_crash_is_told_from_where_the_sides_own_code_begins(capsys: pytest.CaptureFixture[str]) -> None:
    worker = Worker()
    worker._adapter = Adapter()
    text = answer(worker, {"do": "updates", "n": 3})
    assert "/jobs/processes/serving.py" not in text
    assert "/jobs/worker/worker.py" not in text
    assert text.rstrip().endswith("ZeroDivisionError: division by zero")
    assert '"/private/side.py", line 2' in text
    # The log has all of it.
    assert "worker.py" in capsys.readouterr().err


def test_an_error_of_the_harness_alone_shows_its_own_frames(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(Worker(), {"do": "fill"})
    assert "worker.py" in text
    assert capsys.readouterr().err.count("Traceback") == 1
