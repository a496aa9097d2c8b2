from __future__ import annotations

from pathlib import Path

import pytest

from campaign.verifier import text
from campaign.verifier.facts import Options
from campaign.verifier.verify import EXIT_MISSED, EXIT_TAMPERED, EXIT_WANTING, verifying
from tests.support.sealed import closed_home

ASCII = (0x00, 0x1F)
LATIN = (0x7F, 0x9F)
SURROGATES = (0xD800, 0xDFFF)
DIRECTIONS = (0x2028, 0x202E)
ISOLATES = (0x2066, 0x2069)


@pytest.mark.parametrize(("first", "last"), [ASCII, LATIN, SURROGATES, DIRECTIONS, ISOLATES])
def test_what_a_terminal_obeys_or_cannot_show_is_written_out(first: int, last: int) -> None:
    for code in range(first, last + 1):
        assert text.plain(f"a{chr(code)}b") == f"a\\x{code:02x}b"


def test_everything_else_is_shown_as_it_is() -> None:
    assert text.plain("a b~\xa0\xe9 \u2027\u202f\u4e2d") == "a b~\xa0\xe9 \u2027\u202f\u4e2d"


def test_a_finding_that_comes_after_the_verdict_takes_it_back(tmp_path: Path) -> None:
    home, _ = closed_home(tmp_path / "home")
    with verifying(home.root, Options(execute=False)) as verification:
        verification.facts.verdicts[home.candidate] = b'{"outcome": "pass", "gates": []}'
        assert "verdict on" in "\n".join(text.lines(verification))
        assert verification.exit_code(with_verdict=True) == 0
        with verification.checks.begin("late", "what is looked at last") as check:
            check.tampered("somewhere", "it is not what it was")
        assert "verdict on" not in "\n".join(text.lines(verification))
        assert text.as_json(verification)["verdicts"] == {}
        assert text.as_json(verification)["tier"] == ""
        assert verification.exit_code(with_verdict=True) == verification.exit_code(with_verdict=False) == EXIT_TAMPERED


def test_a_reported_verdict_that_does_not_come_again_is_said_and_never_exits_with_zero(tmp_path: Path) -> None:
    home, _ = closed_home(tmp_path / "home")
    with verifying(home.root, Options(execute=False)) as verification:
        assert (verification.exit_code(with_verdict=False), str(verification.tier)) == (0, "chained")
        verification.facts.underived.append("c0")
        assert str(verification.tier) == "self-consistent"
        said = "\n".join(text.lines(verification))
        assert "verdict on c0: NOT DERIVED AGAIN, although one was reported" in said
        assert "verdict: none was derived" not in said
        assert text.as_json(verification)["underived"] == ["c0"]
        assert verification.exit_code(with_verdict=False) == verification.exit_code(with_verdict=True) == EXIT_WANTING
        # Of another candidate: what the last one's verdict says counts, where that is worse.
        verification.facts.verdicts[home.candidate] = b'{"outcome": "pass", "gates": []}'
        assert verification.exit_code(with_verdict=True) == EXIT_WANTING
        missed = b'{"outcome": "not_qualified", "gates": [{"finding": "missed"}]}'
        verification.facts.verdicts[home.candidate] = missed
        assert verification.exit_code(with_verdict=True) == EXIT_MISSED
        assert verification.exit_code(with_verdict=False) == EXIT_WANTING
