"""ZeRO: the shares of a model's state on data-parallel replicas, and what they send (Rajbhandari et al. 2020).

Of n elements each of `dp` devices takes ⌈n / dp⌉ until none are left: the first holds most and decides what fits. Stage
0 replicates everything (DDP), 1 shards the optimizer's state, 2 gradients too, 3 parameters too (FSDP). Stage 3 gathers
the block it works on and the next; 2 and 3 hold the whole gradient of the block being reduced.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from accounting.formula import Symbol, Term

ZERO_STAGES = ("0", "1", "2", "3")


class Part(Enum):
    """A part of the model's state on a device."""

    PARAMETERS = "parameters"
    GATHERED = "gathered parameters"  # for the blocks of a pass
    GRADIENTS = "gradients"
    REDUCED = "gradients being reduced"
    OPTIMIZER_STATE = "optimizer state"


OF_A_PASS = (Part.GATHERED, Part.REDUCED)  # which the optimizer's step has no use for


@dataclass(frozen=True)
class Held:
    """Parameters that `devices` devices hold alike, all and of one block; trained: those of them with gradients."""

    params: Term
    block: Term
    devices: Term
    trained: Term
    block_trained: Term


def shard_of(whole: Term, dp: Term, data_rank: int = 0) -> Term:
    """Elements that replica `data_rank` of dp holds: ⌈whole / dp⌉, of the last what is left, which may be nothing."""
    each = (whole + (dp - 1)) // dp
    left = int(whole) - data_rank * int(each)
    return each if left >= int(each) else Symbol("last_shard", max(0, left))


def sharded_bytes(
    group: Held, weight: Term, gradient: Term, zero: int, layers: int, data_rank: int = 0
) -> dict[Part, Term]:
    """Bytes of parameters and gradients on one of the devices that hold the same, with what 2 and 3 gather."""
    several = int(group.devices) > 1
    params, trained = (shard_of(whole, group.devices, data_rank) for whole in (group.params, group.trained))
    return {
        Part.PARAMETERS: (params if zero >= 3 else group.params) * weight,
        Part.GATHERED: min(2, layers) * group.block * weight if zero >= 3 and several else Term(0),
        Part.GRADIENTS: (trained if zero >= 2 else group.trained) * gradient,
        Part.REDUCED: group.block_trained * weight if zero >= 2 and several else Term(0),
    }


def zero_traffic(group: Held, weight: Term, gradient: Term, zero: int, micro_batches: Term) -> dict[str, Term]:
    """Bytes that a device sends in a step for parameters of `weight` bytes and their gradients, by collective.

    Parameters that are never updated are gathered by stage 3 alone. Stages 0 and 1 add up the gradients of
    micro-batches where they are, and reduce them once a step. Stages 2 and 3 hold only a shard of the sum, so that
    every micro-batch reduces; stage 3 gathers the parameters anew for each forward and backward.
    """
    dp = group.devices
    trained = ((group.trained + (dp - 1)) // dp) * (dp - 1)
    once, reduced = trained * weight, trained * gradient
    if zero >= 3:
        once = ((group.params + (dp - 1)) // dp) * (dp - 1) * weight
        return {
            "reduce-scatter of gradients": micro_batches * reduced,
            "all-gather for the forward": micro_batches * once,
            "all-gather for the backward": micro_batches * once,
        }
    return {
        "reduce-scatter of gradients": micro_batches * reduced if zero == 2 else reduced,
        "all-gather of gradients" if zero == 0 else "all-gather of parameters": reduced if zero == 0 else once,
    }


def all_reduced(elements: Term, devices: Term) -> Term:
    """Elements that a device sends when `elements` are summed: a reduce-scatter and an all-gather in a ring."""
    return 2 * ((devices - 1) * ((elements + (devices - 1)) // devices))
