from __future__ import annotations

from pathlib import Path

import pytest

from campaign.judging.evaluation import AcceptanceError, Run, run_program, run_program_often

MAIN = b"""\
import sys
from acceptance import memory
memory.seen.append(sys.argv[1])
sys.stdout.write(",".join(memory.seen))
sys.stderr.buffer.write(b"\\xff said\\n")
if sys.argv[1] == "text":
    sys.exit("a reason")
if sys.argv[1] == "bug":
    raise ValueError("a bug")
if sys.argv[1] != "end":
    sys.exit(int(sys.argv[1]))
"""
PROGRAM = {"__init__.py": b"", "memory.py": b"seen = []\n", "__main__.py": MAIN}


def run_all(folder: Path, *words: str, program: dict[str, bytes] | None = None) -> tuple[Run, ...]:
    runs = [(word,) for word in words]
    return run_program_often(program or PROGRAM, runs, root=folder, environment={})


def test_each_run_has_new_modules_its_own_output_and_its_own_end(tmp_path: Path) -> None:
    first, second, third = run_all(tmp_path, "3", "end", "5")
    assert [run.exit_status for run in (first, second, third)] == [3, 0, 5]
    assert [run.stdout for run in (first, second, third)] == [b"3", b"end", b"5"]
    assert {run.stderr for run in (first, second, third)} == {b"\xff said\n"}


def test_one_run_that_fails_leaves_the_next_one_alone(tmp_path: Path) -> None:
    text, bug, after = run_all(tmp_path, "text", "bug", "0")
    assert (text.exit_status, text.stderr) == (1, b"\xff said\na reason\n")
    assert bug.exit_status == 1
    assert bug.stderr.endswith(b"ValueError: a bug\n")
    assert f'"{tmp_path}/__main__.py", line 9'.encode() in bug.stderr
    assert (after.exit_status, after.stdout) == (0, b"0")


def test_one_of_several_runs_is_what_a_run_alone_would_have_been(tmp_path: Path) -> None:
    for word in ("4", "text", "end"):
        alone = run_program(PROGRAM, (word,), root=tmp_path, environment={})
        (_, one) = run_all(tmp_path, "0", word)
        assert (one.exit_status, one.stdout, one.stderr) == (alone.returncode, alone.stdout, alone.stderr)


@pytest.mark.parametrize("main", [b"import os\nos._exit(0)\n", b"import os\nos.write(1, b'forged')\n"])
def test_a_program_that_ends_the_child_or_answers_in_its_place_gives_no_answer(tmp_path: Path, main: bytes) -> None:
    with pytest.raises(AcceptanceError, match="ended with 0: no verdict"):
        run_all(tmp_path, "1", program={**PROGRAM, "__main__.py": main})
