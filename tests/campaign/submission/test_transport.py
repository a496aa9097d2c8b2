"""What submitit is given, and the very script that it makes of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.errors import StateError
from campaign.paths import HomePaths
from campaign.submission import child
from campaign.submission.transport import (
    Request,
    SubmititTransport,
    job_environment,
    local_parameters,
    slurm_parameters,
)
from tests.support.jobs import RESOURCES

TABLE = RESOURCES["slurm"]


def test_requeue_is_off_and_no_foreign_wckey_is_sent() -> None:
    parameters = slurm_parameters(TABLE, "k")
    assert parameters["additional_parameters"]["no-requeue"] is True
    assert parameters["wckey"] is None
    assert slurm_parameters({**TABLE, "wckey": "own"}, "k")["wckey"] == "own"
    assert (parameters["comment"], parameters["job_name"]) == ("k", "k")


def test_the_frozen_table_reaches_submitit() -> None:
    table = {**TABLE, "partition": "gpu", "gres": "gpu:2", "mem_gb": 40, "exclusive": True, "reservation": "r"}
    parameters = slurm_parameters({**table, "setup": ["module load cuda"], "exclude": "n9"}, "k")
    assert (parameters["partition"], parameters["gres"], parameters["mem"]) == ("gpu", "gpu:2", "40GB")
    assert (parameters["exclusive"], parameters["exclude"]) == (True, "n9")
    assert parameters["additional_parameters"]["reservation"] == "r"
    assert parameters["setup"] == ["export PYTHONSAFEPATH=1", "module load cuda"]


@pytest.mark.parametrize(("minutes", "delay_s"), [(1, 15), (4, 60), (6, 90), (600, 90)])
def test_a_job_is_told_to_stop_well_before_its_limit(minutes: int, delay_s: int) -> None:
    assert slurm_parameters({**TABLE, "minutes": minutes}, "k")["signal_delay_s"] == delay_s
    assert local_parameters({"minutes": minutes}, device="cpu", visible="")["signal_delay_s"] == delay_s


def test_a_local_job_gets_the_first_visible_gpu_only_if_it_needs_one() -> None:
    assert "gpus_per_node" not in local_parameters({"minutes": 5}, device="cpu", visible="3")
    chosen = local_parameters({"minutes": 5}, device="cuda", visible="3,4")
    assert (chosen["gpus_per_node"], chosen["visible_gpus"]) == (1, [3])
    assert local_parameters({"minutes": 5}, device="cuda", visible="")["visible_gpus"] == [0]
    with pytest.raises(StateError):
        local_parameters({"minutes": 5}, device="cuda", visible="GPU-8f2e")


def test_a_sides_own_variables_reach_the_job() -> None:
    kept = job_environment({"LD_LIBRARY_PATH": "/opt", "SECRET": "x", "HOME": "/h"}, ["LD_LIBRARY_PATH"])
    assert kept == {"LD_LIBRARY_PATH": "/opt", "HOME": "/h", "PYTHONSAFEPATH": "1"}


@pytest.mark.skipif(shutil.which("srun") is None, reason="submitit makes no script where srun is not installed")
def test_the_script_is_submitits_own_and_shown_without_writing(tmp_path: Path) -> None:
    transport = SubmititTransport(paths=HomePaths(tmp_path), environment=job_environment({"PATH": "/usr/bin:/bin"}, []))
    request = Request(
        cluster="slurm",
        folder=str(tmp_path / "it's here"),
        minutes=5,
        parameters=slurm_parameters(TABLE, "campaign-demo-0123"),
        payloads=(("/bin/true",), ("/bin/true",), ("/bin/true",)),
    )
    script = transport.show(request)
    assert "#SBATCH --array=0-2%3\n" in script
    assert "#SBATCH --no-requeue\n" in script
    assert "#SBATCH --comment=campaign-demo-0123\n" in script
    assert "wckey" not in script
    assert script.index("export PYTHONSAFEPATH=1") < script.index("srun")
    assert "submitit.core" not in script
    assert list(tmp_path.iterdir()) == []


def test_what_the_batch_script_runs_is_the_payload_of_its_place_in_the_array(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    payloads = [[sys.executable, "-c", "import sys; print(sys.argv[1:])", number, "a 'b' $HOME"] for number in "01"]
    child._write_commands({"folder": str(folder), "payloads": payloads})
    _, command = child._slurm({"cluster": "slurm", "folder": str(folder), "parameters": {}, "payloads": payloads})

    def run(environment: dict[str, str]) -> str:
        done = subprocess.run(["sh", "-c", command], env=environment, check=True, capture_output=True, text=True)
        return done.stdout

    assert run({"SLURM_ARRAY_TASK_ID": "1"}) == str(["1", "a 'b' $HOME"]) + "\n"
    assert run({}) == str(["0", "a 'b' $HOME"]) + "\n"
    assert sorted(path.name for path in (folder / "commands").iterdir()) == ["0.sh", "1.sh"]
