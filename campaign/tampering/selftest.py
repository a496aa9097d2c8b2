"""Trying every mutation on a copy of a campaign: does its verification find out?

The copy is closed first, so that there is a head line. What nobody can find out without that line kept elsewhere is
tried as well, and said to be what remains: a home that was written again from the start, and one whose closing is gone.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import files
from campaign.frozen import read_frozen
from campaign.judging.provenance import frozen_candidates
from campaign.judging.report import report
from campaign.paths import HomePaths
from campaign.record.closing import close
from campaign.record.ledger import Ledger, closed_entry
from campaign.record.registry import VARIABLE
from campaign.tampering.copies import Copy, NothingToTryError, copy_home, link_home, remove_home
from campaign.tampering.mutations import MUTATIONS, Mutation, lower_thresholds
from campaign.verifier.facts import Options
from campaign.verifier.findings import State
from campaign.verifier.verify import verifying

REWRITE = "everything written again from the rules on, every digest put right"
CUT = "the act `closed`, all that follows it and seal.json taken away, as if it had never been closed"
"""The residuals: what is found only beside a head line that was kept elsewhere."""
_ALONE, _BESIDE = "no head line at hand", "beside the head line kept elsewhere"
_FAULTS = (LookupError, ValueError, TypeError, AttributeError, StopIteration, FileNotFoundError, FileExistsError)
"""What a mutation that is wrong itself, or meets a home that it does not know, ends with. It has then tried nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of one mutation."""

    group: str
    what: str
    is_tried: bool
    """False where the campaign has nothing to try it on, and where it failed itself."""
    is_caught: bool
    is_residual: bool = False
    """Whether it is expected not to be caught."""
    check: str = ""
    """Which check found it first."""
    finding: str = ""
    """What that said."""
    num_findings: int = 0
    fault: str = ""
    """Why it failed itself, which shows nothing about the verification; empty where it did not."""

    @property
    def is_as_expected(self) -> bool:
        """Whether it was caught, or could not be, or there was nothing to try it on."""
        if self.fault:
            return False
        return not self.is_tried or self.is_caught is not self.is_residual


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """What trying everything gave."""

    trials: tuple[Trial, ...]

    @property
    def tried(self) -> tuple[Trial, ...]:
        """What could be tried."""
        return tuple(trial for trial in self.trials if trial.is_tried)

    @property
    def surprises(self) -> tuple[Trial, ...]:
        """What did not come out as expected: each is a hole in the verification, or in this program."""
        return tuple(trial for trial in self.trials if not trial.is_as_expected)


def prepare(paths: HomePaths, environment: Mapping[str, str], clock: Callable[[], float]) -> str:
    """Report on every candidate of a copy and close it; return the head line.

    Raises:
        StateError: It cannot be closed: an attempt has no ending, or there is no candidate.
        EvidenceError: It is not intact to begin with.
    """
    with Ledger.open(paths, clock) as ledger:
        if closed_entry(ledger.entries) is None:
            _report_all(paths, ledger, environment)
        return close(paths, ledger).head.line


def _report_all(paths: HomePaths, ledger: Ledger, environment: Mapping[str, str]) -> None:
    whole = read_frozen(paths).candidates
    for candidate in frozen_candidates(ledger.entries):
        if candidate in whole:
            report(paths, ledger, candidate=candidate, environment=environment)


def run(
    home: HomePaths,
    *,
    environment: Mapping[str, str],
    clock: Callable[[], float],
    scratch: Path | None = None,
    progress: Callable[[Trial], None] = lambda _: None,
) -> SelfTest:
    """Try every mutation on a copy of a home; the home itself is only read, and no registry is told of the copies.

    Args:
        home: The home.
        environment: The driver's environment.
        clock: Returns the seconds since the epoch.
        scratch: Where the copies are made; None for the system's place of temporary files.
        progress: Is told of each trial.

    Raises:
        StateError: The campaign cannot be closed yet.
        EvidenceError: It is not intact to begin with.
        InfrastructureError: There is no room for a copy.
    """
    with _scratch(scratch) as folder:
        apart = {**environment, VARIABLE: str(folder / "registry.jsonl")}  # a copy is no try against the baseline
        reference = HomePaths(folder / "reference")
        copy_home(home.root, reference.root)
        head = prepare(reference, apart, clock)
        trials = []
        for trial in _trials(reference, folder / "tampered", head, apart, clock):
            progress(trial)
            trials.append(trial)
    return SelfTest(trials=tuple(trials))


@contextmanager
def _scratch(where: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="campaign-selftest-", dir=where))
    try:
        yield folder
    finally:
        remove_home(folder)


def _trials(
    reference: HomePaths, place: Path, head: str, environment: Mapping[str, str], clock: Callable[[], float]
) -> Iterator[Trial]:
    yield _untouched(reference, head)
    for mutation in MUTATIONS:
        with _copied(reference, place) as copy:
            yield _try(mutation, copy, head)
    for what, forge in ((REWRITE, write_again), (CUT, cut_short)):
        with _copied(reference, place) as copy:
            forge(copy, environment, clock)
            yield _look(copy.root, "", group="residual", what=f"{what}; {_ALONE}", is_residual=True)
            yield _look(copy.root, head, group="residual", what=f"{what}; {_BESIDE}")


@contextmanager
def _copied(reference: HomePaths, place: Path) -> Iterator[Copy]:
    link_home(reference.root, place)
    try:
        yield Copy(HomePaths(place))
    finally:
        remove_home(place)


def _untouched(reference: HomePaths, head: str) -> Trial:
    """Look at the copy that nobody touched: a verification that finds something there shows nothing by finding more."""
    return _look(reference.root, head, group="none", what="nothing at all", is_residual=True)


def _try(mutation: Mutation, copy: Copy, head: str) -> Trial:
    try:
        mutation.apply(copy)
    except NothingToTryError:
        return Trial(group=mutation.group, what=mutation.what, is_tried=False, is_caught=False)
    except _FAULTS as error:
        fault = f"{type(error).__name__}: {error}"
        return Trial(group=mutation.group, what=mutation.what, is_tried=False, is_caught=False, fault=fault)
    return _look(copy.root, head, group=mutation.group, what=mutation.what)


def _look(root: Path, head: str, *, group: str, what: str, is_residual: bool = False) -> Trial:
    with verifying(root, Options(head=head)) as verification:
        found = [finding for finding in verification.checks.findings if finding.state is State.TAMPERED]
    first = found[0] if found else None
    return Trial(
        group=group,
        what=what,
        is_tried=True,
        is_caught=bool(found),
        is_residual=is_residual,
        check=first.check if first else "",
        finding=f"{first.where}: {first.what}" if first else "",
        num_findings=len(found),
    )


DERIVED = ("collected", "reported", "decided", "closed")
"""Acts that are made again by the programs themselves, and those that rest on a verdict."""


def write_again(copy: Copy, environment: Mapping[str, str], clock: Callable[[], float]) -> None:
    """Lower the thresholds and write everything again that rests on them, as if they had been frozen.

    Raises:
        NothingToTryError: There is no threshold.
    """
    before = files.sha256_file(copy.paths.protocol)
    copy.edit_json(copy.paths.protocol, lower_thresholds)
    copy.carry_through(before, files.sha256_file(copy.paths.protocol))
    copy.edit_ledger(_forget_reports)
    for path in (copy.paths.evaluations, copy.paths.database, copy.paths.seal):
        if path.exists():
            copy.remove(path)
    prepare(copy.paths, environment, clock)


def cut_short(copy: Copy, environment: Mapping[str, str], clock: Callable[[], float]) -> None:
    """Take away the closing and all after it; reports that were made later are made again, since files tell of them."""
    later = list[str]()

    def edit(lines: list[bytes]) -> None:
        acts = [json.loads(line)["act"] for line in lines]
        place = acts.index("closed")
        later.extend(acts[place + 1 :])
        del lines[place:]

    copy.edit_lines(copy.paths.ledger, edit)
    copy.remove(copy.paths.seal)
    if later:
        if copy.paths.database.exists():
            copy.remove(copy.paths.database)
        with Ledger.open(copy.paths, clock) as ledger:
            _report_all(copy.paths, ledger, environment)


def _forget_reports(acts: list[Any]) -> None:
    """Drop what rests on a verdict; what was amended was then amended before any report."""
    acts[:] = [one for one in acts if one["act"] not in DERIVED]
    for one in acts:
        if one["act"] == "amended":
            one["data"]["after_report"] = False
