"""Bytecode of the harness for the processes that it starts: made once for a job, in its private copy.

Each of them would else compile the same modules again, which takes longer than all else of its start. It lies within
the copy, which no process of a side may touch: the copy is looked at after each.
"""

from __future__ import annotations

import marshal
import os
import struct
import sys
from importlib import util
from pathlib import Path
from types import CodeType
from typing import Protocol, cast

from ..common.layout import COMPILED

_PARTS = ("common", "processes", "tensors", "worker")
"""Folders of what workers and comparers import, beside the modules that lie in none."""


class _Loader(Protocol):
    def __init__(self, fullname: str, path: str) -> None: ...
    def get_code(self, fullname: str) -> CodeType | None: ...


def is_started(path: str) -> bool:
    """Return whether an entry of the harness is needed by a process that the parent starts.

    Args:
        path: Relative to the harness.
    """
    folder, _, rest = path.partition("/")
    return folder in _PARTS or (not rest and path.endswith(".py"))


def write_bytecode(source: Path, copy: Path) -> None:
    """Write bytecode for a private copy of the harness, of the modules that this process runs on.

    Args:
        source: The harness that was copied. Bytecode of it that this process has found or made is used.
        copy: The copy, which is not read-only yet.
    """
    # As the running harness is loaded, however that is: see launch.py.
    kind = cast("type[_Loader]", type(sys.modules[__name__.partition(".")[0]].__loader__))
    before, sys.pycache_prefix = sys.pycache_prefix, str(copy / COMPILED)
    try:
        targets = {path: util.cache_from_source(str(copy / path)) for path in _modules(copy)}
    finally:
        sys.pycache_prefix = before
    for folder in {os.path.dirname(target) for target in targets.values()}:  # noqa: PTH120 - as they are spelled
        Path(folder).mkdir(parents=True, exist_ok=True)  # one may lie within another
    for path, target in targets.items():
        status = os.stat(f"{copy}/{path}")  # noqa: PTH116 - as below
        code = _code_of(kind, f"{source}/{path}", path)
        stamp = struct.pack("<III", 0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
        with open(target, "xb", buffering=0) as stream:  # noqa: PTH123 - twice as fast, for dozens
            stream.write(util.MAGIC_NUMBER + stamp + marshal.dumps(code))


def _code_of(kind: type[_Loader], source: str, name: str) -> CodeType | None:
    # A loader that is not launch.py's own would write beside the source, which is frozen.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return kind(name, source).get_code(name)
    finally:
        sys.dont_write_bytecode = before


def _modules(copy: Path) -> list[str]:
    return [
        os.path.join(part, name)  # noqa: PTH118 - relative
        for part in ("", *_PARTS)
        for name in sorted(os.listdir(copy / part))  # noqa: PTH208 - names alone
        if name.endswith(".py")
    ]
