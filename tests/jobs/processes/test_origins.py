from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from acceptance.formats import Ending
from jobs.processes import origins
from tests.support.harness import ADAPTER, SOLO, make_bench, write_tree

FINDER = """
import importlib.util
import sys


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, {module!r}) if name == "{name}" else None


sys.meta_path.insert(0, Finder)
"""
"""What an editable install that redirects imports leaves in site-packages."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
    return root


@pytest.mark.parametrize("style", ["path", "finder", "link"])
def test_an_editable_install_of_the_live_tree_is_caught(tmp_path: Path, template: Path, style: str) -> None:
    live = tmp_path / "live"
    write_tree(live, {"trainer.py": "x = 1\n"})
    (packages,) = template.glob("lib/python3*/site-packages")
    planted = {"path": f"{live}\n", "finder": "import _editable\n", "link": ""}[style]
    finder = FINDER.format(module=str(live / "trainer.py"), name="trainer")
    write_tree(packages, {"editable.pth": planted, "_editable.py": finder})
    (packages / "trainer.py").unlink(missing_ok=True)
    if style == "link":
        (packages / "trainer.py").symlink_to(live / "trainer.py")
    # Only a finder that goes before the import path can win over the snapshot's own module.
    tree = {"adapter.py": "import trainer\n" + ADAPTER} | ({"trainer.py": "x = 2\n"} if style == "finder" else {})
    bench = make_bench(tmp_path, tree, python=str(template / "bin" / "python"))
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending is Ending.FOREIGN_IMPORT, receipt.reason
    assert receipt.sides[0].foreign[0].startswith("trainer: ")


def test_the_snapshot_wins_over_a_live_tree_further_down_the_import_path(tmp_path: Path, template: Path) -> None:
    live = tmp_path / "live"
    write_tree(live, {"trainer.py": "raise SystemExit(1)\n"})
    (packages,) = template.glob("lib/python3*/site-packages")
    write_tree(packages, {"editable.pth": f"{live}\n", "_editable.py": ""})
    (packages / "trainer.py").unlink(missing_ok=True)
    tree = {"adapter.py": "import trainer\nassert trainer.x == 2\n" + ADAPTER, "trainer.py": "x = 2\n"}
    bench = make_bench(tmp_path, tree, python=str(template / "bin" / "python"))
    bench.run(bench.plan(SOLO))
    assert bench.receipt(SOLO).ending is Ending.COMPLETED, bench.receipt(SOLO).reason


def test_everything_that_this_interpreter_has_loaded_is_its_own_or_this_repositorys() -> None:
    repository = str(Path(origins.__file__).resolve().parents[2])
    foreign = origins.find_foreign(sys.modules, origins.read_roots(), (repository,))
    assert foreign == []
    ours = {origins.__name__: origins}
    assert any("jobs" in origin for origin in origins.find_foreign(ours, origins.read_roots(), ()))


def test_a_folder_whose_name_begins_alike_is_not_inside() -> None:
    assert origins.is_below("/a/b", ("/a/b",))
    assert origins.is_below("/a/b/c", ("/a/b/",))
    assert not origins.is_below("/a/bc", ("/a/b",))


def test_a_linked_file_and_a_file_of_a_linked_folder_are_where_the_links_lead(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file.py").touch()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "real" / "link.py").symlink_to("../folder/file.py")
    resolver = origins.Resolver()
    real = str(tmp_path.resolve() / "real" / "file.py")
    for name in ("real/file.py", "folder/file.py", "folder/link.py", "real/link.py"):
        assert resolver.file(str(tmp_path / name)) == real
    assert resolver.folder(str(tmp_path / "folder")) == str(tmp_path.resolve() / "real")


MAPS = """\
55d0-55d1 r-xp 00000000 08:01 1 /home/me/project/.venv/bin/python
7f00-7f01 r-xp 00000000 08:01 2 /usr/lib/x86_64-linux-gnu/libc.so.6
7f02-7f03 r-xp 00000000 08:01 3 /home/me/project/build/fast.cpython-311-x86_64-linux-gnu.so
7f04-7f05 r-xp 00000000 08:01 4 /home/me/project/build/with blank/libx.so.1.2 (deleted)
7f06-7f07 r--p 00000000 08:01 5 /home/me/data/tokens.bin
7f08-7f09 r-xp 00000000 08:01 6 /private/tree/fast.so
7f0a-7f0b rw-p 00000000 00:00 0 [heap]
7f0c-7f0d rw-p 00000000 00:00 0
"""


def test_shared_libraries_from_elsewhere_are_named() -> None:
    assert origins.find_foreign_libraries(MAPS, ("/private",)) == [
        "/home/me/project/build/fast.cpython-311-x86_64-linux-gnu.so",
        "/home/me/project/build/with blank/libx.so.1.2",
    ]
    assert origins.find_foreign_libraries(MAPS, ("/private", "/home/me/project")) == []
