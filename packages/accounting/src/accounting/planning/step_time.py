"""Seconds of one optimizer step on the devices of a layout, and what bounds them.

    step = (micro-batches + (stages - 1) / virtual stages) · one micro-batch on the slowest stage
         + what of data-parallel traffic no pass hides + the optimizer
    one micro-batch = matrix multiplications + what lies between them + tensor-, context- and expert-parallel traffic

Three rules stand for what a profiler would show. Matrix multiplications run at `efficiency` of the dense peak. What
lies between them (norms, activations, the softmax of an unfused kernel, residual sums) is bound by memory: every saved
tensor is written and read in the forward pass and read in the backward pass, and its gradient is written and read;
recomputation writes and reads it once more. Traffic inside a layer is waited for, while gradients travel beside the
backward pass of the last micro-batch, or with ZeRO-3 beside all passes, and only the rest of them is exposed. Schedules
are 1F1B (Narayanan et al. 2021, arXiv:2104.04473). docs/design/cluster-plans.md holds all of it against published runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from accounting.cluster.device import device_flops, replicated
from accounting.cluster.layout import Layout, Place
from accounting.cluster.memory import device_forward_pass
from accounting.cluster.traffic import Joins, device_traffic
from accounting.cluster.zero import shard_of
from accounting.counting.flops import backward_terms
from accounting.hardware.devices import Device
from accounting.hardware.interconnect import Interconnect
from accounting.memory.activations import head_tensors, saved_by_layers
from accounting.memory.records import total_bytes
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape, positive
from accounting.units import Bytes, Seconds

EFFICIENCY = 0.60  # of the dense peak that matrix multiplications reach: fitted to Megatron-LM's runs of 2021 alone
PASSES = 5  # over each saved tensor, and
RECOMPUTED_PASSES = 2  # with full activation checkpointing: see the head of this file


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step by what they are spent on, and what a device sends in it.

    Args:
        matmul: matrix multiplications, recomputed ones included.
        memory: what lies between them.
        tensor: traffic of tensor parallelism.
        context: keys and values of context parallelism.
        expert: tokens sent to the experts of other devices, and back.
        bubble: idle while the pipeline fills and empties, its own traffic included.
        data: traffic of gradients and parameters that no pass hides.
        optimizer: reading and writing parameters, gradients and optimizer state.
        link_bytes: sent inside the node.
        network_bytes: sent to other nodes.
    """

    matmul: Seconds
    memory: Seconds
    tensor: Seconds
    context: Seconds
    expert: Seconds
    bubble: Seconds
    data: Seconds
    optimizer: Seconds
    link_bytes: Bytes
    network_bytes: Bytes

    @property
    def parts(self) -> dict[str, Seconds]:
        """Seconds by what they are spent on."""
        names = ("matmul", "memory", "tensor", "context", "expert", "bubble", "data", "optimizer")
        return {name: getattr(self, name) for name in names}

    @property
    def total(self) -> Seconds:
        return Seconds(sum(float(seconds) for seconds in self.parts.values()))

    @property
    def bound(self) -> str:
        """What takes most of the step."""
        return max(self.parts, key=lambda name: float(self.parts[name]))


def step_time(
    shape: TransformerShape,
    layout: Layout,
    device: Device,
    interconnect: Interconnect,
    batch_size: int = 1,
    seq_len: int | None = None,
    *,
    policy: Policy = DEFAULT,
    pairs: str = "full",
    efficiency: float = EFFICIENCY,
    virtual_stages: int = 1,
) -> StepTime:
    """Seconds of an optimizer step of `layout.micro_batches` micro-batches of batch_size sequences on each replica.

    Args:
        pairs: what attention computes: "full" where the kernel multiplies what a causal mask hides, "causal" where it
            does not.
        efficiency: of the dense peak that matrix multiplications reach, above 0 and at most 1.
        virtual_stages: runs of layers on each stage, of an interleaved schedule.

    Returns:
        Its parts add up; the slowest of the first and the last stage decides.

    Raises:
        ValueError: an efficiency that cannot be, or a layout that the shape cannot be shared over.
    """
    if isinstance(efficiency, bool) or not 0 < efficiency <= 1:
        raise ValueError(f"efficiency must be above 0 and at most 1, and {efficiency!r} is not")
    positive("virtual_stages", virtual_stages)
    stages = {0, layout.pipeline - 1}
    common = (shape, layout, device, interconnect, batch_size, seq_len, policy, pairs, efficiency)
    stage = max((_stage_time(Place(stage), *common) for stage in stages), key=lambda found: found.micro_batch)
    idle = (layout.pipeline - 1) / virtual_stages
    passes = layout.micro_batches
    # two thirds of a pass is its backward; ZeRO-2 sends in every backward, ZeRO-3 in every pass
    hidden = stage.micro_batch * {2: passes * 2 / 3, 3: passes}.get(layout.zero, 2 / 3)
    return StepTime(
        Seconds(stage.matmul * passes),
        Seconds(stage.memory * passes),
        Seconds(stage.tensor * passes),
        Seconds(stage.context * passes),
        Seconds(stage.expert * passes),
        Seconds((stage.micro_batch + stage.pipeline) * idle),
        Seconds(max(0.0, stage.data - hidden)),
        Seconds(stage.optimizer),
        Bytes(stage.link_bytes),
        Bytes(stage.network_bytes),
    )


@dataclass(frozen=True)
class _StageTime:
    """Seconds of one micro-batch on a stage, but for data and optimizer, which are of a step."""

    matmul: float
    memory: float
    tensor: float
    context: float
    expert: float
    pipeline: float
    data: float
    optimizer: float
    link_bytes: int
    network_bytes: int

    @property
    def micro_batch(self) -> float:
        return self.matmul + self.memory + self.tensor + self.context + self.expert


def _stage_time(
    place: Place,
    shape: TransformerShape,
    layout: Layout,
    device: Device,
    interconnect: Interconnect,
    batch_size: int,
    seq_len: int | None,
    policy: Policy,
    pairs: str,
    efficiency: float,
) -> _StageTime:
    flops = device_flops(shape, layout, place, batch_size, seq_len, pairs=pairs)
    forward = int(flops.total)
    recomputed = {
        "none": 0,
        "selective": int(flops["scores"]),
        "full": forward - (int(flops["head"]) if place.stage == layout.pipeline - 1 else 0),
    }[policy.activation_checkpointing]
    peak = float(device.peak("fp32" if policy.precision == "fp32" else "bf16"))
    both = forward + sum(backward_terms(shape, {name: int(flops[name]) for name in flops}).values())
    passes = PASSES + (RECOMPUTED_PASSES if policy.activation_checkpointing == "full" else 0)

    sent = device_traffic(shape, layout, place, batch_size, seq_len, policy=policy).by_group()
    # devices of a group, and how far apart they are: tensor ranks are neighbours, then those of a sequence, replicas,
    # stages
    spans = {
        Joins.TENSOR: (layout.tensor, 1),
        Joins.CONTEXT: (layout.context, layout.tensor),
        Joins.EXPERT: (layout.expert, layout.tensor),
        Joins.DATA: (layout.replicas, layout.tensor),
        Joins.PIPELINE: (layout.pipeline, layout.tensor * layout.replicas),
    }
    seconds, link_bytes, network_bytes = {}, 0, 0
    for group, (devices, stride) in spans.items():
        link, network = _shares(int(sent[group]), devices, stride, interconnect.node_size)
        seconds[group] = max(link / float(interconnect.link), network / float(interconnect.network))
        link_bytes, network_bytes = link_bytes + link, network_bytes + network

    micro_batches = layout.micro_batches
    return _StageTime(
        matmul=(both + recomputed) / (peak * efficiency),
        memory=_saved_bytes(shape, layout, place, batch_size, seq_len, policy) * passes / float(device.known_bandwidth),
        tensor=seconds[Joins.TENSOR] / micro_batches,
        context=seconds[Joins.CONTEXT] / micro_batches,
        expert=seconds[Joins.EXPERT] / micro_batches,
        pipeline=seconds[Joins.PIPELINE] / micro_batches,
        data=seconds[Joins.DATA],
        optimizer=_optimizer_bytes(shape, layout, place, policy) / float(device.known_bandwidth),
        link_bytes=link_bytes,
        network_bytes=network_bytes,
    )


def _shares(sent: int, devices: int, stride: int, node_size: int) -> tuple[int, int]:
    """Bytes that a device sends inside its node and to others, of a ring over devices that are `stride` apart.

    Of the group's devices in one node, each hands its bytes to the next, and one at a time crosses to the next node:
    with as many rings as there are adapters, each adapter carries its share of what leaves the node.
    """
    in_node = max(1, min(devices, node_size // stride)) if stride <= node_size else 1
    if in_node >= devices:
        return sent, 0
    return (sent if in_node > 1 else 0), sent // in_node


def _saved_bytes(
    shape: TransformerShape, layout: Layout, place: Place, batch_size: int, seq_len: int | None, policy: Policy
) -> int:
    """Bytes of all tensors that a micro-batch would save on a device without activation checkpointing."""
    nothing_again = replace(policy, activation_checkpointing="none")
    run = device_forward_pass(shape, layout, place, batch_size, seq_len, nothing_again)
    saved = sum(int(total_bytes(tensors)) for tensors in saved_by_layers(run, run.stack.counts).values())
    if place.stage == layout.pipeline - 1:
        saved += sum(int(total_bytes(tensors)) for tensors in head_tensors(run).values())
    return saved


def _optimizer_bytes(shape: TransformerShape, layout: Layout, place: Place, policy: Policy) -> int:
    """Bytes that AdamW reads and writes: weights, gradients, two fp32 moments, and master weights where they are
    kept."""
    share = sum(
        int(shard_of(one.trained, one.devices) if layout.zero else one.trained)
        for one in replicated(shape, layout, place)
    )
    weight = policy.bytes.weights
    each = 2 * 8 + weight + 2 * weight + (8 if policy.bytes.master_weights else 0)
    return share * each
