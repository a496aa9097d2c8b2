"""The commands of the audit page, typed one after another by somebody who has an archive, a head line and Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign import documents, files
from campaign.paths import HomePaths
from campaign.tampering.copies import Copy
from campaign.verifier.archive import EXPORT, HOME
from tests.support.golden import LATEST, archive_of, head_of, home_of

PAGE = Path(__file__).parents[3] / "docs" / "audit.md"
SECTION = "## Checking a campaign by hand\n"
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
NUM_STEPS = 10
SAID = re.compile(r"^step \d+\n", re.MULTILINE)


def steps() -> list[str]:
    """Return the commands of the page: what is to be set first, and then those of each step."""
    section = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0]
    return ["\n".join(BLOCK.findall(part)) for part in re.split(r"^### ", section, flags=re.MULTILINE)]


def typed(archive: Path, head: str) -> list[str]:
    """Type all of it in a shell that knows nothing, whatever is found; return what each step showed."""
    folder = archive.parent
    archive.rename(folder / "golden.campaign.tar")
    (folder / "golden.head").write_text(f"{head}\n")
    python = folder / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))  # the interpreter alone, without what is installed for it
    script = "\n".join(f"echo step {number}\n{step}" for number, step in enumerate(steps()))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={"HOME": str(folder), "PATH": f"{python.parent}:/usr/bin:/bin"},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return SAID.split(done.stdout)[1:]


def packed(home: Path) -> Path:
    """Pack an unpacked campaign again; return the archive."""
    archive = home.parents[1] / "again.tar"
    subprocess.run(["tar", "-cf", str(archive), "-C", str(home.parents[1]), home.parent.name], check=True)
    return archive


def list_again(home: Path) -> None:
    """Let the listing agree with what is there."""

    def edit(listing: dict[str, Any]) -> None:
        for file in listing["files"]:
            data = (home.parent / file["path"]).read_bytes()
            file["bytes"], file["sha256"] = len(data), files.sha256_bytes(data)

    Copy(HomePaths(home)).edit_json(home.parent / EXPORT, edit)


def close_again(copy: Copy, *paths: Path, edit: Callable[[Path], None]) -> None:
    """Change files, let seal.json list what they are now, and let the ledger's last line name that list."""
    for path in paths:
        before = files.sha256_file(path)
        edit(path)
        copy.substitute(copy.paths.seal, before.encode(), files.sha256_file(path).encode())
    seal = files.sha256_file(copy.paths.seal)
    copy.edit_ledger(lambda acts: acts[-1]["data"].update(seal_sha256=seal))


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], HomePaths]:
    """Return what the steps show of the golden campaign, and the home that they unpacked."""
    folder = tmp_path_factory.mktemp("intact")
    shown = typed(archive_of(LATEST, folder), head_of(LATEST))
    return shown, HomePaths(folder / "by-hand" / f"campaign-{head_of(LATEST).split()[1]}" / HOME)


def test_every_step_of_the_page_finds_the_golden_campaign_right(intact: tuple[list[str], HomePaths]) -> None:
    shown, home = intact
    assert len(shown) == NUM_STEPS + 1
    text = "".join(shown)
    assert not re.search("DIFFERENT|FAILED|Error|WARNING|differ|EOF|No such", text), text
    protocol = documents.Protocol.read(home.protocol)
    listed = json.loads((home.root.parent / EXPORT).read_bytes())["files"]
    assert f"{len(listed)} files, none added\n[]\n" in shown[1]
    assert shown[2].splitlines()[-1].split() == [str(len(home.ledger.read_bytes().splitlines())), "closed"]
    assert shown[3].startswith("same  as the line that was kept\n")
    beside = [line for line in shown[4].splitlines() if line.startswith((">", "<"))]
    assert beside == ["> ./campaign.sqlite", "> ./ledger.jsonl", "> ./seal.json"]
    assert shown[5].count("same  ") == 8
    assert shown[6].startswith(f"same  {len(list(home.attempts.rglob('receipt.json')))} receipts\nsame  ")
    assert shown[7].startswith(f"{len(protocol.slots)} slots, each completed\n")
    compared = {line.rpartition(" ")[2] for line in shown[8].splitlines()}
    assert compared == {*protocol.headers, "identity.json"} - {"attempts.csv"}
    assert shown[9] == "0\nsame  verdict.json\n"
    assert shown[10].startswith("same  ")


def test_each_step_shows_what_it_is_there_to_find(tmp_path: Path, intact: tuple[list[str], HomePaths]) -> None:
    home = HomePaths(home_of(LATEST, tmp_path))
    copy = Copy(home)
    evaluation = home.evaluation(next(home.evaluations.iterdir()).name)
    log = next(path for path in sorted(home.attempts.rglob("*.log")) if path.stat().st_size)
    copy.edit_lines(home.ledger, lambda lines: lines.__delitem__(4))
    copy.flip(log)
    planted = {"slot": "baseline/planted", "attempt": 1, "allocation": "a99999", "ending": "completed", "files": []}
    copy.add(home.attempts / "baseline" / "planted" / "1" / "receipt.json", files.dump_json(planted))
    copy.add(home.acceptance / "extra.py")
    copy.edit_lines(evaluation.evidence / "attempts.csv", lambda lines: lines.__delitem__(1))
    copy.edit_lines(evaluation.evidence / "convergence.csv", lambda lines: lines.__delitem__(-1))
    copy.substitute(evaluation.verdict, b'"pass"', b'"PASS"')
    copy.flip(evaluation.report / "report.html")
    shown = typed(packed(home.root), head_of(LATEST))
    name = log.relative_to(home.root)
    assert f"../home/{name}: FAILED\n" in shown[1]
    assert "> ../home/attempts/baseline/planted/1/receipt.json\n" in shown[1]
    assert "DIFFERENT  line 5 does not follow the line before it\n" in shown[2]
    assert f"./{name}: FAILED\n" in shown[4]
    assert "> ./frozen/acceptance/extra.py\n" in shown[4]
    assert "DIFFERENT  frozen/acceptance " in shown[5]
    assert "DIFFERENT  [('baseline/planted/1', " in shown[6]
    assert f"{name}: FAILED\n" in shown[6]
    assert shown[7].splitlines()[0] in {slot.slot for slot in documents.Protocol.read(home.protocol).slots}
    assert "cmp: EOF on -" in shown[8]
    assert "rows of convergence.csv" not in shown[8]
    assert "differ" in shown[9]
    assert "report.html: FAILED\n" in shown[10]
    assert all(shown[step] != intact[0][step] for step in range(1, NUM_STEPS + 1) if step != 3)


def test_what_was_closed_again_is_found_by_the_head_line_and_without_it_by_what_was_forgotten(
    tmp_path: Path, intact: tuple[list[str], HomePaths]
) -> None:
    home = HomePaths(home_of(LATEST, tmp_path))
    copy, receipt = Copy(home), min(home.attempts.rglob("receipt.json"))
    close_again(copy, home.protocol, edit=lambda path: copy.substitute(path, b'"2.920"', b'"1.920"'))
    close_again(copy, receipt, edit=lambda path: copy.substitute(path, b'"at": ', b'"at": 1'))
    list_again(home.root)
    shown = typed(packed(home.root), head_of(LATEST))
    head = files.sha256_bytes(home.ledger.read_bytes().splitlines()[-1])
    assert f"DIFFERENT  as the line that was kept {head} {head_of(LATEST).split()[2]}\n" in shown[3]
    assert [step for step in (1, 2, 4) if shown[step] != intact[0][step]] == []
    assert "DIFFERENT  protocol.json " in shown[5]
    assert "DIFFERENT  [(" in shown[6]
