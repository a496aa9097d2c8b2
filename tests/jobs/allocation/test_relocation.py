"""An allocation that was planned for the driver's home, as it is made where a bundle lies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.allocation.relocation import Place
from jobs.common.layout import candidate_manifest_path
from jobs.common.plan import Allocation, DataIdentity, Runnable
from jobs.common.storage import sha256_bytes

HOME = Path("/driver/home")
CANDIDATE = "c0123456789ab"


def make_side(identity: str, folder: str, environment: dict[str, str]) -> Runnable:
    return Runnable(
        id=identity,
        tree=HOME / folder / "tree",
        files=HOME / folder / "files.json",
        snapshot_sha256="b" * 64,
        python="/driver/python",
        adapter="adapter:build",
        python_path=(".",),
        environment=environment,
        pass_environment=(),
        launch=(),
        reads=(),
    )


def make_place(root: Path, **raw: str) -> tuple[Place, Allocation]:
    """Return a bundle's place and an allocation of both sides, whose variables are frozen as given."""
    data = {
        name: DataIdentity(path=Path(path), sha256="d" * 64, num_bytes=1, num_files=1)
        for name, path in (("plays", "/driver/plays"), ("more", "/driver/plays2"))
    }
    expanded = {
        key: value.replace("${data.plays}", "/driver/plays").replace("${data.more}", "/driver/plays2")
        for key, value in raw.items()
    }
    manifest = json.dumps({"baseline": {"environment": raw, "other": 1}, "more": 2}).encode()
    (root / "manifest.json").write_bytes(manifest)
    own = root / "frozen" / "candidates" / CANDIDATE
    own.mkdir(parents=True)
    (own / "manifest.json").write_text(json.dumps({"candidate": {"environment": raw}}))
    allocation = Allocation(
        id="a00001",
        home=HOME,
        manifest_sha256=sha256_bytes(manifest),
        protocol_sha256="e" * 64,
        harness_sha256="f" * 64,
        sides={
            "baseline": make_side("baseline", "frozen/baseline", expanded),
            "candidate": make_side(CANDIDATE, f"frozen/candidates/{CANDIDATE}", expanded),
        },
        data=data,
        attempts=(),
    )
    python = {"harness": "/here/h", "baseline": "/here/b", "candidate": "/here/c"}
    return Place(home=root, python=python, data={"plays": "/here/plays", "more": "/there"}), allocation


def test_home_interpreters_data_and_variables_are_those_of_the_machine(tmp_path: Path) -> None:
    place, allocation = make_place(
        tmp_path, PLAYS="${data.plays}/x", BOTH="${data.more}:${data.plays}", FIX="/driver/plays"
    )
    moved = place.relocate(allocation)
    assert moved.home == tmp_path
    assert {name: side.python for name, side in moved.sides.items()} == {"baseline": "/here/b", "candidate": "/here/c"}
    assert moved.sides["candidate"].tree == tmp_path / "frozen" / "candidates" / CANDIDATE / "tree"
    assert moved.sides["baseline"].files == tmp_path / "frozen" / "baseline" / "files.json"
    for side in moved.sides.values():
        # What was frozen as a plain text stays, even where it looks like a data set's place.
        assert side.environment == {"PLAYS": "/here/plays/x", "BOTH": "/there:/here/plays", "FIX": "/driver/plays"}
    assert {name: str(one.path) for name, one in moved.data.items()} == {"plays": "/here/plays", "more": "/there"}
    assert {name: one.sha256 for name, one in moved.data.items()} == {"plays": "d" * 64, "more": "d" * 64}
    same = replace(moved, home=allocation.home, sides=allocation.sides, data=allocation.data)
    assert same == allocation


@pytest.mark.parametrize("name", ["baseline", "candidate"])
def test_variables_that_are_not_those_that_were_frozen_are_refused(tmp_path: Path, name: str) -> None:
    place, allocation = make_place(tmp_path, PLAYS="${data.plays}")
    side = replace(allocation.sides[name], environment={"PLAYS": "/driver/other"})
    with pytest.raises(ValueError, match="are not those that were frozen"):
        place.relocate(replace(allocation, sides={**allocation.sides, name: side}))


def test_a_candidates_variables_are_those_of_its_own_manifest(tmp_path: Path) -> None:
    place, allocation = make_place(tmp_path, PLAYS="${data.plays}")
    path = candidate_manifest_path(tmp_path, CANDIDATE)
    path.write_text(json.dumps({"candidate": {"environment": {"PLAYS": "${data.more}"}}}))
    with pytest.raises(ValueError, match=f"the variables of {CANDIDATE} are not those that were frozen"):
        place.relocate(allocation)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/x", "x/y"])
def test_what_is_no_id_leads_to_no_manifest(name: str) -> None:
    with pytest.raises(ValueError, match="not the id of a candidate"):
        candidate_manifest_path(HOME, name)


def test_another_manifest_is_refused(tmp_path: Path) -> None:
    place, allocation = make_place(tmp_path)
    with pytest.raises(ValueError, match=r"manifest\.json: its SHA-256 is"):
        place.relocate(replace(allocation, manifest_sha256="0" * 64))


def test_what_was_not_said_is_refused(tmp_path: Path) -> None:
    place, allocation = make_place(tmp_path)
    with pytest.raises(ValueError, match="which interpreter candidate has was not said"):
        replace(place, python={"harness": "/h", "baseline": "/b"}).relocate(allocation)
    with pytest.raises(ValueError, match="where the data set more is was not said"):
        replace(place, data={"plays": "/p"}).relocate(allocation)


def test_a_tree_outside_of_the_home_is_refused(tmp_path: Path) -> None:
    place, allocation = make_place(tmp_path)
    side = replace(allocation.sides["baseline"], tree=Path("/elsewhere/tree"))
    with pytest.raises(ValueError, match="is not in the subpath"):
        place.relocate(replace(allocation, sides={"baseline": side}))
