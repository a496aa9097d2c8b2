from __future__ import annotations

from jobs.allocation import machine
from jobs.common.tables import plain_text


def test_the_processor_is_named_as_it_can_stand_in_a_table() -> None:
    model = machine.find_cpu_model('processor : 0\nmodel name\t: Odd, "Quoted"  CPU @ 2.00GHz\n')
    assert plain_text(f"cpu:{model}") == "cpu:Odd_Quoted_CPU_@_2.00GHz"


def test_a_task_of_an_array_is_named_by_slurm() -> None:
    environment = {"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "2"}
    assert machine.read_job(environment)["array_job_id"] == "10"
    assert machine.read_job({**environment, "SUBMITIT_EXECUTOR": "local"})["scheduler"] == "local"
    assert machine.read_job({"SUBMITIT_LOCAL_JOB_ID": "77"})["job_id"] == "77"
