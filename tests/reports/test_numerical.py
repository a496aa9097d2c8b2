from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from campaign.documents import NumericalRules
from reports.numerical import left_out
from reports.templating import markdown_escaped
from tests.conftest import Golden
from tests.reports.evaluations import (
    HOSTILE,
    TEMPLATE,
    case_of,
    make_evaluation,
    report_of,
    seed_size,
    write_evaluation,
)
from tests.reports.numerical import (
    THRESHOLDS,
    Matched,
    add_attempts,
    add_numerical,
    do_not_offer,
    fail_gate,
    make_blind,
    make_matched,
    workloads_of,
)
from tests.reports.test_render import IMAGE, Page, golden_bytes, table_text
from tests.support.evidence import Campaign, loss_fields, make_campaign, tensor_fields

GOLDEN = Path(__file__).parent / "golden"
BOTH = ("throughput", "numerical")
PASSING = {"sync": ("1.06", "1.06", "1.06")}
WORST = (
    "Worst relative L2 of each quantity over all workloads, updates and workers, candidate beside control; "
    "loss, optimizer and consensus as a share of what is allowed"
)
FAILED = "Workloads that do not pass: the worst over updates and workers of each quantity"
PASSED = "Workloads that pass: the worst over updates and workers of each quantity"
FAULTS = (
    "Which fault, made in one update, would have been seen at that update: as gates of all that it was tried on, with "
    "the range of readings"
)


def make_real(folder: Path, **options: Any) -> Campaign:
    """Make a campaign with both families that passes."""
    arguments: dict[str, Any] = {"ratios": PASSING, "families": BOTH, "workloads_per_category": 3, **options}
    return make_campaign(folder, **arguments)


def by_hand(folder: Path, spoil: Callable[[Matched], None] = lambda _: None) -> Path:
    """Write the report of an evaluation whose numerical part is written by hand."""
    evaluation = make_evaluation(folder, ratios=PASSING)
    matched = make_matched(workloads_of(evaluation))
    spoil(matched)
    return report_of(add_numerical(evaluation, matched))


def words(report: Path) -> str:
    return " ".join(" ".join(Page((report / "report.html").read_text()).text).split())


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_of(write_evaluation(make_real(tmp_path_factory.mktemp("clean"))))


def test_the_published_table_is_shown_as_published(clean: Path) -> None:
    rows = table_text(clean, WORST).splitlines()
    assert "| parameters | 2.30\u00d7 | 6.482e-05 | 2.818e-05 | \\< 0.02 | 4 of 4 pass |" in rows
    assert "| gradients | 1.04\u00d7 | 0.005753 | 0.005551 | \\< 0.05 | 4 of 4 pass |" in rows
    assert "| updates | 3.19\u00d7 flagged | 0.07777 | 0.02442 | \\< 0.1 | 4 of 4 pass |" in rows
    moments = (
        "| moments: the worse of exp\\_avg and exp\\_avg\\_sq | 1.10\u00d7 | 0.005152 | 0.004692 | not gated | no say |"
    )
    assert moments in rows


def test_the_unrounded_number_stands_behind_each(clean: Path) -> None:
    values = {cell["value"] for cell in Page((clean / "report.html").read_text()).attributes("data")}
    assert {"0.0000648159", "0.00575311", "0.0777747", "0.00515174"} <= values


def test_the_family_is_one_sentence_and_only_undeclared_ones_are_named_as_such(clean: Path) -> None:
    text = words(clean)
    assert "4 of 4 workloads pass every numerical gate over 5 matched local updates per worker." in text
    assert "convergence and device were not declared, so nothing is known of them." in text
    assert "numerical, convergence" not in text


def test_a_report_without_the_family_has_neither_its_pages_nor_its_files(tmp_path: Path) -> None:
    report = report_of(make_evaluation(tmp_path))
    assert "numerical-section" not in (report / "report.html").read_text()
    assert "## Numerical" not in (report / "report.md").read_text()
    assert not (report / "numerical-cases.csv").exists()
    assert not (report / "vacuity.csv").exists()


def test_the_family_alone_is_reported(tmp_path: Path) -> None:
    text = words(report_of(write_evaluation(make_real(tmp_path, families=("numerical",)))))
    assert "4 of 4 workloads pass every numerical gate" in text
    assert "The protocol declares no throughput gates." in text


def test_where_the_worst_was_reached_is_named(clean: Path) -> None:
    shown = (clean / "report.md").read_text()
    assert "| updates | candidate | 0.07777 | `20m-sync-b1` | 5 | 1 | `blocks.0.weight` | 0.09722 |" in shown


@pytest.mark.parametrize(("moments", "said"), [("fresh", "start fresh, at zero"), ("warm", "start warm, as the")])
@pytest.mark.parametrize("scalars", ["fp64", "fp32"])
def test_moments_and_scalar_precision_are_stated(tmp_path: Path, moments: str, scalars: str, said: str) -> None:
    rules = NumericalRules.of({**NumericalRules().to_json(), "moments": moments, "isolated_scalars": scalars})
    text = words(report_of(write_evaluation(make_real(tmp_path, numerical=rules))))
    assert f"Adam's moments {said}" in text
    assert f"form their scalars (1 - beta, bias corrections) in {scalars}" in text
    assert f"with {moments} moments." in text


def test_each_gated_quantity_has_a_plot_with_its_sentence(clean: Path) -> None:
    page = Page((clean / "report.html").read_text())
    plots = [svg["aria-label"] for svg in page.attributes("svg") if "aria-label" in svg]
    matched = [label for label in plots if "over the matched updates of 4 candidate cases and 4 control cases" in label]
    assert len(matched) == 4
    assert any(
        "against the gate < 0.05. 4 of 4 gates pass. The candidate's worst is 0.005753" in own for own in matched
    )
    assert "How far a side is from the baseline after each matched update" in words(clean)


def test_a_missed_gate_is_named_everywhere_with_a_number_on_its_own_side(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    (row,) = campaign.rows(
        "numerical.csv", workload="20m-sync-b2", comparison="candidate", quantity="updates", update=5, worker=1
    )
    row.update(tensor_fields("0.1000004"))
    report = report_of(write_evaluation(campaign))
    text = words(report)
    assert "Retiring the baseline is blocked, because 1 of" in text
    assert "1 missed): numerical/20m-sync-b2/updates;" in text
    assert "3 of 4 workloads pass every numerical gate" in text
    assert "1 gate does not (1 missed)" in text
    assert "missed 0.1000004 < 0.1" in text
    shown = re.findall(r'<data value="0\.1000004">([^<]*)', (report / "report.html").read_text())
    assert len(shown) > 4
    assert set(shown) == {"0.1000004"}
    assert "| `20m-sync-b2` | 0.2000 | 0.005753 | 6.482e-05 | 0.1000004 |" in table_text(report, FAILED)
    assert "20m-sync-b2" not in table_text(report, PASSED)


def test_what_is_not_finite_is_missed_and_named(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    (row,) = campaign.rows(
        "numerical.csv", workload="20m-sync-b2", comparison="candidate", quantity="gradients", update=3, worker=0
    )
    row.update(value="", rel_l2="", worst_rel_l2="", nonfinite="7")
    report = report_of(write_evaluation(campaign))
    assert "| `20m-sync-b2` | 0.2000 | not finite |" in table_text(report, FAILED)
    assert "| gradients | flagged | not finite | 0.005551 |" in table_text(report, WORST)
    assert ">not finite</text>" in (report / "report.html").read_text()


def test_a_broken_control_makes_its_case_invalid_and_says_so(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    for row in campaign.rows("numerical.csv", workload="20m-sync-b2", comparison="control", quantity="updates"):
        row.update(tensor_fields("0.2"))
    report = report_of(write_evaluation(campaign))
    assert "| `20m-sync-b2` | 0.2000 |" in table_text(report, FAILED)
    assert "6 invalid): numerical/20m-sync-b2/loss" in words(report)
    assert "3 of 4 pass: 1 invalid" in table_text(report, WORST)


def test_missing_and_invalid_cases_are_spelled_out(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    for file, wanted in (
        ("numerical.csv", {"workload": "20m-sync-b2", "comparison": "candidate"}),
        ("attempts.csv", {"allocation": "case-20m-sync-b2-a1"}),
    ):
        gone = campaign.rows(file, **wanted)
        assert gone
        campaign.tables[file] = [row for row in campaign.tables[file] if row not in gone]
    report = report_of(write_evaluation(campaign))
    assert "3 of 4 pass: 1 missing" in table_text(report, WORST)
    assert "| `20m-sync-b2` | missing | missing | missing | missing | - | missing |" in table_text(report, FAILED)
    assert "`cdda18a0e21ae/case/20m-sync-b2`" in (report / "report.md").read_text()


def test_what_the_adapter_does_not_offer_is_not_evaluated_and_no_pass(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    for row in campaign.rows("numerical.csv", quantity="consensus"):
        row.update(value="", worst_tensor="")
    report = report_of(write_evaluation(campaign))
    text = words(report)
    assert "(4 more were not evaluated, which is no pass)" in text
    assert "4 of 4 workloads pass every numerical gate that was evaluated over 5 matched local updates" in text
    lack = "consensus of 4 workloads; 4 of the workloads counted as passing lack one."
    assert f"Not evaluated, which is no pass: {lack}" in text
    assert (
        "| Consensus, mixing alone | not evaluated: 4 workloads: a side does not offer mix() | - | - | - |"
        in table_text(report, "Isolated checks")
    )
    assert "not evaluated - \u2264 1.0 numerical, consensus: 4 workloads" in text


def test_serialised_and_shared_cases_are_named_with_what_they_say_less_of(tmp_path: Path) -> None:
    rules = NumericalRules(serialized=("20m-sync-b1",), shared_executor=("production",))
    report = report_of(write_evaluation(make_real(tmp_path, numerical=rules)))
    text = words(report)
    assert "Serialised: 20m-sync-b1 (candidate and control) and production (candidate and control)." in text
    assert "Shared executor: production (control)." in text
    assert "the weaker independence" in text
    assert "| independent: serialised |" in table_text(report, PASSED)


def test_independent_cases_are_said_to_be_so(clean: Path) -> None:
    assert "Every case ran both sides at once, each in a process with an executor of its own." in words(clean)


def test_gates_of_single_tensors_have_their_row(tmp_path: Path) -> None:
    campaign = make_real(tmp_path, numerical=NumericalRules(gated_tensors=("gradients",)))
    report = report_of(write_evaluation(campaign))
    row = (
        "| gradients, per tensor: the largest error of a single tensor | - | 0.007191 | - | \u2264 0.1 | 4 of 4 pass |"
    )
    assert row in table_text(report, WORST)
    assert "The rule gates gradients in this protocol." in words(report)


def test_a_workload_that_only_single_tensors_fail_is_marked_and_says_so(tmp_path: Path) -> None:
    campaign = make_real(tmp_path, numerical=NumericalRules(gated_tensors=("gradients", "exp_avg_sq")))
    for quantity in ("gradients", "exp_avg_sq"):
        (row,) = campaign.rows(
            "numerical.csv", workload="20m-sync-b2", comparison="candidate", quantity=quantity, update=4, worker=1
        )
        row.update(worst_rel_l2="0.5")
    report = report_of(write_evaluation(campaign))
    (shown,) = table_text(report, FAILED).splitlines()[2:]
    cells = [cell.strip() for cell in shown.split("|")]
    assert cells[3] == "0.005753: one tensor: 0.5000"
    assert cells[6].endswith(": one tensor of exp\\_avg\\_sq: 0.5000")
    (table,) = re.findall(r'<table id="numerical-failed".*?</table>', (report / "report.html").read_text(), re.DOTALL)
    assert table.count("mark m-missed") == 2


def test_flagged_tensors_are_listed_with_their_limit_and_the_number_of_their_rows(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    for update, error in ((4, "0.5"), (3, "0.4")):
        (row,) = campaign.rows(
            "numerical.csv",
            workload="20m-sync-b2", comparison="candidate", quantity="gradients", update=update, worker=1,
        )  # fmt: skip
        row.update(worst_tensor="blocks.7.norm.gain", worst_rel_l2=error)
    report = report_of(write_evaluation(campaign))
    assert (
        "| `20m-sync-b2` | candidate | gradients | 0.5000 | 0.1 | 4 | 1 | `blocks.7.norm.gain` | 2 |"
        in (report / "report.md").read_text()
    )
    assert "The rule gates nothing in this protocol." in words(report)


def test_flags_of_an_evaluation_that_did_not_count_them_are_shown(tmp_path: Path) -> None:
    def spoil(matched: Matched) -> None:
        make_worst(matched)
        del matched.observed["flags"][2:]
        for flag in matched.observed["flags"]:
            del flag["rows"]

    assert "`blocks.11.attention.query.weight` | - |" in (by_hand(tmp_path, spoil) / "report.md").read_text()


EXACT = "No quantity of a workload is above 3 times its own control's worst, but for {} whose control is exact."


def test_an_exact_control_is_one_sentence_and_hides_no_other_flag(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    for row in campaign.rows("numerical.csv", comparison="control", quantity="parameters"):
        row.update(tensor_fields("0"))
    report = report_of(write_evaluation(campaign))
    text = words(report)
    assert "Flagged: updates at 3.19\u00d7 the control's worst" in text
    assert (
        "The controls repeat exactly in 4 of 32 pairs of workload and quantity. There any difference counts as a flag, "
        "and the candidate differs in 4, by at most 0.0032 of a gate (parameters of 20m-sync-b1)." in text
    )
    assert "| parameters | control is exact | 6.482e-05 | 0 |" in table_text(report, WORST)
    flagged = [line for line in (report / "report.md").read_text().splitlines() if "| parameters | 6.4" in line]
    assert flagged == []
    assert "| parameters | control |" not in (report / "report.md").read_text()


def test_controls_that_are_all_exact_mark_nothing(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    for row in campaign.rows("numerical.csv", comparison="control"):
        isolated = {"value": "0"} if row["quantity"] in {"optimizer", "consensus"} else None
        row.update(isolated or (loss_fields("0") if row["quantity"] == "loss" else tensor_fields("0")))
    report = report_of(write_evaluation(campaign))
    text = words(report)
    assert "No control differs from itself anywhere. The controls repeat exactly in 32 of 32 pairs" in text
    assert "of a gate (updates of" in text
    assert EXACT.format(32) in text
    page = (report / "report.html").read_text()
    assert "mark m-flagged" not in page[page.index('id="numerical-worst"') : page.index('id="numerical-vacuity"')]


def test_what_is_not_finite_beside_an_exact_control_stays_flagged(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    for row in campaign.rows("numerical.csv", comparison="control", quantity="exp_avg"):
        row.update(tensor_fields("0"))
    for row in campaign.rows("numerical.csv", comparison="candidate", quantity="exp_avg"):
        row.update(value="", rel_l2="", worst_rel_l2="", nonfinite="7")
    report = report_of(write_evaluation(campaign))
    assert "The controls repeat exactly" not in words(report)
    assert "| `20m-sync-b2` | exp\\_avg | not finite | 0 |" in (report / "report.md").read_text()


# --- workers ----------------------------------------------------------------------------------------------------------


def test_the_number_of_workers_is_shown(clean: Path) -> None:
    assert "Their cases have 2 workers each." in words(clean)
    assert all(line.endswith("| 2 | independent |") for line in table_text(clean, PASSED).splitlines()[2:])
    assert "A single worker:" not in words(clean)


def test_a_workload_that_shows_one_worker_of_several_is_named_and_marked(tmp_path: Path) -> None:
    def spoil(matched: Matched) -> None:
        for side in ("candidate", "control"):
            matched.case(matched.workloads[1], side)["workers"] = 1

    report = by_hand(tmp_path, spoil)
    text = words(report)
    assert "Their cases have 1 to 8 workers each." in text
    assert "A single worker: 1 of 3 workloads of category sync (20m-sync-b2)." in text
    assert "the adapter shows one of them alone" in text
    (table,) = re.findall(r'<table id="numerical-passed".*?</table>', (report / "report.html").read_text(), re.DOTALL)
    assert table.count("mark m-flagged") == 1


def test_a_category_of_single_workers_is_named_without_marks(tmp_path: Path) -> None:
    def spoil(matched: Matched) -> None:
        for case in matched.observed["cases"]:
            case["workers"] = 1

    report = by_hand(tmp_path, spoil)
    assert "A single worker: 3 of 3 workloads of category sync and 1 of 1 workload of no category." in words(report)
    (table,) = re.findall(r'<table id="numerical-passed".*?</table>', (report / "report.html").read_text(), re.DOTALL)
    assert table.count("mark m-flagged") == 0


def test_a_campaign_without_controls_says_what_is_not_known(tmp_path: Path) -> None:
    campaign = make_real(tmp_path, numerical=NumericalRules(controls=False))
    campaign.tables["vacuity.csv"] = []
    text = words(report_of(write_evaluation(campaign)))
    assert "The protocol plans no controls" in text
    assert "There is no control that the candidate could be compared with." in text
    assert "it is not known which faults the gates would have seen" in text


# --- what the gates can see -------------------------------------------------------------------------------------------


def test_each_gate_is_shown_with_the_faults_that_it_would_have_seen(clean: Path) -> None:
    rows = table_text(clean, FAULTS)
    own = "unseen: 0 of 4: reads 0.0040 | unseen: 0 of 4: reads 0.0080 | seen: 4 of 4"
    assert f"| parameters | \\< 0.02 | 4 of 4 | {own}" in rows
    assert "| updates | \\< 0.1 | 4 of 4 | seen: 4 of 4: reads 1.0 | seen: 4 of 4: reads 2.0 |" in rows
    assert "| gradients | \\< 0.05 | 2 of 4 | not tried | not tried |" in rows
    assert "| loss | \u2264 1.0 | 1 of 4 | not tried | not tried | not tried |" in rows


def test_what_a_reading_is_and_which_gates_have_none_is_said(tmp_path: Path) -> None:
    report = report_of(write_evaluation(make_real(tmp_path, numerical=NumericalRules(gated_tensors=("gradients",)))))
    text = words(report)
    assert "what the gates read at an update in which one fault is made" in text
    assert "a fault which persists accumulates from update to update" in text
    assert "loss with 1, gradients with 2, parameters with 4 and updates with 4." in text
    assert "Without any reading: optimizer (4 gates), consensus (4 gates) and gradients, per tensor (4 gates)." in text
    assert "| optimizer | \u2264 1.0 | 0 of 4 | not tried | not tried | not tried | not tried | - |" in table_text(
        report, FAULTS
    )


def test_a_gate_that_did_not_see_the_only_fault_tried_is_not_called_blind(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    for row in campaign.rows("vacuity.csv", workload="20m-sync-b2", quantity="loss"):
        row["rel_l2"] = "0"
    report = report_of(write_evaluation(campaign))
    text = words(report)
    assert (
        "1 gate was tried with a single fault and would not have seen it, which is too little to call it blind: loss "
        "of 1 workload." in text
    )
    assert "discriminate" not in text


def test_gates_that_see_nothing_are_named_as_not_discriminating(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    for row in campaign.rows("vacuity.csv", workload="20m-sync-b2", quantity="parameters"):
        row["rel_l2"] = "0.004"
    report = report_of(write_evaluation(campaign))
    assert (
        "Of 16 gates with readings, 1 would have seen none of the faults tried on it, each made in one update, and "
        "does not discriminate between them and a correct candidate: parameters of 1 workload." in words(report)
    )
    shown = table_text(
        report,
        "Gates that do not discriminate: they would have seen none of the faults tried on them, one update each",
    )
    assert shown.splitlines()[2:] == ["| `20m-sync-b2` | parameters | 0.00400 | 0.00400 | 0.00400 | 0.00400 |"]


def test_a_fault_that_is_not_finite_is_seen(tmp_path: Path) -> None:
    campaign = make_real(tmp_path)
    for row in campaign.rows("vacuity.csv", quantity="updates", mutation="negated"):
        row["rel_l2"] = ""
    rows = table_text(report_of(write_evaluation(campaign)), FAULTS)
    assert "seen: 4 of 4: 4 not finite" in rows


# --- time, files, hostile names, size ---------------------------------------------------------------------------------


def test_time_is_split_into_training_and_comparison(tmp_path: Path) -> None:
    cases = [
        case_of(
            "20m-sync-b1", "candidate", transport_reason="no CUDA IPC here", train_s=6.0, compare_s=3.0, load_s=1.0
        ),
        case_of("20m-sync-b1", "control", compare_s=0.0, compared_bytes=0, tied=[]),
    ]
    text = words(report_of(write_evaluation(make_real(tmp_path), cases=cases)))
    assert "After start-up and warm-up, 2 cases took 12.8 s for three things: 1.50 s loading states, 8.25 s in" in text
    assert "and 3.00 s comparing 3.0 GiB (24% of the three). Start-up, warm-up and the isolated checks come on" in text
    assert "Tied tensors are compared once: head.weight is compared as embedding.weight." in text
    assert "shared memory no CUDA IPC here" in text


def test_evidence_from_before_cases_were_timed_is_reported(tmp_path: Path) -> None:
    evaluation = write_evaluation(make_real(tmp_path))
    path = evaluation / "provenance.json"
    provenance = json.loads(path.read_bytes())
    del provenance["cases"]
    path.write_text(json.dumps(provenance))
    assert "Provenance does not say how long the cases took." in words(report_of(evaluation))


def test_its_tables_and_gates_can_be_downloaded(clean: Path) -> None:
    links = {link["href"] for link in Page((clean / "report.html").read_text()).attributes("a") if "download" in link}
    assert {"numerical-cases.csv", "vacuity.csv"} <= links
    with (clean / "numerical-cases.csv").open(newline="") as stream:
        assert {row["quantity"] for row in csv.DictReader(stream)} >= {"loss", "parameters", "optimizer"}
    suites = {suite.attrib["name"]: suite for suite in ET.parse(clean / "junit.xml").getroot()}  # noqa: S314 - made here
    assert suites["numerical"].attrib["tests"] == "24"
    assert suites["numerical"].attrib["failures"] == "0"


@pytest.mark.parametrize("text", [IMAGE, HOSTILE, TEMPLATE, "|`*_#", "$\\frac{", "=cmd|' /C calc'!A0"])
def test_hostile_names_of_workloads_and_tensors_are_inert(tmp_path: Path, text: str) -> None:
    name = text.replace("/", "")  # the protocol refuses a slash
    campaign = make_real(tmp_path, production={name: ("1", "1", "1")})
    for row in campaign.tables["numerical.csv"]:
        row["worst_tensor"] = text if row["worst_tensor"] else ""
        if row["quantity"] == "gradients":
            row["worst_rel_l2"] = "0.9"
    cases = [case_of(name, "candidate", transport_reason=text, tied=[f"{text} = x"])]
    report = report_of(write_evaluation(campaign, cases=cases))
    page = Page((report / "report.html").read_text())
    assert page.open == []
    assert page.attributes("img") == []
    assert len(page.attributes("script")) == 1
    assert text in page.text
    assert text not in (report / "report.md").read_text() or markdown_escaped(text) == text
    with (report / "numerical-cases.csv").open(newline="") as stream:
        assert not any(row["worst_tensor"].startswith("=") for row in csv.DictReader(stream))


def test_ids_stay_unique_and_every_link_of_the_strip_is_found(tmp_path: Path) -> None:
    def spoil(matched: Matched) -> None:
        do_not_offer(matched, "consensus")
        for name in matched.workloads:
            fail_gate(matched, f"numerical/{name}/updates", "missed", "too far", 0.2)

    page = Page((by_hand(tmp_path, spoil) / "report.html").read_text())
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {link["href"][1:] for link in page.attributes("a") if link["href"].startswith("#")}
    assert targets <= set(ids)
    assert {"numerical-section", "gates-parameters-pass-below-0.02"} <= targets


def test_a_verdict_that_could_observe_nothing_says_why(tmp_path: Path) -> None:
    evaluation = write_evaluation(make_real(tmp_path))
    path = evaluation / "verdict.json"
    verdict = json.loads(path.read_bytes())
    verdict["observations"] = {"throughput": [], "ratios": [], "numerical": None, "error": "ValueError: <b>no</b>"}
    path.write_text(json.dumps(verdict))
    text = words(report_of(evaluation))
    assert "Nothing could be observed beside the gates: ValueError: <b>no</b>" in text
    assert "There is no usable case to plot." in text
    assert "4 of 4 workloads pass every numerical gate" in text


def make_worst(matched: Matched) -> None:
    """Let every gate be missed, every control factor and every tensor be flagged and every parameter gate be blind."""
    names = ("gradients", "parameters", "updates", "exp_avg", "exp_avg_sq")
    for workload in matched.workloads:
        for quantity in THRESHOLDS:
            reason = "the worst rel l2 is not below the threshold: update 5, worker 7, tensor blocks.11.attention.query"
            fail_gate(matched, f"numerical/{workload}/{quantity}", "missed", reason, 1.23456789)
        common = {"workload": workload, "update": 5, "worker": 7, "tensor": "blocks.11.attention.query.weight"}
        matched.observed["flags"] += [
            {
                **common,
                "kind": kind,
                "comparison": comparison,
                "quantity": quantity,
                "value": 0.123456789,
                "limit": 0.1,
                "rows": 40,
            }
            for kind in ("tensor", "control_factor")
            for comparison in ("candidate", "control")
            for quantity in names
        ]
        make_blind(matched, workload)


@pytest.mark.parametrize("spoil", [lambda _: None, make_worst], ids=["passing", "failing"])
def test_a_seed_sized_campaign_stays_under_two_megabytes(tmp_path: Path, spoil: Callable[[Matched], None]) -> None:
    evaluation = seed_size(tmp_path)
    matched = make_matched(workloads_of(evaluation))
    spoil(matched)
    report = report_of(add_attempts(add_numerical(evaluation, matched), matched))
    page = (report / "report.html").read_bytes()
    assert len(matched.workloads) == 117
    assert len(page) < 2_000_000
    strip = re.search(r'<ol class="strip".*?</ol>', page.decode(), re.DOTALL)
    assert strip is not None
    assert strip[0].count("<li") < 60
    assert page.count(b"90m-production-recipe-8") > 10


def test_hundreds_of_failures_keep_their_open_rows(tmp_path: Path) -> None:
    report = by_hand(tmp_path, make_worst)
    text = (report / "report.html").read_text()
    (table,) = re.findall(r'<table id="gates".*?</table>', text, re.DOTALL)
    before = text[: text.index('<table id="gates"')]
    assert before.count("<details") == before.count("</details>")
    assert len(re.findall(r"numerical/<wbr>[^<]*/<wbr>\w+</code>", table)) == 24
    assert table.count("mark m-missed") == 24


@pytest.mark.parametrize("name", ["report.md", "junit.xml"])
def test_golden_report(tmp_path: Path, golden: Golden, name: str) -> None:
    rules = NumericalRules(serialized=("production",), shared_executor=("production",))
    campaign = make_real(tmp_path, numerical=rules, workloads_per_category=2)
    (row,) = campaign.rows(
        "numerical.csv", workload="20m-sync-b2", comparison="candidate", quantity="updates", update=5, worker=1
    )
    row.update(tensor_fields("0.1000004"))
    for own in campaign.rows("numerical.csv", quantity="consensus"):
        own.update(value="", worst_tensor="")
    evaluation = write_evaluation(campaign)
    golden(GOLDEN / f"numerical-{name}", golden_bytes(evaluation, report_of(evaluation) / name))


def test_workloads_that_the_protocol_leaves_out_are_counted_and_named() -> None:
    assert left_out([]) == ""
    said = "1 workload of several processes is left out of this family, which compares single ones: w0."
    assert left_out(["w0"]) == f" By the protocol {said}"
    many = left_out([f"w{number}" for number in range(8)])
    assert "8 workloads of several processes are left out" in many
    assert many.endswith("w4, w5 and 2 more.")
