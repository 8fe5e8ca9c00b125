"""FLOPs of one optimizer step."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.checks import choose
from accounting.counting.adapters import no_muon_of_adapters
from accounting.counting.parameters import matrices, parameters, trained_symbol
from accounting.formula import Symbol, Term
from accounting.policy import SETTINGS
from accounting.shape import TransformerShape
from accounting.units import FLOPs


def optimizer_flops(shape: TransformerShape, *, optimizer: str = "adamw") -> Breakdown:
    """FLOPs of one optimizer step, by what they do; AdamW (Loshchilov and Hutter 2019) is 14 a parameter.

    "muon" (Jordan et al. 2024) orthogonalises the matrices of the blocks by five Newton–Schulz steps and leaves the
    rest to AdamW. Scalars computed once a step (bias corrections, the rate) count nothing.
    """
    choose("optimizer", optimizer, SETTINGS["optimizer"])
    no_muon_of_adapters(shape, optimizer)
    params = trained_symbol(shape)
    if optimizer == "sgd":
        terms: dict[str, int] = {"weight decay": 2 * params, "momentum": 2 * params, "update": 2 * params}
        words = "SGD with momentum: decay 2, momentum 2, update 2 a parameter"
    elif optimizer == "muon":
        terms, words = _muon(shape)
    else:
        terms = _adamw(params)
        words = "AdamW: first moment 3, second moment 4, update 5, weight decay 2 a parameter"
    return breakdown("optimizer FLOPs", FLOPs, terms, words)


def _adamw(params: Term) -> dict[str, int]:
    return {
        "first moment": 3 * params,  # m ← β₁·m + (1 - β₁)·g
        "second moment": 4 * params,  # v ← β₂·v + (1 - β₂)·g·g
        "update": 5 * params,  # θ ← θ - α·m / (√v + ε)
        "weight decay": 2 * params,  # θ ← θ - αλ·θ
    }


def _muon(shape: TransformerShape) -> tuple[dict[str, int], str]:
    sizes = matrices(shape)
    inside = sum(rows * columns * count for (rows, columns), count in sizes.items())
    muon = Symbol("muon_params", inside)
    params = Symbol("n_params", int(parameters(shape).total) - inside)
    # A = XXᵀ, A·A, (bA + cA²)·X, with X of (rows, columns) and rows the smaller side
    steps = sum(5 * count * (4 * rows * rows * columns + 2 * rows**3) for (rows, columns), count in sizes.items())
    blends = sum(5 * count * (3 * rows * rows + 2 * rows * columns) for (rows, columns), count in sizes.items())
    normal = sum(count * 3 * rows * columns for (rows, columns), count in sizes.items())
    terms: dict[str, int] = {f"adamw {name}": term for name, term in _adamw(params).items()}
    terms |= {
        "momentum": 4 * muon,  # μ·m + g, and once more for Nesterov
        "newton-schulz products": steps,
        "newton-schulz sums": blends + normal,
        "update": 2 * muon,
        "weight decay": 2 * muon,
    }
    return terms, "Muon on the matrices of the blocks (five Newton–Schulz steps), AdamW at 14 a parameter on the rest"
