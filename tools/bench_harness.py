"""Harness overhead: the share of an allocation that is not inside a side's process, under the default protocol.

Freezes and runs a one-workload campaign of examples/tinylm with the protocol's own numbers (20 warm-up updates, five
windows of one second, three repeats, one allocation each) and adds up what the harness wrote into ended.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 0.03
CONFIG = """
name = "bench-harness"
baseline_first = false
[baseline]
source = "{root}/examples/tinylm"
adapter = "adapter:native"
python = "{python}"
environment = {{ TINYLM_DATA = "${{data.plays}}" }}
[candidate]
source = "{root}/examples/tinylm"
adapter = "adapter:fast"
python = "{python}"
environment = {{ TINYLM_DATA = "${{data.plays}}" }}
[data.plays]
path = "{root}/build/corpus"
[throughput]
solo = false
controls = false
[[workload]]
name = "tiny-packed4"
production = true
config = {{ size = "tiny", mode = "packed", workers = 4, batch = 2, context = 64 }}
"""


def run_campaign(home: Path, config: Path) -> None:
    """Freeze both sides and run every slot on this machine."""
    program = str(Path(sys.executable).with_name("campaign"))
    for arguments in (
        ["freeze", str(config), "--home", str(home)],
        ["freeze", "--candidate", "--config", str(config), "--home", str(home)],
        ["submit", "--home", str(home), "--cluster", "local", "--wait", "--yes"],
    ):
        subprocess.run([program, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> int:
    """Print wall time, time in sides, overhead and its share for each allocation of pairs, and for all together."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home, config = Path(temporary) / "home", Path(temporary) / "campaign.toml"
        config.write_text(CONFIG.format(root=ROOT, python=sys.executable))
        run_campaign(home, config)
        wall_s = overhead_s = 0.0
        for ended in sorted(home.glob("allocations/*/ended.json")):
            plan = json.loads(ended.with_name("allocation.json").read_bytes())
            if any(attempt["kind"] != "pair" for attempt in plan["attempts"]):
                continue
            record = json.loads(ended.read_bytes())
            wall_s += record["wall_s"]
            overhead_s += record["overhead_s"]
            print(f"{record['allocation']}: {record['wall_s']:.2f} s, of which overhead {record['overhead_s']:.3f} s")
    share = overhead_s / wall_s
    print(f"harness overhead   {share:.2%} of {wall_s:.1f} s in allocations (limit {LIMIT:.0%})")
    return int(not share < LIMIT)


if __name__ == "__main__":
    sys.exit(main())
