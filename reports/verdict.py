"""The verdict as typed values, and what it means in one sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from reports.numbers import against, listed, near, plural, signed, significant
from reports.status import Mark, mark_of_gate, mark_of_outcome, severity

Number: TypeAlias = Decimal | int | None

FAMILIES = ("throughput", "numerical", "convergence", "device")
_REPEAT = re.compile(r"/repeat-([1-9][0-9]*)$")
_MOST_NAMED = 3
_SIGNS = {">=": "\u2265", "<=": "\u2264"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate of the verdict."""

    id: str
    family: str
    subject: str
    statistic: str
    value: Number
    threshold: Number
    comparison: str
    margin: Number
    lower: Number
    upper: Number
    n: int
    outcome: str
    finding: str
    reason: str

    @property
    def mark(self) -> Mark:
        """Return how it stands."""
        return mark_of_gate(self.outcome, self.finding)

    @property
    def counts(self) -> bool:
        """Return whether it enters the outcome."""
        return self.mark is not Mark.NOT_EVALUATED

    @property
    def repeat(self) -> int:
        """Return the repeat it is about; 0 if none."""
        found = _REPEAT.search(self.id)
        return int(found[1]) if found else 0

    @property
    def digits(self) -> int:
        """Return how many decimals suit its threshold."""
        if isinstance(self.threshold, int):
            return 0
        if self.family == "convergence":  # losses in nats, as they are published
            return 6
        exponent = self.threshold.as_tuple().exponent if self.threshold is not None else None
        return max(3, 1 - exponent) if isinstance(exponent, int) else 3

    def shown(self, value: Number) -> str:
        """Return one of its numbers as text that stands on the number's own side of the threshold."""
        if self.family == "numerical" and not isinstance(value, int):
            return near(value, self.threshold)
        return against(value, self.threshold, digits=self.digits)

    @property
    def shown_margin(self) -> str:
        """Return its margin with a sign; that of a count is a count."""
        return signed(self.margin, digits=0 if isinstance(self.margin, int) else 6)

    @property
    def rule(self) -> str:
        """Return comparison and threshold as text; empty if it has none."""
        return "" if self.threshold is None else f"{_SIGNS.get(self.comparison, self.comparison)} {self.threshold}"


def parse_gates(verdict: Mapping[str, Any]) -> tuple[Gate, ...]:
    """Return the gates in the verdict's order."""
    names = Gate.__dataclass_fields__
    return tuple(Gate(**{name: gate[name] for name in names}) for gate in verdict["gates"])


def failed_first(gates: Sequence[Gate]) -> list[Gate]:
    """Return the gates with what blocks in front; otherwise the verdict's order."""
    return sorted(gates, key=lambda gate: severity(gate.mark))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The verdict in words."""

    mark: Mark
    word: str
    sentence: str
    consequence: str


def _undeclared(protocol: Mapping[str, Any]) -> str:
    names = [family for family in FAMILIES if family not in protocol["families"]]
    if not names:
        return "all four families were declared"
    were = "was" if len(names) == 1 else "were"
    them = "it" if len(names) == 1 else "them"
    return f"{listed(names)} {were} not declared, so nothing is known of {them}"


def summarise(verdict: Mapping[str, Any], gates: Sequence[Gate], protocol: Mapping[str, Any]) -> Summary:
    """Return the verdict in words; the sentence names the families that were not declared.

    Args:
        verdict: The verdict document.
        gates: Its gates.
        protocol: The frozen rules.
    """
    counted = [gate for gate in gates if gate.counts]
    mark = mark_of_outcome(verdict["outcome"])
    if mark is Mark.PASS:
        word = "Qualified"
        body = f"The baseline may be retired, because {_all_pass(len(counted))}{_uncounted(gates)}"
    else:
        word = "Not qualified"
        body = f"Retiring the baseline is blocked, because {_blocked(counted)}{_uncounted(gates)}"
    return Summary(
        mark=mark,
        word=word,
        sentence=f"{body}; {_undeclared(protocol)}.",
        consequence=(
            "The verdict permits or blocks one act, retiring the baseline. "
            "Which side runs when none is named is a person's decision, recorded apart from it."
        ),
    )


def _all_pass(number: int) -> str:
    return "the one gate passes" if number == 1 else f"all {number} gates pass"


def _uncounted(gates: Sequence[Gate]) -> str:
    number = sum(not gate.counts for gate in gates)
    if not number:
        return ""
    return f" ({number} more {'was' if number == 1 else 'were'} not evaluated, which is no pass)"


def _blocked(counted: Sequence[Gate]) -> str:
    failed = [gate for gate in failed_first(counted) if gate.mark is not Mark.PASS]
    if not failed:
        return "a declared family has no gate that could be evaluated"
    kinds = Counter(gate.mark for gate in failed)
    parts = listed(
        [f"{number} {mark.word}" for mark, number in sorted(kinds.items(), key=lambda item: severity(item[0]))]
    )
    named = listed([gate.id for gate in failed[:_MOST_NAMED]])
    more = len(failed) - _MOST_NAMED
    rest = f" and {more} more" if more > 0 else ""
    named = ", ".join(gate.id for gate in failed[:_MOST_NAMED]) if more > 0 else named
    verb = "does" if len(failed) == 1 else "do"
    return f"{len(failed)} of {plural(len(counted), 'gate')} {verb} not pass ({parts}): {named}{rest}"


# --- what the verdict observes beside its gates -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """One repeat of one subject."""

    repeat: int
    ratio: Number
    lower: Number
    upper: Number
    workloads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was seen of a category, of a production case or of the controls; it decides nothing."""

    kind: str
    subject: str
    pairs: int
    median_ratio: Number
    minimum_ratio: Number
    maximum_ratio: Number
    below_one: int
    sd_log_ratio_ddof1: Number
    order_effect: Number
    order_effect_lower: Number
    order_effect_upper: Number
    mean_ratio: Number
    mean_ratio_lower: Number
    mean_ratio_upper: Number
    repeats: tuple[Repeat, ...]

    @property
    def spread(self) -> str:
        """Return the standard deviation of the log ratios as text, in percent."""
        if self.sd_log_ratio_ddof1 is None:
            return significant(None)
        return f"{significant(self.sd_log_ratio_ddof1 * 100)}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A workload's ratio in one repeat, from the attempts that count."""

    comparison: str
    workload: str
    repeat: int
    pair: int
    ratio: Decimal | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """All that the verdict observes."""

    throughput: tuple[Observation, ...] = ()
    ratios: tuple[Ratio, ...] = ()

    def of(self, kind: str) -> list[Observation]:
        """Return the observations of a kind."""
        return [observation for observation in self.throughput if observation.kind == kind]


def _observation(value: Mapping[str, Any]) -> Observation:
    names = set(Observation.__dataclass_fields__) - {"repeats"}
    fields = set(Repeat.__dataclass_fields__)
    repeats = tuple(Repeat(**{name: repeat[name] for name in fields}) for repeat in value["repeats"])
    return Observation(**{name: value[name] for name in names}, repeats=repeats)


def parse_observations(verdict: Mapping[str, Any]) -> Observations:
    """Return the verdict's observations; none where a verdict carries none."""
    found = verdict.get("observations", {})
    ratios = [entry for entry in found.get("ratios", ()) if entry["ratio"] is not None]
    names = Ratio.__dataclass_fields__
    return Observations(
        throughput=tuple(_observation(value) for value in found.get("throughput", ())),
        ratios=tuple(Ratio(**{name: entry[name] for name in names}) for entry in ratios),
    )
