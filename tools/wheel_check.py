"""Build the wheel, check what it holds, install it alone in a fresh environment and render a report elsewhere.

The report is rendered from the evidence of a campaign home (default build/demo), copied to a temporary folder.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOP_LEVEL = ("acceptance", "campaign", "jobs", "reports")


def build(into: Path) -> Path:
    """Build the wheel and return its path."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into), str(ROOT)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (wheel,) = into.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """Refuse a wheel with other top-level packages than ours, or without one of their modules or the templates."""
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    if top != set(TOP_LEVEL):
        raise SystemExit(f"the wheel installs {sorted(top)}, not {sorted(TOP_LEVEL)}")
    modules = {str(path.relative_to(ROOT)) for package in TOP_LEVEL for path in (ROOT / package).rglob("*.py")}
    if modules - set(names):
        raise SystemExit(f"the wheel lacks modules: {sorted(modules - set(names))}")
    templates = {str(path.relative_to(ROOT)) for path in (ROOT / "templates").rglob("*") if path.is_file()}
    absent = sorted(name for name in templates if f"reports/{name}" not in names)
    if absent:
        raise SystemExit(f"the wheel lacks templates: {absent}")
    checker = Path(sys.executable).with_name("check-wheel-contents")
    # Its own rule W009 refuses several top-level packages, which is what this project installs on purpose.
    subprocess.run([checker, "--ignore", "W009", "--toplevel", ",".join(TOP_LEVEL), str(wheel)], check=True)


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel and its locked dependencies in a fresh environment; return the campaign program."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "requirements.lock"), str(wheel)],
        check=True,
    )
    return folder / "bin" / "campaign"


def main() -> int:
    """Run all checks; exit 0 if they hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=ROOT / "build" / "demo")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        wheel = build(work / "dist")
        check_contents(wheel)
        program = install(wheel, work / "venv")
        home, elsewhere = work / "home", work / "elsewhere"
        shutil.copytree(options.home, home, symlinks=True)
        shutil.rmtree(home / "evaluations", ignore_errors=True)
        elsewhere.mkdir()
        subprocess.run([program, "report", "--home", str(home), "--exit-zero"], check=True, cwd=elsewhere)
        (report,) = home.glob("evaluations/*/report/report.html")
        print(f"{wheel.name}: the installed wheel rendered {report.stat().st_size} bytes from another folder")
        subprocess.run([program, "init", str(work / "fresh")], check=True, cwd=elsewhere)
        subprocess.run([program, "plan", str(work / "fresh" / "campaign.toml")], check=True, cwd=elsewhere)
    return 0


if __name__ == "__main__":
    sys.exit(main())
