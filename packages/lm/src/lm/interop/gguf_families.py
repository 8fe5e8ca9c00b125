"""The families in GGUF: llama.cpp's architecture of each, its settings, and its tensors by the package gguf's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lm.families import rope as ropes
from lm.families.parts import FULL, SLIDING, FamilyConfig
from lm.interop.families import named
from lm.model import Transformer
from lm.rope import rope_frequencies

EXPERT = re.compile(r"model\.layers\.(\d+)\..*\.experts\.\d+\.(\w+)\.(weight|bias)")
EXPERT_PARTS = {"w1": "gate", "w3": "up", "w2": "down", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}


def nothing(writer: Any, c: Any) -> None:
    """No settings beside the common ones."""


@dataclass(frozen=True)
class Kind:
    """What llama.cpp calls a family, and what it has of it.

    Attributes:
        architecture: Its name.
        add: Writes the settings that are its own.
        windows: Every layer of this number sees all, the others have windows; 1: all may have; 0: none.
        scalings: The rope_types that it has.
        turns_neighbours: It rotates pairs (2i, 2i + 1), where the folder has (i, i + width / 2).
        norms_above_one: Weights of norms are written with 1 added.
        only: Settings that it has with one value alone, each with how to get it.
    """

    architecture: str
    add: Callable[[Any, Any], None] = nothing
    windows: int = 0
    scalings: tuple[str, ...] = ("default", "linear", "yarn")
    turns_neighbours: bool = False
    norms_above_one: bool = False
    only: tuple[tuple[str, Any], ...] = ()


def add_gemma(writer: Any, c: Any) -> None:
    """The bends of scores and logits."""
    if c.logit_softcap is not None:
        writer.add_final_logit_softcapping(c.logit_softcap)
    if c.attn_logit_softcapping is not None:
        writer.add_attn_logit_softcapping(c.attn_logit_softcapping)


def add_granite(writer: Any, c: Any) -> None:
    """The four factors."""
    writer.add_attention_scale(c.attention_multiplier)
    writer.add_embedding_scale(c.embedding_multiplier)
    writer.add_residual_scale(c.residual_multiplier)
    writer.add_logit_scale(c.logits_scaling)


def add_experts(writer: Any, c: Any) -> None:
    """Number and width of experts."""
    writer.add_expert_count(getattr(c, "num_experts", None) or c.num_local_experts)
    writer.add_expert_used_count(c.num_experts_per_tok)
    if c.family != "mixtral":
        writer.add_expert_feed_forward_length(getattr(c, "moe_intermediate_size", c.d_ff))


def add_neox(writer: Any, c: Any) -> None:
    """The place of the feed-forward."""
    writer.add_parallel_residual(c.use_parallel_residual)


def add_logit_scale(writer: Any, c: Any) -> None:
    """The factor of logits."""
    writer.add_logit_scale(c.logit_scale)


ROPES = ("default", "linear", "yarn", "llama3")
KINDS = {
    "cohere": Kind("command-r", add_logit_scale, only=(("use_qk_norm", False),)),
    "cohere2": Kind("cohere2", add_logit_scale, windows=4),
    "gemma": Kind("gemma", norms_above_one=True),
    "gemma2": Kind("gemma2", add_gemma, windows=2, norms_above_one=True, only=(("query_scale", 1.0),)),
    "gemma3_text": Kind(
        "gemma3",
        add_gemma,
        windows=6,
        norms_above_one=True,
        only=(("query_scale", 1.0), ("attn_logit_softcapping", None)),
    ),
    "glm4": Kind("glm4", only=(("bias", True),)),
    "gpt_neox": Kind("gptneox", add_neox, only=(("hidden_act", "gelu"),)),
    "gpt_oss": Kind("gpt-oss", add_experts, windows=2, only=(("swiglu_alpha", 1.702), ("swiglu_limit", 7.0))),
    "granite": Kind("granite", add_granite, scalings=ROPES, turns_neighbours=True),
    "llama": Kind("llama", scalings=ROPES, turns_neighbours=True),
    "mistral": Kind("llama", scalings=ROPES, turns_neighbours=True),
    "mixtral": Kind("llama", add_experts, turns_neighbours=True),
    "olmo2": Kind("olmo2"),
    "olmo3": Kind("olmo2", windows=4),
    "olmoe": Kind("olmoe", add_experts, only=(("norm_topk_prob", False),)),
    "phi3": Kind("phi3", scalings=("default", "longrope")),
    "qwen2": Kind("qwen2"),
    "qwen3": Kind("qwen3", only=(("bias", False),)),
    "qwen3_moe": Kind(
        "qwen3moe",
        add_experts,
        only=(("norm_topk_prob", True), ("mlp_only_layers", ()), ("decoder_sparse_step", 1)),
    ),
    "smollm3": Kind("smollm3", scalings=ROPES, turns_neighbours=True),
    "starcoder2": Kind("starcoder2", only=(("bias", True),)),
}


def kind_of(config: FamilyConfig) -> Kind:
    """llama.cpp's kind of a family. ValueError: it does not have this model, with the setting."""
    kind = KINDS[config.family]

    def refused(what: str) -> ValueError:
        return ValueError(f"llama.cpp's {kind.architecture} has no {what}: such a model is not exported to GGUF")

    for name, value in kind.only:
        if getattr(config, name) != value:
            raise refused(f"{name} {getattr(config, name)!r}")
    windows = [config.window(layer) for layer in range(config.num_layers)]
    windows = [None if window is not None and window >= config.context_length else window for window in windows]
    for layer, window in enumerate(windows):
        slides = kind.windows == 1 or (kind.windows > 1 and (layer + 1) % kind.windows > 0)
        if (window is not None) != slides and (window is not None or kind.windows > 1):
            raise refused(f"window {window!r} of layer {layer}")
    for parameters in tables(config).values():
        if parameters.get("rope_type", "default") not in kind.scalings:
            raise refused(f"rope_type {parameters['rope_type']!r}")
        if not parameters.get("truncate", True) and config.family != "gpt_oss":
            raise refused(f"truncate {parameters['truncate']!r}")
    for layer in range(config.num_layers):
        if config.family == "smollm3" and (config.rope_of(layer) is None) != ((layer + 1) % 4 == 0):
            raise refused(f"layer {layer} that is{'' if config.rope_of(layer) else ' not'} rotated")
    if config.family == "olmoe" and config.kv_heads != config.num_heads:
        raise refused(f"num_kv_heads {config.kv_heads}")
    return kind


def tables(config: FamilyConfig) -> dict[str, Any]:
    """The parameters of rotation of each kind of layer."""
    return config.rope_parameters if config.ropes_by_kind else {FULL: config.rope_parameters}


def describe(writer: Any, c: FamilyConfig, gguf: Any) -> None:
    """The settings beside the sizes: windows, rotation and the family's own."""
    kind = kind_of(c)
    if kind.windows:
        assert c.sliding_window is not None
        writer.add_sliding_window(c.sliding_window)
        if c.family == "olmo3":
            writer.add_sliding_window_pattern([one == SLIDING for one in c.layer_types])
    by_kind = tables(c)
    rope = by_kind[FULL]
    writer.add_rope_dimension_count(ropes.rotated_width(rope, c.head_width))
    writer.add_rope_freq_base(rope["rope_theta"])
    if SLIDING in by_kind:
        writer.add_rope_freq_base_swa(by_kind[SLIDING]["rope_theta"])
    scaling = rope.get("rope_type", "default")
    if scaling in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling))
        original = rope.get("original_max_position_embeddings", c.context_length)
        writer.add_rope_scaling_factor(rope.get("factor") or c.context_length / original)
        if scaling == "yarn":
            writer.add_rope_scaling_orig_ctx_len(original)
            writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast") or 32.0)
            writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow") or 1.0)
            plain = {**rope, "mscale": None, "attention_factor": None}
            factors = [ropes.attention_factor(parameters, c.context_length) for parameters in (rope, plain)]
            if factors[0] != factors[1]:  # theirs is a multiple of the plain one
                writer.add_rope_scaling_attn_factors(factors[0] / factors[1])
    elif scaling == "longrope":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_attn_factors(ropes.attention_factor(rope, c.context_length))
    kind.add(writer, c)


def tensors(model: Transformer, config: FamilyConfig, gguf: Any) -> Iterator[tuple[str, Tensor]]:
    """The model's tensors by llama.cpp's names."""
    kind = kind_of(config)
    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == kind.architecture)
    names = gguf.get_tensor_name_map(architecture, config.num_layers)
    rope = tables(config)[FULL]
    width = ropes.rotated_width(rope, config.head_width)
    if rope.get("rope_type") == "llama3":
        plain, zero = rope_frequencies(width, rope["rope_theta"]), torch.zeros((), dtype=torch.float64)
        yield "rope_freqs.weight", plain / ropes.frequencies(rope, config.head_width, config.context_length, zero)
    if rope.get("rope_type") == "longrope":
        yield "rope_factors_short.weight", torch.tensor(rope["short_factor"])
        yield "rope_factors_long.weight", torch.tensor(rope["long_factor"])
    experts: dict[str, list[Tensor]] = {}
    for name, tensor in named(model, config).items():
        expert = EXPERT.fullmatch(name)
        if expert is not None:
            layer, part, suffix = expert.groups()
            parts = {"gate": tensor[: len(tensor) // 2], "up": tensor[len(tensor) // 2 :]}
            for which, rows in parts.items() if part == "gate_up_proj" else [(EXPERT_PARTS[part], tensor)]:
                experts.setdefault(f"blk.{layer}.ffn_{which}_exps.{suffix}", []).append(rows)
            continue
        key, _, suffix = name.rpartition(".") if name.endswith((".weight", ".bias")) else (name, "", "weight")
        theirs = names.get_name(key)
        if theirs is None:
            raise ValueError(
                f"llama.cpp's {kind.architecture} has no tensor {name!r}: such a model is not exported to GGUF"
            )
        if kind.norms_above_one and theirs.endswith("norm"):
            tensor = tensor + 1
        if kind.turns_neighbours and theirs.endswith(("attn_q", "attn_k")):
            heads = tensor.unflatten(0, (-1, 2, config.head_width // 2))  # type: ignore[no-untyped-call]
            tensor = heads.transpose(1, 2).flatten(0, 2)
        yield f"{theirs}.{suffix}", tensor
    for name, matrices in experts.items():
        yield name, torch.stack(matrices)
