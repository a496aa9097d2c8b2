"""Who was compared, on what, and under which rules: the cards and the auditor's tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from reports.numbers import ABSENT, count, listed, plural, size
from reports.source import Source
from reports.view import Card, Cell, Table, code, columns, number, text

_SIDES = ("baseline", "candidate")

# --- cards ------------------------------------------------------------------------------------------------------------


def _compact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _commit(side: Mapping[str, Any]) -> Cell:
    git = side["git"]
    if not git:
        return text("no repository")
    changes = [
        f"{count(git[kind])} {kind}" for kind in ("modified", "untracked", "deleted", "included") if git.get(kind)
    ]
    note = f"{listed(changes)} besides: the snapshot holds what was on disk" if changes else ""
    return Cell(text=git.get("commit") or "no commit yet", code=True, note=note)


def _container(image: Mapping[str, Any]) -> Cell:
    return Cell(text=image["sha256"], code=True, note=f"{image['path']}, {size(image['bytes'])}")


def _card(name: str, title: str, side: Mapping[str, Any]) -> Card:
    lockfile = side["lockfile"]
    return Card(
        side=name,
        title=title,
        facts=(
            ("Id", code(side["id"])),
            ("Snapshot", code(side["snapshot_sha256"])),
            ("Commit", _commit(side)),
            ("Adapter", code(side["adapter"])),
            ("Interpreter", code(side["python"])),
            *((("Container", _container(container)),) if (container := side.get("container")) else ()),
            ("Lock file", code(lockfile["sha256"]) if lockfile else text("none")),
            ("Frozen as", text(f"ledger entry {side['frozen_seq']}")),
        ),
    )


def cards(provenance: Mapping[str, Any]) -> tuple[Card, ...]:
    """Return the identity cards of both sides."""
    return (
        _card("baseline", "Baseline", provenance["baseline"]),
        _card("candidate", "Candidate", provenance["candidate"]),
    )


# --- the protocol in words --------------------------------------------------------------------------------------------


def rules(protocol: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the frozen rules as sentences."""
    return (
        _matrix_rule(protocol),
        *(_throughput_rules(protocol) if "throughput" in protocol["families"] else ()),
        *(_numerical_rules(protocol["numerical"]) if "numerical" in protocol["families"] else ()),
        *(_convergence_rules(protocol["convergence"]) if "convergence" in protocol["families"] else ()),
        _retry_rule(protocol["retries"]),
        _execution_rule(protocol),
        "The baseline's own evidence had to be complete before a candidate could be frozen."
        if protocol["baseline_first"]
        else "A candidate could be frozen before the baseline's own evidence was complete.",
    )


def _matrix_rule(protocol: Mapping[str, Any]) -> str:
    workloads = plural(len(protocol["workloads"]), "workload")
    slots = plural(len(protocol["slots"]), "slot")
    categories = plural(len(protocol["categories"]), "category", "categories")
    production = plural(sum(1 for item in protocol["workloads"] if item["production"]), "required production case")
    rules = protocol["convergence"] if "convergence" in protocol["families"] else None
    recipes = f"; {plural(len(rules['recipes']), 'recipe')} to train" if rules else ""
    return f"The matrix has {workloads} and {slots}, closed at the freeze: {categories} and {production}{recipes}."


def _throughput_rules(protocol: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = protocol["throughput"]
    return (
        _pairing_rule(numbers),
        _window_rule(numbers),
        _TIMERS,
        _gate_rule(numbers),
    )


_TIMERS = (
    "Start-up is runner set-up, compilation or capture, and warm-up. Training is the sum of the windows. "
    "Elapsed time adds result collection. Imports, calibration and queue time are outside all three."
)


def _pairing_rule(numbers: Mapping[str, Any]) -> str:
    repeats, pairs = plural(numbers["repeats"], "repeat"), plural(numbers["pairs_per_repeat"], "pair")
    return (
        f"Every workload is measured in {repeats}, each in an allocation of its own. Both sides of a pair run in the "
        "same allocation, on the same devices and with equal update counts, in the order that the protocol lists "
        f"({pairs} per repeat)."
    )


def _window_rule(numbers: Mapping[str, Any]) -> str:
    warmup, windows = plural(numbers["warmup_updates"], "warm-up update"), plural(numbers["windows"], "window")
    return (
        f"Each side makes at least {warmup}, then {windows} of at least {numbers['window_s']} s on both sides. "
        "The score is target tokens per second of training, over all windows."
    )


def _gate_rule(numbers: Mapping[str, Any]) -> str:
    return (
        "A category passes if, in every repeat, the median over its workloads of the candidate / baseline ratio is at "
        f"least {numbers['category_threshold']}. A production case passes if its ratio is at least "
        f"{numbers['production_threshold']} in every repeat. These are point rules: intervals are shown beside them "
        "and decide nothing."
    )


def _numerical_rules(numbers: Mapping[str, Any]) -> tuple[str, ...]:
    gated = listed(list(numbers["gated_tensors"])) or "nothing"
    required = listed(list(numbers["required"])) or "none of the optional checks"
    updates = plural(numbers["updates"], "matched local update")
    matched = (
        f"Every workload makes {updates} per worker, with {numbers['moments']} moments. Allowed is a loss within "
        f"{numbers['loss_atol']} + {numbers['loss_rtol']} \u00b7 |baseline|, and a relative L2 below "
        f"{numbers['gradients_threshold']} for gradients, {numbers['parameters_threshold']} for parameters and "
        f"{numbers['updates_threshold']} for updates, at every update of every worker. Moments have no gate."
    )
    beside = (
        f"The rule for single tensors gates {gated}. A candidate above {numbers['control_factor']} times its control "
        f"is flagged. The isolated checks allow {numbers['isolated_atol']} + {numbers['isolated_rtol']} \u00b7 "
        f"|baseline| per element; the protocol requires {required} of the adapter."
    )
    return matched, beside


def _convergence_rules(numbers: Mapping[str, Any]) -> tuple[str, ...]:
    extension = numbers["extension"]
    seeds = listed([str(seed) for seed in numbers["seeds"]])
    quantile = extension["quantile_first"] if extension else numbers["quantile"]
    gate = (
        f"Every recipe is trained by both sides with the seeds {seeds}. It passes if mean + {quantile} \u00b7 SD / "
        "sqrt(n) of the paired differences of the final loss over the whole validation split is strictly below "
        f"{numbers['margin']} nats."
    )
    if extension is not None:
        added = listed([str(seed) for seed in extension["seeds"]])
        gate += (
            f" Where that is inconclusive, the seeds {added} are added, on both sides, and all are judged together "
            f"with {extension['quantile']} in its place."
        )
    cut = (
        f"A run may be cut into {plural(numbers['max_segments'], 'segment')}, each of which goes on from a checkpoint "
        f"of those before; checkpoints are at most about {plural(numbers['checkpoint_s'], 'second')} apart. All "
        "segments are one attempt."
    )
    return gate, cut


def _retry_rule(retries: Mapping[str, Any]) -> str:
    again = listed([ending.replace("_", " ") for ending in retries["again"]]) or "nothing"
    once = listed([ending.replace("_", " ") for ending in retries["again_once"]])
    also = f", and once after {once}" if once else ""
    return (
        f"A slot may have {plural(retries['max_attempts'], 'attempt')}. Another one is allowed after {again}{also}; "
        "any other ending is final. The lowest-numbered completed attempt counts."
    )


def _execution_rule(protocol: Mapping[str, Any]) -> str:
    execution = protocol["execution"]
    seed = f" Throughput is measured with seed {protocol['throughput']['seed']}." if protocol["throughput"] else ""
    return f"A side runs on {execution['device']} with {plural(execution['threads'], 'thread')}.{seed}"


# --- provenance -------------------------------------------------------------------------------------------------------


def digest_table(provenance: Mapping[str, Any], verdict: Mapping[str, Any]) -> Table:
    """Return the digests of everything that the verdict rests on."""
    ledger = provenance["ledger"]
    rows = (
        ("Manifest", verdict["manifest_sha256"]),
        ("Protocol", verdict["protocol_sha256"]),
        ("Acceptance", verdict["acceptance_sha256"]),
        ("Harness", provenance["harness_sha256"]),
        ("Baseline snapshot", verdict["baseline_sha256"]),
        ("Candidate snapshot", verdict["candidate_sha256"]),
        ("Evidence", verdict["evidence_sha256"]),
        (f"Ledger head, entry {ledger['entries']}", ledger["head"]),
    )
    sealed = ledger["baseline_sealed_seq"]
    shown = "not sealed" if sealed is None else f"ledger entry {sealed}"
    return Table(
        name="digests",
        caption="Digests (SHA-256)",
        columns=columns("What", "Digest"),
        rows=(
            *((text(what), code(digest)) for what, digest in rows),
            (text("Baseline evidence complete"), text(shown)),
        ),
    )


_STAMPED = (
    "manifest_sha256",
    "protocol_sha256",
    "acceptance_sha256",
    "baseline_sha256",
    "candidate_sha256",
    "evidence_sha256",
)


def stamps(source: Source) -> tuple[tuple[str, str], ...]:
    """Return the digests that the page carries for programs, by name."""
    return (
        *((name, str(source.verdict[name])) for name in _STAMPED),
        ("verdict_sha256", hashlib.sha256(source.verdict_bytes).hexdigest()),
        ("provenance_sha256", hashlib.sha256(source.provenance_bytes).hexdigest()),
    )


def machine_table(provenance: Mapping[str, Any]) -> Table:
    """Return the nodes and devices that measured."""
    nodes = [(text("node"), code(_compact(node))) for node in provenance["nodes"]]
    devices = [(text("device"), code(_compact(device))) for device in provenance["devices"]]
    return Table(
        name="machines",
        caption="Nodes and devices",
        columns=columns("Kind", "Name"),
        rows=(*nodes, *devices),
        empty="Nothing ran.",
    )


def host_table(provenance: Mapping[str, Any]) -> Table:
    """Return the machines that measured: processor, memory, kernel, devices and their drivers."""
    return Table(
        name="hosts",
        caption="Machines that measured",
        columns=columns(
            "Node", "Processor", "Architecture", "Memory", "Kernel", "Devices and drivers", numeric=("Memory",)
        ),
        rows=tuple(
            (
                code(host["node"]),
                text(host["cpu"]),
                text(host["machine"]),
                number(size(host["memory_bytes"]), host["memory_bytes"]),
                code(host["kernel"]),
                text("; ".join(_device(device) for device in host["devices"])),
            )
            for host in provenance["machines"]
        ),
        empty="Nothing ran.",
    )


def _device(device: Mapping[str, Any]) -> str:
    return f"{device['name']}, driver {device['driver'] or 'none'}"


def frozen_on_table(provenance: Mapping[str, Any]) -> Table:
    """Return what the manifests say of the host and the driver that froze each side."""
    sides = [provenance["frozen_on"][side] for side in _SIDES]
    names = [
        (kind, name)
        for kind in ("machine", "driver")
        for name in sorted({name for side in sides for name in side[kind]})
    ]
    return Table(
        name="frozen-on",
        caption="Machine and driver that froze each side",
        columns=columns("What", "Baseline", "Candidate"),
        rows=tuple(
            (text(f"{kind}: {name}".replace("_", " ")), *(text(_spelled(side[kind].get(name))) for side in sides))
            for kind, name in names
        ),
        empty="The manifests describe neither.",
    )


def _spelled(value: object) -> str:
    """Return a value of a manifest for reading, nested ones in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_spelled(inner)}" for name, inner in sorted(value.items()))
    if isinstance(value, list | tuple):
        return "; ".join(_spelled(inner) for inner in value)
    return ABSENT if value is None else str(value)


def version_table(provenance: Mapping[str, Any]) -> Table:
    """Return the versions that each side reported, and what its processes could find compiled."""
    rows = [
        (f"{name}{also}", [provenance[kind][side].get(name) for side in _SIDES])
        for kind, also in (("caches", " cache"), ("versions", ""))
        for name in sorted({name for side in _SIDES for name in provenance[kind][side]})
    ]
    return Table(
        name="versions",
        caption="Versions that the sides reported, and their caches",
        columns=columns("Package", "Baseline", "Candidate"),
        rows=tuple((text(name), *(code(found) for found in values)) for name, values in rows),
        empty="No side reported versions.",
    )


def data_table(provenance: Mapping[str, Any]) -> Table:
    """Return the identities of the data."""
    return Table(
        name="data",
        caption="Data",
        columns=columns("Name", "Path", "Files", "Size", "SHA-256", numeric=("Files", "Size")),
        rows=tuple(
            (
                text(name),
                code(identity["path"]),
                number(count(identity["files"]), identity["files"]),
                number(size(identity["bytes"]), identity["bytes"]),
                code(identity["sha256"]),
            )
            for name, identity in sorted(provenance["data"].items())
        ),
        empty="The configuration declares no data.",
    )


def reads_table(provenance: Mapping[str, Any]) -> Table | None:
    """Return what the sides may read that is neither frozen nor hashed; None where provenance does not tell."""
    if not all("reads" in provenance[side] for side in _SIDES):
        return None
    return Table(
        name="reads",
        caption="What a side may read besides: declared, and hashed by nobody",
        columns=columns("Side", "Path"),
        rows=tuple((text(side), code(path)) for side in _SIDES for path in provenance[side]["reads"]),
        empty="Neither side declares such files or folders.",
    )


def left_out_table(provenance: Mapping[str, Any]) -> Table:
    """Return what the snapshots leave out of the source trees."""
    left_out: Mapping[str, Sequence[str]] = provenance["left_out"]
    return Table(
        name="left-out",
        caption="Left out of the snapshots by rule",
        columns=columns("Side", "What"),
        rows=tuple((text(side), code(line)) for side in sorted(left_out) for line in left_out[side]),
        empty="Nothing was left out.",
    )


def other_table(provenance: Mapping[str, Any]) -> Table:
    """Return the other candidates that were tried against this baseline."""
    return Table(
        name="others",
        caption="Other candidates known against the same baseline",
        columns=columns("Candidate", "Frozen as ledger entry", "Outcome", numeric=("Frozen as ledger entry",)),
        rows=tuple(
            (
                code(other["id"]),
                number(count(other["frozen_seq"]), other["frozen_seq"]),
                text((other["outcome"] or "not evaluated").replace("_", " ")),
            )
            for other in sorted(provenance["other_candidates"], key=lambda other: other["frozen_seq"])
        ),
        empty="No other candidate was frozen.",
    )
