"""One pilot from the freeze to the home again, by the commands of the docs: tests/slow/test_detached.py does it all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from campaign.cli.main import main
from campaign.documents import Receipt
from campaign.paths import HomePaths
from tests.support.cli import PROGRAM
from tests.support.counting import Counting, write_counting_campaign
from tests.support.standin import BARE

PAGE = Path(__file__).parents[3] / "docs" / "detached.md"


def example() -> list[str]:
    """Return the lines of the page's example."""
    found = re.search(r"## Example.*?```\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def test_the_example_of_the_docs_makes_a_pilot_in_a_bundle_and_takes_it_in(tmp_path: Path) -> None:
    campaign = Counting(name="detached", works=range(300, 301), production=("w300",), repeats=1)
    config = write_counting_campaign(tmp_path / "user", campaign, Path(sys.executable))
    home = HomePaths(tmp_path / "home")
    assert main(["freeze", str(config), "--home", str(home.root)]) == 0
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "campaign").symlink_to(PROGRAM)
    (programs / "python").symlink_to(BARE)
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin", "CAMPAIGN_HOME": str(home.root)}
    printed = {}
    for line in example():
        done = subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        printed[line] = done.stdout
    made = next(text for line, text in printed.items() if "--max-minutes" in line)
    assert made.splitlines()[-1] == "1 of 1 attempts are made, 0 lost, 0 left"
    receipt = Receipt.read(home.attempt("baseline/pilot/w300", 1).receipt)
    assert (receipt.ending, receipt.calibration is not None) == ("completed", True)
