"""Batches on their way to the device before they are asked for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator

import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]

AHEAD = 4  # batches that wait, pinned, for the device


def prefetched(make: Callable[[int], Batch], begin: int, end: int, device: torch.device) -> Generator[Batch]:
    """make(begin), …, make(end - 1), in order, on the device.

    On CUDA a thread makes them ahead of time in pinned memory, and the copy does not keep the host waiting. Elsewhere
    each is made when it is asked for: that is a few thousandths of a step on a CPU, and a thread would take them from
    the same cores. What comes out is the same to the bit. An error in `make` comes out where its batch would have.
    """
    if device.type != "cuda":
        for index in range(begin, end):
            yield make(index)
        return
    waiting: queue.Queue[Batch | BaseException] = queue.Queue(AHEAD)
    stop = threading.Event()

    def put(item: Batch | BaseException) -> None:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            if device.index is not None:  # a thread begins at device 0, and pinning would take memory of that
                torch.cuda.set_device(device)
            for index in range(begin, end):
                inputs, targets = make(index)
                put((inputs.pin_memory(), targets.pin_memory()))
                if stop.is_set():
                    return
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        for _ in range(begin, end):
            item = waiting.get()
            if isinstance(item, BaseException):
                raise item
            inputs, targets = item
            # The allocator of pinned memory keeps a block until the copies from it are done.
            yield inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
    finally:
        stop.set()
        thread.join()
