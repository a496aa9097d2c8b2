"""A reported synthetic home, and what the checks before the last ones know of it, without their having been made."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import TABLES
from campaign import files
from campaign.cli.main import main
from campaign.verifier.facts import Facts, Sealed
from campaign.verifier.findings import Check, Checks, State
from campaign.verifier.history import history_of
from tests.support.home import Home
from tests.support.verifying import facts_of


def quick_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
    """Write a page without plots, which take seconds, that carries the digests of the real one."""
    del protocol_path
    printed, provenance = ((evaluation / name).read_bytes() for name in ("verdict.json", "provenance.json"))
    stamps = {name: value for name, value in json.loads(printed).items() if name.endswith("_sha256")}
    stamps |= {"verdict_sha256": files.sha256_bytes(printed), "provenance_sha256": files.sha256_bytes(provenance)}
    tags = "".join(f'<meta name="campaign:{html.escape(name)}" content="{value}">' for name, value in stamps.items())
    out.mkdir()
    (out / "report.html").write_text(f"<!doctype html><html><head>{tags}</head><body>{out.parent.name}</body></html>")
    (out / "gates.csv").write_text("gates\n")
    (out / "verdict.json").write_bytes(printed)
    (out / "provenance.json").write_bytes(provenance)


def report(home: Home, *arguments: str) -> int:
    """Report with the quick page; return the exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reports.render.write_report", quick_report)
        return main(["report", *arguments, "--home", str(home.paths.root)])


@contextmanager
def knowing(root: Path, **options: Any) -> Iterator[Facts]:
    """Open a home and fill in what the earlier checks would have found whole, as far as files parse."""
    facts = facts_of(root, **options)
    with facts.digests:
        facts.planned.update(history_of(facts).planned)
        _seal(facts)
        yield facts


def _document(facts: Facts, path: str) -> tuple[str, dict[str, Any]]:
    data = facts.digests.read(path)
    return files.sha256_bytes(data), json.loads(data)


def _seal(facts: Facts) -> None:
    for name, planned in facts.planned.items():
        folder = f"attempts/{planned.slot}/{planned.attempt}"
        folder += f"/segments/{planned.segment}" if planned.segment else ""
        if not facts.digests.is_file(f"{folder}/receipt.json"):
            continue
        sha256, receipt = _document(facts, f"{folder}/receipt.json")
        sealed = [one["name"] for one in receipt["files"] if one["name"] in TABLES]
        if any(not facts.digests.is_file(f"{folder}/{file}") for file in sealed):
            continue
        facts.sealed[name] = Sealed(
            planned=planned,
            folder=folder,
            start=_document(facts, f"{folder}/start.json")[1],
            receipt=receipt,
            receipt_sha256=sha256,
            tables={file: facts.digests.read(f"{folder}/{file}") for file in sealed},
        )


def findings(root: Path, *functions: Callable[[Facts, Check], None], **options: Any) -> list[tuple[State, str, str]]:
    """Make some checks of a home and return state, place and reason of every finding."""
    checks = Checks()
    with knowing(root, **options) as facts:
        for function in functions:
            with checks.begin("check", "a check") as check:
                function(facts, check)
    return [(one.state, one.where, one.what) for one in checks.findings]
