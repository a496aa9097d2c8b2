"""What a person says is recorded for whoever audits the campaign, so it must hold no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.cli.main import main
from tests.support.home import freeze

TOKEN = "ghp_0123456789abcdefABCDEF0123456789abcd"  # noqa: S105 - nobody's


@pytest.mark.parametrize(
    "arguments",
    [
        ("cancel", "--yes", "--reason"),
        ("unlock", "--reason"),
        ("prune", "--yes", "--reason"),
        ("seal", "--data-changed"),
        ("decide", "--default", "baseline", "--by", "A. Person", "--reason"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_secret_is_neither_recorded_nor_repeated(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = freeze(tmp_path / "home").paths
    assert main([*arguments, f"the token is {TOKEN}", "--home", str(home.root)]) == 2
    said = capsys.readouterr()
    assert f"{arguments[-1]} holds what looks like" in said.err
    assert TOKEN not in said.err + said.out
    assert TOKEN.encode() not in home.ledger.read_bytes()


def test_a_reason_to_freeze_all_the_same_is_no_secret_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is looked at before anything is read or written."""
    assert main(["freeze", str(tmp_path / "campaign.toml"), "--waive-power", TOKEN]) == 2
    said = capsys.readouterr().err
    assert "--waive-power holds what looks like" in said
    assert TOKEN not in said
