"""start.json and receipt.json: what an attempt says of itself before anything runs, and what seals its files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..common.endings import Ending
from ..common.layout import AttemptFolder
from ..common.plan import RUN, Allocation, PlannedAttempt
from ..common.storage import read_regular, sha256_bytes
from ..common.strict import dump_json, parse_json
from ..measurement.blocks import Calibration
from ..measurement.session import SideRecord
from .machine import Device

RESERVED_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and as what an allocation runs."""

    job: dict[str, Any]
    host: dict[str, Any]
    device: Device
    threads: int


def start_bytes(allocation: Allocation, planned: PlannedAttempt, place: Place, at: float) -> bytes:
    """Return the bytes of start.json.

    Args:
        allocation: The allocation.
        planned: The attempt.
        place: Where it runs.
        at: Seconds since the epoch.
    """
    return dump_json(
        {
            "format": "start/1",
            "slot": planned.slot,
            "attempt": planned.attempt,
            "segment": planned.segment,
            "allocation": allocation.id,
            "kind": planned.kind,
            "manifest_sha256": allocation.manifest_sha256,
            "protocol_sha256": allocation.protocol_sha256,
            "harness_sha256": allocation.harness_sha256,
            "snapshots": {side: allocation.side(side).snapshot_sha256 for side in planned.order},
            "job": place.job,
            "host": place.host,
            "device": place.device.identity,
            "devices": list(place.device.devices),
            "threads": place.threads,
            "at": at,
        }
    )


def _sealed(path: Path) -> dict[str, Any]:
    data = read_regular(path)
    rows = data.count(b"\n") - 1 if path.suffix == ".csv" else None
    return {"name": path.name, "bytes": len(data), "sha256": sha256_bytes(data), "rows": rows}


def _sealed_files(folder: AttemptFolder, *, is_run: bool) -> list[dict[str, Any]]:
    """Return an entry for every file of an attempt.

    Temporary files of a write that failed are none of it; checkpoints are named by the receipt's `run`.
    """
    names = sorted(name for name in os.listdir(folder.root) if not (name.startswith(".") and name.endswith(".tmp")))  # noqa: PTH208 - names alone
    others = {folder.receipt.name, folder.checkpoints.name} if is_run else {folder.receipt.name}
    return [_sealed(folder.root / name) for name in names if name not in others]


def _isolation(records: Sequence[SideRecord]) -> str:
    """Say what separates the sides from the harness and its files: nothing but modes, unless they have another user."""
    separate = bool(records) and all(record.has_other_user for record in records)
    return "separate user" if separate else "same user"


def _side(record: SideRecord, ending: Ending) -> dict[str, Any]:
    """Return a side's entry; of what completed the tables have the windows."""
    entry = record.as_json()
    return {**entry, "windows": []} if ending is Ending.COMPLETED else entry


def receipt_bytes(
    folder: AttemptFolder,
    allocation: Allocation,
    planned: PlannedAttempt,
    *,
    ending: Ending,
    reason: str,
    records: Sequence[SideRecord],
    case: dict[str, Any] | None,
    run: dict[str, Any] | None,
    elapsed_s: float,
    at: float,
) -> bytes:
    """Return the bytes of receipt.json over whatever the attempt's folder holds; they can be read again.

    Args:
        folder: The attempt's folder.
        allocation: The allocation.
        planned: The attempt.
        ending: How it ended.
        reason: Why, in words; empty for a completed one.
        records: The sides that ran, in order.
        case: How a case was run; None for everything else.
        run: What a segment of a run did; None for everything else.
        elapsed_s: Seconds since the attempt began.
        at: Seconds since the epoch.

    Raises:
        ValueError: A text or a file's name is not what UTF-8 can hold.
        OSError: A file cannot be read, or is no regular file.
    """
    calibrations: list[Calibration] = [record.calibration for record in records if record.calibration is not None]
    calibrated = ending is Ending.COMPLETED and planned.kind == "pilot"
    data = dump_json(
        {
            "format": "receipt/1",
            "start_sha256": sha256_bytes(read_regular(folder.start)),
            "slot": planned.slot,
            "attempt": planned.attempt,
            "segment": planned.segment,
            "allocation": allocation.id,
            "kind": planned.kind,
            "ending": ending.value,
            "reason": reason,
            "elapsed_s": elapsed_s,
            "at": at,
            "sides": [_side(record, ending) for record in records],
            "isolation": _isolation(records),
            "calibration": asdict(calibrations[0]) if calibrated else None,
            "case": case if ending is Ending.COMPLETED else None,
            "run": run,
            "files": _sealed_files(folder, is_run=planned.kind == RUN),
        }
    )
    parse_json(data)
    return data


def reserve_space(folder: AttemptFolder) -> None:
    """Keep space for the receipt, as far as the file system can, so that a full disk still gets one."""
    descriptor = os.open(folder.reserve, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
    finally:
        os.close(descriptor)
