"""Bytes an optimizer keeps from step to step, and the temporaries of the step itself."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.flops import OPTIMIZERS
from accounting.formula import Symbol, Term, constant
from accounting.parameters import matrices, other_tensors, parameters, tensors
from accounting.shape import TransformerShape, choose
from accounting.units import Bytes

STEPS = ("fused", "foreach", "loop")
QUANTISED_BLOCK = 256  # numbers that share one fp32 scale in 8-bit states (Dettmers et al. 2022)
QUANTISED_FROM = 4096  # smaller tensors keep their moments in fp32, as bitsandbytes has it
QUANTISED_MAPS = 2 * 256  # the 256 values that a byte stands for, in fp32, one table for each moment


def optimizer_state(shape: TransformerShape, *, optimizer: str = "adamw", master: bool = False) -> Breakdown:
    """Bytes kept between steps: fp32 moments (8-bit with a scale for 256 of them), and with master=True fp32 weights."""
    choose("optimizer", optimizer, OPTIMIZERS)
    N = Symbol("N", int(parameters(shape).total))
    terms: dict[str, int]
    if optimizer == "sgd":
        terms, words = {"momentum": 4 * N}, "SGD: one fp32 momentum"
    elif optimizer == "adamw8bit":
        large = [(count, size) for count, size in tensors(shape) if size >= QUANTISED_FROM]
        G = Symbol("G", sum(count * size for count, size in large))
        scales = Symbol("H", sum(count * -(-size // QUANTISED_BLOCK) for count, size in large))
        moment = G + 4 * (N - G)
        terms = {"first moment": moment, "second moment": moment}
        terms |= {"scales": 2 * 4 * scales, "tables": constant(4 * QUANTISED_MAPS)}
        words = (
            f"AdamW in 8 bits: two moments of a byte with one fp32 scale for {QUANTISED_BLOCK} of each, in fp32 where a tensor "
            f"has fewer than {QUANTISED_FROM:,}, and two tables of what a byte means"
        )
    elif optimizer == "muon":
        M = Symbol("M", sum(rows * columns * count for (rows, columns), count in matrices(shape).items()))
        terms = {"momentum": 4 * M, "first moment": 4 * (N - M), "second moment": 4 * (N - M)}
        words = "Muon: one fp32 momentum for the matrices M of the blocks, AdamW's two moments for the rest"
    else:
        terms, words = {"first moment": 4 * N, "second moment": 4 * N}, "AdamW: two fp32 moments"
    if master:
        terms["master weights"] = 4 * N
        words += ", and fp32 master weights"
    return breakdown("optimizer state", Bytes, terms, words)


def state_tensors(shape: TransformerShape, *, optimizer: str = "adamw", master: bool = False) -> list[tuple[int, int]]:
    """The same as tensors: (how many, bytes of one)."""
    found: list[tuple[int, int]] = []
    if optimizer == "muon":
        found += [(count, 4 * rows * columns) for (rows, columns), count in matrices(shape).items()]
    for count, size in other_tensors(shape) if optimizer == "muon" else tensors(shape):
        if optimizer == "adamw8bit" and size >= QUANTISED_FROM:
            found += [(2 * count, size), (2 * count, 4 * -(-size // QUANTISED_BLOCK))]
        else:
            found.append(((1 if optimizer == "sgd" else 2) * count, 4 * size))
    return found + [(count, 4 * size) for count, size in tensors(shape)] if master else found


def step_temporaries(
    shape: TransformerShape, *, optimizer: str = "adamw", step: str = "foreach"
) -> list[tuple[int, Term]]:
    """Tensors alive only inside the optimizer's step: (how many, bytes of one).

    "fused" has none; "foreach" holds AdamW's denominator √v of every parameter at once, of SGD the decayed gradient; "loop"
    the root and the denominator of the largest parameter, of SGD its decayed gradient. Muon goes one by one: of its largest
    matrix the update in fp32, two bf16 copies, and two Gram matrices of its smaller side.
    """
    choose("optimizer", optimizer, OPTIMIZERS)
    choose("step", step, STEPS)
    if optimizer == "muon":
        rows, columns = max(matrices(shape), key=lambda size: 8 * size[0] * size[1] + 4 * size[0] ** 2)
        m, n = Symbol("m", rows), Symbol("n", columns)
        return [(1, 4 * (m * n)), (2, 2 * (m * n)), (2, 2 * (m * m))]
    if step == "fused" or optimizer == "adamw8bit":
        return []
    if step == "foreach":
        return [(1, 4 * Symbol("N", int(parameters(shape).total)))]
    return [(1 if optimizer == "sgd" else 2, 4 * Symbol("Z", max(size for _, size in tensors(shape))))]
