"""Checks of the exercises of chapter 12."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from grading import NOT_WRITTEN, Wrong, close, drawing, followed, near, normal, same, same_function
from torch import Tensor

FORMATS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float8_e5m2": (5, 2), "no name": (3, 2)}


def same_number(call: str, yours: Any, right: float, hint: str) -> None:
    """Raise Wrong unless two numbers are the same, the sign of a zero included; NaN equals NaN."""
    if yours is None:
        raise Wrong(f"{call} returns None: {NOT_WRITTEN}.")
    if not isinstance(yours, (int, float)):
        raise Wrong(f"{call} gives {yours!r}, and should give a float.")
    if math.isnan(yours) and math.isnan(right):
        return
    if yours != right or math.copysign(1, yours) != math.copysign(1, right):
        raise Wrong(f"{call} gives {yours!r}, and should give {right!r}. {hint}")


def value(bits: int, exponent_bits: int, mantissa_bits: int) -> float:
    """The number of a pattern, by fractions."""
    text = f"{bits:0{1 + exponent_bits + mantissa_bits}b}"
    sign, exponent = (-1) ** int(text[0]), int(text[1 : 1 + exponent_bits], 2)
    digits, bias = Fraction(int(text[1 + exponent_bits :], 2), 2**mantissa_bits), 2 ** (exponent_bits - 1) - 1
    if exponent == 2**exponent_bits - 1:
        return math.nan if digits else sign * math.inf
    size = (1 + digits) * Fraction(2) ** (exponent - bias) if exponent else digits * Fraction(2) ** (1 - bias)
    return math.copysign(float(size), sign)


def decode_float(yours: Callable[..., Any]) -> None:
    numbers = drawing("decode_float")
    for name, (e, m) in FORMATS.items():
        one = (2 ** (e - 1) - 1) << m
        infinity = (2**e - 1) << m
        edges = [one, one + 1, infinity - 1, 1, 2**m - 1, 2**m, infinity, infinity + 1, infinity + 2 ** (m - 1), 0]
        drawn = [numbers.randrange(2 ** (e + m)) for _ in range(50)]
        for bits in [sign + number for number in edges + drawn for sign in (0, 2 ** (e + m))]:
            call = f"decode_float(0b{bits:0{1 + e + m}b}, {e}, {m}), of {name},"
            hint = "Subnormal numbers have no 1 in front, and the exponent of the smallest normal ones."
            same_number(call, yours(bits, e, m), value(bits, e, m), hint)


def nearest(x: float, exponent_bits: int, mantissa_bits: int) -> float:
    """x rounded, by fractions."""
    if x == 0 or not math.isfinite(x):
        return x
    size, bias = Fraction(abs(x)), 2 ** (exponent_bits - 1) - 1
    exponent = 1 - bias
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - mantissa_bits)
    rounded = round(size / step) * step  # ties to even
    return math.copysign(math.inf if rounded >= 2 ** (bias + 1) else float(rounded), x)


def round_to(yours: Callable[..., Any]) -> None:
    numbers = drawing("round_to")
    for name, (e, m) in FORMATS.items():
        bias = 2 ** (e - 1) - 1
        least, largest = 2.0 ** (1 - bias - m), (2 - 2.0**-m) * 2.0**bias
        step = 2.0**-m
        ties = [1 + step / 2, 1 + 3 * step / 2, 2 - step / 2, 2.5 * least, 1.5 * least]
        # a hair beside a tie, which is a tie again for who rounds to float32 first
        beside = [1 + step / 2 + 2.0**-45, 1 + 3 * step / 2 - 2.0**-45]
        ends = [largest, largest + 2.0 ** (bias - m - 2), largest + 2.0 ** (bias - m - 1), 2.0 ** (bias + 1), math.inf]
        small = [0.0, least, least / 2, least * 0.51, least * 2.0 ** (m - 1) * 1.37, least * 2.0**m * 0.9999]
        drawn = [numbers.uniform(1, 2) * 2.0 ** numbers.randint(-bias - m, bias) for _ in range(40)]
        for x in [sign * x for x in ties + beside + ends + small + drawn for sign in (1, -1)] + [math.nan]:
            hint = "The step between numbers is 2^(exponent - mantissa bits), and no smaller than that of subnormals."
            same_number(f"round_to({x!r}, {e}, {m}), of {name},", yours(x, e, m), nearest(x, e, m), hint)


def mixed_linear(yours: Callable[..., Any]) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        # sums of pairs that cancel exactly, unless digits that 16 bits do not have are in one of them
        half, weights = normal(2, 3, 4).mul(3).round(), normal(5, 4, seed=1).mul(3).round()
        finer = 1 + 2.0**-13
        for which, factors in (("x", (finer, 1)), ("weight", (1, finer))):
            x, weight = torch.cat([half * factors[0], -half], -1), torch.cat([weights * factors[1], weights], -1)
            call = f"mixed_linear(x (2, 3, 8), weight (5, 8), {dtype}) with digits of {which} that {dtype} has not"
            close(call, yours(x, weight, dtype), torch.zeros(2, 3, 5, dtype=dtype), f"Round {which} first.", 0)
        for shape in ((2, 3, 8), (4, 8), (8,)):
            inputs = [normal(*shape), normal(5, 8, seed=1)]
            call = f"mixed_linear(x {shape}, weight (5, 8), {dtype})"
            functions = (followed(function, dtype) for function in (yours, product))
            same_function(call, *functions, inputs, "Rounding is an operation that gradients pass.", 0.02)


def product(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.einsum("...i,oi->...o", x.to(dtype), weight.to(dtype))


def master_sgd(yours: Callable[..., Any]) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        weights = [torch.ones(3, dtype=dtype), normal(2, 2).to(dtype), torch.ones(2, dtype=dtype)]
        masters = [weight.float() for weight in weights]
        optimizer = yours([weight.requires_grad_() for weight in weights], 0.003)
        # 1 comes near 0, where a relative error of all updates shows
        gradients = [torch.tensor([1.0, 0.5, -1.0]), normal(2, 2, seed=1), None]
        for step in range(1, 334):
            for weight, master, gradient in zip(weights, masters, gradients, strict=True):
                weight.grad = None if gradient is None else gradient.to(dtype)
                if gradient is not None:
                    master -= 0.003 * gradient.to(dtype).float()
            optimizer.step()
            if step not in (1, 2, 50, 333):
                continue
            if step == 1 and torch.equal(weights[0].detach(), torch.ones(3, dtype=dtype)):
                raise Wrong(f"A step of MasterSGD changes no weight: {NOT_WRITTEN}.")
            hint = "Steps are computed in float32, learning_rate times gradient too, and added up in the master weight."
            for number, (weight, master) in enumerate(zip(weights, masters, strict=True)):
                call = f"parameter {number} ({dtype}) after {step} steps of MasterSGD"
                resolution = float(torch.finfo(dtype).eps)  # a rounding may go the other way
                close(call, weight, master.to(dtype), hint, resolution)
                if ((weight.detach() - master).abs() > 1e-4 + resolution * master.abs()).any():
                    raise Wrong(f"{call} is {weight.tolist()}, and should be {master.tolist()}. {hint}")


class Counting(torch.optim.AdamW):
    """AdamW that counts its steps."""

    steps = 0

    def step(self, *arguments: Any, **settings: Any) -> Any:
        self.steps += 1
        return super().step(*arguments, **settings)


def optimizer_of(weights: list[Tensor]) -> Counting:
    """An optimizer of two groups."""
    return Counting([{"params": weights[:2]}, {"params": weights[2:], "lr": 0.01}], lr=0.1)


def loss_scaler(yours: Callable[..., Any]) -> None:
    scaler = yours()
    if not hasattr(scaler, "scale"):
        raise Wrong(f"LossScaler() has no scale: {NOT_WRITTEN}.")
    near("LossScaler().scale", scaler.scale, 65536)
    for dtype in (torch.float16, torch.float32):
        loss = torch.tensor(3.0, dtype=dtype, requires_grad=True)
        scaled = scaler.scale_loss(loss)
        close(f"scale_loss(3, {dtype})", scaled, torch.tensor(196608.0), "float16 ends at 65,504: in float32.")
        if not scaled.requires_grad:
            raise Wrong("No gradient reaches the loss: leave out item() and detach().")
    weight = torch.ones(1, requires_grad=True)
    weight.grad, optimizer = torch.zeros(1), Counting([weight])
    for step in range(2000):
        near(f"LossScaler().scale after {step} steps", scaler.scale, 65536, "It is doubled after 2,000 steps.")
        scaler.step(optimizer)
    near("LossScaler().scale after 2000 steps", scaler.scale, 131072)
    scaler, right_scale, good = yours(1024.0, 3), 1024.0, 0
    weights, ours = ([normal(4, seed=n).requires_grad_() for n in range(4)] for _ in range(2))
    optimizer, right_optimizer = optimizer_of(weights), optimizer_of(ours)
    bad = {2: math.inf, 6: math.nan, 7: -math.inf}
    for step in range(15):
        where = f"step {step} of LossScaler(1024, 3), after infinite or NaN gradients in steps {sorted(bad)},"
        for number, (weight, our) in enumerate(zip(weights[:3], ours, strict=False)):  # the fourth one has no gradient
            gradient = normal(4, seed=10 * step + number)
            weight.grad, our.grad = gradient * float(scaler.scale), gradient
            if step in bad and number == step % 3:
                weight.grad[1] = bad[step]
        result = scaler.step(optimizer)
        if result is None:
            raise Wrong(f"LossScaler.step returns None: {NOT_WRITTEN}.")
        same(f"The result of {where}", bool(result), step not in bad, "True if the optimizer has stepped.")
        if step in bad:
            right_scale, good = right_scale / 2, 0
        else:
            right_optimizer.step()
            good += 1
            if good == 3:
                right_scale, good = right_scale * 2, 0
            for weight, our in zip(weights[:3], ours, strict=False):
                close(f"A gradient after {where}", weight.grad, our.grad, "Divide the gradient of every parameter.")
        same(f"The number of steps of the optimizer by {where}", optimizer.steps, right_optimizer.steps)
        for weight, our in zip(weights, ours, strict=True):
            close(f"A weight after {where}", weight, our, "One bad gradient is enough to leave the step out.")
        near(f"The scale after {where}", scaler.scale, right_scale, "Good steps are counted in a row, from 0 again.")


CHAPTERS: dict[int, dict[str, Callable[..., None]]] = {
    12: {
        "decode_float": decode_float,
        "round_to": round_to,
        "mixed_linear": mixed_linear,
        "MasterSGD": master_sgd,
        "LossScaler": loss_scaler,
    }
}
