"""Keeps what an acceptance program said of evidence, so that the hundredth freeze of one protocol costs no more time.

The program, the protocol and every byte of the evidence are what an answer is kept by. Answers are files, so that a
process which a test starts finds them as well.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign.freezing.reachability import check
from campaign.judging.evaluation import Run, run_program_often

Runner = Callable[..., tuple[Run, ...]]
FOLDER = "CAMPAIGN_TEST_ANSWERS"
"""The variable that names the folder with the answers."""


def remembering(runner: Runner) -> Runner:
    """Return a function that asks `runner` only for what nobody has asked before."""
    folder = Path(os.environ[FOLDER])

    def run(program: Mapping[str, bytes], runs: Sequence[tuple[str, ...]], **options: Any) -> tuple[Run, ...]:
        digest = hashlib.sha256()
        for part in (*_program(program), *_arguments(runs)):
            digest.update(b"%d:" % len(part) + part)
        kept = folder / digest.hexdigest()
        if not kept.exists():
            kept.write_bytes(pickle.dumps(runner(program, runs, **options)))
        answer: tuple[Run, ...] = pickle.loads(kept.read_bytes())  # noqa: S301 - written by the line above
        return answer

    return run


def remember() -> None:
    """Let the freezes of this process remember; for a process that ends with the test that started it."""
    check.run_program_often = remembering(run_program_often)  # type: ignore[attr-defined]


def _program(program: Mapping[str, bytes]) -> Iterator[bytes]:
    for path, data in sorted(program.items()):
        yield from (path.encode(), data)


def _arguments(runs: Sequence[tuple[str, ...]]) -> Iterator[bytes]:
    for protocol, evidence in runs:
        yield b"run"
        yield Path(protocol).read_bytes()
        for file in sorted(Path(evidence).iterdir()):
            yield from (file.name.encode(), file.read_bytes())
