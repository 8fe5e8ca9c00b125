"""The measurements of bench_attention.py: attention and its peers, the cases of each table, timing of a call."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
WAYS = ("forward", "backward", "both")
FEWER_ROUNDS = ((0.05, 5), (0.15, 3))  # of a case with a call of more seconds than these
CLEARED = 512 * 2**20  # bytes: several times the L2 cache of any device

POSITIONS, NUMBERS = 16384, 2048  # of a case of the table of lengths: in all its texts, and of all heads of a position

MASKS = ("causal", "window", "documents", "grouped")
MASK_BATCH, MASK_LENGTH, MASK_HEADS, MASK_KV_HEADS = 2, 8192, 16, 4  # these few key heads where they are grouped
WINDOW, DOCUMENTS = 1024, 8

DECODE_SHAPES = ((32, 8, 128), (12, 12, 64))  # heads, key heads, head dim
DECODE_CACHES = ((1, 1024), (1, 16384), (1, 65536), (16, 4096), (64, 1024))  # batch, keys
DRAWN_BATCH, DRAWN_KEYS, DRAWN_LEAST = 16, 4096, 256  # the row whose texts have lengths of their own
GRAPHED_CALLS, EAGER_CALLS = 4, 50

ERROR_SHAPE = (1, 4, 2048)  # batch, heads, length
ERRORS_OF = ("output", "dq", "dk", "dv")
AIM_SHAPE, AIM_ROUNDS, AIM_MS = (1, 16, 16384, 64), 20, 5.36

Attend = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
Call = Callable[[], object]
Seconds = dict[tuple[str, str], float]  # of (peer, way)
Measured = tuple[Seconds, dict[str, str]]  # and why a peer is not among them


class Case(NamedTuple):
    """A row of the table of lengths."""

    head_dim: int
    causal: bool
    length: int

    def tensors(self, device: str, dtype: torch.dtype) -> list[Tensor]:
        """q, k, v and the gradient of the output: (batch, heads, length, head_dim)."""
        shape = (max(1, POSITIONS // self.length), NUMBERS // self.head_dim, self.length, self.head_dim)
        return drawn([shape] * 4, device, dtype)

    def flops(self, way: str) -> int:
        """Of all heads and texts of the case."""
        texts, heads = max(1, POSITIONS // self.length), NUMBERS // self.head_dim
        pairs = self.length * (self.length + 1) // 2 if self.causal else self.length**2
        return {"forward": 4, "backward": 10, "both": 14}[way] * self.head_dim * texts * heads * pairs


def drawn(shapes: Iterable[tuple[int, ...]], device: str, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator(device=device).manual_seed(0)
    return [torch.randn(shape, device=device, dtype=dtype, generator=generator) for shape in shapes]


# Attention and its peers


def ours(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    from lm.ops.triton.flash import flash_attention

    out = flash_attention(q, k, v, causal=causal)
    assert isinstance(out, Tensor)
    return out


def sdpa(kernel: SDPBackend, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    with sdpa_kernel([kernel]):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


@functools.cache
def flex_parts() -> tuple[Callable[..., Tensor], Callable[..., object]]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    return torch.compile(flex_attention, dynamic=False), functools.cache(create_block_mask)


def earlier(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


def flex(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    attend, mask = flex_parts()
    length = q.shape[2]
    return attend(
        q, k, v, block_mask=mask(earlier, None, None, length, length, device=q.device.type) if causal else None
    )


def definition(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """The definition, whose score matrix is held."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        place = torch.arange(q.shape[2], device=q.device)
        scores = scores.masked_fill(place > place[:, None], -math.inf)
    return scores.softmax(-1) @ v


@functools.cache
def compiled_definition() -> Attend:
    return torch.compile(definition, dynamic=False)


def compiled(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return compiled_definition()(q, k, v, causal)


PEERS: dict[str, Attend] = {
    "ours": ours,
    "SDPA flash": functools.partial(sdpa, SDPBackend.FLASH_ATTENTION),
    "SDPA cuDNN": functools.partial(sdpa, SDPBackend.CUDNN_ATTENTION),
    "FlexAttention": flex,
    "compiled reference": compiled,
}
QUICK_PEERS = ("ours", "SDPA flash", "SDPA cuDNN")  # the others take seconds of compiling for each shape


# Timing


@functools.cache
def cleared() -> Tensor:
    return torch.empty(CLEARED, dtype=torch.uint8, device="cuda")


def clock(call: Call, device: str) -> float:
    """Seconds of one call."""
    if device == "cpu":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    cleared().zero_()
    begin.record()
    call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def reason(refusal: Exception) -> str:
    return (str(refusal).strip() or repr(refusal)).splitlines()[0][:200]


def rounds_for(longest: float, rounds: int) -> int:
    """As many rounds as asked for, or fewer where the longest call takes many seconds."""
    return min([rounds, *(few for limit, few in FEWER_ROUNDS if longest > limit)])


def take_turns(calls: dict[tuple[str, str], Call], device: str, rounds: int) -> Measured:
    """Median seconds of each call. A round before those that count warms up, and tells how long the calls are."""
    times: dict[tuple[str, str], list[float]] = {which: [] for which in calls}
    refused = {}

    def turn() -> None:
        for which in list(times):
            try:
                times[which].append(clock(calls[which], device))
            except Exception as refusal:
                refused[which[0]] = reason(refusal)
                del times[which]

    turn()
    for _ in range(rounds_for(max((each[0] for each in times.values()), default=0.0), rounds)):
        turn()
    return {which: statistics.median(each[1:] or each) for which, each in times.items()}, refused


def gradient_calls(
    forward: Callable[[], Tensor], leaves: Sequence[Tensor], upstream: Tensor, training: bool
) -> dict[str, Call]:
    """A call for each of WAYS, after one that compiles. With training, forward keeps what backward needs."""
    out = forward()
    backward = functools.partial(torch.autograd.grad, out, leaves, upstream, retain_graph=True)
    backward()
    return {
        "forward": forward if training else torch.no_grad()(forward),
        "backward": backward,
        "both": lambda: torch.autograd.grad(forward(), leaves, upstream),
    }


def compare(
    forwards: Mapping[str, Callable[[], Tensor]],
    leaves: Sequence[Tensor],
    upstream: Tensor,
    device: str,
    rounds: int,
    ways: Sequence[str] = WAYS,
    training: bool = False,
) -> Measured:
    """Median seconds of (peer, way), the peers taking turns; and why a peer is not among them."""
    calls: dict[tuple[str, str], Call] = {}
    refused = {}
    for leaf in leaves:
        leaf.requires_grad_()
    for name, forward in forwards.items():
        try:
            of_name = gradient_calls(forward, leaves, upstream, training)
            calls |= {(name, way): of_name[way] for way in ways}
            del of_name  # the graph that "backward" holds
        except Exception as refusal:  # no memory, no such kernel: each peer has names of its own for these
            refused[name] = reason(refusal)
    seconds, failed = take_turns(calls, device, rounds)
    return seconds, refused | failed


def measure(case: Case, peers: dict[str, Attend], device: str, dtype: torch.dtype, rounds: int) -> Measured:
    """A row of the table of lengths."""
    q, k, v, upstream = case.tensors(device, dtype)
    forwards = {name: functools.partial(attend, q, k, v, case.causal) for name, attend in peers.items()}
    return compare(forwards, (q, k, v), upstream, device, rounds)


# Masks


class MaskCase(NamedTuple):
    """A row of the table of masks."""

    head_dim: int
    mask: str

    def tensors(self, device: str, dtype: torch.dtype) -> list[Tensor]:
        """q, k, v and the gradient of the output."""
        kv_heads = MASK_KV_HEADS if self.mask == "grouped" else MASK_HEADS
        shapes = [(MASK_BATCH, heads, MASK_LENGTH, self.head_dim) for heads in (MASK_HEADS, kv_heads)]
        return drawn([shapes[0], shapes[1], shapes[1], shapes[0]], device, dtype)

    def document_ids(self, device: str) -> Tensor | None:
        """(batch, keys): each text is several documents, each of which begins where chance puts it."""
        if self.mask != "documents":
            return None
        generator = torch.Generator().manual_seed(0)
        begins = torch.zeros(MASK_BATCH, MASK_LENGTH, dtype=torch.int64)
        for text in begins:
            text[torch.randperm(MASK_LENGTH - 1, generator=generator)[: DOCUMENTS - 1] + 1] = 1
        return begins.cumsum(1).to(device)

    def visible(self, ids: Tensor | None) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """True if a query sees a key, as FlexAttention asks it."""

        def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & (query - key < WINDOW)

        def same_document(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            assert ids is not None
            return (query >= key) & (ids[batch, query] == ids[batch, key])

        return {"window": near, "documents": same_document}.get(self.mask, earlier)


def ours_masked(case: MaskCase, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Tensor]:
    from lm.ops.triton.flash import flash_attention

    window = WINDOW if case.mask == "window" else None
    ids = case.document_ids(q.device.type)
    ours: Any = functools.partial(flash_attention, q, k, v, causal=True, sliding_window=window, document_ids=ids)
    return ours  # type: ignore[no-any-return]


def flex_masked(case: MaskCase, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Tensor]:
    from torch.nn.attention.flex_attention import create_block_mask

    ids = case.document_ids(q.device.type)
    batch, length = None if ids is None else q.shape[0], q.shape[2]
    block_mask = create_block_mask(case.visible(ids), batch, None, length, length, device=q.device.type)
    grouped = q.shape[1] != k.shape[1]
    return functools.partial(flex_parts()[0], q, k, v, block_mask=block_mask, enable_gqa=grouped)


def sdpa_masked(case: MaskCase, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Tensor]:
    places = torch.arange(q.shape[2], device=q.device)
    texts = torch.arange(q.shape[0], device=q.device).view(-1, 1, 1, 1)
    mask = case.visible(case.document_ids(q.device.type))(texts, texts, places[:, None], places)
    grouped = q.shape[1] != k.shape[1]
    return functools.partial(F.scaled_dot_product_attention, q, k, v, attn_mask=mask, enable_gqa=grouped)


def cudnn_masked(case: MaskCase, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Tensor]:
    if case.mask in ("window", "documents"):
        raise ValueError("SDPA has no such mask but as a tensor")
    return functools.partial(sdpa, SDPBackend.CUDNN_ATTENTION, q, k, v, True)


MASK_PEERS: dict[str, Callable[[MaskCase, Tensor, Tensor, Tensor], Callable[[], Tensor]]] = {
    "ours": ours_masked,
    "FlexAttention": flex_masked,
    "SDPA with a mask": sdpa_masked,
    "SDPA cuDNN": cudnn_masked,
}


def measure_mask(case: MaskCase, names: Sequence[str], device: str, dtype: torch.dtype, rounds: int) -> Measured:
    """A row of the table of masks: forward, as in training, and both."""
    q, k, v, upstream = case.tensors(device, dtype)
    forwards, refused = {}, {}
    for leaf in (q, k, v):
        leaf.requires_grad_()
    for name in names:
        try:
            forwards[name] = MASK_PEERS[name](case, q, k, v)
        except Exception as refusal:
            refused[name] = reason(refusal)
    ways = ("forward", "both")
    seconds, failed = compare(forwards, (q, k, v), upstream, device, rounds, ways, training=True)
    return seconds, refused | failed


# Decoding


class DecodeCase(NamedTuple):
    """A row of the table of decoding: one query for each text against a cache of keys."""

    heads: int
    kv_heads: int
    head_dim: int
    batch: int
    keys: int
    own_lengths: bool = False

    def lengths(self) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randint(DRAWN_LEAST, self.keys + 1, (self.batch,), generator=generator)

    def bytes_read(self, dtype: torch.dtype) -> int:
        """Of keys and values."""
        positions = int(self.lengths().sum()) if self.own_lengths else self.batch * self.keys
        return 2 * positions * self.kv_heads * self.head_dim * dtype.itemsize


def graphed(call: Call, device: str) -> Call:
    """The replay of a CUDA graph of the call."""
    if device == "cpu":
        return call
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay  # type: ignore[no-any-return]


@torch.no_grad()
def measure_decode(case: DecodeCase, device: str, dtype: torch.dtype, rounds: int) -> Measured:
    """A row of the table of decoding: seconds of a call of each peer, in a graph and eager."""
    from lm.ops.triton import decode, problem

    query = (case.batch, case.heads, 1, case.head_dim)
    cache = (case.batch, case.kv_heads, case.keys, case.head_dim)
    # A call's keys are not those of the one before, as of the layers of a model: a small cache would stay in L2.
    layers = [drawn((query, cache, cache), device, dtype) for _ in range(GRAPHED_CALLS)]
    lengths = case.lengths().to(device) if case.own_lengths else None
    grouped = case.heads != case.kv_heads

    attends: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
        "ours": lambda q, k, v: decode.decode(problem.Problem(q, k, v), lengths),
        "SDPA": functools.partial(F.scaled_dot_product_attention, enable_gqa=grouped),
    }

    def run(attend: Callable[[Tensor, Tensor, Tensor], object], calls: int) -> None:
        for i in range(calls):
            attend(*layers[i % GRAPHED_CALLS])

    if case.own_lengths:
        del attends["SDPA"]
    calls: dict[tuple[str, str], Call] = {}
    refused = {}
    for name, attend in attends.items():
        try:
            run(attend, GRAPHED_CALLS)
            calls[name, "eager"] = functools.partial(run, attend, EAGER_CALLS)
            calls[name, "graph"] = graphed(functools.partial(run, attend, GRAPHED_CALLS), device)
        except Exception as refusal:
            refused[name] = reason(refusal)
    seconds, failed = take_turns(calls, device, rounds)
    per_call = {"graph": GRAPHED_CALLS, "eager": EAGER_CALLS}
    return {(name, way): total / per_call[way] for (name, way), total in seconds.items()}, refused | failed


def compile_decode(decodes: Sequence[DecodeCase], device: str, dtype: torch.dtype) -> None:
    for case in decodes:
        measure_decode(case, device, dtype, 0)


# Errors


def gradients(attend: Attend, inputs: Sequence[Tensor], upstream: Tensor) -> tuple[Tensor, ...]:
    """The tensors that ERRORS_OF names, of causal attention."""
    q, k, v = (x.detach().requires_grad_() for x in inputs)
    out = attend(q, k, v, True)
    return out.detach(), *torch.autograd.grad(out, (q, k, v), upstream)


def relative_errors(
    peers: dict[str, Attend], head_dim: int, device: str, dtype: torch.dtype
) -> tuple[dict[tuple[str, str], float], dict[str, str]]:
    """‖x - exact‖ / ‖exact‖ of (peer, what), where exact is computed in float64 from the same rounded inputs."""
    *inputs, upstream = drawn([(*ERROR_SHAPE, head_dim)] * 4, device, dtype)
    exact = gradients(definition, [x.double() for x in inputs], upstream.double())
    errors, refused = {}, {}
    for name, attend in peers.items():
        try:
            outputs = gradients(attend, inputs, upstream)
            for what, x, y in zip(ERRORS_OF, outputs, exact, strict=True):
                errors[name, what] = float((x.double() - y).norm() / y.norm())
        except Exception as refusal:
            refused[name] = reason(refusal)
    return errors, refused


def measure_aim(peers: dict[str, Attend], device: str, dtype: torch.dtype) -> Measured:
    """Seconds of both, of the case that has an aim."""
    q, k, v, upstream = drawn([AIM_SHAPE] * 4, device, dtype)
    forwards = {name: functools.partial(attend, q, k, v, True) for name, attend in peers.items()}
    return compare(forwards, (q, k, v), upstream, device, AIM_ROUNDS, ("both",))
