"""Each way in which the rows of a training can disagree with the protocol: none passes, and each is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance import check_runs
from acceptance.formats import Ending
from tests.support.evidence import CANDIDATE, Campaign
from tests.support.runs import CLOSE, RECIPE, add_run, gates_of, make_runs, paired, run_rows, set_loss, slot_of

RESULTS, CURVES = "convergence.csv", "curves.csv"
Spoil = Callable[[Campaign], None]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return make_runs(tmp_path, {RECIPE: paired("3.5", CLOSE), "other": paired("3.6", CLOSE)})


def put(file: str = RESULTS, place: int = 0, **fields: str) -> Spoil:
    """Return a change of one row of the candidate's run with seed 46."""

    def spoil(campaign: Campaign) -> None:
        row = run_rows(campaign, file)[place]
        assert all(row[name] != value for name, value in fields.items())
        row.update(fields)

    return spoil


def add(file: str = RESULTS, place: int = 0, **fields: str) -> Spoil:
    def spoil(campaign: Campaign) -> None:
        campaign.tables[file].append(run_rows(campaign, file)[place] | fields)

    return spoil


def delete(file: str, update: int | None = None) -> Spoil:
    def spoil(campaign: Campaign) -> None:
        for row in run_rows(campaign, file) if update is None else run_rows(campaign, file, update=update):
            campaign.tables[file].remove(row)

    return spoil


def other_seed(campaign: Campaign) -> None:
    """Somebody trained with seed 48 instead of 47."""
    for file in (RESULTS, CURVES):
        for side in ("baseline", "candidate"):
            for row in run_rows(campaign, file, seed=47, side=side):
                row["seed"] = "48"
    for row in campaign.tables["attempts.csv"]:
        row["slot"] = row["slot"].replace(f"/{RECIPE}/s47", f"/{RECIPE}/s48")


def fourth_seed(campaign: Campaign) -> None:
    """Somebody trained with a seed more."""
    for side in ("baseline", "candidate"):
        (attempt,) = (
            row for row in campaign.tables["attempts.csv"] if row["slot"].endswith(f"/run/{RECIPE}/s46")
            and row["slot"].startswith("baseline") == (side == "baseline")
        )  # fmt: skip
        campaign.tables["attempts.csv"].append(attempt | {"slot": attempt["slot"].replace("s46", "s48")})
        for file in (RESULTS, CURVES):
            campaign.tables[file] += [row | {"seed": "48"} for row in run_rows(campaign, file, side=side)]


def unseal(campaign: Campaign) -> None:
    for row in campaign.tables["attempts.csv"]:
        if row["slot"] == f"{CANDIDATE}/run/{RECIPE}/s46":
            row["sealed"] = "false"


def unaccounted(campaign: Campaign) -> None:
    rows = campaign.tables["attempts.csv"]
    rows[:] = [row for row in rows if row["slot"] != f"{CANDIDATE}/run/{RECIPE}/s46"]


def two_seeds_with_one_checkpoint(campaign: Campaign) -> None:
    own = run_rows(campaign, seed=45)[0]
    run_rows(campaign, seed=47)[0]["checkpoint_sha256"] = own["checkpoint_sha256"]


def stalled_curve(campaign: Campaign) -> None:
    first, second, _ = run_rows(campaign, CURVES)
    second["tokens"] = first["tokens"]


BAD: dict[str, tuple[str, str, str, Spoil]] = {
    "budget short": (RESULTS, "invalid", "40959 target_tokens", put(target_tokens="40959")),
    "budget long": (RESULTS, "invalid", "and the protocol asks for 40960", put(target_tokens="40961")),
    "part of the split": (RESULTS, "invalid", "8000 validation_tokens", put(validation_tokens="8000")),
    "split twice": (RESULTS, "invalid", "16384 validation_tokens", put(validation_tokens="16384")),
    "updates short": (RESULTS, "invalid", "39 updates", put(updates="39")),
    "segments too many": (RESULTS, "invalid", "21 segments", put(segments="21")),
    "no time": (RESULTS, "invalid", "train_s must be above zero", put(train_s="0")),
    "negative time": (RESULTS, "invalid", "train_s must be above zero", put(train_s="-1")),
    "time within time": (RESULTS, "invalid", "elapsed_s is less", put(elapsed_s="49.999")),
    "digest short": (RESULTS, "invalid", "64 lower-case hex", put(checkpoint_sha256="abc")),
    "digest upper": (RESULTS, "invalid", "64 lower-case hex", put(checkpoint_sha256="A" * 64)),
    "row twice": (RESULTS, "invalid", "2 rows", add()),
    "row twice, another loss": (RESULTS, "invalid", "2 rows", add(final_loss="3.4")),
    "unknown recipe": (RESULTS, "invalid", "no such run", add(recipe="nobody")),
    "unknown seed": (RESULTS, "invalid", "seed 48 candidate attempt 1: no such run", add(seed="48")),
    "unknown attempt": (RESULTS, "invalid", "not in attempts.csv", add(attempt="2")),
    "row deleted": (RESULTS, "missing", "no row", delete(RESULTS)),
    "other seed": (RESULTS, "invalid", "seed 48", other_seed),
    "fourth seed": (RESULTS, "invalid", "seed 48", fourth_seed),
    "unsealed": (RESULTS, "invalid", "not sealed", unseal),
    "unaccounted": (RESULTS, "invalid", "not in attempts.csv", unaccounted),
    "one checkpoint": (RESULTS, "invalid", "one checkpoint", two_seeds_with_one_checkpoint),
    "curve absent": (CURVES, "missing", "no point after update 15, 30, 40 (3 absent)", delete(CURVES)),
    "first point absent": (CURVES, "missing", "no point after update 15 (1 absent)", delete(CURVES, update=15)),
    "last point absent": (CURVES, "missing", "no point after update 40 (1 absent)", delete(CURVES, update=40)),
    "point twice": (CURVES, "invalid", "update 30: 2 rows", add(CURVES, 1)),
    "point between": (CURVES, "invalid", "update 20: no point", add(CURVES, update="20", tokens="20480")),
    "point beyond": (CURVES, "invalid", "update 45: no point", add(CURVES, update="45", tokens="46080")),
    "point of nobody": (CURVES, "invalid", "no such run", add(CURVES, recipe="nobody")),
    "point of a seed": (CURVES, "invalid", "no such run", add(CURVES, seed="44")),
    "point of an attempt": (CURVES, "invalid", "not in attempts.csv", add(CURVES, attempt="3")),
    "other end": (CURVES, "invalid", "not the final loss", put(CURVES, 2, validation_loss="3.4")),
    "other result": (CURVES, "invalid", "not the final loss", put(final_loss="3.4")),
    "budget of the curve": (CURVES, "invalid", "does not end at", put(CURVES, 2, tokens="40959")),
    "tokens back": (CURVES, "invalid", "do not increase", put(CURVES, 1, tokens="100")),
    "tokens too early": (CURVES, "invalid", "do not increase", put(CURVES, 1, tokens="40960")),
    "tokens none": (CURVES, "invalid", "do not increase", put(CURVES, 0, tokens="0")),
    "tokens stalled": (CURVES, "invalid", "do not increase", stalled_curve),
}


@pytest.mark.parametrize("name", BAD)
def test_a_disagreement_is_named_and_never_passes(campaign: Campaign, name: str) -> None:
    file, finding, reason, spoil = BAD[name]
    spoil(campaign)
    gates = gates_of(campaign)
    evidence = gates[f"evidence/{file}"]
    assert evidence["finding"] == finding
    assert reason in evidence["reason"]
    assert evidence["value"] == -evidence["margin"] > 0
    assert campaign.evaluate().exit_code == 4
    if name not in {"unknown recipe", "point of nobody"}:  # they belong to no gate
        assert gates[RECIPE]["finding"] in {"missing", "invalid"}
        assert gates[RECIPE]["value"] is None
    assert gates["other"]["finding"] == "met"


def test_what_the_fixture_makes_is_clean(campaign: Campaign) -> None:
    verdict = campaign.verdict()
    assert (verdict["outcome"], campaign.evaluate().exit_code) == ("pass", 0)
    rows = {gate["id"]: gate["n"] for gate in verdict["gates"] if gate["family"] == "evidence"}
    assert (rows["evidence/convergence.csv"], rows["evidence/curves.csv"]) == (12, 36)


def test_as_many_segments_as_are_allowed_are_one_run(tmp_path: Path) -> None:
    campaign = make_runs(tmp_path, max_segments=4)
    for segments, finding in (("4", "met"), ("5", "invalid")):
        run_rows(campaign)[0]["segments"] = segments
        assert gates_of(campaign)[RECIPE]["finding"] == finding


def test_an_ending_that_allows_another_attempt_is_followed_by_one_that_counts(campaign: Campaign) -> None:
    slot = slot_of(campaign, seed=46)
    for row in campaign.tables["attempts.csv"]:
        if row["slot"] == f"{CANDIDATE}/run/{RECIPE}/s46":
            row["ending"] = "preempted"
    campaign.tables[RESULTS].remove(run_rows(campaign)[0])
    run_rows(campaign, CURVES)[-1]["validation_loss"] = "3.9"  # what an attempt left that does not count
    campaign.tables[CURVES].remove(run_rows(campaign, CURVES)[-1])
    add_run(campaign, slot, "3.5", attempt=2, segments=3)
    gates = gates_of(campaign)
    assert (gates[RECIPE]["finding"], gates["evidence/curves.csv"]["finding"]) == ("met", "met")
    assert campaign.evaluate().exit_code == 0


def test_a_point_of_an_attempt_that_does_not_count_is_held_to_the_plan_too(campaign: Campaign) -> None:
    add_run(campaign, slot_of(campaign, seed=46), "3.5", attempt=2)
    assert gates_of(campaign)[RECIPE]["finding"] == "met"
    run_rows(campaign, CURVES, attempt=2)[0]["update"] = "14"
    assert gates_of(campaign)[RECIPE]["finding"] == "invalid"


@pytest.mark.parametrize(
    ("endings", "finding", "reason"),
    [
        (["crash"], "missing", "which allows no other"),
        (["time_limit"], "missing", "which allows no other"),
        (["window_short"], "missing", "which allows no other"),
        (["cancelled"], "missing", "which allows no other"),
        (["lost"], "missing", "no other was made"),
        (["node_fail"] * 3, "missing", "all 3 attempts ended without a result"),
        (["crash", "completed"], "invalid", "ended crash, which allows no other"),
        (["time_limit", "completed"], "invalid", "ended time_limit, which allows no other"),
        (["cancelled", "completed"], "invalid", "ended cancelled, which allows no other"),
        (["preempted", "completed"], "met", ""),
        (["preempted", "node_fail", "completed"], "met", ""),
        (["node_fail"] * 4, "invalid", "the protocol allows 3"),
        (["completed", "completed"], "met", ""),
    ],
)
def test_a_run_that_nobody_completed_is_missing_and_one_tried_until_it_worked_invalid(
    campaign: Campaign, endings: list[str], finding: str, reason: str
) -> None:
    name = f"{CANDIDATE}/run/{RECIPE}/s46"
    tables = campaign.tables
    tables["attempts.csv"] = [row for row in tables["attempts.csv"] if row["slot"] != name]
    for file in (RESULTS, CURVES):
        own = run_rows(campaign, file)
        tables[file] = [row for row in tables[file] if row not in own]
    for attempt, ending in enumerate(endings, start=1):
        add_run(campaign, slot_of(campaign, seed=46), "3.5", attempt=attempt, ending=Ending(ending))
    gate = gates_of(campaign)[RECIPE]
    assert gate["finding"] == finding
    assert reason in gate["reason"]


def test_all_runs_of_a_recipe_engage_one_path_on_a_side(campaign: Campaign) -> None:
    for row in campaign.tables["attempts.csv"]:
        if row["slot"] == f"{CANDIDATE}/run/{RECIPE}/s47":
            row["candidate_path"] = "d" * 12
    gates = gates_of(campaign)
    assert gates["evidence/engaged/candidate"]["finding"] == "invalid"
    assert f"recipe {RECIPE}: the candidate engaged different paths" in gates["evidence/engaged/candidate"]["reason"]
    assert (gates[RECIPE]["finding"], gates["other"]["finding"]) == ("invalid", "met")
    assert gates["evidence/engaged/baseline"]["finding"] == "met"


def test_recipes_may_engage_paths_of_their_own(campaign: Campaign) -> None:
    for row in campaign.tables["attempts.csv"]:
        if "/run/other/" in row["slot"] and row["candidate_path"]:
            row["candidate_path"] = "d" * 12
    assert campaign.write().evaluate().exit_code == 0


def test_the_spelling_of_a_number_does_not_matter(campaign: Campaign) -> None:
    set_loss(campaign, "3.50100")
    run_rows(campaign)[0]["final_loss"] = "3501e-3"
    assert gates_of(campaign)[RECIPE]["finding"] == "met"


def test_an_exception_inside_the_check_makes_every_run_unusable(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise ArithmeticError("unforeseen")

    monkeypatch.setattr(check_runs, "_check_curve", fail)
    gates = gates_of(campaign)
    assert {gates[name]["finding"] for name in (RECIPE, "other")} == {"invalid"}
    assert "ArithmeticError: unforeseen" in gates["evidence/convergence.csv"]["reason"]
    assert campaign.evaluate().exit_code == 4
