from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.scaling import efficiency, table
from reports.source import read_source
from reports.view import Table
from tests.reports.evaluations import report_of, write_evaluation
from tests.support.evidence import Campaign, make_campaign

SAID = {"workload": "two", "exchange": "gloo", "synchronisation": "after last microbatch"}
EXCHANGES = [{**SAID, "side": side} for side in ("baseline", "candidate")]
TOPOLOGIES = {"one": (1, 1), "two": (2, 1), "four": (4, 2)}


def _campaign(folder: Path, topologies: dict[str, tuple[int, int]] = TOPOLOGIES) -> Campaign:
    """Return a campaign of production workloads of one configuration, in as many topologies."""
    campaign = make_campaign(folder, ratios={}, production=dict.fromkeys(TOPOLOGIES, ("1.0", "1.0", "1.0")))
    workloads = [
        workload.replace(config_sha256="c" * 64, processes=processes, nodes=nodes)
        for workload, (processes, nodes) in zip(campaign.protocol.workloads, topologies.values(), strict=True)
    ]
    protocol = campaign.protocol.replace(workloads=tuple(workloads))
    return Campaign(folder=folder, protocol=protocol, tables=campaign.tables, identity=campaign.identity)


def _measure(campaign: Campaign, workload: str, *, train_s: str, elapsed_s: str, tokens: str = "10000") -> None:
    """Let all pairs of a workload have made 100 updates in such times."""
    for row in campaign.rows("pairs.csv", workload=workload, comparison="candidate"):
        rate = repr(float(tokens) / float(train_s))
        row |= {"tokens": tokens, "updates": "100", "train_s": train_s, "elapsed_s": elapsed_s, "tokens_per_s": rate}


def _table(campaign: Campaign, **changes: Any) -> Table | None:
    evaluation = write_evaluation(campaign, **changes)
    return table(read_source(protocol_path=campaign.protocol_path, evaluation=evaluation))


def _shown(found: Table | None) -> list[list[str]]:
    assert found is not None
    return [[cell.text for cell in row] for row in found.rows]


def test_rates_and_efficiencies_are_those_of_the_fewest_processes_of_the_same_side(tmp_path: Path) -> None:
    campaign = _campaign(tmp_path)
    _measure(campaign, "one", train_s="10.0", elapsed_s="20.0")
    _measure(campaign, "two", train_s="6.25", elapsed_s="12.5")
    _measure(campaign, "four", train_s="2.5", elapsed_s="20.0")
    shown = _shown(_table(campaign, exchanges=EXCHANGES))
    assert shown[:3] == [
        ["one", "baseline", "1 process", "none", "none", "100.0", "3", "500.0", "1.000", "1,000", "1.000"],
        ["two", "baseline", "2 processes on 1 node", "gloo", "after last microbatch", "100.0", "3", "800.0", "0.800",
         "1,600", "0.800"],
        ["four", "baseline", "4 processes on 2 nodes", "-", "-", "100.0", "3", "500.0", "0.250", "4,000", "1.000"],
    ]  # fmt: skip
    assert [row[1] for row in shown[3:]] == ["candidate"] * 3


def test_topologies_that_do_other_work_per_update_have_no_efficiency(tmp_path: Path) -> None:
    campaign = _campaign(tmp_path)
    _measure(campaign, "one", train_s="10.0", elapsed_s="20.0")
    _measure(campaign, "two", train_s="10.0", elapsed_s="20.0", tokens="10100")
    _measure(campaign, "four", train_s="10.0", elapsed_s="20.0", tokens="10102")
    shown = _shown(_table(campaign))
    assert [row[8] for row in shown[:3]] == ["1.000", "0.505", "-"]
    assert [row[10] for row in shown[:3]] == ["1.000", "0.505", "-"]


def test_what_does_not_count_enters_no_median(tmp_path: Path) -> None:
    campaign = _campaign(tmp_path)
    for workload in TOPOLOGIES:
        _measure(campaign, workload, train_s="10.0", elapsed_s="20.0")
    for row in campaign.tables["attempts.csv"]:
        if "/pair/two/" in row["slot"] and not row["slot"].endswith("/r3"):
            row["ending"] = "crash"
    shown = {row[0]: row[6] for row in _shown(_table(campaign))}
    assert shown == {"one": "3", "two": "1", "four": "3"}


@pytest.mark.parametrize(
    "topologies", [{"a": (1, 1), "b": (1, 1), "c": (1, 1)}, {"a": (2, 1), "b": (2, 1), "c": (2, 1)}]
)
def test_one_topology_has_no_table(tmp_path: Path, topologies: dict[str, tuple[int, int]]) -> None:
    assert _table(_campaign(tmp_path, topologies)) is None


def test_another_configuration_is_no_other_topology(tmp_path: Path) -> None:
    campaign = _campaign(tmp_path)
    apart = tuple(
        one.replace(config_sha256=digit * 64) for one, digit in zip(campaign.protocol.workloads, "abc", strict=True)
    )
    protocol = campaign.protocol.replace(workloads=apart)
    other = Campaign(folder=tmp_path, protocol=protocol, tables=campaign.tables, identity=campaign.identity)
    assert _table(other) is None


def test_processes_that_gain_nothing_have_the_efficiency_of_their_share() -> None:
    assert efficiency(100.0, 100.0, 4, 1) == 0.25
    assert efficiency(400.0, 100.0, 4, 2) == 2.0
    assert efficiency(100.0, 0.0, 4, 2) is None


def test_both_pages_show_the_table_and_say_that_it_decides_nothing(tmp_path: Path) -> None:
    report = report_of(write_evaluation(_campaign(tmp_path), exchanges=EXCHANGES))
    for name in ("report.html", "report.md"):
        page = (report / name).read_text()
        assert "4 processes on 2 nodes" in page
        assert "after last microbatch" in page
        assert "Nothing here decides." in page


def test_pages_without_topologies_say_nothing_of_scaling(tmp_path: Path) -> None:
    report = report_of(write_evaluation(make_campaign(tmp_path)))
    for name in ("report.html", "report.md"):
        assert "Scaling" not in (report / name).read_text()
