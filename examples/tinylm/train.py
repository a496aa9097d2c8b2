"""Train a model and print its loss, or count what a training predicts.

Configuration entries are given as key=value, for example:

    python train.py --backend fast --data corpus size=mini batch=8 context=128 updates_total=400

With --record run.json, where time and memory went is recorded; `python monitor.py summarize run.json` adds it up. With
--save a checkpoint is written after each validation, and --resume goes on from one.

With --count nothing is trained: the numbers of targets are printed as a recipe of a convergence campaign states them.

Several processes that torchrun starts train together, in sync mode; the first one prints.
"""

import argparse
import dataclasses
import hashlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import monitor
from tinylm import data
from tinylm.build import BACKENDS, make_trainer
from tinylm.checkpoint import CheckpointError
from tinylm.config import Config, ConfigError, read_config
from tinylm.trainer import Trainer

DEFAULTS: dict[str, Any] = {"size": "mini", "batch": 8, "context": 128, "updates_total": 400}
MONITOR_FILE = "monitor.json"
ORDERED_UPDATES = 64
"""The order of the data is digested over so many first updates."""


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
    parser.add_argument("--record", type=Path, metavar="RUN.json", help="record where time and memory go")
    parser.add_argument(
        "--compile-updates",
        type=int,
        default=1,
        help="first updates that are recorded as compile (default: %(default)s)",
    )
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write a checkpoint there after each validation")
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT", help="go on from a folder that --save has written")
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


def train(trainer: Trainer, mon: monitor.TrainingMonitor, loader: data.Loader, arguments: argparse.Namespace) -> None:
    """Train to updates_total, validating and saving on the way; the throughput printed is that of training alone."""
    total = trainer.config.updates_total
    validate(trainer, mon)
    while trainer.update < total:
        train_until(min(trainer.update + arguments.evaluate_every, total), trainer, mon, loader)
        with mon.phase("report"):
            # The phase has waited for the device already; this writes the log lines that are due.
            trainer.sync()
            print_once(trainer, f"{mon.window_tokens_per_second or 0:.0f} targets/s")
        validate(trainer, mon)
        if arguments.save:
            save(trainer, mon, arguments.save / f"{trainer.update:08d}", is_recorded=arguments.record is not None)


def train_until(last: int, trainer: Trainer, mon: monitor.TrainingMonitor, loader: data.Loader) -> None:
    """Make updates without waiting for the device."""
    config = trainer.config
    while trainer.update < last:
        # Whether updates were skipped is known to the device alone, so that with loss scaling each call waits for it.
        num_updates = min(config.log_every, last - trainer.update) if config.loss_scale else 1
        places = [loader.place(trainer.update + ahead).count for ahead in range(num_updates)]
        before = trainer.targets
        counts = trainer.train(num_updates)
        mon.update(
            targets=trainer.targets - before,
            padded=counts.microbatches * config.batch * config.context,
            microbatches=counts.microbatches,
            updates=num_updates,
            skipped=counts.skipped,
            partial=min(places) < config.accumulation,
        )


def save(trainer: Trainer, mon: monitor.TrainingMonitor, folder: Path, *, is_recorded: bool) -> None:
    """Write a checkpoint, and beside it where the record stands, if there is one."""
    with mon.phase("checkpoint"):
        state = mon.state_dict()
        trainer.save(folder)
        if trainer.group.rank == 0 and is_recorded:
            (folder / MONITOR_FILE).write_text(json.dumps(state), encoding="ascii")


def start_monitor(
    trainer: Trainer, preparation: monitor.Preparation, loader: data.Loader, arguments: argparse.Namespace
) -> monitor.TrainingMonitor:
    """Begin to record, as this training's first session or as one that goes on; of several processes the first one."""
    if arguments.record is None or trainer.group.rank:
        return monitor.start(None, device=trainer.device, preparation=preparation)
    resume = None
    if arguments.resume:
        try:
            resume = json.loads((arguments.resume / MONITOR_FILE).read_text(encoding="ascii"))
        except FileNotFoundError:
            raise monitor.MonitorError(f"{arguments.resume}: was saved without --record") from None
    return monitor.start(
        arguments.record,
        device=trainer.device,
        recipe=recipe(trainer.config, loader, arguments),
        resume=resume,
        preparation=preparation,
        settings={"backend": arguments.backend, "processes": trainer.group.world},
        compile_updates=arguments.compile_updates,
    )


def recipe(config: Config, loader: data.Loader, arguments: argparse.Namespace) -> dict[str, Any]:
    """What is trained and how, as the monitor wants it."""
    num_ordered = min(ORDERED_UPDATES, config.updates_total)
    others = {"sequences of": "one worker", "data_order_sha256 of updates": num_ordered}
    free = {"log_every"}
    entries = {key: value for key, value in dataclasses.asdict(config).items() if key not in free}
    policy = "the last one of the text is left out" if config.whole_windows else "the last one of the text is padded"
    return {
        "model_revision": digest_of(sorted(Path(data.__file__).parent.glob("*.py"))),
        "tokenizer_revision": "bytes",
        "trainable_modules": "all",
        "data_manifest_sha256": digest_of([arguments.data / data.TRAIN_FILE, arguments.data / data.VALIDATION_FILE]),
        "data_order_sha256": digest_of_order(loader, num_ordered),
        "max_sequence_length": config.context,
        "truncation_policy": f"text is cut into windows; {policy}",
        "microbatch_size": config.batch,
        "accumulation_count": config.accumulation * config.workers,
        "precision": config.precision,
        "optimizer": "AdamW",
        "seed": arguments.seed,
        "checkpoint_policy": "after each validation" if arguments.save else "none",
        "evaluation_interval": arguments.evaluate_every,
        "other": entries | others,
    }


def digest_of(paths: list[Path]) -> str:
    """SHA-256 over the names and the bytes of some files."""
    found = hashlib.sha256()
    for path in paths:
        found.update(f"{path.name} {path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def digest_of_order(loader: data.Loader, num_updates: int) -> str:
    """SHA-256 over which windows of the text the first updates take, in order."""
    found = hashlib.sha256()
    for update in range(num_updates):
        found.update(f"{update}: {' '.join(map(str, loader.examples(update)))}\n".encode())
    return found.hexdigest()


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


def validate(trainer: Trainer, mon: monitor.TrainingMonitor) -> None:
    """Take and print the loss over the whole validation split."""
    with mon.phase("evaluation"):
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


def train_main(config: Config, arguments: argparse.Namespace) -> int:
    """Build, resume where that is asked for, train."""
    preparation = monitor.Preparation()
    with preparation.phase("data_preparation"):
        corpus = data.read_tokens(arguments.data / data.TRAIN_FILE)
        loader = data.Loader(config, corpus, seed=arguments.seed, device=torch.device("cpu"))
    with preparation.phase("model_setup"):
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
        if arguments.resume:
            trainer.load(arguments.resume)
    with start_monitor(trainer, preparation, loader, arguments) as mon:
        train(trainer, mon, loader, arguments)
    trainer.close()
    return 0


def main() -> int:
    """Parse, then count or train."""
    arguments = read_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    try:
        config = read_entries(arguments.entries)
        return count_main(config, arguments) if arguments.count else train_main(config, arguments)
    except (CheckpointError, ConfigError, OSError, monitor.MonitorError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
