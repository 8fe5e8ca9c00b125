"""A solution of the exercises of chapter 5."""


def count_parameters(
    vocab_size: int, context_length: int, num_layers: int, d_model: int, num_heads: int, d_ff: int
) -> int:
    attention = 4 * d_model * d_model
    ffn = 3 * d_model * d_ff
    norms = 2 * d_model
    return 2 * vocab_size * d_model + num_layers * (attention + ffn + norms) + d_model


def forward_flops(
    vocab_size: int, context_length: int, num_layers: int, d_model: int, num_heads: int, d_ff: int
) -> int:
    projections = 2 * context_length * 4 * d_model * d_model
    scores = 2 * 2 * context_length * context_length * d_model
    ffn = 2 * context_length * 3 * d_model * d_ff
    head = 2 * context_length * d_model * vocab_size
    return num_layers * (projections + scores + ffn) + head


def training_memory(num_parameters: int, bytes_per_sequence: int, batch_size: int) -> int:
    return 4 * 4 * num_parameters + batch_size * bytes_per_sequence


def largest_batch_size(memory: int, num_parameters: int, bytes_per_sequence: int) -> int:
    return max(0, (memory - training_memory(num_parameters, 0, 0)) // bytes_per_sequence)


def training_days(num_parameters: int, tokens: int, peak_flops: float, mfu: float) -> float:
    return 6 * num_parameters * tokens / (peak_flops * mfu) / 86_400
