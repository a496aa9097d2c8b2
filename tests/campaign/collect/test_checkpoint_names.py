"""The names in a checkpoint: collecting takes exactly those that the harness gives."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from campaign.collection import checkpoints
from campaign.paths import is_checkpoint
from jobs.runs import copying

PARTS = st.text("aZ09._+=@,:-/ \\\n\u00e4\0", max_size=12) | st.sampled_from([".", "..", "", "a" * 255, "a" * 256])


@given(st.lists(PARTS, min_size=1, max_size=4).map("/".join))
@example("/".join(["a" * 249, "b" * 250]))
@example("/".join(["a" * 250, "b" * 250]))
@example("model.bin\n")
def test_collecting_takes_the_names_that_the_harness_takes(name: str) -> None:
    assert checkpoints.is_name(name) == copying.is_name(name)


@pytest.mark.parametrize(
    "name", ["model.bin", "state/rank-0.pt", "a:b@c,d=e+f", "a" * 255, "a" * 250 + "/" + "b" * 249]
)
def test_a_plain_name_is_one(name: str) -> None:
    assert checkpoints.is_name(name)


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/./b", "a b", "a\n", "\u00e4", "a" * 256])
def test_what_could_lead_elsewhere_is_none(name: str) -> None:
    assert not checkpoints.is_name(name)


@pytest.mark.parametrize(
    ("name", "is_one"), [("1", True), ("40", True), ("9" * 18, True), ("9" * 19, False), ("0", False), ("01", False),
                         ("-1", False), (".40.x.tmp", False), ("40\n", False), ("\u0664", False), ("", False)]
)  # fmt: skip
def test_a_checkpoint_is_named_by_its_updates_alone(name: str, is_one: bool) -> None:
    assert is_checkpoint(name) is is_one
