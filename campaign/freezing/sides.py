"""Freezes one side: its snapshot, its interpreter, its lock file, and the checks that need no run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from campaign import documents, files, redact
from campaign.config.model import Config, Side
from campaign.errors import ConfigError
from campaign.freezing import machine
from campaign.freezing.containers import read_container, resolve_launch
from campaign.freezing.machine import Interpreter
from campaign.paths import HomePaths, SnapshotPaths
from campaign.snapshot import MostUntracked, Snapshot, take_snapshot
from campaign.snapshot.importable import find_importable
from campaign.snapshot.scan import UnmatchedIncludeError

SideKey = Literal["baseline", "candidate"]
Progress = Callable[[int, int], None]


def no_progress(_done: int, _total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSide:
    """One side, staged."""

    snapshot: Snapshot
    side: documents.Side
    interpreter: Interpreter
    notes: tuple[str, ...]


def freeze_side(
    config: Config,
    key: SideKey,
    side: Side,
    target: SnapshotPaths,
    *,
    home: HomePaths,
    identifier: Path,
    progress: Progress,
) -> FrozenSide:
    """Take the snapshot of a side and describe it.

    Args:
        config: The configuration, for messages.
        key: Which of its tables the side is.
        side: That table.
        target: Where the snapshot goes.
        home: The campaign home.
        identifier: The frozen harness's program that the interpreter is asked with.
        progress: Called with the bytes copied so far and in all.

    Raises:
        ConfigError: The side asks for something that cannot be frozen.
    """
    check_secrets(config)
    lockfile = _read_lockfile(config, key, side)
    container = _read_container(config, key, side)
    launch = resolve_launch(side.launch, container)
    try:
        snapshot = take_snapshot(
            side.source, target, home=home.root, include=side.include, progress=progress, most=_most_untracked(side)
        )
    except UnmatchedIncludeError as error:
        raise config.error((key, "include", error.index), error.what, why=error.why, hint=error.hint) from error
    _check_imports(config, key, side, target.tree)
    interpreter = ask_interpreter(config, str(side.python), launch, identifier)
    return FrozenSide(
        snapshot=snapshot,
        side=documents.Side(
            snapshot_sha256=snapshot.sha256,
            files_sha256=snapshot.files_sha256,
            changes_sha256=snapshot.changes_sha256,
            adapter=side.adapter,
            python=str(side.python),
            python_path=side.python_path,
            environment=dict(side.environment),
            pass_environment=side.pass_environment,
            launch=launch,
            container=container,
            reads=tuple(map(str, side.reads)),
            lockfile=lockfile,
            git=snapshot.git,
            distributions=interpreter.distributions,
            interpreter=interpreter.environment,
        ),
        interpreter=interpreter,
        notes=tuple(_notes(key, side, snapshot, interpreter)),
    )


def ask_interpreter(config: Config, python: str, launch: Sequence[str], identifier: Path) -> Interpreter:
    """Ask an interpreter what it is, unless this host cannot run those of the sides: then nothing is run.

    Args:
        config: The configuration, which says whether it can.
        python: The interpreter's path.
        launch: The command before it.
        identifier: The frozen harness's program to ask with.
    """
    if config.execution.login_node == "differs":
        return machine.unknown_interpreter('not asked here: [execution] login_node = "differs"')
    return machine.read_interpreter(python, launch, identifier)


def _most_untracked(side: Side) -> MostUntracked:
    return MostUntracked(file_bytes=side.untracked_file_mib << 20, bytes=side.untracked_mib << 20)


def check_secrets(config: Config) -> None:
    """Refuse a configuration that plainly holds a secret: its bytes are frozen, its environment goes into manifests.

    Raises:
        ConfigError: It does; the value is not repeated.
    """
    for number, line in enumerate(config.raw.decode("utf-8").splitlines(), start=1 - config.num_added_lines):
        found = redact.find_token(line) or redact.find_assignment(line)
        if found:
            raise ConfigError(
                f"this looks like {found}",
                where=f"{config.path}:{number}",
                why="the file is frozen as it stands, and whoever audits the campaign reads it",
                hint="take the value out, and name the variable in pass_environment: then its value is not stored",
            )


def _read_lockfile(config: Config, key: SideKey, side: Side) -> documents.Lockfile | None:
    if side.lockfile is None:
        return None
    try:
        return documents.Lockfile(path=str(side.lockfile), sha256=files.sha256_file(side.lockfile))
    except OSError as error:
        raise config.error(
            (key, "lockfile"), f"the lock file {side.lockfile} cannot be read: {error.strerror}"
        ) from error


def _read_container(config: Config, key: SideKey, side: Side) -> documents.Container | None:
    if side.container is None:
        return None
    try:
        return read_container(side.container)
    except ConfigError as error:
        raise config.error((key, "container"), error.what, why=error.why, hint=error.hint) from error


def _check_imports(config: Config, key: SideKey, side: Side, tree: Path) -> None:
    """Make sure that the snapshot has the adapter's module: else it would come from a live tree, or not at all."""
    for index, folder in enumerate(side.python_path):
        if not (tree / folder).is_dir():
            raise config.error((key, "python_path", index), f"the snapshot has no folder {folder!r}")
    module = side.adapter.partition(":")[0]
    stem = Path(*module.split("."))
    for folder in side.python_path:
        base = tree / folder / stem
        sources = (base.with_name(f"{base.name}.py"), base / "__init__.py", *base.parent.glob(f"{base.name}.*.so"))
        if any(source.is_file() for source in sources):
            return
    raise config.error(
        (key, "adapter"),
        f"the snapshot has no module {module!r}",
        why=f"neither {stem}.py nor {stem}/__init__.py is in {', '.join(side.python_path)}",
        hint="correct the name or python_path; a file that git ignores needs an include pattern",
    )


def _notes(key: SideKey, side: Side, snapshot: Snapshot, interpreter: Interpreter) -> Iterator[str]:
    """Say what a person should know although nothing is refused."""
    if interpreter.distributions is None:
        yield f"{key}: what is installed is not recorded: {interpreter.facts['unknown']}"
    else:
        for name, version in interpreter.distributions.items():
            if "(editable" in version:
                yield f"{key}: {name} {version} is read from a live folder that the snapshot does not cover"
    for path in side.reads:
        yield f"{key}: it may read {path}, whose content is not frozen"
    for variable in side.environment:
        if redact.names_secret(variable):
            yield f"{key}: the value of {variable} is frozen; a secret belongs in pass_environment"
    if importable := find_importable(side.source, snapshot.ignored, side.python_path):
        yield (
            f"{key}: git ignores {len(importable)} files that python_path makes importable, {importable[0]} first;"
            " they are not in the snapshot: name those that are needed under include"
        )
    yield from _git_notes(key, snapshot.git)


def _git_notes(key: SideKey, git: Mapping[str, Any] | None) -> Iterator[str]:
    if git is not None:
        for count, what in ((git["skip_worktree"], "skip-worktree"), (git["assume_unchanged"], "assume-unchanged")):
            if count:
                yield f"{key}: git hides changes of {count} files ({what}); their true bytes were taken"
        if git["unmerged"]:
            yield f"{key}: {git['unmerged']} files are in the middle of a merge"
