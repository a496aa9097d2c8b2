"""What a side offers: names, element types and shapes of its tensors, which share storage, and how two sides differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..common.strict import MOST_COUNT, Fields
from ..common.tables import is_text
from .dtypes import ITEM_BYTES

COMPARABLE = "float32"
"""Element type of what is compared: what an optimizer keeps, whose squares neither vanish nor overflow in fp64."""
RESERVED_NAME = "__metadata__"
"""Stands for something else in the header of a safetensors file."""
Key = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor, without its values."""

    worker: int
    name: str
    dtype: str
    """As PyTorch names it, without prefix."""
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements; one for an empty shape."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES[self.dtype]

    @property
    def num_bytes(self) -> int:
        """Bytes of all elements."""
        return self.numel * self.item_bytes

    @property
    def key(self) -> Key:
        """Worker and name."""
        return self.worker, self.name

    def __str__(self) -> str:
        """Return which it is, in words."""
        return f"worker {self.worker} {self.name} {self.dtype}{list(self.shape)}"

    def as_json(self) -> list[Any]:
        """Return it as a side says it, and `read_catalog` reads it."""
        return [self.worker, self.name, self.dtype, list(self.shape)]

    def describe(self) -> str:
        """Return what it is, in words."""
        return f"{self.dtype} {list(self.shape)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Everything that a side offers at once, in its order; tensors that share storage stand there once."""

    tensors: tuple[Tensor, ...]
    tied: tuple[tuple[int, str, str], ...] = ()
    """Worker, left-out name, and the name that stands for it."""

    @property
    def workers(self) -> tuple[int, ...]:
        """The workers, ascending."""
        return tuple(sorted({tensor.worker for tensor in self.tensors}))

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.num_bytes for tensor in self.tensors)

    def of_worker(self, worker: int) -> tuple[Tensor, ...]:
        """Return the tensors of a worker."""
        return tuple(tensor for tensor in self.tensors if tensor.worker == worker)


# --- reading a side's answer ------------------------------------------------------------------------------------------


def _parts(value: Any, length: int, what: str) -> list[Any]:
    if type(value) is not list or len(value) != length:
        raise ValueError(f"not {what}: {value!r:.100}")
    return value


def _name(value: Any) -> str:
    if type(value) is not str or not value or not is_text(value):
        raise ValueError(f"no table can hold the name of a tensor: {value!r:.100}")
    return value


def _count(value: Any, what: str) -> int:
    if type(value) is not int or not 0 <= value <= MOST_COUNT:
        raise ValueError(f"not {what}: {value!r:.100}")
    return value


def _tensor(value: Any) -> Tensor:
    worker, name, dtype, shape = _parts(value, 4, "worker, name, dtype and shape")
    if type(shape) is not list:
        raise ValueError(f"not a shape: {shape!r:.100}")
    if dtype not in ITEM_BYTES:
        raise ValueError(f"{name!r:.100} has elements of type {dtype!r:.100}, which no file of tensors can hold")
    tensor = Tensor(
        worker=_count(worker, "a worker"),
        name=_name(name),
        dtype=dtype,
        shape=tuple(_count(size, "a size") for size in shape),
    )
    _count(tensor.num_bytes, "a number of bytes")
    return tensor


def _tie(value: Any) -> tuple[int, str, str]:
    worker, alias, name = _parts(value, 3, "worker, alias and name")
    return _count(worker, "a worker"), _name(alias), _name(name)


def _refuse_twice(keys: Sequence[Key]) -> None:
    seen: set[Key] = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"worker {key[0]} offers {key[1]} twice")
        seen.add(key)


def read_catalog(fields: Fields) -> Catalog:
    """Take the fields of an answer to ``open``.

    Raises:
        ValueError: They are malformed.
    """
    catalog = Catalog(
        tensors=tuple(_tensor(value) for value in fields.items("tensors")),
        tied=tuple(_tie(value) for value in fields.items("tied")),
    )
    _refuse_twice(
        [*(tensor.key for tensor in catalog.tensors), *((worker, alias) for worker, alias, _ in catalog.tied)]
    )
    return catalog


# --- how two differ ---------------------------------------------------------------------------------------------------


def find_difference(first: Catalog, second: Catalog, *, names: tuple[str, str]) -> str:
    """Return how two catalogs differ, in words; empty if they do not.

    Args:
        first: One of them.
        second: The other one.
        names: What to call them.
    """
    return (
        # First: a tensor that is tied on one side alone seems to be missing there.
        _find_untied(first, second, names)
        or find_missing(first.tensors, second.tensors, names)
        or _find_unlike(first.tensors, second.tensors, names)
    )


def find_missing(first: Sequence[Tensor], second: Sequence[Tensor], names: tuple[str, str]) -> str:
    """Return which tensor only one of two catalogs has, whatever their order, in words; empty if there is none."""
    pairs = ((first, second, names), (second, first, names[::-1]))
    for here, there, (name, other) in pairs:
        known = {tensor.key for tensor in there}
        lacking = [tensor for tensor in here if tensor.key not in known]
        if lacking:
            more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
            return f"{name} has {lacking[0].name} of worker {lacking[0].worker}, {other} has not{more}"
    return ""


def _find_unlike(first: Sequence[Tensor], second: Sequence[Tensor], names: tuple[str, str]) -> str:
    by_key = {tensor.key: tensor for tensor in second}
    for tensor in first:
        other = by_key[tensor.key]
        if other != tensor:
            where = f"{tensor.name} of worker {tensor.worker}"
            return f"{where} is {tensor.describe()} in {names[0]} and {other.describe()} in {names[1]}"
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            text = f"{one.name} of worker {one.worker} in {names[0]}, {other.name} of worker {other.worker}"
            return f"the order differs: place {place} has {text} in {names[1]}"
    return ""


def _find_untied(first: Catalog, second: Catalog, names: tuple[str, str]) -> str:
    for here, there, (name, other) in ((first, second, names), (second, first, names[::-1])):
        lacking = [tie for tie in here.tied if tie not in there.tied]
        if lacking:
            worker, alias, target = lacking[0]
            return f"{name} has {alias} tied to {target} in worker {worker}, {other} has not"
    return ""


def find_unfit(catalog: Catalog) -> str:
    """Return why tensors cannot be compared, in words; empty if they can."""
    for tensor in catalog.tensors:
        if tensor.dtype != COMPARABLE:
            where = f"{tensor.name} of worker {tensor.worker}"
            return f"{where} has elements of type {tensor.dtype}: what is compared is {COMPARABLE}"
    if not catalog.workers or catalog.workers != tuple(range(len(catalog.workers))):
        found = ", ".join(map(str, catalog.workers)) or "none"
        return f"the workers are {found}: they shall be numbered from 0 without gaps"
    return ""


def find_reserved(catalog: Catalog, *, is_state: bool) -> str:
    """Return which name a tensor cannot have, in words; empty if all will do.

    Args:
        catalog: What a side offers.
        is_state: Whether it is a state, whose names stand behind those of quantities in isolated checks.
    """
    for tensor in catalog.tensors:
        if tensor.name == RESERVED_NAME:
            return f"a tensor is called {RESERVED_NAME}, which the header of a safetensors file keeps for itself"
        if is_state and "/" in tensor.name:
            return f"the tensor {tensor.name} has a slash in its name, which separates quantity and name"
    return ""
