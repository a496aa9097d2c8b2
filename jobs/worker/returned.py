"""What an adapter's methods may return: anything else is rubbish, and never converted."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..common.strict import MOST_COUNT, plain_unicode
from ..processes.serving import SideError

MOST_PROGRESS = 1000
"""Entries of what ``progress`` returns."""
MOST_EXAMPLES = 1 << 17
"""Examples that one process takes in one update."""
MOST_TEXT = 10_000
"""Characters of a name or text in it."""


def _shown(value: Any) -> str:
    # Python refuses to write out an integer of thousands of digits.
    return (
        f"an int of {value.bit_length()} bits" if type(value) is int and abs(value) > MOST_COUNT else f"{value!r:.100}"
    )


def check_counts(value: Any) -> dict[str, int]:
    """Return what ``updates`` returned, by name.

    Raises:
        SideError: It is not four integers, none of them negative or too large to be one.
    """
    names = ("updates", "microbatches", "skipped", "tokens")
    if not isinstance(value, (tuple, list)) or len(value) != len(names):
        raise SideError("rubbish", f"updates() returned {value!r:.200}, not (updates, microbatches, skipped, tokens)")
    for name, item in zip(names, value, strict=True):
        # A bool is an int, and an array's integer converts: both are mistakes worth finding.
        if type(item) is not int or not 0 <= item <= MOST_COUNT:
            raise SideError("rubbish", f"updates() returned {_shown(item)} as {name}, not a non-negative int")
    return dict(zip(names, value, strict=True))


def check_loss(value: Any) -> str:
    """Return the loss as text; JSON has none for what is not finite.

    Raises:
        SideError: It is no float.
    """
    if not isinstance(value, float):
        raise SideError("rubbish", f"loss() returned {value!r:.100} of type {type(value).__name__}, not a float")
    return repr(float(value))


def check_engaged(value: Any) -> dict[str, int | str]:
    """Return what ``engaged`` returned.

    Raises:
        SideError: It is not a dict of texts to int or str.
    """
    if not isinstance(value, dict):
        raise SideError("rubbish", f"engaged() returned a {type(value).__name__}, not a dict")
    for key, item in value.items():
        if type(key) is not str or type(item) not in (int, str):
            raise SideError("rubbish", f"engaged() returned {key!r:.100}: {item!r:.100}, not str: int or str")
        if type(item) is int and abs(item) > MOST_COUNT:
            raise SideError("rubbish", f"engaged() returned {_shown(item)} as {key!r:.100}")
    return dict(value)


def check_evaluation(value: Any) -> tuple[str, int]:
    """Return what ``evaluate`` returned: nats as text, as JSON has none for what is not finite, and targets.

    Raises:
        SideError: It is not a float and a count.
    """
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise SideError("rubbish", f"evaluate() returned {value!r:.200}, not (nats, targets)")
    nats, targets = value
    if not isinstance(nats, float):
        raise SideError("rubbish", f"evaluate() returned nats {nats!r:.100} of type {type(nats).__name__}, not a float")
    if type(targets) is not int or not 0 <= targets <= MOST_COUNT:
        raise SideError("rubbish", f"evaluate() returned {_shown(targets)} as targets, not a non-negative int")
    return repr(float(nats)), targets


def check_progress(value: Any) -> dict[str, int | float | str]:
    """Return what ``progress`` returned: nothing of it may change on its way to a document and back.

    Raises:
        SideError: It is not a dict of texts to int, float or str, is too large, or holds what no document can.
    """
    if not isinstance(value, dict):
        raise SideError("rubbish", f"progress() returned a {type(value).__name__}, not a dict")
    if len(value) > MOST_PROGRESS:
        raise SideError("rubbish", f"progress() returned {len(value)} entries, more than {MOST_PROGRESS}")
    for key, item in value.items():
        if problem := _progress_problem(key, item):
            raise SideError("rubbish", f"progress() returned {_shown(item)} as {key!r:.100}: {problem}")
    return dict(value)


def _progress_problem(key: Any, item: Any) -> str:
    if type(key) is not str or type(item) not in (int, float, str):
        return "not str: int, float or str"
    if type(item) is int and abs(item) > MOST_COUNT:
        return "too large a number"
    if type(item) is float and not math.isfinite(item):
        return "not finite"
    texts = [text for text in (key, item) if type(text) is str]
    if any(len(text) > MOST_TEXT for text in texts):
        return f"more than {MOST_TEXT} characters"
    return "" if all(plain_unicode(text) == text for text in texts) else "not what UTF-8 can hold"


def check_examples(value: Any) -> list[int]:
    """Return what ``examples`` yielded.

    Raises:
        SideError: It is no iterable of integers, or of too many.
    """
    try:
        found = list(itertools.islice(iter(value), MOST_EXAMPLES + 1))
    except TypeError as error:
        raise SideError("rubbish", f"examples() returned a {type(value).__name__}, which cannot be iterated") from error
    if len(found) > MOST_EXAMPLES:
        raise SideError("rubbish", f"examples() yielded more than {MOST_EXAMPLES} for one step")
    for item in found:
        if type(item) is not int or abs(item) > MOST_COUNT:
            raise SideError("rubbish", f"examples() yielded {_shown(item)}, not an int")
    return found
