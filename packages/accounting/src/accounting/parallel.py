"""What each device of a data-parallel group holds and sends: DDP and ZeRO stages 1 to 3. (Rajbhandari et al. 2020)

A shard is a whole number of values: of N over `world` devices each takes ⌈N / world⌉ until none are left, so that the first
holds most and decides what fits. Activations depend on a device's own batch alone and are in memory.py.
"""

from __future__ import annotations

from accounting.activations import PRECISIONS
from accounting.breakdown import Breakdown, breakdown
from accounting.formula import Symbol, Term, added
from accounting.optimizers import optimizer_state
from accounting.parameters import parameters
from accounting.shape import TransformerShape, choose, positive
from accounting.units import Bytes

STAGES = ("0", "1", "2", "3")


def sharded_state(
    shape: TransformerShape,
    world: int,
    *,
    zero: int = 0,
    precision: str = "fp32",
    optimizer: str = "adamw",
    rank: int = 0,
) -> Breakdown:
    """Bytes of the model's state on a device, the first unless `rank` says another, whose shard is the largest.

    zero: 0 replicates everything (DDP), 1 shards the optimizer's state, 2 gradients too, 3 parameters too (FSDP). Stage 3
    gathers the block it works on and the next; 2 and 3 hold the whole gradient of the block that is being reduced.
    """
    N, w, p = _sizes(shape, world, zero, precision)
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < world:
        raise ValueError(f"rank must be a whole number below world {world} and at least 0, and {rank!r} is not")
    states = optimizer_state(shape, optimizer=optimizer, master=PRECISIONS[precision].master)
    held = added(term for _, term in states.terms)
    count = parameters(shape)
    block = Symbol("P", (int(count["attention"]) + int(count["ffn"]) + int(count["router"])) // shape.num_layers)
    terms = shard_terms(N, w, p, zero, block, shape.num_layers, rank=rank)
    return breakdown(
        f"state on a device of {world}, {_name(zero)}",
        Bytes,
        {**terms, "optimizer state": shard_of(held, w, rank) if zero >= 1 else held},
        f"{precision}, {optimizer}; shard {rank + 1} of {world}; activations not in it",
    )


def shard_of(whole: Term, w: Term, rank: int = 0) -> Term:
    """What device `rank` of w holds: ⌈whole / w⌉, of the last what is left, which may be nothing."""
    each = (whole + (w - 1)) // w
    left = int(whole) - rank * int(each)
    return each if left >= int(each) else Symbol("left", max(0, left))


def shard_terms(
    N: Term, w: Term, p: Term, zero: int, block: Term, layers: int, state: int = 0, rank: int = 0
) -> dict[str, int]:
    """Bytes of N parameters of p bytes, with `state` bytes of optimizer each, on one of w devices."""
    share, working = shard_of(N, w, rank), int(w) > 1
    terms: dict[str, int] = {
        "parameters": (share if zero >= 3 else N) * p,
        "gathered parameters": min(2, layers) * block * p if zero >= 3 and working else 0,
        "gradients": (share if zero >= 2 else N) * p,
        "gradients being reduced": block * p if zero >= 2 and working else 0,
    }
    if state:
        terms["optimizer state"] = state * (share if zero >= 1 else N)
    return terms


def step_traffic(shape: TransformerShape, world: int, *, zero: int = 0, precision: str = "fp32") -> Breakdown:
    """Bytes that each device sends in one step, by ring collectives that move (world - 1) shards each.

    Stages 0 to 2 send the model twice over, stage 3 three times.
    """
    N, w, p = _sizes(shape, world, zero, precision)
    return breakdown(
        f"sent by a device of {world}, {_name(zero)}",
        Bytes,
        traffic_terms(N, w, p, zero),
        f"{precision}; ring collectives over shards padded to one size; an all-reduce is a reduce-scatter and an all-gather",
    )


def traffic_terms(N: Term, w: Term, p: Term, zero: int) -> dict[str, int]:
    """Bytes that a device sends for N parameters of p bytes shared by w devices, by collective."""
    once = ((N + (w - 1)) // w) * (w - 1) * p
    terms: dict[str, int] = {"reduce-scatter of gradients": once}
    if zero >= 3:
        return {**terms, "all-gather for the forward": once, "all-gather for the backward": once}
    return {**terms, "all-gather of gradients" if zero == 0 else "all-gather of parameters": once}


def reduced_over(numbers: Term, devices: Term) -> Term:
    """Numbers that a device sends when so many are summed over devices: a reduce-scatter and an all-gather in a ring."""
    return 2 * ((devices - 1) * ((numbers + (devices - 1)) // devices))


def _sizes(shape: TransformerShape, world: int, zero: int, precision: str) -> tuple[Term, Term, Term]:
    choose("precision", precision, tuple(PRECISIONS))
    choose("zero", str(zero), STAGES)
    w = Symbol("w", positive("world", world))
    return Symbol("N", int(parameters(shape).total)), w, Symbol("p", PRECISIONS[precision].weights)


def _name(zero: int) -> str:
    return "DDP" if zero == 0 else f"ZeRO-{zero}"
