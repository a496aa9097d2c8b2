from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.errors import ConfigError, EvidenceError, StateError
from campaign.frozen import read_frozen
from campaign.ledger import read_entries
from campaign.snapshot import digest_folder
from tests.support.freezing import Setting, make_setting
from tests.support.git import write_files


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


def write_receipt(setting: Setting, slot: documents.Slot, number: int, ending: Ending) -> None:
    receipt = documents.Receipt(
        start_sha256="0" * 64,
        slot=slot.slot,
        attempt=number,
        allocation="a1",
        kind=slot.kind,
        ending=ending,
        reason="",
        elapsed_s=1.0,
        at=1.0,
        sides=(),
        calibration=None,
        files=(),
    )
    paths = setting.home.attempt(slot.slot, number)
    paths.root.mkdir(parents=True)
    paths.receipt.write_bytes(receipt.to_bytes())


def test_with_baseline_first_every_baseline_slot_must_be_completed(setting: Setting) -> None:
    setting.freeze(baseline_first)
    slots = [slot for slot in read_frozen(setting.home).protocol.slots if slot.phase == "baseline"]
    for slot in slots[1:]:
        write_receipt(setting, slot, 1, Ending.COMPLETED)
    write_receipt(setting, slots[0], 1, Ending.NODE_FAIL)
    with pytest.raises(StateError, match=f"1 of {len(slots)} baseline slots are not completed") as caught:
        setting.freeze_candidate(baseline_first)
    assert slots[0].slot in caught.value.what
    assert "campaign submit --phase baseline" in caught.value.hint
    setting.home.attempt(slots[0].slot, 2).root.mkdir()  # running: there is no receipt yet
    with pytest.raises(StateError, match="not completed"):
        setting.freeze_candidate(baseline_first)
    write_receipt(setting, slots[0], 3, Ending.COMPLETED)
    assert setting.freeze_candidate(baseline_first).is_new


def test_a_receipt_that_was_copied_to_another_slot_does_not_count(setting: Setting) -> None:
    setting.freeze(baseline_first)
    first, second, *_ = [slot for slot in read_frozen(setting.home).protocol.slots if slot.phase == "baseline"]
    write_receipt(setting, first, 1, Ending.COMPLETED)
    copied = setting.home.attempt(second.slot, 1)
    copied.root.mkdir(parents=True)
    copied.receipt.write_bytes(setting.home.attempt(first.slot, 1).receipt.read_bytes())
    with pytest.raises(EvidenceError, match="the receipt of another attempt"):
        setting.freeze_candidate(baseline_first)
