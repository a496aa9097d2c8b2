"""What status says of the present: what runs, when it may end, whether a pass is reachable; and how it is drawn."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from acceptance.formats import Ending
from campaign import files
from campaign.documents import Amended
from campaign.record.ledger import Ledger
from campaign.submission.cost import experience
from campaign.submission.desk import Desk, Wish
from campaign.terminal import can_draw
from campaign.watching.durations import duration
from campaign.watching.estimate import Outlook, estimate
from campaign.watching.live import STEP_S, draw, open_screen
from campaign.watching.observation import View
from campaign.watching.progress import Progress, status_text, summarise
from campaign.watching.reach import read_obstacles
from campaign.watching.running import Running, read_running
from campaign.watching.state import AttemptState, AttemptStatus, SlotState, SlotStatus
from tests.campaign.submission.support import Cluster, make_desk
from tests.campaign.submission.test_desk import run_jobs, submit
from tests.support.home import CANDIDATE
from tests.support.jobs import JobHome, make_job_home

NOW = 2_000_000_000.0


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[JobHome, Desk, View]:
    """A home whose pilots are complete, at rates of 4 updates a second: windows of 5 updates, 6.35 s a side."""
    home, cluster = make_job_home(tmp_path_factory.mktemp("home") / "home"), Cluster()
    desk = make_desk(home, cluster)
    submit(desk)
    run_jobs(home, cluster)
    return home, desk, desk.view(CANDIDATE)


def attempt_at(status: SlotStatus, state: AttemptState, allocation: str, **fields: Any) -> AttemptStatus:
    values: dict[str, Any] = {
        "slot": status.name, "attempt": 1, "allocation": allocation, "job": "7_1", "state": state, "ending": None,
        "reason": "Priority" if state is AttemptState.PENDING else "", "node": "n1", "source": "squeue",
        "receipt": None,
    }  # fmt: skip
    return AttemptStatus(**{**values, **fields})


def under_way(view: View, states: Mapping[str, AttemptState], **fields: Any) -> View:
    """Return the view with an attempt at some slots, each in an allocation of its own."""
    slots = dict(view.slots)
    for number, (name, state) in enumerate(states.items()):
        one = attempt_at(slots[name], state, f"a{90 + number:05d}", **fields)
        slots[name] = replace(slots[name], state=SlotState(state.value), attempts=(one,))
    return replace(view, slots=slots)


def failed(view: View, name: str) -> View:
    status = view.slots[name]
    one = attempt_at(status, AttemptState.ENDED, "a00090", ending=Ending.CRASH, reason="bang\x1b[2J")
    return replace(view, slots={**view.slots, name: replace(status, state=SlotState.FAILED, attempts=(one,))})


def summary(measured: tuple[JobHome, Desk, View], view: View) -> Progress:
    home, desk, _ = measured
    return summarise(home.paths, home.protocol, desk.frozen.manifest, CANDIDATE, view, now=NOW)


PAIRS = [f"{CANDIDATE}/pair/{name}/r{repeat}" for name in ("sync-b4", "packed-b4") for repeat in (1, 2)]
SIDE_S = 0.1 + 25 / 4
LEFT_S = (4 * 1 + 4 * 2 + 4 * 2) * SIDE_S
"""Of 4 solo measurements, 4 controls and 4 pairs, each in an allocation of its own workload."""


def running_of(name: str, elapsed_s: float | None = 0.0, allocation: str = "a00090") -> Running:
    return Running(
        slot=name, attempt=1, segment=0, allocation=allocation, node="n1", side="baseline", elapsed_s=elapsed_s
    )


def outlook_of(measured: tuple[JobHome, Desk, View], **fields: Any) -> Outlook:
    home, _, view = measured
    values: dict[str, Any] = {
        "protocol": home.protocol, "known": experience(view.slots.values()), "cluster": "slurm", "most_workloads": 1,
        "most_at_once": 256, "behind": {},
    }  # fmt: skip
    return Outlook(**{**values, **fields})


def left_of(view: View) -> list[SlotStatus]:
    return [one for one in view.slots.values() if one.state is not SlotState.COMPLETED]


def test_a_finish_lies_between_all_at_once_and_no_more_at_once_than_now(
    measured: tuple[JobHome, Desk, View],
) -> None:
    view = under_way(measured[2], {PAIRS[0]: AttemptState.RUNNING, PAIRS[1]: AttemptState.RUNNING})
    running = [running_of(PAIRS[0]), running_of(PAIRS[1], None, "a00091")]
    found = estimate(outlook_of(measured), view.slots.values(), left_of(view), running)
    assert found.unknown == ""
    assert found.at_once == 2
    # Everything at once: as long as the longest allocation, in which a solo and a control share one workload.
    assert found.low_s == pytest.approx(3 * SIDE_S)
    # Two at a time, and twice as slow as the pilots let expect, since nothing has shown better yet.
    assert found.high_s == pytest.approx(2 * (LEFT_S / 2 + 3 * SIDE_S / 2))
    limited = estimate(outlook_of(measured, most_at_once=3), view.slots.values(), left_of(view), running)
    assert limited.low_s == pytest.approx(LEFT_S / 3)
    late = estimate(
        outlook_of(measured, most_at_once=3),
        view.slots.values(),
        left_of(view),
        [running_of(PAIRS[0], 5.0), running_of(PAIRS[1], 1e9, "a00091")],
    )
    assert late.low_s == pytest.approx((LEFT_S - 5.0 - 2 * SIDE_S) / 3)


def test_a_local_job_makes_one_allocation_after_another(measured: tuple[JobHome, Desk, View]) -> None:
    view = measured[2]
    found = estimate(outlook_of(measured, cluster="local"), view.slots.values(), left_of(view), [])
    assert found.low_s == pytest.approx(LEFT_S)
    assert found.high_s == pytest.approx(2 * LEFT_S)


def test_slots_that_are_done_say_how_far_the_pilots_are_off(measured: tuple[JobHome, Desk, View]) -> None:
    view = measured[2]
    receipt = next(one.completed.receipt for one in view.slots.values() if one.completed is not None)
    assert receipt is not None
    slots = dict(view.slots)
    solos = [name for name in slots if "/solo/" in name or "/control/" in name]
    for name, factor in zip(solos, (0.1, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 9.0), strict=True):
        about_s = SIDE_S * len(slots[name].slot.order)
        done = attempt_at(
            slots[name],
            AttemptState.ENDED,
            "a00080",
            ending=Ending.COMPLETED,
            receipt=receipt.replace(elapsed_s=factor * about_s),
        )
        slots[name] = replace(slots[name], state=SlotState.COMPLETED, attempts=(done,))
    left = left_of(replace(view, slots=slots))
    assert len(left) == 4
    found = estimate(outlook_of(measured, cluster="local"), slots.values(), left, [])
    assert found.low_s == pytest.approx(0.1 * 8 * SIDE_S)
    assert found.high_s == pytest.approx(9.0 * 8 * SIDE_S)
    # A few say nothing yet.
    few = [one for name, one in slots.items() if name not in solos[4:]]
    assert len(few) == len(slots) - 4
    found = estimate(outlook_of(measured, cluster="local"), few, left, [])
    assert found.low_s == pytest.approx(8 * SIDE_S)
    assert found.high_s == pytest.approx(2 * 8 * SIDE_S)
    # Of many, those at both ends are left out.
    more = {
        f"{name}+{number}": replace(slots[name], name=f"{name}+{number}") for number in (1, 2) for name in solos[1:7]
    }
    found = estimate(outlook_of(measured, cluster="local"), [*slots.values(), *more.values()], left, [])
    assert found.low_s == pytest.approx(1.5 * 8 * SIDE_S)
    assert found.high_s == pytest.approx(1.5 * 8 * SIDE_S)


def test_what_cannot_be_told_is_unknown_with_the_reason(measured: tuple[JobHome, Desk, View], tmp_path: Path) -> None:
    view = measured[2]
    assert summary(measured, view).finish.unknown == "nothing runs now, and nobody knows how long jobs wait"
    stuck = under_way(view, {PAIRS[0]: AttemptState.RUNNING, PAIRS[1]: AttemptState.PENDING}, hopeless="it is held")
    assert "2 slot(s) wait in jobs that will not start" in summary(measured, stuck).finish.unknown
    fresh = make_job_home(tmp_path / "home")
    desk = make_desk(fresh, Cluster())
    begun = summarise(fresh.paths, fresh.protocol, desk.frozen.manifest, CANDIDATE, desk.view(CANDIDATE), now=NOW)
    assert begun.finish.unknown == "pilots are not complete"
    done = {name: replace(status, state=SlotState.COMPLETED) for name, status in view.slots.items()}
    assert summary(measured, replace(view, slots=done)).finish.text == "nothing is left"
    value = begun.to_json()
    assert value["finish"] == {"low_s": None, "high_s": None, "allocations_at_once": 0, "unknown": begun.finish.unknown}
    json.dumps(value, allow_nan=False)


# --- what runs


def test_what_runs_is_told_with_node_side_and_time(tmp_path: Path) -> None:
    home, cluster = make_job_home(tmp_path / "home", repeats=1), Cluster()
    desk = make_desk(home, cluster)
    submit(desk, Wish(candidate=CANDIDATE, cluster="slurm"))
    run_jobs(home, cluster)
    view = desk.view(CANDIDATE)
    pair = next(name for name in view.slots if "/pair/" in name)
    pilot = "baseline/pilot/sync-b4"
    folder = home.paths.attempt(pair, 1)
    folder.root.mkdir(parents=True)
    slots = under_way(view, {pair: AttemptState.RUNNING}).slots.values()
    (one,) = read_running(home.paths, slots, NOW)
    assert one.text.endswith(": setting up on n1")
    assert one.to_json()["elapsed_s"] is None
    start = json.loads(home.paths.attempt(pilot, 1).start.read_text())
    folder.start.write_text(json.dumps({**start, "at": NOW - 125.0}))
    order = view.slots[pair].slot.order
    for side in order:
        folder.side_log(side).touch()
        (one,) = read_running(home.paths, slots, NOW)
        assert one.side == side
        assert one.text.endswith(f": {side} on n1 for 2 min")
    (ahead,) = read_running(home.paths, slots, NOW - 1000.0)
    assert ahead.elapsed_s == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h 00 min"), (47 * 3600, "47 h 00 min"),
        (48 * 3600, "2 d 0 h"), (100 * 3600, "4 d 4 h"), (float("nan"), "?"),
    ],
)  # fmt: skip
def test_times_are_written_for_reading(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# --- whether a pass is reachable


def test_a_slot_that_is_lost_puts_a_pass_out_of_reach(measured: tuple[JobHome, Desk, View]) -> None:
    fine = summary(measured, measured[2])
    assert fine.obstacles == ()
    assert fine.to_json()["pass_reachable"] is True
    assert "no longer reachable" not in status_text(fine)
    lost = summary(measured, failed(measured[2], PAIRS[0]))
    assert lost.to_json()["pass_reachable"] is False
    (one,) = lost.obstacles
    assert (one.slot, one.gates) == (PAIRS[0], ("throughput/sync/repeat-1",))
    text = status_text(lost)
    assert "a pass is no longer reachable:" in text
    assert f"{PAIRS[0]}: can no longer be completed, last crash: bang" in text
    # A control has no gate of its own; without it the evidence is not whole.
    control = summary(measured, failed(measured[2], "baseline/control/sync-b4/r1"))
    assert control.out_of_reach == ()
    assert control.obstacles[0].gates == ("evidence/attempts.csv",)


AMENDED = Amended(
    what="node", changed="c", void=(), voided_attempts={}, valid="", keep_reason="k", by="b", reason="r",
    after_report=True, shown=(), platform=False,
)  # fmt: skip


def reported(home: JobHome, verdict: Any) -> str:
    path = home.paths.evaluation(CANDIDATE).verdict
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(files.dump_json(verdict))
    digest = files.sha256_file(path)
    with Ledger.open(home.paths, lambda: NOW) as ledger:
        ledger.append("reported", {"candidate": CANDIDATE, "verdict_sha256": digest})
    return digest


def test_a_gate_that_the_last_report_found_missed_stays_so_short_of_an_amendment(tmp_path: Path) -> None:
    home = make_job_home(tmp_path / "home", repeats=1)
    desk = make_desk(home, Cluster())

    def obstacles() -> list[str]:
        found = summarise(home.paths, home.protocol, desk.frozen.manifest, CANDIDATE, desk.view(CANDIDATE), now=NOW)
        return [one.text for one in found.obstacles]

    gates = [
        {"id": "throughput/sync/repeat-1", "finding": "missed", "reason": "1.02 is below the threshold"},
        {"id": "throughput/packed/repeat-1", "finding": "missing", "reason": "no attempt"},
        {"id": "convergence/x", "finding": "inconclusive", "reason": "too few"},
        {"id": "numerical/x/loss", "finding": "met", "reason": ""},
    ]
    reported(home, {"gates": gates})
    assert obstacles() == ["throughput/sync/repeat-1: missed in the last report: 1.02 is below the threshold"]
    path = home.paths.evaluation(CANDIDATE).verdict
    kept = path.read_bytes()
    path.write_bytes(kept + b" ")
    assert obstacles() == []  # it is not the verdict that the ledger names
    path.unlink()
    assert obstacles() == []
    path.write_bytes(kept)
    assert len(obstacles()) == 1
    history = desk.history()
    history.note_amended(history.reported_at[CANDIDATE] + 1, AMENDED)
    assert read_obstacles(home.paths, CANDIDATE, history, {}, ()) == ()
    reported(home, {"gates": "none"})
    assert obstacles() == []


# --- drawing


def drawn(progress: Progress, *, width: int = 120, height: int = 40, age_s: float = 0.0) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(draw(progress, age_s=age_s, height=height))
    return capture.get()


def test_the_view_shows_bars_what_runs_what_waits_and_what_is_out_of_reach(
    measured: tuple[JobHome, Desk, View],
) -> None:
    view = under_way(failed(measured[2], PAIRS[0]), {PAIRS[1]: AttemptState.RUNNING, PAIRS[2]: AttemptState.PENDING})
    progress = replace(summary(measured, view), running=(running_of(PAIRS[1], 59.0),), troubles=("squeue: silent",))
    text = drawn(progress, age_s=3.0)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert any(line.startswith("pilot ") and line.endswith(" 4/4") for line in lines)
    assert any(re.fullmatch(r"throughput \S* ?0/4 1 planned, 1 pending, 1 running, 1 failed", line) for line in lines)
    assert f"{PAIRS[1]} baseline n1 1 min" in lines  # 59 s when it was looked, and 3 s since
    assert "1 x Priority" in lines
    assert "squeue: silent" in lines
    assert "gates out of reach: 1" in lines
    assert "a pass is no longer reachable:" in lines
    assert any(line.startswith("remaining: at most ") for line in lines)
    assert any(line.startswith("finish: ") for line in lines)
    assert any(line.startswith("looked 3 s ago") for line in lines)
    assert "\x1b[2J" not in text  # what a side said does not command the terminal
    assert "bang\\x1b[2J" in text


def test_the_view_keeps_to_the_terminal_and_counts_what_it_leaves_out(
    measured: tuple[JobHome, Desk, View],
) -> None:
    many = tuple(running_of(f"{PAIRS[0]}{number}") for number in range(100))
    progress = replace(summary(measured, measured[2]), running=many)
    text = drawn(progress, width=40, height=20)
    assert len(text.splitlines()) <= 20
    assert max(map(len, text.splitlines())) <= 40
    assert "more (campaign status)" in text
    assert "running: 100" in text


def test_a_screen_counts_the_time_on_between_looks(measured: tuple[JobHome, Desk, View]) -> None:
    now, slept = [NOW], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    stream = io.StringIO()
    with open_screen(stream, lambda: now[0], sleep) as screen:
        screen.pause(0.5)  # nothing was looked at yet
        screen.show(summary(measured, measured[2]))
        screen.pause(2.5)
    assert slept == [0.5, STEP_S, STEP_S, 0.5]
    assert "looked 2 s ago" in stream.getvalue()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_only_a_terminal_that_can_move_its_cursor_is_drawn_on() -> None:
    assert can_draw(Terminal(), {"TERM": "xterm"})
    assert not can_draw(Terminal(), {"TERM": "dumb"})
    assert not can_draw(Terminal(), {})
    assert not can_draw(io.StringIO(), {"TERM": "xterm"})
