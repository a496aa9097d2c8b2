"""Submitting cases: what they wait for, what their plans say, what they cost and what a failure puts out of reach."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign.documents import AllocationPlan, Calibration, NumericalRules, Slot, ThroughputRules
from campaign.errors import EvidenceError
from campaign.files import sha256_file
from campaign.planning.calibration import Experience, about_seconds
from campaign.record.ledger import read_entries
from campaign.submission.choose import choose
from campaign.submission.cost import expect, experience
from campaign.submission.desk import Wish
from campaign.submission.plans import canonical_inputs
from campaign.watching.gates import Gate, gates_out_of_reach
from campaign.watching.observation import View
from campaign.watching.progress import status_text, summarise
from campaign.watching.state import SlotState
from tests.campaign.submission.support import Cluster, make_desk
from tests.campaign.submission.test_desk import run_jobs, submit
from tests.support.home import CANDIDATE, SMALL
from tests.support.jobs import JobHome, make_job_home

NAME = SMALL[0].name
CASE, CONTROL = f"{CANDIDATE}/case/{NAME}", f"baseline/control-case/{NAME}"


@pytest.fixture
def home(tmp_path: Path) -> JobHome:
    return make_job_home(tmp_path / "home", cases=SMALL[:1], repeats=1, numerical=NumericalRules())


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def view(home: JobHome, cluster: Cluster) -> View:
    return make_desk(home, cluster).view(CANDIDATE)


def with_state(seen: View, name: str, state: SlotState) -> View:
    return replace(seen, slots={**seen.slots, name: replace(seen.slots[name], state=state)})


def planned(home: JobHome) -> dict[str, tuple[int, str]]:
    """Return the updates and the inputs of every planned attempt."""
    plans = [AllocationPlan.read(path) for path in home.paths.allocations.glob("*/allocation.json")]
    return {one.slot: (one.updates, one.inputs_sha256) for plan in plans for one in plan.attempts}


def test_cases_come_after_the_pilots_and_are_planned_on_the_recorded_inputs(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    assert {name.split("/")[1] for name in submit(desk).choice.slots} == {"pilot"}
    run_jobs(home, cluster)
    submit(desk)
    sha256 = sha256_file(home.paths.attempt(f"baseline/pilot/{NAME}", 1).inputs)
    found = planned(home)
    assert found[CASE] == found[CONTROL] == (0, sha256)
    others = {name: said for name, said in found.items() if "case" not in name}
    assert others
    assert {inputs for _, inputs in others.values()} == {""}
    intents = [entry.data for entry in read_entries(home.paths) if entry.act == "intent"]
    intended = {
        attempt["slot"]: attempt["inputs_sha256"]
        for intent in intents
        for allocation in intent["allocations"]
        for attempt in allocation["attempts"]
    }
    assert intended[CASE] == intended[CONTROL] == sha256


def recorded(home: JobHome) -> Path:
    """Return the one file of tensors that the stand-in's pilot recorded."""
    (path,) = home.paths.inputs.glob("*.safetensors")
    return path


def test_a_case_whose_inputs_are_gone_or_changed_is_not_submitted_and_loses_no_attempt(
    home: JobHome, cluster: Cluster
) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    run_jobs(home, cluster)
    path, before = recorded(home), home.acts()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"?")
    with pytest.raises(EvidenceError, match="not what the baseline's pilot recorded") as changed:
        submit(desk)
    assert (changed.value.where, "it was changed" in changed.value.why) == (str(path), True)
    path.unlink()
    with pytest.raises(EvidenceError, match="not what the baseline's pilot recorded"):
        submit(desk)
    assert [act for act in home.acts()[len(before) :] if act == "intent"] == []
    path.write_bytes(data)
    assert {CASE, CONTROL} <= set(submit(desk).choice.slots)


def test_pilots_and_pairs_do_not_ask_for_the_inputs(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    run_jobs(home, cluster)
    recorded(home).unlink()
    wish = Wish(candidate=CANDIDATE, cluster="slurm", phase="throughput")
    assert {name.split("/")[1] for name in submit(desk, wish).choice.slots} == {"pair"}


def test_inputs_that_were_hashed_are_not_hashed_again_by_the_same_command(
    home: JobHome, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    run_jobs(home, cluster)
    submit(desk, Wish(candidate=CANDIDATE, cluster="slurm", phase="baseline"))
    monkeypatch.setattr("campaign.files.sha256_regular", lambda _: pytest.fail("hashed again"))
    assert CASE in submit(desk, Wish(candidate=CANDIDATE, cluster="slurm", phase="numerical")).choice.slots


def test_a_phase_of_its_own_holds_the_cases_of_the_candidate_alone(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    run_jobs(home, cluster)
    numerical = submit(desk, Wish(candidate=CANDIDATE, cluster="slurm", phase="numerical"))
    assert numerical.choice.slots == (CASE,)
    baseline = submit(desk, Wish(candidate=CANDIDATE, cluster="slurm", phase="baseline"))
    assert CONTROL in baseline.choice.slots


def test_asking_for_the_phase_first_submits_the_pilots_of_both_sides(home: JobHome, cluster: Cluster) -> None:
    choice = choose(view(home, cluster).slots, candidate=CANDIDATE, phase="numerical")
    assert set(choice.slots) == {f"baseline/pilot/{NAME}", f"{CANDIDATE}/pilot/{NAME}"}
    assert choice.waiting == (CASE,)


@pytest.mark.parametrize("pilot", [f"baseline/pilot/{NAME}", f"{CANDIDATE}/pilot/{NAME}"])
def test_a_case_waits_for_the_pilots_of_both_sides(home: JobHome, cluster: Cluster, pilot: str) -> None:
    desk = make_desk(home, cluster)
    submit(desk)
    run_jobs(home, cluster)
    running = with_state(view(home, cluster), pilot, SlotState.RUNNING)
    assert CASE in choose(running.slots, candidate=CANDIDATE).waiting
    failed = with_state(view(home, cluster), pilot, SlotState.FAILED)
    assert CASE in choose(failed.slots, candidate=CANDIDATE).out_of_reach


def test_a_pilot_that_sealed_no_inputs_is_evidence_of_an_error(home: JobHome, cluster: Cluster) -> None:
    submit(make_desk(home, cluster))
    run_jobs(home, cluster)
    completed = view(home, cluster).slots[f"{CANDIDATE}/pilot/{NAME}"].completed
    assert completed is not None
    assert completed.receipt is not None
    with pytest.raises(EvidenceError, match=r"without inputs\.json"):
        canonical_inputs(completed.receipt)


# --- what a failure costs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [CASE, CONTROL, f"baseline/pilot/{NAME}", f"{CANDIDATE}/pilot/{NAME}"])
def test_a_slot_that_is_lost_puts_the_gates_of_its_workload_out_of_reach(
    home: JobHome, cluster: Cluster, name: str
) -> None:
    failed = with_state(view(home, cluster), name, SlotState.FAILED)
    gates = {gate.gate for gate in gates_out_of_reach(home.protocol, failed.slots) if gate.slot == name}
    numerical = {f"numerical/{NAME}/{quantity}" for quantity in ("loss", "gradients", "parameters", "updates")}
    assert numerical <= gates
    assert ("throughput/sync/repeat-1" in gates) == ("pilot" in name)


def test_gated_tensors_have_gates_of_their_own(tmp_path: Path, cluster: Cluster) -> None:
    rules = NumericalRules(gated_tensors=("updates",))
    home = make_job_home(tmp_path / "home", cases=SMALL[:1], repeats=1, numerical=rules)
    failed = with_state(view(home, cluster), CASE, SlotState.EXHAUSTED)
    assert Gate(gate=f"numerical/{NAME}/updates/tensors", slot=CASE) in gates_out_of_reach(home.protocol, failed.slots)


def test_status_has_a_line_for_each_phase_and_one_for_all_gates_of_a_lost_case(home: JobHome, cluster: Cluster) -> None:
    home.wish(endings={f"{CASE}/1": Ending.STATE_MISMATCH.value})
    desk = make_desk(home, cluster)
    for _ in range(2):
        submit(desk)
        run_jobs(home, cluster)
    progress = summarise(
        home.paths, home.protocol, desk.frozen.manifest, CANDIDATE, desk.view(CANDIDATE), now=time.time()
    )
    assert progress.by_phase["numerical"] == {"failed": 1}
    assert progress.by_phase["baseline"] == {"completed": 3}
    assert len(progress.to_json()["gates_out_of_reach"]) == 4
    text = status_text(progress)
    assert f"  numerical/{NAME} (4 gates): {CASE} can no longer be completed" in text.splitlines()


# --- cost -------------------------------------------------------------------------------------------------------------


def slot(kind: str) -> Slot:
    order = {"case": ("baseline", "candidate"), "control_case": ("baseline", "baseline_again")}[kind]
    side = "candidate" if kind == "case" else "baseline"
    values = {"slot": f"{side}/x/w", "side": side, "phase": "numerical", "kind": kind, "workload": "w"}
    return Slot.of({**values, "repeat": 0, "pair": 0, "order": order})


def calibration(updates_per_s: float, startup_s: float) -> Calibration:
    return Calibration(updates_per_s=updates_per_s, tokens_per_update=8.0, startup_s=startup_s, updates=10)


KNOWN = Experience(calibrations={("baseline", "w"): calibration(1.0, 10.0), ("candidate", "w"): calibration(2.0, 20.0)})


@pytest.mark.parametrize(
    ("rules", "kind", "seconds"),
    [
        (NumericalRules(), "case", (10 + 5) + (20 + 2.5)),
        (NumericalRules(), "control_case", 2 * (10 + 5)),
        # Sides that take turns are built anew for each of the five updates.
        (NumericalRules(serialized=("w",)), "case", (50 + 5) + (100 + 2.5)),
        (NumericalRules(shared_executor=("w",)), "case", (50 + 5) + (100 + 2.5)),
        (NumericalRules(shared_executor=("w",)), "control_case", 10 + 5),
    ],
)
def test_a_case_is_expected_to_take_its_set_ups_and_updates(rules: NumericalRules, kind: str, seconds: float) -> None:
    assert about_seconds(ThroughputRules(), rules, slot(kind), KNOWN) == pytest.approx(seconds)


def test_a_case_is_expected_to_take_what_its_control_took() -> None:
    seen = replace(KNOWN, case_s={("control_case", "w"): 77.0})
    assert about_seconds(ThroughputRules(), NumericalRules(), slot("case"), seen) == 77.0
    both = replace(KNOWN, case_s={("control_case", "w"): 77.0, ("case", "w"): 88.0})
    assert about_seconds(ThroughputRules(), NumericalRules(), slot("case"), both) == 88.0


def test_nothing_is_expected_of_a_case_before_both_pilots() -> None:
    only = Experience(calibrations={("baseline", "w"): calibration(1.0, 10.0)})
    assert about_seconds(ThroughputRules(), NumericalRules(), slot("case"), only) is None
    assert about_seconds(ThroughputRules(), NumericalRules(), slot("control_case"), only) is not None


def test_completed_cases_are_what_others_are_expected_to_take(home: JobHome, cluster: Cluster) -> None:
    desk = make_desk(home, cluster)
    for _ in range(2):
        submit(desk)
        run_jobs(home, cluster)
    known = experience(desk.view(CANDIDATE).slots.values())
    assert known.case_s == {("control_case", NAME): 0.1, ("case", NAME): 0.1}
    cases = [one for one in home.protocol.slots if one.kind in ("case", "control_case")]
    found = expect(home.protocol, desk.frozen.manifest.resources, "slurm", cases, known)
    assert found.num_known == 2
    assert found.device_hours == pytest.approx(0.2 / 3600)
