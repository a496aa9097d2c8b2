"""One pilot from the freeze to the home again, by the real programs: tests/slow/test_detached.py does all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from campaign.cli.main import main
from campaign.documents import Receipt
from campaign.paths import BundlePaths, HomePaths
from tests.support.counting import Counting, write_counting_campaign
from tests.support.standin import BARE


def test_a_pilot_is_made_in_a_bundle_and_taken_in(tmp_path: Path) -> None:
    campaign = Counting(name="detached", works=range(300, 301), production=("w300",), repeats=1)
    config = write_counting_campaign(tmp_path / "user", campaign, Path(sys.executable))
    home, out = HomePaths(tmp_path / "home"), BundlePaths(tmp_path / "out")
    assert main(["freeze", str(config), "--home", str(home.root)]) == 0
    assert main(["bundle", "write", str(out.root), "--home", str(home.root)]) == 0
    command = [BARE, "-I", str(out.program), "--max-minutes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert main(["bundle", "ingest", str(out.root), "--home", str(home.root)]) == 0
    receipt = Receipt.read(home.attempt("baseline/pilot/w300", 1).receipt)
    assert (receipt.ending, receipt.calibration is not None) == ("completed", True)
    assert main(["collect", "--home", str(home.root)]) == 0
    assert main(["bundle", "write", str(tmp_path / "more"), "--home", str(home.root)]) == 0
    assert not (tmp_path / "more").exists()  # nothing is missing before there is a candidate
