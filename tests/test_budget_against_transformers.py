"""Families that lm does not have, against transformers' models: as many parameters as theirs, on the meta device."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the models need torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="the models are in transformers, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

FEW: dict[str, Any] = {"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 500, "num_attention_heads": 4}
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
    ("Qwen3Moe", {"num_experts": 128, "moe_intermediate_size": 1536, "num_hidden_layers": 94, "head_dim": 128}),
]


@pytest.mark.parametrize(("family", "sizes"), CASES)
def test_parameters(family: str, sizes: dict[str, Any]) -> None:
    config = getattr(transformers, f"{family}{'TextConfig' if family == 'Llama4' else 'Config'}")(**sizes)
    with torch.device("meta"):
        model = getattr(transformers, f"{family}ForCausalLM")(config)
    found = accounting.parameters(accounting.from_config(config.to_dict()))
    assert found.total == sum(parameter.numel() for parameter in model.parameters())
