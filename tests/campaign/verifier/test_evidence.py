from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import documents
from campaign.verifier import evidence
from campaign.verifier.findings import Check, State
from tests.campaign.verifier import judged
from tests.support.home import CANDIDATE, Case, Home, build_home
from tests.support.training import make_rules

CASES = (Case(name="sync-b4", category="sync"),)
PAIR = "candidate/pair/sync-b4/r1"


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a home with every table, a failed attempt, one without a receipt and a run in two segments, reported."""
    made = build_home(
        tmp_path_factory.mktemp("reported") / "home",
        CASES,
        repeats=1,
        numerical=documents.NumericalRules(updates=2),
        convergence=make_rules("lm"),
    )
    assert judged.report(made) in (3, 4, 0)
    return made


@pytest.fixture
def home(reported: Home, tmp_path: Path) -> Home:
    shutil.copytree(reported.paths.root, tmp_path / "home")
    return Home(paths=type(reported.paths)(tmp_path / "home"), protocol=reported.protocol, allocations=900)


def found(home: Home) -> list[tuple[State, str, str]]:
    return judged.findings(home.paths.root, evidence.check)


def table(home: Home, name: str = "pairs.csv") -> Path:
    return home.paths.evaluation(CANDIDATE).evidence / name


def test_the_rebuilt_evidence_is_the_written_one_byte_for_byte(home: Home) -> None:
    assert found(home) == []
    with judged.knowing(home.paths.root) as facts:
        evidence.check(facts, Check(name="", title=""))
        built = evidence.rebuilt(facts)[CANDIDATE]
    folder = home.paths.evaluation(CANDIDATE).evidence
    assert dict(built.files) == {path.name: path.read_bytes() for path in folder.iterdir()}
    verdict = json.loads(home.paths.evaluation(CANDIDATE).verdict.read_bytes())
    assert built.sha256 == verdict["evidence_sha256"]
    assert all(data.count(b"\n") > 1 for data in built.files.values()), "every table has rows"


def _edit(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new, 1)

    return edit


def _turn(data: bytes) -> bytes:
    header, *lines = data.splitlines(keepends=True)
    return b"".join([header, *reversed(lines)])


def _drop(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-1])


def _again(data: bytes) -> bytes:
    return data + data.splitlines(keepends=True)[-1]


@pytest.mark.parametrize(
    ("name", "edit", "why"),
    [
        ("pairs.csv", _edit(b",3200,", b",3201,"), "1 line that no attempt left"),
        ("attempts.csv", _edit(b",completed,", b",crash,"), "1 line fewer than the attempts left"),
        ("windows.csv", _drop, "fewer than the attempts left"),
        ("curves.csv", _again, "that no attempt left"),
        ("numerical.csv", _turn, "in another order, from line 2 on"),
        ("convergence.csv", lambda data: data.rstrip(b"\n"), "that no attempt left|fewer"),
        ("vacuity.csv", lambda data: data.replace(b"\n", b"\r\n"), "that no attempt left"),
        ("baseline.csv", lambda data: data + b"\xff", "not UTF-8"),
        ("identity.json", _edit(b"identity/1", b"identity/2"), "that no attempt left"),
        ("identity.json", lambda data: data + b" ", "that no attempt left"),
    ],
)
def test_a_changed_file_is_named_with_what_differs(
    reported: Home, name: str, edit: Callable[[bytes], bytes], why: str
) -> None:
    path = table(reported, name)
    whole = path.read_bytes()
    path.write_bytes(edit(whole))
    try:
        ((state, where, what),) = found(reported)
    finally:
        path.write_bytes(whole)  # a copy of the home for each would take longer than all the rest
    assert (state, where) == (State.TAMPERED, f"evaluations/{CANDIDATE}/evidence/{name}")
    assert any(part in what for part in why.split("|")), what


def test_a_file_more_is_named_and_a_leftover_is_not(home: Home) -> None:
    table(home, "device.csv").write_text("workload\n")
    table(home, ".pairs.csv.1.tmp").write_text("half")
    ((state, where, what),) = found(home)
    assert (state, Path(where).name) == (State.TAMPERED, "device.csv")
    assert what == "no table of the protocol: added"


def test_a_file_less_is_something_that_a_report_makes_again_unless_the_campaign_is_closed(home: Home) -> None:
    table(home).unlink()
    ((state, where, _),) = found(home)
    assert (state, Path(where).name) == (State.INCOMPLETE, "pairs.csv")
    home.append("closed", {})
    ((state, where, what),) = found(home)
    assert (state, Path(where).name) == (State.TAMPERED, "pairs.csv")
    assert "closed" in what


def test_what_was_sealed_after_the_report_makes_it_old_and_not_wrong(home: Home) -> None:
    home.attempt(home.slot(PAIR), 2)
    ((state, where, what),) = found(home)
    assert (state, Path(where).name) == (State.INCOMPLETE, "verdict.json")
    assert "older than the attempts" in what
    assert judged.report(home, "--exit-zero") == 0
    assert found(home) == []


def test_evidence_that_a_killed_report_wrote_is_newer_and_not_wrong(home: Home) -> None:
    before = {path.name: path.read_bytes() for path in table(home).parent.iterdir()}
    ledger = home.paths.ledger.read_bytes()
    home.attempt(home.slot(PAIR), 2)
    planned = home.paths.ledger.read_bytes()
    assert planned.startswith(ledger)
    assert judged.report(home, "--exit-zero") == 0
    lines = home.paths.ledger.read_bytes().splitlines(keepends=True)
    home.paths.ledger.write_bytes(b"".join(lines[:-1]))  # killed before the act
    assert before["pairs.csv"] != table(home).read_bytes()
    assert [state for state, *_ in found(home)] == [State.INCOMPLETE]
    table(home).write_bytes(before["pairs.csv"])  # some tables were written, and some were not yet
    assert [state for state, *_ in found(home)] == [State.INCOMPLETE]
    table(home).write_bytes(before["pairs.csv"].replace(b",3200,", b",3201,"))
    assert State.TAMPERED in [state for state, *_ in found(home)]


def test_attempts_without_a_receipt_stand_there_by_the_ledgers_word(home: Home) -> None:
    slot = home.slot(PAIR)
    home.end(slot, 2, home.plan(slot, 2), Ending.NODE_FAIL)
    allocation = home.plan(slot, 3)
    home.start(slot, 3, allocation)
    home.end(slot, 3, allocation, Ending.PREEMPTED)
    assert judged.report(home, "--exit-zero") == 0
    assert found(home) == []
    name = f"{CANDIDATE}/pair/sync-b4/r1"
    lines = [line for line in table(home, "attempts.csv").read_text().splitlines() if line.startswith(name)]
    assert [line.split(",")[-2] for line in lines] == ["completed", "node_fail", "preempted"]
    home.seal(slot, 3, allocation, ending=Ending.PREEMPTED)  # its receipt came late
    assert [state for state, *_ in found(home)] == [State.INCOMPLETE]


def test_an_ending_that_was_learnt_after_the_report_makes_it_old_and_not_wrong(home: Home) -> None:
    slot = home.slot(PAIR)
    allocation = home.plan(slot, 2)
    assert judged.report(home, "--exit-zero") == 0
    assert found(home) == []
    home.end(slot, 2, allocation, Ending.NODE_FAIL)
    ((state, where, _),) = found(home)
    assert (state, Path(where).name) == (State.INCOMPLETE, "verdict.json")


def test_a_run_stands_there_by_the_segment_that_ended_it(home: Home) -> None:
    slot = home.slot("candidate/run/lm/s45")
    home.segment(slot, 2, 1, ending=Ending.TIME_LIMIT)
    home.segment(slot, 2, 2, ending=Ending.NODE_FAIL, is_sealed=False)
    home.segment(slot, 2, 3, is_sealed=False, is_ended=False)
    assert found(home) == []
    home.end(slot, 2, "a0903", Ending.LOST, 3)
    assert [state for state, *_ in found(home)] == [State.INCOMPLETE]


def test_the_ledgers_digest_is_of_the_evidence_that_the_attempts_give(home: Home) -> None:
    lines = home.paths.ledger.read_bytes().splitlines()
    last = json.loads(lines[-1])
    assert last["act"] == "reported"
    last["data"]["evidence_sha256"] = "0" * 64
    home.paths.ledger.write_bytes(b"\n".join([*lines[:-1], json.dumps(last).encode(), b""]))
    ((state, where, what),) = found(home)
    assert (state, where) == (State.TAMPERED, f"ledger.jsonl:{len(lines)}")
    assert "0" * 64 in what


def test_attempts_that_are_not_whole_leave_the_ledgers_digest_to_compare_with(home: Home) -> None:
    (home.folder(PAIR).root / "pairs.csv").unlink()
    with judged.knowing(home.paths.root) as facts:
        check = Check(name="", title="")
        evidence.check(facts, check)
        assert (check.state, check.findings) == (State.NOT_CHECKED, [])
    table(home).write_bytes(_edit(b",3200,", b",3201,")(table(home).read_bytes()))
    ((state, where, what),) = found(home)
    assert (state, where) == (State.TAMPERED, f"evaluations/{CANDIDATE}/evidence")
    assert "reported on" in what


def test_a_table_with_other_columns_than_are_known_is_found(home: Home) -> None:
    protocol = json.loads(home.paths.protocol.read_bytes())
    protocol["headers"]["pairs.csv"].append("more")
    home.paths.protocol.write_bytes(json.dumps(protocol).encode())
    ((state, where, what),) = found(home)
    assert (state, where) == (State.TAMPERED, "protocol.json")
    assert what.startswith("headers.pairs.csv: is ")


def test_a_home_without_a_report_is_incomplete(tmp_path: Path) -> None:
    home = build_home(tmp_path / "home", CASES, repeats=1)
    ((state, where, what),) = found(home)
    assert (state, where) == (State.INCOMPLETE, f"evaluations/{CANDIDATE}")
    assert "campaign report" in what
