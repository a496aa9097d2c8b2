"""Makes a protocol and its evidence with chosen ratios, as a campaign would have left them.

>>> campaign = make_campaign(tmp_path, ratios={"sync": ("1.837", "1.946", "1.726")}, production={"20m": ("1.00",) * 3})
>>> result = campaign.evaluate()
>>> json.loads(result.verdict)["outcome"]

With the numerical family (``families=("throughput", "numerical")``, or that one alone) every workload has a case and a
control case whose worst values are `PRECISION`, reached in the last update by the last worker.

The rows are held as text, so that a test can spoil any of them before `Campaign.write`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from acceptance.__main__ import own_sources, read_evidence
from acceptance.formats import GLOBAL_QUANTITIES, MUTATIONS, TABLES, Ending
from acceptance.vacuity import quantities_of, updates_of
from acceptance.verdict import Result, evaluate
from campaign.documents import (
    Category,
    ConvergenceRules,
    Execution,
    Identity,
    Limits,
    NumericalRules,
    Protocol,
    Retries,
    Slot,
    ThroughputRules,
    Workload,
    slot_for,
)

BASELINE_SHA256 = hashlib.sha256(b"baseline").hexdigest()
CANDIDATE_SHA256 = hashlib.sha256(b"candidate").hexdigest()
CANDIDATE = f"c{CANDIDATE_SHA256[:12]}"
BASELINE_PATH, CANDIDATE_PATH = "b" * 12, "c" * 12

PUBLISHED = {
    "sync": ("1.837", "1.946", "1.726"),
    "packed4": ("1.063", "1.087", "1.085"),
    "packed8": ("1.057", "1.047", "1.055"),
}
"""Median ratio of each category by repeat."""

NEUTRAL = {"production": ("1.00", "0.99", "1.01")}
"""A production workload that is as fast as before."""

PRECISION = {
    "loss": ("0.0016", "0.0008"),
    "parameters": ("6.48159e-05", "2.8181e-05"),
    "gradients": ("0.00575311", "0.00555054"),
    "updates": ("0.0777747", "0.0244179"),
    "exp_avg": ("0.00515174", "0.0046918"),
    "exp_avg_sq": ("0.00415174", "0.0036918"),
    "optimizer": ("0.25", "0.125"),
    "consensus": ("0.5", "0.25"),
}
"""Worst of the candidate and of the control: relative L2 errors, of a loss |c - b|, of an isolated check its value."""

BLINDNESS = {
    "no_update": ("0.004", "1"),
    "negated": ("0.008", "2"),
    "shuffled": ("1.4",) * 5,
    "previous_batch": ("0.5",) * 6,
}
"""What each mutation reads, in the order of the quantities that it has rows of: updates are 0.4% of the parameters."""

Rows = list[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A protocol and its evidence, still to be spoilt and written."""

    folder: Path
    protocol: Protocol
    tables: dict[str, Rows]
    """Rows by file name; every value is text."""
    identity: dict[str, str]

    @property
    def protocol_path(self) -> Path:
        """``protocol.json``."""
        return self.folder / "protocol.json"

    @property
    def evidence_path(self) -> Path:
        """The evidence folder."""
        return self.folder / "evidence"

    def table_bytes(self, file: str) -> bytes:
        """Return the bytes of one table."""
        lines = [TABLES[file].header, *(tuple(row.values()) for row in self.tables[file])]
        return "".join(",".join(line) + "\n" for line in lines).encode()

    def write(self) -> Campaign:
        """Write protocol.json and the evidence folder."""
        self.evidence_path.mkdir(parents=True, exist_ok=True)
        self.protocol_path.write_bytes(self.protocol.to_bytes())
        for file in self.tables:
            (self.evidence_path / file).write_bytes(self.table_bytes(file))
        identity = json.dumps(self.identity, indent=2, sort_keys=True) + "\n"
        (self.evidence_path / "identity.json").write_text(identity)
        return self

    def evaluate(self) -> Result:
        """Evaluate what has been written."""
        evidence, foreign = read_evidence(self.evidence_path)
        protocol_json = self.protocol_path.read_bytes()
        return evaluate(protocol_json=protocol_json, evidence=evidence, sources=own_sources(), foreign=foreign)

    def verdict(self) -> dict[str, Any]:
        """Return the verdict on what has been written."""
        result = self.evaluate()
        assert result.verdict is not None, result.faults
        verdict: dict[str, Any] = json.loads(result.verdict)
        return verdict

    def rows(self, file: str, **wanted: object) -> Rows:
        """Return the rows of one table that have these values."""
        return [row for row in self.tables[file] if all(row[name] == str(value) for name, value in wanted.items())]


def make_campaign(
    folder: Path,
    *,
    ratios: Mapping[str, Sequence[str]] | None = None,
    production: Mapping[str, Sequence[str]] | None = None,
    control: Sequence[str] = ("1.001", "0.999", "1.000"),
    workloads_per_category: int = 3,
    families: Sequence[Any] = ("throughput",),
    numerical: NumericalRules | None = None,
    workers: int = 2,
    convergence: ConvergenceRules | None = None,
    **rules: Any,
) -> Campaign:
    """Make a complete, clean campaign and write it.

    Args:
        folder: Where to write protocol.json and evidence/.
        ratios: Median ratio candidate / baseline of each category by repeat, as decimal text; default `PUBLISHED`.
        production: Ratio of each production workload (outside any category) by repeat; default `NEUTRAL`.
        control: Ratio of the controls by repeat.
        workloads_per_category: How many workloads a category has; their ratios lie symmetrically about the median.
        families: The declared families.
        numerical: The rules of the numerical family where it is declared; default the default protocol's.
        workers: How many workers each numerical case has.
        convergence: The rules of the convergence family where it is declared; tests.support.runs adds its runs.
        rules: Fields of `ThroughputRules` that differ from the default.
    """
    throughput = ThroughputRules(**rules)
    wanted = _spread(PUBLISHED if ratios is None else ratios, workloads_per_category)
    single = NEUTRAL if production is None else production
    wanted |= {("", name): tuple(Decimal(text) for text in values) for name, values in single.items()}
    protocol = make_protocol(
        [(category, name) for category, name in wanted], throughput, families, numerical, convergence
    )
    campaign = Campaign(
        folder=folder,
        protocol=protocol,
        tables={file: [] for file in TABLES},
        identity=Identity(
            manifest_sha256=hashlib.sha256(b"manifest").hexdigest(),
            baseline_sha256=BASELINE_SHA256,
            candidate=CANDIDATE,
            candidate_sha256=CANDIDATE_SHA256,
        ).to_json(),
    )
    values = {name: by_repeat for (_, name), by_repeat in wanted.items()}
    for slot in protocol.slots:
        ratio = Decimal(control[slot.repeat - 1]) if slot.kind == "control_pair" else Decimal(1)
        if slot.kind == "pair":
            ratio = values[slot.workload][slot.repeat - 1]
        if slot.kind in {"pair", "control_pair", "solo"}:
            add_attempt(campaign, slot, ratio)
        if slot.kind in {"case", "control_case"}:
            add_case(campaign, slot, workers=workers)
    return campaign.write()


def _spread(ratios: Mapping[str, Sequence[str]], count: int) -> dict[tuple[str, str], tuple[Decimal, ...]]:
    """Give every category `count` workloads whose ratios lie symmetrically about the wanted median."""
    spread: dict[tuple[str, str], tuple[Decimal, ...]] = {}
    for category, medians in ratios.items():
        for index in range(count):
            factor = 1 + Decimal("0.02") * (2 * index - (count - 1))
            spread[category, f"20m-{category}-b{index + 1}"] = tuple(Decimal(text) * factor for text in medians)
    return spread


def make_protocol(
    names: Sequence[tuple[str, str]],
    throughput: ThroughputRules | None = None,
    families: Sequence[Any] = ("throughput",),
    numerical: NumericalRules | None = None,
    convergence: ConvergenceRules | None = None,
) -> Protocol:
    """Make a protocol.

    Args:
        names: Category (empty for a production workload) and name of each workload.
        throughput: The rules; default the default protocol's.
        families: The declared families.
        numerical: The rules of the numerical family where it is declared; default the default protocol's.
        convergence: The rules of the convergence family where it is declared; default no recipe.
    """
    rules = throughput or ThroughputRules()
    matched = (numerical or NumericalRules()) if "numerical" in families else None
    trained = (convergence or ConvergenceRules()) if "convergence" in families else None
    workloads = [
        Workload(
            name=name,
            category=category,
            production=not category,
            config={"name": name, "batch": 8, "clip": 1.0},
            config_sha256=hashlib.sha256(name.encode()).hexdigest(),
        )
        for category, name in names
    ]
    categories = list(dict.fromkeys(category for category, _ in names if category))
    return Protocol(
        campaign="demo",
        families=tuple(families),
        baseline_first=True,
        throughput=rules,
        numerical=matched,
        convergence=trained,
        limits=Limits(),
        retries=Retries(),
        execution=Execution(),
        categories=tuple(
            Category(name=category, workloads=tuple(name for own, name in names if own == category))
            for category in categories
        ),
        workloads=tuple(workloads),
        slots=(
            *(_slots(workloads, categories, rules) if "throughput" in families else ()),
            *(_cases(workloads, matched) if matched else ()),
            *(_runs(trained) if trained else ()),
        ),
        headers={file: table.header for file, table in TABLES.items()},
    )


def _slots(workloads: Sequence[Workload], categories: Sequence[str], rules: ThroughputRules) -> Iterable[Slot]:
    firsts = [next(item.name for item in workloads if item.category == category) for category in categories]
    for index, workload in enumerate(workloads):
        for repeat in range(1, rules.repeats + 1):
            tail = f"{workload.name}/r{repeat}"
            first = (index + repeat + 1) % 2 == 0
            if rules.solo:
                yield _slot(f"baseline/solo/{tail}", "solo", workload.name, repeat, pair=0, order=("baseline",))
            if rules.controls and workload.name in firsts:
                order = _order("baseline_again", baseline_first=first)
                yield _slot(f"baseline/control/{tail}", "control_pair", workload.name, repeat, pair=1, order=order)
            for pair in range(1, rules.pairs_per_repeat + 1):
                name = f"candidate/pair/{tail}" + (f"p{pair}" if rules.pairs_per_repeat > 1 else "")
                order = _order("candidate", baseline_first=first == (pair % 2 == 1))
                yield _slot(name, "pair", workload.name, repeat, pair=pair, order=order)


def _cases(workloads: Sequence[Workload], rules: NumericalRules) -> Iterable[Slot]:
    for workload in workloads:
        if rules.controls:
            order = ("baseline", "baseline_again")
            yield _slot(f"baseline/control-case/{workload.name}", "control_case", workload.name, 0, pair=0, order=order)
        order = ("baseline", "candidate")
        yield _slot(f"candidate/case/{workload.name}", "case", workload.name, 0, pair=0, order=order)


def _runs(rules: ConvergenceRules) -> Iterable[Slot]:
    seeds = (*rules.seeds, *(rules.extension.seeds if rules.extension else ()))
    for seed in seeds:
        for recipe in rules.recipes:
            for side in ("baseline", "candidate"):
                yield _slot(f"{side}/run/{recipe.name}/s{seed}", "run", recipe.name, 0, pair=0, order=(side,))


def _order(other: str, *, baseline_first: bool) -> tuple[str, ...]:
    return ("baseline", other) if baseline_first else (other, "baseline")


def _slot(name: str, kind: str, workload: str, repeat: int, *, pair: int, order: tuple[str, ...]) -> Slot:
    side = name.partition("/")[0]
    phases = {"pair": "throughput", "case": "numerical", "run": "convergence"}
    return Slot.of(
        {
            "slot": name,
            "side": side,
            "phase": phases.get(kind, "baseline") if side == "candidate" else "baseline",
            "kind": kind,
            "workload": workload,
            "repeat": repeat,
            "pair": pair,
            "order": order,
        }
    )


def add_attempt(
    campaign: Campaign,
    slot: Slot,
    ratio: Decimal,
    *,
    attempt: int = 1,
    ending: Ending = Ending.COMPLETED,
    factor: int = 1,
) -> None:
    """Add the rows of one attempt at a slot.

    Args:
        campaign: Where to add them.
        slot: The slot.
        ratio: Ratio of the other side to the baseline.
        attempt: Number of the attempt.
        ending: How it ended; the tables get rows of a completed one only.
        factor: Multiple of the planned updates per window.
    """
    name = slot_for(slot.slot, CANDIDATE)
    allocation = f"{'candidate' if slot.kind == 'pair' else slot.kind}-{slot.workload}-r{slot.repeat}-a{attempt}"
    where = {"allocation": allocation, "node": f"node{slot.repeat}", "device": "cpu:Test_CPU"}
    paths = {"baseline_path": BASELINE_PATH, "candidate_path": ""}
    if slot.kind != "solo":
        paths["candidate_path"] = CANDIDATE_PATH if slot.kind == "pair" else BASELINE_PATH
    state = {"ending": ending.value, "sealed": "true"}
    campaign.tables["attempts.csv"].append({"slot": name, "attempt": str(attempt), **where, **paths, **state})
    if ending is not Ending.COMPLETED:
        return
    for position, side in enumerate(slot.order, start=1):
        window_s = _window_s(ratio, factor, is_baseline=side == "baseline")
        key = {"position": str(position), "side": side, "attempt": str(attempt)}
        _add_measurement(campaign, slot, key, where, window_s=window_s, updates=40 * factor)


def _window_s(ratio: Decimal, factor: int, *, is_baseline: bool) -> Decimal:
    """Return a window's seconds: the ratio is exact in decimals, and neither side is under two seconds."""
    scale = Decimal(1)
    while ratio * scale < 1:
        scale *= 10
    return Decimal("2.5") * scale * factor * (ratio if is_baseline else 1)


def _add_measurement(
    campaign: Campaign,
    slot: Slot,
    key: dict[str, str],
    where: dict[str, str],
    *,
    window_s: Decimal,
    updates: int,
) -> None:
    rules = campaign.protocol.throughput
    workload = campaign.protocol.workload(slot.workload)
    tokens = 1024 * updates
    train_s = window_s * rules.windows
    measured = {
        "warmup_updates": str(rules.warmup_updates),
        "updates": str(updates),
        "tokens": str(tokens * rules.windows),
        "startup_s": "3.25",
        "train_s": f"{train_s:f}",
        "elapsed_s": f"{train_s + 4:f}",
        "peak_allocated_bytes": "1048576",
        "peak_reserved_bytes": "2097152",
        "tokens_per_s": repr(float(tokens * rules.windows / train_s)),
    }
    flags = {"category": workload.category, "production": "true" if workload.production else "false"}
    comparison = {"pair": "candidate", "control_pair": "control", "solo": ""}[slot.kind]
    place = {"workload": slot.workload, "comparison": comparison, "repeat": str(slot.repeat), "pair": str(slot.pair)}
    row = place | key | flags | where | measured
    append_row(campaign, "pairs.csv" if comparison else "baseline.csv", row)
    for window in range(1, rules.windows + 1 if comparison else 1):
        counts = {"updates": str(updates), "microbatches": str(updates), "skipped_updates": "0", "tokens": str(tokens)}
        seconds = {"window": str(window), "seconds": f"{window_s:f}"}
        append_row(campaign, "windows.csv", place | key | counts | seconds)


def add_case(
    campaign: Campaign,
    slot: Slot,
    *,
    workers: int = 2,
    attempt: int = 1,
    ending: Ending = Ending.COMPLETED,
    worst: Mapping[str, str] | None = None,
) -> None:
    """Add the rows of one attempt at a numerical case or its control.

    Args:
        campaign: Where to add them.
        slot: The slot.
        workers: How many workers it has; the consensus is checked with more than one.
        attempt: Number of the attempt.
        ending: How it ended; the tables get rows of a completed one only.
        worst: Values by quantity that differ from `PRECISION`.
    """
    is_control = slot.kind == "control_case"
    where = {"allocation": f"{slot.kind}-{slot.workload}-a{attempt}", "node": "node1", "device": "cpu:Test_CPU"}
    paths = {"baseline_path": BASELINE_PATH, "candidate_path": BASELINE_PATH if is_control else CANDIDATE_PATH}
    key = {"slot": slot_for(slot.slot, CANDIDATE), "attempt": str(attempt)}
    campaign.tables["attempts.csv"].append({**key, **where, **paths, "ending": ending.value, "sealed": "true"})
    if ending is not Ending.COMPLETED:
        return
    wanted = {quantity: values[is_control] for quantity, values in PRECISION.items()} | dict(worst or {})
    _add_numerical(campaign, slot, attempt, workers, wanted)
    if is_control:
        _add_vacuity(campaign, slot, attempt, workers)


def _rules(campaign: Campaign) -> NumericalRules:
    rules = campaign.protocol.numerical
    assert rules is not None
    return rules


def _add_numerical(campaign: Campaign, slot: Slot, attempt: int, workers: int, worst: Mapping[str, str]) -> None:
    rules = _rules(campaign)
    comparison = "control" if slot.kind == "control_case" else "candidate"
    shared = comparison == "control" and slot.workload in rules.shared_executor
    common = {
        "workload": slot.workload,
        "comparison": comparison,
        "attempt": str(attempt),
        "executor": "shared" if shared else "independent",
        "serialized": "true" if slot.workload in (*rules.serialized, *rules.shared_executor) else "false",
    }
    for update in range(1, rules.updates + 1):
        for worker in range(workers):
            share = Decimal(update * (worker + 1)) / (rules.updates * workers)
            place = {"update": str(update), "worker": str(worker)}
            for quantity in ("loss", *GLOBAL_QUANTITIES):
                make = loss_fields if quantity == "loss" else tensor_fields
                own = make(Decimal(worst[quantity]) * share)
                append_row(campaign, "numerical.csv", common | place | {"quantity": quantity} | own)
    rounds = [(rules.isolated_steps, "optimizer")]
    rounds += [(number, "consensus") for number in range(1, rules.isolated_steps + 1) if workers > 1]
    for number, quantity in rounds:
        for worker in range(workers):
            place = {"update": str(number), "worker": str(worker), "quantity": quantity}
            share = Decimal(number * (worker + 1)) / (rules.isolated_steps * workers)
            own = isolated_fields(Decimal(worst[quantity]) * share)
            append_row(campaign, "numerical.csv", common | place | own)


def loss_fields(difference: Decimal | str, reference: str = "3") -> dict[str, str]:
    """Return the fields of a loss that is off by so much."""
    value = _number(Decimal(reference) + Decimal(difference))
    return {"reference": reference, "value": value, **NO_RATIO, "nonfinite": "0"}


NO_RATIO = {"rel_l2": "", "worst_tensor": "", "worst_rel_l2": ""}
"""The fields of a row without a relative error."""


def tensor_fields(rel_l2: Decimal | str, reference: str = "4") -> dict[str, str]:
    """Return the fields of a tensor quantity with such a relative error, its worst tensor a quarter worse."""
    ratio = Decimal(rel_l2)
    return {
        "reference": reference,
        "value": _number(ratio * Decimal(reference)),
        "rel_l2": _number(ratio),
        "worst_tensor": "blocks.0.weight",
        "worst_rel_l2": _number(ratio * Decimal("1.25")),
        "nonfinite": "0",
    }


def isolated_fields(value: Decimal | str) -> dict[str, str]:
    """Return the fields of an isolated check with such a worst error."""
    return {"reference": "", "value": _number(Decimal(value)), **NO_RATIO, "worst_tensor": "w", "nonfinite": "0"}


def _number(value: Decimal) -> str:
    return str(value).lower()


def _add_vacuity(campaign: Campaign, slot: Slot, attempt: int, workers: int) -> None:
    for mutation in MUTATIONS:
        for update in updates_of(mutation, _rules(campaign).updates):
            for worker in range(workers):
                for quantity, reading in zip(quantities_of(mutation), BLINDNESS[mutation], strict=True):
                    place = {"workload": slot.workload, "attempt": str(attempt), "mutation": mutation}
                    own = {"update": str(update), "worker": str(worker), "quantity": quantity, "rel_l2": reading}
                    append_row(campaign, "vacuity.csv", place | own)


def append_row(campaign: Campaign, file: str, row: dict[str, str]) -> None:
    """Add a row to a table: its columns, in the order of its header."""
    campaign.tables[file].append({name: row[name] for name in TABLES[file].header})
