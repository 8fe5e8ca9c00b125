"""Decoding: the next token's logits for several texts at once, over a key/value cache of pages.

A prompt goes through the model as it is (`Decoder.read`). One more token for each text (`Decoder.step`) is so little
arithmetic that what a step costs is reading the weights and calling torch. So on a CPU it is one call of C, where a
compiler is (lm.ops.cpu); elsewhere it works in buffers made once, on the model's own fused weights, with as few
operations as there can be; and on CUDA, where this package's attention kernel runs, these are replayed as a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.attention import as_bias, decodes
from lm.config import ModelConfig
from lm.generation.graph_step import GraphSteps, PagedPlaces
from lm.generation.kv_cache import Cache, PagedLayer
from lm.model import MLP, Block, RMSNorm, SwiGLU, Transformer, apply_rotary_emb, rope_cache, softcapped
from lm.ops.cpu.decode_step import NativeStep, native_step
from lm.ops.cpu.products import is_linear

# Rows that a step in C takes at once: more than so many need more scratch memory and gain nothing.
MOST_NATIVE_ROWS = 32


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
        how: Which of them it was, and why.
        likeliest: Of each row of the last step the first of its largest logits, below 0 if there is none; None if
            PyTorch took it.
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
        self.model, self.config = model, model.config
        if capacity is not None and capacity > model.config.context_length:
            raise ValueError(f"capacity {capacity} is more than the context of {model.config.context_length}: lower it")
        self.cache = Cache(model, rows, capacity, memory)
        self.device, self.dtype = model.embedding.weight.device, model.embedding.weight.dtype
        self.likeliest: list[int] | None = None
        self.native: NativeStep | None = None
        self.how = "in PyTorch"
        if native is not False and self.device.type == "cpu":
            made = native_step(model, self.cache)
            if isinstance(made, NativeStep):
                self.native, self.how = made, "in C"
            elif native:
                raise ValueError(f"there is no step in C, because {made}: let native be None")
            else:
                self.how += f", because {made}"
        self.graphs: GraphSteps | None = None
        if self.native is None:
            self._prepare_for_torch()
            if native is None and self.shares_keys and self.device.type == "cuda":
                self.graphs, self.how = GraphSteps(self), "as a CUDA graph"

    def _prepare_for_torch(self) -> None:
        """What steps in PyTorch work with."""
        model, c = self.model, self.config
        self.layers = [DecoderBlock(cast(Block, block)) for block in model.blocks]
        self.final_norm = normaliser(model.final_norm)
        self.head = multiplier(nn_head(model))
        self.buffers: dict[int, Buffers] = {}
        self.positions = None if model.positions is None else model.positions.weight
        self.shares_keys = decodes(self.device, self.dtype, c.head_width)
        self.rope: Tensor | None = None
        if c.position == "rope":
            size = (c.context_length, c.head_width)
            self.rope = rope_cache(*size, c.rope_theta, c.rope_scaling, self.dtype, self.device)

    @torch.inference_mode()
    def read(self, row: int, ids: Sequence[int], *, last: bool = True) -> Tensor | None:
        """Appends ids to a row's text; the logits (vocab_size,) of what follows, None where it is not the `last` part.

        NoPages: the memory is full.
        """
        cache = self.cache
        start = cache.lengths[row]
        self._grow(row, start + len(ids))
        slots = cache.slots(row, 0, start + len(ids))
        layers = [PagedLayer(store, slots, start) for store in cache.store]
        hidden = self.model.hidden(torch.tensor([ids], device=self.device), start=start, cache=[*layers])
        cache.lengths[row] = start + len(ids)
        return self.model.logits(hidden[0, -1]) if last else None

    def step(self, tokens: Sequence[int], rows: Sequence[int] | None = None) -> Tensor:
        """Appends tokens[i] to the text of rows[i] (the first rows, if not given); the logits (len(tokens), vocab_size)
        of what follows each, which the next step may overwrite. A row that is named several times gets its tokens one
        after another.

        ValueError: a row is as long as it may be. NoPages: the memory is full.
        """
        rows = range(len(tokens)) if rows is None else rows
        lengths = self.cache.lengths
        positions = [lengths[row] for row in rows]
        if len(tokens) > 1 and len(set(rows)) < len(rows):
            positions = [length + rows[:i].count(rows[i]) for i, length in enumerate(positions)]
        if (most := max(positions)) >= self.cache.capacity:
            raise ValueError(f"a row holds {most} tokens, and has no room for another: make a larger Decoder")
        for row, position in zip(rows, positions, strict=True):
            self._grow(row, position + 1)
        self.likeliest = None
        if self.graphs is not None:
            logits, self.likeliest = self.graphs(tokens, rows, positions)
        elif self.native is None:
            logits = self._step_in_torch(tokens, rows, positions)
        elif len(tokens) <= MOST_NATIVE_ROWS:
            made = self.native(tokens, rows, positions)
            logits, self.likeliest = made.logits, made.likeliest[: len(tokens)]
        else:
            parts, self.likeliest = list[Tensor](), []
            for at in range(0, len(tokens), MOST_NATIVE_ROWS):
                some = slice(at, at + MOST_NATIVE_ROWS)
                made = self.native(tokens[some], rows[some], positions[some])
                parts.append(made.logits.clone())
                self.likeliest += made.likeliest[: len(tokens[some])]
            logits = torch.cat(parts)
        if self.config.logit_softcap is not None:
            logits, self.likeliest = softcapped(logits, self.config.logit_softcap), None
        for row in rows:
            lengths[row] += 1
        return logits

    def _grow(self, row: int, tokens: int) -> None:
        if not self.cache.grow(row, tokens):
            cache = self.cache
            raise NoPages(
                f"the keys and values of all texts fill the {cache.pages * cache.page_bytes:,} bytes that there are "
                f"for them: give more memory, or ask for shorter texts"
            )

    @torch.inference_mode()
    def _step_in_torch(self, tokens: Sequence[int], rows: Sequence[int], lengths: list[int]) -> Tensor:
        c, batch = self.config, len(tokens)
        buffers = self.buffers.get(batch)
        if buffers is None:
            buffers = self.buffers[batch] = self.new_buffers(batch)
        x, places = buffers.x, Places(self.cache, rows, lengths, c.sliding_window, self.shares_keys)
        if batch == 1:
            x.copy_(self.model.embedding.weight.select(0, tokens[0]))
        else:
            torch.index_select(self.model.embedding.weight, 0, torch.tensor(tokens, device=self.device), out=x)
        at = lengths[0] if batch == 1 else places.at
        ids = torch.tensor(tokens[0] if batch == 1 else tokens, device=self.device) if c.value_embeddings else None
        return self.run_blocks(buffers, places, at, ids)

    def new_buffers(self, batch: int, *, vector: bool = True) -> Buffers:
        """Memory for steps of so many rows; vector: see Buffers."""
        return Buffers(self.config, batch, self.dtype, self.device, vector=vector)

    def run_blocks(
        self, buffers: Buffers, places: Places | PagedPlaces, at: int | Tensor, ids: Tensor | None
    ) -> Tensor:
        """The logits (batch, vocab_size) of the embeddings in buffers.x, which stand at the positions `at`.

        ids: The tokens, for value embeddings.
        """
        x = buffers.x
        if self.positions is not None:
            x.add_(self.positions[at])
        rope = None if self.rope is None else self.rope[at].unsqueeze(-3)  # (1, pairs, 2) or (batch, 1, pairs, 2)
        for i, layer in enumerate(self.layers):
            layer.step(x, buffers, places, i, rope, ids)
        logits = self.head(self.final_norm(x, buffers), buffers.logits)
        return logits.view(buffers.batch, -1)[:, : self.config.vocab_size]


class Buffers:
    """What a step of `batch` rows writes into, made once; views of one memory say what of it they are.

    A single row is a vector, without the first dimension: on a CPU torch multiplies a matrix by one a fifth faster than
    by a matrix of one row. In a CUDA graph it is a matrix of one row.

    Attributes:
        x, normed: What goes from block to block, and what a norm makes of it: (batch, d_model).
        scale: What a norm divides by: (batch, 1).
        flat: The projections of queries, keys and values: (batch, (heads + 2 · kv_heads) · head_dim).
        q, k, qk: Of these the queries, the keys, and both: (batch, heads, head_dim).
        kv: Keys and values: (batch, 2, kv_heads, head_dim).
        grouped: The queries, as several of the key head that they share: (batch, kv_heads, group, head_dim).
        pairs: Queries and keys as complex numbers, to rotate: (batch, heads + kv_heads, head_dim / 2); None where
            their dtype has none.
        attended: The shape of what attention gathers, for the output projection.
        up: What the feed-forward's first product makes: (batch, d_ff), or with SwiGLU (batch, 2 · d_ff).
        gate, gated: SwiGLU's two halves of it.
        logits: (batch, vocab_rows).
    """

    def __init__(
        self, c: ModelConfig, batch: int, dtype: torch.dtype, device: torch.device, *, vector: bool = True
    ) -> None:
        self.batch = batch
        lead = () if batch == 1 and vector else (batch,)
        heads, kv, width = c.num_heads, c.kv_heads, c.head_width

        def memory(numbers: int) -> Tensor:
            return torch.empty((*lead, numbers), dtype=dtype, device=device)

        self.x, self.normed, self.scale = memory(c.d_model), memory(c.d_model), memory(1)
        self.flat = memory((heads + 2 * kv) * width)
        self.up = memory(c.d_ff * (2 if c.ffn == "swiglu" else 1))
        self.logits = memory(c.vocab_rows)

        by_head = self.flat.view(batch, heads + 2 * kv, width)
        self.qk, self.kv = by_head[:, : heads + kv], by_head[:, heads:].view(batch, 2, kv, width)
        self.q, self.k = self.qk.split_with_sizes((heads, kv), dim=1)
        self.grouped = self.q.view(batch, kv, heads // kv, width)
        self.pairs: Tensor | None = None
        if width % 2 == 0 and dtype in (torch.float32, torch.float64):
            self.pairs = torch.view_as_complex(self.qk.view(batch, heads + kv, width // 2, 2))
        self.attended = (*lead, heads * width)
        self.gate, self.gated = self.up[..., : c.d_ff], self.up[..., c.d_ff :]


class Places:
    """Where a step writes in the cache, and what it reads of it: the same for all layers."""

    def __init__(
        self, cache: Cache, rows: Sequence[int], lengths: list[int], sliding_window: int | None, shares_keys: bool
    ) -> None:
        self.sliding_window, self.shares_keys = sliding_window, shares_keys
        batch, end, device = len(lengths), max(lengths) + 1, cache.store.device
        self.stores = cache.store.unbind(0)  # of each layer (2, kv_heads, slots, head_dim)
        self.bias: Tensor | None = None
        self.lengths: Tensor | None = None
        if batch == 1:
            begin = 0 if sliding_window is None else max(0, end - sliding_window)
            pages = cache.pages_of(rows[0])
            first = pages[0] * cache.page
            if pages == list(range(pages[0], pages[0] + len(pages))):  # then nothing has to be gathered
                self.slots: Tensor | slice = slice(first + begin, first + end)  # (seen,)
                self.new: Tensor | slice = slice(first + end - 1, first + end)
            else:
                self.slots = cache.slots(rows[0], begin, end)
                self.new = self.slots[-1:]
            return
        self.at = torch.tensor(lengths, device=device)  # (batch,)
        of_each = [cache.slots(row, 0, length + 1) for row, length in zip(rows, lengths, strict=True)]
        self.slots = torch.stack([F.pad(slots, (0, end - len(slots))) for slots in of_each])  # (batch, seen)
        self.new = self.slots[torch.arange(batch, device=device), self.at]
        if shares_keys:
            self.lengths = self.at + 1
        elif sliding_window is not None or min(lengths) + 1 < end:
            key, query = torch.arange(end, device=device), self.at[:, None]
            visible = key <= query if sliding_window is None else (key <= query) & (key > query - sliding_window)
            self.bias = as_bias(visible, cache.store.dtype)[:, None, None]

    def write(self, layer: int, buffers: Buffers) -> None:
        """Puts the keys and values of the new tokens at the end of their rows."""
        self.stores[layer][:, :, self.new] = buffers.kv.permute(1, 2, 0, 3)

    def attend(self, layer: int, buffers: Buffers) -> Tensor:
        """What the new tokens gather: (batch, heads, 1, head_dim), or the heads of a group beside each other."""
        seen = self.stores[layer][:, :, self.slots]  # (2, kv_heads, seen, head_dim), or (2, kv_heads, batch, …)
        seen = seen.unsqueeze(1) if seen.ndim == 4 else seen.transpose(1, 2)
        keys, values = seen.unbind(0)  # each (batch, kv_heads, seen, head_dim)
        if self.shares_keys:
            from lm.ops.triton.flash import decode_attention

            q = buffers.q.unsqueeze(2)
            return cast(
                Tensor, decode_attention(q, keys, values, sliding_window=self.sliding_window, lengths=self.lengths)
            )
        return F.scaled_dot_product_attention(buffers.grouped, keys, values, attn_mask=self.bias)


class DecoderBlock:
    """One block, ready for steps."""

    def __init__(self, block: Block) -> None:
        attention, ffn = block.attention, block.ffn
        self.post = block.post
        self.attention_norm, self.ffn_norm = normaliser(block.attention_norm), normaliser(block.ffn_norm)
        self.attention, self.q_norm, self.k_norm = attention, attention.q_norm, attention.k_norm
        self.qkv, self.output = multiplier(attention.qkv), adder(attention.output)
        self.activate = None if isinstance(ffn, SwiGLU) else cast(MLP, ffn).activate
        self.up = multiplier(ffn.gate_up if isinstance(ffn, SwiGLU) else cast(MLP, ffn).up)
        self.down = adder(cast(nn.Linear, ffn.down))

    def step(
        self,
        x: Tensor,
        b: Buffers,
        places: Places | PagedPlaces,
        layer: int,
        rope: Tensor | None,
        ids: Tensor | None,
    ) -> None:
        """x (batch, d_model), in place; ids: for value embeddings."""
        inside = x if self.post else self.attention_norm(x, b)
        flat = self.qkv(inside, b.flat)
        if self.attention.value_embedding is not None and ids is not None:
            flat = self.attention.add_value_embedding(flat, self.attention.value_gate(inside), ids)
        if flat is not b.flat:
            b.flat.copy_(flat)
        if self.q_norm is not None and self.k_norm is not None:
            b.q.copy_(self.q_norm(b.q))
            b.k.copy_(self.k_norm(b.k))
        if rope is not None:
            if b.pairs is not None:
                b.pairs.mul_(torch.view_as_complex(rope))
            else:
                b.qk.copy_(apply_rotary_emb(b.qk, rope))
        places.write(layer, b)
        self.output(x, places.attend(layer, b).reshape(b.attended))
        if self.post:
            x.copy_(self.attention_norm(x, b))
        up = self.up(x if self.post else self.ffn_norm(x, b), b.up)
        if self.activate is not None:
            up = self.activate(up)
        elif up is b.up:
            up = F.silu(b.gate, inplace=True).mul_(b.gated)
        else:
            gate, gated = up.chunk(2, -1)
            up = F.silu(gate).mul_(gated)
        self.down(x, up)
        if self.post:
            x.copy_(self.ffn_norm(x, b))


def nn_head(model: Transformer) -> nn.Module:
    """The head as a layer, also where its weight is the embedding's."""
    if model.head is not None:
        return model.head
    head = nn.Linear(1, 1, bias=False, device="meta")
    head.weight = model.embedding.weight
    return head


def multiplier(linear: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """(x, out) → linear(x), in out if that is where it can write."""
    if not is_linear(linear):
        return lambda x, out: cast(Tensor, linear(x))
    weight, turned, bias = linear.weight, linear.weight.t(), cast("Tensor | None", linear.bias)

    def multiply(x: Tensor, out: Tensor) -> Tensor:
        if x.ndim == 1:
            return torch.mv(weight, x, out=out) if bias is None else torch.addmv(bias, weight, x, out=out)
        return torch.mm(x, turned, out=out) if bias is None else torch.addmm(bias, x, turned, out=out)

    return multiply


def adder(linear: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """(x, y) → x + linear(y), in x."""
    if not is_linear(linear):
        return lambda x, y: x.add_(linear(y))
    weight, turned, bias = linear.weight, linear.weight.t(), cast("Tensor | None", linear.bias)

    def add(x: Tensor, y: Tensor) -> Tensor:
        x = x.addmv_(weight, y) if x.ndim == 1 else x.addmm_(y, turned)
        return x if bias is None else x.add_(bias)

    return add


def normaliser(norm: nn.Module) -> Callable[[Tensor, Buffers], Tensor]:
    """(x, buffers) → norm(x), in buffers.normed if that is where it can write."""
    if not isinstance(norm, RMSNorm) or norm.weight.dtype not in (torch.float32, torch.float64):
        return lambda x, b: cast(Tensor, norm(x))
    width, eps, weight = len(norm.weight), norm.eps, norm.weight.detach()
    on_cpu, weight_of_sum, eps_of_sum = weight.device.type == "cpu", weight * width**0.5, width * eps

    def normalise(x: Tensor, b: Buffers) -> Tensor:
        if on_cpu and x.ndim == 1:  # a number is at hand, and one operation less for each that Python takes over
            return torch.mul(x, (float(torch.dot(x, x)) / width + eps) ** -0.5, out=b.normed).mul_(weight)
        # x / √(Σx²/width + eps) · weight = x / √(Σx² + width · eps) · √width · weight
        torch.linalg.vector_norm(x, dim=-1, keepdim=True, out=b.scale)
        b.scale.square_().add_(eps_of_sum).rsqrt_()
        return torch.mul(x, b.scale, out=b.normed).mul_(weight_of_sum)

    return normalise
