"""The numerical family: its sentences, the plots over the matched updates, and what says less than it seems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reports import case_costs, case_tables, vacuity
from reports.curves import MOST_LINES, Curve, CurvePlot, draw_curves
from reports.matched import GATED, MOMENTS, PLOTTED, Case, Family, Quantity, Worst, passes
from reports.numbers import count, listed, near, plural
from reports.status import Mark, mark_of_outcome, severity
from reports.verdict import Gate
from reports.view import Numerical, Panel

TIMES = "\u00d7"
_MOST_NAMED = 6

_UNITS = {
    "loss": "|difference| / what is allowed",
    "gradients": "relative L2 of the gradients",
    "parameters": "relative L2 of the parameters",
    "updates": "relative L2 of the updates",
}

HOW_TO_READ = (
    "How far a side is from the baseline after each matched update, the worst of its workers, on a scale of powers of "
    "ten; zero, if there is any, has the lowest line. Solid with filled circles is the candidate, dashed with open "
    "squares the control, the baseline against itself: what differs less than the control is noise. Up to "
    f"{MOST_LINES} workloads have a line each; of more, the shaded band holds all, its bold upper edge is the worst "
    "workload and the thin line the median one. What stands above the gate line misses the gate, and so does what "
    "stands on it, but for the loss. Nothing is realigned between updates, so that differences may add up."
)


def section(family: Family, verdict: Mapping[str, Any]) -> Numerical:
    """Return the family's part of the page.

    Args:
        family: What it is derived from.
        verdict: The verdict document.
    """
    rolled_up = verdict["families"].get("numerical")
    return Numerical(
        mark=mark_of_outcome(rolled_up["outcome"]) if rolled_up else Mark.MISSING,
        sentence=sentence(family),
        basis=basis(family.rules),
        worst=case_tables.worst_table(family),
        worst_sentence=flag_sentence(family),
        places=case_tables.place_table(family),
        panels=tuple(_panel(family, quantity) for quantity in PLOTTED),
        how_to_read=HOW_TO_READ,
        failed_cases=case_tables.failed_table(family),
        cases=case_tables.case_table(family),
        controls=case_tables.control_table(family),
        weaker=weaker_sentences(family),
        factors=case_tables.factor_table(family),
        tensor_sentence=case_tables.tensor_sentence(family),
        tensors=case_tables.tensor_table(family),
        isolated_sentence=isolated_sentence(family),
        isolated=case_tables.isolated_table(family),
        vacuity_sentence=vacuity.sentence(family),
        vacuity=vacuity.summary_table(family),
        blind=vacuity.blind_table(family),
        partly_blind=vacuity.partly_blind_table(family),
        cost_sentence=case_costs.sentence(family.costs),
        costs=case_costs.table(family.costs),
    )


# --- sentences --------------------------------------------------------------------------------------------------------


def counted_by_mark(gates: Iterable[Gate]) -> str:
    """Return how many gates stand how: ``2 missed and 1 invalid``."""
    kinds = Counter(gate.mark for gate in gates)
    return listed([f"{count(kinds[mark])} {mark.word}" for mark in sorted(kinds, key=severity)])


def sentence(family: Family) -> str:
    """Return one of a closed set of sentences on the workloads."""
    passing = [name for name in family.workloads if passes(family.gates_about(name))]
    workloads = plural(len(family.workloads), "workload")
    over = f"over {plural(int(family.rules['updates']), 'matched local update')} per worker"
    partly = [name for name in passing if any(not gate.counts for gate in family.gates_about(name))]
    every = "every numerical gate that was evaluated" if partly else "every numerical gate"
    said = f"{len(passing)} of {workloads} {'passes' if len(passing) == 1 else 'pass'} {every} {over}"
    failed = [gate for gate in family.by_place.values() if gate.counts and gate.mark is not Mark.PASS]
    if failed:
        said += (
            f"; {plural(len(failed), 'gate')} {'does' if len(failed) == 1 else 'do'} not ({counted_by_mark(failed)})"
        )
    elif len(passing) < len(family.workloads):
        said += "; the others have no gate that could be evaluated"
    workers = _workers_text(list(family.workers.values()))
    return f"{said}.{_not_evaluated(family, len(partly))}{workers}{left_out(family.left_out)}"


def left_out(names: Sequence[str]) -> str:
    """Say which workloads the protocol leaves out of the family."""
    if not names:
        return ""
    one = len(names) == 1
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    shown = listed([*names[:_MOST_NAMED], *more])
    several = f"{plural(len(names), 'workload')} of several processes {'is' if one else 'are'}"
    return f" By the protocol {several} left out of this family, which compares single ones: {shown}."


def _workers_text(numbers: Sequence[int]) -> str:
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    return f" Their cases have {plural(high, 'worker') if low == high else f'{low} to {high} workers'} each."


def _not_evaluated(family: Family, num_passing: int) -> str:
    numbers = {quantity: sum(not gate.counts for gate in family.gates_of(quantity)) for quantity in GATED}
    parts = [f"{quantity} of {plural(number, 'workload')}" for quantity, number in numbers.items() if number]
    among = f"; {count(num_passing)} of the workloads counted as passing lack one" if num_passing else ""
    return f" Not evaluated, which is no pass: {listed(parts)}{among}." if parts else ""


def basis(rules: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the comparison rests on."""
    moments = {
        "fresh": (
            "Adam's moments start fresh, at zero. The first updates are then nearly the signs of the gradients: a "
            "relative error of 5% in the gradients alone would read as one of about 25% in the updates, so that the "
            "gate of the updates is the sharper one."
        ),
        "warm": (
            "Adam's moments start warm, as the baseline's warm-up left them. Errors of the gradients then enter the "
            "updates damped, so that the gate of the updates is less sharp than with moments that start at zero."
        ),
    }
    how = (
        "Both sides warm up as in the pairs, load one canonical state in place and make the same local updates on the "
        "same batches in lock-step, consensus off. Trajectories are never realigned. "
    )
    how += (
        "The control is the baseline against itself; it never loosens a gate, and a control that breaks one makes the "
        "case invalid."
        if rules["controls"]
        else "The protocol plans no controls: how far the baseline differs from itself is not known, and neither is "
        "what the gates could see."
    )
    return how, moments[rules["moments"]]


def flag_sentence(family: Family) -> str:
    """Return which quantities are flagged against their control."""
    factor = family.rules["control_factor"]
    compared = [seen for seen in family.observed.quantities if seen.candidate and seen.control]
    if not compared:
        return "There is no control that the candidate could be compared with."
    flagged = [seen for seen in compared if seen.flagged and not seen.is_exact]
    together = any(seen.quantity == "moments" for seen in flagged)  # the worse of both stands for them
    told = [_flagged_text(seen, factor) for seen in flagged if not (together and seen.quantity in MOMENTS)]
    exact = exact_sentence(family)
    if told:
        head = f"Flagged: {listed(told)} the control's worst, above {factor} times what the baseline differs from "
        head += "itself. A flag asks for a look and decides nothing."
    elif exact:
        head = f"Where a control differs from itself, no quantity is above {factor} times its worst."
        if all(seen.control is not None and seen.control.value == 0 for seen in compared):
            head = "No control differs from itself anywhere."
    else:
        head = f"No quantity is flagged: none of the candidate's is above {factor} times its control's worst."
    return f"{head} {exact}".rstrip()


def exact_sentence(family: Family) -> str:
    """Return how many controls are exact, and how far the candidate is from them; empty if none is flagged for it."""
    flags = [flag for flag in family.observed.flags if flag.is_exact]
    if not flags:
        return ""
    controls = {case.workload: case for case in family.cases("control")}
    pairs = [
        controls[case.workload].values(quantity)
        for case in family.cases("candidate")
        if case.workload in controls
        for quantity in case.curves
    ]
    exact = sum(bool(values) and not any(values) and None not in values for values in pairs)
    said = (
        f"The controls repeat exactly in {count(exact)} of {plural(len(pairs), 'pair')} of workload and quantity. "
        f"There any difference counts as a flag, and the candidate differs in {count(len(flags))}"
    )
    shares = [
        (float(flag.value) / float(threshold), flag)
        for flag in flags
        if flag.value is not None and (threshold := family.threshold(flag.quantity)) is not None
    ]
    if not shares:
        return f"{said}."
    share, nearest = max(shares, key=lambda item: item[0])
    return f"{said}, by at most {near(share, 1, digits=2)} of a gate ({nearest.quantity} of {nearest.workload})."


def _flagged_text(seen: Quantity, factor: str) -> str:
    if seen.ratio is None:
        return f"{seen.quantity} beyond any multiple of"
    return f"{seen.quantity} at {near(seen.ratio, factor, digits=3)}{TIMES}"


def weaker_sentences(family: Family) -> tuple[str, ...]:
    """Return which cases say less of independence than the others, by name, and why."""
    serialized = _named(case for case in family.observed.cases if case.serialized)
    shared = _named(case for case in family.observed.cases if case.executor == "shared")
    found = []
    if serialized:
        found.append(
            f"Serialised: {serialized}. The sides took turns on the device, each parked on the host between updates; "
            "nothing ran beside the other, and parking goes through a copy of the state."
        )
    if shared:
        found.append(
            f"Shared executor: {shared}. Both trajectories ran in one process, each from a state of its own. This is "
            "the weaker independence: what is wrong in the executor is wrong on both sides alike and cannot be seen."
        )
    found = found or ["Every case ran both sides at once, each in a process with an executor of its own."]
    return (*found, *filter(None, [single_worker_sentence(family)]))


def single_worker_sentence(family: Family) -> str:
    """Return where a single worker leaves nothing to mix, by category; empty if all workloads have several."""
    parts = []
    for category, workers in family.by_category.items():
        single = [name for name, number in workers.items() if number == 1]
        where = f"category {category}" if category else "no category"
        # Of a category that is not alike the names are of interest: were those meant to have several?
        names = listed(single[:_MOST_NAMED]) + (" and more" if len(single) > _MOST_NAMED else "")
        named = f" ({names})" if len(single) < len(workers) else ""
        if single:
            parts.append(f"{count(len(single))} of {plural(len(workers), 'workload')} of {where}{named}")
    if not parts:
        return ""
    return (
        f"A single worker: {listed(parts)}. Nothing is mixed there, and the consensus has no gate that could pass. "
        "Where several workers were meant, the adapter shows one of them alone, and nothing is known of the others."
    )


def _named(cases: Iterable[Case]) -> str:
    """Return cases by name with their comparisons."""
    comparisons: dict[str, list[str]] = {}
    for case in cases:
        comparisons.setdefault(case.workload, []).append(case.comparison)
    return listed([f"{name} ({' and '.join(sorted(sides))})" for name, sides in sorted(comparisons.items())])


def isolated_sentence(family: Family) -> str:
    """Return what the isolated checks are and assume."""
    rules = family.rules
    return (
        f"Supplied gradients go through each side's optimizer for {plural(int(rules['isolated_steps']), 'step')}, and "
        f"each side mixes supplied parameters alone, both drawn from N(0, {rules['isolated_sd']} squared). Every "
        f"element must satisfy |error| \u2264 {rules['isolated_atol']} + {rules['isolated_rtol']} \u00b7 |baseline|; "
        "shown is the largest error as a share of that. Both sides' optimizers are assumed to form their scalars "
        f"(1 - beta, bias corrections) in {rules['isolated_scalars']}: with another precision this check fails correct "
        "code. A check that the adapter does not offer is not evaluated, which is no pass."
    )


# --- plots ------------------------------------------------------------------------------------------------------------


def _where(worst: Worst) -> str:
    return f"{worst.workload}, update {worst.update}, worker {worst.worker}"


def _worst_text(side: str, worst: Worst | None, threshold: str | None) -> str:
    if worst is None:
        return ""
    shown = "not finite" if worst.value is None else near(worst.value, threshold)
    return f"The {side}'s worst is {shown} ({_where(worst)})."


def _panel_sentence(family: Family, quantity: str, gates: Sequence[Gate]) -> str:
    seen, threshold = family.quantity(quantity), family.threshold(quantity)
    failed = [gate for gate in gates if gate.counts and gate.mark is not Mark.PASS]
    if not gates:
        head = "There is no gate of it."
    elif failed:
        head = f"{len(failed)} of {plural(len(gates), 'gate')} {'does' if len(failed) == 1 else 'do'} not pass "
        head += f"({counted_by_mark(failed)})."
    else:
        head = f"{len(gates)} of {plural(len(gates), 'gate')} {'passes' if len(gates) == 1 else 'pass'}."
    parts = [head]
    if seen is not None:
        parts += [_worst_text("candidate", seen.candidate, threshold), _worst_text("control", seen.control, threshold)]
    return " ".join(filter(None, parts))


def _curves(family: Family, quantity: str) -> tuple[Curve, ...]:
    return tuple(
        Curve(
            comparison=comparison,
            values=tuple(None if value is None else float(value) for value in case.values(quantity)),
        )
        for comparison in ("candidate", "control")
        for case in family.cases(comparison)
    )


def _panel(family: Family, quantity: str) -> Panel:
    gates = family.gates_of(quantity)
    threshold = family.threshold(quantity) or "1"
    told = _panel_sentence(family, quantity, gates)
    rule = gates[0].rule if gates else threshold
    curves = _curves(family, quantity)
    numbers = Counter(curve.comparison for curve in curves if curve.values)
    plot = CurvePlot(
        name=f"matched-{quantity}",
        description=(
            f"{_UNITS[quantity]} over the matched updates of {plural(numbers['candidate'], 'candidate case')} and "
            f"{plural(numbers['control'], 'control case')}, against the gate {rule}. {told}"
        ),
        unit=_UNITS[quantity],
        threshold=float(threshold),
        rule=rule,
        curves=curves,
    )
    return Panel(
        name=f"matched-{quantity}",
        title=quantity.capitalize(),
        mark=min((gate.mark for gate in gates), key=severity, default=Mark.MISSING),
        sentence=told,
        figure=draw_curves(plot),
    )
