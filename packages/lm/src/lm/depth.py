"""A model and its training from one number, its depth: `lm train --depth N`.

    width      32 N, in heads of 32, or of 64 from N = 8 on
    context    64 tokens for each power of two in N, at most 1,024
    tokens     3 for each weight of the blocks and the head
    batch      1,024 tokens for a run of a million, and by the 0.4th power of the tokens more
    rate       of Muon, 0.016 at a width of 64, and by the square root of the width less; of embeddings 10 times that

nanochat has such a dial. The coefficients were fitted to minutes of a CPU at depths 1 to 3 (benchmarks/depth.py).
"""

from __future__ import annotations

import math

from lm.config import ModelConfig, TrainConfig

WIDTH = 32  # for each layer
TOKENS_PER_WEIGHT = 3


def configuration_of(depth: int, vocab_size: int) -> tuple[ModelConfig, TrainConfig]:
    """Return the model of a depth, its number of blocks, and its training. ValueError: depth is less than 1.

    >>> model, training = configuration_of(2, 4096)
    >>> model.d_model, model.context_length, training.batch_size, training.steps
    (64, 128, 8, 1062)
    """
    if depth < 1:
        raise ValueError(f"expected a depth of at least 1, got {depth}")
    width, context_length = WIDTH * depth, min(1024, 64 << int(math.log2(depth)))
    head_dim = 32 if depth < 8 or width % 64 else 64
    d_ff = round(width * 8 / 3 / 16) * 16
    model = ModelConfig(vocab_size, context_length, depth, width, width // head_dim, d_ff, qk_norm=True)
    weights = depth * (4 * width**2 + 3 * width * d_ff) + width * vocab_size
    tokens = TOKENS_PER_WEIGHT * weights
    batch_size = max(1, 2 ** round(math.log2(1024 * (tokens / 1e6) ** 0.4 / context_length)))
    learning_rate = float(f"{0.016 * math.sqrt(64 / width):.2g}")
    training = TrainConfig(
        max(1, round(tokens / (batch_size * context_length))),
        batch_size=batch_size,
        optimizer="muon",
        learning_rate=learning_rate,
        embedding_learning_rate=10 * learning_rate,
        schedule="linear",
        beta2=0.99,
    )
    return model, training
