from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import cast

import pytest

from jobs.allocation import attempt
from jobs.allocation.context import Context
from jobs.allocation.kinds import Made
from jobs.common.endings import Ending
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
    ending, reason = attempt._conduct(cast("Context", None), planned, AttemptFolder(tmp_path), Made())
    assert ending is Ending.NO_SPACE
    assert os.strerror(number) in reason
