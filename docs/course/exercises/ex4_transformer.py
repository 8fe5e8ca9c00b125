"""Exercises of chapter 4: the Transformer, part by part. Fill in the bodies, then run `python grade.py 4`.

Use tensors and their arithmetic; leave torch.nn.functional and the layers of torch.nn alone. Weights are parameters
under the names that stand in the docstrings, so that the grader can give your module the weights of ours.
"""

import torch
from torch import Tensor, nn


def softmax(x: Tensor, dim: int) -> Tensor:
    """exp(x) / Σ exp(x) along a dimension. It has to survive numbers whose exponential does not fit."""


class Linear(nn.Module):
    """x (…, in_features) → x Wᵀ (…, out_features), without a bias.

    `weight`: (out_features, in_features), at first N(0, 2 / (in_features + out_features)), cut at three deviations.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        pass


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight over the last dimension, computed in float32.

    `weight`: (d_model,), ones at first.
    """

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        pass


class SwiGLU(nn.Module):
    """w2(silu(w1 x) · w3 x), where silu(x) = x · sigmoid(x).

    `w1`, `w3`: Linear(d_model, d_ff), `w2`: Linear(d_ff, d_model).
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        pass


class RotaryPositionalEmbedding(nn.Module):
    """Turns each pair (2j, 2j + 1) of a vector at position i by the angle i · theta^(-2j / d_k). No weights."""

    def __init__(self, theta: float, d_k: int, max_seq_len: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, token_positions: Tensor) -> Tensor:
        """x (…, seq, d_k), token_positions (seq,) or (…, seq) as x → (…, seq, d_k)."""


def scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q Kᵀ / √d_k) V over the keys that a query may see.

    Q (…, queries, d_k), K (…, keys, d_k), V (…, keys, d_v).
    mask (…, queries, keys): True where a query sees a key.
    """


class MultiHeadSelfAttention(nn.Module):
    """Causal self-attention with rotary embedding: x (…, seq, d_model) → the same.

    `q_proj`, `k_proj`, `v_proj`, `output_proj`: Linear(d_model, d_model). Head h has the features from h · d_k on,
    where d_k = d_model / num_heads; positions are 0, 1, 2, …
    """

    def __init__(self, d_model: int, num_heads: int, max_seq_len: int, theta: float) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        pass


class TransformerLM(nn.Module):
    """The whole model: ids (batch, seq) → logits (batch, seq, vocab_size).

    `token_embeddings` has a `weight` (vocab_size, d_model), a row for each id, at first N(0, 1), cut at three
    deviations. `layers` is a ModuleList; each has `ln1` and `ln2` (RMSNorm), `attn` (MultiHeadSelfAttention) and `ffn`
    (SwiGLU): x + attn(ln1(x)), and to that ffn(ln2(…)) is added. Then `ln_final` (RMSNorm) and `lm_head` (Linear).
    """

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        rope_theta: float,
    ) -> None:
        super().__init__()

    def forward(self, ids: Tensor) -> Tensor:
        pass
