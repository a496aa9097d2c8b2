"""The scheduler's accounting: what is kept of it, and the jobs that it knows and the ledger does not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from campaign import files
from campaign.cli.main import main
from campaign.errors import EvidenceError, InfrastructureError
from campaign.frozen import Frozen, read_frozen
from campaign.paths import HomePaths
from campaign.record import accounting
from campaign.record.accounting import AGAIN_S, HEADER, Submissions, findings, keep, reconcile, slurm_submissions
from campaign.record.ledger import Ledger, read_entries
from campaign.submission.desk import Wish
from campaign.submission.plans import key_prefix
from campaign.watching.scheduler import Slurm
from tests.campaign.submission.support import Cluster, make_desk
from tests.support.jobs import JobHome, make_job_home

HOUR_S = 3600


@dataclass(slots=True)
class Sacct:
    """Answers sacct and scontrol; strict about anything else."""

    lines: list[str] = field(default_factory=list)
    """Of this user."""
    of_others: list[str] = field(default_factory=list)
    """Shown only to who asks for a name of all users."""
    held: list[str] = field(default_factory=list)
    """Shown only to who asks for them by number: they never could have begun."""
    plugin: str = "slurmdbd"
    is_down: bool = False
    asked: list[list[str]] = field(default_factory=list)

    def __call__(self, command: Sequence[str]) -> str:
        self.asked.append(list(command))
        if command[0] == "scontrol":
            return f"AccountingStorageType   = accounting_storage/{self.plugin}\nClusterName             = toy\n"
        assert command[0] == "sacct"
        assert {"--parsable2", "--duplicates", "--allocations"} <= set(command)
        assert "--noheader" not in command
        if self.is_down or self.plugin == "none":
            raise InfrastructureError("sacct failed with exit code 1", why="Slurm accounting storage is disabled")
        names = [part.removeprefix("--name=").split(",") for part in command if part.startswith("--name=")]
        numbers = [part.removeprefix("--jobs=").split(",") for part in command if part.startswith("--jobs=")]
        if numbers:
            held = [line for line in self.held if line.split("|")[0] in numbers[0]]
            return "\n".join([HEADER, *held]) + "\n"
        if not names:
            return "\n".join([HEADER, *self.lines]) + "\n"
        assert "--allusers" in command
        shown = [line for line in (*self.lines, *self.of_others) if line.split("|")[3] in names[0]]
        return "\n".join([HEADER, *shown]) + "\n"


def line(job: str, name: str, *, user: str = "me", state: str = "COMPLETED", submit: float = 5.0) -> str:
    return f"{job}|{job}|toy|{name}|{user}|{state}|0:0|{int(submit)}|{int(submit) + 1}|{int(submit) + 2}|n1"


@dataclass(slots=True, kw_only=True)
class Setting:
    """A campaign with one submission to Slurm: job 100, an array of one task for each pilot of the baseline."""

    home: JobHome
    key: str
    frozen: Frozen
    sacct: Sacct = field(default_factory=Sacct)

    @property
    def paths(self) -> HomePaths:
        return self.home.paths

    def keep(self, later_s: float = 0.0, uid: int | None = None) -> tuple[str, ...]:
        def clock() -> float:
            return time.time() + later_s

        with Ledger.open(self.paths, clock) as ledger:
            return keep(self.paths, ledger, self.frozen, Slurm(self.sacct), clock(), uid=uid)

    def accounted(self) -> list[dict[str, Any]]:
        return [entry.data for entry in read_entries(self.paths) if entry.act == "accounted"]

    def found(self) -> list[str]:
        return [str(one) for one in findings(self.paths, self.frozen, read_entries(self.paths))]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    home, cluster = make_job_home(tmp_path / "home", candidate=False), Cluster()
    desk, wish = make_desk(home, cluster), Wish(candidate="", cluster="slurm")
    (done,) = desk.hand_over(wish, desk.order(wish, desk.view(""), 1000), lambda _line: None)
    assert (done.job, done.array) == ("100", True)
    made = Setting(home=home, key=done.submission, frozen=read_frozen(home.paths))
    made.sacct.lines = [line("100_0", made.key), line("100_1", made.key)]
    return made


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_job_carries_the_campaigns_name_and_the_beginning_of_its_manifests_digest(setting: Setting) -> None:
    digest = files.sha256_file(setting.paths.manifest)
    assert setting.key.startswith(f"campaign-synthetic-{digest[:8]}-")
    assert len(setting.key) == len(f"campaign-synthetic-{digest[:8]}-") + 16
    assert key_prefix("n" * 64, digest) == f"campaign-{'n' * 40}-{digest[:8]}-"


# --- keeping ----------------------------------------------------------------------------------------------------------


def test_the_lines_of_this_campaigns_jobs_are_kept_as_they_were_printed(setting: Setting) -> None:
    other = line("7", "campaign-synthetic-00000000-0123456789abcdef")
    setting.sacct.lines = [line("1", "mine|odd"), *setting.sacct.lines, other, line("2", "x\x1d\u2028y")]
    assert setting.keep() == ()
    kept = setting.paths.accounts(1).read_bytes()
    assert kept.decode().split("\n") == [HEADER, line("100_0", setting.key), line("100_1", setting.key), ""]
    (act,) = setting.accounted()
    (intent,) = [entry.at for entry in read_entries(setting.paths) if entry.act == "intent"]
    assert act == {
        "cluster": "toy",
        "file": "accounting/1.txt",
        "sha256": files.sha256_bytes(kept),
        "bytes": len(kept),
        "jobs": 2,
        "since": intent - accounting.SLACK_S,
    }
    assert setting.found() == []
    (start,) = {part for command in setting.sacct.asked for part in command if part.startswith("--starttime")}
    assert HOUR_S <= int(start.removeprefix("--starttime=now-").removesuffix("seconds")) < HOUR_S + 900


def test_another_answer_is_kept_beside_the_first_and_the_same_in_another_order_is_not(setting: Setting) -> None:
    setting.keep()
    setting.sacct.lines.reverse()
    setting.keep()
    assert len(setting.accounted()) == 1
    setting.sacct.lines.append(line("100_0", setting.key, state="REQUEUED", submit=9.0))
    setting.keep()
    assert [act["file"] for act in setting.accounted()] == ["accounting/1.txt", "accounting/2.txt"]
    assert setting.found() == []


def test_jobs_of_known_submissions_are_kept_whoever_submitted_them(setting: Setting) -> None:
    setting.sacct.lines = [line("100_0", setting.key)]
    setting.sacct.of_others = [line("100_1", setting.key, user="colleague")]
    assert setting.keep() == ()
    assert "colleague" in setting.paths.accounts(1).read_text()


def test_accounting_without_a_job_is_kept_too_and_told(setting: Setting) -> None:
    setting.sacct.lines = []
    (remark,) = setting.keep()
    assert "accounting does not have 1 job(s)" in remark
    assert setting.paths.accounts(1).read_text() == f"{HEADER}\n"
    assert setting.found() == []


def test_accounting_that_lacks_a_job_is_kept_again_once_it_cannot_be_late_any_more(setting: Setting) -> None:
    setting.sacct.lines = []
    for later_s, kept in ((0.0, 1), (AGAIN_S - 60, 1), (AGAIN_S + 60, 2), (AGAIN_S + 90, 2)):
        setting.keep(later_s)
        assert len(setting.accounted()) == kept
    setting.sacct.lines = [line("100_0", setting.key), line("100_1", setting.key)]
    for later_s in (AGAIN_S + 120, 5 * AGAIN_S):
        setting.keep(later_s)
        assert len(setting.accounted()) == 3
    assert setting.found() == []


def test_a_job_that_was_held_until_it_was_cancelled_is_asked_for_by_number(setting: Setting) -> None:
    setting.sacct.lines = []
    setting.sacct.held = [line("100", setting.key, state="CANCELLED by 0")]
    assert setting.keep() == ()
    assert setting.paths.accounts(1).read_text().splitlines()[1:] == setting.sacct.held
    assert setting.found() == []


def test_accounting_that_shows_no_job_of_a_colleague_is_not_kept_as_if_there_were_none(setting: Setting) -> None:
    setting.paths.submission(setting.key).root.mkdir(parents=True)
    colleague = setting.paths.submission(setting.key).root.stat().st_uid + 1
    shown, setting.sacct.lines = setting.sacct.lines, []
    (said,) = setting.keep(uid=colleague)
    assert setting.key in said
    assert setting.accounted() == []
    setting.sacct.lines = shown
    assert setting.keep(uid=colleague) == ()
    assert len(setting.accounted()) == 1


def test_accounting_that_is_off_or_down_is_a_remark(setting: Setting) -> None:
    setting.sacct.plugin = "none"
    (remark,) = setting.keep()
    assert "keeps no accounts" in remark
    setting.sacct.plugin, setting.sacct.is_down = "slurmdbd", True
    (remark,) = setting.keep()
    assert "accounting was not asked: sacct failed" in remark
    assert not setting.paths.accounting.exists()
    assert setting.accounted() == []


def test_an_answer_of_another_form_is_not_kept(setting: Setting) -> None:
    sacct = setting.sacct
    with Ledger.open(setting.paths, time.time) as ledger:
        odd = Slurm(lambda command: "slurm_load: error\n" if command[0] == "sacct" else sacct(command))
        (remark,) = keep(setting.paths, ledger, setting.frozen, odd, time.time())
    assert "not understood" in remark
    assert setting.accounted() == []


def test_what_a_killed_command_left_without_an_act_is_written_over(setting: Setting) -> None:
    setting.paths.accounting.mkdir()
    setting.paths.accounts(1).write_text("half")
    assert setting.found() == []
    setting.keep()
    assert setting.paths.accounts(1).read_text().startswith(HEADER)
    assert setting.found() == []


def test_a_campaign_that_was_never_submitted_to_slurm_asks_nothing(tmp_path: Path) -> None:
    home, sacct = make_job_home(tmp_path / "home"), Sacct()
    with Ledger.open(home.paths, time.time) as ledger:
        assert keep(home.paths, ledger, read_frozen(home.paths), Slurm(sacct), time.time()) == ()
    assert sacct.asked == []


def test_a_closed_campaign_asks_nothing(setting: Setting) -> None:
    with Ledger.open(setting.paths, time.time) as ledger:
        ledger.append("closed", {})
    assert setting.keep() == ()
    assert setting.sacct.asked == []


# --- reconciling ------------------------------------------------------------------------------------------------------


def test_a_job_that_no_intent_names_is_a_finding_for_ever(setting: Setting) -> None:
    prefix = setting.key[:-16]
    setting.sacct.lines.append(line("200", f"{prefix}by-hand", user="me"))
    setting.keep()
    (finding,) = setting.found()
    assert f"job 200 of me ran, and no intent of the ledger has the key {prefix}by-hand" in finding
    setting.sacct.lines = []
    setting.keep()
    assert len(setting.accounted()) == 2
    assert setting.found() == [finding]


def test_the_findings_are_those_of_a_collection(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    setting.sacct.lines.append(line("200", f"{setting.key[:-16]}by-hand"))
    setting.keep()
    assert main(["collect", "--home", str(setting.paths.root)]) == 5
    assert "job 200 of me ran" in capsys.readouterr().err


def test_collect_asks_accounting_and_says_why_it_could_not(
    setting: Setting, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "local_slurm", lambda **_: Slurm(setting.sacct))
    assert main(["collect", "--home", str(setting.paths.root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["attempts"] == 0
    assert len(setting.accounted()) == 1
    setting.sacct.is_down = True
    assert main(["collect", "--home", str(setting.paths.root)]) == 0
    assert "accounting was not asked" in capsys.readouterr().err


def change(setting: Setting, edit: Callable[[bytes], bytes]) -> None:
    path = setting.paths.accounts(1)
    path.write_bytes(edit(path.read_bytes()))


@pytest.mark.parametrize("what", ["edited", "gone", "added", "folder"])
def test_accounting_that_was_touched_after_it_was_kept_is_a_finding(setting: Setting, what: str) -> None:
    setting.keep()
    if what == "edited":
        change(setting, lambda data: data.replace(b"COMPLETED", b"CANCELLED"))
    elif what == "gone":
        setting.paths.accounts(1).unlink()
    elif what == "added":
        setting.paths.accounts(3).write_text(f"{HEADER}\n")
    else:
        (setting.paths.accounting / "more").mkdir()
    (finding,) = setting.found()
    assert "accounting/" in finding


def tell(setting: Setting, file: str, text: str) -> None:
    """Record an answer that was kept by hand."""
    (kept,) = setting.accounted()
    (setting.paths.root / file).write_text(text)
    told = {**kept, "file": file, "sha256": files.sha256_bytes(text.encode()), "bytes": len(text)}
    with Ledger.open(setting.paths, time.time) as ledger:
        ledger.append("accounted", told)


def test_an_answer_to_another_question_is_a_finding(setting: Setting) -> None:
    setting.keep()
    tell(setting, "accounting/2.txt", f"JobName|JobID\n{line('100_0', setting.key)}\n")
    (finding,) = setting.found()
    assert "another header" in finding


def test_an_answer_that_is_missing_from_the_row_is_found(setting: Setting) -> None:
    setting.keep()
    tell(setting, "accounting/3.txt", f"{HEADER}\n")
    with pytest.raises(EvidenceError, match=r"names accounting/3\.txt where accounting/2\.txt follows"):
        setting.found()


JOBS: dict[str, tuple[list[str], int, set[str], list[str]]] = {
    "both tasks": (["100_0", "100_1"], 1, {"100"}, []),
    "tasks that never began": (["100_[0-1%4]"], 1, {"100"}, []),
    "a list that Slurm cut short": (["100_[0,...]"], 1, {"100"}, []),
    "nothing": ([], 1, {"100"}, []),
    "a requeued task, twice": (["100_0", "100_0"], 1, {"100"}, []),
    "a task beyond the last": (["100_2"], 1, {"100"}, ["100_2"]),
    "a second job of the same name": (["100_0", "300"], 1, {"100"}, ["300"]),
    "another job than the ledger names": (["300"], 1, {"100"}, ["300"]),
    "a job that was thought not to be, and one after it": (["90_0", "100_0"], 2, {"100"}, []),
    "one more than was intended": (["80_0", "90_0", "100_0"], 2, {"100"}, ["80_0", "90_0"]),
    "a job of a submission that was given up": (["90_0"], 1, set(), []),
    "two of a submission that was given up": (["90_0", "91_0"], 1, set(), ["90_0", "91_0"]),
    "a part of a heterogeneous job": (["100+1"], 1, {"100"}, ["100+1"]),
}


@pytest.mark.parametrize(("jobs", "intents", "submitted", "unknown"), JOBS.values(), ids=JOBS)
def test_jobs_are_held_against_what_the_ledger_names(
    jobs: list[str], intents: int, submitted: set[str], unknown: list[str]
) -> None:
    known = {"key": Submissions(intents=intents, allocations=2, jobs=submitted)}
    text = "\n".join([HEADER, *(line(job, "key") for job in jobs)]) + "\n"
    found = reconcile(Path("/home"), accounting.parse(text, "accounting/1.txt"), known)
    assert [one.what.split()[1] for one in found] == unknown


def test_submissions_that_were_thought_not_to_be_are_counted(setting: Setting) -> None:
    (known,) = slurm_submissions(read_entries(setting.paths)).values()
    assert known == Submissions(intents=1, allocations=2, jobs={"100"})
    with Ledger.open(setting.paths, time.time) as ledger:
        (intent,) = [entry.data for entry in ledger.entries if entry.act == "intent"]
        ledger.append("not_submitted", {"submission": setting.key, "reason": "nobody knows it"})
        ledger.append("intent", intent)
    (known,) = slurm_submissions(read_entries(setting.paths)).values()
    assert known.intents == 2
