"""Amendments: what may become void, what that changes, and that no report hides it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign import documents
from campaign.cli.main import main
from campaign.collection.collect import collect
from campaign.errors import ConfigError, EvidenceError, StateError
from campaign.frozen import read_frozen
from campaign.keys import AttemptKey
from campaign.record import amendments
from campaign.record.ledger import Ledger, parse_entries, read_entries
from campaign.submission import acts
from campaign.submission.desk import open_desk
from campaign.submission.plans import next_key
from campaign.verifier import amendments as verifier_amendments
from campaign.verifier import attempts, matrix, pairs, platform
from campaign.watching.state import AttemptState, AttemptStatus, SlotState, resolve_slots
from tests.support import training
from tests.support.home import CANDIDATE, Case, Home, build_home, freeze, freeze_candidate
from tests.support.lifelike import build_lifelike
from tests.support.verifying import make_checks

ONE = (Case(name="sync-b4", category="sync"),)
PAIR = "candidate/pair/sync-b4/r2"
NAME = f"{CANDIDATE}/pair/sync-b4/r2"
SAID = (
    *("--what", "node", "--changed", "node7 throttled", "--keep-reason", "other nodes", "--by", "A. Person"),
    *("--reason", "a fan failed", "--yes"),
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return build_home(tmp_path / "home", ONE, solo=False, controls=False)


def run(home: Home, *arguments: str) -> int:
    return main([*arguments, "--home", str(home.paths.root)])


def amend(home: Home, *patterns: str) -> int:
    return run(home, "amend", *(part for pattern in patterns for part in ("--void", pattern)), *SAID)


def measure_again(home: Home, slot: str, ratio: float, number: int = 2) -> None:
    home.ratio = lambda _workload, _repeat: ratio
    home.attempt(home.slot(slot), number)


def rows(home: Home) -> list[str]:
    return (home.paths.evaluation(CANDIDATE).evidence / "attempts.csv").read_text().splitlines()


def history(home: Home) -> acts.History:
    return acts.fold(read_entries(home.paths))


def statuses(home: Home, state: AttemptState = AttemptState.ENDED) -> dict[AttemptKey, AttemptStatus]:
    """Return every attempt, completed, or in another state."""
    known = history(home)
    ending = Ending.COMPLETED if state is AttemptState.ENDED else None
    return {
        one.key: AttemptStatus(
            slot=one.slot,
            attempt=one.attempt,
            segment=one.segment,
            allocation=one.allocation,
            job="1",
            state=state,
            ending=ending,
            reason="",
            node="",
            source="receipt",
            receipt=None,
        )
        for slot in known.slots
        for one in known.attempts(slot)
    }


def wish(*patterns: str, **texts: str) -> amendments.Wish:
    said = {"changed": "the node", "keep_reason": "untouched", "by": "me", "reason": "because"} | texts
    return amendments.Wish(what="node", patterns=patterns, **said)


def judge(home: Home, asked: amendments.Wish, state: AttemptState = AttemptState.ENDED) -> documents.Amended:
    frozen, entries = read_frozen(home.paths), read_entries(home.paths)
    return amendments.build(asked, frozen, history(home), statuses(home, state), entries)


def build(home: Home, *patterns: str) -> documents.Amended:
    return judge(home, wish(*patterns))


# --- what it does -----------------------------------------------------------------------------------------------------


def test_a_result_that_a_report_had_shown_is_not_redone_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = build_home(tmp_path / "home", ONE, lambda _w, repeat: 0.9 if repeat == 2 else 1.1, solo=False)
    assert run(bad, "report") == 3
    assert amend(bad, NAME) == 0
    assert run(bad, "report") == 4  # void, and not measured again
    assert documents.Provenance.read(bad.paths.evaluation(CANDIDATE).provenance).missing_slots == (NAME,)
    assert "1 slot is void and not measured again yet, 1 of them after a report had shown" in capsys.readouterr().out
    measure_again(bad, PAIR, 1.2)
    assert run(bad, "report") == 0
    said = capsys.readouterr().out
    first = f"1 slot was measured again after a report had shown its result: {NAME}. The baseline may be retired"
    assert first in said
    page = bad.paths.evaluation(CANDIDATE).page.read_text()
    markdown = (bad.paths.evaluation(CANDIDATE).report / "report.md").read_text()
    assert f'<p class="sentence">{first}' in page
    for text in ("node7 throttled", "a fan failed", "A. Person", "other nodes", "0.900\u00d7", "1.200\u00d7"):
        assert text in page
        assert text in markdown
    assert "Of these workloads only a part of the repeats is void" in page
    assert "1 void slot has a completed attempt" in page
    act = acts_of(bad, "amended")[0]
    assert (act["void"], act["voided_attempts"], act["after_report"]) == ([NAME], {NAME: 1}, True)
    assert not act["platform"]


def acts_of(home: Home, act: str) -> list[dict[str, Any]]:
    return [entry.data for entry in read_entries(home.paths) if entry.act == act]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in in the place of the rendered page."""

    def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
        assert protocol_path.is_file()
        assert (evaluation / "verdict.json").is_file()
        out.mkdir(exist_ok=True)
        (out / "report.html").write_text("a page")

    monkeypatch.setattr("reports.render.write_report", write_report)


@pytest.mark.usefixtures("quick")
def test_what_no_report_had_shown_is_said_to_be_so(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert amend(home, NAME) == 0
    measure_again(home, PAIR, 1.2)
    assert run(home, "report") == 0
    assert "1 slot was measured again, before any report had shown" in capsys.readouterr().out
    assert acts_of(home, "amended")[0]["shown"] == []


@pytest.mark.usefixtures("quick")
def test_void_attempts_stay_in_the_evidence_under_that_ending_and_both_results_with_them(home: Home) -> None:
    assert run(home, "collect") == 0
    amend(home, NAME)
    measure_again(home, PAIR, 1.2)
    assert run(home, "collect") == 0
    assert run(home, "report") == 0
    assert [line.split(",")[-2] for line in rows(home) if line.startswith(NAME)] == ["void", "completed"]
    pairs = (home.paths.evaluation(CANDIDATE).evidence / "pairs.csv").read_text().splitlines()
    assert sum(",2,1," in line and "sync-b4,candidate" in line for line in pairs) == 4
    made = documents.Provenance.read(home.paths.evaluation(CANDIDATE).provenance)
    void = [one for one in made.attempts if one.slot == NAME]
    assert [(one.ending, one.ended, one.amendment) for one in void] == [
        (Ending.VOID, Ending.COMPLETED, made.amendments[0].seq),
        (Ending.COMPLETED, None, 0),
    ]
    assert run(home, "collect", "--rebuild") == 0


def test_a_cache_that_was_edited_before_an_amendment_is_found_after_it(home: Home) -> None:
    run(home, "collect")
    amend(home, NAME)
    other = home.paths.root.parent / "other.sqlite"
    other.write_bytes(home.paths.database.read_bytes().replace(b"a0005,node1,cpu", b"a0005,node9,cpu"))
    assert other.read_bytes() != home.paths.database.read_bytes()
    other.replace(home.paths.database)
    assert run(home, "collect") == 5


def test_the_home_without_its_amendment_is_not_what_the_cache_says(home: Home) -> None:
    amend(home, NAME)
    run(home, "collect")
    lines = home.paths.ledger.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if b'"amended"' not in line and b'"collected"' not in line]
    home.paths.ledger.write_bytes(b"")
    for line in kept:
        entry = documents.Entry.parse(line.rstrip(b"\n").replace(b"\n", b""), where="ledger")
        home.append(entry.act, entry.data)
    assert run(home, "collect") == 5


def test_a_slot_that_is_void_is_as_if_it_had_not_been_tried_but_for_its_numbers(home: Home) -> None:
    home.attempt(home.slot(PAIR), 2)  # surplus
    amend(home, NAME)
    known = history(home)
    slots = resolve_slots(home.protocol, CANDIDATE, known, statuses(home))
    assert (slots[NAME].state, len(slots[NAME].attempts), len(slots[NAME].void)) == (SlotState.PLANNED, 0, 2)
    assert next_key(slots[NAME]) == AttemptKey(NAME, 3)
    assert [slots[NAME.replace("r2", one)].state for one in ("r1", "r3")] == [SlotState.COMPLETED] * 2
    assert run(home, "show", NAME) == 0


def test_show_says_which_attempts_are_void(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    amend(home, NAME)
    assert run(home, "show", NAME) == 0
    out = capsys.readouterr().out
    assert f"{NAME}: planned" in out
    assert "void by the amendment of ledger entry" in out
    assert "no attempt that counts yet; next: campaign submit" in out


def test_amendments_are_listed(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home, "amend", "--list") == 0
    assert capsys.readouterr().out == "nothing was amended\n"
    amend(home, NAME)
    capsys.readouterr()
    assert run(home, "amend", "--list", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)["amendments"]
    assert (listed["void"], listed["by"], listed["what"]) == ([NAME], "A. Person", "node")


# --- runs and cases ---------------------------------------------------------------------------------------------------


def test_a_run_that_could_go_on_is_begun_anew_once_it_is_void(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home", ONE, solo=False, controls=False, convergence=training.make_rules())
    slot = next(one for one in home.protocol.slots if one.kind == "run" and one.side == "baseline")
    home.segment(slot, ending=Ending.TIME_LIMIT)
    act = build(home, slot.slot)
    home.append("amended", act.to_json())
    home.segment(slot, 2)
    with Ledger.open(home.paths, lambda: 0.0) as ledger:
        found = collect(home.paths, ledger)
    assert found.findings == ()
    assert [(one.key, one.ending, one.ended) for one in found.records] == [
        ((slot.slot, 1), "void", "time_limit"),
        ((slot.slot, 2), "completed", "completed"),
    ]


def test_cases_that_are_not_void_keep_the_inputs_of_the_pilot_that_counts(tmp_path: Path) -> None:
    rules = documents.NumericalRules(controls=False)
    home = build_home(tmp_path / "home", ONE, solo=False, controls=False, numerical=rules)
    with pytest.raises(StateError, match="what rests on a void pilot"):
        build(home, "baseline/pilot/sync-b4", f"{CANDIDATE}/pair/*")
    act = build(home, "baseline/pilot/sync-b4", f"{CANDIDATE}/pair/*", f"{CANDIDATE}/case/*")
    home.append("amended", act.to_json())
    with Ledger.open(home.paths, lambda: 0.0) as ledger:
        assert collect(home.paths, ledger).findings == ()
    for name in ("baseline/pilot/sync-b4", "candidate/case/sync-b4"):
        home.attempt(home.slot(name), 2)
    with Ledger.open(home.paths, lambda: 0.0) as ledger:
        assert collect(home.paths, ledger).findings == ()


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_pattern_that_matches_no_slot_is_refused(home: Home) -> None:
    with pytest.raises(StateError, match="no slot matches 'candidate/pairs/"):
        build(home, NAME, "candidate/pairs/*")


def test_a_slot_that_was_never_tried_cannot_become_void(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home", ONE, solo=False)
    freeze_candidate(home)
    with pytest.raises(StateError, match="nothing to make void"):
        build(home, NAME)


def test_what_is_void_already_cannot_become_so_again_before_it_is_measured_again(home: Home) -> None:
    amend(home, NAME)
    with pytest.raises(StateError, match="nothing to make void"):
        build(home, NAME)
    measure_again(home, PAIR, 1.2)
    assert build(home, NAME).voided_attempts == {NAME: 2}


@pytest.mark.parametrize("state", [one for one in AttemptState if one is not AttemptState.ENDED])
def test_what_is_under_way_cannot_become_void(home: Home, state: AttemptState) -> None:
    with pytest.raises(StateError, match="has not ended"):
        judge(home, wish(NAME), state)


def test_a_void_pilot_takes_with_it_what_was_measured_by_its_numbers(home: Home) -> None:
    pilot, pairs = f"{CANDIDATE}/pilot/sync-b4", f"{CANDIDATE}/pair/sync-b4/*"
    with pytest.raises(StateError, match="what rests on a void pilot"):
        build(home, pilot, NAME)
    assert len(build(home, pilot, pairs).void) == 4


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "is empty"), ("  \n ", "is empty"), ("x" * 2001, "2001 characters"), ("a\x1b[31m", "cannot be shown")],
)
@pytest.mark.parametrize("name", ["changed", "keep_reason", "by", "reason"])
def test_every_text_has_to_be_there_and_plain(home: Home, name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        judge(home, wish(NAME, **{name: text}))


def test_a_secret_is_not_recorded(home: Home) -> None:
    with pytest.raises(ConfigError, match="looks like"):
        judge(home, wish(NAME, reason="token ghp_" + "a1B2" * 9))


@pytest.mark.parametrize("left", ["--what", "--changed", "--keep-reason", "--by", "--reason"])
def test_nothing_is_left_unsaid(home: Home, left: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = SAID.index(left)
    assert run(home, "amend", "--void", NAME, *SAID[:at], *SAID[at + 2 :]) == 2
    assert f"{left} not given" in capsys.readouterr().err
    assert acts_of(home, "amended") == []


def test_an_amendment_needs_a_yes(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home, "amend", "--void", NAME, *SAID[:-1]) == 2
    assert "an amendment needs a yes" in capsys.readouterr().err
    assert acts_of(home, "amended") == []


def test_what_is_recorded_is_what_was_shown(home: Home) -> None:
    desk = open_desk(home.paths, read_frozen(home.paths), lambda: 0.0)
    shown = amendments.propose(desk, wish(NAME), print)
    home.attempt(home.slot(PAIR), 2)
    with pytest.raises(StateError, match="has changed since the amendment was shown"):
        amendments.amend(desk, wish(NAME), shown)
    assert acts_of(home, "amended") == []
    amendments.amend(desk, wish(NAME), amendments.propose(desk, wish(NAME), print))
    assert acts_of(home, "amended")[0]["voided_attempts"] == {NAME: 2}


def test_nothing_is_amended_in_a_home_that_is_not_what_was_frozen(home: Home) -> None:
    manifest = home.paths.candidate(CANDIDATE).manifest  # the ledger alone names its digest
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    assert amend(home, NAME) == 5
    assert acts_of(home, "amended") == []


def test_nothing_of_a_closed_campaign_becomes_void(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.append("closed", {})
    assert amend(home, NAME) == 2
    assert "the campaign is closed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        {"voided_attempts": {NAME: 2}},
        {"voided_attempts": {}},
        {"void": [], "voided_attempts": {}},
        {"void": ["baseline/solo/none/r1"], "voided_attempts": {"baseline/solo/none/r1": 1}},
    ],
)
def test_a_ledger_whose_amendment_voids_what_was_not_there_is_refused(home: Home, changes: dict[str, Any]) -> None:
    home.append("amended", {**build(home, NAME).to_json(), **changes})
    with pytest.raises(EvidenceError):
        history(home)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("act", ["receipt", "ledger"])
def test_no_attempt_ends_void_by_itself(home: Home, act: str) -> None:
    if act == "receipt":
        home.attempt(home.slot(PAIR), 2, ending=Ending.VOID)
    else:
        home.end(home.slot(PAIR), 2, home.plan(home.slot(PAIR), 2), Ending.VOID)
    assert run(home, "report") == 5


# --- what is seen of it -----------------------------------------------------------------------------------------------


def entry(act: documents.Act, data: dict[str, Any]) -> documents.Entry:
    return documents.Entry(seq=1, previous="", at=0.0, act=act, data=data)


def test_of_a_slot_that_is_void_again_only_what_came_since_may_have_been_shown() -> None:
    slot = "cx/pair/w/r1"
    known, reported = acts.History(voided={slot: 1}), entry("reported", {"candidate": "cx"})
    before, since = (entry("sealed", {"receipts": {f"{slot}/{number}": "a"}}) for number in (1, 2))
    assert amendments.shown_before({slot: 2}, known, [before, reported]) == ()
    assert amendments.shown_before({slot: 2}, known, [before, reported, since, reported]) == (slot,)


def test_baseline_slots_are_shown_by_a_report_on_any_candidate() -> None:
    seen = entry("sealed", {"receipts": {"baseline/solo/w/r1/1": "a", "cx/pair/w/r1/1": "b"}})
    chosen = {"baseline/solo/w/r1": 1, "cx/pair/w/r1": 1}

    def shown(*entries: documents.Entry) -> Sequence[str]:
        return amendments.shown_before(chosen, acts.History(), entries)

    assert shown(seen) == ()
    assert shown(entry("reported", {"candidate": "cx"}), seen) == ()
    assert shown(seen, entry("reported", {"candidate": "cy"})) == ("baseline/solo/w/r1",)
    assert shown(seen, entry("reported", {"candidate": "cx"})) == ("baseline/solo/w/r1", "cx/pair/w/r1")
    ended = entry("ended", {"slot": "cx/pair/w/r1", "attempt": 1})
    assert shown(ended, entry("reported", {"candidate": "cx"})) == ("cx/pair/w/r1",)


def test_the_ledger_keeps_its_chain(home: Home) -> None:
    amend(home, NAME)
    assert parse_entries(home.paths.ledger.read_bytes(), where="ledger")[-1].act == "amended"


# --- the verifier -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_what_the_commands_record_is_what_the_verifier_takes(tmp_path: Path) -> None:
    made = build_lifelike(tmp_path / "home", ONE, repeats=2, solo=False, controls=False)
    made.ratio = lambda _workload, _repeat: 0.9
    who = ("--by", "A. Person", "--reason", "to see")
    assert run(made, "report") == 0
    assert run(made, "decide", "--default", "candidate", *who) == 0
    assert amend(made, NAME) == 0
    assert run(made, "decide", "--retire", "baseline", *who) == 4
    made.num_lines = 0  # the commands wrote to the ledger
    made.attempt(made.slot(PAIR), 2)
    assert run(made, "report") == 3
    assert run(made, "decide", "--retire", "baseline", *who) == 3
    made.ratio = lambda _workload, _repeat: 1.2
    assert amend(made, NAME) == 0
    made.num_lines = 0  # the commands wrote to the ledger
    made.attempt(made.slot(PAIR), 3)
    assert run(made, "report") == 0
    assert run(made, "decide", "--retire", "baseline", *who) == 0
    checks = make_checks(
        made.paths.root, matrix.check, attempts.check, pairs.check, platform.check, verifier_amendments.check
    )
    assert [(one.where, one.what) for one in checks.findings] == []
    assert checks.made[-1].remarks == ["2 amendments, 2 void attempts, 4 decisions"]
