"""A solution of the exercises of chapter 4."""

import math

import torch
from torch import Tensor, nn


def softmax(x: Tensor, dim: int) -> Tensor:
    exponentials = (x - x.amax(dim, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


def normal(*shape: int, deviation: float) -> nn.Parameter:
    return nn.Parameter(nn.init.trunc_normal_(torch.empty(shape), 0.0, deviation, -3 * deviation, 3 * deviation))


class Linear(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = normal(out_features, in_features, deviation=math.sqrt(2 / (in_features + out_features)))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class RMSNorm(nn.Module):
    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide / torch.sqrt((wide * wide).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = Linear(d_model, d_ff), Linear(d_ff, d_model), Linear(d_model, d_ff)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.w1(x)
        return self.w2(gate * torch.sigmoid(gate) * self.w3(x))


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, theta: float, d_k: int, max_seq_len: int) -> None:
        super().__init__()
        angles = torch.arange(max_seq_len)[:, None] * theta ** (-torch.arange(0, d_k, 2) / d_k)
        self.register_buffer("cos", angles.cos(), persistent=False)  # (max_seq_len, d_k / 2)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor, token_positions: Tensor) -> Tensor:
        cos, sin = self.cos[token_positions], self.sin[token_positions]  # (…, seq, d_k / 2)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])  # (…, queries, keys)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return softmax(scores, -1) @ V


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int, max_seq_len: int, theta: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.output_proj = (Linear(d_model, d_model) for _ in range(4))
        self.rope = RotaryPositionalEmbedding(theta, d_model // num_heads, max_seq_len)

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)  # (…, heads, seq, d_k)

    def forward(self, x: Tensor) -> Tensor:
        seq = x.shape[-2]
        positions = torch.arange(seq)
        q, k = (self.rope(self.heads(project(x)), positions) for project in (self.q_proj, self.k_proj))
        v = self.heads(self.v_proj(x))
        causal = torch.ones(seq, seq, dtype=torch.bool).tril()
        return self.output_proj(scaled_dot_product_attention(q, k, v, causal).transpose(-2, -3).flatten(-2))


class Embedding(nn.Module):
    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = normal(vocab_size, d_model, deviation=1.0)

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight[ids]


class Block(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, context_length: int, rope_theta: float) -> None:
        super().__init__()
        self.ln1, self.ln2 = RMSNorm(d_model), RMSNorm(d_model)
        self.attn = MultiHeadSelfAttention(d_model, num_heads, context_length, rope_theta)
        self.ffn = SwiGLU(d_model, d_ff)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class TransformerLM(nn.Module):
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
        self.token_embeddings = Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(
            Block(d_model, num_heads, d_ff, context_length, rope_theta) for _ in range(num_layers)
        )
        self.ln_final = RMSNorm(d_model)
        self.lm_head = Linear(d_model, vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token_embeddings(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.ln_final(x))
