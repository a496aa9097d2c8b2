"""Makes the operating system refuse: modes do not bind the superuser, and no test fills a real disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def forbid(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let nobody list a folder or look at what is in it, as mode 000 does."""

    def guarded(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            place = "" if isinstance(path, int) else os.fsdecode(path)
            is_listed = name == "scandir" and place == str(folder)
            if is_listed or place.startswith(f"{folder}/"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)
            return real(path, *arguments, **options)

        return call

    for name in ("stat", "lstat", "scandir", "open"):
        monkeypatch.setattr(os, name, guarded(name))


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Let a function of `os` fail with an error number."""

    def call(*_arguments: Any, **_options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, call)
