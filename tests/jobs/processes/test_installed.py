from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign.freezing.machine import read_interpreter
from jobs.processes import installed
from tests.support.harness import SOLO, make_bench

RECORD = """small/__init__.py,sha256=abc,6
"small/a,b ""c"".txt",sha256=abc,1
small/gone.py,sha256=abc,9
small/__pycache__/__init__.cpython-311.pyc,,
small-1.0.dist-info/RECORD,,
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with one small distribution."""
    root = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(root, symlinks=True)
    (packages,) = root.glob("lib/python3*/site-packages")
    for name, text in {
        "small/__init__.py": "x = 1\n",
        'small/a,b "c".txt': "1",
        "small-1.0.dist-info/RECORD": RECORD,
        "small-1.0.dist-info/METADATA": "Name: small\nVersion: 1.0\n",
        "old-2.egg-info/PKG-INFO": "Name: old\nVersion: 2\n",
        "hook.pth": "import os\n",
    }.items():
        path = packages / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return root / "bin" / "python"


def packages_of(python: Path) -> Path:
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    return packages


def digest_of(python: Path) -> str:
    found = read_interpreter(str(python)).environment
    assert found is not None
    return found.environment_sha256


def test_the_digest_is_as_the_documentation_defines_it(python: Path) -> None:
    found = read_interpreter(str(python)).environment
    assert found is not None
    record = hashlib.sha256(RECORD.encode()).hexdigest()
    hook = hashlib.sha256(b"import os\n").hexdigest()
    texts = [found.version, found.sha256, "old-2", "", "", "small-1.0", record, "6,1,-", "hook.pth", hook]
    data = b"campaign-environment/1\n" + b"".join(b"%d:%s," % (len(text), text.encode()) for text in texts)
    assert found.environment_sha256 == hashlib.sha256(data).hexdigest()
    small = found.installed["small-1.0"]
    assert (small.record_sha256, small.files, small.bytes) == (record, 2, 7)
    assert found.installed["old-2"].record_sha256 == ""
    assert found.path == os.path.realpath(sys.executable)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "small" / "__init__.py").write_text("x = 12\n"),
        lambda root: (root / "small" / "gone.py").write_text(""),
        lambda root: (root / "small-1.0.dist-info" / "RECORD").write_text(RECORD.replace("abc,9", "abd,9")),
        lambda root: (root / "hook.pth").write_text("import io\n"),
        lambda root: (root / "new-1.dist-info").mkdir(),
    ],
)
def test_every_change_of_a_size_a_list_or_a_hook_changes_it(
    python: Path, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    subprocess.run(["cp", "-a", python.parents[1], tmp_path / "venv"], check=True)
    copy = tmp_path / "venv" / "bin" / "python"
    assert digest_of(copy) == digest_of(python)
    change(packages_of(copy))
    assert digest_of(copy) != digest_of(python)


def test_bytecode_that_is_written_anew_changes_nothing(python: Path) -> None:
    before = digest_of(python)
    (packages_of(python) / "small" / "__pycache__").mkdir()
    (packages_of(python) / "small" / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"anything")
    assert digest_of(python) == before


def test_an_attempt_says_of_its_interpreter_what_the_freeze_said(python: Path, tmp_path: Path) -> None:
    bench = make_bench(tmp_path, python=str(python))
    bench.run(bench.plan(SOLO))
    receipt = bench.receipt(SOLO)
    assert receipt.ending is Ending.COMPLETED, receipt.reason
    (side,) = receipt.sides
    frozen = read_interpreter(str(python)).environment
    assert frozen is not None
    assert side.interpreter is not None
    assert side.environment_sha256 == frozen.environment_sha256
    assert side.interpreter.to_json() == {name: getattr(frozen, name) for name in ("path", "version", "sha256")}


def test_what_is_installed_is_read_in_the_order_of_the_import_path() -> None:
    folders = installed.package_folders()
    assert folders == [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
