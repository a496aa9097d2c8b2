"""The driver and the harness, which know nothing of each other, agree on the variables that no side may set."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.config.values import RESERVED_VARIABLES
from jobs.common.plan import Runnable
from jobs.processes.environment import DECIDED, SideFolders, build_environment

IMPORTS = {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"}
"""What the driver alone refuses: the harness drops them from what it inherits."""


def make_runnable(environment: dict[str, str] | None = None, pass_environment: tuple[str, ...] = ()) -> Runnable:
    return Runnable(
        id="baseline",
        tree=Path("/tree"),
        files=Path("/files.json"),
        snapshot_sha256="0" * 64,
        python="/usr/bin/python3",
        adapter="adapter:native",
        python_path=(".",),
        environment=environment or {},
        pass_environment=pass_environment,
        launch=(),
        reads=(),
    )


FOLDERS = SideFolders(root=Path("/private"))


def test_campaign_toml_refuses_just_what_the_harness_decides() -> None:
    assert set(RESERVED_VARIABLES) - IMPORTS == set(DECIDED)
    assert len(set(DECIDED)) == len(DECIDED)
    assert not IMPORTS & set(DECIDED)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_list_holds_everything_that_the_harness_sets(device: str) -> None:
    built = build_environment(
        {"CUDA_VISIBLE_DEVICES": "3"}, make_runnable(), FOLDERS, device=device, threads=1, mark="m"
    )
    assert set(built) - {"PATH", "LANG"} <= set(DECIDED)


@pytest.mark.parametrize("name", DECIDED)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_harness_refuses_every_one_of_them(name: str, device: str) -> None:
    for runnable in (make_runnable(environment={name: "1"}), make_runnable(pass_environment=(name,))):
        with pytest.raises(ValueError, match=f"sets {name}"):
            build_environment({}, runnable, FOLDERS, device=device, threads=1, mark="m")
