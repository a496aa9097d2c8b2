from __future__ import annotations

from typing import Any

import pytest

from tinylm.config import Config, read_config
from tinylm.schedule import learning_rate, mixing_share


def _config(**entries: Any) -> Config:
    return read_config(
        {"size": "tiny", "batch": 2, "context": 32, "lr": 0.01, "warmup": 10, "updates_total": 110, **entries}
    )


def test_warm_up_rises_linearly_to_the_peak() -> None:
    rates = [learning_rate(_config(), update) for update in range(10)]
    assert rates == pytest.approx([0.001 * step for step in range(1, 11)])


def test_the_cosine_is_half_way_down_in_its_middle_and_stays_at_a_tenth_after_its_end() -> None:
    config = _config()
    assert learning_rate(config, 10) == pytest.approx(0.01)
    assert learning_rate(config, 60) == pytest.approx(0.0055)
    assert learning_rate(config, 110) == pytest.approx(0.001)
    assert learning_rate(config, 10_000) == pytest.approx(0.001)


def test_without_warm_up_the_first_update_has_the_peak_rate() -> None:
    assert learning_rate(_config(warmup=0), 0) == pytest.approx(0.01)


def test_a_fixed_share_does_not_move_and_an_adaptive_one_follows_the_rate() -> None:
    fixed, adaptive = _config(gamma=0.7), _config(gamma="adaptive")
    for update in (0, 9, 60, 500):
        assert mixing_share(fixed, update) == 0.7
        assert mixing_share(adaptive, update) == pytest.approx(learning_rate(adaptive, update) / 0.01)
