"""Running single checks of the verifier over a home, and forging one as whoever can write everything would."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaign import files
from campaign.verifier import names
from campaign.verifier.facts import Candidate, Entry, Facts, Options
from campaign.verifier.findings import Check, Checks, Finding, State

Function = Callable[[Facts, Check], None]


def facts_of(root: Path, withheld: dict[str, tuple[int, str]] | None = None, **options: Any) -> Facts:
    """Return what the checks of manifests and ledger would have filled in, without checking any of it."""
    facts = Facts.open(root, Options(**options), withheld)
    facts.manifest = json.loads((root / names.MANIFEST).read_bytes())
    facts.manifest_sha256 = facts.digests.sha256(names.MANIFEST)
    facts.protocol = json.loads((root / names.PROTOCOL).read_bytes())
    facts.protocol_sha256 = facts.digests.sha256(names.PROTOCOL)
    entries = []
    for line in (root / names.LEDGER).read_bytes().splitlines():
        value = json.loads(line)
        fields = {name: value[name] for name in ("seq", "at", "act", "data")}
        entries.append(Entry(sha256=hashlib.sha256(line).hexdigest(), **fields))
    facts.entries = entries
    for entry in entries:
        if entry.act == "froze_candidate":
            candidate = entry.data["candidate"]
            manifest = json.loads((root / names.candidate_manifest(candidate)).read_bytes())
            facts.candidates[candidate] = Candidate(id=candidate, seq=entry.seq, manifest=manifest)
    return facts


def make_checks(root: Path, *functions: Function, withheld: dict[str, tuple[int, str]] | None = None) -> Checks:
    """Make some checks in order, each under the name of its module."""
    checks = Checks()
    facts = facts_of(root, withheld)
    with facts.digests:
        for function in functions:
            with checks.begin(function.__module__.rpartition(".")[2], "") as check:
                function(facts, check)
    return checks


def tampered(checks: Checks) -> list[Finding]:
    """Return what was found to be not as it was."""
    return [finding for finding in checks.findings if finding.state is State.TAMPERED]


# --- whoever can write everything -------------------------------------------------------------------------------------


def edit_ledger(root: Path, edit: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the acts of a ledger, and number and chain its lines anew."""
    path = root / names.LEDGER
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    edit(entries)
    previous, lines = "0" * 64, []
    for seq, entry in enumerate(entries, start=1):
        entry |= {"seq": seq, "previous": previous}
        lines.append(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode())
        previous = hashlib.sha256(lines[-1]).hexdigest()
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def edit_document(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON document in place."""
    value = json.loads(path.read_bytes())
    edit(value)
    path.write_bytes(files.dump_json(value))


def reseal(root: Path) -> None:
    """Seal everything again as it is now: receipts, ended.json, plans, and the ledger's names of them all."""
    receipts = {}
    for path in sorted((root / names.ATTEMPTS).rglob(names.RECEIPT)):
        edit_document(path, lambda value, folder=path.parent: _seal(value, folder))  # type: ignore[misc]
        parts = [part for part in path.parent.relative_to(root / names.ATTEMPTS).parts if part != names.SEGMENTS]
        receipts["/".join(parts)] = files.sha256_file(path)
    for path in (root / names.ALLOCATIONS).rglob("ended.json"):
        edit_document(path, lambda value: _rename(value["receipts"], receipts))

    def edit(entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            _rename(entry["data"].get("receipts", {}), receipts)
            for one in entry["data"]["allocations"] if entry["act"] == "intent" else ():
                one["plan_sha256"] = files.sha256_file(root / names.plan(one["allocation"]))

    edit_ledger(root, edit)


def _rename(known: dict[str, str], receipts: dict[str, str]) -> None:
    known.update({name: receipts[name] for name in known if name in receipts})


def _seal(receipt: dict[str, Any], folder: Path) -> None:
    receipt["start_sha256"] = files.sha256_file(folder / names.START)
    for one in receipt["files"]:
        data = (folder / one["name"]).read_bytes()
        one |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        one["rows"] = None if one["rows"] is None else data.count(b"\n") - 1
