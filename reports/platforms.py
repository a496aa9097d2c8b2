"""On which platforms a campaign's completed attempts ran, and what it means where that is more than one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.numbers import count, plural, size
from reports.view import Table, code, columns, number, text


def sentence(provenance: Mapping[str, Any]) -> str:
    """Return what a page says before everything else of a mix of platforms; empty where there is none."""
    found: Sequence[Mapping[str, Any]] = provenance.get("platforms") or ()
    if len(found) <= 1:
        return ""
    undeclared = [one for one in found if not one["is_declared"]]
    begin = f"The completed attempts of this campaign ran on {count(len(found))} platforms"
    if not undeclared:
        return f"{begin}, as amendments had declared before each was used: their results are of different strata."
    attempts = plural(sum(one["attempts"] for one in undeclared), "attempt")
    return (
        f"{begin}, and no amendment had declared {count(len(undeclared))} of them before it was used ({attempts}, the "
        f"first of them {undeclared[0]['first']}): the campaign cannot be closed like that, and verification finds "
        "fault with it."
    )


def platform_table(provenance: Mapping[str, Any]) -> Table | None:
    """Return the platforms; None for provenance that was written before it told them."""
    found = provenance.get("platforms")
    if found is None:
        return None
    return Table(
        name="platforms",
        caption="Platforms of the completed attempts, all sides",
        columns=columns(
            "Processor", "Architecture", "Kernel", "Memory", "Processors", "Threads", "Devices and drivers",
            "Attempts", "First", "Declared", numeric=("Memory", "Processors", "Threads", "Attempts"),
        ),
        rows=tuple(
            (
                text(one["cpu"]),
                text(one["machine"]),
                code(one["kernel"]),
                number(size(one["memory_bytes"]), one["memory_bytes"]),
                number(count(one["processors"]), one["processors"]),
                number(count(one["threads"]), one["threads"]),
                text(_devices(one["devices"])),
                number(count(one["attempts"]), one["attempts"]),
                code(one["first"]),
                text(_declared(index, is_declared=one["is_declared"])),
            )
            for index, one in enumerate(found)
        ),
        empty="No attempt was completed.",
    )  # fmt: skip


def _declared(index: int, *, is_declared: bool) -> str:
    if not index:
        return "the first needs none"
    return "yes" if is_declared else "no"


def _devices(devices: Sequence[Mapping[str, Any]]) -> str:
    each = [f"{one['name']}, driver {one['driver'] or 'none'}" for one in devices]
    kinds = [(each.count(one), one) for one in dict.fromkeys(each)]
    return "; ".join(f"{number} x {one}" if number > 1 else one for number, one in kinds)
