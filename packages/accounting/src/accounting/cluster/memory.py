"""Bytes on a device of a layout where they are most in a step."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from accounting.breakdown import Breakdown, breakdown
from accounting.cluster.device import device_parameters, replicated
from accounting.cluster.layout import FIRST, Layout, Place, places, shard
from accounting.cluster.zero import OF_A_PASS, Part, shard_of, sharded_bytes
from accounting.counting.parameters import matrices, trained_tensors
from accounting.formula import Symbol, Term, added
from accounting.memory.activations import ForwardPass, saved_by_layers
from accounting.memory.optimizer_state import optimizer_state, step_temporaries
from accounting.memory.records import MADE_ONCE, Component, Group, Item, Phase, PhaseKind, items, phase, plain_bytes
from accounting.memory.training import Moment, Step, overhead
from accounting.memory.transformers_blocks import only_with
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape
from accounting.units import Bytes

GROUPS = {
    Part.PARAMETERS: Group.PARAMETERS,
    Part.GATHERED: Group.PARAMETERS,
    Part.GRADIENTS: Group.GRADIENTS,
    Part.REDUCED: Group.GRADIENTS,
    Part.OPTIMIZER_STATE: Group.OPTIMIZER_STATE,
}
MOMENTS = {"adamw": 2, "sgd": 1}  # of the optimizers whose state any shard can have


def device_state(
    shape: TransformerShape, layout: Layout, place: Place = FIRST, *, policy: Policy = DEFAULT
) -> Breakdown:
    """Bytes of parameters, gradients and optimizer state on a device, without activations.

    Muon and 8-bit AdamW, whose states go by whole tensors, are counted where no layer is split and no stage is alone.
    """
    device_forward_pass(shape, layout, place, 1, 1, policy)  # refuses what is not counted
    state = _state(policy, shape, layout, place)
    return breakdown(
        f"state on a device of {layout.gpus}, {'DDP' if layout.zero == 0 else f'ZeRO-{layout.zero}'}",
        Bytes,
        {item.name: item.bytes for item in state.values()},
        f"{layout.words}; {policy.precision}, {policy.optimizer}; shard {place.data_rank + 1} of {layout.replicas}; "
        "activations not in it",
    )


def device_memory(
    shape: TransformerShape,
    layout: Layout,
    place: Place = FIRST,
    batch_size: int = 1,
    seq_len: int | None = None,
    *,
    policy: Policy = DEFAULT,
) -> Phase:
    """Bytes on a device where they are most in a step, in micro-batches of batch_size sequences.

    Gradients are those of all its parameters from the start, as micro-batches add to them. Of ZeRO the largest shard.
    """
    run = Step(device_forward_pass(shape, layout, place, batch_size, seq_len, policy))
    last = place.stage == layout.pipeline - 1
    if place.stage:
        del run.shared[Component.TOKEN_IDS]
    state = _state(policy, shape, layout, place)
    always, besides = list(state.values()), [overhead(policy)] if policy.overhead_bytes else []
    moments = [*(run.losses() if last else []), *run.blocks()]
    if place.stage == 0 and not run.frozen:
        moments.append(run.embedding_backward(tied=run.shape.tied_embeddings and last))
    waiting = _in_flight(run, layout, place, last=last)
    words = (
        f"{policy.optimizer}, {policy.optimizer_step} step; {policy.description}; "
        f"{layout.in_flight(place.stage)} micro-batches in flight; no allocator's rounding, no buffers of collectives"
    )
    phases = [(one.title, one.kind, [*always, *besides, _newest(run, one), *waiting, *one.alive]) for one in moments]
    stepping = [*(item for part, item in state.items() if part not in OF_A_PASS), *besides]
    stepping.append(Item("temporaries", Group.TEMPORARY, _step_temporaries(run, shape, layout, place)))
    phases.append(("optimizer step", PhaseKind.OPTIMIZER_STEP, stepping))
    # by plain numbers, as a search asks for many devices, and the formulas of the highest alone
    title, kind, alive = max(phases, key=lambda one: sum(plain_bytes(item.tensors) for item in one[2]))
    return phase(title, kind, alive, words, place=place.words)


def fullest(
    shape: TransformerShape,
    layout: Layout,
    batch_size: int = 1,
    seq_len: int | None = None,
    *,
    policy: Policy = DEFAULT,
    limit: int | None = None,
) -> Phase:
    """device_memory of the fullest device, or with a limit of the first device that is above it."""
    seen: set[tuple[int, TransformerShape]] = set()
    most: Phase | None = None
    for place in places(layout):
        # most ranks hold the same; of stages with equal layers, first and last apart, the earliest has most in flight
        end = 0 if place.stage == 0 else 2 if place.stage == layout.pipeline - 1 else 1
        mine = (end, shard(shape, layout, place))
        if mine in seen:
            continue
        seen.add(mine)
        peak = device_memory(shape, layout, place, batch_size, seq_len, policy=policy)
        if most is None or int(peak.total) > int(most.total):
            most = peak
        if limit is not None and int(peak.total) > limit:
            break
    if most is None:
        raise ValueError(f"{layout.words} has no device")
    return most


def device_forward_pass(
    shape: TransformerShape, layout: Layout, place: Place, batch_size: int, seq_len: int | None, policy: Policy
) -> ForwardPass:
    """A device's share of a forward pass; gradients accumulate, whatever the policy says."""
    if policy.optimizer not in MOMENTS and not layout.tensor == layout.pipeline == 1:
        words = f"optimizer {policy.optimizer!r} goes by whole tensors, which several devices share here"
        raise ValueError(f"{words}: use one of {', '.join(MOMENTS)}")
    if policy.allocator == "cuda":
        raise ValueError(f"allocator {policy.allocator!r} is counted of one device alone: use 'exact' or 'reserved'")
    several = {"precision": ("fp32", "bf16", "pure_bf16", "autocast"), "frozen_dtype": ("weights",)}
    only_with("the memory of several devices", policy, several)
    mine = shard(shape, layout, place)
    accumulating = replace(policy, gradient_accumulation=True)
    shards = layout.tensor if layout.sequence_parallel else 1
    return ForwardPass(mine, batch_size, shape.sequence(seq_len), accumulating, shards, layout.context)


@lru_cache(maxsize=1 << 12)  # micro-batches and checkpointing do not change it
def state_bytes(shape: TransformerShape, layout: Layout, policy: Policy) -> int:
    """Bytes of the state of the first device, which every pass of a step has beside others."""
    return sum(plain_bytes(item.tensors) for item in _state(policy, shape, layout, FIRST).values())


def _state(policy: Policy, shape: TransformerShape, layout: Layout, place: Place) -> dict[Part, Item]:
    """Parameters, gradients and optimizer state, by ZeRO's stage."""
    states, mine = Term(0), shard(shape, layout, place)
    weight, gradient = Symbol("weight_bytes", policy.bytes.weights), Symbol("gradient_bytes", policy.gradient_bytes)
    sizes: dict[Part, Term] = {}
    rank, layers = place.data_rank, mine.num_layers
    for one in replicated(shape, layout, place):
        at = rank % int(one.devices)  # among those that hold the same
        for part, size in sharded_bytes(one, weight, gradient, layout.zero, layers, at).items():
            sizes[part] = sizes[part] + size if part in sizes else size
        if policy.optimizer in MOMENTS:
            each = MOMENTS[policy.optimizer] * policy.moment_bytes + 4 * policy.bytes.master_weights
            each = 0 if policy.offload == "optimizer" else each
            states = states + each * (shard_of(one.trained, one.devices, at) if layout.zero else one.trained)
    if policy.optimizer not in MOMENTS:
        if layout.expert > 1:
            raise ValueError(
                f"optimizer {policy.optimizer!r} is not counted where experts are shared: use adamw or sgd"
            )
        whole = added(term for _, term in optimizer_state(mine, policy=policy).terms)
        states = shard_of(whole, Symbol("dp", layout.replicas), rank) if layout.zero else whole
    sizes[Part.OPTIMIZER_STATE] = states
    return {part: Item(part.value, GROUPS[part], [(1, size)]) for part, size in sizes.items()}


def _newest(run: Step, moment: Moment) -> Item:
    """The gradients that are not yet added to those of earlier micro-batches, which are there from the start."""
    beside = int(moment.gradients.finished) - int(run.trained) * int(run.run.gradient) + int(moment.gradients.newest)
    return Item("newest gradient", Group.GRADIENTS, [(1, Symbol("newest_gradient", beside))] if beside else [])


def _in_flight(run: Step, layout: Layout, place: Place, *, last: bool) -> list[Item]:
    """Tensors that other micro-batches have saved, whose backward is still to come."""
    others = Symbol("in_flight", layout.in_flight(place.stage) - 1)
    of_blocks = saved_by_layers(run.run, run.run.stack.counts)
    saved = {one: tensors for one, tensors in run.shared.items() if one not in MADE_ONCE} | of_blocks
    if last:
        saved |= run.head
    waiting = items(Group.IN_FLIGHT, saved)
    return [Item(item.name, item.group, [(1, others * item.bytes)]) for item in waiting]


def _step_temporaries(run: Step, shape: TransformerShape, layout: Layout, place: Place) -> list[tuple[int, Term]]:
    """step_temporaries of what a device steps over: of all it holds, or with ZeRO of its shard."""
    policy, on_device = run.policy, device_parameters(shape, layout, place)
    of_device = replicated(shape, layout, place)
    if policy.optimizer_step == "fused" or policy.optimizer not in MOMENTS:
        return step_temporaries(run.shape, policy)
    share = added(shard_of(one.trained, one.devices) if layout.zero else one.trained for one in of_device)
    if policy.optimizer_step == "foreach":
        return [(1, 4 * share)]
    if run.frozen:
        sizes = [size for _, size in trained_tensors(run.shape)]
    else:
        sizes = [rows * columns for rows, columns in matrices(run.shape)]
        sizes += [int(on_device[name]) for name in ("embedding", "positions", "head")]
    largest = Symbol("largest_tensor", min(int(share), max(sizes)))
    return [(2 if policy.optimizer == "adamw" else 1, 4 * largest)]
