"""A training on disk: everything that its next update depends on, under the names of the unstacked model.

One file, written by torch.save and read with weights_only, so that it can hold tensors, numbers and text, but no code.
It fits any backend, and only a training of the same configuration, seed and corpus.
"""

import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tinylm.config import Config

FORMAT = "tinylm-checkpoint/1"
FILE = "checkpoint.pt"
FREE = frozenset({"log_every", "deterministic"})
"""Entries of the configuration that may differ between saving and loading: they change neither state nor data."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded into this training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What training a checkpoint belongs to.

    Attributes:
        config: the whole configuration.
        seed: decides every batch that is still to come.
        corpus: sha256 of the training text.
    """

    config: dict[str, Any]
    seed: int
    corpus: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a training stands. Gradients are no part of it: every update begins without any.

    Attributes:
        tensors: {(quantity, worker, name): fp32 tensor on the CPU}, parameters and moments, a shared head left out.
        update: the number of updates attempted, and so the loader's position and the schedule's.
        optimizer_step: the number of updates that the optimizers made.
        targets: predicted so far.
        skipped: updates that loss scaling skipped.
        loss_scale: what losses are multiplied by.
        streak: updates in a row without overflow.
        losses: nats per target of each worker in the last update [workers]; None before the first one.
        random: states of torch's generators, by kind of device.
    """

    tensors: dict[tuple[str, int, str], Tensor]
    update: int
    optimizer_step: int
    targets: int
    skipped: int
    loss_scale: float
    streak: int
    losses: Tensor | None
    random: dict[str, Tensor]


def origin_of(config: Config, seed: int, corpus: str) -> Origin:
    """The origin of a training's checkpoints."""
    return Origin(config=asdict(config), seed=seed, corpus=corpus)


def write(folder: Path, origin: Origin, state: State, *, backend: str) -> None:
    """Write a checkpoint into a folder, in one step; `backend` is for people."""
    # asdict would copy the tensors once more.
    plain = {field.name: getattr(state, field.name) for field in fields(state)}
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{FILE}.tmp"
    torch.save({"format": FORMAT, "backend": backend, "origin": asdict(origin), "state": plain}, unfinished)
    unfinished.replace(folder / FILE)


def read(folder: Path, origin: Origin) -> State:
    """Read a checkpoint of a training with the same origin.

    Raises:
        CheckpointError: if it is not there, damaged, or of another training; the message names what differs.
    """
    path = folder / FILE
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file") from error
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path}: not a readable checkpoint: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not a checkpoint of the format {FORMAT}")
    _refuse_another(path, content["origin"], origin)
    return State(**content["state"])


def _refuse_another(path: Path, there: Mapping[str, Any], here: Origin) -> None:
    config = there["config"]
    for key in sorted(set(config) | set(here.config)):
        theirs, ours = (entries.get(key) for entries in (config, here.config))
        if key not in FREE and theirs != ours:
            raise CheckpointError(f"{path}: config key {key!r} is {theirs!r} there and {ours!r} in this training")
    if there["seed"] != here.seed:
        raise CheckpointError(f"{path}: the seed is {there['seed']} there and {here.seed} in this training")
    if there["corpus"] != here.corpus:
        raise CheckpointError(f"{path}: it was trained on another text")
