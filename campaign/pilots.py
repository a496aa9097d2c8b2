"""What pilots found, read from their receipts."""

from __future__ import annotations

from campaign.documents import Calibration, Receipt
from campaign.paths import HomePaths


def read_calibrations(home: HomePaths, side: str) -> dict[str, Calibration]:
    """Return the calibration by workload, of each pilot's latest completed attempt.

    Args:
        home: The campaign home.
        side: ``baseline`` or a candidate's id.

    Raises:
        EvidenceError: A receipt is not what it should be.
    """
    folder = home.attempts / side / "pilot"
    if not folder.is_dir():
        return {}
    found: dict[str, Calibration] = {}
    for workload in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        calibration = _read_latest(home, f"{side}/pilot/{workload}")
        if calibration is not None:
            found[workload] = calibration
    return found


def _read_latest(home: HomePaths, slot: str) -> Calibration | None:
    numbers = sorted(int(path.name) for path in (home.attempts / slot).iterdir() if path.name.isdecimal())
    for number in reversed(numbers):
        path = home.attempt(slot, number).receipt
        receipt = Receipt.read(path) if path.is_file() else None
        if receipt is not None and receipt.ending == "completed" and receipt.calibration is not None:
            return receipt.calibration
    return None
