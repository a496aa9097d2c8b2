"""What a side's iterators yield: checked, described, and which of the tensors are one and the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from ..common.strict import MOST_COUNT
from ..processes.serving import SideError
from ..tensors.catalog import Tensor
from ..tensors.dtypes import ITEM_BYTES, dtype_name

Item = tuple[int, str, Any]
"""Worker, name and tensor."""
Source = Callable[[], Iterable[Any]]
"""Begins a pass over what a side offers."""
Ties = dict[tuple[int, str], str]
"""Worker and name of a tied tensor to the name under which it is compared."""
_MOST_CHARACTERS = 500
_MOST_NAMES = 10_000
"""That are remembered as such: each pass has the same ones again."""


def describe(item: Item) -> Tensor:
    """Return what an item is."""
    worker, name, tensor = item
    return Tensor(worker=worker, name=name, dtype=dtype_name(tensor.dtype), shape=tuple(tensor.shape))


def check_name(name: Any, what: str) -> str:
    """Return a tensor's name.

    Raises:
        SideError: It is no text, or could not stand in a table.
    """
    if type(name) is str and _is_name(name):
        return name
    raise SideError("rubbish", f"{what}: {name!r:.100} is no name: text without comma, quote and control characters")


@functools.lru_cache(maxsize=_MOST_NAMES)
def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MOST_CHARACTERS and text.isprintable() and not {",", '"'} & set(text)


def check_tensor(tensor: Any, what: str, torch: Any) -> Any:
    """Return a tensor apart from its history.

    Raises:
        SideError: It is no dense tensor with values, or of a type that cannot be offered.
    """
    if not isinstance(tensor, torch.Tensor):
        raise SideError("rubbish", f"{what} is a {type(tensor).__name__}, not a tensor")
    if tensor.layout != torch.strided or tensor.device.type == "meta" or tensor.is_quantized:
        raise SideError("rubbish", f"{what} has no plain values: {tensor.layout}, device {tensor.device}")
    if dtype_name(tensor.dtype) not in ITEM_BYTES:
        raise SideError("rubbish", f"{what} is of {tensor.dtype}, which cannot be offered")
    return tensor.detach()


def check_item(value: Any, what: str, torch: Any) -> Item:
    """Return an item that a side yielded.

    Raises:
        SideError: It is not worker, name and tensor.
    """
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise SideError("rubbish", f"{what} yielded {value!r:.200}, not (worker, name, tensor)")
    worker, name, tensor = value
    if type(worker) is not int or not 0 <= worker <= MOST_COUNT:
        raise SideError("rubbish", f"{what} yielded {worker!r:.100} as a worker, not a non-negative int")
    check_name(name, what)
    return worker, name, check_tensor(tensor, f"{what}: worker {worker} {name}", torch)


def check_items(values: Any, what: str, torch: Any) -> Generator[Item, None, None]:
    """Yield what a side yields, checked.

    Raises:
        SideError: It cannot be gone through, or yields something else.
    """
    try:
        iterator = iter(values)
    except TypeError:
        raise SideError("rubbish", f"{what} returned a {type(values).__name__}, not an iterator") from None
    try:
        for value in iterator:
            yield check_item(value, what, torch)
            # Else this one would still be held while the side makes the next.
            del value
    finally:
        # A generator that is left in its middle would keep what it has switched, such as the recording of gradients.
        close = getattr(iterator, "close", None)
        if callable(close):
            close()


def check_distinct(entries: Sequence[Tensor], what: str) -> None:
    """Refuse a name that stands twice.

    Raises:
        SideError: One does.
    """
    seen: set[tuple[int, str]] = set()
    for entry in entries:
        if (entry.worker, entry.name) in seen:
            raise SideError("rubbish", f"{what} yielded {entry.name} of worker {entry.worker} twice")
        seen.add((entry.worker, entry.name))


def _version(tensor: Any) -> int:
    """Return how often a tensor was written to; 0 where nobody counts."""
    try:
        return int(tensor._version)  # noqa: SLF001 - torch has no public name for it
    except RuntimeError:
        return 0


def find_ties(items: Iterable[Item]) -> tuple[list[Tensor], Ties]:
    """Return what there is and which tensors of a worker are one and the same: storage, offset, shape and stride.

    All are held meanwhile, so that no address serves twice. One that is written to before the last was yielded is a
    buffer that the side uses again and again: that ties nothing.
    """
    held = [(item, _version(item[2])) for item in items]
    ties: Ties = {}
    first: dict[tuple[Any, ...], str] = {}
    for (worker, name, tensor), version in held:
        if tensor.numel() == 0 or _version(tensor) != version:
            continue
        place = (tensor.device, tensor.untyped_storage().data_ptr(), tensor.storage_offset())
        key = (worker, *place, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
        if key in first:
            ties[worker, name] = first[key]
        first.setdefault(key, name)
    return [describe(item) for item, _ in held], ties
