"""Making canonical inputs again where they are not: by the very code that recorded them, to the very same digest.

What is recorded lies aside until its digest is the one that the case names: nothing else ever gets its name.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ..common.endings import EndedError, Ending
from ..common.layout import InputsFolder
from ..common.plan import Numerical, Workload
from ..common.storage import read_regular, sha256_bytes, sync_folder, write_new
from ..measurement.session import Setting, SideRecord, running
from ..processes.sidelog import SideLog
from ..processes.signals import Signals
from ..processes.steps import alone
from .inputs import keep_again, parse_inputs
from .inputs_recorder import InputsRecorder


def are_there(folder: InputsFolder, sha256: str) -> bool:
    """Return whether canonical inputs are there with every file that they name; nothing is said of the content.

    Args:
        folder: Where they are kept.
        sha256: Digest of their document.

    Raises:
        ValueError: What has the document's name is no such document.
    """
    path = folder.document(sha256)
    if not path.exists():
        return False
    return all(folder.tensors(one).exists() for one in parse_inputs(read_regular(path)).digests)


@contextmanager
def _aside(folder: InputsFolder) -> Iterator[InputsFolder]:
    """Make a folder beside those inputs that are kept; its name is one that a killed writer may leave."""
    folder.root.mkdir(exist_ok=True)
    root = folder.root / f".again.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    root.mkdir()
    try:
        yield InputsFolder(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def make_again(
    opened: AbstractContextManager[Setting],
    log: SideLog,
    signals: Signals,
    *,
    workload: Workload,
    rules: Numerical,
    folder: InputsFolder,
    private: Path,
    sha256: str,
) -> None:
    """Let the baseline record the canonical inputs of a workload once more, and keep them if they are the same.

    Args:
        opened: Sets up the baseline; nothing of it is left when the context is left.
        log: Takes what it prints.
        signals: Ends it.
        workload: The workload.
        rules: The numerical rules.
        folder: Where canonical inputs are kept.
        private: The job's private folder.
        sha256: Digest that their document must have.

    Raises:
        EndedError: They are not the same, or could not be made.
        InterruptedAttemptError: A signal came.
    """
    record = SideRecord(side="baseline", position=1)
    with _aside(folder) as aside:
        recorder = InputsRecorder(workload, aside, private)
        with opened as setting, signals.watching(), running(setting, record, log, signals) as session:
            alone(session.start())
            alone(session.build())
            session.refuse_missing([one for one in rules.needed_methods("baseline") if one not in record.offers])
            if rules.moments == "warm":
                alone(session.warm_up())
            document = recorder(session)
            alone(session.leave())
        recorder.verify_again()
        if (found := sha256_bytes(document)) != sha256:
            text = f"the canonical inputs of {workload.name} were made again, with the digest {found}"
            hint = "they are not the same on this machine; take them along: campaign bundle write, with the inputs"
            raise EndedError(Ending.LOST, f"{text}; the case needs {sha256}: {hint}")
        _keep(aside, folder, document, sha256)


def _keep(aside: InputsFolder, folder: InputsFolder, document: bytes, sha256: str) -> None:
    for one in parse_inputs(document).digests:
        keep_again(aside.tensors(one), folder.tensors(one), one)
    if not folder.document(sha256).exists():
        write_new(folder.document(sha256), document)
    sync_folder(folder.root)
