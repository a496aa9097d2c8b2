"""Every side ran in the image that was frozen for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign import documents
from campaign.collection.collect import collect
from campaign.collection.containers import check_containers
from campaign.collection.interpreters import Sealed
from campaign.frozen import read_frozen
from campaign.record.ledger import Ledger
from tests.support.home import AT, CANDIDATE, Home, freeze, freeze_candidate

SLOT = "candidate/pair/sync-b4/r1"
IMAGE = documents.Container(path="/images/one.sif", bytes=1, sha256="1" * 64)
OTHER = "2" * 64


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = freeze(tmp_path / "home", repeats=1, solo=False)
    freeze_candidate(made)
    made.attempt(made.slot(SLOT))
    return made


def found(home: Home, *, frozen: dict[str, documents.Container], ran: dict[str, str]) -> list[str]:
    """Return the findings where sides were frozen with images, and ran in others."""
    receipt = documents.Receipt.read(home.folder(SLOT).receipt)
    sides = tuple(side.replace(container_sha256=ran.get(side.side, "")) for side in receipt.sides)
    sealed = Sealed(where="r", owner=CANDIDATE, allocation=receipt.allocation, receipt=receipt.replace(sides=sides))
    documents_of = read_frozen(home.paths)
    known = {"baseline": documents_of.manifest.baseline, CANDIDATE: documents_of.candidates[CANDIDATE].candidate}
    return [one.what for one in check_containers([sealed], {
        name: side.replace(container=frozen.get(name)) for name, side in known.items()
    })]  # fmt: skip


def test_sides_without_and_with_images_ran_as_they_were_frozen(home: Home) -> None:
    assert found(home, frozen={}, ran={}) == []
    assert found(home, frozen={CANDIDATE: IMAGE}, ran={"candidate": IMAGE.sha256}) == []
    both = {"baseline": IMAGE, CANDIDATE: IMAGE}
    assert found(home, frozen=both, ran=dict.fromkeys(("baseline", "candidate"), IMAGE.sha256)) == []


def test_another_image_none_and_one_that_nobody_froze_are_found(home: Home) -> None:
    (other,) = found(home, frozen={CANDIDATE: IMAGE}, ran={"candidate": OTHER})
    assert other == f"candidate ran in the container {OTHER}, frozen is the container {IMAGE.sha256}"
    (none,) = found(home, frozen={"baseline": IMAGE}, ran={})
    assert none == f"baseline ran in no container, frozen is the container {IMAGE.sha256}"
    (unknown,) = found(home, frozen={}, ran={"baseline": OTHER})
    assert unknown.endswith("frozen is no container")


def test_a_collection_looks_at_every_receipt(home: Home) -> None:
    path = home.folder(SLOT).receipt
    receipt = documents.Receipt.read(path)
    sides = tuple(side.replace(container_sha256=OTHER) for side in receipt.sides)
    path.write_bytes(receipt.replace(sides=sides).to_bytes())
    with Ledger.open(home.paths, lambda: AT) as ledger:
        findings = collect(home.paths, ledger).findings
    assert sorted(one.what for one in findings if "container" in one.what) == [
        f"{side} ran in the container {OTHER}, frozen is no container" for side in ("baseline", "candidate")
    ]
