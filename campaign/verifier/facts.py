"""What the checks hand on to one another: what was found to be whole, under the names that the ledger gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from . import strict
from .digests import Digests

Json = Any
"""A parsed JSON value: the checks read documents field by field, through `strict.Node`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A signature of the head line, and who may have made it."""

    file: Path
    allowed_signers: Path
    """As ssh-keygen reads it: whose keys the reader trusts."""
    identity: str
    """Who must have signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for."""

    head: str = ""
    """The head line that was kept elsewhere, or its 64 hex digits; empty for none."""
    signature: Signature | None = None
    """A signature of the head line; None for none."""
    deep: bool = False
    """Whether installed distributions and declared data are looked at too, where they are within reach."""
    execute: bool = True
    """Whether the frozen acceptance may run."""
    python: str = ""
    """Interpreter for the acceptance; empty for the one that runs this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the ledger."""

    seq: int
    at: float
    act: str
    data: Mapping[str, Json]
    sha256: str
    """Digest of the line, without its newline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One frozen candidate."""

    id: str
    seq: int
    """The ledger's number of its freeze."""
    manifest: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One planned piece of evidence, under its name in this home."""

    slot: str
    """With the candidate's id where the protocol says ``candidate``."""
    side: str
    phase: str
    kind: str
    workload: str
    """Of a run and a recipe's pilot, the recipe's name."""
    repeat: int
    pair: int
    order: tuple[str, ...]
    candidate: str
    """The candidate's id; empty for a slot of the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One attempt, or one segment of an attempt at a run, that the ledger's intents name."""

    slot: str
    attempt: int
    segment: int
    """0 for everything but a run."""
    updates: int
    inputs_sha256: str
    examples_sha256: str
    resume: Mapping[str, Json] | None
    allocation: str
    intent: Entry
    """The first intent that names it."""

    @property
    def name(self) -> str:
        """Its name in the ledger: ``slot/attempt``, of a segment ``slot/attempt/segment``."""
        end = f"/{self.segment}" if self.segment else ""
        return f"{self.slot}/{self.attempt}{end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """What has a receipt, every sealed byte of it checked."""

    planned: Planned
    folder: str
    """Relative to the home."""
    start: Mapping[str, Json]
    receipt: Mapping[str, Json]
    receipt_sha256: str
    tables: Mapping[str, bytes]
    """The very bytes of the evidence tables, by file name."""


@dataclass(slots=True, kw_only=True)
class Facts:
    """All that is known so far. A check fills what is its own, and reads what the checks before it filled."""

    root: Path
    options: Options
    digests: Digests
    """What lies in the home, and the digest of each file."""
    withheld: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Files that an export left out, by path relative to the home: bytes and SHA-256."""
    manifest: Mapping[str, Json] = field(default_factory=dict)
    manifest_sha256: str = ""
    protocol: Mapping[str, Json] = field(default_factory=dict)
    protocol_sha256: str = ""
    candidates: dict[str, Candidate] = field(default_factory=dict)
    """By id, oldest first."""
    is_short: bool = False
    """Whether a manifest is there and cannot be read, so that nothing can be held to it."""
    entries: Sequence[Entry] = ()
    slots: dict[str, Slot] = field(default_factory=dict)
    """Every slot of the baseline and of every candidate, by name."""
    planned: dict[str, Planned] = field(default_factory=dict)
    """Everything that was ever intended, by name, in the ledger's order."""
    sealed: dict[str, Sealed] = field(default_factory=dict)
    """What has a receipt and was found whole, by name."""
    verdicts: dict[str, bytes] = field(default_factory=dict)
    """The verdict that the frozen acceptance gave again, by candidate; only where the evidence is intact."""
    underived: list[str] = field(default_factory=list)
    """The candidates whose reported verdict could not be derived again, although that was asked for."""
    memo: dict[str, Any] = field(default_factory=dict)
    """What a module derived from all this and keeps for the next check, by the module's name."""

    @classmethod
    def open(cls, root: Path, options: Options, withheld: Mapping[str, tuple[int, str]] | None = None) -> Self:
        """List a home, and know nothing else about it yet. Close `digests` at the end.

        Args:
            root: The home.
            options: What was asked for.
            withheld: See `Facts.withheld`.
        """
        known = dict(withheld or {})
        return cls(root=root, options=options, withheld=known, digests=Digests(str(root), known))

    def document(self, path: str) -> strict.Node:
        """Read a JSON document whose outermost value is an object.

        Args:
            path: Relative to the home.

        Raises:
            EvidenceError: It is not there, cannot be read, or is not strict JSON.
        """
        return strict.read(self.digests.read(path), path)
