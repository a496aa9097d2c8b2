"""A small campaign to freeze: a source tree, a configuration, the real acceptance program and a tiny harness."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import acceptance
from campaign import verifier
from campaign.config.load import load_config
from campaign.config.model import Config
from campaign.freezing.freeze import Result, freeze_baseline
from campaign.freezing.freeze_candidate import freeze_candidate
from campaign.freezing.programs import Programs
from campaign.paths import HomePaths
from jobs.processes import installed
from tests.support.git import write_files

AT = 1_700_000_000.0

CONFIG = """\
name = "small"
baseline_first = false

[baseline]
source = "source"
adapter = "adapter:native"
python = "bin/python"
environment = { PLAYS = "${data.plays}" }

[candidate]
source = "source"
adapter = "adapter:fast"
python = "bin/python"

[data.plays]
path = "plays"

[matrix]
name = "{mode}-b{batch}"
axes.mode = ["sync", "packed"]
axes.batch = [4, 8]

[[category]]
name = "sync"
mode = "sync"
"""

INTERPRETER = """\
#!/bin/sh
echo '{"python": "3.11.7", "executable": "/opt/python", "distributions": {"torch": "2.13"}, "installed": {}, \
"identity": {"path": "/opt/python", "version": "3.11.7", "sha256": "1f", "environment_sha256": "2f"}}'
"""
"""Says at once what a real interpreter takes a while to say."""


def clock() -> float:
    """Return a fixed time."""
    return AT


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where everything lies."""

    root: Path
    home: HomePaths
    programs: Programs

    @property
    def source(self) -> Path:
        """The source tree of both sides."""
        return self.root / "source"

    @property
    def config_path(self) -> Path:
        """The configuration."""
        return self.root / "campaign.toml"

    def config(self, edit: Callable[[str], str] = lambda text: text) -> Config:
        """Write and read the configuration, changed."""
        self.config_path.write_text(edit(CONFIG), encoding="utf-8")
        return load_config(self.config_path)

    def freeze(self, edit: Callable[[str], str] = lambda text: text) -> Result:
        """Freeze the baseline."""
        return freeze_baseline(self.config(edit), self.home, programs=self.programs, environment={}, clock=clock)

    def freeze_candidate(self, edit: Callable[[str], str] = lambda text: text, source: Path | None = None) -> Result:
        """Freeze a candidate."""
        return freeze_candidate(self.config(edit), self.home, source=source, clock=clock)


def make_setting(root: Path) -> Setting:
    """Write everything that a freeze needs below a folder."""
    write_files(
        root,
        {
            "source/adapter.py": "def native(config, *, seed, device): ...\n",
            "bin/python": INTERPRETER,
            "source/model/__init__.py": "",
            "plays/hamlet.txt": "To be\n",
            "programs/acceptance/__pycache__/__main__.cpython-311.pyc": b"planted",
            "programs/acceptance/data.json": "{}",
            "programs/jobs/__init__.py": "",
            "programs/jobs/launch.py": "",
            "programs/jobs/processes/installed.py": Path(installed.__file__).read_text(encoding="utf-8"),
            "programs/jobs/sub/part.py": "x = 1\n",
        },
    )
    (root / "bin" / "python").chmod(0o755)
    for source in Path(acceptance.__file__).parent.glob("*.py"):
        shutil.copy(source, root / "programs" / "acceptance")
    programs = Programs(
        acceptance=root / "programs" / "acceptance",
        harness=root / "programs" / "jobs",
        verifier=Path(verifier.__file__).parent,
    )
    return Setting(root=root, home=HomePaths(root / "home"), programs=programs)
