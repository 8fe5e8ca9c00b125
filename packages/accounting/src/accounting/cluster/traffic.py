"""Bytes that a device of a layout sends in one step, by collective and by the devices that it joins."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from accounting.breakdown import Breakdown
from accounting.cluster.device import replicated, replicated_parameters
from accounting.cluster.layout import FIRST, Layout, Place
from accounting.cluster.memory import device_forward_pass
from accounting.cluster.zero import all_reduced, zero_traffic
from accounting.counting.dimensions import FfnDimensions, LatentDimensions
from accounting.counting.layers import ffn_layers
from accounting.formula import Symbol, Term, added
from accounting.memory.activations import ForwardPass
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape
from accounting.units import Bytes


class Joins(Enum):
    """The devices that a collective is between."""

    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"
    PIPELINE = "pipeline"
    DATA = "data"


@dataclass(frozen=True)
class Traffic(Breakdown):
    """Bytes sent by collective; `joins` says of each between which devices it is."""

    joins: tuple[Joins, ...]

    def by_group(self) -> dict[Joins, Bytes]:
        """Bytes by the devices that are joined, every group named; they add up to the total."""
        sums = dict.fromkeys(Joins, 0)
        for group, (_, term) in zip(self.joins, self.terms, strict=True):
            sums[group] += int(term)
        return {group: Bytes(size) for group, size in sums.items()}


def device_traffic(
    shape: TransformerShape,
    layout: Layout,
    place: Place = FIRST,
    batch_size: int = 1,
    seq_len: int | None = None,
    *,
    policy: Policy = DEFAULT,
) -> Traffic:
    """Bytes that a device sends in one step of micro-batches of batch_size sequences.

    Collectives are rings over shares padded to one size. Each layer's two sums go over the devices that share it,
    forward and backward; with sequence parallelism each is a reduce-scatter and an all-gather, and the backward gathers
    once more what the matrix multiplications read. Devices that share a sequence pass keys and values round, those that
    share experts send each token to its experts and back. Stages pass on the residual stream and its gradient. Devices
    that hold the same weights add up gradients, by the layout's ZeRO stage.
    """
    run = device_forward_pass(shape, layout, place, batch_size, seq_len, policy)
    parts = {
        Joins.TENSOR: _tensor(run, shape, layout, place),
        Joins.CONTEXT: _context(run, layout),
        Joins.EXPERT: _expert(run, layout),
        Joins.PIPELINE: _pipeline(run, layout, place),
        Joins.DATA: _data(run, shape, layout, place),
    }
    terms = [(name, group, term) for group, sent in parts.items() for name, term in sent.items()]
    return Traffic(
        f"sent by stage {place.stage}, rank {place.tensor_rank} in a step",
        Bytes,
        tuple((name, term) for name, _, term in terms),
        f"{policy.precision}, {layout.micro_batches} micro-batches of {batch_size}; ring collectives over shares "
        "padded to one size",
        tuple(group for _, group, _ in terms),
    )


def _micro_batches(layout: Layout) -> Term:
    return Symbol("micro_batches", layout.micro_batches)


def _tensor(run: ForwardPass, shape: TransformerShape, layout: Layout, place: Place) -> dict[str, Term]:
    """The sums of attention, feed-forward layer and embedding, and what the loss needs of other vocabularies."""
    if layout.tensor == 1:
        return {}
    n, steps, tp, shared = run.n, _micro_batches(layout), Symbol("tp", layout.tensor), layout.sequence_parallel
    positions = run.between * tp if shared else run.tokens

    def collected(width: Term) -> Term:
        """Elements that a reduce-scatter, or an all-gather, sends."""
        return (tp - 1) * ((positions * width + (tp - 1)) // tp)

    once = collected(n.d_model)
    in_forward, in_backward = 4 * once, (6 if shared else 4) * once
    if shape.latent is not None:  # attention's matrices that are shared out read the latents, which every device makes
        m = LatentDimensions(shape.latent)
        read = (m.q_rank if shape.latent.q_rank is not None else n.d_model) + m.kv_rank + m.rope_dim
        latents = collected(read)
        in_forward = 3 * once + latents if shared else 4 * once
        in_backward = (4 if shared else 2) * once + 2 * latents
    forward = steps * n.n_layers * in_forward * run.act
    sent = {
        "sums of layers, forward": forward,
        "sums of layers, recomputed": forward if run.policy.activation_checkpointing == "full" else Term(0),
        "sums of layers, backward": steps * n.n_layers * in_backward * run.act,
    }
    if place.stage == 0:
        sent["sum of embeddings"] = 2 * (steps * once * run.residual)
    if place.stage == layout.pipeline - 1:
        sent["gradient of the head's input"] = steps * (3 if shared else 2) * once * run.act
        # the largest logit, the sum of exponentials, and the target's logit of each position
        sent["softmax over the vocabulary"] = 6 * (steps * 4 * ((tp - 1) * ((run.tokens + (tp - 1)) // tp)))
    # what every device holds has seen only its own positions; of adapters, only its own rows of the other half
    if shared or shape.lora_rank is not None:
        replicas = Symbol("replicated_params", replicated_parameters(shape, layout, place))
        sent["gradients of what is shared"] = all_reduced(replicas, tp) * run.gradient
    return sent


def _context(run: ForwardPass, layout: Layout) -> dict[str, Term]:
    """Keys and values go round all devices of a sequence; in the backward again, with their gradients."""
    if layout.context == 1:
        return {}
    n, cp = run.n, Symbol("cp", layout.context)
    width = 2 * n.n_kv_heads * n.head_dim
    if run.shape.latent is not None:
        m = LatentDimensions(run.shape.latent)
        width = n.n_heads * (m.nope_dim + m.rope_dim + m.value_dim)
    keys_and_values = run.tokens * width * run.act
    forward = _micro_batches(layout) * n.n_layers * (cp - 1) * keys_and_values
    recomputed = run.policy.activation_checkpointing != "none"
    return {
        "keys and values, forward": forward,
        "keys and values, recomputed": forward if recomputed else Term(0),
        "keys, values and their gradients, backward": 2 * forward,
    }


def _expert(run: ForwardPass, layout: Layout) -> dict[str, Term]:
    """Every token goes to its experts and what they gave comes back; of tokens spread evenly one in `ep` stays."""
    if layout.expert == 1:
        return {}
    n, ep = run.n, Symbol("ep", layout.expert)
    forward = added(
        _micro_batches(layout)
        * layers
        * 2
        * ((ep - 1) * ((run.between * FfnDimensions(run.shape, ffn).active_experts * n.d_model + (ep - 1)) // ep))
        * run.act
        for ffn, layers in ffn_layers(run.shape).items()
        if ffn.experts is not None
    )
    return {
        "tokens to experts and back, forward": forward,
        "tokens to experts and back, recomputed": forward if run.policy.activation_checkpointing == "full" else Term(0),
        "tokens to experts and back, backward": forward,
    }


def _pipeline(run: ForwardPass, layout: Layout, place: Place) -> dict[str, Term]:
    """The residual stream and its gradient, and the gradient of an embedding that is the head too."""
    n, steps, sent = run.n, _micro_batches(layout), {}
    first, last = place.stage == 0, place.stage == layout.pipeline - 1
    passed = run.between * n.d_model * run.residual
    if not last:
        sent["to the next stage"] = steps * passed
    if not first:
        sent["gradient to the stage before"] = steps * passed
    if run.shape.tied_embeddings and layout.pipeline > 1 and (first or last):
        sent["gradient of the tied embedding"] = all_reduced(n.vocab * n.d_model, Term(2)) * run.gradient
    return sent


def _data(run: ForwardPass, shape: TransformerShape, layout: Layout, place: Place) -> dict[str, Term]:
    """Gradients and parameters of the devices that hold the same."""
    sent: dict[str, Term] = {}
    for one in replicated(shape, layout, place):
        if int(one.devices) > 1:
            sizes = zero_traffic(one, run.weight, run.gradient, layout.zero, _micro_batches(layout))
            sent = {name: sent[name] + size if name in sent else size for name, size in sizes.items()}
    return sent
