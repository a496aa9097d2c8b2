from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jobs.allocation.cgroups import Limits, read_cpuset, read_limits

JOB = "slurm/uid_7/job_9"


def make(root: Path, memberships: str, files: Mapping[str, str]) -> tuple[Path, Path]:
    for name, text in files.items():
        path = root / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    listing = root / "cgroup"
    listing.write_text(memberships)
    return root / "fs", listing


def test_version_2_gives_the_tightest_limit_up_to_the_root(tmp_path: Path) -> None:
    files = {
        "cgroup.controllers": "cpu cpuset memory",
        "slurm/cpu.max": "150000 100000",
        f"{JOB}/cpu.max": "max 100000",
        f"{JOB}/cpu.weight": "100",
        f"{JOB}/cpuset.cpus.effective": "0-3,8",
        f"{JOB}/cpuset.mems.effective": "0",
        "slurm/memory.max": "4096",
        f"{JOB}/memory.max": "8192",
        f"{JOB}/memory.swap.max": "max",
    }
    found = read_limits(*make(tmp_path, f"0::/{JOB}\n", files))
    assert found.unknown == {}
    assert found.limits == Limits(cpus="0-3,8", mems="0", cpu_quota=1.5, cpu_weight=100, memory_bytes=4096)


def test_version_1_is_read_by_controller_under_either_name_of_its_mount(tmp_path: Path) -> None:
    files = {
        f"cpu,cpuacct/{JOB}/cpu.cfs_quota_us": "50000",
        f"cpu,cpuacct/{JOB}/cpu.cfs_period_us": "100000",
        f"cpu,cpuacct/{JOB}/cpu.shares": "1024",
        f"cpuset/{JOB}/cpuset.effective_cpus": "2",
        f"cpuset/{JOB}/cpuset.cpus": "2-3",
        "cpuset/cpuset.mems": "0-1",
        f"memory/{JOB}/memory.limit_in_bytes": "9223372036854771712",
        "memory/slurm/memory.limit_in_bytes": "65536",
        f"memory/{JOB}/memory.memsw.limit_in_bytes": "131072",
    }
    memberships = f"4:memory:/{JOB}\n3:cpuset:/{JOB}\n1:cpu,cpuacct:/{JOB}\n0::/\n"
    where = make(tmp_path, memberships, files)
    limits = Limits(cpus="2", mems="0-1", cpu_quota=0.5, cpu_weight=1024, memory_bytes=65536, swap_bytes=131072)
    assert read_limits(*where).limits == limits
    assert read_cpuset(*where) == "2"


def test_the_number_that_version_1_writes_where_there_is_no_limit_is_none(tmp_path: Path) -> None:
    files = {
        f"memory/{JOB}/memory.limit_in_bytes": "9223372036854771712",
        "memory/memory.limit_in_bytes": "9223372036854771712",
        f"cpu/{JOB}/cpu.cfs_quota_us": "-1",
        f"cpu/{JOB}/cpu.cfs_period_us": "100000",
    }
    found = read_limits(*make(tmp_path, f"4:memory:/{JOB}\n1:cpu:/{JOB}\n", files))
    assert (found.limits.memory_bytes, found.limits.cpu_quota) == (None, None)
    assert not {"memory_bytes", "cpu_quota"} & set(found.unknown)


def test_a_controller_of_version_1_beside_version_2_is_asked_where_it_is(tmp_path: Path) -> None:
    files = {
        "unified/job/cpuset.cpus.effective": "0",
        "unified/job/cpuset.mems.effective": "0",
        "memory/job/memory.limit_in_bytes": "77",
        "unified/job/memory.max": "1",
    }
    found = read_limits(*make(tmp_path, "4:memory:/job\n0::/job\n", files)).limits
    assert (found.cpus, found.memory_bytes) == ("0", 77)


def test_a_group_that_is_not_shown_is_unknown_and_not_unlimited(tmp_path: Path) -> None:
    where = make(tmp_path, "4:memory:/elsewhere\n0::/\n", {"memory/tasks": "", "unified/cgroup.procs": ""})
    found = read_limits(*where)
    assert found.unknown["memory_bytes"].endswith("memory/elsewhere is not shown here")
    assert "have no cpuset.cpus.effective" in found.unknown["cpus"]
    assert (found.limits.cpu_quota, "cpu_quota" in found.unknown) == (None, False)
    assert read_cpuset(*where) is None


def test_without_a_list_of_groups_everything_is_unknown(tmp_path: Path) -> None:
    found = read_limits(tmp_path, tmp_path / "absent")
    assert set(found.unknown) == set(found.limits.as_json())
    assert set(found.limits.as_json().values()) == {None}
    assert read_cpuset(tmp_path, tmp_path / "absent") is None
