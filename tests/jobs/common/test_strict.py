from __future__ import annotations

import pytest

from jobs.common.strict import MOST_READABLE, parse_json, readable


@pytest.mark.parametrize(
    "text", [b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":Infinity}', b"\xff", b'"\\udce9"', b"{", b"[" * 100_000]
)
def test_json_that_is_not_strict_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_a_whole_pair_of_surrogates_is_a_character() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_a_reason_is_short_and_holds_nothing_that_a_terminal_obeys() -> None:
    assert readable("a\x1b[2J\x07\r\x9b\u202e\udce9\tb\n\N{GREEK SMALL LETTER ALPHA}") == (
        "a\\x1b[2J\\x07\\r\\x9b\\u202e\\udce9\tb\n\N{GREEK SMALL LETTER ALPHA}"
    )
    text = readable("a" * 3_000_000 + "end")
    assert len(text) < MOST_READABLE + 100
    assert text.endswith("a [... 2980003 characters ...] " + "a" * (MOST_READABLE // 2 - 3) + "end")
