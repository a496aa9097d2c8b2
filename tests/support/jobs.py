"""A frozen home whose harness measures nothing, for tests of submission: real ledger, real processes, instant results.

The stand-in harness does what the real one does to the outside: it claims an allocation exclusively, writes start.json,
receipt.json and ended.json, and heeds SIGTERM. What it shall do otherwise stands in ``fake.json`` of the home.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import documents, files
from campaign.paths import HomePaths
from campaign.record.ledger import Ledger, read_entries
from campaign.snapshot.digest import digest_folder
from tests.support.home import CANDIDATE, SMALL, SNAPSHOTS, Case, make_protocol, make_side

HARNESS = '''"""A stand-in for the harness: see tests/support/jobs.py."""
import hashlib, json, os, signal, socket, sys, time
from pathlib import Path


def write(path, value):
    temporary = path.with_name("." + path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=2, sort_keys=True) + "\\n")
    temporary.replace(path)


def identity():
    env = os.environ
    slurm = "SLURM_JOB_ID" in env
    return {
        "scheduler": "slurm" if slurm else "local",
        "cluster": env.get("SLURM_CLUSTER_NAME", ""),
        "job_id": env.get("SLURM_JOB_ID", str(os.getpid())),
        "array_job_id": env.get("SLURM_ARRAY_JOB_ID", ""),
        "array_task_id": env.get("SLURM_ARRAY_TASK_ID", ""),
        "restart_count": int(env.get("SLURM_RESTART_COUNT", "0")),
    }


stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append("cancelled"))
signal.signal(signal.SIGUSR2, lambda number, frame: stopped.append("time_limit"))


def run(plan_path, wish):
    plan = json.loads(plan_path.read_text())
    home = Path(plan["home"])
    folder = plan_path.parent
    stat = Path("/proc/self/stat").read_text()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    node = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    started = {"format": "started/1", "allocation": plan["allocation"], "job": identity(), "host": node,
               "boot_id": boot, "pid": os.getpid(), "process_start": int(stat[stat.rindex(")") + 1:].split()[19]),
               "at": time.time()}
    mine = folder / f".started.{os.getpid()}"
    mine.write_text(json.dumps(started))
    try:
        os.link(mine, folder / "started.json")
    except FileExistsError:
        (folder / f"double-{os.getpid()}").write_text("")
        return
    finally:
        mine.unlink()
    write(folder / "environment.json", dict(os.environ))
    (folder / "argv.json").write_text(json.dumps({"argv": sys.argv, "prefix": sys.pycache_prefix, "path": sys.path}))
    receipts = {}
    for attempt in plan["attempts"]:
        if stopped:
            break
        one(home, plan, attempt, started, node, boot, wish)
        receipt = folder_of(home, attempt) / "receipt.json"
        receipts[key_of(attempt)] = hashlib.sha256(receipt.read_bytes()).hexdigest()
    write(folder / "ended.json", {"format": "ended/1", "allocation": plan["allocation"],
          "reason": stopped[0] if stopped else "done", "at": time.time(), "wall_s": 0.1, "sides_s": 0.1,
          "overhead_s": 0.0, "receipts": receipts})


def record_inputs(home, folder, workload, protocol):
    (home / "inputs").mkdir(exist_ok=True)
    state = b"the parameters of " + workload.encode()
    digest = hashlib.sha256(state).hexdigest()
    (config,) = [one["config_sha256"] for one in protocol["workloads"] if one["name"] == workload]
    listing = json.dumps({"format": "inputs/1", "workload": workload, "config_sha256": config, "moments": "fresh",
        "step": 0, "state": [{"quantity": "parameters", "worker": 0, "sha256": digest, "bytes": len(state)}],
        "batches": []}).encode()
    (home / "inputs" / (digest + ".safetensors")).write_bytes(state)
    (home / "inputs" / (hashlib.sha256(listing).hexdigest() + ".json")).write_bytes(listing)
    (folder / "inputs.json").write_bytes(listing)


def key_of(attempt):
    segment = "/" + str(attempt["segment"]) if attempt["segment"] else ""
    return attempt["slot"] + "/" + str(attempt["attempt"]) + segment


def folder_of(home, attempt):
    folder = home / "attempts" / attempt["slot"] / str(attempt["attempt"])
    return folder / "segments" / str(attempt["segment"]) if attempt["segment"] else folder


def save(folder, plan, attempt, recipe, update):
    """Save a state after so many updates."""
    target = folder / "checkpoints" / str(update)
    (target / "files").mkdir(parents=True)
    data = ("state after " + str(update)).encode()
    (target / "files" / "model.bin").write_bytes(data)
    document = {"format": "checkpoint/1", "manifest_sha256": plan["manifest_sha256"], "slot": attempt["slot"],
        "attempt": attempt["attempt"], "segment": attempt["segment"], "allocation": plan["allocation"],
        "side": attempt["order"][0], "snapshot_sha256": plan["sides"][attempt["order"][0]]["snapshot_sha256"],
        "recipe": recipe["name"], "config_sha256": recipe["config_sha256"],
        "seed": int(attempt["slot"].rpartition("/s")[2]), "previous": attempt["resume"], "update": update,
        "tokens": update, "train_s": 0.1, "elapsed_s": 0.1, "curve": [], "progress": {"updates": update}, "path": "",
        "files": [{"name": "model.bin", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}],
        "at": time.time()}
    write(target / "checkpoint.json", document)
    sha256 = hashlib.sha256((target / "checkpoint.json").read_bytes()).hexdigest()
    return {"update": update, "sha256": sha256, "bytes": len(data)}


def one(home, plan, attempt, started, node, boot, wish):
    folder = folder_of(home, attempt)
    folder.mkdir(parents=True)
    key = key_of(attempt)
    start = {"format": "start/1", "slot": attempt["slot"], "attempt": attempt["attempt"],
             "segment": attempt["segment"], "allocation": plan["allocation"], "kind": attempt["kind"],
             "manifest_sha256": plan["manifest_sha256"],
             "protocol_sha256": plan["protocol_sha256"], "harness_sha256": plan["harness_sha256"],
             "snapshots": {name: side["snapshot_sha256"] for name, side in plan["sides"].items()},
             "job": started["job"],
             "host": {"node": node, "boot_id": boot, "kernel": "k", "machine": "m", "cpu": "c",
                      "memory_bytes": 1, "affinity": [0]},
             "device": "cpu:fake", "devices": [], "threads": 1, "at": time.time()}
    write(folder / "start.json", start)
    (folder / "baseline.log").write_text("measuring " + key + "\\n")
    recipe, first, saved = None, 0, []
    if attempt["kind"] == "run":
        rules = json.loads((home / "protocol.json").read_text())["convergence"]
        (recipe,) = [each for each in rules["recipes"] if each["name"] == attempt["workload"]]
        first = attempt["resume"]["update"] if attempt["resume"] else 0
        if first + 10 < recipe["updates"]:
            saved.append(save(folder, plan, attempt, recipe, first + 10))
    while Path(wish["hold"]).exists() and not stopped:
        time.sleep(0.02)
    if wish["die"].get(key):
        os.kill(os.getpid(), signal.SIGKILL)
    ending = stopped[0] if stopped else wish["endings"].get(key, "completed")
    rate = wish["rates"].get(attempt["slot"].split("/")[0], 4.0)
    calibration = None
    if attempt["kind"] == "pilot" and ending == "completed":
        calibration = {"updates_per_s": rate, "tokens_per_update": 8.0, "startup_s": 0.1, "updates": 4}
        protocol = json.loads((home / "protocol.json").read_text())
        if attempt["workload"] in [each["name"] for each in (protocol["convergence"] or {"recipes": []})["recipes"]]:
            calibration |= {"evaluate_s": 1.0, "checkpoint_bytes": 14, "save_s": 0.5}
        elif protocol["numerical"] and attempt["order"] == ["baseline"]:
            record_inputs(home, folder, attempt["workload"], protocol)
    run_receipt = None
    if recipe:
        if ending == "completed" and first < recipe["updates"]:
            saved.append(save(folder, plan, attempt, recipe, recipe["updates"]))
        run_receipt = {"recipe": recipe["name"], "seed": int(attempt["slot"].rpartition("/s")[2]),
            "resumed": attempt["resume"], "first_update": first,
            "update": recipe["updates"] if ending == "completed" else min(first + 12, recipe["updates"]),
            "checkpoints": saved, "train_s": 0.1, "evaluate_s": 0.1, "save_s": 0.1, "load_s": 0.0}
    listed = []
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            continue
        data = path.read_bytes()
        listed.append({"name": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "rows": None})
    write(folder / "receipt.json", {
        "format": "receipt/1", "start_sha256": hashlib.sha256((folder / "start.json").read_bytes()).hexdigest(),
        "slot": attempt["slot"], "attempt": attempt["attempt"], "allocation": plan["allocation"],
        "segment": attempt["segment"], "run": run_receipt, "kind": attempt["kind"], "ending": ending,
        "reason": "" if ending == "completed" else "as the test wished",
        "elapsed_s": 0.1, "at": time.time(), "sides": [], "calibration": calibration, "files": listed})


assert sys.argv[1] == "allocation"
home = json.loads(Path(sys.argv[2]).read_text())["home"]
wish = json.loads((Path(home) / "fake.json").read_text())
for name in sys.argv[2:]:
    if not stopped:
        run(Path(name), wish)
while Path(home, "linger").exists():
    time.sleep(0.02)
'''

RESOURCES: dict[str, Any] = {
    "submission": {"workloads_per_allocation": 1},
    "slurm": {
        "partition": None, "account": None, "qos": None, "constraint": None, "gres": None, "reservation": None,
        "nodelist": None, "exclude": None, "exclusive": False, "minutes": 5, "cpus": 1, "mem_gb": None,
        "max_running": 256, "setup": [],
    },
    "local": {"minutes": 10},
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class JobHome:
    """A home that can really be submitted."""

    paths: HomePaths
    protocol: documents.Protocol

    @property
    def hold(self) -> Path:
        """While this file exists, attempts that have begun wait."""
        return self.paths.root / "hold"

    @property
    def linger(self) -> Path:
        """While this file exists, a job that is done stays."""
        return self.paths.root / "linger"

    def wish(
        self,
        *,
        endings: dict[str, str] | None = None,
        rates: dict[str, float] | None = None,
        die: dict[str, bool] | None = None,
    ) -> None:
        """Say how attempts shall end, how fast the sides are, and where the job is killed.

        Attempts are named ``slot/number``, those at a run ``slot/number/segment``.
        """
        value = {"endings": endings or {}, "rates": rates or {}, "die": die or {}, "hold": str(self.hold)}
        files.replace(self.paths.root / "fake.json", files.dump_json(value))

    def acts(self) -> list[str]:
        """Return the acts of the ledger, in order."""
        return [entry.act for entry in read_entries(self.paths)]

    def doubles(self) -> list[Path]:
        """Return the traces of jobs that found their allocation taken."""
        return sorted(self.paths.allocations.glob("*/double-*"))


def make_job_home(
    root: Path,
    *,
    cases: Sequence[Case] = SMALL[:2],
    repeats: int = 2,
    candidate: bool = True,
    resources: dict[str, Any] | None = None,
    numerical: documents.NumericalRules | None = None,
    convergence: documents.ConvergenceRules | None = None,
) -> JobHome:
    """Create a home with the stand-in harness, a frozen baseline and, by default, a candidate."""
    paths = HomePaths(root)
    paths.harness.mkdir(parents=True)
    paths.launcher.write_text(HARNESS)
    protocol = make_protocol(cases, repeats=repeats, numerical=numerical, convergence=convergence)
    paths.protocol.write_bytes(protocol.to_bytes())
    manifest = documents.Manifest(
        campaign=protocol.campaign,
        protocol_sha256=files.sha256_file(paths.protocol),
        acceptance_sha256="a" * 64,
        harness_sha256=digest_folder(paths.harness),
        verifier_sha256="e" * 64,
        config_sha256="e" * 64,
        harness_python=sys.executable,
        baseline=make_side(SNAPSHOTS["baseline"]),
        data={},
        resources=resources or RESOURCES,
        departures=(),
        left_out=(),
        driver={},
        machine={},
    )
    paths.manifest.write_bytes(manifest.to_bytes())
    home = JobHome(paths=paths, protocol=protocol)
    home.wish()
    with Ledger.open(paths, time.time) as ledger:
        ledger.append("froze_baseline", {"manifest_sha256": files.sha256_file(paths.manifest)})
        if candidate:
            digest = _freeze_candidate(paths)
            ledger.append("froze_candidate", {"candidate": CANDIDATE, "manifest_sha256": digest})
    return home


def _freeze_candidate(paths: HomePaths) -> str:
    """Freeze a candidate and return the digest of its manifest."""
    manifest = documents.CandidateManifest(
        id=CANDIDATE,
        manifest_sha256=files.sha256_file(paths.manifest),
        config_sha256="e" * 64,
        candidate=make_side(SNAPSHOTS["candidate"]),
        left_out=(),
        driver={},
        machine={},
    )
    folder = paths.candidate(CANDIDATE)
    folder.root.mkdir(parents=True)
    folder.manifest.write_bytes(manifest.to_bytes())
    return files.sha256_file(folder.manifest)


def loads(text: str) -> Any:
    """Parse the one JSON value that a command printed."""
    return json.loads(text)
