from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.candidates import candidates_sentence
from tests.reports.evaluations import make_evaluation, report_of
from tests.reports.test_render import Page

THIS: dict[str, Any] = {"frozen_seq": 9, "frozen_at": 30.0}
EMPTY: dict[str, Any] = {"path": "/r", "damaged_lines": 0, "problem": "", "others": []}


def own(seq: int, outcome: str | None = "not_qualified", at: float | None = None) -> dict[str, Any]:
    return {"id": f"c{seq}", "frozen_seq": seq, "frozen_at": at, "outcome": outcome}


def other(at: float, outcome: str | None = "not_qualified", **changes: Any) -> dict[str, Any]:
    return {"candidate": "c1", "at": at, "outcome": outcome, "state": "read", **changes}


def say(*candidates: dict[str, Any], registry: dict[str, Any] | None = EMPTY, **this: Any) -> str:
    return candidates_sentence(
        {"candidate": {**THIS, **this}, "other_candidates": list(candidates), "registry": registry}
    )


def test_the_third_of_three_says_what_became_of_the_first_two() -> None:
    said = "Candidate 3 of 3 against this baseline; 1 and 2: not qualified."
    assert say(own(3, at=10.0), own(5, at=20.0)) == said
    others = [other(10.0), other(20.0)]
    assert say(registry={**EMPTY, "others": others}) == said
    assert say(own(5, at=20.0), registry={**EMPTY, "others": others[:1]}) == said


def test_the_only_one_that_is_known_says_so() -> None:
    assert say() == "Candidate 1 of 1 against this baseline; no other is known."


def test_an_earlier_one_says_what_became_of_the_later_ones() -> None:
    later = [own(12, "pass", 40.0), own(15, None, 50.0)]
    expected = "Candidate 2 of 4 against this baseline; 1: not qualified; 3: qualified; 4: not evaluated."
    assert say(own(3, at=10.0), *later) == expected


def test_a_home_that_cannot_be_read_is_counted_and_a_baseline_alone_is_not() -> None:
    others = [other(1.0, None, state="unreadable"), other(2.0, "pass", state="replaced"), other(3.0, candidate="")]
    said = say(registry={**EMPTY, "others": others})
    assert said == "Candidate 3 of 3 against this baseline; 1 and 2: not known, since its home cannot be read."


def test_three_and_more_in_a_row_stand_together() -> None:
    others = [other(float(number), "pass" if number in {3, 9} else "not_qualified") for number in range(1, 10)]
    expected = "Candidate 10 of 10 against this baseline; 1, 2 and 4 to 8: not qualified; 3 and 9: qualified."
    assert say(registry={**EMPTY, "others": others}) == expected


def test_a_campaigns_own_candidates_stand_in_the_order_of_its_ledger_whatever_its_clocks_said() -> None:
    said = say(own(3, "pass", at=99.0), own(12, None, at=1.0), registry={**EMPTY, "others": [other(50.0)]})
    assert said == "Candidate 3 of 4 against this baseline; 1: not qualified; 2: qualified; 4: not evaluated."


@pytest.mark.parametrize(
    ("registry", "limit"),
    [
        (None, ", as far as this campaign alone knows"),
        ({**EMPTY, "problem": "it is a folder"}, ", as far as this campaign alone knows"),
        ({**EMPTY, "damaged_lines": 2}, ", as far as the registry can be read"),
    ],
)
def test_what_may_be_hidden_is_said(registry: dict[str, Any] | None, limit: str) -> None:
    assert (
        say(own(3, at=10.0), registry=registry) == f"Candidate 2 of 2 against this baseline{limit}; 1: not qualified."
    )


def test_what_was_written_before_times_stood_in_it_goes_by_the_ledgers_numbers() -> None:
    old = {"candidate": {"frozen_seq": 9}, "other_candidates": [{"frozen_seq": 11, "outcome": "pass"}]}
    said = candidates_sentence(old)
    assert said == "Candidate 1 of 2 against this baseline, as far as this campaign alone knows; 2: qualified."


def test_the_sentence_stands_right_after_the_verdict(tmp_path: Path) -> None:
    text = (report_of(make_evaluation(tmp_path)) / "report.html").read_text(encoding="utf-8")
    head, _, _ = text.partition("<nav")
    assert "Candidate 2 of 2 against this baseline, as far as this campaign alone knows; 1: not evaluated." in head
    sections = [attributes.get("id", "") for tag, attributes in Page(text).tags if tag == "section"]
    assert sections.index("not-counted-section") + 1 == sections.index("exclusions-section")
