"""How many jobs Slurm takes: the limits as the controller chooses them, and arrays that use the room up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from campaign.errors import InfrastructureError
from campaign.submission.limits import Room, fit, is_refusal, read_room
from campaign.watching.scheduler import Slurm

MAIN = "PartitionName=main Default=YES QoS=N/A State=UP\nPartitionName=big Default=NO QoS=heavy State=UP\n"


def _is_asked(line: str, command: Sequence[str]) -> bool:
    return command[-1] == "partition" or f"PartitionName={command[-1]}" in line.split()


class Site:
    """A site's controller, association database and queue."""

    def __init__(self, **changes: Any) -> None:
        self.enforce = "associations,limits"
        self.associations = "acc|||normal|10|\n"
        self.qos = "normal|||\n"
        self.above = "acc||\n"
        self.queue: list[str] = ["me|acc|normal|main"] * 3
        self.user = "acc\n"
        for name, value in changes.items():
            setattr(self, name, value)

    def __call__(self, command: Sequence[str]) -> str:
        if command[0] == "scontrol":
            if "partition" in command:
                return "".join(f"{line}\n" for line in MAIN.splitlines() if _is_asked(line, command))
            return f"ClusterName = here\nAccountingStorageEnforce = {self.enforce}\n"
        if command[0] == "squeue":
            assert "--array" in command
            return "".join(f"{line}\n" for line in self.queue)
        assert command[0] == "sacctmgr"
        if isinstance(self.associations, InfrastructureError):
            raise self.associations
        if "user=" in command:
            return self.above
        return {"associations": self.associations, "qos": self.qos, "user": self.user}[command[4]]


def room(site: Site, **resources: str) -> Room:
    return read_room(Slurm(site), resources, "me")


def test_what_the_association_allows_less_what_is_in_the_queue_is_the_room() -> None:
    found = room(Site(queue=["me|acc|normal|main"] * 3 + ["you|acc|normal|main"] * 5 + ["me|other|normal|main"]))
    assert (found.num_jobs, found.is_enforced) == (7, True)
    assert found.why == "MaxSubmitJobs of the association is 10 and 3 of that are used up"


def test_more_jobs_than_the_limit_leave_no_room_and_not_less() -> None:
    assert room(Site(queue=["me|acc|normal|main"] * 12)).num_jobs == 0


@pytest.mark.parametrize("enforce", ["none", "associations", "wckeys"])
def test_a_controller_that_enforces_no_limits_has_room(enforce: str) -> None:
    assert room(Site(enforce=enforce)) == Room()


def test_a_site_without_an_association_database_or_with_a_silent_one_has_no_known_limit() -> None:
    silent = Site(associations=InfrastructureError("sacctmgr is not installed here"))
    assert room(silent) == Room(is_enforced=True)
    assert room(Site(associations="")) == Room(is_enforced=True)


def test_the_groups_limit_of_a_qos_comes_before_that_of_the_account() -> None:
    site = Site(associations="acc|||normal||\n", qos="normal|50||\n", above="acc||6\n")
    assert room(site).num_jobs == 47


def test_a_controller_that_does_not_answer_is_an_error() -> None:
    def silent(_command: Sequence[str]) -> str:
        raise InfrastructureError("scontrol did not answer")

    with pytest.raises(InfrastructureError):
        read_room(Slurm(silent), {}, "me")


def test_a_limit_of_the_qos_comes_before_that_of_the_association() -> None:
    assert room(Site(qos="normal||50|\n")).num_jobs == 47
    chosen = Site(associations="acc||normal|normal,fast|10|\n", qos="fast||5|\n", queue=["me|acc|fast|main"])
    assert room(chosen, qos="fast").num_jobs == 4


def test_a_limit_of_the_partitions_qos_comes_first_and_counts_its_partition() -> None:
    site = Site(qos="heavy||4|\nnormal||50|\n", queue=["me|acc|normal|big"] * 3 + ["me|acc|normal|main"] * 9)
    assert room(site, partition="big").num_jobs == 1
    assert room(site).num_jobs == 38


def test_limits_on_everybody_count_everybody() -> None:
    queue = ["me|acc|normal|main", "you|acc|normal|main", "you|other|normal|main"]
    assert room(Site(above="acc||6\n", queue=queue)).num_jobs == 4
    assert room(Site(qos="normal|5||\n", queue=queue)).num_jobs == 2
    assert room(Site(qos="normal|||5\n", queue=queue)).num_jobs == 3


def test_an_association_of_the_partition_comes_before_the_general_one() -> None:
    site = Site(associations="acc|||normal|10|\nacc|main||normal|4|\n")
    assert room(site).num_jobs == 1
    assert room(site, partition="big").num_jobs == 7


def test_of_several_accounts_the_default_one_counts_unless_another_is_asked_for() -> None:
    site = Site(associations="acc|||normal|10|\nrich|||normal|500|\n")
    assert room(site).num_jobs == 7
    assert room(site, account="rich").num_jobs == 500


@pytest.mark.parametrize(
    ("num_jobs", "array_limit", "size", "arrays"),
    [(500, 1000, 500, 1), (1500, 1000, 750, 2), (1001, 1000, 500, 2), (1, 1000, 1, 1), (0, 1000, 0, 0), (7, 1, 1, 7)],
)
def test_arrays_use_the_room_up_but_for_less_than_one_job_each(
    num_jobs: int, array_limit: int, size: int, arrays: int
) -> None:
    assert fit(Room(num_jobs=num_jobs), array_limit) == size <= array_limit
    assert 0 <= num_jobs - size * arrays < max(arrays, 1)


def test_without_a_limit_the_controllers_array_is_the_size() -> None:
    assert fit(Room(), 1000) == 1000


def test_a_cap_only_lowers() -> None:
    assert Room(num_jobs=5, why="x").capped(None) == Room(num_jobs=5, why="x")
    assert Room(num_jobs=5, why="x").capped(9).num_jobs == 5
    assert Room(num_jobs=5, why="x").capped(2).num_jobs == 2
    assert Room().capped(2).num_jobs == 2


def test_refusals_are_told_from_mistakes() -> None:
    assert is_refusal("sbatch: error: QOSMaxSubmitJobPerUserLimit")
    assert is_refusal("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit ...)")
    too_long = "sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: Job violates accounting/QOS policy (...)"
    assert not is_refusal(too_long)
    assert not is_refusal("sbatch: error: invalid partition specified: x")
    assert not is_refusal("")
