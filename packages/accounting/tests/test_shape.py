"""Impossible shapes are refused with the bound named; files describe shapes or are refused."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from accounting import (
    SHAPES,
    Layout,
    Place,
    TransformerShape,
    decode_flops,
    device_flops,
    device_parameters,
    forward_flops,
    from_config,
    from_huggingface,
    from_run,
    kv_cache,
    matmul_flops,
    parameters,
)
from accounting.layer import Attention, FeedForward, Layer
from accounting.models.files import find


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 0}, "num_layers must be a whole number of at least 1, and 0 is not"),
        ({"d_model": -4}, "d_model must be a whole number of at least 1"),
        ({"d_ff": 1.5}, "d_ff must be a whole number of at least 1, and 1.5 is not"),
        ({"vocab_size": True}, "vocab_size must be a whole number"),
        ({"num_heads": 7}, "d_model 768 is not a multiple of num_heads 7"),
        ({"num_kv_heads": 5}, "num_kv_heads 5 does not divide num_heads 12"),
        ({"num_kv_heads": 0}, "num_kv_heads must be a whole number of at least 1"),
        ({"head_dim": 3}, "head_dim 3 is odd"),
        ({"ffn": "glu"}, "ffn 'glu' is not known: use one of swiglu"),
        ({"norm": "batch"}, "norm 'batch' is not known"),
        ({"position": "polar"}, "position 'polar' is not known"),
        ({"sliding_window": 0}, "sliding_window must be a whole number of at least 1"),
        ({"layers": ()}, "layers is empty"),
        ({"layers": 3}, "expected layers as a tuple of Layer, got 3"),
        ({"leading": 13 * (Layer(),)}, "leading has 13 layers, and num_layers is 12"),
        ({"layers": (Layer(Attention()),), "sliding_window": 8}, "sliding_window would change nothing"),
        (
            {"layers": (Layer(ffn=FeedForward(8)),), "experts": 2, "experts_per_token": 1},
            "experts would change nothing",
        ),
        ({"value_embeddings": 1.5}, "value_embeddings must be a whole number"),
        ({"lora_rank": 2, "lora_targets": ["query"]}, "lora_targets as a tuple"),
        ({"tied_embeddings": "yes"}, "tied_embeddings must be True or False, and 'yes' is neither"),
        ({"bias": 1}, "bias must be True or False"),
        ({"qkv_bias": 0}, "qkv_bias must be True, False or None"),
        ({"experts": 8}, "go together"),
        ({"experts": 2, "experts_per_token": 3}, "experts_per_token 3 is more than experts 2"),
    ],
)
def test_impossible_shapes(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SHAPES["gpt2-swiglu"], **change)


def test_learned_positions_end_and_others_do_not() -> None:
    with pytest.raises(ValueError, match="seq_len 1025 is beyond the 1024 learned positions"):
        forward_flops(SHAPES["gpt2"], 1025)
    assert forward_flops(SHAPES["gpt2-swiglu"], 1025).total > 0
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1"):
        forward_flops(SHAPES["gpt2"], 1, 0)
    with pytest.raises(ValueError, match="pairs 'flash' is not known: use one of full, half, causal"):
        forward_flops(SHAPES["gpt2"], pairs="flash")


def test_padding_rounds_rows_up() -> None:
    padded = replace(SHAPES["gpt2"], vocab_multiple=64)
    assert padded.vocab_rows == 50304
    assert int(parameters(padded)) - int(parameters(SHAPES["gpt2"])) == 47 * 768


LLAMA = {
    "model_type": "llama",
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
WINDOWED = {**LLAMA, "model_type": "mistral", "sliding_window": 4096}
GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_layer": 12, "n_embd": 768, "n_head": 12}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "tie_word_embeddings": False,
}
GPT_OSS_120B = {
    "model_type": "gpt_oss",
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 36,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "tie_word_embeddings": False,
}
SCOUT = {
    "model_type": "llama4_text",
    "vocab_size": 202048,
    "max_position_embeddings": 10485760,
    "num_hidden_layers": 48,
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "interleave_moe_layer_step": 1,
    "num_local_experts": 16,
    "num_experts_per_tok": 1,
    "tie_word_embeddings": False,
}
CONFIGS = {
    "gpt2": GPT2,
    "llama-3-8b": LLAMA,
    "mistral-7b": LLAMA
    | {"model_type": "mistral", "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": 4096},
    "mixtral-8x7b": LLAMA
    | {
        "model_type": "mixtral",
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        "sliding_window": None,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "qwen2.5-0.5b": {
        "model_type": "qwen2",
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "num_hidden_layers": 24,
        "hidden_size": 896,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "sliding_window": 32768,
        "use_sliding_window": False,
    },
    "qwen3-0.6b": {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "num_hidden_layers": 28,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "num_hidden_layers": 48,
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    },
    "gemma-2b": {
        "model_type": "gemma",
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
        "num_hidden_layers": 18,
        "hidden_size": 2048,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "intermediate_size": 16384,
        "hidden_act": "gelu",
    },
    "gemma-2-2b": {
        "model_type": "gemma2",
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
        "num_hidden_layers": 26,
        "hidden_size": 2304,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "intermediate_size": 9216,
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 4096,
    },
    "deepseek-v3": DEEPSEEK_V3,
    "gpt-oss-120b": GPT_OSS_120B,
    "gpt-oss-20b": GPT_OSS_120B | {"num_hidden_layers": 24, "num_local_experts": 32},
    "llama-4-scout": SCOUT,
}


def resolved(shape: TransformerShape) -> dict[str, Any]:
    """The shape with what it leaves open filled in: two ways of writing one shape are then equal."""
    filled = asdict(shape) | {"num_kv_heads": shape.kv_heads, "head_dim": shape.head_width}
    return filled | {"qkv_bias": shape.biased_qkv}


@pytest.mark.parametrize("name", CONFIGS)
def test_huggingface_families(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS[name]), encoding="utf-8")
    for found in (from_huggingface(str(path)), find(str(path)), find(str(tmp_path)), from_config(CONFIGS[name])):
        assert resolved(found) == resolved(SHAPES[name])


def test_the_language_model_of_a_model_with_towers_is_its_text_config() -> None:
    assert from_config({"model_type": "llama4", "text_config": SCOUT}) == SHAPES["llama-4-scout"]


def test_gemma3_sees_far_in_every_sixth_layer() -> None:
    config = CONFIGS["gemma-2-2b"] | {"model_type": "gemma3_text", "sliding_window": 512}
    shape = from_config(config)
    assert (shape.qk_norm, shape.post_norm, shape.windowed_layers) == (True, True, 22)
    assert [shape.kind_at(at).attention.window for at in range(7)] == [512] * 5 + [None, 512]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not known: describe it by --layers"),
        ({}, "model_type 'None' is not known"),
        ({**LLAMA, "hidden_size": "wide"}, "must give hidden_size as a whole number, and it gives 'wide'"),
        ({**LLAMA, "hidden_act": "relu"}, "activation 'relu' is not known"),
        (
            {**LLAMA, "model_type": "qwen3_moe", "decoder_sparse_step": 0},
            "decoder_sparse_step must be a whole number of at least 1",
        ),
        ({**LLAMA, "model_type": "qwen3", "mlp_bias": True}, "mlp_bias is set"),
        ({**LLAMA, "num_attention_heads": 33}, "not a multiple of num_heads 33"),
        ({**LLAMA, "hidden_act": ["silu"]}, r"must name the activation, and it gives \['silu'\]"),
        ({**LLAMA, "tie_word_embeddings": "yes"}, "tie_word_embeddings as true or false"),
        ({**LLAMA, "num_key_value_heads": 7}, "num_kv_heads 7 does not divide num_heads 32"),
        ({**LLAMA, "model_type": "qwen3_moe", "num_experts": None}, "must give num_experts as"),
        (
            {**WINDOWED, "model_type": "gemma3_text", "sliding_window_pattern": 0},
            "sliding_window_pattern must be a whole number of at least 1",
        ),
        (
            {**WINDOWED, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": "3"},
            "max_window_layers as a whole",
        ),
        ({**WINDOWED, "model_type": "gemma2", "layer_types": ["sliding_attention"]}, "layer_types as a list of 32"),
        ({**WINDOWED, "model_type": "gpt_oss", "layer_types": 5}, "layer_types as a list of 32"),
        ({**WINDOWED, "model_type": "gpt_oss", "num_hidden_layers": 10**40}, "is more than 16,384"),
        ({**LLAMA, "model_type": "llama4_text", "no_rope_layers": 5}, "no_rope_layers as a list"),
        ({**LLAMA, "model_type": "llama4_text", "interleave_moe_layer_step": -1}, "interleave_moe_layer_step must be"),
        ({**GPT2, "n_inner": 0}, "d_ff must be a whole number of at least 1, and 0 is not"),
        ({**GPT2, "add_cross_attention": True}, "add_cross_attention is True"),
    ],
)
def test_configs_that_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_config(config)


@pytest.mark.parametrize("contents", [b"", b"\xff\xfe", b"[" * 10**5])
def test_what_is_no_json_or_toml(contents: bytes, tmp_path: Path) -> None:
    for name, kind in (("config.json", "JSON"), ("config.toml", r"TOML|table")):
        (tmp_path / name).write_bytes(contents)
        with pytest.raises(ValueError, match=rf"{name} (is not|has no).*({kind})"):
            find(str(tmp_path / name))


def test_runs(tmp_path: Path) -> None:
    run = tmp_path / "config.toml"
    sizes = "vocab_size = 100\ncontext_length = 16\nnum_layers = 2\nd_model = 8\nnum_heads = 2\nd_ff = 24\n"
    run.write_text(f'[model]\n{sizes}norm_eps = 1e-5\nffn = "gelu"\n[training]\nsteps = 3\n', encoding="utf-8")
    assert from_run(str(run)) == find(str(tmp_path)) == TransformerShape(100, 16, 2, 8, 2, 24, ffn="gelu")
    run.write_text(f'[model]\n{sizes}ffn = "gelu_exact"\n', encoding="utf-8")
    assert find(str(run)).ffn == "gelu"
    for words, message in (
        ("[model", "is not TOML"),
        ("[training]\nsteps = 3\n", r"has no \[model\] table"),
        (f"[model]\n{sizes}flavour = 3\n", "sets flavour, whose cost is not known"),
        ("[model]\nd_ff = 24\n", "does not describe a model"),
        (
            f'[model]\nfamily = "gemma3_text"\nquery_pre_attn_scalar = 8\n{sizes}',
            "run of a 'gemma3_text'.* config.json",
        ),
    ):
        run.write_text(words, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            from_run(str(run))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"neither config\.json nor config\.toml"):
        find(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"there is no file nowhere\.json"):
        find("nowhere.json")
    with pytest.raises(KeyError, match=r"no shape is called 'gpt5': did you mean 'gpt2'\?"):
        find("gpt5")


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("deepseek-v3", 37_552_282_624),
        # 5.13 and 3.61 billion as published, which leaves the embedding out
        ("gpt-oss-120b", 5_132_849_472 + 201_088 * 2880),
        ("gpt-oss-20b", 3_608_307_264 + 201_088 * 2880),
        ("llama-4-scout", 17_172_894_720),
    ],
)
def test_active_parameters(name: str, active: int) -> None:
    shape = SHAPES[name]
    assert parameters(shape, active=True).total == active
    # a token multiplies with every active parameter but the embedding, norms, biases and sinks
    each = int(forward_flops(shape, 1)) - int(forward_flops(shape, 1)["scores"])
    used = parameters(shape, active=True)
    matmuls = int(used.total) - int(used["embedding"]) - int(used["norms"])
    assert each <= 2 * matmuls < 1.002 * each


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss-20b", "llama-4-scout"])
@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_devices_share_special_shapes(name: str, tensor: int) -> None:
    """Shares of heads, feed-forward layers and vocabulary add up to the whole; latents, routers, norms and the biases
    after a sum are on every device."""
    shape, layout = SHAPES[name], Layout(tensor=tensor)
    whole = parameters(shape)
    held = [device_parameters(shape, layout, Place(0, rank)) for rank in range(tensor)]
    attention, ffn = 0, 0  # on every device, in each layer
    if shape.latent is not None:
        attention = shape.d_model * ((shape.latent.q_rank or 0) + shape.latent.kv_rank + shape.latent.rope_dim)
    if shape.bias:
        attention, ffn = shape.d_model, shape.most_experts * shape.d_model
    again = tensor - 1
    assert sum(int(one["attention"]) for one in held) == int(whole["attention"]) + again * shape.num_layers * attention
    assert sum(int(one["ffn"]) for one in held) == int(whole["ffn"]) + again * shape.num_layers * ffn
    for part in ("embedding", "head"):
        assert sum(int(one[part]) for one in held) == whole[part]
    for part in ("norms", "router"):
        assert all(one[part] == whole[part] for one in held)
    scores = forward_flops(shape, 64)["scores"]
    assert sum(int(device_flops(shape, layout, Place(0, rank), 1, 64)["scores"]) for rank in range(tensor)) == scores
    assert matmul_flops(shape, 64).total == forward_flops(shape, 64).total


def test_latents_are_cached_and_attended_to() -> None:
    """DeepSeek-V3's cache of a token is 576 numbers a layer; a decoding step attends to the latents themselves."""
    shape = from_config(DEEPSEEK_V3)
    assert kv_cache(shape, 1, 1).total == 61 * 576 * 2
    near, far = (int(decode_flops(shape, context)["scores"]) for context in (1, 1001))
    assert far - near == 1000 * 61 * 128 * 2 * (576 + 512)
    whole = forward_flops(shape, 128)
    assert whole["scores"] == 61 * 128 * 2 * 128 * 128 * (192 + 128)
    assert whole["projections"] == 2 * 128 * (int(parameters(shape)["attention"]))


@pytest.mark.parametrize(
    "sizes", [{"experts_per_token": 1}, {"shared_d_ff": 8}, {"router_bias": True}, {"experts_held": 1}, {"d_ff": -1}]
)
def test_impossible_feed_forward_layers(sizes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"go together|need experts|at least 1"):
        FeedForward(**sizes)


@pytest.mark.parametrize(("name", "value"), [("num_kv_heads", 8), ("head_dim", 64)])
def test_sizes_that_would_change_nothing(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} {value} would change nothing"):
        replace(SHAPES["deepseek-v3"], **{name: value})


def test_biases_of_dense_and_shared_layers() -> None:
    """Each by hand: two experts and a router, beside a dense layer of 16 and a shared one of 16."""
    routed = FeedForward(experts=2, experts_per_token=1)
    shape = TransformerShape(
        10, 8, 4, 8, 2, 8, bias=True, leading=2 * (Layer(ffn=FeedForward(16)),), layers=(Layer(ffn=routed),)
    )
    dense, expert = 3 * 8 * 16 + 2 * 16 + 8, 3 * 8 * 8 + 2 * 8 + 8
    assert parameters(shape)["ffn"] == 2 * dense + 2 * 2 * expert == 1712
    shared = replace(shape, layers=(Layer(ffn=replace(routed, shared_d_ff=16)),))
    assert parameters(shared)["ffn"] == 1712 + 2 * dense


def test_chunks_end_what_is_attended_to_and_cached() -> None:
    """Llama 4 Scout: 36 of 48 layers see chunks of 8,192 positions."""
    scout, length = SHAPES["llama-4-scout"], 3 * 8192 + 100
    pairs = 12 * length * (length + 1) + 36 * (3 * 8192 * 8193 + 100 * 101)
    assert forward_flops(scout, length, pairs="causal")["scores"] == 2 * 40 * 128 * pairs
    assert kv_cache(scout, 1, 10**6).total == 2 * 2 * 8 * 128 * (12 * 10**6 + 36 * 8192)
    assert decode_flops(scout, 8193)["scores"] == 4 * 40 * 128 * (12 * 8193 + 36)
