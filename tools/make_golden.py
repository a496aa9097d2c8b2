"""Make the golden campaign: a small real one of every family, cancelled once, amended, decided, closed and exported.

The verifier of every later release must find it intact and derive the same verdict: it is made once for a version of
the formats, and never again. Paths get into a campaign; it is therefore made in a folder of a neutral name, with
interpreters of its own there, which are kept for the next time.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from campaign.tampering.copies import remove_home
from tests.support.whole import write_whole_campaign

ROOT = Path(__file__).resolve().parents[1]
VERSION = 1
"""Of the formats, taken together."""
OUT = ROOT / "tests" / "golden"
BY = "the makers of the golden campaign"
REPEATS = 3
REFUSED = 4


def install(folder: Path, *packages: str) -> Path:
    """Make an environment, if it is not there, and install packages; return its folder of programs."""
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    programs = folder / "bin"
    constraint = f"--constraint={ROOT / 'requirements.lock'}"
    subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", constraint, *packages], check=True)
    return programs


def configure(project: Path, python: Path) -> Path:
    """Write sources and configuration, with the baseline measured first, and alone; return the configuration."""
    project.mkdir(parents=True)
    config = write_whole_campaign(project, repeats=REPEATS)
    text = config.read_text()
    for old, new in (
        (sys.executable, str(python)),
        ('name = "matching"', 'name = "golden"'),
        ("baseline_first = false", "baseline_first = true"),
        ("solo = false", "solo = true"),
    ):
        if old not in text:
            raise ValueError(f"campaign.toml lacks {old!r}")
        text = text.replace(old, new)
    config.write_text(text)
    return config


def make(folder: Path, program: Path, config: Path) -> tuple[bytes, str]:
    """Run the whole campaign below a folder; return archive and head line."""
    os.environ["CAMPAIGN_REGISTRY"] = str(folder / "registry.jsonl")
    home, archive = folder / "home", folder / "campaign.tar"

    def campaign(*arguments: str | Path, code: int = 0) -> str:
        done = subprocess.run([program, *arguments, "--home", home], check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode != code:
            raise RuntimeError(f"campaign {' '.join(map(str, arguments))}: exit code {done.returncode}, not {code}")
        return done.stdout

    submit = ("submit", "--cluster", "local", "--yes")
    campaign("freeze", config)
    campaign(*submit)
    campaign("cancel", "--yes", "--reason", "the machine was needed")
    campaign(*submit, "--wait")
    campaign("freeze", "--candidate", "--config", config)
    campaign(*submit, "--wait")
    campaign("decide", "--retire", "baseline", "--by", BY, "--reason", "too early", code=REFUSED)
    campaign("report")
    (candidate,) = (path.name for path in (home / "evaluations").iterdir())
    amendment = {
        "--what": "procedure",
        "--changed": "another program ran beside it",
        "--void": f"{candidate}/pair/other/r1",
        "--keep-reason": "it had ended before the next one began",
        "--by": BY,
        "--reason": "to have an amendment",
    }
    campaign("amend", "--yes", *(word for pair in amendment.items() for word in pair))
    campaign(*submit, "--wait")
    campaign("report")
    campaign("fallback")
    campaign("decide", "--default", "candidate", "--by", BY, "--reason", "every gate passes")
    campaign("decide", "--retire", "baseline", "--by", BY, "--reason", "nobody uses it")
    campaign("report")
    line = campaign("seal")
    campaign("export", "--out", archive)
    return archive.read_bytes(), line


def said(archive: bytes) -> Iterator[str]:
    """Yield what an archive says of whoever made it."""
    names = {str(ROOT), str(Path.home()), json.dumps(str(ROOT))[1:-1]}
    yield from (name for name in sorted(names) if name.encode() in archive)


def main() -> None:
    """Read the arguments, make it, and put archive and head line where they are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where it is made: its name stands in the campaign")
    folder = parser.parse_args().folder.resolve()
    torch = f"torch=={importlib.metadata.version('torch')}"
    sides = install(folder / "venv", torch, "numpy")
    tool = install(folder / "tool", "--force-reinstall", "--no-deps", str(ROOT))
    install(folder / "tool", str(ROOT))
    made = folder / "made"
    if made.exists():
        remove_home(made)
    archive, line = make(made, tool / "campaign", configure(made / "project", sides / "python"))
    if names := list(said(archive)):
        raise ValueError(f"it names {', '.join(names)}")
    OUT.mkdir(exist_ok=True)
    packed = lzma.compress(archive, format=lzma.FORMAT_XZ, preset=9 | lzma.PRESET_EXTREME)
    (OUT / f"campaign-{VERSION}.tar.xz").write_bytes(packed)
    (OUT / f"campaign-{VERSION}.head").write_text(line)
    sys.stdout.write(f"{line}{len(packed)} bytes\n")


if __name__ == "__main__":
    main()
