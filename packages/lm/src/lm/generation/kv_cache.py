"""Keys and values of texts that are being continued, allocated once."""

from __future__ import annotations

import torch
from torch import Tensor

from lm.model import Transformer


class LayerStore:
    """Keys and values of one layer: (batch, kv_heads, capacity, head_dim) each, filled up to position `length`."""

    def __init__(self, keys: Tensor, values: Tensor, length: int) -> None:
        self.keys, self.values, self.length = keys, values, length

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Appends k, v (batch, kv_heads, seq, head_dim) and gives views of all that was appended so far."""
        start, end = self.length, self.length + k.shape[2]
        self.keys[:, :, start:end] = k
        self.values[:, :, start:end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Cache:
    """Keys and values of all layers for `rows` texts of up to `capacity` tokens (the model's context, if not given).

    store (layers, 2, rows, kv_heads, capacity, head_dim); lengths: how many positions of each row are filled.
    """

    def __init__(self, model: Transformer, rows: int = 1, capacity: int | None = None) -> None:
        config, weight = model.config, model.embedding.weight
        self.capacity = config.context_length if capacity is None else capacity
        size = (config.num_layers, 2, rows, config.kv_heads, self.capacity, config.head_width)
        self.store = torch.zeros(size, dtype=weight.dtype, device=weight.device)
        self.first_row = self.store[:, :, :1]
        self.lengths = [0] * rows

    def clear(self, row: int) -> None:
        """Forgets a row's text, and keeps the memory."""
        self.lengths[row] = 0

    def copy(self, source: int, target: int) -> None:
        """Makes one row hold what another does."""
        length = self.lengths[target] = self.lengths[source]
        self.store[:, :, target, :, :length] = self.store[:, :, source, :, :length]
