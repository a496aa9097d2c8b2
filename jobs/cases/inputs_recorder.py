"""Recording the canonical inputs of a workload from the baseline's pilot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ..common.endings import EndedError, Ending
from ..common.layout import InputsFolder
from ..common.plan import STATE, Numerical, Workload
from ..measurement.session import Session
from ..processes.steps import alone
from ..tensors.catalog import Catalog, find_reserved, find_unfit
from ..tensors.lockstep import plan_chunks, run_pass
from ..tensors.recording import Recorder, Recording, TensorFile, unused_name
from ..tensors.staging_files import MOST_HALF_BYTES, StageFile, choose_folder, half_bytes
from .inputs import BATCH, BatchInput, Inputs, StateInput, describe_state, keep_document, keep_file, verify_kept
from .partner import Partner
from .side_by_side import staging_file


def record_pass(
    partner: Partner,
    what: str,
    catalog: Catalog,
    stage: StageFile,
    name: Callable[[int], Path],
    *,
    is_kept: bool = False,
) -> Recording:
    """Record the pass that is open.

    Args:
        partner: The side.
        what: What it offers.
        catalog: What it offers.
        stage: The staging file that it has mapped.
        name: Returns the path of a worker's file.
        is_kept: Whether the files are to be kept.
    """
    recorder = Recorder(catalog.tensors, stage, name, is_kept=is_kept)
    try:
        chunks = list(plan_chunks(catalog.tensors, stage.half_bytes))
        run_pass(chunks, [partner], None, recorder.spool)
        files = recorder.finish()
    except BaseException:
        recorder.abandon()
        raise
    return Recording(what=what, catalog=catalog, files=tuple(files))


class InputsRecorder:
    """Records the canonical inputs of a workload that a session runs.

    Args:
        workload: The workload.
        folder: Where they are kept.
        private: The job's private folder.
    """

    def __init__(self, workload: Workload, folder: InputsFolder, private: Path) -> None:
        self._workload = workload
        self._folder = folder
        self._private = private
        self._digests: dict[str, None] = {}
        """Of what was recorded, in order."""

    def verify_again(self) -> None:
        """Hash what was recorded once more, when the side is gone.

        Raises:
            EndedError: It was changed.
        """
        verify_kept(self._digests, self._folder)

    def __call__(self, session: Session) -> bytes:
        """Record them; return the document that names them.

        Raises:
            EndedError: The side does not offer what can be compared, or a file that is there is not what it was.
        """
        setting = session.setting
        rules = setting.protocol.numerical
        if rules is None:
            raise ValueError("the protocol declares no numerical family")
        self._folder.root.mkdir(exist_ok=True)
        partner = Partner(session)
        parameters = alone(partner.open("parameters"))
        warm = 0 if rules.moments == "fresh" else setting.protocol.rules.warmup_updates
        with self._staged(partner, parameters) as stage:
            inputs = Inputs(
                workload=self._workload.name,
                config_sha256=self._workload.config_sha256,
                moments=rules.moments,
                step=warm,
                state=tuple(self._record_state(partner, rules, stage)),
                batches=tuple(self._record_batches(partner, range(warm, warm + rules.updates), stage)),
            )
        alone(partner.forget())
        return keep_document(inputs, self._folder)

    def _staged(self, partner: Partner, parameters: Catalog) -> AbstractContextManager[StageFile]:
        size = half_bytes(parameters.num_bytes, MOST_HALF_BYTES)
        confined = bool(partner.session.setting.runnable.launch)
        return staging_file(size, choose_folder(2 * size, self._private, is_confined=confined), partner, None)

    def _record_state(self, partner: Partner, rules: Numerical, stage: StageFile) -> list[StateInput]:
        found: list[StateInput] = []
        for quantity in STATE[rules.moments]:
            catalog = alone(partner.open(quantity))
            if problem := find_unfit(catalog):
                raise EndedError(Ending.STATE_MISMATCH, f"{quantity}: {problem}")
            if problem := find_reserved(catalog, is_state=True):
                raise EndedError(Ending.RUBBISH, f"{quantity}: {problem}")
            found += describe_state(quantity, self._keep(partner, quantity, catalog, stage))
        return found

    def _record_batches(self, partner: Partner, steps: Sequence[int], stage: StageFile) -> list[BatchInput]:
        found: list[BatchInput] = []
        for update, step in enumerate(steps, start=1):
            catalog = alone(partner.open(f"{BATCH}:{step}"))
            if not catalog.tensors:
                raise EndedError(Ending.RUBBISH, f"batch({step}) holds no tensors")
            if problem := find_reserved(catalog, is_state=False):
                raise EndedError(Ending.RUBBISH, f"batch({step}): {problem}")
            (file,) = self._keep(partner, BATCH, catalog, stage)
            found.append(BatchInput(update=update, sha256=file.sha256, num_bytes=file.num_bytes))
        return found

    def _keep(self, partner: Partner, what: str, catalog: Catalog, stage: StageFile) -> list[TensorFile]:
        def name(worker: int) -> Path:
            return unused_name(self._folder.root, f"{what}-worker{worker}")

        recording = record_pass(partner, what, catalog, stage, name, is_kept=True)
        for file in recording.files:
            keep_file(file, self._folder)
            self._digests[file.sha256] = None
        return list(recording.files)
