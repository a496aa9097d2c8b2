"""A side goes on from a checkpoint of either side, in a real process, and each way in which it can fail to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import documents
from jobs.common.plan import parse_allocation
from tests.support.harness import CANDIDATE, RECIPE, Bench, freeze_side, make_run
from tests.support.resumptions import make_resumption, make_two, plan_resumptions, read_resumption
from tests.support.segments import UPDATES, trainer

RUN = make_run()
FAULTS = {
    "load raises": (
        "def load(self, folder):\n    raise ValueError('not mine')",
        Ending.CRASH,
        "not mine",
    ),
    "stands elsewhere": (
        "def load(self, folder):\n    super().load(folder)\n    self.update += 1",
        Ending.STATE_MISMATCH,
        "update was 1, is 2",
    ),
    "hangs": ("def load(self, folder):\n    time.sleep(60)", Ending.HANG, "loading the checkpoint of update 1"),
    "no number": (
        "def loss(self):\n    return float('nan') if self.update == 3 else super().loss()",
        Ending.NON_FINITE,
        "update 3: its loss is nan",
    ),
    "no loss": ("loss = None", Ending.ADAPTER_INCOMPLETE, "does not offer loss"),
    "writes into it": (
        """def load(self, folder):
    super().load(folder)
    (folder / 'random.json').chmod(0o600)
    (folder / 'random.json').write_text('[]')
""",
        Ending.INTERFERENCE,
        "changed the checkpoint",
    ),
    "removes it": (
        "def load(self, folder):\n    super().load(folder)\n    import shutil\n    shutil.rmtree(folder)",
        Ending.INTERFERENCE,
        "changed the checkpoint",
    ),
}
"""What the candidate's trainer does, and what a resumption then ends with."""


SIDES: tuple[documents.SideName, ...] = ("baseline", "candidate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What one job of resumptions left."""

    bench: Bench
    right: dict[documents.SideName, documents.PlannedAttempt]
    """Both sides from the baseline's checkpoint."""
    faulty: dict[str, documents.PlannedAttempt]
    """Another candidate from it, by what is wrong with that one."""
    refused: documents.PlannedAttempt
    """From a checkpoint of another digest than is there."""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """Train the baseline, then let everybody go on from its first checkpoint."""
    bench = make_two(tmp_path_factory.mktemp("resumptions"))
    bench.run(bench.plan(RUN))
    assert bench.receipt(RUN).ending is Ending.COMPLETED
    first = bench.name_checkpoint(RUN, min(bench.checkpoints(RUN)))
    right = {side: make_resumption(side, "baseline", first) for side in SIDES}
    refused = make_resumption("candidate", "baseline", first.replace(sha256="0" * 64))
    refused = refused.replace(slot=refused.slot.replace(CANDIDATE, "c999999999999"))
    plans = [plan_resumptions(bench, *right.values(), refused, allocation="a00002")]
    own, faulty = bench.runnables["candidate"], {}
    for number, (fault, (body, _, _)) in enumerate(FAULTS.items()):
        identity = f"c{number:012x}"
        sources = {"adapter.py": trainer(body)}
        bench.runnables["candidate"] = freeze_side(bench.paths.root, identity, sources, python=own.python)
        planned = right["candidate"]
        faulty[fault] = planned.replace(slot=planned.slot.replace(CANDIDATE, identity))
        plans.append(plan_resumptions(bench, faulty[fault], allocation=f"a1000{number}"))
    bench.run(*plans)
    return Tried(bench=bench, right=right, faulty=faulty, refused=refused)


def test_each_side_makes_the_updates_that_the_training_made(tried: Tried) -> None:
    found = {side: read_resumption(tried.bench, planned) for side, planned in tried.right.items()}
    for side, planned in tried.right.items():
        receipt = tried.bench.receipt(planned)
        assert (receipt.ending, receipt.run) == (Ending.COMPLETED, None), receipt.reason
        one = found[side]
        assert (one.side, one.slot, one.attempt, one.segment, one.update) == (side, RUN.slot, 1, 1, 1)
        assert one.is_loaded
    losses = found["baseline"].losses
    assert losses == found["candidate"].losses
    assert len(set(losses)) == tried.right["baseline"].updates


@pytest.mark.parametrize("fault", FAULTS)
def test_a_side_that_cannot_ends_with_its_reason_and_the_losses_so_far(tried: Tried, fault: str) -> None:
    _, ending, reason = FAULTS[fault]
    receipt = tried.bench.receipt(tried.faulty[fault])
    assert receipt.ending is ending, receipt.reason
    assert reason in receipt.reason
    found = read_resumption(tried.bench, tried.faulty[fault])
    assert len(found.losses) == {"no number": 1, "writes into it": 3, "removes it": 3}.get(fault, 0)
    assert found.is_loaded is bool(found.losses)


OTHER_ONCE_LOADED = """
def load(self, folder):
    super().load(folder)
    self.was_loaded = True

def engaged(self):
    return {"path": "running" if hasattr(self, "was_loaded") else "walking"}
"""


def test_a_side_keeps_to_the_path_of_its_own_checkpoint_and_to_that_of_no_other(tmp_path: Path) -> None:
    bench = make_two(tmp_path, trainer(OTHER_ONCE_LOADED), trainer(OTHER_ONCE_LOADED))
    bench.run(bench.plan(RUN))
    first = bench.name_checkpoint(RUN, min(bench.checkpoints(RUN)))
    own, other = (make_resumption(side, "baseline", first) for side in SIDES)
    bench.run(plan_resumptions(bench, own, other, allocation="a00002"))
    receipt = bench.receipt(own)
    assert receipt.ending is Ending.STATE_MISMATCH, receipt.reason
    assert "a run keeps to one path" in receipt.reason
    assert bench.receipt(other).ending is Ending.COMPLETED, bench.receipt(other).reason


def test_the_checkpoint_itself_stays_as_it_was_whatever_a_side_does(tried: Tried) -> None:
    assert tried.bench.receipt(RUN).run is not None
    assert set(tried.bench.checkpoints(RUN)) == {1, UPDATES}


def test_a_checkpoint_that_is_not_the_planned_one_is_refused(tried: Tried) -> None:
    assert tried.bench.receipt(tried.refused).ending is Ending.CHECKPOINT_REFUSED


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"slot": f"baseline/run/{RECIPE}/s45"}, "not the name of a resumption"),
        ({"slot": "baseline/resumption/other/s45/from-baseline"}, "not the name of a resumption"),
        ({"resume": None}, "a resumption of nothing"),
        ({"segment": 2}, "segment 2 of a resumption"),
        ({"updates": 0}, "0 updates"),
        ({"order": ("baseline", "candidate")}, "does not run"),
    ],
)
def test_a_plan_that_is_no_resumption_is_refused(tmp_path: Path, changes: dict[str, object], text: str) -> None:
    resume = documents.CheckpointName(segment=1, update=4, sha256="a" * 64)
    bench = make_two(tmp_path)
    right = make_resumption("baseline", CANDIDATE, resume)
    plan = plan_resumptions(bench, right, allocation="a00001")
    assert parse_allocation(plan.read_bytes(), "a00001").attempts[0].saved_by().slot == f"{CANDIDATE}/run/{RECIPE}/s45"
    wrong = plan_resumptions(bench, right.replace(**changes), allocation="a00002")
    with pytest.raises(ValueError, match=text):
        parse_allocation(wrong.read_bytes(), "a00002")


def test_a_plan_that_does_not_say_how_to_run_who_saved_the_checkpoint_is_refused(tmp_path: Path) -> None:
    bench = make_two(tmp_path)
    resume = documents.CheckpointName(segment=1, update=4, sha256="a" * 64)
    plan = bench.plan(make_resumption("baseline", CANDIDATE, resume))
    with pytest.raises(ValueError, match="does not say how to run candidate"):
        parse_allocation(plan.read_bytes(), "a00001")
