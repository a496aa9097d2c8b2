"""Each way in which parsed rows can disagree with the protocol: none passes, and each is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from acceptance import check_rows
from acceptance.formats import Ending
from campaign.documents import slot_for
from tests.support.evidence import CANDIDATE, Campaign, Rows, add_attempt, make_campaign

FAST = {"fast": ("1.20", "1.21", "1.22")}
SLOT = f"{CANDIDATE}/pair/20m-fast-b1/r2"
GATE = "throughput/fast/repeat-2"
OTHER_GATES = ("throughput/fast/repeat-1", "throughput/fast/repeat-3")


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_campaign(tmp_path, ratios=FAST)


def gates(campaign: Campaign) -> dict[str, dict[str, Any]]:
    return {gate["id"]: gate for gate in campaign.write().verdict()["gates"]}


def pair_rows(campaign: Campaign, file: str = "pairs.csv", **wanted: object) -> Rows:
    return campaign.rows(file, **({"workload": "20m-fast-b1", "comparison": "candidate", "repeat": 2} | wanted))


def test_clean_evidence_passes(campaign: Campaign) -> None:
    result = campaign.evaluate()
    assert result.exit_code == 0
    assert campaign.verdict()["outcome"] == "pass"
    assert {gate["finding"] for gate in gates(campaign).values()} == {"met"}


Spoil = Callable[[Campaign], None]


def set_in(file: str, column: str, value: str, **wanted: object) -> Spoil:
    def spoil(campaign: Campaign) -> None:
        rows = pair_rows(campaign, file, **wanted)
        assert rows
        for row in rows:
            assert row[column] != value
            row[column] = value

    return spoil


def delete_from(file: str, **wanted: object) -> Spoil:
    def spoil(campaign: Campaign) -> None:
        for row in pair_rows(campaign, file, **wanted):
            campaign.tables[file].remove(row)

    return spoil


def duplicate_in(file: str, **wanted: object) -> Spoil:
    def spoil(campaign: Campaign) -> None:
        campaign.tables[file].append(dict(pair_rows(campaign, file, **wanted)[0]))

    return spoil


def swap_sides(campaign: Campaign) -> None:
    first, second = pair_rows(campaign)
    first["side"], second["side"] = second["side"], first["side"]


def swap_sides_and_positions(campaign: Campaign) -> None:
    """A forger who keeps the planned order: the windows still tell whose numbers they are."""
    swap_sides(campaign)
    first, second = pair_rows(campaign)
    first["position"], second["position"] = second["position"], first["position"]


def share_allocation(campaign: Campaign) -> None:
    (first,) = campaign.rows("attempts.csv", slot=SLOT.replace("/r2", "/r1"))
    (second,) = campaign.rows("attempts.csv", slot=SLOT)
    second["allocation"] = first["allocation"]
    for row in pair_rows(campaign):
        row["allocation"] = first["allocation"]


def halve_updates(campaign: Campaign) -> None:
    for row in [*pair_rows(campaign), *pair_rows(campaign, "windows.csv")]:
        row["updates"] = str(int(row["updates"]) // 2)


def short_window(campaign: Campaign) -> None:
    """One window loses what another one gains."""
    rows = pair_rows(campaign, "windows.csv", side="candidate")
    total = Decimal(rows[0]["seconds"]) + Decimal(rows[1]["seconds"])
    rows[0]["seconds"], rows[1]["seconds"] = "0.999999", str(total - Decimal("0.999999"))


INVALID: dict[str, tuple[str, str, Spoil]] = {
    "pair row twice": ("pairs.csv", "2 rows", duplicate_in("pairs.csv", side="candidate")),
    "sides swapped": ("pairs.csv", "is not the planned one", swap_sides),
    "sides and positions swapped": ("windows.csv", "do not sum", swap_sides_and_positions),
    "side of another comparison": (
        "pairs.csv",
        "is not the planned one",
        set_in("pairs.csv", "side", "baseline_again", side="candidate"),
    ),
    "position out of range": (
        "pairs.csv",
        "is not the planned one",
        set_in("pairs.csv", "position", "3", side="candidate"),
    ),
    "shared allocation": ("pairs.csv", "share the allocation", share_allocation),
    "allocation unlike the attempt's": (
        "pairs.csv",
        "not as in attempts.csv",
        set_in("pairs.csv", "allocation", "x", side="candidate"),
    ),
    "node unlike the other side's": (
        "pairs.csv",
        "the sides differ in node",
        set_in("pairs.csv", "node", "x", side="candidate"),
    ),
    "device unlike the other side's": (
        "pairs.csv",
        "the sides differ in device",
        set_in("pairs.csv", "device", "x", side="baseline"),
    ),
    "updates unlike the other side's": (
        "pairs.csv",
        "the sides differ in updates",
        set_in("pairs.csv", "updates", "41", side="candidate"),
    ),
    "tokens unlike the other side's": (
        "pairs.csv",
        "the sides differ in tokens",
        set_in("pairs.csv", "tokens", "204799", side="candidate"),
    ),
    "updates unlike the other repeats'": ("pairs.csv", "differ in updates per window", halve_updates),
    "no updates": ("pairs.csv", "above zero", set_in("pairs.csv", "updates", "0", side="candidate")),
    "no tokens": ("pairs.csv", "above zero", set_in("pairs.csv", "tokens", "0", side="candidate")),
    "no time": ("pairs.csv", "above zero", set_in("pairs.csv", "train_s", "0", side="candidate")),
    "negative time": ("pairs.csv", "above zero", set_in("pairs.csv", "train_s", "-12.5", side="candidate")),
    "negative start-up": (
        "pairs.csv",
        "startup_s is negative",
        set_in("pairs.csv", "startup_s", "-1", side="candidate"),
    ),
    "warm-up too short": (
        "pairs.csv",
        "19 warm-up updates",
        set_in("pairs.csv", "warmup_updates", "19", side="candidate"),
    ),
    "wrong rate": ("pairs.csv", "tokens_per_s is not", set_in("pairs.csv", "tokens_per_s", "99999", side="candidate")),
    "elapsed too short": (
        "pairs.csv",
        "elapsed_s is less",
        set_in("pairs.csv", "elapsed_s", "15.7499", side="candidate"),
    ),
    "category unlike the protocol's": (
        "pairs.csv",
        "not as in the protocol",
        set_in("pairs.csv", "category", "", side="candidate"),
    ),
    "production unlike the protocol's": (
        "pairs.csv",
        "not as in the protocol",
        set_in("pairs.csv", "production", "true", side="candidate"),
    ),
    "row of an attempt nobody made": (
        "pairs.csv",
        "not in attempts.csv",
        set_in("pairs.csv", "attempt", "2", side="candidate"),
    ),
    "one window deleted": (
        "windows.csv",
        "window 3 has no row",
        delete_from("windows.csv", side="candidate", window=3),
    ),
    "one window twice": ("windows.csv", "2 rows", duplicate_in("windows.csv", side="candidate")),
    "a window too many": ("windows.csv", "window 6", set_in("windows.csv", "window", "6", side="candidate", window=5)),
    "a window under the minimum": ("windows.csv", "shorter than 1 s", short_window),
    "window updates unlike the pair's": (
        "windows.csv",
        "another number of updates",
        set_in("windows.csv", "updates", "39", window=1),
    ),
    "window tokens unlike the pair's": (
        "windows.csv",
        "tokens do not sum",
        set_in("windows.csv", "tokens", "1", window=1),
    ),
    "window seconds unlike the pair's": (
        "windows.csv",
        "seconds do not sum",
        set_in("windows.csv", "seconds", "2.50000010", side="candidate"),
    ),
    "skipped updates unlike the other side's": (
        "windows.csv",
        "the sides differ in skipped updates: candidate 1, baseline 0",
        set_in("windows.csv", "skipped_updates", "1", side="candidate", window=2),
    ),
    "a window of skipped updates alone": (
        "windows.csv",
        "every update of window 2 was skipped",
        set_in("windows.csv", "skipped_updates", "40", window=2),
    ),
    "window of an attempt nobody made": (
        "windows.csv",
        "not in attempts.csv",
        set_in("windows.csv", "attempt", "2", side="candidate"),
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_inconsistent_row_is_invalid_and_named_and_blocks_what_would_use_it(campaign: Campaign, name: str) -> None:
    file, reason, spoil = INVALID[name]
    spoil(campaign)
    found = gates(campaign)
    assert found[f"evidence/{file}"]["finding"] == "invalid"
    assert reason in found[f"evidence/{file}"]["reason"]
    assert "20m-fast-b1" in found[f"evidence/{file}"]["reason"]
    assert (found[GATE]["finding"], found[GATE]["value"]) == ("invalid", None)
    assert reason in found[GATE]["reason"] or "not computed" in found[GATE]["reason"]
    assert campaign.evaluate().exit_code == 4
    verdict = campaign.verdict()
    assert verdict["families"]["evidence"]["outcome"] == "not_qualified"
    assert not [
        ratio
        for ratio in verdict["observations"]["ratios"]
        if (ratio["workload"], ratio["repeat"]) == ("20m-fast-b1", 2) and ratio["comparison"] == "candidate"
    ]


@pytest.mark.parametrize("name", sorted(set(INVALID) - {"shared allocation", "updates unlike the other repeats'"}))
def test_other_repeats_are_still_computed(campaign: Campaign, name: str) -> None:
    INVALID[name][2](campaign)
    found = gates(campaign)
    assert [found[gate]["finding"] for gate in OTHER_GATES] == ["met", "met"]


@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_a_deleted_pair_row_is_missing(campaign: Campaign, side: str) -> None:
    delete_from("pairs.csv", side=side)(campaign)
    found = gates(campaign)
    assert found["evidence/pairs.csv"]["finding"] == "missing"
    assert f"{SLOT} attempt 1: no row of {side}" in found["evidence/pairs.csv"]["reason"]
    assert found[GATE]["finding"] == "missing"
    assert campaign.evaluate().exit_code == 4


def test_all_windows_of_a_measurement_deleted_are_missing(campaign: Campaign) -> None:
    set_in("windows.csv", "skipped_updates", "1", side="baseline")(campaign)  # compared with nothing
    delete_from("windows.csv", side="candidate")(campaign)
    found = gates(campaign)
    assert (found["evidence/windows.csv"]["finding"], found[GATE]["finding"]) == ("missing", "missing")


def test_a_deleted_attempt_makes_its_rows_orphans(campaign: Campaign) -> None:
    (row,) = campaign.rows("attempts.csv", slot=SLOT)
    campaign.tables["attempts.csv"].remove(row)
    found = gates(campaign)
    assert found["evidence/attempts.csv"]["finding"] == "missing"
    assert found["evidence/pairs.csv"]["finding"] == "invalid"
    assert found[GATE]["finding"] == "invalid"


def drop_attempt(campaign: Campaign, slot: str) -> None:
    for row in campaign.rows("attempts.csv", slot=slot):
        campaign.tables["attempts.csv"].remove(row)


def test_a_slot_that_never_ran_is_missing_everywhere(campaign: Campaign) -> None:
    drop_attempt(campaign, SLOT)
    for file in ("pairs.csv", "windows.csv"):
        delete_from(file)(campaign)
    found = gates(campaign)
    for file in ("attempts.csv", "pairs.csv", "windows.csv"):
        assert found[f"evidence/{file}"]["finding"] == "missing"
    assert found[GATE]["finding"] == "missing"
    assert campaign.evaluate().exit_code == 4


@pytest.mark.parametrize("file", ["pairs.csv", "windows.csv"])
def test_rows_for_a_measurement_outside_the_protocol_are_invalid(campaign: Campaign, file: str) -> None:
    row = dict(campaign.tables[file][0])
    campaign.tables[file].append({**row, "repeat": "4"})
    found = gates(campaign)
    assert found[f"evidence/{file}"]["finding"] == "invalid"
    assert "no such measurement" in found[f"evidence/{file}"]["reason"]
    assert found[GATE]["finding"] == "met"
    assert campaign.verdict()["outcome"] == "not_qualified"
    assert campaign.evaluate().exit_code == 4


def test_an_attempt_at_an_unknown_slot_is_invalid(campaign: Campaign) -> None:
    row = dict(campaign.tables["attempts.csv"][0])
    campaign.tables["attempts.csv"].append({**row, "slot": f"{CANDIDATE}/pair/unknown/r1"})
    found = gates(campaign)
    assert found["evidence/attempts.csv"]["finding"] == "invalid"
    assert "no such slot" in found["evidence/attempts.csv"]["reason"]
    assert campaign.evaluate().exit_code == 4


def test_an_attempt_of_another_candidate_is_an_unknown_slot(campaign: Campaign) -> None:
    row = dict(campaign.rows("attempts.csv", slot=SLOT)[0])
    campaign.tables["attempts.csv"].append({**row, "slot": SLOT.replace(CANDIDATE, "c000000000000")})
    assert gates(campaign)["evidence/attempts.csv"]["finding"] == "invalid"


def test_an_attempt_row_twice_is_invalid(campaign: Campaign) -> None:
    campaign.tables["attempts.csv"] += [dict(row) for row in campaign.rows("attempts.csv", slot=SLOT)]
    found = gates(campaign)
    assert "2 rows" in found["evidence/attempts.csv"]["reason"]
    assert found[GATE]["finding"] == "invalid"


def retry(campaign: Campaign, *endings: Ending, factor: int = 1) -> None:
    """Let the slot's evidence come from a later attempt."""
    drop_attempt(campaign, SLOT)
    for file in ("pairs.csv", "windows.csv"):
        delete_from(file)(campaign)
    (slot,) = [slot for slot in campaign.protocol.slots if slot_for(slot.slot, CANDIDATE) == SLOT]
    for number, ending in enumerate(endings, start=1):
        multiple = factor if number == len(endings) else 1
        add_attempt(campaign, slot, Decimal("1.21") * Decimal("0.96"), attempt=number, ending=ending, factor=multiple)


def test_a_retry_that_the_protocol_allows_counts(campaign: Campaign) -> None:
    retry(campaign, Ending.NODE_FAIL, Ending.PREEMPTED, Ending.COMPLETED)
    assert {gate["finding"] for gate in gates(campaign).values()} == {"met"}


@pytest.mark.parametrize(
    "ending", [Ending.CRASH, Ending.HANG, Ending.NON_FINITE, Ending.RUBBISH, Ending.CLOCK_DISAGREEMENT]
)
def test_a_success_after_a_sides_own_fault_does_not_count(campaign: Campaign, ending: Ending) -> None:
    retry(campaign, ending, Ending.COMPLETED)
    found = gates(campaign)
    assert found["evidence/attempts.csv"]["finding"] == "invalid"
    assert f"ended {ending}" in found["evidence/attempts.csv"]["reason"]
    assert found[GATE]["finding"] == "invalid"
    assert campaign.evaluate().exit_code == 4


def test_a_crash_alone_is_invalid_not_missing(campaign: Campaign) -> None:
    retry(campaign, Ending.CRASH)
    assert gates(campaign)[GATE]["finding"] == "invalid"


def test_a_pair_after_a_short_window_measures_twice_the_updates(campaign: Campaign) -> None:
    retry(campaign, Ending.WINDOW_SHORT, Ending.COMPLETED, factor=2)
    assert {gate["finding"] for gate in gates(campaign).values()} == {"met"}


@pytest.mark.parametrize(
    ("endings", "factor"),
    [([Ending.WINDOW_SHORT, Ending.COMPLETED], 1), ([Ending.COMPLETED], 2), ([Ending.LOST, Ending.COMPLETED], 2)],
)
def test_any_other_change_of_the_updates_is_invalid(campaign: Campaign, endings: list[Ending], factor: int) -> None:
    retry(campaign, *endings, factor=factor)
    found = gates(campaign)
    assert "differ in updates per window" in found["evidence/pairs.csv"]["reason"]
    assert found[GATE]["finding"] == "invalid"


def test_rows_of_an_attempt_that_does_not_count_are_tolerated_but_checked(campaign: Campaign) -> None:
    (slot,) = [slot for slot in campaign.protocol.slots if slot_for(slot.slot, CANDIDATE) == SLOT]
    add_attempt(campaign, slot, Decimal("0.5"), attempt=2)
    assert {gate["finding"] for gate in gates(campaign).values()} == {"met"}
    pair_rows(campaign, attempt=2)[0]["tokens_per_s"] = "1"
    assert gates(campaign)["evidence/pairs.csv"]["finding"] == "invalid"


def exact_window(campaign: Campaign) -> None:
    """One window has just the minimum, another one the rest."""
    rows = pair_rows(campaign, "windows.csv", side="candidate")
    total = Decimal(rows[0]["seconds"]) + Decimal(rows[1]["seconds"])
    rows[0]["seconds"], rows[1]["seconds"] = "1", str(total - 1)


def skip_elsewhere(campaign: Campaign) -> None:
    """Both sides skip one update, each in another window."""
    set_in("windows.csv", "skipped_updates", "1", side="baseline", window=1)(campaign)
    set_in("windows.csv", "skipped_updates", "1", side="candidate", window=4)(campaign)


INSIDE: dict[str, Spoil] = {
    "elapsed just long enough": set_in("pairs.csv", "elapsed_s", "15.75", side="candidate"),
    "a window of just the minimum": exact_window,
    "a rate rounded within the tolerance": set_in("pairs.csv", "tokens_per_s", "16384.000016", side="candidate"),
    "windows summing within the tolerance": set_in("windows.csv", "seconds", "2.500000002", side="candidate"),
    "no start-up time": set_in("pairs.csv", "startup_s", "0", side="candidate"),
    "more warm-up": set_in("pairs.csv", "warmup_updates", "21", side="candidate"),
    "as many skipped updates on both sides, all but one": set_in("windows.csv", "skipped_updates", "39"),
    "as many skipped updates in other windows": skip_elsewhere,
    "other microbatches": set_in("windows.csv", "microbatches", "80", side="candidate"),
    "other memory": set_in("pairs.csv", "peak_allocated_bytes", "0", side="candidate"),
}


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_just_allowed_passes(campaign: Campaign, name: str) -> None:
    INSIDE[name](campaign)
    assert {gate["finding"] for gate in gates(campaign).values()} == {"met"}


def test_windows_of_a_side_that_a_pair_does_not_have_are_invalid(campaign: Campaign) -> None:
    row = dict(pair_rows(campaign, "windows.csv", side="candidate")[0])
    campaign.tables["windows.csv"].append({**row, "side": "baseline_again"})
    found = gates(campaign)
    assert found["evidence/windows.csv"]["finding"] == "invalid"
    assert campaign.evaluate().exit_code == 4


@pytest.mark.parametrize("column", ["node", "device"])
def test_both_sides_together_cannot_be_moved_elsewhere(campaign: Campaign, column: str) -> None:
    set_in("pairs.csv", column, "elsewhere")(campaign)
    found = gates(campaign)
    assert "not as in attempts.csv" in found["evidence/pairs.csv"]["reason"]
    assert found[GATE]["finding"] == "invalid"


@pytest.mark.parametrize("file", ["pairs.csv", "windows.csv"])
def test_rows_of_an_attempt_that_no_receipt_seals_are_invalid(campaign: Campaign, file: str) -> None:
    (slot,) = [slot for slot in campaign.protocol.slots if slot_for(slot.slot, CANDIDATE) == SLOT]
    add_attempt(campaign, slot, Decimal("1.2"), attempt=2)
    (row,) = campaign.rows("attempts.csv", slot=SLOT, attempt=2)
    row.update(sealed="false", ending="lost")
    for other in {"pairs.csv", "windows.csv"} - {file}:
        delete_from(other, attempt=2)(campaign)
    found = gates(campaign)
    assert found[f"evidence/{file}"]["finding"] == "invalid"
    assert "seal" in found[f"evidence/{file}"]["reason"]
    assert found[GATE]["finding"] == "invalid"


@pytest.mark.parametrize("file", ["attempts.csv", "pairs.csv", "windows.csv", "baseline.csv"])
def test_an_absent_or_empty_table_is_missing(campaign: Campaign, file: str) -> None:
    (campaign.evidence_path / file).unlink()
    absent = {gate["id"]: gate for gate in campaign.verdict()["gates"]}
    assert (absent[f"evidence/{file}"]["finding"], absent[f"evidence/{file}"]["reason"]) == (
        "missing",
        "the file is absent",
    )
    campaign.tables[file].clear()
    empty = gates(campaign)
    assert empty[f"evidence/{file}"]["finding"] == "missing"
    for found in (absent, empty):
        assert found[GATE]["outcome"] == ("pass" if file == "baseline.csv" else "not_qualified")
    assert campaign.evaluate().exit_code == 4


def test_no_evidence_at_all_passes_nothing(campaign: Campaign) -> None:
    for rows in campaign.tables.values():
        rows.clear()
    found = gates(campaign)
    passed = [gate for gate, value in found.items() if value["outcome"] == "pass"]
    assert passed == ["evidence/identity.json", "evidence/folder"]
    assert campaign.evaluate().exit_code == 4


def test_a_file_that_is_no_evidence_is_invalid(campaign: Campaign) -> None:
    (campaign.evidence_path / "pairs2.csv").write_bytes(b"anything")
    verdict = campaign.verdict()
    (gate,) = [gate for gate in verdict["gates"] if gate["id"] == "evidence/folder"]
    assert gate["finding"] == "invalid"
    assert "pairs2.csv" in gate["reason"]
    assert campaign.evaluate().exit_code == 4


# --- solo measurements and controls -----------------------------------------------------------------------------------


SOLO: dict[str, tuple[str, Callable[[Rows], object]]] = {
    "missing": ("no row of baseline", lambda rows: rows.pop(0)),
    "twice": ("2 rows", lambda rows: rows.append(dict(rows[0]))),
    "outside the protocol": ("no such measurement", lambda rows: rows.append({**rows[0], "repeat": "4"})),
    "warm-up": ("warm-up updates", lambda rows: rows[0].update(warmup_updates="1")),
    "rate": ("20m-fast-b1 repeat 1 attempt 1: tokens_per_s", lambda rows: rows[0].update(tokens_per_s="1")),
    "allocation": ("not as in attempts.csv", lambda rows: rows[0].update(allocation="x")),
    "flags": ("not as in the protocol", lambda rows: rows[0].update(production="true")),
    "updates": ("differ in updates", lambda rows: rows[0].update(updates="41")),
}


@pytest.mark.parametrize("name", SOLO)
def test_solo_measurements_are_checked_but_gate_no_ratio(campaign: Campaign, name: str) -> None:
    reason, spoil = SOLO[name]
    spoil(campaign.tables["baseline.csv"])
    found = gates(campaign)
    assert reason in found["evidence/baseline.csv"]["reason"]
    assert found["evidence/baseline.csv"]["finding"] == ("missing" if name == "missing" else "invalid")
    assert found[GATE]["finding"] == "met"
    assert campaign.evaluate().exit_code == 4


def test_a_missing_control_is_missing(campaign: Campaign) -> None:
    rows = campaign.rows("pairs.csv", comparison="control", repeat=1, side="baseline_again")
    campaign.tables["pairs.csv"].remove(rows[0])
    found = gates(campaign)
    assert found["evidence/pairs.csv"]["finding"] == "missing"
    assert "baseline/control/20m-fast-b1/r1" in found["evidence/pairs.csv"]["reason"]
    assert campaign.evaluate().exit_code == 4


def test_where_neither_is_declared_neither_is_expected(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios=FAST, solo=False, controls=False)
    found = gates(campaign)
    assert "evidence/baseline.csv" not in found
    assert campaign.evaluate().exit_code == 0
    (campaign.evidence_path / "baseline.csv").unlink()
    assert campaign.evaluate().exit_code == 0


def test_solo_rows_that_nobody_planned_are_invalid(tmp_path: Path) -> None:
    planned = make_campaign(tmp_path / "with", ratios=FAST)
    campaign = make_campaign(tmp_path / "without", ratios=FAST, solo=False)
    campaign.tables["baseline.csv"] += planned.tables["baseline.csv"]
    assert gates(campaign)["evidence/baseline.csv"]["finding"] == "invalid"


# --- engaged paths ----------------------------------------------------------------------------------------------------


def set_path(campaign: Campaign, column: str, value: str, start: str) -> None:
    rows = [row for row in campaign.tables["attempts.csv"] if row["slot"].startswith(start)]
    assert rows
    for row in rows:
        row[column] = value


@pytest.mark.parametrize(
    ("column", "start", "side"),
    [
        ("baseline_path", SLOT, "baseline"),
        ("candidate_path", SLOT, "candidate"),
        ("baseline_path", "baseline/solo/20m-fast-b1/r2", "baseline"),
        ("candidate_path", "baseline/control/20m-fast-b1/r2", "baseline"),
    ],
)
@pytest.mark.parametrize("value", ["d" * 12, ""])
def test_a_side_that_engaged_another_path_is_invalid(
    campaign: Campaign, column: str, start: str, side: str, value: str
) -> None:
    set_path(campaign, column, value, start)
    found = gates(campaign)
    assert found[f"evidence/engaged/{side}"]["finding"] == "invalid"
    assert f"20m-fast-b1: the {side} engaged different paths" in found["evidence/attempts.csv"]["reason"]
    assert found[GATE]["finding"] == "invalid"
    other = {"baseline": "candidate", "candidate": "baseline"}[side]
    assert found[f"evidence/engaged/{other}"]["finding"] == "met"


def test_a_path_may_differ_between_workloads(campaign: Campaign) -> None:
    set_path(campaign, "candidate_path", "d" * 12, f"{CANDIDATE}/pair/20m-fast-b2/")
    assert {gate["finding"] for gate in gates(campaign).values()} == {"met"}


def test_a_side_that_names_no_path_is_not_evaluated_and_does_not_count(campaign: Campaign) -> None:
    total = campaign.verdict()["families"]["evidence"]["total"]
    set_path(campaign, "candidate_path", "", CANDIDATE)
    found = gates(campaign)
    gate = found["evidence/engaged/candidate"]
    assert (gate["finding"], gate["outcome"], gate["value"]) == ("not_evaluated", "not_qualified", None)
    verdict = campaign.verdict()
    assert verdict["families"]["evidence"] == {"outcome": "pass", "passed": total - 1, "total": total - 1}
    assert verdict["outcome"] == "pass"


def test_a_path_named_for_some_workloads_only_is_invalid(campaign: Campaign) -> None:
    set_path(campaign, "candidate_path", "", f"{CANDIDATE}/pair/20m-fast-b2/")
    assert gates(campaign)["evidence/engaged/candidate"]["finding"] == "invalid"


def test_a_path_is_twelve_hex_digits(campaign: Campaign) -> None:
    set_path(campaign, "candidate_path", "native", CANDIDATE)
    found = gates(campaign)
    assert "12 lower-case hex digits" in found["evidence/engaged/candidate"]["reason"]


# --- identity, and what must never happen -----------------------------------------------------------------------------


def test_a_candidate_that_is_not_named_after_its_snapshot_is_invalid(campaign: Campaign) -> None:
    campaign.identity["candidate_sha256"] = "0" * 64
    assert gates(campaign)["evidence/identity.json"]["finding"] == "invalid"
    assert campaign.evaluate().exit_code == 4


def test_an_exception_inside_a_check_blocks_everything(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_named: object) -> None:
        raise KeyError("unforeseen")

    monkeypatch.setattr(check_rows, "check", fail)
    found = gates(campaign)
    assert found["evidence/pairs.csv"]["finding"] == "invalid"
    assert "KeyError" in found["evidence/pairs.csv"]["reason"]
    assert found[GATE]["outcome"] == "not_qualified"


def test_problems_do_not_depend_on_the_order_of_rows(campaign: Campaign) -> None:
    for name in ("wrong rate", "shared allocation", "one window twice", "warm-up too short", "pair row twice"):
        INVALID[name][2](campaign)
    first = campaign.write().evaluate().verdict
    shuffled = dataclasses.replace(campaign, tables={name: list(rows) for name, rows in campaign.tables.items()})
    for rows in shuffled.tables.values():
        rows.sort(key=lambda row: sorted(row.values()))
    assert shuffled.write().evaluate().verdict == first
