"""What a page says of amendments and decisions: nobody measures again in silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports import amendments, decisions
from reports.errors import ReportError
from reports.page import build_page
from reports.source import Source, read_source
from tests.reports.evaluations import HOSTILE, provenance_of, write_evaluation
from tests.support.evidence import CANDIDATE, Campaign, make_campaign

SLOT = f"{CANDIDATE}/pair/sync-b4/r1"


def amendment(*slots: str, seq: int = 60, shown: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    return {
        "seq": seq,
        "at": 1_800_000_000.0,
        "what": "node",
        "changed": "node7 throttled",
        "void": list(slots),
        "voided_attempts": dict.fromkeys(slots, 1),
        "valid": "all other slots",
        "keep_reason": "other nodes",
        "by": "A. Person",
        "reason": "a fan failed",
        "after_report": bool(shown),
        "shown": list(shown),
        "platform": False,
        **changes,
    }


def decision(**changes: Any) -> dict[str, Any]:
    return {
        "seq": 90,
        "at": 1_800_000_000.0,
        "kind": "default",
        "side": "candidate",
        "candidate": CANDIDATE,
        "by": "A. Person",
        "reason": "it was asked for",
        "verdict_sha256": "0" * 64,
        "outcome": "not_qualified",
        "refused": False,
        "why": "",
        **changes,
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    campaign: Campaign = make_campaign(tmp_path_factory.mktemp("campaign"))
    return read_source(protocol_path=campaign.protocol_path, evaluation=write_evaluation(campaign))


def amended(source: Source, *acts: dict[str, Any], again: bool = True, **provenance: Any) -> Source:
    """Return a source in which attempt 1 at the slots is void and, if so, another one completed."""
    void = {slot for act in acts for slot in act["voided_attempts"]}
    attempts: list[dict[str, Any]] = []
    for one in source.provenance["attempts"]:
        if one["slot"] in void and one["attempt"] == 1:
            attempts.append({**one, "ending": "void", "ended": one["ending"], "amendment": acts[0]["seq"]})
            attempts += [{**one, "attempt": 2, "ending": "completed"}] if again else []
        elif one["slot"] not in void:
            attempts.append(one)
    rows = [
        replace(row, values={**row.values, "ending": "void"})
        if row.values["slot"] in void and row.values["attempt"] == 1
        else row
        for row in source.tables["attempts.csv"]
    ]
    changed = {**source.provenance, "attempts": attempts, "amendments": list(acts), **provenance}
    return replace(source, provenance=changed, tables={**source.tables, "attempts.csv": tuple(rows)})


def slots_of(source: Source, kind: str) -> list[str]:
    names = [slot["slot"] for slot in source.protocol["slots"] if slot["kind"] == kind]
    return [name.replace("candidate/", f"{CANDIDATE}/", 1) for name in names]


def notes(source: Source) -> str:
    found = amendments.section(source)
    assert found is not None
    return "\n".join(found.notes)


def test_the_pages_sentence_begins_with_what_a_report_had_shown_before(source: Source) -> None:
    first, second, third, fourth = slots_of(source, "pair")[:4]
    act = amendment(first, second, third, fourth, shown=(first, third))
    page = build_page(amended(source, act))
    assert page.sentence.startswith(
        f"2 slots were measured again after a report had shown their results: {first} and {third}. "
        "2 slots were measured again, before any report had shown"
    )
    assert page.sentence.endswith(build_page(source).sentence)
    waiting = amendments.section(amended(source, act, again=False))
    assert waiting is not None
    assert waiting.sentence.startswith("4 slots are void and not measured again yet, 2 of them after a report")


def test_without_amendments_nothing_is_said(source: Source) -> None:
    page = build_page(source)
    assert (page.amendments, page.decisions) == (None, None)
    assert "measured again" not in page.sentence


def test_another_candidates_slots_are_no_matter_of_this_one(source: Source) -> None:
    found = amendments.section(amended(source, amendment("cother/pair/w/r1", shown=("cother/pair/w/r1",))))
    assert found is not None
    assert (found.sentence, found.slots.rows) == ("", ())


def test_both_results_stand_side_by_side(source: Source) -> None:
    slot = slots_of(source, "pair")[0]
    found = amendments.section(amended(source, amendment(slot)))
    assert found is not None
    (row,) = found.slots.rows
    texts = [cell.text for cell in row]
    assert texts[:4] == [slot, "entry 60", "1", "completed"]
    assert texts[4].endswith("\u00d7")


def test_a_part_of_the_repeats_is_named_and_all_of_them_are_not(source: Source) -> None:
    slots = slots_of(source, "pair")
    workload = slots[0].split("/")[2]
    assert f"only a part of the repeats is void, and the others are kept: {workload}." in notes(
        amended(source, amendment(slots[0]))
    )
    own = [slot for slot in slots if slot.split("/")[2] == workload]
    assert "only a part" not in notes(amended(source, amendment(*own)))


def test_a_run_whose_other_side_is_kept_is_named_and_both_sides_together_are_not(source: Source) -> None:
    runs = {"candidate": f"{CANDIDATE}/run/sync/s1", "baseline": "baseline/run/sync/s1"}
    slot, row = source.protocol["slots"][0], source.tables["attempts.csv"][0]
    slots = [{**slot, "slot": f"{side}/run/sync/s1", "kind": "run", "side": side} for side in runs]
    rows = [replace(row, values={**row.values, "slot": run, "attempt": 1}) for run in runs.values()]
    attempts = [{**source.provenance["attempts"][0], "slot": run, "attempt": 1} for run in runs.values()]
    made = replace(
        source,
        protocol={**source.protocol, "slots": [*source.protocol["slots"], *slots]},
        provenance={**source.provenance, "attempts": [*source.provenance["attempts"], *attempts]},
        tables={**source.tables, "attempts.csv": (*source.tables["attempts.csv"], *rows)},
    )
    for run in runs.values():
        assert f"the other side's run with the same seed is kept: {run}." in notes(amended(made, amendment(run)))
    assert "with the same seed" not in notes(amended(made, amendment(*runs.values())))


def test_a_slot_that_is_void_twice_is_named(source: Source) -> None:
    slot = slots_of(source, "pair")[0]
    assert f"Made void more than once: {slot}." in notes(amended(source, amendment(slot), amendment(slot, seq=70)))


@pytest.mark.parametrize(("seq", "baseline_first", "said"), [(60, True, True), (60, False, False), (20, True, False)])
def test_a_slot_of_the_baseline_that_is_redone_after_the_candidates_freeze_is_named(
    source: Source, seq: int, baseline_first: bool, said: bool
) -> None:
    slot = next(one["slot"] for one in source.provenance["attempts"] if one["slot"].startswith("baseline/control"))
    made = amended(source, amendment(slot, seq=seq))
    made = replace(made, protocol={**made.protocol, "baseline_first": baseline_first})
    assert ("made void after the candidate was frozen" in notes(made)) is said


def test_another_platform_is_named(source: Source) -> None:
    act = amendment(slots_of(source, "pair")[0], what="platform", platform=True)
    assert "ledger entry 60 may be of different platforms" in notes(amended(source, act))


def test_void_attempts_that_no_amendment_names_are_refused(source: Source) -> None:
    made = amended(source, amendment(slots_of(source, "pair")[0]))
    for wrong in (
        replace(made, provenance={**made.provenance, "amendments": []}),
        replace(made, tables=source.tables),
    ):
        with pytest.raises(ReportError, match="is void in one of them alone"):
            amendments.section(wrong)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "The default is the candidate: A. Person, 2027-01-15 08:00 UTC (ledger entry 90): it was asked for. It was",
        ),
        ({"side": "baseline"}, "The default is the baseline: A. Person"),
        ({"candidate": "cother"}, "The default is the candidate cother, which this report is not about"),
        ({"outcome": "", "verdict_sha256": ""}, "There was no verdict then."),
        ({}, "in view of another verdict than this one: not qualified."),
        ({"kind": "retire", "side": "baseline", "outcome": "pass"}, "The baseline was retired: A. Person"),
        (
            {"kind": "retire", "side": "baseline", "refused": True, "why": "2 gates do not pass"},
            (
                "was asked for and refused: A. Person, 2027-01-15 08:00 UTC (ledger entry 90): it was asked for. "
                "Refused because 2 gates do not pass."
            ),
        ),
    ],
)
def test_a_decision_is_told_with_who_when_why_and_in_view_of_what(
    source: Source, changes: dict[str, Any], said: str
) -> None:
    made = replace(source, provenance={**source.provenance, "decisions": [decision(**changes)]})
    found = decisions.section(made)
    assert found is not None
    assert any(said in sentence for sentence in found.sentences)
    assert build_page(made).sentence == build_page(source).sentence


def test_the_last_decision_of_a_kind_is_the_one_that_holds(source: Source) -> None:
    acts = [decision(), decision(seq=91, side="baseline", reason="it was slow")]
    found = decisions.section(replace(source, provenance={**source.provenance, "decisions": acts}))
    assert found is not None
    assert len(found.sentences) == 1
    assert "The default is the baseline" in found.sentences[0]
    assert len(found.acts.rows) == 2


@pytest.mark.slow
def test_what_people_wrote_is_no_markup(tmp_path: Path) -> None:
    from reports.render import build_report  # noqa: PLC0415 - loads the plots

    campaign = make_campaign(tmp_path)
    provenance = provenance_of(campaign, decisions=[decision(by=HOSTILE, reason=HOSTILE)])
    evaluation = write_evaluation(campaign, decisions=provenance["decisions"])
    made = build_report(read_source(protocol_path=campaign.protocol_path, evaluation=evaluation))
    assert HOSTILE.encode() not in made["report.html"]
    assert b"<img" not in made["report.md"].replace(b"\\<img", b"")
