"""What a large campaign costs: collecting beside the sqlite3 shell and pandas, collecting again, status, and a report.

The home is synthetic but whole: 10,000 attempts with receipts, tables, plans and a ledger, and 1,000,000 rows of
windows. Whole commands are timed, with all their checks. The shell's ``.import`` and ``pandas.to_sql`` make the same
table, strict and keyed, with the same synchronous setting: of the attempts' own files, as a collection does, and of one
file that has all columns of the table already. All of them run in turns, with what they read in memory, and their time
is that of reading and storing, without the start of a program and the import of pandas. Everything is made in a folder
of its own, which is removed again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from acceptance.formats import TABLES  # noqa: E402 - as below
from campaign.paths import HomePaths  # noqa: E402 - the checkout's, whatever is installed
from tests.support.large import build_large  # noqa: E402 - tests are importable from the root alone
from tools.bench_verify import machine  # noqa: E402 - as above

SHELL_RATIO = 0.6
PANDAS_RATIO = 3.0
AGAIN_LIMIT_S = 5.0
STATUS_LIMIT_S = 2.0
REPORT_LIMIT_S = 20.0
PAGE_LIMIT_BYTES = 10_000_000
PRAGMAS = ("synchronous = FULL", "journal_mode = DELETE")
"""As `campaign.collection.database` has them."""
TO_SQL = """
import json, sys, time
from pathlib import Path
import pandas as pd
from sqlalchemy import create_engine, event
engine = create_engine(f"sqlite:///{sys.argv[2]}")
@event.listens_for(engine, "connect")
def prepare(connection, record):
    for pragma in sys.argv[4:]:
        connection.execute(f"PRAGMA {pragma}")
with engine.connect() as connection:
    names = list(connection.exec_driver_sql(f"SELECT * FROM {sys.argv[3]} LIMIT 0").keys())
def read_own(slot, attempt, path):
    data = Path(path).read_bytes()
    one = pd.read_csv(path)
    lines = data.decode().splitlines()[1:]
    return one.assign(source_slot=slot, source_attempt=attempt, line=range(2, len(lines) + 2), raw=lines)[names]
begin = time.perf_counter()
if sys.argv[1].endswith(".json"):
    frame = pd.concat([read_own(*one) for one in json.loads(Path(sys.argv[1]).read_bytes())], ignore_index=True)
else:
    frame = pd.read_csv(sys.argv[1], header=None, names=names, dtype_backend="numpy_nullable")
read = time.perf_counter()
frame.to_sql(sys.argv[3], engine, if_exists="append", index=False)
print(time.perf_counter() - begin, time.perf_counter() - read)
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


def own_files(cache: Path, home: HomePaths, table: str) -> list[tuple[str, int, str]]:
    """Return slot, number and file of every attempt that has rows in a table."""
    with closing(sqlite3.connect(cache)) as made:
        names = made.execute(f"SELECT DISTINCT source_slot, source_attempt FROM {table} ORDER BY 1, 2").fetchall()  # noqa: S608 - a name of ours
    return [(slot, attempt, str(home.attempt(slot, attempt).table(f"{table}.csv"))) for slot, attempt in names]


def import_own(files: Sequence[tuple[str, int, str]], table: str) -> str:
    """Return what the shell is told to make a table of many files: each through one that has their columns alone."""
    names = [column.name for column in TABLES[f"{table}.csv"].columns]
    columns, line = ", ".join(f'"{name}"' for name in names), " || ',' || ".join(f'"{name}"' for name in names)
    told = [f"CREATE TEMP TABLE own ({columns});", "BEGIN;", ".mode csv"]
    for slot, attempt, path in files:
        told += [
            f".import --skip 1 {path} own",
            f"INSERT INTO {table} SELECT '{slot}', {attempt}, rowid + 1, {columns}, {line} FROM own;",  # noqa: S608 - names of ours
            "DELETE FROM own;",
        ]
    return "\n".join([*told, "COMMIT;", ""])


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
        self.own, self.listed = own_files(self.paths.database, self.paths, self.table), folder / "own.json"
        self.listed.write_text(json.dumps(self.own), encoding="utf-8")

    def shell(self, *, own: bool) -> float:
        """Return the seconds of ``.import`` in the sqlite3 shell: of the attempts' own files, or of one file."""
        make_empty(self.paths.database, self.yardstick, self.table)
        pragmas = "".join(f"PRAGMA {pragma};\n" for pragma in PRAGMAS)
        script = import_own(self.own, self.table) if own else f".mode csv\n.import {self.csv} {self.table}\n"
        seconds, _ = timed(["sqlite3", "-batch", str(self.yardstick)], text=pragmas + script)
        self.require_rows()
        return seconds

    def pandas(self, *, own: bool) -> tuple[float, float]:
        """Return the seconds of reading and ``to_sql``, and of ``to_sql`` alone; see `shell`."""
        make_empty(self.paths.database, self.yardstick, self.table)
        source = self.listed if own else self.csv
        command = [sys.executable, "-c", TO_SQL, str(source), str(self.yardstick), self.table, *PRAGMAS]
        whole, stored = map(float, timed(command)[1].split())
        self.require_rows()
        return whole, stored

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


def compare(bench: Bench, rounds: int) -> Iterator[Result]:
    """Collect everything anew beside the yardsticks, in turns."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        seconds["collect --rebuild"].append(bench.rebuild())
        for own, files in ((True, "own files"), (False, "one file")):
            seconds[f".import, {files}"].append(bench.shell(own=own))
            whole, stored = bench.pandas(own=own)
            seconds[f"read_csv and to_sql, {files}"].append(whole)
            seconds[f"to_sql alone, {files}"].append(stored)
    ours = seconds.pop("collect --rebuild")
    print(f"{bench.num_rows} rows; collect --rebuild: {', '.join(f'{one:.2f}' for one in ours)} s", flush=True)
    for name, theirs in seconds.items():
        ratio = statistics.median(theirs) / statistics.median(ours)
        least = SHELL_RATIO if name.startswith(".import") else PANDAS_RATIO
        listed = ", ".join(f"{one:.2f}" for one in theirs)
        print(f"{name:<31} {listed} s: {ratio:.2f} (at least {least:g})", flush=True)
        yield Result(name=name, seconds=ours, theirs_s=theirs, limit=least, is_held=ratio >= least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured, and whether its limit holds."""

    name: str
    seconds: Sequence[float]
    """Ours, of each repetition."""
    theirs_s: Sequence[float] = ()
    """The yardstick's; empty where there is none."""
    limit: float
    """Most seconds, or least ratio where there is a yardstick."""
    is_held: bool


def held(name: str, seconds: Sequence[float], limit_s: float) -> Result:
    """Print a time beside its limit."""
    found = statistics.median(seconds)
    print(f"{name:<18} {found:6.2f} s (limit {limit_s:g} s)", flush=True)
    return Result(name=name, seconds=seconds, limit=limit_s, is_held=found < limit_s)


def measure(folder: Path, args: argparse.Namespace) -> list[Result]:
    """Make the home, and measure it."""
    num_pairs = 3 * -(-args.attempts // 8)
    build_large(folder / "home", args.attempts, windows=-(-args.rows // (2 * num_pairs)), last="")
    print(f"collect, first     {campaign('collect', '--home', str(folder / 'home')):6.2f} s")
    bench = Bench(folder)
    return [
        *compare(bench, args.rounds),
        held("collect, again", [bench.again() for _ in range(args.rounds)], AGAIN_LIMIT_S),
        held("status", [bench.status() for _ in range(args.rounds)], STATUS_LIMIT_S),
        held("report", [bench.report() for _ in range(args.rounds)], REPORT_LIMIT_S),
        _page_held(bench.page_bytes()),
    ]


def _page_held(num_bytes: int) -> Result:
    print(f"report.html        {num_bytes / 1e6:6.2f} MB (limit {PAGE_LIMIT_BYTES / 1e6:g} MB)")
    limit = PAGE_LIMIT_BYTES / 1e6
    return Result(name="report.html, MB", seconds=[num_bytes / 1e6], limit=limit, is_held=num_bytes < PAGE_LIMIT_BYTES)


def main() -> int:
    """Measure and compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="folder for temporary files; default: the system's")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every repetition there, as JSON")
    args = parser.parse_args()
    on = machine()
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
    if args.out is not None:
        value = {"machine": on, "attempts": args.attempts, "results": [asdict(one) for one in results]}
        args.out.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return int(not all(one.is_held for one in results))


if __name__ == "__main__":
    sys.exit(main())
