"""What ``status`` and ``show`` say: tables by phase and state, gates out of reach, device-hours that remain."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acceptance.formats import Ending
from campaign.documents import Manifest, Protocol, Receipt
from campaign.keys import AttemptKey
from campaign.paths import HomePaths
from campaign.planning.calibration import Experience
from campaign.planning.packing import pack
from campaign.planning.walltime import Case
from campaign.submission.acts import Cluster, Submission
from campaign.submission.cost import (
    Expectation,
    device_hours,
    expect,
    experience,
    further_hours,
    limits_of,
    topologies,
)
from campaign.submission.nodes import EXCLUDE_AFTER, excluded_so_far, find_failing
from campaign.submission.transport import read_command
from campaign.table import table
from campaign.watching.estimate import Finish, Outlook, estimate
from campaign.watching.extension import sentences
from campaign.watching.gates import Gate, gates_out_of_reach
from campaign.watching.observation import View
from campaign.watching.reach import Obstacle, read_obstacles
from campaign.watching.run_progress import RunProgress, describe_segment, read_runs, segment_lines, segments_left
from campaign.watching.running import Running, read_running
from campaign.watching.state import ACTIVE, CUTS, OUT_OF_REACH, AttemptState, AttemptStatus, SlotState, SlotStatus

LOG_TAIL_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt that ended without evidence."""

    slot: str
    attempt: int
    segment: int
    """Of a run; 0 for everything else."""
    ending: str
    reason: str

    @property
    def text(self) -> str:
        """The same in one line."""
        return f"{AttemptKey(self.slot, self.attempt, self.segment).text}: {self.ending}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value; only a run's has a segment."""
        segment = {"segment": self.segment} if self.segment else {}
        return {"slot": self.slot, "attempt": self.attempt, **segment, "ending": self.ending, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Everything that ``status`` says."""

    campaign: str
    candidate: str
    by_phase: Mapping[str, Mapping[str, int]]
    """Number of slots by state, by phase."""
    pending: Mapping[str, int]
    """Number of waiting attempts by the reason that the scheduler gives."""
    unknown: tuple[str, ...]
    """Slots of which nothing certain is known, with the reason."""
    remaining_device_hours: float
    """Most that the slots without evidence can still take."""
    expected: Expectation
    """What they will take, from the pilots."""
    failures: tuple[Failure, ...]
    out_of_reach: tuple[Gate, ...]
    runs: tuple[RunProgress, ...]
    """Runs that were ever submitted."""
    extensions: tuple[str, ...]
    """What to know of the extensions, one sentence each."""
    troubles: tuple[str, ...]
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Nodes that failed and get no more jobs, or would not if others are left, with the reasons."""
    running: tuple[Running, ...] = ()
    """What runs now."""
    finish: Finish = field(default_factory=Finish)
    """When nothing will be left to measure."""
    obstacles: tuple[Obstacle, ...] = ()
    """Why a pass can no longer be reached; empty as long as it can."""
    away: Mapping[str, int] = field(default_factory=dict)
    """Number of the attempts that have not come back, by the bundle: its id, where it was written and when."""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "campaign": self.campaign,
            "candidate": self.candidate,
            "phases": {phase: dict(states) for phase, states in self.by_phase.items()},
            "pending": dict(self.pending),
            "unknown": list(self.unknown),
            "remaining_device_hours": round(self.remaining_device_hours, 3),
            "expected_device_hours": self.expected.known_device_hours,
            "failed_attempts": [one.to_json() for one in self.failures],
            "gates_out_of_reach": [{"gate": one.gate, "slot": one.slot} for one in self.out_of_reach],
            "runs": [one.to_json() for one in self.runs],
            "extensions": list(self.extensions),
            "troubles": list(self.troubles),
            "excluded_nodes": dict(self.excluded),
            "running": [one.to_json() for one in self.running],
            "finish": self.finish.to_json(),
            "pass_reachable": not self.obstacles,
            "obstacles": [one.to_json() for one in self.obstacles],
            "away": dict(self.away),
        }


def _by_phase(slots: Iterable[SlotStatus]) -> dict[str, dict[str, int]]:
    phases: dict[str, Counter[str]] = {}
    for status in slots:
        phases.setdefault(status.slot.phase, Counter())[status.state.value] += 1
    return {
        phase: {state.value: found[state.value] for state in SlotState if found[state.value]}
        for phase, found in phases.items()
    }


def _open_slots(slots: Iterable[SlotStatus]) -> list[SlotStatus]:
    closed = {SlotState.COMPLETED, SlotState.NOT_DUE} | OUT_OF_REACH
    return [one for one in slots if one.state not in closed]


def _remaining_hours(
    protocol: Protocol, manifest: Manifest, left: Sequence[SlotStatus], cluster: Cluster, known: Experience
) -> float:
    resources, case = manifest.resources, Case.of(protocol, known)
    most_workloads = int(resources["submission"]["workloads_per_allocation"])
    groups = pack([one.slot for one in left], most_workloads, topologies(protocol))
    if not groups:
        return 0.0
    most = protocol.convergence.max_segments if protocol.convergence is not None else 0
    runs = [one for one in left if one.slot.kind == "run"]
    return device_hours(
        protocol, resources, cluster, groups, minutes=limits_of(case, resources, cluster, groups)
    ) + further_hours(
        resources,
        cluster,
        [segments_left(one, most) - 1 for one in runs],
        minutes=limits_of(case, resources, cluster, [[one.slot] for one in runs]),
    )


def _cluster(view: View) -> Cluster:
    """Return where the latest submission went: that is where the rest will most likely go."""
    submissions = list(view.history.submissions.values())
    return submissions[-1].intent.cluster if submissions else "slurm"


def summarise(
    paths: HomePaths, protocol: Protocol, manifest: Manifest, candidate: str, view: View, *, now: float
) -> Progress:
    """Return what ``status`` says of one view; what runs, and how far the runs have come, is read from the home.

    Args:
        paths: The home.
        protocol: The frozen protocol.
        manifest: The frozen manifest.
        candidate: Id of the candidate; empty for none.
        view: What is known of all slots.
        now: Seconds since the epoch.
    """
    slots = view.slots.values()
    attempts = [attempt for status in slots for attempt in status.attempts]
    waiting = [one for one in attempts if one.state is AttemptState.PENDING]
    remaining, cluster = _open_slots(slots), _cluster(view)
    runs, running, known = read_runs(paths, protocol, slots), read_running(paths, slots, now), experience(slots)
    out_of_reach = gates_out_of_reach(protocol, view.slots)
    return Progress(
        campaign=protocol.campaign,
        candidate=candidate,
        by_phase=_by_phase(slots),
        pending=dict(Counter(one.reason or "no reason given" for one in waiting)),
        unknown=tuple(
            f"{one.slot}: {one.reason}"
            for one in attempts
            if one.state in (AttemptState.UNKNOWN, AttemptState.INTERRUPTED)
        ),
        remaining_device_hours=_remaining_hours(protocol, manifest, remaining, cluster, known),
        expected=expect(
            protocol,
            manifest.resources,
            cluster,
            [one.slot for one in remaining],
            known,
            behind={view.slots[one.slot].slot.slot: one.update or 0 for one in runs},
        ),
        failures=tuple(
            Failure(slot=one.slot, attempt=one.attempt, segment=one.segment, ending=one.ending.value, reason=one.reason)
            for one in attempts
            if one.ending is not None and one.ending is not Ending.COMPLETED
        ),
        out_of_reach=out_of_reach,
        runs=runs,
        extensions=tuple(sentences(protocol, view.extension, view.slots)),
        troubles=view.troubles,
        excluded=_excluded(manifest, view),
        running=running,
        finish=estimate(_outlook(protocol, manifest, known, cluster, runs), slots, remaining, running),
        away=dict(Counter(one.reason for one in attempts if one.state is AttemptState.AWAY)),
        obstacles=read_obstacles(paths, candidate, view.history, view.slots, out_of_reach),
    )


def _outlook(
    protocol: Protocol, manifest: Manifest, known: Experience, cluster: Cluster, runs: Iterable[RunProgress]
) -> Outlook:
    resources = manifest.resources
    return Outlook(
        protocol=protocol,
        known=known,
        cluster=cluster,
        most_workloads=int(resources["submission"]["workloads_per_allocation"]),
        most_at_once=int(resources["slurm"].get("max_running") or 1) if cluster == "slurm" else 1,
        behind={one.slot: one.update or 0 for one in runs},
    )


def _excluded(manifest: Manifest, view: View) -> dict[str, str]:
    """Return the nodes that submissions avoid because they failed: as recorded, and as the next one would."""
    after = int(manifest.resources["slurm"].get("exclude_after", EXCLUDE_AFTER))
    failing = find_failing(view.history, view.attempts.values(), after)
    return {**failing.nodes, **excluded_so_far(view.history)}


NOT_REACHABLE = "a pass is no longer reachable"
_MOST_LINES = 12


def _limited(lines: list[str], what: str) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    return [*lines[:_MOST_LINES], f"  ... and {len(lines) - _MOST_LINES} more {what} (--json lists all)"]


def status_text(progress: Progress) -> str:
    """Return what ``status`` prints."""
    states = [state.value for state in SlotState if any(state.value in row for row in progress.by_phase.values())]
    rows = [
        (phase, *(str(found.get(state, 0)) for state in states), str(sum(found.values())))
        for phase, found in progress.by_phase.items()
    ]
    title = f"{progress.campaign}: baseline" + (f" and candidate {progress.candidate}" if progress.candidate else "")
    lines = [title, "", table(("phase", *states, "slots"), rows), ""]
    lines += _open_lines(progress)
    if under_way := [one for one in progress.runs if one.state is not SlotState.COMPLETED]:
        lines += ["runs:", *_limited([f"  {one.text}" for one in under_way], "runs")]
    # A run that was cut goes on: what its segments ended with stands with it, and in --json.
    if failures := [one for one in progress.failures if not (one.segment and one.ending in CUTS)]:
        lines += ["attempts without evidence:", *_limited([f"  {one.text}" for one in failures], "attempts")]
    if progress.excluded:
        said = [f"  {node}: {reason}" for node, reason in progress.excluded.items()]
        lines += ["nodes that get no more jobs:", *_limited(said, "nodes")]
    if progress.extensions:
        lines += ["extensions:", *(f"  {one}" for one in progress.extensions)]
    if progress.out_of_reach:
        lines += ["gates out of reach:", *_limited(_gate_lines(progress.out_of_reach), "gates")]
    if progress.obstacles:
        lines += [f"{NOT_REACHABLE}:", *_limited([f"  {one.text}" for one in progress.obstacles], "reasons")]
    lines += [remaining_text(progress), f"finish: {progress.finish.text}"]
    return "\n".join(lines)


def _open_lines(progress: Progress) -> list[str]:
    """Return the lines about attempts that have not ended."""
    lines: list[str] = []
    if progress.running:
        lines += ["running:", *_limited([f"  {one.text}" for one in progress.running], "attempts")]
    if progress.pending:
        lines += ["waiting:", *_limited([f"  {number} x {why}" for why, number in progress.pending.items()], "reasons")]
    if progress.away:
        said = [f"  {number} attempt(s) in {bundle}" for bundle, number in progress.away.items()]
        lines += ["away:", *_limited(said, "bundles")]
    if progress.unknown:
        lines += ["not known:", *_limited([f"  {one}" for one in progress.unknown], "slots")]
    return lines


def remaining_text(progress: Progress) -> str:
    """Return one line with the device-hours that are left."""
    most = f"{progress.remaining_device_hours:.2f}"
    return f"remaining: at most {most} device-hours; from the pilots: {progress.expected.text}"


def _gate_lines(gates: Iterable[Gate]) -> list[str]:
    """Return a line for each gate; those of the numerical family that one slot blocks stand together."""
    lines: dict[tuple[str, str], list[str]] = {}
    for gate in gates:
        family, subject, *rest = gate.gate.split("/")
        key = f"{family}/{subject}" if family == "numerical" else gate.gate
        lines.setdefault((key, gate.slot), []).append("/".join(rest))
    return [
        f"  {key}{f' ({len(quantities)} gates)' if len(quantities) > 1 else ''}: {slot} can no longer be completed"
        for (key, slot), quantities in lines.items()
    ]


def is_active(view: View) -> bool:
    """Return whether anything will still change by itself."""
    return any(status.state in ACTIVE for status in view.slots.values())


# --- one slot ---------------------------------------------------------------------------------------------------------


def log_of(paths: HomePaths, view: View, attempt: AttemptStatus) -> Path | None:
    """Return the log that says most about an attempt: its own, its allocation's, or what the job printed."""
    folder = paths.attempt(attempt.slot, attempt.attempt, attempt.segment).root
    own = sorted(folder.glob("*.log")) if folder.is_dir() else []
    key = view.history.allocations[attempt.allocation].submission
    transport = paths.submission(key)
    others = [paths.allocation(attempt.allocation).log, transport.job_log(attempt.job), transport.log]
    # The side that ran last stands last by time of change; of a failed attempt that is the one to read.
    own.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    return next((path for path in [*own, *others] if path.is_file() and path.stat().st_size > 0), None)


def read_tail(path: Path, lines: int = LOG_TAIL_LINES) -> str:
    """Return the last lines of a log, with what a terminal would act upon made visible."""
    with path.open("rb") as stream:
        stream.seek(0, 2)
        stream.seek(max(0, stream.tell() - 65536))
        data = stream.read()
    text = data.decode("utf-8", errors="replace")
    clean = "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)
    return "\n".join(clean.splitlines()[-lines:])


def describe_attempt(paths: HomePaths, view: View, attempt: AttemptStatus, *, harness_python: str) -> dict[str, Any]:
    """Return one attempt as a JSON value."""
    log = log_of(paths, view, attempt)
    allocation = view.history.allocations[attempt.allocation]
    submission = view.history.submissions[allocation.submission]
    segment = describe_segment(paths, view, attempt)
    return {
        "attempt": attempt.attempt,
        **({"segment": attempt.segment, "run": segment} if segment is not None else {}),
        "void": view.history.voided_by(attempt.slot, attempt.attempt),
        "state": attempt.state.value,
        "ending": attempt.ending.value if attempt.ending is not None else None,
        "reason": attempt.reason,
        "source": attempt.source,
        "allocation": attempt.allocation,
        "submission": allocation.submission,
        "cluster": submission.intent.cluster,
        "job": attempt.job,
        "node": attempt.node,
        "folder": str(paths.attempt(attempt.slot, attempt.attempt, attempt.segment).root),
        "case": _case(attempt.receipt),
        "log": str(log) if log else None,
        "log_tail": read_tail(log) if log else "",
        "command": _command(paths, submission, allocation.index, harness_python),
        "accounting": accounting_command(view, attempt),
        "look_further": look_further(paths, view, attempt, log),
    }


def _command(paths: HomePaths, submission: Submission, index: int, harness_python: str) -> list[str]:
    """Return the command that makes an allocation; of one in a bundle the one that is given where the bundle lies."""
    if submission.is_detached and submission.submitted is not None:
        folder = submission.submitted.place.removesuffix(".tar") or submission.submitted.job
        return ["python", f"{folder}/run.py", "--max-minutes", "N"]
    return list(read_command(paths, submission, index, harness_python))


def _case(receipt: Receipt | None) -> dict[str, Any] | None:
    """Return how an attempt at a case was run; None if it is none, or did not get that far."""
    return receipt.case.to_json() if receipt is not None and receipt.case is not None else None


def _case_line(case: Mapping[str, Any]) -> str:
    turns = ", sides take turns" if case["serialized"] else ""
    times = ", ".join(f"{name} {case[f'{name}_s']:.3g} s" for name in ("load", "train", "compare"))
    size = f"{case['num_workers']} worker(s) of {case['num_tensors']} tensors"
    how = f"{case['executor']} executors, {case['transport'].replace('_', ' ')}{turns}"
    return f"  case: {how}; {size}; {times}; inputs {case['inputs_sha256'][:12]}"


def accounting_command(view: View, attempt: AttemptStatus) -> str:
    """Return the command that shows what Slurm keeps of an attempt's job; empty if there is none."""
    submission = view.history.submissions[view.history.allocations[attempt.allocation].submission]
    if submission.intent.cluster != "slurm" or not attempt.job:
        return ""
    return f"sacct --duplicates --jobs={attempt.job} --format=JobID,State,ExitCode,Reason,NodeList,Start,End"


def look_further(paths: HomePaths, view: View, attempt: AttemptStatus, log: Path | None) -> str:
    """Return the command to type next."""
    if log is not None:
        return f"less {shlex.quote(str(log))}"
    return accounting_command(view, attempt) or f"ls -la {shlex.quote(str(paths.allocation(attempt.allocation).root))}"


def slot_text(status: SlotStatus, described: list[dict[str, Any]]) -> str:
    """Return what ``show`` prints."""
    slot = status.slot
    lines = [f"{status.name}: {status.state.value}", f"  {slot.phase} {slot.kind}, order {' then '.join(slot.order)}"]
    if status.state is SlotState.NOT_DUE:
        lines.append("  a run of the extension, which no verdict on this candidate asks for: it is not submitted")
    elif not status.attempts:
        so_far = "no attempt that counts yet" if described else "no attempt yet"
        lines.append(f"  {so_far}; next: campaign submit")
    elif status.state is SlotState.CUT:
        lines.append("  goes on from its newest checkpoint; next: campaign submit")
    for one in described:
        ending = one["ending"] or one["state"]
        which = f"attempt {one['attempt']}" + (f" segment {one['segment']}" if "segment" in one else "")
        lines += ["", f"{which}: {ending}" + (f" ({one['reason']})" if one["reason"] else "")]
        if one["void"] is not None:
            lines.append(f"  void by the amendment of ledger entry {one['void']}: it does not count")
        lines.append(
            f"  allocation {one['allocation']}, {one['cluster']} job {one['job'] or '-'}, node {one['node'] or '-'}"
        )
        lines.append(f"  known from {one['source'] or '-'}; folder {one['folder']}")
        if one["case"]:
            lines.append(_case_line(one["case"]))
        if "run" in one:
            lines += segment_lines(one["run"])
        lines.append(f"  command of the job: {shlex.join(one['command'])}")
        if one["accounting"] and one["accounting"] != one["look_further"]:
            lines.append(f"  accounting: {one['accounting']}")
        if one["log_tail"] and one is described[-1]:
            lines += [f"  end of {one['log']}:", *(f"  | {line}" for line in one["log_tail"].splitlines())]
        lines.append(f"  look further: {one['look_further']}")
    return "\n".join(lines)
