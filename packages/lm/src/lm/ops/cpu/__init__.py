"""What is faster on a CPU: C compiled where it is used, attention by blocks, int8 weights.

PyTorch does the same where there is no compiler.
"""
