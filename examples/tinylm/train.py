"""Train a model and print its loss, or count what a training predicts.

Configuration entries are given as key=value, for example:

    python train.py --backend fast --data corpus size=mini batch=8 context=128 updates_total=400

With --count nothing is trained: the numbers of targets are printed as a recipe of a convergence campaign states them.

Several processes that torchrun starts train together, in sync mode; the first one prints.
"""

import argparse
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from tinylm import data
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
    parser.add_argument("--count", action="store_true", help="print the targets of a training, and train nothing")
    parser.add_argument("--updates", type=int, default=0, help="updates to count (default: updates_total)")
    parser.add_argument("--seeds", default="45,46,47", help="seeds to count for (default: %(default)s)")
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
        start, before = time.perf_counter(), trainer.targets
        trainer.train(min(evaluate_every, total - trainer.update))
        trainer.sync()
        print_once(trainer, f"{(trainer.targets - before) / (time.perf_counter() - start):.0f} targets/s")
        report_validation(trainer)


def count_main(config: Config, arguments: argparse.Namespace) -> int:
    """Count instead of training; 1 if the seeds need different numbers."""
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    if count(config, arguments.data, arguments.updates or config.updates_total, seeds):
        return 0
    print(
        "train: the number of targets depends on the seed, and a recipe states one for all of them; "
        "set whole_windows=true and targets=all, or choose another number of updates",
        file=sys.stderr,
    )
    return 1


def report_validation(trainer: Trainer) -> None:
    """Print the loss over the whole validation split."""
    nats, targets = trainer.evaluate()
    print_once(trainer, f"update {trainer.update}  validation {nats / targets:.4f} nats/byte over {targets} bytes")


def print_once(trainer: Trainer, line: str) -> None:
    """Print what all processes would say alike."""
    if trainer.group.rank == 0:
        print(line, flush=True)


def own_device(device: str) -> str:
    """The device of this process: of several on a node each has the GPU of its number."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if device == "cuda" and "LOCAL_RANK" in os.environ else device


def count(config: Config, folder: Path, num_updates: int, seeds: list[int]) -> bool:
    """Print the targets of so many updates and of the validation split; whether one number fits all the seeds."""
    corpus = data.read_tokens(folder / data.TRAIN_FILE)
    loaders = {seed: data.Loader(config, corpus, seed=seed, device=torch.device("cpu")) for seed in seeds}
    counts = {seed: loader.count_targets(num_updates) for seed, loader in loaders.items()}
    validation = data.num_validation_targets(data.read_tokens(folder / data.VALIDATION_FILE), config.targets)
    numbers = sorted(set(counts.values()))
    print(f"updates = {num_updates}")
    if len(numbers) == 1:
        fixed = all(loader.targets_are_fixed for loader in loaders.values())
        scope = "with every seed" if fixed else f"with the seeds {', '.join(map(str, seeds))}; others may differ"
        print(f"targets = {numbers[0]}  # {scope}")
    else:
        print("".join(f"# seed {seed}: {number} targets\n" for seed, number in counts.items()), end="")
    print(f"validation_targets = {validation}")
    return len(numbers) == 1


def main() -> int:
    """Parse, build, train."""
    arguments = read_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    try:
        config = read_entries(arguments.entries)
        if arguments.count:
            return count_main(config, arguments)
        trainer = make_trainer(
            arguments.backend,
            config,
            folder=arguments.data,
            seed=arguments.seed,
            device=own_device(arguments.device),
            # What the other processes would say is the same.
            stream=io.StringIO() if int(os.environ.get("RANK", "0")) else sys.stdout,
            environment=os.environ,
        )
    except (ConfigError, OSError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 2
    train(trainer, arguments.evaluate_every)
    trainer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
