"""What the terminal says of the numerical family beside its gates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from campaign.judging.report import Remarks, numerical_remarks
from tests.reports.evaluations import make_evaluation
from tests.reports.numerical import Matched, add_numerical, make_blind, make_matched, workloads_of


def remarks(folder: Path, spoil: Callable[[Matched], None] = lambda _: None) -> Remarks:
    evaluation = make_evaluation(folder)
    matched = make_matched(workloads_of(evaluation))
    spoil(matched)
    add_numerical(evaluation, matched)
    found = numerical_remarks((evaluation / "verdict.json").read_bytes(), (evaluation / "protocol.json").read_bytes())
    assert found is not None
    return found


def flag(matched: Matched, kind: str, quantity: str, value: float, limit: float) -> None:
    place = {"workload": matched.workloads[0], "comparison": "candidate", "update": 1, "worker": 0, "tensor": "w"}
    own = {"kind": kind, "quantity": quantity, "value": value, "limit": limit, "rows": 1}
    matched.observed["flags"].append(place | own)


def test_a_quantity_above_its_control_is_said_in_plain_letters(tmp_path: Path) -> None:
    found = remarks(tmp_path, lambda matched: flag(matched, "control_factor", "updates", 0.0778, 0.0733))
    assert found.lines[0].startswith("Flagged: updates at 3.19x the control's worst, above 3 times")
    assert "".join(found.lines).isascii()
    assert found.counts == {
        "flagged_quantities": 1,
        "flags_above_control": 1,
        "flags_of_exact_controls": 0,
        "flags_of_single_tensors": 0,
        "gates_without_sight": 0,
        "workloads_of_one_worker": 0,
    }


def test_exact_controls_tensors_blind_gates_and_single_workers_have_a_line_each(tmp_path: Path) -> None:
    def spoil(matched: Matched) -> None:
        flag(matched, "control_factor", "gradients", 0.01, 0.0)
        flag(matched, "tensor", "gradients", 0.5, 0.1)
        make_blind(matched, matched.workloads[0])
        matched.case(matched.workloads[0])["workers"] = 1

    found = remarks(tmp_path, spoil)
    text = "\n".join(found.lines)
    assert "the candidate differs in 1, by at most 0.20 of a gate (gradients of" in text
    assert "Flagged for a single tensor: 1 case and quantity." in text
    assert "1 would have seen none of the faults tried on it" in text
    assert "A single worker: 1 of " in text
    assert list(found.counts.values()) == [1, 0, 1, 1, 1, 1]


def test_nothing_is_remarked_where_the_family_is_not_declared(tmp_path: Path) -> None:
    evaluation = make_evaluation(tmp_path)
    assert numerical_remarks((evaluation / "verdict.json").read_bytes(), b"{}") is None
