"""What an interpreter is and what is installed for it, as cheaply as every attempt can afford.

A worker reads it before it imports anything of its side. The freeze hands the text of this very file to an interpreter,
which then prints the same and more as JSON: so nothing of ours is imported here.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from os.path import basename, isfile, realpath  # bound here: a side may replace os.path's own

DOMAIN = b"campaign-environment/1\n"
_CHUNK = 1 << 20
_PACKAGES = ("site-packages", "dist-packages")
_STEMS = (".dist-info", ".egg-info")
_LISTED = re.compile(rb"^(.+),sha256=[^,\n]*,[0-9]*\r?$", re.MULTILINE)
"""A line of RECORD with a digest: bytecode has none, and is written anew as installers please."""


class Distribution:
    """One installed distribution.

    Args:
        stem: Name of its folder of metadata without the ending: name and version.
        record: Bytes of its RECORD; empty where there is none.
        sizes: Bytes of each file that RECORD lists with a digest, in its order; None where there is no such file.
    """

    def __init__(self, stem: str, record: bytes, sizes: list[int | None]) -> None:
        self.stem = stem
        self.record_sha256 = hashlib.sha256(record).hexdigest() if record else ""
        self.sizes = sizes

    def as_json(self) -> dict[str, int | str]:
        """Return what a manifest says of it."""
        found = [size for size in self.sizes if size is not None]
        return {"record_sha256": self.record_sha256, "files": len(found), "bytes": sum(found)}


def _sha256_file(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:  # noqa: PTH123 - nothing but what is needed is imported
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - as above
            return stream.read()
    except OSError:
        return b""


def package_folders() -> list[str]:
    """Return the folders of installed packages on the import path, in its order."""
    return [path for path in sys.path if basename(path.rstrip("/")) in _PACKAGES]  # noqa: PTH119 - as above


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - as above
    except OSError:
        return []


def _size(path: bytes) -> int | None:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - tens of thousands of calls
    except OSError:
        return None


def _sizes(folder: bytes, paths: list[bytes]) -> list[int | None]:
    spelled = [path[1:-1].replace(b'""', b'"') if path.startswith(b'"') else path for path in paths]
    return [_size(folder + b"/" + path) for path in spelled]


def read_distributions(folders: list[str]) -> list[Distribution]:
    """Read what is installed in some folders, in their order and then by name."""
    found = []
    for folder in folders:
        for name in _names(folder):
            if name.endswith(_STEMS):
                record = _read(f"{folder}/{name}/RECORD")
                sizes = _sizes(os.fsencode(folder), _LISTED.findall(record))
                found.append(Distribution(name.rpartition(".")[0], record, sizes))
    return found


def read_hooks(folders: list[str]) -> dict[str, str]:
    """Return the path configuration files, which run when an interpreter starts: SHA-256 by name."""
    return {
        name: hashlib.sha256(_read(f"{folder}/{name}")).hexdigest()
        for folder in folders
        for name in _names(folder)
        if name.endswith(".pth")
    }


def environment_sha256(
    version: str, executable_sha256: str, distributions: list[Distribution], hooks: dict[str, str]
) -> str:
    """Return the digest of an environment: docs/formats.md has its definition."""
    digest = hashlib.sha256(DOMAIN)
    fields = [version, executable_sha256]
    for one in distributions:
        sizes = ",".join("-" if size is None else str(size) for size in one.sizes)
        fields += [one.stem, one.record_sha256, sizes]
    for name, sha256 in hooks.items():
        fields += [name, sha256]
    for field in map(os.fsencode, fields):
        digest.update(b"%d:%s," % (len(field), field))
    return digest.hexdigest()


def read_identity(distributions: list[Distribution], hooks: dict[str, str]) -> dict[str, str]:
    """Return what this interpreter is, and the digest of its environment.

    Args:
        distributions: What is installed.
        hooks: Its path configuration files.
    """
    path, version = realpath(sys.executable), platform.python_version()
    sha256 = _sha256_file(path) if isfile(path) else ""  # noqa: PTH113 - as above
    whole = environment_sha256(version, sha256, distributions, hooks)
    return {"path": path, "version": version, "sha256": sha256, "environment_sha256": whole}


def identify() -> dict[str, str]:
    """Return what this interpreter is and what its environment is, by digests."""
    folders = package_folders()
    return read_identity(read_distributions(folders), read_hooks(folders))


# --- what the freeze asks for besides ---------------------------------------------------------------------------------


def _versions() -> dict[str, str]:
    """Return name to version of everything that is installed; what is editable says from where."""
    from importlib import metadata  # noqa: PLC0415 - a worker needs none of it

    found: dict[str, list[str]] = {}
    for item in metadata.distributions():
        name = (item.metadata["Name"] or "").lower().replace("_", "-")
        if not name:
            continue
        version = item.version or ""
        try:
            direct = json.loads(item.read_text("direct_url.json") or "{}")
        except ValueError:
            direct = {}
        if direct.get("dir_info", {}).get("editable"):
            version += f" (editable, {direct.get('url', '')})"
        found.setdefault(name, []).append(version)
    return {name: ", ".join(dict.fromkeys(versions)) for name, versions in found.items()}


def describe() -> dict[str, object]:
    """Return everything that a manifest says of an interpreter."""
    folders = package_folders()
    distributions = read_distributions(folders)
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": realpath(sys.executable),
        "prefix": sys.prefix,
        "distributions": _versions(),
        "identity": read_identity(distributions, read_hooks(folders)),
        "installed": {one.stem: one.as_json() for one in reversed(distributions)},  # the first of a name counts
    }


if __name__ == "__main__":
    print(json.dumps(describe()))  # noqa: T201 - what the freeze reads
