from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceptance.formats import Ending
from campaign import documents, files
from campaign.cli.main import main
from tests.support.home import CANDIDATE, SMALL, Case, Home, attempt_all, build_home, freeze, freeze_candidate
from tests.support.refusing import forbid

PAIR = "candidate/pair/sync-b4/r1"
OTHER = "c" + "d" * 12


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return build_home(tmp_path / "home", solo=False)


@pytest.fixture(autouse=True)
def quick_page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a stand-in in the place of the rendered page, which most tests here do not look at: plots take seconds."""
    if "rendered" not in request.fixturenames:

        def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
            assert protocol_path.is_file()
            assert (evaluation / "verdict.json").is_file()
            assert (evaluation / "provenance.json").is_file()
            out.mkdir(exist_ok=True)
            (out / "report.html").write_text("a page")

        monkeypatch.setattr("reports.render.write_report", write_report)


@pytest.fixture
def rendered() -> None:
    """Ask for the real page."""


def campaign(home: Home, *arguments: str) -> int:
    return main([*arguments, "--home", str(home.paths.root)])


def verdict(home: Home) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(home.paths.evaluation(home.candidate).verdict.read_bytes())
    return found


def findings(home: Home) -> dict[str, str]:
    return {gate["id"]: gate["finding"] for gate in verdict(home)["gates"]}


def acts(home: Home, act: str) -> list[dict[str, Any]]:
    lines = home.paths.ledger.read_bytes().splitlines()
    return [entry.data for entry in (documents.Entry.parse(line, where="ledger") for line in lines) if entry.act == act]


# --- verdicts and exit codes ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("rendered")
def test_a_candidate_that_is_faster_everywhere_passes(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign(home, "report") == 0
    out = capsys.readouterr().out
    page = home.paths.evaluation(CANDIDATE).page
    assert out.splitlines()[0].split() == ["gate", "value", "threshold", "margin", "outcome", "finding"]
    assert "throughput/sync/repeat-1" in out
    assert ">= 1.05" in out
    assert out.isascii()
    assert "The baseline may be retired" in out
    assert out.splitlines()[-1] == str(page)
    assert b"</html>" in page.read_bytes()
    assert verdict(home)["outcome"] == "pass"


def test_the_provenance_says_where_each_side_was_frozen_and_measured_and_what_was_compiled(home: Home) -> None:
    home.attempt(home.slot(PAIR), 2)
    folder = home.folder(PAIR, 2)
    start = documents.Start.read(folder.start)
    gpus = ({"kind": "cuda", "name": "GPU", "uuid": "u", "memory_bytes": 1, "driver": "535"},) * 2
    moved = start.replace(host=start.host.replace(node="node2", memory_bytes=7), devices=gpus)
    folder.start.write_bytes(moved.to_bytes())
    home.seal(home.slot(PAIR), 2, start.allocation)
    receipt = documents.Receipt.read(folder.receipt)
    caches = documents.Caches(compile="private, cold", bytecode="private")
    sides = tuple(side.replace(caches=caches if side.side == "candidate" else None) for side in receipt.sides)
    folder.receipt.write_bytes(receipt.replace(sides=sides).to_bytes())
    assert campaign(home, "report", "--exit-zero") == 0
    found = documents.Provenance.read(home.paths.evaluation(CANDIDATE).provenance)
    first, second = found.machines
    assert first.to_json() == {
        "node": "node1",
        "cpu": "Synthetic Processor",
        "kernel": "6.1",
        "machine": "x86_64",
        "memory_bytes": 1 << 30,
        "devices": [{"name": "Synthetic Processor", "driver": ""}],
    }
    assert (second.node, second.memory_bytes) == ("node2", 7)
    assert second.devices == (documents.MachineDevice(name="GPU", driver="535"),)
    assert found.frozen_on["baseline"].machine == home.manifest.machine
    assert found.frozen_on["candidate"].driver == {"campaign": "0.1.0", "python": "3.11.7"}
    assert found.caches == {
        "baseline": {"compile": "private, cold", "bytecode": "installed"},
        "candidate": {"compile": "private, cold", "bytecode": "installed | private"},
    }


def test_a_category_below_its_threshold_is_missed(tmp_path: Path) -> None:
    home = build_home(
        tmp_path / "slow", ratio=lambda workload, repeat: 1.049 if (workload, repeat) == ("sync-b4", 2) else 1.06
    )
    assert campaign(home, "report") == 3
    assert findings(home)["throughput/sync/repeat-2"] == "missed"
    assert findings(home)["throughput/sync/repeat-1"] == "met"
    assert campaign(home, "report", "--exit-zero") == 0


def test_a_slot_without_an_attempt_is_missing(home: Home) -> None:
    shutil.rmtree(home.folder(PAIR).root)
    assert campaign(home, "report") == 4
    assert findings(home)["throughput/sync/repeat-1"] == "missing"
    provenance = documents.Provenance.read(home.paths.evaluation(CANDIDATE).provenance)
    assert provenance.missing_slots == (f"{CANDIDATE}/pair/sync-b4/r1",)
    assert campaign(home, "report", "--exit-zero") == 0


def test_nothing_collected_is_wanting_and_never_a_pass(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home")
    freeze_candidate(home)
    assert campaign(home, "report") == 4
    assert verdict(home)["outcome"] == "not_qualified"


def test_the_published_table_gives_the_published_outcomes(tmp_path: Path) -> None:
    published = {
        "sync": (1.837, 1.946, 1.726),
        "packed4": (1.063, 1.087, 1.085),
        "packed8": (1.057, 1.047, 1.055),
        "prod": (1.0, 0.99, 1.2),
    }
    cases = [Case(name=name, category="" if name == "prod" else name, production=name == "prod") for name in published]
    home = build_home(tmp_path / "home", cases, lambda workload, repeat: published[workload][repeat - 1])
    assert campaign(home, "report") == 3
    found = verdict(home)
    met = {gate["id"]: gate["outcome"] for gate in found["gates"] if gate["family"] == "throughput"}
    assert [met[f"throughput/packed8/repeat-{repeat}"] for repeat in (1, 2, 3)] == ["pass", "not_qualified", "pass"]
    assert all(outcome == "pass" for name, outcome in met.items() if "packed8" not in name)
    assert found["families"]["throughput/production"]["outcome"] == "pass"
    assert found["families"]["throughput"]["outcome"] == "not_qualified"


# --- sealed evidence that disagrees with the protocol: exit 4, named --------------------------------------------------


def _drop_last(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-1])


def _repeat_last(data: bytes) -> bytes:
    return data + data.splitlines(keepends=True)[-1]


def _swap(data: bytes) -> bytes:
    return (
        data.replace(b",baseline,", b",\0,").replace(b",candidate,1", b",baseline,1").replace(b",\0,", b",candidate,")
    )


DISAGREEING: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "a row deleted": ("pairs.csv", _drop_last),
    "a row duplicated": ("pairs.csv", _repeat_last),
    "a row added": ("pairs.csv", lambda data: data + data.splitlines(keepends=True)[-1].replace(b",1,1,", b",2,1,", 1)),
    "sides swapped": ("pairs.csv", _swap),
    "a window missing": ("windows.csv", _drop_last),
    "a window duplicated": ("windows.csv", _repeat_last),
    "the speed alone raised": ("pairs.csv", lambda data: data[:-2] + b"9\n"),
}


@pytest.mark.parametrize(("file", "edit"), DISAGREEING.values(), ids=DISAGREEING)
def test_sealed_rows_that_disagree_with_the_protocol_block(
    home: Home, file: str, edit: Callable[[bytes], bytes]
) -> None:
    before = home.folder(PAIR).table(file).read_bytes()
    home.reseal(PAIR, file, edit)
    assert home.folder(PAIR).table(file).read_bytes() != before
    assert campaign(home, "report") == 4
    assert findings(home)["throughput/sync/repeat-1"] in ("missing", "invalid")
    assert findings(home)[f"evidence/{file}"] in ("missing", "invalid")


def test_a_second_repeat_from_the_same_allocation_is_invalid(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home", SMALL[:1], solo=False, controls=False)
    freeze_candidate(home)
    pairs = [slot for slot in home.protocol.slots if slot.kind == "pair"]
    allocation = home.plan(pairs[0], also=pairs[1])
    for slot in pairs[:2]:
        home.run(slot, 1, allocation)
    home.attempt(pairs[2])
    assert campaign(home, "report") == 4
    assert findings(home)["throughput/sync/repeat-1"] == "invalid"


def test_a_failed_attempt_is_listed_and_only_a_retryable_one_gives_way(tmp_path: Path) -> None:
    outcomes = {}
    for ending in (Ending.NODE_FAIL, Ending.CRASH):
        made = freeze(tmp_path / ending, SMALL[:1], repeats=1, controls=False, solo=False)
        freeze_candidate(made)
        for slot in made.protocol.slots:
            made.attempt(slot, ending=ending if slot.kind == "pair" else Ending.COMPLETED, reason="it happened")
        made.attempt(made.slot(PAIR), 2)
        outcomes[ending] = campaign(made, "report")
        listed = documents.Provenance.read(made.paths.evaluation(CANDIDATE).provenance).attempts
        own = [(one.attempt, one.ending, one.reason) for one in listed if one.slot == made.real_slot(PAIR)]
        assert own == [(1, ending, "it happened"), (2, Ending.COMPLETED, "")]
    assert outcomes == {Ending.NODE_FAIL: 0, Ending.CRASH: 4}


# --- tampering: exit 5, no verdict ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("report",), ("report", "--exit-zero"), ("report", "--json"), ("collect",)])
def test_a_table_changed_after_sealing_is_exit_5_whatever_was_asked(
    home: Home, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    path = home.folder(PAIR).table("pairs.csv")
    path.write_bytes(_drop_last(path.read_bytes()))
    assert campaign(home, *arguments) == 5
    captured = capsys.readouterr()
    assert f"{path}: changed after it was sealed" in captured.err
    assert not home.paths.evaluation(CANDIDATE).verdict.exists()
    if "--json" in arguments:
        assert json.loads(captured.out)["exit_code"] == 5


BAD = {"NaN": b"NaN", "inf": b"inf", "1_000": b"1_000", "an extra column": b"0.5,0.5", "a foreign byte": b"\xff"}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_sealed_bytes_that_do_not_parse_are_exit_5_with_file_and_line(
    home: Home, capsys: pytest.CaptureFixture[str], value: bytes
) -> None:
    home.reseal(PAIR, "pairs.csv", lambda data: data.replace(b",0.5,", b"," + value + b",", 1))
    assert campaign(home, "report", "--exit-zero") == 5
    assert f"{home.folder(PAIR).table('pairs.csv')}:2: " in capsys.readouterr().err


def test_an_old_verdict_does_not_outlive_evidence_that_gives_none(home: Home) -> None:
    assert campaign(home, "report") == 0
    evaluation = home.paths.evaluation(CANDIDATE)
    path = home.folder(PAIR).table("pairs.csv")
    path.write_bytes(path.read_bytes()[:-1])
    assert campaign(home, "report") == 5
    assert not evaluation.verdict.exists()
    assert not evaluation.page.exists()


def test_an_edited_acceptance_program_is_exit_5(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    path = home.paths.acceptance / "gates.py"
    path.write_bytes(path.read_bytes().replace(b">=", b"<=", 1))
    assert campaign(home, "report", "--exit-zero") == 5
    assert "not the acceptance program that was frozen" in capsys.readouterr().err
    assert not home.paths.evaluation(CANDIDATE).verdict.exists()


def test_an_edited_cache_cannot_change_a_verdict(home: Home) -> None:
    assert campaign(home, "collect") == 0
    with home.paths.database.open("r+b") as stream:
        data = stream.read()
        place = data.index(b"cpu:Synthetic_Processor,20,")
        stream.seek(place)
        stream.write(b"cpu:Synthetic_Prozessor,20,")
    assert campaign(home, "report") == 5
    assert campaign(home, "collect", "--rebuild") == 0
    assert campaign(home, "report") == 0


# --- which candidate, how often ---------------------------------------------------------------------------------------


def test_before_a_candidate_there_is_nothing_to_report_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = freeze(tmp_path / "home")
    assert campaign(home, "report") == 2
    assert "campaign freeze --candidate" in capsys.readouterr().err


def test_an_unknown_candidate_is_refused_with_the_known_ones(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign(home, "report", "--candidate", "c0") == 2
    assert CANDIDATE in capsys.readouterr().err


def test_the_candidate_frozen_last_is_the_default_and_the_other_is_named(home: Home) -> None:
    assert campaign(home, "report") == 0
    freeze_candidate(home, OTHER, "d" * 64)
    home.ratio = lambda _workload, _repeat: 1.0
    attempt_all(home, "candidate")
    assert campaign(home, "report") == 3
    provenance = documents.Provenance.read(home.paths.evaluation(OTHER).provenance)
    assert [(one.id, one.outcome) for one in provenance.other_candidates] == [(CANDIDATE, "pass")]
    assert campaign(home, "report", "--candidate", CANDIDATE) == 0


@pytest.mark.usefixtures("rendered")
def test_reporting_twice_gives_the_same_bytes_and_one_act(home: Home) -> None:
    assert campaign(home, "report") == 0
    folder = home.paths.evaluation(CANDIDATE).root
    first = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ledger = home.paths.ledger.read_bytes()
    assert campaign(home, "report") == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == first
    assert home.paths.ledger.read_bytes() == ledger


def test_the_ledger_names_the_verdicts_digest(home: Home) -> None:
    assert campaign(home, "report") == 0
    (act,) = acts(home, "reported")
    path = home.paths.evaluation(CANDIDATE).verdict
    assert (act["candidate"], act["outcome"]) == (CANDIDATE, "pass")
    assert act["verdict_sha256"] == files.sha256_file(path)
    assert act["evidence_sha256"] == verdict(home)["evidence_sha256"]


def test_each_category_has_a_line_with_median_range_spread_and_order_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = build_home(tmp_path / "home", ratio=lambda _workload, repeat: (1.10, 1.2, 1.0499999)[repeat - 1], solo=False)
    assert campaign(home, "report", "--json") == 3
    value = json.loads(capsys.readouterr().out)
    assert value["observations"] == verdict(home)["observations"]
    assert value["numerical_remarks"] is None
    assert campaign(home, "report") == 3
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (header,) = [number for number, line in enumerate(lines) if line[:1] == ["category"]]
    assert header > max(number for number, line in enumerate(lines) if line[:1] == ["evidence/folder"])
    assert [line[0] for line in lines[header + 1 : header + 3]] == ["packed", "sync"]
    (seen,) = [
        one for one in value["observations"]["throughput"] if (one["kind"], one["subject"]) == ("category", "sync")
    ]
    effects = (seen["order_effect"], seen["order_effect_lower"], seen["order_effect_upper"])
    assert lines[header + 2][1:5] == ["3", "1.100", "1.0499999", "1.200"]
    assert lines[header + 2][5] == f"{100 * seen['sd_log_ratio_ddof1']:.2f}%"
    assert lines[header + 2][6:] == [f"{effect:.4f}" for effect in effects]


def test_json_is_one_value_on_stdout(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign(home, "report", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["candidate"], value["outcome"], value["exit_code"]) == (CANDIDATE, "pass", 0)
    assert value["gates"] == verdict(home)["gates"]
    assert campaign(home, "collect", "--json") == 0
    assert json.loads(capsys.readouterr().out)["sealed"] == len(home.protocol.slots)


def test_provenance_names_what_was_frozen_and_what_ran(home: Home) -> None:
    assert campaign(home, "report") == 0
    found = documents.Provenance.read(home.paths.evaluation(CANDIDATE).provenance)
    manifest = documents.Manifest.read(home.paths.manifest)
    assert found.acceptance_sha256 == manifest.acceptance_sha256
    assert found.baseline.snapshot_sha256 == manifest.baseline.snapshot_sha256
    assert (found.baseline.id, found.candidate.id) == ("baseline", CANDIDATE)
    assert found.baseline.frozen_seq < found.candidate.frozen_seq
    assert found.left_out["baseline"] == manifest.left_out
    assert found.undeclared_families == ("numerical", "convergence", "device")
    assert len(found.attempts) == len(home.protocol.slots)
    assert found.missing_slots == ()
    assert found.versions == {"baseline": {"python": "3.11.7"}, "candidate": {"python": "3.11.7"}}
    entries = [documents.Entry.parse(line, where="l") for line in home.paths.ledger.read_bytes().splitlines()]
    last = next(entry for entry in reversed(entries) if entry.act == "collected")
    assert (found.ledger.entries, found.ledger.baseline_sealed_seq) == (last.seq, last.seq)
    assert found.ledger.head == entries[-1].previous


def test_a_baseline_that_was_collected_before_the_candidate_came_is_shown_to_be_first(tmp_path: Path) -> None:
    home = freeze(tmp_path / "home", SMALL[:1], repeats=1)
    attempt_all(home, "baseline")
    assert campaign(home, "collect") == 0
    freeze_candidate(home)
    attempt_all(home, "candidate")
    assert campaign(home, "report") == 0
    found = documents.Provenance.read(home.paths.evaluation(CANDIDATE).provenance)
    assert found.ledger.baseline_sealed_seq is not None
    assert found.ledger.baseline_sealed_seq < found.candidate.frozen_seq


@pytest.mark.parametrize("name", ["a home", "what?x=1#y", "50%41 'quoted' \"twice\"", "caf\u00e9", "two\nlines"])
def test_a_home_of_any_name_is_reported(tmp_path: Path, name: str) -> None:
    home = build_home(tmp_path / name, SMALL[:1], repeats=1, solo=False, controls=False)
    assert campaign(home, "report") == 0
    assert campaign(home, "collect", "--rebuild") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


# --- a home that somebody tidied up -----------------------------------------------------------------------------------


def _replace_by_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


def _replace_by_dangling_link(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to("nowhere")


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


IN_THE_WAY: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "evaluations is a file": ("evaluations", _replace_by_file, "not a folder"),
    "evaluations is a dangling link": ("evaluations", _replace_by_dangling_link, "not a folder"),
    "the evaluation is a file": (f"evaluations/{CANDIDATE}", _replace_by_file, "not a folder"),
    "report is a file": (f"evaluations/{CANDIDATE}/report", _replace_by_file, "not a folder"),
    "evidence is a file": (f"evaluations/{CANDIDATE}/evidence", _replace_by_file, "not a folder"),
    "verdict.json is a folder": (f"evaluations/{CANDIDATE}/verdict.json", _replace_by_folder, "a folder is in the way"),
    "the cache is a folder": ("campaign.sqlite", _replace_by_folder, "not a file"),
}


@pytest.mark.parametrize("case", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_stands_in_the_place_of_something_derived_is_named(
    home: Home, capsys: pytest.CaptureFixture[str], case: tuple[str, Callable[[Path], None], str]
) -> None:
    name, replace, said = case
    assert campaign(home, "report") == 0
    replace(home.paths.root / name)
    capsys.readouterr()
    assert campaign(home, "report") == 2
    err = capsys.readouterr().err
    assert f"{home.paths.root / name}: {said}" in err
    assert "try: move it aside: mv " in err
    assert not home.paths.evaluation(CANDIDATE).verdict.is_file()


def test_a_rebuild_names_a_folder_in_the_place_of_the_cache(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.paths.database.mkdir()
    assert campaign(home, "collect", "--rebuild") == 2
    assert f"{home.paths.database}: not a file" in capsys.readouterr().err
    assert list(home.paths.database.iterdir()) == []


def _lose_candidate(home: Home) -> None:
    shutil.rmtree(home.paths.candidate(CANDIDATE).root)


def _lose_ledger(home: Home) -> None:
    home.paths.ledger.unlink()


def _empty_ledger(home: Home) -> None:
    home.paths.ledger.write_bytes(b"")


def _break_ledger(home: Home) -> None:
    home.paths.ledger.write_bytes(home.paths.ledger.read_bytes().replace(b"froze_candidate", b"froze_candidatf"))


def _edit_manifest(home: Home) -> None:
    home.paths.manifest.write_bytes(home.paths.manifest.read_bytes() + b" ")


@pytest.mark.parametrize("harm", [_lose_candidate, _lose_ledger, _empty_ledger, _break_ledger, _edit_manifest])
@pytest.mark.parametrize("named", [False, True], ids=["default", "named"])
def test_a_home_that_lost_its_past_is_exit_5_and_keeps_no_verdict(
    home: Home, harm: Callable[[Home], None], *, named: bool
) -> None:
    assert campaign(home, "report") == 0
    harm(home)
    assert campaign(home, "collect") == 5
    assert campaign(home, "report", *(("--candidate", CANDIDATE) if named else ())) == 5
    assert not home.paths.evaluation(CANDIDATE).verdict.exists()
    assert not home.paths.evaluation(CANDIDATE).page.exists()


def test_another_candidates_verdict_stays(home: Home) -> None:
    assert campaign(home, "report") == 0
    other = home.paths.evaluation(OTHER)
    other.root.mkdir()
    other.verdict.write_bytes(b"{}")
    _lose_ledger(home)
    assert campaign(home, "report", "--candidate", CANDIDATE) == 5
    assert other.verdict.exists()


def test_a_folder_of_attempts_that_may_not_be_read_is_no_crash(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home.folder(PAIR).root.parent
    with monkeypatch.context() as patched:
        forbid(patched, folder)
        assert campaign(home, "report") == 5
        assert f"{folder}" in capsys.readouterr().err
        assert campaign(home, "collect") == 5
    assert campaign(home, "report") == 0
