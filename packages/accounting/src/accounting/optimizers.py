"""Bytes an optimizer keeps from step to step, and the temporaries of the step itself."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.flops import OPTIMIZERS
from accounting.formula import Symbol, Term
from accounting.parameters import matrices, parameters, symbols
from accounting.shape import TransformerShape, choose
from accounting.units import Bytes

STEPS = ("fused", "foreach", "loop")
QUANTISED_BLOCK = 256  # numbers that share one fp32 scale in 8-bit states (Dettmers et al. 2022)


def optimizer_state(shape: TransformerShape, *, optimizer: str = "adamw", master: bool = False) -> Breakdown:
    """Bytes kept between steps: fp32 moments (8-bit with a scale for 256 of them), and with master=True fp32 weights."""
    choose("optimizer", optimizer, OPTIMIZERS)
    N = Symbol("N", int(parameters(shape).total))
    terms: dict[str, int]
    if optimizer == "sgd":
        terms, words = {"momentum": 4 * N}, "SGD: one fp32 momentum"
    elif optimizer == "adamw8bit":
        moment = N + 4 * ((N + (QUANTISED_BLOCK - 1)) // QUANTISED_BLOCK)
        terms = {"first moment": moment, "second moment": moment}
        words = f"AdamW in 8 bits: two moments of a byte, one fp32 scale for {QUANTISED_BLOCK} of each"
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


def step_temporaries(shape: TransformerShape, *, optimizer: str = "adamw", step: str = "foreach") -> Term:
    """Bytes alive only inside the optimizer's step.

    "fused" has none; "foreach" holds the denominator √v of every parameter at once; "loop" the denominator of the largest
    parameter, and its quotient. Muon adds, for its largest matrix, two bf16 copies of it and two of its Gram matrix.
    """
    choose("optimizer", optimizer, OPTIMIZERS)
    choose("step", step, STEPS)
    s = symbols(shape)
    largest = max(s["V"] * s["d"], s["d"] * s["f"])
    if optimizer == "muon":
        rows, columns = max(matrices(shape), key=lambda size: size[0] * size[1] + size[0] ** 2)
        m, n = Symbol("rows", rows), Symbol("columns", columns)
        return 2 * (2 * (m * n) + 2 * (m * m))
    if step == "fused" or optimizer in ("sgd", "adamw8bit"):
        return Term(0)
    return 4 * Symbol("N", int(parameters(shape).total)) if step == "foreach" else 8 * largest
