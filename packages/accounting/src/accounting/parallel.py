"""What each device of a data-parallel group holds and sends: DDP and ZeRO stages 1 to 3. (Rajbhandari et al. 2020)

A shard is a whole number of values: of N over `world` devices the largest is ⌈N / world⌉, and the largest decides what fits.
Activations depend on a device's own batch alone and are in memory.py.
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
    shape: TransformerShape, world: int, *, zero: int = 0, precision: str = "fp32", optimizer: str = "adamw"
) -> Breakdown:
    """Bytes of the model's state on the device with the largest shard, in the backward of one block.

    zero: 0 replicates everything (DDP), 1 shards the optimizer's state, 2 gradients too, 3 parameters too (FSDP). Stage 3
    gathers the block it works on and the next; 2 and 3 hold the whole gradient of the block that is being reduced.
    """
    N, w, a = _sizes(shape, world, zero, precision)
    states = optimizer_state(shape, optimizer=optimizer, master=PRECISIONS[precision].master)
    held = added(term for _, term in states.terms)
    count = parameters(shape)
    block = Symbol("P", (int(count["attention"]) + int(count["ffn"]) + int(count["router"])) // shape.num_layers)
    shard = (N + (w - 1)) // w
    working = world > 1
    return breakdown(
        f"state on a device of {world}, {_name(zero)}",
        Bytes,
        {
            "parameters": (shard if zero >= 3 else N) * a,
            "gathered parameters": min(2, shape.num_layers) * block * a if zero >= 3 and working else 0,
            "gradients": (shard if zero >= 2 else N) * a,
            "gradients being reduced": block * a if zero >= 2 and working else 0,
            "optimizer state": (held + (w - 1)) // w if zero >= 1 else held,
        },
        f"{precision}, {optimizer}; the largest of {world} shards; activations not in it",
    )


def step_traffic(shape: TransformerShape, world: int, *, zero: int = 0, precision: str = "fp32") -> Breakdown:
    """Bytes that each device sends in one step, by ring collectives that move (world - 1) shards each.

    Stages 0 to 2 send the model twice over, stage 3 three times.
    """
    N, w, a = _sizes(shape, world, zero, precision)
    once = ((N + (w - 1)) // w) * (w - 1) * a
    terms: dict[str, int] = {"reduce-scatter of gradients": once}
    if zero >= 3:
        terms |= {"all-gather for the forward": once, "all-gather for the backward": once}
    else:
        terms["all-gather of gradients" if zero == 0 else "all-gather of parameters"] = once
    return breakdown(
        f"sent by a device of {world}, {_name(zero)}",
        Bytes,
        terms,
        f"{precision}; ring collectives over shards padded to one size; an all-reduce is a reduce-scatter and an all-gather",
    )


def _sizes(shape: TransformerShape, world: int, zero: int, precision: str) -> tuple[Term, Term, Term]:
    choose("precision", precision, tuple(PRECISIONS))
    choose("zero", str(zero), STAGES)
    w = Symbol("w", positive("world", world))
    return Symbol("N", int(parameters(shape).total)), w, Symbol("p", PRECISIONS[precision].weights)


def _name(zero: int) -> str:
    return "DDP" if zero == 0 else f"ZeRO-{zero}"
