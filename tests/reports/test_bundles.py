from __future__ import annotations

from pathlib import Path

from reports.bundles import boot_table, bundle_table
from tests.reports.evaluations import report_of, write_evaluation
from tests.support.evidence import make_campaign

BUNDLE = {
    "id": "0123456789abcdef01234567",
    "seq": 7,
    "at": 1_800_000_000.0,
    "place": "login1:/scratch/<b>bundle",
    "allocations": 2,
    "attempts": 5,
    "returned": 5,
    "ingested_seqs": [9, 12],
    "complete": True,
    "abandoned_seq": 0,
    "abandoned": "",
    "left": 3,
    "left_bytes": 12345,
}
NEVER = {**BUNDLE, "returned": 0, "ingested_seqs": [], "complete": False, "left": 0, "left_bytes": 0}
GIVEN_UP = {**NEVER, "abandoned_seq": 20, "abandoned": "the machine was taken away"}
BOOT = {"workload": "sync-b4", "kind": "control_pair", "node": "h200", "repeats": [1, 3]}


def test_campaigns_without_bundles_and_older_provenance_have_no_table() -> None:
    assert bundle_table({}) is None
    assert bundle_table({"bundles": []}) is None
    assert boot_table({}) is None
    assert boot_table({"shared_boots": []}) is None


def test_a_bundle_says_what_came_back_and_one_that_never_did_is_named() -> None:
    table = bundle_table({"bundles": [BUNDLE, NEVER, GIVEN_UP, {**BUNDLE, "complete": False, "returned": 4}]})
    assert table is not None
    assert [[cell.text for cell in row[2:]] for row in table.rows] == [
        ["5", "5", "entry 9, entry 12", "complete", "3 files, 12,345 bytes: digests alone are known"],
        ["5", "0", "none", "away, never ingested: nobody knows what was made of it", "nothing"],
        ["5", "0", "none", "abandoned (entry 20), never ingested: nobody knows what was made of it", "nothing"],
        ["5", "4", "entry 9, entry 12", "in part away", "3 files, 12,345 bytes: digests alone are known"],
    ]
    assert table.rows[2][5].note == "the machine was taken away"


def test_both_pages_show_bundles_and_boots_that_repeats_share(tmp_path: Path) -> None:
    report = report_of(write_evaluation(make_campaign(tmp_path), bundles=[BUNDLE, NEVER], shared_boots=[BOOT]))
    for name in ("report.html", "report.md"):
        shown = (report / name).read_text()
        assert "never ingested: nobody knows what was made of it" in shown
        assert "not obtained afresh" in shown
        assert "1, 3" in shown
        assert "<b>bundle" not in shown
