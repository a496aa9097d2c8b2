from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.common.plan import Runnable
from jobs.processes.environment import SideFolders, build_environment


def environment_of(tmp_path: Path, device: str, inherited: dict[str, str], **changes: Any) -> dict[str, str]:
    values: dict[str, Any] = {"environment": {}, "pass_environment": (), **changes}
    runnable = Runnable(
        id="baseline",
        tree=tmp_path,
        files=tmp_path,
        snapshot_sha256="",
        python="",
        adapter="a:b",
        python_path=(),
        launch=(),
        reads=(),
        **values,
    )
    folders = SideFolders(root=tmp_path)
    return build_environment(inherited, runnable, folders, device=device, threads=4, mark="m")


def test_the_allocations_devices_reach_a_side_and_no_others(tmp_path: Path) -> None:
    assert environment_of(tmp_path, "cuda", {"CUDA_VISIBLE_DEVICES": "2"})["CUDA_VISIBLE_DEVICES"] == "2"
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(tmp_path, "cuda", {})
    assert environment_of(tmp_path, "cpu", {"CUDA_VISIBLE_DEVICES": "2"})["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TRITON_CACHE_DIR", "HOME"])
@pytest.mark.parametrize("how", ["environment", "pass_environment"])
def test_what_is_alike_for_both_sides_cannot_be_set_by_one(tmp_path: Path, name: str, how: str) -> None:
    given: Any = {name: "8"} if how == "environment" else (name,)
    with pytest.raises(ValueError, match=name):
        environment_of(tmp_path, "cuda", {}, **{how: given})
