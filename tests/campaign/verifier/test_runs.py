from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.collection.chains import UNSEEN_S
from campaign.verifier import attempts, matrix, retries, runs
from campaign.verifier.findings import State
from campaign.watching.state import CUTS, allows_another, rule_of_runs
from tests.support import training
from tests.support.home import AT, SMALL
from tests.support.lifelike import LifelikeHome, freeze_lifelike
from tests.support.verifying import edit_document, edit_ledger, make_checks, reseal, tampered

SLOT = "baseline/run/sync/s45"
RUN = f"attempts/{SLOT}/1/segments/1"


def found(root: Path) -> list[str]:
    checks = make_checks(root, matrix.check, attempts.check, runs.check)
    return [f"{one.where}: {one.what}" for one in tampered(checks)]


def test_a_home_in_which_nothing_is_wrong_is_intact(whole_home: Path) -> None:
    checks = make_checks(whole_home, matrix.check, attempts.check, runs.check)
    assert checks.state is State.INTACT
    assert checks.made[-1].remarks == ["6 attempts at runs, 12 checkpoints"]


def test_the_rules_are_those_of_collection() -> None:
    assert {ending.value for ending in CUTS} == retries.CUTS
    assert runs.UNSEEN_S == UNSEEN_S


@pytest.mark.parametrize("of_runs", [False, True])
def test_the_retry_rule_is_that_of_submission(*, of_runs: bool) -> None:
    allowed = documents.Retries(max_attempts=3, again=tuple(Ending)[::2], again_once=tuple(Ending)[1::2])
    rule = retries.Rule(
        max_attempts=allowed.max_attempts,
        again=frozenset(one.value for one in allowed.again),
        again_once=frozenset(one.value for one in allowed.again_once),
        max_segments=1,
    )
    if of_runs:
        allowed, rule = rule_of_runs(allowed), rule.of_runs()
    for number in range(3):
        for endings in itertools.product(Ending, repeat=number):
            assert (not rule.refusal(endings)) == allows_another(allowed, endings), endings
    for ending in allowed.again:
        assert rule.refusal([ending] * 3)


# --- checkpoints ------------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["checkpoint.json", "files/model.bin", "files/state/random.json"])
@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_a_damaged_checkpoint_is_found(home: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(home / RUN / "checkpoints/5" / name)
    assert any(line.startswith(f"{RUN}/checkpoints/5") for line in found(home))


@pytest.mark.parametrize(
    "name", ["notes.txt", "7/notes.txt", "5/notes.txt", "5/files/notes.txt", "5/files/more/notes.txt", "005/notes.txt"]
)
def test_what_is_added_to_checkpoints_is_found(home: Path, name: str) -> None:
    path = home / RUN / "checkpoints" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"new")
    assert any(line.startswith(f"{RUN}/checkpoints/") for line in found(home))


def test_a_checkpoint_that_is_gone_is_found(home: Path) -> None:
    shutil.rmtree(home / RUN / "checkpoints/5")
    assert found(home) == [f"{RUN}/checkpoints/5: listed by the receipt, and it is not there as it was saved"]


def test_a_link_in_place_of_a_saved_file_is_found(home: Path) -> None:
    path = home / RUN / "checkpoints/5/files/model.bin"
    path.rename(home.parent / "model.bin")
    path.symlink_to(home.parent / "model.bin")
    assert any("is a symbolic link" in line for line in found(home))


def edit_checkpoint(root: Path, update: int, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a checkpoint's account, and everything that names it by digest."""
    path = root / RUN / f"checkpoints/{update}/checkpoint.json"
    old = files.sha256_file(path)
    edit_document(path, edit)
    for name in ("receipt.json", "convergence.csv"):
        named = root / RUN / name
        if named.exists():
            named.write_bytes(named.read_bytes().replace(old.encode(), files.sha256_file(path).encode()))
    reseal(root)


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (lambda value: value.update(slot="baseline/run/sync/s46"), "slot is"),
        (lambda value: value.update(seed=46), "seed is"),
        (lambda value: value.update(snapshot_sha256="c" * 64), "snapshot_sha256 is"),
        (lambda value: value.update(recipe="other"), "recipe is"),
        (lambda value: value.update(previous={"segment": 1, "update": 1, "sha256": "0" * 64}), "previous is"),
        (lambda value: value.update(update=41), "update is 41"),
        (lambda value: value.update(tokens=1 << 30), "tokens is"),
        (lambda value: value.update(train_s=-1.0), "train_s is"),
        (lambda value: value["curve"].pop(), "final_loss is"),
        (lambda value: value["curve"].pop(0), "the curve has points"),
        (lambda value: value["curve"][0].update(tokens=1 << 40), "do not rise"),
        (lambda value: value["files"][0].update(name="../model.bin"), "is not the name of a file below it"),
        (lambda value: value["files"].reverse(), "once each, by name"),
        (lambda value: value.update(path="0" * 12), "the engaged path goes from"),
        (lambda value: value["curve"][-1].update(validation_loss=1.0), "final_loss is"),
        (lambda value: value.update(train_s=value["train_s"] - 0.25), "train_s is"),
        (lambda value: value.update(elapsed_s=value["elapsed_s"] + 99), "elapsed_s is"),
    ],
)
def test_an_account_that_was_forged_and_sealed_again_is_found(
    home: Path, edit: Callable[[dict[str, Any]], object], what: str
) -> None:
    edit_checkpoint(home, 40, edit)
    lines = found(home)
    assert any(what in line for line in lines), lines


@pytest.mark.parametrize("train_s", [-1.0, 1e9])
def test_a_time_of_training_that_cannot_be_is_found_in_any_checkpoint(home: Path, train_s: float) -> None:
    edit_checkpoint(home, 5, lambda value: value.update(train_s=train_s))
    assert any(f"checkpoints/5/checkpoint.json: train_s is {train_s!r} and elapsed_s " in line for line in found(home))


OF_CHECKPOINTS = (
    *("manifest_sha256", "slot", "attempt", "segment", "allocation", "side", "snapshot_sha256", "recipe"),
    *("config_sha256", "seed", "previous", "update", "tokens", "train_s", "elapsed_s", "curve", "path", "at", "files"),
)


@pytest.mark.parametrize("name", OF_CHECKPOINTS)
def test_every_field_of_a_checkpoint_is_held_to_its_segment(home: Path, name: str) -> None:
    def forge(value: dict[str, Any]) -> None:
        assert name in value
        value[name] = {"made": "up"}

    edit_checkpoint(home, 40, forge)
    lines = found(home)
    assert any(line.startswith(f"{RUN}/checkpoints/40/checkpoint.json: {name}") for line in lines), lines


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"seed": 46}, "run.seed"),
        ({"recipe": "other"}, "run.recipe"),
        ({"update": 39}, "run.update is 39"),
        ({"evaluate_s": 0.0}, "run.evaluate_s is 0.0"),
        ({"checkpoints": []}, "added later"),
        ({"resumed": {"segment": 1, "update": 5, "sha256": "0" * 64}}, "run.resumed"),
    ],
)
def test_a_receipt_of_a_segment_that_was_forged_is_found(home: Path, changes: dict[str, Any], what: str) -> None:
    edit_document(home / RUN / "receipt.json", lambda value: value["run"].update(changes))
    reseal(home)
    lines = found(home)
    assert any(what in line for line in lines), lines


def test_a_pilot_of_a_recipe_needs_what_a_run_costs(home: Path) -> None:
    path = home / "attempts/baseline/pilot/sync/1/receipt.json"
    edit_document(path, lambda value: value["calibration"].update(save_s=None))
    reseal(home)
    assert any("the pilot of a recipe has evaluate_s, checkpoint_bytes of" in line for line in found(home))
    edit_document(path, lambda value: value.update(calibration=[]))
    reseal(home)
    assert any("calibration: is a list where an object should be" in line for line in found(home))


# --- chains -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path: Path) -> LifelikeHome:
    rules = training.make_rules("sync", max_segments=3)
    return freeze_lifelike(tmp_path / "home", SMALL[:1], repeats=1, convergence=rules)


def chain(made: LifelikeHome, *endings: Ending, number: int = 1) -> None:
    for segment, ending in enumerate(endings, start=1):
        made.segment(made.slot(SLOT), number, segment, ending=ending)


def check(made: LifelikeHome) -> list[str]:
    made.collect()
    return found(made.paths.root)


def test_a_run_in_segments_is_intact(begun: LifelikeHome) -> None:
    chain(begun, Ending.TIME_LIMIT, Ending.PREEMPTED, Ending.COMPLETED)
    assert check(begun) == []


def test_a_segment_that_was_killed_is_a_part_of_the_chain(begun: LifelikeHome) -> None:
    slot = begun.slot(SLOT)
    begun.segment(slot, 1, 1, ending=Ending.NODE_FAIL, is_sealed=False)
    begun.segment(slot, 1, 2)
    assert check(begun) == []


@pytest.mark.parametrize(
    ("endings", "what"),
    [
        ((Ending.CRASH, Ending.COMPLETED), "segment 1 ended crash, after which none goes on"),
        ((Ending.COMPLETED, Ending.COMPLETED), "segment 1 ended completed, after which none goes on"),
        ((Ending.TIME_LIMIT,) * 4, "the protocol allows 3 segments"),
    ],
)
def test_a_segment_that_could_not_follow_is_found(begun: LifelikeHome, endings: tuple[Ending, ...], what: str) -> None:
    chain(begun, *endings)
    lines = check(begun)
    assert any(what in line for line in lines), lines


def test_an_older_state_than_the_newest_is_found(begun: LifelikeHome) -> None:
    slot = begun.slot(SLOT)
    begun.segment(slot, 1, 1, ending=Ending.TIME_LIMIT, checkpoints=[5, 10])
    sha256 = files.sha256_file(begun.folder(SLOT, 1, 1).checkpoint(5).document)
    older = {"segment": 1, "update": 5, "sha256": sha256}
    begun.segment(slot, 1, 2, resume=begun.newest(slot, 1, before=2).replace(**older))  # type: ignore[union-attr]
    assert any("although there was update 10 of segment 1" in line for line in check(begun))


def test_a_state_that_was_forged_before_it_was_gone_on_from_is_found(begun: LifelikeHome) -> None:
    chain(begun, Ending.TIME_LIMIT, Ending.COMPLETED)
    begun.collect()
    edit_checkpoint(begun.paths.root, 12, lambda value: value.update(at=0.0))
    assert any("it was planned from update 12 of segment 1 with the SHA-256" in line for line in check(begun))


def test_what_a_killed_segment_saved_late_may_have_been_passed_over(begun: LifelikeHome) -> None:
    slot = begun.slot(SLOT)
    begun.segment(slot, 1, 1, ending=Ending.LOST, is_sealed=False, checkpoints=[5])
    begun.segment(slot, 1, 2, resume=None)
    assert check(begun) == []
    edit_document(begun.folder(SLOT, 1, 1).checkpoint(5).document, lambda value: value.update(at=AT - 2 * UNSEEN_S))
    assert any("although there was update 5 of segment 1" in line for line in check(begun))


@pytest.mark.parametrize(
    ("endings", "what"),
    [
        ((Ending.NODE_FAIL,), "after which the same attempt goes on"),
        ((Ending.TIME_LIMIT,) * 3, "which allows no other"),
        ((Ending.CANCELLED,), "which allows no other"),
    ],
)
def test_a_run_that_was_begun_anew_too_early_is_found(
    begun: LifelikeHome, endings: tuple[Ending, ...], what: str
) -> None:
    chain(begun, *endings)
    chain(begun, Ending.COMPLETED, number=2)
    lines = check(begun)
    assert any(what in line for line in lines), lines


def test_a_run_whose_segments_are_used_up_may_begin_anew(begun: LifelikeHome) -> None:
    chain(begun, *[Ending.NODE_FAIL] * 3)
    chain(begun, Ending.COMPLETED, number=2)
    assert check(begun) == []


def test_segments_with_a_gap_are_found(begun: LifelikeHome) -> None:
    chain(begun, Ending.TIME_LIMIT)
    begun.segment(begun.slot(SLOT), 1, 3)
    assert any("a number is missing" in line for line in check(begun))


def test_a_running_segments_checkpoints_are_not_looked_at(begun: LifelikeHome) -> None:
    begun.segment(begun.slot(SLOT), ending=Ending.LOST, is_sealed=False, is_ended=False)
    (begun.folder(SLOT).checkpoint(5).files / "model.bin").write_bytes(b"half")
    assert found(begun.paths.root) == []


def test_a_dropped_last_segment_is_found(begun: LifelikeHome) -> None:
    chain(begun, Ending.TIME_LIMIT, Ending.COMPLETED)
    begun.collect()
    shutil.rmtree(begun.folder(SLOT, 1, 2).root)
    assert any("it is gone" in line for line in found(begun.paths.root))
    edit_ledger(begun.paths.root, lambda entries: entries[-1]["data"]["receipts"].pop(f"{SLOT}/1/2"))
    assert any("its allocation wrote a receipt" in line for line in found(begun.paths.root))
