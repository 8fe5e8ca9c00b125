"""Two processes joined by torch.distributed, for the exercises of chapter 9."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from grading import Wrong

SECONDS = 15  # that one process waits for the other


def member(rank: int, folder: str, path: str, module: str, check: str, answers: Any) -> None:
    """Run one check of a module on a student's file, as one of two processes, and send how it ended."""
    from grade import load

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch renames its collectives; both names work
    try:
        student = load(Path(path))
        store = Path(folder, "store").as_uri()
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=SECONDS))
        getattr(__import__(module), check)(student)
        dist.barrier()  # what one process has sent may still be on its way
        answers.send("")
    except Wrong as wrong:
        answers.send(str(wrong))
    except Exception as error:
        places = traceback.extract_tb(error.__traceback__)
        place = next((one for one in reversed(places) if one.filename == path), places[-1])
        words = f"raises {type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        if "imed out" in str(error):
            words += ". One process waits for a message that the other one does not send."
        answers.send(words)
    os._exit(0)  # a group with messages under way would wait for them


def run(module: str, check: str) -> None:
    """Run a check in two processes; raise Wrong with the words of the first one that finds a mistake."""
    path = str(sys.modules["student"].__file__)
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        # modules of this folder cannot be named: the server does not see them
        context.set_forkserver_preload(["torch", "lm.reference"])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        ends, processes = [], []
        for rank in range(2):
            near_end, far_end = context.Pipe(duplex=False)
            processes.append(context.Process(target=member, args=(rank, folder, path, module, check, far_end)))
            processes[-1].start()
            far_end.close()
            ends.append(near_end)
        try:
            while ends:
                for end in multiprocessing.connection.wait(ends):
                    assert isinstance(end, multiprocessing.connection.Connection)
                    try:
                        words = end.recv()
                    except EOFError:
                        words = "One of the two processes ended without a word."
                    if words:
                        raise Wrong(words)
                    ends.remove(end)
        finally:
            for process in processes:
                process.kill()
                process.join()
