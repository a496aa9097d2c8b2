"""The synthetic home on which the cost of a verification is measured is one in which everything is right."""

from __future__ import annotations

from pathlib import Path

from campaign.verifier.facts import Options
from campaign.verifier.findings import State
from campaign.verifier.tier import Tier
from campaign.verifier.verify import verifying
from tests.support.large import build_large


def test_a_home_of_any_size_lacks_nothing_but_its_report_and_its_closing(tmp_path: Path) -> None:
    home = build_large(tmp_path / "home", 9)
    with verifying(home.paths.root, Options()) as verification:
        assert [one for one in verification.checks.findings if one.state is State.TAMPERED] == []
        assert verification.tier is Tier.SELF_CONSISTENT
        assert len(verification.facts.sealed) == 16
