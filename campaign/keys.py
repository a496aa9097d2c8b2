"""What names one try: an attempt at a slot, or one segment of an attempt at a run."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"[1-9][0-9]{0,8}"
_OF_RUN = re.compile(rf"(?P<slot>[^/]+/run/[^/]+/[^/]+)/(?P<attempt>{_NUMBER})/(?P<segment>{_NUMBER})")
_OF_OTHER = re.compile(rf"(?P<slot>[^/]+/(?!run/)[^/]+/.+)/(?P<attempt>{_NUMBER})")


@dataclass(frozen=True, slots=True, order=True)
class AttemptKey:
    """One try: it has one entry in one allocation, one folder and at most one receipt."""

    slot: str
    """Its name, with the candidate's id."""
    attempt: int
    segment: int = 0
    """Of an attempt at a run, numbered from 1; 0 for everything else."""

    @property
    def receipt_name(self) -> str:
        """``SLOT/ATTEMPT`` or, of a segment, ``SLOT/ATTEMPT/SEGMENT``: its name in ended.json and in the ledger."""
        name = f"{self.slot}/{self.attempt}"
        return f"{name}/{self.segment}" if self.segment else name

    @property
    def text(self) -> str:
        """The same for a person."""
        return f"{self.slot} attempt {self.attempt}" + (f" segment {self.segment}" if self.segment else "")

    @classmethod
    def parse(cls, name: str) -> AttemptKey:
        """Parse the name of a receipt: of a run's, and of no other's, the last number is a segment.

        Raises:
            ValueError: It is not such a name.
        """
        found = _OF_RUN.fullmatch(name) or _OF_OTHER.fullmatch(name)
        if found is None:
            raise ValueError(f"not the name of a receipt: {name!r}")
        numbers = found.groupdict()
        return cls(numbers["slot"], int(numbers["attempt"]), int(numbers.get("segment", 0)))
