"""Steps of decoding on a CUDA device as graphs: launching their kernels one by one takes longer than running them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm.generation.kv_cache import Cache, Step

Logits = Callable[[Tensor, Step], Tensor]  # of the texts whose tokens a step appends, (batch, vocab_size)


class GraphSteps:
    """The steps of a decoder: a graph for 1, 2, 4, 8 … texts, each recorded when it is first used.

    It serves fewer texts by computing the first of them several times, with the same result.
    """

    def __init__(self, cache: Cache, device: torch.device, logits: Logits) -> None:
        self.about = cache, device, logits
        self.recorded: dict[int, RecordedStep] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, tokens: Sequence[int], rows: Sequence[int], positions: list[int]) -> tuple[Tensor, list[int]]:
        """As Decoder.step, and the likeliest token of each text, below 0 where there is none."""
        batch = len(tokens)
        size = 1 << (batch - 1).bit_length()
        step = self.recorded.get(size)
        if step is None:
            step = RecordedStep(*self.about, size)
            step.fill(tokens, rows, positions)
            step.record(self.pool)
            self.recorded[size] = step
        step.fill(tokens, rows, positions)
        step.graph.replay()
        return step.logits[:batch], step.likeliest[:batch].tolist()


class RecordedStep:
    """A step of `batch` texts, as a graph once it is recorded, and the memory that it reads and writes.

    Attributes:
        inputs: int64 (batch, 3 + pages): token, position and slot of each text, then the pages of its row.
        logits: (batch, vocab_size).
        likeliest: int64 (batch,), as Decoder's.
    """

    graph: torch.cuda.CUDAGraph
    logits: Tensor
    likeliest: Tensor

    def __init__(self, cache: Cache, device: torch.device, logits: Logits, batch: int) -> None:
        self.cache, self.device, self.logits_of, self.batch = cache, device, logits, batch
        self.host = np.zeros((batch, 3 + cache.table.shape[1]), dtype=np.int64)
        self.inputs = torch.zeros(self.host.shape, dtype=torch.int64, device=device)

    def fill(self, tokens: Sequence[int], rows: Sequence[int], positions: list[int]) -> None:
        """Hands in the texts of the next step, the first of them again for every one that is lacking."""
        page, count = self.cache.page, len(tokens)
        at, pages = np.asarray(positions), self.cache.table[np.asarray(rows)]
        self.host[:count, 0] = tokens
        self.host[:count, 1] = at
        self.host[:count, 2] = pages[np.arange(count), at // page] * page + at % page
        self.host[:count, 3:] = pages
        self.host[count:] = self.host[0]
        self.inputs.copy_(torch.from_numpy(self.host))

    def record(self, pool: Any) -> None:
        """Takes the step twice, so that every kernel is compiled and every library ready, and then records it."""
        with torch.cuda.device(self.device):
            # torch asks for another stream than the usual one before a graph is recorded
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    self.run()
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, pool=pool):
                self.logits, self.likeliest = self.run()

    @torch.inference_mode()
    def run(self) -> tuple[Tensor, Tensor]:
        """The operations: logits and likeliest."""
        tokens, at, new = self.inputs[:, 0], self.inputs[:, 1], self.inputs[:, 2]
        logits = self.logits_of(tokens, Step(new, at, None, self.inputs[:, 3:]))
        best, place = logits.max(-1)
        return logits, torch.where(best > -torch.inf, place, -1)
