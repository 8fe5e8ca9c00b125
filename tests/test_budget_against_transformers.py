"""Families that lm does not have, against transformers' models: as many parameters as theirs, on the meta device, and
the FLOPs that torch counts of small ones, forward and backward."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the models need torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="the models are in transformers, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

from family_configs import FAMILIES, FEW, OTHERS, SPARSE, STATES, published_config, small_config  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from accounting.commands.parser import main as command  # noqa: E402
from accounting.counting.parameters import tensors  # noqa: E402
from accounting.layer import Attention  # noqa: E402
from accounting.models.defaults import defaults  # noqa: E402

CASES: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in FAMILIES | OTHERS | STATES),
    ("deepseek_v3", {"num_hidden_layers": 61}),
    ("deepseek_v3", FEW | {"first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2}),
    ("gpt_oss", {"num_hidden_layers": 36}),
    ("gpt_oss", {"num_hidden_layers": 24, "num_local_experts": 32}),
    ("gpt_oss", FEW | {"head_dim": 16, "num_key_value_heads": 2, "intermediate_size": 48, "num_local_experts": 6}),
    ("llama4_text", {"num_hidden_layers": 48}),
    ("llama4_text", FEW | {"interleave_moe_layer_step": 2, "head_dim": 16, "num_key_value_heads": 2}),
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("deepseek_v3", {"attention_bias": True}),
    ("qwen3_next", {"attention_bias": True}),  # of a gate of attention too
    ("gpt_oss", {"attention_bias": False}),
    ("llama4_text", {"attention_bias": True}),
    ("qwen3_moe", {"decoder_sparse_step": 2}),
    ("qwen3_moe", {"num_experts": 128, "moe_intermediate_size": 1536, "num_hidden_layers": 94, "head_dim": 128}),
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
SPECIAL: dict[str, dict[str, Any]] = {  # sizes that a class needs beside its defaults
    "deepseek_v2": {"num_experts_per_tok": 6},
    "ministral": {"head_dim": 128},
    "hunyuan_v1_dense": {"head_dim": 128},
    "nemotron": {"head_dim": 128, "num_key_value_heads": 8},
    "dots1": SPARSE,
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"]},
    **{family: {"num_hidden_layers": None} for family in ("nemotron_h", "gemma3n_text")},  # which lists its layers
}


@pytest.mark.parametrize(("family", "sizes"), CASES)
def test_parameters(family: str, sizes: dict[str, Any]) -> None:
    sizes = {"num_hidden_layers": 5, **SPECIAL.get(family, {}), **sizes}
    config = published_config(family, {name: size for name, size in sizes.items() if size is not None})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    shape = accounting.from_config(config.to_dict())
    assert accounting.parameters(shape).total == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        *((family, {}) for family in FAMILIES | OTHERS),
        ("deepseek_v3", {"q_lora_rank": None, "num_experts_per_tok": 3}),
        ("gpt_oss", {"num_experts_per_tok": 2, "sliding_window": 128}),
    ],
)
def test_flops(family: str, sizes: dict[str, Any]) -> None:
    config = small_config(family, sizes)
    shape = accounting.from_config(config.to_dict())
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    ids = torch.randint(0, 500, (2, 16))
    with FlopCounterMode(display=False) as forward:
        logits = model(ids, use_cache=False).logits
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    idle = 0
    if family == "llama4_text":  # whose model gives every token to every expert, as zeros where not chosen
        idle = 6 * 2 * 16 * shape.num_layers * shape.d_model * shape.d_ff * 3
    assert forward.get_total_flops() == accounting.forward_flops(shape, 16, 2).total + idle
    if "index_topk" not in FAMILIES.get(family, OTHERS.get(family, {})):  # a choice of positions has no backward
        whole = accounting.training_flops(shape, 16, 2).total + 3 * idle
        assert forward.get_total_flops() + backward.get_total_flops() == whole


# computed in transformers by chunks and by convolutions, of whose operations other kernels need fewer
OF_STATES = ("delta rule", "mamba state", "lightning state", "scores")


@pytest.mark.parametrize("name", STATES)
def test_layers_with_a_state(name: str) -> None:
    config = small_config(name, {})
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


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3_moe", "deepseek_v3", "gpt_oss", "gpt_neox", "falcon"])
def test_saved_models_equal_their_count(family: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = small_config(family, {})
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert command(["check", str(tmp_path), "--json"]) == 0
    rows = {row["name"]: row["elements"] for row in json.loads(capsys.readouterr().out)}
    assert rows["difference"] == 0
