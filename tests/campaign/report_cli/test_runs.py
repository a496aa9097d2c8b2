"""Reporting on a home with trainings: what the verdict rests on, and what provenance says of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import CONVERGENCE, CURVES, Ending, parse_table
from campaign import documents
from campaign.cli.main import main
from campaign.errors import StateError
from campaign.frozen import read_frozen
from campaign.record.ledger import Ledger
from campaign.rerun import read_retained
from campaign.submission.acts import fold
from tests.support.home import CANDIDATE, Home, attempt_all, build_home, freeze, freeze_candidate
from tests.support.training import is_extending, make_rules

EXTENSION = documents.ConvergenceExtension(seeds=(48, 49, 50), quantile_first="4.08607", quantile="2.49239")
WIDE = {45: 0.004, 46: 0.005, 47: 0.006}
"""Differences whose bounds lie on both sides of the margin."""


def wide(_recipe: str, seed: int, side: str) -> float:
    return 3.5 + (WIDE.get(seed, 0.0) if side == "candidate" else 0.0)


@pytest.fixture(autouse=True)
def quick_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in in the place of the rendered page: plots take seconds."""

    def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
        assert protocol_path.is_file()
        assert (evaluation / "provenance.json").is_file()
        out.mkdir(exist_ok=True)
        (out / "report.html").write_text("a page")

    monkeypatch.setattr("reports.render.write_report", write_report)


def report(home: Home) -> int:
    return main(["report", "--home", str(home.paths.root)])


def findings(home: Home) -> dict[str, str]:
    found: dict[str, Any] = json.loads(home.paths.evaluation(CANDIDATE).verdict.read_bytes())
    return {gate["id"]: gate["finding"] for gate in found["gates"] if gate["finding"] != "met"}


def provenance(home: Home) -> documents.Provenance:
    return documents.Provenance.read(home.paths.evaluation(CANDIDATE).provenance)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home whose candidate trains in two segments with seed 46, and in one with the others."""
    made = freeze(tmp_path / "home", (), convergence=make_rules())
    attempt_all(made, "baseline")
    freeze_candidate(made)
    for slot in made.protocol.slots:
        if slot.slot == "candidate/run/sync/s46":
            made.segment(slot, ending=Ending.PREEMPTED, reason="SIGTERM")
            made.segment(slot, 1, 2, ending=Ending.NODE_FAIL, is_sealed=False)
            made.segment(slot, 1, 3)
        elif slot.side == "candidate":
            made.attempt(slot)
    return made


def test_runs_whatever_their_segments_reach_the_verdict_once(home: Home) -> None:
    assert report(home) == 4  # a throughput family without workloads
    assert findings(home) == {"throughput/family": "missing"}
    evidence = home.paths.evaluation(CANDIDATE).evidence
    rows, _ = parse_table(CONVERGENCE, (evidence / CONVERGENCE.file).read_bytes(), CONVERGENCE.file)
    assert [(row.values["side"], row.values["seed"], row.values["segments"]) for row in rows] == [
        ("baseline", 45, 1),
        ("candidate", 45, 1),
        ("baseline", 46, 1),
        ("candidate", 46, 3),
        ("baseline", 47, 1),
        ("candidate", 47, 1),
    ]
    points, _ = parse_table(CURVES, (evidence / CURVES.file).read_bytes(), CURVES.file)
    assert len(points) == 3 * 6


def test_provenance_tells_a_run_segment_by_segment(home: Home) -> None:
    report(home)
    attempts = {one.slot: one for one in provenance(home).attempts}
    run = attempts[f"{CANDIDATE}/run/sync/s46"]
    assert (run.ending, run.sealed, run.allocation) == (Ending.COMPLETED, True, run.segments[-1].allocation)
    told = [(one.segment, one.ending, one.reason, one.sealed, one.resumed_update, one.update) for one in run.segments]
    assert told == [
        (1, Ending.PREEMPTED, "SIGTERM", True, 0, 12),
        (2, Ending.NODE_FAIL, "the scheduler said so", False, 12, None),
        (3, Ending.COMPLETED, "", True, 24, 40),
    ]
    assert attempts["baseline/pilot/sync"].segments == ()


def test_a_run_that_was_stopped_for_good_is_missing(home: Home) -> None:
    for path in home.paths.attempt(f"{CANDIDATE}/run/sync/s46", 1).root.glob("segments/3/*.*"):
        path.unlink()
    home.end(home.slot("candidate/run/sync/s46"), 1, home_allocation(home), Ending.CANCELLED, 3)
    assert report(home) == 4
    assert findings(home)["convergence/sync"] == "missing"
    assert provenance(home).missing_slots == ()


def test_provenance_says_why_an_operator_stopped_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = freeze(tmp_path / "home", (), convergence=make_rules(seeds=(45, 46), quantile="6.314", extension=None))
    cut, other = home.slot("baseline/run/sync/s45"), home.slot("baseline/run/sync/s46")
    stopped = [
        home.segment(cut, ending=Ending.CANCELLED, reason="SIGTERM"),
        home.segment(other, ending=Ending.PREEMPTED, reason="SIGTERM"),
    ]
    home.append("cancelled", {"allocations": stopped, "reason": "the fan of node 7 is broken"})
    freeze_candidate(home)
    report(home)
    attempts = {one.slot: one for one in provenance(home).attempts}
    why = "campaign cancel: the fan of node 7 is broken; SIGTERM"
    assert [attempts[cut.slot].reason, *(one.reason for one in attempts[cut.slot].segments)] == [why, why]
    assert attempts[other.slot].reason == "SIGTERM"
    main(["show", "--home", str(home.paths.root), cut.slot])
    assert f"cancelled ({why})" in capsys.readouterr().out


def home_allocation(home: Home) -> str:
    """Return the allocation of the candidate's third segment."""
    intents = [line for line in home.paths.ledger.read_bytes().splitlines() if b'"segment":3' in line]
    entry = documents.Entry.parse(intents[0], where="ledger")
    return str(entry.data["allocations"][0]["allocation"])


def test_runs_of_an_extension_are_missing_only_where_it_is_due(tmp_path: Path) -> None:
    home = build_home(tmp_path / "narrow", (), convergence=make_rules(extension=EXTENSION))
    report(home)
    assert provenance(home).missing_slots == ()
    assert any(is_extending(home.protocol, slot) for slot in home.protocol.slots)


def test_runs_of_a_due_extension_are_missing_on_both_sides(tmp_path: Path) -> None:
    home = freeze(tmp_path / "wide", (), convergence=make_rules("sync", "packed", extension=EXTENSION))
    home.loss = lambda recipe, seed, side: wide(recipe, seed, side) if recipe == "sync" else 3.4 + seed / 1000
    attempt_all(home, "baseline")
    freeze_candidate(home)
    attempt_all(home, "candidate")
    assert report(home) == 4
    missing = provenance(home).missing_slots
    assert missing == tuple(
        sorted(f"{owner}/run/sync/s{seed}" for owner in ("baseline", CANDIDATE) for seed in EXTENSION.seeds)
    )


def test_the_baseline_is_sealed_once_its_runs_are_whole_an_extension_left_out(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home", (), convergence=make_rules(seeds=(45, 46), quantile="6.314", extension=None))
    home.attempt(home.slot("baseline/pilot/sync"))
    home.attempt(home.slot("baseline/run/sync/s45"))
    cut = home.slot("baseline/run/sync/s46")
    home.segment(cut, ending=Ending.TIME_LIMIT)
    freeze_candidate(home)
    report(home)
    assert provenance(home).ledger.baseline_sealed_seq is None
    home.segment(cut, 1, 2)
    report(home)
    entries = home.paths.ledger.read_bytes().splitlines()
    seq = provenance(home).ledger.baseline_sealed_seq
    assert seq is not None
    assert json.loads(entries[seq - 1])["data"]["receipts"].keys() == {"baseline/run/sync/s46/1/2"}


def test_a_run_is_not_made_again_beside_its_home(home: Home) -> None:
    frozen = read_frozen(home.paths)
    with Ledger.open(home.paths, time.time) as ledger, pytest.raises(StateError, match="is a training") as caught:
        read_retained(home.paths, frozen, fold(ledger.entries), "baseline/run/sync/s45", 1)
    assert caught.value.hint == "the command of an allocation that made it: campaign show baseline/run/sync/s45"
