"""Trainers by the name of their backend."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

import torch

from tinylm.config import Config
from tinylm.determinism import make_deterministic
from tinylm.fast import Fast
from tinylm.native import Native
from tinylm.parallel import join
from tinylm.trainer import Backend, Trainer, check_precision

BACKENDS: dict[str, Callable[..., Backend]] = {Native.name: Native, Fast.name: Fast}


def make_trainer(
    backend: str,
    config: Config,
    *,
    folder: Path,
    seed: int,
    device: str,
    stream: TextIO = sys.stdout,
    environment: Mapping[str, str] | None = None,
) -> Trainer:
    """A trainer at update 0.

    Args:
        backend: "native" or "fast".
        config: what to train.
        folder: holds train.bin and val.bin.
        seed: decides the initial parameters and every batch.
        device: a torch device such as "cpu" or "cuda".
        stream: where log lines go.
        environment: names the other processes of the training, as torchrun does; without it there are none.
    """
    if config.deterministic:
        make_deterministic()  # before anything looks at the device
    place = torch.device(device)
    check_precision(config.precision, place)
    group = join(environment or {}, config, place)
    built = BACKENDS[backend](config, seed=seed, device=place)
    built.join(group)
    return Trainer(config, built, folder=folder, seed=seed, device=place, stream=stream, group=group)
