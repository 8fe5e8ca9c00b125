"""Shapes by name: what the published models are made of."""

from __future__ import annotations

from dataclasses import replace

from accounting.shape import TransformerShape, unknown

_GPT2 = {"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16), "gpt2-large": (36, 1280, 20), "gpt2-xl": (48, 1600, 25)}


def _gpt2(layers: int, width: int, heads: int) -> TransformerShape:
    """As published: Radford et al. 2019, Language Models are Unsupervised Multitask Learners."""
    return TransformerShape(
        50257,
        1024,
        layers,
        width,
        heads,
        4 * width,
        ffn="gelu",
        norm="layernorm",
        position="learned",
        tied_embeddings=True,
        bias=True,
    )


SHAPES: dict[str, TransformerShape] = {
    **{name: _gpt2(*sizes) for name, sizes in _GPT2.items()},
    # the same dimensions in a modern block: untied, SwiGLU, RMSNorm, RoPE, no biases
    **{
        f"{name}-swiglu": TransformerShape(50257, 1024, layers, width, heads, 4 * width)
        for name, (layers, width, heads) in _GPT2.items()
    },
    # Brown et al. 2020, Language Models are Few-Shot Learners, table 2.1: every layer attends to all positions here
    "gpt3-175b": replace(_gpt2(96, 12288, 96), context_length=2048),
    "tinyllama-1.1b": TransformerShape(32000, 2048, 22, 2048, 32, 5632, num_kv_heads=4),
    "llama-2-7b": TransformerShape(32000, 4096, 32, 4096, 32, 11008),
    "llama-3-8b": TransformerShape(128256, 8192, 32, 4096, 32, 14336, num_kv_heads=8),
    "llama-3-70b": TransformerShape(128256, 8192, 80, 8192, 64, 28672, num_kv_heads=8),
    "llama-3.2-1b": TransformerShape(128256, 131072, 16, 2048, 32, 8192, num_kv_heads=8, tied_embeddings=True),
    "mistral-7b": TransformerShape(32000, 32768, 32, 4096, 32, 14336, num_kv_heads=8, sliding_window=4096),
    "mixtral-8x7b": TransformerShape(32000, 32768, 32, 4096, 32, 14336, num_kv_heads=8, experts=8, experts_per_token=2),
    "qwen2.5-0.5b": TransformerShape(
        151936, 32768, 24, 896, 14, 4864, num_kv_heads=2, tied_embeddings=True, qkv_bias=True
    ),
    "qwen3-0.6b": TransformerShape(
        151936, 40960, 28, 1024, 16, 3072, num_kv_heads=8, head_dim=128, tied_embeddings=True, qk_norm=True
    ),
    "qwen3-30b-a3b": TransformerShape(
        151936,
        40960,
        48,
        2048,
        32,
        768,
        num_kv_heads=4,
        head_dim=128,
        qk_norm=True,
        experts=128,
        experts_per_token=8,
    ),
    "gemma-2b": TransformerShape(
        256000, 8192, 18, 2048, 8, 16384, num_kv_heads=1, head_dim=256, ffn="geglu", tied_embeddings=True
    ),
    "gemma-2-2b": TransformerShape(
        256000,
        8192,
        26,
        2304,
        8,
        9216,
        num_kv_heads=4,
        head_dim=256,
        ffn="geglu",
        tied_embeddings=True,
        post_norm=True,
        sliding_window=4096,
        sliding_window_layers=13,
    ),
    "gemma-3-1b": TransformerShape(
        262144,
        32768,
        26,
        1152,
        4,
        6912,
        num_kv_heads=1,
        head_dim=256,
        ffn="geglu",
        tied_embeddings=True,
        post_norm=True,
        qk_norm=True,
        sliding_window=512,
        sliding_window_layers=22,
    ),
}


def named(name: str) -> TransformerShape:
    """The shape of that name, else KeyError with the names there are."""
    try:
        return SHAPES[name]
    except KeyError:
        raise unknown("shape", name, SHAPES) from None
