"""Exercises of chapter 12: numbers and precision. Fill in the bodies, then run `python grade.py 12`."""

import math

import torch
from torch import Tensor
from torch.optim import Optimizer


def decode_float(bits: int, exponent_bits: int, mantissa_bits: int) -> float:
    """The number that a pattern of 1 + exponent_bits + mantissa_bits bits stands for, the sign in the highest bit.

    The table of the chapter: normal and subnormal numbers, zeros, infinities and NaN.
    """


def round_to(x: float, exponent_bits: int, mantissa_bits: int) -> float:
    """The number of a format that is nearest to x; of two equally near ones that whose last mantissa bit is 0.

    Small numbers become subnormal ones or zero, of x's sign. Numbers from halfway between the largest one and what
    would be the next after it on become infinite. Infinities and NaN stay. (math.frexp and math.ldexp help.)
    """


def mixed_linear(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """x (…, in) times the transpose of weight (out, in), both rounded to dtype: (…, out), of that dtype.

    weight and x may be float32; their gradients then are float32 too.
    """


class MasterSGD:
    """Gradient descent for parameters of 16 bits, each with a master weight in float32, a copy of it at first.

    step() takes learning_rate times the gradient off each master weight, in float32, and writes the rounded master
    weights into the parameters, in place. A parameter without a gradient stays as it is.
    """

    def __init__(self, parameters: list[Tensor], learning_rate: float) -> None:
        pass

    def step(self) -> None:
        pass


class LossScaler:
    """Scale a loss before backward(), and gradients back before a step.

    Attributes:
        scale: The factor at this moment.
    """

    def __init__(self, scale: float = 65536.0, interval: int = 2000) -> None:
        pass

    def scale_loss(self, loss: Tensor) -> Tensor:
        """The loss times the scale, in float32; gradients flow through it."""

    def step(self, optimizer: Optimizer) -> bool:
        """Divide the gradients of all parameters of the optimizer by the scale, in place, and let it step.

        If a gradient is infinite or NaN, the optimizer does not step, and the scale is halved. After `interval` steps
        in a row that were taken, the scale is doubled, and counting begins anew. True if the optimizer has stepped.
        """
