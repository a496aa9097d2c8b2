"""What jobs ask for: the time that the plan needs, other arrays for other times, and no nodes that failed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaign.record.ledger import read_entries
from campaign.submission import acts, text
from campaign.submission.desk import Desk, Order
from campaign.submission.nodes import excluded_so_far
from campaign.watching.progress import status_text, summarise
from tests.campaign.submission.support import Cluster, make_desk
from tests.campaign.submission.test_desk import WISH, order_of, run_jobs, submit
from tests.support.home import CANDIDATE
from tests.support.jobs import RESOURCES, JobHome, make_job_home


def resources(**changes: Any) -> dict[str, Any]:
    return {**RESOURCES, "slurm": {**RESOURCES["slurm"], "minutes": None, **changes}}


def make_home(root: Path, **changes: Any) -> JobHome:
    return make_job_home(root / "home", repeats=1, resources=resources(**changes))


def minutes(order: Order) -> list[int]:
    return [batch.minutes for batch in order.all]


def said(order: Order, desk: Desk) -> str:
    return "\n".join(text.reasons(order, desk.view(CANDIDATE).slots))


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_job_asks_for_what_the_limits_allow_and_after_the_pilots_for_less(tmp_path: Path, cluster: Cluster) -> None:
    home = make_home(tmp_path)
    desk = make_desk(home, cluster)
    limits = home.protocol.limits
    first = submit(desk)
    side_s = limits.import_s + limits.startup_s + (home.protocol.throughput.windows + 1) * limits.stall_s
    assert minutes(first) == [-(-(600 + 90 + side_s) // 60)]
    assert cluster.requests[0].minutes == cluster.requests[0].parameters["time"] == first.all[0].minutes
    run_jobs(home, cluster)
    (then,) = minutes(submit(desk))
    assert 11 < then < first.all[0].minutes
    recorded = [entry.data for entry in read_entries(home.paths) if entry.act == "intent"]
    asked = [{one["minutes"] for one in intent["allocations"]} for intent in recorded]
    assert asked == [set(minutes(first)), {then}]
    assert "may need" not in said(first, desk)


def test_the_partitions_limit_is_asked_for_where_it_is_shorter_and_that_is_said(
    tmp_path: Path, cluster: Cluster
) -> None:
    home, cluster.partition_limit = make_home(tmp_path), "12:00"
    desk = make_desk(home, cluster)
    order = submit(desk)
    assert minutes(order) == [12]
    assert "4 allocation(s) end after 12 minutes, and may need" in said(order, desk)


def test_a_configured_time_is_asked_for_as_it_stands_and_said_to_be_short(tmp_path: Path, cluster: Cluster) -> None:
    home, cluster.partition_limit = make_home(tmp_path, minutes=3), "2:00"
    desk = make_desk(home, cluster)
    order = submit(desk)
    assert minutes(order) == [3]
    assert "4 allocation(s) end after 3 minutes, and may need" in said(order, desk)


def test_what_was_cut_off_asks_for_twice_the_time(tmp_path: Path, cluster: Cluster) -> None:
    home = make_home(tmp_path)
    home.wish(rates={"baseline": 0.01, CANDIDATE: 0.01}, endings={f"{CANDIDATE}/pair/sync-b4/r1/1": "time_limit"})
    desk = make_desk(home, cluster)
    submit(desk)
    run_jobs(home, cluster)
    submit(desk)
    run_jobs(home, cluster)
    again = order_of(desk)
    assert [one.slot for batch in again.all for al in batch.allocations for one in al.attempts] == [
        f"{CANDIDATE}/pair/sync-b4/r1"
    ]
    both_sides_s = 2 * home.protocol.throughput.windows / 0.01
    limit_s = home.protocol.limits.startup_s
    assert minutes(again) == [pytest.approx((600 + 90 + limit_s + 2 * 2 * both_sides_s) / 60, abs=1)]


def test_a_local_job_keeps_its_own_time(tmp_path: Path, cluster: Cluster) -> None:
    home = make_home(tmp_path)
    order = order_of(make_desk(home, cluster), replace(WISH, cluster="local"))
    assert minutes(order) == [10]


def test_status_tells_the_most_device_hours_without_a_configured_time(tmp_path: Path, cluster: Cluster) -> None:
    home = make_home(tmp_path)
    desk = make_desk(home, cluster)
    view = desk.view(CANDIDATE)
    found = summarise(home.paths, home.protocol, desk.frozen.manifest, CANDIDATE, view, now=time.time())
    assert 0 < found.remaining_device_hours < float("inf")


# --- processes and nodes of a workload --------------------------------------------------------------------------------


def with_topology(desk: Desk, name: str, processes: int, nodes: int) -> Desk:
    """Return the desk of a campaign of which one workload asks for several processes and nodes."""
    protocol = desk.frozen.protocol
    workloads = tuple(
        one.replace(processes=processes, nodes=nodes) if one.name == name else one for one in protocol.workloads
    )
    return replace(desk, frozen=replace(desk.frozen, protocol=protocol.replace(workloads=workloads)))


def workloads_of(order: Order) -> list[set[str]]:
    """Return the workloads of every allocation."""
    return [
        {one.slot.split("/")[2] for one in allocation.attempts}
        for batch in order.all
        for allocation in batch.allocations
    ]


def test_workloads_of_other_numbers_of_nodes_share_no_allocation_and_no_array(tmp_path: Path, cluster: Cluster) -> None:
    shared = {**resources(), "submission": {"workloads_per_allocation": 2}}
    home = make_job_home(tmp_path / "home", repeats=1, resources=shared)
    desk = make_desk(home, cluster)
    assert workloads_of(order_of(desk)) == [{"sync-b4", "packed-b4"}] * 2
    apart = order_of(with_topology(desk, "packed-b4", 4, 2))
    assert [set.union(*workloads_of(replace(apart, batches=(batch,)))) for batch in apart.all] == [
        {"sync-b4"},
        {"packed-b4"},
    ]
    view = desk.view(CANDIDATE)
    one, several = (
        summarise(
            home.paths, each.frozen.protocol, each.frozen.manifest, CANDIDATE, view, now=time.time()
        ).remaining_device_hours
        for each in (desk, with_topology(desk, "packed-b4", 4, 2))
    )
    assert several > 1.3 * one


# --- nodes ------------------------------------------------------------------------------------------------------------


def fail_on(desk: Desk, cluster: Cluster, node: str) -> Order:
    """Submit, and let every job die on a node."""
    cluster.jobs, cluster.node = {}, node
    order = submit(desk)
    cluster.become("NODE_FAIL")
    desk.settle(lambda _line: None)
    return order


def test_a_node_on_which_two_allocations_died_gets_no_more_jobs(tmp_path: Path, cluster: Cluster) -> None:
    home = make_home(tmp_path, exclude="n7")
    desk = make_desk(home, cluster)
    first = fail_on(desk, cluster, "n2")
    assert first.exclusion.nodes == {}
    assert cluster.requests[-1].parameters["exclude"] == "n7"
    second = submit(desk)
    assert set(second.exclusion.nodes) == {"n2"}
    assert cluster.requests[-1].parameters["exclude"] == "n7,n2"
    recorded = acts.Intent.of([entry.data for entry in read_entries(home.paths) if entry.act == "intent"][-1])
    assert recorded.excluded == second.exclusion.nodes == excluded_so_far(desk.history())
    assert "not sent to n2: 4 allocations failed there and nothing completed since" in said(second, desk)
    ended = [entry.data for entry in read_entries(home.paths) if entry.act == "ended"]
    assert {one["node"] for one in ended} == {"n2"}
    view = desk.view(CANDIDATE)
    shown = summarise(home.paths, home.protocol, desk.frozen.manifest, CANDIDATE, view, now=time.time())
    assert set(shown.to_json()["excluded_nodes"]) == {"n2"}
    assert "nodes that get no more jobs:\n  n2: 4 allocations failed there" in status_text(shown)


def test_a_later_submission_that_was_interrupted_avoids_the_same_nodes(tmp_path: Path, cluster: Cluster) -> None:
    home = make_home(tmp_path)
    desk = make_desk(home, cluster)
    fail_on(desk, cluster, "n2")
    cluster.refusal = "sbatch: error: no"
    with pytest.raises(Exception, match="did not take the submission"):
        submit(desk)
    cluster.refusal = ""
    order = submit(desk)
    assert order.again
    assert cluster.requests[-1].parameters["exclude"] == "n2"


def test_where_no_other_node_is_left_the_failing_one_is_used_and_that_is_said(tmp_path: Path, cluster: Cluster) -> None:
    home, cluster.node_states = make_home(tmp_path), {"n2": "idle", "n1": "drained"}
    desk = make_desk(home, cluster)
    fail_on(desk, cluster, "n2")
    order = submit(desk)
    assert order.exclusion.nodes == {}
    assert "exclude" not in cluster.requests[-1].parameters
    assert "0 of 1 usable nodes would be left" in said(order, desk)


def test_the_rule_can_be_switched_off(tmp_path: Path, cluster: Cluster) -> None:
    home = make_home(tmp_path, exclude_after=0)
    desk = make_desk(home, cluster)
    fail_on(desk, cluster, "n2")
    assert submit(desk).exclusion.nodes == {}
    assert "exclude" not in cluster.requests[-1].parameters
