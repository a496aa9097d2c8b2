"""What the harness on a further node tells the parent of its ranks, as JSON, and how the parent reads it."""

from __future__ import annotations

from typing import Any

from ..common.strict import Fields
from ..measurement.blocks import Block
from ..measurement.crew import RankRecord
from ..measurement.session import Result, SideRecord, read_engaged
from ..processes.keeper import parse_exit

_LISTS = ("offers", "missing", "foreign", "undeclared")
_TEXTS = ("bytecode", "environment_sha256", "container_sha256")


def tell_block(block: Block) -> dict[str, Any]:
    """Return the updates of one rank."""
    return {name: getattr(block, name) for name in Block.__slots__}


def read_block(value: Any) -> Block:
    """Read them.

    Raises:
        ValueError: They are not such.
    """
    fields = Fields(value, "block")
    counts = {name: fields.count(name) for name in ("updates", "microbatches", "skipped", "tokens")}
    block = Block(**counts, seconds=fields.number("seconds"), claimed_s=fields.number("claimed_s"))
    fields.done()
    return block


def tell_result(result: Result) -> dict[str, Any]:
    """Return the result of one rank."""
    return {"peaks": list(result.peaks), "loss": result.loss}


def read_result(value: Any) -> Result:
    """Read it.

    Raises:
        ValueError: It is not such.
    """
    fields = Fields(value, "result")
    loss, peaks = fields.optional("loss", str), fields.items("peaks")
    fields.done()
    return Result(peaks=_pair(peaks), loss=loss, answered_s=0.0)


def _pair(value: Any) -> tuple[int, int]:
    if type(value) is not list or len(value) != 2 or not all(type(one) is int and one >= 0 for one in value):
        raise ValueError(f"not two counts: {value!r:.100}")
    return value[0], value[1]


def tell_rank(told: RankRecord) -> dict[str, Any]:
    """Return what is known of one rank at its end."""
    record = told.record
    return {
        "rank": told.rank.rank,
        "node": told.node,
        "device": told.device,
        "pid": told.pid,
        "affinity": told.affinity,
        "affinity_after": told.affinity_after,
        "peaks": None if told.peaks is None else list(told.peaks),
        "exit": None if record.exit is None else record.exit.as_json(),
        "wall_s": record.wall_s,
        "peak_rss_bytes": record.peak_rss_bytes,
        "engaged": record.engaged,
        "versions": record.versions,
        "interpreter": record.interpreter,
        "has_other_user": record.has_other_user,
        **{name: list(getattr(record, name)) for name in _LISTS},
        **{name: getattr(record, name) for name in _TEXTS},
    }


def take_rank(told: RankRecord, value: Any) -> None:
    """Fill the record of a rank with what its own node knows.

    Raises:
        ValueError: It is not of this rank, or not such.
    """
    fields = Fields(value, f"rank {told.rank.rank}")
    if fields.count("rank") != told.rank.rank:
        raise ValueError(f"not of rank {told.rank.rank}")
    told.node, told.device = fields.text("node"), fields.text("device")
    told.pid, told.affinity = fields.count("pid"), fields.text("affinity")
    told.affinity_after = fields.text("affinity_after")
    peaks = fields.optional("peaks", list)
    told.peaks = None if peaks is None else _pair(peaks)
    _take_record(told.record, fields)
    fields.done()


def _take_record(record: SideRecord, fields: Fields) -> None:
    found, interpreter = fields.optional("exit", dict), fields.optional("interpreter", dict)
    record.exit = None if found is None else parse_exit(found)
    record.wall_s, record.peak_rss_bytes = fields.number("wall_s"), fields.count("peak_rss_bytes")
    record.engaged = read_engaged(fields)
    record.versions = fields.text_table("versions")
    record.interpreter = None if interpreter is None else {name: str(text) for name, text in interpreter.items()}
    record.has_other_user = fields.flag("has_other_user")
    record.offers, record.missing, record.foreign, record.undeclared = (fields.texts(name) for name in _LISTS)
    record.bytecode, record.environment_sha256, record.container_sha256 = (fields.text(name) for name in _TEXTS)
