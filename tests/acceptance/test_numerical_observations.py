from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acceptance import numerical_observations
from acceptance.formats import GLOBAL_QUANTITIES
from tests.support.cases import gates_of, make_cases, observed, put, rows_of
from tests.support.evidence import PRECISION, Campaign, isolated_fields, loss_fields, make_campaign, tensor_fields

QUANTITIES = ("loss", *GLOBAL_QUANTITIES, "moments", "optimizer", "consensus")
WORST = {"value", "workload", "update", "worker", "tensor", "tensor_value"}


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_cases(tmp_path, "w", "other")


def quantity(campaign: Campaign, name: str) -> dict[str, Any]:
    (found,) = [seen for seen in observed(campaign)["quantities"] if seen["quantity"] == name]
    return dict(found)


def flags(campaign: Campaign, kind: str) -> list[dict[str, Any]]:
    return [flag for flag in observed(campaign)["flags"] if flag["kind"] == kind]


def case(campaign: Campaign, workload: str = "w", comparison: str = "candidate") -> dict[str, Any]:
    cases = observed(campaign)["cases"]
    (found,) = [c for c in cases if (c["workload"], c["comparison"]) == (workload, comparison)]
    return dict(found)


def test_the_fields_are_as_documented(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, moments="warm", updates=3, isolated_scalars="fp32")
    found = observed(campaign)
    assert set(found) == {
        "moments", "updates", "isolated_scalars", "quantities", "cases", "flags", "vacuity",
    }  # fmt: skip
    assert (found["moments"], found["updates"], found["isolated_scalars"]) == ("warm", 3, "fp32")
    assert {frozenset(seen) for seen in found["quantities"]} == {
        frozenset({"quantity", "gated", "threshold", "candidate", "control", "ratio", "flagged"})
    }
    assert {frozenset(seen["candidate"]) for seen in found["quantities"]} == {frozenset(WORST)}
    assert set(found["cases"][0]) == {
        "workload", "comparison", "attempt", "executor", "serialized", "workers", "curves",
    }  # fmt: skip
    assert set(found["flags"][0]) == {
        "kind", "workload", "comparison", "quantity", "update", "worker", "tensor", "value", "limit", "rows",
    }  # fmt: skip


def test_an_undeclared_family_is_null(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2",) * 3})
    assert campaign.verdict()["observations"]["numerical"] is None


def test_every_quantity_is_shown_with_its_gate(campaign: Campaign) -> None:
    seen = observed(campaign)["quantities"]
    assert [entry["quantity"] for entry in seen] == list(QUANTITIES)
    assert {entry["quantity"]: entry["threshold"] for entry in seen if entry["gated"]} == {
        "loss": 1.0, "gradients": 0.05, "parameters": 0.02, "updates": 0.1, "optimizer": 1.0, "consensus": 1.0,
    }  # fmt: skip
    assert [entry["quantity"] for entry in seen if not entry["gated"]] == ["exp_avg", "exp_avg_sq", "moments"]
    assert {entry["threshold"] for entry in seen if not entry["gated"]} == {None}


def test_the_worst_says_where_it_was_reached(campaign: Campaign) -> None:
    row = rows_of(campaign, "gradients", update=2, worker=1)[0]
    row.update(tensor_fields("0.03") | {"worst_tensor": "head.weight", "worst_rel_l2": "0.04"})
    assert quantity(campaign, "gradients")["candidate"] == {
        "value": 0.03,
        "workload": "w",
        "update": 2,
        "worker": 1,
        "tensor": "head.weight",
        "tensor_value": 0.04,
    }


def test_the_moments_are_the_worse_of_both(campaign: Campaign) -> None:
    put(campaign, "exp_avg_sq", tensor_fields("0.4"))
    found = quantity(campaign, "moments")
    assert (found["candidate"]["value"], found["gated"]) == (0.4, False)
    assert found["control"]["value"] == float(PRECISION["exp_avg"][1])


def test_a_worst_that_is_not_finite_is_null(campaign: Campaign) -> None:
    put(campaign, "updates", {"value": "", "rel_l2": "", "worst_rel_l2": "", "nonfinite": "2"})
    found = quantity(campaign, "updates")
    assert (found["candidate"]["value"], found["candidate"]["update"], found["ratio"]) == (None, 3, None)
    assert found["flagged"] is True
    assert case(campaign)["curves"]["updates"][2] is None
    (flag,) = flags(campaign, "tensor")
    assert (flag["quantity"], flag["value"], flag["limit"]) == ("updates", None, 0.2)


def test_curves_have_the_worst_over_the_workers_of_each_update(campaign: Campaign) -> None:
    rows_of(campaign, "loss", update=4, worker=0)[0].update(loss_fields("-0.004"))
    rows_of(campaign, "consensus", update=1, worker=0)[0].update(isolated_fields("0.75"))
    curves = case(campaign)["curves"]
    assert set(curves) == {*QUANTITIES} - {"moments"}
    assert {name: len(curve) for name, curve in curves.items()} == {
        **dict.fromkeys(curves, 5), "optimizer": 1
    }  # fmt: skip
    assert curves["loss"] == [0.04, 0.08, 0.12, 0.5, 0.2]
    assert curves["consensus"] == [0.75, 0.2, 0.3, 0.4, 0.5]
    assert curves["optimizer"] == [0.25]
    assert curves["updates"][-1] == 0.0777747


def test_cases_say_how_they_were_run(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, "w", "other", workers=3, shared_executor=("w",))
    seen = [
        (c["workload"], c["comparison"], c["executor"], c["serialized"], c["workers"])
        for c in observed(campaign)["cases"]
    ]
    assert seen == [
        ("w", "candidate", "independent", True, 3),
        ("w", "control", "shared", True, 3),
        ("other", "candidate", "independent", False, 3),
        ("other", "control", "independent", False, 3),
    ]


def test_what_is_not_offered_is_not_shown(campaign: Campaign) -> None:
    for workload in ("w", "other"):
        for row in campaign.rows("numerical.csv", workload=workload, comparison="candidate", quantity="optimizer"):
            row.update({"value": "", "worst_tensor": ""})
    found = quantity(campaign, "optimizer")
    assert (found["candidate"], found["ratio"], found["flagged"]) == (None, None, False)
    assert found["control"]["value"] == 0.125
    assert "optimizer" not in case(campaign)["curves"]


def test_a_case_with_a_fault_in_its_evidence_is_left_out(campaign: Campaign) -> None:
    put(campaign, "gradients", tensor_fields("0.4"))
    put(campaign, "loss", {"executor": "shared"})
    assert gates_of(campaign)["w/gradients"]["finding"] == "invalid"
    assert quantity(campaign, "gradients")["candidate"]["workload"] == "other"
    cases = [(c["workload"], c["comparison"]) for c in observed(campaign)["cases"]]
    assert cases == [("w", "control"), ("other", "candidate"), ("other", "control")]


@pytest.mark.parametrize(("value", "flagged"), [("0.03", False), ("0.0300001", True)])
def test_a_case_above_three_times_its_own_control_is_flagged(tmp_path: Path, value: str, flagged: bool) -> None:
    campaign = make_cases(tmp_path)
    for row in rows_of(campaign, "gradients", "control"):
        row.update(tensor_fields("0.01"))
    put(campaign, "gradients", tensor_fields(value))
    found = [flag for flag in flags(campaign, "control_factor") if flag["quantity"] == "gradients"]
    assert bool(found) is quantity(campaign, "gradients")["flagged"] is flagged
    for flag in found:
        assert (flag["value"], flag["limit"], flag["comparison"]) == (float(value), 0.03, "candidate")
        assert flag["rows"] == 1
    assert gates_of(campaign)["w/gradients"]["finding"] == "met"


def test_a_control_of_zero_flags_every_difference(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path)
    for row in rows_of(campaign, "gradients", "control"):
        row.update(tensor_fields("0"))
    found = quantity(campaign, "gradients")
    assert (found["control"]["value"], found["ratio"], found["flagged"]) == (0.0, None, True)
    for row in rows_of(campaign, "gradients"):
        row.update(tensor_fields("0"))
    assert quantity(campaign, "gradients")["flagged"] is False


LIMITS = {"gradients": 0.1, "parameters": 0.04, "updates": 0.2, "exp_avg": 0.1, "exp_avg_sq": 0.2}


@pytest.mark.parametrize(("name", "limit"), LIMITS.items())
def test_a_tensor_above_its_threshold_is_flagged_once_at_its_worst(campaign: Campaign, name: str, limit: float) -> None:
    rows = rows_of(campaign, name)
    rows[1].update(tensor_fields("0.001") | {"worst_rel_l2": repr(limit)})
    assert flags(campaign, "tensor") == []
    rows[4].update(tensor_fields("0.001") | {"worst_rel_l2": repr(limit * 1.01), "worst_tensor": "a"})
    rows[7].update(tensor_fields("0.001") | {"worst_rel_l2": repr(limit * 1.02), "worst_tensor": "b"})
    (flag,) = flags(campaign, "tensor")
    assert (flag["quantity"], flag["update"], flag["worker"], flag["tensor"]) == (name, 4, 1, "b")
    assert (flag["value"], flag["limit"], flag["rows"]) == (limit * 1.02, limit, 2)


def test_a_flag_counts_every_row_above_its_limit_and_those_that_are_not_finite(campaign: Campaign) -> None:
    rows = rows_of(campaign, "updates")
    for row in rows[:3]:
        row.update(tensor_fields("0.09") | {"worst_rel_l2": "0.5"})
    rows[3].update(value="", rel_l2="", worst_rel_l2="", nonfinite="1")
    for row in rows_of(campaign, "updates", "control"):
        row.update(tensor_fields("0.029"))
    own = [flag for flag in observed(campaign)["flags"] if (flag["workload"], flag["quantity"]) == ("w", "updates")]
    assert {flag["kind"]: (flag["value"], flag["rows"]) for flag in own} == {
        "control_factor": (None, 4), "tensor": (None, 4)
    }  # fmt: skip


def test_a_failure_to_observe_costs_no_verdict_and_is_said(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> Any:
        raise ArithmeticError("unforeseen")

    expected = campaign.verdict()
    monkeypatch.setattr(numerical_observations, "observe", fail)
    found = campaign.verdict()
    assert found["observations"]["error"] == "ArithmeticError: unforeseen"
    assert found["observations"]["numerical"] is None
    assert (found["gates"], found["outcome"]) == (expected["gates"], "pass")


HUGE = {"reference": "1", "value": "1.7e308", "rel_l2": "1.7e308", "worst_rel_l2": "1.7e308"}
TINY = {"reference": "1e-10", "value": "1e-320", "rel_l2": "1e-310", "worst_rel_l2": "1e-310"}


@pytest.mark.parametrize("comparison", ["candidate", "control"])
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("updates", HUGE),
        ("exp_avg", HUGE),
        ("updates", TINY),
        ("loss", {"reference": "1.7e308", "value": "-1.7e308"}),
        ("loss", {"reference": "0", "value": "1e-320"}),
        ("optimizer", isolated_fields("1.7e308")),
        ("optimizer", isolated_fields("1e-320")),
    ],
)
def test_no_number_that_parses_can_stop_the_observations(
    campaign: Campaign, name: str, fields: dict[str, str], comparison: str
) -> None:
    for row in rows_of(campaign, name, comparison):
        row.update(fields)
    assert len(observed(campaign)["cases"]) == 4


def test_no_reading_that_parses_can_stop_the_observations(campaign: Campaign) -> None:
    for number, row in enumerate(campaign.tables["vacuity.csv"]):
        row["rel_l2"] = ("0", "1e-320", "1.7e308", "")[number % 4]
    assert len(observed(campaign)["vacuity"]) == 8
