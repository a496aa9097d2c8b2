"""The proof that a side's ranks divide the work: no example twice, none left out, just what one process would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..common.endings import EndedError, Ending
from ..common.storage import sha256_bytes
from ..common.strict import compact_json
from ..processes.steps import alone
from .crew import Crew
from .session import Session

METHOD = "examples"
"""What an adapter must offer where a workload asks for several processes."""
STEPS = 8
"""For so many updates from the first, step 0, the ranks are asked."""
_MOST_SHOWN = 5


class Proof:
    """What the ranks of one side take, and what one process of it would."""

    def __init__(self) -> None:
        self._by_step: list[Counter[int]] = []

    def ask(self, crew: Crew) -> None:
        """Ask all ranks.

        Raises:
            EndedError: Two of them take the same example.
        """
        for step in range(STEPS):
            self._by_step.append(join_examples(crew.examples(step), step))

    def compare(self, session: Session) -> tuple[str, ...]:
        """Ask one process that is alone; return the digest of each step's examples.

        Raises:
            EndedError: It takes others than the ranks together.
        """
        for step, found in enumerate(self._by_step):
            check_examples(found, alone(session.examples(step)), step)
        return tuple(digest_examples(found) for found in self._by_step)


def join_examples(by_rank: Sequence[Sequence[int]], step: int) -> Counter[int]:
    """Return how often all ranks together take each example.

    Args:
        by_rank: What each takes in one update.
        step: Which update.

    Raises:
        EndedError: Two of them take the same.
    """
    owners: dict[int, int] = {}
    for rank, examples in enumerate(by_rank):
        for example in set(examples):
            other = owners.setdefault(example, rank)
            if other != rank:
                text = f"step {step}: ranks {other} and {rank} both take example {example}"
                raise EndedError(Ending.STATE_MISMATCH, text)
    return Counter(example for examples in by_rank for example in examples)


def check_examples(found: Counter[int], alone_takes: Sequence[int], step: int) -> None:
    """Refuse ranks that together take others than one process that is alone.

    Args:
        found: What the ranks take.
        alone_takes: What one process takes.
        step: In which update.

    Raises:
        EndedError: They do, or nobody takes any.
    """
    expected = Counter(alone_takes)
    if not expected:
        raise EndedError(Ending.STATE_MISMATCH, f"step {step}: one process alone takes no example at all")
    for what, difference in (("lack", expected - found), ("add", found - expected)):
        if difference:
            shown = ", ".join(str(one) for one in sorted(difference)[:_MOST_SHOWN])
            count = sum(difference.values())
            text = (
                f"the ranks {what} {count} of the {sum(expected.values())} examples of one process, among them {shown}"
            )
            raise EndedError(Ending.STATE_MISMATCH, f"step {step}: {text}")


def digest_examples(found: Counter[int]) -> str:
    """Return the SHA-256 over the examples of one update, as compact JSON, in ascending order."""
    return sha256_bytes(compact_json(sorted(found.elements())))


def digest_steps(digests: Sequence[str]) -> str:
    """Return one SHA-256 that stands for those of all steps; empty where there are none."""
    return sha256_bytes(compact_json(list(digests))) if digests else ""
