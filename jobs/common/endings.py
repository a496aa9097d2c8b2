"""How an attempt can end as far as the harness can tell, and the exception that carries an ending."""

from __future__ import annotations

import enum
import errno


class Ending(enum.StrEnum):
    """The endings that the harness writes. docs/harness.md says when."""

    COMPLETED = "completed"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    LOST = "lost"
    NO_SPACE = "no_space"
    TIME_LIMIT = "time_limit"
    WINDOW_SHORT = "window_short"
    CRASH = "crash"
    HANG = "hang"
    NO_RESULT = "no_result"
    NON_FINITE = "non_finite"
    RUBBISH = "rubbish"
    OUTPUT_FLOOD = "output_flood"
    CLOCK_DISAGREEMENT = "clock_disagreement"
    COUNT_DISAGREEMENT = "count_disagreement"
    FOREIGN_IMPORT = "foreign_import"
    UNDECLARED_INPUT = "undeclared_input"
    SNAPSHOT_CHANGED = "snapshot_changed"
    DATA_CHANGED = "data_changed"
    ADAPTER_INCOMPLETE = "adapter_incomplete"
    INTERFERENCE = "interference"
    STATE_MISMATCH = "state_mismatch"
    CHECKPOINT_REFUSED = "checkpoint_refused"
    HARNESS_ERROR = "harness_error"


class EndedError(Exception):
    """An attempt ends here, other than completed.

    Args:
        ending: How.
        reason: What a person needs to know, in one or a few lines.
    """

    def __init__(self, ending: Ending, reason: str) -> None:
        super().__init__(f"{ending}: {reason}")
        self.ending = ending
        self.reason = reason


class InterruptedAttemptError(Exception):
    """The allocation was told to stop: nothing further runs in it. What that means is asked once the side is dead.

    Args:
        text: What was heard.
        then: How the side ended after it, where it did so by itself.
    """

    def __init__(self, text: str, then: str = "") -> None:
        super().__init__(f"{text}, then {then}" if then else text)
        self.then = then


def is_no_space(error: BaseException) -> bool:
    """Return whether an error says that a disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
