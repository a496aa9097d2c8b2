"""Each way in which the rows of a numerical case can disagree with the protocol: none passes, and each is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance import check_numerical
from acceptance.formats import Ending
from tests.support.cases import gates_of, make_cases, put, rows_of, slot_of
from tests.support.evidence import CANDIDATE, Campaign, add_case, isolated_fields, make_campaign, tensor_fields

FILE = "evidence/numerical.csv"
Spoil = Callable[[Campaign], None]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_cases(tmp_path, "w", "other")


def set_in(quantity: str, comparison: str = "candidate", **fields: str) -> Spoil:
    """Return a change of one row of a quantity; every field gets another value than it had."""

    def spoil(campaign: Campaign) -> None:
        rows = rows_of(campaign, quantity, comparison)
        row = rows[len(rows) // 2]
        assert any(row[name] != value for name, value in fields.items())
        row.update(fields)

    return spoil


def set_everywhere(column: str, value: str, comparison: str = "candidate") -> Spoil:
    def spoil(campaign: Campaign) -> None:
        for row in campaign.rows("numerical.csv", workload="w", comparison=comparison):
            row[column] = value

    return spoil


def delete(**wanted: object) -> Spoil:
    def spoil(campaign: Campaign) -> None:
        rows = campaign.rows("numerical.csv", **({"workload": "w", "comparison": "candidate"} | wanted))
        assert rows
        for row in rows:
            campaign.tables["numerical.csv"].remove(row)

    return spoil


def add(quantity: str, comparison: str = "candidate", **fields: str) -> Spoil:
    def spoil(campaign: Campaign) -> None:
        campaign.tables["numerical.csv"].append(rows_of(campaign, quantity, comparison)[0] | fields)

    return spoil


def keep_one_worker(comparison: str) -> Spoil:
    """A case from which a worker was lost, all of it."""

    def spoil(campaign: Campaign) -> None:
        rows = campaign.tables["numerical.csv"]
        rows[:] = [
            row
            for row in rows
            if row["workload"] != "w"
            or row["comparison"] != comparison
            or (row["worker"] == "0" and row["quantity"] != "consensus")
        ]
        if comparison == "control":
            campaign.tables["vacuity.csv"][:] = [
                row for row in campaign.tables["vacuity.csv"] if row["workload"] != "w" or row["worker"] == "0"
            ]

    return spoil


NO_NUMBER = {"value": "", "worst_tensor": ""}
NOT_FINITE = {"value": "", "rel_l2": "", "worst_rel_l2": "", "nonfinite": "1"}


def withhold_in_control(campaign: Campaign) -> None:
    for row in rows_of(campaign, "optimizer", "control"):
        row.update(NO_NUMBER)


INVALID: dict[str, tuple[str, Spoil]] = {
    "row twice": ("2 rows", add("loss")),
    "update too many": ("the protocol has 5 of them", add("loss", update="6")),
    "round too many": ("the protocol has 5 of them", add("consensus", update="6")),
    "step of the optimizer": ("compared after 5 steps", add("optimizer", update="4")),
    "gap in the workers": ("without a gap", add("loss", worker="5")),
    "enormous worker": ("without a gap", add("loss", worker="999999999999999999")),
    "worker renumbered": ("without a gap", set_everywhere("worker", "1")),
    "unknown workload": ("no such case", add("loss", workload="nobody")),
    "shared executor": ("the executor is shared", set_in("loss", executor="shared")),
    "control on a shared executor": ("the executor is shared", set_in("loss", "control", executor="shared")),
    "turns on the device": ("the sides took turns", set_in("updates", serialized="true")),
    "ratio of a loss": ("neither rel_l2 nor a tensor", set_in("loss", rel_l2="0.1")),
    "tensor of a loss": ("neither rel_l2 nor a tensor", set_in("loss", worst_tensor="w")),
    "loss absent without a count": ("nonfinite is not the number", set_in("loss", value="")),
    "loss counted too often": ("nonfinite is not the number", set_in("loss", value="", nonfinite="2")),
    "loss present and counted": ("nonfinite is not the number", set_in("loss", nonfinite="1")),
    "negative norm": ("negative", set_in("updates", reference="-4")),
    "negative difference": ("negative", set_in("updates", value="-0.1", rel_l2="-0.025")),
    "negative ratio": ("negative", set_in("updates", rel_l2="-0.01")),
    "negative tensor": ("negative", set_in("updates", worst_rel_l2="-0.01")),
    "negative isolated value": ("negative", set_in("optimizer", value="-1")),
    "ratio too small": ("rel_l2 is not value / reference", set_in("updates", rel_l2="0.0466")),
    "ratio off in the ninth digit": ("rel_l2 is not value / reference", set_in("updates", rel_l2="0.0466648201")),
    "ratio of nothing": ("rel_l2 is not value / reference", set_in("updates", value="0")),
    "ratio absent": ("a ratio is absent", set_in("updates", rel_l2="")),
    "worst absent": ("a ratio is absent", set_in("updates", worst_rel_l2="")),
    "worst below the whole": ("smaller than rel_l2 leaves room for", set_in("updates", worst_rel_l2="0.046")),
    "norm absent": ("a norm is absent", set_in("updates", value="", rel_l2="", worst_rel_l2="")),
    "reference absent": ("a norm is absent", set_in("updates", reference="", rel_l2="", worst_rel_l2="")),
    "no tensor": ("no tensor is named", set_in("updates", worst_tensor="")),
    "no tensor that is not finite": ("no tensor is named", set_in("updates", **NOT_FINITE, worst_tensor="")),
    "counted and yet a number": ("although some numbers were not finite", set_in("updates", nonfinite="1")),
    "worst although not finite": (
        "although some numbers were not finite",
        set_in("updates", **{**NOT_FINITE, "worst_rel_l2": "0.1"}),
    ),
    "ratio to zero": ("a ratio to a reference of zero", set_in("updates", reference="0")),
    "worst of a zero reference": (
        "a ratio to a reference of zero",
        set_in("updates", reference="0", rel_l2="", worst_rel_l2="9"),
    ),
    "reference of an isolated check": ("has a value alone", set_in("optimizer", reference="1")),
    "ratio of an isolated check": ("has a value alone", set_in("optimizer", rel_l2="1")),
    "worst of an isolated check": ("has a value alone", set_in("optimizer", worst_rel_l2="1")),
    "isolated value and not finite": ("some numbers were not finite", set_in("optimizer", nonfinite="1")),
    "isolated value without a tensor": ("without the tensor", set_in("optimizer", worst_tensor="")),
    "tensor of what was not offered": ("was not offered", set_in("optimizer", value="")),
    "offered for one worker": ("offered and not offered", set_in("optimizer", **NO_NUMBER)),
    "offered in one round": ("offered and not offered", set_in("consensus", **NO_NUMBER)),
    "attempt that nobody knows": ("not in attempts.csv, or not sealed", add("loss", attempt="2")),
    "worker lost in the case": ("1 workers in the case and 2 in its control", keep_one_worker("candidate")),
    "worker lost in the control": ("2 workers in the case and 1 in its control", keep_one_worker("control")),
    "control that withholds": (
        "offers optimizer in the case and not in its control",
        withhold_in_control,
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_rows_that_contradict_are_invalid_and_named(campaign: Campaign, name: str) -> None:
    reason, spoil = INVALID[name]
    spoil(campaign)
    gates = gates_of(campaign)
    assert gates[FILE]["finding"] == "invalid"
    assert reason in gates[FILE]["reason"]
    assert campaign.evaluate().exit_code == 4
    if name != "unknown workload":
        assert gates["w/updates"]["finding"] == "invalid"
        assert reason in gates["w/updates"]["reason"]
    assert gates["other/updates"]["finding"] == "met"


MISSING: dict[str, tuple[str, Spoil]] = {
    "all": ("no rows", delete()),
    "all of the control": ("no rows", delete(comparison="control")),
    "one": ("no row for the updates of update 2, worker 1", delete(update=2, worker=1, quantity="updates")),
    "an ungated one": (
        "no row for the exp_avg_sq of update 5, worker 0",
        delete(update=5, worker=0, quantity="exp_avg_sq"),
    ),
    "a quantity": ("no row for the loss of update 1, worker 0", delete(quantity="loss")),
    "an update": ("no row for the exp_avg of update 3, worker 0", delete(update=3)),
    "a quantity of a worker": (
        "no row for the gradients of update 1, worker 1",
        delete(quantity="gradients", worker=1),
    ),
    "the optimizer": ("no row for the optimizer of update 5, worker 0", delete(quantity="optimizer")),
    "a worker's optimizer": ("no row for the optimizer of update 5, worker 1", delete(quantity="optimizer", worker=1)),
    "the consensus": ("no row for the consensus of update 1, worker 0", delete(quantity="consensus")),
    "a round": ("no row for the consensus of update 2, worker 1", delete(quantity="consensus", update=2)),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_row_is_missing_and_named(campaign: Campaign, name: str) -> None:
    reason, spoil = MISSING[name]
    spoil(campaign)
    gates = gates_of(campaign)
    assert gates[FILE]["finding"] == "missing"
    assert reason in gates[FILE]["reason"]
    for quantity in ("loss", "updates", "optimizer"):
        assert gates[f"w/{quantity}"]["finding"] == "missing"
        assert gates[f"other/{quantity}"]["finding"] == "met"
    assert campaign.evaluate().exit_code == 4


def test_a_single_worker_has_no_consensus(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, workers=1)
    assert gates_of(campaign)[FILE]["finding"] == "met"
    campaign.tables["numerical.csv"].append(
        rows_of(campaign, "optimizer")[0] | {"quantity": "consensus", "update": "1"}
    )
    gates = gates_of(campaign)
    assert "not asked for" in gates[FILE]["reason"]
    assert gates["w/updates"]["finding"] == "invalid"


@pytest.mark.parametrize(
    ("value", "finding"),
    [
        ("0.18665928", "met"),
        ("0.186659280000000018", "met"),
        ("0.18665928000000000019", "met"),
        ("0.1866592802", "invalid"),
    ],
)
def test_a_ratio_may_be_off_by_rounding_alone(campaign: Campaign, value: str, finding: str) -> None:
    put(campaign, "updates", {"value": value, "rel_l2": "0.04666482", "worst_rel_l2": "0.06"})
    assert gates_of(campaign)[FILE]["finding"] == finding


@pytest.mark.parametrize(
    "fields",
    [
        {"reference": "0", "value": "0", "rel_l2": "0", "worst_rel_l2": "0"},
        {"reference": "0", "value": "0.1", "rel_l2": "", "worst_rel_l2": ""},
        {"value": "0", "rel_l2": "0", "worst_rel_l2": "0"},
        {"value": "0", "rel_l2": "0e0", "worst_rel_l2": "0.0"},
        NOT_FINITE,
        NOT_FINITE | {"reference": ""},
        {"reference": "1e-200", "value": "1e-201", "rel_l2": "0.1", "worst_rel_l2": "0.1"},
    ],
)
def test_what_has_a_defined_outcome_is_no_disagreement(campaign: Campaign, fields: dict[str, str]) -> None:
    put(campaign, "gradients", fields)
    assert gates_of(campaign)[FILE]["finding"] == "met"


def test_the_worst_tensor_may_be_better_than_the_whole_by_the_floor_alone(campaign: Campaign) -> None:
    """With a floor of 0.1 no set of tensors can be worse together than sqrt(1 + 0.1^2) times the worst of them."""
    for worst, finding in (("0.0995038", "met"), ("0.0995036", "invalid")):
        put(campaign, "exp_avg", tensor_fields("0.1") | {"worst_rel_l2": worst})
        assert gates_of(campaign)[FILE]["finding"] == finding


def test_serialised_cases_and_shared_executors_stand_as_the_protocol_lists_them(tmp_path: Path) -> None:
    names = ("plain", "turns", "shared")
    campaign = make_cases(tmp_path, *names, serialized=("turns",), shared_executor=("shared",))
    assert gates_of(campaign)[FILE]["finding"] == "met"
    seen = {
        (row["workload"], row["comparison"]): (row["executor"], row["serialized"])
        for row in campaign.tables["numerical.csv"]
    }
    assert seen == {
        ("plain", "candidate"): ("independent", "false"),
        ("plain", "control"): ("independent", "false"),
        ("turns", "candidate"): ("independent", "true"),
        ("turns", "control"): ("independent", "true"),
        ("shared", "candidate"): ("independent", "true"),
        ("shared", "control"): ("shared", "true"),
    }
    for workload, comparison in (("shared", "control"), ("turns", "candidate")):
        for column, value in (("executor", "independent"), ("serialized", "false")):
            row = campaign.rows("numerical.csv", workload=workload, comparison=comparison)[0]
            before, row[column] = row[column], value
            expected = "met" if before == value else "invalid"
            gates = gates_of(campaign)
            assert gates[FILE]["finding"] == gates[f"{workload}/loss"]["finding"] == expected
            row[column] = before


def test_an_attempt_without_a_receipt_cannot_be_used(campaign: Campaign) -> None:
    (row,) = campaign.rows("attempts.csv", slot=f"{CANDIDATE}/case/w")
    row["sealed"] = "false"
    gates = gates_of(campaign)
    assert "not sealed" in gates[FILE]["reason"]
    assert gates["w/loss"]["finding"] == "invalid"
    assert gates["other/loss"]["finding"] == "met"


@pytest.mark.parametrize(
    ("endings", "finding"),
    [
        ((Ending.NODE_FAIL, Ending.COMPLETED), "met"),
        ((Ending.TIME_LIMIT, Ending.PREEMPTED, Ending.COMPLETED), "met"),
        ((Ending.TIME_LIMIT,), "missing"),
        ((Ending.STATE_MISMATCH, Ending.COMPLETED), "invalid"),
        ((Ending.NON_FINITE,), "invalid"),
        ((Ending.CRASH,), "invalid"),
        ((Ending.LOST,) * 3, "invalid"),
    ],
)
@pytest.mark.parametrize("kind", ["case", "control_case"])
def test_cases_follow_the_retry_rule(tmp_path: Path, kind: str, endings: tuple[Ending, ...], finding: str) -> None:
    campaign = make_cases(tmp_path)
    slot, comparison = slot_of(campaign, kind), "control" if kind == "control_case" else "candidate"
    tables = campaign.tables
    name = f"{CANDIDATE}/case/w" if kind == "case" else slot.slot
    tables["attempts.csv"] = [row for row in tables["attempts.csv"] if row["slot"] != name]
    tables["numerical.csv"] = [row for row in tables["numerical.csv"] if row["comparison"] != comparison]
    if kind == "control_case":
        tables["vacuity.csv"] = []
    for attempt, ending in enumerate(endings, start=1):
        add_case(campaign, slot, attempt=attempt, ending=ending)
    gates = gates_of(campaign)
    assert {gates[f"w/{quantity}"]["finding"] for quantity in ("loss", "updates", "optimizer")} == {finding}
    assert gates["evidence/attempts.csv"]["finding"] == finding


def test_a_later_attempt_changes_nothing_but_is_checked(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path)
    add_case(campaign, slot_of(campaign, "case"), attempt=2, worst={"updates": "0.5"})
    gates = gates_of(campaign)
    assert (gates["w/updates"]["finding"], gates["w/updates"]["value"]) == ("met", 0.0777747)
    rows_of(campaign, "loss", attempt=2)[0]["nonfinite"] = "1"
    assert gates_of(campaign)[FILE]["finding"] == "invalid"


def test_rows_where_the_family_is_not_declared_are_invalid(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2",) * 3})
    row = {
        "workload": "20m-a-b1", "comparison": "candidate", "attempt": "1", "update": "1", "worker": "0",
        "quantity": "optimizer", **isolated_fields("0"), "executor": "independent", "serialized": "false",
    }  # fmt: skip
    campaign.tables["numerical.csv"].append(row)
    gates = gates_of(campaign)
    assert "no such case" in gates[FILE]["reason"]
    assert campaign.evaluate().exit_code == 4


def test_an_exception_inside_the_check_is_invalid_and_never_a_pass(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_named: object) -> Any:
        raise KeyError("unforeseen")

    monkeypatch.setattr(check_numerical, "check", fail)
    gates = gates_of(campaign)
    assert gates[FILE]["finding"] == gates["w/loss"]["finding"] == "invalid"
    assert "KeyError" in gates[FILE]["reason"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("reference", "nan"),
        ("value", "inf"),
        ("rel_l2", "-inf"),
        ("worst_rel_l2", "NaN"),
        ("value", "1e999"),
        ("nonfinite", ""),
        ("nonfinite", "-1"),
        ("update", "0"),
        ("worker", "01"),
        ("quantity", "momentum"),
        ("comparison", "baseline"),
        ("executor", "none"),
        ("serialized", "no"),
        ("worst_tensor", 'a"b'),
    ],
)
def test_what_does_not_parse_gives_no_verdict(campaign: Campaign, column: str, value: str) -> None:
    put(campaign, "updates", {column: value})
    result = campaign.write().evaluate()
    assert (result.exit_code, result.verdict) == (5, None)
    assert result.faults[0].startswith("numerical.csv:")
    assert column in result.faults[0]
