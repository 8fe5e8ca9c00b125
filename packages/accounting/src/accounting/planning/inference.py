"""Generation by a roofline: seconds of reading a prompt and of each new token, what fits, and what it costs.

It is a lower bound: arithmetic and memory traffic overlap perfectly, the slower decides (Williams et al. 2009). Several
devices share every layer (tensor parallelism); what they send each other is counted in bytes, not in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from accounting.breakdown import Breakdown
from accounting.checks import choose, instance, positive, whole
from accounting.cluster.layout import Layout, places, shard
from accounting.counting.flops import decode_flops, prefill_flops
from accounting.hardware.devices import Device
from accounting.layer import Layer
from accounting.memory.inference import BITS, FORMATS, inference_memory, kv_cache, weight_bytes, weights_read
from accounting.planning.fitting import largest
from accounting.shape import TransformerShape
from accounting.units import Bytes, FLOPs, Seconds


@dataclass(frozen=True)
class Storage:
    """Storage of a model that generates: its weights, its cache in pages of `page` positions (0: exact; see
    kv_cache), and the devices that share each layer."""

    weights: str = "bf16"
    cache: str = "bf16"
    devices: int = 1
    page: int = 0
    hybrid: bool = False

    def __post_init__(self) -> None:
        choose("weights", self.weights, FORMATS)
        choose("cache", self.cache, BITS)
        positive("devices", self.devices)


PLAIN = Storage()
VISIBLE = 0.99 * 2**30 / 10**9  # bytes that a driver shows of one of the datasheet's, whose GB are GiB
SAMPLING_BYTES = 38  # a logit, its copy in fp32, and what sorting and normalising it take, in vLLM's sampler
NON_TORCH = (140_000_000, 590_000_000)  # bytes of driver and libraries, on one device and where several communicate
PADDED = 256  # to a multiple of this vLLM pads the width of experts in mxfp4
# parts of these bounds that measured engines reach, by benchmarks/published_generation.py
REACHED = {"one text": (0.26, 0.89), "tensor parallel": (0.22, 0.64), "batched": (0.07, 0.28), "prefill": (0.13, 0.88)}


@dataclass(frozen=True)
class Engine:
    """Shares of a device that an engine takes, as vLLM's profile of a first step decides it.

    Args:
        utilization: part of the memory that a driver shows which the engine may use.
        chunk: tokens of a prefill that are computed at once.
        sequences: most sequences that decode together.
        overhead: bytes of driver and libraries; those of NON_TORCH if None.
    """

    utilization: float = 0.9
    chunk: int = 8192
    sequences: int = 1024
    overhead: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.utilization, bool) or not 0 < self.utilization <= 1:
            raise ValueError(f"expected utilization above 0 and at most 1, got {self.utilization!r}")
        for name in ("chunk", "sequences"):
            positive(name, getattr(self, name))
        if self.overhead is not None:
            whole("overhead", self.overhead)


def engine_for(device: Device) -> Engine:
    """vLLM's defaults for a device: fewer tokens and sequences at once below 70 GiB, and on an A100."""
    large = float(device.memory) >= 70e9 and not device.name.startswith("a100")
    return Engine() if large else Engine(chunk=2048, sequences=256)


def free_cache(shape: TransformerShape, device: Device, engine: Engine, *, storage: Storage = PLAIN) -> int:
    """Bytes that an engine leaves for the cache on the fullest device, below zero where the model does not fit.

    Of the memory that a driver shows it may use a part, less weights, driver and libraries, and the larger of two
    peaks: the widest layer over a chunk of the prompt, and the sampling of as many sequences as may decode at once.
    """
    if storage.weights == "mxfp4":
        shape = _padded(shape)
    usable = int(int(device.memory) * VISIBLE * engine.utilization)
    overhead = NON_TORCH[storage.devices > 1] if engine.overhead is None else engine.overhead

    def taken(mine: TransformerShape) -> int:
        width = max(
            (mine.num_heads + 2 * mine.kv_heads) * mine.head_width,
            *(mine.matrices_of_ffn * one.active * (one.d_ff or 0) for one in mine.ffns),
        )
        residual = 2 * 2 * engine.chunk * mine.d_model
        sampling = SAMPLING_BYTES * engine.sequences * shape.vocab_rows  # every device has all of them
        weights = int(weight_bytes(mine, weights=storage.weights).total)
        return weights + residual + max(2 * engine.chunk * width, sampling)

    return usable - overhead - max(map(taken, _shares(shape, storage.devices)))


def _padded(shape: TransformerShape) -> TransformerShape:
    """The shape with experts as wide as a kernel pads them."""

    def layer(one: Layer) -> Layer:
        if one.ffn is None or one.ffn.experts is None or one.ffn.d_ff is None:
            return one
        return replace(one, ffn=replace(one.ffn, d_ff=-(-one.ffn.d_ff // PADDED) * PADDED))

    return replace(
        shape,
        d_ff=-(-shape.d_ff // PADDED) * PADDED,
        leading=tuple(map(layer, shape.leading)),
        layers=tuple(map(layer, shape.layers)),
    )


def reached(batch_size: int, devices: int) -> tuple[float, float]:
    """The least and the greatest part of the bound of decoding that measured engines reach."""
    return REACHED["batched" if batch_size > 1 else "one text" if devices == 1 else "tensor parallel"]


@dataclass(frozen=True)
class Roofline:
    """Work and traffic of one device, the busiest; `sent` is what it sends to the others that share its layers."""

    flops: FLOPs
    moved: Bytes
    sent: Bytes
    arithmetic: Seconds
    traffic: Seconds

    @property
    def seconds(self) -> Seconds:
        return max(self.arithmetic, self.traffic)

    @property
    def bound(self) -> str:
        return "arithmetic" if self.arithmetic >= self.traffic else "bandwidth"


@dataclass(frozen=True)
class Generation:
    """Reading a prompt and generating `output` tokens for each of batch_size sequences, by the roofline of each step.

    The first of them comes of the prefill, each of the others of a decoding step.
    """

    prefill: Roofline
    first_step: Roofline
    last_step: Roofline
    decode_seconds: Seconds  # of all steps together
    prompt: int
    output: int
    batch_size: int
    devices: int

    @property
    def seconds(self) -> Seconds:
        return self.prefill.seconds + self.decode_seconds

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all sequences a second, while decoding."""
        return self.batch_size * (self.output - 1) / float(self.decode_seconds)

    def cost_per_million_prompt_tokens(self, price: float) -> float:
        """Money, at a price of one device and hour."""
        return self._cost(price, self.prefill.seconds, self.prompt)

    def cost_per_million_output_tokens(self, price: float) -> float:
        """Money, at a price of one device and hour."""
        return self._cost(price, self.decode_seconds, self.output)

    def _cost(self, price: float, seconds: Seconds, tokens: int) -> float:
        if not 0 <= price < float("inf"):
            raise ValueError(
                f"price must be money for one device and hour, and {price!r} is not: leave it out if unknown"
            )
        return price * self.devices * float(seconds) / 3600 * 1e6 / (self.batch_size * tokens)


def prefill_time(
    shape: TransformerShape, device: Device, prompt: int | None = None, batch_size: int = 1, *, storage: Storage = PLAIN
) -> Roofline:
    """Roofline of reading a prompt: every weight read once, the keys and values written once, one new token each."""
    return _roofline(shape, device, storage, prompt, batch_size, prefill=True)


def decode_time(
    shape: TransformerShape,
    device: Device,
    context: int | None = None,
    batch_size: int = 1,
    *,
    storage: Storage = PLAIN,
) -> Roofline:
    """Roofline of one decoding step: every weight that it needs and the whole cache read once for one token a
    sequence."""
    return _roofline(shape, device, storage, context, batch_size, prefill=False)


def generation_time(
    shape: TransformerShape, device: Device, prompt: int, output: int, batch_size: int = 1, *, storage: Storage = PLAIN
) -> Generation:
    """Time to read prompts of `prompt` positions and to generate `output` tokens after each.

    The first new token comes of the prefill; each of the others of a decoding step, whose cache is one position longer
    than that of the step before. The seconds of all steps are summed exactly. ValueError: output is below 2.
    """
    positive("prompt", prompt)
    if positive("output", output) < 2:
        raise ValueError(f"output must be at least 2 tokens, the first comes of the prefill, and {output} is not")
    first, last = prompt + 1, prompt + output - 1

    def step(context: int) -> Roofline:
        return decode_time(shape, device, context, batch_size, storage=storage)

    bends = set()  # contexts after which a layer reads no more, or begins a chunk
    for kind in shape.counts:
        if window := kind.attention.window:
            steps = range(first // window * window, last, window) if kind.attention.chunked else (window,)
            bends |= {at for at in steps if first <= at < last}
            bends |= {at + 1 for at in steps if kind.attention.chunked and first <= at + 1 < last}
    edges = [first - 1, *sorted(bends), last]
    seconds = sum(_steps(step, low + 1, high) for low, high in pairwise(edges))
    prefill = prefill_time(shape, device, prompt, batch_size, storage=storage)
    return Generation(prefill, step(first), step(last), Seconds(seconds), prompt, output, batch_size, storage.devices)


def _steps(step: Callable[[int], Roofline], first: int, last: int) -> float:
    """Seconds of the steps from one context to another, between which work and traffic grow evenly."""
    low, high = step(first), step(last)
    if low.bound == high.bound or last - first < 2:  # what bounds a step changes at most once
        return (last - first + 1) * (float(low.seconds) + float(high.seconds)) / 2
    half = (first + last) // 2
    return _steps(step, first, half) + _steps(step, half + 1, last)


def max_sequences(
    shape: TransformerShape,
    device: Device,
    context: int | None = None,
    *,
    storage: Storage = PLAIN,
    engine: Engine | None = None,
) -> int:
    """The most sequences of `context` positions that devices decode together; 0 if not even one fits.

    With an engine those whose caches are in what it leaves, and no more than it decodes at once.
    """
    instance("shape", shape, TransformerShape, "SHAPES")
    instance("device", device, Device, "DEVICES")
    fits = _fits(shape, device, storage, engine)
    length = shape.sequence(context)
    return largest(lambda batch: (engine is None or batch <= engine.sequences) and fits(batch, length))


def requests_at_once(
    shape: TransformerShape,
    device: Device,
    prompt: int,
    output: int,
    *,
    first_token: float = float("inf"),
    each_token: float = float("inf"),
    storage: Storage = PLAIN,
    engine: Engine | None = None,
) -> int:
    """The most requests of one prompt and output length whose prompts are read within `first_token` seconds, together,
    and whose decoding steps take at most `each_token` seconds, the last included, in the memory of the devices.

    0 if not even one request is that fast, or fits.
    """
    for name, limit in (("first_token", first_token), ("each_token", each_token)):
        if not limit > 0:
            raise ValueError(f"expected {name} above 0 seconds, got {limit!r}: leave it out for no limit")
    fits = _fits(shape, device, storage, engine)

    def meets(batch: int) -> bool:
        return (
            (engine is None or batch <= engine.sequences)
            and fits(batch, prompt + output)
            and float(prefill_time(shape, device, prompt, batch, storage=storage).seconds) <= first_token
            and float(decode_time(shape, device, prompt + output - 1, batch, storage=storage).seconds) <= each_token
        )

    return largest(meets)


def longest_generation(
    shape: TransformerShape,
    device: Device,
    batch_size: int = 1,
    *,
    storage: Storage = PLAIN,
    engine: Engine | None = None,
) -> int:
    """The longest context that batch_size sequences decode with, at most what learned positions reach; 0 if none
    fits."""
    most = shape.context_length if shape.position == "learned" else 1 << 40  # where a window ends the cache, any fits
    fits = _fits(shape, device, storage, engine)
    return largest(lambda context: context <= most and fits(batch_size, context))


def _fits(
    shape: TransformerShape, device: Device, storage: Storage, engine: Engine | None
) -> Callable[[int, int], bool]:
    """True for a batch and context that fit: all memory of the datasheet, or what an engine leaves for the cache."""
    if engine is None:
        whole = int(device.memory)
        return lambda *sizes: int(device_inference_memory(shape, *sizes, storage=storage)) <= whole
    free = free_cache(shape, device, engine, storage=storage)

    def fits(batch: int, context: int) -> bool:
        cached = (
            kv_cache(mine, batch, context, dtype=storage.cache, page=storage.page, hybrid=storage.hybrid)
            for mine in _shares(shape, storage.devices)
        )
        return max(int(one.total) for one in cached) <= free

    return fits


def device_inference_memory(
    shape: TransformerShape, batch_size: int = 1, context: int | None = None, *, storage: Storage = PLAIN
) -> Breakdown:
    """inference_memory of the fullest of the devices."""
    length = shape.sequence(context)
    stored: dict[str, Any] = {"weights": storage.weights, "cache": storage.cache}
    stored |= {"page": storage.page, "hybrid": storage.hybrid}
    shares = _shares(shape, storage.devices)
    return max((inference_memory(mine, batch_size, length, **stored) for mine in shares), key=int)


def _shares(shape: TransformerShape, devices: int) -> set[TransformerShape]:
    """The shares of the devices, each once."""
    layout = Layout(tensor=devices)
    return {shard(shape, layout, place) for place in places(layout)} if devices > 1 else {shape}


def _roofline(
    shape: TransformerShape, device: Device, storage: Storage, context: int | None, batch_size: int, *, prefill: bool
) -> Roofline:
    instance("shape", shape, TransformerShape, "SHAPES")
    instance("device", device, Device, "DEVICES")
    length = shape.sequence(context)
    tokens = positive("batch_size", batch_size) * (length if prefill else 1)
    # quantised weights, and fp32 without a rate of its own, are multiplied in 16 bits
    formats = (storage.weights,) if storage.weights in ("fp32", "fp16", "fp8") else ("bf16", "fp16", "fp32")
    dtype = next((one for one in (*formats, "fp32", "bf16", "fp16") if one in device.peaks), formats[0])
    peak, bandwidth = device.peak(dtype), device.known_bandwidth

    def of(mine: TransformerShape) -> tuple[FLOPs, Bytes]:
        flops = prefill_flops(mine, length, batch_size) if prefill else decode_flops(mine, length, batch_size)
        read = weights_read(mine, tokens, weights=storage.weights)
        cache = kv_cache(mine, batch_size, length, dtype=storage.cache, read=not prefill)
        return FLOPs(int(flops.total)), Bytes(int(read.total) + int(cache.total))

    sent = Bytes(0)
    if storage.devices > 1:  # two sums a layer, and that of the embeddings, each a ring over all of them
        ring = 2 * (storage.devices - 1) * (-(-tokens * shape.d_model // storage.devices))
        sent = Bytes((2 * shape.num_layers + 1) * ring * (4 if storage.weights == "fp32" else 2))
    shares = [of(mine) for mine in _shares(shape, storage.devices)]
    flops, moved = max(shares, key=lambda one: max(float(one[0] / peak), float(one[1] / bandwidth)))
    return Roofline(flops, moved, sent, Seconds(flops / peak), Seconds(moved / bandwidth))
