"""The faulty variants of the example, each with a workload that shows it and the checks that catch it there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "tinylm_broken"
PACKED: dict[str, Any] = {"mode": "packed", "workers": 4}
REMAINDER: dict[str, Any] = {"accumulation": 4, "epoch": 6}


LOCAL = frozenset({"loss", "gradients", "parameters", "updates"})
"""The gates of matched local updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One variant.

    Attributes:
        name: In broken.py.
        entries: What the workload's configuration has beside COMMON.
        gates: Those of the default protocol that it misses.
        unseen: Those that do not see it.
        flags: Quantities of which single tensors are flagged.
    """

    name: str
    entries: dict[str, Any] = field(default_factory=dict)
    gates: frozenset[str]
    unseen: frozenset[str]
    flags: frozenset[str] = frozenset()


COMMON: dict[str, Any] = {"size": "tiny", "batch": 2, "context": 64, "warmup": 20, "updates_total": 1000}
_GRADIENTS = frozenset({"gradients", "exp_avg", "exp_avg_sq"})
_UPDATES = _GRADIENTS | {"updates"}
_ISOLATED = frozenset({"optimizer", "consensus"})

FAULTS = (
    # Adam hardly sees the scale of a gradient, so that the updates stay within their gate.
    Fault(
        name="clip_over_stack",
        entries={**PACKED, "clip": 0.05},
        gates=frozenset({"gradients"}),
        unseen=frozenset({"loss", "parameters", "updates"}) | _ISOLATED,
        flags=_GRADIENTS,
    ),
    # A tenth of a percent of the parameters, and they move by a little.
    Fault(name="decay_on_gains", entries=PACKED, gates=frozenset({"optimizer"}), unseen=LOCAL | {"consensus"}),
    # Matched updates are local: only a round of consensus alone can show it.
    Fault(name="moments_mixed", entries=PACKED, gates=frozenset({"consensus"}), unseen=LOCAL | {"optimizer"}),
    # Second moments and their bias correction go astray together.
    Fault(name="beta2_rounded", gates=frozenset({"optimizer"}), unseen=LOCAL),
    Fault(name="stale_batch", gates=frozenset({"loss", "gradients", "updates"}), unseen=_ISOLATED, flags=_UPDATES),
    Fault(
        name="wrong_remainder",
        entries={**REMAINDER, "clip": 0},
        gates=frozenset({"loss", "gradients", "updates"}),
        unseen=_ISOLATED | {"parameters"},
        flags=_GRADIENTS,
    ),
    Fault(
        name="mean_of_means",
        entries={**PACKED, "accumulation": 4, "targets": "speech", "batch": 1, "context": 32, "clip": 0},
        gates=frozenset({"gradients", "updates"}),
        unseen=_ISOLATED | {"parameters"},
        flags=_GRADIENTS,
    ),
    Fault(
        name="schedule_per_microbatch",
        entries={"accumulation": 4},
        gates=frozenset({"gradients", "parameters", "updates"}),
        unseen=_ISOLATED,
        flags=_UPDATES | {"parameters"},
    ),
    Fault(
        name="clip_on_scaled",
        entries={"loss_scale": 1024.0},
        gates=frozenset({"gradients", "updates"}),
        unseen=_ISOLATED | {"loss", "parameters"},
        flags=_UPDATES,
    ),
    Fault(
        name="scale_inside_accumulation",
        entries={"loss_scale": 1024.0, "scale_growth": 2, "accumulation": 4, "clip": 0},
        gates=frozenset({"gradients", "updates"}),
        unseen=_ISOLATED | {"loss", "parameters"},
        flags=_GRADIENTS,
    ),
    Fault(
        name="negated",
        gates=frozenset({"loss", "gradients", "parameters", "updates", "optimizer"}),
        unseen=frozenset(),
        flags=_UPDATES | {"parameters"},
    ),
    Fault(
        name="skipped",
        gates=frozenset({"gradients", "updates", "optimizer"}),
        unseen=frozenset({"parameters"}),
        flags=_UPDATES,
    ),
)


def workload_of(fault: Fault) -> str:
    """The name of the workload that shows a fault: that of the first fault with the same configuration."""
    return next(first.name for first in FAULTS if first.entries == fault.entries)
