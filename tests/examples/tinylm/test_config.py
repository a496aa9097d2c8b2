from __future__ import annotations

from typing import Any

import pytest

from tinylm.config import ConfigError, read_config
from tinylm.sizes import SIZES

GOOD: dict[str, Any] = {"size": "tiny", "batch": 2, "context": 32}


def test_defaults_fill_what_is_not_given() -> None:
    config = read_config(GOOD)
    assert (config.mode, config.workers, config.vocab, config.precision) == ("sync", 1, 256, "fp32")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", "huge"),
        ("mode", "async"),
        ("batch", 0),
        ("batch", "4"),
        ("batch", True),
        ("batch", 2.0),
        ("context", 1),
        ("vocab", 255),
        ("clip", -1),
        ("clip", "off"),
        ("lr", 0),
        ("lr", float("nan")),
        ("lr", float("inf")),
        ("gamma", 0),
        ("gamma", 1.5),
        ("gamma", "adapted"),
        ("consensus", "cta"),
        ("precision", "fp8"),
        ("loss_scale", 3),
        ("loss_scale", 0.5),
        ("loss_scale", 2.0**25),
        ("loss_scale", -2),
        ("scale_growth", 0),
        ("targets", "prose"),
        ("tied", 1),
        ("whole_windows", 1),
        ("deterministic", "yes"),
        ("deterministic", 1),
        ("workers", 4),
        ("warmup", 2000),
        ("unheard_of", 1),
    ],
)
def test_a_bad_entry_is_refused_by_the_name_of_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"config key '{key}'") as refused:
        read_config({**GOOD, key: value})
    assert refused.value.key == key


@pytest.mark.parametrize("key", GOOD)
def test_a_missing_entry_is_refused_by_the_name_of_its_key(key: str) -> None:
    with pytest.raises(ConfigError, match=f"config key '{key}': missing"):
        read_config({name: value for name, value in GOOD.items() if name != key})


def test_a_misspelt_key_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'context'"):
        read_config({**GOOD, "contxt": 32})


def test_packed_mode_with_one_worker_is_refused() -> None:
    with pytest.raises(ConfigError, match="config key 'workers'"):
        read_config({**GOOD, "mode": "packed"})


def test_heads_divide_the_width_of_every_size() -> None:
    assert all(size.width % size.heads == 0 for size in SIZES.values())
