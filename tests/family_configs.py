"""transformers' configurations of families that lm does not have, and sizes small enough to compute with."""

from __future__ import annotations

from typing import Any

import transformers

FEW: dict[str, Any] = {"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 500, "num_attention_heads": 4}
SIZES = FEW | {"intermediate_size": 48, "moe_intermediate_size": 40}
FAMILIES: dict[str, dict[str, Any]] = {
    "DeepseekV3": {
        "q_lora_rank": 24,
        "kv_lora_rank": 20,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "num_key_value_heads": 4,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
    },
    "GptOss": {
        "head_dim": 16,
        "num_key_value_heads": 2,
        "num_experts_per_tok": 3,
        "num_local_experts": 6,
        "sliding_window": 5,
    },
    "Llama4": {
        "head_dim": 16,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
    },
    "Qwen3Moe": {"head_dim": 16, "num_key_value_heads": 2, "num_experts_per_tok": 2, "num_experts": 8},
    **{family: {} for family in ("GPTNeoX", "Bloom", "Falcon")},
    **{
        family: {"head_dim": 16, "num_key_value_heads": 2, "pad_token_id": 0}
        for family in (
            *("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Gemma3", "Phi3", "Olmo2", "Olmo3", "SmolLM3"),
            *("Glm", "Glm4", "Cohere", "Cohere2", "Granite", "Starcoder2"),
        )
    },
    "OPT": {"dropout": 0.0, "ffn_dim": 48, "word_embed_proj_dim": 64},
    "GPTJ": {"rotary_dim": 8, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_inner": 48},
    **{
        family: {"num_key_value_heads": 2, "pad_token_id": 0}
        for family in ("Olmo", "Phi", "StableLm", "Nemotron", "NanoChat", "Exaone4")
    },
    "Mixtral": {"num_key_value_heads": 2, "num_local_experts": 6, "num_experts_per_tok": 2},
    "Olmoe": {"num_key_value_heads": 2, "num_experts": 8, "num_experts_per_tok": 2, "pad_token_id": 0},
    "Qwen2Moe": {
        "num_key_value_heads": 2,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 56,
    },
    "Glm4Moe": {
        "head_dim": 16,
        "num_key_value_heads": 2,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "pad_token_id": 0,
    },
    "Qwen3Next": {
        "head_dim": 16,
        "num_key_value_heads": 2,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 56,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
    },
}
FAMILIES["DeepseekV2"] = FAMILIES["DeepseekV3"]


def published_config(family: str, sizes: dict[str, Any]) -> Any:
    """A family's configuration as published, but for these sizes."""
    return getattr(transformers, f"{family}{'TextConfig' if family in ('Llama4', 'Gemma3') else 'Config'}")(**sizes)


def small_config(family: str, sizes: dict[str, Any]) -> Any:
    """A small model of a family, with these sizes in place of those above. Its experts compute one after the other."""
    config = published_config(family, SIZES | FAMILIES[family] | sizes)
    config._experts_implementation = "eager"  # torch counts no grouped multiplication
    return config
