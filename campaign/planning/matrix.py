"""Expansion of the matrix: axes, exclusions and categories become the closed lists of workloads and recipes."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import math
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from acceptance.formats import RESERVED_CATEGORIES
from campaign import documents
from campaign.config.locate import KeyPath
from campaign.config.model import Category, Config, Recipe
from campaign.config.slices import is_named
from campaign.config.values import ExactFloat, json_value, safe_name
from campaign.errors import ConfigError
from campaign.planning.topology import KEYS, Topology, lift

MODE_AXIS = "mode"
"""The axis whose labels a category's ``mode`` names."""
MOST_COMBINATIONS = 100_000
"""A matrix beyond this is a slip of the pen, and would exhaust the memory before it is noticed."""
MOST_POINTS = 10**5
"""A curve beyond this is one, too."""
_NUM_POINTS = 20
"""Points of a validation curve where the recipe does not say how far apart they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """The closed lists that the matrix stands for."""

    workloads: tuple[documents.Workload, ...]
    categories: tuple[documents.Category, ...]
    recipes: tuple[documents.Recipe, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that is trained, by name: the workloads, then the recipes."""
        return (*(workload.name for workload in self.workloads), *(recipe.name for recipe in self.recipes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """One value of one axis."""

    label: str
    entries: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A workload before categories are assigned."""

    name: str
    labels: Mapping[str, str]
    """Label by axis; empty for a single workload."""
    config: Mapping[str, Any]
    topology: Topology
    production: bool
    category: str
    key: KeyPath
    """Where it stands in the file."""


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest known words, or all of them if none is close."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(words[:12]) + (", ..." if len(words) > 12 else "")
    return f"one of: {shown}" if words else "none is declared"


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 over the compact JSON of a configuration, keys sorted."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def expand(config: Config) -> Expansion:
    """Expand a configuration into its workloads, categories and recipes.

    Raises:
        ConfigError: An entry is impossible, or two workloads or two recipes are the same.
    """
    drafts = _sliced(config, [*_matrix(config), *_singles(config)])
    if not drafts:
        raise config.error(
            ("matrix",), "no workload: the matrix is empty or everything is excluded, and there is no [[workload]]"
        )
    _check_names(config, drafts)
    _check_configs(config, drafts)
    assigned = _assign(config, drafts)
    workloads = tuple(
        documents.Workload(
            name=draft.name,
            category=assigned[draft.name],
            production=draft.production,
            config=dict(draft.config),
            config_sha256=config_digest(draft.config),
            processes=draft.topology.processes,
            nodes=draft.topology.nodes,
            numerical=draft.topology.numerical,
        )
        for draft in drafts
    )
    _check_numerical(config, workloads)
    return Expansion(
        workloads=workloads, categories=_categories(config, workloads), recipes=_recipes(config, workloads)
    )


# --- axes -------------------------------------------------------------------------------------------------------------


def _label(value: Any) -> str:
    """Return the label of a scalar, spelled as in the file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, ExactFloat):
        return value.text
    return str(value)


def _axis_value(config: Config, axis: str, value: Any, key: KeyPath) -> _Value:
    if isinstance(value, dict):
        entries = dict(value)
        label = entries.pop("label", None)
        if isinstance(label, (dict, list)) or label is None:
            raise config.error(key, f"a table on axis {axis!r} needs a label", hint='{ label = "...", ENTRY = VALUE }')
        if not entries:
            raise config.error(key, f"{_label(label)!r} on axis {axis!r} sets no entry", hint="write the plain value")
    elif isinstance(value, list):
        raise config.error(key, f"a value on axis {axis!r} is a scalar or a table, not a list")
    else:
        label, entries = value, {axis: value}
    try:
        return _Value(label=_label(label), entries=json_value(entries))
    except ValueError as error:
        raise config.error(key, f"axis {axis!r}: {error}") from error


def _axes(config: Config) -> dict[str, list[_Value]]:
    axes: dict[str, list[_Value]] = {}
    for axis, values in config.matrix.axes.items():
        key = ("matrix", "axes", axis)
        if not axis.isidentifier():
            raise config.error(key, f"{axis!r} cannot be the name of an axis", hint="letters, digits and _")
        if not values:
            raise config.error(key, f"axis {axis!r} has no values: the matrix expands to nothing")
        axes[axis] = [_axis_value(config, axis, value, (*key, number)) for number, value in enumerate(values)]
        labels = [value.label for value in axes[axis]]
        for number, label in enumerate(labels):
            if label in labels[:number]:
                raise config.error((*key, number), f"label {label!r} stands twice on axis {axis!r}")
    if (number := math.prod(len(values) for values in axes.values())) > MOST_COMBINATIONS:
        raise config.error(("matrix", "axes"), f"{number} combinations are more than {MOST_COMBINATIONS}")
    return axes


def _filter(
    config: Config, labels_by_axis: Mapping[str, Sequence[str]], table: Mapping[str, Any], key: KeyPath
) -> dict[str, set[str]]:
    """Return the accepted labels by axis, checked against the axes."""
    chosen: dict[str, set[str]] = {}
    for axis, value in table.items():
        if axis not in labels_by_axis:
            raise config.error((*key, axis), f"there is no axis {axis!r}", hint=suggest(axis, labels_by_axis))
        wanted = [_label(item) for item in (value if isinstance(value, list) else [value])]
        if not wanted:
            raise config.error((*key, axis), f"the filter of axis {axis!r} is empty and matches nothing")
        for label in wanted:
            if label not in labels_by_axis[axis]:
                raise config.error(
                    (*key, axis),
                    f"axis {axis!r} has no label {label!r}",
                    hint=suggest(label, labels_by_axis[axis]),
                )
        chosen[axis] = set(wanted)
    return chosen


def _matches(labels: Mapping[str, str], chosen: Mapping[str, set[str]]) -> bool:
    return all(labels.get(axis) in accepted for axis, accepted in chosen.items())


def _exclusions(config: Config, axes: Mapping[str, list[_Value]]) -> list[dict[str, set[str]]]:
    labels = _labels_by_axis(axes)
    chosen = []
    for number, table in enumerate(config.matrix.exclude):
        key = ("matrix", "exclude", number)
        if not table:
            raise config.error(key, "an empty exclusion would leave nothing")
        chosen.append(_filter(config, labels, table, key))
    return chosen


def _labels_by_axis(axes: Mapping[str, list[_Value]]) -> dict[str, list[str]]:
    return {axis: [value.label for value in values] for axis, values in axes.items()}


# --- drafts -----------------------------------------------------------------------------------------------------------


def _pattern(config: Config, axes: Mapping[str, list[_Value]]) -> str:
    """Return the checked name pattern."""
    pattern = config.matrix.name or "-".join(f"{{{axis}}}" for axis in axes)
    key = ("matrix", "name")
    try:
        fields = list(string.Formatter().parse(pattern))
    except ValueError as error:
        raise config.error(key, f"{pattern!r} is not a name pattern: {error}") from error
    for _, field, spec, conversion in fields:
        if field is not None and field not in axes:
            raise config.error(key, f"the pattern names {field!r}, which is no axis", hint=suggest(field, axes))
        if spec or conversion:
            raise config.error(key, f"the pattern may hold {{axis}} only, without format: {pattern!r}")
    return pattern


def _merge(config: Config, chosen: Mapping[str, _Value]) -> dict[str, Any]:
    """Merge the fixed entries with those of each axis; no entry may be set twice."""
    merged = dict(config.matrix.fixed)
    owner = dict.fromkeys(merged, "fixed")
    for axis, value in chosen.items():
        for entry, item in value.entries.items():
            if entry in owner:
                raise config.error(
                    ("matrix", "axes", axis),
                    f"entry {entry!r} is set by both {owner[entry]} and axis {axis!r}",
                    hint="set it in one place",
                )
            owner[entry] = f"axis {axis!r}"
            merged[entry] = item
    return merged


def _matrix(config: Config) -> list[_Draft]:
    if not config.matrix.axes:
        for key in ("production", "exclude", "name"):
            if getattr(config.matrix, key):
                raise config.error(("matrix", key), f"matrix.{key} needs axes")
        return []
    axes = _axes(config)
    pattern = _pattern(config, axes)
    exclusions = _exclusions(config, axes)
    drafts = [
        draft
        for draft in _combinations(config, axes, pattern)
        if not any(_matches(draft.labels, chosen) for chosen in exclusions)
    ]
    names = {draft.name for draft in drafts}
    for number, name in enumerate(config.matrix.production):
        if name not in names:
            raise config.error(
                ("matrix", "production", number), f"no matrix workload is named {name!r}", hint=suggest(name, names)
            )
    return drafts


def _combinations(config: Config, axes: Mapping[str, list[_Value]], pattern: str) -> Iterator[_Draft]:
    production = set(config.matrix.production)
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        labels = {axis: value.label for axis, value in chosen.items()}
        name = pattern.format(**labels)
        try:
            safe_name(name)
        except ValueError as error:
            raise config.error(("matrix", "name"), f"workload name: {error}", hint="give the values labels") from error
        entries, topology = lift(config, _merge(config, chosen), ("matrix", "axes"))
        yield _Draft(
            name=name,
            labels=labels,
            config=entries,
            topology=topology,
            production=name in production,
            category="",
            key=("matrix", "name"),
        )


def _singles(config: Config) -> list[_Draft]:
    return [_single(config, number) for number in range(len(config.workload))]


def _single(config: Config, number: int) -> _Draft:
    workload, key = config.workload[number], ("workload", number)
    fixed = _without_topology(config, workload.config, (*key, "config"))
    own = {name: getattr(workload, name) for name in KEYS if name in workload.model_fields_set}
    shared = {name: config.matrix.fixed[name] for name in KEYS if name in config.matrix.fixed}
    _, topology = lift(config, {**shared, **own}, key)
    return _Draft(
        name=workload.name,
        labels={},
        config=fixed,
        topology=topology,
        production=workload.production,
        category=workload.category,
        key=key,
    )


def _without_topology(config: Config, own: Mapping[str, Any], key: KeyPath) -> dict[str, Any]:
    """Return the fixed entries of the matrix and own ones on top, none of which may have the name of a topology's."""
    for name in KEYS:
        if name in own:
            raise config.error(
                (*key, name),
                f"{name} is not an entry of a configuration",
                why="it says what runs a workload",
                hint=f"write {name} beside config, in [[workload]]; recipes are trained by one process",
            )
    return {**{name: value for name, value in config.matrix.fixed.items() if name not in KEYS}, **own}


# --- slices -----------------------------------------------------------------------------------------------------------


def _sliced(config: Config, drafts: Sequence[_Draft]) -> list[_Draft]:
    """Return the workloads of the chosen slice; all where there is none."""
    if config.part is None:
        return list(drafts)
    _check_patterns(config, "workloads", [draft.name for draft in drafts])
    return [draft for draft in drafts if is_named(draft.name, config.part.workloads)]


def _check_patterns(config: Config, key: Literal["workloads", "recipes"], names: Sequence[str]) -> None:
    """Refuse a pattern of the chosen slice that names nothing."""
    for number, pattern in enumerate(getattr(config.part, key)):
        if not any(is_named(name, (pattern,)) for name in names):
            raise config.error(
                ("slices", str(config.slice), key, number),
                f"no {key.removesuffix('s')} is named {pattern!r}",
                hint=suggest(pattern, names),
            )


# --- checks across workloads ------------------------------------------------------------------------------------------


def _check_names(config: Config, drafts: Sequence[_Draft]) -> None:
    seen: set[str] = set()
    for draft in drafts:
        if draft.name in seen:
            raise config.error(
                draft.key,
                f"two workloads are named {draft.name!r}",
                hint="let the pattern name every axis" if draft.labels else "choose another name",
            )
        seen.add(draft.name)


def _comparable(value: Any) -> Any:
    """Return a configuration value so that 1 and 1.0 are one, but true is neither."""
    if isinstance(value, dict):
        return {key: _comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_configs(config: Config, drafts: Sequence[_Draft]) -> None:
    seen: dict[str, str] = {}
    for draft in drafts:
        topology = [draft.topology.processes, draft.topology.nodes]
        digest = config_digest({"config": _comparable(dict(draft.config)), "topology": topology})
        if digest in seen:
            raise config.error(
                draft.key,
                f"workloads {seen[digest]!r} and {draft.name!r} have one resolved configuration",
                why="the same measurement would count twice",
                hint=f"remove one of them, or put {seen[digest]!r} into matrix.production",
            )
        seen[digest] = draft.name


def _check_numerical(config: Config, workloads: Sequence[documents.Workload]) -> None:
    if config.numerical is not None and not any(workload.numerical for workload in workloads):
        raise config.error(
            ("numerical",),
            "every workload is left out of the numerical family",
            why="nothing could show a miss",
            hint="declare a workload of one process, or remove [numerical]",
        )


# --- categories -------------------------------------------------------------------------------------------------------


def _category_filter(config: Config, category: Category, number: int) -> dict[str, set[str]] | None:
    """Return the accepted labels by axis; None if only single workloads may join."""
    if category.mode is None and not category.small_batch:
        return None
    labels = {axis: [_axis_label(value) for value in values] for axis, values in config.matrix.axes.items()}
    key: KeyPath = ("category", number)
    chosen = _filter(config, labels, category.small_batch, (*key, "small_batch"))
    if category.mode is not None:
        if MODE_AXIS not in labels:
            raise config.error((*key, "mode"), f"a category's mode needs an axis {MODE_AXIS!r} in [matrix]")
        if MODE_AXIS in chosen:
            raise config.error((*key, "small_batch", MODE_AXIS), "the mode is given twice", hint="use mode = alone")
        if category.mode not in labels[MODE_AXIS]:
            raise config.error(
                (*key, "mode"),
                f"axis {MODE_AXIS!r} has no label {category.mode!r}",
                hint=suggest(category.mode, labels[MODE_AXIS]),
            )
        chosen[MODE_AXIS] = {category.mode}
    return chosen


def _axis_label(value: Any) -> str:
    return _label(value["label"] if isinstance(value, dict) else value)


def _assign(config: Config, drafts: Sequence[_Draft]) -> dict[str, str]:
    """Return the category of each workload; the empty name for none."""
    names = [category.name for category in config.category]
    assigned = {draft.name: draft.category for draft in drafts}
    for draft in drafts:
        if draft.category and draft.category not in names:
            raise config.error(
                (*draft.key, "category"),
                f"there is no category {draft.category!r}",
                hint=suggest(draft.category, names),
            )
    for number, category in enumerate(config.category):
        _check_category_name(config, number, drafts)
        chosen = _category_filter(config, category, number)
        members = [] if chosen is None else [d for d in drafts if d.labels and _matches(d.labels, chosen)]
        for draft in members:
            if assigned[draft.name]:
                raise config.error(
                    ("category", number),
                    f"{draft.name!r} belongs to both {assigned[draft.name]!r} and {category.name!r}",
                    hint="narrow small_batch",
                )
            assigned[draft.name] = category.name
    return assigned


def _check_category_name(config: Config, number: int, drafts: Sequence[_Draft]) -> None:
    name = config.category[number].name
    if name in RESERVED_CATEGORIES:
        raise config.error(
            ("category", number, "name"),
            f"{name!r} cannot be the name of a category",
            why="the ids of its gates would be ambiguous",
            hint=f"choose a name other than {', '.join(RESERVED_CATEGORIES)}",
        )
    if name in [category.name for category in config.category[:number]]:
        raise config.error(("category", number, "name"), f"two categories are named {name!r}")
    if any(draft.name == name for draft in drafts):
        raise config.error(
            ("category", number, "name"),
            f"a category and a workload are both named {name!r}",
            why="their gates would have one name",
            hint="choose another name",
        )


def _categories(config: Config, workloads: Sequence[documents.Workload]) -> tuple[documents.Category, ...]:
    categories = []
    for number, category in enumerate(config.category):
        members = tuple(workload.name for workload in workloads if workload.category == category.name)
        if not members:
            raise config.error(
                ("category", number),
                f"category {category.name!r} has no workloads",
                hint="widen mode and small_batch, or give a [[workload]] this category",
            )
        categories.append(documents.Category(name=category.name, workloads=members))
    return tuple(categories)


# --- recipes ----------------------------------------------------------------------------------------------------------


def _recipes(config: Config, workloads: Sequence[documents.Workload]) -> tuple[documents.Recipe, ...]:
    names = {workload.name: "workload" for workload in workloads}
    configs: dict[str, str] = {}
    recipes = []
    if config.part is not None and (config.recipe or "recipes" in config.part.model_fields_set):
        _check_patterns(config, "recipes", [recipe.name for recipe in config.recipe])
    for number, recipe in enumerate(config.recipe):
        if config.part is not None and not is_named(recipe.name, config.part.recipes):
            continue
        if recipe.name in names:
            raise config.error(
                ("recipe", number, "name"),
                f"a {names[recipe.name]} is named {recipe.name!r} already",
                why="their pilots would have one name",
                hint="choose another name",
            )
        names[recipe.name] = "recipe"
        resolved = _recipe(config, recipe, number)
        digest = config_digest(_comparable(resolved.config))
        if digest in configs:
            raise config.error(
                ("recipe", number, "config"),
                f"recipes {configs[digest]!r} and {recipe.name!r} have one resolved configuration",
                why="the same training would count twice",
                hint="remove one of them; with another budget it is another configuration, which says so",
            )
        configs[digest] = recipe.name
        recipes.append(resolved)
    return tuple(recipes)


def _recipe(config: Config, recipe: Recipe, number: int) -> documents.Recipe:
    key: KeyPath = ("recipe", number)
    every = recipe.evaluate_every or math.ceil(recipe.updates / _NUM_POINTS)
    if every > recipe.updates:
        raise config.error(
            (*key, "evaluate_every"),
            f"evaluate_every {every} is more than all {recipe.updates} updates",
            hint=f"at most {recipe.updates}: the last update has a point in any case",
        )
    if math.ceil(recipe.updates / every) > MOST_POINTS:
        raise config.error(
            (*key, "evaluate_every"),
            f"a curve of more than {MOST_POINTS} points",
            hint="evaluate less often, or leave evaluate_every out",
        )
    if recipe.targets < recipe.updates:
        raise config.error(
            (*key, "targets"),
            f"{recipe.targets} targets are fewer than {recipe.updates} updates",
            why="every update predicts at least one",
            hint="targets are those of the whole training, all its updates together",
        )
    resolved = _without_topology(config, recipe.config, (*key, "config"))
    return documents.Recipe(
        name=recipe.name,
        config=resolved,
        config_sha256=config_digest(resolved),
        targets=recipe.targets,
        validation_targets=recipe.validation_targets,
        updates=recipe.updates,
        evaluate_every=every,
        scored=recipe.scored,
    )


__all__ = ["ConfigError", "Expansion", "config_digest", "expand", "suggest"]
