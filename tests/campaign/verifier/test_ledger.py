"""The chain, the order of acts, and the closing: every way in which a ledger can be rewritten."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign.verifier.closing import parse_head
from campaign.verifier.facts import Options, Signature
from campaign.verifier.findings import Finding, State
from campaign.verifier.ledger import ACTS
from campaign.verifier.tier import Tier
from campaign.verifier.verify import Verification, verifying
from tests.support.sealed import SLOTS, SealedHome, closed_home, sha256

Damage = Callable[[SealedHome], object]
REPORT = {"verdict_sha256": sha256(b"verdict"), "provenance_sha256": sha256(b"provenance"), "evidence_sha256": "0" * 64}


@pytest.fixture
def closed(tmp_path: Path) -> tuple[SealedHome, str]:
    return closed_home(tmp_path / "home")


@pytest.fixture
def home(closed: tuple[SealedHome, str]) -> SealedHome:
    return closed[0]


def verified(home: SealedHome, **options: Any) -> Verification:
    with verifying(home.root, Options(execute=False, **options)) as verification:
        return verification


def findings(home: SealedHome, check: str, **options: Any) -> list[Finding]:
    return [one for one in verified(home, **options).checks.findings if one.check == check]


def texts(home: SealedHome, check: str, **options: Any) -> str:
    found = findings(home, check, **options)
    assert all(one.state is State.TAMPERED for one in found), found
    return "\n".join(f"{one.where}: {one.what}" for one in found)


def state(verification: Verification, check: str) -> State:
    return next(one.state for one in verification.checks.made if one.name == check)


# --- the chain --------------------------------------------------------------------------------------------------------


def lines(edit: Callable[[list[bytes]], object]) -> Damage:
    """Return what edits the ledger's lines and chains nothing anew."""

    def damage(home: SealedHome) -> None:
        found = home.lines
        edit(found)
        home.write("ledger.jsonl", b"".join(line + b"\n" for line in found))

    return damage


def swap(number: int, old: bytes, new: bytes) -> Damage:
    def edit(found: list[bytes]) -> None:
        assert old in found[number - 1]
        found[number - 1] = found[number - 1].replace(old, new)

    return lines(edit)


def link(path: Path) -> None:
    """Put a link to a copy in the place of a file."""
    outside = path.parents[2] / "outside"
    path.rename(outside)
    path.symlink_to(outside)


BROKEN: dict[str, tuple[Damage, str]] = {
    "edited": (
        swap(1, b'"at": 1800000001.0', b'"at": 1800000009.0'),
        "ledger.jsonl:2: the chain is broken: the line before",
    ),
    "dropped": (
        lines(lambda found: found.pop(1)),
        "ledger.jsonl:2: the chain is broken: entry 3 stands where 2 should",
    ),
    "swapped": (lines(lambda found: found.insert(0, found.pop(1))), "entry 2 stands where 1 should"),
    "doubled": (lines(lambda found: found.insert(1, found[0])), "entry 1 stands where 2 should"),
    "first line gone": (lines(lambda found: found.pop(0)), "entry 2 stands where 1 should"),
    "empty": (lambda home: home.write("ledger.jsonl", b""), "is empty: the acts were removed"),
    "gone": (lambda home: (home.root / "ledger.jsonl").unlink(), "ledger.jsonl: is not there"),
    "a link": (
        lambda home: link(home.root / "ledger.jsonl"),
        "is a symbolic link where a file should be",
    ),
    "unknown act": (
        swap(2, b'"froze_candidate"', b'"thawed_baseline"'),
        "'thawed_baseline', an act that this verifier does not know",
    ),
    "key twice": (
        swap(2, b'"seq": 2', b'"seq": 2, "seq": 2'),
        "ledger.jsonl:2: not a valid JSON document: duplicate key",
    ),
    "field more": (swap(2, b'"seq": 2', b'"seq": 2, "more": 1'), "unknown field 'more'"),
    "seq of another kind": (swap(2, b'"seq": 2', b'"seq": true'), "seq: is true or false where a whole number"),
    "not UTF-8": (swap(2, b'"seq"', b'"s\xffq"'), "not a valid JSON document"),
    "blank line": (lines(lambda found: found.append(b"")), "ledger.jsonl:4: not a valid JSON document"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_every_break_of_the_chain_is_named_by_its_line(home: SealedHome, name: str) -> None:
    damage, what = BROKEN[name]
    damage(home)
    assert what in texts(home, "ledger")
    assert verified(home).tier is Tier.NONE


def test_a_line_without_end_is_tampering_unless_somebody_may_be_writing(home: SealedHome) -> None:
    with (home.root / "ledger.jsonl").open("ab") as stream:
        stream.write(b'{"seq": 4')
    (finding,) = findings(home, "ledger")
    assert (finding.state, "9 bytes" in finding.what) == (State.TAMPERED, True)
    home.write("ledger.lock", b"{}")
    (finding,) = findings(home, "ledger")
    assert finding.state is State.INCOMPLETE


# --- acts, chained anew by whoever can write everything ---------------------------------------------------------------


def acts(edit: Callable[[SealedHome], object]) -> Damage:
    def damage(home: SealedHome) -> None:
        edit(home)
        home.write_ledger()

    return damage


def insert(index: int, act: str, **data: Any) -> Damage:
    return acts(lambda home: home.acts.insert(index, (act, data)))


def changed(index: int, **data: Any) -> Damage:
    return acts(lambda home: home.acts[index][1].update(data))


REWRITTEN: dict[str, tuple[Damage, str, str]] = {
    "frozen twice": (acts(lambda home: home.acts.insert(1, home.acts[0])), "ledger", "freezes the baseline again"),
    "never frozen": (acts(lambda home: home.acts.pop(0)), "ledger", "does not say when the baseline was frozen"),
    "before the freeze": (insert(0, "collected", receipts={}), "ledger", "collected before anything was frozen"),
    "other manifest": (changed(0, manifest_sha256="1" * 64), "ledger", "not the manifest that the ledger names"),
    "other acceptance": (changed(0, acceptance_sha256="1" * 64), "ledger", "acceptance_sha256: is "),
    "other verifier": (changed(0, verifier_sha256="1" * 64), "ledger", "verifier_sha256: is "),
    "no verifier": (
        acts(lambda home: home.acts[0][1].pop("verifier_sha256")),
        "ledger",
        "has no field 'verifier_sha256'",
    ),
    "other baseline": (changed(0, snapshot_sha256="1" * 64), "ledger", "snapshot_sha256: is "),
    "power made up": (changed(0, power={"sufficient": True}), "ledger", "manifest.json: has no field 'power'"),
    "other candidate": (changed(1, manifest_sha256="1" * 64), "ledger", "not the manifest that the ledger names"),
    "other tree of the candidate": (changed(1, snapshot_sha256="1" * 64), "ledger", "snapshot_sha256: is "),
    "candidate that is not here": (changed(1, candidate="c" + "1" * 12), "ledger", "it is not here whole"),
    "candidate that nobody froze": (acts(lambda home: home.acts.pop(1)), "ledger", "this candidate was frozen: added"),
    "candidate frozen again, otherwise": (
        acts(lambda home: home.acts.insert(2, ("froze_candidate", {**home.acts[1][1], "manifest_sha256": "1" * 64}))),
        "ledger",
        "not the manifest that the ledger names",
    ),
    "after closing": (
        insert(3, "collected", receipts={}),
        "ledger",
        "collected after the campaign was closed by line 3",
    ),
    "closed twice": (
        acts(lambda home: home.acts.append(home.acts[2])),
        "ledger",
        "closed after the campaign was closed",
    ),
    "candidate first": (
        acts(lambda home: home.acts.insert(0, home.acts.pop(1))),
        "order",
        "frozen before the rules were",
    ),
    "another list": (changed(2, seal_sha256="1" * 64), "closing", "not the list with which the campaign was closed"),
    "another campaign": (changed(2, manifest_sha256="1" * 64), "closing", "manifest_sha256: is "),
    "more slots": (
        acts(lambda home: home.acts[2][1]["counts"].update(slots=5)),
        "closing",
        "counts.slots: is 5, counting again says 4",
    ),
    "more files": (acts(lambda home: home.acts[2][1]["counts"].update(files=1)), "closing", "counts.files: is 1"),
    "more receipts": (
        acts(lambda home: home.acts[2][1]["counts"].update(receipts=1)),
        "closing",
        "counts.receipts: is 1",
    ),
    "no count": (acts(lambda home: home.acts[2][1]["counts"].pop("attempts")), "closing", "no field 'attempts'"),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_chain_made_anew_must_still_agree_with_the_home(home: SealedHome, name: str) -> None:
    damage, check, what = REWRITTEN[name]
    damage(home)
    assert what in texts(home, check)


ABOUT_THE_FILE = {"lock_taken_over", "torn_line", "unlocked"}
AFTERWARDS = {*ABOUT_THE_FILE, "reported", "decided"}


def test_no_other_act_may_come_first(home: SealedHome) -> None:
    whole = list(home.acts)
    for act in sorted(ACTS - ABOUT_THE_FILE - {"froze_baseline"}):
        home.acts[:] = [(act, {}), *whole]
        home.write_ledger()
        assert f"ledger.jsonl:1: {act} before anything was frozen" in texts(home, "ledger")


def test_no_other_act_may_follow_the_end(home: SealedHome) -> None:
    whole = list(home.acts)
    for act in sorted(ACTS - AFTERWARDS):
        home.acts[:] = [*whole, (act, {})]
        home.write_ledger()
        assert f"ledger.jsonl:4: {act} after the campaign was closed by line 3" in texts(home, "ledger")


def test_what_says_something_about_the_file_alone_may_come_first_and_last(home: SealedHome) -> None:
    home.acts.insert(0, ("unlocked", {"owner": {}, "reason": "x"}))
    home.acts.append(("lock_taken_over", {"owner": {}}))
    home.write_ledger()
    assert texts(home, "ledger") == ""


# --- baseline_first ---------------------------------------------------------------------------------------------------


def with_receipt(root: Path, receipts: dict[str, str] | None, *, act: str = "collected") -> SealedHome:
    """Return a home whose rules want the baseline first, with an act between the two freezes."""
    home = SealedHome(root)
    home.freeze(baseline_first=True)
    if receipts is not None:
        home.acts.append((act, {"receipts": receipts}))
    home.freeze_candidate()
    home.write_ledger()
    return home


def test_a_candidate_that_came_before_the_baselines_receipts_is_named(tmp_path: Path) -> None:
    digest = "0" * 64
    solo = {"baseline/solo/w/r1/1": digest}
    assert texts(with_receipt(tmp_path / "a", solo), "order") == ""
    assert texts(with_receipt(tmp_path / "b", solo, act="sealed"), "order") == ""
    for number, said in enumerate((None, {}, {"baseline/pilot/w/1": digest}, {"baseline/solo/w/r2/1": digest})):
        home = with_receipt(tmp_path / str(number), said)
        assert "before a receipt of baseline/solo/w/r1 was named" in texts(home, "order")
    home = with_receipt(tmp_path / "late", None)
    home.acts.append(("collected", {"receipts": solo}))
    home.write_ledger()
    assert "before a receipt of baseline/solo/w/r1 was named" in texts(home, "order")


def test_runs_of_the_baseline_are_waited_for_and_those_of_an_extension_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"baseline/run/r/s{seed}" for seed in (45, 46)]
    run = {"side": "baseline", "phase": "baseline", "kind": "run", "workload": "r", "repeat": 0, "pair": 0}
    runs = [{**run, "slot": name, "order": ["baseline"]} for name in names]
    monkeypatch.setattr("tests.support.sealed.SLOTS", [*SLOTS, *runs])
    home = with_receipt(tmp_path / "home", {"baseline/solo/w/r1/1": "0" * 64, "baseline/run/r/s45/1/2": "0" * 64})
    assert "before a receipt of baseline/run/r/s46 was named" in texts(home, "order")
    rules = {"extension": {"seeds": [46]}, "recipes": [{"name": "r"}]}
    home.edit("protocol.json", lambda value: value.update(convergence=rules))
    assert texts(home, "order") == ""


# --- closing ----------------------------------------------------------------------------------------------------------


def test_a_closed_home_is_chained_and_with_its_head_anchored(closed: tuple[SealedHome, str]) -> None:
    home, line = closed
    verification = verified(home)
    assert state(verification, "closing") is State.INTACT
    assert verification.head_line == line
    assert verification.tier is Tier.CHAINED
    for given in (line, line.split()[2], line.split()[2].upper(), f"  {line}\n"):
        assert verified(home, head=given).tier is Tier.ANCHORED, given


def test_an_open_home_is_no_more_than_consistent_in_itself(tmp_path: Path) -> None:
    home = SealedHome(tmp_path / "home")
    home.freeze()
    home.write_ledger()
    verification = verified(home)
    assert state(verification, "closing") is State.INCOMPLETE
    assert verification.tier is Tier.SELF_CONSISTENT
    assert verification.exit_code(with_verdict=False) == 0
    assert verification.exit_code(with_verdict=True) == 4


FILES: dict[str, tuple[Damage, str]] = {
    "changed": (
        lambda home: home.write("frozen/baseline/changes.patch", b"x"),
        "frozen/baseline/changes.patch: changed after",
    ),
    "removed": (
        lambda home: (home.root / "frozen/harness/inner/part.py").unlink(),
        "frozen/harness/inner/part.py: is not there",
    ),
    "added": (
        lambda home: home.write("accounting/1.txt", b""),
        "accounting/1.txt: is no file of the campaign as it was closed",
    ),
    "added evidence": (
        lambda home: home.write("evaluations/c1/evidence/pairs.csv", b""),
        "evidence/pairs.csv: is no file of",
    ),
    "a link": (
        lambda home: link(home.root / "frozen/campaign.toml"),
        "frozen/campaign.toml: is of another kind",
    ),
    "a pipe": (lambda home: os.mkfifo(home.root / "pipe"), "pipe: is no file of"),
    "the list": (lambda home: home.edit("seal.json", lambda value: value["files"].pop()), "seal.json: not the list"),
    "no list": (lambda home: (home.root / "seal.json").unlink(), "seal.json: is not there"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_held_to_the_list_of_the_closing(home: SealedHome, name: str) -> None:
    damage, what = FILES[name]
    damage(home)
    assert what in texts(home, "closing")


@pytest.mark.parametrize(
    "path",
    [
        "ledger.lock",
        "ledger.torn.1",
        "campaign.sqlite",
        "campaign.sqlite-journal",
        ".campaign.sqlite.rebuild",
        "transport/x/request.json",
        "attempts/.x.1.tmp",
        "attempts/.1.tmp/inside",
    ],
)
def test_what_the_list_leaves_out_may_come_and_go(home: SealedHome, path: str) -> None:
    home.write(path, b"")
    assert texts(home, "closing") == ""


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda value: value["files"].append(value["files"][0]), "stands twice"),
        (lambda value: value.update(format="seal/2"), "'seal/2', which this verifier does not know"),
        (lambda value: value.update(campaign="other"), "campaign: is "),
        (lambda value: value.update(manifest_sha256="0" * 64), "manifest_sha256: is "),
        (lambda value: value["files"][0].update(path="../x"), "leads elsewhere"),
        (lambda value: value["files"][0].update(type="d"), "type: is 'd'"),
        (lambda value: value.update(more=1), "unknown field 'more'"),
    ],
    ids=["twice", "format", "campaign", "manifest", "path", "type", "field"],
)
def test_a_list_that_cannot_be_one_is_a_finding_although_the_ledger_names_it(
    home: SealedHome, change: Callable[[Any], object], what: str
) -> None:
    home.edit("seal.json", change)
    home.acts[2][1]["seal_sha256"] = sha256((home.root / "seal.json").read_bytes())
    home.write_ledger()
    assert what in texts(home, "closing")


def test_attempts_receipts_and_allocations_are_counted_once_each(home: SealedHome) -> None:
    closed = home.acts.pop()
    run, solo = "baseline/run/r/s45", "baseline/solo/w/r1"
    tries = [(run, 1), (run, 2), (solo, None)]
    allocations = [
        {
            "allocation": f"a{number}",
            "plan_sha256": "0" * 64,
            "attempts": [{"slot": slot, "attempt": 1, "updates": 0, "segment": segment}],
        }
        for number, (slot, segment) in enumerate(tries)
    ]
    receipts = {f"{run}/1/1": "0" * 64, f"{solo}/1": "1" * 64}
    home.acts += [
        ("intent", {"submission": "key", "cluster": "local", "allocations": allocations}),
        ("sealed", {"receipts": dict([*receipts.items()][:1])}),
        ("collected", {"receipts": receipts}),
        closed,
    ]
    right = {"attempts": 2, "receipts": 2, "allocations": 3}
    closed[1]["counts"].update(right)
    home.write_ledger()
    assert texts(home, "closing") == ""
    for name, number in right.items():
        closed[1]["counts"].update({**right, name: number + 1})
        home.write_ledger()
        assert f"counts.{name}: is {number + 1}, counting again says {number}" in texts(home, "closing")


def test_a_report_after_closing_tells_of_its_own_files_and_of_no_others(home: SealedHome) -> None:
    folder = f"evaluations/{home.candidate}"
    for name in ("verdict", "provenance"):
        home.write(f"{folder}/{name}.json", name.encode())
    home.write(f"{folder}/report/report.html", b"page")
    home.write(f"{folder}/evidence/pairs.csv", b"")
    assert texts(home, "closing").count("added") == 4
    files = {"report.html": sha256(b"page")}
    home.acts.append(("reported", {**REPORT, "candidate": home.candidate, "outcome": "pass", "files": files}))
    home.write_ledger()
    assert texts(home, "closing") == ""
    home.write(f"{folder}/report/more.csv", b"")
    home.write(f"{folder}/report/report.html", b"egap")
    (home.root / folder / "verdict.json").unlink()
    said = texts(home, "closing")
    assert f"{folder}/report/more.csv: is no file of" in said
    assert f"{folder}/report/report.html: changed after it was listed" in said
    assert f"{folder}/verdict.json: is not there" in said


def test_a_report_after_closing_may_have_other_files_than_the_one_before(tmp_path: Path) -> None:
    home = SealedHome(tmp_path / "home")
    home.freeze()
    home.freeze_candidate()
    folder = f"evaluations/{home.candidate}"
    for name in ("verdict.json", "provenance.json", "report/old.csv", "report/report.html"):
        home.write(f"{folder}/{name}", name.partition(".")[0].encode())
    home.close()
    files = {"report.html": sha256(b"page")}
    home.acts.append(("reported", {**REPORT, "candidate": home.candidate, "outcome": "pass", "files": files}))
    home.write_ledger()
    home.write(f"{folder}/report/report.html", b"page")
    assert f"{folder}/report/old.csv: is no file of" in texts(home, "closing")
    (home.root / folder / "report/old.csv").unlink()
    assert texts(home, "closing") == ""


def test_a_list_without_an_act_is_what_a_killed_closing_leaves(home: SealedHome) -> None:
    home.acts.pop()
    home.write_ledger()
    assert {one.state for one in findings(home, "closing")} == {State.INCOMPLETE}
    assert {one.where for one in findings(home, "closing")} == {"seal.json", "ledger.jsonl"}


def test_acts_after_closing_are_said_to_be_covered_by_no_head_line(closed: tuple[SealedHome, str]) -> None:
    home, line = closed
    home.acts.append(("unlocked", {"owner": {}, "reason": "x"}))
    home.write_ledger()
    verification = verified(home, head=line)
    (remarks,) = [one.remarks for one in verification.checks.made if one.name == "closing"]
    assert "1 acts after it, which no head line covers: unlocked" in remarks
    assert verification.tier is Tier.ANCHORED


# --- the head ---------------------------------------------------------------------------------------------------------


def test_a_shortened_or_rewritten_home_does_not_have_the_head_that_was_kept(closed: tuple[SealedHome, str]) -> None:
    home, line = closed
    home.acts[0][1]["note"] = "rewritten"
    home.write_ledger()
    assert texts(home, "ledger") == ""
    assert texts(home, "closing") == ""
    assert verified(home).tier is Tier.CHAINED  # as good as it gets without an anchor
    assert "this is another campaign, or it was rewritten" in texts(home, "head", head=line)
    home.acts.pop()
    home.write_ledger()
    assert "lines were removed or rewritten" in texts(home, "head", head=line)


def test_a_head_with_other_counts_than_the_campaigns_is_found(closed: tuple[SealedHome, str]) -> None:
    home, line = closed
    assert "its head line is" in texts(home, "head", head=line.replace("slots=4", "slots=3"))


def test_the_digest_of_another_line_anchors_nothing(home: SealedHome) -> None:
    verification = verified(home, head=sha256(home.lines[0]))
    assert state(verification, "head") is State.NOT_CHECKED
    assert verification.tier is Tier.CHAINED


@pytest.mark.parametrize("text", ["", "0" * 63, "x" * 64, "campaign-head/2 a " + "0" * 64, "campaign-head/1 a"])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a head"):
        parse_head(text)


# --- signatures -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = tmp_path_factory.mktemp("key") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key


def signature(key: Path, folder: Path, line: str, *, namespace: str = "campaign-head", by: str = "a@b") -> Signature:
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(key)]
    done = subprocess.run(command, input=f"{line}\n".encode(), capture_output=True, check=True)
    (folder / "head.sig").write_bytes(done.stdout)
    (folder / "signers").write_text(f"a@b {key.with_suffix('.pub').read_text()}")
    return Signature(file=folder / "head.sig", allowed_signers=folder / "signers", identity=by)


def test_a_signature_of_the_head_line_anchors_it(closed: tuple[SealedHome, str], key: Path, tmp_path: Path) -> None:
    home, line = closed
    signed = signature(key, tmp_path, line)
    assert verified(home, signature=signed).tier is Tier.ANCHORED
    home.acts[0][1]["note"] = "rewritten"
    home.write_ledger()
    assert "does not sign the head line of this ledger as a@b" in texts(home, "signature", signature=signed)
    home.acts.pop()
    home.write_ledger()
    assert "this one is not closed" in texts(home, "signature", signature=signed)


@pytest.mark.parametrize(
    ("end", "how"),
    [("", {"namespace": "file"}), (" ", {}), ("", {"by": "c@d"})],
    ids=["for something else", "of another line", "by somebody else"],
)
def test_a_signature_for_something_else_or_by_somebody_else_is_none(
    closed: tuple[SealedHome, str], key: Path, tmp_path: Path, end: str, how: dict[str, str]
) -> None:
    home, line = closed
    signed = signature(key, tmp_path, line + end, **how)
    assert f"does not sign the head line of this ledger as {signed.identity}" in texts(
        home, "signature", signature=signed
    )
    assert verified(home, signature=signed).tier is Tier.NONE


def test_a_signature_that_nobody_can_check_here_raises_no_tier(
    closed: tuple[SealedHome, str], key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, line = closed
    signed = signature(key, tmp_path, line)
    monkeypatch.setenv("PATH", "/nowhere")
    verification = verified(home, signature=signed)
    assert state(verification, "signature") is State.NOT_CHECKED
    assert verification.tier is Tier.CHAINED


# --- what nobody thought of -------------------------------------------------------------------------------------------


def test_a_check_that_fails_is_a_finding_and_the_others_are_made(
    home: SealedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("odd")

    monkeypatch.setattr("campaign.verifier.closing._read_seal", fail)
    (home.root / "frozen/harness/inner/part.py").unlink()
    assert "this check came to no end: KeyError: 'odd'" in texts(home, "closing")
    assert texts(home, "frozen") != ""


def test_without_manifest_protocol_and_ledger_nothing_is_held_to_them(home: SealedHome) -> None:
    (home.root / "manifest.json").unlink()
    verification = verified(home)
    assert state(verification, "matrix") is State.NOT_CHECKED
    assert verification.state is State.TAMPERED
    assert verification.exit_code(with_verdict=True) == 5
