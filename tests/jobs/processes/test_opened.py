from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign import files
from campaign.documents import DataIdentity
from jobs.processes import opened
from tests.support.harness import ADAPTER, LIMITS, SOLO, Bench, make_attempt, make_bench, misbehaving, write_tree

ROOT = Path(opened.__file__).resolve().parents[2]
PROGRAM = """
import json, os, sys
from jobs.processes import origins
from jobs.processes.opened import Opened
watch = Opened()
watch.install()
place = sys.argv[1]
watch.declare([place + "/declared"], [place + "/own"], place + "/own/log")
roots = origins.read_roots()


def child(work):
    if (pid := os.fork()) == 0:
        work()
        os._exit(0)
    os.waitpid(pid, 0)


{body}
print(json.dumps(watch.files(roots)))
"""


def files_after(root: Path, body: str) -> list[str]:
    """Run a few lines while it is noted what they open; return what it names, relative to the root."""
    write_tree(root, {"declared/a": "a", "own/b": "b", "else/c": "c", "else/d": "d"})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body), str(root)],
        cwd=root / "own",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    named: list[str] = json.loads(done.stdout.splitlines()[-1])
    return [path.removeprefix(f"{root}/") for path in named]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("open(place + '/else/c').read()", ["else/c"]),
        ("os.close(os.open(place + '/else/c', os.O_RDONLY))", ["else/c"]),
        ("open(os.fsencode(place) + b'/else/c').read()", ["else/c"]),
        ("open('../else/c').read(); os.chdir('/'); open(place + '/else/d', 'r+').close()", ["else/c", "else/d"]),
        ("open(place + '/declared/../else/c').read()", ["else/c"]),
        ("os.symlink(place + '/else', 'link'); open('link/c').read()", ["else/c"]),
        ("os.symlink('../else/c', 'link'); open('link').read()", ["else/c"]),
        ("from pathlib import Path; Path(place, 'else', 'c').read_bytes()", ["else/c"]),
        ("import gzip, zipfile, tarfile, codecs; codecs.open(place + '/else/c').close()", ["else/c"]),
        ("import tarfile; tarfile.bltn_open(place + '/else/c').close()", ["else/c"]),
        ("import tokenize; tokenize.open(place + '/else/c').close()", ["else/c"]),
        ("f = os.open(place, os.O_RDONLY); os.close(os.open('else/c', os.O_RDONLY, dir_fd=f))", ["else/c"]),
        ("child(lambda: open(place + '/else/c').read())", ["else/c"]),
        ("child(lambda: (os.closerange(3, 64), open('../else/d').read()))", ["else/d"]),
        ("open('../declared/a').read(); open('b').read(); open('/etc/hostname').read()", []),
        ("open('/dev/null').read(); open('/proc/self/maps').read(); import tomllib, lzma", []),
        ("child(lambda: (open('../declared/a').read(), open('b').read(), open('/etc/hostname').read()))", []),
    ],
)
def test_a_file_from_elsewhere_is_named_by_its_real_path(tmp_path: Path, body: str, expected: list[str]) -> None:
    assert files_after(tmp_path.resolve(), body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "open(place + '/else/new', 'w').close(); open(place + '/else/new').read()",
        "open(place + '/else/c', 'w+').read()",
        "os.chdir('../else'); open('t', 'x').close(); os.replace('t', 'u'); open('u').read()",
        "open(place + '/else/c', 'wb').close()",
    ],
)
def test_what_a_side_itself_has_made_is_no_input(tmp_path: Path, body: str) -> None:
    assert files_after(tmp_path.resolve(), body) == []


@pytest.mark.parametrize(
    "body",
    [
        "try: open(place + '/else/absent')\nexcept OSError: pass",
        "os.listdir(place + '/else'); os.close(os.open(place + '/else', os.O_RDONLY))",
        "os.stat(place + '/else/c')",
        "open(os.pipe()[0]).close()",
        "os.close(os.open(place + '/else/c', os.O_PATH))",
        "open(place + '/else/c', 'a').close()",
    ],
)
def test_what_is_not_read_is_no_input(tmp_path: Path, body: str) -> None:
    assert files_after(tmp_path.resolve(), body) == []


def test_what_stands_in_for_open_is_taken_for_it(tmp_path: Path) -> None:
    body = """
import builtins, io, pickle, shutil
assert builtins.open is io.open and pickle.loads(pickle.dumps(open)) is open
assert os.open in os.supports_dir_fd and shutil._use_fd_functions
try:
    open(place + "/absent", "r", -1, "utf-8")
except FileNotFoundError as error:
    assert error.filename == place + "/absent"
for wrong in ("open()", "open('b', 'q')", "open('b', 1)", "os.open('b')", "open([])"):
    try:
        eval(wrong)
    except (TypeError, ValueError):
        continue
    raise SystemExit(wrong)
"""
    assert files_after(tmp_path.resolve(), body) == []


def test_beyond_a_number_of_files_their_folders_are_remembered(tmp_path: Path) -> None:
    body = (
        "import jobs.processes.opened as module\nmodule._MOST_NOTED = len(watch._noted)\nopen(place + '/else/c').read()"
    )
    assert files_after(tmp_path.resolve(), body) == ["else"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/usr/share/zoneinfo/UTC", True),
        ("/etc/resolv.conf", True),
        ("/usr/local/cuda-12.8/nvvm/libdevice.bc", True),
        ("/opt/cuda/x", True),
        ("/usr/local/cudaX/x", False),
        ("/dev/nvidia0", True),
        ("/dev/shm/tokens.bin", False),  # noqa: S108 - a name alone
        ("/root/.cache/huggingface/hub/x", False),
        ("/root/.triton/cache/x", False),
        ("/root/.nv/ComputeCache/index", False),
        ("/home/me/.config/x", False),
        ("/tmp/x", False),  # noqa: S108 - a name alone
        ("/run/user/1000/x", False),
        ("/scratch/x", False),
    ],
)
def test_what_belongs_to_the_machine(path: str, expected: bool) -> None:
    assert opened.is_of_machine(path) is expected


MAPS = """\
7f00-7f01 r-xp 00000000 08:01 2 /usr/lib/x86_64-linux-gnu/libc.so.6
7f05-7f06 r--p 00000000 08:01 5 /home/me/data/tokens of mine.bin
7f05-7f06 r--p 00000000 08:01 5 /home/me/data/gone.bin (deleted)
7f0a-7f0b rw-p 00000000 00:00 0 [heap]
7f0c-7f0d rw-p 00000000 00:00 0
"""


def test_mapped_files_are_named_but_for_libraries_and_what_is_gone() -> None:
    assert opened.mapped_files(MAPS) == {"/home/me/data/tokens of mine.bin"}


def test_open_files_are_those_that_are_read(tmp_path: Path) -> None:
    write_tree(tmp_path, {"read": "", "written": "", "both": ""})
    with (tmp_path / "read").open(), (tmp_path / "written").open("w"), (tmp_path / "both").open("r+"):
        found = {Path(path).name for path in opened.open_files(os.getpid()) if path.startswith(str(tmp_path))}
    assert found == {"read", "both"}


def test_what_was_written_since_is_not_older(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": ""})
    made_ns = (tmp_path / "a").stat().st_ctime_ns
    names = [str(tmp_path / "a"), str(tmp_path / "absent"), str(tmp_path)]
    assert list(opened.older_than(names, made_ns + 1)) == names[:1]
    assert list(opened.older_than(names, made_ns)) == []


# --- in an allocation -------------------------------------------------------------------------------------------------

READS = "def sync(self):\n    open('{path}').read()"
MAPS_BY_ITSELF = """
def sync(self):
    import ctypes
    libc = ctypes.CDLL(None)
    libc.open.argtypes = (ctypes.c_char_p, ctypes.c_int)
    assert libc.open(b'{path}', 0) > 0
"""
CLEVER = """
def sync(self):
    import gc, sys
    open('{path}').read()
    Opened = sys.modules['campaign_harness.processes.opened'].Opened
    for one in gc.get_objects():
        if isinstance(one, Opened):
            one._noted.clear()
"""


def run(root: Path, body: str, *, data: bool = False, **changes: Any) -> Bench:
    root = root.resolve()
    write_tree(root, {"data/tokens.bin": "1 2 3", "licence": "yes"})
    changes = {name: tuple(one.format(root=root) for one in value) for name, value in changes.items()}
    bench = make_bench(root, misbehaving(body.format(path=f"{root}/data/tokens.bin")), **changes)
    if data:
        path = root / "data" / "tokens.bin"
        identity = DataIdentity(path=str(path), sha256=files.sha256_file(path), bytes=5, files=1)
        bench.data = {"tokens": identity}
    bench.run(bench.plan(SOLO))
    return bench


@pytest.mark.parametrize("body", [READS, MAPS_BY_ITSELF])
def test_an_undeclared_input_ends_the_attempt(tmp_path: Path, body: str) -> None:
    bench = run(tmp_path, body)
    receipt = bench.receipt(SOLO)
    path = str(tmp_path.resolve() / "data" / "tokens.bin")
    assert (receipt.ending, receipt.sides[0].undeclared) == (Ending.UNDECLARED_INPUT, (path,))
    assert "1 files were read that are neither frozen nor declared" in receipt.reason
    assert path in receipt.reason


def test_declared_data_and_named_files_are_no_undeclared_inputs(tmp_path: Path) -> None:
    declared = run(tmp_path / "a", READS, data=True).receipt(SOLO)
    named = run(tmp_path / "b", READS, reads=("{root}/data",)).receipt(SOLO)
    for receipt in (declared, named):
        assert (receipt.ending, receipt.sides[0].undeclared) == (Ending.COMPLETED, ()), receipt.reason


def test_a_side_that_forgets_what_it_read_is_not_found_out(tmp_path: Path) -> None:
    """What docs/audit.md says of it: the note is kept in the side's own process."""
    assert run(tmp_path, CLEVER).receipt(SOLO).ending is Ending.COMPLETED


def test_what_is_read_at_import_ends_the_attempt_before_anything_is_measured(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    write_tree(root, {"config.toml": "x = 1"})
    bench = make_bench(root, f"open('{root}/config.toml').read()\n" + ADAPTER)
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert (receipt.ending, receipt.sides[0].offers) == (Ending.UNDECLARED_INPUT, ())


def test_a_side_may_not_read_what_other_attempts_left(tmp_path: Path) -> None:
    found = "glob.glob('{home}/attempts/**/*.json', recursive=True)"
    body = f"def sync(self):\n    import glob\n    [open(one).read() for one in {found}]"
    first, second = make_attempt("solo", ("baseline",)), make_attempt("solo", ("baseline",), number=2)
    root = tmp_path.resolve()
    bench = make_bench(root, misbehaving(body.format(home=root / "home")))
    bench.run(bench.plan(first, second))
    receipt = bench.receipt(second)
    assert receipt.ending is Ending.UNDECLARED_INPUT
    assert any(path.endswith("receipt.json") for path in receipt.sides[0].undeclared)


def test_the_receipt_says_what_the_side_ran_on_and_what_separates_it(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.isolation == "same user"
    (side,) = receipt.sides
    assert side.interpreter is not None
    assert side.interpreter.path == os.path.realpath(sys.executable)
    assert side.interpreter.sha256 == files.sha256_file(Path(side.interpreter.path))
    assert len(side.environment_sha256) == 64


HONEST = """
import locale, os, ssl, subprocess, tempfile, zoneinfo
from pathlib import Path

import matplotlib
import numpy
import pandas
import scipy.stats
import torch

matplotlib.use("Agg")
from matplotlib import pyplot


def work():
    zoneinfo.ZoneInfo("Europe/Paris")
    locale.setlocale(locale.LC_ALL, "")
    ssl.create_default_context()
    subprocess.run(["/bin/true"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        pandas.DataFrame({"a": [1.0]}).to_csv(Path(folder, "x.csv"))
        pandas.read_csv(Path(folder, "x.csv"))
        numpy.save(Path(folder, "x.npy"), numpy.zeros(4))
        numpy.memmap(Path(folder, "m.bin"), numpy.int64, "w+", shape=(4,))
        numpy.load(Path(folder, "x.npy"), mmap_mode="r")
        torch.save({"a": torch.zeros(2)}, Path(folder, "x.pt"))
        torch.load(Path(folder, "x.pt"), weights_only=True)
    pyplot.plot([1, 2])
    pyplot.title("fonts")
    pyplot.savefig("plot.png")
    compiled = torch.compile(lambda x: torch.sin(x) * 2 + x)
    compiled(torch.ones(64))
    rows = torch.utils.data.TensorDataset(torch.zeros(8, 2))
    for _ in torch.utils.data.DataLoader(rows, num_workers=2):
        pass
    scipy.stats.t.ppf(0.95, 2)
"""
"""What trainers and their libraries read of their own accord."""


@pytest.mark.slow
def test_honest_libraries_read_nothing_undeclared(tmp_path: Path) -> None:
    body = "def __init__(self, *given):\n    super().__init__(*given)\n    work()"
    bench = make_bench(
        tmp_path.resolve(),
        misbehaving(body, head=HONEST),
        python=sys.executable,
        limits=LIMITS.replace(startup_s=110, import_s=110, log_bytes=1 << 20),
    )
    # Loaders have sockets in the private folders, whose names must be short.
    with tempfile.TemporaryDirectory(prefix="t-") as short:
        bench.temporary = Path(short)
        bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert (receipt.ending, receipt.sides[0].undeclared) == (Ending.COMPLETED, ()), receipt.reason
