"""Decoding: the next token's logits for several texts at once, over a key/value cache of pages.

A part of a prompt (`Decoder.read`) and one more token for each text (`Decoder.step`) are calls of the model. On a CPU
with a compiler each is one call of C (lm.ops.cpu), if the model has no subclass and no hook in it; on CUDA, where this
package's attention kernel runs, a step is replayed as a graph, since calling torch would take longer than computing it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.attention import decodes
from lm.families.experts import Experts
from lm.families.parts import FamilyConfig
from lm.generation.kv_cache import PAGE, Cache, PagedLayer, Step, StepLayer
from lm.model import LayerCache, Transformer
from lm.ops.cpu.describe import is_plain
from lm.ops.cpu.forward import Choice, NativeStep, native_step

if TYPE_CHECKING:
    from lm.generation import scheduler

# Tokens of a prompt that are read at once: few on a CPU, so that other sequences hardly wait for their next token.
CHUNK_SIZE = {"cpu": 2 * PAGE}
CHUNK_SIZE_ELSEWHERE = 8 * PAGE
Logits = Callable[[Tensor, Step], Tensor]  # of the texts whose tokens a step appends, (batch, vocab_size)


class NoPages(MemoryError):
    """The memory of a cache is full."""


class Decoder:
    """A model with a cache of `rows` texts; it works on the model's own weights, so train or move the model and make
    another.

    Args:
        model: The model.
        rows: How many texts.
        capacity: The most tokens of a text, at most the model's context_length, which is what it is if not given.
        native: False takes PyTorch for the steps, one operation after another; True C or a ValueError; None C or a CUDA
            graph where they can be had.
        memory: As for Cache.

    Attributes:
        how: Which step runs ("in C", "as a CUDA graph", "in PyTorch"), and why.
        reread_at: Length at which the rotation of all positions changes, so that the whole text is read again; None:
            there is none.
        likeliest: The argmax of each row of the last step's logits, below 0 for a row with NaN; None if PyTorch
            computed the step.
    """

    def __init__(
        self,
        model: Transformer,
        rows: int = 1,
        capacity: int | None = None,
        *,
        native: bool | None = None,
        memory: int | None = None,
    ) -> None:
        self.model, self.config, self.modules = model, model.config, list(model.modules())
        if capacity is not None and capacity > model.config.context_length:
            raise ValueError(f"capacity {capacity} is more than the context of {model.config.context_length}: lower it")
        self.cache = Cache(model, rows, capacity, memory)
        like = next(model.parameters())
        self.device, self.dtype = like.device, like.dtype
        self.chunk_size = CHUNK_SIZE.get(self.device.type, CHUNK_SIZE_ELSEWHERE)
        self.reread_at: int | None = None
        if isinstance(self.config, FamilyConfig) and self.config.rope_depends_on_length:
            self.chunk_size, self.reread_at = -(-self.cache.capacity // PAGE) * PAGE, self.config.rope_changes_at
        self.likeliest: list[int] | None = None
        self.native: NativeStep | None = None
        self.how = "in PyTorch"
        if native is not False and self.device.type == "cpu":
            result = native_step(model, self.cache)
            if isinstance(result, NativeStep):
                self.native, self.how = result, "in C"
            elif native:
                raise ValueError(f"there is no step in C, because {result}: let native be None")
            else:
                self.how += f", because {result}"
        self.graphs: GraphSteps | None = None
        if self.native is None:
            self.has_kernel = decodes(self.device, self.dtype, self.config.head_width)
            # Experts choose their tokens by numbers that the CPU must see, which no graph can record.
            recordable = all(is_plain(module) and not isinstance(module, Experts) for module in model.modules())
            if native is None and self.has_kernel and recordable:
                self.graphs, self.how = GraphSteps(self.cache, self.device, self.logits), "as a CUDA graph"

    @torch.inference_mode()
    def read(self, row: int, ids: Sequence[int], *, last: bool = True, every: bool = False) -> Tensor | None:
        """Appends ids to a row's text; the logits (vocab_size,) of what follows, None where it is not the `last` part;
        with `every` the logits (len(ids), vocab_size) after each of them. NoPages: the memory is full."""
        cache = self.cache
        start = cache.lengths[row]
        self._grow(row, start + len(ids))
        if self.native is not None:
            hidden, logits = self.native.read(ids, row, start, len(ids) if every else int(last))
            cache.lengths[row] = start + len(ids)
            if every:
                return self.model.logits(hidden)
            return logits if last else None
        slots = cache.slots(row, 0, start + len(ids))
        layers = [PagedLayer(store, slots, start) for store in cache.store]
        logits = self._call(torch.tensor([ids], device=self.device), start, [*layers], every=every)
        cache.lengths[row] = start + len(ids)
        return logits if every else logits[0] if last else None

    def step(self, tokens: Sequence[int], rows: Sequence[int] | None = None) -> Tensor:
        """Appends tokens[i] to the text of rows[i] (the first rows, if not given); the logits (len(tokens), vocab_size)
        of what follows each, which the next step may overwrite. ValueError: a row is as long as it may be. NoPages: the
        memory is full."""
        rows = range(len(tokens)) if rows is None else rows
        lengths, positions = self.cache.lengths, self._positions(rows, 1)
        self.likeliest = None
        if self.graphs is not None:
            logits, self.likeliest = self.graphs(tokens, rows, positions)
        elif self.native is None:
            logits = self._step_in_torch(tokens, rows, positions)
        else:
            result = self.native(tokens, rows, positions)
            logits, self.likeliest = result.logits, result.likeliest[:]
        for row in rows:
            lengths[row] += 1
        return logits

    @property
    def has_loop(self) -> bool:
        """True if several tokens of a text are one call of C."""
        return self.native is not None and self.reread_at is None

    def continue_texts(
        self, tokens: Sequence[int], rows: Sequence[int], texts: Sequence[scheduler.Sequence], count: int
    ) -> tuple[list[list[int]], list[list[Tensor | None]]]:
        """Take `count` steps that append tokens[i] to rows[i] and then what texts[i] chooses; see has_loop.

        Returns:
            The tokens that each step chose for each text, of fewer steps if a text may end, and the logits
            (vocab_size,) from which it chose, of texts that compute logprobs. A token is below 0 if the logits are not
            numbers.

        Raises:
            NoPages: The memory is full.
        """
        assert self.native is not None
        lengths = self.cache.lengths
        positions = self._positions(rows, count)
        uniform = torch.stack([text.draw(count) for text in texts], 1)  # (count, batch)
        stop_tokens = frozenset[int]().union(*(text.stop_tokens for text in texts))
        choices = [cast(Choice, text.choice) for text in texts]
        reads_logits = [text.top_logprobs is not None for text in texts]
        logits = torch.empty(count, len(texts), self.config.vocab_size, dtype=self.dtype) if any(reads_logits) else None
        steps = self.native.continue_texts(tokens, rows, positions, choices, uniform, stop_tokens, logits)
        for row, text in zip(rows, texts, strict=True):
            lengths[row] += len(steps)
            if len(steps) < count:
                text.return_unused(len(steps))
        if logits is None:
            return steps, [[None] * len(texts)] * len(steps)
        copied = logits[: len(steps)]
        return steps, [[row if own else None for row, own in zip(step, reads_logits, strict=True)] for step in copied]

    def choose(self, logits: Tensor, text: scheduler.Sequence) -> int:
        """A text's next token from logits (vocab_size,) of a step, as continue_texts chooses it; see has_loop."""
        assert self.native is not None
        return self.native.choose(logits, cast(Choice, text.choice), float(text.draw(1)))

    def _positions(self, rows: Sequence[int], count: int) -> list[int]:
        """The lengths of rows, which get room for `count` tokens more. ValueError, NoPages: there is none."""
        positions = [self.cache.lengths[row] for row in rows]
        if (most := max(positions)) + count > self.cache.capacity:
            raise ValueError(f"a row holds {most} tokens, and has no room for {count} more: make a larger Decoder")
        for row, position in zip(rows, positions, strict=True):
            self._grow(row, position + count)
        return positions

    def _grow(self, row: int, tokens: int) -> None:
        if not self.cache.grow(row, tokens):
            size = self.cache.pages * self.cache.page_bytes
            raise NoPages(f"keys and values fill all of their {size:,} bytes: give more memory, or shorter texts")

    def _step_in_torch(self, tokens: Sequence[int], rows: Sequence[int], positions: list[int]) -> Tensor:
        cache, end, device = self.cache, max(positions) + 1, self.device
        at = torch.tensor(positions, device=device)  # (batch,)
        each = [cache.slots(row, 0, position + 1) for row, position in zip(rows, positions, strict=True)]
        slots = torch.stack([F.pad(of_row, (0, end - len(of_row))) for of_row in each])  # (batch, end)
        new = slots.gather(1, at[:, None])[:, 0]
        pages = None
        if self.has_kernel:
            pages = torch.from_numpy(cache.table[list(rows)]).to(device)
        all_seen = min(positions) + 1 == end
        return self.logits(torch.tensor(tokens, device=device), Step(new, at, slots, pages, all_seen))

    @torch.inference_mode()
    def logits(self, tokens: Tensor, step: Step) -> Tensor:
        """Logits (batch, vocab_size) after tokens (batch,), which the step appends."""
        layers = [StepLayer(store, step) for store in self.cache.store]
        return self._call(tokens[:, None], step.positions, [*layers])

    def _call(self, ids: Tensor, start: int | Tensor, cache: list[LayerCache], *, every: bool = False) -> Tensor:
        """Logits (batch, vocab_size) of the last position, or (length, vocab_size) of `every` one; without dropout."""
        model = self.model
        with without_training(self.modules):
            if type(model).forward is Transformer.forward and is_plain(model):
                hidden = model.hidden(ids, start=start, cache=cache)
                last = hidden[0] if every else hidden[:, -1]  # (batch or length, d_model)
                # One sequence gives a vector, which a CPU multiplies faster than a matrix of one row.
                return model.logits(last) if len(last) > 1 else model.logits(last[0])[None]
            logits: Tensor = model(ids, start=start, cache=cache)
            return logits[0] if every else logits[:, -1]


@contextlib.contextmanager
def without_training(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Context with the modules in evaluation mode; afterwards each is in its own mode again."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


class GraphSteps:
    """A decoder's steps: graphs for 1, 2, 4, 8 … texts, recorded at first use; fewer texts repeat the first."""

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
            # torch requires another stream than the usual one before a graph is recorded.
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
