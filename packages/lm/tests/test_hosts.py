"""Runs on several hosts, as far as network namespaces are such: `torchrun --nnodes`, a dead link, a host that dies.

All but one are marked soak: each starts four processes or more that import torch.
"""

from __future__ import annotations

import sys
import time

import pytest
from hosts import address, network, torchrun
from runs import losses, metrics, write_settings

from lm.commands.cli import main
from lm.training import checkpoint


@pytest.fixture
def settings(with_ends, tmp_path):
    """Writes the configuration of a run, and gives the arguments of the command that trains by it."""

    def write(steps, timeout=60):
        every = {"eval_every": 10, "eval_tokens": 100, "checkpoint_every": 10, "collective_timeout": timeout}
        train = {"steps": steps, "warmup_steps": 3, "learning_rate": 1e-2, "batch_size": 4, "micro_batch_size": 1}
        write_settings(tmp_path / "small.toml", with_ends, **train, **every, threads=1, precision="fp32")
        return ["train", str(tmp_path / "small.toml"), "--quiet"]

    return write


def output_of(tmp_path, number):
    return (tmp_path / f"said{number}").read_text()


def wait_for_step(folder, step, hosts):
    """Waits until a run has come to a step, or its first process has ended."""
    path = folder / "metrics.jsonl"
    while hosts.started[0].poll() is None and not (path.exists() and path.read_text().count("\n") > step):
        time.sleep(0.02)


def without_torchrun(hosts, tmp_path, train):
    """Starts a process of a run on each of two hosts, as torchrun does, but watched over by nobody."""
    for number in (1, 2):
        where = {"RANK": str(number - 1), "WORLD_SIZE": "2", "MASTER_ADDR": address(1), "MASTER_PORT": "29500"}
        command = [sys.executable, "-m", "lm", *train, "--out", str(tmp_path / "run")]
        hosts.start(number, tmp_path / f"said{number}", *command, **where)


def test_two_hosts_have_the_losses_of_one_process(settings, tmp_path):
    train = settings(20)
    assert main([*train, "--out", str(tmp_path / "alone")]) == 0
    with network() as hosts:
        without_torchrun(hosts, tmp_path, train)
        assert hosts.wait() == [0, 0], output_of(tmp_path, 1)
    assert checkpoint.load(tmp_path / "run" / "checkpoints").step == 20
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "alone"), rel=2e-5)


@pytest.mark.soak
def test_a_dead_link_is_noticed_by_both_hosts_within_the_time_that_was_set(settings, tmp_path):
    with network() as hosts:
        without_torchrun(hosts, tmp_path, settings(100_000, timeout=4))
        wait_for_step(tmp_path / "run", 20, hosts)
        hosts.cut(2)
        began = time.monotonic()
        assert hosts.wait() == [1, 1], output_of(tmp_path, 1)
        assert time.monotonic() - began < 40  # four seconds, and what a busy machine takes to end two processes
    for number in (1, 2):
        words = output_of(tmp_path, number).splitlines()[-1]
        assert words.startswith(f"lm: process {number - 1} of 2 stops because another did not answer within 4 s"), words
        assert "(train.collective_timeout)" in words


@pytest.mark.soak
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_host_that_is_killed_and_started_again_goes_on_from_the_last_checkpoint(settings, tmp_path, parallel):
    train = [*settings(200), "--train.parallel", parallel, "--out"]
    assert main([*train, str(tmp_path / "alone")]) == 0
    run = tmp_path / "run"

    def start(number):
        command = [*torchrun(number, 2, "--max-restarts", "3"), "-m", "lm", *train, str(run)]
        return hosts.start(number, tmp_path / f"said{number}", *command)

    with network() as hosts:
        start(1)
        second = start(2)
        wait_for_step(run, 60, hosts)
        hosts.kill(2)
        assert second.wait(timeout=60) == -9
        reached = checkpoint.steps(run / "checkpoints")[-1]
        assert 40 <= reached < 200
        start(2)  # as an init system, Slurm or Kubernetes does
        assert hosts.wait() == [0, 0], output_of(tmp_path, 1)
    assert "stops because another ended" in output_of(tmp_path, 1)
    assert losses(run) == pytest.approx(losses(tmp_path / "alone"), rel=1e-3)
    assert [line["step"] for line in metrics(run) if "loss" in line] == list(range(1, 201))
