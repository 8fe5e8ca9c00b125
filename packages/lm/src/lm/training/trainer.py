"""The Trainer: a model that learns, a step at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from lm import lora
from lm.config import TrainConfig
from lm.data import Mixture, Tokens
from lm.data.batches import mix
from lm.device import Processes, autocast, full_tensor, own_memory
from lm.families.experts import Experts, begin_step, end_step, layers_of
from lm.model import Transformer
from lm.ops.cpu.fused import fuse
from lm.optimizer import average_weights, averaged, make_optimizer
from lm.schedule import learning_rate
from lm.training.metrics import Throughput, finite
from lm.training.validation import Score, mixed

MicroBatch = tuple[Tensor, ...]  # inputs and targets, (rows, seq) int64 each, and what an objective adds to them
HISTORY = 128  # gradient norms with whose median skip_outliers compares
HISTORY_AT_LEAST = 32

# Attributes of a Trainer that a checkpoint keeps as they are.
STATE = ("seconds", "loss", "gradient_norms", "skipped", "skips_in_a_row", "best", "lowest", "stale")


class Objective(nn.Module, ABC):
    """A micro-batch → the sum of its losses. A subclass is a method of training.

    Its arguments are the model that learns; its training; the id that begins a document, where documents of a row do
    not see each other; and the model that the run began with, if the objective compares with it and no adapters are
    trained.

    Attributes:
        share: Rank and number of the processes that evaluate together.
        updates: Updates of the weights by the same micro-batches.
        sums: Of figures beside the loss, since the trainer emptied it; each is reported as a mean over the losses.
    """

    is_uniform: ClassVar[bool] = False  # every process has as many losses in every step
    balances: ClassVar[bool] = False  # the balancing loss of experts is part of the loss
    needs_start: ClassVar[bool] = False  # the run must begin with weights
    draws: ClassVar[bool] = False  # prepare() can fail in one process alone

    def __init__(
        self, model: Transformer, config: TrainConfig, end_of_text: int | None, reference: Transformer | None = None
    ) -> None:
        super().__init__()
        self.model, self.config, self.end_of_text = model, config, end_of_text
        # A list hides the reference from torch, so that it is neither trained nor sharded.
        self.references = [] if reference is None else [reference]
        self.share = (0, 1)
        self.updates = 1
        self.sums = defaultdict[str, float](float)

    @functools.cached_property
    def experts(self) -> list[Experts]:
        """The layers of experts whose balancing loss is part of the loss."""
        return layers_of(self.model) if self.balances else []

    @classmethod
    def check(cls, config: TrainConfig, data: Mixture) -> None:
        """ValueError: the data or a setting does not go with the objective: here, one that learns every token."""
        if data.masked:
            use = "dpo" if data.pairs else "sft"
            raise ValueError(
                f"the data marks the tokens to learn, and {config.objective!r} learns all tokens: use {use!r}"
            )

    @classmethod
    def needs_reference(cls, config: TrainConfig) -> bool:
        """True if the loss of an objective with needs_start compares with the model that the run began with."""
        return False

    def open(self, data: Mixture, run_dir: Path, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Read the data and the run, once. functions: rewards passed to lm.train, by name."""

    @contextlib.contextmanager
    def reference(self) -> Iterator[Transformer]:
        """The model that the run began with."""
        if self.references:
            yield self.references[0]
            return
        was_training = self.model.training
        lora.enable(self.model, False)
        try:
            yield self.model.eval()
        finally:
            self.model.train(was_training)
            lora.enable(self.model, True)

    def prepare(self, micro_batches: list[MicroBatch], seed: int) -> list[MicroBatch]:
        """Return the micro-batches to learn from. seed: a function of the run's seed, the step and the process."""
        return micro_batches

    @abstractmethod
    def count(self, micro_batches: Sequence[MicroBatch]) -> int:
        """Return the number of losses in micro-batches, over which the loss is a mean."""

    @abstractmethod
    def evaluate(self, tokens: Tokens, max_tokens: int | None) -> Score:
        """Score this process's share of about max_tokens held-out tokens; Score.tokens is the number of losses."""


def objective_of(name: str) -> type[Objective]:
    """Return the class of an objective: that of its file, or module:Class. ValueError: it is not there."""
    if ":" in name:
        from lm.training.rewards import attribute_of

        where, _, attribute = name.rpartition(":")
        own: type[Objective] = attribute_of(where, attribute, f"the objective {name!r}")
        if not isinstance(own, type) or not issubclass(own, Objective):
            raise ValueError(f"expected {name} to be a subclass of lm.training.trainer.Objective, got {own!r}")
        return own
    module = importlib.import_module(f"lm.training.objectives.{name}")
    objective: type[Objective] = next(
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and issubclass(value, Objective)
    )
    return objective


class Trainer:
    """A model, its optimizer, and how a step is computed on this device by these processes.

    The model is changed in place as the configuration asks: moved, compiled, sharded.

    Args:
        model: The model to train.
        config: Its training, with device and precision named.
        distributed: The processes that share each step; None for this one alone.
        end_of_text, reference: See Objective.
        bytes_per_token: Bytes of text that a token stands for.
    """

    def __init__(
        self,
        model: Transformer,
        config: TrainConfig,
        distributed: Processes | None = None,
        *,
        end_of_text: int | None = None,
        bytes_per_token: float | None = None,
        reference: Transformer | None = None,
    ) -> None:
        self.config, self.distributed = config, distributed or Processes()
        self.device = self.distributed.device
        self.is_sharded = self.distributed.size > 1 and config.parallel == "fsdp"
        self.model = model if self.is_sharded else model.to(self.device)  # blocks are moved one by one as they are cut
        if config.activation_checkpointing != "none":
            model.set_activation_checkpointing(config.activation_checkpointing)
        model.set_dropout(config.dropout)
        if self.device.type == "cpu":
            fuse(model)
        if reference is not None:
            reference = reference.to(self.device).eval().requires_grad_(False)
        self.objective = objective_of(config.objective)(model, config, end_of_text, reference)
        self.objective.share = (self.distributed.rank, self.distributed.size)
        if config.compile == "on":
            for block in model.blocks:  # They are alike, and the code of the first serves all.
                block.compile()
        self.module = self.distributed.parallelize(self.objective, model.blocks, config)
        self.optimizer = make_optimizer(model, config, (self.distributed.rank, self.distributed.size))
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")
        self.bytes_per_token = bytes_per_token
        self.tokens_per_step = config.batch_size * model.config.context_length
        self.accumulation_steps = self.distributed.micro_batches(config)

        self.step = 0  # steps done
        self.rows_before = 0  # rows that a branch with another batch size read before, beyond step · batch_size
        self.seconds = 0.0  # in steps and evaluations, over all of the run
        self.loss = math.nan  # of the last step that was not skipped
        self.gradient_norms: list[float] = []  # of the last steps that had a gradient, as clipping left them
        self.skipped = 0  # updates that changed nothing, over all of the run
        self.skips_in_a_row = 0  # of these the last ones whose loss or gradient was not finite
        self.score: Score | None = None  # of the last evaluation
        self.scored_at = -1  # its step
        self.best: list[float] | None = None  # step and loss of the best evaluation that has a checkpoint
        self.lowest, self.stale = math.inf, 0  # loss of an evaluation, and the number of evaluations since then
        self.stop_requested = False  # by any process

    @functools.cached_property
    def throughput(self) -> Throughput:
        """The speed of the steps after the first."""
        return Throughput(self.model.config, self.config, self.device, self.distributed.size)

    def train_step(self, batches: Iterator[MicroBatch], *, stop: bool = False) -> dict[str, Any]:
        """One step: batch, what the objective adds to it, updates of the weights, metrics.

        An update whose loss or gradient is not finite, or which skip_outliers leaves out, changes neither weights nor
        optimizer: "skipped" in the line of metrics has the reason. stop: True if this process is to stop, so that
        stop_requested becomes True in every process.
        """
        began = time.perf_counter()
        lr = learning_rate(self.config, self.step)
        self.objective.sums.clear()

        first = itertools.islice(batches, self.accumulation_steps)
        micro_batches: list[MicroBatch] = [tuple(part.to(self.device) for part in batch) for batch in first]
        if len(micro_batches) < self.accumulation_steps:
            needed = f"{self.accumulation_steps} micro-batches for step {self.step + 1}"
            raise ValueError(f"expected {needed}, got {len(micro_batches)}: the iterator is exhausted")
        prepare = functools.partial(self.objective.prepare, micro_batches, self.seed())
        micro_batches = self.distributed.on_all(prepare) if self.objective.draws else prepare()
        # Targets that are learned, pairs, or answers, of all processes.
        own, size = self.objective.count(micro_batches), self.distributed.size
        num_losses = own * size if self.objective.is_uniform else int(self.distributed.sum(own)[0])
        if self.objective.experts and len(micro_batches) * self.distributed.size > 1:
            self.count_choices(micro_batches, num_losses)
        for _ in range(self.objective.updates):
            loss, norm, skipped = self.update(micro_batches, num_losses, lr, stop)
        self.step += 1

        seconds = time.perf_counter() - began
        self.seconds += seconds
        self.throughput.update(seconds)
        line = self.metrics(loss if num_losses else math.nan, norm, lr, skipped)
        for name, total in self.objective.sums.items():
            line[name] = self.distributed.sum(total)[0] / max(1, num_losses)
        # 1: every expert has as many tokens; the number of experts: one has all of them.
        for layer, load in enumerate(end_step(self.objective.experts)):
            line[f"expert_load/{layer}"] = round(load, 4)
        return line

    def update(
        self, micro_batches: list[MicroBatch], num_losses: int, lr: float, stop: bool
    ) -> tuple[float, float, str | None]:
        """Update the weights; return the mean loss, its gradient's norm, and why nothing was changed, or None."""
        with self.random_numbers():
            own_loss = self.forward_backward(micro_batches, max(1, num_losses))

        self.scaler.unscale_(self.optimizer)
        total_norm = clip_grad_norm_(self.model.parameters(), self.config.gradient_clip or math.inf)

        # Processes must decide alike, and a norm could differ in its last bit: each takes the mean. Until here nothing
        # has waited for the device.
        loss, norm_sum, stopping = self.distributed.sum(own_loss, full_tensor(total_norm), float(stop))
        norm = norm_sum / self.distributed.size
        self.stop_requested = bool(stopping)

        skipped = self.decide(loss, norm, num_losses)
        if skipped is None:
            for group in self.optimizer.param_groups:
                group["lr"] = lr * group["lr_ratio"]
            self.scaler.step(self.optimizer)
            if self.config.ema:
                average_weights(self.optimizer, self.config.ema, self.step)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss, norm, skipped

    def decide(self, loss: float, norm: float, num_losses: int) -> str | None:
        """Return the reason why an update is to change nothing, or None; and keep count of both."""
        clip, limit, norms = self.config.gradient_clip, self.config.skip_outliers, self.gradient_norms
        left = min(norm, clip) if clip else norm  # what clipping leaves
        median = statistics.median(norms) if limit and len(norms) >= HISTORY_AT_LEAST else math.inf
        skipped = None
        if not num_losses:
            skipped = "every target is masked"
        elif self.scaler.is_enabled() and not math.isfinite(norm) and self.scaler.get_scale() > 1:
            skipped = "the gradients overflow fp16, and the scale of the loss is lowered"
        elif not (math.isfinite(loss) and math.isfinite(norm)):
            skipped = f"the gradient norm is {norm}" if math.isfinite(loss) else f"the loss is {loss}"
            self.skips_in_a_row += 1
        elif limit and left > limit * median:
            skipped = f"the gradient norm is {left:.3g}, more than {limit:g} times the median, {median:.3g}"
        if skipped is not None:
            self.skipped += 1
            return skipped
        self.loss, self.skips_in_a_row = loss, 0
        if norm:
            self.gradient_norms = [*self.gradient_norms[1 - HISTORY :], left]
        return None

    def has_finite_weights(self) -> bool:
        """True if no weight is NaN or infinite, in any process. All processes call it."""
        weights = (own_memory(p.detach()) for p in self.model.parameters() if p.requires_grad)
        wrong = any(not bool(weight.isfinite().all()) for weight in weights)
        return not self.distributed.sum(float(wrong))[0]

    def forward_backward(self, micro_batches: list[MicroBatch], num_losses: int) -> Tensor:
        """Add up the gradients of the mean loss over num_losses, of all processes; return this one's share."""
        total, module = torch.zeros((), device=self.device), cast(Any, self.module)
        for number, batch in enumerate(micro_batches, 1):
            # DDP exchanges gradients in the last pass alone. FSDP, which has no no_sync(), does so in each: it would
            # keep the whole gradient in each process until then.
            waits = number < len(micro_batches) and hasattr(module, "no_sync")
            with module.no_sync() if waits else contextlib.nullcontext():
                with autocast(self.device, self.config.precision):
                    loss = module(*batch) / num_losses
                # Gradients are averaged over the processes, and have to be added up.
                self.scaler.scale(loss * self.distributed.size).backward()
            total = total + loss.detach()
        return total

    @torch.no_grad()
    def count_choices(self, micro_batches: list[MicroBatch], num_losses: int) -> None:
        """Count which experts the tokens of all micro-batches and processes choose, by a forward pass of its own."""
        # The balancing loss is a product of means over a step: the first micro-batch needs the last one's choices.
        layers, tokens = self.objective.experts, 0
        counts = [torch.zeros(len(layer.experts), device=self.device) for layer in layers]
        with self.random_numbers(), autocast(self.device, self.config.precision):
            for batch in micro_batches:
                self.module(*batch)
                for own, layer in zip(counts, layers, strict=True):
                    assert layer.step_counts is not None
                    own += layer.step_counts
                tokens += batch[0].numel()
        sizes = [len(own) for own in counts]
        total, *values = self.distributed.sum(tokens, *torch.cat(counts).tolist())
        begin_step(layers, torch.split(torch.tensor(values, device=self.device), sizes), int(total), num_losses)

    @contextlib.contextmanager
    def random_numbers(self) -> Iterator[None]:
        """Dropout's random numbers, by seed()."""
        drops = bool(self.config.dropout or self.config.lora_dropout)
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else [], enabled=drops):
            if drops:
                torch.manual_seed(self.seed())
            yield

    def seed(self) -> int:
        """A pure function of the run's seed, the step and the process, as the batch is."""
        return mix(mix(mix(self.config.seed) ^ self.step) ^ self.distributed.rank) >> 1

    def metrics(self, loss: float, norm: float, lr: float, skipped: str | None) -> dict[str, Any]:
        """The line of metrics of the step that was just done."""
        line = {
            "step": self.step,
            "tokens": self.step * self.tokens_per_step + self.rows_before * self.model.config.context_length,
            "loss": finite(loss),
            "bits_per_byte": finite(Score(loss, 1, self.bytes_per_token).bits_per_byte),
            "learning_rate": lr,
            "gradient_norm": finite(norm),
        }
        if (speed := self.throughput.tokens_per_second) is not None:
            line["tokens_per_second"] = round(speed, 1)
        line["seconds"] = round(self.seconds, 3)
        if (mfu := self.throughput.mfu) is not None:
            line["mfu"] = round(mfu, 4)
        return line if skipped is None else {**line, "skipped": skipped}

    def evaluate(self, data: Mixture) -> dict[str, Any]:
        """Score the held-out sample, each process a share of it; return its line of metrics."""
        began = time.perf_counter()
        self.objective.sums.clear()
        # Sharded weights are gathered on the way: a process may not leave the others there.
        own = functools.partial(self.own_scores, data)
        with averaged(self.optimizer):
            parts = own() if self.is_sharded else self.distributed.on_all(own)
        scores = {}
        for name, part in parts.items():
            text = part.nats if part.text_nats is None else part.text_nats
            nats, tokens, size, text = self.distributed.sum(part.nats, part.tokens, part.bytes or 0.0, text)
            scores[name] = Score(nats, int(tokens), size or None, text)
        self.score, self.scored_at = mixed([(data.share(name), score) for name, score in scores.items()]), self.step
        self.stale = 0 if self.score.loss < self.lowest else self.stale + 1
        self.lowest = min(self.lowest, self.score.loss)
        losses = sum(score.tokens for score in scores.values())
        sums = {name: self.distributed.sum(total)[0] / losses for name, total in self.objective.sums.items()}
        self.model.train()
        self.seconds += time.perf_counter() - began
        return {
            "step": self.step,
            "val_loss": finite(self.score.loss),
            "val_bits_per_byte": finite(self.score.bits_per_byte),
            **{f"val_loss/{name}": finite(score.loss) for name, score in scores.items() if name},
            **{f"val_{name}": mean for name, mean in sums.items()},
            "seconds": round(self.seconds, 3),
        }

    def own_scores(self, data: Mixture) -> dict[str, Score]:
        """The score of this process's share of each set."""
        heldout = data.heldout
        most = max(1, self.config.eval_tokens // len(heldout)) if self.config.eval_tokens else None
        with autocast(self.device, self.config.precision):
            return {name: self.objective.evaluate(tokens, most) for name, tokens in heldout.items()}

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return weights and the optimizer's state_dict, gathered in process 0 if sharded. All processes call it."""
        weights, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        if self.is_sharded:

            def whole(tensor: Tensor) -> Tensor:
                gathered = full_tensor(tensor)
                return gathered.cpu() if self.distributed.is_main else gathered.new_empty(0)

            weights = {name: whole(tensor) for name, tensor in weights.items()}
            states = optimizer["state"].items()
            optimizer["state"] = {index: {key: whole(value) for key, value in state.items()} for index, state in states}
        return weights, optimizer

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside weights and optimizer; `best` if that was the last evaluation."""
        just_scored = self.score is not None and self.scored_at == self.step
        if self.score is not None and just_scored and self.score.loss < (self.best[1] if self.best else math.inf):
            self.best = [self.step, self.score.loss]
        return {
            **{name: getattr(self, name) for name in STATE},
            "score": dataclasses.asdict(self.score) if self.score else None,
            **({"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {}),
        }

    def restore(self, step: int, state: dict[str, Any]) -> None:
        """Continue from what state() returned after a step."""
        for name in STATE:
            setattr(self, name, state[name])
        self.step, self.score = step, Score(**state["score"]) if state["score"] else None
        if self.scaler.is_enabled() and "scaler" in state:
            self.scaler.load_state_dict(state["scaler"])
