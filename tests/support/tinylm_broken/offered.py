"""How a module of faulty backends offers each as an adapter, `MODULE:NAME`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import adapter
from tinylm import build
from tinylm.fast import Fast

Make = Callable[..., adapter.Session]


def offer(faults: Mapping[str, type[Fast]]) -> Callable[[str], Make]:
    """Make backends known to the example; return what a module calls itself `__getattr__`."""
    build.BACKENDS.update(faults)

    def find(name: str) -> Make:
        if name not in faults:
            raise AttributeError(name)

        def make(config: dict[str, object], *, seed: int, device: str) -> adapter.Session:
            return adapter.Session(name, config, seed=seed, device=device)

        return make

    return find
