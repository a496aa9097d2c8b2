from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance.formats import Ending
from campaign.planning.power import percent
from reports.status import Mark
from reports.training_plots import (
    DifferencePlot,
    TrainingCurve,
    TrainingPlot,
    draw_differences,
    draw_trainings,
    spread_labels,
    thinned,
)
from reports.training_tables import power_percent
from tests.conftest import Golden
from tests.reports.evaluations import HOSTILE, TEMPLATE, make_evaluation, report_of, write_evaluation
from tests.reports.test_render import IMAGE, Page, golden_bytes, table_text
from tests.support.runs import (
    CLOSE,
    EXTENSION,
    PUBLISHED,
    RECIPE,
    WIDE,
    Losses,
    add_run,
    make_recipe,
    make_runs,
    paired,
    run_rows,
    slot_of,
)

GOLDEN = Path(__file__).parent / "golden"
TABLE = (
    "Final validation losses in nats by recipe; a difference is candidate - baseline, and every upper bound must be "
    "strictly below 0.005"
)
LOOKS = "First and second look, where the extension was taken"
SEEDS = "Final losses in nats and their paired differences, with segments and seconds of training"
COST = "Targets and seconds of training to the same quality by seed; not gating"
COSTS = (
    "Cost to the same quality, summed over the seeds in which both sides reach it; not gating. Device-hours are "
    "seconds of training times the devices of a run"
)
AT_MARGIN, AT_LOSS = "baseline's final loss + 0.005", "baseline's final loss"
POWER = (
    "Power as computed before the freeze: the chance to pass if the true difference is 0, and the smallest true "
    "difference, in nats, that would be found missed with a chance of at least 80%"
)
CHANCE = "Cumulative nominal chance of a false pass, 1 - (1 - 0.05)^k, over the k candidates judged"
OTHERS = "Other campaigns against the same baseline snapshot, from the registry of freezes"
FAR = ["0.02", "0.021", "0.0205"]


def report(folder: Path, losses: Mapping[str, Losses] | None = None, **rules: Any) -> Path:
    """Write the report of a campaign of trainings."""
    return report_of(write_evaluation(make_runs(folder, losses, **rules)))


def rows(made: Path, caption: str) -> list[list[str]]:
    """Return the cells of a table of the Markdown report, without its heading."""
    lines = [line for line in table_text(made, caption).splitlines() if line.startswith("|")]
    return [[cell.strip().replace("\\", "") for cell in line.strip("|").split("|")] for line in lines[2:]]


def words(made: Path) -> str:
    """Return the text of the page."""
    return " ".join(" ".join(Page((made / "report.html").read_text()).text).split())


def told(made: Path, recipe: str = RECIPE) -> str:
    """Return what the Markdown report says of one recipe."""
    found = re.search(
        rf"^### {re.escape(recipe)}\n(.*?)^###? ", (made / "report.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1].replace("\\", "")


def edited(evaluation: Path, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """Change a document of an evaluation."""
    path = evaluation / name
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value))
    return evaluation


@pytest.fixture(autouse=True)
def quick_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the plots out, which most tests here do not look at: they take most of the time."""
    if "drawn" not in request.fixturenames:
        for name in ("draw_differences", "draw_trainings"):
            monkeypatch.setattr(f"reports.convergence.{name}", lambda _: "<svg></svg>")


@pytest.fixture
def drawn() -> None:
    """Ask for the real plots."""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(tmp_path_factory.mktemp("published"), PUBLISHED)


# --- the published table ----------------------------------------------------------------------------------------------


def test_the_published_table_comes_out_with_its_numbers_and_its_gate(published: Path) -> None:
    assert [row[:6] for row in rows(published, TABLE)] == [
        ["`sync-production`", "3.561927", "3.563907", "+0.001980", "0.011131", "not qualified: inconclusive"],
        ["`packed4-production`", "3.582629", "3.576025", "-0.006605", "0.006294", "not qualified: inconclusive"],
        ["`packed8-production`", "3.589794", "3.590999", "+0.001204", "0.005291", "not qualified: inconclusive"],
        ["`sync-b16-c512`", "3.562178", "3.562470", "+0.000292", "0.001456", "pass"],
        ["`packed4-b32-c512`", "3.562264", "3.564476", "+0.002211", "0.004884", "pass"],
    ]
    assert [row[8:] for row in rows(published, TABLE)] == [["3", "2.920"]] * 5
    verdict = json.loads((published / "verdict.json").read_bytes())
    findings = [gate["finding"] for gate in verdict["gates"] if gate["family"] == "convergence"]
    assert findings == ["inconclusive"] * 3 + ["met"] * 2


def test_spread_and_lower_bound_stand_beside_it(published: Path) -> None:
    assert rows(published, TABLE)[2][6:8] == ["-0.002883", "0.002424"]


def test_the_family_is_summed_up_in_one_sentence(published: Path) -> None:
    said = "2 of 5 recipes are shown to end less than 0.005 nats above the baseline; 3 inconclusive, shown neither"
    assert said in words(published)


def test_nothing_of_an_inconclusive_recipe_reads_as_worse(published: Path) -> None:
    for recipe in ("sync-production", "packed4-production", "packed8-production"):
        said = told(published, recipe)
        assert "Inconclusive: shown neither to meet the margin nor to miss it" in said
        assert "is a finding neither for nor against the candidate" in said
        assert not re.search(r"worse|missed|fail|regress", said, re.IGNORECASE)


def test_the_family_alone_is_reported_and_only_undeclared_ones_are_named_as_such(published: Path) -> None:
    assert "throughput, numerical and device were not declared, so nothing is known of them." in words(published)


def test_a_report_without_the_family_has_neither_its_pages_nor_its_files(tmp_path: Path) -> None:
    made = report_of(make_evaluation(tmp_path, ratios={"sync": ("1.06", "1.06", "1.06")}, workloads_per_category=1))
    assert "convergence-section" not in (made / "report.html").read_text()
    assert "## Convergence" not in (made / "report.md").read_text()
    assert not (made / "convergence.csv").exists()
    assert not (made / "validation-curves.csv").exists()


def test_runs_and_curves_can_be_downloaded(published: Path) -> None:
    assert len((published / "convergence.csv").read_text().splitlines()) == 1 + 30
    assert len((published / "validation-curves.csv").read_text().splitlines()) == 1 + 90
    assert "Convergence CSV" in words(published)
    assert "Validation curves CSV" in words(published)


def test_build_servers_see_an_inconclusive_gate_with_its_bounds(published: Path) -> None:
    root = ET.fromstring((published / "junit.xml").read_text())  # noqa: S314 - our own file
    suite = next(own for own in root if own.get("name") == "convergence")
    assert (suite.get("tests"), suite.get("failures")) == ("5", "3")
    failures = [case.find("failure") for case in suite if case.get("name") == "convergence/sync-production"]
    assert failures[0] is not None
    assert failures[0].get("type") == "inconclusive"
    assert "(from -0.007170" in (failures[0].text or "")


# --- findings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("differences", "mark", "said"),
    [
        (CLOSE, "pass", "Met: the upper bound 0.001686 is below the margin of 0.005 nats."),
        (["0", "0", "0"], "pass", "Met: all differences are exactly zero, from different snapshots and runs of their"),
        (WIDE, "inconclusive", "since 0.005 nats lie between the lower bound 0.003314 and the upper bound 0.006686."),
        (FAR, "missed", "Missed: the candidate is shown to end worse than the margin allows; even the lower bound"),
        (["0.001", "0.001", "0.001"], "invalid", "Invalid: nothing can be concluded from this evidence. all differ"),
        (["0.001", "0.002"], "missing", "Missing: no bound is computed until every run is there. attempts.csv:"),
    ],
)
def test_each_finding_has_its_sentence(tmp_path: Path, differences: list[str], mark: str, said: str) -> None:
    made = report(tmp_path, {RECIPE: paired("3.5", differences)})
    assert told(made).strip().startswith(f"**{mark}**: ")
    assert said in told(made)
    (row,) = rows(made, TABLE)
    assert row[5] == ("pass" if mark == "pass" else f"not qualified: {mark}")


def test_a_bound_on_the_margin_prints_on_its_own_side(tmp_path: Path) -> None:
    # 0.0049999999... passes; it must not be shown as 0.005000.
    made = report(tmp_path, {RECIPE: paired("3.5", ["0.00499999", "0.00499998", "0.00499997"])})
    (row,) = rows(made, TABLE)
    assert row[5] == "pass"
    assert float(row[4]) < 0.005
    assert float(row[3]) < 0.005


def test_no_bound_stands_beside_an_invalid_gate(tmp_path: Path) -> None:
    (row,) = rows(report(tmp_path, {RECIPE: paired("3.5", ["0.001"] * 3)}), TABLE)
    assert row[3:8] == ["+0.001000", "-", "not qualified: invalid", "-", "0.000000"]


def test_an_absent_seed_keeps_its_row_and_is_counted(tmp_path: Path) -> None:
    made = report(tmp_path, {RECIPE: paired("3.5", ["0.001", "0.002"])})
    assert [row[0] for row in rows(made, SEEDS)] == ["45", "46", "47: no usable pair"]
    (row,) = rows(made, TABLE)
    assert row[8] == "2 of 3"
    assert row[3:5] == ["-", "-"]


@pytest.mark.usefixtures("drawn")
def test_a_verdict_without_observations_still_has_its_gates(tmp_path: Path) -> None:
    evaluation = write_evaluation(make_runs(tmp_path))
    edited(evaluation, "verdict.json", lambda verdict: verdict.update(observations={"error": "a bug"}))
    made = report_of(evaluation)
    (row,) = rows(made, TABLE)
    assert (row[1], row[4], row[5]) == ("-", "0.001686", "pass")
    assert "Met: the upper bound 0.001686 is below" in told(made)
    assert "There is no pair of runs to plot." in words(made)


# --- seeds, budget, segments ------------------------------------------------------------------------------------------


def test_every_difference_is_listed_with_segments_and_seconds(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path)
    run_rows(campaign, seed=45)[0]["segments"] = "4"
    made = report_of(write_evaluation(campaign))
    assert rows(made, SEEDS) == [
        ["45", "3.498000", "3.497000", "-0.001000", "1", "4", "80.0 s", "50.0 s"],
        ["46", "3.500000", "3.500000", "0.000000", "1", "1", "80.0 s", "50.0 s"],
        ["47", "3.502000", "3.503000", "+0.001000", "1", "1", "80.0 s", "50.0 s"],
    ]


def test_full_budget_is_said_where_every_run_has_it(published: Path) -> None:
    said = (
        "Full budget: each of the 6 runs made exactly 40,960 targets in 40 updates, scored on 8,192 validation "
        "targets, the whole validation split. Scored: the mean of the workers, after the last consensus."
    )
    assert said in told(published, "sync-production")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("target_tokens", "40959", "candidate 46 has 40,959 targets in 40 updates, scored on 8,192."),
        ("validation_tokens", "8000", "candidate 46 has 40,960 targets in 40 updates, scored on 8,000."),
        ("updates", "39", "candidate 46 has 40,960 targets in 39 updates, scored on 8,192."),
    ],
)
def test_full_budget_is_not_said_where_one_run_lacks_it(tmp_path: Path, field: str, value: str, said: str) -> None:
    campaign = make_runs(tmp_path)
    (row,) = run_rows(campaign)
    row[field] = value
    made = report_of(write_evaluation(campaign))
    assert "Full budget" not in words(made)
    assert said in told(made)


def test_the_resolved_configuration_stands_beside_the_budget(tmp_path: Path) -> None:
    config = {
        "workers": 4,
        "batch": 8,
        "mode": "packed",
        "lr": 1e-3,
        "fused": True,
        "warm": None,
        "sizes": [1, {"b": 2}],
    }
    scored = "the mean of the four workers' models; global batch 32: 8 in each of 4 workers"
    recipe = make_recipe(RECIPE, config=config, scored=scored)
    made = report(tmp_path, {RECIPE: paired("3.5", CLOSE)}, recipes=(recipe,))
    said = "Configuration: batch 8, fused true, lr 0.001, mode packed, sizes [1, {b 2}], warm null, workers 4."
    assert said in told(made)
    assert said in words(made)
    assert f"Scored: {scored}." in words(made)


def test_full_budget_is_not_said_while_runs_are_absent(tmp_path: Path) -> None:
    made = report(tmp_path, {RECIPE: paired("3.5", ["0.001", "0.002"])})
    assert "Full budget" not in words(made)
    assert "Planned per run: 40,960 targets in 40 updates, scored on 8,192 validation targets. 2 of 6 runs are not" in (
        told(made)
    )


def test_a_run_that_was_tried_twice_is_shown_by_the_attempt_that_counts(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path, {RECIPE: paired("3.5", CLOSE)})
    add_run(campaign, slot_of(campaign, seed=46), "3.1", attempt=2, ending=Ending.COMPLETED)
    run_rows(campaign, attempt=2)[0]["target_tokens"] = "40960"
    made = report_of(write_evaluation(campaign))
    assert "each of the 6 runs" in told(made)
    assert "3.100000" not in told(made)


def segment_of(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "segment": number,
        "allocation": f"a{number}",
        "node": "node1",
        "device": "GPU-a",
        "ending": "time_limit",
        "reason": "",
        "sealed": True,
        "resumed_update": 0,
        "update": 22,
        **changes,
    }


def cut(evaluation: Path, *segments: dict[str, Any]) -> Path:
    """Cut the candidate's run with the seed 46 into segments."""

    def change(provenance: dict[str, Any]) -> None:
        (attempt,) = [own for own in provenance["attempts"] if own["slot"].endswith(f"/run/{RECIPE}/s46")][1:]
        assert attempt["slot"].startswith(provenance["candidate"]["id"])
        attempt["segments"] = list(segments)

    return edited(evaluation, "provenance.json", change)


def test_every_segment_of_a_run_is_listed(tmp_path: Path) -> None:
    first = segment_of(1, reason="the node went away", ending="node_fail", update=None)
    second = segment_of(2, ending="completed", resumed_update=20, update=40)
    made = report_of(cut(write_evaluation(make_runs(tmp_path)), first, second))
    text = words(made)
    assert "Every segment of every run (2)" in text
    assert "1 0 not known node fail the node went away a1" in text
    assert "2 20 40 completed - a2" in text


def test_segments_on_other_numbers_of_devices_have_no_device_hours(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path, {RECIPE: paired("3.5", ["-0.02", "-0.0201", "-0.0202"])})
    second = segment_of(2, device="GPU-a+GPU-b", ending="completed", resumed_update=20, update=40)
    made = report_of(cut(write_evaluation(campaign), segment_of(1), second))
    _, (*_, own, other) = rows(made, COSTS)
    assert (own, other) == ("0.0667", "-")


# --- looks ------------------------------------------------------------------------------------------------------------


def test_both_looks_stand_side_by_side_where_the_extension_was_taken(tmp_path: Path) -> None:
    losses = {"more": paired("3.5", [*WIDE, "0.001", "0.0008", "0.001"]), "fine": paired("3.5", CLOSE)}
    made = report(tmp_path, losses, extension=EXTENSION)
    assert rows(made, LOOKS) == [
        ["`more`", "first", "3", "+0.005000", "0.001000", "0.002641", "0.007359", "4.08607", "inconclusive"],
        ["`more`", "second", "6", "+0.002967", "0.002317", "0.000609", "0.005324", "2.49239", "inconclusive"],
    ]
    assert "the declared extension by the seeds 48, 49 and 50 is due: the gate is the second look" in told(made, "more")
    assert "was declared and is not due: the first look decides." in told(made, "fine")
    more, fine = rows(made, TABLE)
    assert more[5] == "not qualified: inconclusive: second look"
    assert (more[8:], fine[8:]) == (["6", "2.49239"], ["3", "4.08607"])
    assert [row[0] for row in rows(made, SEEDS)] == [
        "45",
        "46",
        "47",
        *(f"{seed} (extension)" for seed in (48, 49, 50)),
    ]


def test_without_a_first_look_it_is_not_known_whether_the_extension_is_due(tmp_path: Path) -> None:
    made = report(tmp_path, {RECIPE: paired("3.5", ["0.001", "0.002"])}, extension=EXTENSION)
    assert "whether it is due is not known until the first look can be taken" in told(made)
    assert LOOKS not in (made / "report.md").read_text()


def test_an_undeclared_extension_is_named_as_such(published: Path) -> None:
    assert "No extension was declared: more seeds would be a new protocol." in told(published, "sync-production")
    assert "Each of them is a one-sided 95% bound." in words(published)


# --- power ------------------------------------------------------------------------------------------------------------


def power_of(**changes: Any) -> dict[str, Any]:
    recipe = {"recipe": RECIPE, "chance": 0.9312, "seeds_80": 3, "seeds_90": None, "smallest_missed": 0.0071}
    return {
        "assumed_sd": "0.0009",
        "source": "assumed in campaign.toml",
        "recipes": [recipe],
        "chance_all": 0.9312,
        "sufficient": True,
        "waiver": "",
        **changes,
    }


def with_power(folder: Path, power: dict[str, Any] | None) -> Path:
    evaluation = write_evaluation(make_runs(folder))
    return report_of(edited(evaluation, "provenance.json", lambda provenance: provenance.update(power=power)))


def test_the_assumed_spread_stands_beside_the_observed_one(tmp_path: Path) -> None:
    made = with_power(tmp_path, power_of())
    expected = [f"`{RECIPE}`", "0.000900", "0.00100: wider than assumed", "93.1%", "3", "over 1,000", "0.00710"]
    assert rows(made, POWER) == [expected]
    assert "an SD of 0.0009 nats was assumed (assumed in campaign.toml)." in words(made)
    assert "waiver" not in words(made)


def test_a_waiver_is_quoted(tmp_path: Path) -> None:
    made = with_power(tmp_path, power_of(sufficient=False, waiver="three nodes are all there is"))
    assert "frozen all the same with this waiver: three nodes are all there is." in words(made)


def test_where_nothing_was_assumed_the_report_says_so(tmp_path: Path) -> None:
    made = with_power(tmp_path, power_of(assumed_sd=None, source="", recipes=[], chance_all=None))
    assert "No SD of the paired differences was assumed before the freeze." in words(made)
    assert rows(made, POWER) == [[f"`{RECIPE}`", "none", "0.00100", "-", "-", "-", "-"]]


def test_without_figures_of_power_the_report_says_so(published: Path) -> None:
    assert "what the gates could find out was not recorded at the freeze." in words(published)


@pytest.mark.parametrize(("chance", "shown"), [(0.99996, ">99.9%"), (1.0, "100.0%"), (0.00001, "<0.1%"), (0, "0.0%")])
def test_a_chance_is_certain_only_where_it_is(tmp_path: Path, chance: float, shown: str) -> None:
    made = with_power(tmp_path, power_of(chance_all=chance))
    assert f"a chance of {shown} if the true differences are 0" in words(made)


@given(st.floats(0, 1) | st.sampled_from([0.7996, 0.8, 0.125, 0.125 - 1e-17, 0.0009999, 0.001, 0.9995, 0.99949]))
def test_a_chance_to_pass_reads_as_in_the_plan(chance: float) -> None:
    assert power_percent(Decimal(repr(chance))) == percent(chance)


# --- cost -------------------------------------------------------------------------------------------------------------


def test_cost_is_that_to_the_baselines_own_quality_and_gates_nothing(tmp_path: Path) -> None:
    made = report(tmp_path, {RECIPE: paired("3.5", ["-0.02", "-0.0201", "-0.0202"])})
    _, (recipe, quality, there, targets, seconds, own, other, own_hours, other_hours) = rows(made, COSTS)
    assert (recipe, quality, there, own) == (f"`{RECIPE}`", AT_LOSS, "in 3 of 3", "240 s")
    assert float(targets.rstrip("\u00d7")) < 1
    assert float(seconds.rstrip("\u00d7")) < float(targets.rstrip("\u00d7"))
    assert float(other.removesuffix(" s")) < 150
    assert (own_hours, float(other_hours) < 0.0417) == ("0.0667", True)
    assert "Nothing of this gates." in words(made)


def test_what_is_never_reached_is_said_so_and_has_no_ratio(published: Path, tmp_path: Path) -> None:
    assert rows(published, COST)[3:5] == [
        ["45", AT_LOSS, "3.559927", "40,960", "40,607", "80.0 s", "49.6 s"],
        ["46", AT_LOSS, "3.561927", "40,960", "never reached", "80.0 s", "never reached"],
    ]
    made = report(tmp_path, {RECIPE: paired("3.5", FAR)})
    assert [row[:3] for row in rows(made, COSTS)] == [
        [f"`{RECIPE}`", AT_MARGIN, "in 0 of 3"], [f"`{RECIPE}`", AT_LOSS, "in 0 of 3"],
    ]  # fmt: skip
    assert {cell for row in rows(made, COSTS) for cell in row[3:]} == {"-"}


def test_a_sum_over_some_seeds_says_over_how_many(published: Path) -> None:
    _, row = rows(published, COSTS)[:2]
    assert row[:3] == ["`sync-production`", AT_LOSS, "in 1 of 3"]
    assert all(cell.endswith(": 1 of 3 seeds") for cell in row[3:])
    assert row[5].startswith("80.0 s")


def test_a_recipe_that_passes_has_a_cost_to_what_the_margin_allows(published: Path) -> None:
    found = {row[0]: row for row in rows(published, COSTS) if row[1] == AT_MARGIN}
    for recipe in ("`sync-b16-c512`", "`packed4-b32-c512`"):
        assert found[recipe][2] == "in 3 of 3"
        assert not any("seeds" in cell or cell == "-" for cell in found[recipe][3:])


@pytest.mark.parametrize(("device", "shown"), [("GPU-a+GPU-b", "0.133"), ("", "-")])
def test_device_hours_count_the_devices_that_are_known(tmp_path: Path, device: str, shown: str) -> None:
    campaign = make_runs(tmp_path, {RECIPE: paired("3.5", ["-0.02", "-0.0201", "-0.0202"])})
    for row in campaign.tables["attempts.csv"]:
        row["device"] = device
    assert rows(report_of(write_evaluation(campaign)), COSTS)[1][7] == shown


# --- the registry -----------------------------------------------------------------------------------------------------


def other_of(**changes: Any) -> dict[str, Any]:
    return {
        "campaign": "earlier",
        "home": "/campaigns/earlier",
        "manifest_sha256": "1" * 64,
        "protocol_sha256": "2" * 64,
        "candidate": "c" + "3" * 12,
        "candidate_sha256": "3" * 64,
        "at": 1_800_000_000.0,
        "state": "read",
        "outcome": "not_qualified",
        "recipes": [{"name": RECIPE, "config_sha256": "4" * 64}],
        **changes,
    }


def with_registry(folder: Path, *others: dict[str, Any], **changes: Any) -> Path:
    registry = {"path": "/r.jsonl", "damaged_lines": 0, "problem": "", "others": list(others), **changes}
    own = [{"id": "c" + "5" * 12, "frozen_seq": 3, "outcome": "pass"}, {"id": "x", "frozen_seq": 4, "outcome": None}]
    return report_of(write_evaluation(make_runs(folder), registry=registry, other_candidates=own))


SAME_CONFIG = {"name": "renamed", "config_sha256": make_recipe(RECIPE).config_sha256}


@pytest.mark.parametrize(
    ("others", "counts"),
    [
        ((), ["2", "0", "0", "2", "9.8%"]),
        ((other_of(),), ["2", "1", "0", "3", "14.3%"]),
        ((other_of(outcome="pass"),), ["2", "1", "0", "3", "14.3%"]),
        ((other_of(recipes=[SAME_CONFIG]),), ["2", "1", "0", "3", "14.3%"]),
        ((other_of(recipes=[{"name": "another", "config_sha256": "4" * 64}]),), ["2", "0", "0", "2", "9.8%"]),
        ((other_of(outcome=None),), ["2", "0", "0", "2", "9.8%"]),
        ((other_of(state="unreadable", outcome=None, recipes=[]),), ["2", "0", "1", "3", "14.3%"]),
        ((other_of(state="replaced", outcome=None, recipes=[]),), ["2", "0", "1", "3", "14.3%"]),
        ((other_of(candidate="", state="unreadable", outcome=None, recipes=[]),), ["2", "0", "0", "2", "9.8%"]),
    ],
)
def test_the_chance_of_a_false_pass_grows_with_what_was_judged(
    tmp_path: Path, others: tuple[dict[str, Any], ...], counts: list[str]
) -> None:
    made = with_registry(tmp_path, *others)
    assert rows(made, CHANCE) == [[f"`{RECIPE}`", *counts]]
    assert "It is nominal, and to be read as an upper bound for what is listed" in words(made)


def test_other_campaigns_are_listed_with_what_is_known_of_them(tmp_path: Path) -> None:
    made = with_registry(
        tmp_path,
        other_of(),
        other_of(state="unreadable", outcome=None, recipes=[]),
        other_of(candidate="", outcome=None),
        other_of(at=1e300, outcome=None),
    )
    shown = [row[:4] for row in rows(made, OTHERS)]
    assert shown == [
        ["`c333333333333`", "earlier", "2027-01-15 08:00 UTC", "not qualified"],
        ["`c333333333333`", "earlier", "2027-01-15 08:00 UTC", "not known: the home cannot be read"],
        ["none frozen yet", "earlier", "2027-01-15 08:00 UTC", "-"],
        ["`c333333333333`", "earlier", "1E+300 s", "not evaluated"],
    ]


def test_what_the_registry_hides_is_said(tmp_path: Path) -> None:
    made = with_registry(tmp_path / "one", damaged_lines=2)
    assert "knows 0 other candidates of other campaigns. 2 lines of it cannot be read and may hide more." in words(made)
    made = with_registry(tmp_path / "other", problem="/r.jsonl: not a regular file")
    assert "The registry of freezes was not read; only this home's candidates are known: /r.jsonl: not" in words(made)


# --- hostile text and large evidence ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("text", [HOSTILE, TEMPLATE, IMAGE, "| a | b |"])
def test_no_text_becomes_markup(tmp_path: Path, text: str) -> None:
    recipes = (make_recipe(RECIPE, scored=text, config={text: [text]}),)
    campaign = make_runs(tmp_path, {RECIPE: paired("3.5", CLOSE)}, recipes=recipes)
    registry = {"path": text, "problem": "", "others": [other_of(campaign=text, home=text, candidate=text)]}
    evaluation = write_evaluation(campaign, registry={**registry, "damaged_lines": 0})
    power = power_of(source=text, waiver=text)
    made = report_of(edited(evaluation, "provenance.json", lambda provenance: provenance.update(power=power)))
    page = Page((made / "report.html").read_text())
    assert page.open == []
    assert page.attributes("img") == []
    assert text in "".join(page.text)
    assert IMAGE not in (made / "report.md").read_text()


@pytest.mark.usefixtures("drawn")
def test_long_curves_are_thinned_on_the_page_alone(tmp_path: Path) -> None:
    recipe = make_recipe(RECIPE, targets=40_960_000, updates=2000, evaluate_every=1)
    made = report(tmp_path, {RECIPE: paired("3.5", CLOSE)}, recipes=(recipe,))
    assert "Validation losses in nats by run (200 of 2,000 points)" in words(made)
    assert len((made / "validation-curves.csv").read_text().splitlines()) == 1 + 6 * 2000
    assert (made / "report.html").stat().st_size < 600_000


@pytest.mark.usefixtures("drawn")
def test_the_same_evidence_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (report(tmp_path / name, PUBLISHED) for name in ("one", "two"))
    assert (first / "report.html").read_bytes() == (second / "report.html").read_bytes()


# --- plots ------------------------------------------------------------------------------------------------------------


def test_every_recipe_has_both_plots_with_all_that_they_show_in_words(published: Path) -> None:
    plots = [
        svg["aria-label"]
        for svg in Page((published / "report.html").read_text()).attributes("svg")
        if "aria-label" in svg
    ]
    assert len(plots) == 10
    (differences,) = [label for label in plots if label.startswith("Paired differences of sync-production")]
    assert "seed 45 -0.003448, seed 46 +0.001980 and seed 47 +0.007408. Inconclusive: shown neither" in differences
    (curves,) = [label for label in plots if label.startswith("Validation loss of sync-production")]
    assert "baseline 45 from 3.809927 to 3.559927" in curves


@pytest.mark.parametrize("mark", list(Mark))
def test_differences_are_drawn_whatever_the_finding_and_the_bounds(mark: Mark) -> None:
    common: dict[str, Any] = {"name": "x", "description": "d", "margin": 0.005, "mark": mark}
    drawn = draw_differences(DifferencePlot(**common, differences=((45, 0.1), (46, -0.1)), bounds=(-0.2, 0.0, 0.2)))
    assert "upper 0.2000" in drawn
    assert "seed 46" in drawn
    without = draw_differences(DifferencePlot(**common, differences=((45, 0.0),), bounds=None))
    assert "upper" not in without
    assert "margin 0.005" in without
    assert draw_differences(DifferencePlot(**common, differences=(), bounds=None)) == ""


def test_without_a_curve_nothing_is_drawn() -> None:
    assert draw_trainings(TrainingPlot(name="x", description="d", curves=())) == ""


@pytest.mark.parametrize(("cuts", "strokes"), [((), 0), ((15.0, 30.0), 2), ((30.5,), 1), ((5.0,), 0)])
def test_a_run_is_marked_where_it_was_cut_behind_its_first_point(cuts: tuple[float, ...], strokes: int) -> None:
    def drawn(cuts: tuple[float, ...]) -> int:
        curve = TrainingCurve(side="candidate", seed=45, points=((10, 4.0), (20, 3.5), (40, 3.2)), cuts=cuts)
        return draw_trainings(TrainingPlot(name="x", description="d", curves=(curve,))).count("<use")

    assert drawn(cuts) == drawn(()) + strokes


@given(st.integers(0, 5000), st.integers(2, 300))
def test_thinning_keeps_both_ends(count: int, most: int) -> None:
    kept = thinned(count, most)
    assert len(kept) == min(count, most)
    assert kept == sorted(set(kept))
    assert not kept or (kept[0], kept[-1]) == (0, count - 1)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_labels_lie_apart_in_the_order_of_their_curves(heights: list[float]) -> None:
    placed = spread_labels(heights, 0.06)
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    ranked = [placed[index] for index in order]
    assert all(high - low >= 0.06 - 1e-9 for low, high in itertools.pairwise(ranked))
    assert all(0 <= height <= 1 for height in placed)


# --- goldens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["report.md", "junit.xml"])
def test_golden_report(tmp_path: Path, golden: Golden, name: str) -> None:
    evaluation = write_evaluation(make_runs(tmp_path, PUBLISHED))
    golden(GOLDEN / f"convergence-{name}", golden_bytes(evaluation, report_of(evaluation) / name))
