"""The families of transformers as tables: what each class of settings has by default, and what its layers have."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

ALIASES = {  # the same layers
    **{"kimi_k2": "deepseek_v3", "llama4": "llama4_text", "gemma3": "gemma3_text", "qwen3_vl_text": "qwen3"},
    **dict.fromkeys(("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), "qwen2"),
    **{"qwen3_vl_moe_text": "qwen3_moe", "gemma3n": "gemma3n_text", "qwen3_5": "qwen3_5_text"},
    **{"qwen3_5_moe": "qwen3_5_moe_text", "deepseek_v3_2": "deepseek_v32"},
}


@lru_cache(maxsize=1)
def defaults() -> dict[str, dict[str, Any]]:
    """The defaults of each class in transformers 5, of the settings that decide a shape."""
    return read()


def read() -> dict[str, dict[str, Any]]:
    """The contents of defaults.json."""
    import json  # a shape by name does without

    with open(Path(__file__).with_name("defaults.json"), encoding="utf-8") as file:
        table: dict[str, dict[str, Any]] = json.load(file)
    return table


RENAMED = {  # other names of a setting
    "n_embd": "hidden_size",
    "n_positions": "max_position_embeddings",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "ffn_dim": "intermediate_size",
    "ffn_hidden_size": "intermediate_size",
    "num_kv_heads": "num_key_value_heads",
    "activation_function": "hidden_act",
    "activation": "hidden_act",
    "hidden_activation": "hidden_act",
    "moe_num_experts": "n_routed_experts",
    "moe_k": "num_experts_per_tok",
    "moe_num_shared_experts": "n_shared_experts",
    "num_shared_experts": "n_shared_experts",
    "num_experts_per_token": "num_experts_per_tok",
    "model_max_length": "max_position_embeddings",
    "mlp_hidden_act": "hidden_act",
    "tie_embedding": "tie_word_embeddings",
    "block_ff_dim": "intermediate_size",
    "layers_block_type": "layer_types",
    **{"ssm_state_size": "mamba_d_state", "mamba_num_heads": "mamba_n_heads", "mamba_head_dim": "mamba_d_head"},
    **{"n_groups": "mamba_n_groups", "conv_kernel": "mamba_d_conv", "use_conv_bias": "mamba_conv_bias"},
}
OWN_FFN_NAME = ("gpt2", "gptj", "gpt_bigcode", "opt", "bloom", "falcon")  # their classes do not read intermediate_size
PLAIN_FFN = (  # without a gate
    *("gpt2", "starcoder2", "gpt_neox", "opt", "bloom", "falcon", "arcee", "jais2", "nemotron", "phi", "gptj"),
    *("gpt_bigcode", "nanochat", "nemotron_h"),
)
LAYERNORM = (
    *(name for name in PLAIN_FFN if name not in ("arcee", "nanochat", "nemotron_h")),
    *("cohere", "cohere2", "stablelm", "phimoe", "olmo"),
)
BIASED_QKV = ("glm", "glm4", "glm4_moe", "seed_oss")  # attention_bias leaves the output out
SWITCHLESS = (
    *("mistral", "mixtral", "qwen2", "qwen2_moe", "phi3", "starcoder2", "opt", "bloom", "falcon", "gpt2", "cwm"),
    *("ministral", "ministral3", "exaone4", "minimax_m2", "stablelm", "ernie4_5", "ernie4_5_moe"),
)
MLP_BIAS = (
    *("llama", "granite", "smollm3", "arcee", "cwm", "helium", "hyperclovax", "iquestcoder", "internlm3", "jais2"),
    *("nemotron", "seed_oss", "granite_swa"),
)
QK_NORM = (
    *(
        "qwen3",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_5_text",
        "qwen3_5_moe_text",
        "lfm2_moe",
        "gemma3n_text",
        "gemma3_text",
    ),
    *("hunyuan_v1_dense", "dots1", "exaone4", "mellum", "lfm2"),
)
WIDE_QK_NORM = ("olmo_hybrid", "olmo2", "olmo3", "olmoe", "flex_olmo", "minimax_m2")
LATENT = ("deepseek_v32", "glm_moe_dsa", "kimi_linear", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu")
SHARED_EXPERTS = (
    *("glm4_moe", "deepseek_v2", "deepseek_v3", "dots1", "solar_open", "ernie4_5_moe", "glm4_moe_lite", "deepseek_v32"),
    *("glm_moe_dsa", "kimi_linear", "nemotron_h"),
)
EXPERTS = (
    *("mixtral", "olmoe", "gpt_oss", "llama4_text", "granitemoe", "granitemoeshared", "flex_olmo", "phimoe"),
    *("minimax", "minimax_m2", "mellum", "granitemoehybrid", "jamba", "lfm2_moe", *SHARED_EXPERTS),
)
# all layers but the last of each pattern have a window, or all but the first
WINDOW_PATTERNS = {
    "gemma2": 2,
    "gemma3_text": 6,
    "cohere2": 4,
    "olmo3": 4,
    "gpt_oss": 2,
    "exaone4": 4,
    "vaultgemma": 2,
    "gemma3n_text": 5,
}
WINDOWS_AFTER = {"cwm": 4, "granite_swa": 4}
GATED_DELTA = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")  # with gated softmax layers between
QWEN_EXPERTS = ("qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text")
SHARED_GATE = ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text")
NEMOTRON = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}  # letters of its pattern
OTHER_LAYERS = {  # names of layers in older files and of other families
    **{"mamba": "linear_attention", "conv": "linear_attention", "attention": "full_attention"},
    **{"indexed_attention": "full_attention", "moe": "moe", "mlp": "mlp"},
}
MOST_LISTED = 1 << 14  # layers of a file, which are compared one by one to find their period
ROUTERS = {
    **dict.fromkeys(
        (
            "deepseek_v3",
            "glm4_moe",
            "dots1",
            "solar_open",
            "glm4_moe_lite",
            "minimax_m2",
            "deepseek_v32",
            "glm_moe_dsa",
            "kimi_linear",
            "nemotron_h",
            "lfm2_moe",
        ),
        "sigmoid",
    ),
    **dict.fromkeys(("gpt_oss", "granitemoe", "granitemoeshared", "granitemoehybrid"), "softmax_of_chosen"),
}
REFUSED = {  # settings whose cost is not counted unless they have this value
    "add_cross_attention": False,
    "do_layer_norm_before": True,
    "layer_norm_elementwise_affine": True,
    "_remove_final_layer_norm": False,
    "qk_layernorm": False,
    "lm_head_bias": False,
}
