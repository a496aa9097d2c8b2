"""The checkpoints that a segment of a run left: whose they are, what they list, and whether all of that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

from . import names
from .digests import Kind
from .facts import Facts
from .findings import EvidenceError
from .strict import Node

_PART = re.compile(r"[A-Za-z0-9._+=@,:-]{1,255}")
_MOST_NAME = 500


class Point(NamedTuple):
    """One evaluation during a run."""

    update: int
    tokens: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is trained."""

    name: str
    config_sha256: str
    targets: int
    validation_targets: int
    updates: int
    evaluate_every: int

    def points(self, most: int) -> tuple[int, ...]:
        """Return the first updates after which the validation loss is taken: every multiple, and the last one.

        Args:
            most: How many; a protocol can ask for more than there is memory for.
        """
        return tuple(islice(chain(range(self.evaluate_every, self.updates, self.evaluate_every), [self.updates]), most))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One checkpoint that is as it was written."""

    where: str
    """Its checkpoint.json."""
    sha256: str
    segment: int
    update: int
    tokens: int
    train_s: float
    elapsed_s: float
    curve: tuple[Point, ...]
    path: str
    at: float
    num_bytes: int
    """All its files together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What every checkpoint of a segment must say, and the recipe that it is trained by."""

    fields: Mapping[str, Any]
    recipe: Recipe


def read_recipe(facts: Facts, name: str) -> Recipe:
    """Return a recipe of the protocol.

    Raises:
        EvidenceError: It has none of this name.
    """
    rules = Node(facts.protocol, names.PROTOCOL)["convergence"]
    for node in rules["recipes"].items():
        if node["name"].as_text() == name:
            return Recipe(
                name=name,
                config_sha256=node["config_sha256"].as_digest(),
                targets=node["targets"].as_whole(1),
                validation_targets=node["validation_targets"].as_whole(1),
                updates=node["updates"].as_whole(1),
                evaluate_every=node["evaluate_every"].as_whole(1),
            )
    raise rules.wrong(f"has no recipe {name!r}")


def read_all(facts: Facts, folder: str, owner: Owner) -> tuple[dict[int, Saved], list[tuple[str, str]]]:
    """Return the checkpoints of one segment that are right, by update in order, and what is wrong with the others.

    Args:
        facts: The home's files.
        folder: The segment's folder.
        owner: What they must say.
    """
    root = f"{folder}/{names.CHECKPOINTS}"
    found = facts.digests.get(root)
    if found is None:
        return {}, []
    if found.kind is not Kind.FOLDER:
        return {}, [(root, f"is {found.word} where a folder should be")]
    saved: dict[int, Saved] = {}
    faults: list[tuple[str, str]] = []
    for name in sorted(facts.digests.names(root), key=lambda name: (len(name), name)):
        path = f"{root}/{name}"
        if names.is_leftover(name):
            continue
        if not (names.is_checkpoint(name) and facts.digests.is_folder(path)):
            faults.append((path, "not a checkpoint: added"))
            continue
        try:
            one, found_faults = _read_one(facts, path, int(name), owner)
        except EvidenceError as error:
            one, found_faults = None, [(error.where, error.what)]
        faults += found_faults
        if one is not None and not found_faults:
            saved[int(name)] = one
    return saved, faults


# --- one checkpoint ---------------------------------------------------------------------------------------------------


def _read_one(facts: Facts, root: str, update: int, owner: Owner) -> tuple[Saved | None, list[tuple[str, str]]]:
    document, files = names.checkpoint_document(root), names.checkpoint_files(root)
    known = {document, files}
    faults = [
        (f"{root}/{name}", "no part of a checkpoint: added")
        for name in facts.digests.names(root)
        if f"{root}/{name}" not in known
    ]
    node = facts.document(document)
    node.format("checkpoint/1")
    saved = _parse(node, facts.digests.sha256(document), sum(one["bytes"].as_whole() for one in node["files"].items()))
    faults += [(document, what) for what in _faults_of_owner(node, owner)]
    faults += [(document, what) for what in _faults_of_account(saved, update, owner.recipe)]
    faults += _faults_of_files(facts, files, node)
    return saved, faults


def _parse(node: Node, sha256: str, num_bytes: int) -> Saved:
    return Saved(
        where=node.where,
        sha256=sha256,
        segment=node["segment"].as_whole(1),
        update=node["update"].as_whole(1),
        tokens=node["tokens"].as_whole(1),
        train_s=node["train_s"].as_number(),
        elapsed_s=node["elapsed_s"].as_number(),
        curve=tuple(
            Point(one["update"].as_whole(1), one["tokens"].as_whole(1), one["validation_loss"].as_number())
            for one in node["curve"].items()
        ),
        path=node["path"].as_text(),
        at=node["at"].as_number(),
        num_bytes=num_bytes,
    )


def _faults_of_owner(node: Node, owner: Owner) -> Iterator[str]:
    for name, value in owner.fields.items():
        said = node[name].value
        if said != value or type(said) is not type(value):
            yield f"{name} is {said!r}, and it must be {value!r}"


def _faults_of_account(saved: Saved, update: int, recipe: Recipe) -> Iterator[str]:
    """Yield what cannot be in an account of a run, whatever stands in those before it."""
    if saved.update != update:
        yield f"update is {saved.update}, and its folder is that of update {update}"
    if saved.update > recipe.updates:
        yield f"update is {saved.update}, and the recipe has {recipe.updates}"
    if saved.tokens > recipe.targets:
        yield f"tokens is {saved.tokens}, and the recipe has {recipe.targets}"
    if not 0 <= saved.train_s <= saved.elapsed_s:
        yield f"train_s is {saved.train_s!r} and elapsed_s {saved.elapsed_s!r}"
    made = [point.update for point in saved.curve]
    first = recipe.points(len(made) + 2)
    before = [point for point in first if point < saved.update]
    # Whether it was saved before or after an evaluation at the same update is the harness's affair.
    if made not in (before, [point for point in first if point <= saved.update]):
        yield f"the curve has points after the updates {made}, and planned are {before[:9]}"
    tokens = [0, *(point.tokens for point in saved.curve), saved.tokens + 1]
    if not all(earlier < later for earlier, later in pairwise(tokens)):
        yield "the tokens of the curve do not rise to those of the checkpoint"


def _is_name(text: str) -> bool:
    parts = text.split("/")
    return len(text) <= _MOST_NAME and all(_PART.fullmatch(part) and part not in {".", ".."} for part in parts)


def _faults_of_files(facts: Facts, files: str, node: Node) -> list[tuple[str, str]]:
    """Return where what lies below ``files/`` is not what the document lists, byte by byte."""
    listed: dict[str, tuple[int, str]] = {}
    order: list[str] = []
    for one in node["files"].items():
        name = one["name"].as_text()
        if not _is_name(name):
            raise one.wrong(f"{ascii(name)[:_MOST_NAME]} is not the name of a file below it")
        listed[name] = (one["bytes"].as_whole(), one["sha256"].as_digest())
        order.append(name)
    if not order or order != sorted(set(order)):
        raise node["files"].wrong("does not list files once each, by name")
    if not facts.digests.is_folder(files):
        return [(files, "is no folder, or gone")]
    above = {"/".join(name.split("/")[:depth]) for name in listed for depth in range(1, name.count("/") + 1)}
    gone = [name for name in listed if facts.digests.get(f"{files}/{name}") is None]
    absent = [(f"{files}/{name}", "its checkpoint.json lists it, and it is gone") for name in gone]
    return [*_faults_of_present(facts, files, listed, above), *absent]


def _faults_of_present(
    facts: Facts, files: str, listed: Mapping[str, tuple[int, str]], above: set[str]
) -> Iterator[tuple[str, str]]:
    for found in facts.digests.below(files):
        name = found.path.removeprefix(f"{files}/")
        if name in listed:
            num_bytes, digest = listed[name]
            try:
                contradiction = facts.digests.contradiction(found.path, num_bytes, digest)
            except EvidenceError as error:  # it cannot be read
                yield error.where, error.what
                continue
            if contradiction:
                yield found.path, f"not what its checkpoint.json lists: {contradiction}"
        elif not (found.kind is Kind.FOLDER and name in above):
            yield found.path, "not listed by its checkpoint.json: added later"


# --- from one to the next ---------------------------------------------------------------------------------------------


def faults_of_growth(earlier: Saved, later: Saved, last: int) -> Iterator[str]:
    """Yield in what an account does not go on from another one.

    Args:
        earlier: The state before, or the one that the segment started from.
        later: The next state.
        last: The recipe's updates: a segment that starts there has nothing to train, and saves what it found.
    """
    is_same = earlier.update == later.update == last and earlier.segment < later.segment
    if not (earlier.update < later.update or is_same):
        yield f"update goes from {earlier.update} to {later.update}"
    for name in ("tokens", "train_s", "elapsed_s"):
        was, now = getattr(earlier, name), getattr(later, name)
        if not was <= now:
            yield f"{name} goes from {was!r} to {now!r}"
    # A segment that starts there evaluates again: the final loss is its own, not what it found written.
    known = [point for point in earlier.curve if not is_same or point.update < last]
    if list(later.curve[: len(known)]) != known:
        yield "the curve does not begin with the one that was there before"
    if later.path != earlier.path:
        yield f"the engaged path goes from {earlier.path!r} to {later.path!r}"
