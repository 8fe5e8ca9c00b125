"""`lm experiment --cluster`: the runs and the table of this machine, made on Ray. Skipped where there is no Ray."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from corpora import write_predictable_tokens

from lm.commands.cli import main
from lm.training import checkpoint

ray = pytest.importorskip("ray")
pytestmark = [  # what Ray's own modules warn of
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SETTINGS = """
[model]
vocab_size = 24
context_length = 8
num_layers = 1
d_model = 16
num_heads = 2
d_ff = 32
[train]
steps = 30
batch_size = 4
learning_rate = 1e-2
warmup_steps = 2
threads = 1
eval_every = 0
checkpoint_every = 0
"""


def environment():
    """What Ray's processes need: these packages; and as much of a busy machine as others have."""
    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    return {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


@pytest.fixture(scope="module")
def cluster():
    """The address of a cluster of one node with two CPUs, which the tests of this file share."""
    from ray.cluster_utils import Cluster

    before = {name: os.environ.get(name) for name in environment()}
    os.environ.update(environment())
    node = {"num_cpus": 2, "object_store_memory": 80_000_000, "include_dashboard": False}
    try:
        made = Cluster(initialize_head=True, head_node_args=node)
    except Exception as error:  # it says no more
        pytest.skip(f"Ray does not start here: {error}")
    yield made.address
    made.shutdown()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A text that can be learned in part, and the configuration of a small model."""
    write_predictable_tokens(tmp_path)
    (tmp_path / "tiny.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(which, *more):
    return main(["experiment", which, "--preset", "tiny.toml", "--data", ".", "--quiet", *more])


def timeless(table):
    """A table without what depends on the time that it took, its columns of speed and seconds."""
    return [line.split()[:-3] for line in table.splitlines()[:4]]


def test_runs_on_a_cluster_are_those_of_this_machine(cluster, work, capsys):
    more = ["--rates", "1e-3,1e-2", "--seeds", "2"]
    assert experiment("lr-sweep", *more, "--out", "here") == 0
    alone = capsys.readouterr().out
    assert experiment("lr-sweep", *more, "--out", "there", "--cluster", cluster) == 0
    spread = capsys.readouterr().out
    assert timeless(spread) == timeless(alone)
    assert spread.splitlines()[-2] == alone.splitlines()[-2], "the finding"
    names = sorted(path.name for path in (work / "here").iterdir() if path.is_dir())
    assert len(names) > 2
    assert names == sorted(path.name for path in (work / "there").iterdir() if path.is_dir())
    for name in names:
        one, other = (checkpoint.load(work / out / name / "checkpoints") for out in ("here", "there"))
        assert all(torch.equal(weight, other.model[key]) for key, weight in one.model.items()), name
    assert (work / "there" / "report.html").exists()
    # what is finished is not run again, wherever it was run: nobody asks for the cluster
    assert experiment("lr-sweep", *more, "--out", "there", "--cluster", "127.0.0.1:1") == 0
    assert capsys.readouterr().out == spread
    assert experiment("lr-sweep", *more, "--out", "here", "--cluster", "127.0.0.1:1") == 0


def test_a_run_that_fails_is_reported_and_the_others_are_finished(cluster, work, capsys):
    more = ["--only", "silu,tied", "--seeds", "1", "--train.steps", "6", "--out", "runs", "--cluster", cluster]
    (work / "runs" / "silu-seed-0").mkdir(parents=True)
    (work / "runs" / "silu-seed-0" / "config.toml").write_text("[model]\n")
    assert experiment("ablations", *more) == 1
    said = capsys.readouterr().err
    assert said.startswith("lm: 1 of 3 runs failed, and the same command tries them again: runs/silu-seed-0 on ")
    assert said.count("\n") == 1
    assert sorted(path.parent.name for path in work.glob("runs/*/outcome.json")) == ["base-seed-0", "tied-seed-0"]
    times = {path: path.stat().st_mtime_ns for path in work.glob("runs/*/metrics.jsonl")}
    shutil.rmtree(work / "runs" / "silu-seed-0")
    assert experiment("ablations", *more) == 0
    assert "silu" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in times} == times, "what is finished is not run again"


def test_what_prevents_all_runs_is_one_sentence(cluster, work, capsys):
    more = ["--rates", "1e-3", "--seeds", "1", "--out", "runs"]
    for arguments, status, says in (
        (["--cluster", "127.0.0.1:1"], 1, "lm: no Ray cluster answers at '127.0.0.1:1'"),
        (["--cluster", cluster, "--jobs", "2"], 2, "--jobs 2 is of runs on this machine"),
        (["--cluster", cluster, "--model.d_model", "2000000"], 1, "1 of 1 runs failed"),
    ):
        assert experiment("lr-sweep", *more, *arguments) == status
        said = capsys.readouterr().err
        assert says in said
        assert said.count("\n") == 1


def test_an_experiment_that_is_stopped_saves_its_runs_and_goes_on(cluster, work):
    more = ["--rates", "1e-3,1e-2", "--seeds", "1", "--out", "runs", "--quiet", "--cluster", cluster]
    long = ["--train.steps", "20000", "--train.log_every", "100"]
    command = [sys.executable, "-m", "lm", "experiment", "lr-sweep", "--preset", "tiny.toml", "--data", "."]
    process = subprocess.Popen([*command, *more, *long], stderr=subprocess.PIPE, text=True)
    runs = [work / "runs" / f"{rate}-seed-0" for rate in ("0.001", "0.01")]
    while process.poll() is None and not all((folder / "metrics.jsonl").exists() for folder in runs):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "stopped: the same command goes on with the runs in runs" in said
    for folder in runs:
        assert checkpoint.steps(folder / "checkpoints"), "saved when it was asked to stop"
        assert not (folder / "outcome.json").exists()


@pytest.mark.soak
def test_a_node_that_is_lost_has_its_run_tried_again_where_it_was(work, monkeypatch, capsys):
    from ray.cluster_utils import Cluster

    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 80_000_000})
    nodes = [made.add_node(num_cpus=1, object_store_memory=80_000_000) for _ in range(2)]
    more = ["--rates", "1e-3,1e-2", "--seeds", "1", "--train.steps", "1500", "--train.checkpoint_every", "100"]
    command = [sys.executable, "-m", "lm", "experiment", "lr-sweep", "--preset", "tiny.toml", "--data", "."]
    there = [*command, *more, "--out", "there", "--quiet", "--cluster", made.address]
    try:
        process = subprocess.Popen(there, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        runs = [work / "there" / f"{rate}-seed-0" for rate in ("0.001", "0.01")]
        while process.poll() is None and not all(checkpoint.steps(folder / "checkpoints") for folder in runs):
            time.sleep(0.05)
        made.remove_node(nodes.pop(), allow_graceful=False)
        said, _ = process.communicate(timeout=400)
        assert process.returncode == 0, said
    finally:
        made.shutdown()
    assert experiment("lr-sweep", *more, "--out", "here") == 0
    for name in ("0.001-seed-0", "0.01-seed-0"):
        one, other = (json.loads((work / out / name / "outcome.json").read_text()) for out in ("here", "there"))
        assert one["outcome"]["loss"] == other["outcome"]["loss"]
        assert one["outcome"]["steps"] == other["outcome"]["steps"] == 1500
