"""Seconds, hours and money of a training run: FLOPs over the rate that devices really reach."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.breakdown import Breakdown
from accounting.checks import instance, positive
from accounting.counting.flops import training_flops
from accounting.hardware.devices import Device
from accounting.shape import TransformerShape
from accounting.units import FLOPRate, Seconds, TokenRate, Tokens


@dataclass(frozen=True)
class TrainingTime:
    """Time and cost of a training run; `hours` are wall-clock, `device_hours` those of all devices, `cost` None without
    a price."""

    flops: Breakdown
    tokens: Tokens
    seconds: Seconds
    devices: int
    rate: FLOPRate
    cost: float | None
    convention: str

    @property
    def hours(self) -> float:
        return float(self.seconds) / 3600

    @property
    def device_hours(self) -> float:
        return self.hours * self.devices

    @property
    def tokens_per_second(self) -> TokenRate:
        return TokenRate(int(self.tokens) / float(self.seconds))


def training_time(
    shape: TransformerShape,
    tokens: int,
    device: Device,
    mfu: float,
    *,
    seq_len: int | None = None,
    devices: int = 1,
    dtype: str = "bf16",
    pairs: str = "causal",
    price: float | None = None,
) -> TrainingTime:
    """Time of training on a number of tokens at a model FLOPs utilisation (Chowdhery et al. 2022), with devices that
    scale linearly.

    tokens are rounded up to whole sequences. mfu is the part of the peak of `dtype` that the model's own FLOPs reach,
    above 0 and at most 1, counted over `pairs` of positions: those that are computed, or "full" as PaLM and Megatron-LM
    count; price is money for one device and hour. The optimizer's FLOPs are left out, as MFU leaves
    them out: they are bound by bandwidth.
    """
    instance("shape", shape, TransformerShape, "SHAPES")
    instance("device", device, Device, "DEVICES")
    rate = _rate(device, dtype, mfu, devices)
    length = shape.sequence(seq_len)
    sequences = -(-positive("tokens", tokens) // length)
    flops = training_flops(shape, length, sequences, pairs=pairs)
    if price is not None and not 0 <= price < float("inf"):
        raise ValueError(f"expected price as money for one device and hour, got {price!r}: leave it out if unknown")
    seconds = Seconds(flops.total / rate)
    return TrainingTime(
        flops,
        Tokens(sequences * length),
        seconds,
        devices,
        rate,
        None if price is None else price * devices * float(seconds) / 3600,
        f"{devices} × {device.name} at {mfu:.1%} of {device.rate_in_words(dtype)}; {flops.convention}",
    )


def recomputation(
    shape: TransformerShape, seq_len: int | None = None, *, checkpointing: str = "full", pairs: str = "causal"
) -> float:
    """The hardware's FLOPs over the model's, hence HFU over MFU: about 4/3 with full activation checkpointing.

    Megatron-LM's 140 of 312 TFLOP/s include recomputed FLOPs (Narayanan et al. 2021): an HFU of 44.9%.

    >>> from accounting import SHAPES
    >>> round(0.4487 / recomputation(SHAPES["gpt3-175b"], 2048), 3)
    0.338
    """
    whole, again = (
        int(training_flops(shape, seq_len, pairs=pairs, recompute=blocks).total) for blocks in ("none", checkpointing)
    )
    return again / whole


def mfu(
    shape: TransformerShape,
    tokens_per_second: float,
    device: Device,
    *,
    seq_len: int | None = None,
    devices: int = 1,
    dtype: str = "bf16",
    pairs: str = "causal",
) -> float:
    """The part of the peak that a measured rate of training, of all devices together, amounts to."""
    instance("shape", shape, TransformerShape, "SHAPES")
    instance("device", device, Device, "DEVICES")
    if not 0 < tokens_per_second < float("inf"):
        raise ValueError(f"expected tokens_per_second above 0, got {tokens_per_second!r}")
    length = shape.sequence(seq_len)
    each = int(training_flops(shape, length, 1, pairs=pairs).total) / length
    return each * tokens_per_second / float(_rate(device, dtype, 1.0, devices))


def _rate(device: Device, dtype: str, part: float, devices: int) -> FLOPRate:
    if isinstance(part, bool) or not 0 < part <= 1:
        raise ValueError(f"expected mfu above 0 and at most 1, got {part!r}: 0.4 means 40% of the peak")
    return FLOPRate(float(device.peak(dtype)) * part * positive("devices", devices))
