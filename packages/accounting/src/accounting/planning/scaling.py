"""Compute-optimal size by a named scaling law: how many parameters and tokens a budget of FLOPs is best spent on.

The laws disagree by a factor of ten, and so every answer carries its law's name and says when it lies outside the runs
behind it. All spend compute C = 6·N·D; Kaplan's N leaves the embeddings out, the others' includes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.checks import choose
from accounting.units import FLOPs, Parameters, Tokens


@dataclass(frozen=True)
class Law:
    """N = size · (C / compute)^exponent, or the minimum of a fitted loss E + A/N^alpha + B/D^beta at 6·N·D = C."""

    paper: str
    range: tuple[float, float]  # parameters of the smallest and largest run behind the law
    tokens: tuple[float, float]  # and the fewest and most tokens that one of them read
    compute: float = 1.0
    size: float = 0.0
    exponent: float = 0.0
    surface: tuple[float, float, float, float, float] | None = None  # E, A, B, alpha, beta


_HOFFMANN = "Hoffmann et al. 2022, Training Compute-Optimal Large Language Models"
_RUNS = ((70e6, 16e9), (5e9, 500e9))  # parameters and tokens of Hoffmann's
LAWS = {
    "kaplan": Law(
        "Kaplan et al. 2020, Scaling Laws for Neural Language Models, table 6: 1.3e9 · (C in PF-days)^0.73, where C "
        "is that of batches well below the critical one",
        (768, 1.5e9),
        (22e6, 23e9),
        compute=8.64e19,
        size=1.3e9,
        exponent=0.73,
    ),
    "hoffmann-1": Law(
        f"{_HOFFMANN}, approach 1: exponent 0.50 through 67e9 at 5.76e23 (table 3)", *_RUNS, 5.76e23, 67e9, 0.50
    ),
    "hoffmann-2": Law(
        f"{_HOFFMANN}, approach 2: exponent 0.49 through 67e9 at 6.88e23 (table A3)", *_RUNS, 6.88e23, 67e9, 0.49
    ),
    "hoffmann-3": Law(
        f"{_HOFFMANN}, approach 3, coefficients as published", *_RUNS, surface=(1.69, 406.4, 410.7, 0.34, 0.28)
    ),
    "besiroglu": Law(
        "Besiroglu et al. 2024, Chinchilla Scaling: A replication attempt",
        *_RUNS,
        surface=(1.8172, 482.01, 2085.43, 0.3478, 0.3658),
    ),
}


@dataclass(frozen=True)
class ComputeOptimal:
    """The answer of one law; loss in nats a token where the law has one, warning empty inside the law's range."""

    law: str
    compute: FLOPs
    parameters: Parameters
    tokens: Tokens
    loss: float | None
    warning: str
    convention: str

    @property
    def tokens_per_parameter(self) -> float:
        return int(self.tokens) / int(self.parameters)


def compute_optimal(
    compute: float | None = None, *, parameters: float | None = None, law: str = "besiroglu"
) -> ComputeOptimal:
    """Parameters and tokens for a budget of training FLOPs, or the FLOPs and tokens that fit a number of parameters.

    Give exactly one of the two. Beyond the law's own runs the answer is an extrapolation, and its warning says so.
    """
    choose("law", law, LAWS)
    if (compute is None) == (parameters is None):
        number = "neither" if compute is None else "both"
        raise ValueError(f"expected compute (FLOPs) or parameters, got {number}: each follows from the other")
    amount = compute if parameters is None else parameters
    if amount is None or isinstance(amount, bool) or not 1 <= amount < float("inf"):
        raise ValueError(
            f"{'compute' if parameters is None else 'parameters'} must be at least 1, and {amount!r} is not"
        )
    fitted = LAWS[law]
    size, exponent, at = _power_law(fitted)
    budget = float(amount) if parameters is None else at * (float(amount) / size) ** (1 / exponent)
    n = size * (budget / at) ** exponent
    d = budget / (6 * n)
    if min(n, d) < 1:
        raise ValueError(f"expected compute for at least one parameter and one token by {law}, got {budget:.3g} FLOPs")
    outside = [
        f"{value:.3g} {name} lie outside the {low:.3g} to {high:.3g}"
        for name, value, (low, high) in (("parameters", round(n), fitted.range), ("tokens", round(d), fitted.tokens))
        if not low <= value <= high
    ]
    warning = f"{' and '.join(outside)} that {law} was fitted to: an extrapolation" if outside else ""
    return ComputeOptimal(
        law,
        FLOPs(round(budget)),
        Parameters(round(n)),
        Tokens(round(d)),
        None if fitted.surface is None else loss(fitted.surface, n, d),
        warning,
        f"C = 6·N·D; {fitted.paper}",
    )


def formula(law: str) -> str:
    """The law's parameters as a formula of compute, with its numbers, of a fitted surface its minimum too."""
    size, exponent, at = _power_law(LAWS[law])
    words = f"N = {size:.4g}·(C/{at:.4g})^{exponent:.4g}, D = C/(6·N)"
    surface = LAWS[law].surface
    if surface is None:
        return words
    base, a, b, alpha, beta = surface
    return f"{words}, where {base:g} + {a:g}/N^{alpha:g} + {b:g}/D^{beta:g} is least"


def loss(surface: tuple[float, float, float, float, float], n: float, d: float) -> float:
    """E + A/N^alpha + B/D^beta, nats a token."""
    base, a, b, alpha, beta = surface
    return float(base + a / n**alpha + b / d**beta)


def _power_law(law: Law) -> tuple[float, float, float]:
    """(size, exponent, compute) of N = size · (C / compute)^exponent; of a surface, its minimum in closed form."""
    if law.surface is None:
        return law.size, law.exponent, law.compute
    _, a, b, alpha, beta = law.surface
    return (alpha * a / (beta * b)) ** (1 / (alpha + beta)), beta / (alpha + beta), 6.0
