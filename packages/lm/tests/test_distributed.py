"""Several processes: the losses of one, the same data in another number of them, and an end that all of them share."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import torch.multiprocessing
from processes import (
    each,
    fail_to_evaluate,
    free_port,
    join_and_leave,
    join_slowly,
    keeps_parts,
    lose_one,
    processes,
    train,
    with_another_version,
)
from runs import CONFIG, assert_same_run, environment, losses, metrics, run, some_tokens, stop_at, write_settings

import lm
from lm.commands.cli import main
from lm.config import BY_STEPS
from lm.data import write_tokens
from lm.training import checkpoint
from lm.training.distributed import DistributedContext, Lost, join
from lm.training.run import Run
from lm.training.train import Stopped

BATCH = dataclasses.replace(CONFIG, batch_size=8, micro_batch_size=2, steps=10, document_masking=True)


@pytest.fixture(scope="module")
def alone(with_ends, tmp_path_factory):
    """The run that one process makes of it."""
    folder = tmp_path_factory.mktemp("alone")
    run(with_ends, folder, BATCH)
    return folder


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_processes_have_the_losses_of_one_and_may_change_in_number(with_ends, alone, tmp_path, parallel):
    config = dataclasses.replace(BATCH, parallel=parallel)
    ends = processes(2, train, with_ends, tmp_path, config, 5)
    assert [how for how, _ in ends] == ["Stopped", "Stopped"], ends
    assert checkpoint.steps(tmp_path / "checkpoints") == [4, 6]  # processes agree on it in the step after
    with pytest.raises(Stopped):  # one process goes on, as it may
        run(with_ends, tmp_path, dataclasses.replace(BATCH, micro_batch_size=8), on_step=stop_at(7))
    ends = processes(2, train, with_ends, tmp_path, config)
    assert [how for how, _ in ends] == ["done", "done"], ends
    assert losses(tmp_path) == pytest.approx(losses(alone), rel=2e-5)
    one, other = (checkpoint.load(folder / "checkpoints") for folder in (tmp_path, alone))
    assert one.model.keys() == other.model.keys()
    for name, weight in other.model.items():
        torch.testing.assert_close(one.model[name], weight, rtol=1e-3, atol=1e-4)
    states = one.optimizer["state"]
    assert len(states) == len(other.optimizer["state"])
    shapes = {i: {key: value.shape for key, value in state.items()} for i, state in states.items()}
    assert shapes == {
        i: {key: value.shape for key, value in state.items()} for i, state in other.optimizer["state"].items()
    }
    assert [line["step"] for line in metrics(tmp_path) if "loss" in line] == list(range(1, 11))


def test_processes_share_what_is_learned_where_it_is_not_all(tmp_path):
    """The mean is over all the processes' targets, of which one may have none."""
    mask = np.zeros(400, dtype=np.uint8)
    mask[:60] = 1
    write_tokens(tmp_path / "train.npy", some_tokens(400), tokenizer="t", end_of_text=3, mask=mask)
    epochs = {"steps": 0, "epochs": 0.9, "warmup_steps": BY_STEPS}  # 12 steps, of which one is warm-up
    config = dataclasses.replace(BATCH, batch_size=2, micro_batch_size=1, eval_every=0, objective="sft", **epochs)
    run(tmp_path, tmp_path / "alone", config)
    ends = processes(2, train, tmp_path, tmp_path / "both", config)
    assert [how for how, _ in ends] == ["done", "done"], ends
    one, other = metrics(tmp_path / "alone"), metrics(tmp_path / "both")
    assert [line.get("skipped") for line in one] == [line.get("skipped") for line in other]
    learned = [line for line in one if "loss" in line]
    assert 0 < len(learned) < len(one)
    for key in ("loss", "gradient_norm"):
        values = [line[key] for line in other if "loss" in line]
        assert values == pytest.approx([line[key] for line in learned], rel=1e-4)


def test_a_process_that_ends_stops_the_others_in_one_sentence(with_ends, tmp_path):
    (first, words), (second, _) = processes(2, lose_one, with_ends, tmp_path, BATCH)
    assert second == "ValueError"
    assert first == "Lost", words
    assert words.startswith("process 0 of 2 stops because another ended: look at what that one said")
    assert checkpoint.load(tmp_path / "checkpoints").step == 4


def test_what_was_learned_outlives_an_evaluation_that_fails_in_one_process(with_ends, tmp_path):
    config = dataclasses.replace(BATCH, eval_every=3, checkpoint_every=99)
    (first, words), (second, _) = processes(2, fail_to_evaluate, with_ends, tmp_path, config)
    assert (first, second) == ("ProcessesDiffer", "ValueError")
    assert "process 1 on" in words
    assert "failed: ValueError: the evaluation fails" in words
    assert checkpoint.load(tmp_path / "checkpoints").step == 3


def test_no_process_can_leave_while_another_connects(tmp_path):
    assert processes(2, join_slowly, tmp_path) == [("done", ""), ("done", "")]


def test_what_rank_0_refuses_ends_all(with_ends, alone, tmp_path):
    other = dataclasses.replace(BATCH, learning_rate=0.5)
    for how, words in processes(2, train, with_ends, alone, other):
        assert how == "ValueError"
        assert "train.learning_rate = 0.01" in words
    for how, words in processes(
        2, train, with_ends, tmp_path, dataclasses.replace(BATCH, batch_size=9, micro_batch_size=3)
    ):
        assert how == "ValueError"
        assert "on 2 processes: make it a multiple" in words
    assert not (tmp_path / "config.toml").exists()


def test_processes_that_were_not_given_the_same_are_refused_by_name_before_the_first_step(with_ends, tmp_path):
    write_tokens(tmp_path / "train.npy", some_tokens(3000, 7), tokenizer="t", end_of_text=3)
    both = [tmp_path / "run", tmp_path / "run"]
    for how, words in processes(2, each, [with_ends, tmp_path], both, BATCH):
        assert how == "ProcessesDiffer"
        assert "process 1 on " in words
        assert "has data.heldout_sha256 None, and process 0" in words, "the first of what differs, by name"
    (first, words), (second, own) = processes(2, each, [with_ends, tmp_path / "nowhere"], both, BATCH)
    assert (first, second) == ("ProcessesDiffer", "FileNotFoundError")
    assert "failed: FileNotFoundError: there is no folder" in words
    assert "there is no folder" in own
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("of", ["torch", "groundup-lm"])
def test_processes_of_other_versions_are_refused_by_name(with_ends, tmp_path, of):
    for how, words in processes(2, with_another_version, with_ends, tmp_path / "run", BATCH, of):
        assert how == "ProcessesDiffer"
        assert f"has the version of {of} '1.0', and process 0" in words
    assert not (tmp_path / "run").exists()


def test_processes_that_share_no_folder_are_refused_by_name(with_ends, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    ends = processes(2, each, [with_ends, with_ends], folders, BATCH)
    assert [how for how, _ in ends] == ["ProcessesDiffer", "ValueError"]
    for _, words in ends:
        assert "a disk that all share" in words
    assert "process 1 on " in ends[0][1]
    assert not list(folders[1].glob("*.toml"))


def test_a_process_that_does_not_answer_is_lost_after_the_time_that_was_set(with_ends, tmp_path):
    config = dataclasses.replace(BATCH, collective_timeout=4, eval_every=0)
    folders = [tmp_path / "run", tmp_path / "run"]
    (first, words), _ = processes(2, each, [with_ends, with_ends], folders, config, 1)
    assert first == "Lost", words
    assert "did not answer within 4 s (train.collective_timeout)" in words


def test_fsdp_in_bf16_goes_on_to_the_bit_and_its_weights_are_read_by_one_process(with_ends, tmp_path):
    config = dataclasses.replace(BATCH, parallel="fsdp", precision="bf16")
    for folder, stop in (("whole", None), ("stopped", 5), ("stopped", None)):
        processes(2, train, with_ends, tmp_path / folder, config, stop)
    one, other = (checkpoint.load(tmp_path / folder / "checkpoints") for folder in ("whole", "stopped"))
    assert all(torch.equal(weight, other.model[name]) for name, weight in one.model.items())
    assert all(weight.dtype == torch.float32 for weight in Run.load(tmp_path / "whole").state_dict().values())
    assert losses(tmp_path / "whole")[-1] < losses(tmp_path / "whole")[0]


def test_a_checkpoint_of_shards_goes_on_with_any_number_of_processes_and_is_exported(with_ends, alone, tmp_path):
    config = dataclasses.replace(BATCH, parallel="fsdp", batch_size=12, micro_batch_size=1)
    run(with_ends, tmp_path / "alone", config)
    for size, stop in ((3, 3), (2, None)):
        ends = processes(size, train, with_ends, tmp_path / "run", config, stop)
        assert {how for how, _ in ends} == {"Stopped" if stop else "done"}, ends
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "alone"), rel=2e-5)
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "hf")]) == 0
    ids = torch.arange(16).reshape(1, 16)
    with torch.no_grad():
        torch.testing.assert_close(lm.load(tmp_path / "hf")(ids), Run.load(tmp_path / "run")(ids))


def test_micro_batches_under_fsdp_keep_no_whole_gradient(with_ends, tmp_path):
    ends = processes(2, keeps_parts, with_ends, tmp_path)
    assert [how for how, _ in ends] == ["done", "done"], ends


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("Application timeout caused pair closure", "did not answer within 9 s"),  # Gloo's, which it does not sign
        ("[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 9000ms for recv", "did not answer within 9 s"),
        ("Connection closed by peer [127.0.0.1]:4242", "another ended"),
    ],
)
def test_an_error_of_a_connection_is_one_sentence(words, reason, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(Lost, match=reason), join(torch.device("cpu"), 9):
        raise RuntimeError(words)
    with pytest.raises(RuntimeError, match="shapes"), join(torch.device("cpu"), 9):
        raise RuntimeError("shapes do not match")

    def init_process_group(*_, **__):
        raise RuntimeError(words)

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.distributed, "init_process_group", init_process_group)
    with pytest.raises(Lost, match="this process cannot join the others of the run: "), join(torch.device("cpu"), 9):
        pass


def test_a_group_that_a_module_still_holds_is_left():
    ends = processes(2, join_and_leave, [free_port() for _ in range(40)])
    assert [how for how, _ in ends] == ["done", "done"], "\n".join(words for _, words in ends)


def test_a_batch_that_processes_cannot_share_is_refused():
    with pytest.raises(ValueError, match="micro_batch_size 4 does not divide the 6 sequences of a process"):
        DistributedContext(0, 2).micro_batches(dataclasses.replace(CONFIG, batch_size=12, micro_batch_size=4))
    assert DistributedContext(0, 2).micro_batches(dataclasses.replace(CONFIG, batch_size=12, micro_batch_size=3)) == 2


LONG = {"steps": 100_000, "batch_size": 4, "threads": 1, "eval_every": 0}


@contextlib.contextmanager
def under_torchrun(folder, data):
    """Start the command as two processes of torchrun, with their output in folder / "said"; wait for its sixth step."""
    write_settings(folder / "small.toml", **LONG)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    lm = ["-m", "lm", "train", str(folder / "small.toml"), "--data", str(data), "--out", str(folder / "run"), "--quiet"]
    with open(folder / "said", "w") as log:
        command = [sys.executable, *torchrun, *lm]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(OMP_NUM_THREADS="1"))
        path = folder / "run" / "metrics.jsonl"
        while process.poll() is None and not (path.exists() and path.read_text().count("\n") > 5):
            time.sleep(0.05)
        yield process
        process.wait()


def test_sigterm_under_torchrun_finishes_the_step_and_saves(with_ends, tmp_path):
    with under_torchrun(tmp_path, with_ends) as process:
        process.send_signal(signal.SIGTERM)
    words = (tmp_path / "said").read_text()
    last = metrics(tmp_path / "run")[-1]["step"]
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [last], words
    assert f"lm: stopped after step {last} of 100000" in words


def two_of(folder, out):
    """Start `lm train` as two processes that nobody watches over, as on two machines."""
    command = [sys.executable, "-m", "lm", "train", str(folder / "small.toml"), "--out", str(out), "--quiet"]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    started = []
    for rank in range(2):
        own = environment(**shared, RANK=str(rank), LOCAL_RANK=str(rank))
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own))
    return started


@pytest.mark.soak  # six processes that import torch
@pytest.mark.parametrize("lost", [0, 1])
def test_kill_9_of_one_process_ends_the_other_and_the_same_command_goes_on(with_ends, tmp_path, lost):
    write_settings(tmp_path / "small.toml", with_ends, **LONG | {"steps": 600, "checkpoint_every": 20})
    path = tmp_path / "run" / "metrics.jsonl"
    both = two_of(tmp_path, tmp_path / "run")
    while all(one.poll() is None for one in both) and not (path.exists() and path.read_text().count("\n") > 90):
        time.sleep(0.01)
    both[lost].kill()
    words = [one.communicate()[1] for one in both]
    assert both[lost].returncode == -signal.SIGKILL, words[lost]
    assert both[1 - lost].returncode == 1
    message = words[1 - lost]
    assert message.startswith(f"lm: process {1 - lost} of 2 stops because another ended: look at what that one said"), (
        message
    )
    assert "the same command continues from the last checkpoint" in message
    assert message.count("\n") == 1
    assert "timed out" not in message.lower()  # it heard of it at once: for one that is silent torch waits half an hour
    steps = checkpoint.steps(tmp_path / "run" / "checkpoints")
    assert steps[-1] % 20 == 0
    assert 80 <= steps[-1] < 600
    for out in ("run", "whole"):
        for one in two_of(tmp_path, tmp_path / out):
            message = one.communicate()[1]
            assert one.returncode == 0, message
    assert_same_run(tmp_path / "run", tmp_path / "whole")
