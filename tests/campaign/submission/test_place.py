"""Where jobs may run, from what sinfo prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from campaign.errors import InfrastructureError
from campaign.submission.nodes import Place
from campaign.submission.place import parse_minutes, read_place
from campaign.watching.scheduler import Slurm

NODES = """\
n1|main*|1-00:00:00|idle|fast,big|gpu:h200:8(S:0-1)
n2|main*|1-00:00:00|mixed|fast|(null)
n3|main*|1-00:00:00|drained|fast|gpu:h200:8
n4|main*|1-00:00:00|down*|fast|gpu:h200:8
n5|main*|1-00:00:00|idle*|fast|gpu:h200:8
n1|short|30:00|idle|fast,big|gpu:h200:8
"""


def place(table: dict[str, Any], text: str = NODES) -> tuple[Place, list[Sequence[str]]]:
    asked: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> str:
        asked.append(command)
        if command[0] == "scontrol":
            assert command[1:3] == ["show", "hostnames"]
            return "n1\nn9\n"
        chosen = [part.partition("=")[2] for part in command if part.startswith("--partition=")]
        return "".join(line for line in text.splitlines(keepends=True) if not chosen or f"|{chosen[0]}|" in line)

    return read_place(Slurm(run), table), asked


def test_the_nodes_that_are_up_in_the_default_partition_and_its_time_limit() -> None:
    found, _ = place({})
    assert found == Place(nodes=frozenset({"n1", "n2"}), limit_minutes=1440)


def test_those_of_the_partition_that_is_asked_for() -> None:
    found, (asked,) = place({"partition": "short"})
    assert found == Place(nodes=frozenset({"n1"}), limit_minutes=30)
    assert "--partition=short" in asked


def test_what_the_configuration_excludes_is_not_counted() -> None:
    assert place({"exclude": "n[1,9]"})[0].nodes == frozenset({"n2"})


@pytest.mark.parametrize(
    ("table", "nodes"),
    [
        ({"constraint": "big"}, {"n1"}),
        ({"constraint": "fast&big"}, {"n1"}),
        ({"constraint": "fast"}, {"n1", "n2"}),
        ({"gres": "gpu:4"}, {"n1"}),
        ({"gres": "gpu:h200:4,gp:1"}, set()),
    ],
)
def test_only_nodes_with_what_is_asked_for_count(table: dict[str, Any], nodes: set[str]) -> None:
    assert place(table)[0].nodes == frozenset(nodes)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"nodelist": "n[1-2]"}, "nodelist names the nodes"),
        ({"reservation": "mine"}, "reservation names the nodes"),
        ({"constraint": "[a|b]"}, "constraint '[a|b]' is not known"),
    ],
)
def test_where_the_configuration_does_not_tell_the_nodes_are_not_known_but_the_limit_is(
    table: dict[str, Any], words: str
) -> None:
    found, _ = place(table)
    assert found.nodes is None
    assert words in found.unknown
    assert found.limit_minutes == 1440


@pytest.mark.parametrize("text", ["n1|main*|infinite\n", "nonsense\n"])
def test_an_answer_that_is_not_understood_is_no_knowledge(text: str) -> None:
    found, _ = place({}, text)
    assert (found.nodes, found.limit_minutes) == (None, None)
    assert "not understood" in found.unknown


def test_no_answer_is_no_knowledge() -> None:
    def run(_command: Sequence[str]) -> str:
        raise InfrastructureError("sinfo did not answer")

    assert read_place(Slurm(run), {}) == Place(unknown="which nodes there are is not known: sinfo did not answer")


def test_a_partition_without_a_limit_among_several_is_none() -> None:
    text = "n1|main*|infinite|idle|a|(null)\nn2|main*|30:00|idle|a|(null)\n"
    assert place({}, text)[0].limit_minutes is None


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("30:00", 30), ("2:00:00", 120), ("1-02:03:04", 1563), ("0:30", 1), ("infinite", None), ("n/a", None), ("", None)],
)
def test_time_limits_are_read_as_slurm_prints_them(text: str, minutes: int | None) -> None:
    assert parse_minutes(text) == minutes


def test_where_no_partition_is_asked_for_the_others_do_not_count() -> None:
    bounded = NODES.replace("1-00:00:00", "10:00").replace("30:00", "infinite")
    found, _ = place({}, f"{bounded}n7|short|infinite|idle|fast|(null)\n")
    assert found == Place(nodes=frozenset({"n1", "n2"}), limit_minutes=10)
