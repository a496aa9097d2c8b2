from __future__ import annotations

import hashlib
from itertools import product
from pathlib import Path

import pytest

import acceptance
from acceptance import digest
from acceptance.__main__ import own_sources
from acceptance.formats import TABLES
from tests.support.evidence import Campaign, make_campaign
from tests.support.runs import make_runs

FOLDER = Path(acceptance.__file__).parent


def test_every_source_file_of_the_program_enters_its_digest() -> None:
    found = sorted(path.name for path in FOLDER.iterdir() if path.name != "__pycache__")
    assert list(digest.SOURCES) == found
    assert own_sources() == {name: (FOLDER / name).read_bytes() for name in found}


def test_no_source_file_is_executable_or_a_link() -> None:
    for name in digest.SOURCES:
        assert not (FOLDER / name).is_symlink()
        assert not (FOLDER / name).stat().st_mode & 0o111


def test_the_tree_digest_is_as_documented() -> None:
    content = b"x\n"
    sha256 = hashlib.sha256(content).hexdigest().encode()
    expected = hashlib.sha256(b"campaign-tree/1\n1:f,3:644,4:b.py,1:2,64:" + sha256 + b",").hexdigest()
    assert digest.tree_sha256({"b.py": content}) == expected


def test_the_tree_digest_agrees_with_the_drivers() -> None:
    from campaign.snapshot.digest import read_entries, tree_digest  # noqa: PLC0415 - the driver's own computation

    entries = [entry for entry in read_entries(FOLDER) if not entry.path.startswith(b"__pycache__")]
    assert tree_digest(entries) == digest.tree_sha256(own_sources())


def evidence_digest(campaign: Campaign) -> str:
    return str(campaign.write().verdict()["evidence_sha256"])


def test_the_evidence_digest_is_as_documented(tmp_path: Path) -> None:
    families = ("throughput", "numerical")
    campaign = make_campaign(
        tmp_path, ratios={"a": ("1.2",) * 2}, production={}, repeats=2, workloads_per_category=1, families=families
    )
    keys = {
        "attempts.csv": ("slot", "attempt"),
        "baseline.csv": ("workload", "repeat", "attempt"),
        "convergence.csv": ("recipe", "seed", "side", "attempt"),
        "curves.csv": ("recipe", "seed", "side", "attempt", "update"),
        "numerical.csv": ("workload", "comparison", "attempt", "update", "worker", "quantity"),
        "pairs.csv": ("workload", "comparison", "repeat", "pair", "side", "attempt"),
        "vacuity.csv": ("workload", "attempt", "mutation", "update", "worker", "quantity"),
        "windows.csv": ("workload", "comparison", "repeat", "pair", "side", "attempt", "window"),
    }
    expected = hashlib.sha256(b"campaign-evidence/1\n")

    def feed(*parts: bytes) -> None:
        for part in parts:
            expected.update(str(len(part)).encode() + b":" + part + b",")

    for file in sorted([*keys, "identity.json"]):
        data = (campaign.evidence_path / file).read_bytes()
        if file == "identity.json":
            feed(file.encode(), b"1", data)
            continue
        rows = sorted(campaign.tables[file], key=lambda row: [row[name] for name in keys[file]])
        lines = [data.split(b"\n")[0], *(",".join(row.values()).encode() for row in rows)]
        feed(file.encode(), str(len(lines)).encode(), *lines)
    assert evidence_digest(campaign) == expected.hexdigest()


@pytest.mark.parametrize("file", TABLES)
def test_rows_are_sorted_by_the_texts_of_their_key_and_not_as_whole_lines(file: str) -> None:
    table = TABLES[file]
    places = [table.header.index(name) for name in table.key]
    lines = []
    # A space, a plus and an exclamation mark sort before the comma that ends a field.
    for words in product(("w", "w x", "w+", "w!", "w-"), ("1", "10"), ("a", "b")):
        fields = [words[2]] * len(table.header)
        fields[places[0]], fields[places[1]] = words[:2]
        lines.append(",".join(fields))
    by_key = sorted(lines, key=lambda line: ([line.split(",")[place] for place in places], line))
    assert digest._sorted(table, lines[::-1]) == by_key != sorted(lines)


def test_the_evidence_digest_covers_every_field_of_every_table_and_the_identity(tmp_path: Path) -> None:
    families = ("throughput", "numerical", "convergence")
    campaign = make_runs(tmp_path, families=families, throughput={"ratios": {"a": ("1.2",) * 3}})
    seen = {evidence_digest(campaign)}
    changes = 1
    free = {
        "peak_allocated_bytes": "7",
        "peak_reserved_bytes": "7",
        "microbatches": "7",
        "skipped_updates": "7",
        "node": "n",
        "worst_rel_l2": "7",
        "rel_l2": "7",
        "final_loss": "7",
        "validation_loss": "7",
        "checkpoint_sha256": "7",
    }
    for file, rows in campaign.tables.items():
        for column in rows[0]:
            if column in free:
                rows[0][column] = free[column]
                seen.add(evidence_digest(campaign))
                changes += 1
        assert file
    campaign.identity["manifest_sha256"] = "0" * 64
    seen.add(evidence_digest(campaign))
    assert len(seen) == changes + 1


def test_another_spelling_of_a_number_is_other_evidence(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, ratios={"a": ("1.2",) * 3})
    before = campaign.verdict()
    campaign.tables["pairs.csv"][0]["startup_s"] += "0"
    after = campaign.write().verdict()
    assert before["evidence_sha256"] != after["evidence_sha256"]
    assert before["gates"] == after["gates"]


def test_the_verdict_repeats_the_digests_it_was_given(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path)
    verdict = campaign.verdict()
    for name in ("manifest_sha256", "baseline_sha256", "candidate_sha256"):
        assert verdict[name] == campaign.identity[name]
    assert verdict["protocol_sha256"] == hashlib.sha256(campaign.protocol_path.read_bytes()).hexdigest()
    assert verdict["acceptance_sha256"] == digest.tree_sha256(own_sources())
