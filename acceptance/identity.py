"""identity.json: which snapshots and which manifest the evidence belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from acceptance.strictjson import Node, load

FILE = "identity.json"
_ID = re.compile(r"c[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The parsed document."""

    manifest_sha256: str
    baseline_sha256: str
    candidate: str
    candidate_sha256: str


def parse(data: bytes) -> Identity:
    """Parse the bytes of identity.json.

    Raises:
        DocumentError: They are not such a document.
    """
    names = ("format", "manifest_sha256", "baseline_sha256", "candidate", "candidate_sha256")
    fields = Node(file=FILE, path="", value=load(data, FILE)).fields(names)
    fields["format"].text(choices=("identity/1",))
    return Identity(
        manifest_sha256=fields["manifest_sha256"].digest(),
        baseline_sha256=fields["baseline_sha256"].digest(),
        candidate=_candidate(fields["candidate"]),
        candidate_sha256=fields["candidate_sha256"].digest(),
    )


def _candidate(node: Node) -> str:
    name = node.text()
    if _ID.fullmatch(name) is None:
        raise node.fail("not a candidate's id: c and 12 hex digits")
    return name


def slot_for(slot: str, candidate: str) -> str:
    """Return a protocol slot's name for one candidate: ``candidate/`` becomes its id."""
    head, _, rest = slot.partition("/")
    return f"{candidate}/{rest}" if head == "candidate" else slot
