"""The Python side of decode_step.c, prompt.c and choice.c, which read prompts, decode and choose tokens: it passes them
pointers to the weights and to the key/value cache."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from lm import config as choices
from lm.config import ModelConfig
from lm.model import MLP, Attention, Block, RMSNorm, SwiGLU, Transformer
from lm.ops.cpu.build import Unavailable, built
from lm.ops.cpu.fused import FusedAttention, FusedRMSNorm, FusedSwiGLU, hooked
from lm.ops.cpu.int8 import Int4Linear, Int8Linear
from lm.ops.cpu.products import is_linear
from lm.rope import rope_cache

Pointer, Count = ctypes.c_void_p, ctypes.c_int64
# The numbers by which decode_step.c knows them.
NORMS: dict[choices.Norm, int] = {"rmsnorm": 0, "layernorm": 1, "none": 2}
FFNS: dict[choices.FFN, int] = {"swiglu": 0, "gelu": 1, "gelu_exact": 2, "silu": 3, "relu2": 4}


class Matrix(ctypes.Structure):
    _fields_ = [
        *((name, Pointer) for name in ("weight", "scale", "bias")),
        *((name, Count) for name in ("rows", "columns", "stride", "groups")),
    ]


class Norm(ctypes.Structure):
    _fields_ = [("weight", Pointer), ("bias", Pointer)]


class Layer(ctypes.Structure):
    _fields_ = [
        *((name, Norm) for name in ("attention_norm", "ffn_norm", "q_norm", "k_norm")),
        *((name, Matrix) for name in ("qkv", "output", "up", "down")),
    ]


class Model(ctypes.Structure):
    _fields_ = [
        *((name, Count) for name in ("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "sliding_window")),
        *((name, Count) for name in ("norm", "ffn", "post", "qk_norm")),
        ("eps", ctypes.c_double),
        *((name, Pointer) for name in ("embedding", "positions", "rope")),
        ("final_norm", Norm),
        ("head", Matrix),
        ("layer", ctypes.POINTER(Layer)),
    ]


class Task(ctypes.Structure):
    _fields_ = [
        *((name, Pointer) for name in ("model", "cache")),
        *((name, Count) for name in ("slots", "page", "capacity", "batch", "threads", "vocab_size")),
        *((name, Pointer) for name in ("tokens", "lengths", "tables", "likeliest", "room", "logits")),
    ]


class Choice(ctypes.Structure):
    """The rule by which a token is chosen; temperature 0: the likeliest; top_p 1, min_p 0, top_k 0: of all tokens."""

    _fields_ = [*((name, ctypes.c_double) for name in ("temperature", "top_p", "min_p")), ("top_k", Count)]


class Cache(Protocol):
    """The part of a key/value cache that a step uses (see generation.kv_cache)."""

    store: Tensor  # (layers, 2, kv_heads, slots, head_dim); what may lie between heads is as long between all
    page: int  # slots that a page has
    rows: int
    capacity: int  # the most tokens of a row

    def table_address(self, row: int) -> int:
        """Address of the numbers of a row's pages, int64, in order."""
        ...


class NativeStep:
    """One more token for each of several texts, over the pages of a cache.

    It points into the model's own weights. Unavailable: the library is not written for such a model.
    """

    def __init__(self, library: ctypes.CDLL, model: Transformer, cache: Cache) -> None:
        c, store = model.config, cache.store
        self.library, self.cache, self.dtype = library, cache, store.dtype
        self.rooms = dict[tuple[int, int], Tensor]()  # scratch memory, by the numbers of tokens and of threads
        self.prompt_room = torch.empty(0, dtype=self.dtype)
        self.choosing: Tensor | None = None
        self.referenced = list[Tensor]()  # what the pointers point to
        self.calls = dict[tuple[int, int], Call]()
        layers = [self.layer(cast(Block, block)) for block in model.blocks]
        size = (c.context_length, c.head_width)
        rope = None
        if c.position == "rope":
            rope = rope_cache(*size, c.rope_theta, c.rope_scaling, self.dtype, store.device)
        self.vocab_size, self.vocab_rows = c.vocab_size, c.vocab_rows
        self.model = Model(
            layers=c.num_layers,
            d_model=c.d_model,
            heads=c.num_heads,
            kv_heads=c.kv_heads,
            head_dim=c.head_width,
            d_ff=c.d_ff,
            sliding_window=c.sliding_window or 0,
            norm=NORMS[c.norm],
            ffn=FFNS[c.ffn],
            post=c.norm_placement == "post",
            qk_norm=c.qk_norm,
            eps=c.norm_eps,
            embedding=self.at(model.embedding.weight),
            positions=None if model.positions is None else self.at(model.positions.weight),
            rope=None if rope is None else self.at(rope),
            final_norm=self.norm(model.final_norm),
            head=self.matrix(model.embedding if model.head is None else model.head),
            layer=(Layer * len(layers))(*layers),
        )

    def __call__(self, tokens: Sequence[int], rows: Sequence[int], positions: Sequence[int]) -> Call:
        """Run one step, token i at positions[i] of row rows[i] of the cache; the next call overwrites what it returns.

        The cache holds the tokens before each, or this call brings them.

        IndexError: a token that the vocabulary does not have.
        """
        call = self.call(tokens, rows, positions)
        call.run()
        return call

    def continue_texts(
        self,
        tokens: Sequence[int],
        rows: Sequence[int],
        positions: Sequence[int],
        choices: Sequence[Choice],
        uniform: Tensor,
        stop_tokens: Collection[int],
        logits: Tensor | None = None,
    ) -> list[list[int]]:
        """Return the tokens that follow tokens[i], which come to positions[i] of rows[i], in each step.

        The last step may have one of stop_tokens, or a token below 0, where the logits are not numbers.

        Args:
            uniform: float64 (steps, texts), the random numbers that draw them.
            logits: (steps, texts, vocab_size), to which the logits are copied that the tokens are chosen from.
        """
        call, (count, batch) = self.call(tokens, rows, positions), uniform.shape
        tokens_out, stop = (Count * (count * batch))(), (Count * len(stop_tokens))(*stop_tokens)
        run = self.library.continue_texts
        run.restype = Count
        numbers, choice = Pointer(uniform.data_ptr()), (Choice * batch)(*choices)
        copy = Pointer(None if logits is None else logits.data_ptr())
        about = Count(count), choice, numbers, *self.choice_room(), stop, Count(len(stop)), tokens_out, copy
        steps = run(ctypes.byref(call.task), call.tokens, call.lengths, *about)
        return [tokens_out[at : at + batch] for at in range(0, steps * batch, batch)]

    def choose(self, logits: Tensor, choice: Choice, uniform: float) -> int:
        """A token of logits (vocab_size,), below 0 if they are not numbers."""
        run = self.library.choose_token
        run.restype = Count
        about = Count(self.vocab_size), ctypes.byref(choice), ctypes.c_double(uniform)
        return int(run(Pointer(logits.data_ptr()), *about, *self.choice_room()))

    def choice_room(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        """Scratch memory to choose a token, of weights and of candidates."""
        if self.choosing is None:
            self.choosing = torch.empty(3, self.vocab_size, dtype=torch.float64)
        return Pointer(self.choosing.data_ptr()), Pointer(self.choosing[1:].data_ptr())

    def read(self, ids: Sequence[int], row: int, position: int, outputs: int) -> tuple[Tensor, Call]:
        """Prefill: write ids into `row` from `position` on. Return the hidden states of the last `outputs` of them,
        (outputs, d_model), and a call with the logits after the last, if there are any outputs.

        IndexError: as for a step. ValueError: the row has no room for them.
        """
        if position + len(ids) > self.cache.capacity:
            raise ValueError(f"expected at most {self.cache.capacity} tokens in a row, got {position + len(ids)}")
        self.check(ids)
        call, model = self.call(ids[:1], [row], [position]), ctypes.byref(self.model)
        size = self.library.prompt_scratch
        size.restype = Count
        numbers = size(model, *map(Count, (len(ids), self.cache.capacity, call.task.threads)))
        if numbers > len(self.prompt_room):
            self.prompt_room = torch.empty(numbers, dtype=self.dtype)
        tokens, hidden = (Count * len(ids))(*ids), torch.empty(outputs, self.model.d_model, dtype=self.dtype)
        task = Task.from_buffer_copy(call.task)
        task.tokens, task.room = ctypes.addressof(tokens), self.prompt_room.data_ptr()
        self.library.read_prompt(ctypes.byref(task), Count(len(ids)), Count(outputs), Pointer(hidden.data_ptr()))
        return hidden, call

    def call(self, tokens: Sequence[int], rows: Sequence[int], positions: Sequence[int]) -> Call:
        """The step of these tokens, not yet run."""
        self.check(tokens)
        key = len(tokens), torch.get_num_threads()
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = Call(self, *key)
        call.tokens[:] = tokens  # type: ignore[call-overload]
        call.lengths[:] = positions  # type: ignore[call-overload]
        call.tables[:] = [self.cache.table_address(row) for row in rows]
        return call

    def check(self, tokens: Sequence[int]) -> None:
        """IndexError: a token that the vocabulary does not have."""
        if min(tokens) < 0 or max(tokens) >= self.vocab_size:
            raise IndexError(f"token ids {list(tokens)} are not all in the vocabulary of {self.vocab_size}")

    def room(self, batch: int, threads: int) -> Tensor:
        """Scratch memory for steps of so many tokens on so many threads."""
        key = max(batch, self.cache.rows), threads
        if key not in self.rooms:
            size = self.library.scratch
            size.restype = Count
            counts = map(Count, (key[0], self.cache.capacity, threads))
            self.rooms[key] = torch.empty(size(ctypes.byref(self.model), *counts), dtype=self.dtype)
        return self.rooms[key]

    def at(self, tensor: Tensor, dtype: torch.dtype | None = None) -> int:
        """The address of its numbers."""
        if tensor.dtype != (dtype or self.dtype):
            raise Unavailable(f"weights are of several types, {self.dtype} and {tensor.dtype}")
        self.referenced.append(tensor.detach().contiguous())
        return self.referenced[-1].data_ptr()

    def norm(self, norm: nn.Module | None) -> Norm:
        if norm is None or type(norm) is nn.Identity:
            return Norm()
        if type(norm) not in (RMSNorm, FusedRMSNorm, nn.LayerNorm):
            raise Unavailable(f"there is a {type(norm).__name__} in the model")
        bias = getattr(norm, "bias", None)
        return Norm(weight=self.at(cast(Tensor, norm.weight)), bias=None if bias is None else self.at(bias))

    def matrix(self, layer: nn.Module) -> Matrix:
        bias = getattr(layer, "bias", None)
        place = None if bias is None else self.at(bias)
        if isinstance(layer, Int8Linear | Int4Linear):
            address, scales = self.at(layer.whole, layer.whole.dtype), self.at(layer.scale.to(self.dtype))
            rows, columns, stride = layer.outputs, layer.inputs, layer.whole.shape[1]
            groups = layer.scale.shape[1] if isinstance(layer, Int4Linear) else 0
            return Matrix(address, scales, place, rows, columns, stride, groups)
        if not is_linear(layer) and type(layer) is not nn.Embedding:
            raise Unavailable(f"there is a {type(layer).__name__} in the model")
        weight = layer.weight
        rows, columns = weight.shape
        return Matrix(weight=self.at(weight), scale=None, bias=place, rows=rows, columns=columns, stride=columns)

    def layer(self, block: Block) -> Layer:
        attention, ffn = block.attention, block.ffn
        up = ffn.gate_up if isinstance(ffn, SwiGLU) else ffn.up
        return Layer(
            attention_norm=self.norm(block.attention_norm),
            ffn_norm=self.norm(block.ffn_norm),
            q_norm=self.norm(attention.q_norm),
            k_norm=self.norm(attention.k_norm),
            qkv=self.matrix(attention.qkv),
            output=self.matrix(attention.output),
            up=self.matrix(up),
            down=self.matrix(ffn.down),
        )


class Call:
    """A step of so many texts on so many threads: what it is called with and what comes of it.

    logits (batch, vocab_size). likeliest: of each text the first of its largest logits; below 0 if there is none, as
    where one is NaN; then as many more for each further thread.
    """

    def __init__(self, step: NativeStep, batch: int, threads: int) -> None:
        cache = step.cache
        whole = torch.empty(batch, step.vocab_rows, dtype=step.dtype)
        self.logits = whole[:, : step.vocab_size]
        self.tokens, self.lengths, self.tables = (Count * batch)(), (Count * batch)(), (Pointer * batch)()
        self.likeliest = (Count * (threads * batch))()
        self.task = Task(
            model=ctypes.addressof(step.model),
            cache=cache.store.data_ptr(),
            slots=cache.store.stride(2) // cache.store.shape[4],  # with what lies between heads
            page=cache.page,
            capacity=cache.capacity,
            batch=batch,
            threads=threads,
            vocab_size=step.vocab_size,
            tokens=ctypes.addressof(self.tokens),
            lengths=ctypes.addressof(self.lengths),
            tables=ctypes.addressof(self.tables),
            likeliest=ctypes.addressof(self.likeliest),
            room=step.room(batch, threads).data_ptr(),
            logits=whole.data_ptr(),
        )
        call = step.library.step
        call.restype = None
        self.run: Callable[[], None] = functools.partial(call, ctypes.byref(self.task))


def native_step(model: Transformer, cache: Cache) -> NativeStep | Unavailable:
    """A step for this model and cache, or why there is none."""
    if cache.store.device.type != "cpu":
        return Unavailable(f"the model is on {cache.store.device}")
    if model.config.value_embeddings:
        return Unavailable("the model has value embeddings")
    for module in model.modules():
        if not is_plain(module):
            return Unavailable(f"a {type(module).__name__} of the model has a hook or a forward of its own")
    parts = [model, model.embedding]
    for block in model.blocks:
        parts += [block, cast(Block, block).attention, cast(Block, block).ffn]
    for module in parts:
        if type(module) not in PLAIN:
            return Unavailable(f"there is a {type(module).__name__} in the model")
    library = checked(cache.store.dtype)
    if isinstance(library, Unavailable):
        return library
    try:
        return NativeStep(library, model, cache)
    except Unavailable as reason:
        return reason


PLAIN = (Transformer, nn.Embedding, Block, Attention, FusedAttention, SwiGLU, FusedSwiGLU, MLP)


def is_plain(module: nn.Module) -> bool:
    """True if a call of the module is its class's forward: it has no hooks, and no forward of its own."""
    return not hooked(module) and "forward" not in vars(module)


class OneRow:
    """A cache of one text in two pages, the second before the first."""

    page, rows, capacity = 2, 1, 3

    def __init__(self, store: Tensor) -> None:
        self.store, self.pages = store, (Count * 2)(1, 0)

    def table_address(self, row: int) -> int:
        return ctypes.addressof(self.pages)


@functools.cache
def checked(dtype: torch.dtype) -> ctypes.CDLL | Unavailable:
    """The library, after it has continued a small text as the model does: a compiler may be wrong."""
    library = built("decode_step", dtype)
    if isinstance(library, Unavailable):
        return library
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.no_grad():
        torch.manual_seed(0)
        model = Transformer(ModelConfig(40, 3, 2, 48, 3, 40, num_kv_heads=1, qk_norm=True)).to(dtype)
        cache, ids = OneRow(torch.zeros(2, 2, 1, 4, 16, dtype=dtype)), [7, 39, 20]
        step = NativeStep(library, model, cache)
        logits, best = list[Tensor](), list[int]()
        for token in ids:
            call = step([token], [0], [len(logits)])
            logits.append(call.logits.clone())
            best.append(call.likeliest[0])
        logits.append(step.read(ids, 0, 0, 1)[1].logits)
        actual, exact = torch.cat(logits), model(torch.tensor([ids]))[0]
        right = torch.allclose(actual, torch.cat((exact, exact[-1:])), rtol=0, atol=1e-4)
        if not right or best != actual[:-1].argmax(1).tolist():
            return Unavailable("what was compiled does not compute what it should")
    return library
