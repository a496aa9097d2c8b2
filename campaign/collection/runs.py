"""What a sealed segment of a run, and the pilot of a recipe, must say beside what every sealed attempt says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from acceptance import formats
from acceptance.formats import CONVERGENCE, CURVES, Ending
from campaign import documents
from campaign.collection.checkpoints import Saved
from campaign.collection.sealed import Finding, SealedAttempt
from campaign.paths import AttemptPaths
from campaign.watching.state import CUTS

TABLES = (CONVERGENCE, CURVES)
"""What a run writes."""
_OF_RECIPES = ("evaluate_s", "checkpoint_bytes", "save_s")
"""Fields of a calibration that only the pilot of a recipe has."""


def check_attempt(
    sealed: SealedAttempt, planned: documents.PlannedAttempt, protocol: documents.Protocol, folder: AttemptPaths
) -> Iterator[Finding]:
    """Yield a finding for everything of the convergence family that an attempt should not have left, or left out.

    Args:
        sealed: The attempt, or segment; its bytes are those that its receipt sealed.
        planned: What was planned.
        protocol: The frozen protocol.
        folder: Its folder.
    """
    if planned.kind == "run":
        yield from _check_segment(sealed, planned, protocol, folder)
        return
    if sealed.receipt.run is not None:
        yield Finding(where=str(folder.receipt), what=f"a {planned.kind} that says how a run went")
    for table in TABLES:
        if table.file in sealed.tables:
            yield Finding(where=str(folder.table(table.file)), what=f"a {planned.kind} trains nothing")
    if planned.kind == "pilot" and sealed.receipt.ending is Ending.COMPLETED:
        what = _fault_of_calibration(sealed.receipt.calibration, is_recipe=_is_recipe(protocol, planned))
        if what:
            yield Finding(where=str(folder.receipt), what=what)


def _is_recipe(protocol: documents.Protocol, planned: documents.PlannedAttempt) -> bool:
    return protocol.recipe(planned.workload) is not None


def _fault_of_calibration(calibration: documents.Calibration | None, *, is_recipe: bool) -> str:
    present = [] if calibration is None else [name for name in _OF_RECIPES if getattr(calibration, name) is not None]
    if is_recipe and len(present) != len(_OF_RECIPES):
        absent = ", ".join(name for name in _OF_RECIPES if name not in present)
        return f"the pilot of a recipe completed without {absent}"
    if present and not is_recipe:
        return f"the pilot of a workload has {', '.join(present)}"
    return ""


# --- a segment --------------------------------------------------------------------------------------------------------


def _check_segment(
    sealed: SealedAttempt, planned: documents.PlannedAttempt, protocol: documents.Protocol, folder: AttemptPaths
) -> Iterator[Finding]:
    receipt, recipe = sealed.receipt, protocol.recipe(planned.workload)
    where = str(folder.receipt)
    yield from _check_tables(sealed, planned, folder)
    if recipe is None:
        yield Finding(where=where, what=f"the protocol has no recipe {planned.workload!r}")
    elif receipt.run is not None:
        for fault in _faults(receipt.run, planned, recipe, completed=receipt.ending is Ending.COMPLETED):
            yield Finding(where=where, what=fault)
    elif receipt.ending is Ending.COMPLETED:
        yield Finding(where=where, what="completed, but it does not say how the run went")


def _faults(
    run: documents.RunReceipt, planned: documents.PlannedAttempt, recipe: documents.Recipe, *, completed: bool
) -> Iterator[str]:
    """Yield what is wrong with what a receipt says of a segment."""
    first = planned.resume.update if planned.resume is not None else 0
    wanted: Mapping[str, object] = {
        "recipe": recipe.name,
        "seed": documents.seed_of_run(planned.slot),
        "resumed": planned.resume,
        "first_update": first,
    }
    for name, value in wanted.items():
        if getattr(run, name) != value:
            yield f"run.{name} is {getattr(run, name)!r} where the plan says {value!r}"
    last = recipe.updates if completed else run.update
    if not first <= run.update <= recipe.updates or run.update != last:
        yield f"run.update is {run.update} after a start at {first}; the recipe has {recipe.updates}"
    if completed and not run.evaluate_s > 0:
        yield f"run.evaluate_s is {run.evaluate_s!r}, and the segment that completes a run evaluates itself"
    saved = [one.update for one in run.checkpoints]
    # A segment that starts at the end saves what it found: it has no other state to leave.
    before = first - 1 if first == recipe.updates else first
    if not all(earlier < later for earlier, later in pairwise([before, *saved, run.update + 1])):
        yield f"run.checkpoints are after the updates {saved}, in a segment from {first} to {run.update}"


def _check_tables(sealed: SealedAttempt, planned: documents.PlannedAttempt, folder: AttemptPaths) -> Iterator[Finding]:
    """Yield a finding for every table that such a segment does not write, does not leave out, or that is another's."""
    ending = sealed.receipt.ending
    key = {
        "recipe": planned.workload,
        "seed": documents.seed_of_run(planned.slot),
        "side": planned.order[0],
        "attempt": planned.attempt,
    }
    for name, rows in sealed.tables.items():
        where = str(folder.table(name))
        if name not in {table.file for table in TABLES}:
            yield Finding(where=where, what="no run writes this table")
        elif ending in CUTS or (name == CONVERGENCE.file and ending is not Ending.COMPLETED):
            yield Finding(where=where, what=f"a segment that ended {ending} does not write this table")
        for row in rows:
            if any(name in row.values and row.values[name] != value for name, value in key.items()):
                yield Finding(where=f"{where}:{row.line}", what="a row of another run")
    if ending is Ending.COMPLETED:
        for table in TABLES:
            if table.file not in sealed.tables:
                yield Finding(where=str(folder.receipt), what=f"completed without {table.file}")


# --- with its checkpoints ---------------------------------------------------------------------------------------------


def check_listed(
    run: documents.RunReceipt | None, checkpoints: Mapping[int, Saved], folder: AttemptPaths
) -> Iterator[Finding]:
    """Yield a finding where the checkpoints of a sealed segment are not those that its receipt lists.

    Args:
        run: What the receipt says; None if it says nothing.
        checkpoints: Those that are there and right, by update.
        folder: The segment's folder.
    """
    listed = {} if run is None else {one.update: one for one in run.checkpoints}
    for update, one in listed.items():
        where = str(folder.checkpoint(update).root)
        saved = checkpoints.get(update)
        if saved is None:
            yield Finding(where=where, what="listed by the receipt, and it is not there as it was saved")
        elif saved.sha256 != one.sha256:
            what = f"its checkpoint.json has the SHA-256 {saved.sha256}, the receipt says {one.sha256}"
            yield Finding(where=where, what=what)
        elif saved.num_bytes != one.bytes:
            yield Finding(where=where, what=f"{saved.num_bytes} bytes, the receipt says {one.bytes}")
    for update in checkpoints:
        if update not in listed:
            what = "not listed by the receipt of its segment: added later"
            yield Finding(where=str(folder.checkpoint(update).root), what=what)


def check_result(sealed: SealedAttempt, final: Saved, segment: int, folder: AttemptPaths) -> Iterator[Finding]:
    """Yield a finding in what the tables of a completed run do not agree with its last checkpoint.

    Args:
        sealed: The last segment.
        final: The checkpoint after the last update.
        segment: Number of the last segment.
        folder: Its folder.
    """
    account = final.document
    where = str(folder.table(CONVERGENCE.file))
    rows = sealed.tables.get(CONVERGENCE.file, ())
    if len(rows) != 1:
        yield Finding(where=where, what=f"{len(rows)} rows of one run")
        return
    row = rows[0].values
    text = dict(zip(CONVERGENCE.header, rows[0].raw.split(","), strict=True))
    loss = repr(account.curve[-1].validation_loss) if account.curve else "none"
    if text["final_loss"] != loss:
        yield Finding(where=where, what=f"final_loss is {text['final_loss']}, the last checkpoint says {loss}")
    wanted: dict[str, object] = {
        "target_tokens": account.tokens,
        "updates": account.update,
        "segments": segment,
        "train_s": account.train_s,
        "checkpoint_sha256": final.sha256,
    }
    for name, value in wanted.items():
        if row[name] != value:
            yield Finding(where=where, what=f"{name} is {text[name]}, the last checkpoint says {value}")
    if not account.elapsed_s <= float(row["elapsed_s"]):
        what = f"elapsed_s is {text['elapsed_s']}, the last checkpoint says {account.elapsed_s!r} already"
        yield Finding(where=where, what=what)


def check_curve(sealed: SealedAttempt, account: documents.Checkpoint, folder: AttemptPaths) -> Iterator[Finding]:
    """Yield a finding where a curve does not hold, point by point, the one of a checkpoint.

    Args:
        sealed: The last segment; of a completed one the curves must be the same, of another it may go on.
        account: The newest checkpoint.
        folder: The segment's folder.
    """
    rows = sealed.tables.get(CURVES.file)
    if rows is None:
        return
    made = [_point(row) for row in rows]
    known = [(point.update, point.tokens, repr(point.validation_loss)) for point in account.curve]
    completed = sealed.receipt.ending is Ending.COMPLETED
    if (made if completed else made[: len(known)]) != known:
        differing = next((index for index, (one, two) in enumerate(zip(made, known, strict=False)) if one != two), -1)
        line = f":{rows[differing].line}" if differing >= 0 else ""
        where = f"{folder.table(CURVES.file)}{line}"
        yield Finding(where=where, what=f"not the {len(known)} points that the last checkpoint holds")


def _point(row: formats.Row) -> tuple[formats.Value, formats.Value, str]:
    return row.values["update"], row.values["tokens"], row.raw.rpartition(",")[2]
