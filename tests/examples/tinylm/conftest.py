"""The example as its own repository: its folder on the import path, a small corpus, trainers without log output."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "tinylm"
sys.path.insert(0, str(EXAMPLE))

torch = pytest.importorskip("torch", reason="the example needs torch: pip install '.[example]'")

from tests.support.tinylm_faults import FOLDER  # noqa: E402  # after the check for torch
from tinylm import build  # noqa: E402  # after the path is set
from tinylm.build import make_trainer  # noqa: E402  # after the path is set
from tinylm.config import read_config  # noqa: E402  # as above
from tinylm.trainer import Trainer  # noqa: E402  # as above

BASE: dict[str, Any] = {"size": "micro", "batch": 3, "context": 16, "warmup": 3, "updates_total": 20}

MakeTrainer = Callable[..., Trainer]
LoadVariants = Callable[[str], Any]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def load_variants(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadVariants]:
    """Import a module of faulty backends by name, for the time of a test."""
    own = {path.stem for path in FOLDER.glob("*.py")}
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(build, "BACKENDS", dict(build.BACKENDS))
    yield importlib.import_module
    for name in own:
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4,001 and 700 bytes that no pattern repeats."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = torch.Generator().manual_seed(5)
    for name, size in (("train.bin", 4001), ("val.bin", 700)):
        content = torch.randint(32, 127, (size,), generator=generator, dtype=torch.uint8)
        (folder / name).write_bytes(bytes(content.tolist()))
    return folder


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A play of 20,000 bytes and one of 1,000, with speakers, directions and lines of any length."""
    folder = tmp_path_factory.mktemp("script")
    generator = torch.Generator().manual_seed(6)

    def words(least: int, most: int) -> str:
        length = int(torch.randint(least, most, (), generator=generator))
        return bytes(torch.randint(97, 123, (length,), generator=generator).tolist()).decode()

    def scene() -> str:
        lines = "  \n".join(words(3, 60) for _ in range(int(torch.randint(1, 9, (), generator=generator))))
        return f"_{words(4, 40)}_\n\n**{words(3, 20).upper()}**  \n{lines}\n\n"

    for name, size in (("train.bin", 20_000), ("val.bin", 1_000)):
        text = "# A PLAY\n\n## ACT I\n\n"
        while len(text) < size:
            text += scene()
        (folder / name).write_bytes(text[:size].encode())
    return folder


@pytest.fixture
def make(corpus: Path) -> MakeTrainer:
    """A trainer of one backend: make("native", workers=4, mode="packed")."""

    def build(backend: str, *, seed: int = 1, folder: Path = corpus, **entries: Any) -> Trainer:
        config = read_config({**BASE, **entries})
        return make_trainer(backend, config, folder=folder, seed=seed, device="cpu", stream=io.StringIO())

    return build
