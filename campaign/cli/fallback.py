"""``campaign fallback``."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path

import click

from campaign import documents
from campaign.cli.options import absolute, home_option, json_option
from campaign.cli.output import Output
from campaign.cli.rerun import harness_environment
from campaign.errors import ExitCode, StateError
from campaign.fallback.comparing import Tolerance, judge, tolerance_of
from campaign.fallback.keeping import keep, shortened
from campaign.fallback.subject import Subject, check_source, find_subject
from campaign.fallback.trial import Conducted, Made, build_trial, require_able, run_trial, scratch_home
from campaign.freezing.staging import remove_tree
from campaign.frozen import Frozen, read_frozen
from campaign.paths import HomePaths
from campaign.record.ledger import Ledger, read_entries, require_open
from campaign.rerun import device_kind
from campaign.submission.choose import find_candidate
from campaign.submission.desk import Desk, open_desk
from campaign.table import table
from campaign.watching.observation import View

MOST_UPDATES = 1000


@click.command()
@click.option("--candidate", default="", metavar="ID", help="Which candidate; default: the last one frozen.")
@click.option("--recipe", default="", metavar="NAME", help="Which recipe; default: the first one with checkpoints.")
@click.option("--seed", type=int, help="Which seed; default: the first one with checkpoints.")
@click.option(
    "--updates",
    type=click.IntRange(1, MOST_UPDATES),
    default=5,
    help="Updates from each checkpoint; fewer where the recipe has fewer left.",
)
@click.option(
    "--scratch",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder in which to make the scratch folder; default: that for temporary files.",
)
@home_option
@json_option
def command(
    *,
    home: HomePaths,
    output: Output,
    candidate: str,
    recipe: str,
    seed: int | None,
    updates: int,
    scratch: Path | None,
) -> int:
    """Try whether each side goes on from a checkpoint of the other, and keep what came of it.

    It runs here, from the frozen harness and snapshots, in a scratch folder: both sides from a checkpoint of the
    baseline, then both from one of the candidate. The losses of the side that saved it are compared with the other's.
    No gate depends on it; the report says how it ended.

    Exits with 0 if each side resumes the other's checkpoint, and with 4 if one does not.
    """
    desk = open_desk(home, read_frozen(home), time.time)
    desk.check_frozen()
    require_open(home, read_entries(home), "no fallback is tried in it")
    require_able(home)
    view, chosen = _look(desk, candidate)
    subject = find_subject(desk.frozen.protocol, view, chosen, recipe=recipe, seed=seed, updates=updates)
    _check_sources(home, desk.frozen, view, subject)
    num_updates = subject.num_updates(updates)
    parent = absolute(scratch) if scratch is not None else None
    with scratch_home(home, subject, parent) as made:
        for source in subject.sources:
            output.note(f"{source.owner}: the checkpoint of update {source.update}, {source.status.key.text}")
        output.note(f"going on from each for {num_updates} updates, by both sides, in {made.root}")
        plan = build_trial(desk.frozen, home, subject, num_updates)
        done = run_trial(home, desk.frozen, plan, made, harness_environment(desk.frozen, os.environ))
        _check_sources(home, desk.frozen, view, subject)
        conducted = Conducted(subject=subject, scratch=made, made=done)
        with Ledger.open(home, time.time) as ledger:

            def trial(number: int) -> documents.FallbackTrial:
                return _document(desk.frozen, subject, done, number=number, updates=num_updates, at=time.time())

            document, where = keep(home, ledger, trial, conducted)
        remove_tree(made.root)
    both = all(direction.resumes for direction in document.directions)
    output.result(text(document, where.root), {**document.to_json(), "path": str(where.root)})
    return int(ExitCode.DONE if both else ExitCode.WANTING)


def _look(desk: Desk, candidate: str) -> tuple[View, str]:
    """Return the slots of the candidate that is meant, and its id; nothing may measure here meanwhile."""
    history = desk.history()
    chosen = find_candidate(candidate, list(desk.frozen.candidates), history.candidates)
    if not chosen:
        raise StateError("no candidate has been frozen", hint="campaign freeze --candidate PATH")
    view = desk.view(chosen, history)
    desk.refuse_two_local_jobs(view)
    return view, chosen


def _check_sources(home: HomePaths, frozen: Frozen, view: View, subject: Subject) -> None:
    for source in subject.sources:
        check_source(home, frozen, view, subject.recipe, source)


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, say
        return str(os.getuid())


def _document(
    frozen: Frozen, subject: Subject, made: tuple[Made, ...], *, number: int, updates: int, at: float
) -> documents.FallbackTrial:
    tolerance: Tolerance = tolerance_of(frozen.protocol)
    from_baseline, from_candidate = judge(subject, made, tolerance)
    start = made[0].sealed.start
    return documents.FallbackTrial(
        campaign=frozen.manifest.campaign,
        manifest_sha256=frozen.manifest_sha256,
        protocol_sha256=frozen.protocol_sha256,
        harness_sha256=frozen.manifest.harness_sha256,
        baseline_sha256=frozen.manifest.baseline.snapshot_sha256,
        candidate=subject.candidate,
        candidate_sha256=frozen.candidates[subject.candidate].candidate.snapshot_sha256,
        number=number,
        recipe=subject.recipe.name,
        seed=subject.seed,
        updates=updates,
        loss_atol=tolerance.atol,
        loss_rtol=tolerance.rtol,
        tolerance=tolerance.source,
        by=_account(),
        node=start.host.node,
        device=device_kind(start),
        at=at,
        directions=(from_baseline, from_candidate),
    )


def text(trial: documents.FallbackTrial, where: Path) -> str:
    """Return a trial for reading."""
    lines = [f"{trial.candidate}, recipe {trial.recipe}, seed {trial.seed}; on {trial.device}, {trial.node}"]
    for direction in trial.directions:
        first = direction.checkpoint.update
        words = "resumes" if direction.resumes else "does not resume"
        lines += ["", f"The {direction.other.side} {words} the {direction.owner}'s checkpoint of update {first}."]
        if direction.reason:
            lines.append(f"  {shortened(direction.reason)}")
        rows = [
            (str(first + place), repr(mine), repr(theirs), f"{difference:.3g}")
            for place, (mine, theirs, difference) in enumerate(
                zip(direction.own.losses, direction.other.losses, direction.differences, strict=False), start=1
            )
        ]
        if rows:
            lines.append(table(("update", direction.own.side, direction.other.side, "difference"), rows))
    if not any(direction.checkpoint.updates_left for direction in trial.directions):
        lines += ["", "Both are checkpoints of a training's last update: what follows lies beyond the recipe's end."]
    allowed = f"allowed is {trial.loss_atol} + {trial.loss_rtol} * |loss of the side that saved it|"
    lines += ["", f"{allowed} ({trial.tolerance})", f"kept: {where}"]
    return "\n".join(lines)
