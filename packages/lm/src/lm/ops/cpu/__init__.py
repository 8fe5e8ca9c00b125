"""Faster on a CPU: C compiled at first use, attention by blocks, int8 weights.

PyTorch does the same where there is no compiler.
"""
