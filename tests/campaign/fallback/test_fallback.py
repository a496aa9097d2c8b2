"""Which checkpoints a trial goes on from, and when one side resumes the other's; real trials are slow tests."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acceptance.formats import Ending
from campaign import documents
from campaign import scratch as scratch_module
from campaign.collection.sealed import Finding, TamperedError
from campaign.documents import FallbackStretch
from campaign.errors import EvidenceError, InfrastructureError, StateError
from campaign.fallback import subject as subject_module
from campaign.fallback import trial
from campaign.fallback.comparing import Tolerance, differences_of, tolerance_of, why_not
from campaign.fallback.keeping import MOST_REASON, shortened
from campaign.fallback.subject import check_source, choose_update, find_subject
from campaign.fallback.trial import require_able, run_trial, scratch_home, stretches
from campaign.frozen import Frozen
from campaign.paths import HomePaths
from campaign.record.fallbacks import state_of
from campaign.submission.acts import History
from campaign.watching.observation import View
from campaign.watching.state import AttemptState, AttemptStatus, SlotState, SlotStatus
from tests.support.resumptions import make_resumption
from tests.support.training import make_rules

TOLERANCE = Tolerance(atol="0.002", rtol="0.002", source="default")


def stretch(side: Any, losses: tuple[float, ...] = (3.0, 2.0), **fields: Any) -> FallbackStretch:
    values: dict[str, Any] = {"receipt_sha256": "a" * 64, "ending": Ending.COMPLETED, "reason": "", "is_loaded": True}
    return FallbackStretch(side=side, losses=losses, **{**values, **fields})


@pytest.mark.parametrize(
    ("saved", "updates", "chosen"),
    [
        ((1, 12, 19, 24), 5, 2),  # 19 + 5 is just the recipe's last update
        ((1, 12, 20, 24), 5, 1),  # 20 leaves too few
        ((20, 24), 5, 0),  # too few is better than none
        ((24,), 5, 0),
        ((1, 24), 1000, 0),
        ((1, 5, 3, 24), 5, 2),  # a later segment's is the newer one
    ],
)
def test_the_newest_checkpoint_with_training_left_is_taken(saved: tuple[int, ...], updates: int, chosen: int) -> None:
    assert choose_update(saved, updates, 24) == chosen


def test_losses_may_differ_by_just_as_much_as_is_allowed() -> None:
    own = stretch("baseline", (1.0, -1.0))
    inside = stretch("candidate", (1.0, -1.0 - 0.00399))
    outside = stretch("candidate", (1.0, -1.0 - 0.00401))
    assert why_not(own, inside, 7, TOLERANCE) == ""
    told = why_not(own, outside, 7, TOLERANCE)
    assert told.startswith(
        "the loss of update 9 is -1.00401, and -1.0 of the baseline: they differ by 0.00401, allowed"
    )
    assert differences_of(own.losses, outside.losses)[0] == 0.0
    exact = Tolerance(atol="0.25", rtol="0", source="protocol")
    assert why_not(stretch("baseline", (1.0,)), stretch("candidate", (1.25,)), 0, exact) == ""
    assert why_not(stretch("baseline", (1.0,)), stretch("candidate", (math.nextafter(1.25, 2),)), 0, exact)


def test_the_scale_is_that_of_the_side_that_saved() -> None:
    tolerance = Tolerance(atol="0", rtol="0.5", source="protocol")
    small, large = (stretch(side, (loss,)) for side, loss in (("baseline", 1.0), ("candidate", 2.0)))
    assert why_not(small, large, 0, tolerance)
    assert why_not(large, small, 0, tolerance) == ""


def test_a_stretch_that_did_not_end_in_order_resumes_nothing() -> None:
    whole = stretch("baseline")
    failed = stretch("candidate", (3.0,), ending=Ending.NON_FINITE, reason="update 9: its loss is nan")
    assert why_not(whole, failed, 7, TOLERANCE) == "the candidate does not: non_finite: update 9: its loss is nan"
    owner = stretch("baseline", (), ending=Ending.CRASH, reason="x")
    assert why_not(owner, stretch("candidate"), 7, TOLERANCE) == "the baseline itself does not: crash: x"
    assert "0 losses" in why_not(stretch("baseline", ()), stretch("candidate", ()), 7, TOLERANCE)
    assert "2 losses of the baseline and 1" in why_not(whole, stretch("candidate", (3.0,)), 7, TOLERANCE)


def protocol(**families: Any) -> documents.Protocol:
    return documents.Protocol(
        campaign="x",
        families=("convergence",),
        baseline_first=False,
        throughput=documents.ThroughputRules(),
        limits=documents.Limits(),
        retries=documents.Retries(),
        execution=documents.Execution(),
        categories=(),
        workloads=(),
        slots=(),
        headers={},
        **families,
    )


def test_the_tolerance_is_the_protocols_or_the_default() -> None:
    without = protocol()
    declared = protocol(numerical=documents.NumericalRules(loss_atol="0.01", loss_rtol="0.1"))
    assert tolerance_of(without) == TOLERANCE
    assert tolerance_of(declared) == Tolerance(atol="0.01", rtol="0.1", source="protocol")


def test_a_harness_of_an_earlier_release_is_refused(tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    with pytest.raises(StateError, match="cannot try a fallback"):
        require_able(paths)
    paths.resumptions.parent.mkdir(parents=True)
    paths.resumptions.touch()
    require_able(paths)


def test_the_ledger_holds_a_reason_on_one_line_of_bounded_length() -> None:
    assert shortened("crash: last lines:\n  a") == "crash: last lines: a"
    assert shortened("crash: Traceback:\n  a\n\n\tb") == "crash: Traceback: ... b"
    assert shortened("") == ""
    assert len(shortened("x" * 20_000)) == MOST_REASON + len(" ...")


def test_the_last_trial_of_a_candidate_is_told_with_how_many_there_were() -> None:
    def entry(seq: int, candidate: str, number: int, *, resumes: bool) -> documents.Entry:
        act = documents.FallbackTried(
            candidate=candidate,
            number=number,
            recipe="short",
            seed=45,
            node="n",
            device="cpu",
            candidate_resumes=resumes,
            baseline_resumes=True,
            largest_difference=0.25,
            reasons=() if resumes else ("why",),
            files={"fallback.json": "a" * 64},
        )
        return documents.Entry(seq=seq, previous="0" * 64, at=float(seq), act="fallback_tried", data=act.to_json())

    entries = [
        entry(5, "c1", 1, resumes=False),
        entry(6, "c2", 1, resumes=False),
        entry(7, "c1", 2, resumes=True),
    ]
    found = state_of(entries, "c1")
    assert found is not None
    assert (found.seq, found.at, found.number, found.trials, found.candidate_resumes) == (7, 7.0, 2, 2, True)
    assert state_of(entries, "c3") is None


# --- which runs -------------------------------------------------------------------------------------------------------

CANDIDATE = "c0123456789ab"
RULES = make_rules("first", "second")


def run_status(slot: str, *, saved: tuple[int, ...]) -> SlotStatus:
    """Return a run with one sealed segment."""
    side, _, recipe, _ = slot.split("/")
    receipt = documents.Receipt(
        start_sha256="a" * 64,
        slot=slot,
        attempt=1,
        allocation="a00001",
        kind="run",
        ending=Ending.TIME_LIMIT,
        reason="",
        elapsed_s=1.0,
        at=0.0,
        sides=(),
        calibration=None,
        segment=1,
        run=documents.RunReceipt(
            recipe=recipe,
            seed=documents.seed_of_run(slot),
            resumed=None,
            first_update=0,
            update=max(saved, default=0),
            checkpoints=tuple(
                documents.SealedCheckpoint(update=update, sha256=f"{update:064x}", bytes=1) for update in saved
            ),
            train_s=1.0,
            evaluate_s=0.0,
            save_s=0.0,
            load_s=0.0,
        ),
        files=(),
    )
    attempt = AttemptStatus(
        slot=slot,
        attempt=1,
        segment=1,
        allocation="a00001",
        job="",
        state=AttemptState.ENDED,
        ending=Ending.TIME_LIMIT,
        reason="",
        node="",
        source="receipt",
        receipt=receipt,
        receipt_sha256="d" * 64,
    )
    planned = documents.Slot(
        slot=slot.replace(CANDIDATE, "candidate"),
        side="baseline" if side == "baseline" else "candidate",
        phase="convergence",
        kind="run",
        workload=recipe,
        repeat=0,
        pair=0,
        order=("baseline",),
    )
    return SlotStatus(slot=planned, name=slot, state=SlotState.CUT, attempts=(attempt,))


def make_view(sealed: str = "d" * 64, **saved: tuple[int, ...]) -> View:
    """Return a view in which both sides have left checkpoints of runs, by `RECIPE_SEED`."""
    slots = {}
    for name, updates in saved.items():
        recipe, seed = name.split("_")
        for side in ("baseline", CANDIDATE):
            slot = f"{side}/run/{recipe}/s{seed}"
            slots[slot] = run_status(slot, saved=updates)
    history = History(sealed={one.attempts[0].key.receipt_name: sealed for one in slots.values() if sealed})
    return View(history=history, slots=slots, attempts={}, troubles=())


def find(view: View, *, recipe: str = "", seed: int | None = None, updates: int = 5) -> Any:
    rules = protocol(convergence=RULES)
    return find_subject(rules, view, CANDIDATE, recipe=recipe, seed=seed, updates=updates)


def test_without_a_wish_the_first_run_with_checkpoints_of_both_sides_is_taken() -> None:
    view = make_view(first_45=(), first_46=(3, 10), second_45=(4,))
    alone = run_status("baseline/run/second/s46", saved=(1,))
    view = replace(view, slots={**view.slots, alone.name: alone})
    view.history.sealed[alone.attempts[0].key.receipt_name] = "d" * 64
    assert (find(view).recipe.name, find(view).seed) == ("first", 46)
    assert (find(view, recipe="second").recipe.name, find(view, recipe="second").seed) == ("second", 45)
    source = find(view).sources[1]
    assert (source.owner, source.update, source.name.sha256) == ("candidate", 10, f"{10:064x}")
    for wish in ({"seed": 47}, {"recipe": "second", "seed": 46}):
        with pytest.raises(StateError, match="nothing to go on from"):
            find(view, **wish)


def test_no_more_updates_are_made_than_the_recipe_has_left() -> None:
    last = RULES.recipes[0].updates
    assert find(make_view(first_45=(last - 3, last))).num_updates(5) == 3
    assert find(make_view(first_45=(last - 30, last))).num_updates(5) == 5
    assert find(make_view(first_45=(last,))).num_updates(5) == 5


def test_what_the_protocol_does_not_have_is_refused() -> None:
    view = make_view(first_45=(3,))
    for wish, text in (({"recipe": "third"}, "no recipe 'third'"), ({"seed": 99}, "no seed 99")):
        with pytest.raises(StateError, match=text):
            find(view, **wish)
    with pytest.raises(StateError, match="trains nothing"):
        find_subject(protocol(), view, CANDIDATE, recipe="", seed=None, updates=5)


def test_a_receipt_must_be_the_one_that_the_ledger_names() -> None:
    with pytest.raises(StateError, match="not in the ledger yet"):
        find(make_view("", first_45=(3,)))
    with pytest.raises(EvidenceError, match="not the one that was seen before"):
        find(make_view("e" * 64, first_45=(3,)))


# --- running ----------------------------------------------------------------------------------------------------------


def test_a_harness_that_ends_without_a_receipt_is_an_error_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = documents.CheckpointName(segment=1, update=3, sha256="a" * 64)
    plan = documents.AllocationPlan(
        allocation="fallback",
        key="fallback",
        home="/nowhere",
        manifest_sha256="a" * 64,
        protocol_sha256="a" * 64,
        harness_sha256="a" * 64,
        sides={},
        data={},
        attempts=(make_resumption("baseline", "baseline", resume),),
    )
    asked = []

    def killed(command: Any, environment: Any) -> str:
        asked.append((command, environment))
        return "killed by its own side"

    monkeypatch.setattr(scratch_module, "run_command", killed)
    scratch = HomePaths(tmp_path / "scratch")
    scratch.allocation(trial.ALLOCATION).root.mkdir(parents=True)
    manifest = SimpleNamespace(harness_python="python")
    with pytest.raises(InfrastructureError, match="did not make the whole trial") as error:
        run_trial(HomePaths(tmp_path), cast("Frozen", SimpleNamespace(manifest=manifest)), plan, scratch, {"A": "b"})
    assert "killed by its own side" in error.value.why
    ((command, environment),) = asked
    assert command[-1] == str(scratch.allocation(trial.ALLOCATION).plan)
    assert environment == {"A": "b", "TMPDIR": str(scratch.root / "tmp")}
    assert documents.AllocationPlan.read(Path(command[-1])).home == str(scratch.root)


def test_no_trial_runs_inside_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = HomePaths(tmp_path / "home")
    paths.root.mkdir()
    inside = tmp_path / "link"
    inside.symlink_to(paths.root)
    subject = find(make_view(first_45=(3,)))
    for parent in (paths.root, inside):
        with pytest.raises(StateError, match="no trial runs inside the home"), scratch_home(paths, subject, parent):
            pass
    monkeypatch.setattr(tempfile, "tempdir", str(paths.root))
    with pytest.raises(StateError, match="no trial runs inside the home"), scratch_home(paths, subject, None):
        pass
    assert list(paths.root.iterdir()) == []


def test_the_harness_finds_the_rules_and_the_runs_of_both_sides_in_the_scratch_folder(tmp_path: Path) -> None:
    paths = HomePaths(tmp_path / "home")
    paths.root.mkdir()
    paths.protocol.write_bytes(b"rules")
    with scratch_home(paths, find(make_view(first_45=(3,))), tmp_path) as scratch:
        assert scratch.root.parent == tmp_path.resolve()
        assert scratch.protocol.read_bytes() == b"rules"
        assert scratch.allocation(trial.ALLOCATION).root.is_dir()
        for side in ("baseline", CANDIDATE):
            assert scratch.runs(side).readlink() == paths.runs(side)


def test_each_checkpoint_is_gone_on_from_by_its_owner_first() -> None:
    subject = find(make_view(first_45=(3,)))
    order = [(source.owner, side) for source, side in stretches(subject)]
    own, other = ("baseline", "candidate"), ("candidate", "baseline")
    assert order == [(own[0], own[0]), own, (other[0], other[0]), other]


# --- what a stretch left ----------------------------------------------------------------------------------------------

RESUME = documents.CheckpointName(segment=1, update=3, sha256="a" * 64)
PLANNED = make_resumption("candidate", "baseline", RESUME)
SAID = documents.Resumption(
    side="candidate",
    recipe=PLANNED.workload,
    seed=45,
    slot="baseline/run/short/s45",
    attempt=1,
    segment=1,
    update=3,
    sha256="a" * 64,
    is_loaded=True,
    losses=(3.0, 2.0, 1.0),
)


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., trial.Made]:
    """Return a function that reads what a stretch has left."""

    def read(ending: Ending = Ending.COMPLETED, said: documents.Resumption | None = SAID) -> trial.Made:
        folder = HomePaths(tmp_path).attempt(PLANNED.slot, PLANNED.attempt)
        folder.root.mkdir(parents=True, exist_ok=True)
        names = []
        if said is not None:
            folder.resumption.write_bytes(said.to_bytes())
            names = [SimpleNamespace(name=folder.resumption.name)]
        receipt = SimpleNamespace(ending=ending, reason="why", files=names)
        monkeypatch.setattr(trial, "expect", lambda *_: None)
        monkeypatch.setattr(trial, "read_attempt", lambda *_: (SimpleNamespace(receipt=receipt), ()))
        return trial._read_made(cast("Frozen", None), PLANNED, folder)

    return read


def test_what_a_stretch_left_is_taken_as_it_is(left: Callable[..., trial.Made]) -> None:
    assert left().resumption == SAID
    cut = SAID.replace(losses=(3.0,))
    assert left(Ending.CRASH, cut).resumption == cut
    assert left(Ending.CRASH, None).resumption is None


@pytest.mark.parametrize(
    "changes",
    [
        {"side": "baseline"},
        {"recipe": "other"},
        {"attempt": 2},
        {"segment": 2},
        {"update": 4},
        {"sha256": "b" * 64},
        {"losses": (3.0, 2.0)},
        {"losses": (3.0, 2.0, 1.0, 0.5)},
    ],
)
def test_a_stretch_that_tells_of_something_else_is_no_evidence(
    left: Callable[..., trial.Made], changes: dict[str, Any]
) -> None:
    with pytest.raises(EvidenceError):
        left(said=SAID.replace(**changes))


def test_no_more_losses_than_updates_are_believed_of_a_stretch_that_failed(left: Callable[..., trial.Made]) -> None:
    with pytest.raises(EvidenceError, match="4 losses of 3 updates"):
        left(Ending.CRASH, SAID.replace(losses=(4.0, *SAID.losses)))


def test_a_stretch_that_completed_must_say_what_it_did(left: Callable[..., trial.Made]) -> None:
    with pytest.raises(EvidenceError, match="does not say what the side did"):
        left(said=None)


@pytest.mark.parametrize("ending", sorted(trial.NO_TRIAL))
def test_an_ending_that_says_nothing_of_the_side_makes_no_trial(
    left: Callable[..., trial.Made], ending: Ending
) -> None:
    with pytest.raises(InfrastructureError, match="did not run to its end"):
        left(ending)


def test_endings_of_the_machine_say_nothing_of_a_side() -> None:
    of_machine = {"cancelled", "lost", "node_fail", "no_space", "preempted", "time_limit"}
    assert {str(ending) for ending in trial.NO_TRIAL} == {*of_machine, "checkpoint_refused", "data_changed"}


# --- the checkpoint itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saved", "wrong", "text"),
    [
        ({}, (), "it is not there"),
        ({3: "b" * 64}, (), "its segment's receipt lists"),
        ({3: f"{3:064x}"}, (Finding(where="x", what="one byte is another"),), "one byte is another"),
    ],
)
def test_a_checkpoint_is_held_to_what_its_receipt_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: dict[int, str], wrong: tuple[Finding, ...], text: str
) -> None:
    view = make_view(first_45=(3,))
    source = find(view).sources[0]
    found = {update: SimpleNamespace(sha256=sha256, files=()) for update, sha256 in saved.items()}
    monkeypatch.setattr(History, "attempt", lambda *_: None)
    monkeypatch.setattr(subject_module, "owner_of", lambda *_: None)
    monkeypatch.setattr(subject_module, "read_checkpoints", lambda *_: (found, ()))
    monkeypatch.setattr(subject_module, "check_files", lambda *_: (wrong, {}))
    with pytest.raises(TamperedError) as error:
        check_source(HomePaths(tmp_path), cast("Frozen", None), view, RULES.recipes[0], source)
    assert text in error.value.why
