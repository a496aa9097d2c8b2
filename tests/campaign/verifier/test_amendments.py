from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import ATTEMPTS, Ending
from campaign.verifier import amendments, attempts, matrix
from campaign.verifier.findings import State
from tests.support.home import SMALL, csv_bytes
from tests.support.lifelike import LifelikeHome, freeze_lifelike
from tests.support.verifying import edit_ledger, make_checks

SLOT = "baseline/solo/sync-b4/r1"
WORDS = {"what": "node", "changed": "disk", "by": "A", "reason": "B", "keep_reason": "C", "valid": "all other slots"}


@pytest.fixture
def begun(tmp_path: Path) -> LifelikeHome:
    return freeze_lifelike(tmp_path / "home", SMALL[:1], repeats=1)


def amend(made: LifelikeHome, voided: dict[str, int], **fields: Any) -> None:
    about = {"void": [*voided], "voided_attempts": voided, "after_report": False, "platform": False}
    made.append("amended", {**WORDS, **about, **fields})


def check(made: LifelikeHome) -> list[tuple[State, str]]:
    checks = make_checks(made.paths.root, matrix.check, attempts.check, amendments.check)
    return [(one.state, f"{one.where}: {one.what}") for one in checks.findings]


def test_a_home_without_amendments_is_intact(whole_home: Path) -> None:
    checks = make_checks(whole_home, matrix.check, attempts.check, amendments.check)
    assert checks.state is State.INTACT
    assert checks.made[-1].remarks == ["0 amendments, 0 void attempts, 0 decisions"]


def test_a_void_attempt_allows_another_whatever_its_ending(begun: LifelikeHome) -> None:
    begun.attempt(begun.slot(SLOT))
    begun.collect()
    amend(begun, {SLOT: 1})
    begun.attempt(begun.slot(SLOT), 2)
    begun.collect()
    assert check(begun) == []


def test_void_attempts_do_not_count_toward_the_most(begun: LifelikeHome) -> None:
    for number in (1, 2, 3):
        begun.attempt(begun.slot(SLOT), number, ending=Ending.NODE_FAIL)
    begun.collect()
    amend(begun, {SLOT: 3})
    for number in (4, 5):
        begun.attempt(begun.slot(SLOT), number, ending=Ending.NODE_FAIL)
    begun.attempt(begun.slot(SLOT), 6)
    begun.collect()
    assert check(begun) == []
    begun.attempt(begun.slot(SLOT), 7)
    begun.collect()
    assert [one.state for one in make_checks(begun.paths.root, matrix.check, attempts.check).findings] == [
        State.TAMPERED
    ]


def test_a_later_amendment_makes_more_attempts_void(begun: LifelikeHome) -> None:
    for number in (1, 2):
        begun.attempt(begun.slot(SLOT), number)
        begun.collect()
        amend(begun, {SLOT: number})
    begun.attempt(begun.slot(SLOT), 3)
    begun.collect()
    assert check(begun) == []


def test_an_amendment_of_what_is_void_already_is_found(begun: LifelikeHome) -> None:
    begun.attempt(begun.slot(SLOT))
    begun.collect()
    amend(begun, {SLOT: 1})
    amend(begun, {SLOT: 1})
    ((_, text),) = check(begun)
    assert f"makes 1 attempt(s) at {SLOT} void, where 1 had been made" in text


def test_an_amendment_after_the_further_attempt_does_not_allow_it(begun: LifelikeHome) -> None:
    begun.attempt(begun.slot(SLOT))
    begun.attempt(begun.slot(SLOT), 2)
    begun.collect()
    amend(begun, {SLOT: 2})
    ((state, text),) = check(begun)
    assert state is State.TAMPERED
    assert "completed, which allows no other" in text


@pytest.mark.parametrize(
    ("voided", "fields", "what"),
    [
        ({SLOT: 2}, {}, "makes 2 attempt(s) at baseline/solo/sync-b4/r1 void, where 1 had been made"),
        ({"baseline/solo/other/r1": 1}, {}, "which is not a slot"),
        ({SLOT: 1}, {"void": []}, "name different slots"),
        ({SLOT: 1}, {"by": " "}, "by is empty"),
        ({SLOT: 1}, {"after_report": True}, "after a report"),
    ],
)
def test_an_amendment_that_cannot_be_is_found(
    begun: LifelikeHome, voided: dict[str, int], fields: dict[str, Any], what: str
) -> None:
    begun.attempt(begun.slot(SLOT))
    begun.collect()
    amend(begun, voided, **fields)
    texts = [text for _, text in check(begun)]
    assert any(what in text for text in texts), texts


def test_an_attempt_had_ended_once_the_ledger_said_so_although_its_receipt_came_later(begun: LifelikeHome) -> None:
    slot = begun.slot(SLOT)
    allocation = begun.plan(slot)
    begun.start(slot, 1, allocation)
    begun.end(slot, 1, allocation, Ending.NODE_FAIL)
    amend(begun, {SLOT: 1})
    begun.seal(slot, 1, allocation, ending=Ending.NODE_FAIL)
    begun.collect()
    assert check(begun) == []


def test_an_attempt_under_way_cannot_become_void(begun: LifelikeHome) -> None:
    begun.plan(begun.slot(SLOT))
    amend(begun, {SLOT: 1})
    assert any(f"makes {SLOT}/1 void, which had not ended" in text for _, text in check(begun))


def test_an_amendment_that_hides_that_results_had_been_seen_is_found(begun: LifelikeHome) -> None:
    begun.attempt(begun.slot(SLOT))
    begun.collect()
    begun.append("reported", {"candidate": "ccccccccccccc", "verdict_sha256": "", "evidence_sha256": "", "outcome": ""})
    amend(begun, {SLOT: 1})
    ((_, text),) = check(begun)
    assert "says that it was made before any report" in text


# --- decisions --------------------------------------------------------------------------------------------------------

REPORTED = {"candidate": "ccccccccccccc", "verdict_sha256": "1" * 64, "evidence_sha256": "2" * 64}


def decide(root: Path, reported_outcome: str, **fields: Any) -> list[str]:
    data = {"kind": "retire", "side": "baseline", "by": "A", "reason": "B", "refused": False, "why": ""}
    about = {"candidate": "ccccccccccccc", "verdict_sha256": "1" * 64, "outcome": reported_outcome}
    decided = {"at": 0.0, "act": "decided", "data": data | about | fields}
    reported = {"at": 0.0, "act": "reported", "data": {**REPORTED, "outcome": reported_outcome}}
    edit_ledger(root, lambda entries: entries.extend([reported, decided]))
    checks = make_checks(root, matrix.check, attempts.check, amendments.check)
    return [one.what for one in checks.findings]


def test_a_passing_verdict_permits_retirement(home: Path) -> None:
    assert decide(home, "pass") == []


def test_a_retirement_without_a_passing_verdict_is_found(home: Path) -> None:
    assert decide(home, "not_qualified") == ["retires the baseline, and no verdict passes"]


def test_a_refused_retirement_and_another_default_need_no_passing_verdict(home: Path) -> None:
    assert decide(home, "not_qualified", refused=True, why="no") == []
    assert decide(home, "not_qualified", kind="default", side="candidate") == []


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"verdict_sha256": "3" * 64}, "verdict_sha256 is"),
        ({"outcome": "pass"}, "outcome is pass, the last report before it says not_qualified"),
        ({"candidate": "cdddddddddddd"}, "is no candidate of this campaign"),
        ({"by": ""}, "by is empty"),
    ],
)
def test_a_decision_that_rests_on_something_else_than_the_report_is_found(
    home: Path, fields: dict[str, Any], what: str
) -> None:
    texts = decide(home, "not_qualified", **fields)
    assert any(what in text for text in texts), texts


# --- the evidence -----------------------------------------------------------------------------------------------------


def write_evidence(root: Path, ending: str) -> None:
    path = root / "evaluations/ccccccccccccc/evidence/attempts.csv"
    path.parent.mkdir(parents=True)
    row = {column.name: "x" for column in ATTEMPTS.columns}
    row |= {"slot": "baseline/solo/sync-b4/r1", "attempt": "1", "ending": ending, "sealed": "true"}
    path.write_bytes(csv_bytes(ATTEMPTS, [row]))


def test_a_line_that_is_called_void_without_an_amendment_is_found(home: Path) -> None:
    write_evidence(home, "void")
    checks = make_checks(home, matrix.check, attempts.check, amendments.check)
    assert [one.what for one in checks.findings] == ["baseline/solo/sync-b4/r1/1 ended void, and no amendment says so"]


def test_a_line_that_says_what_was_measured_is_right_without_one(home: Path) -> None:
    write_evidence(home, "completed")
    assert make_checks(home, matrix.check, attempts.check, amendments.check).state is State.INTACT
