"""What a worker does for a numerical case, in its own process, over its pipes and shared memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.common.verified import verify
from tests.support.serving import RefusedError, Served, Stage, pieces, write_tensors

ADAPTER = '''"""A trainer of three tensors, two of them tied, for two workers."""
import torch

NAMES = ("a", "b.weight", "c", "alias")


class Runner:
    def __init__(self, config, seed, device):
        self.config = config
        self.state_of = {}
        for quantity in ("parameters", "gradients", "exp_avg", "exp_avg_sq"):
            for worker in range(2):
                tensors = [torch.zeros(3, 2), torch.zeros(()), torch.zeros(0, 4)]
                for name, tensor in zip(NAMES, [*tensors, tensors[0]], strict=True):
                    self.state_of[quantity, worker, name] = tensor
        self.step = 0

    def updates(self, n):
        self.step += n
        return n, n, 0, n

    def sync(self):
        pass

    def state(self, quantity):
        for (found, worker, name), tensor in self.state_of.items():
            if found == quantity:
                yield worker, name, tensor

    def load_state(self, tensors, step):
        for key, live in self.state_of.items():
            if key[0] != "gradients":
                live.copy_(tensors[key]) if key in tensors else live.zero_()
        self.step = step

    def batch(self, step):
        return {"tokens": torch.tensor([[step, -1]]), "mask": torch.tensor([True])}

    def update_on(self, batch):
        for (quantity, worker, name), live in self.state_of.items():
            if name != "alias":
                live += float(batch["x"].sum()) if quantity == "parameters" else 1.0
        return [0.5, float("nan")]

    def optimizer_check(self, parameters, gradients, steps):
        for (worker, name), tensor in parameters.items():
            for step in range(steps):
                tensor -= 0.1 * gradients[step][worker, name]
            yield "parameters", worker, name, tensor
            yield "exp_avg", worker, name, tensor * 0
            yield "exp_avg_sq", worker, name, tensor * 0 + 1

    def mix(self, parameters, round):
        for (worker, name), tensor in parameters.items():
            yield worker, name, (tensor + parameters[1 - worker, name]) / 2


HEAD = None


def build(config, *, seed, device):
    return Runner(config, seed, device)
'''
TENSORS = [
    [0, "a", "float32", [3, 2]],
    [0, "b.weight", "float32", []],
    [0, "c", "float32", [0, 4]],
    [1, "a", "float32", [3, 2]],
    [1, "b.weight", "float32", []],
    [1, "c", "float32", [0, 4]],
]
TIED = [[0, "alias", "a"], [1, "alias", "a"]]


def start(folder: Path, adapter: str = ADAPTER) -> Served:
    tree = folder / "tree"
    tree.mkdir()
    (tree / "adapter.py").write_text(adapter)
    served = Served("worker", folder)
    served.ask(
        "import", adapter="adapter:build", paths=[str(tree)], private=[str(folder)], matched=True, declared=[], log=""
    )
    served.ask("build", config={}, seed=1, device="cpu")
    return served


class Side:
    """A built worker and its staging memory."""

    def __init__(self, worker: Served, folder: Path) -> None:
        self.worker = worker
        self.folder = folder
        self.stage = Stage(folder / "stage")
        path, half_bytes = str(self.stage.path), self.stage.half_bytes
        assert worker.ask("stage", path=path, half_bytes=half_bytes, transport="host") == {"handle": None}

    def open(self, what: str) -> Any:
        return self.worker.ask("open", what=what)["tensors"]

    def offered(self, what: str) -> list[list[float]]:
        """Open a pass over fp32 tensors and return the values of each."""
        tensors = self.open(what)
        asked = pieces(tensors)
        assert self.worker.ask("fill", half=1, pieces=asked) == {}
        return [self.values(count, offset) for _, _, count, offset in asked]

    def values(self, count: int, offset: int = 0, half: int = 1) -> list[float]:
        return list(struct.unpack(f"<{count}f", self.stage.read(half, 4 * count, offset)))

    def load(self, parameters: dict[int, dict[str, Any]], step: int = 0) -> Any:
        files = []
        for worker, tensors in parameters.items():
            path = write_tensors(self.folder / f"parameters-{worker}", tensors)
            files.append(["parameters", worker, str(path), verify(path).identity])
        return self.worker.ask("load", files=files, step=step)

    def update(self, x: float) -> Any:
        path = write_tensors(self.folder / "batch", {"x": torch.tensor([x])})
        return self.worker.ask("update", path=str(path), identity=verify(path).identity)


def canonical(value: float = 1.0) -> dict[str, Any]:
    return {"a": torch.arange(6.0).reshape(3, 2) + value, "b.weight": torch.tensor(value), "c": torch.zeros(0, 4)}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = start(tmp_path_factory.mktemp("worker"))
    yield served
    served.end()


@pytest.fixture
def side(worker: Served, tmp_path: Path) -> Side:
    made = Side(worker, tmp_path)
    made.load({0: canonical(), 1: canonical(-1.0)})
    return made


def test_a_pass_lists_distinct_tensors_and_names_aliases(side: Side) -> None:
    assert side.worker.ask("open", what="parameters") == {"tensors": TENSORS, "tied": TIED}
    assert side.worker.ask("open", what="exp_avg_sq") == {"tensors": TENSORS, "tied": TIED}


def test_loaded_values_come_back(side: Side) -> None:
    first, second = ([base + value for base in range(6)] for value in (1.0, -1.0))
    assert side.offered("parameters") == [first, [1.0], [], second, [-1.0], []]


def test_a_tensor_may_be_taken_in_pieces(side: Side) -> None:
    side.open("parameters")
    side.worker.ask("fill", half=0, pieces=[[0, 0, 2, 64], [0, 2, 3, 0]])
    side.worker.ask("fill", half=1, pieces=[[0, 5, 1, 0], [1, 0, 1, 4], [3, 0, 1, 8]])
    assert side.values(2, 64, half=0) == [1.0, 2.0]
    assert side.values(3, half=0) == [3.0, 4.0, 5.0]
    assert side.values(3) == [6.0, 1.0, -1.0]


def test_an_update_says_its_losses_and_moves_the_parameters(side: Side) -> None:
    answer = side.update(0.25)
    assert answer["losses"] == ["0.5", "nan"]
    assert answer["seconds"] >= 0
    assert side.offered("updates") == [[0.25] * 6, [0.25], [], [0.25] * 6, [0.25], []]
    side.update(0.5)
    assert side.offered("updates")[0] == [0.5] * 6
    assert side.offered("parameters")[1] == [1.75]
    assert side.offered("exp_avg")[0] == [2.0] * 6


def test_a_batch_is_offered_by_name(side: Side) -> None:
    tensors = side.open("batch:7")
    assert tensors == [[0, "mask", "bool", [1]], [0, "tokens", "int64", [1, 2]]]
    side.worker.ask("fill", half=0, pieces=pieces(tensors))
    assert side.stage.read(0, 24) == b"\1" + bytes(7) + struct.pack("<qq", 7, -1)


def test_isolated_optimizer_steps_are_the_same_each_time(side: Side) -> None:
    ask = {"check": "optimizer", "steps": 3, "sd": "0.02", "seed": 5}
    side.worker.ask("isolate", **ask)
    assert side.open("optimizer")[:3] == [
        [0, "parameters/a", "float32", [3, 2]],
        [0, "exp_avg/a", "float32", [3, 2]],
        [0, "exp_avg_sq/a", "float32", [3, 2]],
    ]
    first = side.offered("optimizer")
    side.worker.ask("isolate", **ask)
    assert side.offered("optimizer") == first
    side.worker.ask("isolate", **{**ask, "seed": 6})
    other = side.offered("optimizer")
    assert all(one != another for one, another in zip(first[0], other[0], strict=True))
    assert first[2] == [1.0] * 6


def test_isolated_consensus_mixes_inputs_of_its_round(side: Side) -> None:
    found = []
    for number in (0, 1):
        side.worker.ask("isolate", check="consensus", round=number, sd="0.02", seed=5)
        found.append(side.offered("consensus"))
        assert found[-1][0] == found[-1][3]
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("line", "is_whole"),
    [('yield worker, f"exp_avg/{name}", -tensor', True), ('if name == "a": yield worker, "exp_avg/a", -tensor', False)],
)
def test_a_consensus_may_offer_the_moments_that_it_shall_leave_alone(tmp_path: Path, line: str, is_whole: bool) -> None:
    mixed = "yield worker, name, (tensor + parameters[1 - worker, name]) / 2\n"
    assert mixed in ADAPTER
    served = start(tmp_path, ADAPTER.replace(mixed, f"{mixed}            {line}\n"))
    served.ask("isolate", check="consensus", round=0, sd="0.02", seed=5)
    if is_whole:
        names = [name for _, name, *_ in served.ask("open", what="consensus")["tensors"]]
        assert names == [name for one in ("a", "b.weight", "c") for name in (one, f"exp_avg/{one}")] * 2
    else:
        with pytest.raises(RefusedError, match=r"exp_avg/b\.weight"):
            served.ask("open", what="consensus")
    served.end()


def test_what_was_forgotten_is_gone(side: Side) -> None:
    side.worker.ask("isolate", check="consensus", round=0, sd="0.02", seed=5)
    side.open("parameters")
    side.worker.ask("forget")
    with pytest.raises(RefusedError, match="no staging memory"):
        side.worker.ask("fill", half=0, pieces=[[0, 0, 1, 0]])
    for what in ("consensus", "updates"):
        with pytest.raises(RefusedError, match="nothing to offer"):
            side.open(what)
