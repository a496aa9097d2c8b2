from __future__ import annotations

from typing import Any

from reports.history import failed_table


def attempt(slot: str, number: int, ending: str) -> dict[str, Any]:
    about = {"allocation": "a1", "node": "n1", "device": "cpu", "reason": "", "sealed": True}
    return {"slot": slot, "attempt": number, "ending": ending, **about}


def apart(*attempts: dict[str, Any]) -> list[tuple[str, str]]:
    rows = failed_table({"attempts": attempts}).rows
    return [(row[0].text, row[1].text) for row in rows]


def test_the_first_attempt_that_completed_counts_and_all_others_stand_apart() -> None:
    attempts = [
        attempt("a", 1, "node_fail"),
        attempt("a", 2, "completed"),
        attempt("a", 3, "completed"),
        attempt("b", 1, "completed"),
        attempt("c", 1, "crash"),
        attempt("d", 1, "void"),
        attempt("d", 2, "completed"),
    ]
    assert apart(*attempts) == [("a", "1"), ("a", "3"), ("c", "1"), ("d", "1")]
    assert apart(*reversed(attempts)) == apart(*attempts)


def test_what_an_attempt_had_measured_when_it_was_ended_is_shown_with_rates_and_ratio() -> None:
    sides = [("candidate", 2, 300, "1.5"), ("baseline", 5, 500, "5")]
    measured = [dict(zip(("side", "windows", "tokens", "seconds"), side, strict=True)) for side in sides]
    attempts = [{**attempt("a", 1, "cancelled"), "measured": measured}, attempt("b", 1, "lost")]
    attempts.append({**attempt("c", 1, "window_short"), "measured": [{**measured[1], "windows": 1, "seconds": "0"}]})
    attempts += [attempt("d", 1, "completed"), attempt("d", 2, "completed")]
    attempts.append({**attempt("e", 1, "void"), "ended": "completed"})
    table = failed_table({"attempts": attempts})
    assert table.columns[-1].title == "Measured until then"
    assert [row[-1].text for row in table.rows] == [
        "candidate 2 windows, 200.000 tokens/s; baseline 5 windows, 100.000 tokens/s; ratio 2.0000",
        "nothing",
        "baseline 1 window, - tokens/s",
        "all of it: see its rows",
        "all of it: see its rows",
    ]


def test_nothing_stands_apart_where_each_slot_has_one_that_completed() -> None:
    assert apart(attempt("a", 1, "completed")) == []
