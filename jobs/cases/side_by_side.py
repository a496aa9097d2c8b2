"""A case whose sides are alive at the same time: each stint in lock-step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.endings import EndedError, Ending
from ..common.plan import Numerical
from ..processes.steps import alone, together
from ..tensors.staging_files import MOST_DEVICE_HALF_BYTES, MOST_HALF_BYTES, StageFile, half_bytes
from .case import Compared, Done, Layouts, Load, Make, Pass, Stint
from .comparison import Tally, compare
from .partner import DEVICE, HOST, Partner
from .referee import Referee


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """How tensors pass from the sides to the comparer."""

    is_device: bool
    half_bytes: int
    reason: str = ""
    """Why it is not device memory where the sides are on a device."""


@contextlib.contextmanager
def staged(
    partners: Sequence[Partner],
    referee: Referee,
    num_bytes: int,
    choose: Callable[[int], Path],
    *,
    wants_device: bool,
) -> Iterator[Transport]:
    """Set up the staging memory of both sides; it goes when the context is left.

    Args:
        partners: Both sides.
        referee: The comparer.
        num_bytes: What one quantity has.
        choose: Returns where files of so many bytes go.
        wants_device: Whether to try device memory first.
    """
    reason = ""
    if wants_device:
        size = half_bytes(num_bytes, MOST_DEVICE_HALF_BYTES)
        reason = _try_device(partners, referee, size)
        if not reason:
            yield Transport(is_device=True, half_bytes=size)
            return
    size = half_bytes(num_bytes, MOST_HALF_BYTES)
    folder = choose(2 * size * len(partners))
    with contextlib.ExitStack() as stack:
        # One by one, so that a file of one side has no name any more when the other side has one.
        for place, partner in enumerate(partners):
            stack.enter_context(staging_file(size, folder, partner, referee, place))
        yield Transport(is_device=False, half_bytes=size, reason=reason)


@contextlib.contextmanager
def staging_file(
    size: int, folder: Path, partner: Partner | None, referee: Referee | None, place: int = 0
) -> Iterator[StageFile]:
    """Create a staging file, whose name goes as soon as it is mapped; it goes itself when the context is left.

    Args:
        size: Of a half, in bytes.
        folder: Where.
        partner: The side that maps it, if one does.
        referee: The comparer that maps it, if it does.
        place: Whose it is for the comparer: 0 is the reference, 1 what is compared with it.
    """
    file = StageFile.create(size, folder)
    with contextlib.closing(file):
        if referee is not None:
            source = {"kind": "host", "path": str(file.path), "half_bytes": size}
            alone(referee.stage([source], is_further=place > 0))
        if partner is not None:
            alone(partner.stage(file.path, size, HOST))
        file.forget_name()
        yield file


def _try_device(partners: Sequence[Partner], referee: Referee, size: int) -> str:
    """Set up staging in device memory; return why that cannot be, in a line."""
    sources: list[dict[str, Any]] = []
    try:
        # One by one: of two that were asked, the second one's answer would be left over if the first one's is an error.
        for partner in partners:
            handle = alone(partner.stage(Path(), size, DEVICE))
            sources.append({"kind": "device", "handle": handle, "half_bytes": size})
        alone(referee.stage(sources))
    except EndedError as error:
        if error.ending not in (Ending.CRASH, Ending.HARNESS_ERROR):
            raise
        return error.reason.strip().splitlines()[-1][:500]
    return ""


def make_update(partner: Partner, action: Make, side: str, layouts: Layouts, tally: Tally) -> tuple[float, ...]:
    """Let a side make an update; return its losses by worker."""
    done = alone(partner.update(action.batch, action.what))
    tally.train_s += done.seconds
    layouts.check_losses(side, done.losses, action.what)
    return done.losses


class SideBySide:
    """Lets both sides do each stint in lock-step.

    Args:
        partners: The reference and the other one.
        referee: Compares.
        rules: The rules.
        layouts: What has been offered so far.
        tally: Where the time goes.
        transport: How tensors pass.
    """

    def __init__(
        self,
        partners: tuple[Partner, Partner],
        referee: Referee,
        *,
        rules: Numerical,
        layouts: Layouts,
        tally: Tally,
        transport: Transport,
    ) -> None:
        self._partners = partners
        self._referee = referee
        self._rules = rules
        self._layouts = layouts
        self._tally = tally
        self._transport = transport

    def run(self, stint: Stint) -> Done:
        """Do a stint."""
        losses: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
        for actions in zip(*stint.actions, strict=True):
            match actions:
                case (Load() as first, Load() as second):
                    one, other = self._partners
                    with self._tally.loading():
                        together(one.load(first.files, first.step), other.load(second.files, second.step))
                case (Make() as first, Make() as second):
                    losses = (self._make(0, first), self._make(1, second))
                case _:
                    raise ValueError(f"the sides cannot do {actions} in lock-step")
        return Done(losses=losses, compared=tuple(self._compare(one) for one in stint.passes))

    def _make(self, place: int, action: Make) -> tuple[float, ...]:
        partner = self._partners[place]
        return make_update(partner, action, partner.side, self._layouts, self._tally)

    def _compare(self, one: Pass) -> Compared:
        if one.isolate is not None:
            together(*(partner.isolate(dict(one.isolate)) for partner in self._partners))
        with self._tally.comparing(one):
            catalogs = together(*(partner.open(one.what) for partner in self._partners))
            for partner, catalog in zip(self._partners, catalogs, strict=True):
                self._layouts.check(one.what, partner.side, catalog)
            return compare(
                one,
                catalogs[0],
                self._partners,
                referee=self._referee,
                rules=self._rules,
                half_bytes=self._transport.half_bytes,
                tally=self._tally,
            )
