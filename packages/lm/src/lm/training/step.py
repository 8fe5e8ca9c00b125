"""One training step: the loss and its gradients over the passes of a batch, their clipping, and the optimizer's update."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lm.config import TrainConfig
from lm.device import autocast
from lm.loss import chunked_cross_entropy
from lm.model import Transformer, document_ids_of
from lm.ops.cpu.fused import fuse
from lm.optimizer import adamw, clip_gradients
from lm.schedule import constant, cosine, linear
from lm.training.distributed import World, held_back, load_optimizer, spread, whole

# A gradient norm is far outside its history when it is this many times the median of the last ones.
OUTLIER = 20.0
HISTORY = 128
HISTORY_AT_LEAST = 32


class Learner(nn.Module):
    """A model and its loss as one module: inputs (batch, seq), targets (batch, scored) → the sum of their nats.

    The targets are those of the last `scored` inputs; a target of loss.IGNORE does not count. end_of_text: where it is
    given, documents of one row do not see each other (see model.document_ids_of).
    """

    def __init__(self, model: Transformer, end_of_text: int | None = None) -> None:
        super().__init__()
        self.model, self.end_of_text = model, end_of_text

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        document_ids = None if self.end_of_text is None else document_ids_of(inputs, self.end_of_text)
        hidden = self.model.hidden(inputs, document_ids)[:, inputs.shape[1] - targets.shape[1] :]
        rows = self.model.config.vocab_size
        return chunked_cross_entropy(hidden, self.model.head_weight, targets, vocab_size=rows, reduction="sum")


class Stepper:
    """A model that learns: its optimizer, and how its steps are computed on this device by these processes.

    The model is changed as the configuration asks: moved, compiled, checkpointed, sharded.
    end_of_text: the id that begins documents which do not see each other; None lets them.
    """

    def __init__(
        self, model: Transformer, config: TrainConfig, world: World | None = None, *, end_of_text: int | None = None
    ) -> None:
        self.config, self.world = config, world or World()
        self.device = self.world.device
        self.model = model.to(self.device)
        if self.device.type == "cpu":
            fuse(model)
        model.activation_checkpointing(config.activation_checkpointing)
        self.learner = Learner(model, end_of_text)
        if config.compile == "on":
            compile_blocks(model)
        self.module = spread(self.learner, model.blocks, self.world, config.parallel)
        self.optimizer = make_optimizer(model, config)
        scaled = config.precision == "fp16"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scaled)

    def score(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The sum of the targets' nats, without gradients exchanged between processes."""
        with autocast(self.device, self.config.precision):
            loss: Tensor = self.learner(inputs, targets)
        return loss

    def accumulate(self, batches: Iterable[tuple[Tensor, Tensor]], tokens: int) -> float:
        """Adds the gradients of the loss over batches that hold `tokens` targets, over all processes; its nats a token."""
        total = torch.zeros((), device=self.device)
        for (inputs, targets), last in marked(batches):
            with held_back(self.module, not last):
                with autocast(self.device, self.config.precision):
                    loss = self.module(inputs, targets) / tokens
                # The mean over the processes is taken of what should be added up over them.
                scaled: Tensor = self.scaler.scale(loss * self.world.size if self.world.size > 1 else loss)
                scaled.backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach()
        return self.world.sum(float(total))[0]

    def clip(self) -> float:
        """Limits the gradients to the configuration's norm; gives the norm that they had."""
        self.scaler.unscale_(self.optimizer)
        return float(clip_gradients(self.model.parameters(), self.config.gradient_clip))

    def update(self, rate: float) -> None:
        """Changes the weights; with fp16, not where gradients overflowed."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.step(self.optimizer)

    def forget(self) -> None:
        """Ends the step, taken or not: drops the gradients, and adapts the scale of the next."""
        if self.scaler.is_enabled():
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def overflowed(self, norm: float) -> bool:
        """Whether gradients too large for fp16 are the scale's doing, which the next step will have lowered."""
        return self.scaler.is_enabled() and not math.isfinite(norm) and self.scaler.get_scale() > 1

    def state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Weights, optimizer and scaler, whole. Each process must ask."""
        return whole(self.model.state_dict()), whole(self.optimizer.state_dict()), self.scaler.state_dict()

    def restore(self, optimizer: dict[str, Any], scaler: dict[str, Any]) -> None:
        """The optimizer and the scaler as `state` gave them; the weights are the model's own, from before."""
        load_optimizer(self.optimizer, optimizer)
        if self.scaler.is_enabled() and scaler:
            self.scaler.load_state_dict(scaler)


def make_optimizer(model: Transformer, config: TrainConfig) -> torch.optim.AdamW:
    return adamw(model, config.learning_rate, (config.beta1, config.beta2), config.eps, config.weight_decay)


def marked(batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[tuple[Tensor, Tensor], bool]]:
    """Each batch, and whether it is the last."""
    waiting = None
    for batch in batches:
        if waiting is not None:
            yield waiting, False
        waiting = batch
    if waiting is not None:
        yield waiting, True


def compile_blocks(model: Transformer) -> None:
    """Puts each block through torch.compile, in place: they are alike, so what is compiled for the first serves all."""
    # attention turns pairs of numbers as complex ones where inductor leaves a CPU's operators as they are
    warnings.filterwarnings("ignore", message="Torchinductor does not support code generation for complex operators")
    for block in model.blocks:
        block.compile()


def in_trouble(loss: float, norm: float, norms: list[float]) -> str | None:
    """Why a step must not be taken, or None: loss or gradient is no number, or its norm is far outside those of late."""
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if not math.isfinite(norm):
        return f"the gradient norm is {norm}"
    if len(norms) >= HISTORY_AT_LEAST and norm > OUTLIER * (usual := statistics.median(norms)):
        return f"the gradient norm is {norm:.3g}, and of late it was {usual:.3g}"
    return None


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of a step, counted from 0, by the schedule of the configuration."""
    if config.schedule == "constant":
        return constant(step, max_lr=config.learning_rate, warmup_steps=config.warmup_steps)
    if config.schedule == "cosine":
        return cosine(
            step,
            max_lr=config.learning_rate,
            min_lr=config.min_learning_rate,
            warmup_steps=config.warmup_steps,
            total_steps=config.steps,
        )
    return linear(
        step,
        max_lr=config.learning_rate,
        min_lr=config.min_learning_rate,
        warmup_steps=config.warmup_steps,
        total_steps=config.steps,
        decay_steps=config.decay_steps,
    )
