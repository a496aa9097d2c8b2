from __future__ import annotations

import importlib.util
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.processes import bytecode


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = sys.pycache_prefix, sys.dont_write_bytecode
    yield
    sys.pycache_prefix, sys.dont_write_bytecode = before


def add_package(folder: Path, name: str, *, compiled: bool) -> None:
    source = folder / name / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text("")
    if compiled:
        sys.pycache_prefix = None
        py_compile.compile(str(source), cfile=importlib.util.cache_from_source(str(source)))


def test_packages_installed_with_bytecode_are_read_from_it_and_none_is_written(tmp_path: Path) -> None:
    add_package(tmp_path, "one", compiled=True)
    add_package(tmp_path, "two", compiled=True)
    sys.pycache_prefix = str(tmp_path / "private")
    assert bytecode.use_installed_bytecode([str(tmp_path)])
    assert sys.pycache_prefix is None
    assert sys.dont_write_bytecode


@pytest.mark.parametrize("num_compiled", [0, 1])
def test_packages_installed_without_bytecode_leave_the_private_folder_in_use(tmp_path: Path, num_compiled: int) -> None:
    for number in range(3):
        add_package(tmp_path, f"package{number}", compiled=number < num_compiled)
    sys.pycache_prefix = str(tmp_path / "private")
    sys.dont_write_bytecode = False
    assert not bytecode.use_installed_bytecode([str(tmp_path)])
    assert sys.pycache_prefix == str(tmp_path / "private")
    assert not sys.dont_write_bytecode


def test_an_interpreter_without_packages_leaves_the_private_folder_in_use(tmp_path: Path) -> None:
    sys.pycache_prefix = str(tmp_path / "private")
    assert not bytecode.use_installed_bytecode([str(tmp_path), str(tmp_path / "absent")])
    assert sys.pycache_prefix == str(tmp_path / "private")
