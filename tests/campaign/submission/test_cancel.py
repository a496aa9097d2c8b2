"""Ending what a person names: which jobs, what else ends with them, and that asking twice changes nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from campaign.cli.main import main
from campaign.errors import InfrastructureError
from campaign.record.ledger import read_entries
from campaign.submission.desk import Desk, Wish
from campaign.submission.ending import ALL, Selection, find_doomed
from tests.campaign.submission.support import Cluster, make_desk
from tests.campaign.submission.test_desk import quiet, run_jobs, submit
from tests.support.home import CANDIDATE
from tests.support.jobs import RESOURCES, JobHome, make_job_home


@pytest.fixture
def desk(home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = make_desk(home, cluster)
    monkeypatch.setattr("campaign.cli.cancel.open_desk", lambda *_: made)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return made


def cancel(capsys: pytest.CaptureFixture[str], home: JobHome, *arguments: str) -> tuple[Any, str]:
    assert main(["cancel", "--home", str(home.paths.root), "--yes", "--json", *arguments]) == 0
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def cancelled(home: JobHome) -> list[dict[str, Any]]:
    return [entry.data for entry in read_entries(home.paths) if entry.act == "cancelled"]


def ended_jobs(cluster: Cluster) -> set[str]:
    return {job for job, (_, state, _) in cluster.jobs.items() if state == "CANCELLED"}


def test_only_what_was_named_ends(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    submit(desk)
    value, err = cancel(capsys, home, "--only", "*/pilot/sync-*", "--reason", "wrong batch")
    assert len(value["allocations"]) == 2
    assert ended_jobs(cluster) == set(value["jobs"])
    assert "this ends 2 allocation(s) with 2 attempt(s): 2 pending" in err
    assert cancelled(home) == [{"allocations": value["allocations"], "reason": "wrong batch"}]
    value, _ = cancel(capsys, home, "--candidate", CANDIDATE[:4])
    assert len(value["allocations"]) == 1  # of its two, one has ended
    assert len(ended_jobs(cluster)) == 3
    assert cancel(capsys, home, "--phase", "throughput")[0]["allocations"] == []
    value, _ = cancel(capsys, home, "--phase", "pilot")
    assert len(value["allocations"]) == 1
    assert len(ended_jobs(cluster)) == 4
    assert cancel(capsys, home)[0]["allocations"] == []


def test_an_unknown_candidate_ends_nothing(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    submit(desk)
    assert main(["cancel", "--home", str(home.paths.root), "--yes", "--candidate", "c0000"]) == 2
    assert CANDIDATE in capsys.readouterr().err
    assert ended_jobs(cluster) == set()


def test_asking_again_asks_the_scheduler_and_records_nothing(
    capsys: pytest.CaptureFixture[str], home: JobHome, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(desk)
    asked: list[str] = []

    def scancel(_cluster: Cluster, command: Sequence[str]) -> str:
        asked.extend(command[2:])
        return ""

    monkeypatch.setattr(Cluster, "_scancel", scancel)
    first, _ = cancel(capsys, home, "--reason", "first")
    again, _ = cancel(capsys, home, "--reason", "second")
    assert first["allocations"] == again["allocations"]
    assert sorted(asked) == sorted([*first["jobs"], *again["jobs"]])
    assert [one["reason"] for one in cancelled(home)] == ["first"]


def test_slots_that_share_an_allocation_end_with_it_and_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_job_home(tmp_path / "home", resources={**RESOURCES, "submission": {"workloads_per_allocation": 2}})
    desk = make_desk(home, cluster)
    monkeypatch.setattr("campaign.cli.cancel.open_desk", lambda *_: desk)
    submit(desk)
    value, err = cancel(capsys, home, "--only", "baseline/pilot/sync-b4")
    assert len(value["allocations"]) == 1
    assert "since jobs end as a whole, slots that were not asked for: baseline/pilot/packed-b4" in err


def test_a_local_job_ends_as_a_whole(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaign.watching.observation.is_alive", lambda _: True)
    submit(desk, Wish(candidate=CANDIDATE, cluster="local"))
    doomed = find_doomed(desk.view(""), desk.frozen.slots(), Selection(only="baseline/pilot/sync-b4"))
    assert len(doomed.allocations) == 4
    assert len(doomed.besides) == 3
    assert doomed.allocations == find_doomed(desk.view(""), desk.frozen.slots(), ALL).allocations


def test_a_submission_that_reached_nobody_is_given_up_as_a_whole_and_never_made_again(
    capsys: pytest.CaptureFixture[str], home: JobHome, cluster: Cluster, desk: Desk
) -> None:
    cluster.refusal = "sbatch: error: invalid partition"
    with pytest.raises(InfrastructureError):
        submit(desk)
    value, _ = cancel(capsys, home, "--only", "baseline/pilot/sync-b4")
    assert len(value["allocations"]) == 4
    cluster.refusal = ""
    cluster.requests.clear()
    desk.settle(quiet)
    order = submit(desk)
    assert order.again == ()
    run_jobs(home, cluster)
    assert home.doubles() == []
    assert {one.attempt for one in desk.view(CANDIDATE).attempts.values() if one.receipt is not None} == {2}
