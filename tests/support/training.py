"""Synthetic trainings for a synthetic home: losses that fall by rule, and checkpoints that hold next to nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from acceptance.formats import CONVERGENCE, CURVES, Table
from campaign import documents, files

Loss: TypeAlias = Callable[[str, int, str], float]
"""Final loss by recipe, seed and side."""
AT = 1_800_000_000.0
PHASES: dict[Literal["baseline", "candidate"], documents.Phase] = {"baseline": "baseline", "candidate": "convergence"}
"""The phase of a side's runs."""
UPDATE_S = 0.5
"""Seconds of one update."""


def close(_recipe: str, seed: int, side: str) -> float:
    """Return losses whose differences are small and not equal."""
    own = Decimal("3.5") + Decimal("0.002") * (seed - 46)
    return float(own + Decimal("0.001") * (seed - 46) if side == "candidate" else own)


def make_recipe(name: str = "sync", **fields: Any) -> documents.Recipe:
    """Return a recipe whose curve has points after 15, 30 and 40 updates."""
    config = {"name": name, "batch": 16}
    values: dict[str, Any] = {
        "name": name,
        "config": config,
        "config_sha256": files.sha256_bytes(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()),
        "targets": 40960,
        "validation_targets": 8192,
        "updates": 40,
        "evaluate_every": 15,
    }
    return documents.Recipe(**(values | fields))


def make_rules(*recipes: str, **fields: Any) -> documents.ConvergenceRules:
    """Return the rules of the convergence family for some recipes."""
    made = tuple(make_recipe(name) for name in recipes or ("sync",))
    return documents.ConvergenceRules(**({"recipes": made} | fields))


def runs(rules: documents.ConvergenceRules | None) -> Iterator[tuple[str, int | None]]:
    """Yield every recipe without a seed, which stands for its pilot, and then with each seed."""
    if rules is None:
        return
    for recipe in rules.recipes:
        yield recipe.name, None
    for seed in (*rules.seeds, *(rules.extension.seeds if rules.extension else ())):
        for recipe in rules.recipes:
            yield recipe.name, seed


def is_extending(protocol: documents.Protocol, slot: documents.Slot) -> bool:
    """Return whether a slot is a run of the extension."""
    rules = protocol.convergence
    return slot.kind == "run" and rules is not None and documents.seed_of_run(slot.slot) not in rules.seeds


def saved(slot: str, attempt: int, update: int) -> dict[str, bytes]:
    """Return what a side saves: the same for the same state."""
    state = f"{slot} {attempt} {update}".encode()
    return {"model.bin": b"model " + state, "state/random.json": b'{"random": "' + state + b'"}'}


def checkpoint(
    recipe: documents.Recipe, *, update: int, loss: float, before: documents.Checkpoint | None, **about: Any
) -> documents.Checkpoint:
    """Return checkpoint.json.

    Args:
        recipe: What is trained.
        update: Updates behind it.
        loss: The run's final loss.
        before: What the segment started from.
        about: The fields that say whose it is.
    """
    per_update = recipe.targets // recipe.updates
    every, last = recipe.evaluate_every, recipe.updates
    points = [point for point in sorted({*range(every, last, every), last}) if point <= update]
    curve = tuple(
        documents.CurvePoint(
            update=point,
            tokens=recipe.targets if point == last else per_update * point,
            validation_loss=float(Decimal(str(loss)) + Decimal("0.01") * (last - point)),
        )
        for point in points
    )
    made = update - (before.update if before else 0)
    return documents.Checkpoint(
        recipe=recipe.name,
        config_sha256=recipe.config_sha256,
        update=update,
        tokens=recipe.targets if update == last else per_update * update,
        train_s=(before.train_s if before else 0.0) + UPDATE_S * made,
        elapsed_s=(before.elapsed_s if before else 0.0) + UPDATE_S * made + 2.0,
        curve=curve,
        progress={"updates": update, "lr": 0.001, "random": files.sha256_bytes(str(update).encode())},
        at=AT + update,
        **about,
    )


def tables(recipe: documents.Recipe, final: documents.Checkpoint, *, segments: int, seed: int) -> dict[str, bytes]:
    """Return what the last segment of a completed run writes, from the last checkpoint."""
    key = f"{recipe.name},{seed},{final.side},{final.attempt}"
    result = (
        f"{key},{final.curve[-1].validation_loss!r},{final.tokens},{recipe.validation_targets},{final.update},"
        f"{segments},{final.train_s!r},{final.elapsed_s + 0.5!r},{files.sha256_bytes(final.to_bytes())}"
    )
    points = [f"{key},{point.update},{point.tokens},{point.validation_loss!r}" for point in final.curve]
    return {CONVERGENCE.file: _csv(CONVERGENCE, [result]), CURVES.file: _csv(CURVES, points)}


def _csv(table: Table, lines: list[str]) -> bytes:
    return ("\n".join([",".join(table.header), *lines]) + "\n").encode()
