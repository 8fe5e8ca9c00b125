"""Seconds of one optimizer step on the devices of a layout, and what bounds them.

    step = (micro-batches + (stages - 1) / virtual stages) · one micro-batch on the slowest stage
         + exposed data-parallel traffic + the optimizer
    one micro-batch = matmuls + elementwise work + tensor-, context- and expert-parallel traffic

A device's best measured matmul, measured collectives and NCCL's latencies are given; the constants below are fitted,
the same for every device. Matmuls inside attention reach a part of the best matmul's rate that depends on the kernel;
elementwise work reads and writes every saved tensor PASSES times at the memory's bandwidth, 40% more often with full
activation checkpointing; HIDDEN of data- and expert-parallel traffic runs beside the passes that can hide it, that of
tensor and context parallelism is waited for; matmuls of blocks in fp8 take the FP8-th part of their time in bf16.
Schedules are 1F1B (Narayanan et al. 2021, arXiv:2104.04473). Matmuls grouped by expert are slower, the more so the
narrower an expert and the faster the device (EXPERT_WIDTH), and tensors inside such layers are read and written
EXPERT_PASSES times. Fit, held-out runs and errors: docs/design/cluster-plans.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from accounting.checks import choose, instance, positive
from accounting.cluster.device import device_flops, plain, replicated
from accounting.cluster.layout import Layout, Place
from accounting.cluster.memory import device_forward_pass
from accounting.cluster.traffic import Joins, device_traffic
from accounting.cluster.zero import shard_of, zero_traffic
from accounting.counting.flops import backward_terms
from accounting.formula import Term
from accounting.hardware.devices import Device
from accounting.hardware.interconnect import Interconnect
from accounting.memory.activations import head_tensors, saved_by_layers
from accounting.memory.records import Component, total_bytes
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape
from accounting.units import Bytes, Seconds

# fitted by benchmarks/published_runs.py --fit to the runs of its table that are not held out
FLASH2 = 0.185  # parts of the best matmul's rate that matmuls inside attention reach
FLASH3 = 0.583
PASSES = 9.46
HIDDEN = 0.5
FP8 = 1.83
EXPERT_PASSES = 33.1
EXPERT_WIDTH = 418.0  # width of an expert at half of the rate, on a device of 1,000 TFLOP/s
KERNELS = ("flash2", "flash3")  # of attention: FlashAttention 2; FlashAttention 3, cuDNN's or a TPU's own
FLASH3_DEVICES = ("h100", "h20", "h800", "gh200", "b200", "b300", "gb", "tpu")  # beginnings of their names
OF_A_MICRO_BATCH = ("matmul", "memory", "tensor", "context", "expert")  # causes that each micro-batch has
RECOMPUTED_PASSES = 0.4  # a recomputed tensor is written and read once more, beside five times without recomputation


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step by cause, and the bytes that a device sends in it.

    Args:
        matmul: matmuls, recomputed ones included.
        memory: elementwise work between them.
        tensor: traffic of tensor parallelism.
        context: keys and values of context parallelism.
        expert: exposed traffic of tokens to the experts of other devices, and back.
        bubble: idle while the pipeline fills and empties, its own traffic included.
        data: exposed traffic of gradients and parameters.
        optimizer: reading and writing parameters, gradients and optimizer state.
        attention: part of `matmul` inside attention, queries · keys and weights · values.
        hidden: traffic of data and expert parallelism that runs beside the computation, in no part of the step.
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
    attention: Seconds
    hidden: Seconds
    link_bytes: Bytes
    network_bytes: Bytes

    @property
    def parts(self) -> dict[str, Seconds]:
        """Seconds by cause."""
        return {name: getattr(self, name) for name in (*OF_A_MICRO_BATCH, "bubble", "data", "optimizer")}

    @property
    def total(self) -> Seconds:
        return Seconds(sum(float(seconds) for seconds in self.parts.values()))

    @property
    def bound(self) -> str:
        """The largest part of the step."""
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
    efficiency: float | None = None,
    virtual_stages: int = 1,
    kernel: str | None = None,
) -> StepTime:
    """Seconds of an optimizer step of `layout.micro_batches` micro-batches of batch_size sequences on each replica.

    Args:
        pairs: pairs of positions that the attention kernel multiplies: "full" or "causal".
        efficiency: part of the dense peak that matmuls reach, above 0 and at most 1; by the device's best measured
            matmul if None.
        virtual_stages: runs of layers on each stage, of an interleaved schedule.
        kernel: of attention, one of KERNELS; the fastest that the device has if None.

    Returns:
        The time of the slower of the first and the last stage; its parts add up.

    Raises:
        ValueError: an efficiency outside (0, 1], or a layout that the shape cannot be shared over.
    """
    instance("shape", shape, TransformerShape, "SHAPES")
    instance("device", device, Device, "DEVICES")
    if efficiency is None:
        efficiency = matmul_efficiency(device)
    if isinstance(efficiency, bool) or not 0 < efficiency <= 1:
        raise ValueError(f"expected efficiency above 0 and at most 1, got {efficiency!r}")
    if positive("virtual_stages", virtual_stages) > 1 and layout.pipeline == 1:
        raise ValueError(f"virtual_stages {virtual_stages} are of a pipeline, and here is one stage: leave it out")
    kernel = choose("kernel", attention_kernel(device) if kernel is None else kernel, KERNELS)
    if policy.offload != "none":
        raise ValueError("the time of offloaded steps is not predicted: no such run is in the table")
    if policy.activation_checkpointing == "operators":
        raise ValueError("the time of activation_checkpointing 'operators' is not predicted: use 'selective' or 'full'")
    if policy.precision == "fp8" and "fp8" not in device.peaks:
        raise ValueError(f"expected a device with matmuls in fp8, got {device.name}: use precision bf16")
    stages = {0, layout.pipeline - 1}
    common = (shape, layout, device, interconnect, batch_size, seq_len, policy, pairs, efficiency, kernel)
    stage = max((_stage_time(Place(stage), *common) for stage in stages), key=_micro_batch)
    idle = (layout.pipeline - 1) / virtual_stages
    passes = layout.micro_batches
    # two thirds of a pass is its backward; ZeRO-2 sends in every backward, ZeRO-3 in every pass
    window = _micro_batch(stage) * {2: passes * 2 / 3, 3: passes}.get(layout.zero, 2 / 3)
    data, beside = float(stage.data), HIDDEN * min(float(stage.data), window)
    of_passes: dict[str, Any] = {name: Seconds(float(stage.parts[name]) * passes) for name in OF_A_MICRO_BATCH}
    return replace(
        stage,
        **of_passes,
        bubble=Seconds((_micro_batch(stage) + float(stage.bubble)) * idle),
        data=Seconds(data - beside),
        attention=Seconds(float(stage.attention) * passes),
        hidden=Seconds(float(stage.hidden) * passes + beside),
    )


def _micro_batch(step: StepTime) -> float:
    return sum(float(step.parts[name]) for name in OF_A_MICRO_BATCH)


def matmul_efficiency(device: Device) -> float:
    """Part of the dense peak that the matmuls of a model are expected to reach on a device."""
    return min(1.0, device.attainable)


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
    kernel: str,
) -> StepTime:
    """Seconds of one micro-batch on a stage, its traffic with the next as `bubble`; data and optimizer of a step."""
    fp8 = policy.precision == "fp8"
    if fp8:  # the rest of the step, and what is sent, is that of bf16
        policy = replace(policy, precision="bf16")
    split = plain(layout)
    flops, both = _flops(shape, split, place, batch_size, seq_len, pairs)
    forward, head = sum(flops.values()), flops.get("head", 0)
    recomputed = {"none": 0, "selective": flops["scores"], "full": forward - head}[policy.activation_checkpointing]
    peak = float(device.peak("fp32" if policy.precision == "fp32" else "bf16"))
    # in attention, forward and backward; every kind of checkpointing computes it once more
    scores = flops["scores"] * (3 if policy.activation_checkpointing == "none" else 4)
    flash = FLASH2 if kernel == "flash2" else FLASH3
    slowed = scores * (1 / flash - 1)
    if fp8:
        slowed -= (both + recomputed - scores - 3 * head) * (1 - 1 / FP8)
    if shape.most_experts > 1:
        ffn = flops["ffn"] * (4 if policy.activation_checkpointing == "full" else 3)
        width = min(one.d_ff or 1 for one in shape.ffns if one.experts is not None)
        slowed += ffn * EXPERT_WIDTH * peak / 1e15 / width

    # weights are read forward and backward, and their gradients added up: much for experts that few tokens reach
    trained = sum(int(one.trained) for one in replicated(shape, layout, place))
    weights = trained * (2 * policy.bytes.weights + 2 * policy.gradient_bytes)

    every, again = _traffic(shape, layout, place, batch_size, seq_len, replace(policy, activation_checkpointing="full"))
    # keys and values of other devices are gathered again by every kind of checkpointing, the rest by "full" alone
    repeated = {"none": (), "selective": (Joins.CONTEXT,), "full": tuple(Joins)}[policy.activation_checkpointing]
    sent = {group: every[group] - (0 if group in repeated else again[group]) for group in Joins}
    # bytes, size of a group, distance of its members: tensor ranks are neighbours, then ranks of a sequence, replicas,
    # stages; the devices that hold the same experts are as far apart as the experts are shared
    groups = [
        (Joins.TENSOR, int(sent[Joins.TENSOR]), layout.tensor, 1),
        (Joins.CONTEXT, int(sent[Joins.CONTEXT]), layout.context, layout.tensor),
        (Joins.EXPERT, int(sent[Joins.EXPERT]), layout.expert, layout.tensor),
        (Joins.PIPELINE, int(sent[Joins.PIPELINE]), layout.pipeline, layout.tensor * layout.replicas),
    ]
    micro_batches = layout.micro_batches
    number = (Term(policy.bytes.weights), Term(policy.gradient_bytes), layout.zero, Term(micro_batches))
    for one in replicated(shape, layout, place):
        copies = int(one.devices)
        if copies > 1:
            size = sum(int(term) for term in zero_traffic(one, *number).values())
            groups.append((Joins.DATA, size, copies, layout.tensor * layout.replicas // copies))

    # a layer is gathered forward and backward and reduced in each ZeRO-3 pass; once a step and reduced in each pass of
    # ZeRO-2; gathered and reduced once a step otherwise
    rings = {3: 3 * micro_batches, 2: 1 + micro_batches}.get(layout.zero, 2) * -(-shape.num_layers // layout.pipeline)
    seconds, link_bytes, network_bytes = dict.fromkeys(Joins, 0.0), 0, 0
    for group, size, members, stride in groups:
        in_node = max(1, min(members, interconnect.node_size // stride))
        link, network = _shares(size, members, stride, interconnect.node_size)
        if group is Joins.EXPERT and network:
            network = _between_nodes(size, members, in_node, max(one.active for one in shape.ffns))
        seconds[group] += max(link / interconnect.reached, network / interconnect.network_reached)
        if group is Joins.DATA:
            seconds[group] += rings * interconnect.latency(members, in_node)
        link_bytes, network_bytes = link_bytes + link, network_bytes + network

    matmul = (both + recomputed + slowed) / (peak * efficiency)
    whole = replace(policy, activation_checkpointing="none")  # what is computed again is passed over all the same
    inside, outside, _ = saved_bytes(shape, split, place, batch_size, seq_len, whole)
    elementwise = inside * (EXPERT_PASSES if shape.most_experts > 1 else PASSES) + outside * PASSES
    if policy.activation_checkpointing == "full":
        elementwise *= 1 + RECOMPUTED_PASSES
    memory = elementwise + weights
    memory_time = memory / float(device.known_bandwidth)
    expert = seconds[Joins.EXPERT] / micro_batches
    beside = HIDDEN * min(expert, matmul + memory_time)
    return StepTime(
        matmul=Seconds(matmul),
        memory=Seconds(memory_time),
        tensor=Seconds(seconds[Joins.TENSOR] / micro_batches),
        context=Seconds(seconds[Joins.CONTEXT] / micro_batches),
        expert=Seconds(expert - beside),
        bubble=Seconds(seconds[Joins.PIPELINE] / micro_batches),
        data=Seconds(seconds[Joins.DATA]),
        optimizer=Seconds(_optimizer_bytes(shape, layout, place, policy) / float(device.known_bandwidth)),
        attention=Seconds(scores / flash / (peak * efficiency)),
        hidden=Seconds(beside),
        link_bytes=Bytes(link_bytes),
        network_bytes=Bytes(network_bytes),
    )


def _shares(sent: int, devices: int, stride: int, node_size: int) -> tuple[int, int]:
    """Bytes that a device sends inside its node and to others, of a ring over devices that are `stride` apart.

    Each device of the group passes its bytes to the next one in its node, and one crosses to the next node: with as
    many rings as adapters, each adapter carries its share of the bytes that leave the node.
    """
    in_node = max(1, min(devices, node_size // stride)) if stride <= node_size else 1
    if in_node >= devices:
        return sent, 0
    return (sent if in_node > 1 else 0), sent // in_node


def _between_nodes(sent: int, devices: int, in_node: int, experts: int) -> int:
    """Bytes of an all-to-all that leave the node: a token goes once to each other node with one of its experts, and
    from there to the devices that hold them (DeepSeek-V3, arXiv:2412.19437)."""
    nodes = -(-devices // in_node)
    reached = (nodes - 1) * (1 - (1 - 1 / nodes) ** experts)
    return round(sent * reached / (experts * (devices - 1) / devices))


@lru_cache(maxsize=1 << 12)  # layouts of a plan differ in ZeRO stage and checkpointing, which do not change it
def saved_bytes(
    shape: TransformerShape, layout: Layout, place: Place, batch_size: int, seq_len: int | None, policy: Policy
) -> tuple[int, int, int]:
    """Bytes of tensors that a micro-batch saves: in feed-forward layers, others, and of the routers of experts."""
    run = device_forward_pass(shape, layout, place, batch_size, seq_len, policy)
    components = [saved_by_layers(run, run.stack.counts)]
    if place.stage == layout.pipeline - 1:
        components.append(head_tensors(run))
    inside = outside = routers = 0
    for saved in components:
        for component, tensors in saved.items():
            size = int(total_bytes(tensors))
            if component in (Component.FFN_HIDDEN, Component.SHARED_FFN_HIDDEN):
                inside += size
            elif (
                component is Component.ROUTER and shape.most_experts > 1
            ):  # elementwise work on these is in that of feed-forward layers
                routers += size
            else:
                outside += size
    return inside, outside, routers


@lru_cache(maxsize=1 << 12)
def _traffic(
    shape: TransformerShape, layout: Layout, place: Place, batch_size: int, seq_len: int | None, policy: Policy
) -> tuple[dict[Joins, int], dict[Joins, int]]:
    """Bytes of device_traffic with full activation checkpointing, and those of them that it adds."""
    traffic = device_traffic(shape, layout, place, batch_size, seq_len, policy=policy)
    again = dict.fromkeys(Joins, 0)
    for group, (name, term) in zip(traffic.joins, traffic.terms, strict=True):
        again[group] += int(term) if name.endswith("recomputed") else 0
    return {group: int(size) for group, size in traffic.by_group().items()}, again


@lru_cache(maxsize=1 << 12)
def _flops(
    shape: TransformerShape, layout: Layout, place: Place, batch_size: int, seq_len: int | None, pairs: str
) -> tuple[dict[str, int], int]:
    """FLOPs of a forward pass on a stage by component, and those of forward and backward together."""
    counted = device_flops(shape, layout, place, batch_size, seq_len, pairs=pairs)
    flops = {name: int(counted[name]) for name in counted}
    return flops, sum(flops.values()) + sum(backward_terms(shape, flops).values())


def attention_kernel(device: Device) -> str:
    """The fastest of KERNELS that the device has."""
    return "flash3" if device.name.startswith(FLASH3_DEVICES) else "flash2"


def _optimizer_bytes(shape: TransformerShape, layout: Layout, place: Place, policy: Policy) -> int:
    """Bytes that AdamW reads and writes: weights, gradients, two fp32 moments, and fp32 master weights if any."""
    share = sum(
        int(shard_of(one.trained, one.devices) if layout.zero else one.trained)
        for one in replicated(shape, layout, place)
    )
    weight = policy.bytes.weights
    each = 2 * 2 * policy.moment_bytes + weight + 2 * weight + (8 if policy.bytes.master_weights else 0)
    return share * each
