"""The home itself: what cannot be listed, what an export left out of it, and what killed writers left in it."""

from __future__ import annotations

from . import names
from .facts import Facts
from .findings import Check


def check(facts: Facts, check: Check) -> None:
    """Say what is not here. What an export withheld is known by its digest, which the other checks hold to its place.

    Args:
        facts: Nothing but the listing of the home is known.
        check: Where findings go.
    """
    for folder, why in facts.digests.unreadable.items():
        check.tampered(folder or ".", why)
    for path, (num_bytes, sha256) in sorted(facts.withheld.items()):
        with check.each():
            if contradiction := facts.digests.contradiction(path, num_bytes, sha256):
                check.tampered(path, f"not what the export says of it: {contradiction}")
    gone = [path for path in facts.withheld if _is_withheld(facts, path)]
    if gone:
        num_bytes = sum(facts.withheld[path][0] for path in gone)
        check.not_checked(
            f"{len(gone)} files ({num_bytes} bytes) were withheld by the export, such as {gone[0]}: their digests are "
            "compared, their content is not here"
        )
    # Below frozen/ it is a source like any other.
    found = (one.path for one in facts.digests.below("") if not one.path.startswith(f"{names.FROZEN}/"))
    left = [path for path in found if names.is_leftover(path.rpartition("/")[2])]
    if left:
        check.remark(f"{len(left)} temporary files of killed writers, never evidence, such as {left[0]}")


def _is_withheld(facts: Facts, path: str) -> bool:
    found = facts.digests.get(path)
    return found is not None and found.withheld
