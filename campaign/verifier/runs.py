"""Runs: each training is one chain of segments, and every segment goes on from the newest state that there was.

docs/formats.md lists the rules under "The chain". What the receipt and the tables of a segment say by themselves is
checked here as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from . import names, tables
from .checkpoints import Owner, Recipe, Saved, faults_of_growth, read_all, read_recipe
from .facts import Facts, Planned, Sealed, Slot
from .findings import Check, EvidenceError, Unread
from .history import History, history_of, where_of
from .matrix import folder_of
from .receipts import COMPLETED, snapshots
from .retries import CUTS, ending_of, known_ending
from .strict import Node

UNSEEN_S = 300.0
"""How long before a segment was planned a checkpoint may say that it was written and still have been unseen: another
host's clock, and a shared file system that shows a folder late."""
_OF_RECIPES = ("evaluate_s", "checkpoint_bytes", "save_s")
"""Fields of a calibration that only the pilot of a recipe has."""

Faults = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One segment of a chain."""

    planned: Planned
    planned_at: float
    """When the ledger first intended it, in seconds since the epoch."""
    folder: str
    sealed: Sealed | None
    checkpoints: Mapping[int, Saved]
    """Those that it wrote, by update; empty while it is under way."""
    ending: str
    """The receipt's word, else the ledger's; empty while it is under way."""
    known_ending: str
    """The ending by which it was known when a next one could be planned."""
    is_given_up: bool
    """Whether the ledger says that it left no receipt."""
    is_damaged: bool
    """Whether it has a receipt that is not whole, which was said."""

    @property
    def segment(self) -> int:
        """Its number."""
        return self.planned.segment

    @property
    def is_completed(self) -> bool:
        """Whether its receipt says that the run is complete."""
        return self.sealed is not None and self.ending == COMPLETED


def check(facts: Facts, check: Check) -> None:
    """Check every run, and what pilots of recipes say.

    Args:
        facts: What has a receipt is known.
        check: Where findings go.
    """
    history = history_of(facts)
    chains: dict[tuple[str, int], list[Planned]] = {}
    for planned in facts.planned.values():
        slot = facts.slots.get(planned.slot)
        if slot is not None and slot.kind == "run" and planned.segment:
            chains.setdefault((planned.slot, planned.attempt), []).append(planned)
    num_checkpoints = 0
    for (name, _), chain in chains.items():
        slot = facts.slots[name]
        with check.each():
            num_checkpoints += _check_run(facts, history, slot, chain, check)
    for where, what in _faults_of_pilots(facts):
        check.tampered(where, what)
    check.remark(f"{len(chains)} attempts at runs, {num_checkpoints} checkpoints")


def _check_run(facts: Facts, history: History, slot: Slot, tries: Sequence[Planned], check: Check) -> int:
    recipe = read_recipe(facts, slot.workload)
    max_segments = Node(facts.protocol, names.PROTOCOL)["convergence"]["max_segments"].as_whole(1)
    chain: list[Link] = []
    num_faults, unread = 0, list[str]()
    for planned in tries:
        link, faults = _read_link(facts, history, slot, recipe, planned)
        chain.append(link)
        num_faults += len(faults)
        unread += [where for where, what in faults if isinstance(what, Unread)]
        for where, what in faults:
            check.tampered(where, what)
    for where, what in _faults_of_numbers(chain, max_segments):
        check.tampered(where, what)
    for link in chain:
        for where, what in _faults_of_segment(recipe, link):
            # What is missed below it may be missed because it was not read.
            if not any(f"{path}/".startswith(f"{where}/") for path in unread):
                check.tampered(where, what)
    if not num_faults:  # else the chain would be blamed for what a checkpoint lacks
        for where, what in _faults_of_chain(facts, chain, recipe):
            check.tampered(where, what)
    return sum(len(link.checkpoints) for link in chain)


def _read_link(
    facts: Facts, history: History, slot: Slot, recipe: Recipe, planned: Planned
) -> tuple[Link, list[tuple[str, str]]]:
    sealed, folder = facts.sealed.get(planned.name), folder_of(planned)
    ending = ending_of(facts, history, planned)
    saved: dict[int, Saved] = {}
    faults: list[tuple[str, str]] = []
    has_receipt = facts.digests.get(names.receipt(folder)) is not None
    if ending or has_receipt:
        # What a segment that is under way writes is looked at once it has ended.
        saved, faults = read_all(facts, folder, _owner(facts, slot, recipe, planned))
    link = Link(
        planned=planned,
        planned_at=history.allocations[planned.allocation].at,
        folder=folder,
        sealed=sealed,
        checkpoints=saved,
        ending=ending,
        known_ending=known_ending(facts, history, planned),
        is_given_up=planned.name in history.ended,
        is_damaged=sealed is None and (has_receipt or planned.name in history.seen),
    )
    return link, faults


def _owner(facts: Facts, slot: Slot, recipe: Recipe, planned: Planned) -> Owner:
    fields: dict[str, Any] = {
        "manifest_sha256": facts.manifest_sha256,
        "slot": planned.slot,
        "attempt": planned.attempt,
        "segment": planned.segment,
        "allocation": planned.allocation,
        "side": slot.side,
        "snapshot_sha256": snapshots(facts, slot).get(slot.side),
        "recipe": recipe.name,
        "config_sha256": recipe.config_sha256,
        "seed": _seed(planned),
        "previous": None if planned.resume is None else dict(planned.resume),
    }
    return Owner(fields=fields, recipe=recipe)


def _seed(planned: Planned) -> int:
    text = tables.seed_of(planned.slot)
    if not text.isdecimal():
        raise EvidenceError(where_of(planned.intent), f"{planned.slot} does not end in a seed")
    return int(text)


# --- one segment ------------------------------------------------------------------------------------------------------


def _faults_of_segment(recipe: Recipe, link: Link) -> Faults:
    if link.sealed is None:
        return
    where = names.receipt(link.folder)
    run = Node(link.sealed.receipt, where).get("run")
    if run is not None:
        try:
            for what in _faults_of_receipt(run, recipe, link):
                yield where, what
        except EvidenceError as error:
            yield error.where, error.what
    yield from _faults_of_tables(link)
    yield from _faults_of_listed(run, link)


def _faults_of_receipt(run: Node, recipe: Recipe, link: Link) -> Iterator[str]:
    """Yield what is wrong with what a receipt says of a segment."""
    resume = link.planned.resume
    first = 0 if resume is None else int(resume["update"])
    run["recipe"].must_be(recipe.name, names.PROTOCOL)
    run["seed"].must_be(_seed(link.planned), names.PROTOCOL)
    run["resumed"].must_be(None if resume is None else dict(resume), names.LEDGER)
    run["first_update"].must_be(first, names.LEDGER)
    update = run["update"].as_whole()
    if not first <= update <= recipe.updates or (link.is_completed and update != recipe.updates):
        yield f"run.update is {update} after a start at {first}; the recipe has {recipe.updates}"
    if link.is_completed and not run["evaluate_s"].as_number() > 0:
        yield f"run.evaluate_s is {run['evaluate_s'].value!r}, and the segment that completes a run evaluates itself"
    saved = [one["update"].as_whole(1) for one in run["checkpoints"].items()]
    # A segment that starts at the end saves what it found: it has no other state to leave.
    before = first - 1 if first == recipe.updates else first
    if not all(earlier < later for earlier, later in pairwise([before, *saved, update + 1])):
        yield f"run.checkpoints are after the updates {saved}, in a segment from {first} to {update}"


def _faults_of_tables(link: Link) -> Faults:
    if link.sealed is None:
        return
    for name in link.sealed.tables:
        if link.ending in CUTS or (name == tables.CONVERGENCE and not link.is_completed):
            yield f"{link.folder}/{name}", f"a segment that ended {link.ending} does not write this table"


def _faults_of_listed(run: Node | None, link: Link) -> Faults:
    """Yield where the checkpoints of a sealed segment are not those that its receipt lists."""
    listed: dict[int, tuple[str, int]] = {}
    if run is not None:
        for one in run["checkpoints"].items():
            listed[one["update"].as_whole(1)] = (one["sha256"].as_digest(), one["bytes"].as_whole())
    for update, (sha256, num_bytes) in listed.items():
        where, saved = names.checkpoint(link.folder, update), link.checkpoints.get(update)
        if saved is None:
            yield where, "listed by the receipt, and it is not there as it was saved"
        elif saved.sha256 != sha256:
            yield where, f"its checkpoint.json has the SHA-256 {saved.sha256}, the receipt says {sha256}"
        elif saved.num_bytes != num_bytes:
            yield where, f"{saved.num_bytes} bytes, the receipt says {num_bytes}"
    for update in link.checkpoints:
        if update not in listed:
            where = names.checkpoint(link.folder, update)
            yield where, "not listed by the receipt of its segment: added later"


# --- the chain --------------------------------------------------------------------------------------------------------


def _faults_of_numbers(chain: Sequence[Link], max_segments: int) -> Faults:
    if chain[-1].segment > max_segments:
        where = where_of(chain[-1].planned.intent)
        yield where, f"plans {chain[-1].planned.name}, and the protocol allows {max_segments} segments"
    for earlier, later in pairwise(chain):
        where = where_of(later.planned.intent)
        if not earlier.known_ending:
            if not earlier.is_damaged:
                yield where, f"plans {later.planned.name}, and segment {earlier.segment} has no ending"
        elif earlier.known_ending not in CUTS:
            ended = f"segment {earlier.segment} ended {earlier.known_ending}, after which none goes on"
            yield where, f"plans {later.planned.name}, and {ended}"


def _faults_of_chain(facts: Facts, chain: Sequence[Link], recipe: Recipe) -> Faults:
    for index, link in enumerate(chain):
        yield from _faults_of_start(chain[:index], link)
        yield from _faults_of_states(chain[:index], link, recipe)
    yield from _faults_of_paths(chain)
    yield from _faults_of_result(facts, chain, recipe)


def _find(earlier: Sequence[Link], resume: Mapping[str, Any] | None) -> Saved | None:
    if resume is None:
        return None
    return next((one.checkpoints.get(resume["update"]) for one in earlier if one.segment == resume["segment"]), None)


def _text(segment: int, update: int) -> str:
    return f"update {update} of segment {segment}" if segment else "the beginning"


def _faults_of_start(earlier: Sequence[Link], link: Link) -> Faults:
    """Yield a fault unless a segment starts from the newest state that there was when it was planned."""
    resume = link.planned.resume
    started = (0, 0) if resume is None else (int(resume["segment"]), int(resume["update"]))
    if resume is not None:
        saved = _find(earlier, resume)
        if saved is None:
            yield link.folder, f"it was planned from {_text(*started)}, which is not there"
        elif saved.sha256 != resume["sha256"]:
            said = f"the SHA-256 {resume['sha256']}, there is {saved.sha256}"
            yield link.folder, f"it was planned from {_text(*started)} with {said}"
    for one in earlier:
        for update, saved in one.checkpoints.items():
            # Only a segment that was given up without its receipt could go on writing meanwhile.
            was_unseen = one.is_given_up and saved.at > link.planned_at - UNSEEN_S
            if (one.segment, update) > started and not was_unseen:
                there = _text(one.segment, update)
                yield link.folder, f"it was planned from {_text(*started)}, although there was {there}"


def _faults_of_states(earlier: Sequence[Link], link: Link, recipe: Recipe) -> Faults:
    """Yield a fault where a checkpoint's account does not go on from the state before it."""
    start = _find(earlier, link.planned.resume)
    states = [*([start] if start is not None else []), *link.checkpoints.values()]
    for before, after in pairwise(states):
        for what in faults_of_growth(before, after, recipe.updates):
            yield after.where, what


def _faults_of_paths(chain: Sequence[Link]) -> Faults:
    """Yield a fault where the segments of a run did not engage one path; one that was ended for it says so itself."""
    first = ""
    for link in chain:
        said: list[str] = []
        if link.sealed is not None and link.ending in {*CUTS, COMPLETED}:
            said = [side["path"] for side in link.sealed.receipt["sides"]]
        for path in filter(None, [*said, *(saved.path for saved in link.checkpoints.values())]):
            first = first or path
            if path != first:
                yield link.folder, f"it engaged the path {path}, the run began with {first}"
                break


# --- the result -------------------------------------------------------------------------------------------------------


def _faults_of_result(facts: Facts, chain: Sequence[Link], recipe: Recipe) -> Faults:
    last = next((one for one in chain if one.ending and one.ending not in CUTS), chain[-1])
    if last.sealed is None:
        return
    start = _find(chain, last.planned.resume)
    newest = [start, *last.checkpoints.values()][-1]
    if newest is not None and tables.CURVES in last.sealed.tables:
        yield from _faults_of_curve(facts, last, last.sealed, newest)
    if not last.is_completed:
        return
    final = last.checkpoints.get(recipe.updates)
    if final is None:
        where = names.receipt(last.folder)
        yield where, f"completed, but it left no checkpoint after the last update, {recipe.updates}"
    else:
        yield from _faults_of_row(facts, last, last.sealed, final, recipe)


def _faults_of_curve(facts: Facts, link: Link, sealed: Sealed, newest: Saved) -> Faults:
    """Yield a fault where a curve does not hold the points of a checkpoint; if it was not completed it may go on."""
    rows = tables.rows_of(facts, sealed, tables.CURVES)
    made = [(row["update"], row["tokens"], row["validation_loss"]) for row in rows]
    known = [(str(point.update), str(point.tokens), repr(point.loss)) for point in newest.curve]
    if (made if link.is_completed else made[: len(known)]) != known:
        yield f"{link.folder}/{tables.CURVES}", f"not the {len(known)} points that {newest.where} holds"


def _faults_of_row(facts: Facts, link: Link, sealed: Sealed, final: Saved, recipe: Recipe) -> Faults:
    """Yield in what the table of a completed run does not agree with its last checkpoint."""
    where = f"{link.folder}/{tables.CONVERGENCE}"
    rows = tables.rows_of(facts, sealed, tables.CONVERGENCE) if tables.CONVERGENCE in sealed.tables else []
    if len(rows) != 1:
        yield where, f"{len(rows)} rows of one run"
        return
    (row,) = rows
    wanted = {
        "final_loss": repr(final.curve[-1].loss) if final.curve else "none",
        "target_tokens": str(final.tokens),
        "updates": str(final.update),
        "segments": str(link.segment),
        "checkpoint_sha256": final.sha256,
        "validation_tokens": str(recipe.validation_targets),
    }
    for name, value in wanted.items():
        if row[name] != value:
            yield where, f"{name} is {row[name]}, the last checkpoint and the protocol say {value}"
    if _number(row["train_s"]) != final.train_s:
        yield where, f"train_s is {row['train_s']}, the last checkpoint says {final.train_s!r}"
    elapsed_s = _number(row["elapsed_s"])
    if elapsed_s is None or not final.elapsed_s <= elapsed_s:
        yield where, f"elapsed_s is {row['elapsed_s']}, the last checkpoint says {final.elapsed_s!r} already"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# --- pilots -----------------------------------------------------------------------------------------------------------


def _faults_of_pilots(facts: Facts) -> Faults:
    """Yield a fault where the pilot of a recipe lacks what only such a one finds, or another one has it."""
    convergence = Node(facts.protocol, names.PROTOCOL).get("convergence")
    recipes = set() if convergence is None else {one["name"].as_text() for one in convergence["recipes"].items()}
    for sealed in facts.sealed.values():
        slot = facts.slots[sealed.planned.slot]
        where = names.receipt(sealed.folder)
        calibration = Node(sealed.receipt, where).get("calibration")
        if slot.kind != "pilot" or calibration is None:
            continue
        present = [name for name in _OF_RECIPES if calibration.get(name) is not None]
        if len(present) != (len(_OF_RECIPES) if slot.workload in recipes else 0):
            said = ", ".join(present) or "none"
            kind = "recipe" if slot.workload in recipes else "workload"
            yield where, f"the pilot of a {kind} has {said} of {', '.join(_OF_RECIPES)}"
