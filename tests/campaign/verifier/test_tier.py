"""The tier is never more than what was looked at: one check that says less takes it away."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from campaign.verifier.findings import Check, Checks, State
from campaign.verifier.tier import Tier, tier_of
from campaign.verifier.verify import STEPS

NAMES = [*(step.name for step in STEPS), "verdict"]


def tier(states: Mapping[str, State]) -> Tier:
    """Return the tier where all checks are intact but for these; what is not one of them was made as well."""
    checks = Checks()
    for name in dict.fromkeys([*NAMES, *states]):
        check = Check(name=name, title="")
        checks.made.append(check)
        state = states.get(name, State.INTACT)
        if state is State.NOT_CHECKED:
            check.not_checked("why")
        elif state is State.INCOMPLETE:
            check.incomplete("where", "what")
        elif state is State.TAMPERED:
            check.tampered("where", "what")
    return tier_of(checks)


def test_everything_intact_is_chained_and_with_a_head_or_a_signature_anchored() -> None:
    assert tier({}) is Tier.CHAINED
    assert tier({"head": State.INTACT}) is Tier.ANCHORED
    assert tier({"signature": State.INTACT}) is Tier.ANCHORED
    for state in (State.NOT_CHECKED, State.INCOMPLETE):
        assert tier({"head": state}) is Tier.CHAINED
        assert tier({"head": state, "signature": state}) is Tier.CHAINED


@pytest.mark.parametrize("name", [*NAMES, "head", "signature", "data", "environment", "collection"])
def test_one_finding_anywhere_leaves_no_tier(name: str) -> None:
    assert tier({"head": State.INTACT, name: State.TAMPERED}) is Tier.NONE


@pytest.mark.parametrize("name", ["frozen", "ledger", "order", "matrix", "attempts"])
def test_what_the_lowest_tier_needs_must_have_been_looked_at(name: str) -> None:
    assert tier({"head": State.INTACT, name: State.NOT_CHECKED}) is Tier.NONE
    made = [Check(name=other, title="") for other in [*NAMES, "head"] if other != name]
    assert tier_of(Checks(made)) is Tier.NONE


@pytest.mark.parametrize("name", ["ledger", "closing", "matrix", "attempts"])
def test_what_is_incomplete_there_is_not_chained(name: str) -> None:
    assert tier({"head": State.INTACT, name: State.INCOMPLETE}) is Tier.SELF_CONSISTENT


def test_a_reported_verdict_that_does_not_come_again_leaves_no_more_than_self_consistent() -> None:
    checks = [Check(name=name, title="") for name in (*NAMES, "head", "signature")]
    assert tier_of(Checks(checks), is_underived=True) is Tier.SELF_CONSISTENT
    assert tier_of(Checks(checks), is_underived=False) is Tier.ANCHORED
    assert tier_of(Checks(), is_underived=True) is Tier.NONE


def test_a_closing_that_was_not_looked_at_is_not_chained() -> None:
    assert tier({"head": State.INTACT, "closing": State.NOT_CHECKED}) is Tier.SELF_CONSISTENT


def test_without_any_check_there_is_no_tier() -> None:
    assert tier_of(Checks()) is Tier.NONE
