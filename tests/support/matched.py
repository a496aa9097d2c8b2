"""Homes for numerical cases: a small trainer in torch whose updates can be matched, and ways to change it."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acceptance.formats import TENSORS, Row, parse_table
from campaign import documents, files
from tests.support.harness import LIMITS, RULES, Bench, make_attempt, make_bench

NUMERICAL = documents.NumericalRules(updates=3, isolated_steps=2)
CONFIG = {"workers": 2, "tokens": 8}

TRAINER = '''"""Adam on a little two-layer regression, for several workers, written out tensor by tensor."""
import torch

LR, BETA1, BETA2, EPS = 0.01, 0.9, 0.999, 1e-8
SHAPES = {"first.weight": (6, 4), "first.bias": (6,), "scale": (), "empty": (0, 3), "second.weight": (1, 6)}


class Trainer:
    def __init__(self, config, seed, device):
        torch.set_num_threads(1)
        self.config, self.seed = config, seed
        self.workers = config["workers"]
        draw = torch.Generator().manual_seed(seed)
        start = {name: torch.randn(shape, generator=draw) * 0.3 for name, shape in SHAPES.items()}
        self.p = [{name: value.clone().requires_grad_() for name, value in start.items()} for _ in range(self.workers)]
        zero = lambda: [{name: torch.zeros(shape) for name, shape in SHAPES.items()} for _ in range(self.workers)]
        self.g, self.m, self.v = zero(), zero(), zero()
        self.step = 0

    # production

    def batch(self, step):
        draw = torch.Generator().manual_seed(1000 * self.seed + step)
        x = torch.randn(self.workers, 8, 4, generator=draw)
        return {"x": x, "y": x.sum(-1).sin(), "kept": torch.ones(8, dtype=torch.bool)}

    def updates(self, n):
        for _ in range(n):
            self.losses = self.update_on(self.batch(self.step))
        return n, n, 0, n * self.config["tokens"]

    def sync(self):
        pass

    def loss(self):
        return self.losses[0]

    def engaged(self):
        return {"path": "written out", "count": self.step}

    # matched updates

    def forward(self, worker, batch):
        p = self.p[worker]
        hidden = torch.tanh(batch["x"][worker] @ p["first.weight"].T + p["first.bias"])
        out = p["scale"] * (hidden @ p["second.weight"].T).squeeze(-1)
        return ((out - batch["y"][worker])[batch["kept"]] ** 2).mean()

    def update_on(self, batch):
        self.step += 1
        losses = []
        for worker in range(self.workers):
            loss = self.forward(worker, batch)
            loss.backward()
            for name, p in self.p[worker].items():
                self.g[worker][name].copy_(p.grad if p.grad is not None else torch.zeros_like(p))
                p.grad = None
            self.adam(self.p[worker], self.g[worker], self.m[worker], self.v[worker], self.step)
            losses.append(float(loss))
        return losses

    @torch.no_grad()
    def adam(self, p, g, m, v, step):
        for name in p:
            m[name].mul_(BETA1).add_(g[name], alpha=1 - BETA1)
            v[name].mul_(BETA2).addcmul_(g[name], g[name], value=1 - BETA2)
            denominator = (v[name] / (1 - BETA2 ** step)).sqrt_().add_(EPS)
            p[name].sub_(LR * (m[name] / (1 - BETA1 ** step)) / denominator)

    def state(self, quantity):
        held = {"parameters": self.p, "gradients": self.g, "exp_avg": self.m, "exp_avg_sq": self.v}[quantity]
        for worker in range(self.workers):
            for name, tensor in held[worker].items():
                yield worker, name, tensor
            yield worker, "head", held[worker]["first.weight"]

    @torch.no_grad()
    def load_state(self, tensors, step):
        for quantity in ("parameters", "exp_avg", "exp_avg_sq"):
            for worker, name, mine in self.state(quantity):
                given = tensors.get((quantity, worker, name))
                mine.zero_() if given is None else mine.copy_(given)
        self.step = step

    # isolated operators

    def optimizer_check(self, parameters, gradients, steps):
        p = {key: value.clone() for key, value in parameters.items()}
        m = {key: torch.zeros_like(value) for key, value in p.items()}
        v = {key: torch.zeros_like(value) for key, value in p.items()}
        for step in range(steps):
            self.adam(p, gradients[step], m, v, step + 1)
        for quantity, held in (("parameters", p), ("exp_avg", m), ("exp_avg_sq", v)):
            for (worker, name), tensor in held.items():
                yield quantity, worker, name, tensor

    def mix(self, parameters, round):
        for (worker, name), tensor in parameters.items():
            others = [value for (_, other), value in parameters.items() if other == name]
            yield worker, name, torch.stack(others).mean(0)


def build(config, *, seed, device):
    return Trainer(config, seed, device)
'''
"""Does everything right, and the same numbers every time."""


def changed(body: str, *, head: str = "") -> str:
    """Return the trainer with some methods of its own.

    Args:
        body: Methods of the class, not indented.
        head: Code of the module.
    """
    indented = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
    start, end = TRAINER.split("\n\ndef build")
    return f"{start}\n\n{head}\n\nclass Changed(Trainer):\n{indented}    pass\n\n\ndef build{end}".replace(
        "return Trainer(config", "return Changed(config"
    )


PILOT = make_attempt("pilot", ("baseline",))
CANDIDATE_PILOT = make_attempt("pilot", ("candidate",))


def make_matched(
    root: Path,
    baseline: str | Mapping[str, str] = TRAINER,
    candidate: str | Mapping[str, str] = TRAINER,
    **changes: Any,
) -> Bench:
    """Create a home whose protocol declares the numerical family."""
    # torch alone needs more time to be imported than the processes of other tests take altogether.
    limits = LIMITS.replace(import_s=120, startup_s=60, stall_s=60, log_bytes=1 << 16)
    given = {"numerical": NUMERICAL, "config": CONFIG, "limits": limits, "rules": RULES, **changes}
    return make_bench(root, baseline, candidate, **given)


def record_inputs(bench: Bench, *, allocation: str = "a00001") -> str:
    """Run the baseline's pilot; return the digest of the canonical inputs."""
    bench.run(bench.plan(PILOT, allocation=allocation))
    receipt = bench.receipt(PILOT)
    assert receipt.ending == "completed", receipt.reason
    return files.sha256_file(bench.attempt(PILOT).table("inputs.json"))


def make_case(kind: documents.SlotKind, inputs_sha256: str, *, number: int = 1) -> documents.PlannedAttempt:
    """Return a planned case."""
    other: documents.SideName = "candidate" if kind == "case" else "baseline_again"
    return make_attempt(kind, ("baseline", other), number=number, inputs_sha256=inputs_sha256)


def tensor_rows(bench: Bench, planned: documents.PlannedAttempt) -> tuple[Row, ...]:
    """Parse the table of a case's tensors."""
    data = gzip.decompress(bench.attempt(planned).table("tensors.csv.gz").read_bytes())
    rows, faults = parse_table(TENSORS, data, "tensors.csv")
    assert not faults
    return rows
