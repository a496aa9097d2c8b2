"""How the time of numerical cases divides into training and comparison, beside a copy of the same bytes to the host.

Reads the receipts of the completed cases of a home. On a machine with a CUDA device it measures there how fast a pinned
copy from the device is, and says how long the comparison took in units of such a copy of the same bytes. Ends with 1
where the largest comparison through device memory took more than MOST_COPIES of them (small ones are bound by the
number of their tensors), or any scratch is above MOST_SCRATCH_BYTES.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

COPY_BYTES = 1 << 30
ROUNDS = 5
MOST_COPIES = 1.5
MOST_SCRATCH_BYTES = 1 << 30


def read_cases(home: Path) -> list[dict[str, Any]]:
    """Return what the receipts of completed cases say of their time and bytes."""
    found = []
    for path in sorted(home.glob("attempts/*/*case/*/*/receipt.json")):
        receipt = json.loads(path.read_text(encoding="utf-8"))
        if receipt["ending"] == "completed" and receipt["case"] is not None:
            found.append(
                {
                    "slot": receipt["slot"],
                    "elapsed_s": receipt["elapsed_s"],
                    "max_rss_bytes": {side["side"]: side["max_rss_bytes"] for side in receipt["sides"]},
                    **receipt["case"],
                }
            )
    return found


def measure_copy() -> dict[str, Any] | None:
    """Return the speed of pinned copies from the device in bytes per second; None without a device."""
    import torch  # noqa: PLC0415 - only where it is asked for

    if not torch.cuda.is_available():
        return None
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    seconds = []
    for _ in range(ROUNDS + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "seconds": seconds[1:],
        "bytes_per_s": COPY_BYTES / min(seconds[1:]),
    }


def main() -> int:
    """Print one line a case; write everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("--out", type=Path, help="where to write what was measured as JSON")
    arguments = parser.parse_args()
    cases, copy = read_cases(arguments.home), measure_copy()
    if copy is not None:
        print(f"pinned copy from {copy['device']}: {copy['bytes_per_s'] / 1e9:.1f} GB/s")
    on_device = [case for case in cases if case["transport"] == "device_memory"]
    largest = max(on_device, key=lambda case: float(case["compared_bytes"]), default=None)
    within = bool(cases)
    for case in cases:
        rate = case["compared_bytes"] / case["compare_s"]
        line = f"{case['slot']}: training {case['train_s']:.2f} s, comparison {case['compare_s']:.2f} s"
        line += f" of {case['compared_bytes'] / 1e9:.2f} GB through {case['transport']}: {rate / 1e9:.1f} GB/s"
        if copy is not None:
            case["copies"] = case["compare_s"] * copy["bytes_per_s"] / case["compared_bytes"]
            line += f", {case['copies']:.2f} copies"
        scratch = case["staging_bytes"] + case["comparer_bytes"]
        print(f"{line}; scratch {scratch / 2**20:.0f} MiB")
        within = within and scratch <= MOST_SCRATCH_BYTES
    if largest is not None and copy is not None:
        within = within and largest["copies"] <= MOST_COPIES
    if arguments.out:
        text = json.dumps({"cases": cases, "copy": copy}, indent=2, sort_keys=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
