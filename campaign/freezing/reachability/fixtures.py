"""Evidence of a whole campaign, made up from its protocol.

Only what the evidence checks hold against the protocol or against other rows is chosen with care; the rest is any
number. Numerical cases have a single tensor and one worker, and two workers where the consensus shall be looked at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from acceptance.formats import GLOBAL_QUANTITIES, ISOLATED_QUANTITIES, MUTATIONS, Ending
from campaign import documents
from campaign.documents import NumericalRules, Protocol, Recipe, Slot, slot_for
from campaign.freezing.reachability.values import WORST_LOSS_NATS, text, worst_tensor

_UPDATES = 40
_TOKENS_PER_UPDATE = 1000
_NORM = Decimal(4)
_BASELINE_LOSS = Decimal("3.5")
_STALE_UPDATE = 2
_PATHS = {"baseline": "b" * 12, "baseline_again": "b" * 12, "candidate": "c" * 12}
_PLACE = {"node": "node", "device": "device"}

MUTATED: dict[str, tuple[str, ...]] = {
    "no_update": ("parameters", "updates"),
    "negated": ("parameters", "updates"),
    "shuffled": GLOBAL_QUANTITIES,
    "previous_batch": ("loss", *GLOBAL_QUANTITIES),
}
"""The quantities that vacuity.csv has rows of, by mutation; a test compares them with the acceptance program's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """Made-up evidence, still to be written.

    Attributes:
        protocol: The rules that it is made for.
        identity: Its identity.json.
        lines: The lines of each table, without its header.
        foreign: Names of files that are no evidence.
        offers_paths: Whether the sides say which path they engaged.
    """

    protocol: Protocol
    identity: documents.Identity
    lines: dict[str, list[str]]
    foreign: tuple[str, ...] = ()
    offers_paths: bool = True

    def add(self, file: str, *parts: Mapping[str, str]) -> None:
        """Add a row of a table."""
        fields = {name: value for part in parts for name, value in part.items()}
        self.lines[file].append(",".join(fields[name] for name in self.protocol.headers[file]))

    def reversed(self) -> Fixture:
        """Return the same evidence with the rows of every table in the opposite order."""
        return replace(self, lines={file: rows[::-1] for file, rows in self.lines.items()})

    def write(self, folder: Path) -> None:
        """Write the evidence folder, which must not exist."""
        folder.mkdir()
        (folder / "identity.json").write_bytes(self.identity.to_bytes())
        for file, lines in self.lines.items():
            whole = "\n".join([",".join(self.protocol.headers[file]), *lines]) + "\n"
            (folder / file).write_text(whole, encoding="utf-8")
        for name in self.foreign:
            (folder / name).touch()


def identity_of(baseline: str, candidate: str) -> documents.Identity:
    """Return the identity of a campaign whose snapshots are named by any words."""
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("manifest", baseline, candidate)}
    return documents.Identity(
        manifest_sha256=digests["manifest"],
        baseline_sha256=digests[baseline],
        candidate=f"c{digests[candidate][:12]}",
        candidate_sha256=digests[candidate],
    )


def empty(protocol: Protocol, *, baseline: str = "baseline", candidate: str = "candidate") -> Fixture:
    """Return evidence without a row; its snapshots are named by any words."""
    lines: dict[str, list[str]] = {file: [] for file in protocol.headers}
    return Fixture(protocol=protocol, identity=identity_of(baseline, candidate), lines=lines)


def add_attempt(fixture: Fixture, slot: Slot, *, sealed: bool = True) -> None:
    """Add a completed attempt at a slot.

    Args:
        fixture: Where to add it.
        slot: The slot.
        sealed: Whether a receipt seals it.
    """
    paths = dict.fromkeys(("baseline_path", "candidate_path"), "")
    for side in slot.order if fixture.offers_paths else ():
        paths["baseline_path" if side == "baseline" else "candidate_path"] = _PATHS[side]
    state = {"attempt": "1", "ending": Ending.COMPLETED.value, "sealed": "true" if sealed else "false"}
    name = {"slot": slot_for(slot.slot, fixture.identity.candidate), "allocation": _allocation(slot)}
    fixture.add("attempts.csv", name, _PLACE, paths, state)


def _allocation(slot: Slot) -> str:
    return f"{slot.kind}-r{slot.repeat}"


# --- measurements -----------------------------------------------------------------------------------------------------


def add_measured(fixture: Fixture, ratios: Mapping[str, Decimal], *, repeats: int, swapped: bool) -> None:
    """Add the pairs, controls and solo measurements of the first repeats.

    Args:
        fixture: Where to add them.
        ratios: Candidate / baseline by workload; a control's is 1.
        repeats: How many repeats.
        swapped: Whether the sides of each pair got the measurements of one another.
    """
    files = {"pair": ("candidate", "pairs.csv"), "control_pair": ("control", "pairs.csv"), "solo": ("", "baseline.csv")}
    workloads = {workload.name: workload for workload in fixture.protocol.workloads}
    for slot in fixture.protocol.slots:
        if slot.kind not in files or slot.repeat > repeats:
            continue
        comparison, file = files[slot.kind]
        seconds = _window_seconds(fixture, ratios[slot.workload] if slot.kind == "pair" else Decimal(1))
        if swapped:
            seconds = seconds[::-1]
        add_attempt(fixture, slot)
        of_workload = workloads[slot.workload]
        flags = {"category": of_workload.category, "production": "true" if of_workload.production else "false"}
        for position, side in enumerate(slot.order, start=1):
            key = {
                "workload": slot.workload,
                "comparison": comparison,
                "repeat": str(slot.repeat),
                "pair": str(slot.pair),
                "position": str(position),
                "side": side,
                "attempt": "1",
                "allocation": _allocation(slot),
            }
            window_s = seconds[0] if side == "baseline" else seconds[1]
            _add_measurement(fixture, file, {**key, **flags, **_PLACE}, window_s)


def _window_seconds(fixture: Fixture, ratio: Decimal) -> tuple[Decimal, Decimal]:
    """Return how long a window of the baseline and of the other side takes; the faster side's is as short as may be."""
    shortest = max(Decimal(1), Decimal(fixture.protocol.throughput.window_s))
    return shortest * max(Decimal(1), ratio), shortest * max(Decimal(1), 1 / ratio)


def _add_measurement(fixture: Fixture, file: str, key: Mapping[str, str], window_s: Decimal) -> None:
    rules = fixture.protocol.throughput
    window_s = window_s.quantize(Decimal("1e-12"))  # so that the sum of the windows is exact
    train_s, tokens = window_s * rules.windows, _UPDATES * _TOKENS_PER_UPDATE
    measured = {
        "warmup_updates": str(rules.warmup_updates),
        "updates": str(_UPDATES),
        "tokens": str(tokens * rules.windows),
        "startup_s": "1",
        "train_s": text(train_s),
        "elapsed_s": text(train_s + 2),
        "peak_allocated_bytes": "1",
        "peak_reserved_bytes": "1",
        "tokens_per_s": text(tokens * rules.windows / train_s),
    }
    fixture.add(file, key, measured)
    if file == "pairs.csv":
        counts = dict.fromkeys(("updates", "microbatches"), str(_UPDATES)) | {"skipped_updates": "0"}
        window = {**key, **counts, "tokens": str(tokens), "seconds": text(window_s)}
        for number in range(1, rules.windows + 1):
            fixture.add("windows.csv", window, {"window": str(number)})


# --- numerical cases --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """What a candidate's cases read.

    Attributes:
        loss: Difference of the losses, in nats.
        tensors: Relative L2 error by quantity.
        isolated: Reading of the isolated checks; None where no side offers them.
    """

    loss: Decimal
    tensors: Mapping[str, Decimal]
    isolated: Decimal | None


NO_ERRORS = Errors(loss=Decimal(0), tensors=dict.fromkeys(GLOBAL_QUANTITIES, Decimal(0)), isolated=Decimal(0))
"""What a control reads: the baseline beside itself."""
NOT_OFFERED = Errors(loss=NO_ERRORS.loss, tensors=NO_ERRORS.tensors, isolated=None)
"""The same where no side offers the isolated checks."""


def add_cases(
    fixture: Fixture, rules: NumericalRules, errors: Errors, *, only: Sequence[str] | None, wide: Iterable[str]
) -> None:
    """Add the cases of some workloads and their controls, whose sides agree.

    Args:
        fixture: Where to add them.
        rules: The rules of the numerical family.
        errors: What the candidate's cases read.
        only: The workloads; None for all.
        wide: Those with two workers.
    """
    for slot in fixture.protocol.slots:
        if slot.kind in {"case", "control_case"} and (only is None or slot.workload in only):
            add_attempt(fixture, slot)
            workers = 2 if slot.workload in wide else 1
            quiet = NO_ERRORS if errors.isolated is not None else NOT_OFFERED
            for row in _case_rows(rules, slot, errors if slot.kind == "case" else quiet, workers):
                fixture.add("numerical.csv", row)
            if slot.kind == "control_case":
                for row in _vacuity_rows(rules, slot, workers):
                    fixture.add("vacuity.csv", row)


def _case_rows(rules: NumericalRules, slot: Slot, errors: Errors, workers: int) -> Iterator[Mapping[str, str]]:
    shared = slot.workload in rules.shared_executor
    common = {
        "workload": slot.workload,
        "comparison": "candidate" if slot.kind == "case" else "control",
        "attempt": "1",
        "executor": "shared" if shared and slot.kind == "control_case" else "independent",
        "serialized": "true" if shared or slot.workload in rules.serialized else "false",
        "nonfinite": "0",
        **dict.fromkeys(("reference", "rel_l2", "worst_tensor", "worst_rel_l2"), ""),
    }
    matched = [{**common, **fields} for fields in _matched_fields(rules, errors)]
    isolated = {"value": "", "worst_tensor": ""}
    if errors.isolated is not None:
        isolated = {"value": text(errors.isolated), "worst_tensor": "t"}
    for worker in range(workers):
        for update in range(1, rules.updates + 1):
            place = {"update": str(update), "worker": str(worker)}
            yield from ({**fields, **place} for fields in matched)
        for quantity in ISOLATED_QUANTITIES[:workers]:  # a single worker has no consensus
            first = rules.isolated_steps if quantity == "optimizer" else 1
            for step in range(first, rules.isolated_steps + 1):
                place = {"update": str(step), "worker": str(worker), "quantity": quantity}
                yield {**common, **isolated, **place}


def _matched_fields(rules: NumericalRules, errors: Errors) -> Iterator[Mapping[str, str]]:
    value = text(WORST_LOSS_NATS + errors.loss)
    yield {"quantity": "loss", "reference": text(WORST_LOSS_NATS), "value": value}
    for quantity, rel_l2 in errors.tensors.items():
        yield {
            "quantity": quantity,
            "reference": text(_NORM),
            "value": text(rel_l2 * _NORM),
            "rel_l2": text(rel_l2),
            "worst_tensor": "t",
            "worst_rel_l2": text(worst_tensor(rules, rel_l2)),
        }


def _vacuity_rows(rules: NumericalRules, slot: Slot, workers: int) -> Iterator[Mapping[str, str]]:
    common = {"workload": slot.workload, "attempt": "1", "rel_l2": "1"}
    for mutation in MUTATIONS:
        for update in range(1, rules.updates + 1):
            if mutation == "previous_batch" and update != _STALE_UPDATE:
                continue
            for worker in range(workers):
                place = {"mutation": mutation, "update": str(update), "worker": str(worker)}
                yield from ({**common, **place, "quantity": quantity} for quantity in MUTATED[mutation])


# --- runs -------------------------------------------------------------------------------------------------------------


def add_runs(fixture: Fixture, recipe: Recipe, differences: Mapping[int, Decimal]) -> None:
    """Add the runs of a recipe.

    Args:
        fixture: Where to add them.
        recipe: The recipe.
        differences: Candidate - baseline of the final loss by seed; a seed that is not in it has no run.
    """
    for slot in fixture.protocol.slots:
        if slot.kind != "run" or slot.workload != recipe.name:
            continue
        seed = documents.seed_of_run(slot.slot)
        if seed in differences:
            add_attempt(fixture, slot)
            loss = _BASELINE_LOSS + (differences[seed] if slot.side == "candidate" else 0)
            _add_run(fixture, slot, recipe, loss)


def _add_run(fixture: Fixture, slot: Slot, recipe: Recipe, loss: Decimal) -> None:
    seed = documents.seed_of_run(slot.slot)
    key = {"recipe": recipe.name, "seed": str(seed), "side": slot.side, "attempt": "1"}
    result = {
        "final_loss": text(loss),
        "target_tokens": str(recipe.targets),
        "validation_tokens": str(recipe.validation_targets),
        "updates": str(recipe.updates),
        "segments": "1",
        "train_s": "1",
        "elapsed_s": "2",
        "checkpoint_sha256": hashlib.sha256(slot.slot.encode()).hexdigest(),
    }
    fixture.add("convergence.csv", key, result)
    before_first = recipe.targets - len(recipe.points)
    for number, update in enumerate(recipe.points, start=1):
        point = {"update": str(update), "tokens": str(before_first + number), "validation_loss": text(loss)}
        fixture.add("curves.csv", key, point)
