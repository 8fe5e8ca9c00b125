"""Shapes by name: what the published models are made of."""

from __future__ import annotations

from dataclasses import replace

from accounting.shape import Attention, FeedForward, LatentAttention, Layer, TransformerShape

_GPT2 = {"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16), "gpt2-large": (36, 1280, 20), "gpt2-xl": (48, 1600, 25)}


def _gpt2(layers: int, width: int, heads: int) -> TransformerShape:
    """As published: Radford et al. 2019, Language Models are Unsupervised Multitask Learners."""
    return TransformerShape(
        vocab_size=50257,
        context_length=1024,
        num_layers=layers,
        d_model=width,
        num_heads=heads,
        d_ff=4 * width,
        ffn="gelu",
        norm="layernorm",
        position="learned",
        tied_embeddings=True,
        bias=True,
    )


_DEEPSEEK = LatentAttention(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
_SCOUT_FFN = FeedForward(experts=16, experts_per_token=1, shared_d_ff=8192, router="sigmoid_of_input")

SHAPES: dict[str, TransformerShape] = {
    **{name: _gpt2(*sizes) for name, sizes in _GPT2.items()},
    # the same dimensions in a modern block: untied, SwiGLU, RMSNorm, RoPE, no biases
    **{
        f"{name}-swiglu": TransformerShape(
            vocab_size=50257, context_length=1024, num_layers=layers, d_model=width, num_heads=heads, d_ff=4 * width
        )
        for name, (layers, width, heads) in _GPT2.items()
    },
    # Brown et al. 2020, Language Models are Few-Shot Learners, table 2.1: every layer attends to all positions here
    "gpt3-175b": replace(_gpt2(96, 12288, 96), context_length=2048),
    "tinyllama-1.1b": TransformerShape(
        vocab_size=32000, context_length=2048, num_layers=22, d_model=2048, num_heads=32, d_ff=5632, num_kv_heads=4
    ),
    "llama-2-7b": TransformerShape(
        vocab_size=32000, context_length=4096, num_layers=32, d_model=4096, num_heads=32, d_ff=11008
    ),
    "llama-3-8b": TransformerShape(
        vocab_size=128256, context_length=8192, num_layers=32, d_model=4096, num_heads=32, d_ff=14336, num_kv_heads=8
    ),
    "llama-3-70b": TransformerShape(
        vocab_size=128256, context_length=8192, num_layers=80, d_model=8192, num_heads=64, d_ff=28672, num_kv_heads=8
    ),
    "llama-3.2-1b": TransformerShape(
        vocab_size=128256,
        context_length=131072,
        num_layers=16,
        d_model=2048,
        num_heads=32,
        d_ff=8192,
        num_kv_heads=8,
        tied_embeddings=True,
    ),
    "mistral-7b": TransformerShape(
        vocab_size=32000,
        context_length=32768,
        num_layers=32,
        d_model=4096,
        num_heads=32,
        d_ff=14336,
        num_kv_heads=8,
        sliding_window=4096,
    ),
    "mixtral-8x7b": TransformerShape(
        vocab_size=32000,
        context_length=32768,
        num_layers=32,
        d_model=4096,
        num_heads=32,
        d_ff=14336,
        num_kv_heads=8,
        experts=8,
        experts_per_token=2,
    ),
    "qwen2.5-0.5b": TransformerShape(
        vocab_size=151936,
        context_length=32768,
        num_layers=24,
        d_model=896,
        num_heads=14,
        d_ff=4864,
        num_kv_heads=2,
        tied_embeddings=True,
        qkv_bias=True,
    ),
    "qwen3-0.6b": TransformerShape(
        vocab_size=151936,
        context_length=40960,
        num_layers=28,
        d_model=1024,
        num_heads=16,
        d_ff=3072,
        num_kv_heads=8,
        head_dim=128,
        tied_embeddings=True,
        qk_norm=True,
    ),
    "qwen3-30b-a3b": TransformerShape(
        vocab_size=151936,
        context_length=40960,
        num_layers=48,
        d_model=2048,
        num_heads=32,
        d_ff=768,
        num_kv_heads=4,
        head_dim=128,
        qk_norm=True,
        experts=128,
        experts_per_token=8,
    ),
    "deepseek-v3": TransformerShape(
        vocab_size=129280,
        context_length=163840,
        num_layers=61,
        d_model=7168,
        num_heads=128,
        d_ff=2048,
        leading=3 * (Layer(_DEEPSEEK, FeedForward(18432)),),
        layers=(
            Layer(
                _DEEPSEEK,
                FeedForward(experts=256, experts_per_token=8, shared_d_ff=2048, router="sigmoid"),
            ),
        ),
    ),
    **{
        name: TransformerShape(
            vocab_size=201088,
            context_length=131072,
            num_layers=layers,
            d_model=2880,
            num_heads=64,
            d_ff=2880,
            num_kv_heads=8,
            head_dim=64,
            ffn="clamped_swiglu",
            bias=True,
            layers=tuple(
                Layer(
                    Attention(window, sinks=True),
                    FeedForward(experts=experts, experts_per_token=4, router="softmax_of_chosen", router_bias=True),
                )
                for window in (128, None)
            ),
        )
        for name, layers, experts in (("gpt-oss-20b", 24, 32), ("gpt-oss-120b", 36, 128))
    },
    "llama-4-scout": TransformerShape(  # its text model
        vocab_size=202048,
        context_length=10485760,
        num_layers=48,
        d_model=5120,
        num_heads=40,
        d_ff=8192,
        num_kv_heads=8,
        head_dim=128,
        layers=(
            *3 * (Layer(Attention(8192, chunked=True, qk_norm="l2"), _SCOUT_FFN),),
            Layer(Attention(rotated=False), _SCOUT_FFN),
        ),
    ),
    "gemma-2b": TransformerShape(
        vocab_size=256000,
        context_length=8192,
        num_layers=18,
        d_model=2048,
        num_heads=8,
        d_ff=16384,
        num_kv_heads=1,
        head_dim=256,
        ffn="geglu",
        tied_embeddings=True,
    ),
    "gemma-2-2b": TransformerShape(
        vocab_size=256000,
        context_length=8192,
        num_layers=26,
        d_model=2304,
        num_heads=8,
        d_ff=9216,
        num_kv_heads=4,
        head_dim=256,
        ffn="geglu",
        tied_embeddings=True,
        post_norm=True,
        layers=(Layer(Attention(4096)), Layer()),
    ),
    "gemma-3-1b": TransformerShape(
        vocab_size=262144,
        context_length=32768,
        num_layers=26,
        d_model=1152,
        num_heads=4,
        d_ff=6912,
        num_kv_heads=1,
        head_dim=256,
        ffn="geglu",
        tied_embeddings=True,
        post_norm=True,
        qk_norm=True,
        layers=(*5 * (Layer(Attention(512)),), Layer()),
    ),
}
