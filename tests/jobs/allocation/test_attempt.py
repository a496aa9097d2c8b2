from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from jobs.allocation import attempt
from jobs.allocation.context import Context
from jobs.allocation.kinds import Made
from jobs.common.endings import Ending, InterruptedAttemptError
from jobs.common.layout import AttemptFolder
from jobs.common.plan import parse_allocation
from tests.support.plans import plan_text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_for_the_harness_ends_the_attempt_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(attempt, "run_sides", lambda *_arguments: None)
    monkeypatch.setattr(attempt, "_write_tables", refuse)
    planned = parse_allocation(plan_text(), "a1").attempts[0]
    seen: list[str] = []

    def is_full(_found: object) -> bool:
        return bool(seen) and seen[-1] == "home"

    monkeypatch.setattr(attempt, "is_full", is_full)
    workspace = SimpleNamespace(is_full=lambda: seen[-1] == "node")
    context = cast("Context", SimpleNamespace(allocation=SimpleNamespace(home=tmp_path), workspace=workspace))
    for full, words in (("home", attempt.HOME_IS_FULL), ("node", "private folders is full"), ("", "")):
        seen.append(full)
        ending, reason = attempt._conduct(context, planned, AttemptFolder(tmp_path), Made())
        assert ending is Ending.NO_SPACE
        assert os.strerror(number) in reason
        assert reason.endswith(words or os.strerror(number))


@pytest.mark.parametrize(
    ("then", "shown"), [("", "SIGUSR2: near"), ("crash: exit code 3", "SIGUSR2: near; then crash: exit code 3")]
)
def test_how_a_side_ended_after_a_signal_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, shown: str
) -> None:
    def interrupt(*_arguments: object) -> None:
        raise InterruptedAttemptError("SIGUSR2", then=then)

    monkeypatch.setattr(attempt, "run_sides", interrupt)
    planned = parse_allocation(plan_text(), "a1").attempts[0]
    signals = SimpleNamespace(meaning=lambda: (Ending.TIME_LIMIT, "SIGUSR2: near"))
    context = cast("Context", SimpleNamespace(signals=signals))
    assert attempt._conduct(context, planned, AttemptFolder(tmp_path), Made()) == (Ending.TIME_LIMIT, shown)
