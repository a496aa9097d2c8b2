"""Which extensions a verdict makes due, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from campaign.errors import EvidenceError
from campaign.files import sha256_bytes
from campaign.paths import HomePaths
from campaign.watching.extension import Extension, parse_extension, read_extension
from tests.support import training
from tests.support.home import CANDIDATE, SMALL, make_protocol
from tests.support.runs import EXTENSION, WIDE, make_runs, paired

RULES = training.make_rules("sync", "packed", extension=EXTENSION)
PROTOCOL = make_protocol(SMALL[:1], convergence=RULES)


def verdict(**states: str) -> dict[str, Any]:
    recipes = [{"recipe": name, "extension": state} for name, state in states.items()]
    return {"observations": {"convergence": {"recipes": recipes}}}


def test_due_is_what_the_verdict_says_is_due_and_nothing_else() -> None:
    found = parse_extension(verdict(a="due", b="not_due", c="unknown", d="undeclared"))
    assert found == Extension(due=frozenset({"a"}), judged=frozenset({"a", "b"}))


def test_the_verdict_of_acceptance_is_understood(tmp_path: Path) -> None:
    wide = [*paired("3.5", WIDE)]
    written = make_runs(tmp_path, {"sync": wide, "other": paired("3.5", ["0", "0.001", "0.0005"])}, extension=EXTENSION)
    found = parse_extension(written.verdict())
    assert found == Extension(due=frozenset({"sync"}), judged=frozenset({"sync", "other"}))


@pytest.mark.parametrize("value", [{"observations": {"error": "of a bug"}}, {"observations": {"convergence": None}}])
def test_a_verdict_without_observations_of_trainings_makes_nothing_due(value: Any) -> None:
    assert parse_extension(value) == Extension()


@pytest.mark.parametrize(
    "value",
    [None, [], {}, {"observations": []}, {"observations": {"convergence": {}}},
     {"observations": {"convergence": {"recipes": [{"recipe": "a"}]}}},
     {"observations": {"convergence": {"recipes": 1}}}],
)  # fmt: skip
def test_what_is_no_verdict_is_refused(value: Any) -> None:
    with pytest.raises(EvidenceError):
        parse_extension(value)


@pytest.mark.parametrize("data", [b"{", b"{}", b"[1]", b'{"observations": NaN}'])
def test_a_verdict_that_cannot_be_read_makes_nothing_due_and_says_so(tmp_path: Path, data: bytes) -> None:
    paths = HomePaths(tmp_path)
    path = paths.evaluation(CANDIDATE).verdict
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    found = read_extension(paths, PROTOCOL, CANDIDATE, {CANDIDATE: sha256_bytes(data)})
    assert found.due == frozenset()
    assert str(path) in found.trouble
    assert "campaign report" in found.trouble


def test_a_linked_verdict_makes_nothing_due(tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    path = paths.evaluation(CANDIDATE).verdict
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere")
    assert "not a regular file" in read_extension(paths, PROTOCOL, CANDIDATE, {CANDIDATE: "0" * 64}).trouble


def test_before_a_report_and_without_an_extension_there_is_nothing_to_tell(tmp_path: Path) -> None:
    paths = HomePaths(tmp_path)
    plain = make_protocol(SMALL[:1], convergence=training.make_rules("sync"))
    assert read_extension(paths, PROTOCOL, CANDIDATE, {}) == Extension()
    assert read_extension(paths, PROTOCOL, "", {CANDIDATE: "0" * 64}) == Extension()
    assert read_extension(paths, plain, CANDIDATE, {CANDIDATE: "0" * 64}) == Extension()
