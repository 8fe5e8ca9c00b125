"""A solution of the exercises of chapter 12."""

import math

import torch
from torch import Tensor
from torch.optim import Optimizer


def decode_float(bits: int, exponent_bits: int, mantissa_bits: int) -> float:
    mantissa = bits % 2**mantissa_bits
    exponent = (bits >> mantissa_bits) % 2**exponent_bits
    sign = -1 if bits >> (exponent_bits + mantissa_bits) else 1
    bias = 2 ** (exponent_bits - 1) - 1
    if exponent == 2**exponent_bits - 1:
        return math.nan if mantissa else sign * math.inf
    if exponent:
        mantissa += 2**mantissa_bits
    return sign * math.ldexp(mantissa, max(exponent, 1) - bias - mantissa_bits)


def round_to(x: float, exponent_bits: int, mantissa_bits: int) -> float:
    if x == 0 or not math.isfinite(x):
        return x
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = max(math.frexp(x)[1] - 1, 1 - bias)
    step = exponent - mantissa_bits
    nearest = math.ldexp(round(math.ldexp(abs(x), -step)), step)
    return math.copysign(math.inf if math.frexp(nearest)[1] - 1 > bias else nearest, x)


def mixed_linear(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype) @ weight.to(dtype).T


class MasterSGD:
    def __init__(self, parameters: list[Tensor], learning_rate: float) -> None:
        self.parameters, self.learning_rate = list(parameters), learning_rate
        self.masters = [p.detach().float().clone() for p in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        for p, master in zip(self.parameters, self.masters, strict=True):
            if p.grad is not None:
                master -= self.learning_rate * p.grad.float()
                p.copy_(master)


class LossScaler:
    def __init__(self, scale: float = 65536.0, interval: int = 2000) -> None:
        self.scale, self.interval, self.good = scale, interval, 0

    def scale_loss(self, loss: Tensor) -> Tensor:
        return loss.float() * self.scale

    def step(self, optimizer: Optimizer) -> bool:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for gradient in gradients:
            gradient /= self.scale
        if not all(gradient.isfinite().all() for gradient in gradients):
            self.scale, self.good = self.scale / 2, 0
            return False
        optimizer.step()
        self.good += 1
        if self.good == self.interval:
            self.scale, self.good = self.scale * 2, 0
        return True
