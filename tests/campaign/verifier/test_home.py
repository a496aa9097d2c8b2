from __future__ import annotations

import hashlib
from pathlib import Path

from campaign.verifier import home
from campaign.verifier.facts import Facts, Options
from campaign.verifier.findings import Check, State

DIGEST = hashlib.sha256(b"x").hexdigest()


def look(root: Path, withheld: dict[str, tuple[int, str]]) -> Check:
    check = Check(name="home", title="")
    facts = Facts.open(root, Options(), withheld)
    with facts.digests:
        home.check(facts, check)
    return check


def test_a_whole_home_is_intact(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    check = look(tmp_path, {})
    assert (check.state, check.remarks) == (State.INTACT, [])


def test_what_was_withheld_is_said_and_not_checked(tmp_path: Path) -> None:
    check = look(tmp_path, {"inputs/a": (5, DIGEST), "inputs/b": (6, DIGEST)})
    assert (check.state, check.findings) == (State.NOT_CHECKED, [])
    assert check.remarks[0].startswith("2 files (11 bytes) were withheld by the export, such as inputs/a")


def test_what_is_here_although_it_was_withheld_is_held_to_what_the_export_says(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    assert look(tmp_path, {"x": (1, DIGEST)}).state is State.INTACT
    for said in ((2, DIGEST), (1, "0" * 64)):
        (finding,) = look(tmp_path, {"x": said}).findings
        assert (finding.state, finding.where) == (State.TAMPERED, "x")
        assert "not what the export says of it" in finding.what


def test_what_killed_writers_left_is_a_remark(tmp_path: Path) -> None:
    (tmp_path / ".x.1.tmp").write_bytes(b"")
    (tmp_path / "frozen" / "baseline" / "tree").mkdir(parents=True)
    (tmp_path / "frozen" / "baseline" / "tree" / ".a.tmp").write_bytes(b"a source")
    check = look(tmp_path, {})
    assert (check.state, check.findings) == (State.INTACT, [])
    assert check.remarks == ["1 temporary files of killed writers, never evidence, such as .x.1.tmp"]
