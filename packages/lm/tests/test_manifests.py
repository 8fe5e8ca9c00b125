"""The examples for Slurm and Kubernetes: the manifest against JobSet's schema, what they run against torchrun's parser.

Neither was run on a cluster: sbatch, srun and scontrol are stood in for by a few lines of shell.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

EXAMPLES = Path(__file__).parent.parent / "examples"
STAND_INS = {
    "torchrun": 'printf "%s\\0" "$@"; exit ${STATUS:-0}',
    "scontrol": """case "$*" in
        "show hostnames a[1-2]") printf "a1\\na2\\n" ;;
        "requeue 7") touch "$REQUEUED" ;;
        *) exit 1
    esac""",
    "srun": 'shift; exec "$@"',  # on one host, without its own option
}


@pytest.fixture
def run(tmp_path):
    """Runs a command with programs that stand in for Slurm's; gives what torchrun was asked for, as it reads it."""
    for name, text in STAND_INS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)

    def run(*command, **environment):
        path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
        done = subprocess.run(command, env={"PATH": path, **environment}, capture_output=True, text=True)
        assert done.returncode == int(environment.get("STATUS", 0)), done.stderr
        return get_args_parser().parse_args(done.stdout.split("\0")[:-1])

    return run


def test_the_jobset_has_the_fields_of_its_schema_and_no_others():
    yaml = pytest.importorskip("yaml")
    models = pytest.importorskip("kubeflow_trainer_api.models")
    says = yaml.safe_load((EXAMPLES / "torchrun-jobset.yaml").read_text())
    read = models.JobsetV1alpha2JobSet.from_dict(says)  # its Job and Pod with all of Kubernetes' own fields
    assert read.to_dict() == says, "a field that the schema does not have is dropped"
    says["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 2
    assert models.JobsetV1alpha2JobSet.from_dict(says).to_dict() != says


@pytest.mark.parametrize("index", [0, 1])
def test_the_jobset_runs_torchrun(run, index):
    yaml = pytest.importorskip("yaml")
    says = yaml.safe_load((EXAMPLES / "torchrun-jobset.yaml").read_text())
    (job,) = says["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    launch = run(*container["command"], JOB_COMPLETION_INDEX=str(index), POD_IP="10.0.0.7")
    hosts = job["template"]["spec"]["completions"]
    assert launch.nnodes == str(hosts) == str(job["template"]["spec"]["parallelism"])
    assert launch.nproc_per_node == str(container["resources"]["limits"]["nvidia.com/gpu"])
    name = says["metadata"]["name"]
    assert launch.rdzv_endpoint == f"{name}-{job['name']}-0-0.{name}:{container['ports'][0]['containerPort']}"
    assert launch.rdzv_conf == f"is_host={index == 0}".lower()
    assert (launch.local_addr, launch.module, launch.training_script) == ("10.0.0.7", True, "lm")
    assert launch.training_script_args[0] == "train"
    assert 100 < launch.shutdown_timeout < job["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(("node", "status", "left"), [(0, 0, 60), (1, 1, 60), (1, 1, 3600)])
def test_the_slurm_script_runs_torchrun(run, tmp_path, node, status, left):
    """A run that ends with an error is requeued if its time is nearly over."""
    slurm = {"JOB_NODELIST": "a[1-2]", "NODEID": str(node), "NNODES": "2", "JOB_ID": "7", "GPUS_ON_NODE": "4"}
    environment = {f"SLURM_{key}": value for key, value in slurm.items()} | {"SLURMD_NODENAME": f"a{node + 1}"}
    environment |= {"STATUS": str(status), "SLURM_JOB_END_TIME": str(int(time.time()) + left)}
    environment["REQUEUED"] = str(tmp_path / "requeued")
    launch = run("bash", str(EXAMPLES / "torchrun.sbatch"), "my config.toml", "--out", "run", **environment)
    assert (launch.nnodes, launch.nproc_per_node, launch.rdzv_endpoint, launch.rdzv_id) == ("2", "4", "a1:29400", "7")
    assert (launch.rdzv_conf, launch.local_addr) == (f"is_host={node == 0}".lower(), f"a{node + 1}")
    assert launch.training_script_args == ["train", "--quiet", "my config.toml", "--out", "run"]
    assert (tmp_path / "requeued").exists() == (status == 1 and left == 60)
    (signal,) = re.findall(r"--signal=TERM@(\d+)", (EXAMPLES / "torchrun.sbatch").read_text())
    assert 100 < launch.shutdown_timeout < int(signal)
