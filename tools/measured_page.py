"""Write the figures of docs/measured/README.md from the raw output that stands beside it.

    python -m tools.measured_page

Everything between the two marks of the page is written anew; a test holds the page to what this would write.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.marked import rewritten

MEASURED = Path(__file__).resolve().parent.parent / "docs" / "measured"
RAW = MEASURED / "h200-2026-11-29"
PROGRAM = "tools/measured_page.py"
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


def page(text: str) -> str:
    """Return the page with the figures written anew."""
    return rewritten(text, PROGRAM, figures())


def main() -> None:
    """Rewrite the page."""
    path = MEASURED / "README.md"
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
