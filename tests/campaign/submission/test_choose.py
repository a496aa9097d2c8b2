"""Which slots may be submitted: what follows another slot, and what is under way."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from campaign.documents import slot_for
from campaign.submission.choose import Choice, choose
from campaign.watching.state import SlotState, SlotStatus
from tests.support.home import CANDIDATE, SMALL, make_protocol

FIRST, FOLLOWER = "baseline/pilot/sync-b4", f"{CANDIDATE}/pilot/sync-b4"
OTHERS = ["baseline/pilot/packed-b4", f"{CANDIDATE}/pilot/packed-b4"]


def states(given: Mapping[str, SlotState]) -> dict[str, SlotStatus]:
    """Return every slot of two workloads, planned but for the given ones."""
    slots = {slot_for(slot.slot, CANDIDATE): slot for slot in make_protocol(SMALL[:2], repeats=1).slots}
    return {
        name: SlotStatus(slot=slot, name=name, state=given.get(name, SlotState.PLANNED), attempts=())
        for name, slot in slots.items()
    }


def chosen(given: Mapping[str, SlotState], only: str = "") -> Choice:
    return choose(states(given), candidate=CANDIDATE, only=only, after={FOLLOWER: FIRST})


def test_a_pilot_that_follows_another_waits_for_it() -> None:
    choice = chosen({})
    assert sorted(choice.slots) == sorted([FIRST, *OTHERS])
    assert FOLLOWER in choice.waiting
    running = chosen({FIRST: SlotState.RUNNING}, only=FOLLOWER)
    assert (running.slots, running.waiting, running.active) == ((), (FOLLOWER,), (FIRST,))


def test_what_a_wanted_pilot_follows_comes_along() -> None:
    choice = chosen({}, only=FOLLOWER)
    assert (choice.slots, choice.waiting) == ((FIRST,), (FOLLOWER,))
    assert chosen({FIRST: SlotState.COMPLETED}, only=FOLLOWER).slots == (FOLLOWER,)


@pytest.mark.parametrize("state", [SlotState.FAILED, SlotState.EXHAUSTED])
def test_a_pilot_that_follows_one_out_of_reach_is_out_of_reach_itself(state: SlotState) -> None:
    choice = chosen({FIRST: state}, only=FOLLOWER)
    assert (choice.slots, choice.waiting, choice.out_of_reach) == ((), (), (FOLLOWER,))
    # Nothing waits for what will never be submitted.
    done = dict.fromkeys(OTHERS, SlotState.COMPLETED)
    pair = f"{CANDIDATE}/pair/sync-b4/r1"
    choice = chosen({FIRST: state, **done}, only=pair)
    assert (choice.slots, choice.waiting) == ((), ())
    assert set(choice.out_of_reach) == {pair, FOLLOWER}


def test_only_what_is_wanted_or_stands_before_it_counts_as_under_way() -> None:
    choice = chosen({FIRST: SlotState.RUNNING, OTHERS[0]: SlotState.PENDING, OTHERS[1]: SlotState.PENDING}, OTHERS[1])
    assert choice.active == (OTHERS[1],)
    pair = f"{CANDIDATE}/pair/packed-b4/r1"
    waiting = chosen({FIRST: SlotState.RUNNING, OTHERS[0]: SlotState.PENDING, OTHERS[1]: SlotState.COMPLETED}, pair)
    assert (waiting.active, waiting.waiting) == ((OTHERS[0],), (pair,))


def test_of_one_repeat_only_its_slots_are_chosen_once_their_pilots_are_done() -> None:
    slots = {slot_for(slot.slot, CANDIDATE): slot for slot in make_protocol(SMALL[:1], repeats=3).slots}
    done = {
        name: SlotStatus(
            slot=slot,
            name=name,
            state=SlotState.COMPLETED if slot.kind == "pilot" else SlotState.PLANNED,
            attempts=(),
        )
        for name, slot in slots.items()
    }
    choice = choose(done, candidate=CANDIDATE, repeat=2)
    assert {slots[name].repeat for name in choice.slots} == {2}
    assert f"{CANDIDATE}/pair/sync-b4/r2" in choice.slots
    assert {slots[name].repeat for name in choose(done, candidate=CANDIDATE).slots} >= {1, 2, 3}
