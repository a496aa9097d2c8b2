"""What pilots and cases found, read from their receipts and from what the pilots recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.collection.inputs import num_tensors
from campaign.documents import Inputs, Receipt
from campaign.errors import EvidenceError
from campaign.paths import HomePaths
from campaign.planning.calibration import CASE_KINDS, Experience, besides_seconds

TENSOR_ROW_BYTES = 64
"""About what a row of tensors.csv takes once it is compressed, its share of numerical.csv and vacuity.csv included."""
_NUM_QUANTITIES = 5
_NUM_PARKED = 3
"""Parameters and both moments: what a side that does not have the device goes on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSize:
    """How much there is to keep and compare of one workload, from its baseline's pilot."""

    files: Mapping[str, int]
    """Size by SHA-256 of its canonical inputs."""
    num_tensors: int
    """Parameters of all workers, tied ones counted as often as they are named."""
    parameter_bytes: int
    """Bytes of the parameters of all workers."""

    def table_bytes(self, updates: int) -> int:
        """Return about what the tables of one case take."""
        return updates * _NUM_QUANTITIES * self.num_tensors * TENSOR_ROW_BYTES

    def private_bytes(self, *, copies_inputs: bool) -> int:
        """Return the most that a case whose sides take turns keeps in its node's private folders.

        Args:
            copies_inputs: Whether the canonical inputs are copied there, as for a side with a launch prefix.
        """
        copied = sum(self.files.values()) if copies_inputs else 0
        return (_NUM_QUANTITIES + 2 * _NUM_PARKED) * self.parameter_bytes + copied


def read_experience(home: HomePaths, owners: Mapping[str, str]) -> Experience:
    """Return what the completed pilots and cases of a home found.

    Args:
        home: The campaign home.
        owners: The first part of the slots' names, ``baseline`` or a candidate's id, by side.

    Raises:
        EvidenceError: A receipt is not what it should be.
    """
    pilots = {
        (side, workload): (receipt.elapsed_s, receipt.calibration)
        for side, owner in owners.items()
        for workload, receipt in _completed(home, owner, "pilot")
        if receipt.calibration is not None
    }
    case_s = {
        (kind, workload): receipt.elapsed_s
        for owner in owners.values()
        for kind in CASE_KINDS
        for workload, receipt in _completed(home, owner, kind.replace("_", "-"))
    }
    return Experience(
        calibrations={key: calibration for key, (_, calibration) in pilots.items()},
        case_s=case_s,
        besides_s={key: besides_seconds(elapsed_s, calibration) for key, (elapsed_s, calibration) in pilots.items()},
    )


def read_case_sizes(home: HomePaths) -> dict[str, CaseSize]:
    """Return the size of each workload's cases, as far as the baseline's pilots recorded canonical inputs.

    Raises:
        EvidenceError: What they recorded is not what it should be.
    """
    found = {}
    for workload, receipt in _completed(home, "baseline", "pilot"):
        path = home.attempt(receipt.slot, receipt.attempt).inputs
        if path.is_file():
            inputs = Inputs.read(path)
            parameters = [one for one in inputs.state if one.quantity == "parameters"]
            found[workload] = CaseSize(
                files=inputs.files,
                num_tensors=sum(num_tensors(home.input_tensors(one.sha256)) for one in parameters),
                parameter_bytes=sum(one.bytes for one in parameters),
            )
    return found


def _completed(home: HomePaths, owner: str, folder: str) -> Iterator[tuple[str, Receipt]]:
    """Yield the workload and the receipt of each slot's latest completed attempt, by workload."""
    root = home.attempts / owner / folder
    for workload in sorted(path.name for path in _folders(root)):
        receipt = _read_latest(home, f"{owner}/{folder}/{workload}")
        if receipt is not None:
            yield workload, receipt


def _folders(root: Path) -> Sequence[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _read_latest(home: HomePaths, slot: str) -> Receipt | None:
    numbers = sorted(int(path.name) for path in (home.attempts / slot).iterdir() if path.name.isdecimal())
    for number in reversed(numbers):
        path = home.attempt(slot, number).receipt
        receipt = Receipt.read(path) if path.is_file() else None
        if receipt is not None and receipt.ending == "completed":
            return _same(receipt, slot, number)
    return None


def _same(receipt: Receipt, slot: str, number: int) -> Receipt:
    if (receipt.slot, receipt.attempt) != (slot, number):
        raise EvidenceError(f"the receipt of {receipt.slot} attempt {receipt.attempt}", where=f"{slot}/{number}")
    return receipt
