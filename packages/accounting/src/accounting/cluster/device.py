"""Parameters and FLOPs of a device of a layout."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from accounting.breakdown import Breakdown, breakdown
from accounting.cluster.layout import Layout, Place, shard
from accounting.cluster.zero import Held
from accounting.counting.adapters import adapted
from accounting.counting.flops import forward_flops
from accounting.counting.layers import stack
from accounting.counting.parameters import block_parameters, expert_parameters, parameters
from accounting.formula import Symbol, Term
from accounting.layer import LatentAttention
from accounting.shape import TransformerShape
from accounting.units import FLOPs, Parameters


def device_parameters(shape: TransformerShape, layout: Layout, place: Place) -> Breakdown:
    """Parameters on a device. Norms, positions, routers and the biases after a sum are on every device of a layer.

    Over several stages a tied head is a copy of the embedding, whose gradients the two stages add up.
    """
    first, last = place.stage == 0, place.stage == layout.pipeline - 1
    mine = shard(shape, layout, place)
    terms = dict(parameters(mine).terms)
    rows = Symbol("vocab", mine.vocab_rows) * Symbol("d_model", shape.d_model)
    if not first:
        terms["embedding"] = terms["positions"] = Term(0)
    # without the norm before the head, or behind the embedding
    for missing in (not last and shape.norms > 0, not first and shape.embedding_norm):
        if missing:
            terms["norms"] = terms["norms"] - Symbol("d_model", shape.d_model) * (2 if shape.biased_norm else 1)
    if not last:
        terms["head"] = Term(0)
    elif shape.tied_embeddings and not first:
        terms["head"] = rows
    return breakdown(
        f"parameters of stage {place.stage}, rank {place.tensor_rank}",
        Parameters,
        terms,
        f"one of {layout.tensor} shares of {mine.num_layers} of {shape.num_layers} layers",
    )


def device_flops(
    shape: TransformerShape,
    layout: Layout,
    place: Place,
    batch_size: int = 1,
    seq_len: int | None = None,
    *,
    pairs: str = "full",
) -> Breakdown:
    """Matrix-multiply FLOPs of a device in the forward pass of batch_size sequences of its replica.

    The shares of all devices add up to the whole, but for key heads and routers that several of them compute.
    """
    mine = shard(shape, layout, place)
    terms = dict(forward_flops(mine, shape.sequence(seq_len), batch_size, pairs=pairs).terms)
    if layout.context > 1:  # positions are dealt out so that all see as many keys
        cp = Symbol("cp", layout.context)
        terms = {name: (term + (cp - 1)) // cp for name, term in terms.items()}
    if place.stage != layout.pipeline - 1:
        del terms["head"]
    return breakdown(
        f"forward FLOPs of stage {place.stage}, rank {place.tensor_rank}", FLOPs, terms, "matrix multiplications only"
    )


def replicated_parameters(shape: TransformerShape, layout: Layout, place: Place) -> int:
    """Of a device's parameters with gradients, those that every device of its layer holds: norms, positions, routers,
    biases after sums; of adapters the half that reads what all have, or gives what is summed."""
    on_device, mine = device_parameters(shape, layout, place), shard(shape, layout, place)
    if shape.lora_rank is not None:
        whole = sum(int(out if name in ("output", "down") else into) for name, (into, out) in adapted(mine).items())
        return mine.num_layers * shape.lora_rank * whole
    biases = shape.d_model * mine.num_layers * shape.biased_output
    if shape.biased_ffn:
        biases += shape.d_model * sum(count * (one.experts or 1) for one, count in mine.ffns.items())
    latents = 0  # the matrices that project to latents
    for one, count in mine.attentions.items():
        if isinstance(one, LatentAttention):
            latents += count * shape.d_model * ((one.q_rank or 0) + one.kv_rank + one.rope_dim)
    inside = biases + latents
    return int(on_device["norms"]) + int(on_device["positions"]) + int(on_device["router"]) + inside


def replicated(shape: TransformerShape, layout: Layout, place: Place) -> list[Held]:
    """A device's parameters by how many devices hold the same: of shared experts fewer than of everything else."""
    return _replicated(shape, plain(layout), place)


@lru_cache(maxsize=256)  # layouts of a plan differ in ZeRO stage and micro-batches, which do not change it
def plain(layout: Layout) -> Layout:
    """The layout for one micro-batch, without ZeRO."""
    return replace(layout, zero=0, micro_batches=1)


@lru_cache(maxsize=1 << 11)
def _replicated(shape: TransformerShape, layout: Layout, place: Place) -> list[Held]:
    on_device, mine = device_parameters(shape, layout, place), shard(shape, layout, place)
    layers = mine.num_layers
    blocks = {kind: sum(block_parameters(mine, kind)) for kind in stack(mine).counts}
    largest = max(blocks.values())
    dp = Symbol("dp", layout.replicas)
    if shape.lora_rank is not None:
        if layout.expert > 1:
            raise ValueError(f"expert {layout.expert}: adapters of experts that several devices share are not counted")
        adapters = int(on_device["adapters"])
        params, block = Symbol("n_params", int(on_device.total)), Symbol("block_params", largest + adapters // layers)
        trained = Symbol("adapter_params", adapters), Symbol("block_adapters", adapters // layers)
        return [Held(params, block, dp, *trained)]
    of_experts = expert_parameters(mine)
    expert_layers = sum(count for one, count in mine.ffns.items() if one.experts is not None)
    if layout.expert == 1 or not of_experts:
        block = Symbol("block_params", largest)
        params = Symbol("n_params", int(on_device.total))
        return [Held(params, block, dp, params, block)]
    experts = Symbol("expert_params", of_experts)
    edp = Symbol("edp", layout.replicas // layout.expert)
    block_experts = Symbol("block_experts", of_experts // expert_layers)
    others = Symbol("n_params", int(on_device.total) - of_experts)
    outside = [size if kind.ffn.experts is None else size - int(block_experts) for kind, size in blocks.items()]
    block = Symbol("block_params", max(outside))
    return [Held(others, block, dp, others, block), Held(experts, block_experts, edp, experts, block_experts)]
