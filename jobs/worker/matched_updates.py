"""The worker's part in matched updates: loads the canonical state, makes an update on given inputs, offers tensors.

Everything that the standard library gives is imported when the harness starts: see worker.py.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..processes.serving import SideError
from ..tensors.catalog import Tensor
from ..tensors.reading import OtherFileError, map_tensors
from ..tensors.staging_memory import Staging, allocate_device, map_host
from . import devices
from .entries import Item, Source, check_name, check_tensor, describe
from .isolated_inputs import Drawer, Drawn, Gradients
from .offering import PARAMETERS, STATE, Offering

LOADED = (PARAMETERS, "exp_avg", "exp_avg_sq")
"""What a canonical state consists of, and what the isolated optimizer returns."""
UPDATES = "updates"
OPTIMIZER, CONSENSUS = "optimizer", "consensus"
BATCH = "batch:"
_clock = time.perf_counter
Key = tuple[str, int, str]
"""Quantity, worker and name."""
StateFile = tuple[str, int, str, Sequence[int] | None]
"""Quantity, worker, path, and the identity of the file that was verified."""


def load_torch() -> Any:
    """Return the side's PyTorch.

    Raises:
        SideError: It has none.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise SideError(
            "adapter_incomplete", f"the numerical cases need PyTorch in the side's Python: {error}"
        ) from error


def check_losses(value: Any) -> list[str]:
    """Return what ``update_on`` returned as texts; JSON has none for what is not finite.

    Raises:
        SideError: It is not one float per worker.
    """
    if not isinstance(value, (tuple, list)) or not value or not all(isinstance(loss, float) for loss in value):
        raise SideError("rubbish", f"update_on() returned {value!r:.200}, not one float per worker")
    return [repr(float(loss)) for loss in value]


class OnDevice(Mapping[Key, Any]):
    """Tensors that come to the device when they are asked for; the last one asked for is kept.

    Args:
        tensors: The tensors, on the host.
        device: Where to.
    """

    def __init__(self, tensors: Mapping[Key, Any], device: str) -> None:
        self._tensors = tensors
        self._device = device
        self._last: tuple[Key, Any] | None = None

    def __getitem__(self, key: Key) -> Any:
        """Return one on the device."""
        if self._last is None or self._last[0] != key:
            self._last = None
            self._last = (key, self._tensors[key].to(self._device))
        return self._last[1]

    def __iter__(self) -> Iterator[Key]:
        """Go through quantity, worker and name of all."""
        return iter(self._tensors)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._tensors)

    def __contains__(self, key: object) -> bool:
        """Return whether there is one, without moving it."""
        return key in self._tensors


def same_bits(one: Any, other: Any, torch: Any) -> bool:
    """Return whether two tensors of one type and shape hold the same bits; NaN equals itself, and -0 is not 0."""
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    flat, expected = one.reshape(-1), other.to(one.device).reshape(-1)
    return bool(torch.equal(flat.view(integers), expected.view(integers)))


class Matched:
    """One side between its build and its end, as far as the numerical family goes.

    Args:
        adapter: The adapter's object.
        device: The protocol's device.
    """

    def __init__(self, adapter: Any, device: str) -> None:
        self._torch = load_torch()
        self._adapter = adapter
        self._device = device
        self._offering = Offering(adapter, device, self._torch)
        self._staging: Staging | None = None
        self._kept: list[Any] = []
        """The parameters before the last update, distinct ones, flat."""
        self._isolated: dict[str, Source] = {}

    # --- staging and offering -----------------------------------------------------------------------------------------

    def stage(self, path: str, half_bytes: int, *, is_device: bool) -> dict[str, Any] | None:
        """Map host memory, or allocate the device's; return the handle of the latter."""
        self._drop_staging()
        if is_device:
            self._staging = allocate_device(half_bytes, self._device_index(), self._torch)
            return self._staging.handle()
        self._staging = map_host(path, half_bytes, self._torch)
        if self._device != "cpu":
            self._staging.pin()
        return None

    def open(self, what: str) -> tuple[list[Tensor], list[list[Any]]]:
        """Begin a pass; return what it will offer, and the aliases among the parameters."""
        self._offering.close_pass()
        # For the names and shapes of the updates no difference need be computed.
        listed = self._source(PARAMETERS) if what == UPDATES else None
        entries = self._offering.open(what, self._source(what), listed)
        if what == OPTIMIZER:
            self._check_isolated(what, entries, [f"{quantity}/" for quantity in LOADED])
        if what == CONSENSUS:
            self._check_isolated(what, entries, ["", *_moments_beside(entries)])
        ties = self._offering.ties
        return entries, [[worker, alias, name] for (worker, alias), name in ties.items()]

    def fill(self, half: int, pieces: Sequence[Sequence[int]]) -> None:
        """Copy pieces of the open pass into a half of the staging memory."""
        if self._staging is None:
            raise ValueError("there is no staging memory")
        self._offering.fill(self._staging, half, pieces)

    def forget(self) -> None:
        """Drop iterators, copies and staging memory."""
        self._offering.close_pass()
        self._isolated = {}
        self._kept = []
        self._drop_staging()

    def _source(self, what: str) -> Source:
        if what in STATE:
            return lambda: self._offering.method("state")(what)
        if what == UPDATES and self._kept:
            return self._updates
        if what in self._isolated:
            return self._isolated[what]
        if what.startswith(BATCH):
            batch = self._batch(int(what.removeprefix(BATCH)))
            return lambda: batch
        raise ValueError(f"there is nothing to offer as {what!r} now")

    def _batch(self, step: int) -> list[Item]:
        found = self._offering.method("batch")(step)
        if not isinstance(found, Mapping):
            raise SideError("rubbish", f"batch() returned a {type(found).__name__}, not a mapping of names to tensors")
        what = f"batch({step})"
        names = sorted(check_name(name, what) for name in found)
        return [(0, name, check_tensor(found[name], f"{what}: {name}", self._torch)) for name in names]

    def _updates(self) -> Iterator[Item]:
        """Yield the parameters less what they were before the update."""
        for place, (worker, name, tensor) in enumerate(self._offering.state(PARAMETERS)):
            if place >= len(self._kept):
                raise _unlike(PARAMETERS, (worker, name), "was not there before the update")
            difference = self._torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            self._torch.sub(tensor, self._kept[place].reshape(tensor.shape), out=difference)
            del tensor
            yield worker, name, difference
            del difference

    def _drop_staging(self) -> None:
        if self._staging is not None:
            self._staging.close()
        self._staging = None

    def _device_index(self) -> int:
        if self._device == "cpu":
            raise ValueError("there is no device memory on a cpu")
        index = self._torch.device(self._device).index
        return int(self._torch.cuda.current_device() if index is None else index)

    # --- the canonical state ------------------------------------------------------------------------------------------

    def load(self, files: Sequence[StateFile], step: int) -> None:
        """Let the adapter load a state in place, then look whether it did.

        Args:
            files: Files of the workers' distinct tensors.
            step: The number of updates that the state has behind it.

        Raises:
            SideError: The state is not what was loaded.
        """
        self._offering.close_pass()
        given = self._read(files)
        ties = self._offering.ties
        aliases = {
            (quantity, worker, alias): given[quantity, worker, name]
            for quantity in LOADED
            for (worker, alias), name in ties.items()
            if (quantity, worker, name) in given
        }
        self._offering.method("load_state")(OnDevice({**given, **aliases}, self._device), step)
        self._wait()
        # Read anew: the adapter may have written to what it was given.
        self._verify(self._read(files))

    def _read(self, files: Sequence[StateFile]) -> dict[Key, Any]:
        found: dict[Key, Any] = {}
        for quantity, worker, path, identity in files:
            for name, tensor in self._map(path, identity).items():
                found[quantity, worker, name] = tensor
        return found

    def _map(self, path: str, identity: Sequence[int] | None) -> dict[str, Any]:
        try:
            return map_tensors(path, self._torch, identity)
        except OtherFileError as error:
            raise SideError("interference", str(error)) from error

    def _verify(self, given: Mapping[Key, Any]) -> None:
        for quantity in LOADED:
            expected = {key[1:]: tensor for key, tensor in given.items() if key[0] == quantity}
            seen = set()
            for worker, name, tensor in self._offering.state(quantity):
                seen.add((worker, name))
                self._verify_one(quantity, (worker, name, tensor), expected)
            missing = [key for key in expected if key not in seen]
            if missing:
                raise _unlike(quantity, missing[0], "is in the canonical state but not in the side's")

    def _verify_one(self, quantity: str, item: Item, expected: Mapping[tuple[int, str], Any]) -> None:
        worker, name, tensor = item
        key = (worker, name)
        if not expected:
            if quantity == PARAMETERS:
                raise _unlike(quantity, key, "has no counterpart: the canonical state has no parameters")
            if int(self._torch.count_nonzero(tensor)) != 0:
                raise _unlike(quantity, key, "is not zero, as an absent moment should be")
            return
        if key not in expected:
            raise _unlike(quantity, key, "is not in the canonical state")
        wanted = describe((worker, name, expected[key]))
        if describe(item) != wanted:
            raise _unlike(quantity, key, f"is {describe(item)}, not {wanted}")
        if not same_bits(tensor, expected[key], self._torch):
            raise _unlike(quantity, key, "has other values than were loaded")

    # --- updates ------------------------------------------------------------------------------------------------------

    def update(self, path: str, identity: Sequence[int] | None = None) -> tuple[list[str], float]:
        """Make one local update on the inputs in a file.

        Args:
            path: The file.
            identity: Of the file that was verified.

        Returns:
            The losses as texts, and the seconds that the side took.
        """
        self._offering.close_pass()
        self._keep_parameters()
        update_on = self._offering.method("update_on")
        batch = {name: tensor.to(self._device) for name, tensor in self._map(path, identity).items()}
        self._wait()
        began = _clock()
        losses = update_on(batch)
        self._wait()
        return check_losses(losses), _clock() - began

    def _keep_parameters(self) -> None:
        """Copy the distinct parameters, into the copies of the update before where there are any."""
        entries = self._offering.distinct_parameters()
        kept: list[Any] = []
        for place, item in enumerate(self._offering.state(PARAMETERS)):
            if place >= len(entries) or describe(item) != entries[place]:
                raise _unlike(PARAMETERS, (item[0], item[1]), "is not what stood at its place before")
            if place < len(self._kept):
                self._kept[place].copy_(item[2].reshape(-1))
                kept.append(self._kept[place])
            else:
                kept.append(item[2].reshape(-1).clone())
        if len(kept) != len(entries):
            text = f"state({PARAMETERS!r}) yielded {len(kept)} distinct tensors, before {len(entries)}"
            raise SideError("state_mismatch", text)
        self._kept = kept

    def _wait(self) -> None:
        self._adapter.sync()
        devices.synchronize(self._device)

    # --- isolated checks ----------------------------------------------------------------------------------------------

    def isolate_optimizer(self, steps: int, sd: float, seed: int) -> None:
        """Prepare the optimizer's steps on supplied gradients; they are made as the pass is gone through."""
        check = self._offering.method("optimizer_check")
        drawer, entries = self._isolate(sd, seed)

        def begin() -> Iterator[Item]:
            returned = check(dict(Drawn(entries, "parameters", drawer)), Gradients(entries, steps, drawer), steps)
            return _flatten(returned)

        self._isolated = {OPTIMIZER: begin}

    def isolate_consensus(self, number: int, sd: float, seed: int) -> None:
        """Prepare one round of consensus on supplied parameters; it is made as the pass is gone through."""
        mix = self._offering.method("mix")
        drawer, entries = self._isolate(sd, seed)
        self._isolated = {CONSENSUS: lambda: mix(dict(Drawn(entries, f"consensus/{number}", drawer)), number)}

    def _isolate(self, sd: float, seed: int) -> tuple[Drawer, list[Tensor]]:
        self._offering.close_pass()
        # The inputs take as much memory as the copy did.
        self._kept = []
        return Drawer(seed, sd, self._torch, self._device), self._offering.distinct_parameters()

    def _check_isolated(self, what: str, entries: Sequence[Tensor], prefixes: Sequence[str]) -> None:
        """Refuse results that are not one per parameter, in its shape."""
        parameters = self._offering.distinct_parameters()
        expected = {(one.worker, prefix + one.name): one.shape for prefix in prefixes for one in parameters}
        found = {(one.worker, one.name): one.shape for one in entries}
        for key in (*expected, *found):
            if expected.get(key) != found.get(key):
                text = f"{what}: worker {key[0]} {key[1]} is {found.get(key)}, not {expected.get(key)}"
                raise SideError("rubbish", text)


def _moments_beside(entries: Sequence[Tensor]) -> list[str]:
    """Return the prefixes of the moments that ``mix`` yields beside the parameters; either, both or none."""
    prefixes = [f"{quantity}/" for quantity in LOADED if quantity != PARAMETERS]
    return [prefix for prefix in prefixes if any(entry.name.startswith(prefix) for entry in entries)]


def _flatten(returned: Any) -> Iterator[Any]:
    """Yield what ``optimizer_check`` returned as worker, name with its quantity, and tensor."""
    for value in returned:
        if not isinstance(value, (tuple, list)) or len(value) != 4 or value[0] not in LOADED:
            raise SideError(
                "rubbish", f"optimizer_check() yielded {value!r:.200}, not (quantity, worker, name, tensor)"
            )
        quantity, worker, name, tensor = value
        yield worker, f"{quantity}/{check_name(name, 'optimizer_check()')}", tensor


def _unlike(quantity: str, key: tuple[int, str], text: str) -> SideError:
    return SideError("state_mismatch", f"{quantity}: worker {key[0]} {key[1]} {text}")
