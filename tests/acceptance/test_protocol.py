from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance import protocol
from acceptance.strictjson import DocumentError
from campaign.config import load
from campaign.documents import ConvergenceRules, NumericalRules, ThroughputRules
from campaign.planning.protocol import build_protocol
from tests.support.evidence import make_protocol
from tests.support.runs import EXTENSION, make_recipe

FAMILIES = ("throughput", "numerical", "convergence")
NAMES = [("sync", "a"), ("sync", "b"), ("packed", "c"), ("", "p")]


def document(**rules: Any) -> dict[str, Any]:
    trained = ConvergenceRules(recipes=(make_recipe("r"),), extension=EXTENSION)
    written = make_protocol(NAMES, ThroughputRules(**rules), FAMILIES, convergence=trained)
    value: dict[str, Any] = json.loads(written.to_bytes())
    return value


def refusal(value: Any) -> str:
    with pytest.raises(DocumentError) as caught:
        protocol.parse(json.dumps(value).encode())
    return str(caught.value)


@pytest.mark.parametrize("rules", [{}, {"pairs_per_repeat": 2}, {"solo": False, "controls": False}, {"repeats": 1}])
def test_what_the_driver_writes_is_understood(rules: dict[str, Any]) -> None:
    written = make_protocol(NAMES, ThroughputRules(**rules))
    parsed = protocol.parse(written.to_bytes())
    assert [slot.slot for slot in parsed.slots] == [slot.slot for slot in written.slots]
    assert [slot.order for slot in parsed.slots] == [slot.order for slot in written.slots]
    assert [workload.name for workload in parsed.workloads] == ["a", "b", "c", "p"]
    assert str(parsed.throughput.category_threshold) == "1.05"
    assert parsed.retries.again == {ending.value for ending in written.retries.again}


def test_a_protocol_with_other_families_is_understood() -> None:
    written = make_protocol(NAMES, families=("throughput", "numerical", "convergence", "device"))
    assert written.convergence is not None
    assert protocol.parse(written.to_bytes()).families == ("throughput", "numerical", "convergence", "device")


def numerical(**rules: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(
        make_protocol(NAMES, families=("numerical",), numerical=NumericalRules(**rules)).to_bytes()
    )
    return value


def test_the_rules_of_the_numerical_family_are_understood() -> None:
    written = make_protocol(
        NAMES, families=FAMILIES, numerical=NumericalRules(serialized=("a",), gated_tensors=("updates",))
    )
    parsed = protocol.parse(written.to_bytes())
    rules = parsed.numerical
    assert rules is not None
    assert {name: str(value) for name, value in rules.thresholds.items()} == {
        "gradients": "0.05",
        "parameters": "0.02",
        "updates": "0.10",
    }
    assert (str(rules.loss_atol), str(rules.loss_rtol), rules.updates, rules.moments) == ("0.002", "0.002", 5, "fresh")
    assert (rules.serialized, rules.gated_tensors, rules.controls) == (("a",), ("updates",), True)
    assert sum(slot.kind == "case" for slot in parsed.slots) == sum(s.kind == "control_case" for s in parsed.slots) == 4


def test_without_controls_there_are_cases_alone() -> None:
    assert protocol.parse(json.dumps(numerical(controls=False)).encode())
    value = numerical()
    value["numerical"]["controls"] = False
    assert "not planned by the rules" in refusal(value)


def test_rules_stand_if_and_only_if_the_family_is_declared() -> None:
    value = document()
    value["families"] = ["throughput"]
    assert "numerical: rules of a family that is not declared" in refusal(value)
    value = document()
    value["numerical"] = None
    assert "numerical: a declared family without rules" in refusal(value)
    value = json.loads(make_protocol(NAMES).to_bytes())
    value["slots"].append(next(slot for slot in numerical()["slots"] if slot["kind"] == "case"))
    assert "the numerical family is not declared" in refusal(value)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every object field and of the first item of every array."""
    if isinstance(value, dict):
        found = [(*path, key) for key in value]
        return found + [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list) and value:
        return [(*path, 0), *leaves(value[0], (*path, 0))]
    return []


FIELDS = [path for path in leaves(document()) if "config" not in path]


def spoil(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    copy = json.loads(json.dumps(value))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return copy


def shown(path: tuple[Any, ...]) -> str:
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


OPTIONAL = ("convergence", "extension")


@pytest.mark.parametrize("path", [path for path in FIELDS if path != OPTIONAL], ids=shown)
def test_every_field_is_checked_and_a_wrong_one_is_named(path: tuple[Any, ...]) -> None:
    def set_null(holder: Any, key: Any) -> None:
        holder[key] = None

    assert shown(path) in refusal(spoil(document(), path, set_null))


@pytest.mark.parametrize("path", [path for path in FIELDS if not isinstance(path[-1], int)], ids=shown)
def test_a_missing_field_is_named(path: tuple[Any, ...]) -> None:
    def delete(holder: Any, key: Any) -> None:
        del holder[key]

    message = refusal(spoil(document(), path, delete))
    assert repr(path[-1]) in message
    assert "missing" in message


@pytest.mark.parametrize(
    "path", [(), ("throughput",), ("retries",), ("limits",), ("slots", 0), ("headers",)], ids=shown
)
def test_an_unknown_field_is_named(path: tuple[Any, ...]) -> None:
    value = document()
    holder = value
    for key in path:
        holder = holder[key]
    holder["tolerance"] = "9"
    message = refusal(value)
    assert "unknown field 'tolerance'" in message
    assert shown(path) in message


DECIMALS = [
    "window_s",
    "window_margin",
    "pilot_s",
    "category_threshold",
    "production_threshold",
    "clock_relative",
    "clock_absolute_s",
]


@pytest.mark.parametrize("name", DECIMALS)
@pytest.mark.parametrize(
    "text",
    [
        "nan",
        "NaN",
        "inf",
        "-inf",
        "1e999",
        "-1",
        "+1",
        "1_0",
        " 1",
        "",
        "1,5",
        "0x1",
        "1e400",
        "\u0661",
        "1e9",
        1.05,
        1,
        True,
    ],
)
def test_a_number_that_decides_is_finite_and_in_range(name: str, text: Any) -> None:
    value = document()
    value["throughput"][name] = text
    assert f"throughput.{name}" in refusal(value)


BOUNDED = sorted(name for name, value in NumericalRules().to_json().items() if isinstance(value, str))
BOUNDED = [name for name in BOUNDED if name not in {"moments", "isolated_scalars"}]


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "-1", "-0.001", "", "0x1", "1001", 0.05, None])
def test_a_number_of_the_numerical_family_is_finite_and_in_range(name: str, text: Any) -> None:
    value = numerical()
    value["numerical"][name] = text
    assert f"numerical.{name}" in refusal(value)


@pytest.mark.parametrize("name", [n for n in BOUNDED if n not in {"loss_atol", "loss_rtol", "isolated_rtol"}])
def test_a_threshold_of_zero_would_be_none(name: str) -> None:
    value = numerical()
    value["numerical"][name] = "0"
    assert f"numerical.{name}" in refusal(value)


@pytest.mark.parametrize(
    ("name", "bad", "reason"),
    [
        ("updates", 0, "numerical.updates"),
        ("updates", True, "not an integer"),
        ("updates", 10**6, "not between"),
        ("isolated_steps", 0, "numerical.isolated_steps"),
        ("moments", "stale", "none of fresh, warm"),
        ("isolated_scalars", "fp16", "none of fp64, fp32"),
        ("controls", 1, "neither true nor false"),
        ("gated_tensors", ["loss"], "gated_tensors[0]"),
        ("gated_tensors", ["updates", "updates"], "'updates' is listed 2 times"),
        ("required", ["evaluate"], "required[0]"),
        ("required", ["mix", "mix"], "'mix' is listed 2 times"),
        ("serialized", ["nobody"], "'nobody' is not in the matrix"),
        ("serialized", ["a", "a"], "'a' is listed 2 times"),
        ("shared_executor", ["nobody"], "'nobody' is not in the matrix"),
        ("shared_executor", ["a", "a"], "'a' is listed 2 times"),
        ("shared_executor", "a", "not an array"),
        ("tolerance", "9", "unknown field"),
    ],
)
def test_a_choice_of_the_numerical_family_is_a_known_one(name: str, bad: Any, reason: str) -> None:
    value = numerical()
    value["numerical"][name] = bad
    message = refusal(value)
    assert "numerical" in message
    assert reason in message


def test_only_a_control_can_share_an_executor() -> None:
    value = numerical(controls=False)
    value["numerical"]["shared_executor"] = ["a"]
    assert "there are no controls" in refusal(value)


def test_a_hole_among_the_cases_is_refused() -> None:
    for index, slot in enumerate(numerical()["slots"]):
        value = numerical()
        del value["slots"][index]
        message = refusal(value)
        assert f"{slot['kind']!r}, {slot['workload']!r}" in message
        assert "is missing" in message


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"slot": "candidate/case/more", "repeat": 1}, "not planned by the rules"),
        ({"slot": "candidate/case/more"}, "2 slots stand for"),
        ({"slot": "candidate/case/more", "order": ["candidate", "baseline"]}, "not an order"),
        ({"slot": "candidate/case/more", "order": ["baseline", "baseline_again"]}, "not an order"),
        ({"slot": "baseline/case/more", "side": "baseline"}, "one of the candidate"),
        ({"slot": "candidate/case/more", "workload": "nobody"}, "not in the matrix"),
        ({"slot": "candidate/case/more", "kind": "control_case"}, "one of the baseline"),
    ],
)
def test_a_case_too_many_or_of_another_shape_is_refused(changes: dict[str, Any], reason: str) -> None:
    value = numerical()
    slot = next(slot for slot in value["slots"] if slot["kind"] == "case")
    value["slots"].append(slot | changes)
    assert reason in refusal(value)


@pytest.mark.parametrize("name", ["window_s", "category_threshold", "production_threshold", "pilot_s"])
def test_a_threshold_of_zero_is_refused(name: str) -> None:
    value = document()
    value["throughput"][name] = "0"
    assert f"throughput.{name}" in refusal(value)


@pytest.mark.parametrize(
    ("name", "bad"), [("repeats", 0), ("windows", 0), ("warmup_updates", -1), ("repeats", True), ("repeats", 3.0)]
)
def test_a_count_is_an_integer_in_range(name: str, bad: Any) -> None:
    value = document()
    value["throughput"][name] = bad
    assert f"throughput.{name}" in refusal(value)


def test_an_odd_number_of_pairs_above_one_is_refused() -> None:
    value = document()
    value["throughput"]["pairs_per_repeat"] = 3
    assert "pairs_per_repeat: an odd count" in refusal(value)


@pytest.mark.parametrize(
    "ending", ["crash", "hang", "non_finite", "rubbish", "clock_disagreement", "completed", "void", "tired"]
)
def test_the_fault_of_a_side_cannot_be_tried_again(ending: str) -> None:
    value = document()
    value["retries"]["again"].append(ending)
    assert "retries.again[6]" in refusal(value)


def test_an_ending_stands_in_one_list_once() -> None:
    value = document()
    value["retries"]["again_once"] = ["node_fail"]
    assert "'node_fail' is listed 2 times" in refusal(value)


def test_a_hole_in_the_matrix_is_refused() -> None:
    for index, slot in enumerate(document()["slots"]):
        value = document()
        del value["slots"][index]
        message = refusal(value)
        assert slot["workload"] in message
        assert "is missing" in message


def test_a_slot_too_many_is_refused() -> None:
    value = document()
    value["slots"].append({**value["slots"][0], "slot": "baseline/solo/a/r9", "repeat": 9})
    assert "not planned by the rules" in refusal(value)


def test_two_slots_for_one_place_are_refused() -> None:
    value = document()
    value["slots"].append({**value["slots"][0], "slot": "baseline/solo/again"})
    assert "2 slots stand for" in refusal(value)


def test_two_slots_of_one_name_are_refused() -> None:
    value = document()
    value["slots"].append(value["slots"][0])
    assert "is listed 2 times" in refusal(value)


def change_slot(**changes: Any) -> str:
    value = document()
    slot = next(slot for slot in value["slots"] if slot["kind"] == "pair")
    slot.update(changes)
    return refusal(value)


def test_a_slot_is_what_its_kind_says() -> None:
    assert "order" in change_slot(order=["candidate", "candidate"])
    assert "order" in change_slot(order=["baseline"])
    assert "order" in change_slot(order=["baseline", "baseline_again"])
    assert "does not begin with its side" in change_slot(side="baseline")
    assert "one of the candidate" in change_slot(side="baseline", slot="baseline/pair/a/r1")
    assert "not in the matrix" in change_slot(workload="z")


def test_with_two_pairs_per_repeat_both_orders_must_run() -> None:
    value = document(pairs_per_repeat=2)
    slot = next(slot for slot in value["slots"] if slot["kind"] == "pair")
    slot["order"].reverse()
    assert "do not run equally often" in refusal(value)


def test_categories_and_workloads_agree() -> None:
    value = document()
    value["workloads"][0]["category"] = ""
    assert "disagree" in refusal(value)
    value = document()
    value["categories"][0]["workloads"].append("nobody")
    assert "disagree" in refusal(value)


def test_an_empty_category_is_refused() -> None:
    value = document()
    value["categories"].append({"name": "empty", "workloads": []})
    assert "categories[2].workloads: a category without workloads" in refusal(value)


@pytest.mark.parametrize(
    "name", ["production", "family", "numerical", "evidence", "a/b", ".hidden", "a,b", 'a"b', "a\nb", ""]
)
def test_a_category_cannot_have_an_ambiguous_name(name: str) -> None:
    value = document()
    value["categories"][0]["name"] = name
    assert "categories[0].name" in refusal(value)


def test_a_header_other_than_the_programs_own_is_refused() -> None:
    value = document()
    value["headers"]["pairs.csv"].reverse()
    assert "headers.pairs.csv" in refusal(value)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "protocol.json:1"),
        (b"{\n\n  oops}", "protocol.json:3"),
        (b'{"a": 1, "a": 2}', "duplicate key 'a'"),
        (b'{"a":\n "\xff"}', "protocol.json:2: byte 0xff"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": 1e999}', "out of range"),
        (b"[" * 100000, "not strict JSON"),
        (b"1" * 5000, "not strict JSON"),
        (b"[]", "document: not an object"),
        (b"null", "document: not an object"),
        (b"\xef\xbb\xbf{}", "protocol.json:1"),
    ],
)
def test_bytes_that_are_no_protocol_are_refused_with_their_place(data: bytes, place: str) -> None:
    with pytest.raises(DocumentError, match=r"protocol\.json") as caught:
        protocol.parse(data)
    assert place in str(caught.value)


EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_protocol_of_the_largest_shipped_configuration_is_understood() -> None:
    path = EXAMPLES / "gh200-backend" / "campaign.toml"
    config = load.load_config(path)
    written = build_protocol(config.model_copy(update={"convergence": None, "recipe": []}))
    parsed = protocol.parse(written.to_bytes())
    assert len(parsed.slots) == len(written.slots)
    assert {slot.kind for slot in parsed.slots} == {"pilot", "solo", "control_pair", "pair", "case", "control_case"}
