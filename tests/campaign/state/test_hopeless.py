"""Reasons for which a job will never start by itself, and those that may end."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.watching.hopeless import HOPELESS, nodes_wanted, why_hopeless

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "reason",
    [
        *HOPELESS,
        "AssocMaxCpuPerJobLimit",
        "QOSMaxNodePerJobLimit",
        "QOSMaxMemoryPerNode",
        "QOSMaxGRESPerJob",
        "QOSMinCpuNotSatisfied",
        "QOSMinMemory",
        "BadConstraints, and more",
    ],
)
def test_what_only_a_person_can_change_is_hopeless(reason: str) -> None:
    assert why_hopeless(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "Priority",
        "Resources",
        "BeginTime",
        "Dependency",
        "PartitionDown",
        "PartitionInactive",
        "Reservation",
        "Licenses",
        "JobArrayTaskLimit",
        "AssocMaxJobsLimit",
        "AssocGrpCpuLimit",
        "QOSMaxJobsPerUserLimit",
        "QOSMaxCpuPerUserLimit",
        "QOSGrpNodeLimit",
        "ReqNodeNotAvail, Reserved for maintenance",
        "ReqNodeNotAvail, UnavailableNodes:n1",
        "SOMETHING_NEW",
    ],
)
def test_what_may_end_by_itself_is_not(reason: str) -> None:
    assert why_hopeless(reason) == ""


def test_nodes_are_read_as_each_release_writes_them() -> None:
    assert nodes_wanted("ReqNodeNotAvail, UnavailableNodes:n[1-3]") == "n[1-3]"
    assert nodes_wanted("ReqNodeNotAvail(Unavailable:n3)") == "n3"
    assert nodes_wanted("Resources") == ""
    assert why_hopeless("ReqNodeNotAvail, UnavailableNodes:n1", frozenset({"n1"}))
    assert not why_hopeless("ReqNodeNotAvail, UnavailableNodes:n1", frozenset({"n2"}))


def test_the_list_is_the_one_that_operators_read() -> None:
    _, _, after = (ROOT / "docs" / "operator.md").read_text().partition("### Jobs that will not start\n")
    table = after.partition("\nAll others")[0]
    assert [name for name in HOPELESS if f"`{name}`" not in table] == []
