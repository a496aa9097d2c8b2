from __future__ import annotations

import pytest

from campaign.verifier import strict
from campaign.verifier.findings import EvidenceError

DEEP = b'{"a":' + b"[" * 70 + b"]" * 70 + b"}"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a": 1, "a": 2}', "duplicate key 'a'"),
        (b'{"a": {"b": 1, "b": 1}}', "duplicate key 'b'"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": -Infinity}', "-Infinity is not a number"),
        (b'{"a": 1e999}', "not a finite number"),
        (b'{"a": "\xff"}', "utf-8"),
        (b"\xef\xbb\xbf{}", "Expecting value"),
        (b'{"a": 1} x', "Extra data"),
        (b'{"a": 1', "delimiter"),
        (b"", "Expecting value"),
        (b"[1]", "a list where an object"),
        (b"null", "null where an object"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
        (DEEP, "nested more than 64 deep"),
        (b"[" * 100_000, "not a valid JSON document"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_with_its_place(data: bytes, why: str) -> None:
    with pytest.raises(EvidenceError) as caught:
        strict.read(data, "x.json")
    assert caught.value.where == "x.json"
    assert why in caught.value.what


def test_what_is_nested_as_deep_as_allowed_is_read() -> None:
    text = b'{"a":' * 63 + b"[]" + b"}" * 63
    assert strict.parse(text + b" ", "x.json")


def node(text: str) -> strict.Node:
    return strict.read(text.encode(), "x.json")


def test_a_field_is_named_by_its_place() -> None:
    document = node('{"sides": [{"path": 3}]}')
    (side,) = document["sides"].items()
    with pytest.raises(EvidenceError, match=r"^x.json: sides\[0\].path: is a whole number where a text should be$"):
        side["path"].as_text()
    with pytest.raises(EvidenceError, match=r"sides\[0\]: has no field 'mode'"):
        side["mode"]


@pytest.mark.parametrize("value", ["true", "1.0", '"1"', "null", "[]", "{}", "-1"])
def test_only_a_whole_number_is_one(value: str) -> None:
    with pytest.raises(EvidenceError):
        node(f'{{"n": {value}}}')["n"].as_whole()


@pytest.mark.parametrize("value", ["true", '"1"', "null", "1" + "0" * 400])
def test_only_a_number_is_one(value: str) -> None:
    with pytest.raises(EvidenceError):
        node(f'{{"n": {value}}}')["n"].as_number()


@pytest.mark.parametrize("value", ["0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 64 + "\\n"])
def test_only_a_digest_is_one(value: str) -> None:
    with pytest.raises(EvidenceError):
        node(f'{{"n": "{value}"}}')["n"].as_digest()


def test_true_is_not_one() -> None:
    with pytest.raises(EvidenceError, match="is true, the plan says 1"):
        node('{"n": true}')["n"].must_be(1, "the plan")
    node('{"n": 1}')["n"].must_be(1, "the plan")


def test_an_absent_field_and_a_null_one_are_optional_alike_but_known_apart() -> None:
    document = node('{"a": null}')
    assert document.get("a") is None
    assert document.get("b") is None
    assert document.has("a")
    assert not document.has("b")


def test_an_unknown_field_is_refused_where_asked() -> None:
    with pytest.raises(EvidenceError, match="unknown field 'b'"):
        node('{"a": 1, "b": 2}').only(["a"])


def test_an_unknown_format_says_what_to_do() -> None:
    with pytest.raises(EvidenceError, match=r"has the format 'seal/9', which this verifier does not know"):
        node('{"format": "seal/9"}').format("seal/1")
