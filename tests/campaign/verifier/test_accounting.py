from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from campaign import files
from campaign.verifier import accounting, matrix
from campaign.verifier.findings import State
from tests.support.home import SMALL
from tests.support.lifelike import LifelikeHome, freeze_lifelike
from tests.support.verifying import edit_ledger, make_checks

HEADER = "JobID|JobIDRaw|Cluster|JobName|User|State|ExitCode|Submit|Start|End|NodeList"
SLOTS = ("baseline/solo/sync-b4/r1", "baseline/solo/sync-b4/r2")


class Accounted:
    """A home whose two allocations are one array of Slurm's."""

    def __init__(self, root: Path) -> None:
        self.home: LifelikeHome = freeze_lifelike(root, SMALL[:1], repeats=2)
        self.root = root
        for slot in SLOTS:
            self.home.attempt(self.home.slot(slot))
        self.key = f"campaign-synthetic-{files.sha256_file(self.home.paths.manifest)[:8]}-0011"
        edit_ledger(root, self._on_slurm)
        self.home.num_lines = 0
        self.num_kept = 0

    def _on_slurm(self, entries: list[dict[str, Any]]) -> None:
        first, second = (entry["data"] for entry in entries if entry["act"] == "intent")
        first.update(submission=self.key, cluster="slurm", allocations=first["allocations"] + second["allocations"])
        submitted = next(entry for entry in entries if entry["act"] == "submitted")
        submitted["data"].update(submission=self.key, cluster="slurm", job="7", array=True)
        del entries[3:]

    def keep(self, *lines: str, header: str = HEADER) -> None:
        """Keep what accounting said, and name it in the ledger."""
        self.num_kept += 1
        path = self.root / f"accounting/{self.num_kept}.txt"
        path.parent.mkdir(exist_ok=True)
        data = "".join(f"{line}\n" for line in (header, *lines)).encode()
        path.write_bytes(data)
        named = {"file": f"accounting/{self.num_kept}.txt", "sha256": files.sha256_bytes(data), "bytes": len(data)}
        self.home.append("accounted", {"cluster": "c", **named, "jobs": len(lines), "since": 0.0})

    def late(self, seconds: float) -> None:
        """Let the last act be that much later than it was."""
        edit_ledger(self.root, lambda entries: entries[-1].update(at=entries[-1]["at"] + seconds))
        self.home.num_lines = 0

    def line(self, job: str, key: str = "") -> str:
        return f"{job}|{job}|c|{key or self.key}|me|COMPLETED|0:0|1|2|3|node1"

    def check(self) -> tuple[list[str], Sequence[str], State]:
        checks = make_checks(self.root, matrix.check, accounting.check)
        made = checks.made[-1]
        return [f"{one.where}: {one.what}" for one in made.findings], made.remarks, made.state


@pytest.fixture
def kept(tmp_path: Path) -> Accounted:
    return Accounted(tmp_path / "home")


def test_without_slurm_there_is_nothing_to_check(whole_home: Path) -> None:
    checks = make_checks(whole_home, matrix.check, accounting.check)
    assert checks.state is State.INTACT


def test_a_campaign_on_slurm_without_accounting_was_not_checked(kept: Accounted) -> None:
    findings, remarks, state = kept.check()
    assert (findings, state) == ([], State.NOT_CHECKED)
    assert "no accounting was kept: jobs that nobody intended would not be seen" in remarks


def test_the_jobs_of_an_array_are_accounted_for(kept: Accounted) -> None:
    kept.home.collect()
    kept.keep(kept.line("7_0"), kept.line("7_1"), kept.line("9_4", "somebody-else"))
    assert kept.check()[::2] == ([], State.INTACT)


def test_waiting_tasks_of_an_array_are_accounted_for(kept: Accounted) -> None:
    kept.keep(kept.line("7_[0-1%4]"))
    assert kept.check()[0] == []


@pytest.mark.parametrize("job", ["8_0", "7_2", "7_[0-2]", "8", "nonsense"])
def test_a_job_that_nobody_intended_is_found(kept: Accounted, job: str) -> None:
    kept.keep(kept.line("7_0"), kept.line("7_1"), kept.line(job))
    (finding,) = kept.check()[0]
    assert finding.startswith(f"accounting/1.txt:4: job {job} of me ran, and ")


def test_a_job_under_a_key_that_nobody_intended_is_found(kept: Accounted) -> None:
    kept.keep(kept.line("7_0"), kept.line("9", kept.key[:-1] + "2"))
    (finding,) = kept.check()[0]
    assert "no intent of the ledger has the key" in finding


def test_a_job_that_accounting_forgot_again_stays_a_finding(kept: Accounted) -> None:
    kept.keep(kept.line("7_0"), kept.line("8_0"))
    kept.keep(kept.line("7_0"))
    assert len(kept.check()[0]) == 1


def test_a_submitted_job_that_accounting_lacks_after_its_end_is_found(kept: Accounted) -> None:
    kept.home.collect()
    kept.keep()
    kept.late(accounting.LATE_S)
    (finding,) = kept.check()[0]
    assert "job 7 was submitted, and accounting that was kept long after its end lacks it" in finding


def test_a_submitted_job_that_accounting_lacks_soon_after_its_end_is_a_remark(kept: Accounted) -> None:
    kept.home.collect()
    kept.keep()
    kept.late(accounting.LATE_S - 60)
    findings, remarks, _ = kept.check()
    assert findings == []
    assert "accounting was not kept, or not long enough, after the end of 1 submitted jobs" in remarks


def test_a_submitted_job_that_accounting_lacks_so_far_is_a_remark(kept: Accounted) -> None:
    kept.keep()
    kept.home.collect()
    findings, remarks, _ = kept.check()
    assert findings == []
    assert "accounting was not kept, or not long enough, after the end of 1 submitted jobs" in remarks


def test_a_text_that_changed_or_is_gone_is_found(kept: Accounted) -> None:
    kept.keep(kept.line("7_0"), kept.line("8_0"))
    path = kept.root / "accounting/1.txt"
    path.write_bytes(path.read_bytes().replace(b"8_0", b"7_1"))
    assert "not what the ledger's line" in kept.check()[0][0]
    path.unlink()
    assert "is not there" in kept.check()[0][0]


def test_an_act_that_names_a_text_out_of_its_turn_is_found(kept: Accounted) -> None:
    kept.keep(kept.line("7_0"))
    kept.keep(kept.line("8_0"))

    def pass_over(entries: list[dict[str, Any]]) -> None:
        entries[-1]["data"] = entries[-2]["data"]

    edit_ledger(kept.root, pass_over)
    assert any('file: is "accounting/1.txt"' in finding for finding in kept.check()[0])


def test_a_text_that_no_act_names_is_found_unless_a_killed_command_left_it(kept: Accounted) -> None:
    kept.keep(kept.line("7_0"))
    (kept.root / "accounting/2.txt").write_bytes(b"")
    assert kept.check()[0] == []
    (kept.root / "accounting/3.txt").write_bytes(b"")
    assert kept.check()[0] == ["accounting/3.txt: no act of the ledger names it: added"]


def test_a_text_with_another_header_is_found(kept: Accounted) -> None:
    kept.keep(kept.line("7_0"), header="JobID|User")
    assert "its header lacks one of" in kept.check()[0][0]
