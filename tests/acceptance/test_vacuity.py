"""What the gates would have read for a faulty candidate: complete, checked, blind gates named, gating nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acceptance import vacuity
from acceptance.formats import GLOBAL_QUANTITIES, MUTATIONS
from tests.support.cases import gates_of, make_cases, observed, rows_of
from tests.support.evidence import Campaign, loss_fields

FILE = "evidence/vacuity.csv"


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_cases(tmp_path)


def sights(campaign: Campaign) -> dict[str, dict[str, Any]]:
    """Return the entries by quantity."""
    return {entry["quantity"]: entry for entry in observed(campaign)["vacuity"]}


def read(campaign: Campaign, mutation: str, quantity: str, value: str) -> None:
    rows = campaign.rows("vacuity.csv", mutation=mutation, quantity=quantity)
    assert rows
    for row in rows:
        row["rel_l2"] = value


def test_a_parameter_gate_is_named_blind_where_updates_are_small(campaign: Campaign) -> None:
    """Updates of 0.4% of the parameters: neither their absence nor their opposite reaches the gate of 2%."""
    found = sights(campaign)
    assert list(found) == ["loss", "gradients", "parameters", "updates"]
    assert found["parameters"] == {
        "workload": "w",
        "quantity": "parameters",
        "readings": {"no_update": 0.004, "negated": 0.008, "shuffled": 1.4, "previous_batch": 0.5},
        "seen": ["shuffled", "previous_batch"],
        "unseen": ["no_update", "negated"],
        "discriminating": True,
    }
    assert (found["updates"]["seen"], found["updates"]["unseen"]) == (list(MUTATIONS), [])
    assert found["gradients"]["readings"] == {
        "no_update": None,
        "negated": None,
        "shuffled": 1.4,
        "previous_batch": 0.5,
    }
    assert (found["gradients"]["seen"], found["gradients"]["unseen"]) == (["shuffled", "previous_batch"], [])


def test_a_gate_that_stays_green_for_everything_is_not_discriminating(campaign: Campaign) -> None:
    for mutation in MUTATIONS:
        read(campaign, mutation, "parameters", "0.0199")
    found = sights(campaign)
    assert found["parameters"]["unseen"] == list(MUTATIONS)
    assert found["parameters"]["discriminating"] is False
    assert found["updates"]["discriminating"] is True
    assert campaign.evaluate().exit_code == 0


@pytest.mark.parametrize(("value", "seen"), [("0.0199", False), ("0.02", True), ("0.0201", True)])
def test_a_reading_stands_to_the_threshold_as_the_gate_does(campaign: Campaign, value: str, seen: bool) -> None:
    read(campaign, "no_update", "parameters", value)
    assert ("no_update" in sights(campaign)["parameters"]["seen"]) is seen


def test_the_worst_over_updates_and_workers_is_read(campaign: Campaign) -> None:
    rows = campaign.rows("vacuity.csv", mutation="negated", quantity="parameters")
    rows[3]["rel_l2"] = "0.03"
    found = sights(campaign)["parameters"]
    assert found["readings"]["negated"] == 0.03
    assert "negated" in found["seen"]


def test_a_reading_that_is_not_finite_is_seen(campaign: Campaign) -> None:
    campaign.rows("vacuity.csv", mutation="negated", quantity="parameters")[3]["rel_l2"] = ""
    found = sights(campaign)["parameters"]
    assert found["readings"]["negated"] is None
    assert "negated" in found["seen"]
    assert gates_of(campaign)[FILE]["finding"] == "met"


@pytest.mark.parametrize(
    ("value", "reading", "seen"), [("0.0026", 0.975, False), ("0.003", 1.125, True), ("0", 0.0, False)]
)
def test_a_loss_is_read_in_the_units_of_its_gate(campaign: Campaign, value: str, reading: float, seen: bool) -> None:
    """The control's loss is 3, of which 0.008 is allowed."""
    read(campaign, "previous_batch", "loss", value)
    found = sights(campaign)["loss"]
    assert found["readings"] == {"no_update": None, "negated": None, "shuffled": None, "previous_batch": reading}
    assert found["seen"] == (["previous_batch"] if seen else [])
    assert found["unseen"] == ([] if seen else ["previous_batch"])
    assert found["discriminating"] is seen


def test_the_loss_of_the_same_update_and_worker_is_taken(campaign: Campaign) -> None:
    (row,) = rows_of(campaign, "loss", "control", update=2, worker=1)
    row.update(loss_fields("0", "9"))
    read(campaign, "previous_batch", "loss", "0.01")
    assert sights(campaign)["loss"]["readings"]["previous_batch"] == pytest.approx(0.09 / 0.02)


def lose(campaign: Campaign) -> None:
    campaign.tables["vacuity.csv"].pop()


def double(campaign: Campaign) -> None:
    campaign.tables["vacuity.csv"].append(dict(campaign.tables["vacuity.csv"][0]))


def empty(campaign: Campaign) -> None:
    campaign.tables["vacuity.csv"].clear()


SPOILT: dict[str, tuple[str, str, dict[str, str]]] = {
    "update too many": ("invalid", "not asked for", {"update": "6"}),
    "worker too many": ("invalid", "not asked for", {"worker": "2"}),
    "quantity of another mutation": ("invalid", "not asked for", {"quantity": "gradients"}),
    "stale batch in another update": ("invalid", "not asked for", {"mutation": "previous_batch", "update": "3"}),
    "unknown workload": ("invalid", "no such control", {"workload": "nobody"}),
    "unknown attempt": ("invalid", "not in attempts.csv, or not sealed", {"attempt": "2"}),
    "negative": ("invalid", "negative", {"rel_l2": "-1", "update": "6"}),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_row_too_many_is_invalid_and_costs_no_numerical_gate(campaign: Campaign, name: str) -> None:
    finding, reason, fields = SPOILT[name]
    row = campaign.rows("vacuity.csv", mutation="no_update")[0]
    campaign.tables["vacuity.csv"].append(row | fields)
    gates = gates_of(campaign)
    assert gates[FILE]["finding"] == finding
    assert reason in gates[FILE]["reason"]
    assert gates["w/updates"]["finding"] == "met"
    assert campaign.evaluate().exit_code == 4


@pytest.mark.parametrize(
    ("spoil", "finding", "reason"),
    [(lose, "missing", "no row for"), (double, "invalid", "2 rows"), (empty, "missing", "no rows")],
)
def test_incomplete_rows_are_named_and_nothing_is_read_from_them(
    campaign: Campaign, spoil: Any, finding: str, reason: str
) -> None:
    spoil(campaign)
    gates = gates_of(campaign)
    assert gates[FILE]["finding"] == finding
    assert reason in gates[FILE]["reason"]
    assert observed(campaign)["vacuity"] == []


def test_an_absent_table_costs_its_own_gate_alone(campaign: Campaign) -> None:
    (campaign.evidence_path / "vacuity.csv").unlink()
    findings = {gate["id"]: gate["finding"] for gate in campaign.verdict()["gates"]}
    assert findings.pop(FILE) == "missing"
    assert set(findings.values()) == {"met"}
    assert campaign.evaluate().exit_code == 4


def test_without_a_control_there_are_no_readings_to_miss(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, controls=False)
    assert FILE not in gates_of(campaign)
    row = {"workload": "w", "attempt": "1", "mutation": "negated", "update": "1", "worker": "0"}
    campaign.tables["vacuity.csv"].append(row | {"quantity": "updates", "rel_l2": "2"})
    assert gates_of(campaign)[FILE]["finding"] == "invalid"


def test_a_single_update_has_no_previous_batch(tmp_path: Path) -> None:
    campaign = make_cases(tmp_path, updates=1)
    assert not campaign.rows("vacuity.csv", mutation="previous_batch")
    assert gates_of(campaign)[FILE]["finding"] == "met"
    assert sights(campaign)["loss"]["discriminating"] is False


def test_every_mutation_has_the_documented_rows(campaign: Campaign) -> None:
    places = {
        mutation: {
            (int(row["update"]), int(row["worker"]), row["quantity"])
            for row in campaign.rows("vacuity.csv", mutation=mutation)
        }
        for mutation in MUTATIONS
    }
    both, every = ("parameters", "updates"), range(1, 6)
    assert places == {
        "no_update": {(u, w, q) for u in every for w in (0, 1) for q in both},
        "negated": {(u, w, q) for u in every for w in (0, 1) for q in both},
        "shuffled": {(u, w, q) for u in every for w in (0, 1) for q in GLOBAL_QUANTITIES},
        "previous_batch": {(2, w, q) for w in (0, 1) for q in ("loss", *GLOBAL_QUANTITIES)},
    }


def test_an_exception_inside_the_check_is_invalid_and_never_a_pass(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_named: object) -> Any:
        raise KeyError("unforeseen")

    monkeypatch.setattr(vacuity, "check", fail)
    assert gates_of(campaign)[FILE]["finding"] == "invalid"
    assert campaign.evaluate().exit_code == 4
