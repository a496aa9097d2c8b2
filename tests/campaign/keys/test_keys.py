"""The names of tries."""

from __future__ import annotations

import pytest

from campaign.keys import AttemptKey


@pytest.mark.parametrize(
    ("key", "name", "text"),
    [
        (AttemptKey("baseline/pilot/w", 1), "baseline/pilot/w/1", "baseline/pilot/w attempt 1"),
        (AttemptKey("c0/pair/7/r2", 12), "c0/pair/7/r2/12", "c0/pair/7/r2 attempt 12"),
        (AttemptKey("c0/pilot/run", 3), "c0/pilot/run/3", "c0/pilot/run attempt 3"),
        (AttemptKey("c0/run/r/s45", 2, 3), "c0/run/r/s45/2/3", "c0/run/r/s45 attempt 2 segment 3"),
    ],
)
def test_a_receipts_name_parses_to_its_key(key: AttemptKey, name: str, text: str) -> None:
    assert key.receipt_name == name
    assert key.text == text
    assert AttemptKey.parse(name) == key


@pytest.mark.parametrize(
    "name",
    ["", "baseline", "baseline/pilot/w", "baseline/pilot/w/0", "baseline/pilot/w/01", "c0/run/r/s45/1", "c0/run/r/s45",
     "c0/run/r/s45/1/0", "c0/run/r/s45/1/2/3", "baseline/pilot/w/1\n", "baseline/pilot/w/-1"],
)  # fmt: skip
def test_what_names_no_receipt_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a receipt"):
        AttemptKey.parse(name)


def test_keys_are_in_the_order_of_their_numbers() -> None:
    keys = [AttemptKey("s", 2, 1), AttemptKey("s", 1, 10), AttemptKey("s", 1, 2)]

    assert sorted(keys) == [AttemptKey("s", 1, 2), AttemptKey("s", 1, 10), AttemptKey("s", 2, 1)]
