"""A measured step beside its prediction: the gap, the known faults that account for it, and its place among others.

Each fault is a prediction of its own, of the same run with that fault. The likeliest is the one whose time is nearest
to the measured time, by the ratio of the two; it is named only if it closes more than half of the gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log
from typing import Any

from accounting.cluster.layout import Layout
from accounting.hardware.devices import Device
from accounting.hardware.interconnect import Interconnect
from accounting.planning.accuracy import Accuracy, accuracy
from accounting.planning.step_time import StepTime, attention_kernel, step_time
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape
from accounting.units import ByteRate, Seconds

HOST_LINK = ByteRate(25e9)  # bytes/s of a PCIe 4.0 slot of 16 lanes, which takes the place of a link that is not used


@dataclass(frozen=True)
class Fault:
    """A known mistake: the part of the step that it is in, in words what is wrong, and the time of a step with it."""

    part: str
    words: str
    seconds: Seconds


@dataclass(frozen=True)
class Diagnosis:
    """A measured step beside its prediction.

    Args:
        step: the predicted step.
        measured: its measured time.
        faults: those that would lengthen the step, the nearest to the measured time first.
        published: the nearest published runs.
    """

    step: StepTime
    measured: Seconds
    faults: tuple[Fault, ...]
    published: Accuracy

    @property
    def took(self) -> float:
        """The measured time over the predicted one."""
        return float(self.measured) / float(self.step.total)

    @property
    def usual(self) -> bool:
        """True if the nearest published runs took as much of their predicted time, by the least and the greatest."""
        return self.published.shortest <= round(self.took, 2) <= self.published.longest

    @property
    def faster(self) -> int:
        """Number of the nearest published runs that took less of their predicted time."""
        return sum(run.took < self.took for run in self.published.nearest)

    @property
    def likely(self) -> Fault | None:
        """The fault that leaves less than half of the gap, None if there is none or no gap."""
        first = next(iter(self.faults), None)
        near = first is not None and abs(log(float(self.measured) / float(first.seconds))) < log(self.took) / 2
        return first if near else None

    @property
    def verdict(self) -> str:
        """The fault that is most likely, in words."""
        words = "as others of its kind, so that nothing need be wrong" if self.usual else ""
        if self.likely:
            return "; ".join(filter(None, (words, f"most likely {self.likely.part}: {self.likely.words}")))
        slow = "no single fault closes half of the gap: input, launches of small kernels or slow devices may"
        return words or (slow if self.took > 1 else "faster than others of its kind")


def diagnose(
    shape: TransformerShape,
    layout: Layout,
    device: Device,
    interconnect: Interconnect,
    measured: float,
    batch_size: int = 1,
    seq_len: int | None = None,
    *,
    policy: Policy = DEFAULT,
    efficiency: float | None = None,
    virtual_stages: int = 1,
    kernel: str | None = None,
) -> Diagnosis:
    """A step that took `measured` seconds beside its prediction, and the known faults that would explain the gap.

    The arguments are those of step_time().

    Raises:
        ValueError: a measured time that is none, or a step that is not predicted.

    >>> from accounting import DEVICES, INTERCONNECTS, SHAPES
    >>> run = SHAPES["llama-3-8b"], Layout(8, zero=3), DEVICES["h100"], INTERCONNECTS["h100"], 9.0
    >>> diagnose(*run, policy=Policy(precision="bf16")).likely.words
    'matmuls are in fp32'
    """
    if not 0 < measured < float("inf"):
        raise ValueError(f"expected measured above 0 seconds, got {measured!r}")
    run: dict[str, Any] = {"shape": shape, "layout": layout, "device": device, "interconnect": interconnect}
    run |= {"batch_size": batch_size, "seq_len": seq_len, "policy": policy, "efficiency": efficiency}
    run |= {"virtual_stages": virtual_stages, "kernel": kernel or attention_kernel(device)}
    run["pairs"] = "full" if policy.attention_kernel == "eager" else "causal"
    step = step_time(**run)
    faults = [Fault("communication", "no traffic runs beside the computation", Seconds(step.total + step.hidden))]
    for part, words, change in _changes(step, **run):
        try:
            faults.append(Fault(part, words, step_time(**{**run, **change}).total))
        except ValueError:  # a policy that is not counted of this shape, which then cannot be its fault
            continue
    some = [one for one in faults if float(one.seconds) > 1.001 * float(step.total)]
    some.sort(key=lambda one: abs(log(float(one.seconds) / measured)))
    precision = "fp8" if policy.precision == "fp8" else "bf16"
    errors = accuracy(shape, device, layout.gpus, seq_len, precision=precision)
    return Diagnosis(step, Seconds(measured), tuple(some), errors)


def _changes(
    step: StepTime, *, layout: Layout, device: Device, interconnect: Interconnect, policy: Policy, **others: Any
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The part, the words, and the arguments of step_time() that differ, of each fault that the run may have."""
    if policy.attention_kernel != "eager":
        eager = replace(policy, attention_kernel="eager")
        yield "attention", "attention is not fused: its scores are stored", {"policy": eager, "pairs": "full"}
    if others["kernel"] == "flash3":
        yield "attention", "its kernel is as slow as FlashAttention 2", {"kernel": "flash2"}
    for again in ("selective", "full"):
        if policy.activation_checkpointing not in (again, "full"):
            words = f"activation checkpointing is {again}, not {policy.activation_checkpointing}"
            yield "recomputation", words, {"policy": replace(policy, activation_checkpointing=again)}
    if policy.norm_kernel == "fused":
        yield "elementwise", "norms are not fused", {"policy": replace(policy, norm_kernel="composite")}
    for wide in {"fp8": ("bf16",), "fp32": ()}.get(policy.precision, ("fp32",)):
        if wide in device.peaks:
            yield "matmul", f"matmuls are in {wide}", {"policy": replace(policy, precision=wide)}
    if layout.micro_batches > 1 and layout.replicas > 1 and layout.zero < 2:
        yield "data", "each micro-batch reduces gradients, not the step", {"layout": replace(layout, zero=2)}
    if others["virtual_stages"] > 1:
        yield "bubble", "stages are not interleaved", {"virtual_stages": 1}
    if step.network_bytes and interconnect.node_size > 1:
        one = replace(interconnect, network=ByteRate(float(interconnect.network) / interconnect.node_size))
        yield "communication", "the devices of a node share one adapter", {"interconnect": one}
    if step.link_bytes and float(interconnect.reached) > float(HOST_LINK):
        slow = replace(interconnect, link=HOST_LINK, measured=ByteRate(0.0))
        yield "communication", "traffic in a node goes over PCIe", {"interconnect": slow}
