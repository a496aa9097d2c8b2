"""A case whose sides take turns on the device: what the first one offers is recorded and waits for the second one.

Between two updates each side's state is parked on the host. It is loaded again by the side's next process, or by the
one process that runs both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

from ..common.plan import STATE, Numerical
from ..processes.steps import alone
from ..tensors.catalog import Catalog
from ..tensors.recording import RecordedSource, Recorder, Recording
from ..tensors.staging_files import MOST_HALF_BYTES, StageFile, choose_folder, half_bytes
from .case import Action, Compared, Done, Layouts, Load, Pass, Stint
from .comparison import Tally, compare
from .inputs_recorder import record_pass
from .partner import Partner, StateFile
from .referee import Referee
from .side_by_side import make_update, staging_file

Turn: TypeAlias = Callable[[str], AbstractContextManager[Partner]]
"""Gives a side the device: a process that has been built and warmed up, for as long as the context lasts."""
_PARKED = STATE["warm"]


class Turns:
    """Lets both sides do each stint, one after the other.

    Args:
        sides: The reference and the other one.
        turn: Gives a side the device.
        referee: Compares.
        rules: The rules.
        layouts: What has been offered so far.
        tally: Where the time goes.
        folder: A private folder for what is recorded.
        is_confined: Whether a side may see the private folders alone.
    """

    def __init__(
        self,
        sides: tuple[str, str],
        turn: Turn,
        referee: Referee,
        *,
        rules: Numerical,
        layouts: Layouts,
        tally: Tally,
        folder: Path,
        is_confined: bool,
    ) -> None:
        self._sides = sides
        self._turn = turn
        self._referee = referee
        self._rules = rules
        self._layouts = layouts
        self._tally = tally
        self._folder = folder
        self._is_confined = is_confined
        self._parked: dict[str, tuple[int, list[Recording]]] = {}
        self._count = 0

    def run(self, stint: Stint) -> Done:
        """Do a stint."""
        first, second = self._sides
        with self._turn(first) as partner, self._staged(1, partner, None) as file:
            losses = self._act(partner, first, stint, stint.actions[0])
            recorded = [self._record(partner, first, one, file) for one in stint.passes]
        # What the reference goes on from outlasts this stint.
        parked = self._park(first, stint, recorded)
        keep: list[Recording] | None = None if stint.step is None else []
        with (
            self._turn(second) as partner,
            self._staged(2, None, self._referee) as ours,
            self._staged(2, partner, self._referee, 1) as theirs,
        ):
            others = self._act(partner, second, stint, stint.actions[1])
            pairs = zip(stint.passes, recorded, strict=True)
            compared = [self._compare(partner, *pair, (ours, theirs), keep) for pair in pairs]
        self._park(second, stint, keep or [])
        for recording in recorded:
            if recording not in parked:
                recording.remove()
        return Done(losses=(losses, others), compared=tuple(compared))

    # --- states -------------------------------------------------------------------------------------------------------

    def _act(self, partner: Partner, side: str, stint: Stint, actions: Sequence[Action]) -> tuple[float, ...]:
        losses: tuple[float, ...] = ()
        if stint.resumes:
            step, recordings = self._parked[side]
            self._load(partner, Load(files=tuple(_files(recordings)), step=step))
        for action in actions:
            if isinstance(action, Load):
                self._load(partner, action)
            else:
                losses = make_update(partner, action, side, self._layouts, self._tally)
        return losses

    def _load(self, partner: Partner, action: Load) -> None:
        with self._tally.loading():
            alone(partner.load(action.files, action.step))

    def _park(self, side: str, stint: Stint, recordings: Sequence[Recording]) -> list[Recording]:
        """Keep what makes up the state that a side goes on from; return that."""
        for old in self._parked.pop(side, (0, []))[1]:
            old.remove()
        if stint.step is None:
            return []
        kept = [recording for recording in recordings if recording.what in _PARKED]
        self._parked[side] = (stint.step, kept)
        return kept

    # --- passes -------------------------------------------------------------------------------------------------------

    def _open(self, partner: Partner, side: str, one: Pass) -> Catalog:
        catalog = alone(partner.open(one.what))
        self._layouts.check(one.what, side, catalog)
        return catalog

    def _record(self, partner: Partner, side: str, one: Pass, file: StageFile) -> Recording:
        if one.isolate is not None:
            alone(partner.isolate(dict(one.isolate)))
        with self._tally.comparing(one):
            catalog = self._open(partner, side, one)
            return record_pass(partner, one.what, catalog, file, self._name(one.what))

    def _compare(
        self,
        partner: Partner,
        one: Pass,
        reference: Recording,
        files: tuple[StageFile, StageFile],
        keep: list[Recording] | None,
    ) -> Compared:
        """Compare what a side offers with what was recorded, which takes the place of the other side."""
        ours, theirs = files
        if one.isolate is not None:
            alone(partner.isolate(dict(one.isolate)))
        with self._tally.comparing(one), contextlib.closing(RecordedSource(reference, ours)) as source:
            catalog = self._open(partner, self._sides[1], one)
            with self._recording(one, catalog, theirs, keep) as recorder:
                compared = compare(
                    one,
                    catalog,
                    [source, partner],
                    referee=self._referee,
                    rules=self._rules,
                    half_bytes=ours.half_bytes,
                    tally=self._tally,
                    spool=None if recorder is None else recorder.spool,
                )
            source.finish()
            return compared

    @contextlib.contextmanager
    def _recording(
        self, one: Pass, catalog: Catalog, file: StageFile, keep: list[Recording] | None
    ) -> Iterator[Recorder | None]:
        """Record what is compared, where it is part of the state that the side goes on from."""
        if keep is None or one.what not in _PARKED:
            yield None
            return
        recorder = Recorder(catalog.tensors, file, self._name(one.what))
        try:
            yield recorder
            keep.append(Recording(what=one.what, catalog=catalog, files=tuple(recorder.finish())))
        except BaseException:
            recorder.abandon()
            raise

    def _staged(
        self, count: int, partner: Partner | None, referee: Referee | None, place: int = 0
    ) -> AbstractContextManager[StageFile]:
        """Create one of so many staging files."""
        size = half_bytes(self._layouts.parameters.num_bytes, MOST_HALF_BYTES)
        folder = choose_folder(2 * size * (count - place), self._folder, is_confined=self._is_confined)
        return staging_file(size, folder, partner, referee, place)

    def _name(self, what: str) -> Callable[[int], Path]:
        self._count += 1
        number = self._count
        return lambda worker: self._folder / f"{number}-{what}-worker{worker}.safetensors"


def _files(recordings: Sequence[Recording]) -> Iterator[StateFile]:
    for recording in recordings:
        for worker, file in recording.verified():
            yield recording.what, worker, file
