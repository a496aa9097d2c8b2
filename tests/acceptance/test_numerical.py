"""The numerical gates: just inside, just outside, and whatever has no number."""

from __future__ import annotations

import csv
import random
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acceptance import numerical
from acceptance.formats import GLOBAL_QUANTITIES
from tests.support.cases import findings_of, gates_of, make_cases, observed, put, rows_of
from tests.support.evidence import PRECISION, Campaign, isolated_fields, loss_fields, make_campaign, tensor_fields

GATES = {"loss", "gradients", "parameters", "updates", "optimizer", "consensus"}


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_cases(tmp_path)


def test_the_published_table_passes_every_gate_and_flags_the_updates(campaign: Campaign) -> None:
    verdict = campaign.verdict()
    assert (verdict["outcome"], campaign.evaluate().exit_code) == ("pass", 0)
    assert verdict["families"]["numerical"] == {"outcome": "pass", "passed": 6, "total": 6}
    assert {gate["id"] for gate in verdict["gates"] if gate["family"] == "numerical"} == {
        f"numerical/w/{quantity}" for quantity in GATES
    }
    table = {seen["quantity"]: seen for seen in verdict["observations"]["numerical"]["quantities"]}
    published = {name: (float(own), float(control)) for name, (own, control) in PRECISION.items()}
    published["moments"] = (0.00515174, 0.0046918)
    for name in ("parameters", "gradients", "updates", "moments"):
        assert (table[name]["candidate"]["value"], table[name]["control"]["value"]) == published[name]
    assert [name for name, seen in table.items() if seen["flagged"]] == ["updates"]
    assert round(table["updates"]["ratio"], 2) == 3.19
    flags = verdict["observations"]["numerical"]["flags"]
    assert [(flag["kind"], flag["quantity"]) for flag in flags] == [("control_factor", "updates")]
    assert flags[0]["limit"] == pytest.approx(3 * 0.0244179)


def test_every_gate_says_where_its_worst_was_reached(campaign: Campaign) -> None:
    gates = gates_of(campaign)
    assert gates["w/updates"]["reason"] == "update 5, worker 1, tensor blocks.0.weight"
    assert gates["w/loss"]["reason"] == "update 5, worker 1"
    assert gates["w/optimizer"]["reason"] == "step 5, worker 1, tensor w"
    assert gates["w/consensus"]["reason"] == "round 5, worker 1, tensor w"
    assert {name: gates[f"w/{name}"]["n"] for name in GATES} == {
        "loss": 10, "gradients": 10, "parameters": 10, "updates": 10, "optimizer": 2, "consensus": 10,
    }  # fmt: skip
    put(campaign, "updates", tensor_fields("0.3"))
    reason = gates_of(campaign)["w/updates"]["reason"]
    assert reason == "the worst rel l2 is not below the threshold: update 3, worker 1, tensor blocks.0.weight"


BOUNDARIES = [
    ("loss", loss_fields("0.0079"), "met"),
    ("loss", loss_fields("0.008"), "met"),
    ("loss", loss_fields("0.00800000000000001"), "missed"),
    ("loss", loss_fields("0.0081"), "missed"),
    ("loss", loss_fields("-0.0079"), "met"),
    ("loss", loss_fields("-0.0081"), "missed"),
    ("loss", loss_fields("0.0059999", "-2"), "met"),
    ("loss", loss_fields("0.002", "0"), "met"),
    ("loss", loss_fields("0.00201", "0"), "missed"),
    ("loss", loss_fields("1e308", "0"), "missed"),
    ("gradients", tensor_fields("0.0499"), "met"),
    ("gradients", tensor_fields("0.04999999999999999"), "met"),
    ("gradients", tensor_fields("0.05"), "missed"),
    ("gradients", tensor_fields("0.0501"), "missed"),
    ("parameters", tensor_fields("0.0199"), "met"),
    ("parameters", tensor_fields("0.02"), "missed"),
    ("updates", tensor_fields("0.0999"), "met"),
    ("updates", tensor_fields("0.10"), "missed"),
    ("updates", tensor_fields("2"), "missed"),
    ("optimizer", isolated_fields("1"), "met"),
    ("optimizer", isolated_fields("1.0000001"), "missed"),
    ("consensus", isolated_fields("1"), "met"),
    ("consensus", isolated_fields("1.0000001"), "missed"),
    ("consensus", isolated_fields("0"), "met"),
]


@pytest.mark.parametrize(("quantity", "fields", "finding"), BOUNDARIES)
def test_a_gate_just_inside_and_just_outside(
    campaign: Campaign, quantity: str, fields: dict[str, str], finding: str
) -> None:
    put(campaign, quantity, fields)
    found = findings_of(campaign)
    assert found == {**dict.fromkeys(GATES, "met"), quantity: finding}
    assert campaign.evaluate().exit_code == (0 if finding == "met" else 3)


def test_the_loss_is_compared_in_decimals_and_relative_to_the_baseline(campaign: Campaign) -> None:
    """In doubles 3.008 - 3 is 0.008000000000000007, which would be a miss."""
    put(campaign, "loss", {"reference": "3", "value": "3.008"})
    gate = gates_of(campaign)["w/loss"]
    assert (gate["value"], gate["threshold"], gate["comparison"], gate["margin"]) == (1.0, 1.0, "<=", 0.0)
    put(campaign, "loss", {"reference": "3.008", "value": "3"})
    assert gates_of(campaign)["w/loss"]["value"] == pytest.approx(0.008 / 0.008016)


def test_margins_are_positive_on_the_passing_side(campaign: Campaign) -> None:
    assert gates_of(campaign)["w/updates"]["margin"] == 0.0222253
    put(campaign, "updates", tensor_fields("0.25"))
    assert gates_of(campaign)["w/updates"]["margin"] == -0.15


def test_a_tensor_rule_gates_only_where_the_protocol_says_so(tmp_path: Path) -> None:
    bad = tensor_fields("0.03") | {"worst_rel_l2": "0.100001"}
    just = tensor_fields("0.03") | {"worst_rel_l2": "0.10"}
    for gated, fields, finding in (((), bad, None), (("gradients",), just, "met"), (("gradients",), bad, "missed")):
        campaign = make_cases(tmp_path, gated_tensors=gated)
        put(campaign, "gradients", fields)
        found = findings_of(campaign)
        assert found.get("gradients/tensors") == finding
        assert found["gradients"] == "met"
        flags = [flag["quantity"] for flag in observed(campaign)["flags"] if flag["kind"] == "tensor"]
        assert flags == (["gradients"] if fields is bad else [])


@pytest.mark.parametrize("quantity", GLOBAL_QUANTITIES)
def test_each_quantity_can_have_a_tensor_gate(tmp_path: Path, quantity: str) -> None:
    campaign = make_cases(tmp_path, gated_tensors=(quantity,))
    gate = gates_of(campaign)[f"w/{quantity}/tensors"]
    assert (gate["finding"], gate["comparison"], gate["statistic"]) == ("met", "<=", "worst_tensor_rel_l2")
    put(campaign, quantity, tensor_fields("0.01") | {"worst_rel_l2": "0.3"})
    gate = gates_of(campaign)[f"w/{quantity}/tensors"]
    assert (gate["finding"], gate["value"]) == ("missed", 0.3)
    assert "update 3, worker 1, tensor blocks.0.weight" in gate["reason"]


NOT_FINITE = {"value": "", "rel_l2": "", "worst_rel_l2": "", "nonfinite": "7"}
ZERO = {"reference": "0", "value": "0.25", "rel_l2": "", "worst_rel_l2": ""}
NOTHING = {"reference": "0", "value": "0", "rel_l2": "0", "worst_rel_l2": "0"}


@pytest.mark.parametrize("quantity", ["gradients", "parameters", "updates"])
@pytest.mark.parametrize(
    ("fields", "finding", "reason"),
    [
        (NOT_FINITE, "missed", "the other side is not finite: update 3, worker 1, tensor blocks.0.weight"),
        (NOT_FINITE | {"reference": ""}, "invalid", "the baseline is not finite: update 3"),
        (ZERO, "missed", "the other side differs from a baseline of zero: update 3"),
    ],
)
def test_what_has_no_number_never_passes(
    campaign: Campaign, quantity: str, fields: dict[str, str], finding: str, reason: str
) -> None:
    put(campaign, quantity, fields)
    gates = gates_of(campaign)
    gate = gates[f"w/{quantity}"]
    assert (gate["finding"], gate["value"], gate["margin"]) == (finding, None, None)
    assert reason in gate["reason"]
    assert [name for name, own in gates.items() if own["outcome"] != "pass"] == [f"w/{quantity}"]
    assert campaign.evaluate().exit_code == (3 if finding == "missed" else 4)


def test_zero_against_zero_is_no_difference(campaign: Campaign) -> None:
    for quantity in ("gradients", "updates", "exp_avg"):
        put(campaign, quantity, NOTHING)
    assert set(findings_of(campaign).values()) == {"met"}


@pytest.mark.parametrize("quantity", ["exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize(
    ("fields", "finding", "reason"),
    [
        (NOT_FINITE, "missed", "the other side is not finite: {} of update 3"),
        (NOT_FINITE | {"reference": ""}, "invalid", "the baseline is not finite: {} of update 3"),
    ],
)
def test_moments_without_a_gate_must_be_finite(
    campaign: Campaign, quantity: str, fields: dict[str, str], finding: str, reason: str
) -> None:
    put(campaign, quantity, fields)
    gates = gates_of(campaign)
    assert gates["w/updates"]["finding"] == finding
    assert reason.format(quantity) in gates["w/updates"]["reason"]
    assert [name for name, own in gates.items() if own["outcome"] != "pass"] == ["w/updates"]


def test_a_control_whose_moments_are_not_finite_makes_the_case_invalid(campaign: Campaign) -> None:
    put(campaign, "exp_avg", NOT_FINITE, "control")
    assert set(findings_of(campaign).values()) == {"invalid"}


@pytest.mark.parametrize("nothing", ["0", "1e-330"])
@pytest.mark.parametrize("quantity", ["loss", "gradients", "parameters", "updates"])
def test_a_worker_in_which_the_baseline_does_nothing_shows_nothing(
    campaign: Campaign, quantity: str, nothing: str
) -> None:
    for row in rows_of(campaign, quantity, worker="1"):
        row.update(NOTHING if quantity != "loss" else {"reference": "0", "value": "0"})
        row["reference"] = nothing
    gate = gates_of(campaign)[f"w/{quantity}"]
    assert gate["finding"] == "invalid"
    assert "all zero" in gate["reason"]
    assert "worker 1" in gate["reason"]


@pytest.mark.parametrize("quantity", ["gradients", "parameters", "updates"])
def test_a_baseline_that_does_nothing_at_all_shows_nothing(campaign: Campaign, quantity: str) -> None:
    for row in rows_of(campaign, quantity):
        row.update(NOTHING)
    gate = gates_of(campaign)[f"w/{quantity}"]
    assert gate["finding"] == "invalid"
    assert "all zero" in gate["reason"]


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"value": "", "nonfinite": "1"}, "missed"),
        ({"reference": "", "nonfinite": "1"}, "invalid"),
        ({"reference": "", "value": "", "nonfinite": "2"}, "invalid"),
    ],
)
def test_a_loss_that_is_not_finite_never_passes(campaign: Campaign, fields: dict[str, str], finding: str) -> None:
    put(campaign, "loss", fields)
    assert findings_of(campaign) == {**dict.fromkeys(GATES, "met"), "loss": finding}


def test_where_nothing_is_allowed_only_equal_losses_pass(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, loss_atol="0", loss_rtol="0")
    for comparison in ("candidate", "control"):
        for row in rows_of(campaign, "loss", comparison):
            row.update(loss_fields("0"))
    assert findings_of(campaign)["loss"] == "met"
    put(campaign, "loss", {"value": "3.000000000000000000000000000000000000001"})
    assert findings_of(campaign)["loss"] == "missed"


def test_an_isolated_check_that_is_not_finite_is_missed(campaign: Campaign) -> None:
    put(campaign, "consensus", {"value": "", "nonfinite": "3"})
    assert findings_of(campaign) == {**dict.fromkeys(GATES, "met"), "consensus": "missed"}


def withhold(campaign: Campaign, quantity: str, *comparisons: str) -> None:
    for comparison in comparisons:
        for row in rows_of(campaign, quantity, comparison):
            row.update({"value": "", "worst_tensor": ""})


@pytest.mark.parametrize(("quantity", "method"), [("optimizer", "optimizer_check"), ("consensus", "mix")])
def test_what_is_not_offered_is_not_evaluated_unless_it_is_required(tmp_path: Path, quantity: str, method: str) -> None:
    for required, finding, code in (((), "not_evaluated", 0), ((method,), "missing", 4)):
        for comparisons in (("candidate",), ("candidate", "control")):
            campaign = make_cases(tmp_path, required=required)
            withhold(campaign, quantity, *comparisons)
            gate = gates_of(campaign)[f"w/{quantity}"]
            assert (gate["finding"], gate["outcome"]) == (finding, "not_qualified")
            assert f"{method}()" in gate["reason"]
            assert campaign.evaluate().exit_code == code
            family = campaign.verdict()["families"]["numerical"]
            assert family == {
                "outcome": "not_qualified" if required else "pass", "passed": 5, "total": 6 if required else 5
            }  # fmt: skip


def test_the_consensus_of_a_single_worker_has_no_gate(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, workers=1)
    assert set(findings_of(campaign)) == GATES - {"consensus"}
    assert campaign.evaluate().exit_code == 0


def test_a_required_consensus_that_no_workload_could_show_is_missing(tmp_path: Path) -> None:
    """An adapter that offers its first worker alone leaves nothing to mix."""
    campaign = make_cases(tmp_path, "w", "other", workers=1, required=("mix",))
    gates = gates_of(campaign)
    for name in ("w", "other"):
        gate = gates[f"{name}/consensus"]
        assert (gate["finding"], gate["value"], gate["n"]) == ("missing", None, 0)
        assert "a single worker" in gate["reason"]
    assert campaign.evaluate().exit_code == 4


def test_a_workload_of_one_worker_beside_others_shows_no_required_consensus(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, "w", "other", required=("mix",))
    for file, key in (("numerical.csv", "quantity"), ("vacuity.csv", "mutation")):
        campaign.tables[file] = [
            row
            for row in campaign.tables[file]
            if row["workload"] == "other" or (row["worker"] == "0" and row[key] != "consensus")
        ]
    gates = gates_of(campaign)
    assert gates["w/consensus"]["finding"] == "not_evaluated"
    assert "a single worker" in gates["w/consensus"]["reason"]
    assert gates["other/consensus"]["finding"] == "met"
    assert campaign.evaluate().exit_code == 0


@pytest.mark.parametrize(
    ("quantity", "fields"),
    [
        ("loss", loss_fields("0.0081")),
        ("loss", {"value": "", "nonfinite": "1"}),
        ("gradients", tensor_fields("0.05")),
        ("parameters", tensor_fields("0.02")),
        ("updates", tensor_fields("0.1")),
        ("updates", NOT_FINITE),
        ("updates", NOT_FINITE | {"reference": ""}),
        ("updates", ZERO),
        ("optimizer", isolated_fields("1.1")),
        ("consensus", isolated_fields("1.1")),
    ],
)
def test_a_control_that_breaks_a_rule_makes_every_gate_of_its_case_invalid(
    tmp_path: Path, quantity: str, fields: dict[str, str]
) -> None:
    campaign = make_cases(tmp_path, "w", "other")
    put(campaign, quantity, fields, "control")
    put(campaign, "gradients", tensor_fields("0.4"))
    gates = gates_of(campaign)
    for name in GATES:
        assert gates[f"w/{name}"]["finding"] == "invalid"
        assert f"the control breaks the rules: w/{quantity}: " in gates[f"w/{name}"]["reason"]
        assert gates[f"other/{name}"]["finding"] == "met"
    assert campaign.evaluate().exit_code == 4


def test_a_control_breaks_a_tensor_rule_only_where_it_gates(tmp_path: Path) -> None:
    for gated, finding in (((), "met"), (("exp_avg",), "invalid")):
        campaign = make_cases(tmp_path, gated_tensors=gated)
        put(campaign, "exp_avg", tensor_fields("0.05") | {"worst_rel_l2": "0.2"}, "control")
        assert set(findings_of(campaign).values()) == {finding}


def test_a_worse_control_never_loosens_a_gate(campaign: Campaign) -> None:
    for row in rows_of(campaign, "updates", "control"):
        row.update(tensor_fields("0.0999"))
    put(campaign, "updates", tensor_fields("0.1000001"))
    assert findings_of(campaign)["updates"] == "missed"


def test_without_planned_controls_the_case_stands_alone(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, controls=False)
    assert not campaign.rows("numerical.csv", comparison="control")
    assert set(findings_of(campaign).values()) == {"met"}
    found = observed(campaign)
    assert found["vacuity"] == found["flags"] == []
    assert {seen["control"] for seen in found["quantities"]} == {None}


@pytest.mark.parametrize(("comparison", "kind"), [("candidate", "case"), ("control", "control-case")])
def test_a_missing_case_or_control_is_missing(campaign: Campaign, comparison: str, kind: str) -> None:
    tables = campaign.tables
    tables["attempts.csv"] = [row for row in tables["attempts.csv"] if f"/{kind}/" not in row["slot"]]
    tables["numerical.csv"] = [row for row in tables["numerical.csv"] if row["comparison"] != comparison]
    if comparison == "control":
        tables["vacuity.csv"] = []
    assert set(findings_of(campaign).values()) == {"missing"}
    assert campaign.evaluate().exit_code == 4


def test_an_absent_table_is_missing_evidence(campaign: Campaign) -> None:
    (campaign.evidence_path / "numerical.csv").unlink()
    verdict = campaign.verdict()
    findings = {gate["id"]: gate["finding"] for gate in verdict["gates"]}
    assert findings["evidence/numerical.csv"] == "missing"
    assert {finding for name, finding in findings.items() if name.startswith("numerical/")} == {"missing"}


def test_a_family_without_a_workload_never_passes(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={}, production={}, families=("numerical",))
    verdict = campaign.verdict()
    (gate,) = [gate for gate in verdict["gates"] if gate["family"] == "numerical"]
    assert (gate["id"], gate["finding"], verdict["outcome"]) == ("numerical/family", "missing", "not_qualified")


def plan_of(**compared: bool) -> Any:
    workloads = [SimpleNamespace(name=name, numerical=is_compared) for name, is_compared in compared.items()]
    return SimpleNamespace(protocol=SimpleNamespace(numerical="the rules", workloads=workloads))


def test_a_workload_that_is_left_out_has_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerical, "_workload_gates", lambda _plan, _rules, _checked, name: [name])
    checked: Any = None
    judged: list[Any] = list(numerical.gates(plan_of(a=True, b=False, c=True), checked))
    assert judged == ["a", "c"]


def test_a_family_of_which_every_workload_is_left_out_never_passes() -> None:
    checked: Any = None
    (gate,) = numerical.gates(plan_of(a=False, b=False), checked)
    assert (gate.id, gate.finding.value) == ("numerical/family", "missing")


def test_both_families_are_judged_side_by_side(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2",) * 3}, families=("throughput", "numerical"))
    verdict = campaign.verdict()
    assert verdict["outcome"] == "pass"
    assert verdict["families"]["numerical"]["total"] == 24
    put(campaign, "updates", tensor_fields("0.2"))
    verdict = campaign.write().verdict()
    assert (verdict["families"]["throughput"]["outcome"], verdict["outcome"]) == ("pass", "not_qualified")


def test_an_exception_inside_a_gate_is_invalid_and_never_a_pass(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> Any:
        raise ArithmeticError("unforeseen")

    monkeypatch.setattr(numerical, "worst_reading", fail)
    gates = gates_of(campaign)
    for name in GATES:
        assert (gates[f"w/{name}"]["finding"], gates[f"w/{name}"]["outcome"]) == ("invalid", "not_qualified")
        assert "ArithmeticError: unforeseen" in gates[f"w/{name}"]["reason"]
    assert campaign.evaluate().exit_code == 4


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_byte(campaign: Campaign, shuffler: random.Random) -> None:
    expected = campaign.write().evaluate().verdict
    for rows in campaign.tables.values():
        shuffler.shuffle(rows)
    assert campaign.write().evaluate().verdict == expected


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(-200, 200))
def test_a_change_of_scale_changes_no_relative_error(campaign: Campaign, exponent: int) -> None:
    expected = gates_of(campaign)
    before = [dict(row) for row in campaign.tables["numerical.csv"]]
    for row in campaign.tables["numerical.csv"]:
        if row["quantity"] in GLOBAL_QUANTITIES:
            for column in ("reference", "value"):
                row[column] = repr(float(row[column]) * 2.0**exponent)
    found = gates_of(campaign)
    campaign.tables["numerical.csv"][:] = before
    assert found == expected


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(GATES)), st.decimals("0.001", "3", places=4), st.decimals("0.001", "3", places=4))
def test_a_gate_passes_if_and_only_if_both_comparisons_keep_the_rule(
    campaign: Campaign, quantity: str, own: Decimal, control: Decimal
) -> None:
    """Swapping a case with its control turns a miss into an invalid instrument, and the other way round."""
    limits = {"gradients": "0.05", "parameters": "0.02", "updates": "0.1"}
    clean = [dict(row) for row in campaign.tables["numerical.csv"]]
    kept = {}
    for comparison, value in (("candidate", own), ("control", control)):
        scaled = value * Decimal(limits.get(quantity, "1"))
        make = {"loss": lambda v: loss_fields(v * Decimal("0.008")), "optimizer": isolated_fields}
        fields = make.get(quantity, isolated_fields if quantity == "consensus" else tensor_fields)(scaled)
        for row in rows_of(campaign, quantity, comparison):
            row.update(fields)
        kept[comparison] = value < 1 if quantity in limits else value <= 1
    expected = "invalid" if not kept["control"] else "met" if kept["candidate"] else "missed"
    found = findings_of(campaign)
    campaign.tables["numerical.csv"][:] = clean
    assert found[quantity] == expected


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["numerical.csv", "vacuity.csv"]), st.integers(0, 10**6), st.booleans())
def test_no_row_can_be_deleted_or_doubled_unnoticed(campaign: Campaign, file: str, place: int, doubled: bool) -> None:
    rows = campaign.tables[file]
    clean = list(rows)
    row = rows[place % len(rows)]
    if doubled:
        rows.append(dict(row))
    else:
        rows.remove(row)
    result = campaign.write().evaluate()
    rows[:] = clean
    assert result.exit_code == 4


def test_a_second_computation_agrees(tmp_path: Path) -> None:
    """From the CSV alone, in fractions and doubles, without anything of the program."""
    campaign = make_cases(tmp_path, "u", "v", "w", workers=3)
    chooser = random.Random(11)  # noqa: S311 - the same values in every run
    for row in campaign.rows("numerical.csv", comparison="candidate"):
        scale = Decimal(repr(chooser.lognormvariate(-4, 1)))
        if row["quantity"] == "loss":
            row.update(loss_fields(scale / 10, repr(chooser.uniform(-9, 9))))
        elif row["quantity"] in GLOBAL_QUANTITIES:
            row.update(tensor_fields(scale, repr(chooser.uniform(0.1, 9))))
        else:
            row.update(isolated_fields(scale * 40))
    campaign.write()
    with (campaign.evidence_path / "numerical.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["comparison"] == "candidate"]
    limits = {"gradients": 0.05, "parameters": 0.02, "updates": 0.1}
    gates = {name: gate for name, gate in gates_of(campaign).items() if gate["family"] == "numerical"}
    assert len(gates) == 18
    for name, gate in gates.items():
        workload, quantity = name.split("/")
        own = [row for row in rows if (row["workload"], row["quantity"]) == (workload, quantity)]
        values = [_value(row) for row in own]
        met = max(values) < limits[quantity] if quantity in limits else max(values) <= 1
        assert gate["value"] == pytest.approx(max(values), rel=1e-12)
        assert (gate["finding"], gate["n"]) == ("met" if met else "missed", len(own))
        place = own[values.index(max(values))]
        assert f"{place['update']}, worker {place['worker']}" in gate["reason"]
    assert {gate["finding"] for gate in gates.values()} == {"met", "missed"}


def _value(row: dict[str, str]) -> float:
    if row["quantity"] != "loss":
        return float(row["rel_l2"] or row["value"])
    reference, value = Fraction(row["reference"]), Fraction(row["value"])
    return float(abs(value - reference) / (Fraction(2, 1000) * (1 + abs(reference))))


def test_117_workloads_are_evaluated_fast(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, *(f"w{number}" for number in range(117)))
    before = time.process_time()
    result = campaign.evaluate()
    assert result.exit_code == 0
    assert time.process_time() - before < 30
