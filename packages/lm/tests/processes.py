"""Processes of one run, as torchrun starts them, without loading torch for each."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import queue
import random
import socket
import time
import traceback

import pytest
import torch
import torch.distributed as dist
from runs import CONFIG, metrics, run, stop_at

from lm import optimizer
from lm.training import distributed, trainer
from lm.training import train as training


def free_port():
    """A port below those that the system gives to outgoing connections, which would take it in the meantime."""
    while True:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port


def one_of(rank, size, port, answers, work, arguments):
    """Run the work in the environment that torchrun would set; its end goes to answers."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        work(rank, *arguments)
        answers.put((rank, "done", ""))
    except BaseException as error:
        answers.put((rank, type(error).__name__, f"{error}\n{traceback.format_exc()}"))


def processes(size, work, *arguments):
    """Run work(rank, …) in `size` processes of one run; return how each ended: its exception's name, and its message.

    Another program may listen at the port by the time that process 0 does, and another port is then tried.
    """
    for _ in range(3):
        ended = processes_at(free_port(), size, work, *arguments)
        if not any("failed to listen" in words for _, words in ended):
            break
    return ended


def processes_at(port, size, work, *arguments):
    """As processes(), which listen at this port."""
    several = multiprocessing.get_context("forkserver")  # one that has loaded torch, and no more, makes them all
    several.set_forkserver_preload(["processes"])
    answers = several.Queue()
    started = [
        several.Process(target=one_of, args=(rank, size, port, answers, work, arguments)) for rank in range(size)
    ]
    for process in started:
        process.start()
    ended = dict.fromkeys(range(size), ("hung", ""))
    with contextlib.suppress(queue.Empty):
        for _ in started:
            rank, how, words = answers.get(timeout=120)
            ended[rank] = how, words
    for process in started:
        process.join(timeout=20)
        process.kill()
    return [ended[rank] for rank in range(size)]


def join_and_leave(rank, ports):
    """Joins and leaves a group at each port. A module that holds the group is freed just after it was left."""
    for port in ports:
        os.environ["MASTER_PORT"] = str(port)
        with distributed.join(torch.device("cpu"), timeout=60):
            module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
            for _ in range(20):  # the thread that sends them frees each when it is sent, and needs the GIL for it
                dist.broadcast(torch.zeros(8), src=0, async_op=True)
        del module


def join_slowly(rank, folder):
    """Rank 1 is the last to connect; the others are in the group only then."""
    if rank == 1:
        real = dist.init_process_group

        def init_process_group(*arguments, **settings):
            real(*arguments, **settings)
            time.sleep(1)
            (folder / "connected").touch()

        dist.init_process_group = init_process_group
    with distributed.join(torch.device("cpu"), timeout=60):
        assert (folder / "connected").exists()


def train(rank, data, folder, config, stop=None, *model):
    run(data, folder, config, *model, on_step=stop_at(stop) if stop and rank == 0 else None)


def assert_two_have_the_losses_of_one(data, folder, config):
    """Two processes, stopped in the middle and started again, in folder/both; one in folder/alone."""
    run(data, folder / "alone", config)
    for stop, how in ((4, "Stopped"), (None, "done")):
        ends = processes(2, train, data, folder / "both", config, stop)
        assert [end for end, _ in ends] == [how, how], ends
    one, other = ([line["loss"] for line in metrics(folder / name) if "loss" in line] for name in ("both", "alone"))
    assert one == pytest.approx(other, rel=1e-4)


def keeps_parts(rank, data, folder):
    """Between micro-batches each process has the gradient of its own part of a weight, and nothing unsharded."""
    real = trainer.Trainer.forward_backward

    def forward_backward(self, micro_batches, num_losses):
        for batch in micro_batches[:-1]:
            real(self, [batch, batch][:1], num_losses)
            for p in self.model.parameters():
                assert p.grad is not None, "the gradient waits for the last micro-batch"
                assert p.grad.to_local().numel() <= p.numel() // 2 + p.shape[-1]
        return real(self, micro_batches[-1:], num_losses)

    trainer.Trainer.forward_backward = forward_backward
    config = dataclasses.replace(CONFIG, batch_size=8, micro_batch_size=2, parallel="fsdp", steps=1, warmup_steps=0)
    run(data, folder, config)


def orthogonalize_together(rank, matrices, size):
    """Each process calls orthogonalize() for its share alone, and has the result for all."""
    with distributed.join(torch.device("cpu"), timeout=60):
        shares, real = [], optimizer.orthogonalize
        optimizer.orthogonalize = lambda own: shares.append(len(own)) or real(own)
        muon = optimizer.Muon(torch.nn.Linear(1, 1), 0.1, share=(rank, size))
        for count in (matrices, 1):
            stack = torch.randn(count, 6, 4, generator=torch.Generator().manual_seed(count))
            torch.testing.assert_close(muon.orthogonalize(stack), torch.stack([real(x) for x in stack]))
        whole = -(-matrices // size)
        expected = [min(whole, matrices - rank * whole)] * (rank * whole < matrices) + [1] * (rank == 0)
        assert shares == expected, shares


def fail(message):
    raise ValueError(message)


def before_update(step, action):
    """Call the action in this step of this process's run, before its weights are changed."""
    real, count = trainer.clip_grad_norm_, iter(range(100))

    def clip(*arguments):
        if next(count) == step:
            action()
        return real(*arguments)

    trainer.clip_grad_norm_ = clip


def lose_one(rank, data, folder, config):
    """Rank 1 is lost in the middle of the run."""
    if rank == 1:
        before_update(5, lambda: fail("the machine was switched off"))
    run(data, folder, config)


def fail_to_evaluate(rank, data, folder, config):
    """Rank 1 cannot evaluate."""
    if rank == 1:
        trainer.Trainer.own_scores = lambda *_: fail("the evaluation fails")
    run(data, folder, config)


def with_another_version(rank, data, folder, config, of):
    """Rank 1 has another version of a package."""
    if rank == 1 and of == "torch":
        torch.__version__ = "1.0"
    elif rank == 1:
        training.__version__ = "1.0"
    run(data, folder, config)


def each(rank, data, folders, config, slow=None):
    """Each rank with data and a folder of its own; `slow` sleeps in its third step, longer than the others wait."""
    distributed.SHARED_WITHIN = 0.2
    if rank == slow:
        before_update(2, lambda: time.sleep(12))
    run(data[rank], folders[rank], config)
