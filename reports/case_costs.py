"""What the cases cost after start-up and warm-up: loading, updates and comparison, and the bytes compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.numbers import count, plural, significant, size
from reports.view import Cell, Table, code, columns, number, text

_DIGITS = 12
"""Of the inputs' digest; the whole one is in provenance.json."""
_MOST_TIED = 6
_NUMBERS = ("Load", "Updates", "Comparison", "Compared", "Per second")


def _seconds(value: Any) -> str:
    return f"{significant(value)} s"


def _total(costs: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(float(case[name]) for case in costs)


def sentence(costs: Sequence[Mapping[str, Any]]) -> str:
    """Return where the time of all cases went."""
    if not costs:
        return "Provenance does not say how long the cases took."
    train, compare, load = (_total(costs, name) for name in ("train_s", "compare_s", "load_s"))
    spent = train + compare + load
    share = f"{100 * compare / spent:.0f}%" if spent > 0 else "none"
    return (
        f"After start-up and warm-up, {plural(len(costs), 'case')} took {_seconds(spent)} for three things: "
        f"{_seconds(load)} loading states, {_seconds(train)} in the updates of both sides with the copies of the "
        f"parameters that they are measured against, and {_seconds(compare)} comparing "
        f"{size(_total(costs, 'compared_bytes'))} ({share} of the three). Start-up, warm-up and the isolated checks "
        f"come on top and are not in these numbers. {_tied(costs)}"
    )


def _tied(costs: Sequence[Mapping[str, Any]]) -> str:
    names = sorted({name for case in costs for name in case["tied"]})
    more = len(names) - _MOST_TIED
    rest = f" and {count(more)} more" if more > 0 else ""
    if not names:
        return "No tensors are tied."
    told = [_compared_as(name) for name in names[:_MOST_TIED]]
    return f"Tied tensors are compared once: {', '.join(told)}{rest}."


def _compared_as(tied: str) -> str:
    alias, is_pair, name = tied.partition(" = ")
    return f"{alias} is compared as {name}" if is_pair else tied


def table(costs: Sequence[Mapping[str, Any]]) -> Table:
    """Return time and bytes of each case."""
    ordered = sorted(costs, key=lambda case: (case["comparison"], case["workload"], case["attempt"]))
    return Table(
        name="numerical-costs",
        caption="Time of each case, without start-up, warm-up and isolated checks",
        columns=columns(
            "Workload",
            "Comparison",
            *_NUMBERS,
            "Transport",
            "Tied tensors",
            "Inputs",
            numeric=(*_NUMBERS, "Tied tensors"),
        ),
        rows=tuple(map(_row, ordered)),
        empty="Provenance names no case.",
        long=True,
        file="provenance.json",
    )


def _row(case: Mapping[str, Any]) -> tuple[Cell, ...]:
    seconds = (number(_seconds(case[name]), case[name]) for name in ("load_s", "train_s", "compare_s"))
    return (
        code(case["workload"]),
        text(case["comparison"]),
        *seconds,
        number(size(case["compared_bytes"]), case["compared_bytes"]),
        _rate(case),
        Cell(text=str(case["transport"]).replace("_", " "), note=str(case["transport_reason"])),
        number(count(len(case["tied"])), len(case["tied"])),
        code(case["inputs_sha256"][:_DIGITS]),
    )


def _rate(case: Mapping[str, Any]) -> Cell:
    if not float(case["compare_s"]) > 0:
        return text(None)
    rate = float(case["compared_bytes"]) / float(case["compare_s"])
    return number(size(rate), rate)
