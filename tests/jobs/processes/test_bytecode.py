from __future__ import annotations

import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import launch
from jobs.processes import bytecode


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = sys.pycache_prefix, sys.dont_write_bytecode
    yield
    sys.pycache_prefix, sys.dont_write_bytecode = before


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the folder that the interpreter was started with, which launch.py has put aside."""
    monkeypatch.setitem(sys._xoptions, "pycache_prefix", str(tmp_path / "private"))
    sys.pycache_prefix, sys.dont_write_bytecode = None, True
    return str(tmp_path / "private")


def add_package(folder: Path, name: str, *, compiled: bool) -> None:
    source = folder / name / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text("")
    if compiled:
        sys.pycache_prefix = None
        py_compile.compile(str(source), cfile=importlib.util.cache_from_source(str(source)))


@pytest.mark.usefixtures("given")
def test_packages_installed_with_bytecode_are_read_from_it_and_none_is_written(tmp_path: Path) -> None:
    add_package(tmp_path, "one", compiled=True)
    add_package(tmp_path, "two", compiled=True)
    assert bytecode.use_installed_bytecode([str(tmp_path)])
    assert sys.pycache_prefix is None
    assert sys.dont_write_bytecode


@pytest.mark.parametrize("num_compiled", [0, 1])
def test_packages_installed_without_bytecode_leave_the_private_folder_in_use(
    tmp_path: Path, given: str, num_compiled: int
) -> None:
    for number in range(3):
        add_package(tmp_path, f"package{number}", compiled=number < num_compiled)
    assert not bytecode.use_installed_bytecode([str(tmp_path)])
    assert sys.pycache_prefix == given
    assert not sys.dont_write_bytecode


@pytest.mark.parametrize("is_compiled", [True, False])
def test_an_interpreter_without_packages_does_what_its_standard_library_does(
    tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch, *, is_compiled: bool
) -> None:
    (tmp_path / "os.py").touch()
    monkeypatch.setattr(os, "__file__", str(tmp_path / "os.py"))
    if is_compiled:
        py_compile.compile(str(tmp_path / "os.py"))
    assert bytecode.use_installed_bytecode([str(tmp_path / "absent")]) is is_compiled
    assert sys.pycache_prefix == (None if is_compiled else given)


LAUNCH = Path(launch.__file__)


def start(folder: Path, prefix: Path) -> list[str]:
    """Start a harness and return the modules that have bytecode in a folder afterwards."""
    command = [sys.executable, "-S", "-P", "-s", "-X", f"pycache_prefix={prefix}", str(folder / "launch.py"), "unknown"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("usage")
    return sorted(path.name.partition(".")[0] for path in prefix.rglob("*.pyc"))


def test_a_start_compiles_the_harness_alone_and_takes_no_bytecode_from_beside_it(tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "harness"
    shutil.copytree(LAUNCH.parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    planted = tmp_path / "planted.py"
    planted.write_text("raise SystemExit('planted')")
    for name in ("__init__", "command"):
        target = folder / "__pycache__" / f"{name}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(str(planted), str(target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    compiled = start(folder, tmp_path / "prefix")
    assert "command" in compiled
    assert not {"contextlib", "dataclasses", "inspect"} & set(compiled)
