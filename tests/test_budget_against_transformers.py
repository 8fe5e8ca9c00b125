"""Families that lm does not have, against transformers' models: as many parameters as theirs, on the meta device, and
the FLOPs that torch counts of small ones, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the models need torch, which is not installed")
transformers = pytest.importorskip("transformers", reason="the models are in transformers, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

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


MLA = {
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
}
GROUPED = {"head_dim": 16, "num_key_value_heads": 2, "num_experts_per_tok": 2}
COMPUTED = [
    ("DeepseekV3", MLA | {"q_lora_rank": 24, "num_experts_per_tok": 2}),
    ("DeepseekV3", MLA | {"q_lora_rank": None, "num_experts_per_tok": 3}),
    ("GptOss", GROUPED | {"num_local_experts": 6}),
    ("Qwen3Moe", GROUPED | {"num_experts": 8}),
    ("Llama4", GROUPED | {"num_local_experts": 4, "interleave_moe_layer_step": 1, "num_experts_per_tok": 1}),
]


@pytest.mark.parametrize(("family", "sizes"), COMPUTED)
def test_flops(family: str, sizes: dict[str, Any]) -> None:
    widths = {"intermediate_size": 48, "moe_intermediate_size": 40}
    config = getattr(transformers, f"{family}{'TextConfig' if family == 'Llama4' else 'Config'}")(
        **FEW, **widths, **sizes
    )
    config._experts_implementation = "eager"  # one after the other: torch counts no grouped multiplication
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
        idle = 6 * 2 * 16 * shape.num_layers * shape.d_model * shape.d_ff * (shape.experts - shape.active_experts)
    assert forward.get_total_flops() == ours + idle
    assert forward.get_total_flops() + backward.get_total_flops() == whole + 3 * idle
