"""What each device of a three-way layout holds, computes and sends: data, tensor and pipeline parallelism together.

Tensor parallelism splits heads, feed-forward width and vocabulary over devices that compute one layer together (Shoeybi et
al. 2019), which makes the share of a device a shape of its own, with fewer heads and a narrower feed-forward layer. Pipeline
parallelism gives each stage a run of layers, one micro-batch forward and one backward in turn (1F1B, Narayanan et al. 2021).
Sequence parallelism splits the positions of what lies between the products (Korthikanti et al. 2022). What does not divide is
split as evenly as whole numbers go, the first shares one larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from accounting.activations import PRECISIONS, Policy, total
from accounting.breakdown import Breakdown, breakdown
from accounting.flops import OPTIMIZERS, forward_flops
from accounting.formula import Symbol, Term, added
from accounting.memory import Step
from accounting.optimizers import STEPS, optimizer_state, step_temporaries
from accounting.parallel import reduced_over, shard_of, shard_terms, traffic_terms
from accounting.parameters import matrices, parameters
from accounting.shape import TransformerShape, choose, positive
from accounting.units import Bytes, FLOPs, Parameters

MOMENTS = {"adamw": 8, "sgd": 4}  # bytes of state a parameter


@dataclass(frozen=True)
class Layout:
    """data × tensor × pipeline devices; ValueError for what cannot be. micro_batches: forward passes of a step."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    sequence_parallel: bool = False
    micro_batches: int = 1

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "micro_batches"):
            positive(name, getattr(self, name))
        choose("zero", str(self.zero), ("0", "1", "2", "3"))

    @property
    def world(self) -> int:
        return self.data * self.tensor * self.pipeline

    def in_flight(self, stage: int) -> int:
        """Micro-batches whose activations a stage holds at once: the first stage waits longest for its gradients."""
        return min(self.micro_batches, self.pipeline - stage)


@dataclass(frozen=True)
class Place:
    """One device's place in the layout: its stage and its rank among those that share a layer."""

    stage: int = 0
    rank: int = 0


def split(whole: int, parts: int) -> list[int]:
    """A whole number in so many shares that differ by at most one, the larger ones first."""
    return [whole // parts + (at < whole % parts) for at in range(parts)]


def places(layout: Layout) -> Iterator[Place]:
    """Every place of one replica."""
    return (Place(stage, rank) for stage in range(layout.pipeline) for rank in range(layout.tensor))


def shard(shape: TransformerShape, layout: Layout, place: Place) -> TransformerShape:
    """What a device computes, as a shape: its layers, heads, feed-forward width and rows of the vocabulary.

    Where there are more devices than key heads, those that share one hold a copy of it. ValueError: too many devices.
    """
    for name, most in (("num_heads", shape.num_heads), ("d_ff", shape.d_ff), ("vocabulary", shape.vocab_rows)):
        if layout.tensor > most:
            raise ValueError(f"tensor {layout.tensor} is more than {name} {most}: every device needs a share of it")
    if layout.pipeline > shape.num_layers:
        raise ValueError(
            f"pipeline {layout.pipeline} is more than num_layers {shape.num_layers}: every stage needs a layer"
        )
    group, kv = shape.num_heads // shape.kv_heads, shape.kv_heads
    if layout.tensor <= kv:
        keys = split(kv, layout.tensor)[place.rank]
        heads = keys * group
    else:
        mine = place.rank * kv // layout.tensor
        sharing = [rank for rank in range(layout.tensor) if rank * kv // layout.tensor == mine]
        keys, heads = 1, split(group, len(sharing))[sharing.index(place.rank)]
    layers = split(shape.num_layers, layout.pipeline)
    before = sum(layers[: place.stage])
    # those with a window are spread over the depth
    ends = [at * shape.windowed_layers // shape.num_layers for at in (before, before + layers[place.stage])]
    windowed = ends[1] - ends[0]
    return replace(
        shape,
        vocab_size=split(shape.vocab_rows, layout.tensor)[place.rank],
        vocab_multiple=1,
        num_layers=layers[place.stage],
        num_heads=heads,
        num_kv_heads=keys,
        head_dim=shape.head_width,
        d_ff=split(shape.d_ff, layout.tensor)[place.rank],
        window=shape.window if windowed else None,
        window_layers=windowed if windowed and windowed < layers[place.stage] else None,
    )


def device_parameters(shape: TransformerShape, layout: Layout, place: Place) -> Breakdown:
    """Parameters on a device. Norms, positions, routers and the biases after a sum are on every device of a layer.

    Over several stages a tied head is a copy of the embedding, whose gradients the two stages add up.
    """
    first, last = place.stage == 0, place.stage == layout.pipeline - 1
    mine = shard(shape, layout, place)
    terms = dict(parameters(mine).terms)
    rows = Symbol("V", mine.vocab_rows) * Symbol("d", shape.d_model)
    if not first:
        terms["embedding"] = terms["positions"] = Term(0)
    if not last and shape.norms:  # without the one before the head
        terms["norms"] = terms["norms"] - Symbol("d", shape.d_model) * (
            2 if shape.norm == "layernorm" and shape.bias else 1
        )
    if not last:
        terms["head"] = Term(0)
    elif shape.tied_embeddings and not first:
        terms["head"] = rows
    return breakdown(
        f"parameters of stage {place.stage}, rank {place.rank}",
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
    attention: str = "full",
) -> Breakdown:
    """Matrix-multiply FLOPs of a device in the forward pass of batch_size sequences of its replica.

    The shares of all devices add up to the whole, but for key heads and routers that several of them compute.
    """
    mine = shard(shape, layout, place)
    terms = dict(forward_flops(mine, shape.sequence(seq_len), batch_size, attention=attention).terms)
    if place.stage != layout.pipeline - 1:
        del terms["head"]
    return breakdown(
        f"forward FLOPs of stage {place.stage}, rank {place.rank}", FLOPs, terms, "matrix multiplications only"
    )


def device_memory(
    shape: TransformerShape,
    layout: Layout,
    place: Place,
    batch_size: int = 1,
    seq_len: int | None = None,
    *,
    precision: str = "fp32",
    optimizer: str = "adamw",
    step: str = "fused",
    attention: str = "fused",
    norm_kernel: str = "fused",
    checkpointing: str = "none",
    loss: str = "plain",
) -> Breakdown:
    """Bytes on a device where they are most in a step, in micro-batches of batch_size sequences.

    Gradients are those of all its parameters from the start, as micro-batches add to them. Of ZeRO the largest shard. Muon
    and 8-bit AdamW, whose states go by whole tensors, are counted where no layer is split and no stage is alone.
    """
    whole_tensors = layout.tensor == layout.pipeline == 1
    choose("optimizer", optimizer, OPTIMIZERS)
    if optimizer not in MOMENTS and not whole_tensors:
        raise ValueError(
            f"optimizer {optimizer!r} goes by whole tensors, and here several devices share them: "
            f"use one of {', '.join(MOMENTS)}"
        )
    choose("step", step, STEPS)
    shares = layout.tensor if layout.sequence_parallel else 1
    policy = Policy(precision, attention, norm_kernel, checkpointing, loss, shares=shares)
    B, T = Symbol("B", positive("batch_size", batch_size)), Symbol("T", shape.sequence(seq_len))
    mine, last = shard(shape, layout, place), place.stage == layout.pipeline - 1
    run = Step(mine, B, T, policy, accumulate=True)
    held = device_parameters(shape, layout, place)
    if place.stage:
        del run.shared["token ids"]
    N, w = Symbol("N", int(held.total)), Symbol("w", layout.data)
    each = MOMENTS[optimizer] + 4 * policy.bytes.master if optimizer in MOMENTS else 0
    state = shard_terms(N, w, run.p, layout.zero, run.P, mine.num_layers, each)
    if not each:
        terms = optimizer_state(mine, optimizer=optimizer, master=policy.bytes.master).terms
        kept = added(term for _, term in terms)
        state["optimizer state"] = shard_of(kept, w) if layout.zero else kept
    others = Symbol("i", layout.in_flight(place.stage) - 1)
    # tables and masks are made once for all of them
    whole = {name: found for name, found in run.kept(run.L).items() if name not in ("kept: tables", "kept: mask")}
    if last:
        whole |= {f"kept: {name}": found for name, found in run.head.items()}
    waiting = {f"in flight: {name[6:]}": others * total(found) for name, found in whole.items()}
    phases = [*(run.losses() if last else []), *run.blocks()]
    if place.stage == 0:
        phases.append(run.embedding_backward(tied=mine.tied_embeddings and last))
    sheets = []
    for title, (gradients, _), pieces in phases:
        newest = int(gradients) - int(run.N) * int(run.p)
        parts = {**state, "newest gradient": Symbol("new", newest) if newest else Term(0), **waiting}
        sheets.append((title, parts | {name: total(one) for name, one in pieces.items()}))
    stepping = {name: state[name] for name in ("parameters", "gradients", "optimizer state")}
    temporaries = total(temporaries_of_shard(mine, held, layout, optimizer, step))
    sheets.append(("optimizer step", {**stepping, "temporaries": temporaries}))
    words = (
        f"{optimizer}, {step} step; {policy.words}; {layout.in_flight(place.stage)} micro-batches in flight; "
        "no allocator's rounding, no buffers of collectives"
    )
    title, parts = max(sheets, key=lambda sheet: sum(int(term) for term in sheet[1].values()))
    return breakdown(f"memory of stage {place.stage}, rank {place.rank}: {title}", Bytes, parts, words)


def temporaries_of_shard(
    mine: TransformerShape, held: Breakdown, layout: Layout, optimizer: str, step: str
) -> list[tuple[int, Term]]:
    """step_temporaries of what a device steps over: of all it holds, or with ZeRO of its shard."""
    if step == "fused" or optimizer not in MOMENTS:
        return step_temporaries(mine, optimizer=optimizer, step=step)
    N = Symbol("N", int(held.total))
    share = shard_of(N, Symbol("w", layout.data)) if layout.zero else N
    if step == "foreach":
        return [(1, 4 * share)]
    sizes = [rows * columns for rows, columns in matrices(mine)]
    sizes += [int(held[name]) for name in ("embedding", "positions", "head")]
    return [(2 if optimizer == "adamw" else 1, 4 * Symbol("Z", min(int(share), max(sizes))))]


def fullest(
    shape: TransformerShape, layout: Layout, batch_size: int = 1, seq_len: int | None = None, **options: str
) -> Breakdown:
    """device_memory where it is most: what decides whether the layout fits."""
    alike = {(place.stage, shard(shape, layout, place)): place for place in places(layout)}  # most ranks hold the same
    found = (device_memory(shape, layout, place, batch_size, seq_len, **options) for place in alike.values())
    return max(found, key=lambda one: int(one.total))


def device_traffic(
    shape: TransformerShape,
    layout: Layout,
    place: Place,
    batch_size: int = 1,
    seq_len: int | None = None,
    *,
    precision: str = "fp32",
    checkpointing: str = "none",
) -> Breakdown:
    """Bytes that a device sends in one step, by ring collectives over shares padded to one size.

    Each layer's two sums go over the devices that share it, forward and backward; with sequence parallelism each is a
    reduce-scatter and an all-gather, and the backward gathers once more what the products read. Stages pass on the residual
    stream and its gradient. Data-parallel replicas do as in step_traffic.
    """
    bytes_of = PRECISIONS[choose("precision", precision, tuple(PRECISIONS))]
    choose("checkpointing", checkpointing, ("none", "selective", "full"))
    B, T = Symbol("B", positive("batch_size", batch_size)), Symbol("T", shape.sequence(seq_len))
    mine, t, d = shard(shape, layout, place), layout.tensor, Symbol("d", shape.d_model)
    L, steps = Symbol("L", mine.num_layers), Symbol("u", layout.micro_batches)
    first, last = place.stage == 0, place.stage == layout.pipeline - 1
    a, r, p = Symbol("a", bytes_of.activations), Symbol("r", bytes_of.residual), Symbol("p", bytes_of.weights)
    w, N = Symbol("t", t), Symbol("N", int(device_parameters(shape, layout, place).total))
    gathered = B * T * d if not layout.sequence_parallel else B * ((T + (w - 1)) // w) * w * d
    once = (w - 1) * ((gathered + (w - 1)) // w)  # numbers that a reduce-scatter, or an all-gather, sends
    terms: dict[str, int] = {}
    if t > 1:
        forward = steps * L * 4 * once * a
        terms["sums of layers, forward"] = forward
        terms["sums of layers, recomputed"] = forward if checkpointing == "full" else 0
        terms["sums of layers, backward"] = steps * L * (6 if layout.sequence_parallel else 4) * once * a
        if first:
            terms["sum of embeddings"] = 2 * (steps * once * r)
        if last:
            terms["gradient of the head's input"] = steps * (3 if layout.sequence_parallel else 2) * once * a
            # the largest logit, the sum of exponentials, and the target's logit of each position
            terms["softmax over the vocabulary"] = 6 * (steps * 4 * ((w - 1) * ((B * T + (w - 1)) // w)))
        if layout.sequence_parallel:  # what every device holds has seen only its own positions
            shared = Symbol("s", replicated_parameters(shape, layout, place))
            terms["gradients of what is shared"] = reduced_over(shared, w) * p
    passed = B * ((T + (w - 1)) // w) * d * r if layout.sequence_parallel else B * T * d * r
    if not last:
        terms["to the next stage"] = steps * passed
    if not first:
        terms["gradient to the stage before"] = steps * passed
    if shape.tied_embeddings and layout.pipeline > 1 and (first or last):
        terms["gradient of the tied embedding"] = reduced_over(Symbol("V", mine.vocab_rows) * d, Term(2)) * p
    if layout.data > 1:
        terms |= traffic_terms(N, Symbol("w", layout.data), p, layout.zero)
    return breakdown(
        f"sent by stage {place.stage}, rank {place.rank} in a step",
        Bytes,
        terms,
        f"{precision}, {layout.micro_batches} micro-batches of {batch_size}; ring collectives over shares padded to one size",
    )


def replicated_parameters(shape: TransformerShape, layout: Layout, place: Place) -> int:
    """Of a device's parameters, those that every device of its layer holds: norms, positions, routers, biases after sums."""
    held, mine = device_parameters(shape, layout, place), shard(shape, layout, place)
    biases = mine.num_layers * shape.d_model * (1 + (shape.experts or 1)) if shape.bias else 0
    return int(held["norms"]) + int(held["positions"]) + int(held["router"]) + biases
