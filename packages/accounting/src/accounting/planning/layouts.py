"""plan(): the layouts of a cluster that a training run fits on, fastest first.

Candidates are all products of tensor, context, pipeline and data-parallel devices that fill the cluster, with every
micro-batch size, activation checkpointing and number of devices that share experts. step_time times them; then, from
the fastest on, their memory is compared with a device's until enough fit. Tensor parallelism stays inside a node;
sequences are shared in parts of at least 4,096 positions. With pipeline stages the optimizer alone is sharded (ZeRO-1):
ZeRO-2 and ZeRO-3 would reduce every gradient, or gather every parameter, in each micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from accounting.checks import instance, positive
from accounting.cluster.device import device_parameters, plain
from accounting.cluster.layout import Layout, Place
from accounting.cluster.memory import fullest, state_bytes
from accounting.counting.flops import training_flops
from accounting.hardware.devices import Device
from accounting.hardware.interconnect import Interconnect, interconnect
from accounting.planning.accuracy import Accuracy, accuracy
from accounting.planning.step_time import StepTime, saved_bytes, step_time
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape
from accounting.units import Bytes, Seconds, Tokens

BATCH_TOKENS = 1 << 22  # default for an optimizer step: usual for models of 1B to 100B parameters
CONTEXT_SHARE = 4096  # fewest positions of a sequence on a device, if several share it
MICRO_BATCHES = tuple(1 << power for power in range(7))  # candidates for the sequences of a micro-batch


@dataclass(frozen=True)
class Plan:
    """One layout that fits, its memory and its time.

    Args:
        layout: devices by data, tensor and pipeline, ZeRO stage, micro-batches of a step.
        micro_batch_size: sequences of a micro-batch on a replica.
        policy: precision, kernels and optimizer of a step; plan() chose its activation_checkpointing.
        memory: bytes on the fullest device.
        step: seconds of a step, by what they are spent on, and bytes sent.
        steps: optimizer steps of the run.
        tokens: of the run, whole steps.
        mfu: the model's FLOPs over those of the devices' peak in that time (Chowdhery et al. 2022), counted over the
            `pairs` of positions given to plan(), as training_time() counts them.
        seconds: predicted wall clock of the run.
        shortest, longest: range of the wall clock, by what the most similar published runs took of their predicted
            time.
        published: those runs, and the errors over all of their kind.
        cost: money for the predicted time, None without a price.
    """

    layout: Layout
    micro_batch_size: int
    policy: Policy
    memory: Bytes
    step: StepTime
    steps: int
    tokens: Tokens
    mfu: float
    seconds: Seconds
    shortest: Seconds
    longest: Seconds
    published: Accuracy
    cost: float | None


def plan(
    shape: TransformerShape,
    device: Device,
    devices: int,
    tokens: int,
    *,
    joined_by: Interconnect | None = None,
    seq_len: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
    policy: Policy | None = None,
    pairs: str = "causal",
    efficiency: float | None = None,
    price: float | None = None,
    memory_limit: int | None = None,
    most: int = 10,
) -> list[Plan]:
    """The layouts of `devices` devices that a run of these tokens fits on, fastest first.

    Args:
        joined_by: link and network, those of the maker's server if None.
        seq_len: positions of a sequence; the whole context unless given.
        batch_tokens: tokens of an optimizer step, rounded down to whole sequences.
        policy: precision, optimizer and kernels; bf16 with fused kernels if None. Activation checkpointing is chosen.
        pairs: pairs of positions that MFU counts: those that are computed, or "full", by which it may be above 1.
        efficiency: part of the dense peak that matmuls reach; by the device's best measured matmul if None.
        price: money for one device and hour.
        memory_limit: bytes of a device that may be used; the datasheet's memory if None, which leaves some 7% of a card
            to driver, context and communication buffers.
        most: maximum number of layouts.

    Returns:
        Plans in order of time, empty if nothing fits.

    Raises:
        ValueError: a number out of range, or a batch that no number of replicas divides.
        KeyError: the device has no listed interconnect, and joined_by is None.

    >>> from accounting import DEVICES, SHAPES
    >>> best = plan(SHAPES["llama-3-8b"], DEVICES["h100"], 64, 10**12, most=1)[0]
    >>> best.layout.gpus
    64
    """
    instance("shape", shape, TransformerShape, "SHAPES")
    instance("device", device, Device, "DEVICES")
    positive("devices", devices)
    positive("most", most)
    if price is not None and not 0 <= price < float("inf"):
        raise ValueError(f"expected price as money for one device and hour, got {price!r}: leave it out if unknown")
    length = shape.sequence(seq_len)
    sequences = positive("batch_tokens", batch_tokens) // length
    if not sequences:
        raise ValueError(f"expected batch_tokens of at least one sequence of {length:,}, got {batch_tokens:,}")
    steps = -(-positive("tokens", tokens) // (sequences * length))
    joined = interconnect(device.name) if joined_by is None else joined_by
    policy = replace(DEFAULT, precision="bf16") if policy is None else policy
    limit = int(device.memory) if memory_limit is None else positive("memory_limit", memory_limit)
    computed = "full" if policy.attention_kernel == "eager" else "causal"
    flops = int(training_flops(shape, length, sequences, pairs=pairs).total)

    timed = []
    for layout, micro_batch in candidates(shape, devices, sequences, length, joined.node_size):
        for checkpointing in ("none", "selective", "full"):
            chosen = replace(policy, activation_checkpointing=checkpointing)
            step = step_time(
                shape, layout, device, joined, micro_batch, length, policy=chosen, pairs=computed, efficiency=efficiency
            )
            timed.append((float(step.total), layout, micro_batch, chosen, step))
    if not timed:
        shared = (part for part in divisors(devices) if any(candidates(shape, devices, part, length, joined.node_size)))
        nearest = min((max(round(sequences / part), 1) * part for part in shared), key=lambda n: abs(n - sequences))
        raise ValueError(
            f"expected batch_tokens that {devices:,} devices can share as sequences of {length:,}, got "
            f"{batch_tokens:,}: the nearest is {nearest * length:,}"
        )
    timed.sort(key=lambda one: (one[0], int(one[4].network_bytes), int(one[4].link_bytes)))
    peak = float(device.peak(policy.precision if policy.precision in ("fp32", "fp8") else "bf16"))
    errors = accuracy(shape, device, devices, length, precision="fp8" if policy.precision == "fp8" else "bf16")
    plans: list[Plan] = []
    fitting = set()  # layouts that fit already, with less recomputed
    for seconds, layout, micro_batch, chosen, step in timed:
        if (layout, micro_batch) in fitting:
            continue
        if least_memory(shape, layout, micro_batch, length, chosen) > limit:
            continue
        memory = _memory(shape, layout, micro_batch, length, chosen, limit)
        if memory > limit:
            continue
        fitting.add((layout, micro_batch))
        whole = Seconds(seconds * steps)
        plans.append(
            Plan(
                layout,
                micro_batch,
                chosen,
                Bytes(memory),
                step,
                steps,
                Tokens(steps * sequences * length),
                flops / (seconds * devices * peak),
                whole,
                Seconds(float(whole) * errors.shortest),
                Seconds(float(whole) * errors.longest),
                errors,
                None if price is None else price * devices * float(whole) / 3600,
            )
        )
        if len(plans) == most:
            break
    return plans


def least_memory(shape: TransformerShape, layout: Layout, micro_batch: int, length: int, policy: Policy) -> int:
    """Bytes that the first stage has at least, without its phases: when the last block's backward begins, the state
    and what the micro-batches in flight have saved; with "full" checkpointing the state alone."""
    narrow = replace(policy, precision="bf16") if policy.precision == "fp8" else policy
    whole = replace(narrow, activation_checkpointing="none")  # which does not change the state
    state = state_bytes(shape, replace(layout, micro_batches=1), whole)
    if policy.activation_checkpointing == "full":
        return state
    return state + layout.in_flight(0) * sum(saved_bytes(shape, plain(layout), Place(), micro_batch, length, narrow))


def _memory(shape: TransformerShape, layout: Layout, micro_batch: int, length: int, policy: Policy, limit: int) -> int:
    """Bytes on the fullest device, or on one above the limit; in fp8 those of bf16 and two fp8 copies of each matrix,
    an upper bound: what is saved in fp8 in place of bf16 is not taken off."""
    if policy.precision != "fp8":
        return int(fullest(shape, layout, micro_batch, length, policy=policy, limit=limit).total)
    narrow = replace(policy, precision="bf16")
    memory = int(fullest(shape, layout, micro_batch, length, policy=narrow, limit=limit).total)
    stages = (device_parameters(shape, layout, Place(stage)) for stage in {0, layout.pipeline - 1})
    return memory + max(2 * (int(one["attention"]) + int(one["ffn"])) for one in stages)


def candidates(
    shape: TransformerShape, devices: int, sequences: int, length: int, node_size: int
) -> Iterator[tuple[Layout, int]]:
    """Every layout that fills the devices, with every micro-batch size that divides a replica's sequences."""
    widths = [shape.num_heads, *(size or 0 for ffn in shape.ffns for size in (ffn.d_ff, ffn.shared_d_ff))]
    for tensor in divisors(devices):
        if tensor > node_size or any(width % tensor for width in widths):
            continue
        for pipeline in divisors(devices // tensor):
            if pipeline > shape.num_layers:
                continue
            replicas = devices // tensor // pipeline
            stages = ((1,) if pipeline > 1 else (1, 2, 3)) if replicas > 1 else (0,)
            experts = [part for part in divisors(replicas) if not shape.most_experts % part]
            for context in (part for part in divisors(replicas) if part == 1 or length >= part * CONTEXT_SHARE):
                share, rest = divmod(sequences, replicas // context)
                if rest:
                    continue
                for micro_batch in (size for size in MICRO_BATCHES if size <= share and not share % size):
                    for zero, expert in product(stages, experts):
                        data, passes = replicas // context, share // micro_batch
                        yield Layout(data, tensor, pipeline, zero, tensor > 1, passes, context, expert), micro_batch


def divisors(number: int) -> list[int]:
    """Every divisor of a number, in order."""
    small = [part for part in range(1, int(number**0.5) + 1) if not number % part]
    return sorted({*small, *(number // part for part in small)})
