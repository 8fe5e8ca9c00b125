"""Bytes an optimizer keeps from step to step, and the temporaries of the step itself."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.counting.adapters import no_muon_of_adapters
from accounting.counting.parameters import matrices, other_tensors, trained_symbol, trained_tensors
from accounting.formula import Symbol, Term, constant
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape
from accounting.units import Bytes

QUANTISED_BLOCK = 256  # elements that share one fp32 scale in 8-bit states (Dettmers et al. 2022)
QUANTISED_FROM = 4096  # smaller tensors keep their moments in fp32, as bitsandbytes has it
QUANTISED_MAPS = 2 * 256  # the 256 values that a byte stands for, in fp32, one table for each moment


def optimizer_state(shape: TransformerShape, *, policy: Policy = DEFAULT) -> Breakdown:
    """Bytes kept between steps: fp32 moments (8-bit with a scale for 256 of them), and with bf16 weights fp32 ones.

    >>> from accounting import SHAPES
    >>> optimizer_state(SHAPES["gpt2"]).total
    Bytes(995_518_464)
    """
    optimizer = policy.optimizer
    no_muon_of_adapters(shape, optimizer)
    params = trained_symbol(shape)
    terms: dict[str, int]
    if optimizer == "sgd":
        terms, words = {"momentum": policy.moment_bytes * params}, f"SGD: one {policy.moment_dtype} momentum"
    elif optimizer == "adamw8bit":
        large = [(count, size) for count, size in trained_tensors(shape) if size >= QUANTISED_FROM]
        quantised = Symbol("quantised_params", sum(count * size for count, size in large))
        scales = Symbol("scale_blocks", sum(count * -(-size // QUANTISED_BLOCK) for count, size in large))
        moment = quantised + 4 * (params - quantised)
        terms = {"first moment": moment, "second moment": moment}
        terms |= {"scales": 2 * 4 * scales, "tables": constant(4 * QUANTISED_MAPS)}
        words = (
            f"AdamW in 8 bits: two moments of a byte with one fp32 scale for {QUANTISED_BLOCK} of each, in fp32 where "
            f"a tensor has fewer than {QUANTISED_FROM:,}, and two tables of what a byte means"
        )
    elif optimizer == "muon":
        muon = Symbol("muon_params", sum(rows * columns * count for (rows, columns), count in matrices(shape).items()))
        terms = {"momentum": 4 * muon, "first moment": 4 * (params - muon), "second moment": 4 * (params - muon)}
        words = "Muon: one fp32 momentum for the matrices of the blocks, AdamW's two moments for the rest"
    else:
        moment = policy.moment_bytes * params
        terms, words = {"first moment": moment, "second moment": moment}, f"AdamW: two {policy.moment_dtype} moments"
    if policy.bytes.master_weights:
        terms["master weights"] = 4 * params
        words += ", and fp32 master weights"
    return breakdown("optimizer state", Bytes, terms, words)


def state_tensors(shape: TransformerShape, policy: Policy) -> list[tuple[int, int]]:
    """The same as tensors: (how many, bytes of one)."""
    optimizer = policy.optimizer
    states: list[tuple[int, int]] = []
    if optimizer == "muon":
        states += [(count, 4 * rows * columns) for (rows, columns), count in matrices(shape).items()]
    for count, size in other_tensors(shape) if optimizer == "muon" else trained_tensors(shape):
        if optimizer == "adamw8bit" and size >= QUANTISED_FROM:
            states += [(2 * count, size), (2 * count, 4 * -(-size // QUANTISED_BLOCK))]
        else:
            states.append(((1 if optimizer == "sgd" else 2) * count, policy.moment_bytes * size))
    if policy.bytes.master_weights:
        states += [(count, 4 * size) for count, size in trained_tensors(shape)]
    return states


def step_temporaries(shape: TransformerShape, policy: Policy) -> list[tuple[int, Term]]:
    """Tensors alive only inside the optimizer's step: (how many, bytes of one). "foreach" has AdamW's denominator √v of
    every parameter at once, of SGD the decayed gradient; "loop" the root and the denominator of the largest one. Muon
    has, of its largest matrix, the update in fp32, two bf16 copies, and two Gram matrices of its smaller side."""
    if policy.optimizer == "muon":
        sides = max(matrices(shape), key=lambda size: 8 * size[0] * size[1] + 4 * size[0] ** 2)
        rows, columns = Symbol("matrix_rows", sides[0]), Symbol("matrix_columns", sides[1])
        return [(1, 4 * (rows * columns)), (2, 2 * (rows * columns)), (2, 2 * (rows * rows))]
    if policy.optimizer_step == "fused" or policy.optimizer == "adamw8bit":
        return []
    if policy.optimizer_step == "foreach":
        return [(1, 4 * trained_symbol(shape))]
    largest = Symbol("largest_tensor", max(size for _, size in trained_tensors(shape)))
    return [(1 if policy.optimizer == "sgd" else 2, 4 * largest)]
