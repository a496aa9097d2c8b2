"""The canonical inputs of the cases: every list is the protocol's, every file is listed, and every case ran on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import names, tables
from .digests import Kind
from .facts import Facts, Sealed, Slot
from .findings import Check, EvidenceError
from .history import History, history_of
from .receipts import CASES, COMPLETED
from .strict import Node

_FILE = re.compile(r"[0-9a-f]{64}\.(json|safetensors)")
_MOMENTS = ("exp_avg", "exp_avg_sq")

Faults = Iterator[tuple[str, str]]


@dataclass(slots=True, kw_only=True)
class Book:
    """What the pilots recorded."""

    needed: dict[str, int | None] = field(default_factory=dict)
    """Files that a completed pilot lists, by name: their sizes, None for the list itself."""
    named: dict[str, int | None] = field(default_factory=dict)
    """The same of any pilot."""
    canonical: dict[str, str] = field(default_factory=dict)
    """Digest of the inputs of each workload: those of the first completed pilot that is not void."""
    workers: dict[str, int] = field(default_factory=dict)
    """Number of workers whose state a list holds, by its digest."""
    of_workload: dict[str, set[str]] = field(default_factory=dict)
    """Digests of all lists that completed pilots of a workload recorded, void ones included."""
    is_open: bool = False
    """Whether a pilot may have written files that no list names."""
    damaged: set[str] = field(default_factory=set)
    """Workloads of which a pilot's list cannot be believed, which was said: no case is blamed for it."""


def check(facts: Facts, check: Check) -> None:
    """Check the folder of canonical inputs, the lists of the pilots, and what the cases say that they ran on.

    Args:
        facts: What has a receipt is known.
        check: Where findings go.
    """
    history, book = history_of(facts), Book()
    for planned in facts.planned.values():
        slot = facts.slots.get(planned.slot)
        if slot is None or not _records(facts, slot):
            continue
        sealed = facts.sealed.get(planned.name)
        if sealed is None:
            book.is_open = True  # it is under way, was killed, or its list cannot be believed
            if planned.name in history.seen:
                book.damaged.add(slot.workload)
            continue
        try:
            _note(facts, book, sealed, check, is_void=planned.attempt <= history.voided(planned.slot))
        except EvidenceError as error:
            book.is_open = True
            book.damaged.add(slot.workload)
            check.tampered(error.where, error.what)
    for where, what in (
        *_faults_of_folder(facts, book),
        *_faults_of_others(facts),
        *_faults_of_cases(facts, history, book),
    ):
        check.tampered(where, what)
    check.remark(f"{len(book.named)} files of canonical inputs")


def _rules(facts: Facts) -> Node | None:
    return Node(facts.protocol, names.PROTOCOL).get("numerical")


def _records(facts: Facts, slot: Slot) -> bool:
    """Return whether an attempt at a slot records canonical inputs."""
    if _rules(facts) is None or slot.kind != "pilot" or slot.order != ("baseline",):
        return False
    workload = tables.workloads(facts).get(slot.workload)
    return workload is not None and workload.get("numerical", True) is not False


# --- the lists --------------------------------------------------------------------------------------------------------


def _note(facts: Facts, book: Book, sealed: Sealed, check: Check, *, is_void: bool) -> None:
    slot = facts.slots[sealed.planned.slot]
    path = f"{sealed.folder}/{names.INPUTS_COPY}"
    is_completed = sealed.receipt["ending"] == COMPLETED
    if facts.digests.get(path) is None:
        book.is_open = True
        if is_completed:
            check.tampered(names.receipt(sealed.folder), f"completed without {names.INPUTS_COPY}")
        return
    node, digest = facts.document(path), facts.digests.sha256(path)
    files, workers = _read_list(facts, node, slot)
    listed: dict[str, int | None] = {
        f"{digest}.json": None,
        **{f"{one}.safetensors": size for one, size in files.items()},
    }
    book.named.update(listed)
    book.workers[digest] = workers
    if not is_completed:
        return
    book.needed.update(listed)
    book.of_workload.setdefault(slot.workload, set()).add(digest)
    if not is_void:
        book.canonical.setdefault(slot.workload, digest)


def _read_list(facts: Facts, node: Node, slot: Slot) -> tuple[dict[str, int], int]:
    """Return size by digest of every file that a list names, and the number of workers.

    Raises:
        EvidenceError: It is not what the protocol asks for.
    """
    protocol, rules = Node(facts.protocol, names.PROTOCOL), _rules(facts)
    if rules is None:
        raise node.wrong("there are inputs, and the protocol has no numerical family")
    moments = rules["moments"].as_text()
    node.format("inputs/1")
    node["workload"].must_be(slot.workload, names.PROTOCOL)
    node["config_sha256"].must_be(tables.workloads(facts)[slot.workload].get("config_sha256"), names.PROTOCOL)
    node["moments"].must_be(moments, names.PROTOCOL)
    warm_up = protocol["throughput"]["warmup_updates"].as_whole()
    node["step"].must_be(warm_up if moments == "warm" else 0, names.PROTOCOL)
    files: dict[str, int] = {}
    state = [(one["quantity"].as_text(), one["worker"].as_whole()) for one in _collect(node["state"], files)]
    updates = sorted(one["update"].as_whole(1) for one in _collect(node["batches"], files))
    # As many first: a protocol can ask for more updates than there is memory for.
    if len(updates) != rules["updates"].as_whole(1) or updates != list(range(1, len(updates) + 1)):
        raise node["batches"].wrong(f"holds the updates {updates}, planned are 1 to {rules['updates'].value}")
    workers = len({worker for _, worker in state})
    quantities = ("parameters", *(_MOMENTS if moments == "warm" else ()))
    whole = sorted((quantity, worker) for quantity in quantities for worker in range(workers))
    if not state or sorted(state) != whole:
        raise node["state"].wrong("the state that it lists is not whole")
    return files, workers


def _collect(node: Node, files: dict[str, int]) -> Iterator[Node]:
    for one in node.items():
        files[one["sha256"].as_digest()] = one["bytes"].as_whole()
        yield one


def _faults_of_others(facts: Facts) -> Faults:
    """Yield a fault where an attempt left a list of inputs that records none."""
    for sealed in facts.sealed.values():
        path = f"{sealed.folder}/{names.INPUTS_COPY}"
        if facts.digests.get(path) is not None and not _records(facts, facts.slots[sealed.planned.slot]):
            yield path, "only a pilot of the baseline records inputs, at a workload of the numerical family"


# --- the folder -------------------------------------------------------------------------------------------------------


def _faults_of_folder(facts: Facts, book: Book) -> Faults:
    present = facts.digests.names(names.INPUTS)
    for name in sorted(set(book.needed) - set(present)):
        yield f"{names.INPUTS}/{name}", "a completed pilot lists it, and it is gone"
    for name in present:
        path = f"{names.INPUTS}/{name}"
        if name in book.named:
            size = book.needed.get(name, book.named[name])
            try:
                contradiction = facts.digests.contradiction(path, size, name.partition(".")[0])
            except EvidenceError as error:  # it cannot be read
                yield error.where, error.what
                continue
            if contradiction:
                yield path, f"not what the pilot recorded: {contradiction}"
        elif not names.is_leftover(name) and not (book.is_open and _is_own(facts, path, name)):
            yield path, "no pilot listed it: added"


def _is_own(facts: Facts, path: str, name: str) -> bool:
    """Return whether a file that nobody lists may be that of a pilot which is under way, or was killed."""
    found = facts.digests.get(path)
    is_file = found is not None and found.kind is Kind.FILE and _FILE.fullmatch(name) is not None
    return is_file and facts.digests.sha256(path) == name.partition(".")[0]


# --- the cases --------------------------------------------------------------------------------------------------------


def _faults_of_cases(facts: Facts, history: History, book: Book) -> Faults:
    for sealed in facts.sealed.values():
        slot, case = facts.slots[sealed.planned.slot], sealed.receipt.get("case")
        if slot.kind not in CASES or case is None:
            continue
        where = names.receipt(sealed.folder)
        try:
            yield from (
                (where, what) for what in _faults_of_case(facts, history, book, sealed, Node(case, where, "case"))
            )
        except EvidenceError as error:
            yield error.where, error.what


def _faults_of_case(facts: Facts, history: History, book: Book, sealed: Sealed, case: Node) -> Iterator[str]:
    slot, planned = facts.slots[sealed.planned.slot], sealed.planned
    used = case["inputs_sha256"].as_text()
    if used != planned.inputs_sha256:
        yield f"it ran on the inputs {used}, planned were {planned.inputs_sha256 or 'none'}"
    is_void = planned.attempt <= history.voided(slot.slot)
    allowed = book.of_workload.get(slot.workload, set()) if is_void else {book.canonical.get(slot.workload, "none")}
    if used not in allowed and slot.workload not in book.damaged:
        yield f"it ran on the inputs {used}, the pilot recorded {', '.join(sorted(allowed)) or 'none'}"
    workers = case["num_workers"].as_whole(1)
    if used in book.workers and workers != book.workers[used]:
        yield f"it compared {workers} workers, the pilot recorded {book.workers[used]}"
    rows = _workers_of(facts, sealed)
    if rows is not None and rows != {str(worker) for worker in range(workers)}:
        yield f"it compared {workers} workers, and {tables.NUMERICAL} has rows of {len(rows)}"


def _workers_of(facts: Facts, sealed: Sealed) -> set[str] | None:
    if tables.NUMERICAL not in sealed.tables:
        return None
    return {row["worker"] for row in tables.rows_of(facts, sealed, tables.NUMERICAL)}
