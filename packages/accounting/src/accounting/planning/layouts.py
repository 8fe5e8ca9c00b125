"""plan(): the layouts of a cluster that a training run fits on, fastest first.

Every product of tensor, context, pipeline and data-parallel devices that fills the cluster is tried, with every
micro-batch size and activation checkpointing, and of a mixture of experts with every number of devices that share the
experts. step_time times them, and from the fastest on they are held against the memory of a device until enough of them
fit. Tensor parallelism stays inside a node; sequences are shared in parts of at least 4,096 positions. ZeRO-2 and
ZeRO-3 go without pipeline stages, whose micro-batches would have every gradient reduced and every parameter gathered
again; with stages the optimizer is sharded (ZeRO-1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from accounting.cluster.layout import Layout
from accounting.cluster.memory import fullest
from accounting.counting.flops import training_flops
from accounting.hardware.devices import Device
from accounting.hardware.interconnect import Interconnect, interconnect
from accounting.planning.step_time import EFFICIENCY, StepTime, step_time
from accounting.policy import CHECKPOINTINGS, DEFAULT, Policy
from accounting.shape import TransformerShape, positive
from accounting.units import Bytes, Seconds, Tokens

BATCH_TOKENS = (
    1 << 22
)  # of an optimizer step, unless given: about what models of 1B to 100B parameters are trained with
CONTEXT_SHARE = 4096  # positions of a sequence that a device has at least, where several share it
MICRO_BATCHES = tuple(1 << power for power in range(7))  # sequences of a micro-batch that are tried
RESERVE = Bytes(2 * 10**9)  # for driver, context and libraries on a device


@dataclass(frozen=True)
class Plan:
    """One layout that fits, with what it takes.

    Args:
        layout: devices by data, tensor and pipeline, ZeRO stage, micro-batches of a step.
        micro_batch_size: sequences of a micro-batch on a replica.
        policy: how a step is computed; its activation_checkpointing was chosen.
        memory: bytes on the fullest device.
        step: seconds of a step, by what they are spent on, and bytes sent.
        steps: optimizer steps of the run.
        tokens: of the run, whole steps.
        mfu: the model's FLOPs over what the devices could do in the time (Chowdhery et al. 2022), over the pairs of
            positions that the attention kernel computes: a fused one leaves out what a causal mask hides.
        seconds: wall clock of the run.
        cost: money, None without a price.
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
    efficiency: float = EFFICIENCY,
    price: float | None = None,
    memory_limit: int | None = None,
    most: int = 10,
) -> list[Plan]:
    """The layouts of `devices` devices that a run of so many tokens fits on, fastest first.

    Args:
        joined_by: link and network; those of the maker's server unless given.
        seq_len: positions of a sequence; the whole context unless given.
        batch_tokens: tokens of an optimizer step, rounded down to whole sequences.
        policy: precision, optimizer and kernels; bf16 with fused kernels unless given. Activation checkpointing is
            chosen.
        efficiency: of the dense peak that matrix multiplications reach.
        price: money for one device and hour.
        memory_limit: bytes of a device that may be used; all but 2 GB unless given, all of them where the policy says
            what the overhead is.
        most: layouts to return at the most.

    Returns:
        Plans in order of time; none where nothing fits.

    Raises:
        ValueError: a number that cannot be, or a batch that no number of replicas divides.
        KeyError: no interconnect is known of the device, and none was given.

    >>> from accounting import DEVICES, SHAPES
    >>> best = plan(SHAPES["llama-3-8b"], DEVICES["h100"], 64, 10**12, most=1)[0]
    >>> best.layout.gpus
    64
    """
    positive("devices", devices)
    positive("most", most)
    if price is not None and not 0 <= price < float("inf"):
        raise ValueError(f"price must be money for one device and hour, and {price!r} is not: leave it out if unknown")
    length = shape.sequence(seq_len)
    sequences = positive("batch_tokens", batch_tokens) // length
    if not sequences:
        raise ValueError(f"batch_tokens {batch_tokens:,} are less than one sequence of {length:,}: give more")
    steps = -(-positive("tokens", tokens) // (sequences * length))
    joined = interconnect(device.name) if joined_by is None else joined_by
    policy = replace(DEFAULT, precision="bf16") if policy is None else policy
    reserve = 0 if policy.overhead_bytes else int(RESERVE)
    limit = int(device.memory) - reserve if memory_limit is None else positive("memory_limit", memory_limit)
    pairs = "full" if policy.attention_kernel == "eager" else "causal"
    flops = int(training_flops(shape, length, sequences, pairs=pairs).total)

    timed = []
    for layout, micro_batch in candidates(shape, devices, sequences, length, joined.node_size):
        for checkpointing in CHECKPOINTINGS:
            chosen = replace(policy, activation_checkpointing=checkpointing)
            step = step_time(
                shape, layout, device, joined, micro_batch, length, policy=chosen, pairs=pairs, efficiency=efficiency
            )
            timed.append((float(step.total), layout, micro_batch, chosen, step))
    if not timed:
        raise ValueError(
            f"no number of replicas of {devices:,} devices divides the {sequences:,} sequences of a batch: "
            f"give batch_tokens that are a multiple of {length:,} times a divisor of the devices"
        )
    timed.sort(key=lambda one: (one[0], int(one[4].network_bytes), int(one[4].link_bytes)))
    peak = float(device.peak("fp32" if policy.precision == "fp32" else "bf16"))
    found: list[Plan] = []
    fitting = set()  # layouts that fit already, with less recomputed
    for seconds, layout, micro_batch, chosen, step in timed:
        if (layout, micro_batch) in fitting:
            continue
        memory = fullest(shape, layout, micro_batch, length, policy=chosen).total
        if int(memory) > limit:
            continue
        fitting.add((layout, micro_batch))
        whole = Seconds(seconds * steps)
        found.append(
            Plan(
                layout,
                micro_batch,
                chosen,
                Bytes(int(memory)),
                step,
                steps,
                Tokens(steps * sequences * length),
                flops / (seconds * devices * peak),
                whole,
                None if price is None else price * devices * float(whole) / 3600,
            )
        )
        if len(found) == most:
            break
    return found


def candidates(
    shape: TransformerShape, devices: int, sequences: int, length: int, node_size: int
) -> Iterator[tuple[Layout, int]]:
    """Every layout that fills the devices, with every micro-batch size that divides a replica's share of the
    sequences."""
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
                        yield (
                            Layout(
                                replicas // context,
                                tensor,
                                pipeline,
                                zero,
                                tensor > 1,
                                share // micro_batch,
                                context=context,
                                expert=expert,
                            ),
                            micro_batch,
                        )


def divisors(number: int) -> list[int]:
    """Every divisor of a number, in order."""
    small = [part for part in range(1, int(number**0.5) + 1) if not number % part]
    return sorted({*small, *(number // part for part in small)})
