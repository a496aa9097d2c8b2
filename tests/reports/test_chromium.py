from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chromium import require_chromium


def test_without_chromium_browser_tests_are_skipped_but_fail_under_ci(tmp_path: Path) -> None:
    program = tmp_path / "chromium"
    with pytest.raises(pytest.skip.Exception, match="is not installed"):
        require_chromium(program, {})
    with pytest.raises(pytest.fail.Exception, match="may not be skipped"):
        require_chromium(program, {"CI": "true"})
    program.touch()
    require_chromium(program, {"CI": "true"})
