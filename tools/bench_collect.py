"""What a large campaign costs: collecting beside the sqlite3 shell and pandas, collecting again, status, and a report.

The home is synthetic but whole: 10,000 attempts with receipts, tables, plans and a ledger, and 1,000,000 rows of
windows. Whole commands are timed, with all their checks. The shell's ``.import`` and ``pandas.to_sql`` store the same
rows in the same strict, keyed table with the same synchronous setting, from a file and a frame that are there already;
all of them run in turns. Everything is made in a folder of its own, which is removed again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from campaign.paths import HomePaths  # noqa: E402 - the checkout's, whatever is installed
from tests.support.large import build_large  # noqa: E402 - tests are importable from the root alone

SHELL_RATIO = 0.6
PANDAS_RATIO = 3.0
AGAIN_LIMIT_S = 5.0
STATUS_LIMIT_S = 2.0
REPORT_LIMIT_S = 20.0
PAGE_LIMIT_BYTES = 10_000_000
PRAGMAS = ("synchronous = FULL", "journal_mode = DELETE")
"""As `campaign.collection.database` has them."""
TO_SQL = """
import sys, time
import pandas as pd
from sqlalchemy import create_engine, event
frame = pd.read_csv(sys.argv[1], header=None, dtype_backend="numpy_nullable")
engine = create_engine(f"sqlite:///{sys.argv[2]}")
@event.listens_for(engine, "connect")
def prepare(connection, record):
    for pragma in sys.argv[4:]:
        connection.execute(f"PRAGMA {pragma}")
with engine.connect() as connection:
    frame.columns = list(connection.exec_driver_sql(f"SELECT * FROM {sys.argv[3]} LIMIT 0").keys())
begin = time.perf_counter()
frame.to_sql(sys.argv[3], engine, if_exists="append", index=False)
print(time.perf_counter() - begin)
"""


def timed(command: Sequence[str], *, text: str = "") -> tuple[float, str]:
    """Run a command, which must succeed; return its seconds and what it printed."""
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, encoding="utf-8", input=text)
    seconds = time.perf_counter() - begin
    if done.returncode != 0 or "rror" in done.stderr:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return seconds, done.stdout


def campaign(*arguments: str) -> float:
    """Run a command of the driver and return its seconds."""
    return timed([sys.executable, "-c", "from campaign.cli.main import run; run()", *arguments])[0]


def median(measure: Callable[[], float], rounds: int) -> float:
    """Return the median of several measurements."""
    return statistics.median([measure() for _ in range(rounds)])


def make_empty(cache: Path, target: Path, table: str) -> None:
    """Make a database with a cache's table of rows, its index and the attempts that they belong to, and no row."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(target)) as made:
        made.execute("ATTACH ? AS cache", (str(cache),))
        wanted = "SELECT sql FROM cache.sqlite_master WHERE tbl_name IN ('attempts', ?) AND sql IS NOT NULL"
        for (statement,) in made.execute(wanted, (table,)).fetchall():
            made.execute(statement)
        made.execute("INSERT INTO main.attempts SELECT * FROM cache.attempts")
        made.commit()


def write_csv(cache: Path, target: Path, table: str) -> int:
    """Write the rows of a cache's table as a file to import; return how many there are."""
    with closing(sqlite3.connect(cache)) as made, target.open("w", encoding="ascii") as stream:
        number = 0
        for number, row in enumerate(made.execute(f"SELECT * FROM {table}"), start=1):  # noqa: B007, S608 - its count; a name of ours
            stream.write(",".join(f'"{value}"' if "," in str(value) else str(value) for value in row) + "\n")
    return number


class Bench:
    """A large home, and the same rows for the yardsticks."""

    def __init__(self, folder: Path) -> None:
        """Take a home below a folder that was collected once."""
        self.paths = HomePaths(folder / "home")
        self.csv, self.yardstick, self.table = folder / "rows.csv", folder / "yardstick.sqlite", "windows"
        self.num_rows = write_csv(self.paths.database, self.csv, self.table)

    def shell(self) -> float:
        """Return the seconds of ``.import`` in the sqlite3 shell."""
        make_empty(self.paths.database, self.yardstick, self.table)
        pragmas = "".join(f"PRAGMA {pragma};\n" for pragma in PRAGMAS)
        script = f"{pragmas}.mode csv\n.import {self.csv} {self.table}\n"
        seconds, _ = timed(["sqlite3", "-batch", str(self.yardstick)], text=script)
        self.require_rows()
        return seconds

    def pandas(self) -> float:
        """Return the seconds of ``to_sql`` of a frame that was read before."""
        make_empty(self.paths.database, self.yardstick, self.table)
        command = [sys.executable, "-c", TO_SQL, str(self.csv), str(self.yardstick), self.table, *PRAGMAS]
        seconds = float(timed(command)[1])
        self.require_rows()
        return seconds

    def require_rows(self) -> None:
        """End if a yardstick did not store all rows."""
        with closing(sqlite3.connect(self.yardstick)) as made:
            ((number,),) = made.execute(f"SELECT count(*) FROM {self.table}").fetchall()  # noqa: S608 - a name of our own
        if number != self.num_rows:
            sys.exit(f"the yardstick stored {number} of {self.num_rows} rows")

    def rebuild(self) -> float:
        """Return the seconds of a collection that reads, checks, parses and stores all there is."""
        return campaign("collect", "--rebuild", "--home", str(self.paths.root))

    def again(self) -> float:
        """Return the seconds of a collection where nothing changed."""
        return campaign("collect", "--home", str(self.paths.root))

    def status(self) -> float:
        """Return the seconds of ``campaign status``."""
        return campaign("status", "--home", str(self.paths.root))

    def report(self) -> float:
        """Return the seconds of ``campaign report``."""
        return campaign("report", "--exit-zero", "--home", str(self.paths.root))

    def page_bytes(self) -> int:
        """Return the size of the largest page that was rendered."""
        pages = [self.paths.evaluation(folder.name).page for folder in self.paths.evaluations.iterdir()]
        return max(page.stat().st_size for page in pages)


def compare(bench: Bench, rounds: int) -> list[bool]:
    """Collect everything anew beside the yardsticks, in turns; return what held."""
    seconds: dict[str, list[float]] = {"shell": [], "collect": [], "pandas": []}
    for _ in range(rounds):
        seconds["shell"].append(bench.shell())
        seconds["collect"].append(bench.rebuild())
        seconds["pandas"].append(bench.pandas())
    shell_s, collect_s, pandas_s = (statistics.median(found) for found in seconds.values())
    for name, found in seconds.items():
        print(f"{name:<8} {bench.num_rows} rows: {', '.join(f'{one:.2f}' for one in found)} s")
    print(f"collect --rebuild: {shell_s / collect_s:.2f} of the shell's .import (at least {SHELL_RATIO:g})")
    print(f"collect --rebuild: {pandas_s / collect_s:.2f} of pandas.to_sql (at least {PANDAS_RATIO:g})")
    return [shell_s / collect_s >= SHELL_RATIO, pandas_s / collect_s >= PANDAS_RATIO]


def held(name: str, seconds: float, limit_s: float) -> bool:
    """Print a time beside its limit; return whether it stayed below."""
    print(f"{name:<18} {seconds:6.2f} s (limit {limit_s:g} s)")
    return seconds < limit_s


def measure(folder: Path, args: argparse.Namespace) -> list[bool]:
    """Make the home, and measure it."""
    num_pairs = 3 * -(-args.attempts // 8)
    build_large(folder / "home", args.attempts, windows=-(-args.rows // (2 * num_pairs)), last="")
    print(f"collect, first     {campaign('collect', '--home', str(folder / 'home')):6.2f} s")
    bench = Bench(folder)
    return [
        *compare(bench, args.rounds),
        held("collect, again", median(bench.again, args.rounds), AGAIN_LIMIT_S),
        held("status", median(bench.status, args.rounds), STATUS_LIMIT_S),
        held("report", median(bench.report, args.rounds), REPORT_LIMIT_S),
        _page_held(bench.page_bytes()),
    ]


def _page_held(num_bytes: int) -> bool:
    print(f"report.html        {num_bytes / 1e6:6.2f} MB (limit {PAGE_LIMIT_BYTES / 1e6:g} MB)")
    return num_bytes < PAGE_LIMIT_BYTES


def main() -> int:
    """Measure and compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="folder for temporary files; default: the system's")
    args = parser.parse_args()
    if shutil.which("sqlite3") is None:
        print("the sqlite3 shell is not installed (Debian: apt-get install sqlite3): nothing to compare with")
        return 1
    folder = Path(tempfile.mkdtemp(prefix="bench-collect-", dir=args.scratch))
    try:
        results = measure(folder, args)
    finally:
        for place, _, _ in os.walk(folder):
            Path(place).chmod(0o700)  # frozen programs are read-only
        shutil.rmtree(folder)
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
