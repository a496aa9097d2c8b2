"""The scheduler's accounting, held against the ledger both ways: no job without an intent, no submission without a job.

docs/formats.md says how it is kept and when a job is accounted for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from . import names
from .facts import Entry, Facts
from .findings import Check, EvidenceError
from .history import History, Submission, history_of, where_of
from .strict import Node

_COLUMNS = ("JobID", "JobName", "User")
_NAME_LENGTH = 40
LATE_S = 3600.0
"""How long after a job's end accounting may still lack it: it hears of jobs late, more so where it was down."""
_TASK = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of accounting."""

    where: str
    job: str
    """``123``, ``123_4`` or, of tasks that never began, ``123_[0-3]``."""
    key: str
    """The job's name, which is the key of a submission."""
    user: str

    @property
    def number(self) -> str:
        """The job's number; of a task, that of its array."""
        return self.job.partition("_")[0]


def check(facts: Facts, check: Check) -> None:
    """Check every text of accounting that was kept, and its jobs against the ledger.

    Args:
        facts: The ledger is known.
        check: Where findings go.
    """
    history = history_of(facts)
    lines: list[Line] = []
    for number, entry in enumerate(history.accounted, start=1):
        with check.each():
            lines += _read(facts, entry, number)
    for where, what in _strangers(facts, len(history.accounted)):
        check.tampered(where, what)
    for where, what in _unknown_jobs(history, lines):
        check.tampered(where, what)
    _check_absent(facts, history, lines, check)
    _say(history, lines, check)


def prefix_of(facts: Facts) -> str:
    """Return what the names of this campaign's jobs begin with."""
    campaign = Node(facts.manifest, names.MANIFEST)["campaign"].as_text()
    return f"campaign-{campaign[:_NAME_LENGTH]}-{facts.manifest_sha256[:8]}-"


# --- the texts --------------------------------------------------------------------------------------------------------


def _read(facts: Facts, entry: Entry, number: int) -> list[Line]:
    """Return the lines of this campaign's jobs in one text.

    Raises:
        EvidenceError: It is gone, or not the one that the ledger names.
    """
    act, path = Node(entry.data, where_of(entry)), names.accounting(number)
    act["file"].must_be(path, f"its place, the {number}. of its kind,")
    if contradiction := facts.digests.contradiction(path, act["bytes"].as_whole(), act["sha256"].as_digest()):
        raise EvidenceError(path, f"not what the ledger's line {entry.seq} names: {contradiction}")
    # Slurm passes on whatever stands in a job's name: neither its encoding nor its characters are this file's fault.
    text = facts.digests.read(path).decode("utf-8", "replace")
    header, *rest = text.removesuffix("\n").split("\n")
    columns = header.split("|")
    if any(name not in columns for name in _COLUMNS):
        raise EvidenceError(f"{path}:1", f"its header lacks one of {', '.join(_COLUMNS)}: {header[:200]!r}")
    places = [columns.index(name) for name in _COLUMNS]
    found, prefix = [], prefix_of(facts)
    for line_number, line in enumerate(rest, start=2):
        fields = line.split("|")
        job, key, user = (fields[place] if place < len(fields) else "" for place in places)
        if key.startswith(prefix):
            found.append(Line(where=f"{path}:{line_number}", job=job, key=key, user=user))
    return found


def _strangers(facts: Facts, num_kept: int) -> Iterator[tuple[str, str]]:
    # The next one may be there without its act, of a command that was killed.
    known = {names.accounting(number) for number in range(1, num_kept + 2)}
    for found in facts.digests.below(names.ACCOUNTING):
        if found.path not in known and not names.is_leftover(found.path.rpartition("/")[2]):
            yield found.path, "no act of the ledger names it: added"


# --- jobs that nobody intended ----------------------------------------------------------------------------------------


def _unknown_jobs(history: History, lines: Iterable[Line]) -> Iterator[tuple[str, str]]:
    by_key: dict[str, dict[str, Line]] = {}
    for line in lines:
        by_key.setdefault(line.key, {}).setdefault(line.job, line)
    for key, jobs in by_key.items():
        submission = history.submissions.get(key)
        for line in jobs.values():
            if why := _why_unknown(submission, line, {one.number for one in jobs.values()}):
                yield line.where, f"job {line.job} of {line.user or 'somebody'} ran, and {why}"


def _why_unknown(submission: Submission | None, line: Line, numbers: set[str]) -> str:
    """Return why the ledger does not account for a job; empty if it does."""
    if submission is None or not submission.on_slurm:
        return f"no intent of the ledger has the key {line.key}"
    known = {one.job for one in submission.submitted if one.cluster == "slurm"}
    # As often as a scheduler was thought not to have it, it may have had it.
    if line.number not in known and len(numbers | known) > submission.on_slurm:
        return f"the ledger knows {', '.join(sorted(known)) or 'no job'} for {line.key}"
    task = line.job.partition("_")[2]
    if not line.number.isdecimal() or not _is_task(task, len(submission.allocations)):
        return f"{line.key} has {len(submission.allocations)} allocation(s)"
    return ""


def _is_task(task: str, num_allocations: int) -> bool:
    """Return whether an array's index stands for an allocation, or for several that never began."""
    if task.startswith("["):
        # Slurm cuts the list of a large array's waiting tasks short.
        return all(int(index) < num_allocations for index in _TASK.findall(task.partition("%")[0]))
    return not task or (_TASK.fullmatch(task) is not None and int(task) < num_allocations)


# --- submissions without a job ----------------------------------------------------------------------------------------


def _check_absent(facts: Facts, history: History, lines: Iterable[Line], check: Check) -> None:
    """Say which submitted jobs no text holds; one that was kept long after the job had ended must have it."""
    there = {(line.key, line.number) for line in lines}
    due = _due(facts, history)
    num_absent = 0
    for submission in history.submissions.values():
        for one in submission.submitted:
            if one.cluster != "slurm" or (submission.key, one.job) in there:
                continue
            if _ended_seq(history, submission) in due:
                what = (
                    f"says that job {one.job} was submitted, and accounting that was kept long after its end lacks it"
                )
                check.tampered(f"{names.LEDGER}:{one.seq}", what)
            else:
                num_absent += 1
    if num_absent:
        check.remark(f"accounting was not kept, or not long enough, after the end of {num_absent} submitted jobs")


def _due(facts: Facts, history: History) -> set[int]:
    """Return the ledger's numbers of what had happened so long before the last text that accounting must know it."""
    if not history.accounted:
        return set()
    last = history.accounted[-1]
    return {entry.seq for entry in facts.entries if entry.seq < last.seq and entry.at + LATE_S <= last.at}


def _ended_seq(history: History, submission: Submission) -> int:
    """Return the ledger's number by which all attempts of a submission were known to have ended; 0 until then."""
    planned = [name for one in submission.allocations for name in history.allocations[one].planned]
    seqs = [history.known_from(name) for name in planned]
    return max(seqs, default=0) if all(seqs) else 0


def _say(history: History, lines: Iterable[Line], check: Check) -> None:
    on_slurm = [one for one in history.submissions.values() if one.on_slurm]
    if not on_slurm:
        check.remark("nothing was submitted to Slurm: there is no accounting to hold against the ledger")
    elif not history.accounted:
        check.not_checked("no accounting was kept: jobs that nobody intended would not be seen")
    else:
        num_jobs = len({(line.key, line.job) for line in lines})
        check.remark(f"{len(history.accounted)} answers of the scheduler's accounting, {num_jobs} jobs")
