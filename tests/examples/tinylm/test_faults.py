"""Trainers with one fault each: which check of the default protocol catches it, and that the right trainer passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import adapter
from tests.support.tinylm_faults import COMMON, FAULTS, Fault

from .comparing import caught_by, compare_case, compare_isolated
from .conftest import LoadVariants


@pytest.fixture
def broken(load_variants: LoadVariants) -> Any:
    """The variants, for the time of a test."""
    return load_variants("broken")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_the_checks_that_are_said_to_and_the_right_trainer_by_none(
    fault: Fault, broken: Any, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYLM_DATA", str(script))
    config = {**COMMON, **fault.entries}
    caught = []
    for make in (adapter.fast, getattr(broken, fault.name)):
        sides = [side(config, seed=1, device="cpu") for side in (adapter.native, make)]
        caught.append(caught_by(compare_case(*sides) + compare_isolated(*sides)))
    assert caught[0] == set()
    assert fault.gates <= caught[1]
    assert not fault.unseen & caught[1]
    assert {f"{quantity}/tensor" for quantity in fault.flags} <= caught[1]


def test_every_variant_is_in_the_table(broken: Any) -> None:
    assert set(broken.FAULTS) == {fault.name for fault in FAULTS}
