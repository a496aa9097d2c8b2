"""What the parent refuses of a further node, and a further node of its parent; without a process."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.allocation import ranked
from jobs.allocation.links import FurtherRanks, Link
from jobs.allocation.outpost import Outpost
from jobs.allocation.parent import _check_attempt
from jobs.common.endings import EndedError, Ending
from jobs.common.storage import sha256_file
from jobs.common.strict import Fields
from jobs.processes.channel import Answer
from jobs.processes.serving import SideError
from jobs.processes.steps import Step, alone

HOST: dict[str, Any] = {"cpu": "X", "machine": "m", "kernel": "6", "affinity": [0, 1]}
GPU = {"name": "H", "driver": "5", "uuid": "GPU-1"}
PLACE = cast("Any", SimpleNamespace(host=HOST, device=SimpleNamespace(devices=(GPU,))))


class Said:
    """A conversation in which the other end says what it was made with."""

    def __init__(self, *said: dict[str, Any], seconds: float = 0.0) -> None:
        self.said = list(said)
        self.seconds = seconds
        self.commands: list[dict[str, Any]] = []

    def named(self, text: str) -> str:
        return f"node n2: {text}"

    def receive(self, _what: str, _limit_s: float) -> Answer:
        return Answer(fields=Fields(self.said.pop(0), "answer"), asked_s=0.0, answered_s=self.seconds)

    def take(self, answer: Answer, _what: str, read: Any) -> Any:
        found = read(answer.fields, answer)
        answer.fields.done()
        return found

    def request(self, command: dict[str, Any], what: str, read: Any, limit_s: float) -> Step[Any]:
        self.commands.append(command)
        yield
        return self.take(self.receive(what, limit_s), what, read)


def reach(plan: Path, *said: dict[str, Any]) -> Said:
    link, channel = Link.__new__(Link), Said(*said)
    link.node, link.channel = "n2", cast("Any", channel)
    alone(link.prepare(plan, PLACE))
    return channel


def of_kind(**changes: Any) -> dict[str, Any]:
    return {"host": {**HOST, **changes}, "devices": [{**GPU, "uuid": "GPU-2"}], "device": "GPU-2"}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "allocation.json"
    path.write_text("{}")
    return path


def test_a_further_node_of_the_same_kind_is_asked_to_check_the_same_plan(plan: Path) -> None:
    channel = reach(plan, {"node": "n2", "pid": 7}, of_kind(affinity=[4, 5]))
    assert channel.commands == [{"do": "prepare", "plan": str(plan), "sha256": sha256_file(plan)}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpu": "Y"}, "processor is Y, that of the first node is X"),
        ({"machine": "n"}, "machine type is n, that"),
        ({"kernel": "5"}, "kernel is 5, that"),
        ({"affinity": [0]}, "number of processors is 1, that of the first node is 2"),
    ],
)
def test_a_further_node_of_another_kind_is_refused(plan: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(EndedError, match=f"node n2: its {words}") as caught:
        reach(plan, {"node": "n2", "pid": 7}, of_kind(**changes))
    assert caught.value.ending is Ending.NODE_FAIL
    with pytest.raises(EndedError, match="devices is unknown"):
        reach(plan, {"node": "n2", "pid": 7}, {**of_kind(), "devices": []})


def test_devices_that_are_known_of_neither_node_are_not_taken_for_alike(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PLACE, "device", SimpleNamespace(devices=()))
    with pytest.raises(EndedError, match="its devices and those of the first node are not known") as caught:
        reach(plan, {"node": "n2", "pid": 7}, {**of_kind(), "devices": []})
    assert caught.value.ending is Ending.NODE_FAIL


def test_a_further_node_tells_its_conditions_under_its_name() -> None:
    link, channel = Link.__new__(Link), Said({"state": {"affinity": "0-1"}})
    link.node, link.channel = "n2", cast("Any", channel)
    assert alone(link.look()) == {"node": "n2", "affinity": "0-1"}
    assert channel.commands == [{"do": "look"}]


def test_a_node_that_is_another_one_than_was_reached_for_is_refused(plan: Path) -> None:
    with pytest.raises(ValueError, match="it is n3"):
        reach(plan, {"node": "n3", "pid": 7}, of_kind())


@pytest.mark.parametrize("seconds", [0.8, 1.2, float("nan")])
def test_the_clock_of_a_further_node_must_agree_with_the_parents(seconds: float) -> None:
    rules = SimpleNamespace(clock_absolute_s=0.1, clock_relative=0.01)
    protocol = cast("Any", SimpleNamespace(limits=SimpleNamespace(stall_s=5.0), rules=rules))

    def ask(claimed_s: float) -> list[Any]:
        link = cast("Any", SimpleNamespace(channel=Said({"values": [], "seconds": claimed_s}, seconds=1.0)))
        return alone(FurtherRanks(link, protocol).updates(3, "window 1", None))

    assert ask(1.05) == []
    with pytest.raises((EndedError, ValueError), match=r"node n2: window 1: the side says|not finite"):
        ask(seconds)


@pytest.mark.parametrize("step", ["start", "build", "leave"])
def test_a_step_that_finds_nothing_brings_nothing(step: str) -> None:
    limits = SimpleNamespace(import_s=5.0, startup_s=5.0, stall_s=5.0)
    protocol = cast("Any", SimpleNamespace(limits=limits, rules=None))
    link = cast("Any", SimpleNamespace(channel=Said({"values": [7], "seconds": 0.0})))
    with pytest.raises(ValueError, match="said 7 unasked"):
        alone(getattr(FurtherRanks(link, protocol), step)())


def test_a_node_that_sees_another_plan_than_the_parent_runs_nothing(plan: Path) -> None:
    read_fd, write_fd = os.pipe()
    outpost = Outpost(read_fd)
    try:
        with pytest.raises(SideError, match="is another one here than the parent's") as caught:
            outpost.do_prepare({"plan": str(plan), "sha256": "0" * 64})
        assert caught.value.kind == Ending.NODE_FAIL
        with pytest.raises(SideError, match="open before prepare"):
            outpost.do_open({})
        with pytest.raises(SideError, match="look before prepare"):
            outpost.do_look({})
    finally:
        outpost.shut()
        os.close(read_fd)
        os.close(write_fd)


# --- what the parent asks of its own node -----------------------------------------------------------------------------


def of_workload(processes: int, **rules: Any) -> Any:
    workload = SimpleNamespace(processes=processes, nodes=1, per_node=processes)
    given = {"numerical": object(), "convergence": None, **rules}
    return SimpleNamespace(workloads={"w": workload}, recipe=lambda _name: None, device="cuda", **given)


def an_attempt(kind: str, order: tuple[str, ...], workload: str = "w", examples_sha256: str = "") -> Any:
    return SimpleNamespace(
        kind=kind, order=order, workload=workload, examples_sha256=examples_sha256, slot="s", segment=0
    )


@pytest.mark.parametrize("devices", [0, 2, 3])
def test_a_node_has_a_device_for_each_rank_unless_nobody_knows_them(devices: int) -> None:
    place = SimpleNamespace(device=SimpleNamespace(devices=(GPU,) * devices))
    context = cast("Any", SimpleNamespace(place=place, protocol=of_workload(3)))
    if devices == 2:
        with pytest.raises(EndedError, match="has 2 devices on this node, for 3 processes") as caught:
            ranked._number(context, context.protocol.workloads["w"], ())
        assert caught.value.ending is Ending.HARNESS_ERROR
    else:
        assert len(ranked._number(context, context.protocol.workloads["w"], ())) == 3


@pytest.mark.parametrize(
    ("attempt", "processes", "words"),
    [
        (an_attempt("case", ("baseline", "candidate")), 2, "a case of several processes"),
        (an_attempt("pilot", ("candidate",)), 2, "belongs to several processes"),
        (an_attempt("pilot", ("candidate",), examples_sha256="0" * 64), 1, "belongs to several processes"),
        (an_attempt("solo", ("baseline",), workload="x"), 2, "the protocol has no workload x"),
    ],
)
def test_an_attempt_that_does_not_fit_its_workload_is_not_begun(attempt: Any, processes: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _check_attempt(attempt, of_workload(processes))


@pytest.mark.parametrize(
    ("attempt", "processes"),
    [
        (an_attempt("case", ("baseline", "candidate")), 1),
        (an_attempt("pilot", ("baseline",)), 2),
        (an_attempt("pilot", ("candidate",)), 1),
        (an_attempt("pilot", ("candidate",), examples_sha256="0" * 64), 2),
    ],
)
def test_an_attempt_that_fits_its_workload_is_begun(attempt: Any, processes: int) -> None:
    _check_attempt(attempt, of_workload(processes))
