"""Exercises of chapter 5: the budget before the run. Fill in the bodies, then run `python grade.py 5`.

The model is that of chapter 4: SwiGLU, RMSNorm, rotary embedding, no biases, a head of its own.
"""


def count_parameters(
    vocab_size: int, context_length: int, num_layers: int, d_model: int, num_heads: int, d_ff: int
) -> int:
    """Number of elements that training changes. Rotary embedding has none."""


def forward_flops(
    vocab_size: int, context_length: int, num_layers: int, d_model: int, num_heads: int, d_ff: int
) -> int:
    """FLOPs of the matrix multiplications of one forward pass over context_length tokens.

    (m, k) times (k, n) is 2·m·k·n FLOPs. Attention's scores are computed for every pair of positions, hidden or not.
    """


def training_memory(num_parameters: int, bytes_per_sequence: int, batch_size: int) -> int:
    """Bytes of a training step with AdamW in float32: weights, gradients, AdamW's two moments, saved activations."""


def largest_batch_size(memory: int, num_parameters: int, bytes_per_sequence: int) -> int:
    """The largest batch whose step fits in so many bytes; 0 if none does."""


def training_days(num_parameters: int, tokens: int, peak_flops: float, mfu: float) -> float:
    """Days of training: 6 FLOPs for each parameter and token, at a share mfu of the device's peak (FLOPs a second)."""
