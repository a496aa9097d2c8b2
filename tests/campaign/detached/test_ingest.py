"""What comes back of a bundle enters its home whole and checked, or not at all."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.collection.collect import collect
from campaign.detached import results, run
from campaign.detached.ingest import abandon, ingest
from campaign.errors import CampaignError, EvidenceError, InfrastructureError, StateError
from campaign.frozen import read_frozen
from campaign.record.ledger import Ledger, read_entries
from campaign.submission import acts
from campaign.submission.desk import Desk, open_desk
from campaign.verifier import attempts, bundles, matrix
from campaign.verifier import runs as verified_runs
from campaign.watching.state import AttemptState, SlotState
from tests.support import training
from tests.support.bundles import PLACE, Handmade, edit, write_bundle, write_pilots
from tests.support.home import SMALL, Home, freeze
from tests.support.verifying import make_checks, tampered


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing wait for the disk: what a loss of power leaves is not tried here."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with a frozen baseline and nothing else."""
    return freeze(tmp_path / "home", numerical=documents.NumericalRules())


@pytest.fixture
def pilots(home: Home, tmp_path: Path) -> Handmade:
    """A bundle with two pilots in one allocation and a third in another."""
    return write_pilots(home, tmp_path / "bundle")


def desk(home: Home) -> Desk:
    """Return the desk of a home."""
    return open_desk(home.paths, read_frozen(home.paths), time.time)


def states(home: Home) -> dict[str, SlotState]:
    """Return the states of the pilots by workload."""
    view = desk(home).view("")
    return {one.slot.workload: one.state for one in view.slots.values() if one.slot.kind == "pilot"}


def gathered(home: Home) -> list[str]:
    """Return what a collection finds wrong."""
    with Ledger.open(home.paths, time.time) as ledger:
        return [str(one) for one in collect(home.paths, ledger).findings]


def contents(root: Path) -> dict[str, bytes]:
    """Return every file below a folder, the lock left out."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "ledger.lock"
    }


def refused(home: Home, path: Path, error: type[CampaignError] = EvidenceError) -> str:
    """Return why something is not ingested, after seeing that nothing changed."""
    before = contents(home.paths.root)
    with pytest.raises(error) as caught:
        ingest(desk(home), path)
    assert contents(home.paths.root) == before
    assert not home.paths.incoming.exists()
    return "\n".join(caught.value.lines())


def last_acts(home: Home) -> list[str]:
    """Return the names of the acts."""
    return [entry.act for entry in read_entries(home.paths)]


# --- what is right ----------------------------------------------------------------------------------------------------


def test_a_bundle_is_away_until_its_results_are_ingested(home: Home, pilots: Handmade) -> None:
    assert set(states(home).values()) == {SlotState.AWAY}
    (reason,) = {one.reason for one in desk(home).view("").attempts.values()}
    assert pilots.id in reason
    assert f"login1:{PLACE}" in reason
    pilots.call("a0001")
    assert set(states(home).values()) == {SlotState.AWAY}
    told = ingest(desk(home), pilots.paths.root)
    assert len(told.receipts) == 2
    assert told.away == ("baseline/pilot/prod-b16/1",)
    found = states(home)
    assert found.pop("prod-b16") is SlotState.AWAY
    assert set(found.values()) == {SlotState.COMPLETED}
    assert gathered(home) == []


def test_results_of_two_calls_are_ingested_one_after_the_other(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001", make=[0], is_last=False)
    first = ingest(desk(home), pilots.paths.root)
    assert (len(first.receipts), len(first.away)) == (1, 2)
    pilots.call("a0001", make=[1])
    pilots.call("a0002")
    second = ingest(desk(home), pilots.paths.root)
    assert (len(second.receipts), second.is_complete) == (2, True)
    log = home.paths.allocation("a0001").log.read_bytes()
    assert log == b"call 1\ncall 2\n"
    act = acts.fold(read_entries(home.paths)).ingested[pilots.key]
    assert act.complete
    assert len(act.receipts) == 3
    assert sorted(act.records) == [
        *(f"allocations/a0001/{name}" for name in ("calls/1.ended.json", "calls/1.json", "calls/2.ended.json")),
        *(f"allocations/a0001/{name}" for name in ("calls/2.json", "ended.json", "started.json")),
        *(f"allocations/a0002/{name}" for name in ("calls/1.ended.json", "calls/1.json", "ended.json", "started.json")),
    ]
    assert gathered(home) == []


def test_the_same_results_are_ingested_twice_without_any_change(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    ingest(desk(home), pilots.paths.root)
    before = contents(home.paths.root)
    again = ingest(desk(home), pilots.paths.root)
    assert (again.num_new, again.receipts) == (0, ())
    assert contents(home.paths.root) == before


def test_an_older_copy_of_the_results_changes_nothing(home: Home, pilots: Handmade, tmp_path: Path) -> None:
    pilots.call("a0001", make=[0], is_last=False)
    old = pilots.pack(tmp_path / "old.tar")
    pilots.call("a0001", make=[1])
    ingest(desk(home), pilots.paths.root)
    before = contents(home.paths.root)
    assert ingest(desk(home), old).num_new == 0
    assert contents(home.paths.root) == before


def test_an_archive_gives_the_same_home_as_the_folder_that_it_was_packed_from(
    home: Home, pilots: Handmade, tmp_path: Path
) -> None:
    pilots.call("a0001")
    shutil.copytree(home.paths.root, tmp_path / "twin")
    archive = pilots.pack(tmp_path / "results.tar")
    ingest(desk(home), pilots.paths.root)
    twin = Home(paths=type(home.paths)(tmp_path / "twin"), protocol=home.protocol)
    ingest(desk(twin), archive)
    ours, theirs = contents(home.paths.root), contents(twin.paths.root)
    del ours["ledger.jsonl"], theirs["ledger.jsonl"]
    assert ours == theirs
    (one,) = acts.fold(read_entries(home.paths)).ingested.values()
    (other,) = acts.fold(read_entries(twin.paths)).ingested.values()
    assert one == other


def test_what_was_begun_and_left_no_receipt_is_lost(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001", make=[], begin=[0], is_killed=True)
    told = ingest(desk(home), pilots.paths.root)
    assert told.lost == ("baseline/pilot/sync-b4/1",)
    assert states(home)["sync-b4"] is SlotState.RETRYABLE
    assert states(home)["packed-b4"] is SlotState.AWAY
    (ended,) = [entry for entry in read_entries(home.paths) if entry.act == "ended"]
    assert (ended.data["ending"], ended.data["source"]) == ("lost", "bundle")
    assert gathered(home) == []


def copy_while_it_runs(pilots: Handmade, target: Path) -> Path:
    """Return a copy in which the second pilot is at work; the bundle itself has what became of it."""
    pilots.call("a0001", make=[0], begin=[1], is_killed=True)
    shutil.copytree(pilots.paths.root, target)
    shutil.rmtree(pilots.there().folder(pilots.slots["a0001"][1].slot, 1).root)
    # The same call, which was at work still.
    pilots.calls.clear()
    pilots.call("a0001", make=[1])
    edit(pilots.paths.home.allocation("a0001").call_ended(1), {"receipts": pilots.receipts["a0001"]})
    return target


def test_what_a_copy_caught_while_it_ran_gives_way_to_what_became_of_it(
    home: Home, pilots: Handmade, tmp_path: Path
) -> None:
    early = copy_while_it_runs(pilots, tmp_path / "early")
    assert ingest(desk(home), early).lost == ("baseline/pilot/packed-b4/1",)
    log = home.folder("baseline/pilot/packed-b4").root / "baseline.log"
    assert log.exists()
    assert ingest(desk(home), pilots.paths.root).receipts == ("baseline/pilot/packed-b4/1",)
    assert not log.exists()
    assert states(home)["packed-b4"] is SlotState.COMPLETED
    assert gathered(home) == []
    assert late_ones(home) == []


def late_ones(home: Home) -> list[str]:
    """Return what the verifier finds of receipts that came too late."""
    checks = make_checks(home.paths.root, matrix.check, bundles.check)
    return [one.what for one in tampered(checks) if "planned since" in one.what]


def test_of_a_lost_attempt_and_the_next_one_nobody_chooses(
    home: Home, pilots: Handmade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(desk(home), copy_while_it_runs(pilots, tmp_path / "early"))
    write_bundle(home, tmp_path / "next", [home.slot("baseline/pilot/packed-b4")], number=2)
    assert "baseline/pilot/packed-b4/2 was planned since: it is too late" in refused(home, pilots.paths.root)
    # A driver that took it would be found by the verifier.
    monkeypatch.setattr("campaign.detached.ingest._find_late", lambda *_: ("attempts/",))
    ingest(desk(home), pilots.paths.root)
    assert len(late_ones(home)) == 1


def test_an_attempt_that_was_never_begun_is_lost_once_its_allocation_ended(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001", make=[0], is_last=False)
    pilots.end("a0001", reason="lost")
    told = ingest(desk(home), pilots.paths.root)
    assert told.lost == ("baseline/pilot/packed-b4/1",)
    assert gathered(home) == []


def test_the_reason_of_an_allocation_that_could_not_run_is_that_of_its_attempts(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001", make=[], is_last=False)
    there = pilots.there()
    there.start(pilots.slots["a0001"][0], 1, "a0001")
    shutil.rmtree(there.folder("baseline/pilot/sync-b4").root)
    pilots.end("a0001", reason="no_space")
    ingest(desk(home), pilots.paths.root)
    ended = [entry.data["ending"] for entry in read_entries(home.paths) if entry.act == "ended"]
    assert ended == ["no_space", "no_space"]


def test_files_that_were_left_behind_count_as_there_and_may_come_later(
    home: Home, pilots: Handmade, tmp_path: Path
) -> None:
    pilots.call("a0001")
    archive = pilots.pack(tmp_path / "small.tar", "attempts/*.log", "inputs/*.safetensors")
    told = ingest(desk(home), archive)
    assert told.num_left == 4
    assert not list(home.paths.inputs.glob("*.safetensors"))
    assert gathered(home) == []
    ingest(desk(home), pilots.paths.root)
    assert len(list(home.paths.inputs.glob("*.safetensors"))) == 2
    assert acts.fold(read_entries(home.paths)).left == {}
    assert gathered(home) == []


def test_a_file_that_was_left_behind_and_then_turns_up_as_another_is_found(
    home: Home, pilots: Handmade, tmp_path: Path
) -> None:
    pilots.call("a0001")
    ingest(desk(home), pilots.pack(tmp_path / "small.tar", "attempts/*.log"))
    log = home.folder("baseline/pilot/sync-b4").root / "harness.log"
    log.write_bytes(b"done?")
    assert any("changed after it was sealed" in one for one in gathered(home))


@pytest.fixture
def training_home(tmp_path: Path) -> Home:
    """A home with a recipe, whose runs go into bundles."""
    rules = training.make_rules("sync", seeds=(45,))
    return freeze(tmp_path / "home", SMALL[:1], repeats=1, solo=False, controls=False, convergence=rules)


RUN = "baseline/run/sync/s45"


@pytest.fixture
def trained(training_home: Home, tmp_path: Path) -> Handmade:
    """A bundle with a training, which was made."""
    made = write_bundle(training_home, tmp_path / "bundle", [training_home.slot(RUN)])
    made.call("a0001")
    return made


def test_a_training_comes_back_with_its_checkpoints_left_behind(
    training_home: Home, trained: Handmade, tmp_path: Path
) -> None:
    archive = trained.pack(tmp_path / "small.tar", "attempts/*/checkpoints/*/files/*")
    told = ingest(desk(training_home), archive)
    assert told.num_left > 0
    folder = training_home.folder(RUN).checkpoints
    assert list(folder.glob("*/checkpoint.json"))
    assert not list(folder.glob("*/files"))
    assert gathered(training_home) == []
    checks = make_checks(training_home.paths.root, matrix.check, bundles.check, attempts.check, verified_runs.check)
    assert [one.what for one in tampered(checks) if not one.what.startswith("key: ")] == []
    ingest(desk(training_home), trained.paths.root)
    assert list(folder.glob("*/files/*"))
    assert gathered(training_home) == []


def test_a_segment_that_was_killed_comes_back_with_what_it_saved_left_behind(
    training_home: Home, tmp_path: Path
) -> None:
    made = write_bundle(training_home, tmp_path / "bundle", [training_home.slot(RUN)])
    made.call("a0001", make=[], begin=[0], is_killed=True)
    archive = made.pack(tmp_path / "small.tar", "attempts/*/checkpoints/*/files/*", "attempts/*.log")
    told = ingest(desk(training_home), archive)
    assert told.lost == (f"{RUN}/1/1",)
    assert told.num_left > 0
    assert desk(training_home).view("").slots[RUN].state is SlotState.CUT
    assert gathered(training_home) == []
    checks = make_checks(training_home.paths.root, matrix.check, bundles.check, attempts.check, verified_runs.check)
    assert [one.what for one in tampered(checks) if not one.what.startswith("key: ")] == []


def _other_digest(value: dict[str, object]) -> None:
    assert isinstance(value["left"], dict)
    name = min(value["left"])
    value["left"][name] = ["0" * 64, value["left"][name][1]]


def _other_size(value: dict[str, object]) -> None:
    assert isinstance(value["left"], dict)
    name = min(value["left"])
    value["left"][name] = [value["left"][name][0], 1]


def _never_left(value: dict[str, object]) -> None:
    assert isinstance(value["left"], dict)
    del value["left"][min(value["left"])]


def _more_left(value: dict[str, object]) -> None:
    assert isinstance(value["left"], dict)
    value["left"][f"{min(value['left'])}.more"] = ["0" * 64, 1]


@pytest.mark.parametrize("change", [_other_digest, _other_size, _never_left])
def test_a_checkpoint_is_left_behind_as_the_very_one_that_its_document_lists(
    training_home: Home, trained: Handmade, tmp_path: Path, change: Callable[[dict[str, object]], None]
) -> None:
    archive = trained.pack(tmp_path / "small.tar", "attempts/*/checkpoints/*/files/*")
    assert "its checkpoint.json lists it, and it is gone" in refused(training_home, repack(archive, edited(change)))


def test_what_was_left_behind_and_is_not_listed_by_a_checkpoint_is_refused(
    training_home: Home, trained: Handmade, tmp_path: Path
) -> None:
    archive = trained.pack(tmp_path / "small.tar", "attempts/*/checkpoints/*/files/*")
    assert "said to have been left behind" in refused(training_home, repack(archive, edited(_more_left)))


def test_a_checkpoint_that_was_altered_is_refused(training_home: Home, trained: Handmade) -> None:
    path = next(trained.paths.home.attempts.rglob("checkpoints/*/files/*"))
    path.write_bytes(path.read_bytes()[::-1])
    assert "it was changed" in refused(training_home, trained.paths.root)


# --- what is not ------------------------------------------------------------------------------------------------------


def _append(path: Path, data: bytes = b"x") -> None:
    path.write_bytes(path.read_bytes() + data)


def _altered_table(made: Handmade) -> None:
    _append(made.there().folder("baseline/pilot/sync-b4").inputs)


def _removed_receipt(made: Handmade) -> None:
    made.there().folder("baseline/pilot/sync-b4").receipt.unlink()


def _removed_attempt(made: Handmade) -> None:
    shutil.rmtree(made.there().folder("baseline/pilot/sync-b4").root)


def _removed_calls(made: Handmade) -> None:
    shutil.rmtree(made.paths.home.allocation("a0001").calls)


def _other_boot(made: Handmade) -> None:
    edit(made.paths.home.allocation("a0001").call(1), {"boot_id": "another"})


def _other_host(made: Handmade) -> None:
    edit(made.paths.home.allocation("a0001").call(1), {"host": "another"})


def _call_of_another(made: Handmade) -> None:
    edit(made.paths.home.allocation("a0001").call(1), {"allocation": "a0002"})


def _end_of_another_call(made: Handmade) -> None:
    edit(made.paths.home.allocation("a0001").call_ended(1), {"number": 2})


def _end_of_another(made: Handmade) -> None:
    edit(made.paths.home.allocation("a0001").ended, {"allocation": "a0002"})


def _started_elsewhere(made: Handmade) -> None:
    edit(made.paths.home.allocation("a0001").started, {"job": replace_id(made, "f" * 24)})


def replace_id(made: Handmade, name: str) -> dict[str, object]:
    """Return the identity of a job of another bundle."""
    found: dict[str, object] = json.loads(made.paths.home.allocation("a0001").started.read_bytes())["job"]
    return {**found, "job_id": name}


def _stranger(made: Handmade) -> None:
    (made.paths.home.attempts / "baseline" / "pilot" / "mine.txt").write_bytes(b"me")


def _another_attempt(made: Handmade) -> None:
    folder = made.there().folder("baseline/pilot/sync-b4").root
    shutil.copytree(folder, folder.with_name("2"))


def _extra_file(made: Handmade) -> None:
    (made.there().folder("baseline/pilot/sync-b4").root / "pairs.csv").write_bytes(b"a,b\n")


def _extra_record(made: Handmade) -> None:
    (made.paths.home.allocation("a0001").root / "notes.json").write_bytes(b"{}")


def _changed_input(made: Handmade) -> None:
    path = next(made.paths.home.inputs.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[::-1])


def _planted_input(made: Handmade) -> None:
    data = b"weights of my own"
    made.paths.home.input_tensors(files.sha256_bytes(data)).write_bytes(data)


def _link(made: Handmade) -> None:
    path = made.there().folder("baseline/pilot/sync-b4").root / "harness.log"
    path.unlink()
    path.symlink_to("/etc/hostname")


def _link_above(made: Handmade) -> None:
    path = made.paths.home.attempts
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _pipe(made: Handmade) -> None:
    os.mkfifo(made.there().folder("baseline/pilot/sync-b4").root / "baseline.log")


def _program(made: Handmade) -> None:
    _append(made.paths.program)


def _plan(made: Handmade) -> None:
    _append(made.paths.home.allocation("a0001").plan, b"\n")


def _document(made: Handmade) -> None:
    edit(made.paths.document, {"written_at": 5})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_altered_table, "changed after it was sealed"),
        (_removed_receipt, "there is none"),
        (_removed_attempt, "there is none"),
        (_removed_calls, "no call of the allocation is there"),
        (_other_boot, "an allocation is one machine"),
        (_other_host, "an allocation is one machine"),
        (_call_of_another, "is not the 1. call of a0001 in this bundle"),
        (_end_of_another_call, "is not of the 1. call of a0001"),
        (_end_of_another, "is that of allocation a0002"),
        (_started_elsewhere, "is not of a0001 in bundle"),
        (_stranger, "mine.txt: nothing that the bundle was written for leaves this: added"),
        (_another_attempt, "sync-b4/2/receipt.json: nothing that the bundle was written for leaves this"),
        (_extra_file, "not sealed by the receipt"),
        (_extra_record, "notes.json: nothing that the bundle was written for"),
        (_changed_input, "it was changed"),
        (_planted_input, "nothing that the bundle was written for leaves this"),
        (_link, "neither a file nor a folder"),
        (_link_above, "a link where a folder should be"),
        (_pipe, "neither a file nor a folder"),
        (_program, "run.py: its SHA-256 is"),
        (_plan, "allocation.json: its SHA-256 is"),
        (_document, "its content has the id"),
    ],
)
def test_results_that_are_not_what_the_harness_sealed_are_refused_whole(
    home: Home, pilots: Handmade, damage: Callable[[Handmade], None], said: str
) -> None:
    pilots.call("a0001")
    damage(pilots)
    assert said in refused(home, pilots.paths.root)


def test_a_receipt_that_no_call_wrote_is_refused(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001", make=[0], is_last=False)
    there = pilots.there()
    there.run(pilots.slots["a0001"][1], 1, "a0001")
    assert "no call wrote the receipt" in refused(home, pilots.paths.root)


def test_a_receipt_that_was_taken_away_after_its_call_is_refused(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001", make=[0], is_last=False)
    _removed_receipt(pilots)
    assert "it wrote a receipt of baseline/pilot/sync-b4/1" in refused(home, pilots.paths.root)


def _start_of_another_attempt(start: Path) -> None:
    edit(start, {"attempt": 2})


def _start_of_another_freeze(start: Path) -> None:
    edit(start, {"manifest_sha256": "0" * 64})


def _start_on_another_boot(start: Path) -> None:
    edit(start, {"host": {**json.loads(start.read_bytes())["host"], "boot_id": "another"}})


def _table_without_a_receipt(start: Path) -> None:
    start.with_name("more").mkdir()
    (start.with_name("more") / "pairs.csv").write_bytes(b"a,b\n")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_start_of_another_attempt, "is not that of baseline/pilot/sync-b4"),
        (_start_of_another_freeze, "is not that of baseline/pilot/sync-b4"),
        (_start_on_another_boot, "boot_id is"),
        (_table_without_a_receipt, "nothing that the bundle was written for leaves this"),
    ],
)
def test_an_attempt_without_a_receipt_is_held_to_what_was_planned(
    home: Home, pilots: Handmade, damage: Callable[[Path], None], said: str
) -> None:
    pilots.call("a0001", make=[], begin=[0], is_killed=True)
    damage(pilots.there().folder("baseline/pilot/sync-b4").start)
    assert said in refused(home, pilots.paths.root)


def test_every_fault_is_said_at_once(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    for damage in (_altered_table, _stranger, _changed_input):
        damage(pilots)
    said = refused(home, pilots.paths.root)
    assert all(word in said for word in ("changed after it was sealed", "mine.txt", "it was changed"))
    assert "\nattempts/baseline/pilot/sync-b4/1/inputs.json: changed" in said
    assert ".ingest.tmp" not in said


def test_results_of_another_home_are_refused(home: Home, pilots: Handmade, tmp_path: Path) -> None:
    other = freeze(tmp_path / "other", numerical=documents.NumericalRules(), repeats=2)
    theirs = write_bundle(other, tmp_path / "theirs", [other.slot("baseline/pilot/sync-b4")])
    theirs.call("a0001")
    assert "is not of this home" in refused(home, theirs.paths.root, StateError)
    pilots.call("a0001")
    for folder in ("attempts", "allocations/a0001"):
        shutil.rmtree(pilots.paths.home.root / folder)
        shutil.copytree(theirs.paths.home.root / folder, pilots.paths.home.root / folder)
    plan = home.paths.allocation("a0001").plan
    shutil.copyfile(plan, pilots.paths.home.allocation("a0001").plan)
    assert f"is not of a0001 in bundle {pilots.id}" in refused(home, pilots.paths.root)


def test_a_bundle_that_was_written_again_with_an_id_of_its_own_is_refused(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    other = pilots.bundle.replace(written_at=5)
    pilots.paths.document.write_bytes(other.replace(id=run.bundle_id(other.to_json())).to_bytes())
    assert "is not one that the ledger knows" in refused(home, pilots.paths.root, StateError)


def test_a_file_that_is_there_already_and_differs_is_refused(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    target = home.folder("baseline/pilot/sync-b4").root
    target.mkdir(parents=True)
    (target / "start.json").write_bytes(b"{}")
    assert "is another one than what came back now" in refused(home, pilots.paths.root)


def test_an_attempt_that_came_back_cannot_come_back_otherwise(home: Home, pilots: Handmade, tmp_path: Path) -> None:
    shutil.copytree(pilots.paths.root, tmp_path / "again")
    pilots.call("a0001")
    ingest(desk(home), pilots.paths.root)
    again = Handmade(
        home=home,
        paths=type(pilots.paths)(tmp_path / "again"),
        bundle=pilots.bundle,
        key=pilots.key,
        slots=pilots.slots,
    )
    again.call("a0001", ending=Ending.CRASH, boot_id="later")
    assert "is another one than what came back now" in refused(home, again.paths.root)


def test_results_of_an_abandoned_bundle_are_refused(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    ended = abandon(desk(home), pilots.id[:6], "the machine was taken away")
    assert len(ended) == 3
    assert set(states(home).values()) == {SlotState.RETRYABLE}
    said = refused(home, pilots.paths.root, StateError)
    assert "was abandoned" in said
    assert "the machine was taken away" in said
    assert gathered(home) == []


def test_abandoning_keeps_what_came_back(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    ingest(desk(home), pilots.paths.root)
    assert abandon(desk(home), pilots.id, "gone") == ("baseline/pilot/prod-b16/1",)
    assert abandon(desk(home), pilots.id, "gone") == ()
    assert states(home) == {
        "sync-b4": SlotState.COMPLETED,
        "packed-b4": SlotState.COMPLETED,
        "prod-b16": SlotState.RETRYABLE,
    }
    assert last_acts(home).count("cancelled") == 1


def test_abandoning_names_the_bundles_that_there_are(home: Home, pilots: Handmade) -> None:
    with pytest.raises(StateError, match="no bundle 'zz'") as caught:
        abandon(desk(home), "zz", "why")
    assert pilots.id in caught.value.why
    with pytest.raises(StateError, match="no bundle ''"):
        abandon(desk(home), "", "why")


# --- archives ---------------------------------------------------------------------------------------------------------


def repack(archive: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]) -> Path:
    """Write an archive again with other members."""
    with tarfile.open(archive) as tar:
        members = [(one, (tar.extractfile(one) or io.BytesIO()).read()) for one in tar]
    change(members)
    with tarfile.open(archive, "w") as tar:
        for info, data in members:
            info.size = len(data) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(data))
    return archive


def _member(
    name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, data


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (_member("{top}/home/../../../etc/evil"), "leads elsewhere, or nowhere"),
        (_member("/etc/evil"), "does not lie in the archive's one folder"),
        (_member("other/home/attempts/a"), "does not lie in the archive's one folder"),
        (_member("{top}/home/attempts/a", kind=tarfile.SYMTYPE, link="/etc/passwd"), "is no plain file"),
        (_member("{top}/home/attempts/a", kind=tarfile.LNKTYPE, link="{top}/bundle.json"), "is no plain file"),
        (_member("{top}/home/attempts/a", kind=tarfile.CHRTYPE), "is no plain file"),
        (_member("{top}/home/attempts/a", kind=tarfile.GNUTYPE_SPARSE), "is no plain file"),
        (_member("{top}/home/attempts", kind=tarfile.DIRTYPE), "is no plain file"),
        (_member("{top}/home/ledger.jsonl"), "results.json does not list it"),
        (_member("{top}/results.json"), "is in it twice"),
        (_member("{top}/ledger.jsonl"), "results.json does not list it"),
        (_member("{top}/home/attempts/\u202enosj.tpiecer"), "leads elsewhere, or nowhere"),
    ],
)
def test_an_archive_with_anything_but_its_listed_files_is_refused(
    home: Home, pilots: Handmade, tmp_path: Path, member: tuple[tarfile.TarInfo, bytes], said: str
) -> None:
    pilots.call("a0001")
    info, data = member
    added = tarfile.TarInfo(info.name.format(top=f"results-{pilots.id}"))
    added.type, added.linkname = info.type, info.linkname.format(top=f"results-{pilots.id}")
    archive = repack(pilots.pack(tmp_path / "results.tar"), lambda members: members.append((added, data)))
    assert said in refused(home, archive)


def edited(change: Callable[[dict[str, object]], None]) -> Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]:
    def edit_members(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        for place, (info, data) in enumerate(members):
            if info.name.endswith("/results.json"):
                value = json.loads(data)
                change(value)
                members[place] = (info, files.dump_json(value))

    return edit_members


def _drop(end: str) -> Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]:
    def drop(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        members[:] = [one for one in members if not one[0].name.endswith(end)]

    return drop


def _edit_bundle(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    for place, (info, data) in enumerate(members):
        if info.name.endswith("/bundle.json"):
            members[place] = (info, files.dump_json({**json.loads(data), "written_at": 5}))


def _leave_a_receipt(value: dict[str, object]) -> None:
    name = "attempts/baseline/pilot/sync-b4/1/receipt.json"
    assert isinstance(value["files"], dict)
    assert isinstance(value["left"], dict)
    value["left"][name] = value["files"].pop(name)


def _left_and_packed(value: dict[str, object]) -> None:
    name = "attempts/baseline/pilot/sync-b4/1/harness.log"
    assert isinstance(value["files"], dict)
    assert isinstance(value["left"], dict)
    value["left"][name] = value["files"][name]


def _other_bundle(value: dict[str, object]) -> None:
    value["bundle"] = "0" * 24


def _list_outside(value: dict[str, object]) -> None:
    assert isinstance(value["files"], dict)
    value["files"]["../../evil"] = ["0" * 64, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_drop("/results.json"), "holds no results.json"),
        (_drop("/bundle.json"), "holds no bundle.json"),
        (_drop("sync-b4/1/receipt.json"), "is not in it"),
        (edited(_leave_a_receipt), "results.json does not list it"),
        (_edit_bundle, "its content has the id"),
        (edited(_left_and_packed), "harness.log cannot have been left behind"),
        (edited(_other_bundle), "is of bundle 000000000000000000000000"),
        (edited(_list_outside), "leads elsewhere, or nowhere"),
    ],
)
def test_an_archive_that_is_not_what_it_lists_is_refused(
    home: Home,
    pilots: Handmade,
    tmp_path: Path,
    change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None],
    said: str,
) -> None:
    pilots.call("a0001")
    assert said in refused(home, repack(pilots.pack(tmp_path / "results.tar"), change))


def test_canonical_inputs_are_left_behind_as_the_pilot_listed_them(
    home: Home, pilots: Handmade, tmp_path: Path
) -> None:
    pilots.call("a0001")
    archive = pilots.pack(tmp_path / "results.tar", "inputs/*.safetensors")
    assert "1 bytes, the pilot listed" in refused(home, repack(archive, edited(_other_size)))


def test_a_receipt_cannot_be_left_behind(home: Home, pilots: Handmade, tmp_path: Path) -> None:
    pilots.call("a0001")

    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        edited(_leave_a_receipt)(members)
        _drop("sync-b4/1/receipt.json")(members)

    assert "cannot have been left behind" in refused(home, repack(pilots.pack(tmp_path / "results.tar"), change))


def test_an_archive_whose_bytes_changed_is_refused(home: Home, pilots: Handmade, tmp_path: Path) -> None:
    pilots.call("a0001")
    archive = pilots.pack(tmp_path / "results.tar")
    data = archive.read_bytes()
    archive.write_bytes(data.replace(b"call 1\n", b"call 2\n"))
    assert "listed are" in refused(home, archive)
    archive.write_bytes(data[: len(data) // 2])
    assert refused(home, archive)


def test_a_compressed_archive_is_refused(home: Home, pilots: Handmade, tmp_path: Path) -> None:
    pilots.call("a0001")
    archive = pilots.pack(tmp_path / "results.tar")
    with tarfile.open(tmp_path / "results.tgz", "w:gz") as tar:
        tar.add(archive, "results.tar")
    assert "no archive of results" in refused(home, tmp_path / "results.tgz")


# --- what goes wrong meanwhile ----------------------------------------------------------------------------------------


def test_a_bundle_that_is_being_run_is_not_ingested(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    with run.locked(pilots.paths.root):
        assert "the bundle is being run, or" in refused(home, pilots.paths.root, StateError)
    assert ingest(desk(home), pilots.paths.root).receipts


def test_a_bundle_that_somebody_else_runs_is_not_ingested(
    home: Home, pilots: Handmade, monkeypatch: pytest.MonkeyPatch
) -> None:
    pilots.call("a0001")
    real = os.open

    def refuse(path: Any, flags: int, *more: int, **given: Any) -> int:
        if str(path).endswith(run.LOCK) and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "another user's", str(path))
        return real(path, flags, *more, **given)

    with run.locked(pilots.paths.root):
        monkeypatch.setattr("os.open", refuse)
        assert "the bundle is being run, or" in refused(home, pilots.paths.root, StateError)
    assert ingest(desk(home), pilots.paths.root).num_new > 0


def test_where_nothing_can_be_held_no_folder_is_ingested(
    home: Home, pilots: Handmade, monkeypatch: pytest.MonkeyPatch
) -> None:
    pilots.call("a0001")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(StateError) as caught:
        ingest(desk(home), pilots.paths.root)
    assert "has no locks (flock)" in "\n".join(caught.value.lines())


def test_two_ingestions_at_once_are_one_and_a_refusal(home: Home, pilots: Handmade, tmp_path: Path) -> None:
    pilots.call("a0001")
    archive = pilots.pack(tmp_path / "results.tar")
    with Ledger.open(home.paths, time.time), pytest.raises(StateError, match="the ledger is locked by process"):
        ingest(desk(home), archive)
    assert ingest(desk(home), archive).receipts


def kill_after(number: int, home: Home, path: Path) -> bool:
    """Ingest in another process, which kills itself once so many files are in place; return whether it got so far."""
    child = os.fork()
    if child == 0:
        replace, moved = Path.replace, list[Path]()

        def move(self: Path, target: Path) -> Path:
            if len(moved) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            moved.append(target)
            return replace(self, target)

        setattr(Path, "replace", move)  # noqa: B010 - an assignment that type checkers refuse
        ingest(desk(home), path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_an_ingestion_that_was_killed_counts_for_nothing_and_is_given_again(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    kills = 0
    while kill_after(6, home, pilots.paths.root):
        kills += 1
        assert "ingested" not in last_acts(home)
        assert home.paths.incoming.is_dir()
        view = desk(home).view("")
        assert {one.state for one in view.attempts.values()} <= {AttemptState.AWAY, AttemptState.UNKNOWN}
    assert kills == 2
    assert last_acts(home)[-4:] == ["submitted", "lock_taken_over", "lock_taken_over", "ingested"]
    assert states(home)["sync-b4"] is SlotState.COMPLETED
    assert not home.paths.incoming.exists()
    assert gathered(home) == []


def test_until_the_ledger_names_them_files_in_the_home_are_a_finding(
    home: Home, pilots: Handmade, monkeypatch: pytest.MonkeyPatch
) -> None:
    pilots.call("a0001")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "append", killed)
    with pytest.raises(KeyboardInterrupt):
        ingest(desk(home), pilots.paths.root)
    monkeypatch.undo()
    (found,) = {one.partition(": ")[2] for one in gathered(home)}
    assert found.startswith("no act of the ledger says that it was ingested")
    said = {one.reason for one in desk(home).view("").attempts.values() if one.state is AttemptState.UNKNOWN}
    assert said
    assert all("campaign bundle ingest PATH, once more" in one for one in said)
    ingest(desk(home), pilots.paths.root)
    assert gathered(home) == []


def test_a_full_disk_leaves_the_home_as_it_was(home: Home, pilots: Handmade, monkeypatch: pytest.MonkeyPatch) -> None:
    pilots.call("a0001")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(results.Source, "copy_to", full)
    said = refused(home, pilots.paths.root, InfrastructureError)
    assert "No space left on device" in said
    monkeypatch.undo()
    assert ingest(desk(home), pilots.paths.root).receipts


def test_a_closed_campaign_takes_nothing_more(home: Home, pilots: Handmade) -> None:
    pilots.call("a0001")
    home.append("closed", {})
    assert "the campaign is closed" in refused(home, pilots.paths.root, StateError)


def test_what_is_neither_bundle_nor_archive_is_a_usage_error(home: Home, tmp_path: Path) -> None:
    assert "neither a bundle nor results of one" in refused(home, tmp_path / "nothing", StateError)
    (tmp_path / "text").write_bytes(b"hello\n" * 400)
    assert "no archive of results" in refused(home, tmp_path / "text")


def test_results_of_another_interpreter_than_the_sides_first_are_refused(
    home: Home, pilots: Handmade, tmp_path: Path
) -> None:
    pilots.call("a0001")
    ingest(desk(home), pilots.paths.root)
    other = write_bundle(home, tmp_path / "other", [home.slot("baseline/solo/sync-b4/r1")])
    (allocation,) = other.slots
    other.call(allocation, is_last=False)
    receipt = other.there().folder("baseline/solo/sync-b4/r1").receipt
    (side,) = json.loads(receipt.read_bytes())["sides"]
    edit(receipt, {"sides": [{**side, "interpreter": {**side["interpreter"], "path": "/another/python"}}]})
    own = other.paths.home.allocation(allocation)
    edit(own.call_ended(1), {"receipts": {"baseline/solo/sync-b4/r1/1": files.sha256_file(receipt)}})
    said = refused(home, other.paths.root)
    assert "baseline ran on another interpreter, or with other packages, than its first sealed attempt" in said
    assert "path /another/python" in said
