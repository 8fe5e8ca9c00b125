"""Bytes that a device of a layout sends in one step."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.cluster.device import device_parameters, replicated_parameters
from accounting.cluster.layout import FIRST, Layout, Place, shard
from accounting.cluster.zero import all_reduced, zero_traffic
from accounting.counting.dimensions import Dimensions
from accounting.formula import Symbol, Term
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape, positive
from accounting.units import Bytes


def device_traffic(
    shape: TransformerShape,
    layout: Layout,
    place: Place = FIRST,
    batch_size: int = 1,
    seq_len: int | None = None,
    *,
    policy: Policy = DEFAULT,
) -> Breakdown:
    """Bytes that a device sends in one step of micro-batches of batch_size sequences.

    Collectives are rings over shares padded to one size. Each layer's two sums go over the devices that share it, forward
    and backward; with sequence parallelism each is a reduce-scatter and an all-gather, and the backward gathers once more
    what the matrix multiplications read. Stages pass on the residual stream and its gradient. Data-parallel replicas add up
    gradients, by the layout's ZeRO stage.
    """
    batch, seq = Symbol("batch", positive("batch_size", batch_size)), Symbol("seq", shape.sequence(seq_len))
    mine = shard(shape, layout, place)
    n, tp, steps = Dimensions(mine), Symbol("tp", layout.tensor), Symbol("micro_batches", layout.micro_batches)
    first, last = place.stage == 0, place.stage == layout.pipeline - 1
    act = Symbol("act_bytes", policy.bytes.activations)
    residual = Symbol("residual_bytes", policy.bytes.residual)
    weight = Symbol("weight_bytes", policy.bytes.weights)
    shared = layout.sequence_parallel
    per_device = batch * ((seq + (tp - 1)) // tp)  # positions of a device where they are shared out
    gathered = per_device * tp * n.d_model if shared else batch * seq * n.d_model
    once = (tp - 1) * ((gathered + (tp - 1)) // tp)  # elements that a reduce-scatter, or an all-gather, sends
    terms: dict[str, int] = {}
    if layout.tensor > 1:
        forward = steps * n.n_layers * 4 * once * act
        recomputed = policy.activation_checkpointing == "full"
        terms["sums of layers, forward"] = forward
        terms["sums of layers, recomputed"] = forward if recomputed else 0
        terms["sums of layers, backward"] = steps * n.n_layers * (6 if shared else 4) * once * act
        if first:
            terms["sum of embeddings"] = 2 * (steps * once * residual)
        if last:
            terms["gradient of the head's input"] = steps * (3 if shared else 2) * once * act
            # the largest logit, the sum of exponentials, and the target's logit of each position
            softmax = (tp - 1) * ((batch * seq + (tp - 1)) // tp)
            terms["softmax over the vocabulary"] = 6 * (steps * 4 * softmax)
        if shared:  # what every device holds has seen only its own positions
            replicated = Symbol("replicated_params", replicated_parameters(shape, layout, place))
            terms["gradients of what is shared"] = all_reduced(replicated, tp) * weight
    passed = (per_device if shared else batch * seq) * n.d_model * residual
    if not last:
        terms["to the next stage"] = steps * passed
    if not first:
        terms["gradient to the stage before"] = steps * passed
    if shape.tied_embeddings and layout.pipeline > 1 and (first or last):
        terms["gradient of the tied embedding"] = all_reduced(n.vocab * n.d_model, Term(2)) * weight
    if layout.data > 1:
        params = Symbol("n_params", int(device_parameters(shape, layout, place).total))
        terms |= zero_traffic(params, Symbol("dp", layout.data), weight, layout.zero)
    return breakdown(
        f"sent by stage {place.stage}, rank {place.tensor_rank} in a step",
        Bytes,
        terms,
        f"{policy.precision}, {layout.micro_batches} micro-batches of {batch_size}; ring collectives over shares padded to "
        "one size",
    )
