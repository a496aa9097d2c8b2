"""Train a model and print its loss.

Configuration entries are given as key=value, for example:

    python train.py --backend fast --data corpus size=mini batch=8 context=128 updates_total=400
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from tinylm.build import BACKENDS, make_trainer
from tinylm.config import Config, ConfigError, read_config
from tinylm.trainer import Trainer

DEFAULTS: dict[str, Any] = {"size": "mini", "batch": 8, "context": 128, "updates_total": 400}


def read_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entries", nargs="*", metavar="key=value", help="configuration entries (README.md lists them)")
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="native")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("TINYLM_DATA", "corpus")))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: torch's choice)")
    parser.add_argument("--evaluate-every", type=int, default=100, help="updates between validations")
    return parser.parse_args()


def read_entries(entries: list[str]) -> Config:
    """The defaults with the given entries over them; values are JSON, anything else is text."""
    config = dict(DEFAULTS)
    for entry in entries:
        key, equals, text = entry.partition("=")
        if not equals:
            raise ConfigError(key, "give it as key=value")
        try:
            config[key] = json.loads(text)
        except json.JSONDecodeError:
            config[key] = text
    return read_config(config)


def train(trainer: Trainer, evaluate_every: int) -> None:
    """Train to updates_total, validating on the way; the throughput printed is that of training alone."""
    total = trainer.config.updates_total
    report_validation(trainer)
    while trainer.update < total:
        start = time.perf_counter()
        counts = trainer.train(min(evaluate_every, total - trainer.update))
        trainer.sync()
        print(f"{counts.targets / (time.perf_counter() - start):.0f} targets/s")
        report_validation(trainer)


def report_validation(trainer: Trainer) -> None:
    """Print the loss over the whole validation split."""
    nats, targets = trainer.evaluate()
    print(f"update {trainer.update}  validation {nats / targets:.4f} nats/byte over {targets} bytes", flush=True)


def main() -> int:
    """Parse, build, train."""
    arguments = read_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    try:
        config = read_entries(arguments.entries)
        trainer = make_trainer(
            arguments.backend, config, folder=arguments.data, seed=arguments.seed, device=arguments.device
        )
    except (ConfigError, OSError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 2
    train(trainer, arguments.evaluate_every)
    return 0


if __name__ == "__main__":
    sys.exit(main())
