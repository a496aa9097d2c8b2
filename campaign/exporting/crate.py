"""The archive as an RO-Crate: JSON-LD that other tools read. It describes, and proves nothing.

RO-Crate 1.1 with the profile Process Run Crate 0.5: https://w3id.org/ro/crate/1.1 and https://w3id.org/ro/wfrun/process/0.5.
"""

from __future__ import annotations

import datetime as dt
import mimetypes
from collections.abc import Iterator, Sequence
from typing import Any

from campaign import files
from campaign.documents import Entry, Manifest
from campaign.exporting.choose import Contents, File
from campaign.paths import HomePaths
from campaign.record.ledger import last_reports
from campaign.verifier.archive import CRATE, HOME

_CONTEXT = "https://w3id.org/ro/crate/1.1/context"
_CONFORMS = "https://w3id.org/ro/crate/1.1"
_PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
_ACCEPTANCE = f"{HOME}/frozen/acceptance/"
_TYPES = {".jsonl": "application/jsonl", ".csv": "text/csv", ".json": "application/json", ".toml": "application/toml"}


def dump_crate(paths: HomePaths, manifest: Manifest, entries: Sequence[Entry], contents: Contents) -> bytes:
    """Return ``ro-crate-metadata.json``.

    Args:
        paths: The home.
        manifest: What was frozen.
        entries: Its ledger.
        contents: What the archive holds.
    """
    held = [_file(file) for file in contents.files]
    actions = list(_actions(paths, entries, contents))
    programs = _programs(manifest) if contents.files else []
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Qualification campaign {manifest.campaign}",
        "description": "Everything that was frozen, measured, judged and decided in a qualification campaign, and a "
        "program that checks it: see export.json and the verifier in home/frozen/verifier.",
        "datePublished": _date(entries[-1].at) if entries else _date(0),
        "license": "not stated",
        "conformsTo": {"@id": _PROFILE},
        "hasPart": [{"@id": one["@id"]} for one in (*programs[:1], *held)],
        "mentions": [{"@id": one["@id"]} for one in actions],
    }
    descriptor = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": _CONFORMS},
    }
    profile = {"@id": _PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    return files.dump_json({"@context": _CONTEXT, "@graph": [descriptor, root, profile, *programs, *held, *actions]})


def _date(at: float) -> str:
    return dt.datetime.fromtimestamp(at, tz=dt.UTC).isoformat(timespec="seconds")


def _id(path: str) -> str:
    """Return a path as the identifier of an entity: a relative IRI."""
    return f"{HOME}/{path}".encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").replace(" ", "%20")


def _file(file: File) -> dict[str, Any]:
    end = f".{file.path.rpartition('.')[2]}"
    kind = _TYPES.get(end) or mimetypes.guess_type(file.path.rpartition("/")[2])[0] or "application/octet-stream"
    return {
        "@id": _id(file.path),
        "@type": "File",
        "name": file.path.rpartition("/")[2].encode("utf-8", "replace").decode("utf-8"),
        "contentSize": str(file.num_bytes),
        "encodingFormat": kind,
        "sha256": file.sha256,
    }


def _programs(manifest: Manifest) -> list[dict[str, Any]]:
    return [
        {
            "@id": _ACCEPTANCE,
            "@type": ["SoftwareApplication", "Dataset"],
            "name": "the frozen acceptance program",
            "softwareVersion": manifest.acceptance_sha256,
        }
    ]


def _actions(paths: HomePaths, entries: Sequence[Entry], contents: Contents) -> Iterator[dict[str, Any]]:
    """Yield one action for each candidate that was judged: evidence in, verdict out."""
    held = {file.path for file in contents.files}
    for candidate, entry in sorted(last_reports(entries).items()):
        evaluation = paths.evaluation(candidate)
        evidence = evaluation.evidence.relative_to(paths.root).as_posix()
        verdict = evaluation.verdict.relative_to(paths.root).as_posix()
        if verdict not in held:
            continue
        inputs = [paths.protocol.relative_to(paths.root).as_posix(), *(p for p in held if p.startswith(f"{evidence}/"))]
        yield {
            "@id": f"#judging-{candidate}",
            "@type": "CreateAction",
            "name": f"Judging candidate {candidate}: {entry.data['outcome']}",
            "instrument": {"@id": _ACCEPTANCE},
            "object": [{"@id": _id(path)} for path in sorted(inputs)],
            "result": [{"@id": _id(verdict)}],
            "endTime": _date(entry.at),
            "actionStatus": "http://schema.org/CompletedActionStatus",
        }
