"""The configuration of a model and of its training: frozen, checked when made, kept as TOML beside what they made."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import math
import operator
import os
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np

if TYPE_CHECKING:
    from accounting import TransformerShape

FFN = Literal["swiglu", "gelu", "gelu_exact", "silu", "relu2"]
Norm = Literal["rmsnorm", "layernorm", "none"]
Position = Literal["rope", "learned", "none"]
OBJECTIVES = ("next_token", "sft", "dpo", "grpo", "distill")  # a file in training/objectives each
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "fp32", "tf32", "bf16", "fp16"]
ActivationCheckpointing = Literal["none", "selective", "full"]
RopeScaling = tuple[float, float, float, int | None]  # factor, low and high frequency factor, original context length

# Numbers with their bounds, which check() holds every field to; a bounded number is finite, too.
Count = Annotated[int, ("at least", 1)]
Natural = Annotated[int, ("at least", 0)]
CountOrNone = Annotated[int | None, ("at least", 1)]
Positive = Annotated[float, ("more than", 0)]
PositiveOrNone = Annotated[float | None, ("more than", 0)]
NotNegative = Annotated[float, ("at least", 0)]
Share = Annotated[float, ("at least", 0), ("less than", 1)]
BOUNDS = {"at least": operator.ge, "more than": operator.gt, "at most": operator.le, "less than": operator.lt}

# What other programs call a setting, where neither spelling nor initials lead to ours: did_you_mean knows them.
OTHERS_NAMES = {
    "max_steps": "steps",
    "max_iters": "steps",
    "min_lr": "min_learning_rate",
    "warmup_iters": "warmup_steps",
    "grad_clip": "gradient_clip",
    "dtype": "precision",
    "block_size": "context_length",
    "seq_len": "context_length",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "n_embd": "d_model",
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
}

Config = TypeVar("Config")


class FrozenTable(dict[str, Any]):
    """A table of TOML or JSON that is never changed, and so may be a field of a frozen configuration."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(json.dumps(self, sort_keys=True))


# Defaults that depend on `steps` and on `lora_rank`.
BY_STEPS: Any = type("BySteps", (int,), {"__repr__": lambda _: "None", "__reduce__": lambda _: "BY_STEPS"})()
BY_RANK: Any = type("ByRank", (float,), {})(0.1)
FIELD = re.compile(r"    (\w+): .*?(?:  # (.*))?$")  # of a class in this file: its name, and the comment beside it


def comments_of(kind: type) -> dict[str, str]:
    """The comment of each field of a configuration: the lines above it, and the end of its own."""
    comments, above = dict[str, str](), list[str]()
    for line in inspect.getsource(kind).splitlines():
        if line.startswith("    # "):
            above.append(line.strip("# "))
        elif field := FIELD.match(line):
            comments[field[1]] = " ".join([*above, *filter(None, field.groups()[1:])])
            above = []
    return comments


class CommentedDocstring:
    """A class's docstring, to which reading it adds the fields with their comments: help() shows them."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __get__(self, instance: object, kind: type) -> str:
        fields = (f"    {name}: {comment}" for name, comment in comments_of(kind).items() if name != "_")
        return "\n".join([self.text, "", "Args:", *fields])


def commented(kind: type[Config]) -> type[Config]:
    """Give a dataclass a CommentedDocstring. The source is read when somebody asks, not when lm is imported."""
    type.__setattr__(kind, "__doc__", CommentedDocstring(kind.__doc__ or ""))
    return kind


@commented
@dataclass(frozen=True)
class ModelConfig:
    """The shape of a Transformer. Every field is checked: an error names the value, the bound and what to do."""

    vocab_size: Count  # ids are below it
    context_length: Count  # the most positions of a sequence
    num_layers: Count  # blocks
    d_model: Count  # width of the residual stream
    num_heads: Count  # query heads
    d_ff: Count  # width inside the feed-forward
    _: KW_ONLY
    num_kv_heads: CountOrNone = None  # key and value heads, each for as many query heads; None: num_heads
    head_dim: CountOrNone = None  # width of a head; None: d_model / num_heads
    ffn: FFN = "swiglu"  # three matrices, the others two; gelu: its tanh form (GPT-2); gelu_exact: by erf
    norm: Norm = "rmsnorm"  # of each sublayer and before the head; none: no norms
    norm_placement: Literal["pre", "post"] = "pre"  # normalise each sublayer's input; post: after the residual sum
    norm_eps: Positive = 1e-5  # added to the mean square, or to the variance
    position: Position = "rope"  # rotary embedding of queries and keys; learned: an embedding added to the tokens'
    rope_theta: Positive = 10000.0  # pair j of a head rotates by theta^(-2j / head_dim) from one position to the next
    rope_factor: Positive = 1.0  # rotations are slowed by it, to read further than was trained (arXiv:2306.15595)
    # Llama 3.1 scaling: rotations of fewer turns in this many positions than rope_low_freq_factor are slowed by
    # rope_factor, faster ones than rope_high_freq_factor are not, the others in part. None: all are slowed.
    rope_original_context_length: CountOrNone = None
    rope_low_freq_factor: Positive = 1.0  # see rope_original_context_length
    rope_high_freq_factor: float = 4.0  # see rope_original_context_length
    tied_embeddings: bool = False  # the head's weight is the embedding's
    bias: bool = False  # of every projection, and of LayerNorm
    qkv_bias: bool | None = None  # of queries, keys and values (Qwen 2 has no other); None: as bias
    output_bias: bool | None = None  # of attention's output; None: as bias
    ffn_bias: bool | None = None  # of the feed-forward; None: as bias
    sliding_window: CountOrNone = None  # positions that a query sees, its own included; None: all before it
    qk_norm: bool = False  # an RMSNorm over each query and each key head
    # As nanochat: every second block, counted from the last, adds gate · embedding(token) to its values.
    value_embeddings: bool = False
    logit_softcap: PositiveOrNone = None  # logits are bent into ±this, by its tanh; None: they are not
    vocab_multiple: Count = 1  # embedding and head have vocab_size rounded up to it; never sampled beyond

    def __post_init__(self) -> None:
        check(self)
        low, high, heads = self.rope_low_freq_factor, self.rope_high_freq_factor, self.num_heads
        if not high > low:
            raise ValueError(f"rope_high_freq_factor {high} must be more than rope_low_freq_factor {low}")
        if self.head_dim is None and self.d_model % heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of num_heads {heads}: give head_dim")
        if heads % self.kv_heads:
            raise ValueError(f"num_kv_heads {self.kv_heads} does not divide num_heads {heads}: choose a divisor")
        for name in ("rope_theta", "rope_factor"):
            refuse_without_effect(self, name, self.position == "rope", "position 'rope'")
        refuse_without_effect(self, "rope_original_context_length", self.rope_factor != 1, "a rope_factor")
        has_original = self.rope_original_context_length is not None
        for name in ("rope_low_freq_factor", "rope_high_freq_factor"):
            refuse_without_effect(self, name, has_original, "rope_original_context_length")
        for name in ("norm_eps", "norm_placement"):
            refuse_without_effect(self, name, self.norm != "none", "a norm")
        if self.position == "rope" and self.head_width % 2:
            raise ValueError(f"head_dim {self.head_width} is odd, and rope turns pairs: make it even")

    @property
    def kv_heads(self) -> int:
        """num_kv_heads, or as many as there are query heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def head_width(self) -> int:
        """head_dim, or d_model / num_heads."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def rope_scaling(self) -> RopeScaling | None:
        """rope_factor, low and high frequency factor and original context length; None where nothing is slowed."""
        if self.rope_factor == 1.0:
            return None
        factors = self.rope_factor, self.rope_low_freq_factor, self.rope_high_freq_factor
        return *factors, self.rope_original_context_length

    def has_bias(self, part: Literal["qkv", "output", "ffn"]) -> bool:
        """True if the projections of this part have biases."""
        own: bool | None = getattr(self, f"{part}_bias")
        return self.bias if own is None else own

    def has_value_embedding(self, layer: int) -> bool:
        """True if the block of this number, counted from 0, has a value embedding."""
        return self.value_embeddings and (self.num_layers - 1 - layer) % 2 == 0

    @property
    def vocab_rows(self) -> int:
        """Rows of the embedding and the head: vocab_size rounded up to vocab_multiple."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    def shape(self) -> TransformerShape:
        """The same model as `accounting` counts it."""
        from accounting import TransformerShape  # here, because nothing but a budget needs it

        shared = settable(ModelConfig).keys() & settable(TransformerShape).keys()
        values = {name: getattr(self, name) for name in shared}
        values["ffn"] = self.ffn.removesuffix("_exact")  # which costs as much
        values["value_embeddings"] = (self.num_layers + 1) // 2 if self.value_embeddings else 0  # in every other block
        return TransformerShape(**values)


@commented
@dataclass(frozen=True)
class TrainConfig:
    """The training of a model. Every field is checked: an error names the value, the bound and what to do."""

    steps: Natural = 0  # optimizer steps of the whole run; 0: see `epochs`
    _: KW_ONLY
    epochs: PositiveOrNone = None  # in place of steps: how often the run goes through the data, of all sets together
    batch_size: Count = 8  # sequences in a step, of all processes together
    # Sequences in one forward pass; None: all of a process. Gradients are summed over the passes of a step and divided
    # by its tokens, so that this changes memory and, but for rounding and the masks of dropout, not the result. Experts
    # take another forward pass where there are several, to count their choices in the whole step.
    micro_batch_size: CountOrNone = None
    learning_rate: Positive = 1e-3  # the highest, at the end of the warm-up
    min_learning_rate: NotNegative = 0.0  # that "cosine" and "linear" would reach at step `steps`, one after the last
    embedding_learning_rate: PositiveOrNone = None  # the highest of embeddings; None: learning_rate
    head_learning_rate: PositiveOrNone = None  # the highest of a head that is no embedding; None: learning_rate
    warmup_steps: Natural = BY_STEPS  # of linear warm-up; if left out, 100, or a tenth of fewer than 100 steps
    # After the warm-up: half a cosine, a line over the last decay_steps, or a constant rate.
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    # Length of the line of "linear": it leaves learning_rate at step `steps` - decay_steps, which is the last at that
    # rate, and would reach min_learning_rate at step `steps`. None: all steps after the warm-up.
    decay_steps: CountOrNone = None
    # muon, normuon: for the matrices of the blocks, each step made orthogonal (see optimizer.Muon); AdamW for the rest.
    optimizer: Literal["adamw", "muon", "normuon"] = "adamw"
    momentum: Share = 0.95  # of muon and normuon
    # Of matrices, not of embeddings, norms and biases; if left out, 0 with a lora_rank.
    weight_decay: NotNegative = BY_RANK
    beta1: Share = 0.9  # of AdamW, how much of the mean gradient each step keeps
    beta2: Share = 0.95  # of AdamW, how much of the mean squared gradient each step keeps
    eps: Positive = 1e-8  # of AdamW, added to the root of the mean squared gradient
    gradient_clip: NotNegative = 1.0  # the largest global norm of the gradients; 0: no limit
    # Skip an update whose gradient norm, as clipping leaves it, is more than this many times the median of the last 128
    # that are not 0; 0: skip none that is finite.
    skip_outliers: NotNegative = 0.0
    # Decay of a moving average of the weights, by which held-out text is then scored, and which the step "average" of
    # the run is for lm.load and the commands; 0: none.
    ema: Share = 0.0
    # Of the initial weights and of the order of the data; TOML and torch hold no more.
    seed: Annotated[int, ("at least", 0), ("at most", (1 << 63) - 1)] = 0
    log_every: Count = 1  # log a line of metrics every N steps
    eval_every: Natural = 500  # evaluate every N steps; 0: only at the end
    eval_tokens: Natural = 65536  # held-out tokens scored on the way, always the same ones; 0: all
    checkpoint_every: Natural = 500  # save a checkpoint every N steps; 0: only at the end
    keep_checkpoints: Count = 2  # the newest that stay, beside the best
    threads: Annotated[int, ("at least", 0), ("at most", 1024)] = 0  # of the CPU; 0: torch's own choice
    compile: Literal["on", "off"] = "off"  # the blocks by torch.compile, which takes some seconds to minutes
    document_masking: bool = False  # documents in one row do not see each other, and positions restart in each
    device: DeviceName = "auto"  # auto: CUDA, else MPS, else the CPU
    # auto: bf16 where the device multiplies it, else fp16 on CUDA and fp32 elsewhere.
    # tf32: CUDA's faster products of fp32 numbers.
    # bf16, fp16: products in those, weights and their updates in fp32; fp16 with a loss scale.
    precision: Precision = "auto"
    activation_checkpointing: ActivationCheckpointing = "none"  # selective: recompute attention; full: all blocks
    # Of several processes: ddp, each holds the whole model; fsdp, each holds a shard, and with bf16 the residual stream
    # is bf16 too, where ddp's is fp32.
    parallel: Literal["ddp", "fsdp"] = "ddp"
    # next_token: all tokens; sft: those that the assistant says; dpo: preference pairs (chosen, rejected); grpo: the
    # model's own answers by their rewards; distill: the probabilities of `teacher` (see training/objectives).
    # module:Class or file.py:Class: an lm.training.trainer.Objective of your own.
    objective: str = "next_token"
    teacher: str | None = None  # of distill, any model that lm.load reads, with the same tokens
    distill_divergence: Literal["forward", "reverse"] = "forward"  # KL(teacher ‖ model); reverse: KL(model ‖ teacher)
    # Of distill, the most tokens of the model's own answers to the prompts of the data, which it then learns by
    # (on-policy distillation); 0: the tokens of the data.
    distill_answer_tokens: Natural = 0
    early_stopping: Natural = 0  # end after this many evaluations without a lower loss; 0: never
    dpo_beta: Positive = 0.1  # of dpo, how fast the loss falls as the model moves away from the one that it began with
    # Of grpo, what answers earn: tokens, 1 for the answer of the data, token by token; equality, numbers, regex or
    # program (see training/rewards.py); module:function or file.py:function; several, each with @WEIGHT, by commas.
    reward: str = "tokens"
    reward_timeout: Count = 300  # seconds that a reward may take for the answers of a micro-batch
    # Of grpo: the advantage of an answer is (its reward - the group's baseline) / the group's normalizer.
    grpo_baseline: Literal["mean", "none"] = "mean"
    grpo_normalizer: Literal["std", "mean", "none"] = "std"  # none as Dr. GRPO, mean as MaxRL
    # none: log p; noclip, grpo: the ratio of each token; gspo: one of the answer.
    grpo_method: Literal["none", "noclip", "grpo", "gspo"] = "grpo"
    # sequence: the mean over an answer's tokens; constant: by grpo_answer_tokens.
    grpo_normalization: Literal["sequence", "constant"] = "sequence"
    grpo_kl: NotNegative = 0.0  # of grpo, the weight of the KL divergence from the model that the run began with
    grpo_group_size: Annotated[int, ("at least", 2)] = 8  # of grpo, answers drawn to each prompt
    grpo_answer_tokens: Count = 64  # of grpo, the most tokens of an answer
    # Of grpo, how far a ratio may be from 1 before its gradient ends; None: 0.2, and 0.004 of gspo.
    grpo_clip: PositiveOrNone = None
    grpo_updates: Count = 1  # of grpo, updates of the weights by the same answers
    dropout: Share = 0.0  # the share that is zeroed of the embedding and of what each sublayer adds, in training
    # LoRA (see lora.py): the weights stay, and adapters of this rank beside the blocks' matrices are trained; 0: no.
    lora_rank: Natural = 0
    lora_alpha: Positive = 16.0  # adapters are multiplied by lora_alpha / lora_rank
    lora_targets: tuple[str, ...] = ()  # names of the blocks' matrices that have adapters, as qkv and down; none: all
    lora_dropout: Share = 0.0  # the share of an adapter's input that is zeroed in training
    lora_rslora: bool = False  # multiplied by lora_alpha / √lora_rank instead (rsLoRA)
    lora_dora: bool = False  # the norm of each row of a matrix is trained too (DoRA)
    # The blocks' frozen matrices in training and in checkpoints: nf4 in 4 bits with doubly quantized scales (QLoRA).
    # A model that is loaded or exported has the sums of the matrices that these stand for and the adapters.
    lora_base: Literal["fp32", "nf4"] = "fp32"
    init_from: str = "scratch"  # random weights; else a run, or any model that lm.load reads, to begin with
    collective_timeout: Count = 600  # seconds after which a process under torchrun that does not answer counts as lost

    def __post_init__(self) -> None:
        if self.warmup_steps is BY_STEPS and isinstance(self.steps, int | np.integer) and self.epochs is None:
            object.__setattr__(self, "warmup_steps", 100 if self.steps >= 100 else self.steps // 10)
        if self.weight_decay is BY_RANK:
            object.__setattr__(self, "weight_decay", 0.0 if self.lora_rank else 0.1)
        check(self)
        if self.epochs is None:
            hold("steps", self.steps, ("at least", 1))
        elif self.steps:
            raise ValueError(f"steps {self.steps} and epochs {self.epochs} both say how long to train: give one")
        if ":" not in self.objective:
            one_of("objective", self.objective, OBJECTIVES)
        if (self.teacher is None) == (self.objective == "distill"):
            raise ValueError(f"teacher {self.teacher} goes with objective 'distill', got objective {self.objective!r}")
        if self.warmup_steps > self.steps > 0:
            raise ValueError(f"warmup_steps {self.warmup_steps} is more than steps {self.steps}: lower it")
        if (lowest := self.min_learning_rate) > self.learning_rate:
            raise ValueError(f"min_learning_rate {lowest} is more than learning_rate {self.learning_rate}: lower it")
        if self.warmup_steps + (self.decay_steps or 0) > self.steps > 0:
            both = f"warmup_steps {self.warmup_steps} and decay_steps {self.decay_steps}"
            raise ValueError(f"{both} are together more than steps {self.steps}: shorten one of them")
        for name, has_effect, needed in (
            ("min_learning_rate", self.schedule != "constant", "schedule 'cosine' or 'linear'"),
            ("decay_steps", self.schedule == "linear", "schedule 'linear'"),
            ("momentum", self.optimizer != "adamw", "optimizer 'muon' or 'normuon'"),
            *((name, self.objective == one, f"objective {one!r}") for one in OBJECTIVES for name in settings_of(one)),
            ("grpo_clip", self.grpo_method in ("grpo", "gspo"), "grpo_method 'grpo' or 'gspo'"),
            *((name, self.lora_rank > 0, "a lora_rank") for name in settings_of("lora") if name != "lora_rank"),
            ("lora_dropout", not self.lora_dora, "lora_dora false"),
        ):
            refuse_without_effect(self, name, has_effect, needed)
        if self.lora_base == "nf4" and self.parallel == "fsdp":
            raise ValueError("lora_base 'nf4' goes with parallel 'ddp': shards would cut the blocks that share a scale")
        if self.batch_size % (self.micro_batch_size or 1):
            sizes = f"micro_batch_size {self.micro_batch_size} does not divide batch_size {self.batch_size}"
            raise ValueError(f"{sizes}: choose a divisor")


def settings_of(prefix: str) -> list[str]:
    """The settings of training whose names begin with an objective's, or with "lora"; a reward is grpo's."""
    names = (prefix, "reward") if prefix == "grpo" else (prefix,)
    return [name for name in settable(TrainConfig) if name.partition("_")[0] in names]


SECTIONS: dict[str, type] = {"model": ModelConfig, "train": TrainConfig}  # of a TOML file and of --section.key


def from_table(kind: type[Config], table: Mapping[str, object], section: str) -> Config:
    """A configuration from a TOML table. KeyError: an unknown key, with the nearest known one, or a missing one."""
    fields = settable(kind)
    for key in table:
        if key not in fields:
            raise KeyError(f"[{section}] has no setting {key!r}{did_you_mean(key, fields)}")
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in table:
            raise KeyError(f"[{section}] lacks {name!r}: give it a value")
    values = dict(table)
    for name, field in fields.items():  # to_table leaves out None
        if name not in table and field.default is not None and "None" in str(field.type):
            values[name] = None
    return kind(**values)


def to_table(config: Any) -> dict[str, Any]:
    """A configuration as a TOML table: every setting, but for those that are None, as TOML has no such value."""
    unused = getattr(config, "unused", ())  # settings of ModelConfig that a family does not have
    values = {name: getattr(config, name) for name in settable(type(config)) if name not in unused}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items() if v is not None}


def override(tables: dict[str, dict[str, Any]], setting: str, text: str, kinds: Mapping[str, type]) -> None:
    """Put one `--section.key value` into the tables, a TOML value or else a string. KeyError: an unknown key."""
    section, dot, key = setting.removeprefix("--").partition(".")
    key = (key if dot else section).replace("-", "_")
    if not dot or section not in kinds:
        every = {field: f"--{name}.{field}" for name, kind in kinds.items() for field in settable(kind)}
        near = nearest(key, every)
        if key == "resume":
            raise KeyError("--resume is not an option: the same command continues a run")
        remedy = f"write --section.key, with section one of {', '.join(kinds)}"
        raise KeyError(f"{setting!r} is not a setting: {f'did you mean {every[near[0]]}?' if near else remedy}")
    fields = settable(kinds[section])
    if key not in fields:
        raise KeyError(f"[{section}] has no setting {key!r}{did_you_mean(key, fields)}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    if value == "none" and "None" in str(fields[key].type):
        tables.setdefault(section, {}).pop(key, None)
        return
    if key in (either := {"steps": "epochs", "epochs": "steps"}):
        tables.get(section, {}).pop(either[key], None)
    tables.setdefault(section, {})[key] = value


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as tables. FileNotFoundError, ValueError: naming the file."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the nearest name, or all of them."""
    names = list(names)
    near = nearest(word, names)
    return f": did you mean {near[0]!r}?" if near else f": it has {', '.join(names)}"


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """The name that is spelt most like the word, or has its letters as initials (lr: learning_rate); [] if none."""
    names = list(names)
    if OTHERS_NAMES.get(word) in names:
        return [OTHERS_NAMES[word]]
    initials = [name for name in names if "".join(part[0] for part in name.split("_") if part) == word]
    return difflib.get_close_matches(word, names, n=1, cutoff=0.6) or initials[:1]


def settable(kind: type) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a configuration by name."""
    return {field.name: field for field in dataclasses.fields(kind)}


def as_declared(value: Any, declared: Any) -> Any:
    """The value as a field's type: TOML writes 1 for 1.0, and has neither tuples nor frozen tables."""
    if isinstance(value, np.generic | os.PathLike):
        return value.item() if isinstance(value, np.generic) else os.fspath(value)
    if isinstance(value, list) and typing.get_origin(declared) is tuple:
        return tuple(value)
    if isinstance(value, dict) and declared is FrozenTable:
        return FrozenTable(value)
    return float(value) if declared is float and isinstance(value, int) and not isinstance(value, bool) else value


def check(config: Any) -> None:
    """Hold each field to its type and its bounds. TypeError, ValueError: it is not of its type, or out of them."""
    plain, bounds = typing.get_type_hints(type(config)), dict[str, Any]()
    for kind in reversed(type(config).__mro__):  # a field that a subclass declares anew keeps its bounds
        hints = typing.get_type_hints(kind, include_extras=True)
        bounds |= {name: hint.__metadata__ for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    for name in settable(type(config)):
        declared = plain[name]
        value = as_declared(getattr(config, name), declared)
        object.__setattr__(config, name, value)
        if typing.get_origin(declared) is Literal:
            if not isinstance(value, str):
                raise TypeError(f"{name} must be a word, got {value!r}")
            one_of(name, value, typing.get_args(declared))
            continue
        allowed = (tuple,) if typing.get_origin(declared) is tuple else typing.get_args(declared) or (declared,)
        passing = (*allowed, int) if float in allowed else allowed
        if not isinstance(value, passing) or (isinstance(value, bool) and bool not in allowed):
            words = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", tuple: "tuple"}
            names = " or ".join(words.get(kind, "nothing") for kind in allowed)
            raise TypeError(f"{name} must be {names}, got {value!r}")
        if value is not None and name in bounds:
            hold(name, value, *bounds[name])


def hold(name: str, value: float, *bounds: tuple[str, float]) -> None:
    """ValueError: a number is out of its bounds, or not finite."""
    for words, bound in bounds:
        if not BOUNDS[words](value, bound):
            raise ValueError(f"{name} must be {words} {bound}, got {value}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")


def refuse_without_effect(config: Any, name: str, has_effect: bool, needed: str) -> None:
    """ValueError: a setting that would do nothing was changed from its default."""
    value = getattr(config, name)
    if not has_effect and value != settable(type(config))[name].default:
        raise ValueError(f"{name} {value} has no effect without {needed}: leave it out, or choose that")


def one_of(name: str, value: object, names: tuple[str, ...]) -> None:
    if value not in names:
        raise ValueError(f"{name} {value!r} is unknown{did_you_mean(str(value), names)}")
