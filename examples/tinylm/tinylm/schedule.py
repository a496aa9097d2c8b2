"""Learning rate and mixing share as pure functions of the update's index (the first update is 0)."""

import math

from tinylm.config import Config

FLOOR = 0.1


def learning_rate(config: Config, update: int) -> float:
    """Linear warm-up to the peak, then a cosine to a tenth of it, then constant."""
    if update < config.warmup:
        return config.lr * (update + 1) / config.warmup
    span = max(config.updates_total - config.warmup, 1)
    done = min((update - config.warmup) / span, 1.0)
    return config.lr * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * done)))


def mixing_share(config: Config, update: int) -> float:
    """The share g of x <- (1 - g) x + g W x.

    Fixed, or adaptive: lr(update) / peak, so that the differences between workers do not vanish with the rate.
    """
    if isinstance(config.gamma, str):
        return learning_rate(config, update) / config.lr
    return config.gamma
