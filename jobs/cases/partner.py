"""A side of a case, as the parent holds it: loads a state, makes an update, offers its tensors piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.endings import EndedError, Ending
from ..common.strict import Fields
from ..common.verified import VerifiedFile
from ..measurement.session import Session
from ..processes.channel import Answer
from ..processes.steps import Step
from ..tensors.catalog import Catalog, read_catalog
from ..tensors.lockstep import Chunk

HOST, DEVICE = "host", "device"
StateFile = tuple[str, int, VerifiedFile]
"""Quantity, worker and file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A local update that was made."""

    losses: tuple[float, ...]
    """By worker; not all of them need be finite."""
    seconds: float
    """On the parent's clock."""


def _nothing(_fields: Fields, _answer: Answer) -> None:
    return None


class Partner:
    """What a case asks of a side.

    Args:
        session: The running side.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def side(self) -> str:
        """Its name."""
        return self.session.record.side

    def prepare(self) -> Step[Catalog]:
        """Import, build, warm up; return the parameters that there are then."""
        yield from self.session.start()
        yield from self.session.build()
        numerical = self.session.setting.protocol.numerical
        offers = self.session.record.offers
        needed = () if numerical is None else numerical.needed_methods(self.side)
        # Batches have been recorded.
        self.session.refuse_missing([name for name in needed if name not in offers and name != "batch"])
        yield from self.session.warm_up(is_timed=False)
        return (yield from self.open("parameters"))

    def stage(self, path: Path, half_bytes: int, transport: str) -> Step[dict[str, Any] | None]:
        """Let it map the staging file, or allocate device memory of that size; return the handle of the latter."""
        command = {"do": "stage", "path": str(path), "half_bytes": half_bytes, "transport": transport}
        return (yield from self.session.ask(command, "staging", _read_handle))

    def open(self, what: str) -> Step[Catalog]:
        """Begin a pass; return what it will offer."""
        return (yield from self.session.ask({"do": "open", "what": what}, what, lambda fields, _: read_catalog(fields)))

    def fill(self, half: int, pieces: Chunk) -> Step[None]:
        """Fill a half."""
        command = {"do": "fill", "half": half, "pieces": [piece.fill() for piece in pieces]}
        return (yield from self.session.ask(command, "offering tensors", _nothing))

    def load(self, files: Sequence[StateFile], step: int) -> Step[None]:
        """Load a state in place; it has been verified when the step has ended."""
        shown = [[quantity, worker, *self._untouched(file)] for quantity, worker, file in files]
        command = {"do": "load", "files": shown, "step": step}
        return (yield from self.session.ask(command, "loading the state", _nothing))

    def update(self, batch: VerifiedFile, what: str) -> Step[Update]:
        """Make one local update.

        Args:
            batch: The batch.
            what: Which update, for the reason of an ending.
        """
        path, identity = self._untouched(batch)
        command = {"do": "update", "path": path, "identity": identity}
        return (yield from self.session.ask(command, what, _read_update))

    def _untouched(self, file: VerifiedFile) -> tuple[str, list[int] | None]:
        """Return the path of a file, and the identity of what the side shall find there.

        Raises:
            EndedError: It is not the file that was verified.
        """
        if touch := file.find_touch():
            raise EndedError(Ending.INTERFERENCE, f"while the sides ran, {touch}")
        # A container may see the same file under other numbers.
        is_confined = bool(self.session.setting.runnable.launch)
        return str(file.path), None if is_confined else list(file.identity)

    def isolate(self, command: dict[str, Any]) -> Step[None]:
        """Run an isolated check, whose results are then offered."""
        return (yield from self.session.ask({"do": "isolate", **command}, f"isolated {command['check']}", _nothing))

    def forget(self) -> Step[None]:
        """Let it drop iterators, copies and staging memory."""
        return (yield from self.session.ask({"do": "forget"}, "letting go", _nothing))

    def leave(self) -> Step[None]:
        """Take down its execution path, look where its code came from, and let it end."""
        yield from self.session.result()
        yield from self.session.leave()


def _read_handle(fields: Fields, _answer: Answer) -> dict[str, Any] | None:
    handle: dict[str, Any] | None = fields.optional("handle", dict)
    return handle


def _read_update(fields: Fields, answer: Answer) -> Update:
    losses = tuple(float(text) for text in fields.texts("losses"))
    fields.number("seconds")
    return Update(losses=losses, seconds=answer.seconds)
