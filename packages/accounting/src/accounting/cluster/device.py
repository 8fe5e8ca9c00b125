"""What a device of a layout holds and computes: its parameters and FLOPs."""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.cluster.layout import Layout, Place, shard
from accounting.counting.adapters import adapted
from accounting.counting.flops import forward_flops
from accounting.counting.parameters import parameters
from accounting.formula import Symbol, Term
from accounting.record import Record
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
    if not last and shape.norms:  # without the one before the head
        terms["norms"] = terms["norms"] - Symbol("d_model", shape.d_model) * (
            2 if shape.norm == "layernorm" and shape.bias else 1
        )
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
    held, mine = device_parameters(shape, layout, place), shard(shape, layout, place)
    if shape.lora_rank is not None:
        whole = sum(int(out if name in ("output", "down") else into) for name, (into, out) in adapted(mine).items())
        return mine.num_layers * shape.lora_rank * whole
    biases = mine.num_layers * shape.d_model * (1 + (shape.experts or 1)) if shape.bias else 0
    return int(held["norms"]) + int(held["positions"]) + int(held["router"]) + biases


class Held(Record):
    """Parameters of a device that `devices` devices hold alike: all of them, and those of one block.

    trained and block_trained are those of them that have gradients: all, or where there are adapters those.
    """

    params: Term
    block: Term
    devices: Term
    trained: Term
    block_trained: Term


def replicated(shape: TransformerShape, layout: Layout, place: Place) -> list[Held]:
    """A device's parameters by how many devices hold the same.

    Experts that several devices share are held by fewer than everything else.
    """
    held, mine = device_parameters(shape, layout, place), shard(shape, layout, place)
    layers = mine.num_layers
    outside = int(held["attention"]) + int(held["router"])
    dp = Symbol("dp", layout.replicas)
    if shape.lora_rank is not None:
        if layout.expert > 1:
            raise ValueError(f"expert {layout.expert}: adapters of experts that several devices share are not counted")
        adapters = int(held["adapters"])
        of_block = (outside + int(held["ffn"]) + adapters) // layers
        return [
            Held(
                Symbol("n_params", int(held.total)),
                Symbol("block_params", of_block),
                dp,
                Symbol("adapter_params", adapters),
                Symbol("block_adapters", adapters // layers),
            )
        ]
    if layout.expert == 1:
        block = Symbol("block_params", (outside + int(held["ffn"])) // layers)
        params = Symbol("n_params", int(held.total))
        return [Held(params, block, dp, params, block)]
    experts = Symbol("expert_params", int(held["ffn"]))
    edp = Symbol("edp", layout.replicas // layout.expert)
    others, block = Symbol("n_params", int(held.total) - int(experts)), Symbol("block_params", outside // layers)
    block_experts = Symbol("block_experts", int(experts) // layers)
    return [Held(others, block, dp, others, block), Held(experts, block_experts, edp, experts, block_experts)]


def trained_on_device(shape: TransformerShape, layout: Layout, place: Place) -> int:
    """Parameters on a device that have gradients."""
    return sum(int(one.trained) for one in replicated(shape, layout, place))
