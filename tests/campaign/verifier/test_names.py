"""The verifier spells the names of a home's files itself; here they are held to those of the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign import paths
from campaign.paths import HomePaths
from campaign.verifier import names

HOME = HomePaths(Path())
CHECKPOINT = HOME.attempt("baseline/run/r/s1", 2, 3).checkpoint(40)
CANDIDATE = HOME.candidate("c1")
EVALUATION = HOME.evaluation("c1")
ATTEMPT = HOME.attempt("c1/pair/w/r1", 2)
SAME = [
    (names.MANIFEST, HOME.manifest),
    (names.PROTOCOL, HOME.protocol),
    (names.LEDGER, HOME.ledger),
    (names.LOCK, HOME.lock),
    (names.DATABASE, HOME.database),
    (names.REBUILT_DATABASE, HOME.rebuilt_database),
    (names.STAGING, HOME.staging),
    (names.TRANSPORT, HOME.transport),
    (names.FROZEN, HOME.frozen),
    (names.CONFIG, HOME.config),
    (names.ACCEPTANCE, HOME.acceptance),
    (names.HARNESS, HOME.harness),
    (names.VERIFIER, HOME.verifier),
    (names.BASELINE, HOME.baseline.root),
    (names.CANDIDATES, HOME.candidates),
    (names.ATTEMPTS, HOME.attempts),
    (names.ALLOCATIONS, HOME.allocations),
    (names.INPUTS, HOME.inputs),
    (names.EVALUATIONS, HOME.evaluations),
    (names.candidate("c1"), CANDIDATE.root),
    (names.candidate_manifest("c1"), CANDIDATE.manifest),
    (names.tree(names.candidate("c1")), CANDIDATE.tree),
    (names.listing(names.candidate("c1")), CANDIDATE.listing),
    (names.patch(names.BASELINE), HOME.baseline.patch),
    (names.attempt("c1/pair/w/r1", 2), ATTEMPT.root),
    (names.start(names.attempt("c1/pair/w/r1", 2)), ATTEMPT.start),
    (names.receipt(names.attempt("c1/pair/w/r1", 2)), ATTEMPT.receipt),
    (f"{names.attempt('c1/pair/w/r1', 2)}/{names.INPUTS_COPY}", ATTEMPT.inputs),
    (f"{names.attempt('c1/pair/w/r1', 2)}/{names.TENSORS}", ATTEMPT.tensors),
    (names.checkpoint(names.attempt("baseline/run/r/s1", 2, 3), 40), CHECKPOINT.root),
    (names.checkpoint_document(str(CHECKPOINT.root)), CHECKPOINT.document),
    (names.checkpoint_files(str(CHECKPOINT.root)), CHECKPOINT.files),
    (names.inputs_listing("ab"), HOME.inputs_listing("ab")),
    (names.input_tensors("ab"), HOME.input_tensors("ab")),
    (names.allocation("a1"), HOME.allocation("a1").root),
    (names.plan("a1"), HOME.allocation("a1").plan),
    (names.started("a1"), HOME.allocation("a1").started),
    (names.ended("a1"), HOME.allocation("a1").ended),
    (names.harness_log("a1"), HOME.allocation("a1").log),
    (names.calls("a1"), HOME.allocation("a1").calls),
    (names.call("a1", 3), HOME.allocation("a1").call(3)),
    (names.call_ended("a1", 3), HOME.allocation("a1").call_ended(3)),
    (names.evaluation("c1"), EVALUATION.root),
    (names.evidence("c1"), EVALUATION.evidence),
    (names.identity("c1"), EVALUATION.identity),
    (names.verdict("c1"), EVALUATION.verdict),
    (names.provenance("c1"), EVALUATION.provenance),
    (names.report("c1"), EVALUATION.report),
    (names.page("c1"), EVALUATION.page),
]


@pytest.mark.parametrize(("name", "path"), SAME, ids=[name for name, _ in SAME])
def test_a_name_is_the_drivers(name: str, path: Path) -> None:
    assert name == str(path)


def test_a_torn_line_is_known_by_its_name() -> None:
    assert names.is_torn(HOME.torn(12).name)
    assert not names.is_torn("ledger.torn.0")
    assert not names.is_torn("ledger.torn.1x")


@pytest.mark.parametrize("name", ["1", "40", "0", "040", "4x", "-1", ""])
def test_a_checkpoint_is_known_as_the_driver_knows_it(name: str) -> None:
    assert names.is_checkpoint(name) == paths.is_checkpoint(name)
