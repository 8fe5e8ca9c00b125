"""Weights in the types that their file has, which C multiplies without converting them first: bfloat16 and float16, and
GGUF's Q8_0, Q4_K, Q5_K and Q6_K. They may lie in the mapped file itself. PyTorch, where it computes, converts a matrix
for each product: slower, and the same but for rounding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lm.extras import need

FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
# Weights of a block, and its bytes, as in ggml-common.h.
BLOCKS = {"Q8_0": (32, 34), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210)}


@dataclass(frozen=True)
class Rows:
    """Rows of a matrix of one kind: of FLOATS, numbers (rows, columns); of BLOCKS, uint8 (rows, bytes); or "INT8"."""

    kind: str
    data: Tensor

    @property
    def columns(self) -> int:
        weights, size = BLOCKS.get(self.kind, (1, 1))
        return self.data.shape[1] // size * weights

    def dequantized(self) -> Tensor:
        """The weights, (rows, columns) float32."""
        if self.kind not in BLOCKS:
            return self.data.float()
        gguf = need("gguf", "GGUF", "groundup-lm[gguf]")
        kind = gguf.GGMLQuantizationType[self.kind]
        return torch.from_numpy(gguf.quants.dequantize(self.data.numpy(), kind))


class StoredLinear(nn.Module):
    """A linear layer whose matrix is rows of one kind after rows of another; x (…, in) → (…, out), float32. The weights
    are no buffers: they stay where they are when the model is converted."""

    bias: Tensor | None

    def __init__(self, parts: list[Rows], bias: Tensor | None = None) -> None:
        super().__init__()
        self.parts = parts
        self.register_buffer("bias", bias)

    @property
    def weight(self) -> Tensor:
        """(out, in), float32, converted anew."""
        return torch.cat([part.dequantized() for part in self.parts])

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([F.linear(x, part.dequantized().to(x.dtype)) for part in self.parts], -1)
        return y if self.bias is None else y + self.bias


class StoredEmbedding(nn.Module):
    """An embedding of such rows, times a scale: ids (…) → (…, d_model), float32."""

    def __init__(self, parts: list[Rows], scale: float = 1.0) -> None:
        super().__init__()
        self.parts, self.scale = parts, scale
        self.num_embeddings = len(parts[0].data)

    @property
    def weight(self) -> Tensor:
        """(vocab, d_model), float32, converted anew."""
        return self.parts[0].dequantized()

    def forward(self, ids: Tensor) -> Tensor:
        (rows,) = self.parts
        chosen = Rows(rows.kind, rows.data[ids.reshape(-1)])
        return chosen.dequantized().reshape(*ids.shape, rows.columns) * self.scale
