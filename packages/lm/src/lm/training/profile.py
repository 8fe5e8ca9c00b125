"""One training step under a magnifying glass: seconds by pass and by operator, FLOPs, bytes, and memory over time.

Three kinds of steps are run on random tokens, because what watches one thing disturbs another: steps that are only
timed, one under torch's profiler for the seconds of each operator and the trace, and one whose operators are all seen
on their way (TorchDispatchMode), for their FLOPs, their bytes and the tensors that are alive.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from lm.config import DeviceName, ModelConfig, TrainConfig
from lm.data import batch
from lm.device import choose_device, choose_precision, float32_matmul_precision, in_words, known_device, threads
from lm.model import Transformer
from lm.training.budget import memory_is_counted, policy, trained_shape
from lm.training.trainer import MicroBatch, Processes, Trainer

if TYPE_CHECKING:
    from accounting import Device, TrainingMemory

PHASES = ("forward", "backward", "optimizer step")
MICRO_BATCHES = 2  # of a step that are run, where it has more: the others are like the second
UNREAD = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})  # allocate, and no more


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of the steps that were only timed: their mean and their standard deviation."""

    mean: float
    deviation: float


@dataclasses.dataclass(frozen=True)
class Operator:
    """All calls of one operator in a step.

    Attributes:
        name: as torch's profiler calls it; a function of lm's in C by its autograd name.
        calls: how often.
        seconds: in the operator itself, without those that it calls.
        flops: of matrix multiplications and attention, by torch's formulas; 0 for all else.
        bytes: of its inputs and outputs, each storage once a call; None where they are not seen, as in a C function.
    """

    name: str
    calls: int
    seconds: float
    flops: int
    bytes: int | None

    def roofline(self, device: Device, dtype: str) -> float | None:
        """The least seconds that the device allows over those it took; None where nothing of it was counted."""
        if self.bytes is None or not (self.bytes or self.flops) or not self.seconds:
            return None
        least = max(self.flops / float(device.peak(dtype)), self.bytes / float(device.bandwidth))
        return least / self.seconds


@dataclasses.dataclass(frozen=True)
class Moment:
    """Bytes of all tensors alive at a time, in seconds since the step began."""

    seconds: float
    bytes: int
    phase: str


@dataclasses.dataclass(frozen=True)
class Profile:
    """What profile() found.

    Attributes:
        passes: seconds of each of PHASES, and of the whole "step".
        operators: those that took longest first.
        timeline: bytes alive after every operator that allocated or freed.
        predicted: accounting's phases of the same step; None for a shape whose memory is not counted.
        flops: of the step by accounting, over causal pairs; the operators' sum has what was computed.
        device: peak and bandwidth, as published or as measured here; dtype: whose peak is meant.
        micro_batches: how many of the step's were run, and how many it has.
    """

    passes: dict[str, Timing]
    operators: list[Operator]
    timeline: list[Moment]
    predicted: TrainingMemory | None
    flops: int
    device: Device
    dtype: str
    tokens: int
    micro_batches: tuple[int, int]

    def most(self, phase: str) -> int:
        """The most bytes alive in a phase."""
        return max((one.bytes for one in self.timeline if one.phase == phase), default=0)

    def predicted_most(self, phase: str) -> int | None:
        """The same by accounting."""
        if self.predicted is None:
            return None
        return max(int(one.total) for one in self.predicted.phases if one.kind.value == phase)


class PhasedTrainer(Trainer):
    """A trainer that says in which phase of a step it is, and how long each took."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.phase = PHASES[-1]
        self.seconds_of = dict.fromkeys(PHASES, 0.0)
        self.range: Any = None
        self.began = time.perf_counter()
        self.module.register_forward_pre_hook(lambda *_: self.enter("forward"))
        self.module.register_forward_hook(lambda *_: self.enter("backward"))

    def enter(self, phase: str) -> None:
        """Ends the phase before, and begins this one."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        self.seconds_of[self.phase] += now - self.began
        self.phase, self.began = phase, now
        if self.range is not None:
            self.range.__exit__(None, None, None)
        self.range = record_function(phase)
        self.range.__enter__()

    def forward_backward(self, micro_batches: list[MicroBatch], num_targets: int) -> float:
        loss = super().forward_backward(micro_batches, num_targets)
        self.enter("optimizer step")
        return loss

    def timed_step(self, batches: Iterator[MicroBatch]) -> dict[str, float]:
        """One step: seconds by phase, and of the whole. What comes before the first forward is the step's own."""
        self.seconds_of = dict.fromkeys(PHASES, 0.0)
        self.enter("optimizer step")
        self.train_step(batches)
        self.enter("optimizer step")
        self.range.__exit__(None, None, None)
        self.range = None
        return {**self.seconds_of, "step": sum(self.seconds_of.values())}


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """FLOPs and bytes of every operator that runs under it, and the bytes of all storages that are alive.

    known: tensors from before.
    """

    def __init__(self, phase: Callable[[], str], known: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase = phase
        self.flops: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        self.timeline: list[Moment] = []
        self.alive, self.now, self.began = set[int](), 0, time.perf_counter()
        for tensor in known:
            self.add(tensor)

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self.alive:
            self.alive.add(key)
            self.now += size
            weakref.finalize(storage, self.gone, key, size)

    def gone(self, key: int, size: int) -> None:
        self.alive.discard(key)
        self.now -= size

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        keywords = keywords or {}
        result = function(*arguments, **keywords)
        name = f"{function.namespace}::{function._schema.name.partition('::')[2]}"
        taken = [one for one in tree_leaves((arguments, keywords)) if isinstance(one, Tensor)]
        given = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        if (formula := flops_of(function)) is not None:
            self.flops[name] = self.flops.get(name, 0) + int(formula(*arguments, **keywords, out_val=result))
        self.bytes[name] = self.bytes.get(name, 0) + moved(function, arguments, taken, given)
        before = self.now
        for tensor in given:
            self.add(tensor)
        if self.now != before or not self.timeline or self.now != self.timeline[-1].bytes:
            self.timeline.append(Moment(time.perf_counter() - self.began, self.now, self.phase()))
        return result


def flops_of(function: Any) -> Callable[..., int] | None:
    """torch's formula for an operator's FLOPs, or for that of which it is the in-place form; None where it has none."""
    plain = getattr(torch.ops.aten, function._schema.name.partition("::")[2].removesuffix("_"), None)
    formula: Callable[..., int] | None = flop_registry.get(function._overloadpacket, flop_registry.get(plain))
    return formula


def moved(function: Any, arguments: tuple[Any, ...], taken: list[Tensor], given: list[Tensor]) -> int:
    """Bytes that an operator reads and writes: those of its inputs and of its outputs, or of what it changes in place.

    A view moves nothing.
    """
    schema = function._schema
    if schema.name.partition("::")[2] in UNREAD:
        return 0
    written = given
    if schema.is_mutable and not given:
        changed = (
            value
            for argument, value in zip(schema.arguments, arguments, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        written = [one for value in changed for one in tree_leaves(value) if isinstance(one, Tensor)]
    inputs = {one.untyped_storage().data_ptr() for one in taken}
    if not schema.is_mutable and all(one.untyped_storage().data_ptr() in inputs for one in given):
        return 0
    return sum(one.numel() * one.element_size() for one in (*taken, *written))


def profile(
    model_config: ModelConfig,
    train_config: TrainConfig,
    *,
    steps: int = 5,
    device: torch.device | None = None,
    trace: str | Path | None = None,
) -> Profile:
    """Runs a few training steps on random tokens and says where their time, arithmetic and memory go.

    Args:
        model_config: The model.
        train_config: Its training, by this process alone; of a step with more micro-batches two are run.
        steps: How many are timed, after one that is not.
        device: Where; None for that of the configuration.
        trace: A file for torch's trace of one step, which ui.perfetto.dev opens.

    Raises:
        ValueError: fewer than two steps, or blocks that are compiled, whose operators are not seen.
        FileNotFoundError: the trace's folder is not there.
    """
    from accounting import training_flops, training_memory  # here, because nothing but a budget needs it

    if steps < 2:
        raise ValueError(f"steps {steps} must be at least 2: a deviation needs as many")
    if trace is not None and not Path(trace).absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {Path(trace).absolute().parent} for the trace")
    if train_config.compile == "on":
        raise ValueError("train.compile 'on' hides the operators of the blocks: profile with --train.compile off")
    device = choose_device(train_config.device) if device is None else device
    context, micro = model_config.context_length, train_config.micro_batch_size or train_config.batch_size
    passes = train_config.batch_size // micro
    run = min(passes, MICRO_BATCHES)
    config = dataclasses.replace(
        train_config,
        device=cast(DeviceName, device.type),
        precision=choose_precision(train_config.precision, device),
        compile="off",
        batch_size=run * micro,
        micro_batch_size=micro,
    )
    ids = np.random.default_rng(0).integers(0, model_config.vocab_size, run * micro * (context + 1), dtype=np.uint32)
    batches = (batch(ids, 0, index, 0, 1, micro, context) for index in itertools.count())
    with threads(config.threads), float32_matmul_precision(config.precision), torch.random.fork_rng(devices=[]):
        trainer = PhasedTrainer(
            Transformer(model_config),
            config,
            Processes(device=device),
            end_of_text=0 if config.document_masking else None,
        )
        trainer.timed_step(batches)
        timed = [trainer.timed_step(batches) for _ in range(steps)]
        seconds = operator_seconds(trainer, batches, None if trace is None else Path(trace))
        recorder = record(trainer, batches)
        peak, dtype = rates(device, config.precision)
    shape = trained_shape(model_config, config)
    counted = policy(model_config, config, device, accumulate=run > 1)
    return Profile(
        passes={
            name: Timing(statistics.mean(values), statistics.stdev(values))
            for name in (*PHASES, "step")
            for values in [[one[name] for one in timed]]
        },
        operators=joined(seconds, recorder),
        timeline=recorder.timeline,
        predicted=training_memory(shape, micro, policy=counted) if memory_is_counted(shape) else None,
        flops=int(training_flops(shape, batch_size=config.batch_size, pairs="causal").total),
        device=peak,
        dtype=dtype,
        tokens=config.batch_size * context,
        micro_batches=(run, passes),
    )


def operator_seconds(
    trainer: PhasedTrainer, batches: Iterator[MicroBatch], trace: Path | None
) -> dict[str, tuple[int, float]]:
    """Calls and seconds of every operator of one step, by torch's profiler: on CUDA those of its kernels."""
    cuda = trainer.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    # acc_events: one cycle is all there is, and torch 2.11 warns that it forgets those before
    with torch.profiler.profile(activities=activities, acc_events=True) as found:
        trainer.timed_step(batches)
    if trace is not None:
        found.export_chrome_trace(str(trace))
    return {
        one.key: (one.count, (one.self_device_time_total if cuda else one.self_cpu_time_total) / 1e6)
        for one in found.key_averages()
        if one.key not in PHASES
    }


def record(trainer: PhasedTrainer, batches: Iterator[MicroBatch]) -> Recorder:
    """One step whose operators are all seen."""
    states = [value for state in trainer.optimizer.state.values() for value in state.values()]
    known = [*trainer.model.parameters(), *(one for one in states if isinstance(one, Tensor))]
    recorder = Recorder(lambda: trainer.phase, known)
    with recorder:
        trainer.timed_step(batches)
    return recorder


def joined(seconds: dict[str, tuple[int, float]], recorder: Recorder) -> list[Operator]:
    """The operators by the seconds that they took."""
    found = [
        Operator(name, calls, taken, recorder.flops.get(name, 0), recorder.bytes.get(name))
        for name, (calls, taken) in seconds.items()
    ]
    return sorted((one for one in found if one.seconds > 0), key=lambda one: -one.seconds)


def rates(device: torch.device, precision: str) -> tuple[Device, str]:
    """Peak and bandwidth of the device: as published, or of a CPU and of a card that is not known as measured here."""
    from accounting.hardware.measuring import this_machine

    dtype = {"bf16": "bf16", "fp16": "fp16", "tf32": "tf32"}.get(precision, "fp32")
    known = known_device(in_words(device)) if device.type == "cuda" else None
    if known is not None and dtype in known.peaks:
        return known, dtype
    return this_machine(0.5), "fp32"
