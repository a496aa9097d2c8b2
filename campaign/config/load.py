"""Reads campaign.toml strictly: every error is a `ConfigError` with file, line, column, reason and a suggestion."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from campaign.config import slices
from campaign.config.locate import KeyPath, Position, locate
from campaign.config.model import CampaignFile, Config, Matrix, Side
from campaign.config.values import CONTAINER_REFERENCE, REFERENCE, ExactFloat
from campaign.errors import ConfigError
from campaign.planning import matrix
from campaign.planning.convergence import convergence_rules
from campaign.planning.protocol import expand_slots, numerical_rules

_TOML_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


def load_config(path: Path, chosen: str | None = None) -> Config:
    """Read and check a configuration file.

    Args:
        path: The TOML file; its relative paths are relative to its folder.
        chosen: The slice that is meant, where the file does not say so itself.

    Raises:
        ConfigError: It cannot be read, or asks for something that cannot be.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}", where=str(path), hint="campaign init DIR writes a first campaign.toml"
        ) from error
    place = path.parent.resolve() / path.name
    if chosen is None or _chooses(raw, place, chosen):
        return parse_config(raw, path=place)
    return parse_config(slices.put_before(raw, chosen), path=place, num_added_lines=1)


def _chooses(raw: bytes, path: Path, chosen: str) -> bool:
    """Return whether a file chooses that slice itself; refuse one that chooses another or has none of that name."""
    values = _parse_toml(raw, where=str(path))
    own = values.get(slices.CHOICE)
    if own is not None and own != chosen:
        raise ConfigError(
            f"the slice {chosen!r} is asked for, and the file chooses {own!r} itself",
            where=str(path),
            hint=f"take the line {slices.CHOICE} = ... out of the file, or ask for none",
        )
    known = values.get(slices.TABLES)
    names = known if isinstance(known, dict) else {}
    if chosen not in names:
        raise ConfigError(f"there is no slice {chosen!r}", where=str(path), hint=matrix.suggest(chosen, names))
    return own is not None


def parse_config(raw: bytes, *, path: Path, num_added_lines: int = 0) -> Config:
    """Check the bytes of a configuration file.

    Args:
        raw: The bytes.
        path: Where they are from: for messages, and as the start of relative paths. Absolute.
        num_added_lines: Lines of the bytes before the first one of the file.

    Raises:
        ConfigError: They ask for something that cannot be.
    """
    values = _parse_toml(raw, where=str(path))
    try:
        tables = CampaignFile.model_validate(slices.apply(values), context={"folder": path.parent})
    except ValidationError as error:
        raise _explain(error, raw, path, slices.chosen_name(values), num_added_lines) from error
    given = {name: getattr(tables, name) for name in tables.model_fields_set}
    config = Config(**given, path=path, raw=raw, num_added_lines=num_added_lines)
    _check_slices(config)
    _check_references(config)
    _check_rules(config)
    expansion = matrix.expand(config)
    numerical_rules(config, expansion)
    convergence_rules(config, expansion.recipes)
    if not expansion.categories and not any(workload.production for workload in expansion.workloads):
        raise config.error(
            ("matrix",),
            "nothing would be judged: there is neither a category nor a production workload",
            hint='add [[category]] name = "...", or production = true on a workload',
        )
    if config.baseline_first and not any(slot.phase == "baseline" for slot in expand_slots(config, expansion)):
        raise config.error(
            ("baseline_first",),
            "baseline_first would wait for nothing: no slot measures the baseline alone",
            hint="set throughput.solo = true, or baseline_first = false",
        )
    return config


def differing_tables(old: Config, new: Config) -> tuple[str, ...]:
    """Name the frozen tables in which two configurations differ: all of them but ``[candidate]``.

    Relative paths are compared as written, so that a copy of a file in another folder is the same configuration.
    """
    first, second = (_neutral(config) for config in (old, new))
    return tuple(
        name
        for name in CampaignFile.model_fields
        if name != "candidate" and _exact(getattr(first, name)) != _exact(getattr(second, name))
    )


def _neutral(config: Config) -> CampaignFile:
    values = _parse_toml(config.raw, where=str(config.path))
    return CampaignFile.model_validate(slices.apply(values), context={"folder": Path("/")})


def _exact(value: Any) -> str:
    """Return a text that is equal for two tables only if they mean the same: 1, 1.0 and true are three things."""
    if isinstance(value, Matrix):
        # The order of the axes is the order of the workloads, hence of the slots.
        value = {**dict(value), "axes": list(value.axes.items())}
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{_exact(item)}" for key, item in sorted(value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_exact(item) for item in value) + "]"
    return value.text if isinstance(value, ExactFloat) else repr(value)


# --- syntax -----------------------------------------------------------------------------------------------------------


def _parse_toml(raw: bytes, *, where: str) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigError("not UTF-8", where=f"{where}:{line}:{column}", hint="save the file as UTF-8") from error
    try:
        return tomllib.loads(text, parse_float=ExactFloat)
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        end = Position(text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1)
        position = Position(int(place[1]), int(place[2])) if place is not None and place[1] else end
        what = _TOML_PLACE.sub("", str(error))
        raise ConfigError(f"not valid TOML: {what}", where=f"{where}:{position.line}:{position.column}") from error
    except ValueError as error:  # an integer with more digits than Python converts
        raise ConfigError(f"not valid TOML: {error}", where=where) from error
    except RecursionError as error:
        raise ConfigError("not valid TOML: nested too deeply", where=where) from error


# --- one key ----------------------------------------------------------------------------------------------------------


def model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the table model inside an annotation such as ``Table | None`` or ``tuple[Table, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := model_in(part)) is not None), None)


def _known_keys(path: KeyPath) -> list[str]:
    """Return the keys that the table at a path may have."""
    model: type[BaseModel] = CampaignFile
    for part in path:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        inner = model_in(field.annotation) if field is not None else None
        model = inner or model
    return list(model.model_fields)


def _dotted(path: KeyPath) -> str:
    text = ""
    for part in (part for part in path if part != "[key]"):
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _message(error: ErrorDetails) -> tuple[str, str]:
    """Return what is wrong and a hint."""
    path = tuple(error["loc"])
    dotted = _dotted(path)
    if error["type"] == "extra_forbidden":
        key = str(path[-1])
        table = _dotted(path[:-1])
        return f"unknown key {key!r}" + (f" in {table}" if table else ""), matrix.suggest(key, _known_keys(path[:-1]))
    if error["type"] == "missing":
        return f"{dotted} is missing", f"add {path[-1]} = ..."
    if error["type"] == "value_error":
        return f"{dotted}: {error['ctx']['error']}", ""
    if error["type"] == "tuple_type":
        return f"{dotted}: must be a list, not {error['input']!r}", f"{path[-1]} = [...]"
    message = error["msg"].removeprefix("Input ")
    given = "" if isinstance(error["input"], dict | list) else f", not {error['input']!r}"
    return f"{dotted}: {message}{given}", ""


def _explain(error: ValidationError, raw: bytes, path: Path, chosen: str | None, num_added_lines: int) -> ConfigError:
    """Return the first error of a file, in the file's order."""
    places = locate(raw.decode("utf-8"))

    def position(details: ErrorDetails) -> Position:
        found = slices.find(places, details["loc"], chosen)
        return Position(max(found.line - num_added_lines, 1), found.column)

    def rank(details: ErrorDetails) -> tuple[bool, int, int]:
        # A misspelt key is both unknown and missing: the first of the two says what to do.
        place = position(details)
        return details["type"] == "missing", place.line, place.column

    found = sorted(error.errors(), key=rank)
    first, place = found[0], position(found[0])
    what, hint = _message(first)
    why = f"the first of {len(found)} problems" if len(found) > 1 else ""
    return ConfigError(what, where=f"{path}:{place.line}:{place.column}", why=why, hint=hint)


# --- several keys -----------------------------------------------------------------------------------------------------


def _check_slices(config: Config) -> None:
    if config.slice is not None and config.slice not in config.slices:
        raise config.error(
            (slices.CHOICE,), f"there is no slice {config.slice!r}", hint=matrix.suggest(config.slice, config.slices)
        )
    for name, part in config.slices.items():
        key = (slices.TABLES, name)
        if not part.workloads:
            raise config.error((*key, "workloads"), f"the slice {name!r} has no workloads")
        for entry in part.set:
            if entry in (slices.CHOICE, slices.TABLES) or entry not in CampaignFile.model_fields:
                raise config.error(
                    (*key, "set", entry),
                    f"a slice cannot set {entry!r}",
                    hint=matrix.suggest(entry, sorted({*CampaignFile.model_fields} - {slices.CHOICE, slices.TABLES})),
                )


def _check_references(config: Config) -> None:
    sides: list[tuple[str, Side]] = [("baseline", config.baseline)]
    if config.candidate is not None:
        sides.append(("candidate", config.candidate))
    for name, side in sides:
        _check_container(config, name, side)
        for variable, value in side.environment.items():
            key = (name, "environment", variable)
            for match in REFERENCE.finditer(value):
                kind, _, data = match[1].partition(".")
                if kind != "data" or not match[0].endswith("}"):
                    raise config.error(
                        key, f"{match[0]!r} is no reference", hint="only ${data.NAME} is replaced, nothing else"
                    )
                if data not in config.data:
                    raise config.error(
                        key,
                        f"no data set {data!r} is declared",
                        hint=f"add [data.{data}]; {matrix.suggest(data, config.data)}",
                    )
            if variable in side.pass_environment:
                raise config.error(key, f"{variable} is both set and passed through", hint="choose one")


def _check_container(config: Config, name: str, side: Side) -> None:
    """Refuse an image that the launch prefix does not name, and a prefix that names one which is not declared."""
    named = [index for index, part in enumerate(side.launch) if CONTAINER_REFERENCE in part]
    if side.container is None and named:
        raise config.error(
            (name, "launch", named[0]),
            f"{CONTAINER_REFERENCE} stands for an image that is not declared",
            hint='add container = "path/to/image.sif" beside launch',
        )
    if side.container is not None and not named and not any(str(side.container) in part for part in side.launch):
        raise config.error(
            (name, "container"),
            "the launch prefix does not name the image, so that nothing would run in it",
            hint=f'launch = ["apptainer", "exec", "{CONTAINER_REFERENCE}"], say',
        )


def _check_rules(config: Config) -> None:
    pairs = config.throughput.pairs_per_repeat
    if pairs > 1 and pairs % 2:
        raise config.error(
            ("throughput", "pairs_per_repeat"),
            f"pairs_per_repeat is 1 or even, not {pairs}",
            why="with an odd number the order in which the sides run does not cancel",
            hint=f"{pairs - 1} or {pairs + 1}",
        )
    for key in ("again", "again_once"):
        endings = getattr(config.retries, key)
        for number, ending in enumerate(endings):
            if ending in endings[:number]:
                raise config.error(("retries", key, number), f"{ending} stands twice in {key}")
    both = sorted(set(config.retries.again) & set(config.retries.again_once))
    if both:
        raise config.error(("retries", "again_once"), f"{both[0]} stands in both again and again_once")


__all__ = ["differing_tables", "load_config", "parse_config"]
