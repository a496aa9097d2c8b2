"""Make the golden campaign: a small real one of every family, decided, closed, exported and packed.

The verifier of every later release must find it intact and derive the same verdict: it is made once for a version of
the formats, and never again. Its folder and interpreter should have names that say nothing of anybody.

    cd /srv/campaign-golden
    python REPOSITORY/tools/make_golden.py made --python $PWD/venv/bin/python --program $PWD/tool/bin/campaign --out OUT
"""

from __future__ import annotations

import argparse
import lzma
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.whole import write_whole_campaign

VERSION = 1
"""Of the formats, taken together."""


def make(folder: Path, python: str, program: str, out: Path) -> None:
    """Make the campaign below a folder and put archive and head line where they are kept."""

    def campaign(*arguments: str | Path) -> str:
        done = subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    os.environ["CAMPAIGN_REGISTRY"] = str(folder / "registry.jsonl")
    project, home, archive = folder / "project", folder / "home", folder / "campaign.tar"
    project.mkdir(parents=True)
    config = write_whole_campaign(project)
    config.write_text(
        config.read_text().replace(sys.executable, python).replace('name = "matching"', 'name = "golden"')
    )
    campaign("freeze", config, "--home", home)
    campaign("freeze", "--candidate", "--config", config, "--home", home)
    campaign("submit", "--home", home, "--cluster", "local", "--wait", "--yes")
    campaign("report", "--home", home)
    campaign("fallback", "--home", home)
    campaign("decide", "--home", home, "--default", "candidate", "--by", "the makers", "--reason", "it passes")
    campaign("report", "--home", home)
    line = campaign("seal", "--home", home)
    campaign("export", "--home", home, "--out", archive)
    out.mkdir(exist_ok=True)
    packed = lzma.compress(archive.read_bytes(), format=lzma.FORMAT_XZ, preset=9 | lzma.PRESET_EXTREME)
    (out / f"campaign-{VERSION}.tar.xz").write_bytes(packed)
    (out / f"campaign-{VERSION}.head").write_text(line)


def main() -> None:
    """Read the arguments and make it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", required=True, help="the sides' interpreter, with torch")
    parser.add_argument("--program", required=True, help="the installed command campaign")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    make(asked.folder.resolve(), asked.python, asked.program, asked.out.resolve())


if __name__ == "__main__":
    main()
