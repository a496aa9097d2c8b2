"""Losses of one process and two: what compares them passes over none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import measured_page

SCRIPT = Path(__file__).parents[2] / "examples" / "h200" / "parallel.sh"
PART = "update 0  validation 5.5497 nats/byte over 471542 bytes\nupdate 10  lr 1.000e-03  loss 3.1754\n"


def printed(one: str, two: str) -> str:
    return f"processes: 1\n{one}processes: 2\n{two}"


def exit_code(path: Path, text: str) -> int:
    """Run what the script runs over losses.txt."""
    program = SCRIPT.read_text(encoding="utf-8").partition("<<'CHECK'\n")[2].partition("\nCHECK\n")[0]
    assert program
    path.write_text(text, encoding="utf-8")
    return subprocess.run([sys.executable, "-c", program, path], check=False, capture_output=True).returncode


def test_equal_losses_and_those_a_thousandth_apart_agree(tmp_path: Path) -> None:
    assert exit_code(tmp_path / "losses.txt", printed(PART, PART)) == 0
    assert exit_code(tmp_path / "losses.txt", printed(PART, PART.replace("3.1754", "3.1763"))) == 0
    assert exit_code(tmp_path / "losses.txt", printed(PART, PART.replace("3.1754", "3.1766"))) == 4


@pytest.mark.parametrize("two", [PART, PART.replace("3.1754", "nan")])
def test_losses_that_are_no_numbers_do_not_agree(tmp_path: Path, two: str) -> None:
    text = printed(PART.replace("3.1754", "nan"), two)
    assert exit_code(tmp_path / "losses.txt", text) == 4
    with pytest.raises(ValueError, match="no finite number"):
        measured_page._losses(text)


@pytest.mark.parametrize("two", ["", PART.splitlines()[0] + "\n"])
def test_losses_that_are_missing_do_not_agree(tmp_path: Path, two: str) -> None:
    for text in (printed(PART, two), printed(two, PART), printed("", "")):
        assert exit_code(tmp_path / "losses.txt", text) != 0
        with pytest.raises(ValueError, match=r"argument 2 is|empty"):
            measured_page._losses(text)
