"""Families that lm does not have, against transformers' models: as many parameters as theirs, on the meta device, and
the FLOPs that torch counts of small ones, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the models need torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="the models are in transformers, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

from family_configs import FEW, published_config, small_config  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

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
    ("GptOss", {"attention_bias": False}),
    ("Llama4", {"attention_bias": True}),
    ("Qwen3Moe", {"decoder_sparse_step": 2}),
    ("Qwen3Moe", {"num_experts": 128, "moe_intermediate_size": 1536, "num_hidden_layers": 94, "head_dim": 128}),
]


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
