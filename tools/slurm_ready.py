"""Say in one line whether the real-Slurm tests will run; install the Debian packages where that is possible."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.slurm.cluster import install_packages, missing_programs, why_unavailable


def main() -> int:
    """Install what is missing, if this is a Debian machine and we are root."""
    if missing_programs() and shutil.which("apt-get"):
        try:
            install_packages()
        except (subprocess.CalledProcessError, PermissionError) as error:
            print(f"Slurm tests: the packages could not be installed ({error})")
    reason = why_unavailable()
    print(f"Slurm tests: skipped, {reason}" if reason else "Slurm tests: run on a cluster booted here")
    return 0


if __name__ == "__main__":
    sys.exit(main())
