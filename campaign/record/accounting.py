"""The scheduler's own accounting of a campaign's jobs: kept as it was printed, and held against the ledger.

Whoever operates a campaign gives every attempt its number, and could leave one out. Accounting counts jobs on its own:
one with this campaign's name that the ledger does not know was run and not told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from campaign import files
from campaign.collection.sealed import Finding, is_leftover
from campaign.documents import Document, Entry, Natural
from campaign.errors import EvidenceError, InfrastructureError
from campaign.frozen import Frozen, read_frozen
from campaign.paths import HomePaths
from campaign.record.ledger import Ledger, closed_entry, read_entries
from campaign.submission.plans import key_prefix
from campaign.watching.asking import is_foreign
from campaign.watching.scheduler import ACCOUNTS_FORMAT, Slurm, configured_cluster, local_slurm, tasks_of

HEADER = ACCOUNTS_FORMAT.replace(",", "|")
_NAME_FIELD = ACCOUNTS_FORMAT.split(",").index("JobName")
_USER_FIELD = ACCOUNTS_FORMAT.split(",").index("User")
SLACK_S = 300.0
"""How far the clocks of the scheduler and of the driver's host may be apart."""

AGAIN_S = 3600.0
"""Where accounting lacks a job that was submitted, it may be late; after so long its word is kept again."""


class Accounted(Document):
    """Data of ``accounted``: what the scheduler's accounting said was kept."""

    cluster: str
    """Slurm's name for it; empty where it does not tell."""
    file: str
    """``accounting/<n>.txt``."""
    sha256: str
    bytes: Natural
    jobs: Natural
    """Distinct job ids in it."""
    since: float
    """Jobs since then were asked for, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of accounting."""

    job: str
    """``123``, ``123_4`` or ``123_[0-3]``."""
    name: str
    user: str
    file: str
    """Where it was kept."""


@dataclass(slots=True, kw_only=True)
class Submissions:
    """What the ledger says of one key on Slurm."""

    intents: int = 0
    """How often it was intended: as often as a scheduler was thought not to have it, and once more."""
    allocations: int = 0
    jobs: set[str] = field(default_factory=set)
    """Numbers of the jobs that ``submitted`` names."""


def slurm_submissions(entries: Iterable[Entry]) -> dict[str, Submissions]:
    """Return what the ledger says of each key that Slurm was asked to take."""
    found: dict[str, Submissions] = {}
    for entry in entries:
        key = str(entry.data.get("submission", ""))
        if entry.act == "intent" and entry.data.get("cluster") == "slurm":
            known = found.setdefault(key, Submissions())
            known.intents += 1
            known.allocations = len(entry.data["allocations"])
        elif entry.act == "submitted" and key in found:
            found[key].jobs.add(str(entry.data["job"]))
    return found


def first_intent_at(entries: Iterable[Entry]) -> float | None:
    """Return when a submission to Slurm was first intended; None if none ever was."""
    asked = (entry.at for entry in entries if entry.act == "intent" and entry.data.get("cluster") == "slurm")
    return min(asked, default=None)


# --- keeping ----------------------------------------------------------------------------------------------------------


def keep(
    paths: HomePaths, ledger: Ledger, frozen: Frozen, slurm: Slurm, now: float, *, uid: int | None = None
) -> tuple[str, ...]:
    """Ask accounting for this campaign's jobs, and keep what it prints if that is not what was kept last.

    Args:
        paths: The home.
        ledger: Its ledger, open for writing.
        frozen: The frozen documents.
        slurm: Slurm's commands.
        now: Seconds since the epoch.
        uid: As whom accounting is asked; this process's user if None.

    Returns:
        What a person should know: why nothing was asked or answered, and jobs that accounting does not have.
    """
    first = first_intent_at(ledger.entries)
    if first is None or closed_entry(ledger.entries) is not None:
        return ()
    since = first - SLACK_S
    known, uid = slurm_submissions(ledger.entries), os.geteuid() if uid is None else uid
    try:
        numbers = sorted(job for one in known.values() for job in one.jobs)
        printed = slurm.print_accounts(sorted(known), numbers, now - since)
    except InfrastructureError as error:
        return (_silence(slurm, error),)
    prefix = key_prefix(frozen.manifest.campaign, frozen.manifest_sha256)
    lines = [line for line in printed[1:] if _field(line, _NAME_FIELD).startswith(prefix)]
    kept, absent = _acts(paths, ledger.entries), _absent(known, lines)
    if hidden := [key for key in absent if is_foreign(paths.submission(key).root, uid)]:
        return (f"accounting was not kept: it shows this user no job of {hidden[0]}, which another user submitted",)
    is_due = bool(absent) and now - last_kept_at(ledger.entries) >= AGAIN_S
    if not kept or is_due or _read_lines(paths, kept[-1]) != sorted(lines):
        _write(paths, ledger, lines, since=since, cluster=slurm.cluster_name())
    jobs = sorted(job for missing in absent.values() for job in missing)
    return (f"accounting does not have {len(jobs)} job(s) that were submitted, such as {jobs[0]}",) if jobs else ()


def last_kept_at(entries: Iterable[Entry]) -> float:
    """Return when accounting was kept last, in seconds since the epoch; 0 if it never was."""
    return max((entry.at for entry in entries if entry.act == "accounted"), default=0.0)


def _field(line: str, index: int) -> str:
    fields = line.split("|")
    return fields[index] if index < len(fields) else ""


def _split(text: str) -> list[str]:
    """Return the lines of what Slurm printed: a name may hold what Python takes for the end of a line."""
    return text.removesuffix("\n").split("\n")


def _silence(slurm: Slurm, error: InfrastructureError) -> str:
    try:
        if not slurm.keeps_accounts():
            return "this cluster keeps no accounts: whether it ran other jobs of this campaign cannot be told"
    except InfrastructureError:
        pass  # the first error says more
    return f"accounting was not asked: {'; '.join(filter(None, [error.what, error.why]))}"


def _absent(known: Mapping[str, Submissions], lines: Sequence[str]) -> dict[str, set[str]]:
    """Return the jobs that were submitted and are in no line, by key."""
    there = {_number(_field(line, 0)) for line in lines}
    return {key: missing for key, one in known.items() if (missing := one.jobs - there)}


def _read_lines(paths: HomePaths, act: Accounted) -> list[str] | None:
    """Return the lines that were kept last, sorted; None if they are not what they were, which is a finding."""
    try:
        return sorted(_split(_read(paths, act))[1:])
    except EvidenceError:
        return None


def _write(paths: HomePaths, ledger: Ledger, lines: Sequence[str], *, since: float, cluster: str) -> None:
    number = 1 + len(_acts(paths, ledger.entries))
    path = paths.accounts(number)
    data = "".join(f"{line}\n" for line in (HEADER, *lines)).encode()
    with files.writing(path):
        paths.accounting.mkdir(exist_ok=True)
    # Over what a killed command left: no act names it yet.
    files.replace(path, data)
    act = Accounted(
        cluster=cluster,
        file=_file(paths, number),
        sha256=files.sha256_bytes(data),
        bytes=len(data),
        jobs=len({_field(line, 0) for line in lines}),
        since=since,
    )
    ledger.append("accounted", act.to_json())


def account_home(paths: HomePaths, clock: Callable[[], float], say: Callable[[str], None]) -> None:
    """Keep what accounting says now of a campaign that was submitted to Slurm; a silence is told, and no error.

    Args:
        paths: The home; its ledger must not be open in this process.
        clock: Returns the seconds since the epoch.
        say: Where it is told what accounting does not say.
    """
    if first_intent_at(read_entries(paths)) is None:
        return
    frozen = read_frozen(paths)
    slurm = local_slurm(cluster=configured_cluster(frozen.manifest.resources))
    with Ledger.open(paths, clock) as ledger:
        remarks = keep(paths, ledger, frozen, slurm, clock())
    for remark in remarks:
        say(remark)


# --- reconciling ------------------------------------------------------------------------------------------------------


def _acts(paths: HomePaths, entries: Iterable[Entry]) -> list[Accounted]:
    acts: list[Accounted] = []
    for entry in entries:
        if entry.act == "accounted":
            acts.append(entry.parse_data(Accounted))
            if acts[-1].file != _file(paths, len(acts)):
                what = f"it names {acts[-1].file} where {_file(paths, len(acts))} follows"
                raise EvidenceError(what, where=entry.where)
    return acts


def _file(paths: HomePaths, number: int) -> str:
    return paths.accounts(number).relative_to(paths.root).as_posix()


def _read(paths: HomePaths, act: Accounted) -> str:
    """Read one answer that was kept.

    Raises:
        EvidenceError: It is gone, or not what the ledger names.
    """
    path = paths.root / act.file
    data = files.read_regular(path)
    if files.sha256_bytes(data) != act.sha256:
        raise EvidenceError(f"its SHA-256 is {files.sha256_bytes(data)}, the ledger says {act.sha256}", where=str(path))
    text = data.decode("utf-8", "replace")
    if text.split("\n", 1)[0] != HEADER:
        raise EvidenceError("it has another header than accounting was asked for", where=str(path))
    return text


def findings(paths: HomePaths, frozen: Frozen, entries: Sequence[Entry]) -> list[Finding]:
    """Return what the accounting that was kept says against the ledger; nothing where none was kept."""
    kept = _acts(paths, entries)
    found: list[Finding] = list(_strangers(paths, kept))
    lines: list[Line] = []
    for act in kept:
        try:
            lines += parse(_read(paths, act), act.file)
        except EvidenceError as error:
            found.append(Finding(where=error.where, what=error.what))
    prefix = key_prefix(frozen.manifest.campaign, frozen.manifest_sha256)
    found += reconcile(paths.root, [line for line in lines if line.name.startswith(prefix)], slurm_submissions(entries))
    return found


def _strangers(paths: HomePaths, kept: Sequence[Accounted]) -> Iterator[Finding]:
    if not os.path.lexists(paths.accounting):
        return
    known = {paths.root / act.file for act in kept}
    known.add(paths.accounts(len(kept) + 1))  # of a command that was killed before its act
    try:
        there = sorted(paths.accounting.iterdir())
    except OSError as error:
        yield Finding(where=str(paths.accounting), what=f"cannot be looked at: {error.strerror}")
        return
    for path in there:
        if path not in known and not is_leftover(path.name):
            yield Finding(where=str(path), what="no act of the ledger names it")


def parse(text: str, file: str) -> Iterator[Line]:
    """Yield the jobs of an answer that was kept, tasks one by one.

    Args:
        text: What was printed.
        file: Where it was kept.
    """
    for line in _split(text)[1:]:
        for job in tasks_of(_field(line, 0)):
            yield Line(job=job, name=_field(line, _NAME_FIELD), user=_field(line, _USER_FIELD), file=file)


def _number(job: str) -> str:
    """Return a job's number: of a task, that of its array."""
    return job.partition("_")[0]


def reconcile(root: Path, lines: Iterable[Line], known: Mapping[str, Submissions]) -> Iterator[Finding]:
    """Yield a finding for every job in accounting that the ledger does not account for.

    Args:
        root: The home.
        lines: Every line that was ever kept of jobs with this campaign's name.
        known: What the ledger says, by key.
    """
    by_key: dict[str, dict[str, Line]] = {}
    for line in lines:
        by_key.setdefault(line.name, {}).setdefault(line.job, line)
    for key, jobs in sorted(by_key.items()):
        own = known.get(key)
        surplus = set(map(_number, jobs)) - (own.jobs if own else set())
        for job, line in sorted(jobs.items()):
            if own is None:
                why = f"and no intent of the ledger has the key {key}"
            elif _number(job) in surplus and len(surplus | own.jobs) > own.intents:
                why = f"and the ledger knows job {', '.join(sorted(own.jobs)) or 'none'} for {key}"
            elif not _is_task(job, own):
                why = f"and {key} has {own.allocations} allocation(s)"
            else:
                continue
            yield Finding(where=str(root / line.file), what=f"job {job} of {line.user or 'somebody'} ran, {why}")


def _is_task(job: str, own: Submissions) -> bool:
    """Return whether a job stands for an allocation of its submission, or for several that never began."""
    number, _, task = job.partition("_")
    if not number.isdecimal():
        return False
    # Slurm cuts the list of a large array's waiting tasks short; an array of one task may be shown as a job.
    return task.startswith("[") or int(task or 0) < own.allocations
