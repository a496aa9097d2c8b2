"""A folder that is laid out like a home, as far as the frozen harness looks, and the harness at work in it.

What is tried there leaves nothing in the home, which is only read.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from campaign import documents
from campaign.errors import StateError
from campaign.frozen import Frozen
from campaign.paths import HomePaths
from campaign.submission.transport import payload

STOP_S = 60.0
"""How long the harness may take to stop its sides once it is told to."""
_TAIL_CHARACTERS = 2000


def make_scratch(paths: HomePaths, allocation: str, parent: Path | None, *, refusal: str, why: str) -> HomePaths:
    """Create a scratch folder with the frozen rules and the folder of one allocation; whoever asked removes it.

    Args:
        paths: The campaign's home.
        allocation: Id of the allocation.
        parent: Where to create it; the folder for temporary files if None.
        refusal: What to say if it would lie in the home.
        why: The reason for that.

    Raises:
        StateError: It would lie in the home.
    """
    place = (parent or Path(tempfile.gettempdir())).resolve()
    if place.is_relative_to(paths.root.resolve()):
        raise StateError(refusal, where=str(place), why=why, hint="--scratch DIR")
    scratch = HomePaths(Path(tempfile.mkdtemp(prefix=f"campaign-{allocation}-", dir=place)).resolve())
    scratch.protocol.write_bytes(paths.protocol.read_bytes())
    scratch.allocation(allocation).root.mkdir(parents=True)
    return scratch


def run_harness(
    paths: HomePaths,
    frozen: Frozen,
    plan: documents.AllocationPlan,
    scratch: HomePaths,
    environment: Mapping[str, str],
) -> str:
    """Let the frozen harness carry out a plan, and return the end of its log, or of what it printed without one.

    Args:
        paths: The campaign's home.
        frozen: The frozen documents.
        plan: The allocation; its home may be the campaign's own.
        scratch: From `make_scratch`.
        environment: What the harness is given.
    """
    where = scratch.allocation(plan.allocation)
    where.plan.write_bytes(plan.replace(home=str(scratch.root)).to_bytes())
    temporary = scratch.root / "tmp"
    temporary.mkdir()
    command = payload(frozen.manifest.harness_python, paths, scratch.root / "pycache", [where.plan])
    said = run_command(command, {**environment, "TMPDIR": str(temporary)})
    log = where.log.read_text(encoding="utf-8", errors="replace") if where.log.exists() else said
    return log.strip()[-_TAIL_CHARACTERS:]


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run the harness in a session of its own and return what it printed; whatever interrupts us ends it too."""
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate()
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            process.kill()
            raise
    return output.decode("utf-8", "replace")
