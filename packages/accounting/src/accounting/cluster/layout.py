"""Layouts: devices that share a model by data, context, tensor, pipeline and expert parallelism, and a device's shape.

Tensor parallelism splits heads, feed-forward width and vocabulary of each layer (Shoeybi et al. 2019), which makes the
share of a device a shape of its own; pipeline parallelism the layers, by 1F1B (Narayanan et al. 2021); sequence
parallelism the positions between the matmuls (Korthikanti et al. 2022); context parallelism every sequence, keys and
values going round in a ring (Liu et al. 2023); expert parallelism the experts over devices that would else hold the
same weights (Lepikhin et al. 2020). What does not divide is split as evenly as whole numbers go, larger shares first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from accounting.checks import choose, positive
from accounting.cluster.zero import ZERO_STAGES
from accounting.layer import Attention, Layer
from accounting.shape import TransformerShape, no_value_embeddings


@dataclass(frozen=True)
class Layout:
    """data × context × tensor × pipeline devices; ValueError for what cannot be.

    Args:
        data: replicas of the model, each with its own sequences.
        tensor: devices that share each layer.
        pipeline: stages that share the layers.
        zero: what the devices that hold the same weights shard, 0 (DDP) to 3 (FSDP).
        sequence_parallel: whether the devices of a layer share the positions between its matrix multiplications too.
        micro_batches: forward and backward passes of a step.
        context: devices that share each sequence, and hold the same weights.
        expert: devices that share the experts of a layer, of those that would hold the same weights (data × context);
            the number of devices does not grow with it.

    >>> Layout(data=2, tensor=4, pipeline=8).words
    'data 2 × context 1 × tensor 4 × pipeline 8 = 64 devices'
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    sequence_parallel: bool = False
    micro_batches: int = 1
    context: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "micro_batches", "context", "expert"):
            positive(name, getattr(self, name))
        if isinstance(self.zero, bool) or not isinstance(self.zero, int):
            raise ValueError(f"zero must be a whole number from 0 to 3, and {self.zero!r} is not")
        choose("zero", str(self.zero), ZERO_STAGES)
        if self.replicas % self.expert:
            raise ValueError(f"expert {self.expert} does not divide data × context {self.replicas}: give a divisor")

    @property
    def gpus(self) -> int:
        """Devices in all."""
        return self.replicas * self.tensor * self.pipeline

    @property
    def replicas(self) -> int:
        """Devices that hold the same weights, experts aside."""
        return self.data * self.context

    @property
    def words(self) -> str:
        """The product, and what experts are shared by."""
        product = f"data {self.data} × context {self.context} × tensor {self.tensor} × pipeline {self.pipeline}"
        experts = f", experts shared by {self.expert} of data × context" if self.expert > 1 else ""
        return f"{product} = {self.gpus} devices{experts}"

    def in_flight(self, stage: int) -> int:
        """Micro-batches whose activations a stage holds at once: the first stage waits longest for its gradients."""
        return min(self.micro_batches, self.pipeline - stage)


@dataclass(frozen=True)
class Place:
    """One device's place in the layout: its stage, its rank among those that share a layer, and that of its replica."""

    stage: int = 0
    tensor_rank: int = 0
    data_rank: int = 0

    @property
    def words(self) -> str:
        """The stage and the rank in it."""
        return f"stage {self.stage}, rank {self.tensor_rank}"


FIRST = Place()


def split(whole: int, parts: int) -> list[int]:
    """A whole number in `parts` shares that differ by at most one, the larger ones first."""
    return [whole // parts + (at < whole % parts) for at in range(parts)]


def places(layout: Layout) -> Iterator[Place]:
    """Every place of the first replica."""
    return (Place(stage, rank) for stage in range(layout.pipeline) for rank in range(layout.tensor))


@lru_cache(maxsize=1 << 10)  # the time and memory of a layout ask for the same share again
def shard(shape: TransformerShape, layout: Layout, place: Place) -> TransformerShape:
    """A device's share of the model, as a shape: its layers, heads, feed-forward width and rows of the vocabulary.

    Routers and the latents of latent attention are on every device. Where there are more devices than key heads, those
    that share one hold a copy of it. ValueError: too many devices.
    """
    if layout.gpus > 1:
        no_value_embeddings(shape, "a device's share")
    if layout.tensor > 1 and shape.mixers:
        raise ValueError(f"tensor {layout.tensor}: shares of layers with a state are not counted, use tensor 1")
    widths = [size for one in shape.ffns for size in (one.d_ff, one.shared_d_ff) if size]
    for name, most in (("num_heads", shape.num_heads), ("d_ff", min(widths)), ("vocabulary", shape.vocab_rows)):
        if layout.tensor > most:
            raise ValueError(f"tensor {layout.tensor} is more than {name} {most}: every device needs a share of it")
    if layout.pipeline > shape.num_layers:
        raise ValueError(
            f"pipeline {layout.pipeline} is more than num_layers {shape.num_layers}: every stage needs a layer"
        )
    fewest = min((one.experts for one in shape.ffns if one.experts is not None), default=1)
    if layout.expert > fewest:
        raise ValueError(f"expert {layout.expert} is more than experts {fewest}: every device needs one")
    for name, at, devices in (
        ("stage", place.stage, layout.pipeline),
        ("tensor_rank", place.tensor_rank, layout.tensor),
        ("data_rank", place.data_rank, layout.replicas),
    ):
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < devices:
            raise ValueError(f"{name} must be a whole number of at least 0 and below {devices}, and {at!r} is not")
    group, kv = shape.num_heads // shape.kv_heads, shape.kv_heads
    if layout.tensor <= kv:
        keys = split(kv, layout.tensor)[place.tensor_rank]
        heads = keys * group
    else:
        key = place.tensor_rank * kv // layout.tensor
        sharing = [rank for rank in range(layout.tensor) if rank * kv // layout.tensor == key]
        keys, heads = 1, split(group, len(sharing))[sharing.index(place.tensor_rank)]
    layers = split(shape.num_layers, layout.pipeline)
    before = sum(layers[: place.stage])
    after = before + layers[place.stage]
    rank, tensor = place.tensor_rank, layout.tensor

    def part(size: int | None) -> int | None:
        return None if size is None else split(size, tensor)[rank]

    def layer(one: Layer) -> Layer:
        """The share of a layer; experts are split over other devices."""
        if one.ffn is None and (layout.expert == 1 or shape.experts is None):
            return one
        ffn = shape.kind(one).ffn
        experts_held = ffn.experts_held
        if layout.expert > 1 and ffn.experts is not None:
            experts_held = split(ffn.held, layout.expert)[0]
        width = ffn.d_ff if one.ffn is None else one.ffn.d_ff
        share = replace(ffn, d_ff=part(width), shared_d_ff=part(ffn.shared_d_ff), experts_held=experts_held)
        return Layer(one.attention, share)

    mine = shape.between(before, after)
    leading, pattern = tuple(map(layer, mine.leading)), tuple(map(layer, mine.layers))
    own = any(one.ffn is None for one in (*leading, *pattern))
    softmax = any(isinstance(one, Attention) for one in mine.attentions)
    return replace(
        mine,
        vocab_size=split(shape.vocab_rows, tensor)[rank],
        vocab_multiple=1,
        num_heads=heads,
        num_kv_heads=keys if softmax else None,
        head_dim=shape.head_width if softmax else None,
        d_ff=split(shape.d_ff, tensor)[rank] if tensor <= shape.d_ff else shape.d_ff,
        experts=shape.experts if own else None,
        experts_per_token=shape.experts_per_token if own else None,
        leading=leading,
        layers=pattern,
    )
