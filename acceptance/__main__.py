"""``python -m acceptance PROTOCOL EVIDENCE_DIR``: prints the verdict as JSON. The only module that touches files.

Exit codes: 0 every gate passes; 3 at least one gate is shown to be missed; 4 not qualified for want of evidence; 5
bytes do not parse (each place on stderr, no verdict); 2 wrong arguments.

The program's own source, whose digest enters the verdict, is asked of the loader that loaded it (`pkgutil.get_data`). A
loader that serves the modules from memory must offer ``get_data(path)`` for ``<folder of __init__.__file__>/<name>``,
each name of `digest.SOURCES`, so that the digest is that of the bytes which are running.
"""

from __future__ import annotations

import contextlib
import gc
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import acceptance
from acceptance import digest, identity
from acceptance.formats import TABLES
from acceptance.verdict import EXIT_UNREADABLE, evaluate

EXIT_USAGE = 2


def own_sources() -> dict[str, bytes]:
    """Return the bytes of this package's files as its loader gives them.

    Raises:
        OSError: The loader has no such file.
    """
    sources: dict[str, bytes] = {}
    for name in digest.SOURCES:
        data = pkgutil.get_data(acceptance.__name__, name)
        if data is None:
            raise OSError(f"the loader of this program does not give the bytes of {name}")
        sources[name] = data
    return sources


def read_evidence(folder: Path) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Read the evidence files of a folder.

    Returns:
        Bytes by name, and the names of everything else in the folder.

    Raises:
        OSError: Something cannot be read.
    """
    known = {identity.FILE, *TABLES}
    paths = sorted(folder.iterdir())
    return (
        {path.name: path.read_bytes() for path in paths if path.name in known},
        tuple(path.name for path in paths if path.name not in known),
    )


@contextlib.contextmanager
def _much_memory() -> Iterator[None]:
    """Keep Python from looking for garbage: rows by the million hold none, and a look through them takes long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _complain(text: str) -> None:
    sys.stderr.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stderr.buffer.flush()


def main(arguments: Sequence[str]) -> int:
    """Evaluate and print.

    Args:
        arguments: The protocol's path and the evidence folder's.

    Returns:
        The exit code.
    """
    if len(arguments) != 2 or any(argument.startswith("-") for argument in arguments):
        _complain("usage: python -m acceptance PROTOCOL.json EVIDENCE_DIR")
        return 0 if list(arguments) in (["-h"], ["--help"]) else EXIT_USAGE
    try:
        protocol_json = Path(arguments[0]).read_bytes()
        evidence, foreign = read_evidence(Path(arguments[1]))
    except OSError as error:
        _complain(f"{error.filename}:1: cannot be read: {error.strerror}")
        return EXIT_UNREADABLE
    with _much_memory():
        result = evaluate(protocol_json=protocol_json, evidence=evidence, sources=own_sources(), foreign=foreign)
    for fault in result.faults:
        _complain(fault)
    if result.verdict is not None:
        sys.stdout.buffer.write(result.verdict)
        sys.stdout.buffer.flush()
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
