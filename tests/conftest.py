"""What all tests share: golden files, and property tests that a busy machine cannot fail."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from campaign.freezing.reachability import check
from campaign.judging.evaluation import run_program_often
from tests.support.remembering import FOLDER, remembering
from tests.support.sharing import Sharing, order_of
from tests.support.spent import Spending

Golden = Callable[[Path, bytes], None]

# How long one example takes says nothing here, and a red test should point at the change that made it red.
settings.register_profile("campaign", deadline=None, derandomize=True)
settings.load_profile("campaign")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")
    parser.addoption("--spent", type=int, default=0, metavar="N", help="print what the N dearest files took")


def pytest_configure(config: pytest.Config) -> None:
    if most := config.getoption("--spent"):
        config.pluginmanager.register(Spending(most))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Sharing:
    config.option.loadscopereorder = False  # the order is that of the next function
    return Sharing(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("alone") and "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail("this test is marked alone, and others run beside it: see the Makefile")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: order_of(item.nodeid))


@pytest.fixture(scope="session", autouse=True)
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Path]]:
    """Keep the registry of freezes of whoever runs the tests out of them."""
    folder, numbers = tmp_path_factory.mktemp("registries"), itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAMPAIGN_REGISTRY", str(folder / "shared.jsonl"))
        yield lambda: folder / f"{next(numbers)}.jsonl"


@pytest.fixture(autouse=True)
def registry(registries: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a registry of its own, which is not there yet."""
    path = registries()
    monkeypatch.setenv("CAMPAIGN_REGISTRY", str(path))
    return path


@pytest.fixture(scope="session", autouse=True)
def remembered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let every freeze of the same protocol by the same program judge the same made-up evidence once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(tmp_path_factory.mktemp("answers")))
        patch.setattr(check, "run_program_often", remembering(run_program_often))
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare bytes with a golden file; ``make golden`` is the only thing that writes one."""

    def compare(path: Path, data: bytes) -> None:
        if request.config.getoption("--update-golden"):
            path.write_bytes(data)
            return
        assert path.is_file(), f"{path} is missing: run make golden"
        assert data == path.read_bytes(), f"{path} is not up to date: run make golden and look at the difference"

    return compare
