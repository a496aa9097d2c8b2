"""Whether every attempt of a side ran in the image that was frozen for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from campaign import documents
from campaign.collection.interpreters import Sealed
from campaign.collection.sealed import Finding


def check_containers(sealed: Iterable[Sealed], frozen: Mapping[str, documents.Side]) -> Iterator[Finding]:
    """Yield a finding for every side of a receipt that did not run in its image, or in one where none was frozen.

    Args:
        sealed: All receipts.
        frozen: The frozen sides, ``baseline`` and the candidates by their ids.
    """
    for one in sealed:
        for side in one.receipt.sides:
            owner = one.owner if side.side == "candidate" else "baseline"
            container = frozen[owner].container
            expected = container.sha256 if container is not None else ""
            if side.container_sha256 != expected:
                what = f"{side.side} ran in {_shown(side.container_sha256)}, frozen is {_shown(expected)}"
                yield Finding(where=one.where, what=what)


def _shown(sha256: str) -> str:
    return f"the container {sha256}" if sha256 else "no container"
