"""K-quants of GGUF written: Q4_K, Q5_K and Q6_K, by llama.cpp's own search for scales, and its mix Q4_K_M. Layouts:
ggml-common.h; searches: make_qkx2_quants and make_qx_quants of ggml-quants.c; mix: llama_tensor_get_type."""

from __future__ import annotations

import re

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GROUP, BLOCK = 256, 32
CHUNK = 1 << 13  # groups that are quantized at once, which bounds memory
LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def kind_of(name: str, columns: int, layers: int, *, is_head: bool) -> str:
    """The type of a matrix in Q4_K_M: the head, and half of the values and of ffn_down, have more bits."""
    # Rows that are not whole groups are Q8_0, where llama.cpp may take Q5_0.
    if columns % GROUP:
        return "F16" if columns % BLOCK else "Q8_0"
    match = LAYER.fullmatch(name)
    if match is None:
        return "Q6_K" if is_head else "Q4_K"
    layer, part = int(match[1]), match[2]
    if part == "attn_qkv":
        return "Q5_K"
    more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    return "Q6_K" if more and part in ("attn_v", "ffn_down", "ffn_down_exps") else "Q4_K"


def quantize(array: NDArray[np.float32], kind: str) -> NDArray[np.uint8]:
    """Rows (…, columns) of whole groups → their bytes (…, bytes) in "Q4_K", "Q5_K" or "Q6_K"."""
    groups = torch.from_numpy(array).reshape(-1, GROUP)
    convert = q6_k if kind == "Q6_K" else lambda part: q4_or_q5_k(part, 4 if kind == "Q4_K" else 5)
    parts = [convert(part) for part in torch.split(groups, CHUNK)]
    return torch.cat(parts).numpy().reshape(*array.shape[:-1], -1)


def q4_or_q5_k(x: Tensor, bits: int) -> Tensor:
    """Groups (count, 256) → (count, bytes): unsigned integers of `bits`, with a scale and a least of each 32."""
    most = (1 << bits) - 1
    x = x.view(-1, 8, BLOCK)
    weights = (x.square().mean(-1, keepdim=True)).sqrt() + x.abs()
    scales, least = scales_and_least(x, weights, most, *((-1.0, 0.1, 20) if bits == 4 else (-0.5, 0.1, 15)))
    step, least_step = (value.amax(1, keepdim=True) / 63 for value in (scales, least))
    whole = [(x / one.clamp(min=1e-30)).round().clamp(0, 63) for x, one in ((scales, step), (least, least_step))]
    d, dmin = step.half(), least_step.half()
    scale, less = (a.float() * b for a, b in zip((d, dmin), whole, strict=True))
    q = ((x + less[..., None]) / torch.where(scale > 0, scale, torch.inf)[..., None]).round().clamp(0, most).byte()
    scales_8, least_8 = (value.byte() for value in whole)
    first = torch.cat((scales_8[:, :4] | scales_8[:, 4:] >> 4 << 6, least_8[:, :4] | least_8[:, 4:] >> 4 << 6), 1)
    packed = torch.cat((first, scales_8[:, 4:] & 15 | (least_8[:, 4:] & 15) << 4), 1)
    low = (q[:, ::2] & 15 | (q[:, 1::2] & 15) << 4).flatten(1)
    parts = [d.view(torch.uint8), dmin.view(torch.uint8), packed]
    if bits == 5:
        parts.append(sum((q[:, block] >> 4) << block for block in range(8)))  # type: ignore[arg-type]
    return torch.cat((*parts, low), 1)


def scales_and_least(
    x: Tensor, weights: Tensor, most: int, begin: float, step: float, steps: int
) -> tuple[Tensor, Tensor]:
    """The scale, and the least below zero as a positive number, of blocks (count, 8, 32): least weighted squares."""
    low, high = x.amin(-1).clamp(max=0), x.amax(-1)
    total, total_x = weights.sum(-1), (weights * x).sum(-1)
    scale, least = (high - low) / most, low
    best = torch.full_like(scale, torch.inf)
    for number in range(-1, steps + 1):
        share = (most if number < 0 else begin + step * number + most) / (high - least).clamp(min=1e-30)
        q = (share[..., None] * (x - least[..., None])).round().clamp(0, most)
        by = weights * q
        sum_q, sum_qq, sum_xq = by.sum(-1), (by * q).sum(-1), (by * x).sum(-1)
        if number < 0:
            one, other = scale, least
        else:
            divisor = total * sum_qq - sum_q.square()
            one, other = total * sum_xq - total_x * sum_q, sum_qq * total_x - sum_q * sum_xq
            one, other = one / divisor.clamp(min=1e-30), other / divisor.clamp(min=1e-30)
            above = other > 0
            one, other = torch.where(above, sum_xq / sum_qq.clamp(min=1e-30), one), other.clamp(max=0)
        error = (weights * (one[..., None] * q + other[..., None] - x).square()).sum(-1)
        better = error < best if number < 0 else (error < best) & (divisor > 0)
        best = torch.where(better, error, best)
        scale, least = torch.where(better, one, scale), torch.where(better, other, least)
    return torch.where(high > low, scale, 0.0), -least


def q6_k(x: Tensor) -> Tensor:
    """Groups (count, 256) → (count, 210): integers of 6 bits, with a scale of 8 bits of each 16."""
    x = x.view(-1, 16, 16)
    largest = x.gather(-1, x.abs().argmax(-1, keepdim=True))[..., 0]  # with its sign
    nothing, weights = largest.abs() < 1e-15, x.square()
    best, scale = torch.zeros_like(largest), torch.zeros_like(largest)
    for number in (0, *range(-9, 0), *range(1, 10)):
        by = torch.where(nothing, 0.0, -(32 + 0.1 * number) / torch.where(nothing, 1.0, largest))
        q = (by[..., None] * x).round().clamp(-32, 31)
        sum_xq, sum_qq = (weights * x * q).sum(-1), (weights * q * q).sum(-1)
        better = (sum_qq > 0) & (sum_xq.square() > best * sum_qq)
        scale = torch.where(better, sum_xq / sum_qq.clamp(min=1e-38), scale)
        best = torch.where(better, scale * sum_xq, best)
    most = scale.gather(1, scale.abs().argmax(1, keepdim=True))  # with its sign
    d = (most / -128).half()
    whole = torch.where(most == 0, 0.0, scale * -128 / torch.where(most == 0, 1.0, most)).round().clamp(-128, 127)
    step = d.float() * whole
    q = (x / torch.where(step == 0, torch.inf, step)[..., None]).round().clamp(-32, 31)
    halves = (q + 32).byte().view(-1, 2, 4, 32)  # of each half four runs of 32
    low = (halves[:, :, :2] & 15 | (halves[:, :, 2:] & 15) << 4).flatten(1)
    high = sum((halves[:, :, run] >> 4) << 2 * run for run in range(4)).flatten(1)  # type: ignore[union-attr]
    return torch.cat((low, high, whole.to(torch.int8).view(torch.uint8), d.view(torch.uint8)), 1)
