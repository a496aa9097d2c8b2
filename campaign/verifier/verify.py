"""All checks in order, and what they establish together."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from . import (
    accounting,
    amendments,
    attempts,
    bundles,
    cache,
    closing,
    deep,
    evidence,
    fallbacks,
    frozen,
    home,
    inputs,
    ledger,
    matrix,
    names,
    order,
    pairs,
    platform,
    report,
    runs,
    signature,
    strict,
    trees,
    verdict,
)
from .digests import Digests
from .facts import Facts, Options
from .findings import FAULTS, Check, Checks, EvidenceError, State
from .tier import Tier, tier_of

Function: TypeAlias = Callable[[Facts, Check], None]

EXIT_INTACT = 0
EXIT_MISSED = 3
EXIT_WANTING = 4
EXIT_TAMPERED = 5
EXIT_UNREADABLE = 6


@dataclass(frozen=True, slots=True)
class Step:
    """One check.

    Attributes:
        name: A word or two, joined by hyphens.
        title: What is looked at, in a few words.
        function: Makes it.
        needs: What it is held to: without manifest, protocol and ledger it cannot be made.
    """

    name: str
    title: str
    function: Function
    needs: bool = True


STEPS = (
    Step("home", "the folder, and what an export withheld", home.check, needs=False),
    Step("frozen", "manifests, protocol, programs and source trees", frozen.check, needs=False),
    Step("ledger", "the chain of acts, and what it froze", ledger.check, needs=False),
    Step("order", "rules before candidates, the baseline first", order.check),
    Step("matrix", "the closed list of slots, plans, nothing added", matrix.check),
    Step("bundles", "what came back from machines that the driver does not reach", bundles.check),
    Step("attempts", "receipts and every file that they seal", attempts.check),
    Step("pairs", "both sides alike in every pair", pairs.check),
    Step("platform", "one platform over all attempts", platform.check),
    Step("runs", "trainings, segment by segment", runs.check),
    Step("inputs", "canonical states and batches", inputs.check),
    Step("accounting", "the scheduler's jobs against the ledger, both ways", accounting.check),
    Step("amendments", "what was declared void or changed, and decided", amendments.check),
    Step("fallbacks", "every file of the fallback trials", fallbacks.check),
    Step("evidence", "the tables, rebuilt from the attempts", evidence.check),
    Step("cache", "campaign.sqlite against the attempts, row by row", cache.check),
    Step("report", "every file of the reports, and what they rest on", report.check),
    Step("closing", "every file, as it was when the campaign was closed", closing.check),
)
"""In order: each may rely on what those before it filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the frozen acceptance said again of one candidate."""

    candidate: str
    outcome: str
    is_missed: bool
    """Whether at least one gate is shown to be missed."""
    printed: bytes

    @property
    def exit_code(self) -> int:
        """0 if every gate passes, 3 if one is shown to be missed, 4 if only evidence is wanting."""
        if self.outcome == "pass":
            return EXIT_INTACT
        return EXIT_MISSED if self.is_missed else EXIT_WANTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a verification found."""

    checks: Checks
    facts: Facts
    verifier_sha256: str
    """Tree digest of the verifier that ran."""

    @property
    def state(self) -> State:
        """The worst of all checks."""
        return self.checks.state

    @property
    def tier(self) -> Tier:
        """What could be established."""
        return tier_of(self.checks, is_underived=bool(self.facts.underived))

    @property
    def head_line(self) -> str:
        """The line that closing printed; empty where the campaign is open, or its last act cannot be read."""
        try:
            return closing.head_line(self.facts)
        except EvidenceError:
            return ""

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """What the frozen acceptance said again, oldest first; nothing where anything is tampered with or unread."""
        if self.state in FAULTS:
            return ()
        return tuple(_read_verdict(name, printed) for name, printed in self.facts.verdicts.items())

    def exit_code(self, *, with_verdict: bool) -> int:
        """Return the exit code.

        Args:
            with_verdict: Whether the verdict on the candidate that was frozen last counts, too.
        """
        if self.state is State.TAMPERED:
            return EXIT_TAMPERED
        if self.state is State.UNREADABLE:
            return EXIT_UNREADABLE
        least = EXIT_WANTING if self.facts.underived else EXIT_INTACT
        if not with_verdict:
            return least
        last = next(reversed(self.facts.candidates), None)
        found = next((one for one in self.verdicts if one.candidate == last), None)
        return (found.exit_code or least) if found is not None else EXIT_WANTING


def _read_verdict(candidate: str, printed: bytes) -> Verdict:
    node = strict.read(printed, names.verdict(candidate))
    findings = [gate["finding"].as_text() for gate in node["gates"].items()]
    outcome = node["outcome"].as_word(("pass", "not_qualified"))
    return Verdict(candidate=candidate, outcome=outcome, is_missed="missed" in findings, printed=printed)


def is_home(root: Path) -> bool:
    """Return whether there is something at a path that could be verified: a folder with any part of a campaign."""
    parts = (names.MANIFEST, names.PROTOCOL, names.LEDGER, names.FROZEN)
    return root.is_dir() and any(os.path.lexists(root / part) for part in parts)


@contextmanager
def verifying(
    root: Path,
    options: Options,
    *,
    withheld: Mapping[str, tuple[int, str]] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Verification]:
    """Make all checks of a home, read-only; within the block more checks may be added.

    Args:
        root: The home.
        options: What was asked for.
        withheld: What an export left out: bytes and SHA-256 by path.
        progress: Is told the title of each check before it is made.

    Raises:
        ValueError: The head that was given is none.
    """
    if options.head:
        closing.parse_head(options.head)
    facts = Facts.open(root, options, withheld)
    with facts.digests:
        facts.digests.hash_ahead(but=(names.TRANSPORT,))
        checks = Checks()
        for step in (*STEPS, *_asked_for(options), _last(checks)):
            progress(step.title)
            make(checks, facts, step)
        yield Verification(checks=checks, facts=facts, verifier_sha256=own_digest())


def _asked_for(options: Options) -> Iterator[Step]:
    """Yield the checks that not every verification makes."""
    if options.head:
        yield Step("head", "the head line that was kept elsewhere", closing.check_head)
    if options.signature is not None:
        signed = options.signature
        yield Step(
            "signature", "a signature of the head line", lambda facts, check: signature.check(facts, check, signed)
        )
    if options.deep:
        yield Step("data", "declared data, hashed again", deep.check_data)
        yield Step("environment", "installed distributions, hashed again", deep.check_environment)


def _last(checks: Checks) -> Step:
    """Return the check that runs what came with the home: only where none of those before found anything."""

    def derive(facts: Facts, check: Check) -> None:
        verdict.check(facts, check, is_tampered=checks.state in FAULTS)

    return Step("verdict", "the frozen acceptance, run twice again", derive)


def make(checks: Checks, facts: Facts, step: Step) -> None:
    """Make one check. What it cannot cope with is a finding: it must not hide those of the others."""
    with checks.begin(step.name, step.title) as check:
        if step.needs and (facts.is_short or not (facts.manifest and facts.protocol and facts.entries)):
            check.not_checked("manifests, protocol and ledger are not all there to hold it to")
            return
        try:
            step.function(facts, check)
        except (EvidenceError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - evidence of a form that nobody thought of must not pass, nor end all
            place = traceback.extract_tb(sys.exc_info()[2])[-1]
            what = f"this check came to no end: {type(error).__name__}: {error}"
            check.tampered("", f"{what} ({os.path.basename(place.filename)}:{place.lineno})")  # noqa: PTH119 - a text


def own_digest() -> str:
    """Return the tree digest of the verifier that runs, over its sources alone, as the manifest names it."""
    with Digests(os.path.dirname(os.path.realpath(__file__))) as digests:  # noqa: PTH120 - a text
        entries = trees.entries_on_disk(digests, "", Check(name="", title=""), {})
    sources = [entry for entry in entries if entry.kind == "f" and entry.path.endswith(b".py")]
    return trees.tree_digest(sources)
