"""What all attempts of an allocation share, and how one run of a side is set up and looked after."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.endings import EndedError, Ending
from ..common.plan import CASES, OF_RECIPES, Allocation, PlannedAttempt, Protocol
from ..measurement.session import Setting
from ..processes.environment import SideFolders, build_environment, own_environment
from ..processes.keeper import Command, kill_descendants
from ..processes.signals import Signals
from .conditions import Conditions
from .data import WatchedData
from .frozen import WatchedFrozen
from .harnesslog import HarnessLog
from .images import Images
from .receipts import Place
from .standing import Standing
from .surroundings import Surroundings
from .workspace import LAUNCHER, Workspace

if TYPE_CHECKING:
    # Only where sides have several processes.
    from ..processes.ranks import Rank
    from .links import Links

_MOST_SHOWN = 10


@dataclass(slots=True)
class Further:
    """The further nodes of an allocation, once one is needed."""

    links: Links | None = None

    def close(self) -> None:
        """End what runs there."""
        if self.links is not None:
            self.links.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What all attempts of an allocation share."""

    allocation: Allocation
    protocol: Protocol
    place: Place
    workspace: Workspace
    harness_source: Path
    environment: Mapping[str, str]
    """The parent's own."""
    signals: Signals
    conditions: Conditions
    log: HarnessLog
    data: WatchedData
    frozen: WatchedFrozen
    standing: Standing
    images: Images
    surroundings: Surroundings
    further: Further
    makes_inputs: bool = False
    """Whether canonical inputs that are not here are made again, as where the home is not at hand."""

    def check_data(self) -> None:
        """Refuse to go on if a data set is not what was frozen.

        Raises:
            EndedError: One is not.
        """
        if changes := self.data.describe_changes():
            raise EndedError(Ending.DATA_CHANGED, changes)


@contextlib.contextmanager
def private_folders(context: Context) -> Iterator[SideFolders]:
    """Create the folders of one process; they go when the context is left."""
    folders = context.workspace.side_folders()
    try:
        yield folders
    finally:
        context.workspace.leave(folders)


def _training(protocol: Protocol, planned: PlannedAttempt) -> tuple[dict[str, Any], int]:
    """Return what a side's function is called with: configuration and seed."""
    seed = planned.seed if planned.kind in OF_RECIPES else protocol.rules.seed
    recipe = protocol.recipe(planned.workload)
    return protocol.workloads[planned.workload].config if recipe is None else recipe.config, seed


@contextlib.contextmanager
def set_up(context: Context, planned: PlannedAttempt, side: str, rank: Rank | None = None) -> Iterator[Setting]:
    """Set up one run of a side, or one rank of it, with folders of its own."""
    protocol, runnable = context.protocol, context.allocation.side(side)
    config, seed = _training(protocol, planned)
    container_sha256 = context.images.check(runnable.container, context.signals.check)
    tree = context.workspace.snapshot(runnable, context.signals.check)
    harness = context.workspace.harness(context.harness_source, context.allocation.harness_sha256)
    with private_folders(context) as folders:
        yield Setting(
            runnable=runnable,
            config=config,
            seed=seed,
            protocol=protocol,
            tree=tree.root,
            launcher=harness.root / LAUNCHER,
            environment=build_environment(
                context.environment,
                runnable,
                folders,
                device=protocol.device,
                threads=protocol.threads,
                mark=context.standing.mark.text,
                rank=rank,
            ),
            working=folders.working,
            bytecode=folders.bytecode,
            private=(str(tree.root), str(harness.root), str(folders.root)),
            declared=(
                *(str(one.path) for one in context.allocation.data.values()),
                *([str(runnable.container.path)] if runnable.container is not None else []),
                *runnable.reads,
            ),
            opened=folders.opened,
            is_full=context.workspace.is_full,
            is_matched=planned.kind in CASES or (planned.kind == "pilot" and protocol.numerical is not None),
            container_sha256=container_sha256,
            rank=rank,
        )


def comparer_command(context: Context, folders: SideFolders) -> Command:
    """Return how the comparer is run: on the interpreter that runs this, from the private copy of the harness."""
    launcher = context.workspace.harness(context.harness_source, context.allocation.harness_sha256).root / LAUNCHER
    python = [sys.executable, "-P", "-s", "-X", f"pycache_prefix={folders.bytecode}"]
    environment = own_environment(
        context.environment, folders, device=context.protocol.device, mark=context.standing.mark.text
    )
    return Command(argv=[*python, str(launcher), "compare"], environment=environment, working=folders.working)


@contextlib.contextmanager
def undisturbed(context: Context, planned: PlannedAttempt, who: str) -> Iterator[None]:
    """Look what was done to harness, home, private copies and data, once nothing of the sides lives any more.

    Raises:
        EndedError: Something was.
    """
    try:
        yield
    finally:
        # First of all: with a limit of its own lowered, the parent can do nothing of the rest.
        moved = [f"the harness's own {change}" for change in _restore(context.conditions)]
        if frozen := context.frozen.find_changes():
            moved.append(f"{', '.join(frozen[:_MOST_SHOWN])} in the home changed, which is frozen")
        changes = context.workspace.find_changes()
        if changes:
            context.log.write(f"{planned.slot}: {who} changed {changes}")
        if moved:
            # Instead of any other ending, which may well have come of it.
            raise EndedError(Ending.INTERFERENCE, f"while {who} ran, {'; '.join(moved)}")
    if changes:
        shown = ", ".join(changes[:_MOST_SHOWN])
        raise EndedError(Ending.SNAPSHOT_CHANGED, f"{len(changes)} entries of read-only copies were touched: {shown}")
    context.check_data()


def _restore(conditions: Conditions) -> list[str]:
    """Restore the parent's own conditions; return what had changed."""
    moved = conditions.changes()
    if moved:
        conditions.restore()
        kill_descendants()
    return moved
