"""Saving the checkpoints of a sharded run, which all processes write while training goes on."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from types import TracebackType
from typing import Any, cast

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import async_save

from lm.files import fsync
from lm.training import checkpoint, sharded
from lm.training.distributed import DistributedContext, broken, own_groups
from lm.training.metrics import METRICS
from lm.training.run import Run
from lm.training.trainer import Trainer


class ShardedSaver:
    """Saves the checkpoints of one sharded run; a context, after which nothing is written any more.

    Each process copies its part to the CPU's memory, and threads write it while training goes on; one checkpoint at a
    time. All processes call save and finish.
    """

    def __init__(self, run: Run, processes: DistributedContext) -> None:
        self.run, self.processes = run, processes
        # The threads that write have collectives of their own, which may not mix with those of the steps.
        timeout = timedelta(seconds=run.training.collective_timeout)
        self.group = dist.new_group(backend="gloo", timeout=timeout)
        own_groups.append(self.group)
        self.executor = ThreadPoolExecutor(1, "checkpoint")
        self.part: Future[Any] | None = None  # this process's part
        self.completed: Future[None] | None = None  # in process 0, the whole

    def __enter__(self) -> ShardedSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for future in (self.part, self.completed):
            if future is not None:
                with contextlib.suppress(BaseException):  # another error is on its way, or finish has raised it
                    future.result()
        self.executor.shutdown()

    @property
    def failed(self) -> bool:
        """True if a checkpoint could not be written: the next save or finish raises."""
        return self.completed is not None and self.completed.done() and self.completed.exception() is not None

    def save(self, trainer: Trainer) -> None:
        """Begin to save the state after a step. NotSaved, in every process: one could not write the one before it."""
        self.finish()
        state, best = self.run.state(trainer), int(trainer.best[0]) if trainer.best else None
        # After a power failure the checkpoint must find the lines that led to it.
        self.processes.on_main(lambda: fsync(self.run.folder / METRICS))
        step, model, optimizer, keep = trainer.step, trainer.model, trainer.optimizer, trainer.config.keep_checkpoints
        stack = contextlib.ExitStack()
        writing = checkpoint.writing(self.run.checkpoints, step, state, keep=keep, best=best)
        path = self.processes.on_main(lambda: stack.enter_context(writing)) / checkpoint.SHARDED
        tensors = cast("dict[str, Any]", sharded.tensors_of(model, optimizer))
        # Copies this process's part to the CPU's memory, and writes it in a thread.
        self.part = cast(
            "Future[Any]", async_save(tensors, storage_writer=sharded.Writer(path), process_group=self.group)
        )
        if self.processes.is_main:
            self.completed = self.executor.submit(complete, stack, self.part)

    def finish(self) -> None:
        """Wait until what is being written is on the disk. NotSaved, in every process: one could not write."""
        if self.part is None:
            return
        part, self.part = self.part, None
        with contextlib.suppress(BaseException):  # process 0 has it too, and raises it in all of them
            part.result()
        completed, self.completed = self.completed, None
        self.processes.on_main(lambda: completed.result() if completed is not None else None)


def complete(stack: contextlib.ExitStack, part: Future[Any]) -> None:
    """Make a checkpoint of what all processes have written, once they have."""
    try:
        with stack:
            sharded.wait(part)
    except checkpoint.NotSaved as failed:
        if failed.__cause__ is not None and broken(failed.__cause__):  # no disk is to blame
            raise failed.__cause__ from None
        raise
