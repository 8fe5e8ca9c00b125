"""transformers' configurations of families by their model_type, and sizes small enough to compute with."""

from __future__ import annotations

from typing import Any

import transformers

FEW: dict[str, Any] = {"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 500, "num_attention_heads": 4}
SIZES = FEW | {"intermediate_size": 48}
GROUPED: dict[str, Any] = {"num_key_value_heads": 2, "pad_token_id": 0}
HEADS = GROUPED | {"head_dim": 16}
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
LOCAL: dict[str, Any] = {"num_local_experts": 6, "num_experts_per_tok": 2}
SPARSE: dict[str, Any] = {
    **{"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 40},
    **{"n_group": 1, "topk_group": 1},
}
LATENTS: dict[str, Any] = {
    **{"q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12},
    **{"num_key_value_heads": 4, "first_k_dense_replace": 1, **SPARSE},
}
INDEXED = {**LATENTS, "pad_token_id": 0, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 8}
DELTA: dict[str, Any] = {
    **{**HEADS, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 12},
}
MAMBA: dict[str, Any] = {
    **{**GROUPED, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 12, "mamba_expand": 2, "mamba_n_groups": 2}
}
OLDER: dict[str, Any] = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_inner": 48}
FAMILIES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("deepseek_v3", "deepseek_v2"), LATENTS),
    "gpt_oss": {
        **{"head_dim": 16, "num_key_value_heads": 2, "num_experts_per_tok": 3, "num_local_experts": 6},
        "sliding_window": 5,
    },
    "llama4_text": {
        **{"head_dim": 16, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 1},
        "interleave_moe_layer_step": 1,
    },
    "qwen3_moe": {**HEADS, **EXPERTS},
    **{family: {} for family in ("gpt_neox", "bloom", "falcon")},
    **dict.fromkeys(
        (
            *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2", "olmo3"),
            *("smollm3", "glm", "glm4", "cohere", "cohere2", "granite", "starcoder2", "nemotron", "exaone4"),
        ),
        HEADS,
    ),
    "opt": {"dropout": 0.0, "ffn_dim": 48, "word_embed_proj_dim": 64},
    "gptj": {**OLDER, "rotary_dim": 8},
    **dict.fromkeys(("olmo", "phi", "stablelm", "nanochat"), GROUPED),
    "mixtral": {**GROUPED, **LOCAL},
    "olmoe": {**GROUPED, **EXPERTS},
    "qwen2_moe": {**GROUPED, **EXPERTS, "shared_expert_intermediate_size": 56},
    "glm4_moe": {**HEADS, **SPARSE},
}
# of these the parameters and the FLOPs alone are counted
OTHERS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        (
            *("arcee", "seed_oss", "ernie4_5", "ministral", "ministral3", "helium", "hunyuan_v1_dense", "iquestcoder"),
            *("internlm3", "hyperclovax", "cwm", "vaultgemma", "jais2"),
        ),
        HEADS,
    ),
    "granite_swa": GROUPED,
    **{name: {**GROUPED, **LOCAL} for name in ("granitemoe", "granitemoeshared", "phimoe")},
    "flex_olmo": {**GROUPED, "num_experts": 6, "num_experts_per_tok": 2},
    "minimax_m2": {**HEADS, **LOCAL},
    "mellum": {**HEADS, **LOCAL, "moe_intermediate_size": 40},
    "dots1": {**HEADS, **SPARSE, "first_k_dense_replace": 1},
    "solar_open": {**HEADS, **SPARSE},
    **{name: {**GROUPED, **LATENTS} for name in ("glm4_moe_lite", "youtu")},
    "ernie4_5_moe": {
        **{**GROUPED, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 40, "moe_num_shared_experts": 2}
    },
    "gpt_bigcode": OLDER,
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), INDEXED),
}
STATES: dict[str, dict[str, Any]] = {  # families with layers that keep a state in place of keys and values
    "qwen3_next": {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 56},
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 56},
    "olmo_hybrid": {**DELTA, "linear_num_value_heads": 2},
    "kimi_linear": {
        **{**LATENTS, "q_lora_rank": None, "num_experts": 8, "num_experts_per_token": 2, "linear_num_heads": 4},
        **{"linear_head_dim": 16, "num_hidden_layers": 6, "pad_token_id": 0},
    },
    "minimax": {**HEADS, **LOCAL},
    "lfm2": {**GROUPED, "full_attn_idxs": [2]},
    "lfm2_moe": {**GROUPED, **EXPERTS, "layer_types": ["conv", "conv", "full_attention", "conv"]},
    "bamba": {**MAMBA, "attn_layer_indices": [1]},
    "granitemoehybrid": {
        **{**MAMBA, **LOCAL, "shared_intermediate_size": 56, "layer_types": ["mamba", "attention", "mamba", "mamba"]}
    },
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 128},
    "jamba": {
        **{**GROUPED, "mamba_d_state": 12, "mamba_dt_rank": 6, "num_experts": 6},
        **{"attn_layer_period": 2, "attn_layer_offset": 1},
    },
    "nemotron_h": {
        **{**MAMBA, **SPARSE, "hybrid_override_pattern": "M-*E", "head_dim": 16, "mamba_num_heads": 8},
        **{"mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 12, "moe_shared_expert_intermediate_size": 56},
    },
    "gemma3n_text": {
        **{**HEADS, "vocab_size_per_layer_input": 500, "hidden_size_per_layer_input": 8, "laurel_rank": 6},
        **{"num_hidden_layers": 10, "num_kv_shared_layers": 3, "activation_sparsity_pattern": None},
    },
}


def published_config(family: str, sizes: dict[str, Any]) -> Any:
    """A family's configuration as published, but for these sizes."""
    return transformers.AutoConfig.for_model(family, **sizes)


def small_config(family: str, sizes: dict[str, Any]) -> Any:
    """A small model of a family, with these sizes in place of those above. Its experts compute one after the other."""
    config = published_config(family, SIZES | (FAMILIES | OTHERS | STATES)[family] | sizes)
    config._experts_implementation = "eager"  # torch counts no grouped multiplication
    return config
