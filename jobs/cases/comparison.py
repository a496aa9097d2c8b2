"""Comparing one pass of two sources, and keeping account of the time of a case."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..common.plan import Numerical
from ..tensors.catalog import Catalog
from ..tensors.lockstep import Source, Spool, plan_chunks, run_pass
from .case import Compared, Pass
from .referee import Referee

SIGNS = "updates"
"""The quantity whose signs are compared: of an update the sign says where it leads."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Where the time of a case went, on the parent's clock, and what passed."""

    load_s: float = 0.0
    train_s: float = 0.0
    compare_s: float = 0.0
    compared_bytes: int = 0

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Count time as that of loading a state."""
        began = time.monotonic()
        yield
        self.load_s += time.monotonic() - began

    @contextlib.contextmanager
    def comparing(self, one: Pass) -> Iterator[None]:
        """Count time as that of comparing; isolated checks are no part of it."""
        began = time.monotonic()
        yield
        if one.isolate is None:
            self.compare_s += time.monotonic() - began


def compare(
    one: Pass,
    catalog: Catalog,
    sources: Sequence[Source],
    *,
    referee: Referee,
    rules: Numerical,
    half_bytes: int,
    tally: Tally,
    spool: Spool | None = None,
) -> Compared:
    """Compare what two sources offer in the pass that is open.

    Args:
        one: What it is.
        catalog: What both offer.
        sources: The reference and the other one.
        referee: Compares.
        rules: The rules.
        half_bytes: Size of a half of the staging memory.
        tally: Counts the bytes.
        spool: Records what the other one offers.
    """
    chunks = list(plan_chunks(catalog.tensors, half_bytes))
    if one.isolate is not None:
        rtol, atol = rules.isolated_rtol, rules.isolated_atol
        ratios = run_pass(chunks, sources, lambda half, own: referee.ratio(half, own, rtol=rtol, atol=atol), spool)
        return catalog, {}, ratios
    signs = one.what == SIGNS
    sums = run_pass(chunks, sources, lambda half, own: referee.compare(half, own, signs=signs, roll=one.rolls), spool)
    tally.compared_bytes += 2 * catalog.num_bytes
    return catalog, sums, {}
