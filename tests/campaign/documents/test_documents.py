"""The typed documents: what they refuse, and that what is written can be read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance import convergence_rules
from campaign import documents
from campaign.documents import DataIdentity, Ended, Entry, Receipt, Recipe, Slot
from campaign.errors import EvidenceError
from campaign.planning.outlook import num_points

SLOT: dict[str, Any] = {
    "slot": "candidate/pair/a/r1",
    "side": "candidate",
    "phase": "throughput",
    "kind": "pair",
    "workload": "a",
    "repeat": 1,
    "pair": 1,
    "order": ["baseline", "candidate"],
}
ENDED: dict[str, Any] = {
    "allocation": "x", "reason": "done", "at": 1.5, "wall_s": 2.5, "sides_s": 2, "overhead_s": 0.5, "receipts": {}
}  # fmt: skip


def parse(kind: type[documents.Document], value: Any) -> documents.Document:
    return kind.parse(json.dumps(value).encode(), where="file")


def test_a_document_reads_back_as_it_was_written() -> None:
    slot = parse(Slot, SLOT)
    assert slot.to_json() == SLOT
    assert Slot.parse(slot.to_bytes(), where="file") == slot == Slot.of(SLOT)
    assert slot.to_bytes() == (json.dumps(SLOT, indent=2, sort_keys=True) + "\n").encode()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"repeat": True}, "repeat: Expected `int`, got `bool`"),
        ({"repeat": 1.0}, "repeat: Expected `int`, got `float`"),
        ({"repeat": "1"}, "repeat: Expected `int`, got `str`"),
        ({"repeat": -1}, "repeat: Expected `int` >= 0"),
        ({"order": "baseline"}, "order: Expected `array`, got `str`"),
        ({"order": ["baseline", "both"]}, "order[1]: Invalid enum value 'both'"),
        ({"workload": None}, "workload: Expected `str`, got `null`"),
        ({"extra": 1}, "Object contains unknown field `extra`"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(EvidenceError) as caught:
        parse(Slot, SLOT | change)
    assert (caught.value.what, caught.value.where) == (reason, "file")
    with pytest.raises(ValueError, match=r"\w"):
        Slot.of(SLOT | change)


@pytest.mark.parametrize("field", SLOT)
def test_a_missing_field_is_refused(field: str) -> None:
    with pytest.raises(EvidenceError, match=f"missing required field `{field}`"):
        parse(Slot, {name: value for name, value in SLOT.items() if name != field})


def test_a_whole_number_may_stand_for_a_float_but_a_truth_value_may_not() -> None:
    ended = parse(Ended, ENDED)
    assert isinstance(ended, Ended)
    assert isinstance(ended.sides_s, float)
    with pytest.raises(EvidenceError, match="sides_s: Expected `float`, got `bool`"):
        parse(Ended, ENDED | {"sides_s": True})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"path": "a", "path": "b", "sha256": "", "bytes": 1, "files": 1}', "duplicate key 'path'"),
        ('{"path": "a", "sha256": "", "bytes": NaN, "files": 1}', "NaN is not a number"),
        ('{"path": "\xff", "sha256": "", "bytes": 1, "files": 1}', "utf-8"),
        ('{"path": "a", "sha256": "", "bytes": 1, "files": 1} x', "Extra data"),
        ("[" * 100000, "recursion"),
        ("[]", "Expected `object`, got `array`"),
        ("", "Expecting value"),
    ],
)
def test_bytes_that_are_no_such_document_are_refused(text: str, reason: str) -> None:
    with pytest.raises(EvidenceError, match=reason):
        DataIdentity.parse(text.encode("latin-1"), where="file")


def test_a_number_beyond_a_float_is_refused() -> None:
    with pytest.raises(EvidenceError, match="at: Number out of range"):
        Ended.parse(json.dumps(ENDED).replace("1.5", "1e999").encode(), where="file")


def test_another_format_is_refused() -> None:
    with pytest.raises(EvidenceError, match="format: Invalid enum value 'ended/2'"):
        parse(Ended, ENDED | {"format": "ended/2"})


@pytest.mark.parametrize(
    "slot",
    [Slot.of(SLOT).replace(repeat=-1), Slot.of(SLOT).replace(order="baseline"), Slot.of(SLOT).replace(pair=True)],
)
def test_what_could_not_be_read_is_not_written(slot: Slot) -> None:
    with pytest.raises(ValueError, match="Expected"):
        slot.to_bytes()
    with pytest.raises(ValueError, match="Expected"):
        slot.to_json()


def test_no_document_with_nan_is_written() -> None:
    entry = Entry(seq=1, previous="", at=0.0, act="reported", data={"ratio": math.nan})
    with pytest.raises(ValueError, match="not JSON compliant"):
        entry.to_bytes()


def test_documents_cannot_be_changed() -> None:
    slot = Slot.of(SLOT)
    with pytest.raises(AttributeError):
        slot.repeat = 2  # type: ignore[misc]  # this is what must fail
    assert slot.replace(repeat=2) != slot


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="No such file") as caught:
        Receipt.read(tmp_path / "receipt.json")
    assert caught.value.where == str(tmp_path / "receipt.json")


@given(st.integers(1, 200), st.integers(1, 250))
def test_the_points_of_a_curve_are_those_that_acceptance_asks_for(updates: int, every: int) -> None:
    fields: dict[str, Any] = {"name": "r", "targets": 1, "validation_targets": 1, "scored": ""}
    theirs = convergence_rules.Recipe(**fields, updates=updates, evaluate_every=every)
    recipe = Recipe(**fields, updates=updates, evaluate_every=every, config={}, config_sha256="0" * 64)
    assert recipe.points == theirs.points
    assert len(recipe.points) == num_points(recipe)


@pytest.mark.parametrize("recipe", ["sync", "a/s3", "s7"])
def test_the_seed_stands_in_the_name_of_a_run(recipe: str) -> None:
    assert documents.seed_of_run(documents.run_slot("candidate", recipe, 45)) == 45
