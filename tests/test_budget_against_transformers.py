"""Families that lm does not have, against transformers' models: as many parameters as theirs, on the meta device, and
the FLOPs that torch counts of small ones, forward and backward."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the models need torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="the models are in transformers, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

from family_configs import FEW, published_config, small_config  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from accounting.commands.parser import main as command  # noqa: E402
from accounting.counting.parameters import tensors  # noqa: E402
from accounting.layer import Attention  # noqa: E402
from accounting.models.defaults import defaults  # noqa: E402

LIKE_PUBLISHED = (
    *("Llama", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Qwen2Moe", "Qwen3Next", "Gemma", "Gemma2", "Phi3", "Olmo2"),
    *("Olmo3", "Olmoe", "SmolLM3", "Glm", "Glm4", "Glm4Moe", "Cohere", "Cohere2", "Granite", "Starcoder2", "GPTNeoX"),
    *("OPT", "Bloom", "Falcon"),
)
CASES = [
    ("DeepseekV3", {}),
    ("DeepseekV3", FEW | {"first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2, "q_lora_rank": 24}),
    ("GptOss", {}),
    ("GptOss", {"num_hidden_layers": 24, "num_local_experts": 32}),
    ("GptOss", FEW | {"head_dim": 16, "num_key_value_heads": 2, "intermediate_size": 48, "num_local_experts": 6}),
    ("Llama4", {}),
    (
        "Llama4",
        FEW | {"interleave_moe_layer_step": 2, "num_local_experts": 4, "head_dim": 16, "num_key_value_heads": 2},
    ),
    *[(family, {}) for family in LIKE_PUBLISHED],
    ("Llama", {"attention_bias": True, "mlp_bias": True}),
    ("DeepseekV2", {"num_experts_per_tok": 6}),
    ("DeepseekV3", {"attention_bias": True}),
    ("Qwen3Next", {"attention_bias": True}),  # of a gate of attention too
    ("GptOss", {"attention_bias": False}),
    ("Llama4", {"attention_bias": True}),
    ("Qwen3Moe", {"decoder_sparse_step": 2}),
    ("Qwen3Moe", {"num_experts": 128, "moe_intermediate_size": 1536, "num_hidden_layers": 94, "head_dim": 128}),
]


# other families by model_type, with sizes that their class needs or that make them small
FOUR: dict[str, Any] = {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}
SPARSE: dict[str, Any] = {
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
}
MORE: dict[str, dict[str, Any]] = {
    **{
        name: {"head_dim": 16}
        for name in (
            *("arcee", "seed_oss", "ernie4_5", "ministral", "ministral3", "helium", "hunyuan_v1_dense", "iquestcoder"),
            *("internlm3", "hyperclovax", "cwm", "exaone4", "vaultgemma", "jais2", "nemotron"),
        )
    },
    **{name: {} for name in ("stablelm", "granite_swa")},
    **{
        name: {"num_local_experts": 6, "num_experts_per_tok": 2}
        for name in ("granitemoe", "granitemoeshared", "phimoe")
    },
    "flex_olmo": {"num_experts": 6, "num_experts_per_tok": 2},
    "minimax_m2": {"head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2},
    "mellum": {"head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40},
    "dots1": {"head_dim": 16, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, **SPARSE},
    "solar_open": {"head_dim": 16, **SPARSE},
    "glm4_moe_lite": {"q_lora_rank": 24, "kv_lora_rank": 20, "num_key_value_heads": 4, **SPARSE},
    "youtu": {"q_lora_rank": 24, "kv_lora_rank": 20, "num_key_value_heads": 4},
    "ernie4_5_moe": {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 40, "moe_num_shared_experts": 2},
}
DELTA: dict[str, Any] = {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
}
MAMBA: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 12,
    "mamba_expand": 2,
    "mamba_n_groups": 2,
}
LATENTS: dict[str, Any] = {
    **{"q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12},
    **{"num_key_value_heads": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, **SPARSE},
}
INDEXED: dict[str, Any] = {**LATENTS, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 8}
OLDER: dict[str, Any] = {"n_embd": 64, "n_layer": 4, "n_head": 4}
MORE |= {
    **{name: {} for name in ("nanochat", "olmo", "phi")},
    "gptj": {**OLDER, "rotary_dim": 8},
    "gpt_bigcode": OLDER,
    "deepseek_v32": INDEXED,
    "glm_moe_dsa": INDEXED,
}
STATES: dict[str, dict[str, Any]] = {  # families with layers that keep a state in place of keys and values
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": {**DELTA, **SPARSE, "num_experts": 8, "shared_expert_intermediate_size": 56},
    "olmo_hybrid": {**DELTA, "linear_num_value_heads": 2, "linear_value_head_dim": 12},
    "kimi_linear": {
        **{**LATENTS, "q_lora_rank": None, "num_experts": 8, "num_experts_per_token": 2, "linear_num_heads": 4},
        **{"linear_head_dim": 16, "num_hidden_layers": 6},
    },
    "minimax": {"head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 2},
    "lfm2": {"full_attn_idxs": [2]},
    "lfm2_moe": {**SPARSE, "num_experts": 6, "layer_types": ["conv", "conv", "full_attention", "conv"]},
    "bamba": {**MAMBA, "attn_layer_indices": [1]},
    "granitemoehybrid": {
        **{**MAMBA, "num_local_experts": 6, "num_experts_per_tok": 2, "shared_intermediate_size": 56},
        "layer_types": ["mamba", "attention", "mamba", "mamba"],
    },
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 128},
    "jamba": {
        **{"mamba_d_state": 12, "mamba_dt_rank": 6, "num_experts": 6, "attn_layer_period": 2, "attn_layer_offset": 1}
    },
    "nemotron_h": {
        **{**MAMBA, **SPARSE, "hybrid_override_pattern": "M-*E", "head_dim": 16, "mamba_num_heads": 8},
        **{"mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 12, "moe_shared_expert_intermediate_size": 56},
    },
    "gemma3n_text": {
        **{"head_dim": 16, "vocab_size_per_layer_input": 500, "hidden_size_per_layer_input": 8, "laurel_rank": 6},
        **{"num_hidden_layers": 10, "num_kv_shared_layers": 3, "activation_sparsity_pattern": None},
    },
}
NEEDED = {  # of class defaults that cannot build a model
    "ministral": {"head_dim": 128},
    "hunyuan_v1_dense": {"head_dim": 128},
    "nemotron": {"head_dim": 128, "num_key_value_heads": 8},
    "dots1": SPARSE,
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"]},
}
SWITCHED: list[tuple[str, dict[str, Any]]] = [
    ("arcee", {"mlp_bias": True}),
    ("seed_oss", {"attention_out_bias": True}),
    ("seed_oss", {"attention_bias": False}),
    ("ernie4_5", {"use_bias": True}),
    ("stablelm", {"use_qkv_bias": True}),
    ("stablelm", {"use_parallel_residual": True}),
    ("hyperclovax", {"use_post_norm": False}),
    ("granitemoeshared", {"shared_intermediate_size": 1024}),
    ("phimoe", {"attention_bias": True}),
    ("granitemoehybrid", {"num_local_experts": 0, "position_embedding_type": "rope"}),
    ("falcon_h1", {"mamba_rms_norm": True}),
    ("lfm2", {"conv_bias": True, "block_auto_adjust_ff_dim": False}),
    ("gpt_bigcode", {"multi_query": False}),
]


def other_config(name: str, sizes: dict[str, Any]) -> Any:
    config = transformers.AutoConfig.for_model(name, **sizes)
    config._experts_implementation = "eager"  # torch counts no grouped multiplication
    return config


@pytest.mark.parametrize(("name", "sizes"), [*((name, {}) for name in [*MORE, *STATES]), *SWITCHED])
def test_parameters_of_other_families(name: str, sizes: dict[str, Any]) -> None:
    layers = {} if name in ("nemotron_h", "gemma3n_text") else {"num_hidden_layers": 5}
    config = other_config(name, {**layers, **NEEDED.get(name, {}), **sizes})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    shape = accounting.from_config(config.to_dict())
    assert accounting.parameters(shape).total == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", MORE)
def test_flops_of_other_families(name: str) -> None:
    sizes = {"vocab_size": 500, "intermediate_size": 48, "pad_token_id": 0, **FOUR, **MORE[name]}
    config = other_config(name, sizes)
    shape = accounting.from_config(config.to_dict())
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    ids = torch.randint(0, 500, (2, 16))
    with FlopCounterMode(display=False) as forward:
        logits = model(ids, use_cache=False).logits
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    assert forward.get_total_flops() == accounting.forward_flops(shape, 16, 2).total
    if "index_topk" in sizes:  # the choice of positions has no backward in transformers
        return
    total = forward.get_total_flops() + backward.get_total_flops()
    assert total == accounting.training_flops(shape, 16, 2).total


# computed in transformers by chunks and by convolutions, of whose operations other kernels need fewer
OF_STATES = ("delta rule", "mamba state", "lightning state", "scores")


@pytest.mark.parametrize("name", STATES)
def test_layers_with_a_state(name: str) -> None:
    sizes = {"vocab_size": 500, "intermediate_size": 48, "pad_token_id": 0, **FOUR, **STATES[name]}
    config = other_config(name, sizes)
    shape = accounting.from_config(config.to_dict())
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    assert accounting.parameters(shape).total == sum(parameter.numel() for parameter in model.parameters())
    assert sum(count * size for count, size in tensors(shape)) == accounting.parameters(shape).total
    with FlopCounterMode(display=False) as counter:
        model(torch.randint(0, 500, (2, 16)), use_cache=False)
    counted = dict(accounting.forward_flops(shape, 16, 2))
    assert accounting.matmul_flops(shape, 16, 2).total == sum(counted.values())
    flops = counter.get_flop_counts()["Global"]
    if name == "gemma3n_text":
        assert counter.get_total_flops() == sum(counted.values())
    else:
        aten = torch.ops.aten
        whole = sum(value for part, value in counted.items() if part not in OF_STATES)
        assert flops.get(aten.mm, 0) + flops.get(aten.addmm, 0) == whole
    states = accounting.kv_cache(shape, 1, 16)
    per_token = int(accounting.kv_cache(shape, 1, 17).total) - int(states.total)
    assert per_token < int(states.total)
    heads = sum(layers for one, layers in shape.attentions.items() if isinstance(one, Attention) and not one.reuses)
    if name not in ("kimi_linear", "gemma3n_text"):
        assert per_token == heads * 2 * 2 * shape.kv_heads * shape.head_width


def test_sixty_families_and_more_load_and_others_are_refused_by_name() -> None:
    """Families that people use, of issue 70's list and of transformers, each tested above or in lm's own tests."""
    assert len(defaults()) >= 77
    for name in ("zamba2", "gemma4_text", "deepseek_v4", "mamba2", "rwkv", "minicpm3", "dbrx"):
        with pytest.raises(ValueError, match=name):
            accounting.from_config({"model_type": name})


def test_text_models_of_vision_models_are_those_that_they_are_made_of() -> None:
    config = transformers.AutoConfig.for_model("qwen3").to_dict()
    inner = {**config, "model_type": "qwen3_vl_text"}
    assert accounting.from_config({"model_type": "qwen3_vl", "text_config": inner}) == accounting.from_config(config)
    config = transformers.AutoConfig.for_model("qwen2").to_dict()
    flat = {**config, "model_type": "qwen2_5_vl", "vision_config": {"depth": 32}}
    assert accounting.from_config(flat) == accounting.from_config(config)


@pytest.mark.parametrize(("family", "sizes"), CASES)
def test_parameters(family: str, sizes: dict[str, Any]) -> None:
    config = published_config(family, sizes)
    with torch.device("meta"):
        model = getattr(transformers, f"{family}ForCausalLM")(config)
    found = accounting.parameters(accounting.from_config(config.to_dict()))
    assert found.total == sum(parameter.numel() for parameter in model.parameters())


COMPUTED = [
    ("DeepseekV3", {}),
    ("DeepseekV3", {"q_lora_rank": None, "num_experts_per_tok": 3}),
    ("GptOss", {"num_experts_per_tok": 2, "sliding_window": 128}),
    ("Qwen3Moe", {}),
    ("Llama4", {}),
    ("Gemma3", {}),
    ("DeepseekV2", {}),
    *[(family, {}) for family in LIKE_PUBLISHED],
]


@pytest.mark.parametrize(("family", "sizes"), COMPUTED)
def test_flops(family: str, sizes: dict[str, Any]) -> None:
    config = small_config(family, sizes)
    shape = accounting.from_config(config.to_dict())
    model = getattr(transformers, f"{family}ForCausalLM")._from_config(config, attn_implementation="eager")
    ids = torch.randint(0, 500, (2, 16))
    with FlopCounterMode(display=False) as forward:
        logits = model(ids, use_cache=False).logits
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    ours, whole = (count(shape, 16, 2).total for count in (accounting.forward_flops, accounting.training_flops))
    idle = 0
    if family == "Llama4":  # whose model in transformers gives every token to every expert, as zeros where not chosen
        idle = 6 * 2 * 16 * shape.num_layers * shape.d_model * shape.d_ff * 3
    if family == "Qwen3Next":  # transformers computes its delta rule in chunks, by more matmuls than the recurrence
        mm, counted = torch.ops.aten.mm, dict(accounting.forward_flops(shape, 16, 2))
        assert {"delta rule", "scores"} < set(counted)
        assert forward.get_flop_counts()["Global"][mm] == ours - counted["delta rule"] - counted["scores"]
        assert backward.get_flop_counts()["Global"][mm] == 2 * forward.get_flop_counts()["Global"][mm]
        return
    assert forward.get_total_flops() == ours + idle
    assert forward.get_total_flops() + backward.get_total_flops() == whole + 3 * idle


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Qwen3Moe", "DeepseekV3", "GptOss", "GPTNeoX", "Falcon"])
def test_saved_models_equal_their_count(family: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = small_config(family, {})
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert command(["check", str(tmp_path), "--json"]) == 0
    rows = {row["name"]: row["elements"] for row in json.loads(capsys.readouterr().out)}
    assert rows["difference"] == 0
