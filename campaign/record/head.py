"""The head line: what a closed campaign is, in one line to keep elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from campaign.documents import Document, Entry, Natural
from campaign.record.ledger import closed_entry

HEAD = "campaign-head/1"


class Counts(Document):
    """How much there is."""

    slots: Natural
    """Of the baseline, and of each candidate."""
    attempts: Natural
    """Those that an intent names; a run's segments together are one."""
    receipts: Natural
    """A segment's is one."""
    allocations: Natural
    candidates: Natural
    files: Natural
    """Listed in seal.json."""


class Closed(Document):
    """Data of ``closed``."""

    seal_sha256: str
    manifest_sha256: str
    counts: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a closed campaign is, in one line."""

    campaign: str
    sha256: str
    """Of the ledger's line ``closed``."""
    entries: int
    """The number of that line."""
    counts: Counts

    @property
    def line(self) -> str:
        """The line to keep elsewhere."""
        counts = self.counts
        numbers = {name: getattr(counts, name) for name in ("slots", "attempts", "receipts", "candidates")}
        said = " ".join(f"{name}={value}" for name, value in {**numbers, "entries": self.entries}.items())
        return f"{HEAD} {self.campaign} {self.sha256} {said}"


def read_head(campaign: str, entries: Sequence[Entry], ledger_head: str) -> Head | None:
    """Return the head line of a campaign; None if it is not closed.

    Args:
        campaign: Its name.
        entries: Its ledger.
        ledger_head: Digest of the ledger's last line.

    Raises:
        EvidenceError: The act does not parse.
    """
    entry = closed_entry(entries)
    if entry is None:
        return None
    data = entry.parse_data(Closed)
    # Each line names the digest of the one before it.
    sha256 = entries[entry.seq].previous if entry.seq < len(entries) else ledger_head
    return Head(campaign=campaign, sha256=sha256, entries=entry.seq, counts=data.counts)
