from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.cli.main import main
from campaign.collection.collect import collect
from campaign.errors import ConfigError, EvidenceError, StateError
from campaign.freezing.freeze_candidate import read_configuration
from campaign.frozen import read_frozen
from campaign.judging.provenance import Chain, build_provenance
from campaign.record.ledger import Ledger, read_entries
from campaign.snapshot import digest_folder
from tests.support.freezing import Setting, clock, make_setting
from tests.support.git import write_files
from tests.support.home import Home


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return make_setting(tmp_path)


def test_a_candidate_from_the_baselines_own_tree_with_another_adapter_is_frozen(setting: Setting) -> None:
    baseline = setting.freeze()
    result = setting.freeze_candidate()
    assert result.snapshot_sha256 == baseline.snapshot_sha256
    assert result.id == f"c{result.snapshot_sha256[:12]}"
    candidate = read_frozen(setting.home).candidates[result.id]
    assert candidate.candidate.adapter == "adapter:fast"
    assert candidate.manifest_sha256 == files.sha256_file(setting.home.manifest)
    assert digest_folder(setting.home.candidate(result.id).tree) == result.snapshot_sha256
    act = read_entries(setting.home)[-1]
    assert (act.act, act.data) == (
        "froze_candidate",
        {
            "candidate": result.id,
            "manifest_sha256": files.sha256_file(setting.home.candidate(result.id).manifest),
            "snapshot_sha256": result.snapshot_sha256,
        },
    )


def test_a_candidate_before_the_baseline_is_refused(setting: Setting) -> None:
    with pytest.raises(StateError, match="no baseline is frozen"):
        setting.freeze_candidate()
    assert not setting.home.root.exists()


def test_a_configuration_that_the_ledger_does_not_tie_down_is_not_even_read(setting: Setting) -> None:
    setting.freeze()
    assert read_configuration(setting.home).name == "small"
    manifest = json.loads(setting.home.manifest.read_bytes())
    planted = "nothing that parses"
    changed = json.dumps({**manifest, "config_sha256": files.sha256_bytes(planted.encode())})
    for path, text in ((setting.home.config, planted), (setting.home.manifest, changed)):
        path.chmod(0o644)
        path.write_text(text)
    with pytest.raises(EvidenceError) as caught:
        read_configuration(setting.home)
    assert caught.value.where == str(setting.home.manifest)


def test_the_same_candidate_again_is_nothing_new(setting: Setting) -> None:
    setting.freeze()
    first = setting.freeze_candidate()
    again = setting.freeze_candidate()
    assert (first.is_new, again.is_new, again.id) == (True, False, first.id)
    assert again.manifest_sha256 == first.manifest_sha256
    assert [entry.act for entry in read_entries(setting.home)] == ["froze_baseline", "froze_candidate"]


def test_candidates_of_other_trees_stand_beside_it(setting: Setting) -> None:
    setting.freeze()
    first = setting.freeze_candidate()
    write_files(setting.root, {"elsewhere/adapter.py": "def fast(): ...\n"})
    second = setting.freeze_candidate(source=setting.root / "elsewhere")
    assert first.id != second.id
    assert set(read_frozen(setting.home).candidates) == {first.id, second.id}


def test_the_same_tree_with_another_table_is_refused_and_says_what_to_do(setting: Setting) -> None:
    setting.freeze()
    setting.freeze_candidate()
    with pytest.raises(StateError, match="the same tree but another adapter") as caught:
        setting.freeze_candidate(lambda text: text.replace("adapter:fast", "adapter:faster"))
    assert "let the trees differ" in caught.value.hint
    assert len(read_frozen(setting.home).candidates) == 1


def test_the_same_tree_that_may_read_more_is_another_candidate(setting: Setting) -> None:
    setting.freeze()
    setting.freeze_candidate()
    with pytest.raises(StateError, match="the same tree but another reads"):
        setting.freeze_candidate(lambda text: text.replace("[candidate]\n", '[candidate]\nreads = ["notes"]\n'))
    assert len(read_frozen(setting.home).candidates) == 1


@pytest.mark.parametrize(
    ("edit", "table"),
    [
        (lambda text: text.replace("baseline_first = false", "baseline_first = true"), "baseline_first"),
        (lambda text: text.replace("adapter:native", "adapter:other"), "baseline"),
        (lambda text: text + "[throughput]\nwindows = 3\n", "throughput"),
        (lambda text: text.replace("[4, 8]", "[4, 16]"), "matrix"),
        (lambda text: text + "[slurm]\nminutes = 5\n", "slurm"),
    ],
)
def test_any_other_table_that_differs_is_refused_by_name(
    setting: Setting, edit: Callable[[str], str], table: str
) -> None:
    setting.freeze()
    with pytest.raises(ConfigError, match=f"{table} differs from the frozen configuration") as caught:
        setting.freeze_candidate(edit)
    assert caught.value.where.startswith(f"{setting.config_path}:")
    assert not setting.home.candidates.exists()


def test_the_candidates_own_table_may_be_written_after_the_baseline_was_frozen(setting: Setting) -> None:
    def without(text: str) -> str:
        return text[: text.index("[candidate]")] + text[text.index("[data.plays]") :]

    setting.freeze(without)
    with pytest.raises(ConfigError, match=r"no \[candidate\]"):
        setting.freeze_candidate(without)
    assert setting.freeze_candidate().is_new


@pytest.mark.parametrize("victim", ["manifest", "config", "ledger"])
def test_nothing_is_frozen_onto_a_baseline_that_was_tampered_with(setting: Setting, victim: str) -> None:
    setting.freeze()
    path: Path = getattr(setting.home, victim)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"small", b"large") if victim != "ledger" else b"")
    with pytest.raises(EvidenceError):
        setting.freeze_candidate()
    assert not setting.home.candidates.exists()


def test_a_candidate_that_the_ledger_does_not_know_is_an_error(setting: Setting) -> None:
    setting.freeze()
    setting.freeze_candidate()
    lines = setting.home.ledger.read_bytes().splitlines(keepends=True)
    setting.home.ledger.write_bytes(lines[0])
    with pytest.raises(EvidenceError, match="does not say when this was frozen"):
        setting.freeze_candidate()


# --- baseline first ---------------------------------------------------------------------------------------------------


def baseline_first(text: str) -> str:
    return text.replace("baseline_first = false", "baseline_first = true")


@pytest.fixture
def home(setting: Setting) -> Home:
    """A home that waits for its baseline's evidence."""
    setting.freeze(baseline_first)
    return Home(paths=setting.home, protocol=read_frozen(setting.home).protocol)


def baseline_slots(home: Home) -> list[documents.Slot]:
    return [slot for slot in home.protocol.slots if slot.phase == "baseline"]


def test_with_baseline_first_every_baseline_slot_must_be_completed(setting: Setting, home: Home) -> None:
    first, *others = baseline_slots(home)
    for slot in others:
        home.attempt(slot)
    home.attempt(first, ending=Ending.NODE_FAIL)
    with pytest.raises(StateError, match=f"1 of {len(others) + 1} baseline slots are not completed") as caught:
        setting.freeze_candidate(baseline_first)
    assert first.slot in caught.value.what
    assert "campaign submit --phase baseline" in caught.value.hint
    running = home.plan(first, 2)
    with pytest.raises(StateError, match="not completed"):
        setting.freeze_candidate(baseline_first)
    home.run(first, 2, running)
    assert setting.freeze_candidate(baseline_first).is_new


def test_the_baselines_evidence_is_in_the_ledger_before_the_candidate(
    setting: Setting, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    for slot in baseline_slots(home):
        home.attempt(slot)
    assert [entry.act for entry in read_entries(setting.home) if entry.act == "collected"] == []
    assert main(["freeze", "--candidate", "--home", str(setting.home.root), "--json"]) == 0
    candidate = json.loads(capsys.readouterr().out)["id"]
    *_, collected, froze = read_entries(setting.home)
    assert (collected.act, froze.act) == ("collected", "froze_candidate")
    assert {name.rpartition("/")[0] for name in collected.data["receipts"]} == {s.slot for s in baseline_slots(home)}
    assert main(["collect", "--home", str(setting.home.root)]) == 0
    frozen, entries = read_frozen(setting.home), read_entries(setting.home)
    with Ledger.open(setting.home, clock) as ledger:
        chain = Chain(entries=entries, head=ledger.head)
        provenance = build_provenance(frozen, collect(setting.home, ledger), candidate, chain)
    assert provenance.ledger.baseline_sealed_seq == collected.seq
    assert collected.seq < provenance.candidate.frozen_seq == froze.seq


def test_nothing_is_frozen_onto_evidence_that_was_tampered_with(setting: Setting, home: Home) -> None:
    for slot in baseline_slots(home):
        home.attempt(slot)
    table = home.folder(baseline_slots(home)[0].slot).root / "baseline.csv"
    table.write_bytes(table.read_bytes().replace(b"0.5", b"0.4"))
    assert main(["freeze", "--candidate", "--home", str(setting.home.root)]) == 5
    assert not setting.home.candidates.exists()
    assert "froze_candidate" not in [entry.act for entry in read_entries(setting.home)]


def test_a_receipt_that_was_copied_to_another_slot_does_not_count(setting: Setting, home: Home) -> None:
    first, second, *others = baseline_slots(home)
    for slot in (first, *others):
        home.attempt(slot)
    home.start(second, 1, home.plan(second))
    copied = setting.home.attempt(second.slot, 1)
    copied.receipt.write_bytes(setting.home.attempt(first.slot, 1).receipt.read_bytes())
    with pytest.raises(EvidenceError, match="the evidence is not what was sealed"):
        setting.freeze_candidate(baseline_first)


def runs_alone(text: str) -> str:
    """Return a configuration whose baseline phase is four runs, two of them of an extension."""
    text = baseline_first(text) + "[throughput]\nsolo = false\ncontrols = false\n"
    text += '[convergence]\nseeds = [1, 2]\nextension = { seeds = [3, 4] }\npower_waiver = "a test"\n'
    return text + '[[recipe]]\nname = "r"\nconfig = { x = 1 }\ntargets = 40\nvalidation_targets = 8\nupdates = 40\n'


def test_a_candidate_does_not_wait_for_the_runs_of_an_extension(setting: Setting) -> None:
    setting.freeze(runs_alone)
    home = Home(paths=setting.home, protocol=read_frozen(setting.home).protocol)
    first, second, *extending = baseline_slots(home)
    assert [slot.slot for slot in extending] == ["baseline/run/r/s3", "baseline/run/r/s4"]
    home.attempt(second)
    with pytest.raises(StateError, match="1 of 2 baseline slots are not completed, baseline/run/r/s1 first"):
        setting.freeze_candidate(runs_alone)
    home.attempt(first)
    assert setting.freeze_candidate(runs_alone).is_new
