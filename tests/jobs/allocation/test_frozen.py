from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from jobs.allocation import frozen
from jobs.allocation.frozen import WatchedFrozen
from tests.support.harness import ADAPTER, SOLO, make_attempt, make_bench, misbehaving, write_tree


def make_home(root: Path) -> Path:
    for name in ("acceptance", "harness", "verifier"):
        write_tree(root / "frozen", {f"{name}/__init__.py": "x = 1\n", f"{name}/part.py": "y = 2\n"})
    write_tree(root, {"protocol.json": "{}", "manifest.json": "{}", "frozen/campaign.toml": ""})
    return root


def rewritten(path: Path) -> None:
    """Write the very same bytes again."""
    path.write_bytes(path.read_bytes())


def edited(path: Path) -> None:
    """Change a byte, and set the times back."""
    before = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"#")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _home: None, []),
        (lambda home: edited(home / "protocol.json"), ["protocol.json"]),
        (lambda home: edited(home / "manifest.json"), ["manifest.json"]),
        (lambda home: (home / "frozen/campaign.toml").write_text("x"), ["frozen/campaign.toml"]),
        (lambda home: edited(home / "frozen/acceptance/part.py"), ["frozen/acceptance/part.py"]),
        (lambda home: (home / "frozen/harness/part.py").unlink(), ["frozen/harness/part.py"]),
        (lambda home: (home / "frozen/verifier/new.py").write_text(""), ["frozen/verifier/new.py"]),
        (lambda home: (home / "frozen/verifier/new").mkdir(), ["frozen/verifier/new"]),
        (lambda home: (home / "manifest.json").unlink(), ["manifest.json"]),
        (lambda home: rewritten(home / "protocol.json"), []),
        (lambda home: os.link(home / "manifest.json", home / "copy"), []),
        (lambda home: (home / "frozen/candidates").mkdir(), []),
    ],
)
def test_what_changes_in_the_home_is_named(
    tmp_path: Path, change: Callable[[Path], object], expected: list[str]
) -> None:
    home = make_home(tmp_path)
    watched = WatchedFrozen.read(home)
    change(home)
    assert watched.find_changes() == expected
    assert watched.find_changes() == []


def test_a_file_in_whose_place_there_is_a_link_to_its_like_has_changed(tmp_path: Path) -> None:
    home = make_home(tmp_path)
    watched = WatchedFrozen.read(home)
    (home / "protocol.json").rename(tmp_path / "elsewhere")
    (home / "protocol.json").symlink_to(tmp_path / "elsewhere")
    assert watched.find_changes() == ["protocol.json"]


def test_who_began_the_allocation_is_watched_beside_what_is_frozen(tmp_path: Path) -> None:
    home = make_home(tmp_path)
    write_tree(home, {"allocations/a1/started.json": "{}", "allocations/a2/started.json": "{}"})
    watched = WatchedFrozen.read(home, home / "allocations/a1/started.json")
    edited(home / "allocations/a2/started.json")
    assert watched.find_changes() == []
    edited(home / "allocations/a1/started.json")
    assert watched.find_changes() == ["allocations/a1/started.json"]


def test_a_link_that_says_what_digest_the_file_had_is_no_such_file(tmp_path: Path) -> None:
    home = make_home(tmp_path)
    watched = WatchedFrozen.read(home)
    path = home / "protocol.json"
    digest = files.sha256_file(path)
    path.unlink()
    path.symlink_to(digest)
    assert watched.find_changes() == ["protocol.json"]


def test_a_new_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    home = make_home(tmp_path)
    watched = WatchedFrozen.read(home)
    (home / "frozen/harness/new.py").write_text("")
    monkeypatch.setattr(frozen, "sha256_file", refuse)
    assert watched.find_changes() == ["frozen/harness/new.py"]


OTHERS = """
def sync(self):
    import glob
    for path in glob.glob("{home}/attempts/*/solo/*/*/1/*"):
        if path.endswith((".csv", "receipt.json")):
            with open(path, "a") as stream:
                stream.write(" ")
"""


def test_a_side_that_edits_another_attempt_leaves_it_as_nobody_sealed_it(tmp_path: Path) -> None:
    """Nothing in the allocation looks at it again; collection compares with ended.json and with the receipt."""
    root = tmp_path.resolve()
    sources = {"spoil.py": misbehaving(OTHERS.format(home=root / "home")), "adapter.py": ADAPTER}
    bench = make_bench(root, sources)
    first, second = make_attempt("solo", ("baseline",)), make_attempt("solo", ("baseline",), number=2)
    plans = [bench.plan(first)]
    bench.runnables["baseline"] = bench.runnables["baseline"].replace(adapter="spoil:build")
    plans.append(bench.plan(second, allocation="a00002"))
    bench.run(*plans)
    folder = bench.attempt(first)
    sealed = documents.Receipt.read(folder.receipt)
    (table,) = (one for one in sealed.files if one.name == "baseline.csv")
    assert files.sha256_file(folder.table("baseline.csv")) != table.sha256
    (known,) = bench.ended("a00001").receipts.values()
    assert files.sha256_file(folder.receipt) != known


LINGER = """
def close(self):
    import os, glob
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(0.001)
                for path in glob.glob("{home}/attempts/*/solo/*/*/1/*.csv"):
                    with open(path, "a") as stream:
                        stream.write(" ")
        os._exit(0)
"""


def test_a_process_that_a_side_leaves_behind_writes_nothing_once_tables_are_written(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    bench = make_bench(root, misbehaving(LINGER.format(home=root / "home")))
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending is Ending.COMPLETED, receipt.reason
    assert len(bench.rows(SOLO, "baseline.csv")) == 1


SPOIL = """
def sync(self):
    import os
    os.chmod("{path}", 0o644)
    with open("{path}", "a") as stream:
        stream.write(" ")
"""


def test_a_side_that_edits_what_is_frozen_in_the_home_interferes_and_the_next_one_does_not(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    acceptance = root / "home" / "frozen" / "acceptance" / "gates.py"
    sources = {"spoil.py": misbehaving(SPOIL.format(path=acceptance)), "adapter.py": ADAPTER}
    bench = make_bench(root, sources)
    write_tree(acceptance.parent, {"gates.py": "x = 1\n"})
    first, second = make_attempt("solo", ("baseline",)), make_attempt("solo", ("baseline",), number=2)
    honest = bench.runnables["baseline"]
    bench.runnables["baseline"] = honest.replace(adapter="spoil:build")
    plans = [bench.plan(first)]
    bench.runnables["baseline"] = honest
    plans.append(bench.plan(second, allocation="a00002"))
    bench.run(*plans)
    receipt = bench.receipt(first)
    assert receipt.ending is Ending.INTERFERENCE
    assert receipt.reason == "while baseline ran, frozen/acceptance/gates.py in the home changed, which is frozen"
    assert bench.receipt(second).ending is Ending.COMPLETED
