"""Tokens per second of tinylm's backends over the shapes of a GPU campaign, outside any campaign.

    python examples/h200/bench_tinylm.py --device cuda --out bench.jsonl
    python examples/h200/bench_tinylm.py --device cuda --shapes 90m-sync-16x1024 20m-packed4-4x512
    python examples/h200/bench_tinylm.py --sizes-of-cpu --window-s 0.2

Every side of every shape runs in a process of its own, so that memory is clean; which side goes first alternates from
shape to shape. A side is built, makes its warm-up updates (which compile and capture, where the backend does so), and
is timed over windows. One JSON line is printed for each side, and a table at the end. The text is random bytes: the
loader does all of its work, and no file is needed. Nothing here is evidence: a campaign measures pairs and repeats.

FLOP of a token are 6 N + 6 L d T: N parameters with embeddings, L layers, width d, context T.
"""

import argparse
import contextlib
import io
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).resolve().parents[1] / "tinylm"
SIDES = ("native", "fast")
SHAPES = (
    "20m-sync-4x512",
    "20m-packed4-4x512",
    "20m-packed4-16x1024",
    "20m-packed8-4x512",
    "20m-packed8-16x1024",
    "50m-sync-4x512",
    "50m-packed4-4x512",
    "50m-packed4-16x1024",
    "50m-packed8-4x512",
    "90m-sync-4x512",
    "90m-packed4-4x512",
    "90m-packed4-16x1024",
    "90m-packed8-4x512",
    "90m-packed8-16x1024",
    "90m-sync-16x1024",
)
CPU_SHAPES = ("tiny-sync-2x64", "tiny-packed4-2x64")
GIB = 2**30
PROFILED_UPDATES = 3
CORPUS_BYTES = 32 * 2**20


def read_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=[], help="SIZE-sync-BxT or SIZE-packedK-BxT (default: all)")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--sizes-of-cpu", action="store_true", help="two tiny shapes on the CPU with vocabulary 256")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--vocab", type=int, default=16384)
    parser.add_argument("--clip", type=float, default=1.0, help="0 switches clipping off")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=JSON", help="further configuration entries")
    parser.add_argument("--warmup", type=int, default=12, help="updates before the clock runs")
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=1.0, help="shortest window")
    parser.add_argument("--limit-s", type=float, default=300, help="after which a side is ended and counted as failed")
    parser.add_argument(
        "--kernels", type=Path, metavar="FOLDER", help="where a table of each side's kernels goes (GPU)"
    )
    parser.add_argument("--out", type=Path, help="where the JSON lines go as well; appended to")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # what a side's own process is told
    arguments = parser.parse_args()
    if arguments.sizes_of_cpu:
        arguments.device, arguments.vocab = "cpu", 256
    if arguments.kernels and arguments.device == "cpu":
        parser.error("--kernels needs a GPU: there are no kernels on a CPU")
    arguments.shapes = arguments.shapes or list(CPU_SHAPES if arguments.sizes_of_cpu else SHAPES)
    return arguments


def entries_of(shape: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The configuration of a shape's name."""
    found = re.fullmatch(r"(\w+)-(sync|packed)(\d*)-(\d+)x(\d+)", shape)
    if not found:
        raise SystemExit(f"bench_tinylm: {shape!r} is no shape; they look like {SHAPES[0]} and {SHAPES[1]}")
    size, mode, workers, batch, context = found.groups()
    further = {key: json.loads(value) for key, _, value in (entry.partition("=") for entry in arguments.set)}
    return {
        "size": size,
        "mode": mode,
        "workers": int(workers or 1),
        "batch": int(batch),
        "context": int(context),
        "precision": arguments.precision,
        "vocab": arguments.vocab,
        "clip": arguments.clip,
        "whole_windows": True,
        **further,
    }


def flop_per_token(config: Any) -> int:
    """6 N + 6 L d T."""
    from tinylm import model  # noqa: PLC0415  # the parent does without torch

    num_parameters = sum(map(math.prod, model.parameter_shapes(config).values()))
    return int(6 * num_parameters + 6 * config.shape.layers * config.shape.width * config.context)


def time_windows(trainer: Any, num_windows: int, window_s: float) -> list[float]:
    """Tokens per second of each window, which lasts at least `window_s`; windows grow until they do."""
    num_updates = 1
    rates: list[float] = []
    while len(rates) < num_windows:
        begin = time.perf_counter()
        counts = trainer.train(num_updates)
        trainer.sync()
        elapsed_s = time.perf_counter() - begin
        if elapsed_s >= window_s:
            rates.append(counts.targets / elapsed_s)
        else:
            num_updates = max(2 * num_updates, min(int(1.2 * window_s / elapsed_s * num_updates), 16 * num_updates))
    return rates


def memory(device: str) -> dict[str, float | None]:
    """Peaks since the process began, and what the device holds for everybody, in GiB."""
    import torch  # noqa: PLC0415  # as above

    if device == "cpu":
        return dict.fromkeys(("peak_allocated_gib", "peak_reserved_gib", "device_used_gib"))
    free, total = torch.cuda.mem_get_info()
    return {
        "peak_allocated_gib": round(torch.cuda.max_memory_allocated() / GIB, 2),
        "peak_reserved_gib": round(torch.cuda.max_memory_reserved() / GIB, 2),
        "device_used_gib": round((total - free) / GIB, 2),
    }


def write_kernels(trainer: Any, path: Path) -> None:
    """The kernels of an update, from torch's profiler: milliseconds, how many, and the name, longest first."""
    from torch.autograd import DeviceType  # noqa: PLC0415  # as above
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415  # as above

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        trainer.train(PROFILED_UPDATES)
        trainer.sync()
    found: dict[str, list[float]] = {}
    for event in profiled.events():
        if event.device_type == DeviceType.CUDA:
            found.setdefault(event.name, []).append(event.device_time_total / 1e3 / PROFILED_UPDATES)
    rows = sorted(((sum(times), len(times), name) for name, times in found.items()), reverse=True)
    lines = [f"{ms:8.3f} ms {num / PROFILED_UPDATES:6.1f}x {name[:150]}" for ms, num, name in rows]
    path.write_text("\n".join([f"{sum(ms for ms, _, _ in rows):.3f} ms", *lines, ""]))


def measure_one(asked: dict[str, Any]) -> dict[str, Any]:
    """One side of one shape, in this process."""
    begin = time.perf_counter()
    sys.path.insert(0, str(EXAMPLE))
    import torch  # noqa: PLC0415  # as above

    import adapter  # noqa: PLC0415  # the example is on the path since a moment ago
    from tinylm.config import read_config  # noqa: PLC0415  # as above

    imported_s = time.perf_counter() - begin
    # What trainers print (losses) belongs to nobody here.
    with contextlib.redirect_stdout(io.StringIO()):
        session = getattr(adapter, asked["side"])(asked["entries"], seed=1, device=asked["device"])
        trainer = session._trainer  # noqa: SLF001  # its counts, without the harness around it
        built_s = time.perf_counter() - begin
        trainer.train(asked["warmup"])
        trainer.sync()
        started_s = time.perf_counter() - begin
        rates = time_windows(trainer, asked["windows"], asked["window_s"])
        if asked["kernels"]:
            write_kernels(trainer, Path(asked["kernels"]) / f"kernels-{asked['shape']}-{asked['side']}.txt")
    rate = statistics.median(rates)
    flop = flop_per_token(read_config(asked["entries"]))
    return {
        "shape": asked["shape"],
        "side": asked["side"],
        "tokens_per_s": round(rate),
        "tflop_per_s": round(rate * flop / 1e12, 1),
        "windows": [round(one) for one in rates],
        **memory(asked["device"]),
        "import_s": round(imported_s, 1),
        "build_s": round(built_s - imported_s, 1),
        "warmup_s": round(started_s - built_s, 1),
        "loss": round(session.loss(), 4),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if asked["device"] != "cpu" else "cpu",
        "engaged": session.engaged(),
    }


def measure_apart(asked: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """The same in a process of its own; what went wrong, if something did."""
    failed = {"shape": asked["shape"], "side": asked["side"]}
    with tempfile.TemporaryFile("w+") as errors:
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--one", json.dumps(asked)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {**failed, "error": f"not done after {limit_s:g} s"}
        errors.seek(0)
        if done.returncode:
            return {**failed, "error": errors.read()[-3000:]}
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result


def write_corpus(folder: Path) -> None:
    """Random bytes as text for training and, a little, for validation."""
    source = random.Random(1)  # noqa: S311  # nothing secret
    (folder / "train.bin").write_bytes(source.randbytes(CORPUS_BYTES))
    (folder / "val.bin").write_bytes(source.randbytes(65536))


def table(results: list[dict[str, Any]]) -> str:
    """One line for each shape."""
    pairs = "".join(f"{name:>7}" * 2 for name in ("TF/s", "GiB", "start"))
    lines = [f"{'shape':22}{'native tok/s':>13}{'fast tok/s':>12}{'ratio':>7}{pairs}"]
    for shape in dict.fromkeys(result["shape"] for result in results):
        native, fast = (_best(results, shape, side) for side in SIDES)
        ratio = fast["tokens_per_s"] / native["tokens_per_s"] if fast and native else None
        cells = [f"{shape:22}", _cell(native, "tokens_per_s", 13), _cell(fast, "tokens_per_s", 12)]
        cells.append(f"{ratio:7.2f}" if ratio else f"{'-':>7}")
        for key in ("tflop_per_s", "peak_reserved_gib", "warmup_s"):
            cells += [_cell(native, key, 7), _cell(fast, key, 7)]
        lines.append("".join(cells))
    return "\n".join(lines)


def _best(results: list[dict[str, Any]], shape: str, side: str) -> dict[str, Any]:
    found = [one for one in results if (one["shape"], one["side"]) == (shape, side) and "error" not in one]
    return found[-1] if found else {}


def _cell(result: dict[str, Any], key: str, width: int) -> str:
    value = result.get(key)
    return f"{'-':>{width}}" if value is None else f"{value:>{width},}"


def main() -> int:
    """Measure, print, and say with 1 if a side failed."""
    arguments = read_arguments()
    if arguments.one:
        print(json.dumps(measure_one(json.loads(arguments.one))))
        return 0
    results = []
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder))
        os.environ["TINYLM_DATA"] = folder
        for number, shape in enumerate(arguments.shapes):
            entries = entries_of(shape, arguments)
            for side in arguments.sides if number % 2 == 0 else arguments.sides[::-1]:
                asked = {
                    "shape": shape,
                    "side": side,
                    "entries": entries,
                    "device": arguments.device,
                    "warmup": arguments.warmup,
                    "windows": arguments.windows,
                    "window_s": arguments.window_s,
                    "kernels": str(arguments.kernels) if arguments.kernels else "",
                }
                result = measure_apart(asked, arguments.limit_s)
                results.append(result)
                line = json.dumps(result)
                print(line, flush=True)
                if arguments.out:
                    with arguments.out.open("a") as file:
                        file.write(line + "\n")
    print(table(results))
    return 1 if any("error" in result for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
