from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from campaign import files
from campaign.verifier import fallbacks, matrix
from campaign.verifier.findings import State
from tests.support.verifying import edit_ledger, make_checks

TRIAL = "fallbacks/ccccccccccccc/1"


def check(root: Path) -> list[tuple[State, str]]:
    checks = make_checks(root, matrix.check, fallbacks.check)
    return [(one.state, f"{one.where}: {one.what}") for one in checks.findings]


def write_trial(root: Path, **fields: Any) -> None:
    path = root / TRIAL / "baseline-from-candidate/receipt.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{}")
    named = {"baseline-from-candidate/receipt.json": files.sha256_bytes(b"{}")}
    data = {"candidate": "ccccccccccccc", "number": 1, "files": named} | fields
    edit_ledger(root, lambda entries: entries.append({"at": 0.0, "act": "fallback_tried", "data": data}))


def test_a_trial_that_the_ledger_names_is_intact(home: Path) -> None:
    write_trial(home)
    assert check(home) == []


def test_a_file_that_changed_is_gone_or_was_added_is_found(home: Path) -> None:
    write_trial(home)
    path = home / TRIAL / "baseline-from-candidate/receipt.json"
    path.write_bytes(b"[]")
    assert [state for state, _ in check(home)] == [State.TAMPERED]
    path.rename(home / TRIAL / "other.json")
    assert [state for state, _ in check(home)] == [State.TAMPERED] * 2


def test_the_next_trial_may_lack_its_act_and_no_other_may(home: Path) -> None:
    write_trial(home)
    for number, state in ((2, State.INCOMPLETE), (3, State.TAMPERED)):
        path = home / f"fallbacks/ccccccccccccc/{number}/fallback.json"
        path.parent.mkdir()
        path.write_bytes(b"{}")
        assert (state, f"{path.relative_to(home)}") in [(one, text.partition(":")[0]) for one, text in check(home)]


@pytest.mark.parametrize(
    "fields", [{"candidate": "cdddddddddddd"}, {"number": 0}, {"files": {}}, {"files": {"../x": "0" * 64}}]
)
def test_an_act_about_no_trial_of_this_campaign_is_found(home: Path, fields: dict[str, Any]) -> None:
    write_trial(home, **fields)
    assert any(text.startswith("ledger.jsonl:") for _, text in check(home))
