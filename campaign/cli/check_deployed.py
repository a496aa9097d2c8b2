"""``campaign check-deployed``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from campaign import files
from campaign.cli.decide import describe, value_of
from campaign.cli.options import absolute, home_option, json_option
from campaign.cli.output import Output
from campaign.deployed import (
    Comparison,
    compare_interpreter,
    compare_lockfile,
    compare_tree,
    read_side,
    together,
)
from campaign.documents import RunSide
from campaign.errors import ExitCode, StateError
from campaign.freezing.machine import read_interpreter
from campaign.judging.provenance import frozen_candidates
from campaign.paths import HomePaths
from campaign.record.decisions import Recorded, Standing, listed, standing
from campaign.record.ledger import read_entries
from campaign.submission.choose import find_candidate


@click.command("check-deployed")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--side", type=click.Choice(["candidate", "baseline"]), default="candidate", help="Which side it is.")
@click.option("--candidate", default="", metavar="ID", help="Which candidate; default: the last one frozen.")
@click.option("--python", metavar="PYTHON", help="The deployed interpreter; default: the frozen one, where it is here.")
@click.option(
    "--lockfile",
    type=click.Path(path_type=Path),
    help="The deployed lock file; default: the one of the frozen name in PATH.",
)
@home_option
@json_option
def command(
    *,
    path: Path,
    side: RunSide,
    candidate: str,
    python: str | None,
    lockfile: Path | None,
    home: HomePaths,
    output: Output,
) -> int:
    """Compare a deployed tree, lock file and interpreter with the snapshot that was qualified.

    PATH is the root of the deployed tree. It is compared entry by entry with what was frozen, by the same rules; the
    lock file by its digest; what is installed for the interpreter by version. Writes nothing. Exits with 0 if all of
    it is covered and the verdict on the candidate passes, 3 if something is not covered, and 4 if all is covered and
    the verdict does not pass, or does not hold any more.
    """
    entries = read_entries(home)
    known = list(frozen_candidates(entries))
    chosen = find_candidate(candidate, known, known)
    if side == "candidate" and not chosen:
        raise StateError("no candidate was frozen here", hint="--side baseline, or campaign freeze --candidate PATH")
    frozen = read_side(home, entries, side, chosen)
    root = absolute(path)
    compared = together(
        [
            compare_tree(frozen, root, home.root),
            compare_lockfile(frozen, lockfile and absolute(lockfile), root),
            compare_interpreter(
                frozen, python or frozen.python, read_interpreter(python or frozen.python, frozen.launch)
            ),
        ]
    )
    now = standing(entries, chosen, files.read_if_there(home.evaluation(chosen).verdict)) if chosen else None
    shown = _Shown(
        side=side,
        id=frozen.id,
        snapshot_sha256=frozen.snapshot_sha256,
        compared=compared,
        standing=now,
        decisions=listed(entries),
    )
    output.result(shown.text, shown.value)
    return int(shown.exit_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What the command says."""

    side: RunSide
    id: str
    snapshot_sha256: str
    compared: Comparison
    standing: Standing | None
    """None where no candidate was frozen."""
    decisions: tuple[Recorded, ...]

    @property
    def exit_code(self) -> ExitCode:
        """3 if something is not covered; of a candidate 4 if its verdict does not pass, or does not hold any more."""
        if self.compared.differences:
            return ExitCode.MISSED
        if self.side == "candidate" and (self.standing is None or self.standing.objections):
            return ExitCode.WANTING
        return ExitCode.DONE

    @property
    def verdict(self) -> str:
        """Say how the verdict stands."""
        if self.standing is None:
            return "verdict: none, since no candidate was frozen"
        if self.standing.objections:
            return f"verdict: does not permit retirement: {'; '.join(self.standing.objections)}"
        return "verdict: passes"

    @property
    def text(self) -> str:
        """The same for a person."""
        lines = [f"{self.id}, snapshot {self.snapshot_sha256}"]
        lines += [f"  covered: {line}" for line in self.compared.covered]
        lines += [f"  NOT covered: {one.text}" for one in self.compared.differences]
        lines += [f"  note: {line}" for line in self.compared.remarks]
        lines.append(self.verdict)
        lines += [describe(one) for one in self.decisions] or ["decisions: none"]
        number = len(self.compared.differences)
        lines.append(
            f"{number} thing(s) are not what was qualified" if number else f"this is {self.id} as it was frozen"
        )
        return "\n".join(lines)

    @property
    def value(self) -> dict[str, object]:
        """The same as a JSON value."""
        return {
            "side": self.side,
            "id": self.id,
            "snapshot_sha256": self.snapshot_sha256,
            "covered": list(self.compared.covered),
            "not_covered": [one.to_json() for one in self.compared.differences],
            "notes": list(self.compared.remarks),
            "verdict": None
            if self.standing is None
            else {
                "sha256": self.standing.verdict_sha256 or None,
                "outcome": self.standing.outcome or None,
                "objections": list(self.standing.objections),
            },
            "decisions": [value_of(one) for one in self.decisions],
            "exit_code": int(self.exit_code),
        }
