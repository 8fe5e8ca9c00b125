"""Shapes by name: what the published models are made of."""

from __future__ import annotations

from accounting.checks import Named
from accounting.layer import Attention, FeedForward, LatentAttention, Layer
from accounting.shape import TransformerShape

TYPE_CHECKING = False  # see units.py
if TYPE_CHECKING:
    from typing import Any

# layers, width, heads, as published: Radford et al. 2019, Language Models are Unsupervised Multitask Learners
_GPT2 = {"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16), "gpt2-large": (36, 1280, 20), "gpt2-xl": (48, 1600, 25)}
_GPT2_BLOCK: dict[str, Any] = {
    "ffn": "gelu",
    "norm": "layernorm",
    "position": "learned",
    "tied_embeddings": True,
    "bias": True,
}
_DEEPSEEK = LatentAttention(q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
_DEEPSEEK_FFN = FeedForward(experts=256, experts_per_token=8, shared_d_ff=2048, router="sigmoid")
_SCOUT_FFN = FeedForward(experts=16, experts_per_token=1, shared_d_ff=8192, router="sigmoid_of_input")
_SCOUT_LAYERS = (
    *3 * (Layer(Attention(8192, chunked=True, qk_norm="l2"), _SCOUT_FFN),),
    Layer(Attention(rotated=False), _SCOUT_FFN),
)
_GEMMA: dict[str, Any] = {"head_dim": 256, "ffn": "geglu", "tied_embeddings": True}


def _gpt_oss(layers: int, experts: int) -> TransformerShape:
    ffn = FeedForward(experts=experts, experts_per_token=4, router="softmax_of_chosen", router_bias=True)
    kinds = tuple(Layer(Attention(window, sinks=True), ffn) for window in (128, None))
    sizes: dict[str, Any] = {"num_kv_heads": 8, "head_dim": 64, "ffn": "clamped_swiglu", "bias": True}
    return TransformerShape(201088, 131072, layers, 2880, 64, 2880, layers=kinds, **sizes)


# vocab_size, context_length, num_layers, d_model, num_heads, d_ff, then what differs from a block with SwiGLU, RMSNorm
# and RoPE, without biases, and from an untied head
_SHAPES: dict[str, TransformerShape] = {
    **{
        name: TransformerShape(50257, 1024, layers, width, heads, 4 * width, **_GPT2_BLOCK)
        for name, (layers, width, heads) in _GPT2.items()
    },
    **{
        f"{name}-swiglu": TransformerShape(50257, 1024, layers, width, heads, 4 * width)
        for name, (layers, width, heads) in _GPT2.items()
    },
    # Brown et al. 2020, Language Models are Few-Shot Learners, table 2.1: every layer attends to all positions here
    "gpt3-175b": TransformerShape(50257, 2048, 96, 12288, 96, 4 * 12288, **_GPT2_BLOCK),
    "tinyllama-1.1b": TransformerShape(32000, 2048, 22, 2048, 32, 5632, num_kv_heads=4),
    "llama-2-7b": TransformerShape(32000, 4096, 32, 4096, 32, 11008),
    "llama-3-8b": TransformerShape(128256, 8192, 32, 4096, 32, 14336, num_kv_heads=8),
    "llama-3-70b": TransformerShape(128256, 8192, 80, 8192, 64, 28672, num_kv_heads=8),
    "llama-3.2-1b": TransformerShape(128256, 131072, 16, 2048, 32, 8192, num_kv_heads=8, tied_embeddings=True),
    "mistral-7b": TransformerShape(32000, 32768, 32, 4096, 32, 14336, num_kv_heads=8, sliding_window=4096),
    "mixtral-8x7b": TransformerShape(
        *(32000, 32768, 32, 4096, 32, 14336), num_kv_heads=8, experts=8, experts_per_token=2
    ),
    "qwen2.5-0.5b": TransformerShape(
        *(151936, 32768, 24, 896, 14, 4864), num_kv_heads=2, tied_embeddings=True, qkv_bias=True
    ),
    "qwen3-0.6b": TransformerShape(
        *(151936, 40960, 28, 1024, 16, 3072), num_kv_heads=8, head_dim=128, tied_embeddings=True, qk_norm=True
    ),
    "qwen3-30b-a3b": TransformerShape(
        *(151936, 40960, 48, 2048, 32, 768),
        num_kv_heads=4,
        head_dim=128,
        qk_norm=True,
        experts=128,
        experts_per_token=8,
    ),
    "deepseek-v3": TransformerShape(
        *(129280, 163840, 61, 7168, 128, 2048),
        leading=3 * (Layer(_DEEPSEEK, FeedForward(18432)),),
        layers=(Layer(_DEEPSEEK, _DEEPSEEK_FFN),),
    ),
    "gpt-oss-20b": _gpt_oss(24, 32),
    "gpt-oss-120b": _gpt_oss(36, 128),
    # its text model
    "llama-4-scout": TransformerShape(
        *(202048, 10485760, 48, 5120, 40, 8192), num_kv_heads=8, head_dim=128, layers=_SCOUT_LAYERS
    ),
    "gemma-2b": TransformerShape(256000, 8192, 18, 2048, 8, 16384, num_kv_heads=1, **_GEMMA),
    "gemma-2-2b": TransformerShape(
        *(256000, 8192, 26, 2304, 8, 9216),
        num_kv_heads=4,
        post_norm=True,
        layers=(Layer(Attention(4096)), Layer()),
        **_GEMMA,
    ),
    "gemma-3-1b": TransformerShape(
        *(262144, 32768, 26, 1152, 4, 6912),
        num_kv_heads=1,
        post_norm=True,
        qk_norm=True,
        layers=(*5 * (Layer(Attention(512)),), Layer()),
        **_GEMMA,
    ),
}
SHAPES: dict[str, TransformerShape] = Named("shape", _SHAPES)
