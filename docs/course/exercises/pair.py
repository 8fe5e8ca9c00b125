"""Several processes joined by torch.distributed, for the exercises of chapter 9."""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.connection
import os
import tempfile
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from grading import State, Wrong

SECONDS = 15  # that one process waits for another
PROCESSES = 3  # more than two, so that a mean is not half of a sum by chance


class Messages:
    """Counts the all-reduces of this process, under whatever name a student imports them, and notes its all-gathers."""

    count = waiting = 0
    gathered: ClassVar[list[torch.dtype]] = []  # dtypes of the tensors of all-gathers and broadcasts

    @classmethod
    def watch(cls) -> None:
        """Count from now on; to be called before the student's file is imported."""
        for name in ("all_reduce", "all_reduce_coalesced"):
            original = getattr(dist, name)

            @functools.wraps(original)
            def counted(*arguments: Any, original: Any = original, **settings: Any) -> Any:
                cls.count += 1
                cls.waiting += not (settings.get("async_op", False) or arguments[3:] == (True,))
                return original(*arguments, **settings)

            setattr(dist, name, counted)
        for name in ("all_gather", "all_gather_into_tensor", "broadcast"):
            original = getattr(dist, name)

            @functools.wraps(original)
            def noted(*arguments: Any, original: Any = original, **settings: Any) -> Any:
                cls.gathered += [x.dtype for x in (*arguments, *settings.values()) if isinstance(x, torch.Tensor)]
                return original(*arguments, **settings)

            setattr(dist, name, noted)


def member(rank: int, folder: str, path: str, seed: int, module: str, check: str, answers: Any) -> None:
    """Run one check of a module on a student's file, as one of several processes, and send how it ended."""
    from grade import in_words, load

    State.seed = seed
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch renames its collectives; both names work
    try:
        Messages.watch()
        student = load(Path(path))
        store, wait = Path(folder, "store").as_uri(), timedelta(seconds=SECONDS)
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=PROCESSES, timeout=wait)
        getattr(__import__(module), check)(student)
        dist.barrier()  # what one process has sent may still be on its way
        answers.send("")
    except (Exception, SystemExit) as error:
        words = in_words(error, Path(path), SECONDS)
        if "imed out" in str(error):
            words += ". One process waits for a message that another one does not send."
        answers.send(words)
    os._exit(0)  # a group with messages under way would wait for them


def run(module: str, check: str) -> None:
    """Run a check in several processes; raise Wrong with the words of the first one that finds a mistake."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        # modules of this folder cannot be named: the server does not see them
        context.set_forkserver_preload(["torch", "lm.reference"])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        ends, processes = [], []
        for rank in range(PROCESSES):
            near_end, far_end = context.Pipe(duplex=False)
            arguments = (rank, folder, str(State.file), State.seed, module, check, far_end)
            processes.append(context.Process(target=member, args=arguments))
            processes[-1].start()
            far_end.close()
            ends.append(near_end)
        try:
            while ends:
                # not for ever: a limit of time can interrupt Python between two waits
                for end in multiprocessing.connection.wait(ends, timeout=1):
                    assert isinstance(end, multiprocessing.connection.Connection)
                    try:
                        words = end.recv()
                    except EOFError:
                        words = "One of the processes ended without a word."
                    if words:
                        raise Wrong(words)
                    ends.remove(end)
        finally:
            for process in processes:
                process.kill()
                process.join()
