"""Copies of a home to tamper with, and the ways in which their files are changed.

The copies share files with one reference copy by hard links. Every change therefore puts a new file in the old one's
place, as an intruder who cares about nothing would not have to.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign import files
from campaign.paths import AttemptPaths, HomePaths
from campaign.record.ledger import FIRST_PREVIOUS


class NothingToTryError(Exception):
    """The campaign has nothing that this could be tried on: no such file, act or field.

    Only what looks for it says so. Anything else that goes wrong is a fault of whoever tampers, and hides what was not
    tried.
    """


def copy_home(source: Path, target: Path) -> None:
    """Copy a home, with modes and times; links stay links.

    Raises:
        InfrastructureError: There is no room for it, or something cannot be read.
    """
    with files.writing(target):
        shutil.copytree(source, target, symlinks=True)


def link_home(source: Path, target: Path) -> None:
    """Copy a home by hard links: folders are new, files are shared."""
    with files.writing(target):
        shutil.copytree(source, target, symlinks=True, copy_function=os.link)


def remove_home(root: Path) -> None:
    """Remove a copy, whose frozen folders are read-only."""
    for folder, names, _ in os.walk(root):
        Path(folder).chmod(0o700)
        for name in names:
            path = Path(folder) / name
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(root)


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy to tamper with."""

    paths: HomePaths

    @property
    def root(self) -> Path:
        """The folder."""
        return self.paths.root

    # --- whole files

    def read(self, path: Path) -> bytes:
        """Return the bytes of a file.

        Raises:
            NothingToTryError: The campaign has no such file.
        """
        self._require(path)
        return path.read_bytes()

    def _require(self, path: Path) -> None:
        if not os.path.lexists(path):
            raise NothingToTryError(path)

    @contextmanager
    def _writable(self, folder: Path) -> Iterator[None]:
        """Let something be put into a folder, which then looks as it did before."""
        before = folder.stat()
        folder.chmod(before.st_mode | stat.S_IWUSR)
        try:
            yield
        finally:
            folder.chmod(stat.S_IMODE(before.st_mode))
            os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))

    def write(self, path: Path, data: bytes) -> None:
        """Put other bytes in the place of a file, with its mode and its times."""
        self._require(path)
        before = path.stat()
        with self._writable(path.parent):
            path.unlink()
            path.write_bytes(data)
            path.chmod(stat.S_IMODE(before.st_mode))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def add(self, path: Path, data: bytes = b"planted\n") -> None:
        """Add a file, and the folders above it.

        Raises:
            FileExistsError: There is one, which other copies may share.
        """
        above = next(folder for folder in path.parents if folder.exists())
        with self._writable(above):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as stream:
                stream.write(data)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it."""
        self._require(path)
        with self._writable(path.parent):
            if path.is_dir() and not path.is_symlink():
                remove_home(path)
            else:
                path.unlink()

    def move(self, path: Path, target: Path) -> None:
        """Move a file or folder."""
        self._require(path)
        with self._writable(path.parent):
            path.rename(target)

    def exchange(self, one: Path, other: Path) -> None:
        """Put two files or folders in each other's place."""
        aside = one.with_name(f"{one.name}.aside")
        self.move(one, aside)
        self.move(other, one)
        self.move(aside, other)

    def replace_by_link(self, path: Path) -> None:
        """Put a symbolic link in the place of a file, to the very same bytes elsewhere."""
        elsewhere = self.root.parent / f"{self.root.name}.elsewhere"
        elsewhere.write_bytes(self.read(path))
        with self._writable(path.parent):
            path.unlink()
            path.symlink_to(elsewhere)

    def replace_by_pipe(self, path: Path) -> None:
        """Put a named pipe in the place of a file: whoever opens it would wait for ever."""
        self._require(path)
        with self._writable(path.parent):
            path.unlink()
            os.mkfifo(path)

    def change_mode(self, path: Path) -> None:
        """Make a file executable, or no longer."""
        data, mode = self.read(path), path.stat().st_mode
        self.write(path, data)
        path.chmod(stat.S_IMODE(mode) ^ 0o111)

    # --- bytes

    def flip(self, path: Path) -> None:
        """Turn over one bit in the middle of a file."""
        data = bytearray(self.read(path))
        if not data:
            raise NothingToTryError
        data[len(data) // 2] ^= 1
        self.write(path, bytes(data))

    def substitute(self, path: Path, old: bytes, new: bytes) -> None:
        """Replace the first occurrence of some bytes."""
        data = self.read(path)
        if old not in data:
            raise NothingToTryError
        self.write(path, data.replace(old, new, 1))

    def edit_json(self, path: Path, edit: Callable[[Any], None]) -> None:
        """Change a document, and write it as the programs do."""
        value = json.loads(self.read(path))
        edit(value)
        self.write(path, files.dump_json(value))

    def edit_lines(self, path: Path, edit: Callable[[list[bytes]], None]) -> None:
        """Change the lines of a text; each without its newline."""
        lines = self.read(path).split(b"\n")[:-1]
        edit(lines)
        self.write(path, b"".join(line + b"\n" for line in lines))

    # --- digests put right

    def seal_again(self, folder: AttemptPaths) -> None:
        """Let a receipt seal what lies beside it now, so that attempt and receipt agree."""

        def edit(receipt: Any) -> None:
            receipt["start_sha256"] = files.sha256_file(folder.start)
            for sealed in receipt["files"]:
                path = folder.root / sealed["name"]
                if not path.exists():  # it was left behind on a bundle's machine, and is known by its digest
                    continue
                data = path.read_bytes()
                sealed["bytes"], sealed["sha256"] = len(data), files.sha256_bytes(data)
                if sealed["rows"] is not None:
                    sealed["rows"] = data.count(b"\n") - 1

        self.edit_json(folder.receipt, edit)

    def edit_ledger(self, edit: Callable[[list[Any]], None]) -> None:
        """Change the acts, number them anew and chain them again."""
        path = self.paths.ledger
        entries = [json.loads(line) for line in self.read(path).split(b"\n")[:-1]]
        edit(entries)
        previous, lines = FIRST_PREVIOUS, []
        for number, entry in enumerate(entries, start=1):
            entry["seq"], entry["previous"] = number, previous
            line = json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
            previous = files.sha256_bytes(line)
            lines.append(line + b"\n")
        self.write(path, b"".join(lines))

    def carry_through(self, old: str, new: str) -> None:
        """Replace a digest in every document that names it, and then the digests of those, to the end.

        Left alone are derived files, which can be made again, and the ledger's chain.
        """
        documents = {path: path.read_bytes() for path in self._documents()}
        changed = set[Path]()
        pending = deque([(old.encode("ascii"), new.encode("ascii"))])
        while pending:
            before, after = pending.popleft()  # in order: a document may change more than once
            for path, data in documents.items():
                if before in data:
                    documents[path] = data.replace(before, after)
                    changed.add(path)
                    names = (files.sha256_bytes(data), files.sha256_bytes(documents[path]))
                    pending.append((names[0].encode("ascii"), names[1].encode("ascii")))
        for path in changed:
            self.write(path, documents[path])

    def _documents(self) -> Iterator[Path]:
        """Yield what names digests: the documents and tables of the home, none of a side's own files."""
        skipped = {self.paths.evaluations, self.paths.transport, self.paths.inputs, self.paths.baseline.tree}
        skipped |= {folder / self.paths.baseline.tree.name for folder in self.paths.candidates.glob("*")}
        yield self.paths.ledger
        for folder, names, found in os.walk(self.root):
            names[:] = [name for name in names if Path(folder) / name not in skipped]
            yield from (Path(folder) / name for name in sorted(found) if name.endswith((".json", ".csv")))
