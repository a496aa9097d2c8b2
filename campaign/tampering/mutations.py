"""The ways in which a campaign is tampered with: at least one for every kind of thing that it rests on.

Most put right whatever the intruder would think of: the digests beside the change, the times of the file.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from campaign import files
from campaign.paths import AllocationPaths, AttemptPaths, CheckpointPaths
from campaign.tampering.copies import Copy, NothingToTryError


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One way to tamper with a campaign."""

    group: str
    what: str
    """What is done, in a few words."""
    apply: Callable[[Copy], None]


_MUTATIONS: list[Mutation] = []


def _mutation(group: str, what: str) -> Callable[[Callable[[Copy], None]], Callable[[Copy], None]]:
    """Register a function as a mutation."""

    def register(function: Callable[[Copy], None]) -> Callable[[Copy], None]:
        _MUTATIONS.append(Mutation(group=group, what=what, apply=function))
        return function

    return register


# --- where things are -------------------------------------------------------------------------------------------------


def _first(found: Iterator[Path]) -> Path:
    path = next(iter(sorted(found)), None)
    if path is None:
        raise NothingToTryError
    return path


def _largest(found: Iterator[Path]) -> Path:
    path = max((one for one in found if one.is_file()), key=lambda one: (one.stat().st_size, str(one)), default=None)
    if path is None:
        raise NothingToTryError
    return path


def _candidate(copy: Copy) -> str:
    return _first(copy.paths.candidates.glob("*")).name


def _sealed(copy: Copy, table: str, *, number: int = 0) -> AttemptPaths:
    """Return the n-th sealed attempt, or segment, that left a table."""
    found = [path.parent for path in sorted(copy.paths.attempts.rglob(table))]
    own = [AttemptPaths(folder) for folder in found if AttemptPaths(folder).receipt.is_file()]
    if len(own) <= number:
        raise NothingToTryError
    return own[number]


def _pair(copy: Copy, number: int = 0) -> AttemptPaths:
    """Return the n-th measured pair."""
    return _sealed(copy, "pairs.csv", number=number)


def _checkpoint(copy: Copy) -> CheckpointPaths:
    """Return the newest checkpoint of a run."""
    found = [path.parent for path in copy.paths.attempts.rglob("checkpoint.json")]
    newest = max(found, key=lambda one: (str(one.parent), int(one.name)), default=None)
    if newest is None:
        raise NothingToTryError
    return CheckpointPaths(newest)


def _source(tree: Path) -> Path:
    return _largest(path for path in tree.rglob("*.py") if not path.is_symlink())


def _edit_digits(copy: Copy, path: Path) -> None:
    """Change the last digit of a table to another one: the size stays."""
    data = bytearray(copy.read(path))
    places = [match.start() for match in re.finditer(rb"[0-9](?=[\n,])", bytes(data))]
    if not places:
        raise NothingToTryError
    place = places[-1]
    data[place] = ord("1") if data[place] != ord("1") else ord("2")
    copy.write(path, bytes(data))


def _places(entries: list[Any], act: str) -> list[int]:
    """Return where acts of a kind stand in the ledger; there is one at least."""
    found = [index for index, entry in enumerate(entries) if entry["act"] == act]
    if not found:
        raise NothingToTryError
    return found


def _drop_last(lines: list[bytes]) -> None:
    del lines[-1]


def _keep_first(lines: list[bytes]) -> None:
    del lines[1:]


# --- frozen -----------------------------------------------------------------------------------------------------------


@_mutation("frozen", "one bit of the acceptance program")
def _(copy: Copy) -> None:
    copy.flip(_source(copy.paths.acceptance))


@_mutation("frozen", "a comparison of the acceptance program, same size, times put back")
def _(copy: Copy) -> None:
    path = next((one for one in sorted(copy.paths.acceptance.rglob("*.py")) if b" >= " in one.read_bytes()), None)
    if path is None:
        raise NothingToTryError
    copy.substitute(path, b" >= ", b" <= ")


@_mutation("frozen", "a module added to the acceptance program")
def _(copy: Copy) -> None:
    copy.add(copy.paths.acceptance / "sitecustomize.py")


@_mutation("frozen", "an unchecked .pyc planted beside the acceptance program")
def _(copy: Copy) -> None:
    copy.add(copy.paths.acceptance / "__pycache__" / "verdict.cpython-311.pyc")


@_mutation("frozen", "an unchecked .pyc planted beside the verifier")
def _(copy: Copy) -> None:
    copy.add(copy.paths.verifier / "__pycache__" / "verify.cpython-311.pyc")


@_mutation("frozen", "one bit of the verifier that travels with the campaign")
def _(copy: Copy) -> None:
    copy.flip(_source(copy.paths.verifier))


@_mutation("frozen", "one bit of the harness")
def _(copy: Copy) -> None:
    copy.flip(_source(copy.paths.harness))


@_mutation("frozen", "one bit of the baseline's sources")
def _(copy: Copy) -> None:
    copy.flip(_largest(copy.paths.baseline.tree.rglob("*")))


@_mutation("frozen", "a file added to the baseline's sources")
def _(copy: Copy) -> None:
    copy.add(copy.paths.baseline.tree / "planted.py")


@_mutation("frozen", "a file removed from the baseline's sources")
def _(copy: Copy) -> None:
    copy.remove(_largest(copy.paths.baseline.tree.rglob("*")))


@_mutation("frozen", "a file of the baseline made executable, or no longer")
def _(copy: Copy) -> None:
    copy.change_mode(_largest(copy.paths.baseline.tree.rglob("*")))


@_mutation("frozen", "the candidate's sources, same size, times put back")
def _(copy: Copy) -> None:
    path = _largest(copy.paths.candidate(_candidate(copy)).tree.rglob("*"))
    data = copy.read(path)
    copy.write(path, bytes([data[0] ^ 1]) + data[1:])


@_mutation("frozen", "a file of the candidate replaced by a link to the same bytes")
def _(copy: Copy) -> None:
    copy.replace_by_link(_largest(copy.paths.candidate(_candidate(copy)).tree.rglob("*")))


@_mutation("frozen", "the two sides' sources exchanged")
def _(copy: Copy) -> None:
    candidate = copy.paths.candidate(_candidate(copy))
    if copy.read(candidate.listing) == copy.read(copy.paths.baseline.listing):
        copy.exchange(candidate.tree, copy.paths.harness)  # the sides share one tree: exchange it with another one
        return
    copy.exchange(candidate.tree, copy.paths.baseline.tree)


@_mutation("frozen", "a name's twin in the other Unicode form")
def _(copy: Copy) -> None:
    name = "caf\u00e9.py"
    copy.add(copy.paths.baseline.tree / unicodedata.normalize("NFC", name))
    copy.add(copy.paths.baseline.tree / unicodedata.normalize("NFD", name))


@_mutation("frozen", "the candidate's list of files and a file, in agreement")
def _(copy: Copy) -> None:
    side = copy.paths.candidate(_candidate(copy))
    path = _largest(side.tree.rglob("*"))
    before = files.sha256_file(path)
    copy.flip(path)
    copy.substitute(side.listing, before.encode("ascii"), files.sha256_file(path).encode("ascii"))


@_mutation("frozen", "the changes that a reader is shown")
def _(copy: Copy) -> None:
    copy.write(copy.paths.candidate(_candidate(copy)).patch, b"# nothing was changed\n")


@_mutation("frozen", "the configuration")
def _(copy: Copy) -> None:
    copy.write(copy.paths.config, copy.read(copy.paths.config) + b"# nothing else\n")


@_mutation("frozen", "a departure struck out of the manifest")
def _(copy: Copy) -> None:
    copy.edit_json(copy.paths.manifest, lambda value: value.update(departures=[], left_out=[]))


@_mutation("frozen", "the candidate's adapter in its manifest")
def _(copy: Copy) -> None:
    path = copy.paths.candidate(_candidate(copy)).manifest
    copy.edit_json(path, lambda value: value["candidate"].update(adapter="adapter:other"))


# --- the protocol -----------------------------------------------------------------------------------------------------


def lower_thresholds(protocol: Any) -> None:
    """Set the first threshold that there is to one that is easier to meet."""
    if protocol["throughput"] is not None and "throughput" in protocol["families"]:
        protocol["throughput"]["production_threshold"] = "0.5"
        protocol["throughput"]["category_threshold"] = "0.6"
    elif protocol["numerical"] is not None:
        protocol["numerical"]["updates_threshold"] = "0.9"
    elif protocol["convergence"] is not None:
        protocol["convergence"]["margin"] = "0.9"
    else:
        raise NothingToTryError


def _lower_with_manifest(copy: Copy) -> None:
    before = files.sha256_file(copy.paths.protocol)
    copy.edit_json(copy.paths.protocol, lower_thresholds)
    after = files.sha256_file(copy.paths.protocol)
    copy.edit_json(copy.paths.manifest, lambda value: value.update(protocol_sha256=after))
    if before == after:
        raise NothingToTryError


@_mutation("protocol", "a lower threshold")
def _(copy: Copy) -> None:
    copy.edit_json(copy.paths.protocol, lower_thresholds)


@_mutation("protocol", "a lower threshold, with the manifest's digest put right")
def _(copy: Copy) -> None:
    _lower_with_manifest(copy)


@_mutation("protocol", "a lower threshold, with manifest and ledger put right")
def _(copy: Copy) -> None:
    before = {
        files.sha256_file(copy.paths.protocol): copy.paths.protocol,
        files.sha256_file(copy.paths.manifest): copy.paths.manifest,
    }
    _lower_with_manifest(copy)
    text = {old: files.sha256_file(path) for old, path in before.items()}

    def edit(entries: list[Any]) -> None:
        for index, entry in enumerate(entries):
            line = json.dumps(entry)
            for old, new in text.items():
                line = line.replace(old, new)
            entries[index] = json.loads(line)

    copy.edit_ledger(edit)


@_mutation("protocol", "an empty list of slots")
def _(copy: Copy) -> None:
    copy.edit_json(copy.paths.protocol, lambda value: value.update(slots=[]))


@_mutation("protocol", "one slot struck out")
def _(copy: Copy) -> None:
    copy.edit_json(copy.paths.protocol, lambda value: value["slots"].pop())


@_mutation("protocol", "a format of the future")
def _(copy: Copy) -> None:
    copy.edit_json(copy.paths.protocol, lambda value: value.update(format="protocol/999"))


@_mutation("protocol", "a key twice, the second one easier")
def _(copy: Copy) -> None:
    copy.substitute(copy.paths.protocol, b'"campaign":', b'"families": [], "campaign":')


# --- the ledger -------------------------------------------------------------------------------------------------------


@_mutation("ledger", "its last line dropped")
def _(copy: Copy) -> None:
    copy.edit_lines(copy.paths.ledger, _drop_last)


@_mutation("ledger", "everything after the freeze dropped")
def _(copy: Copy) -> None:
    copy.edit_lines(copy.paths.ledger, _keep_first)


@_mutation("ledger", "all lines dropped")
def _(copy: Copy) -> None:
    copy.write(copy.paths.ledger, b"")


@_mutation("ledger", "removed")
def _(copy: Copy) -> None:
    copy.remove(copy.paths.ledger)


@_mutation("ledger", "one digit in the middle")
def _(copy: Copy) -> None:
    def edit(lines: list[bytes]) -> None:
        middle = len(lines) // 2
        lines[middle] = re.sub(rb'"at":([0-9])', b'"at":9', lines[middle], count=1)

    copy.edit_lines(copy.paths.ledger, edit)


@_mutation("ledger", "two lines exchanged")
def _(copy: Copy) -> None:
    def edit(lines: list[bytes]) -> None:
        lines[1], lines[2] = lines[2], lines[1]

    copy.edit_lines(copy.paths.ledger, edit)


@_mutation("ledger", "an attempt struck out of its intent, chained again")
def _(copy: Copy) -> None:
    def edit(entries: list[Any]) -> None:
        intent = entries[_places(entries, "intent")[0]]
        intent["data"]["allocations"][0]["attempts"].pop()

    copy.edit_ledger(edit)


@_mutation("ledger", "a whole submission struck out, chained again")
def _(copy: Copy) -> None:
    def edit(entries: list[Any]) -> None:
        key = entries[_places(entries, "intent")[-1]]["data"]["submission"]
        entries[:] = [entry for entry in entries if entry["data"].get("submission") != key]

    copy.edit_ledger(edit)


@_mutation("ledger", "the candidate frozen before the rules, chained again")
def _(copy: Copy) -> None:
    def edit(entries: list[Any]) -> None:
        entries.insert(0, entries.pop(_places(entries, "froze_candidate")[0]))

    copy.edit_ledger(edit)


@_mutation("ledger", "what a report said, chained again")
def _(copy: Copy) -> None:
    def edit(entries: list[Any]) -> None:
        said = entries[_places(entries, "reported")[0]]["data"]
        said["outcome"] = "pass" if said["outcome"] != "pass" else "not_qualified"

    copy.edit_ledger(edit)


@_mutation("ledger", "an act of an unknown kind, chained again")
def _(copy: Copy) -> None:
    copy.edit_ledger(lambda entries: entries.append({**entries[-1], "act": "forgiven"}))


@_mutation("ledger", "a key twice in a line")
def _(copy: Copy) -> None:
    copy.substitute(copy.paths.ledger, b'{"act":', b'{"at":0,"act":')


# --- attempts ---------------------------------------------------------------------------------------------------------


@_mutation("attempts", "one bit of a table")
def _(copy: Copy) -> None:
    copy.flip(_pair(copy).table("windows.csv"))


@_mutation("attempts", "one digit of a table, times put back")
def _(copy: Copy) -> None:
    _edit_digits(copy, _pair(copy).table("pairs.csv"))


@_mutation("attempts", "one digit of a table, sealed again")
def _(copy: Copy) -> None:
    folder = _pair(copy)
    _edit_digits(copy, folder.table("pairs.csv"))
    copy.seal_again(folder)


@_mutation("attempts", "one digit of a table, sealed again, ended.json and ledger put right")
def _(copy: Copy) -> None:
    folder = _pair(copy)
    before = files.sha256_file(folder.receipt)
    _edit_digits(copy, folder.table("pairs.csv"))
    copy.seal_again(folder)
    copy.carry_through(before, files.sha256_file(folder.receipt))
    copy.edit_ledger(lambda _entries: None)


@_mutation("attempts", "a table copied from another repeat, sealed again")
def _(copy: Copy) -> None:
    folder, other = _pair(copy), _pair(copy, 1)
    copy.write(folder.table("windows.csv"), copy.read(other.table("windows.csv")))
    copy.seal_again(folder)


@_mutation("attempts", "the sides of a pair exchanged, sealed again")
def _(copy: Copy) -> None:
    folder = _pair(copy)
    for name in ("pairs.csv", "windows.csv"):
        data = copy.read(folder.table(name))
        other = b"baseline_again" if b"baseline_again" in data else b"candidate"
        swapped = re.sub(rb",(baseline_again|baseline|candidate),", _exchanged(other), data)
        copy.write(folder.table(name), swapped)
    copy.seal_again(folder)


def _exchanged(other: bytes) -> Callable[[re.Match[bytes]], bytes]:
    def exchange(match: re.Match[bytes]) -> bytes:
        return b",%s," % (other if match[1] == b"baseline" else b"baseline")

    return exchange


@_mutation("attempts", "a table without its last line, sealed again")
def _(copy: Copy) -> None:
    folder = _pair(copy)
    copy.edit_lines(folder.table("windows.csv"), _drop_last)
    copy.seal_again(folder)


@_mutation("attempts", "a table whose last line was torn, sealed again")
def _(copy: Copy) -> None:
    folder = _pair(copy)
    copy.write(folder.table("windows.csv"), copy.read(folder.table("windows.csv"))[:-2])
    copy.seal_again(folder)


@_mutation("attempts", "two attempts exchanged")
def _(copy: Copy) -> None:
    copy.exchange(_pair(copy).root, _pair(copy, 1).root)


@_mutation("attempts", "one pair removed")
def _(copy: Copy) -> None:
    copy.remove(_pair(copy).root)


@_mutation("attempts", "a receipt removed, as if the attempt had been lost")
def _(copy: Copy) -> None:
    copy.remove(_pair(copy).receipt)


@_mutation("attempts", "a second try that nobody intended")
def _(copy: Copy) -> None:
    folder = _pair(copy)
    number = next(number for number in count(2) if not (folder.root.parent / str(number)).exists())
    copy.add(folder.root.parent / str(number) / folder.receipt.name, copy.read(folder.receipt))


@_mutation("attempts", "what was printed while a side ran")
def _(copy: Copy) -> None:
    copy.write(_first(copy.paths.attempts.rglob("*.log")), b"nothing happened\n")


@_mutation("attempts", "another node in the start record, sealed again")
def _(copy: Copy) -> None:
    folder = _pair(copy)
    copy.edit_json(folder.start, lambda value: value["host"].update(node="elsewhere"))
    copy.seal_again(folder)


@_mutation("attempts", "another ending in a receipt")
def _(copy: Copy) -> None:
    copy.edit_json(_pair(copy).receipt, lambda value: value.update(ending="node_fail"))


@_mutation("attempts", "a key twice in a receipt")
def _(copy: Copy) -> None:
    copy.substitute(_pair(copy).receipt, b'"ending":', b'"ending": "crash", "ending":')


@_mutation("attempts", "a number that is none in a receipt")
def _(copy: Copy) -> None:
    path = _pair(copy).receipt
    copy.write(path, re.sub(rb'"elapsed_s":\s*[0-9.e+-]+', b'"elapsed_s": NaN', copy.read(path), count=1))


@_mutation("attempts", "a file added to an attempt")
def _(copy: Copy) -> None:
    copy.add(_pair(copy).root / "notes.txt")


@_mutation("attempts", "a table replaced by a link to the same bytes")
def _(copy: Copy) -> None:
    copy.replace_by_link(_pair(copy).table("windows.csv"))


@_mutation("attempts", "a table replaced by a named pipe")
def _(copy: Copy) -> None:
    copy.replace_by_pipe(_pair(copy).table("windows.csv"))


@_mutation("attempts", "a number of a numerical case, sealed again")
def _(copy: Copy) -> None:
    folder = _sealed(copy, "numerical.csv")
    _edit_digits(copy, folder.table("numerical.csv"))
    copy.seal_again(folder)


@_mutation("attempts", "the comparison tensor by tensor")
def _(copy: Copy) -> None:
    copy.flip(_sealed(copy, "tensors.csv.gz").tensors)


# --- allocations and inputs -------------------------------------------------------------------------------------------


def _begun(copy: Copy) -> AllocationPaths:
    """Return an allocation that a job began and ended."""
    folders = (copy.paths.allocation(one.name) for one in copy.paths.allocations.glob("*"))
    return copy.paths.allocation(_first(one.root for one in folders if one.ended.exists()).name)


@_mutation("allocations", "the plan of an allocation")
def _(copy: Copy) -> None:
    path = copy.paths.allocation(_first(copy.paths.allocations.glob("*")).name).plan
    copy.edit_json(path, lambda value: value["attempts"][0].update(updates=value["attempts"][0]["updates"] + 1))


@_mutation("allocations", "which job began an allocation")
def _(copy: Copy) -> None:
    path = _begun(copy).started
    copy.edit_json(path, lambda value: value["job"].update(job_id="99999"))


@_mutation("allocations", "how an allocation ended, removed")
def _(copy: Copy) -> None:
    copy.remove(_begun(copy).ended)


@_mutation("allocations", "the harness's log")
def _(copy: Copy) -> None:
    copy.write(_begun(copy).log, b"all went well\n")


@_mutation("allocations", "one that nobody intended")
def _(copy: Copy) -> None:
    copy.add(copy.paths.allocation("a99999").plan, b"{}\n")


@_mutation("inputs", "one bit of a canonical input")
def _(copy: Copy) -> None:
    copy.flip(_largest(copy.paths.inputs.glob("*.safetensors")))


@_mutation("inputs", "a list of canonical inputs removed")
def _(copy: Copy) -> None:
    copy.remove(_first(copy.paths.inputs.glob("*.json")))


# --- runs -------------------------------------------------------------------------------------------------------------


@_mutation("runs", "a final loss, sealed again")
def _(copy: Copy) -> None:
    folder = _sealed(copy, "convergence.csv")
    data = copy.read(folder.table("convergence.csv"))
    copy.write(folder.table("convergence.csv"), re.sub(rb",[0-9]+\.[0-9]+,", b",0.125,", data, count=1))
    copy.seal_again(folder)


@_mutation("runs", "one bit of a checkpoint")
def _(copy: Copy) -> None:
    copy.flip(_largest(_checkpoint(copy).files.rglob("*")))


@_mutation("runs", "a checkpoint removed")
def _(copy: Copy) -> None:
    copy.remove(_checkpoint(copy).root)


@_mutation("runs", "the curve in a checkpoint")
def _(copy: Copy) -> None:
    copy.edit_json(_checkpoint(copy).document, lambda value: value.update(elapsed_s=value["elapsed_s"] + 1))


@_mutation("runs", "a file added to a checkpoint")
def _(copy: Copy) -> None:
    copy.add(_checkpoint(copy).files / "planted.bin")


# --- what was derived -------------------------------------------------------------------------------------------------


def _evidence(copy: Copy, table: str) -> Path:
    path = copy.paths.evaluation(_candidate(copy)).evidence / table
    if not path.is_file() or copy.read(path).count(b"\n") < 3:
        raise NothingToTryError
    return path


@_mutation("evaluation", "one digit of the evidence")
def _(copy: Copy) -> None:
    _edit_digits(copy, _evidence(copy, "pairs.csv"))


@_mutation("evaluation", "a row of the evidence dropped")
def _(copy: Copy) -> None:
    copy.edit_lines(_evidence(copy, "pairs.csv"), _drop_last)


@_mutation("evaluation", "a row of the evidence doubled")
def _(copy: Copy) -> None:
    copy.edit_lines(_evidence(copy, "attempts.csv"), lambda lines: lines.append(lines[-1]))


@_mutation("evaluation", "the verdict's outcome")
def _(copy: Copy) -> None:
    path = copy.paths.evaluation(_candidate(copy)).verdict
    data = copy.read(path)
    old, new = b'"not_qualified"', b'"pass"'
    copy.write(path, data.replace(old, new) if old in data else data.replace(new, old))


@_mutation("evaluation", "a gate struck out of the verdict")
def _(copy: Copy) -> None:
    path = copy.paths.evaluation(_candidate(copy)).verdict
    copy.edit_json(path, lambda value: value["gates"].pop())


@_mutation("evaluation", "a word of the report's page")
def _(copy: Copy) -> None:
    copy.substitute(copy.paths.evaluation(_candidate(copy)).page, b"baseline", b"Baseline")


@_mutation("evaluation", "a digest that the report's page shows")
def _(copy: Copy) -> None:
    page = copy.paths.evaluation(_candidate(copy)).page
    digest = files.sha256_file(copy.paths.protocol).encode("ascii")
    copy.substitute(page, digest, digest[::-1])


@_mutation("evaluation", "a table that the report offers")
def _(copy: Copy) -> None:
    copy.flip(_largest(copy.paths.evaluation(_candidate(copy)).report.rglob("*.csv")))


@_mutation("evaluation", "a file added to the report")
def _(copy: Copy) -> None:
    copy.add(copy.paths.evaluation(_candidate(copy)).report / "addendum.html")


@_mutation("evaluation", "the provenance beside the verdict")
def _(copy: Copy) -> None:
    path = copy.paths.evaluation(_candidate(copy)).provenance
    copy.edit_json(path, lambda value: value.update(departures=[], missing_slots=[], nodes=["elsewhere"]))


@_mutation("evaluation", "of a candidate that nobody froze")
def _(copy: Copy) -> None:
    copy.add(copy.paths.evaluation("c000000000000").verdict, b"{}\n")


# --- the rest of the home ---------------------------------------------------------------------------------------------


@_mutation("home", "a row of the cache")
def _(copy: Copy) -> None:
    _edit_cache(copy)


def _edit_cache(copy: Copy) -> None:
    import sqlite3  # noqa: PLC0415 - this alone needs it

    data = copy.read(copy.paths.database)
    copy.write(copy.paths.database, data)  # a file of its own
    copy.paths.database.chmod(0o600)
    with sqlite3.connect(copy.paths.database) as connection:
        changed = connection.execute("UPDATE attempts SET ending = 'crash' WHERE ending = 'completed'").rowcount
    connection.close()
    if not changed:
        raise NothingToTryError


@_mutation("home", "a file added")
def _(copy: Copy) -> None:
    copy.add(copy.root / "notes.txt")


@_mutation("home", "the list with which it was closed")
def _(copy: Copy) -> None:
    copy.flip(copy.paths.seal)


@_mutation("home", "the list with which it was closed, removed")
def _(copy: Copy) -> None:
    copy.remove(copy.paths.seal)


@_mutation("home", "the scheduler's accounting")
def _(copy: Copy) -> None:
    copy.flip(_first(copy.paths.accounting.glob("*.txt")))


# --- bundles ----------------------------------------------------------------------------------------------------------


def _call(copy: Copy) -> Path:
    return _first(copy.paths.allocations.glob("*/calls/1.json"))


@_mutation("bundles", "the boot on which a call was made, carried through the ledger")
def _(copy: Copy) -> None:
    path = _call(copy)
    before = files.sha256_file(path)
    copy.edit_json(path, lambda call: call.update(boot_id="another"))
    copy.substitute(copy.paths.ledger, before.encode("ascii"), files.sha256_file(path).encode("ascii"))
    copy.edit_ledger(lambda _: None)


@_mutation("bundles", "what a call left, removed")
def _(copy: Copy) -> None:
    copy.remove(_call(copy))


@_mutation("bundles", "a call added")
def _(copy: Copy) -> None:
    path = _call(copy)
    copy.add(path.with_name("99.json"), copy.read(path))


@_mutation("bundles", "what came back struck out of the ledger, chained again")
def _(copy: Copy) -> None:
    def edit(entries: list[Any]) -> None:
        del entries[_places(entries, "ingested")[-1]]

    copy.edit_ledger(edit)


@_mutation("bundles", "the digest of what was left behind, chained again")
def _(copy: Copy) -> None:
    def edit(entries: list[Any]) -> None:
        acts = [entries[place]["data"] for place in _places(entries, "ingested")]
        left = next((data["left"] for data in acts if data["left"]), None)
        if left is None:
            raise NothingToTryError
        left[min(left)] = ["0" * 64, left[min(left)][1]]

    copy.edit_ledger(edit)


MUTATIONS = tuple(_MUTATIONS)
"""All of them, in the order in which they are tried."""
