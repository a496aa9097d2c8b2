"""The commands as a person or a script uses them."""

from __future__ import annotations

import io
import itertools
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign.cli.main import main
from campaign.record.ledger import read_entries
from campaign.submission.desk import Desk, Wish
from tests.campaign.submission.support import Cluster, make_desk
from tests.campaign.submission.test_desk import quiet, run_jobs, submit
from tests.support.home import CANDIDATE
from tests.support.jobs import JobHome

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def desk(home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Every command of these tests gets this desk; it has no terminal."""
    made = make_desk(home, cluster)
    for name in ("submit", "status", "show", "cancel"):
        monkeypatch.setattr(f"campaign.cli.{name}.open_desk", lambda *_: made)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return made


def run(capsys: pytest.CaptureFixture[str], home: JobHome, *arguments: str) -> tuple[int, str, str]:
    command, *rest = arguments
    code = main([command, "--home", str(home.paths.root), *rest])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], home: JobHome, *arguments: str) -> Any:
    code, out, _ = run(capsys, home, *arguments, "--json")
    assert code == 0
    return json.loads(out)


def test_without_a_terminal_nothing_is_submitted_unless_yes_is_given(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster
) -> None:
    code, _, err = run(capsys, home, "submit", "--cluster", "slurm")
    assert code == 2
    assert "--yes" in err
    assert "most device-hours" in err
    assert cluster.requests == []
    assert "intent" not in home.acts()
    code, out, _ = run(capsys, home, "submit", "--cluster", "slurm", "--yes")
    assert code == 0
    assert "submitted job 100" in out


def test_a_yes_cannot_be_inherited_from_the_environment(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAMPAIGN_SUBMIT_YES", "1")
    assert run(capsys, home, "submit", "--cluster", "slurm")[0] == 2
    assert cluster.requests == []


def test_a_dry_run_shows_scripts_and_command_lines_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster
) -> None:
    before = sorted(home.paths.root.rglob("*"))
    code, out, _ = run(capsys, home, "submit", "--cluster", "slurm", "--dry-run")
    assert code == 0
    assert "#!/bin/bash" in out
    assert str(home.paths.launcher) in out
    assert sorted(home.paths.root.rglob("*")) == before
    assert cluster.requests == []


def test_submit_prints_one_json_value(capsys: pytest.CaptureFixture[str], home: JobHome) -> None:
    value = run_json(capsys, home, "submit", "--cluster", "slurm", "--yes")
    assert value == {"candidate": CANDIDATE, "jobs": ["100"], "slots": {"planned": 6, "pending": 4}}


def test_a_refusal_is_exit_6(capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster) -> None:
    cluster.refusal = "sbatch: error: QOSMaxSubmitJobPerUserLimit"
    code, _, err = run(capsys, home, "submit", "--cluster", "slurm", "--yes")
    assert code == 6
    assert "QOSMaxSubmitJobPerUserLimit" in err


def test_waiting_goes_on_from_the_pilots_to_the_end(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("campaign.cli.submit.time.sleep", lambda _: run_jobs(home, cluster))
    value = run_json(capsys, home, "submit", "--cluster", "slurm", "--yes", "--wait")
    assert value["slots"] == {"completed": 10}
    assert value["jobs"] == ["100", "101"]


def test_waiting_makes_good_a_submission_that_reached_nobody(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.refusal = "sbatch: error: QOSMaxSubmitJobPerUserLimit"
    assert run(capsys, home, "submit", "--cluster", "slurm", "--yes")[0] == 6
    assert home.acts()[-1] == "not_submitted"
    cluster.refusal = ""
    monkeypatch.setattr("campaign.cli.submit.time.sleep", lambda _: run_jobs(home, cluster))
    value = run_json(capsys, home, "submit", "--cluster", "slurm", "--yes", "--wait")
    assert value["slots"] == {"completed": 10}


def test_waiting_ends_with_exit_4_when_slots_can_no_longer_be_completed(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.wish(endings={f"{CANDIDATE}/pilot/sync-b4/1": "crash"})
    monkeypatch.setattr("campaign.cli.submit.time.sleep", lambda _: run_jobs(home, cluster))
    code, out, err = run(capsys, home, "submit", "--cluster", "slurm", "--yes", "--wait", "--json")
    assert code == 4
    assert f"{CANDIDATE}/pilot/sync-b4: failed after 1 attempt(s), last crash: as the test wished" in err
    assert json.loads(out)["slots"]["failed"] == 1
    assert run(capsys, home, "submit", "--cluster", "slurm", "--yes", "--wait")[0] == 4
    assert run(capsys, home, "submit", "--cluster", "slurm", "--yes")[0] == 0
    baseline = ("submit", "--cluster", "slurm", "--yes", "--wait", "--only", "baseline/*")
    assert run(capsys, home, *baseline)[0] == 0


def test_interrupting_the_wait_leaves_the_jobs_and_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("campaign.cli.submit.time.sleep", interrupt)
    code, _, err = run(capsys, home, "submit", "--cluster", "slurm", "--yes", "--wait")
    assert code == 130
    assert "campaign submit --wait" in err
    assert {state for _, state, _ in cluster.jobs.values()} == {"PENDING"}


def test_status_counts_slots_and_names_what_failed_and_what_that_costs(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    home.wish(endings={f"{CANDIDATE}/pilot/sync-b4/1": "crash"})
    submit(desk)
    assert "waiting:" in run(capsys, home, "status")[1]
    run_jobs(home, cluster)
    value = run_json(capsys, home, "status")
    assert value["phases"]["pilot"] == {"completed": 3, "failed": 1}
    assert value["failed_attempts"] == [
        {"slot": f"{CANDIDATE}/pilot/sync-b4", "attempt": 1, "ending": "crash", "reason": "as the test wished"}
    ]
    assert value["gates_out_of_reach"] == [{"gate": "throughput/sync/repeat-1", "slot": f"{CANDIDATE}/pilot/sync-b4"}]
    assert value["remaining_device_hours"] > 0
    # baseline: 2 solos of 0.1 s + 5 windows of 5 updates at 4 a second, and 2 control pairs of two such sides; the
    # pairs of the workload whose candidate has no pilot are left out
    side_s = 0.1 + 5 * 5 / 4
    assert value["expected_device_hours"] == round((2 + 2 * 2 + 2) * side_s / 3600, 4)
    text = run(capsys, home, "status")[1]
    assert "crash: as the test wished" in text
    assert "from the pilots: 0.01 for 5 of 6 slots" in text


def test_what_the_pilots_let_expect_stands_beside_the_bound(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    before = run(capsys, home, "submit", "--cluster", "slurm", "--dry-run")[2]
    assert before.splitlines()[1].split()[-1] == "-"
    assert run_json(capsys, home, "status")["expected_device_hours"] is None
    submit(desk)
    run_jobs(home, cluster)
    header, row, *_ = run(capsys, home, "submit", "--cluster", "slurm", "--dry-run")[2].splitlines()
    assert "most device-hours  from the pilots" in header
    assert row.split()[-2:] == ["0.33", "0.02"]


def test_status_writes_nothing_and_survives_a_silent_scheduler(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    submit(desk)
    cluster.down = True
    before = len(read_entries(home.paths))
    value = run_json(capsys, home, "status")
    assert value["phases"]["pilot"] == {"unknown": 4}
    assert value["troubles"]
    assert len(read_entries(home.paths)) == before
    assert not home.paths.lock.exists()


def test_show_tells_attempts_endings_log_and_where_to_look(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    submit(desk)
    run_jobs(home, cluster)
    value = run_json(capsys, home, "show", "candidate/pilot/sync-b4")
    assert value["slot"] == f"{CANDIDATE}/pilot/sync-b4"
    (attempt,) = value["attempts"]
    assert (attempt["ending"], attempt["source"], attempt["job"][:4]) == ("completed", "receipt", "100_")
    assert attempt["log_tail"].startswith("measuring ")
    assert attempt["look_further"].startswith("less ")
    assert "attempt 1: completed" in run(capsys, home, "show", "candidate/pilot/sync-b4")[1]


def test_show_tells_the_command_of_the_job_and_where_slurm_keeps_its_accounts(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    submit(desk)
    run_jobs(home, cluster)
    (attempt,) = run_json(capsys, home, "show", "candidate/pilot/packed-b4")["attempts"]
    index = int(attempt["job"].partition("_")[2])
    assert attempt["command"] == list(cluster.requests[0].payloads[index])
    assert attempt["command"][-1] == str(home.paths.allocation(attempt["allocation"]).plan)
    assert attempt["accounting"].startswith(f"sacct --duplicates --jobs={attempt['job']} ")
    text = run(capsys, home, "show", "candidate/pilot/packed-b4")[1]
    assert f"command of the job: {shlex.join(attempt['command'])}" in text
    assert f"accounting: {attempt['accounting']}" in text
    # What was handed over is the better witness.
    (key,) = desk.history().submissions
    handed = home.paths.submission(key).request
    handed.parent.mkdir(parents=True, exist_ok=True)
    handed.write_text(json.dumps({"payloads": [["job", str(number)] for number in range(4)]}))
    (attempt,) = run_json(capsys, home, "show", "candidate/pilot/packed-b4")["attempts"]
    assert attempt["command"] == ["job", str(index)]
    handed.write_text("{")
    (attempt,) = run_json(capsys, home, "show", "candidate/pilot/packed-b4")["attempts"]
    assert attempt["command"] == list(cluster.requests[0].payloads[index])


def test_show_tells_the_one_command_of_a_local_job(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    submit(desk, Wish(candidate=CANDIDATE, cluster="local"))
    (attempt,) = run_json(capsys, home, "show", "candidate/pilot/packed-b4")["attempts"]
    assert attempt["command"] == list(cluster.requests[0].payloads[0])
    assert attempt["accounting"] == ""


def test_show_suggests_a_slot_for_a_misspelt_one(capsys: pytest.CaptureFixture[str], home: JobHome) -> None:
    code, _, err = run(capsys, home, "show", "baseline/pilot/sync-b5")
    assert code == 2
    assert "try: campaign status; close to it: " in err
    assert "baseline/pilot/sync-b4" in err


def test_show_points_to_the_list_of_slots_for_a_word_like_none(
    capsys: pytest.CaptureFixture[str], home: JobHome
) -> None:
    code, _, err = run(capsys, home, "show", "nope")
    assert code == 2
    assert err.splitlines()[-1].strip() == "try: campaign status"


def test_an_unknown_candidate_is_named(capsys: pytest.CaptureFixture[str], home: JobHome) -> None:
    code, _, err = run(capsys, home, "submit", "--candidate", "c0000", "--cluster", "slurm", "--yes")
    assert code == 2
    assert CANDIDATE in err


def test_cancel_asks_records_the_reason_and_ends_the_jobs(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    submit(desk)
    assert run(capsys, home, "cancel")[0] == 2
    value = run_json(capsys, home, "cancel", "--yes", "--reason", "wrong node")
    assert len(value["allocations"]) == 4
    assert {state for _, state, _ in cluster.jobs.values()} == {"CANCELLED"}
    (entry,) = [entry for entry in read_entries(home.paths) if entry.act == "cancelled"]
    assert entry.data["reason"] == "wrong node"
    assert run_json(capsys, home, "cancel", "--yes")["allocations"] == []
    desk.settle(quiet)


def test_the_commands_import_nothing_heavy() -> None:
    heavy = "torch pandas scipy matplotlib submitit sqlalchemy numpy rich"
    code = (
        "import sys, campaign.cli.submit, campaign.cli.status, campaign.cli.show, campaign.cli.cancel;"
        f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_room_for_a_single_job_the_command_says_so_and_exits_6(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster
) -> None:
    cluster.submit_limit = 0
    code, _, err = run(capsys, home, "submit", "--cluster", "slurm", "--yes")
    assert code == 6
    assert "4 allocation(s) are left until Slurm has room for them: MaxSubmitJobs of the association is 0" in err
    assert "no attempt is used up" in err
    assert "intent" not in home.acts()


def test_without_waiting_what_fits_is_submitted_and_the_rest_named(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster
) -> None:
    cluster.submit_limit = 3
    code, _, err = run(capsys, home, "submit", "--cluster", "slurm", "--yes")
    assert code == 0
    assert "1 allocation(s) are left until Slurm has room" in err
    assert [len(one.payloads) for one in cluster.requests] == [3]


@pytest.mark.parametrize("tells_limits", [True, False])
def test_waiting_goes_on_with_the_rest_as_room_comes(
    capsys: pytest.CaptureFixture[str],
    home: JobHome,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    tells_limits: bool,
) -> None:
    cluster.submit_limit, cluster.tells_limits = 3, tells_limits
    monkeypatch.setattr("campaign.cli.submit.time.sleep", lambda _: run_jobs(home, cluster))
    value = run_json(capsys, home, "submit", "--cluster", "slurm", "--yes", "--wait")
    assert value["slots"] == {"completed": 10}
    assert max(len(one.payloads) for one in cluster.requests) <= 3
    assert home.acts().count("not_submitted") == 0
    assert home.doubles() == []


def test_waiting_for_room_that_never_comes_ends_with_exit_6(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.submit_limit = 0
    slept: list[float] = []
    monkeypatch.setattr("campaign.cli.submit.time.sleep", slept.append)
    assert run(capsys, home, "submit", "--cluster", "slurm", "--yes", "--wait")[0] == 6
    assert 3600.0 < sum(slept) < 4 * 3600.0
    assert cluster.requests == []


def test_waiting_for_hopeless_jobs_ends_with_exit_6_and_the_command_that_ends_them(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.reason = "PartitionTimeLimit"
    monkeypatch.setattr("campaign.cli.submit.time.sleep", lambda _: None)
    code, _, err = run(capsys, home, "submit", "--cluster", "slurm", "--yes", "--wait")
    assert code == 6
    assert "4 job(s), such as 100_0: PartitionTimeLimit" in err
    assert "campaign cancel" in err
    assert "PartitionTimeLimit: its time limit is over" in run(capsys, home, "status")[1]


def test_watching_without_a_terminal_prints_again_and_with_json_once(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(desk)
    monkeypatch.setattr("campaign.cli.status.time.sleep", lambda _: run_jobs(home, cluster))
    code, out, _ = run(capsys, home, "status", "--watch")
    assert code == 0
    assert out.count("synthetic: baseline and candidate") == 2
    assert run_json(capsys, home, "status", "--watch")["pass_reachable"] is True


def test_a_wait_without_a_terminal_says_how_the_slots_stand_whenever_that_changes(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = itertools.count()

    def sleep(_seconds: float) -> None:
        if next(polls) % 3 == 2:
            run_jobs(home, cluster)

    monkeypatch.setattr("campaign.cli.submit.time.sleep", sleep)
    code, _, err = run(capsys, home, "submit", "--cluster", "slurm", "--yes", "--wait")
    assert code == 0
    assert err.count("10 slots: 6 planned, 4 pending\n") == 1
    assert err.count("10 slots: 10 completed\n") == 1
