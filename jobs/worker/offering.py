"""What a side offers for comparison, tensor by tensor: passes over its iterators, in bounded pieces.

A pass is opened by going through an iterator once, for the names and shapes alone, and then goes through a second one
as its pieces are asked for. So no more than one tensor need exist at a time beside what the side itself holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from ..processes.serving import SideError
from ..tensors.catalog import Tensor
from ..tensors.dtypes import dtype_name
from ..tensors.staging_memory import Staging
from . import devices
from .entries import Item, Source, Ties, check_distinct, check_items, describe, find_ties

PARAMETERS = "parameters"
STATE = (PARAMETERS, "gradients", "exp_avg", "exp_avg_sq")
"""The quantities that an adapter's ``state`` has."""


class Pass:
    """One way through some tensors, whose elements are asked for in ascending order.

    Args:
        what: What is offered, for reasons.
        entries: What there was a moment ago.
        items: The tensors, now.
    """

    def __init__(self, what: str, entries: Sequence[Tensor], items: Iterator[Item]) -> None:
        self._what = what
        self._entries = entries
        self._items = items
        self._index = -1
        self._flat: Any = None
        self._numels = [entry.numel for entry in entries]
        self._left = sum(self._numels)

    def take(self, index: int, start: int, count: int) -> Any:
        """Return elements of a tensor, flat.

        Args:
            index: Which tensor; not before that of the call before.
            start: The first element.
            count: How many.

        Raises:
            SideError: The side yields something else than a moment ago.
        """
        if not self._index <= index < len(self._entries) or not 0 <= start <= start + count <= self._numels[index]:
            raise ValueError(f"{self._what}: no elements {start} to {start + count} of tensor {index} any more")
        while self._index < index:
            self._advance()
        self._left -= count
        return self._flat if count == self._numels[index] else self._flat[start : start + count]

    def finish_if_done(self) -> None:
        """Look whether the side yields more than it should, once every element was taken."""
        if self._left > 0:
            return
        while self._index < len(self._entries) - 1:
            self._advance()
        extra = next(self._items, None)
        if extra is not None:
            raise self._changed(f"goes on with {describe(extra)}", f"ended after {len(self._entries)} tensors")

    def close(self) -> None:
        """Let go of the iterator and of the tensor that is held."""
        self._flat = None
        close = getattr(self._items, "close", None)
        if close is not None:
            close()

    def _advance(self) -> None:
        # The tensor before is let go of first, so that a side need not hold two.
        self._flat = None
        expected = self._entries[self._index + 1]
        item = next(self._items, None)
        if item is None:
            raise self._changed(f"ended after {self._index + 1} tensors", f"had {len(self._entries)}")
        if describe(item) != expected:
            raise self._changed(f"yielded {describe(item)}", f"yielded {expected} at this place")
        self._index += 1
        # A tensor that is not contiguous is copied whole: the largest one is within what may be used.
        self._flat = item[2].reshape(-1)

    def _changed(self, now: str, before: str) -> SideError:
        return SideError("state_mismatch", f"{self._what}: the side {now}, but a moment ago it {before}")


class Offering:
    """Passes over what one side offers.

    Args:
        adapter: The adapter's object.
        device: The protocol's device.
        torch: The side's PyTorch.
    """

    def __init__(self, adapter: Any, device: str, torch: Any) -> None:
        self._adapter = adapter
        self._device = device
        self._torch = torch
        self._pass: Pass | None = None
        self._parameters: list[Tensor] | None = None
        self._ties: Ties = {}

    def method(self, name: str) -> Callable[..., Any]:
        """Return what the adapter's object offers under a name.

        Raises:
            SideError: Nothing.
        """
        found = getattr(self._adapter, name, None)
        if not callable(found):
            raise SideError("adapter_incomplete", f"the adapter's object does not offer {name}")
        return found  # type: ignore[no-any-return]  # the adapter is the user's

    def state(self, quantity: str) -> Iterator[Item]:
        """Begin a pass over one quantity of the side's state, without aliases."""
        return self._through(_state(quantity), lambda: self.method("state")(quantity))

    @property
    def ties(self) -> Ties:
        """Aliases among the parameters; looked for once."""
        self.distinct_parameters()
        return self._ties

    def distinct_parameters(self) -> list[Tensor]:
        """Return the parameters without aliases; looked at once."""
        if self._parameters is None:
            what = _state(PARAMETERS)
            entries, self._ties = find_ties(check_items(self.method("state")(PARAMETERS), what, self._torch))
            check_distinct(entries, what)
            self._parameters = [entry for entry in entries if (entry.worker, entry.name) not in self._ties]
        return self._parameters

    def open(self, what: str, source: Source, listed: Source | None = None) -> list[Tensor]:
        """Begin a pass; return what it will offer.

        Args:
            what: What it is, for reasons.
            source: Yields the tensors, from the beginning at each call.
            listed: Yields others of the same description, where these are cheaper.
        """
        self.close_pass()
        # Not a comprehension: that would hold one tensor while the side makes the next.
        entries = list(map(describe, self._through(what, listed or source)))
        check_distinct(entries, what)
        self._pass = Pass(what, entries, self._through(what, source))
        return entries

    def fill(self, staging: Staging, half: int, pieces: Sequence[Sequence[int]]) -> None:
        """Copy elements of the open pass into a half; all are there when this returns.

        Args:
            staging: Where to.
            half: Which half.
            pieces: Index of the tensor, first element, number of elements, and where to in the half, in bytes.
        """
        if self._pass is None:
            raise ValueError("no pass is open")
        for index, start, count, offset in pieces:
            flat = self._pass.take(index, start, count)
            view = staging.view(half, dtype_name(flat.dtype), count, offset)
            view.copy_(flat, non_blocking=True)
        self._pass.finish_if_done()
        devices.synchronize(self._device)

    def close_pass(self) -> None:
        """End the pass, if one is open."""
        if self._pass is not None:
            self._pass.close()
        self._pass = None

    def _through(self, what: str, source: Source) -> Iterator[Item]:
        """Begin a pass over a source, checked, without aliases."""
        return self._distinct(check_items(source(), what, self._torch))

    def _distinct(self, items: Generator[Item, None, None]) -> Iterator[Item]:
        ties = self.ties
        with contextlib.closing(items):
            for item in items:
                if (item[0], item[1]) not in ties:
                    yield item
                del item


def _state(quantity: str) -> str:
    return f"state({quantity!r})"
