"""The closed matrix: is everything that was planned a slot of the protocol, and is there nothing else in the home?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import names
from .digests import Kind
from .facts import Facts, Planned, Slot
from .findings import Check, EvidenceError
from .history import Allocation, History, history_of, where_of
from .strict import Node

KINDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "pilot": (("baseline",), ("candidate",)),
    "solo": (("baseline",),),
    "control_pair": (("baseline", "baseline_again"), ("baseline_again", "baseline")),
    "pair": (("baseline", "candidate"), ("candidate", "baseline")),
    "control_case": (("baseline", "baseline_again"),),
    "case": (("baseline", "candidate"),),
    "run": (("baseline",), ("candidate",)),
}
"""The kinds of slots, and the orders of sides that each may have."""
_FOLDERS = {
    names.FROZEN,
    names.ATTEMPTS,
    names.ALLOCATIONS,
    names.INPUTS,
    names.ACCOUNTING,
    names.EVALUATIONS,
    names.FALLBACKS,
    names.TRANSPORT,
    names.STAGING,  # of a freeze that was killed, or is under way: the ledger's affair
}
_FILES = {names.MANIFEST, names.PROTOCOL, names.LEDGER, names.LOCK, names.DATABASE, names.SEAL}
_OF_SQLITE = ("-journal", "-wal", "-shm")
_OF_ALLOCATIONS = ("allocation.json", "started.json", "ended.json", "harness.log")
_CALLS = names.calls("").rpartition("/")[2]
_OF_EVALUATIONS = ("evidence", "verdict.json", "provenance.json", "report")


def check(facts: Facts, check: Check) -> None:
    """Check the slots, what the ledger planned at them, the plans of the allocations, and that nothing was added.

    Fills `Facts.slots` and `Facts.planned`.

    Args:
        facts: Manifest, protocol, candidates and ledger are known.
        check: Where findings go.
    """
    history = history_of(facts)
    for where, what in history.faults:
        check.tampered(where, what)
    facts.slots.update(_read_slots(facts, check))
    facts.planned.update(history.planned)
    for planned in history.planned.values():
        _check_planned(facts, history, planned, check)
    for slot, tries in history.slots().items():
        for where, what in _faults_of_numbers(slot, tries):
            check.tampered(where, what)
    for allocation in history.allocations.values():
        with check.each():
            _check_allocation(facts, history, allocation)
    for where, what in (*_strangers(facts, history), *_faults_of_pruning(history)):
        check.tampered(where, what)
    check.remark(f"{len(facts.slots)} slots, {len(facts.planned)} attempts and segments planned")


# --- the protocol -----------------------------------------------------------------------------------------------------


def _read_slots(facts: Facts, check: Check) -> dict[str, Slot]:
    """Return every slot under its name in this home."""
    found: dict[str, Slot] = {}
    protocol = Node(facts.protocol, names.PROTOCOL)
    try:
        nodes = list(protocol["slots"].items())
    except EvidenceError as error:
        check.tampered(error.where, error.what)
        return found
    if not nodes:
        check.tampered(names.PROTOCOL, "slots: the plan is empty, so that nothing could ever be missing")
    owners = {"baseline": [""], "candidate": list(facts.candidates)}
    known: set[str] = set()
    for node in nodes:
        try:
            slot = _read_slot(node)
            if slot.slot in known:
                raise node.wrong(f"the slot {slot.slot} is planned twice")
        except EvidenceError as error:
            check.tampered(error.where, error.what)
            continue
        known.add(slot.slot)
        for candidate in owners[slot.side]:
            named = _renamed(slot, candidate)
            found[named.slot] = named
    return found


def _read_slot(node: Node) -> Slot:
    name, side = node["slot"].as_text(), node["side"].as_word(("baseline", "candidate"))
    kind, order = node["kind"].as_word(KINDS), node["order"].as_texts()
    if name.partition("/")[0] != side:
        raise node.wrong(f"the slot {name} does not begin with its side, {side}")
    if any(part in {"", ".", ".."} for part in name.split("/")):
        raise node.wrong(f"{name!r} cannot be the name of a slot")
    if order not in KINDS[kind]:
        raise node.wrong(f"a {kind} cannot run the sides {', '.join(order) or 'none'}")
    return Slot(
        slot=name,
        side=side,
        phase=node["phase"].as_text(),
        kind=kind,
        workload=node["workload"].as_text(),
        repeat=node["repeat"].as_whole(),
        pair=node["pair"].as_whole(),
        order=order,
        candidate="",
    )


def _renamed(slot: Slot, candidate: str) -> Slot:
    """Return a slot under its name in this home."""
    if not candidate:
        return slot
    _, _, rest = slot.slot.partition("/")
    return Slot(
        slot=f"{candidate}/{rest}",
        side=slot.side,
        phase=slot.phase,
        kind=slot.kind,
        workload=slot.workload,
        repeat=slot.repeat,
        pair=slot.pair,
        order=slot.order,
        candidate=candidate,
    )


# --- what the ledger planned ------------------------------------------------------------------------------------------


def _check_planned(facts: Facts, history: History, planned: Planned, check: Check) -> None:
    """Check that what an intent names is a slot, frozen by then, and has a segment if it is a run."""
    where, slot = where_of(planned.intent), facts.slots.get(planned.slot)
    if slot is None:
        check.tampered(where, f"plans {planned.name}, and {planned.slot} is not a slot of the protocol")
        return
    if (slot.kind == "run") != (planned.segment > 0):
        check.tampered(where, f"plans segment {planned.segment} of {planned.slot}, which is a {slot.kind}")
    if slot.candidate and not history.candidates.get(slot.candidate, planned.intent.seq) < planned.intent.seq:
        check.tampered(where, f"plans {planned.name} before its candidate was frozen")
    if planned.resume is not None and slot.kind != "run":
        check.tampered(where, f"plans {planned.name}, which is a {slot.kind}, from a checkpoint")


def _faults_of_numbers(slot: str, tries: list[Planned]) -> Iterator[tuple[str, str]]:
    """Yield where attempts, or the segments of one, are not numbered from 1 without a gap in the ledger's order."""
    attempt = segment = 0
    for planned in tries:
        is_next = (planned.attempt, planned.segment) in {
            (attempt + 1, 1 if planned.segment else 0),
            (attempt or 1, segment + 1 if planned.segment else -1),
        }
        if not is_next:
            before = f"{attempt}/{segment}" if segment else str(attempt)
            what = f"plans {planned.name} after {'attempt ' + before if attempt else 'no attempt'}: a number is missing"
            yield where_of(planned.intent), f"{what}, at {slot}"
        attempt, segment = planned.attempt, planned.segment


# --- allocation.json --------------------------------------------------------------------------------------------------


def _check_allocation(facts: Facts, history: History, allocation: Allocation) -> None:
    """Check an allocation's plan against the ledger's intent, the protocol and the manifests."""
    path = names.plan(allocation.id)
    if facts.digests.get(path) is None and _never_began(facts, history, allocation):
        return  # whoever intended it was killed before it was written
    contradiction = facts.digests.contradiction(path, None, allocation.plan_sha256)
    if contradiction:
        raise EvidenceError(path, f"not the plan that the ledger's line {allocation.seq} names: {contradiction}")
    plan = facts.document(path)
    plan.format("allocation/1")
    ledger = f"the ledger's line {allocation.seq}"
    plan["allocation"].must_be(allocation.id, ledger)
    plan["key"].must_be(allocation.submission, ledger)
    plan["manifest_sha256"].must_be(facts.manifest_sha256, names.MANIFEST)
    plan["protocol_sha256"].must_be(facts.protocol_sha256, names.PROTOCOL)
    plan["harness_sha256"].must_be(facts.manifest.get("harness_sha256"), names.MANIFEST)
    plan["data"].must_be(facts.manifest.get("data"), names.MANIFEST)
    attempts = list(plan["attempts"].items())
    if len(attempts) != len(allocation.planned):
        raise plan.wrong(f"plans {len(attempts)} attempts, {ledger} says {len(allocation.planned)}")
    for node, name in zip(attempts, allocation.planned, strict=True):
        _check_attempt(facts, history.planned[name], node, ledger)
    _check_sides(facts, plan, [history.planned[name] for name in allocation.planned])


def _never_began(facts: Facts, history: History, allocation: Allocation) -> bool:
    submission = history.submissions[allocation.submission]
    has_folders = any(facts.digests.is_folder(folder_of(history.planned[name])) for name in allocation.planned)
    return not submission.submitted and not has_folders


def folder_of(planned: Planned) -> str:
    """Return the folder of an attempt, or of a segment."""
    return names.attempt(planned.slot, planned.attempt, planned.segment)


def _check_attempt(facts: Facts, planned: Planned, node: Node, ledger: str) -> None:
    for name in ("slot", "attempt", "updates", "inputs_sha256", "segment"):
        node[name].must_be(getattr(planned, name), ledger)
    if node.has("examples_sha256") or planned.examples_sha256:  # homes of earlier builds have none
        node["examples_sha256"].must_be(planned.examples_sha256, ledger)
    node["resume"].must_be(planned.resume if planned.resume is None else dict(planned.resume), ledger)
    slot = facts.slots.get(planned.slot)
    if slot is None:
        return  # said already
    for name in ("kind", "workload", "repeat", "pair"):
        node[name].must_be(getattr(slot, name), names.PROTOCOL)
    node["order"].must_be(list(slot.order), names.PROTOCOL)


_OF_SIDES = ("snapshot_sha256", "adapter", "python", "python_path", "pass_environment", "launch", "reads")


def _check_sides(facts: Facts, plan: Node, tries: list[Planned]) -> None:
    """Check that an allocation runs the frozen sides, with the interpreter and the adapter of their manifests."""
    slots = [facts.slots[one.slot] for one in tries if one.slot in facts.slots]
    needed = {"candidate" if side == "candidate" else "baseline" for slot in slots for side in slot.order}
    owner = slots[0].candidate if slots else ""
    if any(slot.candidate != owner for slot in slots):
        raise plan.wrong("mixes slots of several sides")
    said = {name for name, _ in plan["sides"].fields()}
    if not needed <= said <= {"baseline", "candidate"}:
        raise plan["sides"].wrong(f"names {', '.join(sorted(said))}, its slots run {', '.join(sorted(needed))}")
    for side, node in plan["sides"].fields():
        if side == "candidate" and owner not in facts.candidates:
            raise node.wrong("no slot of this allocation is a candidate's")
        manifest = facts.manifest if side == "baseline" else facts.candidates[owner].manifest
        where = names.MANIFEST if side == "baseline" else names.candidate_manifest(owner)
        node["id"].must_be("baseline" if side == "baseline" else owner, names.LEDGER)
        frozen: Mapping[str, Any] = Node(manifest, where)[side].as_fields()
        for name in _OF_SIDES:
            node[name].must_be(frozen.get(name), where)
        if node.has("container") or frozen.get("container") is not None:  # homes of earlier builds have none
            node["container"].must_be(frozen.get("container"), where)


# --- what else there is -----------------------------------------------------------------------------------------------


def _strangers(facts: Facts, history: History) -> Iterator[tuple[str, str]]:
    """Yield everything in the home that nothing accounts for; what lies in a known attempt is its receipt's affair."""
    yield from _strangers_in_root(facts)
    yield from _strangers_of_attempts(facts, history)
    yield from _strangers_of_allocations(facts, history)
    yield from _strangers_of_evaluations(facts)


def _is_scrap(name: str) -> bool:
    """Return whether a name beside the home's files is one that its programs use for a while, or set aside."""
    is_cache = name.startswith((names.DATABASE, names.REBUILT_DATABASE)) and name.endswith(_OF_SQLITE)
    return is_cache or name == names.REBUILT_DATABASE or names.is_torn(name) or names.is_leftover(name)


def _strangers_in_root(facts: Facts) -> Iterator[tuple[str, str]]:
    for name in facts.digests.names(""):
        found = facts.digests.get(name)
        if found is None:
            continue
        if name in _FOLDERS:
            if found.kind is not Kind.FOLDER:
                yield name, f"is {found.word} where a folder should be"
        elif name in _FILES or _is_scrap(name):
            # What lies below any other kind under such a name, no check and no list of a closed campaign looks at.
            if found.kind is not Kind.FILE:
                yield name, f"is {found.word} where a file should be"
        else:
            yield name, "no part of a campaign home: added"


def _strangers_of_attempts(facts: Facts, history: History) -> Iterator[tuple[str, str]]:
    known = {folder_of(planned) for planned in history.planned.values()}
    above = _parents(known)
    pending = [names.ATTEMPTS]
    while pending:
        folder = pending.pop()
        for name in facts.digests.names(folder):
            path = f"{folder}/{name}"
            found = facts.digests.get(path)
            is_folder = found is not None and found.kind is Kind.FOLDER
            if path in known:
                if not is_folder:
                    yield path, f"is {found.word if found else 'gone'} where the folder of an attempt should be"
            elif path in above and is_folder:
                pending.append(path)
            elif not names.is_leftover(name):
                yield path, "no intent of the ledger names it: added"


def _parents(paths: set[str]) -> set[str]:
    above: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in above:
            above.add(parent)
            parent = parent.rpartition("/")[0]
    return above


def _strangers_of_allocations(facts: Facts, history: History) -> Iterator[tuple[str, str]]:
    for name in facts.digests.names(names.ALLOCATIONS):
        folder = names.allocation(name)
        found = facts.digests.get(folder)
        if name not in history.allocations:
            if not names.is_leftover(name):
                yield folder, "no intent of the ledger names this allocation: added"
        elif found is None or found.kind is not Kind.FOLDER:
            yield folder, f"is {found.word if found else 'gone'} where the folder of an allocation should be"
        known = (*_OF_ALLOCATIONS, *((_CALLS,) if _is_detached(history, name) else ()))
        yield from _strangers_within(facts, folder, known, "an allocation")


def _is_detached(history: History, allocation: str) -> bool:
    """Return whether an allocation was written into a bundle: only such a one is made in several calls."""
    known = history.allocations.get(allocation)
    return known is not None and history.submissions[known.submission].bundle != ""


def _strangers_within(facts: Facts, folder: str, known: tuple[str, ...], whose: str) -> Iterator[tuple[str, str]]:
    for name in facts.digests.names(folder):
        if name not in known and not names.is_leftover(name):
            yield f"{folder}/{name}", f"no file of {whose}: added"


def _strangers_of_evaluations(facts: Facts) -> Iterator[tuple[str, str]]:
    for name in facts.digests.names(names.EVALUATIONS):
        folder = names.evaluation(name)
        if names.is_leftover(name):
            continue
        if name not in facts.candidates:
            yield folder, "no candidate of this campaign: added"
        elif not facts.digests.is_folder(folder):
            yield folder, "not a folder"
        else:
            yield from _strangers_within(facts, folder, _OF_EVALUATIONS, "an evaluation")


_PRUNABLE = (names.TRANSPORT, names.EVALUATIONS)


def _faults_of_pruning(history: History) -> Iterator[tuple[str, str]]:
    """Yield a fault for everything that was let go of, and that is not only compiled code, a report or a leftover."""
    for entry in history.pruned:
        for path in entry.data["what"]:
            first, _, _ = path.partition("/")
            if first not in _PRUNABLE and not names.is_leftover(path.rpartition("/")[2]):
                yield where_of(entry), f"says that {path} was let go of, which is evidence"
