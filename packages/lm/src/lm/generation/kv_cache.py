"""Keys and values of sequences, in pages that are handed out as the sequences grow."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lm.attention import as_bias, attention
from lm.device import lines, memory_of
from lm.model import Attend, Transformer

PAGE = 64  # tokens
HUGE = 2 << 20  # bytes of the pages that a CPU's system gives to large blocks of memory
SHARE = 2  # a cache takes at most 1 / SHARE of the memory, if no size is given


class LayerStore:
    """Keys and values of one layer, (batch, kv_heads, length, head_dim) each."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values, self.length = keys, values, keys.shape[2]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sliding_window: int | None, attend: Attend = attention) -> Tensor:
        """Append k, v (batch, kv_heads, seq, head_dim) and return attention of q to all positions so far."""
        self.keys, self.values = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        self.length = self.keys.shape[2]
        return attend(q, self.keys, self.values, sliding_window=sliding_window)


class PagedLayer:
    """Keys and values of one layer of one sequence, which holds `length` positions. store: the layer's part of the
    cache, (2, kv_heads, slots, head_dim); slots: (length + the new positions,)."""

    def __init__(self, store: Tensor, slots: Tensor, length: int) -> None:
        self.store, self.slots, self.length = store, slots, length

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sliding_window: int | None, attend: Attend = attention) -> Tensor:
        """Append k, v (1, kv_heads, seq, head_dim) and return attention of q to all positions so far."""
        begin, self.length = self.length, len(self.slots)
        new = self.slots[begin:]
        self.store[0].index_copy_(1, new, k[0])
        self.store[1].index_copy_(1, new, v[0])
        if begin:
            # It copies even pages in order, as the last bits of a product may depend on alignment.
            k, v = self.store.index_select(2, self.slots).unsqueeze(1).unbind(0)
        return attend(q, k, v, sliding_window=sliding_window)


class StepLayer:
    """Keys and values of one layer in a step; store: the layer's part of the cache, (2, kv_heads, slots, head_dim)."""

    def __init__(self, store: Tensor, step: Step) -> None:
        self.store, self.step = store, step
        self.length = 0  # unused here, as positions are passed; the protocol of a layer's cache asks for it

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sliding_window: int | None, attend: Attend = attention) -> Tensor:
        """Append k, v (batch, kv_heads, 1, head_dim) and return attention of q (batch, num_heads, 1, head_dim)."""
        step = self.step
        new = torch.stack((k, v)).squeeze(3).transpose(1, 2)  # (2, kv_heads, batch, head_dim)
        self.store.index_copy_(2, step.new, new.to(self.store.dtype))
        options = options_of(attend)
        if step.pages is not None and options is not None:
            from lm.ops.triton.flash import paged_attention

            keys, values = self.store.unbind(0)
            lengths = step.positions + 1
            options |= {"page": PAGE, "sliding_window": sliding_window}
            return paged_attention(q, keys, values, step.pages, lengths, **options)
        keys, values = self.store[:, :, step.slots].transpose(1, 2).unbind(0)  # (batch, kv_heads, seen, head_dim)
        if attend is not attention:
            return attend(q, keys, values, mask=step.visible(sliding_window), causal=False)
        grouped = q.reshape(q.shape[0], keys.shape[1], -1, q.shape[3])  # (batch, kv_heads, group, head_dim)
        bias = step.bias(sliding_window, self.store.dtype)
        return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=bias).view(q.shape)


def options_of(attend: Attend) -> dict[str, Any] | None:
    """Arguments that a model adds to attention(), as a soft cap; None: it has an attention of its own."""
    if isinstance(attend, functools.partial) and attend.func is attention:
        return dict(attend.keywords)
    return {} if attend is attention else None


class Step:
    """A step that appends one token to each of several sequences; tensors, so that a CUDA graph can read it.

    Args:
        new: Slots of the new tokens, (batch,).
        positions: Positions of the new tokens, (batch,).
        slots: Slots of all positions of each sequence, (batch, seen), padded at the end; None: the slots of `pages`.
        pages: Pages of each sequence, (batch, pages), for the attention kernel; None on devices without it.
        all_seen: True if every sequence fills its slots, so that nothing of them is hidden but by a window.
    """

    def __init__(
        self, new: Tensor, positions: Tensor, slots: Tensor | None, pages: Tensor | None, all_seen: bool = False
    ) -> None:
        self.new, self.positions, self.pages, self.all_seen = new, positions, pages, all_seen
        if slots is not None:
            self.slots = slots
        self.biases = dict[int | None, Tensor | None]()  # by window

    @functools.cached_property
    def slots(self) -> Tensor:
        """Slots of all positions of each sequence, (batch, seen)."""
        assert self.pages is not None
        return (self.pages[:, :, None] * PAGE + torch.arange(PAGE, device=self.pages.device)).flatten(1)

    def visible(self, sliding_window: int | None) -> Tensor:
        """True where the new token sees a position, (batch, 1, 1, seen)."""
        query = self.positions[:, None]
        key = torch.arange(self.slots.shape[1], device=query.device)
        seen = key <= query if sliding_window is None else (key <= query) & (key > query - sliding_window)
        return seen[:, None, None]

    def bias(self, sliding_window: int | None, dtype: torch.dtype) -> Tensor | None:
        """Added to the scores: hides what a token does not see; None where it sees all."""
        if sliding_window not in self.biases:
            needed = sliding_window is not None or not self.all_seen
            self.biases[sliding_window] = as_bias(self.visible(sliding_window), dtype) if needed else None
        return self.biases[sliding_window]


class Cache:
    """Keys and values of all layers for `rows` texts of up to `capacity` tokens, in pages of PAGE tokens.

    All pages are one block of memory, which a CPU's system fills with memory when it is first written to. A page may be
    in several texts that begin alike, and in shared prefixes: `users` counts them, and a page without one is free.

    Token t of a row lies in slot table[row, t // page] * page + t % page of `store` (layers, 2, kv_heads, slots,
    head_dim), a view that leaves out the padding between heads.

    Args:
        model: The model.
        rows: Number of sequences.
        capacity: The most tokens of a sequence; the model's context, if not given.
        memory: The most bytes to reserve; half of the device's, if not given.
    """

    page = PAGE

    def __init__(
        self, model: Transformer, rows: int = 1, capacity: int | None = None, memory: int | None = None
    ) -> None:
        config, weight = model.config, next(model.parameters())
        self.rows, self.capacity = rows, config.context_length if capacity is None else capacity
        self.page_bytes, of_row = bytes_of_page(model), -(-self.capacity // PAGE)
        most = memory_of(weight.device) // SHARE if memory is None else memory
        pages = min(rows * of_row, most // self.page_bytes)
        if pages < 1:
            raise ValueError(f"a page of {PAGE} tokens is {self.page_bytes:,} bytes, and memory is {most:,}: raise it")
        slots, heads = pages * PAGE, config.num_layers * 2 * config.kv_heads
        of_slot = config.head_width * weight.element_size()
        unused = bytes_between(slots * of_slot, heads) // of_slot if weight.device.type == "cpu" else 0
        size = (config.num_layers, 2, config.kv_heads, slots + unused, config.head_width)
        self.store = reserved(size, weight.dtype, weight.device)[:, :, :, :slots]
        self.lengths = [0] * rows
        self.table = np.zeros((rows, of_row), dtype=np.int64)
        self.table_begin = int(self.table.ctypes.data)
        self.page_counts = [0] * rows  # pages of each row
        self.users = [0] * pages
        self.free = list(range(pages))[::-1]

    @property
    def pages(self) -> int:
        """Number of pages."""
        return len(self.users)

    def pages_of(self, row: int) -> list[int]:
        """A row's pages, in order."""
        return [int(page) for page in self.table[row, : self.page_counts[row]]]

    def lacks(self, row: int, tokens: int) -> int:
        """Number of pages that a row lacks for this number of tokens."""
        return max(0, -(-tokens // PAGE) - self.page_counts[row])

    def grow(self, row: int, tokens: int) -> bool:
        """Give a row pages for this number of tokens; False, and nothing is changed, if too few are free."""
        if (lacks := self.lacks(row, tokens)) > len(self.free):
            return False
        self.share(row, [self.free.pop() for _ in range(lacks)])
        return True

    def share(self, row: int, pages: Sequence[int]) -> None:
        """Appends pages to a row, which may be in others too."""
        count = self.page_counts[row]
        self.table[row, count : count + len(pages)] = pages
        self.page_counts[row] = count + len(pages)
        for page in pages:
            self.users[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """Takes a user from pages; those that have none any more are free."""
        for page in pages:
            self.users[page] -= 1
            if not self.users[page]:
                self.free.append(page)

    def clear(self, row: int) -> None:
        """Forgets a row's text."""
        self.release(self.pages_of(row)[::-1])  # so that the next one's pages lie in order, too
        self.page_counts[row] = self.lengths[row] = 0

    def copy_end(self, source: int, target: int, begin: int) -> None:
        """Copies what one row holds from position `begin` on, the first of a page, to the end of another."""
        end = self.lengths[source]
        self.store[:, :, :, self.slots(target, begin, end)] = self.store[:, :, :, self.slots(source, begin, end)]
        self.lengths[target] = end

    def slots(self, row: int, begin: int, end: int) -> Tensor:
        """Slots of the positions from begin to end of a row: int64 (end - begin,)."""
        table = torch.from_numpy(self.table[row, : -(-end // PAGE)])
        of_all = (table[:, None] * PAGE + torch.arange(PAGE)).flatten()
        return of_all[begin:end].to(self.store.device)

    def table_address(self, row: int) -> int:
        """Address of the numbers of a row's pages, int64, in order."""
        return self.table_begin + row * self.table.strides[0]


@dataclass(eq=False)
class Chunk:
    """A chunk with its pages in the cache and the chunk before it, None for the first; followers: its child chunks."""

    pages: list[int]
    parent: Chunk | None
    followers: int = 0


Key = tuple[Chunk | None, tuple[int, ...]]  # the chunk before it, and the ids of a chunk


class Prefixes:
    """Whole chunks of prompts, as a tree: a chunk is known by its ids and by the chunk before it.

    The keys and values of a chunk depend on nothing else, to the bit, as a prompt is always read in the same chunks.
    They stay in the cache until memory runs out. Those used longest ago go first, ends before beginnings. size: tokens
    of a chunk, a multiple of the cache's page.
    """

    def __init__(self, cache: Cache, size: int) -> None:
        assert size % cache.page == 0
        self.cache, self.size = cache, size
        self.chunks = OrderedDict[Key, Chunk]()  # those used last at the end

    def take(self, row: int, ids: Sequence[int], before: Chunk | None) -> Chunk | None:
        """Add the chunks of `ids` that are here to a row of whole chunks; at least one token is left to read. before:
        the row's last chunk, None if it has none. Return its last chunk after the call."""
        used, at = list[Key](), self.cache.lengths[row]
        while at + self.size < len(ids):
            key = before, tuple(ids[at : at + self.size])
            chunk = self.chunks.get(key)
            if chunk is None:
                break
            self.cache.share(row, chunk.pages)
            used.append(key)
            before, at = chunk, at + self.size
        self.cache.lengths[row] = at
        for key in reversed(used):  # a beginning is used later than its continuation, and so goes later
            self.chunks.move_to_end(key)
        return before

    def keep(self, row: int, ids: Sequence[int], begin: int, before: Chunk | None) -> Chunk:
        """Keep the chunk that a row has read at `begin`, unless another text read the same meanwhile; return it."""
        key, first = (before, tuple(ids[begin : begin + self.size])), begin // self.cache.page
        chunk = self.chunks.get(key)
        if chunk is None:
            pages = self.cache.pages_of(row)[first : first + self.size // self.cache.page]
            chunk = self.chunks[key] = Chunk(pages, before)
            for page in pages:
                self.cache.users[page] += 1
            if before is not None:
                before.followers += 1
        return chunk

    def evict(self) -> bool:
        """Forget the chunk used longest ago, of those that no sequence has. False: there is none."""
        for key, chunk in self.chunks.items():
            if not chunk.followers and all(self.cache.users[page] == 1 for page in chunk.pages):
                self.cache.release(chunk.pages)
                del self.chunks[key]
                if chunk.parent is not None:
                    chunk.parent.followers -= 1
                return True
        return False

    @property
    def evictable(self) -> int:
        """Number of pages that only forgotten chunks would free."""
        users = self.cache.users
        return sum(users[page] == 1 for chunk in self.chunks.values() for page in chunk.pages)


def bytes_of_page(model: Transformer) -> int:
    """Bytes of the keys and values of PAGE tokens."""
    config, weight = model.config, next(model.parameters())
    return config.num_layers * 2 * config.kv_heads * PAGE * config.head_width * weight.element_size()


def bytes_between(head: int, heads: int) -> int:
    """Padding between heads of `head` bytes, by which they begin at different places of huge pages. Else one token
    would fault in a huge page for every head, and the system clear hundreds of megabytes at once."""
    return 0 if head < HUGE else (HUGE // heads - head) % HUGE


def reserved(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros. On a CPU the system gives memory to a part of them when it is first written to."""
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    count = int(np.prod(size, dtype=np.int64)) * dtype.itemsize
    return torch.from_numpy(lines(np.zeros, count)).view(dtype).view(size)
