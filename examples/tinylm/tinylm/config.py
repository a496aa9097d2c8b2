"""The flat training configuration, checked key by key."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from tinylm.sizes import SIZES, Size

ADAPTIVE = "adaptive"
ADAPT_THEN_COMBINE = "atc"
ADAPT_WHILE_COMBINING = "awc"
LARGEST_SCALE = 2.0**24


class ConfigError(ValueError):
    """A configuration entry that cannot be used; the message names its key."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"config key {key!r}: {problem}")
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One training configuration.

    Attributes:
        size: a name of sizes.py.
        mode: "sync" (one model) or "packed" (several models on a ring).
        workers: models trained side by side; 1 in sync mode.
        batch: sequences of a microbatch, per worker.
        context: positions of a sequence.
        clip: largest L2 norm of a worker's gradient; 0 switches clipping off.
        accumulation: microbatches of an update, per worker.
        epoch: microbatches of an epoch, per worker; 0 for the whole corpus. When accumulation does not divide it, the
            last update of an epoch has fewer microbatches.
        precision: "fp32", or "bf16" or "fp16" (autocast over fp32 parameters).
        loss_scale: what losses are multiplied by at first, a power of two; 0 switches loss scaling off.
        scale_growth: updates in a row without overflow that double the scale.
        lr: peak learning rate.
        warmup: updates of linear warm-up.
        updates_total: updates after which the cosine ends; the rate then stays at a tenth of its peak.
        weight_decay: decoupled decay of the matrices in attention and MLP.
        consensus: "atc", adapt then combine: workers average what their steps have made; or "awc", adapt while
            combining: they average as gradients are made, and step from the average.
        gamma: share of the ring average in a combination, in (0, 1], or "adaptive": lr(update) / lr.
        targets: "all" bytes are predicted, or those of "speech" alone: no headings, speakers, stage directions.
        whole_windows: whether the shorter window at the end of the corpus is left out, so that every batch is full.
        tied: whether the output head shares the embedding.
        vocab: size of the vocabulary; bytes need 256.
        log_every: updates between two log lines.
        deterministic: whether the process uses deterministic algorithms alone.
    """

    size: str
    mode: str = "sync"
    workers: int = 1
    batch: int
    context: int
    clip: float = 1.0
    accumulation: int = 1
    epoch: int = 0
    precision: str = "fp32"
    loss_scale: float = 0.0
    scale_growth: int = 100
    lr: float = 2e-3
    warmup: int = 20
    updates_total: int = 1000
    weight_decay: float = 0.1
    consensus: str = ADAPT_THEN_COMBINE
    gamma: float | str = 1.0
    targets: str = "all"
    whole_windows: bool = False
    tied: bool = True
    vocab: int = 256
    log_every: int = 50
    deterministic: bool = False

    @property
    def shape(self) -> Size:
        """Width, layers and heads."""
        return SIZES[self.size]


_CHOICES = {
    "size": tuple(SIZES),
    "mode": ("sync", "packed"),
    "precision": ("fp32", "bf16", "fp16"),
    "consensus": (ADAPT_THEN_COMBINE, ADAPT_WHILE_COMBINING),
    "targets": ("all", "speech"),
}
_FLAGS = ("whole_windows", "tied", "deterministic")
_SMALLEST_COUNT = {
    "workers": 1,
    "batch": 1,
    "context": 2,
    "accumulation": 1,
    "epoch": 0,
    "scale_growth": 1,
    "warmup": 0,
    "updates_total": 1,
    "vocab": 256,
    "log_every": 1,
}


def read_config(entries: Mapping[str, Any]) -> Config:
    """Check a mapping and make a Config of it.

    Raises:
        ConfigError: naming the first key that is unknown, missing, or holds a value that cannot be used.
    """
    known: dict[str, Field[Any]] = {field.name: field for field in fields(Config)}
    for key in entries:
        if key not in known:
            raise ConfigError(key, f"unknown{_suggestion(key, known)}")
    for key, field in known.items():
        if field.default is MISSING and key not in entries:
            raise ConfigError(key, "missing")
    config = Config(**{key: _checked(key, value) for key, value in entries.items()})
    _check_together(config)
    return config


def _suggestion(key: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known keys are {', '.join(known)}"


def _checked(key: str, value: object) -> Any:
    if key in _CHOICES:
        return _checked_choice(key, value)
    if key in _SMALLEST_COUNT:
        return _checked_count(key, value)
    if key in _FLAGS:
        return _checked_flag(key, value)
    if key == "gamma" and value == ADAPTIVE:
        return value
    return _checked_number(key, value)


def _checked_choice(key: str, value: object) -> str:
    if not isinstance(value, str) or value not in _CHOICES[key]:
        raise ConfigError(key, f"expected one of {', '.join(_CHOICES[key])}, got {value!r}")
    return value


def _checked_count(key: str, value: object) -> int:
    smallest = _SMALLEST_COUNT[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
        raise ConfigError(key, f"expected a whole number of at least {smallest}, got {value!r}")
    return value


def _checked_flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(key, f"expected true or false, got {value!r}")
    return value


def _checked_number(key: str, value: object) -> float:
    hint = f' or "{ADAPTIVE}"' if key == "gamma" else ""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(key, f"expected a finite number{hint}, got {value!r}")
    if key == "gamma" and not 0 < value <= 1:
        raise ConfigError(key, f"expected a number above 0 and at most 1{hint}, got {value!r}")
    if key == "loss_scale" and value and (math.frexp(value)[0] != 0.5 or not 1 <= value <= LARGEST_SCALE):
        raise ConfigError(key, f"expected 0 or a power of two from 1 to {LARGEST_SCALE:g}, got {value!r}")
    if key == "lr" and not value > 0:
        raise ConfigError(key, f"expected a number above 0, got {value!r}")
    if not value >= 0:
        raise ConfigError(key, f"expected a number of at least 0, got {value!r}")
    return float(value)


def _check_together(config: Config) -> None:
    if config.mode == "sync" and config.workers != 1:
        raise ConfigError("workers", f"sync mode trains one model, got {config.workers}")
    if config.mode == "packed" and config.workers < 2:
        raise ConfigError("workers", f"packed mode needs at least two models, got {config.workers}")
    if config.warmup > config.updates_total:
        raise ConfigError("warmup", f"{config.warmup} updates of warm-up exceed updates_total {config.updates_total}")
