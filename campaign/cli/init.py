"""``campaign init``."""

from __future__ import annotations

from pathlib import Path

import click

import reports
from campaign import files
from campaign.cli.options import json_option
from campaign.cli.output import Output
from campaign.errors import ConfigError

FILES = ("campaign.toml", "adapter.py")


def template_folder() -> Path:
    """Return the folder of the files that ``init`` writes: inside the wheel, or beside the packages in a checkout."""
    package = Path(reports.__file__).parent
    inside = package / "templates" / "init"
    return inside if inside.is_dir() else package.parent / "templates" / "init"


@click.command
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@json_option
def command(folder: Path, output: Output) -> None:
    """Write a commented campaign.toml and an adapter stub into DIR. Overwrites nothing."""
    written = [str(path) for path in write_templates(folder)]
    output.result("\n".join([*(f"wrote {path}" for path in written), *next_steps(folder)]), {"written": written})


def write_templates(folder: Path) -> list[Path]:
    """Write the files and return their paths.

    Raises:
        ConfigError: One of them exists already, or the folder cannot be written.
    """
    targets = [folder / name for name in FILES]
    for path in targets:
        if path.exists() or path.is_symlink():
            raise ConfigError("exists already and is not overwritten", where=str(path), hint="choose another folder")
    source = template_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in targets:
            files.write_new(path, (source / path.name).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", where=str(folder)) from error
    return targets


def next_steps(folder: Path) -> list[str]:
    """Return what to do next, one line each."""
    return [
        f"next: edit both, then look at the cost: campaign plan {folder / 'campaign.toml'}",
        f"then freeze the baseline: campaign freeze {folder / 'campaign.toml'} --home DIR",
    ]
