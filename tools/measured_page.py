"""Write the figures of docs/measured/README.md from the raw output that stands beside it.

    python -m tools.measured_page

Everything between the marks of the page is written anew; a test holds the page to what this would write.
"""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.marked import rewritten

MEASURED = Path(__file__).resolve().parent.parent / "docs" / "measured"
RAW = MEASURED / "h200-2026-11-29"
TRAININGS = MEASURED / "h200-2026-11-30"
VERIFICATION = MEASURED / "verification-2026-11-30"
COLLECTION = MEASURED / "collection-2026-11-30"
PROCESSES = MEASURED / "h200-x2-2026-11-30"
BACKENDS = MEASURED / "h200-backends-2026-11-30"
TURNAROUND = MEASURED / "slurm-2026-11-30" / "bench_slurm.txt"
PROGRAM = "tools/measured_page.py"
_LOSS = re.compile(r"(?:loss|validation) (\S+)")
_COLUMNS = ("case", "compared, both sides", "loading", "training", "comparing", "in copies", "scratch", "whole case")


def _read(name: str) -> Any:
    return json.loads((RAW / name).read_text(encoding="utf-8"))


def _row(case: dict[str, Any]) -> str:
    size = case["slot"].rpartition("/")[2].partition("-")[0].upper()
    kind = "control" if "control-case" in case["slot"] else "candidate"
    cells = (
        f"{size} x {case['num_workers']}, {kind}",
        f"{case['compared_bytes'] / 1e9:.1f} GB",
        *(f"{case[name]:.2f} s" for name in ("load_s", "train_s", "compare_s")),
        f"{case['copies']:.2f}",
        f"{(case['staging_bytes'] + case['comparer_bytes']) / 2**20:.0f} MiB",
        f"{case['elapsed_s']:.1f} s",
    )
    return f"| {' | '.join(cells)} |"


def _worst(verdict: dict[str, Any]) -> str:
    found = {one["quantity"]: one["candidate"]["value"] for one in verdict["observations"]["numerical"]["quantities"]}
    names = ("gradients", "parameters", "updates", "loss", "optimizer", "consensus")
    return ", ".join(f"{name} {found[name]:.2g}" for name in names)


def figures() -> str:
    """Return what stands between the marks."""
    measured, compared, start = _read("measured.json"), _read("gpu_compare.json"), _read("case-90m.start.json")
    (device,) = start["devices"]
    cases = sorted(measured["cases"], key=lambda case: -case["compared_bytes"])
    machine, host, memory = compared["machine"], compared["host"], compared["device"]
    workers = compared["options"]["workers"]
    # Of both sides.
    of_worker = memory["passes"][0][0]["bytes"] / 2 / workers
    return "\n".join(
        (
            (
                f"Machine: {device['name']}, driver {device['driver']}; {len(start['host']['affinity'])} processors; "
                f"Python {machine['python']}, torch {machine['torch']}."
            ),
            "",
            f"| {' | '.join(_COLUMNS)} |",
            f"|---|{'---:|' * (len(_COLUMNS) - 1)}",
            *map(_row, cases),
            "",
            f"- A pinned copy from the device to the host: {measured['copy']['bytes_per_s'] / 1e9:.1f} GB/s.",
            (
                f"- Two processes with {workers} x {of_worker / 1e9:.2f} GB per quantity (`gpu_compare.json`): "
                f"{memory['gb_per_s']:.0f} GB/s of both sides' bytes"
            ),
            (
                f"  through device memory ({memory['times_pinned_copy']:.2f} copies), {host['gb_per_s']:.1f} GB/s "
                f"through shared memory ({host['times_pinned_copy']:.1f} copies)."
            ),
            f"- Worst of the candidate over both workloads: {_worst(_read('verdict.json'))}.",
            "",
        )
    )


def _mean(rows: Sequence[Mapping[str, str]], side: str, column: str) -> float:
    return statistics.fmean(float(row[column]) for row in rows if row["side"] == side)


def _training(found: Mapping[str, Any], gate: Mapping[str, Any], rows: Sequence[Mapping[str, str]]) -> str:
    own = [row for row in rows if row["recipe"] == found["recipe"]]
    seconds = [_mean(own, side, "train_s") for side in ("baseline", "candidate")]
    cells = (
        found["recipe"],
        *(f"{_mean(own, side, 'final_loss'):.4f}" for side in ("baseline", "candidate")),
        f"{found['mean_difference']:+.5f}",
        f"{found['sd_difference_ddof1']:.5f}",
        f"{found['upper']:.5f}",
        gate["finding"],
        *(f"{value:.1f} s" for value in seconds),
        f"{seconds[0] / seconds[1]:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _durations(allocations: Sequence[Mapping[str, str]]) -> str:
    walls = {kind: [float(row["wall_s"]) for row in allocations if row["kind"] == kind] for kind in ("pilot", "run")}
    runs = walls["run"]
    return (
        f"{len(walls['pilot'])} pilots and {len(runs)} runs took {sum(walls['pilot'] + runs) / 60:.1f} minutes, "
        f"a run {min(runs):.0f} to {max(runs):.0f} s."
    )


def trainings() -> str:
    """Return the table of the trainings, and how long they took."""
    verdict = json.loads((TRAININGS / "convergence.verdict.json").read_text(encoding="utf-8"))
    rows = _rows(TRAININGS / "convergence.csv")
    gates = {gate["subject"]: gate for gate in verdict["gates"] if gate["family"] == "convergence"}
    found = verdict["observations"]["convergence"]["recipes"]
    columns = ("recipe", "native", "fast", "mean difference", "SD", "upper bound", "finding", "native", "fast", "ratio")
    lines = (
        f"| {' | '.join(columns)} |",
        f"|---|{'---:|' * (len(columns) - 1)}",
        *(_training(one, gates[one["recipe"]], rows) for one in found),
        "",
        _durations(_rows(TRAININGS / "allocations.csv")),
    )
    return "\n".join((*lines, ""))


def _machine(on: Mapping[str, Any]) -> str:
    load = f"{on['load_1min']:.1f}"
    return f"Machine: {on['cpu']}, {on['processors']} processors; Python {on['python']}; load when it began: {load}."


def _verified(one: Mapping[str, Any]) -> str:
    if "limit_s" in one:
        wall, cpu = (f"{statistics.median(one[name]):.2f} s" for name in ("seconds", "cpu_s"))
        found, limit = f"{wall} ({cpu} of processor time)", f"below {one['limit_s']:g} s"
    else:
        ours, theirs = (statistics.median(one[name]) for name in ("ours_s", "theirs_s"))
        rates = f"{one['bytes'] / 1e6 / ours:,.0f} MB/s, sha256sum {one['bytes'] / 1e6 / theirs:,.0f} MB/s"
        found, limit = f"{theirs / ours:.2f} ({rates})", f"at least {one['least_ratio']:g}"
    what = "verify" if "limit_s" in one else "hash, rate over sha256sum's"
    word = "holds" if one["is_held"] else "does not hold"
    return f"| {what}: {one['name']} | {one['files']:,} | {found} | {limit} | {word} |"


def verification() -> str:
    """Return the table of what verification costs."""
    found = json.loads((VERIFICATION / "bench_verify.json").read_text(encoding="utf-8"))
    lines = (
        _machine(found["machine"]),
        "",
        "| | files | measured | limit | |",
        "|---|---:|---:|---:|---|",
        *map(_verified, found["results"]),
    )
    return "\n".join((*lines, ""))


def _collected(one: Mapping[str, Any]) -> str:
    ours, unit = statistics.median(one["seconds"]), "MB" if one["name"].endswith(", MB") else "s"
    if one["theirs_s"]:
        theirs = statistics.median(one["theirs_s"])
        found, limit = f"{theirs / ours:.2f} ({theirs:.2f} s beside {ours:.2f} s)", f"at least {one['limit']:g}"
    else:
        found, limit = f"{ours:.2f} {unit}", f"below {one['limit']:g} {unit}"
    word = "holds" if one["is_held"] else "does not hold"
    return f"| {one['name'].removesuffix(', MB')} | {found} | {limit} | {word} |"


def collection() -> str:
    """Return the table of what a large campaign costs."""
    found = json.loads((COLLECTION / "bench_collect.json").read_text(encoding="utf-8"))
    lines = (
        _machine(found["machine"]),
        "",
        "| | measured | limit | |",
        "|---|---:|---:|---|",
        *map(_collected, found["results"]),
    )
    return "\n".join((*lines, ""))


def _rates(rows: Sequence[Mapping[str, str]], workload: str, side: str, seconds: str) -> float:
    own = [row for row in rows if (row["workload"], row["side"]) == (workload, side)]
    return statistics.median(int(row["tokens"]) / float(row[seconds]) for row in own)


def _scaled(rows: Sequence[Mapping[str, str]], size: str, side: str) -> str:
    cells = [size.upper(), {"baseline": "native", "candidate": "fast"}[side]]
    for seconds in ("elapsed_s", "train_s"):
        one, two = (_rates(rows, f"{size}-p{processes}", side, seconds) for processes in (1, 2))
        cells += [f"{one:,.0f}", f"{two:,.0f}", f"{two / one / 2:.2f}"]
    return f"| {' | '.join(cells)} |"


def _exchanged(receipt: Mapping[str, Any]) -> str:
    engaged = receipt["sides"][0]["engaged"]
    return (
        f"Gradients travelled by {engaged['exchange']}, {engaged['synchronisation']}: {engaged['exchanges']} exchanges "
        f"in {engaged['updates']} updates of one side (`pair.receipt.json`)."
    )


def _losses(text: str) -> str:
    one, two = ([float(found) for found in _LOSS.findall(part)] for part in text.split("processes:")[1:])
    worst = max(abs(a - b) for a, b in zip(one, two, strict=True))
    if not all(map(math.isfinite, (*one, *two))):
        raise ValueError(f"{PROCESSES / 'losses.txt'}: a loss is no finite number")
    return f"Of {len(one)} losses in nats per byte the most different ones are {worst:.4f} apart (`losses.txt`)."


def processes() -> str:
    """Return what one process and two on two GPUs did."""
    start = json.loads((PROCESSES / "pair.start.json").read_text(encoding="utf-8"))
    receipt = json.loads((PROCESSES / "pair.receipt.json").read_text(encoding="utf-8"))
    rows = _rows(PROCESSES / "pairs.csv")
    devices, versions = start["devices"], receipt["sides"][0]["versions"]
    columns = ("", "", *("1 process", "2 processes", "efficiency") * 2)
    lines = (
        f"Machine: {len(devices)} x {devices[0]['name']}, driver {devices[0]['driver']}; torch {versions['torch']}.",
        "",
        f"| {' | '.join(columns)} |",
        f"|---|---|{'---:|' * 6}",
        *(_scaled(rows, size, side) for size in ("20m", "90m") for side in ("baseline", "candidate")),
        "",
        f"- {_exchanged(receipt)}",
        f"- {_losses((PROCESSES / 'losses.txt').read_text(encoding='utf-8'))}",
    )
    return "\n".join((*lines, ""))


def _backends(sides: Mapping[str, Mapping[str, Any]], shape: str) -> str:
    cells = [shape]
    for one in map(sides.get, ("native", "fast")):
        cells += (
            [f"{one['tokens_per_s']:,}", f"{one['tflop_per_s']:.0f}", f"{one['peak_reserved_gib']:.1f}"]
            if one
            else [""] * 3
        )
    both = {"native", "fast"} <= sides.keys()
    cells.append(f"{sides['fast']['tokens_per_s'] / sides['native']['tokens_per_s']:.2f}" if both else "")
    return f"| {' | '.join(cells)} |"


_FAMILIES = (
    ("matrix products", "nvjet|splitK"),
    ("attention", "sdpa|cudnn::fusion|permute_stack"),
    ("activation", "gelu"),
    ("LayerNorm with residual additions", "layer_norm|reduce_kernel<128"),
    ("cross-entropy", "log_softmax"),
    ("norms and the step", "_advance|NormTwo"),
)


def _parts_of_an_update(table: str) -> str:
    """Return how the kernels of one update divide; a line of the table is ``MS ms COUNTx NAME``."""
    spent = dict.fromkeys([name for name, _ in _FAMILIES], 0.0)
    rest = 0.0
    total, *lines = table.splitlines()
    for line in lines:
        ms, name = float(line.split()[0]), line.partition("x ")[2]
        family = next((family for family, pattern in _FAMILIES if re.search(pattern, name)), None)
        if family:
            spent[family] += ms
        else:
            rest += ms
    parts = ", ".join(f"{family} {ms:.1f} ms" for family, ms in spent.items())
    return f"Kernels of one update of fast at 90m, sync, 16x1024: {total}, of which {parts}, all else {rest:.1f} ms."


def backends() -> str:
    """Return what both backends of the worked example did over the shapes of the bench."""
    lines = (BACKENDS / "bench.jsonl").read_text(encoding="utf-8").splitlines()
    shapes: dict[str, dict[str, Any]] = {}
    for one in map(json.loads, lines):
        shapes.setdefault(one["shape"], {})[one["side"]] = one
    (machine,) = {(one["device"], one["torch"]) for sides in shapes.values() for one in sides.values()}
    columns = ("batch x context of each worker", *("targets/s", "TFLOP/s", "GiB") * 2, "ratio")
    rows = (
        f"Machine: {machine[0]}; torch {machine[1]}. First native's three columns of figures, then fast's.",
        "",
        f"| {' | '.join(columns)} |",
        f"|---|{'---:|' * 7}",
        *(_backends(shapes[shape], shape) for shape in sorted(shapes)),
        "",
        _parts_of_an_update((BACKENDS / "kernels-90m-sync-16x1024-fast.txt").read_text(encoding="utf-8")),
    )
    return "\n".join((*rows, ""))


def turnaround() -> str:
    """Return what was printed of many small allocations."""
    return f"```\n{TURNAROUND.read_text(encoding='utf-8')}```\n"


def page(text: str) -> str:
    """Return the page with the figures written anew."""
    bodies = {
        "": figures(),
        ": trainings": trainings(),
        ": processes": processes(),
        ": backends": backends(),
        ": verification": verification(),
        ": collection": collection(),
        ": turnaround": turnaround(),
    }
    for name, body in bodies.items():
        text = rewritten(text, f"{PROGRAM}{name}", body)
    return text


def main() -> None:
    """Rewrite the page."""
    path = MEASURED / "README.md"
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
