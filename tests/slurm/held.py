"""A small campaign on the real cluster whose sides wait where a test tells them to.

Rules, harness, receipts and tables are real; only the trainer is a few lines of Python. It looks for folders by name
(`Place`) and opens no file, so that waiting is no input of the side's.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from campaign.documents import Entry, Start
from campaign.frozen import read_frozen
from campaign.paths import HomePaths
from campaign.record.ledger import read_entries
from campaign.submission.desk import open_desk
from campaign.watching.observation import View
from campaign.watching.state import AttemptState, AttemptStatus, SlotState
from tests.support.cli import expect, expect_json, run_campaign
from tests.support.harness import ADAPTER

Place: TypeAlias = Literal["build", "train", "close"]
"""Where a side waits: before it has a trainer, in its first warm-up update, after its last window."""

NO_JOB = (AttemptState.ENDED, AttemptState.INTERRUPTED)

TRAINER = """
import os


def wait_at(config, place):
    hold = os.path.join(os.environ["HOLDS"], f"b{config['batch']}.{os.environ['SIDE']}.{place}")
    try:
        os.mkdir(os.path.join(hold, "reached"))
    except OSError:
        return  # nobody holds it, or it waited here before
    while os.path.isdir(hold):
        time.sleep(0.02)


class Held(Runner):
    def updates(self, n):
        if self.count == 0:
            wait_at(self.config, "train")
        return super().updates(n)

    def close(self):
        wait_at(self.config, "close")


def build_held(config, *, seed, device):
    wait_at(config, "build")
    return Held(config, seed, device)
"""

CONFIG = """
name = "{name}"
baseline_first = false

[baseline]
source = "trainer"
adapter = "adapter:build_held"
python = "{python}"
environment = {{ HOLDS = "{holds}", SIDE = "baseline" }}
[candidate]
source = "trainer"
adapter = "adapter:build_held"
python = "{python}"
environment = {{ HOLDS = "{holds}", SIDE = "candidate" }}

[execution]
device = "cpu"
threads = 1
[throughput]
repeats = 1
warmup_updates = 3
windows = 2
window_s = "0.03"
pilot_s = "0.03"
solo = false
controls = false
[limits]
import_s = 300
startup_s = 300
stall_s = 300
[slurm]
cpus = {cpus}
minutes = {minutes}

[matrix]
name = "b{{batch}}"
axes.mode = ["plain"]
axes.batch = {batches}
fixed = {{ tokens = 64 }}
[[category]]
name = "plain"
mode = "plain"
small_batch = {{ batch = {batches} }}
"""


def poll(what: str, found: Callable[[], Any], seconds: float = 90.0) -> Any:
    """Look again and again until something is there; return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.1)
    raise AssertionError(f"never: {what}")


def read_all(command: Iterable[str]) -> str:
    """Return what one of Slurm's commands prints."""
    return subprocess.run(list(command), check=True, capture_output=True, text=True).stdout


@dataclass(slots=True, kw_only=True)
class HeldCampaign:
    """A frozen campaign with one pair for each batch size, and what its sides wait for."""

    root: Path
    paths: HomePaths
    environment: dict[str, str] = field(default_factory=dict)
    """What the commands get beside the caller's variables."""

    # --- waiting sides

    def hold(self, batch: int, place: Place, sides: Iterable[str] = ("baseline", "candidate")) -> None:
        """Let the sides of a pair wait at a place, from now on."""
        for side in sides:
            (self.root / "holds" / f"b{batch}.{side}.{place}").mkdir(parents=True, exist_ok=True)

    def release(self, batch: int) -> None:
        """Let the sides of a pair go on, now and later."""
        for hold in (self.root / "holds").glob(f"b{batch}.*"):
            gone = self.root / "gone" / secrets.token_hex(4)
            gone.parent.mkdir(exist_ok=True)
            hold.rename(gone)

    def waits(self, batch: int) -> list[str]:
        """Return where sides of a pair wait or have waited: ``baseline.train``."""
        found = (self.root / "holds").glob(f"b{batch}.*/reached")
        return sorted(path.parent.name.partition(".")[2] for path in found)

    def await_sides(self, *batches: int) -> None:
        """Wait until a side of each pair waits."""
        for batch in batches:
            poll(f"a side of b{batch} that waits", partial(self.waits, batch))

    # --- the commands

    @property
    def submitting(self) -> list[str]:
        """The words of ``campaign submit``."""
        return ["submit", "--home", str(self.paths.root), "--cluster", "slurm", "--yes", "--json"]

    def submit(self, *options: str, code: int = 0) -> Any:
        """Run ``campaign submit``; return what it printed as JSON, what it said where it failed."""
        done = run_campaign(*self.submitting, *options, environment=self.environment)
        assert done.returncode == code, (done.returncode, done.stderr)
        return json.loads(done.stdout) if code == 0 else done.stderr

    def submit_until_done(self, seconds: float = 120.0) -> None:
        """Run ``campaign submit`` again and again, each time nothing is under way, until nothing is left to do."""
        deadline = time.monotonic() + seconds
        while True:
            self.await_ended()
            said = self.submit()
            if not said["jobs"]:
                break
            assert time.monotonic() < deadline, said
        assert said["slots"] == {"completed": len(self.view().slots)}, said["slots"]

    # --- looking

    def view(self) -> View:
        """Look at all slots."""
        frozen = read_frozen(self.paths)
        return open_desk(self.paths, frozen, time.time).view(next(iter(frozen.candidates)))

    def pair(self, batch: int) -> str:
        """Return the name of a pair's slot."""
        (candidate,) = read_frozen(self.paths).candidates
        return f"{candidate}/pair/b{batch}/r1"

    def attempts(self, batch: int) -> tuple[AttemptStatus, ...]:
        """Return the attempts at a pair."""
        return self.view().slots[self.pair(batch)].attempts

    def endings(self, batch: int) -> list[str]:
        """Return how the attempts at a pair ended, in order; ``-`` for one that has not."""
        return [one.ending.value if one.ending else "-" for one in self.attempts(batch)]

    def job(self, batch: int) -> str:
        """Return the job of a pair's last attempt: ``7_2``."""
        return self.attempts(batch)[-1].job

    def start(self, batch: int) -> Start:
        """Return the start record of a pair's last attempt, once it is there."""
        last = self.attempts(batch)[-1]
        path = self.paths.attempt(last.slot, last.attempt).start
        poll(f"{path}", path.is_file)
        return Start.read(path)

    def harness_pid(self, batch: int) -> int:
        """Return the process of the harness that makes a pair's last attempt."""
        started = self.paths.allocation(self.attempts(batch)[-1].allocation).started
        return int(json.loads(started.read_bytes())["pid"])

    def await_ended(self, *batches: int, seconds: float = 120.0) -> None:
        """Wait until no attempt has a job that may still run, or none at some pairs."""
        wanted = tuple(f"/pair/b{batch}/r1" for batch in batches) or ("",)

        def are_ended() -> bool:
            attempts = self.view().attempts.values()
            return all(one.state in NO_JOB for one in attempts if one.slot.endswith(wanted))

        poll("the end of all attempts", are_ended, seconds)

    def entries(self, act: str) -> list[Entry]:
        """Return the ledger's entries of one act."""
        return [entry for entry in read_entries(self.paths) if entry.act == act]

    def told(self, batch: int) -> list[tuple[int, str]]:
        """Return attempt and ending of every ending of a pair's attempts that the ledger tells, not a receipt."""
        name = self.pair(batch)
        data = [entry.data for entry in self.entries("ended")]
        return [(one["attempt"], one["ending"]) for one in data if one["slot"] == name]

    # --- the end

    def require_sound(self, surplus: int = 0) -> None:
        """Insist that all slots are complete, nothing sealed is lost, none is doubled, and all of it verifies.

        Args:
            surplus: How many attempts completed after one that counts.
        """
        view = self.view()
        assert {status.state for status in view.slots.values()} == {SlotState.COMPLETED}
        expect(0, "collect", "--home", self.paths.root)
        named = {name for entry in self.entries("collected") for name in entry.data["receipts"]}
        there = {
            str(path.parent.relative_to(self.paths.root / "attempts"))
            for path in (self.paths.root / "attempts").rglob("receipt.json")
        }
        assert named == there
        completed = Counter(one.slot for one in view.attempts.values() if one.ending == "completed")
        assert completed.keys() == view.slots.keys()
        assert completed.total() == len(completed) + surplus, completed
        # Every attempt tells how it ended once: by what it sealed, or by the ledger.
        told = Counter((entry.data["slot"], entry.data["attempt"]) for entry in self.entries("ended"))
        assert set(told.values()) <= {1}, told
        unsealed = {(one.slot, one.attempt) for one in view.attempts.values() if one.receipt is None}
        assert unsealed <= told.keys()
        assert len(told) == len(unsealed) + surplus
        assert run_campaign("report", "--home", self.paths.root).returncode in (0, 3)
        rows = (next(self.paths.root.glob("evaluations/*/evidence/pairs.csv"))).read_text().splitlines()[1:]
        assert len(rows) == 2 * (surplus + sum(status.slot.kind == "pair" for status in view.slots.values()))
        expect(0, "verify", "--home", self.paths.root)


def make_held_campaign(
    root: Path, *, batches: Iterable[int], minutes: int = 5, cpus: int = 1, disk: Path | None = None
) -> HeldCampaign:
    """Freeze both sides of a campaign; nothing is submitted.

    Args:
        root: An empty folder.
        batches: The batch sizes: one pair each.
        minutes: Time limit of each job.
        cpus: CPUs of each job.
        disk: Where the home shall lie, if not below the root.
    """
    (root / "trainer").mkdir(parents=True)
    (root / "holds").mkdir()
    (root / "trainer" / "adapter.py").write_text(ADAPTER + TRAINER)
    config = root / "campaign.toml"
    # A name of its own: what accounting keeps of an earlier run's jobs is no finding of this one.
    values = {"name": f"held-{secrets.token_hex(3)}", "python": sys.executable, "holds": root / "holds"}
    config.write_text(CONFIG.format(**values, minutes=minutes, cpus=cpus, batches=sorted(batches)))
    home = (disk or root) / "home"
    expect(0, "freeze", config, "--home", home)
    expect(0, "freeze", "--candidate", "--config", config, "--home", home)
    return HeldCampaign(root=root, paths=HomePaths(home))


def run_pilots(held: HeldCampaign) -> None:
    """Submit the pilots and wait until they are complete."""
    held.submit("--phase", "pilot")
    held.await_ended()
    states = {status.state for status in held.view().slots.values() if status.slot.kind == "pilot"}
    assert states == {SlotState.COMPLETED}


def end_all(held: HeldCampaign) -> None:
    """End whatever of a campaign still runs, and let its sides go."""
    for hold in list((held.root / "holds").iterdir()):
        hold.rename(hold.with_name(f"gone-{secrets.token_hex(4)}"))
    for name in {entry.data["submission"] for entry in held.entries("intent")}:
        subprocess.run(["scancel", "--quiet", f"--name={name}"], check=False)


def show(held: HeldCampaign, batch: int) -> list[dict[str, Any]]:
    """Return the attempts at a pair as ``campaign show`` tells them."""
    shown: list[dict[str, Any]] = expect_json(0, "show", held.pair(batch), "--home", held.paths.root)["attempts"]
    return shown


@contextmanager
def kept_stopped(pid: int) -> Iterator[None]:
    """Let a process neither run nor hear anything but its end, whoever wakes it."""
    done = threading.Event()

    def keep() -> None:
        with suppress(ProcessLookupError):
            while not done.wait(0.0005):
                os.kill(pid, signal.SIGSTOP)

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()
