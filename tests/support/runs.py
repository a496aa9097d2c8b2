"""Trainings of the convergence family with chosen losses, as a campaign would have left them.

>>> campaign = make_runs(tmp_path, {"sync": [("3.50", "3.51"), ("3.48", "3.47"), ("3.52", "3.52")]})
>>> gates_of(campaign)["sync"]["finding"]
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from acceptance.formats import Ending
from campaign.documents import ConvergenceExtension, ConvergenceRules, Recipe, Slot, slot_for
from tests.support.evidence import (
    BASELINE_PATH,
    CANDIDATE,
    CANDIDATE_PATH,
    Campaign,
    Rows,
    append_row,
    make_campaign,
)

SEEDS = (45, 46, 47)
ADDED = (48, 49, 50)
RECIPE = "sync"

Losses = Sequence[tuple[str, str]]
"""Final loss of the baseline and of the candidate, seed by seed."""

EXTENSION = ConvergenceExtension(seeds=ADDED, quantile_first="4.08607", quantile="2.49239")
"""Three seeds, then six, each look at one-sided 2.75%."""


def paired(baseline: str, differences: Sequence[str]) -> list[tuple[str, str]]:
    """Return losses around one of the baseline, spread by 0.002 from seed to seed, with these differences."""
    centre = (len(differences) - 1) // 2
    own = [Decimal(baseline) + Decimal("0.002") * (index - centre) for index in range(len(differences))]
    return [(str(loss), str(loss + Decimal(text))) for loss, text in zip(own, differences, strict=True)]


PUBLISHED = {
    "sync-production": paired("3.561927", ["-0.003448081", "0.00198", "0.007408081"]),
    "packed4-production": paired("3.58262937", ["-0.01425588", "-0.00660475", "0.00104638"]),
    "packed8-production": paired("3.58979438", ["-0.00121988", "0.00120425", "0.00362838"]),
    "sync-b16-c512": paired("3.562178", ["-0.000398448", "0.000292", "0.000982448"]),
    "packed4-b32-c512": paired("3.56226437", ["0.00062586", "0.00221125", "0.00379664"]),
}
"""Losses whose table is the published one."""

CLOSE = ["-0.001", "0", "0.001"]
"""Differences whose upper bound is 0.001686."""

WIDE = ["0.004", "0.005", "0.006"]
"""Differences whose bounds lie on both sides of the margin."""


def make_recipe(name: str, **fields: Any) -> Recipe:
    """Make a recipe whose curve has points after 15, 30 and 40 updates."""
    values: dict[str, Any] = {
        "config": {"name": name, "batch": 16},
        "config_sha256": hashlib.sha256(name.encode()).hexdigest(),
        "targets": 40960,
        "validation_targets": 8192,
        "updates": 40,
        "evaluate_every": 15,
        "scored": "the mean of the workers, after the last consensus",
    }
    return Recipe(**(values | {"name": name} | fields))


def make_runs(
    folder: Path,
    losses: Mapping[str, Losses] | None = None,
    *,
    families: Sequence[str] = ("convergence",),
    throughput: Mapping[str, Any] | None = None,
    **rules: Any,
) -> Campaign:
    """Make a campaign of trainings and write it.

    Args:
        folder: Where to write it.
        losses: The losses of each recipe: as many as there are seeds, or fewer, whose further seeds have no attempt.
        families: The declared families.
        throughput: Arguments of `make_campaign`.
        rules: Fields of `ConvergenceRules` that differ from the default.
    """
    wanted = {RECIPE: paired("3.5", CLOSE)} if losses is None else losses
    recipes = tuple(make_recipe(name) for name in wanted)
    convergence = ConvergenceRules(**({"recipes": recipes} | rules))
    workloads = throughput or {"ratios": {}, "production": {}}
    campaign = make_campaign(folder, families=families, convergence=convergence, **workloads)
    for recipe, pairs in wanted.items():
        for seed, (baseline, candidate) in zip(seeds_of(convergence), pairs, strict=False):
            add_run(campaign, slot_of(campaign, recipe, seed, "baseline"), baseline)
            add_run(campaign, slot_of(campaign, recipe, seed, "candidate"), candidate)
    return campaign.write()


def seeds_of(rules: ConvergenceRules) -> tuple[int, ...]:
    """Return all seeds, those of an extension included."""
    return (*rules.seeds, *(rules.extension.seeds if rules.extension else ()))


def slot_of(campaign: Campaign, recipe: str = RECIPE, seed: int = 45, side: str = "candidate") -> Slot:
    """Return the slot of a run."""
    name = f"{side}/run/{recipe}/s{seed}"
    return next(slot for slot in campaign.protocol.slots if slot.slot == name)


def add_run(
    campaign: Campaign,
    slot: Slot,
    loss: str,
    *,
    attempt: int = 1,
    ending: Ending = Ending.COMPLETED,
    segments: int = 1,
) -> None:
    """Add the rows of one attempt at a run.

    Args:
        campaign: Where to add them.
        slot: The slot.
        loss: Its final loss.
        attempt: Number of the attempt.
        ending: How it ended; the tables get rows of a completed one only.
        segments: How many segments it had.
    """
    name = slot_for(slot.slot, CANDIDATE)
    own_path = {"baseline": ("baseline_path", BASELINE_PATH), "candidate": ("candidate_path", CANDIDATE_PATH)}[
        slot.side
    ]
    attempt_row = {
        "slot": name,
        "attempt": str(attempt),
        "allocation": f"run-{slot.side}-{slot.workload}-a{attempt}",
        "node": "node1",
        "device": "cpu:Test_CPU",
        "baseline_path": "",
        "candidate_path": "",
        own_path[0]: own_path[1],
        "ending": ending.value,
        "sealed": "true",
    }
    append_row(campaign, "attempts.csv", attempt_row)
    if ending is not Ending.COMPLETED:
        return
    recipe = recipe_of(campaign, slot.workload)
    seed = slot.slot.rpartition("/s")[2]
    key = {"recipe": slot.workload, "seed": seed, "side": slot.side, "attempt": str(attempt)}
    train_s = Decimal(80 if slot.side == "baseline" else 50)
    result = {
        "final_loss": loss,
        "target_tokens": str(recipe.targets),
        "validation_tokens": str(recipe.validation_targets),
        "updates": str(recipe.updates),
        "segments": str(segments),
        "train_s": str(train_s),
        "elapsed_s": str(train_s + 30),
        "checkpoint_sha256": hashlib.sha256(f"{name} attempt {attempt}".encode()).hexdigest(),
    }
    append_row(campaign, "convergence.csv", key | result)
    every, last = recipe.evaluate_every, recipe.updates
    for update in sorted({*range(every, last, every), last}):
        point = {
            "update": str(update),
            "tokens": str(recipe.targets * update // recipe.updates),
            "validation_loss": loss
            if update == last
            else str(Decimal(loss) + (last - update) * Decimal("0.01")).lower(),
        }
        append_row(campaign, "curves.csv", key | point)


def recipe_of(campaign: Campaign, name: str = RECIPE) -> Recipe:
    """Return a recipe of the protocol."""
    rules = campaign.protocol.convergence
    assert rules is not None
    return next(recipe for recipe in rules.recipes if recipe.name == name)


def run_rows(
    campaign: Campaign, file: str = "convergence.csv", *, seed: int = 46, side: str = "candidate", **wanted: object
) -> Rows:
    """Return the rows of a run of the first recipe in one table."""
    found = campaign.rows(file, recipe=RECIPE, seed=seed, side=side, **wanted)
    assert found
    return found


def set_loss(campaign: Campaign, loss: str, *, seed: int = 46, side: str = "candidate") -> None:
    """Give a run another final loss, at the end of its curve too."""
    (row,) = run_rows(campaign, seed=seed, side=side)
    row["final_loss"] = loss
    run_rows(campaign, "curves.csv", seed=seed, side=side)[-1]["validation_loss"] = loss


def gates_of(campaign: Campaign) -> dict[str, dict[str, Any]]:
    """Return the gates of what the campaign holds, by id without the family's name."""
    gates = campaign.write().verdict()["gates"]
    return {gate["id"].removeprefix("convergence/"): gate for gate in gates}


def finding_of(campaign: Campaign, recipe: str = RECIPE) -> str:
    """Return the finding of a recipe's gate."""
    return str(gates_of(campaign)[recipe]["finding"])


def observed(campaign: Campaign, recipe: str = RECIPE) -> dict[str, Any]:
    """Return what is observed of a recipe."""
    observations = campaign.write().verdict()["observations"]
    assert "error" not in observations
    found: dict[str, Any] = next(own for own in observations["convergence"]["recipes"] if own["recipe"] == recipe)
    return found
