from __future__ import annotations

import pytest

from jobs.common.strict import parse_json


@pytest.mark.parametrize(
    "text", [b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":Infinity}', b"\xff", b'"\\udce9"', b"{", b"[" * 100_000]
)
def test_json_that_is_not_strict_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_a_whole_pair_of_surrogates_is_a_character() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"
