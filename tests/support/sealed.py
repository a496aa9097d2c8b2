"""A closed campaign home of a few files, written field by field: for what the verifier makes of its bytes.

Nothing of the driver takes part, so that the two are independent. No attempt was ever made in it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.home import tree_digest

Json = dict[str, Any]
ZEROS = "0" * 64
AT = 1_800_000_000.0


def sha256(data: bytes) -> str:
    """Return the digest of some bytes."""
    return hashlib.sha256(data).hexdigest()


def dump(value: Any) -> bytes:
    """Return the bytes of a document."""
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def slot(name: str, phase: str, kind: str, order: Iterable[str]) -> Json:
    """Return a slot of the protocol."""
    side, _, workload, *_ = name.split("/")
    repeat = 1 if name.endswith("/r1") else 0
    pair = 1 if kind == "pair" else 0
    return {
        "slot": name,
        "side": side,
        "phase": phase,
        "kind": kind,
        "workload": workload,
        "repeat": repeat,
        "pair": pair,
        "order": list(order),
    }


SLOTS = [
    slot("baseline/pilot/w", "pilot", "pilot", ["baseline"]),
    slot("baseline/solo/w/r1", "baseline", "solo", ["baseline"]),
    slot("candidate/pilot/w", "pilot", "pilot", ["candidate"]),
    slot("candidate/pair/w/r1", "throughput", "pair", ["baseline", "candidate"]),
]


@dataclass(slots=True)
class SealedHome:
    """A home under construction; `acts` become its ledger.

    Attributes:
        root: Where it is.
        candidate: The candidate's id; empty before it was frozen.
        acts: Name and data of each act.
    """

    root: Path
    candidate: str = ""
    acts: list[tuple[str, Json]] = field(default_factory=list)

    def write(self, path: str, data: bytes) -> None:
        """Write a file, and the folders above it."""
        whole = self.root / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_bytes(data)

    def read(self, path: str) -> Json:
        """Read a document."""
        value: Json = json.loads((self.root / path).read_bytes())
        return value

    def edit(self, path: str, change: Callable[[Json], object]) -> None:
        """Change a document in place."""
        value = self.read(path)
        change(value)
        self.write(path, dump(value))

    # --- freezing -----------------------------------------------------------------------------------------------------

    def write_side(self, folder: str, text: str) -> Json:
        """Write a frozen side; return what its manifest says of it."""
        self.write(f"{folder}/tree/adapter.py", text.encode())
        self.write(f"{folder}/tree/package/run.sh", b"#!/bin/sh\n")
        (self.root / f"{folder}/tree/package/run.sh").chmod(0o755)
        (self.root / f"{folder}/tree/empty").mkdir()
        self.write(f"{folder}/changes.patch", b"")
        self.list_side(folder)
        return {
            "snapshot_sha256": self.digest(f"{folder}/tree"),
            "files_sha256": sha256((self.root / folder / "files.json").read_bytes()),
            "changes_sha256": sha256(b""),
            "adapter": "adapter:build",
            "python": "/usr/bin/python3",
            "python_path": ["."],
            "environment": {},
            "pass_environment": [],
            "launch": [],
            "container": None,
            "lockfile": None,
            "git": None,
            "distributions": None,
        }

    def list_side(self, folder: str) -> None:
        """Write the list of a side's tree as it is now."""
        tree = self.root / folder / "tree"
        found = sorted(tree.rglob("*"), key=lambda path: path.relative_to(tree).as_posix().encode())
        entries = [self._entry(tree, path) for path in found]
        self.write(f"{folder}/files.json", dump({"format": "files/1", "entries": entries}))

    def _entry(self, tree: Path, path: Path) -> Json:
        is_folder = path.is_dir()
        data = b"" if is_folder else path.read_bytes()
        return {
            "path": path.relative_to(tree).as_posix(),
            "type": "d" if is_folder else "f",
            "mode": "755" if is_folder or path.stat().st_mode & 0o100 else "644",
            "bytes": len(data),
            "sha256": "" if is_folder else sha256(data),
            "origin": "plain",
        }

    def digest(self, folder: str) -> str:
        """Return the tree digest of a folder."""
        return tree_digest(self.root / folder)

    def freeze(self, *, baseline_first: bool = False) -> None:
        """Freeze rules, programs and baseline."""
        self.write("frozen/campaign.toml", b'name = "small"\n')
        for program in ("acceptance", "harness", "verifier"):
            self.write(f"frozen/{program}/__init__.py", f'"""The {program}."""\n'.encode())
            self.write(f"frozen/{program}/inner/part.py", b"x = 1\n")
        protocol = {
            "format": "protocol/1",
            "campaign": "small",
            "baseline_first": baseline_first,
            "retries": {"max_attempts": 3, "again": ["node_fail"], "again_once": []},
            "families": ["throughput"],
            "numerical": None,
            "convergence": None,
            "headers": {},
            "slots": SLOTS,
        }
        self.write("protocol.json", dump(protocol))
        digests = {f"{name}_sha256": self.digest(f"frozen/{name}") for name in ("acceptance", "harness", "verifier")}
        digests["protocol_sha256"] = sha256(dump(protocol))
        manifest = {
            "format": "manifest/1",
            "freeze_id": "ab" * 16,
            "campaign": "small",
            **digests,
            "config_sha256": sha256(b'name = "small"\n'),
            "baseline": self.write_side("frozen/baseline", "x = 1\n"),
            "data": {},
        }
        self.write("manifest.json", dump(manifest))
        said = {"manifest_sha256": sha256(dump(manifest)), "snapshot_sha256": self.digest("frozen/baseline/tree")}
        self.acts.append(("froze_baseline", {**digests, **said}))

    def freeze_candidate(self) -> None:
        """Freeze a candidate."""
        side = self.write_side("frozen/candidates/new", "x = 2\n")
        self.candidate = f"c{side['snapshot_sha256'][:12]}"
        folder = f"frozen/candidates/{self.candidate}"
        shutil.move(self.root / "frozen/candidates/new", self.root / folder)
        manifest = {
            "format": "candidate/1",
            "id": self.candidate,
            "manifest_sha256": sha256((self.root / "manifest.json").read_bytes()),
            "candidate": side,
        }
        self.write(f"{folder}/manifest.json", dump(manifest))
        said = {"manifest_sha256": sha256(dump(manifest)), "snapshot_sha256": side["snapshot_sha256"]}
        self.acts.append(("froze_candidate", {"candidate": self.candidate, **said}))

    # --- ledger and closing -------------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[bytes]:
        """The lines of the ledger that `acts` make."""
        found: list[bytes] = []
        for number, (act, data) in enumerate(self.acts, start=1):
            previous = sha256(found[-1]) if found else ZEROS
            entry = {"seq": number, "previous": previous, "at": AT + number, "act": act, "data": data}
            found.append(json.dumps(entry, sort_keys=True).encode())
        return found

    def write_ledger(self) -> None:
        """Write the ledger that `acts` make, chained anew."""
        self.write("ledger.jsonl", b"".join(line + b"\n" for line in self.lines))

    def write_seal(self) -> str:
        """Write the list of every file; return its digest."""
        left_out = ("ledger.", "seal.json", "campaign.sqlite", "transport")
        files = [path for path in self.root.rglob("*") if path.is_file()]
        paths = sorted(path.relative_to(self.root).as_posix().encode() for path in files)
        listed = [self._listed(path.decode()) for path in paths if not path.decode().startswith(left_out)]
        manifest_sha256 = sha256((self.root / "manifest.json").read_bytes())
        fields = {"format": "seal/1", "campaign": "small", "manifest_sha256": manifest_sha256, "data": {}}
        data = dump({**fields, "files": listed})
        self.write("seal.json", data)
        return sha256(data)

    def _listed(self, path: str) -> Json:
        data = (self.root / path).read_bytes()
        return {"path": path, "type": "f", "bytes": len(data), "sha256": sha256(data)}

    def close(self) -> str:
        """Close the campaign; return its head line."""
        seal_sha256 = self.write_seal()
        num_files = len(self.read("seal.json")["files"])
        numbers = {
            "slots": 2 + 2 * bool(self.candidate),
            "attempts": 0,
            "receipts": 0,
            "candidates": int(bool(self.candidate)),
        }
        counts = {**numbers, "allocations": 0, "files": num_files}
        manifest_sha256 = sha256((self.root / "manifest.json").read_bytes())
        self.acts.append(("closed", {"seal_sha256": seal_sha256, "manifest_sha256": manifest_sha256, "counts": counts}))
        self.write_ledger()
        said = " ".join(f"{name}={number}" for name, number in numbers.items())
        return f"campaign-head/1 small {sha256(self.lines[-1])} {said} entries={len(self.acts)}"


def closed_home(root: Path) -> tuple[SealedHome, str]:
    """Write a closed home; return it and its head line."""
    home = SealedHome(root)
    home.freeze()
    home.freeze_candidate()
    return home, home.close()
