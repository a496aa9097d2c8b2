"""A part of a configuration that is a campaign by itself: which workloads and recipes, and what else it sets.

One file may describe a whole matrix and the parts of it that are run. Which part is chosen stands in the file itself,
as `slice = "NAME"`; an option of the command line puts that line before the file, and what is frozen has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from campaign.config.locate import KeyPath, Places, Position

CHOICE = "slice"
TABLES = "slices"
_SET = "set"


def put_before(raw: bytes, name: str) -> bytes:
    """Return the bytes of a file that does not choose a slice, with a first line that does.

    Args:
        raw: The file.
        name: A slice's name, of letters, digits, `.`, `_` and `-`.
    """
    return f'{CHOICE} = "{name}"\n'.encode() + raw


def chosen_name(values: Mapping[str, Any]) -> str | None:
    """Return the name of the slice that a file chooses; None if it chooses none, or something that is no name."""
    name = values.get(CHOICE)
    return name if isinstance(name, str) else None


def apply(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a file with what its chosen slice sets.

    Tables are merged key by key, anything else takes the place of what was there. A slice without recipes declares no
    trainings. What is not as it should be is left to the model to refuse.

    Args:
        values: The parsed file.
    """
    part = _chosen_table(values)
    if part is None:
        return dict(values)
    own = part.get(_SET, {})
    merged = _merged(values, own) if isinstance(own, Mapping) else dict(values)
    if part.get("recipes") == []:
        merged = {key: value for key, value in merged.items() if key not in ("convergence", "recipe")}
    return {**merged, CHOICE: values[CHOICE], TABLES: values[TABLES]}


def _chosen_table(values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    tables, name = values.get(TABLES), chosen_name(values)
    part = tables.get(name) if isinstance(tables, Mapping) and name is not None else None
    return part if isinstance(part, Mapping) else None


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(before, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return merged


def is_named(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether one of the patterns names something."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def find(places: Places, key: KeyPath, chosen: str | None) -> Position:
    """Return where a key stands: in what the chosen slice sets, if as much of it is there as elsewhere.

    Args:
        places: The places of the file's keys.
        key: The key, as if there were no slices.
        chosen: The slice, if one is chosen.
    """
    prefix: KeyPath = (TABLES, chosen, _SET) if chosen is not None else ()
    own = places.num_found((*prefix, *key)) - len(prefix) if prefix else 0
    return places.find((*prefix, *key) if own > 0 and own >= places.num_found(key) else key)


__all__ = ["CHOICE", "TABLES", "apply", "chosen_name", "find", "is_named", "put_before"]
