"""The submission desk: intent, then transport, then outcome, each recorded before the next step begins.

A desk killed between any two steps leaves a ledger from which the next one goes on: `settle` finds out what became of
an intent without outcome, and `hand_over` submits again only what surely has no job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.collection.checkpoints import Hashed
from campaign.collection.inputs import Stamp, check_before_use
from campaign.documents import Act, Document, Phase
from campaign.errors import EvidenceError, InfrastructureError, StateError
from campaign.frozen import Frozen, check_recorded, read_frozen
from campaign.paths import HomePaths
from campaign.record import ledger as ledgers
from campaign.submission import acts
from campaign.submission.choose import Choice, choose
from campaign.submission.held import Since, find_held
from campaign.submission.limits import NoRoomError, Room, fit, is_refusal, read_room
from campaign.submission.nodes import EXCLUDE_AFTER, Exclusion, Place, exclude, find_failing, joined
from campaign.submission.place import read_place
from campaign.submission.plans import Batch, cut_anew, intend, make_batches, pilots_after, topology_of, write_plans
from campaign.submission.reconcile import Reconciler
from campaign.submission.transport import (
    Answer,
    Request,
    SubmititTransport,
    Transport,
    job_environment,
    local_parameters,
    payload,
    slurm_parameters,
)
from campaign.watching.observation import Observer, View, live_local_jobs, require_here
from campaign.watching.processes import Machine, read_machine, read_user
from campaign.watching.scheduler import Slurm, configured_cluster, local_slurm
from campaign.watching.state import AttemptState

Say = Callable[[str], None]
LEAVE_S = 120.0
"""How long a local job may take to leave after its last attempt: it looks its private copies over and removes them."""
LEAVE_POLL_S = 0.05
NO_ROOM_HINT = "no attempt is used up; campaign submit --wait goes on as room comes, or later: campaign submit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person asked to be submitted."""

    candidate: str
    """Id; empty for the baseline alone."""
    cluster: acts.Cluster
    phase: Phase | None = None
    only: str = ""
    repeat: int = 0
    """The one repeat whose slots are wanted, with the pilots that they need; 0 for all."""
    since: Since | None = None
    """Of a wait: what there was when it began. What was cancelled after that is not gone on with by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What would be submitted now."""

    again: tuple[Batch, ...]
    """Submissions that were interrupted and surely have no job."""
    batches: tuple[Batch, ...]
    choice: Choice
    refused: tuple[EvidenceError, ...] = ()
    """Why runs that were chosen are left out: each has a newest checkpoint that it cannot go on from."""

    held: Mapping[str, str] = field(default_factory=dict)
    """Why slots are left to a person, by name; `Choice.held` has those that were asked for."""
    room: Room = field(default_factory=Room)
    """How many jobs were known to fit."""
    num_left: int = 0
    """Allocations that would be submitted if there were room."""
    place: Place = field(default_factory=Place)
    """What was known of where jobs may run."""
    exclusion: Exclusion = field(default_factory=Exclusion)
    """Which nodes get no more jobs because they failed."""

    @property
    def left_text(self) -> str:
        """What is left and why, in one sentence; empty if nothing is."""
        if not self.num_left:
            return ""
        return f"{self.num_left} allocation(s) are left until Slurm has room for them: {self.room.why}"

    def no_room(self) -> NoRoomError:
        """Return the error that there is room for nothing of what is left."""
        return NoRoomError("Slurm has no room for what is left", 1, why=self.left_text, hint=NO_ROOM_HINT)

    @property
    def all(self) -> tuple[Batch, ...]:
        """Every batch, interrupted ones first."""
        return (*self.again, *self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Everything that submitting needs from the outside."""

    paths: HomePaths
    frozen: Frozen
    slurm: Slurm
    transport: Transport
    machine: Machine
    observer: Observer
    clock: Callable[[], float]
    visible_devices: str
    """The caller's CUDA_VISIBLE_DEVICES."""
    user: str = ""
    """As whom jobs are submitted; empty asks for nobody's limits."""
    sleep: Callable[[float], None] = time.sleep
    right_inputs: dict[str, Stamp] = field(default_factory=dict)
    """Files of canonical inputs that this desk has found right: they are not hashed again unless they changed."""
    right_checkpoints: dict[Path, Hashed] = field(default_factory=dict)
    """The same of the checkpoints that runs would go on from."""

    def history(self) -> acts.History:
        """Return what the ledger says now."""
        return acts.fold(ledgers.read_entries(self.paths))

    def view(self, candidate: str, history: acts.History | None = None) -> View:
        """Look at all slots."""
        known = self.history() if history is None else history
        return self.observer.view(self.frozen.protocol, candidate, known, self.clock())

    # --- recording what happened meanwhile

    def settle(self, say: Say) -> None:
        """Record outcomes that are not in the ledger yet: of interrupted submissions, and of jobs without receipts.

        Raises:
            InfrastructureError: What became of a submission cannot be found out now.
        """
        with ledgers.Ledger.open(self.paths, self.clock) as ledger:
            if ledgers.closed_entry(ledger.entries) is not None:
                return  # everything had ended, and what comes later is not recorded
            history = acts.fold(ledger.entries)
            if unsure := [one for one in history.open_submissions() if one.not_submitted is None]:
                for submission in unsure:
                    self._reconcile(ledger, submission, say)
                history = acts.fold(ledger.entries)
            view = self.view("", history.unseen())
            record_receipts(ledger, view)
            record_endings(ledger, view)

    def _reconcile(self, ledger: ledgers.Ledger, submission: acts.Submission, say: Say) -> None:
        reconciler = Reconciler(paths=self.paths, slurm=self.slurm, machine=self.machine, uid=self.observer.uid)
        outcome = reconciler.outcome(submission, self.clock())
        if isinstance(outcome, acts.NotSubmitted):
            _append(ledger, "not_submitted", outcome)
            say(f"an interrupted submission never reached {submission.intent.cluster}: {submission.key}")
            return
        _append(ledger, "submitted", outcome)
        say(f"an interrupted submission did reach {submission.intent.cluster}: job {outcome.job}")

    # --- deciding

    def require_open(self, what: str) -> None:
        """Refuse what cannot be done to a closed campaign; see `campaign.record.ledger.require_open`."""
        ledgers.require_open(self.paths, ledgers.read_entries(self.paths), what)

    def order(
        self, wish: Wish, view: View, array_limit: int, room: Room | None = None, place: Place | None = None
    ) -> Order:
        """Return what a wish amounts to now; writes nothing.

        Args:
            wish: What a person asked for.
            view: What is known of all slots.
            array_limit: Most jobs of one array.
            room: How many jobs Slurm takes; None for no limit.
            place: Where jobs may run; None to ask.

        Raises:
            StateError: Nothing of a wanted side may be submitted, another local job runs, or jobs that may be under way
                went to another cluster than this host's commands reach.
        """
        if wish.cluster == "slurm":
            require_here(view, "nothing more is submitted")
        room = room or Room()
        again = self._refused_before(wish, view.history, room, array_limit)
        held = find_held(self.paths, view.history, view.slots, wish.since) if wish.since is not None else {}
        choice = choose(
            view.slots,
            candidate=wish.candidate,
            phase=wish.phase,
            only=wish.only,
            repeat=wish.repeat,
            held=held,
            after=pilots_after(self.frozen.protocol, wish.candidate),
        )
        intended, refused = intend(
            self.frozen,
            self.paths,
            view.slots,
            choice.slots,
            candidate=wish.candidate,
            right=self.right_checkpoints,
        )
        place, exclusion = self._place(wish, view, place) if intended else (Place(), Exclusion())
        batches = make_batches(
            self.frozen,
            self.paths,
            view.history,
            view.slots,
            intended,
            candidate=wish.candidate,
            cluster=wish.cluster,
            array_limit=fit(room, array_limit) or array_limit,
            limit_minutes=place.limit_minutes,
            excluded=exclusion.nodes,
        )
        kept, num_left = _fitting([*again, *batches], room)
        return Order(
            again=tuple(batch for batch in again if batch in kept),
            batches=tuple(batch for batch in batches if batch in kept),
            choice=choice,
            refused=refused,
            held=held,
            room=room,
            num_left=num_left,
            place=place,
            exclusion=exclusion,
        )

    def _refused_before(self, wish: Wish, history: acts.History, room: Room, array_limit: int) -> tuple[Batch, ...]:
        """Return the submissions that surely have no job, cut into smaller ones where they do not fit as they were."""
        found: list[Batch] = []
        for submission in history.open_submissions():
            if submission.not_submitted is None:
                continue
            batch, left = _batch_of(submission, wish.cluster), history.left_of(submission)
            most = fit(room, array_limit) or len(left)
            if batch.cluster != "slurm" or (len(left) == len(batch.allocations) and len(left) <= most):
                found.append(batch)
            else:
                found += cut_anew(self.frozen, self.paths, batch, left, most)
        return tuple(found)

    def _place(self, wish: Wish, view: View, known: Place | None) -> tuple[Place, Exclusion]:
        """Return where jobs may run, asked only where that matters, and which nodes they avoid."""
        if wish.cluster != "slurm":
            return Place(), Exclusion()
        table: Mapping[str, Any] = self.frozen.manifest.resources["slurm"]
        failing = find_failing(view.history, view.attempts.values(), int(table.get("exclude_after", EXCLUDE_AFTER)))
        if known is None:
            is_needed = bool(failing.nodes) or table["minutes"] is None
            known = read_place(self.slurm, table) if is_needed else Place()
        nodes = [workload.nodes for workload in self.frozen.protocol.workloads]
        return known, exclude(failing, known, max(nodes, default=1))

    def refuse_two_local_jobs(self, view: View) -> None:
        """Refuse to submit while a local job measures: measurements at the same time disturb one another.

        A job whose last attempt has ended only cleans up: it is waited for.

        Raises:
            StateError: It measures, or does not leave.
        """
        unfinished = {one.allocation for one in view.attempts.values() if one.state is not AttemptState.ENDED}
        if jobs := live_local_jobs(view.history, self.machine, unfinished):
            raise StateError(
                "a local job of this campaign is still running",
                why=f"process {jobs[0]} measures; a second job at the same time would disturb it",
                hint="campaign submit --wait, or campaign status --watch and then submit again, or campaign cancel",
            )
        self._wait_until_gone(view.history)

    def _wait_until_gone(self, history: acts.History) -> None:
        waited_s = 0.0
        while jobs := live_local_jobs(history, self.machine, history.allocations):
            if waited_s >= LEAVE_S:
                raise StateError(
                    "a local job of this campaign does not leave",
                    why=f"process {jobs[0]} is still there {LEAVE_S:g} s after the last of its attempts ended",
                    hint=f"look what it does (ps -f {jobs[0]}); campaign submit goes on once it is gone",
                )
            self.sleep(LEAVE_POLL_S)
            waited_s += LEAVE_POLL_S

    def array_limit(self, cluster: acts.Cluster) -> int:
        """Return the most jobs of one submission."""
        return self.slurm.array_limit() if cluster == "slurm" else 1

    def room(self, cluster: acts.Cluster) -> Room:
        """Return how many jobs may be submitted now.

        Raises:
            InfrastructureError: Slurm's controller does not answer.
        """
        if cluster != "slurm":
            return Room()
        return read_room(self.slurm, self.frozen.manifest.resources["slurm"], self.user)

    # --- doing

    def check_frozen(self) -> None:
        """Refuse to submit what is not what was frozen: a manifest of another digest than the ledger's, or harness.

        Raises:
            EvidenceError: A digest differs.
        """
        # From disk: a candidate may have been frozen since this desk was opened, and a manifest edited.
        now = read_frozen(self.paths)
        check_recorded(self.paths, now, ledgers.read_entries(self.paths))
        if now.manifest_sha256 != self.frozen.manifest_sha256:
            raise EvidenceError("changed while the command ran", where=str(self.paths.manifest))
        self._check_harness()

    def _check_harness(self) -> None:
        from campaign.snapshot.digest import digest_folder  # noqa: PLC0415 - keeps the start of status fast

        found = digest_folder(self.paths.harness)
        if found != self.frozen.manifest.harness_sha256:
            raise EvidenceError(
                "the harness is not the one that was frozen",
                where=str(self.paths.harness),
                why=f"its tree digest is {found}, the manifest says {self.frozen.manifest.harness_sha256}",
                hint="restore the folder from a copy of the home; nothing was submitted",
            )

    def check_inputs(self, batches: Iterable[Batch]) -> None:
        """Refuse to submit cases whose canonical inputs are gone or changed: their attempts would be used up.

        Raises:
            EvidenceError: A file is not what the baseline's pilot recorded; nothing was submitted.
        """
        attempts = [attempt for batch in batches for one in batch.allocations for attempt in one.attempts]
        listings = [attempt.inputs_sha256 for attempt in attempts if attempt.inputs_sha256]
        if listings:
            self.right_inputs.update(check_before_use(self.paths, listings, self.right_inputs))

    def hand_over(self, wish: Wish, shown: Order, say: Say) -> list[acts.Submitted]:
        """Submit what was shown, one batch after another.

        Raises:
            EvidenceError: A canonical input of a case is gone or changed.
            StateError: The campaign has changed since.
            InfrastructureError: A batch was refused, or it is open whether it was submitted; later ones were not tried.
            NoRoomError: Slurm takes no array of the first batch's size now.
        """
        done: list[acts.Submitted] = []
        # Before the lock is taken: hashing may take a while.
        self.check_inputs(shown.all)
        with ledgers.Ledger.open(self.paths, self.clock) as ledger:
            self.check_frozen()
            view = self.view(wish.candidate, acts.fold(ledger.entries))
            if wish.cluster == "local":
                self.refuse_two_local_jobs(view)
            if self.order(wish, view, self.array_limit(wish.cluster), shown.room, shown.place).all != shown.all:
                raise StateError("the campaign has changed since the plan was shown", hint="campaign submit")
            for batch in shown.all:
                if error := self._no_room(batch, shown.room):
                    if not done:
                        raise error
                    say(f"{error.what}: {error.why}")
                    break
                done.append(self._hand_over_one(ledger, batch))
                say(f"submitted {len(batch.allocations)} allocation(s) to {batch.cluster}: job {done[-1].job}")
        return done

    def _no_room(self, batch: Batch, room: Room) -> NoRoomError | None:
        """Return why Slurm would not take a batch now, before anything of it is recorded; None if it may."""
        if batch.cluster != "slurm" or not room.is_enforced:
            return None
        said = self.transport.objection(self.request(batch))
        return _no_room_error(batch, said, "") if is_refusal(said) else None

    def _hand_over_one(self, ledger: ledgers.Ledger, batch: Batch) -> acts.Submitted:
        # Before anything is recorded: a controller that does not answer would not take the job, either.
        name = self.slurm.controller().cluster if batch.cluster == "slurm" else ""
        _append(ledger, "intent", self.intent(batch, name))
        write_plans(self.frozen, self.paths, batch, acts.fold(ledger.entries).superseded)
        answer = self.transport.submit(self.request(batch), batch.key)
        if answer.error:
            self._refused(ledger, batch, answer)
        outcome = acts.Submitted(
            submission=batch.key,
            cluster=batch.cluster,
            job=answer.job,
            array=answer.array,
            host=self.machine.host,
            boot_id=self.machine.boot_id,
            process_start=answer.process_start,
            source="transport",
            cluster_name=name,
        )
        _append(ledger, "submitted", outcome)
        return outcome

    def _refused(self, ledger: ledgers.Ledger, batch: Batch, answer: Answer) -> None:
        """Record a refusal, unless a job exists after all: an sbatch that timed out may have made one."""
        submission = acts.fold(ledger.entries).submissions[batch.key]
        reconciler = Reconciler(paths=self.paths, slurm=self.slurm, machine=self.machine, uid=self.observer.uid)
        said, where = " ".join(answer.error.split())[:600], str(self.paths.submission(batch.key).log)
        try:
            outcome = reconciler.outcome(submission, self.clock())
        except InfrastructureError as error:
            why = f"{said}; whether there is a job all the same cannot be told now: {error.what}: {error.why}"
            raise InfrastructureError(
                f"{batch.cluster} did not take the submission", where=where, why=why, hint="campaign submit"
            ) from error
        name: Act = "submitted" if isinstance(outcome, acts.Submitted) else "not_submitted"
        _append(ledger, name, outcome)
        if name == "not_submitted" and is_refusal(said):
            raise _no_room_error(batch, said, where)
        raise InfrastructureError(
            f"{batch.cluster} did not take the submission",
            where=where,
            why=said,
            hint="mend the cause, then: campaign submit" if name == "not_submitted" else "campaign submit",
        )

    def intent(self, batch: Batch, cluster_name: str = "") -> acts.Intent:
        """Return the act that comes before a batch is handed over."""
        return acts.Intent(
            submission=batch.key,
            cluster=batch.cluster,
            host=self.machine.host,
            boot_id=self.machine.boot_id,
            candidate=batch.candidate,
            allocations=batch.allocations,
            cluster_name=cluster_name,
            excluded=dict(batch.excluded),
        )

    def request(self, batch: Batch) -> Request:
        """Return what a batch asks of submitit."""
        manifest, device = self.frozen.manifest, self.frozen.protocol.execution.device
        topology = topology_of(self.frozen, batch)
        folder = self.paths.submission(batch.key)
        plans = [self.paths.allocation(one.allocation).plan for one in batch.allocations]
        groups = [plans] if batch.cluster == "local" else [[plan] for plan in plans]
        table: Mapping[str, Any] = manifest.resources[batch.cluster]
        if batch.cluster == "local":
            visible = self.visible_devices
            parameters = local_parameters(table, device=device, visible=visible, processes=topology[1])
        else:
            avoided = joined(table.get("exclude"), batch.excluded)
            parameters = slurm_parameters({**table, "minutes": batch.minutes, "exclude": avoided}, batch.key, topology)
        return Request(
            cluster=batch.cluster,
            folder=str(folder.root),
            minutes=batch.minutes,
            parameters=parameters,
            payloads=tuple(payload(manifest.harness_python, self.paths, folder.bytecode, group) for group in groups),
        )


def _fitting(batches: Sequence[Batch], room: Room) -> tuple[list[Batch], int]:
    """Return the batches for which there is room, in order, and how many allocations are left."""
    kept, num_jobs, num_left = [], 0, 0
    for batch in batches:
        size = len(batch.allocations)
        if batch.cluster != "slurm" or room.num_jobs is None or num_jobs + size <= room.num_jobs:
            kept.append(batch)
            num_jobs += size
        else:
            num_left += size
    return kept, num_left


def _no_room_error(batch: Batch, said: str, where: str) -> NoRoomError:
    size = len(batch.allocations)
    return NoRoomError(
        f"Slurm takes no {size} job(s) more now",
        size,
        where=where,
        why=" ".join(said.split())[:600],
        hint=NO_ROOM_HINT,
    )


def _append(ledger: ledgers.Ledger, act: Act, data: Document) -> None:
    ledger.append(act, data.to_json())


def _batch_of(submission: acts.Submission, cluster: acts.Cluster) -> Batch:
    intent = submission.intent
    return Batch(
        key=intent.submission,
        cluster=cluster,
        candidate=intent.candidate,
        minutes=max(one.minutes for one in intent.allocations),
        allocations=intent.allocations,
        excluded=intent.excluded,
    )


def record_receipts(ledger: ledgers.Ledger, view: View) -> None:
    """Record every receipt that is seen for the first time: from then on one that is gone is no attempt without one."""
    names = {status.key.receipt_name: status.receipt_sha256 for status in view.attempts.values()}
    fresh = {name: digest for name, digest in names.items() if digest and name not in view.history.sealed}
    if fresh:
        _append(ledger, "sealed", acts.SeenReceipts(receipts=fresh))


def record_endings(ledger: ledgers.Ledger, view: View) -> list[acts.EndedAttempt]:
    """Record, once, the ending of every attempt whose job ended without a receipt; return what was recorded."""
    recorded = []
    for status in view.attempts.values():
        if status.ending is None or status.receipt is not None or status.source == "ledger":
            continue
        ended = acts.EndedAttempt(
            slot=status.slot,
            attempt=status.attempt,
            segment=status.segment,
            allocation=status.allocation,
            ending=status.ending,
            reason=status.reason,
            source=status.source or "files",
            node=status.node,
        )
        _append(ledger, "ended", ended)
        recorded.append(ended)
    return recorded


def open_desk(paths: HomePaths, frozen: Frozen, clock: Callable[[], float]) -> Desk:
    """Return a desk that uses this host's Slurm commands and submitit."""
    sides = [frozen.manifest.baseline, *(one.candidate for one in frozen.candidates.values())]
    names = sorted({name for side in sides for name in side.pass_environment})
    slurm, machine = local_slurm(cluster=configured_cluster(frozen.manifest.resources)), read_machine()
    return Desk(
        paths=paths,
        frozen=frozen,
        slurm=slurm,
        transport=SubmititTransport(paths=paths, environment=job_environment(os.environ, names)),
        machine=machine,
        observer=Observer(paths=paths, slurm=slurm, machine=machine),
        clock=clock,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        user=read_user(),
    )


def settle_home(paths: HomePaths, clock: Callable[[], float], say: Say) -> None:
    """Record outcomes that are not in the ledger yet, as far as the schedulers tell; what they do not tell stays open.

    Args:
        paths: The home; its ledger must not be open in this process.
        clock: Returns the seconds since the epoch.
        say: Where it is told what happened.
    """
    try:
        open_desk(paths, read_frozen(paths), clock).settle(say)
    except (InfrastructureError, StateError) as error:
        say(f"some jobs' endings are not known yet: {'; '.join(filter(None, [error.what, error.why]))}")
