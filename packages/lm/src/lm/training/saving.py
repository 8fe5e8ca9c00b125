"""Saving a run's checkpoints: whole ones between two steps, those that all processes write beside the steps after."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from lm.files import fsync
from lm.training import checkpoint, sharded, start
from lm.training.distributed import DistributedContext, broken
from lm.training.run_folder import CHECKPOINTS, METRICS, RunConfig
from lm.training.trainer import Trainer


class Saver:
    """Saves the checkpoints of one run. To be left as a context, so that nothing is written any more after it.

    A sharded checkpoint is copied to the CPU's memory, each process its part, and written by threads while training
    goes on; one at a time. All processes call save and finish.
    """

    def __init__(self, run_dir: Path, run_config: RunConfig, distributed: DistributedContext, timeout: float) -> None:
        assert run_config.train is not None
        self.run_dir, self.run_config, self.distributed = run_dir, run_config, distributed
        self.folder = run_dir / CHECKPOINTS
        # The threads that write have collectives of their own, which may not mix with those of the steps.
        self.group = distributed.another_group(timeout) if distributed.shards(run_config.train) else None
        self.executor = ThreadPoolExecutor(1, "checkpoint")
        self.written: Future[Any] | None = None  # this process's part
        self.completed: Future[None] | None = None  # in process 0, the whole

    def __enter__(self) -> Saver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for future in (self.written, self.completed):
            if future is not None:
                with contextlib.suppress(BaseException):  # another error is on its way, or finish has said it
                    future.result()
        self.executor.shutdown()

    @property
    def failed(self) -> bool:
        """Whether a checkpoint that is written beside training could not be: the next save or finish says why."""
        return self.completed is not None and self.completed.done() and self.completed.exception() is not None

    def save(self, trainer: Trainer) -> None:
        """Saves the state after a step, or begins to.

        Raises:
            checkpoint.NotSaved: In every process, if one of them could not; of a sharded one before it as well.
        """
        self.finish()
        distributed = self.distributed
        state = trainer.state() | {
            "computed_by": start.computed_by(trainer.config, distributed),
            "config": start.made_with(self.run_config),
        }
        keep, best = trainer.config.keep_checkpoints, int(trainer.best[0]) if trainer.best else None
        # Who goes on from here after a power failure finds the lines that led here.
        distributed.on_keepers(lambda: fsync(self.run_dir / METRICS))
        step, model, optimizer = trainer.step, trainer.model, trainer.optimizer
        if not trainer.is_sharded:
            distributed.on_keepers(
                lambda: checkpoint.save(self.folder, step, model, optimizer, state, keep=keep, best=best)
            )
            return
        stack = contextlib.ExitStack()
        writing = checkpoint.writing(self.folder, step, state, keep=keep, best=best)
        path = distributed.on_main(lambda: stack.enter_context(writing)) / checkpoint.SHARDED
        self.written = sharded.begin_to_write(path, sharded.tensors_of(model, optimizer), self.group)
        if distributed.is_main:
            self.completed = self.executor.submit(complete, stack, self.written)

    def finish(self) -> None:
        """Waits until what is being written is on the disk.

        Raises:
            checkpoint.NotSaved: In every process, if one of them could not write.
        """
        if self.written is None:
            return
        written, self.written = self.written, None
        with contextlib.suppress(BaseException):  # process 0 has it too, and raises it in all of them
            written.result()
        completed, self.completed = self.completed, None
        self.distributed.on_main(lambda: completed.result() if completed is not None else None)


def complete(stack: contextlib.ExitStack, written: Future[Any]) -> None:
    """Makes a checkpoint of what all processes have written, once they have."""
    try:
        with stack:
            sharded.wait(written)
    except checkpoint.NotSaved as failed:
        if failed.__cause__ is not None and broken(failed.__cause__):  # no disk is to blame
            raise failed.__cause__ from None
        raise
