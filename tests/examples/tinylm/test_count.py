"""`train.py --count`: what a recipe states of its targets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import train

SHORT = ["size=micro", "batch=1", "context=64", "updates_total=40", "warmup=3"]


def _count(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["train.py", "--count", "--data", str(folder), *SHORT, *arguments])
    return train.main()


def test_whole_windows_have_one_number_for_every_seed(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _count(monkeypatch, corpus, "whole_windows=true", "mode=packed", "workers=2") == 0
    assert capsys.readouterr().out.splitlines() == [
        "updates = 40",
        "targets = 5120  # with every seed",
        "validation_targets = 699",
    ]


def test_a_number_that_happens_to_fit_the_seeds_is_said_to(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _count(monkeypatch, corpus, "--updates", "2", "--seeds", "2,3") == 0
    assert "targets = 128  # with the seeds 2, 3; others may differ" in capsys.readouterr().out


def test_seeds_that_need_different_numbers_are_listed_and_end_with_1(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _count(monkeypatch, corpus, "--updates", "60", "--seeds", "1,2") == 1
    printed = capsys.readouterr()
    assert [line.split(":")[0] for line in printed.out.splitlines() if "seed" in line] == ["# seed 1", "# seed 2"]
    assert "\ntargets = " not in printed.out
    assert "depends on the seed" in printed.err
