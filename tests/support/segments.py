"""Runs in a small campaign home: a trainer of a few lines that can be saved, and ways to cut it in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign import documents
from tests.support.harness import LIMITS, Bench, make_bench, make_convergence

UPDATES = 24
TRAINER = '''"""A noisy walk towards the origin. Every seventh update is skipped, every third one has more targets."""
import hashlib, json, os, random, time
from pathlib import Path


class Trainer:
    def __init__(self, config, seed, device):
        self.config = config
        self.random = random.Random(seed)
        self.place = [self.random.gauss(0, 1) for _ in range(4)]
        self.speed = [0.0] * 4
        self.update = self.tokens = 0

    def updates(self, n):
        skipped, tokens = 0, self.tokens
        for _ in range(n):
            time.sleep(0.001)
            self.update += 1
            self.tokens += 10 + 2 * (self.update % 3 == 0)
            gradient = [place + self.random.gauss(0, 0.1) for place in self.place]
            if self.update % 7 == 0:
                skipped += 1
            else:
                self.speed = [0.9 * speed + part for speed, part in zip(self.speed, gradient)]
                self.place = [place - 0.05 * speed for place, speed in zip(self.place, self.speed)]
            self.stop("updates")
        return n, 2 * n, skipped, self.tokens - tokens

    def stop(self, what):
        """Say that a planned place is reached, and go on when somebody says so."""
        if os.environ.get("CUT_AT") == f"{what}:{self.update}":
            with open(os.environ["REACHED"], "wb") as pipe:
                pipe.write(b"x")
            with open(os.environ["GO"], "rb") as pipe:
                pipe.read()

    def sync(self):
        pass

    def loss(self):
        if self.update == 0:
            raise RuntimeError("no update was made")
        return sum(place * place for place in self.place)

    def evaluate(self):
        self.stop("evaluate")
        return 7 * sum(place * place for place in self.place), 7

    def engaged(self):
        return {"path": "walking", "updates": self.update}

    def progress(self):
        state = hashlib.sha256(repr(self.random.getstate()).encode()).hexdigest()
        return {"update": self.update, "tokens": self.tokens, "place": self.place[0], "random_state": state}

    def save(self, folder):
        self.stop("save")
        (folder / "state").mkdir()
        numbers = {name: getattr(self, name) for name in ("place", "speed", "update", "tokens")}
        (folder / "state" / "numbers.json").write_text(json.dumps(numbers))
        (folder / "random.json").write_text(json.dumps(self.random.getstate()))

    def load(self, folder):
        vars(self).update(json.loads((folder / "state" / "numbers.json").read_text()))
        version, words, gauss = json.loads((folder / "random.json").read_text())
        self.random.setstate((version, tuple(words), gauss))

    def close(self):
        self.stop("close")


def build(config, *, seed, device):
    return Trainer(config, seed, device)
'''
"""A trainer that does everything right."""


def trainer(body: str) -> str:
    """Return an adapter whose trainer overrides something.

    Args:
        body: Methods of the class, not indented.
    """
    indented = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
    start, end = TRAINER.split("\n\ndef build")
    return f"{start}\n\nclass Bad(Trainer):\n{indented}\n\ndef build{end}".replace("return Trainer(", "return Bad(")


def targets(updates: int = UPDATES) -> int:
    """Return the targets of so many updates."""
    return 10 * updates + 2 * (updates // 3)


def make_runs(
    root: Path, sources: str | Mapping[str, str] = TRAINER, *, limits: documents.Limits = LIMITS, **changes: Any
) -> Bench:
    """Create a home with one recipe, whose curve has points after 10, 20 and 24 updates.

    Args:
        root: A folder to use.
        sources: The adapter module's text, or all files of the tree, of both sides.
        limits: The limits.
        changes: Fields of the convergence rules and of the recipe that differ from the usual.
    """
    values = {"updates": UPDATES, "evaluate_every": 10, "validation_targets": 7, "max_segments": 4, **changes}
    convergence = make_convergence(**{"targets": targets(values["updates"]), **values})
    passed = ("CUT_AT", "REACHED", "GO")
    reads = tuple(str(root.resolve() / f"a{number:05}-GO") for number in range(1, 10))
    return make_bench(
        root, sources, sources, limits=limits, convergence=convergence, pass_environment=passed, reads=reads
    )


def newest(bench: Bench, planned: documents.PlannedAttempt) -> documents.CheckpointName:
    """Return the name of the newest checkpoint that a segment wrote."""
    return bench.name_checkpoint(planned, max(bench.checkpoints(planned)))


def cut(
    bench: Bench, planned: documents.PlannedAttempt, place: str, number: signal.Signals, allocation: str = "a00001"
) -> int:
    """Run a segment, and send the job a signal in the middle of a step.

    Args:
        bench: The home.
        planned: The segment.
        place: The method and the updates behind it, such as ``evaluate:20``.
        number: The signal.
        allocation: The allocation's id.

    Returns:
        The job's exit code.
    """
    pipes = {name: bench.temporary.parent / f"{allocation}-{name}" for name in ("REACHED", "GO")}
    for pipe in pipes.values():
        os.mkfifo(pipe)
    bench.environment = {"CUT_AT": place, **{name: str(pipe) for name, pipe in pipes.items()}}
    job = bench.start(bench.plan(planned, allocation=allocation))
    with pipes["REACHED"].open("rb") as reached:
        assert reached.read() == b"x"
    job.send_signal(number)
    if number is not signal.SIGKILL:
        pipes["GO"].write_bytes(b"")
    output, _ = job.communicate(timeout=60)
    assert output == ""
    bench.environment = {}
    return job.returncode
