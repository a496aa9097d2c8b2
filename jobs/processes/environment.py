"""The environment of a side: an allow-list, private folders, and what the side's own configuration adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.plan import Runnable
from . import marks

if TYPE_CHECKING:
    from .ranks import Rank  # only where a side has several processes

_INHERITED = ("PATH", "LANG")
_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)
_CACHES = {
    "XDG_CACHE_HOME": "xdg",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "PYTORCH_KERNEL_CACHE_PATH": "kernels",
    "CUDA_CACHE_PATH": "cuda",
    "NUMBA_CACHE_DIR": "numba",
    "MPLCONFIGDIR": "matplotlib",
}
"""Variables that name caches of compiled code, and the private folder of each: start-up is cold on both sides."""

RANK_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""What torchrun sets, and each process of a side finds here that has several. A side of one process has none of it."""


DECIDED = (
    "HOME",
    "TMPDIR",
    "PYTHONPYCACHEPREFIX",
    "PYTHONSAFEPATH",
    "PYTHONNOUSERSITE",
    "PYTHONDONTWRITEBYTECODE",  # by the worker, for the processes that it starts
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    marks.VARIABLE,
    *RANK_VARIABLES,
    *_CACHES,
    *_THREADS,
)
"""Every variable that the harness alone decides, for both sides alike. The driver refuses them in campaign.toml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFolders:
    """The private folders of one run of one side."""

    root: Path

    @property
    def home(self) -> Path:
        """HOME."""
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        """TMPDIR."""
        return self.root / "tmp"

    @property
    def working(self) -> Path:
        """The working directory, empty at the start."""
        return self.root / "work"

    @property
    def caches(self) -> Path:
        """Caches of compiled code."""
        return self.root / "cache"

    @property
    def bytecode(self) -> Path:
        """Bytecode of what this run imports: no other run reads it, so that none can plant code for another."""
        return self.root / "bytecode"

    @property
    def opened(self) -> Path:
        """Where processes that a side's worker forks note what they open."""
        return self.root / "opened"

    def create(self) -> None:
        """Create them below the root, which is there already."""
        for folder in (self.home, self.temporary, self.working, self.caches, self.bytecode):
            folder.mkdir()
        for name in _CACHES.values():
            (self.caches / name).mkdir()


def _private(folders: SideFolders, threads: int, mark: str) -> dict[str, str]:
    """Return what the harness alone decides."""
    return {
        marks.VARIABLE: mark,
        "HOME": str(folders.home),
        "TMPDIR": str(folders.temporary),
        # For interpreters that a side starts itself; the worker has them on its command line.
        "PYTHONPYCACHEPREFIX": str(folders.bytecode),
        "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1",
        **{name: str(folders.caches / folder) for name, folder in _CACHES.items()},
        **{name: str(threads) for name in _THREADS},
    }


def _devices(inherited: Mapping[str, str], device: str) -> dict[str, str]:
    if device == "cpu":
        return {"CUDA_VISIBLE_DEVICES": ""}
    visible = {name: inherited[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in inherited}
    # The scheduler numbers the devices by their place on the bus, CUDA by speed unless it is told.
    return {**visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def build_environment(
    inherited: Mapping[str, str],
    runnable: Runnable,
    folders: SideFolders,
    *,
    device: str,
    threads: int,
    mark: str,
    rank: Rank | None = None,
) -> dict[str, str]:
    """Return the whole environment of one run of a side.

    Args:
        inherited: The parent's own environment, of which only listed names are taken.
        runnable: The side.
        folders: Its private folders.
        device: The protocol's device.
        threads: The protocol's number of threads.
        mark: By which a process is known that outlives its harness.
        rank: Which of the side's processes it is for; None where it has one.

    Raises:
        ValueError: The side's configuration sets what the harness decides, for both sides alike.
    """
    numbered = rank.environment() if rank is not None else {}
    decided = {**_private(folders, threads, mark), **_devices(inherited, device), **numbered}
    own = sorted({*runnable.environment, *runnable.pass_environment} & set(DECIDED))
    if own:
        raise ValueError(
            f"the environment of {runnable.id} sets {', '.join(own)}, which the harness sets for both sides"
        )
    passed = {name: inherited[name] for name in (*_INHERITED, *runnable.pass_environment) if name in inherited}
    return {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin", **passed, **runnable.environment, **decided}


def own_environment(
    inherited: Mapping[str, str], folders: SideFolders, *, device: str, mark: str, threads: int = 1
) -> dict[str, str]:
    """Return the environment of a process of the harness's own, beside the sides.

    Args:
        inherited: The parent's, which it gets whole: it runs on the same interpreter.
        folders: Its private folders.
        device: The protocol's device.
        mark: As for a side.
        threads: How many threads its libraries use by themselves.
    """
    return {**inherited, **_private(folders, threads, mark), **_devices(inherited, device)}
