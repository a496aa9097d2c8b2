"""The names of the files in a campaign home, relative to it. No other module of the verifier builds such a path.

What is not UTF-8 in a name is carried as Python does it (``os.fsdecode``), so that a name can always be opened again.
"""

from __future__ import annotations

import re

MANIFEST = "manifest.json"
PROTOCOL = "protocol.json"
LEDGER = "ledger.jsonl"
LOCK = "ledger.lock"
DATABASE = "campaign.sqlite"
REBUILT_DATABASE = ".campaign.sqlite.rebuild"
SEAL = "seal.json"
"""The listing of every file, which the act ``closed`` names by digest."""
STAGING = ".freezing"
TRANSPORT = "transport"
"""submitit's own files; never evidence."""

FROZEN = "frozen"
CONFIG = "frozen/campaign.toml"
ACCEPTANCE = "frozen/acceptance"
HARNESS = "frozen/harness"
VERIFIER = "frozen/verifier"
BASELINE = "frozen/baseline"
CANDIDATES = "frozen/candidates"

ATTEMPTS = "attempts"
ALLOCATIONS = "allocations"
INPUTS = "inputs"
ACCOUNTING = "accounting"
EVALUATIONS = "evaluations"
FALLBACKS = "fallbacks"

SEGMENTS = "segments"
CHECKPOINTS = "checkpoints"
START = "start.json"
RECEIPT = "receipt.json"
INPUTS_COPY = "inputs.json"
TENSORS = "tensors.csv.gz"

_LEFT = re.compile(
    r"inputs/[0-9a-f]{64}\.safetensors|attempts/.+/checkpoints/[1-9][0-9]*/files/.+"
    r"|attempts/.+\.log|attempts/.+/tensors\.csv\.gz"
)
_CHECKPOINT = re.compile(r"[1-9][0-9]{0,17}")
_TORN = re.compile(r"ledger\.torn\.[1-9][0-9]*")


def is_leftover(name: str) -> bool:
    """Return whether a name (the last part of a path) is that of a temporary file which a killed writer left."""
    return name.startswith(".") and name.endswith(".tmp")


def can_be_left(path: str) -> bool:
    """Return whether a bundle may leave a file behind on its machine: no table, receipt or other document."""
    parts = path.split("/")
    return _LEFT.fullmatch(path) is not None and not any(part in ("", ".", "..") or "\0" in part for part in parts)


def is_torn(name: str) -> bool:
    """Return whether a file beside the ledger is a torn last line of it that was set aside."""
    return _TORN.fullmatch(name) is not None


def is_checkpoint(name: str) -> bool:
    """Return whether a folder of this name is a complete checkpoint, named by the updates behind it."""
    return _CHECKPOINT.fullmatch(name) is not None


# --- frozen sides -----------------------------------------------------------------------------------------------------


def candidate(candidate_id: str) -> str:
    """Return the folder of a frozen candidate."""
    return f"{CANDIDATES}/{candidate_id}"


def candidate_manifest(candidate_id: str) -> str:
    """Return a candidate's manifest."""
    return f"{candidate(candidate_id)}/{MANIFEST}"


def tree(side: str) -> str:
    """Return the source tree of a frozen side, by the side's folder."""
    return f"{side}/tree"


def listing(side: str) -> str:
    """Return the list of every entry of a side's tree, by the side's folder."""
    return f"{side}/files.json"


def patch(side: str) -> str:
    """Return a side's difference from its last commit, by the side's folder."""
    return f"{side}/changes.patch"


# --- attempts ---------------------------------------------------------------------------------------------------------


def attempt(slot: str, number: int, segment: int = 0) -> str:
    """Return the folder of an attempt, or of one segment of an attempt at a run."""
    whole = f"{ATTEMPTS}/{slot}/{number}"
    return f"{whole}/{SEGMENTS}/{segment}" if segment else whole


def start(folder: str) -> str:
    """Return the start record in an attempt's folder."""
    return f"{folder}/{START}"


def receipt(folder: str) -> str:
    """Return the receipt in an attempt's folder."""
    return f"{folder}/{RECEIPT}"


def checkpoint(folder: str, update: int) -> str:
    """Return the folder of one checkpoint in a segment's folder."""
    return f"{folder}/{CHECKPOINTS}/{update}"


def checkpoint_document(checkpoint_folder: str) -> str:
    """Return the document of a checkpoint."""
    return f"{checkpoint_folder}/checkpoint.json"


def checkpoint_files(checkpoint_folder: str) -> str:
    """Return the folder of what the side saved."""
    return f"{checkpoint_folder}/files"


def inputs_listing(sha256: str) -> str:
    """Return the list of one workload's canonical inputs."""
    return f"{INPUTS}/{sha256}.json"


def input_tensors(sha256: str) -> str:
    """Return one file of canonical inputs."""
    return f"{INPUTS}/{sha256}.safetensors"


# --- allocations and accounting ---------------------------------------------------------------------------------------


def allocation(allocation_id: str) -> str:
    """Return the folder of an allocation."""
    return f"{ALLOCATIONS}/{allocation_id}"


def plan(allocation_id: str) -> str:
    """Return what the driver asked of an allocation."""
    return f"{allocation(allocation_id)}/allocation.json"


def started(allocation_id: str) -> str:
    """Return what the job that ran an allocation created first."""
    return f"{allocation(allocation_id)}/started.json"


def ended(allocation_id: str) -> str:
    """Return what the harness wrote when it left an allocation in order."""
    return f"{allocation(allocation_id)}/ended.json"


def harness_log(allocation_id: str) -> str:
    """Return the harness's log of an allocation."""
    return f"{allocation(allocation_id)}/harness.log"


def calls(allocation_id: str) -> str:
    """Return the folder of what each command that went on with a detached allocation left."""
    return f"{allocation(allocation_id)}/calls"


def call(allocation_id: str, number: int) -> str:
    """Return what a command wrote as it began."""
    return f"{calls(allocation_id)}/{number}.json"


def call_ended(allocation_id: str, number: int) -> str:
    """Return what a command wrote as it left in order."""
    return f"{calls(allocation_id)}/{number}.ended.json"


def accounting(number: int) -> str:
    """Return the n-th text of the scheduler's accounting."""
    return f"{ACCOUNTING}/{number}.txt"


def fallback(candidate_id: str, number: int) -> str:
    """Return the folder of one of a candidate's fallback trials."""
    return f"{FALLBACKS}/{candidate_id}/{number}"


# --- what was derived -------------------------------------------------------------------------------------------------


def evaluation(candidate_id: str) -> str:
    """Return the folder of what was derived for a candidate."""
    return f"{EVALUATIONS}/{candidate_id}"


def evidence(candidate_id: str) -> str:
    """Return the folder of a candidate's evidence tables."""
    return f"{evaluation(candidate_id)}/evidence"


def identity(candidate_id: str) -> str:
    """Return the document that says what the evidence is about."""
    return f"{evidence(candidate_id)}/identity.json"


def verdict(candidate_id: str) -> str:
    """Return a candidate's verdict."""
    return f"{evaluation(candidate_id)}/verdict.json"


def provenance(candidate_id: str) -> str:
    """Return what the report says beside the verdict."""
    return f"{evaluation(candidate_id)}/provenance.json"


def report(candidate_id: str) -> str:
    """Return the folder of a candidate's report."""
    return f"{evaluation(candidate_id)}/report"


def page(candidate_id: str) -> str:
    """Return a candidate's report page."""
    return f"{report(candidate_id)}/report.html"
