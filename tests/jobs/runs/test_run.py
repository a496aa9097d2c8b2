"""Runs with real processes: whole ones, cut ones, and what they leave."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign import documents
from jobs.common.strict import dump_json
from tests.support.harness import CANDIDATE, RECIPE, Bench, make_run
from tests.support.segments import UPDATES, cut, make_runs, newest, targets

WHOLE = make_run()
OTHER = make_run(seed=46)
CANDIDATES = make_run("candidate")
CONVERGENCE, CURVES = "convergence.csv", "curves.csv"
LOSSES = ("final_loss", "target_tokens", "validation_tokens", "updates")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a home with runs that nobody cut."""
    bench = make_runs(tmp_path_factory.mktemp("whole"), checkpoint_s=1)
    others = [bench.plan(one, allocation=name) for name, one in (("a00002", OTHER), ("a00003", CANDIDATES))]
    done = bench.run(bench.plan(WHOLE), *others)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return bench


def final(bench: Bench, planned: documents.PlannedAttempt) -> dict[str, Any]:
    (row,) = bench.rows(planned, CONVERGENCE)
    return dict(row.values)


def points(bench: Bench, planned: documents.PlannedAttempt) -> list[dict[str, Any]]:
    return [dict(row.values) for row in bench.rows(planned, CURVES)]


def losses(bench: Bench, planned: documents.PlannedAttempt) -> list[object]:
    """Return what must not depend on where a run was cut."""
    row = final(bench, planned)
    return [*(row[name] for name in LOSSES), *points(bench, planned)]


def test_a_run_leaves_its_curve_its_final_loss_and_its_last_checkpoint(whole: Bench) -> None:
    receipt = whole.receipt(WHOLE)
    assert (receipt.ending, receipt.segment, receipt.reason) == (Ending.COMPLETED, 1, "")
    row = final(whole, WHOLE)
    curve = points(whole, WHOLE)
    assert [(point["update"], point["tokens"]) for point in curve] == [(n, targets(n)) for n in (10, 20, UPDATES)]
    assert row["final_loss"] == curve[-1]["validation_loss"]
    assert [row[name] for name in ("recipe", "seed", "side", "attempt", "segments")] == [RECIPE, 45, "baseline", 1, 1]
    assert [row[name] for name in LOSSES[1:]] == [targets(), 7, UPDATES]
    last = receipt.run.checkpoints[-1] if receipt.run else None
    assert last is not None
    assert (last.update, last.sha256) == (UPDATES, row["checkpoint_sha256"])


def test_its_receipt_and_its_checkpoints_say_what_was_done(whole: Bench) -> None:
    run = whole.receipt(WHOLE).run
    assert run is not None
    assert (run.recipe, run.seed, run.resumed, run.first_update, run.update) == (RECIPE, 45, None, 0, UPDATES)
    assert run.checkpoints[0].update == 1
    first, last = (whole.checkpoints(WHOLE)[one.update] for one in (run.checkpoints[0], run.checkpoints[-1]))
    assert (first.curve, first.tokens, first.previous) == ((), targets(1), None)
    assert [point.update for point in last.curve] == [10, 20, UPDATES]
    assert [file.name for file in last.files] == ["random.json", "state/numbers.json"]
    assert sum(file.bytes for file in last.files) == run.checkpoints[-1].bytes
    row = final(whole, WHOLE)
    assert last.train_s == run.train_s == row["train_s"]
    assert last.elapsed_s < row["elapsed_s"]
    assert run.train_s + run.evaluate_s + run.save_s < row["elapsed_s"]
    assert min(run.evaluate_s, run.save_s) > run.load_s == 0
    assert list(whole.ended().receipts) == [f"baseline/run/{RECIPE}/s45/1/1"]


def test_another_seed_gives_another_run(whole: Bench) -> None:
    assert losses(whole, OTHER)[0] != losses(whole, WHOLE)[0]


def test_a_run_of_the_candidate_is_told_so(whole: Bench) -> None:
    assert losses(whole, CANDIDATES)[0] == losses(whole, WHOLE)[0]
    assert final(whole, CANDIDATES)["side"] == "candidate"
    assert whole.checkpoints(CANDIDATES)[UPDATES].slot == f"{CANDIDATE}/run/{RECIPE}/s45"


CUTS = (
    ("updates:6", signal.SIGTERM, Ending.CANCELLED, 6),
    ("updates:9", signal.SIGUSR2, Ending.TIME_LIMIT, 10),
    ("evaluate:20", signal.SIGINT, Ending.CANCELLED, 20),
)
"""Where and how a run is cut, how that segment ends, and from where at least the next one goes on."""


def test_a_run_cut_three_times_ends_as_the_one_that_nobody_cut(tmp_path: Path, whole: Bench) -> None:
    bench = make_runs(tmp_path)
    resume: documents.CheckpointName | None = None
    for segment, (place, number, ending, at) in enumerate(CUTS, start=1):
        planned = make_run(segment=segment, resume=resume)
        assert cut(bench, planned, place, number, allocation=f"a0000{segment}") == 128 + number
        receipt = bench.receipt(planned)
        assert receipt.ending is ending, receipt.reason
        assert receipt.reason.startswith(number.name)
        assert bench.ended(f"a0000{segment}").reason == "done"
        assert not bench.attempt(planned).table(CONVERGENCE).exists()
        assert receipt.run is not None
        assert receipt.run.resumed == resume
        assert receipt.run.first_update == (0 if resume is None else resume.update)
        resume = newest(bench, planned)
        assert receipt.run.update == resume.update >= at
    last = make_run(segment=4, resume=resume)
    bench.run(bench.plan(last, allocation="a00009"))
    assert losses(bench, last) == losses(whole, WHOLE)
    row = final(bench, last)
    assert row["segments"] == 4
    receipts = [bench.receipt(make_run(segment=segment)).run for segment in (1, 2, 3, 4)]
    assert row["train_s"] == pytest.approx(sum(run.train_s for run in receipts if run is not None))
    assert all(run is not None and run.load_s > 0 for run in receipts[1:])
    assert list(bench.temporary.iterdir()) == []


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(tmp_path: Path, whole: Bench) -> None:
    bench = make_runs(tmp_path)
    assert cut(bench, WHOLE, "updates:17", signal.SIGKILL) == -signal.SIGKILL
    assert not bench.attempt(WHOLE).receipt.exists()
    name = newest(bench, WHOLE)
    assert name.update == 1
    again = make_run(segment=2, resume=name)
    bench.run(bench.plan(again, allocation="a00002"))
    assert losses(bench, again) == losses(whole, WHOLE)
    row = final(bench, again)
    run = bench.receipt(again).run
    assert run is not None
    assert row["train_s"] == bench.checkpoints(WHOLE)[1].train_s + run.train_s


def test_a_signal_in_the_middle_of_a_save_lets_it_end_and_writes_no_other(tmp_path: Path) -> None:
    bench = make_runs(tmp_path)
    assert cut(bench, WHOLE, "save:1", signal.SIGTERM) == 128 + signal.SIGTERM
    run = bench.receipt(WHOLE).run
    assert run is not None
    assert [one.update for one in run.checkpoints] == [1]


def test_a_run_cut_after_its_last_update_goes_on_with_what_is_left(tmp_path: Path, whole: Bench) -> None:
    bench = make_runs(tmp_path)
    cut(bench, WHOLE, f"updates:{UPDATES}", signal.SIGTERM)
    name = newest(bench, WHOLE)
    assert name.update == UPDATES
    assert [point.update for point in bench.checkpoints(WHOLE)[UPDATES].curve] == [10, 20]
    last = make_run(segment=2, resume=name)
    bench.run(bench.plan(last, allocation="a00002"))
    assert bench.receipt(last).ending is Ending.COMPLETED, bench.receipt(last).reason
    assert losses(bench, last) == losses(whole, WHOLE)
    run = bench.receipt(last).run
    assert run is not None
    assert (run.first_update, run.update, run.train_s) == (UPDATES, UPDATES, 0.0)
    assert [one.update for one in run.checkpoints] == [UPDATES]


def kill_after_the_last_checkpoint(bench: Bench) -> documents.CheckpointName:
    """Kill the harness between a run's last checkpoint and its receipt; return the name of that checkpoint."""
    assert cut(bench, WHOLE, f"close:{UPDATES}", signal.SIGKILL) == -signal.SIGKILL
    assert not bench.attempt(WHOLE).receipt.exists()
    assert [point.update for point in bench.checkpoints(WHOLE)[UPDATES].curve] == [10, 20, UPDATES]
    return newest(bench, WHOLE)


def test_a_run_killed_before_its_receipt_evaluates_its_last_state_again(tmp_path: Path, whole: Bench) -> None:
    bench = make_runs(tmp_path)
    last = make_run(segment=2, resume=kill_after_the_last_checkpoint(bench))
    bench.run(bench.plan(last, allocation="a00002"))
    receipt = bench.receipt(last)
    assert receipt.ending is Ending.COMPLETED, receipt.reason
    assert losses(bench, last) == losses(whole, WHOLE)
    assert receipt.run is not None
    assert receipt.run.evaluate_s > 0


@pytest.mark.parametrize(("factor", "ending"), [(0.05, Ending.STATE_MISMATCH), (1 - 1e-4, Ending.COMPLETED)])
def test_a_final_loss_is_not_what_an_edited_checkpoint_says(
    tmp_path: Path, whole: Bench, factor: float, ending: Ending
) -> None:
    bench = make_runs(tmp_path)
    kill_after_the_last_checkpoint(bench)
    document = bench.attempt(WHOLE).checkpoint(UPDATES).document
    value = json.loads(document.read_text())
    value["curve"][-1]["validation_loss"] *= factor
    document.chmod(0o644)
    document.write_bytes(dump_json(value))
    last = make_run(segment=2, resume=newest(bench, WHOLE))
    bench.run(bench.plan(last, allocation="a00002"))
    receipt = bench.receipt(last)
    assert receipt.ending is ending, receipt.reason
    if ending is Ending.COMPLETED:
        assert losses(bench, last) == losses(whole, WHOLE)
    else:
        said = value["curve"][-1]["validation_loss"]
        assert receipt.reason.endswith(f"and the checkpoint says {said!r} of the same state")


def test_a_signal_during_the_last_step_leaves_nothing_undone(tmp_path: Path, whole: Bench) -> None:
    bench = make_runs(tmp_path)
    assert cut(bench, WHOLE, f"save:{UPDATES}", signal.SIGTERM) == 128 + signal.SIGTERM
    assert bench.receipt(WHOLE).ending is Ending.COMPLETED, bench.receipt(WHOLE).reason
    assert losses(bench, WHOLE) == losses(whole, WHOLE)


@pytest.mark.slow
def test_checkpoints_follow_one_another_after_so_many_seconds(tmp_path: Path) -> None:
    bench = make_runs(tmp_path, updates=1500, evaluate_every=100, checkpoint_s=1)
    bench.run(bench.plan(WHOLE))
    receipt = bench.receipt(WHOLE)
    assert receipt.run is not None
    updates = [one.update for one in receipt.run.checkpoints]
    assert updates[0] == 1
    assert updates[-1] == 1500
    assert 3 <= len(updates) <= 12
    assert updates == sorted(set(updates))
