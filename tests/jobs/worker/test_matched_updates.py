"""The worker's part in matched updates, within this process: what it makes of adapters that do something else."""

from __future__ import annotations

import gc
import json
import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.common.verified import verify
from jobs.processes.serving import SideError
from jobs.tensors.reading import map_tensors
from jobs.worker.entries import check_items, find_ties
from jobs.worker.matched_updates import Matched
from tests.support.serving import Stage, pieces, write_tensors

QUANTITIES = ("parameters", "gradients", "exp_avg", "exp_avg_sq")
Make = Callable[[], Any]


class Adapter:
    """Two tensors of one worker."""

    def __init__(self) -> None:
        self.tensors = {quantity: [(0, "a", torch.zeros(4)), (0, "b", torch.zeros(2, 2))] for quantity in QUANTITIES}

    def sync(self) -> None:
        pass

    def state(self, quantity: str) -> Any:
        return iter(self.tensors[quantity])

    def load_state(self, tensors: Mapping[Any, Any], step: int) -> None:
        assert step == 3
        for quantity in QUANTITIES:
            for worker, name, live in self.tensors[quantity]:
                key = (quantity, worker, name)
                live.copy_(tensors[key]) if key in tensors else live.zero_()

    def update_on(self, batch: Mapping[str, Any]) -> Any:
        for _, _, live in self.tensors["parameters"]:
            live.add_(batch["x"])
        return [1.0]


class Bench:
    """A side and its staging memory."""

    def __init__(self, adapter: Any, folder: Path) -> None:
        self.folder = folder
        self.matched = Matched(adapter, "cpu")
        self.stage = Stage(folder / "stage")
        assert self.matched.stage(str(self.stage.path), self.stage.half_bytes, is_device=False) is None

    def offer(self, what: str = "parameters") -> list[list[float]]:
        entries, _ = self.matched.open(what)
        asked = pieces([entry.as_json() for entry in entries])
        self.matched.fill(0, asked)
        raw = self.stage.path.read_bytes()
        return [list(memoryview(raw[at : at + 4 * count]).cast("f")) for _, _, count, at in asked]

    def load(self, quantities: Mapping[str, Mapping[str, Any]]) -> None:
        files = []
        for quantity, tensors in quantities.items():
            path = write_tensors(self.folder / quantity, tensors)
            files.append((quantity, 0, str(path), verify(path).identity))
        self.matched.load(files, 3)

    def update(self, x: float = 0.5) -> list[str]:
        return self.matched.update(str(write_tensors(self.folder / "batch", {"x": torch.tensor(x)})))[0]


def canonical() -> dict[str, Any]:
    return {"a": torch.arange(4.0), "b": torch.tensor([[math.nan, math.inf], [-0.0, 1e-45]])}


@pytest.fixture
def adapter() -> Adapter:
    return Adapter()


@pytest.fixture
def bench(adapter: Adapter, tmp_path: Path) -> Bench:
    return Bench(adapter, tmp_path)


def error_of(work: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(SideError) as caught:
        work()
    return caught.value.kind, caught.value.text


# --- which tensors are one --------------------------------------------------------------------------------------------


def ties_of(*tensors: Any, workers: tuple[int, ...] = ()) -> dict[Any, str]:
    items = [
        (worker, "pqrst"[place], tensor)
        for place, (worker, tensor) in enumerate(zip(workers or (0,) * len(tensors), tensors, strict=True))
    ]
    return find_ties(check_items(items, "state", torch))[1]


def test_the_same_part_of_the_same_storage_is_tied() -> None:
    base = torch.zeros(8)
    assert ties_of(base, torch.zeros(8), base, base.view(8)) == {(0, "r"): "p", (0, "s"): "p"}
    assert ties_of(base[2:4], base[2:4]) == {(0, "q"): "p"}
    parameter = torch.nn.Parameter(base)
    assert ties_of(parameter, parameter.detach(), parameter.data) == {(0, "q"): "p", (0, "r"): "p"}


def test_other_parts_shapes_strides_types_and_workers_are_not_tied() -> None:
    base = torch.zeros(4, 4)
    assert ties_of(base, base.view(16), base[:2], base[2:], base.t()) == {}
    assert ties_of(base, base.view(torch.int32)) == {}
    assert ties_of(base, base, workers=(0, 1)) == {}
    assert ties_of(torch.zeros(0), torch.zeros(0)) == {}


def test_tensors_that_are_made_as_they_are_asked_for_are_not_tied(tmp_path: Path) -> None:
    class Transient(Adapter):
        def state(self, _quantity: str) -> Any:
            return ((0, name, torch.full((64,), float(ord(name)))) for name in "abcd")

    bench = Bench(Transient(), tmp_path)
    entries, ties = bench.matched.open("parameters")
    assert ([entry.name for entry in entries], ties) == (list("abcd"), [])
    assert [values[0] for values in bench.offer()] == [97.0, 98.0, 99.0, 100.0]


def test_a_buffer_that_is_used_again_and_again_is_not_tied(tmp_path: Path) -> None:
    class Reused(Adapter):
        buffer = torch.zeros(16)

        def state(self, _quantity: str) -> Any:
            return ((0, name, self.buffer.fill_(float(ord(name)))) for name in "abc")

    bench = Bench(Reused(), tmp_path)
    assert bench.matched.open("parameters")[1] == []
    assert [values[0] for values in bench.offer()] == [97.0, 98.0, 99.0]


# --- passes -----------------------------------------------------------------------------------------------------------


def test_views_and_tensors_with_a_history_are_offered(adapter: Adapter, bench: Bench) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    adapter.tensors["parameters"] = [
        (0, "column", base[:, 1]),
        (0, "transposed", base[:2, :2].t()),
        (0, "expanded", torch.tensor(5.0).expand(3)),
        (0, "parameter", torch.nn.Parameter(torch.ones(2))),
        (0, "result", torch.nn.Parameter(torch.ones(2)) * 3),
        (0, "scalar", torch.tensor(7.0)),
        (0, "empty", torch.zeros(0, 3)),
    ]
    assert bench.offer() == [[1, 5, 9], [0, 4, 1, 5], [5, 5, 5], [1, 1], [3, 3], [7], []]


def test_no_more_than_one_tensor_is_held_while_the_next_is_made(tmp_path: Path) -> None:
    living: list[weakref.ref[Any]] = []
    most = [0]

    class Transient(Adapter):
        def state(self, _quantity: str) -> Iterator[Any]:
            for number in range(5):
                most[0] = max(most[0], sum(ref() is not None for ref in living))
                tensor = torch.full((8,), float(number))
                living.append(weakref.ref(tensor.untyped_storage()))
                yield 0, f"t{number}", tensor
                del tensor

    bench = Bench(Transient(), tmp_path)
    bench.matched.open("parameters")
    gc.collect()
    living.clear()
    most[0] = 0
    assert [values[0] for values in bench.offer()] == [0, 1, 2, 3, 4]
    assert most[0] <= 1


def test_a_generator_is_ended_before_anything_else_is_asked(tmp_path: Path) -> None:
    ended: list[bool] = []

    class Switching(Adapter):
        def state(self, quantity: str) -> Iterator[Any]:
            try:
                with torch.no_grad():
                    yield from super().state(quantity)
            finally:
                ended.append(torch.is_grad_enabled())

        def update_on(self, batch: Mapping[str, Any]) -> Any:
            assert torch.is_grad_enabled()
            return super().update_on(batch)

    bench = Bench(Switching(), tmp_path)
    bench.matched.open("parameters")
    bench.matched.fill(0, [[0, 0, 1, 0]])
    assert bench.update() == ["1.0"]
    assert ended
    assert all(ended)


@pytest.mark.parametrize(
    ("later", "says"),
    [
        ([], "ended after 0 tensors, but a moment ago it had 2"),
        ([(0, "a", torch.zeros(4))], "ended after 1 tensors"),
        ([(0, "a", torch.zeros(4)), (0, "b", torch.zeros(2, 2)), (0, "c", torch.zeros(1))], "goes on with worker 0 c"),
        ([(0, "a", torch.zeros(5)), (0, "b", torch.zeros(2, 2))], "float32[5]"),
        ([(0, "a", torch.zeros(4, dtype=torch.float64)), (0, "b", torch.zeros(2, 2))], "float64[4]"),
        ([(0, "b", torch.zeros(2, 2)), (0, "a", torch.zeros(4))], "yielded worker 0 b"),
        ([(1, "a", torch.zeros(4)), (0, "b", torch.zeros(2, 2))], "worker 1 a"),
    ],
)
def test_what_changes_between_listing_and_offering_is_a_mismatch(
    adapter: Adapter, bench: Bench, later: list[Any], says: str
) -> None:
    original = adapter.tensors["gradients"]
    seen: list[str] = []

    def state(quantity: str) -> Any:
        seen.append(quantity)
        return iter(later if seen.count("gradients") > 1 else original)

    adapter.state = state  # type: ignore[method-assign]
    kind, text = error_of(lambda: bench.offer("gradients"))
    assert kind == "state_mismatch"
    assert says in text
    assert "gradients" in text


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([3.0], "is a list, not a tensor"),
        (None, "is a NoneType, not a tensor"),
        (torch.zeros(2, dtype=torch.complex64), "complex64, which cannot be offered"),
        (torch.zeros(2, device="meta"), "no plain values"),
        (torch.zeros(2, 2).to_sparse(), "no plain values"),
    ],
)
def test_what_is_no_plain_tensor_is_rubbish(adapter: Adapter, bench: Bench, value: Any, says: str) -> None:
    adapter.tensors["parameters"][1] = (0, "b", value)
    kind, text = error_of(bench.offer)
    assert kind == "rubbish"
    assert says in text
    assert "worker 0 b" in text


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ((0, "b"), "not (worker, name, tensor)"),
        (torch.zeros(3), "not (worker, name, tensor)"),
        ((True, "b", torch.zeros(1)), "True as a worker"),
        ((-1, "b", torch.zeros(1)), "-1 as a worker"),
        ((0, 7, torch.zeros(1)), "7 is no name"),
        ((0, "", torch.zeros(1)), "is no name"),
        ((0, "a,b", torch.zeros(1)), "'a,b' is no name"),
        ((0, "a\nb", torch.zeros(1)), "is no name"),
        ((0, "a", torch.zeros(1)), "yielded a of worker 0 twice"),
    ],
)
def test_what_is_not_worker_name_and_tensor_is_rubbish(adapter: Adapter, bench: Bench, item: Any, says: str) -> None:
    adapter.tensors["parameters"][1] = item
    kind, text = error_of(bench.offer)
    assert kind == "rubbish"
    assert says in text


def test_a_state_that_cannot_be_gone_through_is_rubbish(tmp_path: Path) -> None:
    class Wrong(Adapter):
        def state(self, _quantity: str) -> Any:
            return 7

    assert error_of(Bench(Wrong(), tmp_path).offer) == (
        "rubbish",
        "state('parameters') returned a int, not an iterator",
    )


def test_what_a_side_raises_is_its_own(tmp_path: Path) -> None:
    class Raising(Adapter):
        def state(self, quantity: str) -> Any:
            yield from super().state(quantity)
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        Bench(Raising(), tmp_path).offer()


def test_what_is_not_offered_is_named(tmp_path: Path) -> None:
    class Bare:
        def sync(self) -> None:
            pass

    bench = Bench(Bare(), tmp_path)
    assert error_of(bench.offer) == ("adapter_incomplete", "the adapter's object does not offer state")


@pytest.mark.parametrize(
    "piece", [[2, 0, 1, 0], [0, 3, 2, 0], [0, -1, 1, 0], [0, 0, -1, 0], [0, 0, 1, 2], [0, 0, 4, 1 << 30]]
)
def test_a_piece_that_is_none_is_the_harnesss_mistake(bench: Bench, piece: list[int]) -> None:
    bench.matched.open("parameters")
    with pytest.raises(ValueError, match="no "):
        bench.matched.fill(0, [piece])


def test_a_tensor_that_was_passed_does_not_come_back(bench: Bench) -> None:
    bench.matched.open("parameters")
    bench.matched.fill(0, [[1, 0, 1, 0]])
    with pytest.raises(ValueError, match="any more"):
        bench.matched.fill(0, [[0, 0, 1, 0]])


# --- the canonical state ----------------------------------------------------------------------------------------------


def test_a_state_is_loaded_bit_for_bit(adapter: Adapter, bench: Bench) -> None:
    adapter.tensors["exp_avg"][0][2].fill_(3.0)
    bench.load({"parameters": canonical()})
    assert str(bench.offer()) == str([[0.0, 1.0, 2.0, 3.0], [math.nan, math.inf, -0.0, float(torch.tensor(1e-45))]])
    assert bench.offer("exp_avg")[0] == [0.0] * 4


def test_moments_are_loaded_too(bench: Bench) -> None:
    bench.load({quantity: canonical() for quantity in ("parameters", "exp_avg", "exp_avg_sq")})
    assert bench.offer("exp_avg")[0] == [0.0, 1.0, 2.0, 3.0]


def set_first(quantity: str, value: float) -> Callable[[Adapter], None]:
    def act(adapter: Adapter) -> None:
        adapter.tensors[quantity][0][2][1] = value

    return act


def drop_last(adapter: Adapter) -> None:
    del adapter.tensors["parameters"][1]


def add_one(adapter: Adapter) -> None:
    adapter.tensors["parameters"].append((0, "c", torch.zeros(1)))


def make_double(adapter: Adapter) -> None:
    worker, name, tensor = adapter.tensors["parameters"][0]
    adapter.tensors["parameters"][0] = (worker, name, tensor.double())


def make_wider(adapter: Adapter) -> None:
    worker, name, tensor = adapter.tensors["parameters"][0]
    adapter.tensors["parameters"][0] = (worker, name, tensor.reshape(2, 2))


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (set_first("parameters", 1.0000001), "parameters: worker 0 a has other values"),
        (set_first("exp_avg_sq", 1e-45), "exp_avg_sq: worker 0 a is not zero, as an absent moment should be"),
        (set_first("exp_avg", math.nan), "exp_avg: worker 0 a is not zero"),
        (drop_last, "parameters: worker 0 b is in the canonical state but not in the side's"),
        (add_one, "parameters: worker 0 c is not in the canonical state"),
        (make_double, "float64[4], not worker 0 a float32[4]"),
        (make_wider, "float32[2, 2], not worker 0 a float32[4]"),
    ],
)
def test_a_state_that_is_not_what_was_loaded_is_a_mismatch(
    tmp_path: Path, act: Callable[[Adapter], None], says: str
) -> None:
    class Wrong(Adapter):
        def load_state(self, tensors: Mapping[Any, Any], step: int) -> None:
            super().load_state(tensors, step)
            act(self)

    kind, text = error_of(lambda: Bench(Wrong(), tmp_path).load({"parameters": canonical()}))
    assert kind == "state_mismatch"
    assert says in text


def test_a_negative_zero_is_not_a_zero_that_was_loaded(tmp_path: Path) -> None:
    class Wrong(Adapter):
        def load_state(self, tensors: Mapping[Any, Any], step: int) -> None:
            super().load_state(tensors, step)
            self.tensors["parameters"][0][2][0] = -0.0

    kind, _ = error_of(lambda: Bench(Wrong(), tmp_path).load({"parameters": canonical()}))
    assert kind == "state_mismatch"


def test_an_adapter_that_writes_to_what_it_is_given_is_caught(tmp_path: Path) -> None:
    class Wrong(Adapter):
        def load_state(self, tensors: Mapping[Any, Any], step: int) -> None:
            for key in list(tensors):
                tensors[key].zero_()
            super().load_state(tensors, step)

    bench = Bench(Wrong(), tmp_path)
    kind, _ = error_of(lambda: bench.load({"parameters": canonical()}))
    assert kind == "state_mismatch"
    assert map_tensors(str(tmp_path / "parameters"), torch)["a"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_what_is_given_behaves_like_a_dictionary(tmp_path: Path) -> None:
    seen: dict[Any, list[int]] = {}

    class Looking(Adapter):
        def load_state(self, tensors: Mapping[Any, Any], step: int) -> None:
            seen.update({key: list(tensor.shape) for key, tensor in tensors.items()})
            assert tensors.get(("exp_avg", 0, "a")) is None
            assert len(tensors) == len({**tensors})
            super().load_state(tensors, step)

    Bench(Looking(), tmp_path).load({"parameters": canonical()})
    assert seen == {("parameters", 0, "a"): [4], ("parameters", 0, "b"): [2, 2]}


def test_a_tied_tensor_is_given_under_both_names(adapter: Adapter, bench: Bench) -> None:
    for quantity in QUANTITIES:
        adapter.tensors[quantity].append((0, "head", adapter.tensors[quantity][0][2]))
    bench.load({"parameters": canonical()})
    assert bench.matched.open("gradients")[1] == [[0, "head", "a"]]
    assert len(bench.offer("exp_avg")) == 2


# --- updates ----------------------------------------------------------------------------------------------------------


def test_updates_are_against_the_parameters_just_before(adapter: Adapter, bench: Bench) -> None:
    bench.update(0.5)
    assert bench.offer("updates") == [[0.5] * 4] * 2
    adapter.tensors["parameters"][0][2].fill_(8.0)
    bench.update(0.25)
    assert bench.offer("updates") == [[0.25] * 4] * 2


def test_a_batch_that_is_not_the_verified_file_is_not_used(bench: Bench) -> None:
    path = write_tensors(bench.folder / "batch", {"x": torch.tensor(0.5)})
    identity = verify(path).identity
    bench.matched.update(str(path), identity)
    path.touch()
    kind, text = error_of(lambda: bench.matched.update(str(path), identity))
    assert kind == "interference"
    assert str(path) in text


def test_updates_of_views_are_right(adapter: Adapter, bench: Bench) -> None:
    base = torch.arange(8.0).reshape(4, 2)
    adapter.tensors["parameters"] = [(0, "a", base[:, 0]), (0, "b", base[1:3].t())]
    bench.update(0.5)
    assert bench.offer("updates") == [[0.5, 1.0, 1.0, 0.5], [1.0, 1.0, 0.5, 0.5]]


def test_parameters_that_change_shape_within_a_case_are_a_mismatch(adapter: Adapter, bench: Bench) -> None:
    bench.update()
    make_wider(adapter)
    kind, text = error_of(bench.update)
    assert kind == "state_mismatch"
    assert "worker 0 a" in text


@pytest.mark.parametrize("returned", [None, 1.0, [], [1], ["1.0"], [torch.tensor(1.0)], {0: 1.0}])
def test_losses_that_are_no_floats_are_rubbish(tmp_path: Path, returned: Any) -> None:
    class Wrong(Adapter):
        def update_on(self, _batch: Mapping[str, Any]) -> Any:
            return returned

    kind, text = error_of(Bench(Wrong(), tmp_path).update)
    assert kind == "rubbish"
    assert "not one float per worker" in text


def test_losses_that_are_not_finite_are_said(tmp_path: Path) -> None:
    class Wrong(Adapter):
        def update_on(self, _batch: Mapping[str, Any]) -> Any:
            return (math.nan, -math.inf)

    assert Bench(Wrong(), tmp_path).update() == ["nan", "-inf"]


# --- batches and isolated checks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "says"), [([1], "not a mapping"), ({"a": 3}, "is a int"), ({3: torch.zeros(1)}, "3 is no name")]
)
def test_a_batch_that_is_none_is_rubbish(tmp_path: Path, returned: Any, says: str) -> None:
    class Wrong(Adapter):
        def batch(self, _step: int) -> Any:
            return returned

    kind, text = error_of(lambda: Bench(Wrong(), tmp_path).offer("batch:4"))
    assert kind == "rubbish"
    assert says in text


class Isolated(Adapter):
    """Offers both isolated checks, and remembers what it was given."""

    def __init__(self, spoil: Callable[[list[Any]], list[Any]] = list) -> None:
        super().__init__()
        self._spoil = spoil
        self.given: list[Any] = []

    def optimizer_check(self, parameters: Any, gradients: Any, steps: int) -> Any:
        self.given = [parameters, gradients, steps]
        found = [
            (quantity, worker, name, tensor * 1.0)
            for (worker, name), tensor in parameters.items()
            for quantity in ("parameters", "exp_avg", "exp_avg_sq")
        ]
        return iter(self._spoil(found))

    def mix(self, parameters: Any, round: int) -> Any:  # noqa: A002 - what the interface calls it
        return iter(self._spoil([(worker, name, tensor + round) for (worker, name), tensor in parameters.items()]))


def test_isolated_inputs_are_normal_and_apart_from_one_another(tmp_path: Path) -> None:
    adapter = Isolated()
    adapter.tensors["parameters"] = [(worker, name, torch.zeros(100, 100)) for worker in (0, 1) for name in "ab"]
    bench = Bench(adapter, tmp_path)
    bench.matched.isolate_optimizer(3, 0.02, 5)
    bench.matched.open("optimizer")
    parameters, gradients, steps = adapter.given
    assert (steps, len(gradients), list(parameters)) == (3, 3, [(0, "a"), (0, "b"), (1, "a"), (1, "b")])
    drawn = [*parameters.values(), *(tensor for step in gradients for tensor in step.values())]
    for tensor in drawn:
        assert (tensor.shape, tensor.dtype) == ((100, 100), torch.float32)
        assert abs(float(tensor.mean())) < 0.02 * 5 / 100
        assert float(tensor.std()) == pytest.approx(0.02, rel=0.04)
    flat = torch.stack([tensor.reshape(-1) for tensor in drawn])
    assert float((torch.corrcoef(flat) - torch.eye(len(drawn))).abs().max()) < 0.06
    assert torch.equal(gradients[1][1, "b"], gradients[1][1, "b"])


def test_a_tied_parameter_is_given_once(tmp_path: Path) -> None:
    adapter = Isolated()
    adapter.tensors["parameters"].append((0, "head", adapter.tensors["parameters"][0][2]))
    bench = Bench(adapter, tmp_path)
    bench.matched.isolate_consensus(0, 0.02, 5)
    assert [entry.name for entry in bench.matched.open("consensus")[0]] == ["a", "b"]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda found: found[1:], "worker 0 parameters/a is None, not (4,)"),
        (lambda found: [*found, ("parameters", 0, "c", torch.zeros(1))], "parameters/c is (1,), not None"),
        (lambda found: [("parameters", 0, "a", torch.zeros(5)), *found[1:]], "parameters/a is (5,), not (4,)"),
        (lambda found: [*found, found[0]], "twice"),
        (lambda found: [("step", 0, "a", torch.zeros(4)), *found], "not (quantity, worker, name, tensor)"),
        (lambda found: [one[1:] for one in found], "not (quantity, worker, name, tensor)"),
    ],
)
def test_results_that_are_not_one_per_parameter_are_rubbish(
    tmp_path: Path, spoil: Callable[[list[Any]], list[Any]], says: str
) -> None:
    bench = Bench(Isolated(spoil), tmp_path)
    bench.matched.isolate_optimizer(1, 0.02, 5)
    kind, text = error_of(lambda: bench.matched.open("optimizer"))
    assert kind == "rubbish"
    assert says in text


def test_a_check_that_is_not_offered_is_named(bench: Bench) -> None:
    assert error_of(lambda: bench.matched.isolate_optimizer(1, 0.02, 5))[0] == "adapter_incomplete"
    assert error_of(lambda: bench.matched.isolate_consensus(0, 0.02, 5))[0] == "adapter_incomplete"


# --- files ------------------------------------------------------------------------------------------------------------


def file_of(header: object, values: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + values


def test_files_of_every_element_type_are_read(tmp_path: Path) -> None:
    tensors = {
        "odd": torch.tensor([1, 2, 3], dtype=torch.uint8),
        "behind": torch.tensor([2.5, -1.0]),
        "half": torch.tensor([0.5], dtype=torch.bfloat16),
        "scalar": torch.tensor(7),
        "none": torch.zeros(0, 2),
        "truth": torch.tensor([True, False]),
    }
    found = map_tensors(str(write_tensors(tmp_path / "file", tensors)), torch)
    assert list(found) == ["odd", "behind", "half", "scalar", "none", "truth"]
    assert all(torch.equal(found[name], tensors[name]) and found[name].dtype == tensors[name].dtype for name in tensors)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff" * 9, "no safetensors file"),
        (b"1234", "no safetensors file"),
        (file_of([], b""), "no object"),
        (file_of({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(8)), "not"),
        (file_of({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(8)), "the file at"),
        (file_of({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b""), "the file at"),
        (file_of({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)), "4 bytes for 2"),
        (file_of({"x": {"dtype": "F8", "shape": [4], "data_offsets": [0, 4]}}, bytes(4)), "not a tensor"),
        (file_of({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}, b""), "not a tensor"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ValueError, match=says):
        map_tensors(str(tmp_path / "file"), torch)
