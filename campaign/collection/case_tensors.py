"""A case's table of tensors, which stays with its attempt: is it whole, and does it add up to the case's rows?"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from acceptance import formats
from acceptance.formats import GLOBAL_QUANTITIES, Row
from campaign.collection.sealed import Finding

MOST_TENSOR_BYTES = 1 << 30
"""Most bytes of a tensors.csv: far more than there are tensors in any model, and little enough to be read at once."""
_GZIP = 16 + zlib.MAX_WBITS
_RELATIVE = 1e-9
"""How far a norm may be from that of its parts: both are rounded to doubles a few times."""
_MOST_NORM, _LEAST_NORM = 1e150, 1e-150
"""Beyond these the squares behind a norm are not doubles of full precision."""


def unpack(data: bytes, most_bytes: int = MOST_TENSOR_BYTES) -> bytes:
    """Return what one gzip member holds.

    Raises:
        ValueError: The data is not one whole member, or holds more than the most.
    """
    unpacker = zlib.decompressobj(_GZIP)
    try:
        found = unpacker.decompress(data, most_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"not a gzip file: {error}") from error
    if len(found) > most_bytes:
        raise ValueError(f"holds more than {most_bytes} bytes")
    if not unpacker.eof:
        raise ValueError("the gzip file is cut off")
    if unpacker.unused_data:
        raise ValueError(f"{len(unpacker.unused_data)} bytes follow the gzip file")
    return found


def check_tensors(data: bytes, rows: Sequence[Row], *, workload: str, comparison: str, where: str) -> Iterator[Finding]:
    """Yield a finding where tensors.csv.gz is not a table of the case's tensors.

    Args:
        data: The packed table.
        rows: The case's rows of numerical.csv.
        workload: The workload that the case was planned for.
        comparison: What the case is called in the column ``comparison``.
        where: The packed table's place.
    """
    try:
        tensors, faults = formats.parse_table(formats.TENSORS, unpack(data), where)
    except ValueError as error:
        yield Finding(where=where, what=str(error))
        return
    if faults:
        yield from (Finding(where=f"{fault.file}:{fault.line}", what=fault.what) for fault in faults)
        return
    found = list(_check_keys(tensors, {"workload": workload, "comparison": comparison}, where))
    yield from found or _check_sums(tensors, rows, where)


def _check_keys(tensors: Sequence[Row], wanted: dict[str, str], where: str) -> Iterator[Finding]:
    for row in tensors:
        for name, value in wanted.items():
            if row.values[name] != value:
                yield Finding(where=f"{where}:{row.line}", what=f"{name} is {row.values[name]!r}, not {value!r}")
                return
    keys = Counter(tuple(row.values[name] for name in formats.TENSORS.key) for row in tensors)
    for key, number in keys.most_common(1):
        if number > 1:
            yield Finding(where=where, what=f"{number} rows stand for {', '.join(map(str, key))}")
    if not tensors:
        yield Finding(where=where, what="it has no rows")


# --- from tensors to the whole ----------------------------------------------------------------------------------------

_GROUP = ("update", "worker", "quantity")


def _group(row: Row) -> tuple[str, ...]:
    return tuple(str(row.values[name]) for name in _GROUP)


def _check_sums(tensors: Sequence[Row], rows: Sequence[Row], where: str) -> Iterator[Finding]:
    parts: dict[tuple[str, ...], list[Row]] = {}
    for row in tensors:
        parts.setdefault(_group(row), []).append(row)
    wholes = {_group(row): row for row in rows if row.values["quantity"] in GLOBAL_QUANTITIES}
    for missing, table in (
        (parts.keys() - wholes.keys(), "numerical.csv"),
        (wholes.keys() - parts.keys(), "this table"),
    ):
        if missing:
            more = f", and so have {len(missing) - 1} more" if len(missing) > 1 else ""
            yield Finding(where=where, what=f"{_named(min(missing))} has no row in {table}{more}")
    for key, whole in wholes.items():
        yield from (
            Finding(where=where, what=f"{_named(key)}: {what}") for what in _disagreements(whole, parts.get(key, []))
        )


def _named(key: tuple[str, ...]) -> str:
    update, worker, quantity = key
    return f"{quantity} of worker {worker} in update {update}"


def _number(row: Row, name: str) -> float | None:
    value = row.values[name]
    return float(value) if isinstance(value, int | float) else None


def _disagreements(whole: Row, parts: Sequence[Row]) -> Iterator[str]:
    """Yield what numerical.csv says of a quantity that its tensors do not."""
    if not parts:
        return
    for name in ("reference", "value"):
        said, norms = _number(whole, name), [_number(part, name) for part in parts]
        if not _is_norm(said, norms):
            yield f"{name} is {_shown(said)} in numerical.csv, the norm of its {len(parts)} tensors is {_norm(norms)}"
    errors = {str(part.values["tensor"]): _number(part, "rel_l2") for part in parts}
    known = [error for error in errors.values() if error is not None]
    worst = max(known) if len(known) == len(errors) else None
    said, name = _number(whole, "worst_rel_l2"), str(whole.values["worst_tensor"])
    if said != worst or errors.get(name, math.nan) != worst:
        here = f"it is {_shown(errors[name])}" if name in errors else "it has no row"
        told = f"worst_tensor is {name!r} with {_shown(said)} in numerical.csv"
        yield f"{told}; here {here}, the worst is {_shown(worst)}"


def _norm(norms: Sequence[float | None]) -> str:
    known = [norm for norm in norms if norm is not None]
    return _shown(math.hypot(*known) if len(known) == len(norms) else None)


def _is_norm(said: float | None, norms: Sequence[float | None]) -> bool:
    known = [norm for norm in norms if norm is not None]
    if len(known) != len(norms):
        return said is None
    norm = math.hypot(*known)
    if said is None:
        return norm > _MOST_NORM
    return abs(said - norm) <= max(_RELATIVE * norm, _LEAST_NORM)


def _shown(value: float | None) -> str:
    return "not finite" if value is None else repr(value)
