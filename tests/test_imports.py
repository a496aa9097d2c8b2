from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("acceptance", "campaign", "jobs", "reports")
ALLOWED = {
    "acceptance": {"acceptance"},
    "jobs": set[str](),
    "reports": {"reports", "acceptance.formats"},
    "campaign": {"campaign", "acceptance.formats", "reports"},
}
"""Which of our modules each package may import by absolute name; jobs imports itself by relative name only."""
PARTS = {
    "": set[str](),
    "common": set[str](),
    "processes": {"common"},
    "tensors": {"common", "processes"},
    "worker": {"common", "processes", "tensors"},
    "measurement": {"common", "processes"},
    "cases": {"common", "processes", "tensors", "measurement"},
    "runs": {"common", "processes", "measurement"},
    "allocation": {"common", "processes", "tensors", "measurement", "cases", "runs"},
}
"""Which other parts each part of the harness may import; "" is what stands beside them, such as launch.py."""
HEAVY = ("torch", "pandas", "scipy", "matplotlib", "numpy", "submitit", "sqlalchemy")
DRIVER_ONLY = ("click", "msgspec", "pydantic", "sqlalchemy", "submitit")


def imported_modules(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the absolute name of every import and whether it stands at module level."""
    tree = ast.parse(path.read_bytes())
    top = set(ast.iter_child_nodes(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module]
            if node.module in OURS:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name, node in top) for name in names)


def imported_parts(path: Path) -> Iterator[str]:
    """Yield the part of the harness that each relative import in one of its modules reaches into."""
    package = path.relative_to(ROOT / "jobs").parts[:-1]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.level:
            up = node.level - 1
            assert up <= len(package), f"{path} imports from outside of the harness"
            below = (*package[: len(package) - up], *(node.module.split(".") if node.module else ()))
            yield from below[:1] or (alias.name for alias in node.names)


def sources(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found, package
    return found


def is_allowed(name: str, allowed: set[str]) -> bool:
    return any(name == entry or name.startswith(f"{entry}.") for entry in allowed)


@pytest.mark.parametrize("package", OURS)
def test_no_package_imports_another_of_ours_but_along_the_arrows(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(package)
        for name, _ in imported_modules(path)
        if name.split(".")[0] in OURS and not is_allowed(name, ALLOWED[package])
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["acceptance", "jobs", "reports"])
def test_only_the_driver_uses_the_drivers_libraries(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(package)
        for name, _ in imported_modules(path)
        if name.split(".")[0] in DRIVER_ONLY
    ]
    assert wrong == []


def test_acceptance_imports_nothing_but_the_standard_library_and_scipy() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources("acceptance")
        for name, _ in imported_modules(path)
        if name.split(".")[0] not in {*sys.stdlib_module_names, "acceptance", "scipy"}
    ]
    assert wrong == []


def test_the_verifier_imports_nothing_but_the_standard_library_and_itself() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources("campaign/verifier")
        for name, _ in imported_modules(path)
        if name.split(".")[0] not in sys.stdlib_module_names
    ]
    outside = [
        f"{path.relative_to(ROOT)}: {'.' * node.level}{node.module or ''}"
        for path in sources("campaign/verifier")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and node.level > len(path.relative_to(ROOT / "campaign" / "verifier").parts)
    ]
    assert wrong + outside == []


def test_jobs_imports_nothing_but_the_standard_library_at_module_level() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources("jobs")
        for name, at_top in imported_modules(path)
        if at_top and name.split(".")[0] not in sys.stdlib_module_names
    ]
    assert wrong == []


def test_the_parts_of_the_harness_are_those_that_have_rules() -> None:
    assert {path.relative_to(ROOT / "jobs").parent.as_posix() for path in sources("jobs")} == {".", *PARTS} - {""}


@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_the_harness_imports_another_but_along_the_arrows(part: str) -> None:
    found = sorted((ROOT / "jobs" / part).glob("*.py"))
    assert found
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in found
        for name in imported_parts(path)
        if name not in {part, *PARTS[part]}
    ]
    assert wrong == []


def test_the_drivers_library_never_imports_its_command_line() -> None:
    library = [path for path in sources("campaign") if "cli" not in path.relative_to(ROOT / "campaign").parts]
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in library
        for name, _ in imported_modules(path)
        if name.split(".")[0] == "click" or is_allowed(name, {"campaign.cli"})
    ]
    assert wrong == []


def test_the_driver_never_imports_torch() -> None:
    wrong = [path for path in sources("campaign") if any(n.split(".")[0] == "torch" for n, _ in imported_modules(path))]
    assert wrong == []


@pytest.mark.parametrize("module", ["campaign.cli.main", "campaign.cli.status", "campaign.cli.show"])
def test_start_up_loads_no_heavy_library(module: str) -> None:
    slow = (*HEAVY, "pydantic")
    code = f"import sys, {module}; print([name for name in {slow!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_example_knows_nothing_of_ours() -> None:
    found = sorted((ROOT / "examples" / "tinylm").rglob("*.py"))
    assert found
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in found
        for name, _ in imported_modules(path)
        if name.split(".")[0] in OURS
    ]
    assert wrong == []
