"""The golden campaigns, one for each version of the formats, unpacked."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

from campaign.verifier.archive import HOME, extract

FOLDER = Path(__file__).parents[1] / "golden"
VERSIONS = tuple(sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("campaign-*.tar.xz")))
"""Names without endings."""
LATEST = VERSIONS[-1]


def head_of(version: str) -> str:
    """Return the head line that closing printed."""
    return (FOLDER / f"{version}.head").read_text(encoding="utf-8").strip()


def archive_of(version: str, folder: Path) -> Path:
    """Write the archive as `campaign export` left it; return its path."""
    path = folder / f"{version}.tar"
    with lzma.open(FOLDER / f"{version}.tar.xz") as packed, path.open("wb") as stream:
        shutil.copyfileobj(packed, stream)
    return path


def home_of(version: str, folder: Path) -> Path:
    """Unpack a golden campaign below a folder; return its home."""
    return extract(archive_of(version, folder), folder / version) / HOME
