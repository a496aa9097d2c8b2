from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jobs.allocation.conditions import Conditions
from jobs.allocation.orphans import Orphan
from jobs.allocation.standing import Standing
from jobs.common.endings import EndedError, Ending
from jobs.common.strict import dump_json
from jobs.processes.marks import Mark

JOB: dict[str, object] = {"scheduler": "slurm", "job_id": "17", "restart_count": 0}
ORPHAN = Orphan(pid=7, command="python train", job="16")


def make(tmp_path: Path, **changes: Any) -> Standing:
    started = tmp_path / "started.json"
    written = dump_json({"job": JOB, "host": "n1"})
    started.write_bytes(written)
    values: dict[str, Any] = {
        "started": started,
        "written": written,
        "job": JOB,
        "mark": Mark(boot_id="b", pid=1, process_start=1, job="17"),
        "host": "n1",
        "conditions": Conditions({}, "0-1", lambda: "0-1"),
        "read_host": lambda: "n1",
        "read_boot_id": lambda: "b",
        "find_orphans": lambda _mark: [],
        "pause": lambda _seconds: None,
    }
    return Standing(**{**values, **changes})


def refusal(standing: Standing) -> str:
    with pytest.raises(EndedError) as caught:
        standing.check()
    assert caught.value.ending is Ending.NODE_FAIL
    return caught.value.reason


def test_an_allocation_goes_on_where_and_as_it_began(tmp_path: Path) -> None:
    make(tmp_path).check()
    make(tmp_path).check_place()


def test_a_job_that_was_restarted_begins_nothing(tmp_path: Path) -> None:
    standing = make(tmp_path, job={**JOB, "restart_count": 2})
    assert "restarted this job (2 times)" in refusal(standing)
    with pytest.raises(EndedError, match="restarted"):
        standing.check_place()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"read_host": lambda: "n2"}, "began on n1, and is now on n2"),
        ({"read_boot_id": lambda: "c"}, "began in boot b, and the machine is now in boot c"),
        ({"conditions": Conditions({}, "0-1", lambda: "0")}, "processors of this job were 0-1, and are 0 now"),
        ({"conditions": Conditions({}, "0-1", lambda: None)}, "were 0-1, and are unknown now"),
    ],
)
def test_a_job_that_was_moved_measures_nothing_more(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    assert words in refusal(make(tmp_path, **changes))


def test_an_allocation_that_another_job_began_too_is_nobodys(tmp_path: Path) -> None:
    standing = make(tmp_path)
    standing.started.write_bytes(dump_json({"job": {**JOB, "job_id": "18"}, "host": "n3"}))
    assert "begun by slurm job 18 on n3" in refusal(standing)
    standing.started.write_bytes(b"{}")
    assert "nobody that can be read" in refusal(standing)
    standing.started.unlink()
    assert "cannot be read" in refusal(standing)


def test_an_orphan_is_looked_at_again_before_the_node_is_refused(tmp_path: Path) -> None:
    looks: list[Mark] = []

    def goes(mark: Mark) -> list[Orphan]:
        looks.append(mark)
        return [ORPHAN] if len(looks) < 3 else []

    make(tmp_path, find_orphans=goes).check()
    assert len(looks) == 3
    pauses: list[float] = []
    text = refusal(make(tmp_path, find_orphans=lambda _mark: [ORPHAN], pause=pauses.append))
    assert "process 7 (python train) of job 16" in text
    assert sum(pauses) <= 5


def test_what_ends_the_allocation_meanwhile_ends_the_waiting(tmp_path: Path) -> None:
    def stop(_seconds: float) -> None:
        raise EndedError(Ending.CANCELLED, "stopped")

    with pytest.raises(EndedError, match="stopped"):
        make(tmp_path, find_orphans=lambda _mark: [ORPHAN], pause=stop).check()


def test_processors_that_the_whole_job_lost_are_no_sides_doing_and_those_that_the_harness_lost_are() -> None:
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    before = {"cpus": (*cpus, max(cpus) + 1)}
    assert Conditions(before, "0-9", lambda: "0").changes() == []
    (change,) = Conditions(before, "0-9", lambda: "0-9").changes()
    assert change.startswith("cpus was")
