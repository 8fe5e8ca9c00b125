"""The Python side of forward.c and choice.c, which read prompts, decode and choose tokens, over a key/value cache."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from lm.config import ModelConfig
from lm.model import Transformer
from lm.ops.cpu.build import Unavailable, built
from lm.ops.cpu.describe import Count, Description, Pointer, Real


class Task(ctypes.Structure):
    _fields_ = [
        *((name, Pointer) for name in ("model", "cache")),
        *((name, Count) for name in ("slots", "page", "capacity", "count", "outputs", "is_prompt")),
        *((name, Count) for name in ("threads", "vocab_size")),
        *((name, Pointer) for name in ("tokens", "positions", "tables", "likeliest", "room", "logits", "hidden")),
    ]


class Choice(ctypes.Structure):
    """The rule by which a token is chosen; temperature 0: the likeliest; top_p 1, min_p 0, top_k 0: of all tokens."""

    _fields_ = [*((name, Real) for name in ("temperature", "top_p", "min_p")), ("top_k", Count)]


class Cache(Protocol):
    """The part of a key/value cache that a step uses (see generation.kv_cache)."""

    store: Tensor  # (layers, 2, kv_heads, slots, head_dim); what may lie between heads is as long between all
    page: int  # slots that a page has
    rows: int
    capacity: int  # the most tokens of a row

    def table_address(self, row: int) -> int:
        """Address of the numbers of a row's pages, int64, in order."""


class NativeStep:
    """One more token for each of several texts, or a part of a prompt, over the pages of a cache. It points into the
    model's own weights. Unavailable: the library is not written for such a model."""

    def __init__(self, library: ctypes.CDLL, model: Transformer, cache: Cache) -> None:
        self.library, self.cache, self.dtype = library, cache, cache.store.dtype
        self.scratch = library.scratch
        self.scratch.restype = Count
        self.room = torch.empty(0, dtype=self.dtype)  # scratch memory
        self.choosing: Tensor | None = None
        self.calls = dict[tuple[int, int], Call]()
        self.vocab_size, self.vocab_rows = model.config.vocab_size, model.config.vocab_rows
        self.description = Description(model, self.dtype, cache.capacity)

    def __call__(self, tokens: Sequence[int], rows: Sequence[int], positions: Sequence[int]) -> Call:
        """Run one step, token i at positions[i] of row rows[i] of the cache; the next call overwrites what it returns.
        The cache holds the tokens before each, or this call brings them. IndexError: a token that the vocabulary does
        not have."""
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
        steps = run(ctypes.byref(call.task), call.tokens, call.positions, *about)
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

    def read(self, ids: Sequence[int], row: int, position: int, outputs: int) -> tuple[Tensor, Tensor]:
        """Prefill: write ids into `row` from `position` on. Return the hidden states of the last `outputs` of them,
        (outputs, d_model), and the logits (vocab_size,) after the last, if there are any outputs. IndexError: as for a
        step. ValueError: the row has no room for them."""
        if position + len(ids) > self.cache.capacity:
            raise ValueError(f"expected at most {self.cache.capacity} tokens in a row, got {position + len(ids)}")
        self.check(ids)
        call = Call(self, len(ids), torch.get_num_threads(), prompt_outputs=outputs)
        call.set(ids, [row], [position])
        call.run()
        return call.hidden, call.logits[0]

    def call(self, tokens: Sequence[int], rows: Sequence[int], positions: Sequence[int]) -> Call:
        """The step of these tokens, not yet run."""
        self.check(tokens)
        key = len(tokens), torch.get_num_threads()
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = Call(self, *key)
        call.set(tokens, rows, positions)
        return call

    def check(self, tokens: Sequence[int]) -> None:
        """IndexError: a token that the vocabulary does not have."""
        if min(tokens) < 0 or max(tokens) >= self.vocab_size:
            raise IndexError(f"token ids {list(tokens)} are not all in the vocabulary of {self.vocab_size}")


class Call:
    """A step of one token for each of `count` texts, or a prompt of `count` tokens, on `threads` threads. logits
    (count, vocab_size), of a prompt one row; hidden: of a prompt (outputs, d_model). likeliest: of each row of logits
    the first of the largest, below 0 if there is none, as where one is NaN."""

    def __init__(self, step: NativeStep, count: int, threads: int, prompt_outputs: int | None = None) -> None:
        cache, is_prompt, outputs = step.cache, prompt_outputs is not None, prompt_outputs or 0
        self.step, texts = step, 1 if is_prompt else count
        whole = torch.empty(texts, step.vocab_rows, dtype=step.dtype)
        self.logits = whole[:, : step.vocab_size]
        self.hidden = torch.empty(outputs, step.description.model.d_model, dtype=step.dtype)
        self.tokens, self.positions, self.tables = (Count * count)(), (Count * texts)(), (Pointer * texts)()
        self.likeliest = (Count * texts)()
        self.task = Task(
            model=ctypes.addressof(step.description.model),
            cache=cache.store.data_ptr(),
            slots=cache.store.stride(2) // cache.store.shape[4],  # with what lies between heads
            page=cache.page,
            capacity=cache.capacity,
            count=count,
            outputs=outputs,
            is_prompt=is_prompt,
            threads=threads,
            vocab_size=step.vocab_size,
            tokens=ctypes.addressof(self.tokens),
            positions=ctypes.addressof(self.positions),
            tables=ctypes.addressof(self.tables),
            likeliest=ctypes.addressof(self.likeliest),
            logits=whole.data_ptr(),
            hidden=self.hidden.data_ptr(),
        )
        call = step.library.forward
        call.restype = None
        self.size = step.scratch(ctypes.byref(self.task))
        self.run: Callable[[], None] = functools.partial(call, ctypes.byref(self.task))

    def set(self, tokens: Sequence[int], rows: Sequence[int], positions: Sequence[int]) -> None:
        """Set what the next run computes."""
        step = self.step
        self.tokens[:] = tokens  # type: ignore[call-overload]
        self.positions[:] = positions  # type: ignore[call-overload]
        self.tables[:] = [step.cache.table_address(row) for row in rows]
        if self.size > len(step.room):
            step.room = torch.empty(self.size, dtype=step.dtype)
        self.task.room = step.room.data_ptr()


def native_step(model: Transformer, cache: Cache) -> NativeStep | Unavailable:
    """A step for this model and cache, or why there is none."""
    if cache.store.device.type != "cpu":
        return Unavailable(f"the model is on {cache.store.device}")
    try:  # the check too is refused where every module has a hook
        library = checked(cache.store.dtype)
        return library if isinstance(library, Unavailable) else NativeStep(library, model, cache)
    except Unavailable as reason:
        return reason


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
    library = built("forward", dtype)
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
        logits.append(step.read(ids, 0, 0, 1)[1][None])
        actual, exact = torch.cat(logits), model(torch.tensor([ids]))[0]
        right = torch.allclose(actual, torch.cat((exact, exact[-1:])), rtol=0, atol=1e-4)
        if not right or best != actual[:-1].argmax(1).tolist():
            return Unavailable("what was compiled does not compute what it should")
    return library
